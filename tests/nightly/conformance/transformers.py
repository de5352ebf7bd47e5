"""Hugging Face's transformers: Llama's rotation, the frequencies of each rope type, and masks."""

import torch
from transformers import DynamicCache, LlamaConfig, MistralConfig, StaticCache
from transformers import masking_utils as masks
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.bloom.modeling_bloom import build_alibi_tensor
from transformers.models.llama.modeling_llama import (
    LlamaRotaryEmbedding,
    apply_rotary_pos_emb,
)
from transformers.models.t5.modeling_t5 import T5Attention

from posattn.conformance.adapters import mask_of_mask_mod
from tests.nightly.conformance.adapting import FLOAT32, against


@against("rotary", FLOAT32, framework="torch", layout="half")
def llama(x, positions=None, *, base=10000.0):
    """`LlamaRotaryEmbedding` makes tables, `apply_rotary_pos_emb` rotates."""
    places = torch.arange(x.shape[-2]) if positions is None else positions
    if places.ndim == 3:  # heads share them
        places = places[:, 0]
    rope = {"rope_type": "default", "rope_theta": base}
    config = LlamaConfig(
        hidden_size=x.shape[-1], num_attention_heads=1, rope_parameters=rope
    )
    cos, sin = LlamaRotaryEmbedding(config)(x, places.expand(len(x), -1))
    heads = x if x.ndim == 4 else x[:, None]
    rotated, _ = apply_rotary_pos_emb(heads, heads, cos, sin)
    return rotated.reshape(x.shape)


def made(kind, dim, base, trained=64, length=None, **rope):
    """What transformers makes of a rope type: frequencies and the attention factor."""
    rope = {"rope_type": kind, "rope_theta": base, **rope}
    if kind not in ("linear", "dynamic", "proportional"):
        rope["original_max_position_embeddings"] = trained
    config = LlamaConfig(
        hidden_size=dim,
        num_attention_heads=1,
        max_position_embeddings=trained,
        rope_parameters=rope,
    )
    return ROPE_INIT_FUNCTIONS[kind](config, "cpu", seq_len=length)


@against("position_interpolation", framework="torch")
def linear(dim, *, base=10000.0, factor):
    """The rope type linear."""
    return made("linear", dim, base, factor=factor)[0]


@against("dynamic_ntk", framework="torch")
def dynamic(dim, *, base=10000.0, factor, length, trained_length):
    """The rope type dynamic, asked for each length anew."""
    return made("dynamic", dim, base, trained_length, length, factor=factor)[0]


@against("yarn", framework="torch")
def yarn(dim, *, base=10000.0, factor, trained_length, **options):
    """The rope type yarn."""
    return made("yarn", dim, base, trained_length, factor=factor, **options)


@against("llama3", framework="torch")
def llama3(
    dim,
    *,
    base=500000.0,
    factor=8.0,
    low_frequency_factor=1.0,
    high_frequency_factor=4.0,
    trained_length=8192,
):
    """The rope type llama3."""
    rope = {
        "low_freq_factor": low_frequency_factor,
        "high_freq_factor": high_frequency_factor,
    }
    return made("llama3", dim, base, trained_length, factor=factor, **rope)[0]


@against("longrope", framework="torch")
def longrope(
    dim, *, base=10000.0, short_factors, long_factors, length, trained_length, factor
):
    """The rope type longrope."""
    rope = {"short_factor": short_factors.tolist(), "long_factor": long_factors.tolist()}
    return made("longrope", dim, base, trained_length, length, factor=factor, **rope)


@against("proportional", framework="torch")
def proportional(head_dim, *, base=10000.0, rotary_dim, factor=1.0):
    """The rope type proportional, as Gemma 4 has it."""
    share = rotary_dim / head_dim
    rope = {"partial_rotary_factor": share, "factor": factor}
    return made("proportional", head_dim, base, **rope)[0]


@against("t5_bucket", framework="torch")
def t5_bucket(relative_position, *, num_buckets=32, max_distance=128, bidirectional=True):
    """The buckets of T5Attention."""
    options = (bidirectional, num_buckets, max_distance)
    return T5Attention._relative_position_bucket(relative_position, *options)


@against("alibi_slopes", framework="torch")
def bloom_slopes(num_heads):
    """The slopes of Bloom's bias: its difference from one key to the next."""
    bias = build_alibi_tensor(torch.ones(1, 2), num_heads, torch.float32)
    return (bias[:, 0, 1] - bias[:, 0, 0]).flatten()


@against("causal_mask", framework="torch")
def causal(query_positions, key_positions):
    """`causal_mask_function`."""
    return mask_of_mask_mod(masks.causal_mask_function)(query_positions, key_positions)


@against("window_mask", framework="torch")
def window(query_positions, key_positions, *, window):
    """`sliding_window_causal_mask_function`."""
    mask = masks.sliding_window_causal_mask_function(window)
    return mask_of_mask_mod(mask)(query_positions, key_positions)


@against("chunk_mask", framework="torch")
def chunk(query_positions, key_positions, *, size):
    """`chunked_causal_mask_function`, without padding."""
    mask = masks.chunked_causal_mask_function(size, torch.tensor([0]))
    return mask_of_mask_mod(mask)(query_positions, key_positions)


class Cached:
    """A cache of transformers, with the mask that it makes for a model, and PyTorch's attention."""

    def __init__(self, window=None, left_padding=None, max_length=32):
        options = {"sliding_window": window, "attn_implementation": "sdpa"}
        self.config = MistralConfig(num_hidden_layers=1, **options)
        self.cache = self.make(self.config, max_length)
        self.seen = torch.ones(3, 0, dtype=torch.bool)

    def attend(self, query, key, value, positions):
        """The mask, the cache, and the attention, in the order of a model."""
        self.seen = torch.cat([self.seen, positions >= 0], dim=-1)
        given = self.config, query[:, 0], self.seen, self.cache, positions.clamp(min=0)
        kind = "sliding_window_" if self.config.sliding_window else ""
        create = getattr(masks, f"create_{kind}causal_mask")
        mask = create(*given, allow_is_causal_skip=False)
        key, value = self.cache.update(key, value, 0)
        attend = torch.nn.functional.scaled_dot_product_attention
        return attend(query, key, value, attn_mask=mask)

    def trim(self, n):
        """What refuses to be cropped is not wrong."""
        if not self.cache.is_croppable:
            raise NotImplementedError
        try:
            self.cache.crop(-n)
        except RuntimeError as refused:
            raise NotImplementedError from refused
        self.seen = self.seen[:, :-n]

    def reorder(self, rows):
        """As in beam search."""
        self.cache.reorder_cache(rows)


@against("cache", framework="torch")
class Dynamic(Cached):
    """`DynamicCache`, with `create_causal_mask` or that of a window."""

    make = staticmethod(lambda config, length: DynamicCache(config=config))


@against("cache", framework="torch")
class Static(Cached):
    """`StaticCache`, with `create_causal_mask` or that of a window."""

    make = StaticCache
