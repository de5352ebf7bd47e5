"""What people read wrongly in a configuration: each mistake is another plan of the same layer."""

from dataclasses import replace

import numpy as np

from posattn.configs.families.deepseek import sharpened
from posattn.configs.rotation import METHODS, TRAINED
from posattn.configs.rotation import rope as read

__all__ = ["misreadings", "rescaled", "rotation"]

BASES = (10000.0, 500000.0, 1000000.0)
FACTORS = (2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
LENGTHS = (4096, 8192, 32768, 131072)
IGNORED = {  # what may be left out of a layer, and what then stands in its place
    "window": ("The window is ignored.", None),
    "chunk": ("The chunks are ignored.", None),
    "soft_cap": ("The soft cap is ignored.", None),
    "sinks": ("The sinks are ignored.", False),
    "temperature": (
        "Queries do not grow with their position: the temperature is missing, or goes by the row in a call.",
        None,
    ),
    "bias": ("The bias is ignored.", None),
}
OTHER_METHODS = {  # what each takes beside factor and trained length
    "linear": {},
    "ntk": {},
    "yarn": {},
    "llama3": {"low_freq_factor": 1.0, "high_freq_factor": 4.0},
}


def misreadings(layer, plan):
    """All that may have been read wrongly of a layer of a plan, whose other layers may be mistaken for it.

    Each is a name, a sentence, and the layer as it would then be.
    """
    yield from of_the_rotation(layer, plan)
    yield from of_the_mask(layer, plan)
    for name, (what, nothing) in IGNORED.items():
        if getattr(layer, name) != nothing:
            yield f"{name}_ignored", what, replace(layer, **{name: nothing})
    if layer.latent is not None:
        yield from of_latent_attention(layer)
    if layer.scale != 1:
        what = f"The scores are not scaled: the scale should be {layer.scale:g}."
        yield "scores_unscaled", what, replace(layer, scale=1.0)
    widths = {
        "of_the_width": layer.head_dim,
        "of_all_heads": layer.num_heads * layer.head_dim,
    }
    if layer.latent is not None:
        widths["of_the_content"] = layer.latent.content_dim
    for name, width in widths.items():
        if not np.isclose(layer.scale, width**-0.5):
            said = f"{width}, {name.replace('_', ' ')}: it should be {layer.scale:g}"
            what = f"The scale is one over the square root of {said}."
            yield f"scale_{name}", what, replace(layer, scale=width**-0.5)


def of_the_rotation(layer, plan):
    """Mistakes about how queries and keys rotate."""
    rope, others = layer.rope, {other.rope for other in plan.layers} - {layer.rope}
    for other in sorted(filter(None, others), key=lambda rope: rope.base):
        base = f"{other.base:.10g}"
        what = f"It rotates as other layers of the model do, with the base {base}."
        yield f"rotation_of_base_{base}", what, replace(layer, rope=other)
    if rope is None:
        return
    yield "not_rotated", "Queries and keys are not rotated.", replace(layer, rope=None)
    unscaled = plain(rope.rotary_dim, rope.base)
    scaled = not np.allclose(unscaled, rope.frequencies)
    for base in sorted({*BASES} - {rope.base}):
        what = f"The base is {base:.10g}: the configuration says {rope.base:.10g}."
        alone = rotation(
            layer, frequencies=plain(rope.rotary_dim, base), attention_factor=1.0
        )
        yield f"base_of_{base:.10g}", what, rescaled(layer, base=base) or alone
        if scaled:
            what = f"The base is {base:.10g} and the scaling, {rope.method}, is ignored."
            yield f"base_of_{base:.10g}_alone", what, alone
    if scaled:
        changed = rotation(layer, frequencies=unscaled, attention_factor=1.0)
        yield "scaling_ignored", f"The scaling, {rope.method}, is ignored.", changed
        yield from of_the_scaling(layer)
    if rope.attention_factor != 1:
        for name, factor, said in (
            ("missing", 1.0, "missing: it is 1"),
            ("squared", rope.attention_factor**2, "taken twice"),
        ):
            other = rotation(layer, attention_factor=factor)
            yield f"attention_factor_{name}", f"The attention factor is {said}.", other
    for keys in (("attention_factor",), ("mscale", "mscale_all_dim")):
        without = rescaled(layer, **dict.fromkeys(keys))
        if without is not None and without.rope.attention_factor != rope.attention_factor:
            what = f"{' and '.join(keys)} of the configuration {'is' if len(keys) == 1 else 'are'} ignored."
            yield f"{keys[0]}_ignored", what, replace(without, scale=layer.scale)
    other = {"half": "interleaved", "interleaved": "half"}[rope.layout]
    what = f"The layout is {other}: it should be {rope.layout}."
    yield "other_layout", what, rotation(layer, layout=other)
    if rope.sections:
        told = ["are blocks: they should alternate", "alternate: they should be blocks"]
        what = f"The sections of time, height and width {told[not rope.interleaved]}."
        yield "other_sections", what, rotation(layer, interleaved=not rope.interleaved)
    backwards = rotation(layer, frequencies=-np.array(rope.frequencies))
    yield "turned_the_other_way", "Queries and keys rotate the other way.", backwards
    turning = np.array(rope.frequencies)[np.array(rope.frequencies) != 0]
    if layer.latent is None and 2 * len(turning) < layer.head_dim:
        whole = rotation(layer, frequencies=plain(layer.head_dim, rope.base))
        yield "all_entries_turn", "All entries rotate: only a part of a head should.", whole
    if len(turning) > 1:
        what = "Half of the entries rotate that should, as where the part of a head is taken twice."
        yield "half_of_them_turn", what, rotation(layer, frequencies=turning[::2])
    if len(turning) < len(rope.frequencies):
        what = "Pairs lie within the part that rotates: they should reach across the whole head."
        yield "pairs_of_the_part", what, rotation(layer, frequencies=turning)
        own = plain(2 * len(turning), rope.base)
        what += " The exponents are those of the part, too."
        yield "frequencies_of_the_part", what, rotation(layer, frequencies=own)


def of_latent_attention(layer):
    """Mistakes about the two parts of a query and a key, and what sharpens their product."""
    if layer.rope is not None:
        what = "The first entries rotate: the last ones should, which the key of all heads shares."
        yield "first_entries_turn", what, replace(layer, latent=None)
    if not np.isclose(layer.scale, layer.head_dim**-0.5):
        once = (layer.scale * layer.head_dim**-0.5) ** 0.5
        what = "YaRN's mscale sharpens the scores once: it should be squared, as both sides grow."
        yield "sharpened_once", what, replace(layer, scale=once)
        without = rescaled(layer, mscale=None, mscale_all_dim=None)
        what = "mscale and mscale_all_dim of the configuration are ignored, in the scale of the scores, too."
        yield "mscale_unknown", what, without


def of_the_scaling(layer):
    """Other numbers than those of the configuration, or another method."""
    rope = layer.rope
    numbers = dict(rope.numbers)
    factor, trained = numbers.get("factor"), numbers.get(TRAINED)
    found = []
    if trained:
        extended = {trained * factor, trained / factor} if factor else set()
        alike = {}  # a blend with rounded ends is the same for several lengths
        for length in sorted({*map(int, extended), *LENGTHS} - {trained, 0}):
            alike.setdefault(rescaled(layer, **{TRAINED: length}), []).append(length)
        for lengths in alike.values():
            some = " or ".join(map(str, lengths))
            what = f"The original length is {some}: the configuration says {trained}."
            found.append((f"original_length_of_{lengths[0]}", what, {TRAINED: lengths[0]}))
    if factor:
        for other in sorted({*FACTORS} - {factor}):
            what = f"The factor is {other:g}: the configuration says {factor:g}."
            found.append((f"factor_of_{other:g}", what, {"factor": other}))
    if rope.method == "yarn":
        kept = numbers.get("truncate") is False
        rounded, fractions = "are rounded outwards", "stay fractions"
        done, told = (rounded, fractions) if kept else (fractions, rounded)
        what = f"The ends of the blend {done}: the configuration says that they {told}."
        found.append((f"ends_{'' if kept else 'not_'}rounded", what, {"truncate": kept}))
    if rope.method == "yarn" and (factor or 1) != 1:
        unscaled = plain(rope.rotary_dim, rope.base)
        ramp = (1 - np.array(rope.frequencies) / unscaled) / (1 - 1 / factor)
        for form, share, what in (
            ("inverted", 1 - ramp, "fast pairs are divided, and slow ones stay"),
            ("rounded", np.rint(ramp), "pairs between its ends should be blended"),
        ):
            other = rotation(layer, frequencies=unscaled * (1 - share + share / factor))
            what = f"The ramp of YaRN is {form}: {what}."
            yield f"ramp_{form}", what, other
            what += " The attention factor is 1."
            yield f"ramp_{form}_alone", what, rotation(other, attention_factor=1.0)
    for method, more in OTHER_METHODS.items():
        needed = {
            name: numbers.get(name) for name in METHODS[method][0] if name not in more
        }
        if factor and method != rope.method and all(needed.values()):
            what = (
                f"Frequencies are scaled as {method}: the configuration says {rope.method}."
            )
            found.append(
                (f"scaled_as_{method}", what, {"method": method, **needed, **more})
            )
    for name, what, changed in found:
        other = rescaled(layer, **changed)
        if other is not None:
            yield name, what, other


def of_the_mask(layer, plan):
    """Mistakes about which keys a query sees."""
    if layer.window is not None:
        sides = "" if layer.causal else " on each side"
        for name, step in (("large", 1), ("small", -1)):
            if layer.window + step > 0:
                what = f"The window is one too {name}{sides}: it holds {layer.reach} with the query's own."
                other = replace(layer, window=layer.window + step)
                yield f"window_one_too_{name}", what, other
    if layer.chunk is not None:
        what = "A window moves with the query: here are chunks, which do not."
        yield "window_for_chunk", what, replace(layer, chunk=None, window=layer.chunk)
    for name in ("window", "chunk"):
        sizes = {getattr(other, name) for other in plan.layers} - {None}
        if getattr(layer, name) is None:
            for size in sorted(sizes):
                what = (
                    f"It has the {name} of other layers, {size}: this one sees everything."
                )
                yield f"{name}_of_other_layers", what, replace(layer, **{name: size})
    if layer.causal:
        what = "The future is seen: the layer is causal."
        yield "future_seen", what, replace(layer, causal=False)


def rotation(layer, **changed):
    """A layer whose rotation differs."""
    frequencies = changed.get("frequencies")
    if frequencies is not None:
        changed["frequencies"] = tuple(map(float, frequencies))
    return replace(layer, rope=replace(layer.rope, **changed))


def rescaled(layer, *, base=None, method=None, **numbers):
    """A layer whose frequencies come from another base, method or number; None if that needs more.

    The scale of latent attention comes from these numbers, too.
    """
    rope = layer.rope
    if method is None:
        method, numbers = rope.method, {**dict(rope.numbers), **numbers}
    said = {"rope_type": method, "rope_theta": base or rope.base, **numbers}
    try:
        other = read(said, rope.rotary_dim)
    except (TypeError, ValueError):
        return None
    changed = rotation(
        layer, frequencies=other.frequencies, attention_factor=other.attention_factor
    )
    changed = replace(changed, rope=replace(changed.rope, base=other.base))
    if layer.latent is None:
        return changed
    more = sharpened(None, other) / sharpened(None, rope)
    return replace(changed, scale=layer.scale * more**2)


def plain(rotary_dim, base):
    """Frequencies without any scaling."""
    return base ** (-np.arange(0, rotary_dim, 2) / rotary_dim)
