"""Families as rows of data: what attends, and in words what nothing here computes.

Layers of a stack are alike in equal.json and encoders.json, and of several kinds in told.json.
"""

import math
import re
from dataclasses import replace
from functools import partial

from posattn.configs.data import data
from posattn.configs.families import deepseek, qwen, rotary, stack
from posattn.configs.keys import OPTIONAL, REQUIRED, shown
from posattn.configs.layers import Layer


def by_row(keys, *, inner=None, groups=None, only=(), ignored=(), without=(), **row):
    """A stack of layers.

    Args:
        keys: of the configuration.
        inner: the key of a section with further keys.
        groups: the key of the number of heads of keys, if it has another name.
        only: keys that may be absent, and the value they must otherwise have.
        ignored: keys that say nothing about this family's attention.
        without: keys that are read as if they were not there.
        row: for `several` if it has `kinds`, otherwise for `alike`.
    """
    keys.ignore(*ignored, *without)
    keys = keys.without(*without)
    if inner is not None:
        keys = keys.changed(**(keys.section(inner) or {}))
    if groups is not None:
        keys = keys.changed(num_key_value_heads=keys.count(groups))
    for name, *known in only:
        keys.only(name, *known)
    return (several if "kinds" in row else alike)(keys, **row)


def alike(keys, *, layers=stack.DEPTH, indexer=None, **options):
    """A stack of equal layers, which all have the window if there is one.

    Args:
        keys: of the configuration.
        layers: the keys of their number.
        indexer: for `deepseek.indexed`, if one chooses the keys.
        options: for `attending`.
    """
    layer = attending(keys, stack.FULL, **required(options))
    if indexer is not None:
        return deepseek.indexed(keys, layer, **indexer)
    if "window" in options:
        kind = stack.SLIDING if layer.window else stack.FULL
        stack.kinds(keys, lambda place: kind, among=(kind,))
    return stack.equal(keys, layer, names=layers)


def several(
    keys,
    *,
    kinds,
    names=("layer_types",),
    pattern=None,
    counts=None,
    bases=None,
    repeated=1,
    lent=False,
    **common,
):
    """A stack of layers of several kinds.

    Args:
        keys: of the configuration.
        kinds: from a kind, or several, to the options of `attending`, or to words for `stack.spoken`.
        names: the keys of the list of kinds.
        pattern: for `placed`, where no key has such a list.
        counts: the key of a list of the number of heads of each layer.
        bases: the key of a list of the base of each layer, 0 where nothing rotates, and what its absence is.
        repeated: how many layers of attention each layer of the stack has.
        lent: whether the last layers use the keys of others.
        common: options of `attending` that all kinds share.
    """
    kinds = {name: row for names, row in kinds.items() for name in names.split()}
    keys.ignore("num_key_value_heads", "sliding_window")  # which some kinds don't read
    listed = next((n for n in names if isinstance(keys.values.get(n), list)), None)
    given = keys.values.get("num_hidden_layers", keys.defaults.get("num_hidden_layers"))
    if listed and given is None and not keys.defaults.keys() & stack.DEPTH:
        keys = keys.changed(num_hidden_layers=len(keys.values[listed]))
    count = keys.count(*stack.DEPTH, most=10_000)
    rule = None if pattern is None or listed else placed(keys, pattern)
    keys.ignore(*re.findall(r"\w+", str(pattern)))
    kind = stack.kinds(keys, rule, among=tuple(kinds), names=names)
    many = counts and keys.sequence(counts, length=count, absent=None)
    own_bases = bases and keys.sequence(bases[0], length=count, absent=required(bases[1]))

    def made(place):
        row, own = kinds[kind[place]], keys
        if isinstance(row, str):
            width = keys.count(*common.get("dim", ["hidden_size"]))
            return stack.spoken(keys, Layer(0, "", width, 1, 1, 1), row)
        row = common | row
        if own_bases:
            told = keys.section("rope_parameters") or {}
            told = told | {"rope_theta": own_bases[place]}
            own = keys.without("rope_theta").changed(rope_parameters=told)
            row = row | ({} if own_bases[place] else {"rope": None})
        layer = attending(own, kind[place], **required(row))
        if many:
            layer = stack.with_groups(keys, layer, layer.num_kv_heads, heads=many[place])
        return layer

    found = [layer for place in range(count) for layer in [made(place)] * repeated]
    found = stack.numbered(found)
    return stack.lent(keys, kind, found) if lent else found


