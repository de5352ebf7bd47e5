"""Layers that differ from a plan in one thing, and the keys of a configuration that say it."""

from dataclasses import replace

from posattn.configs import Buckets
from posattn.configs.rotation import TRAINED
from posattn.conformance.misreadings import rescaled

__all__ = ["keys_of", "nearby"]

BASES = sorted(m * 10.0**e for m in (1, 1.5, 2, 2.5, 5, 8) for e in range(3, 8))
SHRINKING = (2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
LENGTHS = [2**k for k in range(11, 18)]
CAPS = (20.0, 30.0, 50.0)
FARTHEST = (20, 32, 64, 128, 256, 512)
KEYS = {
    "window": ("sliding_window", "layer_types"),
    "chunk": ("attention_chunk_size", "layer_types"),
    "soft_cap": ("attn_logit_softcapping",),
    "scale": ("query_pre_attn_scalar", "attention_multiplier"),
    "rope": ("rope_theta", "rope_parameters", "rope_scaling"),
    "query_norm": ("use_qk_norm", "rms_norm_eps"),
    "bias": ("relative_attention_max_distance",),
}


def nearby(layer, plan, sizes):
    """Other layers of the plan that one may be instead, and other numbers it may have been built with.

    Each is a name, a sentence, and the layer as it would then be; `sizes` are of windows that the outputs
    leave open.
    """
    yield from other_kinds(layer, plan)
    yield from other_norms(layer)
    for size in sizes:
        what = f"The window is {size}: the configuration says {layer.window or 'none'}."
        yield f"window_of_{size}", what, replace(layer, window=size, chunk=None)
    for cap in CAPS:
        if cap != layer.soft_cap:
            what = f"The soft cap is {cap:g}: the configuration says {layer.soft_cap or 'none'}."
            yield f"soft_cap_of_{cap:g}", what, replace(layer, soft_cap=cap)
    for width in range(1, 2 * layer.head_dim + 1):
        what = f"The scale is one over the square root of {width}: it should be {layer.scale:g}."
        yield f"scale_of_{width}", what, replace(layer, scale=width**-0.5)
    if layer.rope is not None:
        yield from other_rotations(layer)
    if isinstance(layer.bias, Buckets):
        for last in FARTHEST:
            what = (
                f"Buckets end at {last}: the configuration says {layer.bias.max_distance}."
            )
            other = replace(layer.bias, max_distance=last)
            yield f"buckets_up_to_{last}", what, replace(layer, bias=other)
        other = replace(layer.bias, bidirectional=not layer.bias.bidirectional)
        what = "Buckets are those of the other stack: keys after the query have their own in an encoder only."
        yield "other_direction", what, replace(layer, bias=other)


def other_kinds(layer, plan):
    """What the configuration says of the first layer of each other kind."""
    met = {layer}
    for other in plan.layers:
        moved = replace(other, index=layer.index)
        if moved not in met:
            met.add(moved)
            what = f"It does what the configuration says of layer {other.index}, which is {other.kind}."
            yield f"as_layer_{other.index}", what, moved


def other_norms(layer):
    """Norms of queries and keys that are missing, or stand on the other side of the rotation."""
    norms = layer.query_norm, layer.key_norm
    if None in norms:
        return
    before = "before" if layer.query_norm.after else "after"
    one = "lack the 1 that is" if layer.query_norm.plus_one else "have a 1"
    sides = [replace(norm, after=not norm.after) for norm in norms]
    ones = [replace(norm, plus_one=not norm.plus_one) for norm in norms]
    for name, what, (query, key) in (
        ("norms_ignored", "Queries and keys are not normalized.", (None, None)),
        (
            "norms_on_the_other_side",
            f"Queries and keys are normalized {before} the rotation.",
            sides,
        ),
        ("one_of_the_norms", f"The norms {one} added to weights.", ones),
    ):
        yield name, what, replace(layer, query_norm=query, key_norm=key)


def other_rotations(layer):
    """Another base, with the same scaling of each pair; or all frequencies divided by another number."""
    rope = layer.rope
    pairs, half = enumerate(rope.frequencies), len(rope.frequencies)
    scaled = [w * rope.base ** (j / half) for j, w in pairs]
    for base in BASES:
        if base != rope.base:
            turns = tuple(w * base ** (-j / half) for j, w in enumerate(scaled))
            what = f"The base is {base:.10g}: the configuration says {rope.base:.10g}."
            kept = replace(layer, rope=replace(rope, base=base, frequencies=turns))
            yield f"nearby_base_{base:.10g}", what, rescaled(layer, base=base) or kept
    for factor in SHRINKING:
        for by, how in ((1 / factor, "slowly"), (factor, "fast")):
            turns = tuple(by * w for w in rope.frequencies)
            what = f"All pairs rotate {factor:g} times as {how} as the configuration says."
            other = replace(rope, frequencies=turns)
            yield f"{factor:g}_times_as_{how}", what, replace(layer, rope=other)
    if rope.method == "default":
        for factor in SHRINKING[:3]:
            for length in LENGTHS:
                what = f"YaRN by {factor:g} from {length} positions: the configuration scales nothing."
                other = rescaled(layer, method="yarn", factor=factor, **{TRAINED: length})
                yield f"yarn_by_{factor:g}_from_{length}", what, other


def keys_of(layer, changed):
    """The keys of a configuration that say in what two layers differ."""
    if layer.rope and changed.rope and layer.rope.layout != changed.rope.layout:
        return ()  # which the family decides
    named = (
        keys
        for field, keys in KEYS.items()
        if getattr(layer, field) != getattr(changed, field)
        and not (field == "scale" and layer.latent)  # which YaRN's numbers make
    )
    return tuple(key for keys in named for key in keys)
