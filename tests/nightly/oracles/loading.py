"""Weights of transformers in our layer: one function for each kind of model.

Each takes an attention module of theirs, which knows its configuration, and returns a
`posattn.torch.MultiHeadAttention` with copies of its weights.
"""

import torch
from torch import nn

from posattn.torch import (
    DisentangledBias,
    MultiHeadAttention,
    T5Bias,
    mrope_frequencies,
    rotate_axes,
)


def with_weights(layer, query, key, value, output):
    """Load the states of four projections, each a weight and perhaps a bias, into a layer."""
    states = {"query": query, "key": key, "value": value, "output": output}
    for role, state in states.items():
        layer.get_submodule(role).load_state_dict(state)
    return layer


def projected(attention, **options):
    """A module with `q_proj`, `k_proj`, `o_proj`, and `v_proj` if keys are not the values, too."""
    config = attention.config
    layer = MultiHeadAttention(
        config.hidden_size,
        config.num_attention_heads,
        num_kv_heads=config.num_attention_heads // attention.num_key_value_groups,
        head_dim=attention.head_dim,
        use_bias=attention.q_proj.bias is not None,
        use_output_bias=attention.o_proj.bias is not None,
        scale=attention.scaling,
        **options,
    )
    value = attention.v_proj or attention.k_proj
    parts = attention.q_proj, attention.k_proj, value, attention.o_proj
    return with_weights(layer, *(part.state_dict() for part in parts))


def t5_bias(attention):
    """T5: the bias of a stack's first layer, which all its layers share."""
    bias = T5Bias(
        attention.n_heads,
        num_buckets=attention.relative_attention_num_buckets,
        max_distance=attention.relative_attention_max_distance,
        bidirectional=not attention.is_decoder,
    )
    bias.load_state_dict({"table": attention.relative_attention_bias.weight})
    return bias


def from_t5(attention, bias):
    """T5: the bias is that of the stack, or None for attention to the encoder, and nothing is scaled."""
    layer = MultiHeadAttention(
        attention.d_model,
        attention.n_heads,
        head_dim=attention.key_value_proj_dim,
        bias=bias,
        scale=1.0,
    )
    parts = attention.q, attention.k, attention.v, attention.o
    return with_weights(layer, *(part.state_dict() for part in parts))


def from_deberta_v2(attention, table):
    """DeBERTa-v2: the table of the encoder meets the projections of the layer, with their offsets."""
    inner, output = attention.self, attention.output.dense
    heads, dim = inner.num_attention_heads, inner.all_head_size
    parts = inner.query_proj, inner.key_proj, inner.value_proj
    options = {"same_row": True, "bucketed_to": inner.max_relative_positions}
    bias = DisentangledBias(len(table) // 2, dim, heads, **options)
    bias.table = nn.Parameter(torch.cat([table, torch.ones(len(table), 1)], dim=-1))
    for name, part in (("query_weight", parts[0]), ("key_weight", parts[1])):
        offset_last = torch.cat([part.weight.T, part.bias[None]])
        setattr(bias, name, nn.Parameter(offset_last.detach()))
    layer = MultiHeadAttention(dim, heads, use_bias=True, bias=bias, scale=bias.scale)
    return with_weights(layer, *(part.state_dict() for part in (*parts, output)))


class RotaryAtPlaces(nn.Module):
    """Turn tokens by the coordinates that a table has for their positions.

    The table `coordinates`, `(batch, max_len, axes)`, belongs to a batch and is set before its first call.
    """

    def __init__(self, frequencies):
        super().__init__()
        self.frequencies, self.coordinates = frequencies, None

    def forward(self, x, positions):
        """Turn `x`, `(batch, heads, n, d_h)`, at positions `(1, n)` or `(batch, 1, n)`."""
        rows = positions.clamp(min=0).expand(len(self.coordinates), 1, -1)
        places = self.coordinates[:, None].take_along_dim(rows[..., None], dim=-2)
        return rotate_axes(x, places, self.frequencies, layout="half")


def from_qwen2_vl(attention):
    """Qwen2-VL, its text: offsets but in the output, and pairs that turn with time, height and width."""
    rope = attention.rope_parameters
    sections, base = rope["mrope_section"], rope["rope_theta"]
    frequencies = mrope_frequencies(attention.head_dim, sections, base=base)
    return projected(attention, rotate=RotaryAtPlaces(frequencies))
