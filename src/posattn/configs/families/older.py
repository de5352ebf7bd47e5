"""Decoders before Llama, and those whose code came with their weights, which transformers has not."""

import math
import re
from dataclasses import replace
from functools import partial

from posattn.configs.families import rotary, stack
from posattn.configs.families.qwen import FAMILIES as QWENS
from posattn.configs.families.stack import FULL, SLIDING
from posattn.configs.families.told import FAMILIES as ROWS
from posattn.configs.keys import MATTERS, REQUIRED, Keys, shown
from posattn.configs.layers import Temperature
from posattn.configs.rotation import rope

LLAMA3 = {
    "rope_type": "llama3",
    "low_freq_factor": 1.0,
    "original_max_position_embeddings": 8192,
}
BASE = {"rope_theta": 1e4}  # of those that have no key for it


def gpt2(keys, groups=False):
    """GPT-2: a learned table at the input. SantaCoder and StarCoder can have one head of keys."""
    layer = stack.offset(stack.alone(keys, dim=("n_embd", "hidden_size")))
    size = keys.count("n_positions", "max_position_embeddings")
    layer = replace(layer, table=("learned", size))
    by_place = not groups and keys.flag("scale_attn_by_inverse_layer_idx", absent=False)
    if groups and keys.flag("multi_query"):
        layer = replace(layer, num_kv_heads=1)
    if groups:
        keys.only("num_key_value_heads", layer.num_kv_heads)
    keys.ignore("n_ctx", "reorder_and_upcast_attn")  # the same numbers, in another order
    keys.ignore("attention_softmax_in_fp32", "scale_attention_softmax_in_fp32")
    scale = layer.scale if keys.flag("scale_attn_weights", absent=True) else 1.0
    return stack.stacked(
        keys, lambda place: replace(layer, scale=scale / (place + 1 if by_place else 1))
    )


def bloom(keys):
    """BLOOM: ALiBi."""
    layer = stack.alone(keys, dim=("hidden_size", "n_embed"))
    keys.ignore("seq_length", "attention_softmax_in_fp32", "masked_softmax_fusion")
    return stack.equal(keys, stack.offset(layer), bias=stack.slopes(layer))


def gptj(keys):
    """GPT-J: neighbors rotate in the first part of each head, by a base that is no key."""
    layer = stack.alone(keys, dim=("n_embd", "hidden_size"))
    keys.ignore("n_positions", "max_position_embeddings", "n_ctx")
    keys.known(rotary=True, scale_attn_weights=True)
    turns = keys.count("rotary_dim", most=layer.head_dim)
    family = f"{keys.family}: rotary_dim"
    rotated = rope(BASE, turns, layout="interleaved", family=family)
    return stack.equal(keys, layer, rope=rotated)


def mpt(keys):
    """MPT: ALiBi, whatever its own keys say; queries, keys and values may be clipped."""
    names = {"dim": ("d_model", "hidden_size"), "heads": ("n_heads", "num_attention_heads")}
    layer = stack.alone(keys, **names)
    keys.ignore("learned_pos_emb", "max_seq_len")
    keys.only("no_bias", True)
    inner = Keys(keys.section("attn_config") or {}, "mpt: attn_config")
    inner.known(alibi=True, alibi_bias_max=8, qk_ln=False, prefix_lm=False)
    inner.known(attn_type="multihead_attention")
    inner.ignore("attn_impl", "attn_pdrop", "attn_uses_sequence_id", "softmax_scale")
    inner.ignore("model_type", "rope")
    layer = replace(
        layer,
        bias=stack.slopes(layer),
        scale=inner.number("softmax_scale", absent=layer.scale),
        clip=inner.number("clip_qkv", absent=None),
    )
    inner.finish()
    return stack.equal(keys, layer, names=("n_layers", "num_hidden_layers"))


