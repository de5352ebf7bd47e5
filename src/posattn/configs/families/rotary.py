"""How the queries and keys of a family rotate: from the newer form of its configuration or the older one."""

from dataclasses import replace

from posattn.configs.families.stack import LONGEST
from posattn.configs.keys import OPTIONAL, REQUIRED, shown
from posattn.configs.rotation import METHODS, OTHER_NAMES, OUTSIDE, TRAINED, rope

ELSEWHERE = "llama_4_scaling_beta", "max_position_embeddings"  # no rotation's


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
    methods=None,
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
        methods: the methods of scaling that the family knows, if not all.
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
    apart = kind is not None and "partial_rotary_factor" in found  # a kind's own counts
    _merge(keys.without(*share * apart), found, where, "partial_rotary_factor", share)
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
    if "interleaved" in found and found["interleaved"] == found.get("mrope_interleaved"):
        del found["interleaved"]  # as Qwen3-ASR says the same twice
    if sections is not None and found.get("mrope_section") is None:
        found["mrope_section"] = sections
    method = _method(keys, found, where, names or {})
    if methods is not None and OTHER_NAMES.get(method, method) not in methods:
        known = " or ".join(map(repr, methods))
        raise keys.error(f"rope_type must be {known}, got {method!r}")
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
