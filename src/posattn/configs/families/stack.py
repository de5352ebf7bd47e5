"""What families share: the sizes of heads, the rotation, the kinds of layers, and a stack of them."""

from dataclasses import replace

from posattn.configs.keys import REQUIRED, shown
from posattn.configs.layers import Layer
from posattn.configs.rotation import METHODS, TRAINED, rope

__all__ = [
    "CHUNKED",
    "FULL",
    "LINEAR",
    "SLIDING",
    "kinds",
    "plain",
    "rotation",
    "stacked",
    "windowed",
]

FULL, SLIDING = "full_attention", "sliding_attention"
CHUNKED, LINEAR = "chunked_attention", "linear_attention"
LONGEST = 2**62  # of positions, which no array is made of


def plain(
    keys,
    *,
    grouped=None,
    head_dim=None,
    dim=("hidden_size",),
    heads=("num_attention_heads", "n_head"),
    each=None,
):
    """A layer of causal attention with heads, scaled as usual, and without positions.

    Args:
        keys: of the configuration.
        grouped: what an absent `num_key_value_heads` is: None for as many as queries have, `REQUIRED` if
            the class of the family has a number of its own, or False if the family has no such key.
        head_dim: likewise of `head_dim`, where None is an equal share of the width.
        dim: the names of the width.
        heads: the names of their number.
        each: the width of a head, where the family's keys say it in another way.
    """
    width = keys.count(*dim)
    heads = keys.count(*heads, most=2**16)
    groups = heads
    if grouped is not False:
        groups = keys.count("num_key_value_heads", absent=grouped, null=heads) or heads
        if heads % groups:
            raise keys.error(
                f"num_key_value_heads = {groups} must divide num_attention_heads = {heads}"
            )
    if head_dim is not False:
        each = keys.count("head_dim", absent=head_dim, null=None, most=2**16)
    if each is None:
        if width % heads:
            raise keys.error(
                f"hidden_size = {width} must be a multiple of num_attention_heads = {heads}"
            )
        each = width // heads
    return Layer(0, "full", width, heads, groups, each, scale=each**-0.5)


def stacked(keys, change, *, names=("num_hidden_layers", "n_layer"), **options):
    """The layers of a stack, each made by a function of its place."""
    count = keys.count(*names, most=10_000, **options)
    return tuple(replace(change(place), index=place) for place in range(count))


def kinds(keys, pattern=None, among=(FULL, SLIDING), names=("layer_types",)):
    """The kind of each layer: from `layer_types`, or by a pattern of the place if it is absent."""
    count = keys.count("num_hidden_layers", "n_layer", most=10_000)
    absent = REQUIRED if pattern is None else None
    given = keys.sequence(*names, length=count, absent=absent)
    if given is None:
        return [pattern(place) for place in range(count)]
    for place, kind in enumerate(given):
        if kind not in among:
            raise keys.error(
                f"layer_types[{place}] must be one of {', '.join(map(repr, among))}, "
                f"got {kind!r}"
            )
    return given


def windowed(keys, layer, kind, window):
    """The layer with a window if it is of the kind that slides."""
    if kind != SLIDING:
        return layer
    if window is None:
        raise keys.missing("sliding_window", why=", but layer_types has layers that slide")
    return replace(layer, kind="sliding", window=window)


def rotation(
    keys,
    head_dim,
    *,
    kind=None,
    base=("rope_theta",),
    share=("partial_rotary_factor",),
    partial=False,
    layout="half",
    names=None,
):
    """How queries and keys rotate, from the newer form of the configuration or the older one.

    Args:
        keys: of the configuration.
        head_dim: the width of a head.
        kind: which of several rotations, for a family that has one for each kind of layer.
        base: under which names the base stands outside of a dictionary.
        share: likewise the part of a head that rotates.
        partial: whether the family can rotate a part of a head, or `REQUIRED` if it must say which.
        layout: of the pairs.
        names: methods under other names, as Phi-3's.
    """
    found, where = _parameters(keys)
    if kind is not None:
        found, where = _of_kind(keys, found, where, kind)
    elif any(isinstance(value, dict) for value in found.values()):
        raise keys.error(
            f"{where} must hold numbers, since all layers of this family rotate alike, got {shown(found)}"
        )
    _merge(keys, found, where, "rope_theta", base)
    _merge(keys, found, where, "partial_rotary_factor", share)
    if found.get("rope_theta") is None:
        raise keys.missing(*base, "rope_parameters", why=f" (nor is it in {where})")
    part = found.get("partial_rotary_factor")
    if partial is REQUIRED and part is None:
        raise keys.missing(*share)
    if not partial and part not in (None, 1):
        raise keys.error(
            "partial_rotary_factor must be 1, since heads of this family rotate as a whole, "
            f"got {shown(part)}"
        )
    method = _method(keys, found, where, names or {})
    if TRAINED in METHODS.get(method, ((),))[0]:
        _merge(keys, found, where, TRAINED, (TRAINED,))
    keys.ignore(TRAINED)
    longest = keys.count("max_position_embeddings", absent=None, most=LONGEST)
    return rope(
        found,
        head_dim,
        max_position_embeddings=longest,
        length=keys.length,
        layout=layout,
        family=f"{keys.family}: {where}",
    )


def _parameters(keys):
    """The dictionary of rope parameters, and where it stands."""
    new, old = keys.section("rope_parameters"), keys.section("rope_scaling")
    if new and old and new != old:
        raise keys.error(
            f"rope_parameters = {shown(new)} and rope_scaling = {shown(old)} contradict each other"
        )
    return (dict(new), "rope_parameters") if new else (dict(old or {}), "rope_scaling")


def _of_kind(keys, found, where, kind):
    """The part of the parameters for one kind of layer."""
    if not found:
        raise keys.missing("rope_parameters", "rope_scaling")
    if not isinstance(found.get(kind), dict):
        raise keys.missing(f"{where}[{kind!r}]")
    if found[kind].get("truncate") is False:
        raise keys.error(
            f"{where}[{kind!r}] has truncate = False, which transformers does not read "
            "where layers rotate in several ways"
        )
    return dict(found[kind]), f"{where}[{kind!r}]"


def _method(keys, found, where, names):
    """Put the method under one key and its name of today, where there may be two."""
    given = [found.pop(key, None) for key in ("rope_type", "type")]
    given = [value for value in given if value is not None]
    for value in given:
        if not isinstance(value, str):
            raise keys.error(
                f"{where}: rope_type must be a string, got {shown(value)}", TypeError
            )
    meant = [names.get(value, value) for value in given] or ["default"]
    if sorted(meant) == [
        "default",
        "mrope",
    ]:  # as transformers writes what it read as mrope
        meant = ["mrope"]
    if meant[0] != meant[-1]:
        raise keys.error(
            f"{where} has rope_type = {given[0]!r} and type = {given[1]!r}, which contradict"
        )
    found["rope_type"] = meant[0]
    return meant[0]


def _merge(keys, found, where, name, outside):
    """Take a number that may stand in the dictionary or outside of it, and must not differ."""
    other, value = keys.take(outside, absent=None)
    if value is None:
        return
    if name == TRAINED:
        keys.whole(other, value, most=LONGEST)
    else:
        keys.finite(other, value, above=1 if name == "rope_theta" else 0)
    if found.get(name) is None:
        found[name] = value
    if found[name] != value:
        raise keys.error(
            f"{where} has {name} = {shown(found[name])} but {other} = {shown(value)}, "
            "which contradict"
        )
