"""Decoders before Llama: tables at the input, a rotation of a part of each head, ALiBi."""

from dataclasses import replace

from posattn.configs.families import stack
from posattn.configs.keys import REQUIRED, Keys
from posattn.configs.rotation import rope

__all__ = ["FAMILIES"]


def gpt2(keys):
    """GPT-2: a learned table at the input."""
    layer = stack.alone(keys, dim=("n_embd", "hidden_size"))
    rows = keys.count("n_positions", "max_position_embeddings")
    keys.ignore("n_ctx")
    divided = keys.flag("scale_attn_weights", absent=True)
    by_place = keys.flag("scale_attn_by_inverse_layer_idx", absent=False)
    keys.ignore("reorder_and_upcast_attn")  # the same numbers, in another order
    scale = layer.scale if divided else 1.0
    layer = replace(stack.offset(layer), table=("learned", rows))
    return stack.stacked(
        keys, lambda place: replace(layer, scale=scale / (place + 1 if by_place else 1))
    )


def bloom(keys):
    """BLOOM: ALiBi."""
    layer = stack.alone(keys, dim=("hidden_size", "n_embed"))
    keys.ignore("seq_length", "attention_softmax_in_fp32", "masked_softmax_fusion")
    return stack.equal(keys, stack.offset(layer), bias=stack.slopes(layer))


def gpt_bigcode(keys):
    """SantaCoder and StarCoder: GPT-2 with one head of keys."""
    layer = stack.alone(keys, dim=("n_embd", "hidden_size"))
    rows = keys.count("n_positions", "max_position_embeddings")
    one = keys.flag("multi_query")
    keys.only("num_key_value_heads", 1 if one else layer.num_heads)
    divided = keys.flag("scale_attn_weights", absent=True)
    keys.ignore("attention_softmax_in_fp32", "scale_attention_softmax_in_fp32")
    changes = {"table": ("learned", rows)} | ({"num_kv_heads": 1} if one else {})
    scale = layer.scale if divided else 1.0
    return stack.equal(keys, stack.offset(layer), scale=scale, **changes)


def gptj(keys):
    """GPT-J: neighbors rotate in the first part of each head, by a base that is no key."""
    layer = stack.alone(keys, dim=("n_embd", "hidden_size"))
    keys.ignore("n_positions", "max_position_embeddings", "n_ctx")
    keys.known(rotary=True, scale_attn_weights=True)
    turns = keys.count("rotary_dim", most=layer.head_dim)
    rotated = rope(
        {"rope_theta": 1e4}, turns, layout="interleaved", family="gptj: rotary_dim"
    )
    return stack.equal(keys, layer, rope=rotated)


def opt(keys):
    """OPT: a learned table, after two rows that nothing uses."""
    layer = stack.alone(keys)
    bias = keys.flag("enable_bias", absent=True)
    keys.ignore("word_embed_proj_dim")
    table = ("learned", keys.count("max_position_embeddings"))
    return stack.equal(keys, stack.offset(layer, bias), table=table)


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
    return stack.stacked(keys, lambda place: layer, names=("n_layers", "num_hidden_layers"))


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
    return stack.equal(keys, layer, rope=stack.rotation(keys, layer.head_dim))


FAMILIES = {
    "bloom": bloom,
    "falcon": falcon,
    "gpt2": gpt2,
    "gpt_bigcode": gpt_bigcode,
    "gptj": gptj,
    "mpt": mpt,
    "opt": opt,
}
