"""What families share: the sizes of heads, the rotation, the kinds of layers, and a stack of them."""

import math
import re
from dataclasses import replace

from posattn.configs.keys import OPTIONAL, REQUIRED, shown
from posattn.configs.layers import Layer, Slopes
from posattn.configs.rotation import METHODS, OTHER_NAMES, OUTSIDE, TRAINED, rope

__all__ = [
    "CHUNKED",
    "DEPTH",
    "FULL",
    "LINEAR",
    "LONGEST",
    "SLIDING",
    "all_but",
    "alone",
    "beside",
    "by_kind",
    "equal",
    "filled",
    "kinds",
    "mixed",
    "nested",
    "numbered",
    "offset",
    "patterned",
    "plain",
    "rotation",
    "rotation_of",
    "section_of",
    "sliding_window",
    "slopes",
    "spoken",
    "stacked",
    "windowed",
    "with_groups",
]

FULL, SLIDING = "full_attention", "sliding_attention"
CHUNKED, LINEAR = "chunked_attention", "linear_attention"
DEPTH = "num_hidden_layers", "n_layer", "num_layers", "n_layers"
ELSEWHERE = "llama_4_scaling_beta", "max_position_embeddings"  # no rotation's
LONGEST = 2**62  # of positions, which no array is made of
LIMITED = {  # kinds of layers that see a part: what they are called, and where the size stands
    SLIDING: ("sliding", "window", "sliding_window"),
    CHUNKED: ("chunked", "chunk", "attention_chunk_size"),
}


def plain(
    keys,
    *,
    grouped=True,
    head_dim=True,
    dim=("hidden_size",),
    heads=("num_attention_heads", "n_head"),
    each=None,
):
    """A layer of causal attention with heads, scaled as usual, and without positions.

    Args:
        keys: of the configuration.
        grouped: whether the family has `num_key_value_heads`; as many as queries have if nobody says.
        head_dim: whether the family has `head_dim`; an equal share of the width if nobody says.
        dim: the names of the width.
        heads: the names of their number.
        each: the width of a head, where the family's keys say it in another way.
    """
    width = keys.count(*dim)
    count = keys.count(*heads, most=2**16)
    groups = count
    if grouped:
        groups = keys.count("num_key_value_heads", absent=OPTIONAL, null=count) or count
    if head_dim:
        each = keys.count("head_dim", absent=OPTIONAL, null=None, most=2**16)
    if each is None:
        if width % count:
            raise keys.error(
                f"hidden_size = {width} must be a multiple of num_attention_heads = {count}"
            )
        each = width // count
    layer = Layer(0, "full", width, count, count, each, scale=each**-0.5)
    return with_groups(keys, layer, groups)


def alone(keys, **options):
    """A layer of a family whose heads all have keys of their own, and the same share of the width."""
    return plain(keys, grouped=False, head_dim=False, **options)


def offset(layer, bias=True):
    """The layer with offsets on all four projections, if it has any."""
    return replace(layer, use_bias=(bias,) * 3, use_output_bias=bias)


def with_groups(keys, layer, groups, name="num_key_value_heads", heads=None):
    """The layer with so many heads of keys, which must divide those of queries."""
    heads = layer.num_heads if heads is None else heads
    if heads % groups:
        raise keys.error(
            f"{name} = {groups} must divide num_attention_heads = {heads}",
            do="correct one of them",
        )
    return replace(layer, num_heads=heads, num_kv_heads=groups)


def slopes(layer, scale=1.0):
    """ALiBi for the heads of a layer."""
    power = 2 ** (layer.num_heads.bit_length() - 1)
    exponents = [8 * h / power for h in range(1, power + 1)]
    between = [4 * h / power for h in range(1, 2 * power, 2)]
    found = [2.0**-exponent for exponent in [*exponents, *between][: layer.num_heads]]
    return Slopes(tuple(scale * slope for slope in found))


def filled(keys, words):
    """Words in which `{key}` stands for what a key holds, and `{key*key}` for a product."""

    def number(found):
        product = math.prod(keys.count(*name.split("|")) for name in found[1].split("*"))
        return str(product)

    return re.sub(r"{(.+?)}", number, words)


def stacked(keys, change, *, names=DEPTH, **options):
    """The layers of a stack, each made by a function of its place."""
    count = keys.count(*names, most=10_000, **options)
    return numbered(change(place) for place in range(count))


