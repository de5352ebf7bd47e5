"""A plan in words: a sentence for a layer, and a table in which equal layers share a line."""

from dataclasses import replace
from itertools import pairwise

from posattn.configs.defaults import origin_of

MOST = 4  # of ranges that are all written


def sentence(layer):
    """What a layer does."""
    if layer.kind not in ("full", "sliding", "chunked"):
        told = "position" in layer.kind or layer.kind.startswith("no attention")
        nowhere = "" if told else ", no position"
        if layer.delta is not None:
            return f"{layer.kind}{nowhere}; {layer.delta.words()}"
        sizes = f"; {layer.told}" if layer.told else ""
        return f"{layer.kind}{nowhere}{sizes}; not computed by posattn"
    parts = [_seen(layer)]
    if layer.table is not None:
        parts[0] += f", {layer.table[0]} table of {layer.table[1]} rows at the input"
    if layer.rope is not None:
        parts[0] += f", {_turned(layer)}"
    if layer.bias is not None:
        parts[0] += f", {layer.bias.words()}"
    if layer.rope is None and layer.bias is None and layer.table is None:
        parts[0] += ", no position"
    parts += [*_normed(layer), *_scored(layer)]
    heads = f"{layer.num_heads} heads" if layer.num_heads > 1 else "1 head"
    if layer.num_kv_heads != layer.num_heads:
        heads += f", {layer.num_kv_heads} of keys"
    if layer.latent is not None:
        heads += f", keys and values from {layer.latent.kv_rank} numbers"
    if layer.value_dim is not None:
        heads += f", values of {layer.value_dim} numbers"
    if layer.shares_values:
        heads += ", one projection for keys and values"
    if layer.kv_layer is not None:
        heads += f", keys and values of layer {layer.kv_layer}"
    return "; ".join([*parts, heads])


def _seen(layer):
    both = "" if layer.causal else " in both directions"
    seen = f"full attention{both}"
    if layer.kind == "sliding":
        each = "" if layer.causal else f", {layer.window - 1} on each side"
        seen = f"sliding attention{both} over {layer.reach} positions{each}"
    elif layer.kind == "chunked":
        seen = f"attention{both} in chunks of {layer.chunk} positions"
    if layer.compressed is not None:
        seen += f" and over a key for each {layer.compressed} positions before"
    if layer.selected is not None:
        of_them = "of those" if layer.compressed is not None else "of the keys"
        blocks = "" if layer.block == 1 else f" in blocks of {layer.block}"
        who = "an indexer" if layer.indexer is None else layer.indexer.words(layer.rope)
        seen += f", {layer.selected} {of_them}{blocks} chosen by {who}"
    if layer.streams > 1:
        seen += f" of {layer.streams} streams of tokens, each with its own projections"
    return seen


def _turned(layer):
    rope = layer.rope
    width = layer.head_dim if layer.latent is None else layer.latent.rotary_dim
    parts = [f"rotary base {_number(rope.base)}", PAIRS[rope.layout]]
    if min(rope.frequencies) < 0:
        parts.append("backward")
    rotation = 2 * sum(f != 0 for f in rope.frequencies)
    if rotation < width:
        which = "last " if rope.last else ""
        which = "" if rope.method == "proportional" else which
        parts.append(f"{which}{rotation} of {width} entries")
    how = scaled(rope)
    if how:
        parts.append(how)
    if rope.learned:
        parts.append("frequencies times learned factors")
    if rope.sections:
        how = "alternating " if rope.interleaved else ""
        sizes = ", ".join(map(str, rope.sections))
        parts.append(f"{how}sections {sizes} for {rope.axes}")
    if layer.turns_back:
        parts.append("values too, and the output rotated back")
    return ", ".join(parts)


PAIRS = {"half": "halves", "interleaved": "neighbors"}


def scaled(rope):
    """How frequencies are scaled; empty if they are not."""
    numbers = dict(rope.numbers)
    by = f" by {_number(numbers['factor'])}" if numbers.get("factor") is not None else ""
    if rope.method == "default" or (rope.method == "proportional" and not by):
        return ""
    words = (
        "linearly" if rope.method in ("linear", "proportional") else METHODS[rope.method]
    )
    trained = numbers.get("original_max_position_embeddings")
    start = f" from {trained} positions" if trained else ""
    told = rope.attention_factor != 1 or "attention_factor" in numbers
    factor = f", attention factor {rope.attention_factor:.4g}" if told else ""
    return f"scaled{by} {words}{start}{factor}"


