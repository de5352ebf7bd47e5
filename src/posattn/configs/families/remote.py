"""Decoders whose code came with their weights, and is in no transformers of today."""

import math
from dataclasses import replace

from posattn.configs.families import stack
from posattn.configs.families.llama import FAMILIES as LLAMAS
from posattn.configs.families.qwen import FAMILIES as QWENS
from posattn.configs.families.stack import FULL, SLIDING
from posattn.configs.layers import Temperature
from posattn.configs.rotation import rope

__all__ = ["FAMILIES"]

LLAMA3 = {
    "rope_type": "llama3",
    "low_freq_factor": 1.0,
    "original_max_position_embeddings": 8192,
}
BASE = {"rope_theta": 1e4}  # of those that have no key for it


def baichuan(keys):
    """Baichuan 2: the model of 7B rotates, that of 13B, whose file has no longest length, has ALiBi."""
    layer = stack.alone(keys)
    keys.ignore("model_max_length")
    if keys.count("max_position_embeddings", absent=None) is None:
        layer = replace(layer, bias=stack.slopes(layer))
    else:
        layer = replace(layer, rope=rope(BASE, layer.head_dim, family=keys.family))
    return stack.equal(keys, layer)


def chatglm(keys):
    """ChatGLM 2 and 3, and the first GLM-4: neighbors rotate in the first half of each head."""
    keys.only("original_rope", True)
    keys.ignore("apply_query_key_layer_scaling", "attention_softmax_in_fp32")
    layer = stack.plain(
        keys, grouped=False, head_dim=False, each=keys.count("kv_channels", most=2**16)
    )
    many = keys.flag("add_bias_linear", absent=False)
    some = many or keys.flag("add_qkv_bias", absent=False)
    if keys.flag("multi_query_attention", absent=False):
        layer = stack.with_groups(keys, layer, keys.count("multi_query_group_num"))
    base = BASE["rope_theta"] * keys.number("rope_ratio", absent=1.0)
    turned = rope(
        {"rope_theta": base, "partial_rotary_factor": 0.5},
        layer.head_dim,
        layout="interleaved",
        family=keys.family,
    )
    layer = replace(layer, rope=turned, use_bias=(some,) * 3, use_output_bias=many)
    return stack.stacked(
        keys, lambda place: layer, names=("num_layers", "num_hidden_layers")
    )


def qwen(keys):
    """The first Qwen: beyond the trained length the base grows with it, and queries with their position."""
    layer = stack.alone(
        keys,
        dim=("hidden_size", "n_embd"),
        each=keys.count("kv_channels", most=2**16),
    )
    keys.ignore("n_positions", "max_position_embeddings", "scale_attn_weights")
    keys.only("pos_emb", "rotary")
    trained = keys.count("seq_length", most=2**62)
    parameters = {
        "rope_theta": keys.number("rotary_emb_base", above=1),
        "partial_rotary_factor": keys.number("rotary_pct"),
    }
    if keys.flag("use_dynamic_ntk") and (keys.length or 0) > trained:
        octaves = (
            keys.length - 1
        ) // trained  # of the length over the trained one, rounded up
        parameters |= {"rope_type": "ntk", "factor": 2.0 ** (octaves.bit_length() + 1) - 1}
    layer = replace(
        layer,
        rope=rope(parameters, layer.head_dim, family=keys.family),
        use_bias=(True,) * 3,
        use_output_bias=not keys.flag("no_bias"),
    )
    if keys.flag("use_logn_attn"):
        layer = replace(
            layer, temperature=Temperature(trained, 1 / math.log(trained), smooth=True)
        )
    return stack.equal(keys, layer)


def minicpmv(keys):
    """MiniCPM-V, whose language model is of another family in each version."""
    version = str(keys.take(["version"])[1])
    known = {"2.6": "qwen2", "4.0": "llama", "4.5": "qwen3"}
    if version not in known:
        raise keys.error(f"version must be one of {', '.join(known)}, got {version}")
    return (LLAMAS | QWENS)[known[version]](keys)


def yuan(keys):
    """Yuan 2: a convolution mixes each token with those before it, for queries and keys only."""
    layer = stack.alone(keys)
    keys.ignore("causal_mask", "reset_attention_mask", "reset_position_ids")
    kind = "attention behind a filter of neighboring tokens, rotary position of base 10000"
    return stack.equal(keys, layer, kind=kind)


def params(keys):
    """The params.json of Mistral and Meta, whose own weights keep neighbors where transformers has halves."""
    layer = stack.plain(keys, grouped=False, dim=("dim",), heads=("n_heads",))
    many = keys.count("n_kv_heads", absent=layer.num_heads, null=layer.num_heads)
    parameters = {"rope_theta": keys.number("rope_theta", absent=1e4, null=1e4, above=1)}
    if keys.flag("use_scaled_rope", absent=False):
        parameters |= LLAMA3 | {
            "factor": keys.number("rope_scaling_factor", absent=8.0),
            "high_freq_factor": keys.number("rope_high_freq_factor", absent=4.0),
        }
    for name in ("yarn", "llama_4_scaling", "qk_nope_head_dim"):
        keys.only(name)
    window = keys.count("sliding_window", absent=None, null=None, most=2**62)
    turned = rope(parameters, layer.head_dim, layout="interleaved", family=keys.family)
    layer = replace(stack.with_groups(keys, layer, many, "n_kv_heads"), rope=turned)
    layer = stack.windowed(keys, layer, SLIDING if window else FULL, window)
    return stack.stacked(keys, lambda place: layer, names=("n_layers",))


FAMILIES = {
    "baichuan": baichuan,
    "chatglm": chatglm,
    "minicpmv": minicpmv,
    "params.json": params,
    "qwen": qwen,
    "yuan": yuan,
}
