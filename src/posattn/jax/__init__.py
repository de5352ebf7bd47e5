"""The JAX column: the contract of `posattn.reference`, as a JAX user would write it."""

from posattn.jax.attention import (
    attention_weights,
    dropout,
    masked_softmax,
    scaled_dot_product_attention,
)
from posattn.jax.learned import LearnedPositionalEncoding
from posattn.jax.masks import causal_mask, length_mask, window_mask
from posattn.jax.multi_head import MultiHeadAttention, merge_heads, split_heads
from posattn.jax.sinusoidal import (
    PositionalEncoding,
    frequencies,
    shift_matrix,
    sinusoidal_encoding,
)

__all__ = [
    "LearnedPositionalEncoding",
    "MultiHeadAttention",
    "PositionalEncoding",
    "attention_weights",
    "causal_mask",
    "dropout",
    "frequencies",
    "length_mask",
    "masked_softmax",
    "merge_heads",
    "scaled_dot_product_attention",
    "shift_matrix",
    "sinusoidal_encoding",
    "split_heads",
    "window_mask",
]
