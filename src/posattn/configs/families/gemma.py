"""Gemma: a scale of its own, capped scores, and windows in most layers."""

from dataclasses import replace

from posattn.configs.families.llama import biased, every, rms, sliding_window
from posattn.configs.families.stack import (
    FULL,
    SLIDING,
    kinds,
    plain,
    stacked,
    turning,
    windowed,
)
from posattn.configs.keys import REQUIRED

__all__ = ["gemma", "gemma2", "gemma3"]


def gemma(keys):
    """Gemma: heads whose width is no equal share of the model's."""
    layer = biased(keys, plain(keys, grouped=REQUIRED, head_dim=REQUIRED))
    keys.only("use_bidirectional_attention", False)
    return every(keys, layer, turning(keys, layer.head_dim))


def scaled(keys):
    """The layer, whose scale does not come from the width of its heads."""
    layer = biased(keys, plain(keys, grouped=REQUIRED, head_dim=REQUIRED))
    return replace(layer, scale=keys.number("query_pre_attn_scalar") ** -0.5)


def gemma2(keys):
    """Gemma 2: capped scores, and a window in every other layer."""
    cap = keys.number("attn_logit_softcapping", null=None)
    keys.only("use_bidirectional_attention", False)
    keys.ignore("final_logit_softcapping")
    layer = replace(scaled(keys), soft_cap=cap)
    layer = replace(layer, rope=turning(keys, layer.head_dim))
    window = sliding_window(keys)
    kind = kinds(keys, lambda place: FULL if place % 2 else SLIDING)
    return stacked(keys, lambda place: windowed(keys, layer, kind[place], window))


def gemma3(keys):
    """Gemma 3: five layers in six slide and turn by a base of their own; transformers caps nothing."""
    keys.only("attn_logit_softcapping")
    keys.ignore("final_logit_softcapping")
    norm = rms(keys, plus_one=True)
    both = keys.flag("use_bidirectional_attention", absent=False)
    layer = replace(scaled(keys), query_norm=norm, key_norm=norm, causal=not both)
    window = sliding_window(keys)
    if both and window is not None:
        window = window // 2 + 1  # in each direction
    pattern = keys.count("sliding_window_pattern", "_sliding_window_pattern", absent=6)
    kind = kinds(keys, lambda place: SLIDING if (place + 1) % pattern else FULL)
    ropes = {name: of_gemma3(keys, layer.head_dim, name) for name in sorted(set(kind))}
    return stacked(
        keys,
        lambda place: windowed(
            keys, replace(layer, rope=ropes[kind[place]]), kind[place], window
        ),
    )


def of_gemma3(keys, head_dim, kind):
    """The rotation of a kind of layer: nested, or in the older form with two bases."""
    if keys.values.get("rope_parameters"):
        names = {FULL: "rope_theta", SLIDING: "rope_local_base_freq"}
        return turning(keys, head_dim, kind=kind, base=(names[kind],))
    if kind == FULL:
        return turning(keys, head_dim)
    keys = keys.without("rope_scaling")
    return turning(keys, head_dim, base=("rope_local_base_freq",))
