"""Qwen: windows from some layer on, sections for pictures, and linear layers with gated ones between."""

from dataclasses import replace
from functools import partial

from posattn.configs.families import stack
from posattn.configs.families.llama import RMS, layer_of
from posattn.configs.families.stack import FULL, LINEAR, SLIDING
from posattn.configs.keys import REQUIRED

__all__ = ["FAMILIES"]


def used_window(keys):
    """The window of a family that has one only where it is used, and the place where windows begin or end."""
    used = keys.flag("use_sliding_window", absent=False)
    keys.ignore("sliding_window", "max_window_layers")
    window = stack.sliding_window(keys) if used else None
    bound = keys.count("max_window_layers", least=0, most=10**6) if used else None
    return window, bound


def late(keys, layer, rope):
    """A stack whose layers slide, if the window is used, from `max_window_layers` on."""
    window, first = used_window(keys)
    return stack.patterned(
        keys,
        layer,
        lambda place: SLIDING if window and place >= first else FULL,
        lambda kind: rope,
        window,
    )


def qwen2(keys, *, rope=None, **options):
    """Qwen2 and 3: offsets on queries, keys and values only, or norms."""
    layer = layer_of(keys, **options)
    return late(keys, layer, stack.rotation(keys, layer.head_dim, **(rope or {})))


def qwen2_moe(keys):
    """Qwen2 with experts: windows, if they are used, in every other layer of the first ones."""
    layer = layer_of(keys, bias="qkv_bias", output=False)
    rope = stack.rotation(keys, layer.head_dim)
    window, last = used_window(keys)
    return stack.patterned(
        keys,
        layer,
        lambda place: SLIDING if window and place % 2 == 0 and place < last else FULL,
        lambda kind: rope,
        window,
    )


def qwen3_moe(keys):
    """Qwen3 with experts: the window, if it is used, in all layers."""
    layer = layer_of(keys, norm=RMS)
    window, _ = used_window(keys)
    layer = stack.windowed(keys, layer, SLIDING if window else FULL, window)
    return stack.equal(keys, layer, rope=stack.rotation(keys, layer.head_dim))


def qwen2_vl(keys):
    """Qwen2-VL and 2.5-VL: the language model, whose pairs rotate with time, height and width."""
    layer = layer_of(keys, bias=True, output=False, head_dim=False)
    keys.ignore("vision_start_token_id", "vision_end_token_id", "vision_token_id")
    return late(keys, layer, stack.rotation(keys, layer.head_dim, sections=[16, 24, 24]))


def with_linear(keys, **rope):
    """Qwen3-Next and 3.5: gated attention in some layers, a linear recurrence in the others."""
    layer = layer_of(keys, norm=RMS | {"plus_one": True})
    keys.only("attn_output_gate", True)
    keys.ignore("linear_key_head_dim", "linear_value_head_dim")
    keys.ignore("linear_num_key_heads", "linear_num_value_heads")
    rotated = stack.rotation(keys, layer.head_dim, partial=REQUIRED, **rope)
    interval = keys.count("full_attention_interval", absent=4)
    return stack.mixed(
        keys,
        replace(layer, gate=True, rope=rotated),
        {FULL: None, LINEAR: "linear attention"},
        pattern=lambda place: LINEAR if (place + 1) % interval else FULL,
    )


SECTIONED = partial(with_linear, sections=[11, 11, 10], alternating=True)
FAMILIES = {
    "mimo": partial(qwen2, output=False),
    "qwen2": partial(qwen2, bias=True, output=False),
    "qwen2_5_omni_text": qwen2_vl,
    "qwen2_5_vl": qwen2_vl,
    "qwen2_5_vl_text": qwen2_vl,
    "qwen2_moe": qwen2_moe,
    "qwen2_vl": qwen2_vl,
    "qwen2_vl_text": qwen2_vl,
    "qwen3": partial(qwen2, norm=RMS),
    "qwen3_5_moe_text": SECTIONED,
    "qwen3_5_text": SECTIONED,
    "qwen3_moe": qwen3_moe,
    "qwen3_next": with_linear,
}
