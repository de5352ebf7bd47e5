"""Decoders before Llama: GPT-2's table, GPT-NeoX's rotation of a part of each head, BLOOM's ALiBi."""

from dataclasses import replace

from posattn.configs.families.llama import biased, every
from posattn.configs.families.stack import plain, stacked, turning
from posattn.configs.keys import REQUIRED
from posattn.configs.layers import Slopes
from posattn.reference.position.alibi import alibi_slopes

__all__ = ["bloom", "gpt2", "gpt_neox"]


def gpt_neox(keys):
    """GPT-NeoX and Pythia: the first part of each head turns."""
    layer = biased(keys, plain(keys, grouped=False, head_dim=False), absent=True)
    rope = turning(
        keys,
        layer.head_dim,
        base=("rotary_emb_base", "rope_theta"),
        share=("rotary_pct", "partial_rotary_factor"),
        partial=REQUIRED,
    )
    return every(keys, layer, rope)


def gpt2(keys):
    """GPT-2: a learned table at the input."""
    layer = plain(keys, grouped=False, head_dim=False, dim=("n_embd", "hidden_size"))
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
    return stacked(
        keys,
        lambda place: replace(layer, scale=layer.scale / (place + 1 if by_place else 1)),
    )


def bloom(keys):
    """BLOOM: ALiBi."""
    layer = plain(keys, grouped=False, head_dim=False, dim=("hidden_size", "n_embed"))
    keys.ignore("seq_length", "attention_softmax_in_fp32", "masked_softmax_fusion")
    layer = replace(
        layer,
        bias=Slopes(tuple(map(float, alibi_slopes(layer.num_heads)))),
        use_bias=(True, True, True),
        use_output_bias=True,
    )
    return stacked(keys, lambda place: layer)
