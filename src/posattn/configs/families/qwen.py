"""Qwen: windows from some layer on, sections for pictures, and linear layers with gated ones between."""

from dataclasses import replace

from posattn.configs.families.llama import biased, every, rms, sliding_window
from posattn.configs.families.stack import (
    FULL,
    LINEAR,
    SLIDING,
    kinds,
    plain,
    rotation,
    stacked,
    windowed,
)
from posattn.configs.keys import REQUIRED

__all__ = [
    "qwen2",
    "qwen2_moe",
    "qwen2_vl",
    "qwen3",
    "qwen3_5",
    "qwen3_moe",
    "qwen3_next",
    "qwen3_vl",
]


def late_windows(keys):
    """Each layer's kind and the window, in Qwen2 and 3: if it is used, from `max_window_layers` on."""
    used = keys.flag("use_sliding_window", absent=False)
    window = sliding_window(keys, absent=REQUIRED if used else None) if used else None
    keys.ignore("sliding_window")
    first = keys.count(
        "max_window_layers", absent=REQUIRED if used else None, least=0, most=10**6
    )
    return window, kinds(keys, lambda place: SLIDING if window and place >= first else FULL)


def qwen2(keys):
    """Qwen2: offsets on queries, keys and values only."""
    layer = replace(plain(keys), use_bias=(True, True, True))
    window, kind = late_windows(keys)
    layer = replace(layer, rope=rotation(keys, layer.head_dim))
    return stacked(keys, lambda place: windowed(keys, layer, kind[place], window))


def qwen3(keys):
    """Qwen3: norms of queries and keys, each head by itself."""
    norm = rms(keys)
    layer = biased(keys, plain(keys))
    window, kind = late_windows(keys)
    rope = rotation(keys, layer.head_dim)
    layer = replace(layer, rope=rope, query_norm=norm, key_norm=norm)
    return stacked(keys, lambda place: windowed(keys, layer, kind[place], window))


def qwen2_moe(keys):
    """Qwen2 with experts: windows, if they are used, in every other layer of the first ones."""
    layer = plain(keys)
    bias = keys.flag("qkv_bias", absent=True)
    used = keys.flag("use_sliding_window", absent=False)
    window = sliding_window(keys, absent=REQUIRED if used else None) if used else None
    keys.ignore("sliding_window")
    last = keys.count("max_window_layers", absent=REQUIRED if used else None, least=0)
    kind = kinds(
        keys, lambda place: SLIDING if used and place % 2 == 0 and place < last else FULL
    )
    rope = rotation(keys, layer.head_dim)
    layer = replace(layer, rope=rope, use_bias=(bias,) * 3)
    return stacked(keys, lambda place: windowed(keys, layer, kind[place], window))


def qwen3_moe(keys):
    """Qwen3 with experts: the window, if it is used, in all layers."""
    norm = rms(keys)
    layer = biased(keys, plain(keys))
    used = keys.flag("use_sliding_window", absent=False)
    window = sliding_window(keys, absent=REQUIRED if used else None) if used else None
    keys.ignore("sliding_window", "max_window_layers")
    layer = replace(layer, query_norm=norm, key_norm=norm)
    layer = windowed(keys, layer, SLIDING if window else FULL, window)
    return every(keys, layer, rotation(keys, layer.head_dim))


def sectioned(keys, head_dim, sections, alternating=False, **options):
    """A rotation whose pairs rotate with time, height and width: so many of each, if the keys say nothing."""
    rope = rotation(keys, head_dim, sections=sections, **options)
    if not alternating and rope.interleaved:
        raise keys.error(
            "mrope_interleaved must be false, since sections of this family do not alternate"
        )
    return replace(rope, interleaved=alternating)


def qwen2_vl(keys):
    """Qwen2-VL and 2.5-VL: the language model, whose pairs rotate with time, height and width."""
    layer = replace(plain(keys, head_dim=False), use_bias=(True,) * 3)
    window, kind = late_windows(keys)
    keys.ignore("vision_start_token_id", "vision_end_token_id", "vision_token_id")
    layer = replace(layer, rope=sectioned(keys, layer.head_dim, [16, 24, 24]))
    return stacked(keys, lambda place: windowed(keys, layer, kind[place], window))


def qwen3_vl(keys):
    """Qwen3-VL, with experts or without: the sections alternate."""
    norm = rms(keys)
    layer = biased(keys, plain(keys))
    layer = replace(layer, query_norm=norm, key_norm=norm)
    return every(keys, layer, sectioned(keys, layer.head_dim, [24, 20, 20], True))


def with_linear(keys, rope):
    """Qwen3-Next: gated attention in some layers, a linear recurrence in the others."""
    norm = rms(keys, plus_one=True)
    linear = plain(keys)
    keys.only("attn_output_gate", True)
    keys.ignore("linear_key_head_dim", "linear_value_head_dim")
    keys.ignore("linear_num_key_heads", "linear_num_value_heads")
    layer = replace(
        biased(keys, linear), gate=True, query_norm=norm, key_norm=norm, rope=rope(linear)
    )
    interval = keys.count("full_attention_interval", absent=None)
    given = keys.values.get("layer_types") is not None
    if interval is None and not given:
        raise keys.missing("layer_types", "full_attention_interval")
    kind = kinds(
        keys, lambda place: LINEAR if (place + 1) % interval else FULL, among=(FULL, LINEAR)
    )
    linear = replace(linear, kind="linear attention")
    return stacked(keys, lambda place: linear if kind[place] == LINEAR else layer)


def qwen3_next(keys):
    """Qwen3-Next: a part of each head rotates."""
    return with_linear(keys, lambda layer: rotation(keys, layer.head_dim, partial=REQUIRED))


def qwen3_5(keys):
    """Qwen3.5 and 3.6: likewise, with alternating sections."""
    return with_linear(
        keys,
        lambda layer: sectioned(keys, layer.head_dim, [11, 11, 10], True, partial=REQUIRED),
    )
