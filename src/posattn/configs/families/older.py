"""Decoders before Llama: tables at the input, a rotation of a part of each head, ALiBi."""

from dataclasses import replace

from posattn.configs.families import stack
from posattn.configs.keys import REQUIRED, Keys
from posattn.configs.rotation import rope

__all__ = ["FAMILIES"]


def gpt2(keys):
    """GPT-2: a learned table at the input."""
    layer = stack.plain(keys, grouped=False, head_dim=False, dim=("n_embd", "hidden_size"))
    rows = keys.count("n_positions", "max_position_embeddings")
    keys.ignore("n_ctx")
    divided = keys.flag("scale_attn_weights", absent=True)
    by_place = keys.flag("scale_attn_by_inverse_layer_idx", absent=False)
    keys.ignore("reorder_and_upcast_attn")  # the same numbers, in another order
    layer = replace(
        layer,
        scale=layer.scale if divided else 1.0,
        table=("learned", rows),
        use_bias=(True, True, True),
        use_output_bias=True,
    )
    return stack.stacked(
        keys,
        lambda place: replace(layer, scale=layer.scale / (place + 1 if by_place else 1)),
    )


def bloom(keys):
    """BLOOM: ALiBi."""
    layer = stack.plain(keys, grouped=False, head_dim=False, dim=("hidden_size", "n_embed"))
    keys.ignore("seq_length", "attention_softmax_in_fp32", "masked_softmax_fusion")
    layer = replace(
        layer,
        bias=stack.slopes(layer),
        use_bias=(True, True, True),
        use_output_bias=True,
    )
    return stack.equal(keys, layer)


def gpt_bigcode(keys):
    """SantaCoder and StarCoder: GPT-2 with one head of keys."""
    layer = stack.plain(keys, grouped=False, head_dim=False, dim=("n_embd", "hidden_size"))
    rows = keys.count("n_positions", "max_position_embeddings")
    one = keys.flag("multi_query")
    keys.only("num_key_value_heads", 1 if one else layer.num_heads)
    divided = keys.flag("scale_attn_weights", absent=True)
    keys.ignore("attention_softmax_in_fp32", "scale_attention_softmax_in_fp32")
    layer = replace(
        layer,
        num_kv_heads=1 if one else layer.num_heads,
        scale=layer.scale if divided else 1.0,
        table=("learned", rows),
        use_bias=(True, True, True),
        use_output_bias=True,
    )
    return stack.equal(keys, layer)


def gptj(keys):
    """GPT-J: neighbors rotate in the first part of each head, by a base that is no key."""
    layer = stack.plain(keys, grouped=False, head_dim=False, dim=("n_embd", "hidden_size"))
    keys.ignore("n_positions", "max_position_embeddings", "n_ctx")
    keys.only("rotary", True)
    keys.only("scale_attn_weights", True)
    turns = keys.count("rotary_dim", most=layer.head_dim)
    rotated = rope(
        {"rope_theta": 1e4}, turns, layout="interleaved", family="gptj: rotary_dim"
    )
    return stack.equal(keys, layer, rope=rotated)


def opt(keys):
    """OPT: a learned table, after two rows that nothing uses."""
    layer = stack.plain(keys, grouped=False, head_dim=False)
    bias = keys.flag("enable_bias", absent=True)
    layer = replace(
        layer,
        table=("learned", keys.count("max_position_embeddings")),
        use_bias=(bias,) * 3,
        use_output_bias=bias,
    )
    keys.ignore("word_embed_proj_dim")
    return stack.equal(keys, layer)


def mpt(keys):
    """MPT: ALiBi, whatever its own keys say; queries, keys and values may be clipped."""
    layer = stack.plain(
        keys,
        grouped=False,
        head_dim=False,
        dim=("d_model", "hidden_size"),
        heads=("n_heads", "num_attention_heads"),
    )
    keys.ignore("learned_pos_emb", "max_seq_len")
    keys.only("no_bias", True)
    inner = Keys(keys.section("attn_config") or {}, "mpt: attn_config")
    for name, only in (("alibi", True), ("alibi_bias_max", 8), ("qk_ln", False)):
        inner.only(name, only)
    inner.only("prefix_lm", False)
    inner.only("attn_type", "multihead_attention")
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
    layer = stack.plain(keys, grouped=False, head_dim=False, dim=("hidden_size", "n_embed"))
    few = keys.count(
        "num_kv_heads", "n_head_kv", absent=layer.num_heads, null=layer.num_heads
    )
    grouped = keys.flag("new_decoder_architecture")
    one = keys.flag("multi_query", absent=False if grouped else REQUIRED)
    groups = few if grouped else 1 if one else layer.num_heads
    layer = stack.with_groups(keys, layer, groups, "num_kv_heads")
    bias = keys.flag("bias")
    keys.ignore("parallel_attn", "num_ln_in_parallel_attn")
    layer = replace(layer, use_bias=(bias,) * 3, use_output_bias=bias)
    if keys.flag("alibi"):  # added before the scores are scaled
        keys.ignore(
            "rope_theta", "rope_parameters", "rope_scaling", "max_position_embeddings"
        )
        layer = replace(layer, bias=stack.slopes(layer, layer.scale))
        return stack.equal(keys, layer)
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