def numbered(layers):
    """The layers, each with its place."""
    return tuple(replace(layer, index=place) for place, layer in enumerate(layers))


def equal(keys, layer, **changes):
    """A stack of equal layers, with some changes."""
    layer = replace(layer, **changes)
    return stacked(keys, lambda place: layer)


def kinds(keys, pattern=None, among=(FULL, SLIDING), names=("layer_types",)):
    """The kind of each layer: from `layer_types`, or by a pattern of the place if it is absent."""
    count = keys.count(*DEPTH, most=10_000)
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


def sliding_window(keys):
    """How many positions a query sees; null is no window."""
    return keys.count("sliding_window", null=None, most=LONGEST)


def patterned(keys, layer, pattern, rope, window=REQUIRED):
    """A stack whose layers slide or see all, by `layer_types` or a pattern of the place.

    Args:
        keys: of the configuration.
        layer: what all have in common.
        pattern: as for `kinds`.
        rope: makes the rotation of a kind of layer.
        window: the window, if it is not that of the key.
    """
    window = sliding_window(keys) if window is REQUIRED else window
    kind = kinds(keys, pattern)
    ropes = {name: rope(name) for name in sorted(set(kind))}
    return stacked(
        keys,
        lambda place: windowed(
            keys, replace(layer, rope=ropes[kind[place]]), kind[place], window
        ),
    )


def by_kind(keys, layers, **options):
    """A stack of layers, given by their kinds; `options` are for `kinds`."""
    kind = kinds(keys, among=tuple(layers), **options)
    return stacked(keys, lambda place: layers[kind[place]])


def mixed(keys, layer, words, delta=None, **options):
    """A stack in which some layers are another mechanism, which is told in words.

    Args:
        keys: of the configuration.
        layer: one that attends.
        words: from a kind of layer to what it is, and for `filled` its sizes; None if it attends.
        delta: the sizes of the others, if they have the delta rule.
        options: for `kinds`.
    """
    bare = replace(layer, rope=None, delta=delta)
    layers = {
        name: spoken(keys, bare, said) if said else layer for name, said in words.items()
    }
    return by_kind(keys, layers, **options)


def spoken(keys, layer, words):
    """The layer as another mechanism in words, `"what; sizes"`."""
    what, _, sizes = words.partition("; ")
    return replace(layer, kind=what, told=filled(keys, sizes))


def windowed(keys, layer, kind, size):
    """The layer with its window or its chunk, if it is of a kind that has one."""
    if kind not in LIMITED:
        return layer
    name, field, key = LIMITED[kind]
    if size is None:
        raise keys.missing(key, why=f", but layer_types has layers that are {name}")
    return replace(layer, kind=name, **{field: size})


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
    sections=None,
    alternating=False,
    backward=False,
):
    """How queries and keys rotate, from the newer form of the configuration or the older one.

    Args:
        keys: of the configuration.
        head_dim: the width of a head.
        kind: which of several rotations, for a family that has one for each kind of layer.
        base: under which names the base stands outside of a dictionary, or the number if it is no key.
        share: likewise the part of a head that rotates.
        partial: whether the family can rotate a part of a head, or `REQUIRED` if it must say which.
        layout: of the pairs.
        names: methods under other names, as Phi-3's.
        sections: of the pairs, in the code of a family whose keys may leave them out.
        alternating: whether these alternate.
        backward: whether pairs rotate the other way.
    """
    found, where = _parameters(keys)
    if kind is not None:
        found, where = _of_kind(keys, found, where, kind)
    elif any(isinstance(value, dict) for value in found.values()):
        raise keys.error(
            f"{where} must hold numbers, since all layers of this family rotate alike, got {shown(found)}"
        )
    if not isinstance(base, (list, tuple)):
        found["rope_theta"] = base
    else:
        _merge(keys, found, where, "rope_theta", base)
    _merge(keys, found, where, "partial_rotary_factor", share)
    if found.get("rope_theta") is None:
        _, found["rope_theta"] = keys.take(base, why=f" (nor is it in {where})")
    whole = keys.defaults.get("partial_rotary_factor") == 1  # which needs no telling
    if partial and found.get("partial_rotary_factor") is None and not whole:
        absent = REQUIRED if partial is REQUIRED else OPTIONAL
        _, found["partial_rotary_factor"] = keys.take(share, absent=absent)
    part = found.get("partial_rotary_factor")
    if not partial and part not in (None, 1):
        raise keys.error(
            "partial_rotary_factor must be 1, since heads of this family rotate as a whole, "
            f"got {shown(part)}"
        )
    if sections is not None and found.get("mrope_section") is None:
        found["mrope_section"] = sections
    method = _method(keys, found, where, names or {})
    keys.ignore(TRAINED)
    absent = OPTIONAL if method in ("dynamic", "yarn", "longrope", "llama3") else None
    longest = keys.count("max_position_embeddings", absent=absent, most=LONGEST)
    if TRAINED in METHODS.get(method, ((),))[0]:
        _merge(keys, found, where, TRAINED, (TRAINED,))
    turned = rope(
        found,
        head_dim,
        max_position_embeddings=longest,
        length=keys.length,
        layout=layout,
        family=f"{keys.family}: {where}",
    )
    if sections is not None and turned.interleaved and not alternating:
        raise keys.error(
            "mrope_interleaved must be false, since sections of this family do not alternate"
        )
    if backward:
        turned = replace(turned, frequencies=tuple(-w for w in turned.frequencies))
    return replace(turned, interleaved=True) if alternating else turned