def falcon(keys):
    """Falcon: one head of keys, or a few, or as many; ALiBi or a rotation."""
    layer = stack.alone(keys, dim=("hidden_size", "n_embed"))
    few = keys.count(
        "num_kv_heads", "n_head_kv", absent=layer.num_heads, null=layer.num_heads
    )
    grouped = keys.flag("new_decoder_architecture")
    one = keys.flag("multi_query", absent=False if grouped else REQUIRED)
    groups = few if grouped else 1 if one else layer.num_heads
    layer = stack.with_groups(keys, layer, groups, "num_kv_heads")
    bias = keys.flag("bias")
    keys.ignore("parallel_attn", "num_ln_in_parallel_attn")
    layer = stack.offset(layer, bias)
    if keys.flag("alibi"):  # added before the scores are scaled
        keys.ignore("rope_theta", "rope_parameters", "rope_scaling")
        return stack.equal(keys, layer, bias=stack.slopes(layer, layer.scale))
    return stack.equal(keys, layer, rope=rotary.rotation(keys, layer.head_dim))


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
    """ChatGLM 2 and 3, and the first GLM-4: neighbors rotate in the first half of each head.

    For longer texts the base grows by `rope_ratio`; in ChatGLM2, known by its name only, positions shrink.
    """
    keys.only("original_rope", True)
    keys.ignore("apply_query_key_layer_scaling", "attention_softmax_in_fp32")
    each = keys.count("kv_channels", most=2**16)
    layer = stack.plain(keys, grouped=False, head_dim=False, each=each)
    many = keys.flag("add_bias_linear", absent=False)
    some = many or keys.flag("add_qkv_bias", absent=False)
    if keys.flag("multi_query_attention", absent=False):
        layer = stack.with_groups(keys, layer, keys.count("multi_query_group_num"))
    ratio = keys.number("rope_ratio", absent=1.0)
    turned = {"rope_theta": 1e4 * ratio, "partial_rotary_factor": 0.5}
    if "chatglm2" in str(keys.values.get("_name_or_path")) and ratio != 1:
        turned |= BASE | {"rope_type": "linear", "factor": ratio}
    turned = rope(turned, layer.head_dim, layout="interleaved", family=keys.family)
    layer = replace(layer, rope=turned, use_bias=(some,) * 3, use_output_bias=many)
    return stack.equal(keys, layer, names=("num_layers", "num_hidden_layers"))


def qwen(keys):
    """The first Qwen: beyond the trained length the base grows with it, and queries with their position."""
    each = keys.count("kv_channels", most=2**16)
    layer = stack.alone(keys, dim=("hidden_size", "n_embd"), each=each)
    keys.ignore("n_positions", "max_position_embeddings", "scale_attn_weights")
    keys.only("pos_emb", "rotary")
    trained = keys.count("seq_length", most=2**62)
    parameters = {
        "rope_theta": keys.number("rotary_emb_base", above=1),
        "partial_rotary_factor": keys.number("rotary_pct"),
    }
    grows = keys.flag("use_dynamic_ntk")
    if grows and (keys.length or 0) > trained:
        octaves = (keys.length - 1) // trained  # rounded up
        parameters |= {"rope_type": "ntk", "factor": 2.0 ** (octaves.bit_length() + 1) - 1}
    turned = rope(parameters, layer.head_dim, family=keys.family)
    layer = replace(
        layer,
        rope=replace(turned, method="dynamic", numbers=()) if grows else turned,
        use_bias=(True,) * 3,
        use_output_bias=not keys.flag("no_bias"),
    )
    if keys.flag("use_logn_attn"):
        growing = Temperature(trained, 1 / math.log(trained), smooth=True)
        layer = replace(layer, temperature=growing)
    return stack.equal(keys, layer)


def minicpmv(keys):
    """MiniCPM-V, whose language model is of another family in each version."""
    version = str(keys.take(["version"])[1])
    known = {"2.6": "qwen2", "4.0": "llama", "4.5": "qwen3"}
    if version not in known:
        raise keys.error(f"version must be one of {', '.join(known)}, got {version}")
    return (ROWS | QWENS)[known[version]](keys)


SPEAKS = re.compile(f"{MATTERS.pattern}|scal|norm|multiplier|layer_types")


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
    for key, value in keys.unread(SPEAKS).items():
        raise keys.error(
            f"{key} = {shown(value)} is no key that Meta or Mistral have there, and it may change attention",
            do="give the config.json of the model",
        )
    turned = rope(parameters, layer.head_dim, layout="interleaved", family=keys.family)
    layer = replace(stack.with_groups(keys, layer, many, "n_kv_heads"), rope=turned)
    layer = stack.windowed(keys, layer, SLIDING if window else FULL, window)
    return stack.equal(keys, layer, names=("n_layers",))


FAMILIES = {
    "baichuan": baichuan,
    "bloom": bloom,
    "chatglm": chatglm,
    "codegen": gptj,
    "falcon": falcon,
    "gpt2": gpt2,
    "gpt_bigcode": partial(gpt2, groups=True),
    "gptj": gptj,
    "minicpmv": minicpmv,
    "mpt": mpt,
    "params.json": params,
    "qwen": qwen,
}
