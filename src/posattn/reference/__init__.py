"""The contract: every definition in NumPy and float64, written to be read.

Arrays of any floating dtype come in, float64 comes out.
Complex input passes through, so that a complex step differentiates each function to rounding error.
"""

from posattn.reference.attention import (
    attention_weights,
    dropout,
    masked_softmax,
    scaled_dot_product_attention,
)
from posattn.reference.complexity import (
    Cost,
    convolution,
    convolution_operations,
    layers_to_connect,
    measure,
    reads,
    recurrence,
    recurrence_operations,
    self_attention,
    self_attention_operations,
)
from posattn.reference.learned import LearnedPositionalEncoding
from posattn.reference.masks import causal_mask, length_mask, window_mask
from posattn.reference.multi_head import MultiHeadAttention, merge_heads, split_heads
from posattn.reference.sinusoidal import (
    PositionalEncoding,
    frequencies,
    shift_matrix,
    sinusoidal_encoding,
)

__all__ = [
    "Cost",
    "LearnedPositionalEncoding",
    "MultiHeadAttention",
    "PositionalEncoding",
    "attention_weights",
    "causal_mask",
    "convolution",
    "convolution_operations",
    "dropout",
    "frequencies",
    "layers_to_connect",
    "length_mask",
    "masked_softmax",
    "measure",
    "merge_heads",
    "reads",
    "recurrence",
    "recurrence_operations",
    "scaled_dot_product_attention",
    "self_attention",
    "self_attention_operations",
    "shift_matrix",
    "sinusoidal_encoding",
    "split_heads",
    "window_mask",
]