def beside(ropes, axes, turn=1.0):
    """Several rotations side by side in a head, each with a coordinate of its own.

    Args:
        ropes: of the parts of a head.
        axes: what their coordinates are.
        turn: the angle by which the first pair of each rotates between coordinates 0 and 1.
    """
    frequencies = [turn * speed for part in ropes for speed in part.frequencies]
    sections = tuple(len(part.frequencies) for part in ropes)
    return replace(ropes[0], frequencies=tuple(frequencies), sections=sections, axes=axes)


def nested(keys, kind):
    """The kind of layer if `rope_parameters` has a dictionary for each, None if all share one."""
    found = keys.values.get("rope_parameters")
    if not keys.values.keys() & {"rope_parameters", "rope_scaling", "rope_theta"}:
        found = keys.defaults.get("rope_parameters")
    each = isinstance(found, dict) and any(isinstance(v, dict) for v in found.values())
    return kind if each else None


def rotation_of(keys, head_dim, kind, bases, *, unscaled=(), **options):
    """The rotation of a kind of layer: nested, or in the older form, where each has a key for its base.

    Args:
        keys: of the configuration.
        head_dim: the width of a head.
        kind: of the layer.
        bases: the key of the base of each kind.
        unscaled: the kinds that the older form doesn't scale.
        options: for `rotation`.
    """
    told = nested(keys, kind)
    if told is None and kind in unscaled:
        keys = keys.without("rope_scaling")
    return rotation(keys, head_dim, kind=told, base=(bases[kind],), **options)


def all_but(interval, often=SLIDING, rest=FULL):
    """The pattern of a stack in which every so many layers are of another kind."""
    return lambda place: often if (place + 1) % interval else rest


def section_of(keys):
    """The name of the dictionary of rope parameters, of the older form or the newer, and a copy of it."""
    name = "rope_scaling" if keys.values.get("rope_scaling") else "rope_parameters"
    found = keys.values.get(name)
    return name, dict(found) if isinstance(found, dict) else {}


def _parameters(keys):
    """The dictionary of rope parameters, and where it stands."""
    new, old = keys.section("rope_parameters"), keys.section("rope_scaling")
    parts = [part for part in (new or {}).values() if isinstance(part, dict)] or [new]
    if new and old and _bare(old) not in map(_bare, parts):
        raise keys.error(
            f"rope_parameters = {shown(new)} and rope_scaling = {shown(old)} contradict each other"
        )
    if not new and not old and "rope_parameters" not in keys.values:
        new = keys.section("rope_parameters", absent=OPTIONAL)
    return (dict(new), "rope_parameters") if new else (dict(old or {}), "rope_scaling")


def _bare(found):
    """The method and its numbers, without what stands outside of the dictionary in the older form."""
    method = found.get("rope_type", found.get("type", "default"))
    bare = {k: v for k, v in found.items() if k not in (*OUTSIDE, *ELSEWHERE, "type")}
    return bare | {"rope_type": OTHER_NAMES.get(method, method)}


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
    if set(meant) == {"default", "mrope"}:  # as transformers writes what it read as mrope
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
