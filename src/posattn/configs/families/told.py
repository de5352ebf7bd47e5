"""Stacks of several kinds of layers, by told.json: what attends, and in words what nothing here computes."""

from dataclasses import replace
from functools import partial

from posattn.configs.data import data
from posattn.configs.families import deepseek, qwen, stack
from posattn.configs.families.llama import layer_of, required
from posattn.configs.keys import OPTIONAL
from posattn.configs.layers import Layer

__all__ = ["FAMILIES"]


def mixture(
    keys,
    *,
    kinds,
    names=("layer_types",),
    pattern=None,
    inner=None,
    only=(),
    ignored=(),
    counts=None,
    bases=None,
    repeated=1,
    **common,
):
    """A stack of layers of several kinds.

    Args:
        keys: of the configuration.
        kinds: from a kind, or several, to the options of `attending`, or to words for `stack.spoken`.
        names: the keys of the list of kinds.
        pattern: for `placed`, where no key has such a list.
        inner: the key of a section with further keys.
        only: keys that may be absent, and the value they must otherwise have.
        ignored: keys that say nothing about this family's attention.
        counts: the key of a list of the number of heads of each layer.
        bases: the key of a list of the base of each layer, 0 where nothing rotates.
        repeated: how many layers of attention each layer of the stack has.
        common: options of `attending` that all kinds share.
    """
    keys.ignore(*ignored)
    if inner is not None:
        keys = keys.changed(**(keys.section(inner, absent={}) or {}))
    for name, *known in only:
        keys.only(name, *known)
    kinds = {name: row for names, row in kinds.items() for name in names.split()}
    keys.ignore("num_key_value_heads", "sliding_window")  # which some kinds don't read
    count = keys.count(*stack.DEPTH, most=10_000)
    rule = None if pattern is None else placed(keys, pattern)
    several = sum(isinstance(row, dict) for row in kinds.values()) > 1
    kind = stack.kinds(keys, rule, among=tuple(kinds), names=names)
    many = counts and keys.sequence(counts, length=count, absent=None)
    turns = bases and keys.sequence(bases, length=count, absent=None)

    def made(place):
        name, own = kind[place], keys
        row = kinds[name]
        if isinstance(row, str):
            width = keys.count(*common.get("dim", ["hidden_size"]))
            return stack.spoken(keys, Layer(0, "", width, 1, 1, 1), row)
        row = common | row
        if turns:
            told = (keys.section("rope_parameters") or {}) | {"rope_theta": turns[place]}
            own = keys.without("rope_theta").changed(rope_parameters=told)
            row = row | ({} if turns[place] else {"rope": None})
        layer = attending(own, name if several else None, **required(row))
        few = layer.num_kv_heads
        return stack.with_groups(keys, layer, few, heads=many[place]) if many else layer

    found = [layer for place in range(count) for layer in [made(place)] * repeated]
    return stack.numbered(found)


def attending(
    keys, kind, *, rope=None, turns=None, window=None, latent=None, delta=False, **options
):
    """A layer that attends, or one with the delta rule.

    Args:
        keys: of the configuration.
        kind: of the layer, by which `rope_parameters` may have a dictionary for it; None if all rotate alike.
        rope: for `rotation`; None if nothing rotates.
        turns: the key that says whether anything does.
        window: the key of the window, and where it may be absent, what it is a part of, and which.
        latent: for `deepseek.latent`, if keys and values come from a latent vector.
        delta: whether the layer has the delta rule.
        options: for `layer_of`; and `sinks`, `table`, and `sharper`, by which scores are multiplied.
    """
    if isinstance(options.get("each"), str):
        options["each"] = keys.count(options["each"], most=2**16)
    changes = {"sinks": options.pop("sinks", False)}
    if "table" in options:
        what, rows = options.pop("table")
        changes["table"] = (what, keys.count(rows))
    sharper = options.pop("sharper", 1.0)
    if latent is not None:
        layer = deepseek.latent(keys, **latent)
        changes |= options | {"told": stack.filled(keys, options.get("told", ""))}
    else:
        layer = layer_of(keys, **options)
    layer = replace(layer, **changes, scale=sharper * layer.scale)
    if delta:
        return replace(layer, kind="linear attention", delta=qwen.delta_of(keys))
    if turns is not None and keys.take([turns], absent=False)[1] not in (True, "rope"):
        keys.only(turns, False, "nope")
        keys.ignore("rope_parameters", "rope_scaling", "rope_theta")
        rope = None
    if rope is not None:
        nested = kind and stack.nested(keys, kind)
        layer = replace(
            layer, rope=stack.rotation(keys, layer.head_dim, kind=nested, **rope)
        )
    if window is None:
        return layer
    name, *whole = window if isinstance(window, list) else [window]
    size = keys.count(
        name, absent=None if whole else OPTIONAL, null=None, most=stack.LONGEST
    )
    if size is None and whole:
        size = keys.count(whole[0]) // whole[1]
    return layer if size is None else replace(layer, kind="sliding", window=size)


def placed(keys, rule):
    """The pattern of a stack: one kind, a list, a key's value, those listed, or every so many."""
    if isinstance(rule, str):
        return lambda place: rule
    if "cycle" in rule:
        cycle = rule["cycle"]
        cycle = keys.sequence(cycle) if isinstance(cycle, str) else cycle
        return lambda place: cycle[place % len(cycle)]
    if "value" in rule:
        _, value = keys.take([rule["value"]])
        return lambda place: value
    if "listed" in rule:
        listed = keys.sequence(rule["listed"], absent=rule.get("absent"))
        if listed is None:
            return lambda place: rule["otherwise"]
        return lambda place: rule["kind"] if place in listed else rule["else"]
    every, start = (
        keys.count(said, least=least) if isinstance(said := rule[name], str) else said
        for name, least in (("every", 1), ("from", 0))
    )
    start %= every
    return lambda place: rule["kind"] if place % every == start else rule["else"]


FAMILIES = {
    name: partial(mixture, **told)
    for names, told in data("told.json").items()
    for name in names.split()
}