def attending(
    keys,
    kind,
    *,
    rope=None,
    axes=None,
    nested=False,
    rotates=None,
    window=None,
    latent=None,
    delta=False,
    table=None,
    causal=True,
    both=False,
    normed_values=False,
    sinks=False,
    sharper=1.0,
    unscaled=False,
    **options,
):
    """A layer that attends, or one with the delta rule.

    Args:
        keys: of the configuration.
        kind: of the layer.
        rope: for `rotation`; None if nothing rotates.
        axes: for `beside`, where each half of a head rotates with a coordinate of its own.
        nested: whether `rope_parameters` may have a dictionary for each kind.
        rotates: the key that says whether anything does.
        window: the key of the window, and where it may be absent, what it is a part of, and which.
        latent: for `deepseek.latent`, if keys and values come from a latent vector.
        delta: whether the layer has the delta rule.
        table: at the input: its kind, the key of its rows, and how many there are beyond.
        causal: whether the future is hidden, or the key that says so.
        both: whether it sees both directions, half of the window in each, or the key that says so.
        normed_values: whether values have the norm of keys, too, without its weight.
        sinks: whether there are any.
        sharper: a factor on scores, or its key.
        unscaled: whether `rope_scaling` is of other layers.
        options: for `layer_of`.
    """
    if "each" in options:
        options["each"] = keys.count(*options["each"], most=2**16)
    if latent is None:
        layer = stack.layer_of(keys, **options)
    else:
        options["told"] = stack.filled(keys, options.get("told", ""))
        layer = replace(deepseek.latent(keys, **latent), **options)
    causal, both = (
        keys.flag(said, absent=False) if isinstance(said, str) else said
        for said in (causal, both)
    )
    sharper = keys.number(sharper) if isinstance(sharper, str) else sharper
    layer = replace(layer, causal=causal and not both, sinks=sinks)
    if normed_values:
        layer = replace(layer, value_norm=replace(layer.key_norm, learned=False))
    layer = replace(layer, scale=sharper * layer.scale)
    if table is not None:
        what, rows, *more = table
        layer = replace(layer, table=(what, rows_of(keys, rows) + sum(more)))
    if "query_pre_attn_scalar" in keys.defaults:
        layer = replace(layer, scale=keys.number("query_pre_attn_scalar") ** -0.5)
    if "attn_logit_softcapping" in keys.defaults:
        layer = replace(layer, soft_cap=keys.number("attn_logit_softcapping", null=None))
    if delta:
        return replace(layer, kind="linear attention", delta=qwen.delta_of(keys))
    if rotates is not None and keys.take([rotates], absent=False)[1] not in (True, "rope"):
        keys.only(rotates, False, "nope")
        keys.ignore("rope_parameters", "rope_scaling", "rope_theta")
        rope = None
    if rope is not None:
        rope["kind"] = rotary.nested(keys, kind) if nested else None
        own = keys.without("rope_scaling") if unscaled and not rope["kind"] else keys
        width = layer.head_dim // (1 if axes is None else 2)
        turned = rotary.rotation(own, width, **rope)
        turned = turned if axes is None else rotary.beside([turned, turned], *axes)
        layer = replace(layer, rope=turned)
    if window is None:
        return layer
    name, *whole = window if isinstance(window, list) else [window]
    absent = None if whole else OPTIONAL
    size = keys.count(name, absent=absent, null=None, most=stack.LONGEST)
    if size is None and whole:
        size = keys.count(whole[0]) // whole[1]
    if size is None and "sliding" in kind:
        raise keys.missing(name, why=", but layer_types has layers that are sliding")
    size = size // 2 + 1 if both and size is not None else size
    return layer if size is None else replace(layer, kind="sliding", window=size)


def rows_of(keys, name):
    """The number of rows of a table, or of the patches of a picture."""
    if name != "image_size":
        return keys.count(name)
    picture, patch = (sides(keys, key) for key in ("image_size", "patch_size"))
    return math.prod(side // part for side, part in zip(picture, patch, strict=True))


def sides(keys, name):
    """Height and width, which may be one number."""
    _, given = keys.take([name])
    both = list(given) if isinstance(given, (list, tuple)) else [given, given]
    if len(both) != 2:
        raise keys.error(f"{name} must be a number or two, got {given!r}")
    return [keys.whole(name, side) for side in both]


def required(options):
    """The options of a family, where a table can only write `required` for what a class must define."""
    if isinstance(options, dict):
        return {name: required(value) for name, value in options.items()}
    return REQUIRED if options == "required" else options


def placed(keys, rule):
    """The pattern of a stack: one kind, a list, a key's value, those listed, or every so many."""
    if isinstance(rule, str):
        return lambda place: rule
    if "cycle" in rule:
        cycle = rule["cycle"]
        cycle = keys.sequence(cycle) if isinstance(cycle, str) else cycle
        return lambda place: cycle[place % len(cycle)]
    if "letters" in rule:
        name, word = keys.take([rule["letters"]])
        if not isinstance(word, str) or set(word) - rule.keys():
            known = ", ".join(letter for letter in rule if len(letter) == 1)
            raise keys.error(f"{name} must be of {known}, got {shown(word)}")
        return lambda place: rule[word[place]] if place < len(word) else None
    if "value" in rule:
        value = keys.choice(rule["value"], among=rule["among"])
        return lambda place: value
    if "listed" in rule:
        listed = keys.sequence(rule["listed"], absent=rule.get("absent"))
        if listed is None:
            return lambda place: rule["otherwise"]
        return lambda place: rule["kind"] if place in listed else rule["else"]
    every, start = (
        keys.count(*names, absent=REQUIRED if value is None else value, least=least)
        for (value, *names), least in ((rule["every"], 1), (rule["from"], 0))
    )
    start %= every
    return lambda place: rule["kind"] if place % every == start else rule["else"]


FAMILIES = {
    name: partial(by_row, **told)
    for file in ("equal.json", "told.json")
    for names, told in data(file).items()
    for name in names.split()
}
