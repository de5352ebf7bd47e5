"""Qwen: windows from some layer on, sections for pictures, and the sizes of linear layers."""

from dataclasses import replace
from functools import partial

from posattn.configs.families import rotary, stack
from posattn.configs.families.stack import FULL, LINEAR, RMS, SLIDING, layer_of
from posattn.configs.indexers import Indexer
from posattn.configs.keys import REQUIRED
from posattn.configs.recurrent import Delta

QSA = "n_heads", "head_dim", "budget", "compress_ratio"


def qwen(keys, *, slides=int.__ge__, rope=None, **options):
    """A stack with a window only where it is used.

    Args:
        keys: of the configuration.
        slides: whether a layer then does, from its place and `max_window_layers`.
        rope: for `rotation`.
        options: for `layer_of`.
    """
    layer = layer_of(keys, **options)
    layer = replace(layer, rope=rotary.rotation(keys, layer.head_dim, **(rope or {})))
    used = keys.flag("use_sliding_window", absent=False)
    keys.ignore("sliding_window", "max_window_layers")
    window = stack.sliding_window(keys) if used else None
    bound = keys.count("max_window_layers", least=0, most=10**6) if used else None
    pattern = lambda place: SLIDING if window and slides(place, bound) else FULL  # noqa: E731
    return stack.patterned(keys, stack.kinds(keys, pattern), lambda place: layer, window)


def delta_of(keys):
    """The sizes of a layer with the gated delta rule."""
    return Delta(
        keys.count("linear_num_value_heads"),
        keys.count("linear_num_key_heads"),
        keys.count("linear_key_head_dim"),
        keys.count("linear_value_head_dim"),
        keys.count("linear_conv_kernel_dim", absent=4, most=256),
        eps=keys.number("rms_norm_eps"),
    )


def with_blocks(keys):
    """Qwen4-Exp: gated attention to groups of keys, which an indexer chooses by their mean, and states."""
    layer = layer_of(keys, norm=RMS | {"plus_one": True})
    keys.only("attn_output_gate", True)
    turned = rotary.rotation(
        keys, layer.head_dim, partial=REQUIRED, sections=[11, 11, 10], alternating=True
    )
    count = {name: keys.count(f"indexer_{name}", most=2**24) for name in QSA}
    keys.only("indexer_kv_heads", 1)
    index = Indexer(count["n_heads"], count["head_dim"], pooled="mean")
    layer = replace(
        layer,
        gate=True,
        rope=turned,
        indexer=index,
        selected=count["budget"],
        block=count["compress_ratio"],
    )
    gate = keys.choice("output_gate_type", among=("silu", "sigmoid"), absent=None)
    gate = gate or keys.choice("hidden_act", among=("silu", "sigmoid"), absent="silu")
    interval = keys.count("full_attention_interval", absent=4)
    delta = replace(delta_of(keys), gate=gate)
    linear = replace(layer, rope=None, kind="linear attention", delta=delta)
    layers = {FULL: layer, LINEAR: linear, "indexed_attention": layer}
    return stack.by_kind(keys, layers, pattern=stack.all_but(interval, LINEAR))


QWEN2 = partial(qwen, bias=True, output=False)
WITH_PICTURES = partial(QWEN2, head_dim=False, rope={"sections": [16, 24, 24]})
FAMILIES = {
    "mimo": partial(qwen, output=False),
    "qwen2": QWEN2,
    "qwen2_5_omni_text": WITH_PICTURES,
    "qwen2_5_vl": WITH_PICTURES,
    "qwen2_5_vl_text": WITH_PICTURES,
    "qwen2_moe": partial(
        qwen,
        bias="qkv_bias",
        output=False,
        slides=lambda place, bound: place % 2 == 0 and place < bound,
    ),
    "qwen2_vl": WITH_PICTURES,
    "qwen2_vl_text": WITH_PICTURES,
    "qwen3": partial(qwen, norm=RMS),
    "qwen3_moe": partial(qwen, norm=RMS, slides=lambda place, bound: True),
    "qwen3_8_flash_next_text": with_blocks,
    "qwen4_exp_text": with_blocks,
}