METHODS = {
    "dynamic": "by NTK for the length",
    "ntk": "by NTK",
    "yarn": "with YaRN",
    "longrope": "with LongRoPE",
    "llama3": "as Llama 3.1",
}


def _normed(layer):
    norms = {name: getattr(layer, f"{name}_norm") for name in ("query", "key", "value")}
    there = {name: norm for name, norm in norms.items() if norm is not None}
    if not there:
        return []
    *first, last = there
    listed = f"{', '.join(first)} and {last}" if first else last
    after = " after the rotation" if any(norm.after for norm in there.values()) else ""
    return [f"{listed} norms{after}"]


def _scored(layer):
    parts = []
    width = layer.head_dim
    if abs(layer.scale * width**0.5 - 1) > 1e-9:
        parts.append(f"scores times {layer.scale:.6g}")
    if layer.convolved is not None:
        parts.append(f"keys and values convolved over {layer.convolved} positions")
    if layer.clip is not None:
        parts.append(f"projections clipped at {_number(layer.clip)}")
    if layer.soft_cap is not None:
        parts.append(f"scores capped at {_number(layer.soft_cap)}")
    if layer.latent is not None and layer.latent.temperature:
        parts.append("queries times a log(p + 1) + b, learned by each head")
    if layer.temperature is not None:
        parts.append(f"queries grow beyond {_number(layer.temperature.floor)} positions")
    if layer.sinks:
        parts.append("sinks")
    if layer.value_scale != 1:
        parts.append(f"values times {layer.value_scale:.6g}")
    if layer.gate or layer.head_gate:
        parts.append("gated output" if layer.gate else "each head's output gated")
    return parts + [layer.told] * bool(layer.told)


def _number(value):
    """A number without an exponent where it has few digits."""
    return f"{value:.15g}" if 1e-4 < abs(value) < 1e15 else f"{value:g}"


def table(plan):
    """All layers: a line for each that differs from those above, with the places where it stands."""
    found = {}
    for layer in plan.layers:
        found.setdefault(replace(layer, index=0), []).append(layer.index)
    named = [places(indices) for indices in found.values()]
    width = max(map(len, named))
    lines = [f"{plan.model_type}, {len(plan.layers)} layers from 0 on"]
    lines += [
        f"{place.ljust(width)}  {sentence(layer)}"
        for place, layer in zip(named, found, strict=True)
    ]
    if plan.defaults:
        origin = origin_of(plan.model_type)
        lines.append(f"from the defaults of {origin}: {listed(plan.defaults)}")
    if plan.unread:
        lines.append(f"not read: {', '.join(plan.unread)}")
    if plan.dead:
        name, release = origin_of(plan.model_type).split(", ")
        told = f"read neither here nor by {name}'s model, {release}: "
        lines.append(told + ", ".join(plan.dead))
    return "\n".join(lines)


def listed(defaults):
    """Names and values in a row."""
    return ", ".join(
        f"{name} = {_number(value) if type(value) is float else value}"
        for name, value in defaults
    )


def places(indices):
    """Numbers of layers as ranges; of ranges that recur only the first and last are written."""
    runs = []
    for index in indices:
        if runs and runs[-1][-1] == index - 1:
            runs[-1].append(index)
        else:
            runs.append([index])
    groups = []
    for run in runs:
        if groups and _recurs(groups[-1], run, runs[-1]):
            groups[-1].append(run)
        else:
            groups.append([run])
    named = [_named(group) for group in groups]
    return ", ".join(named if len(named) <= 2 * MOST else [*named[:MOST], "…", named[-1]])


def _recurs(group, run, last):
    """Whether a range follows the others of a group by the same step; the stack may cut the last one."""
    steps = [later[0] - run[0] for run, later in pairwise([*group, run])]
    whole = len(run) == len(group[0]) or (run is last and len(run) < len(group[0]))
    return len(set(steps)) == 1 and whole


def _named(group):
    named = [f"{run[0]}-{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in group]
    return ", ".join(named if len(named) <= MOST else [*named[:3], "…", named[-1]])
