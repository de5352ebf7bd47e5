"""The contract: every definition in NumPy and float64, written to be read.

Arrays of any floating dtype come in, float64 comes out.
Complex input passes through, so that a complex step differentiates each function to rounding error.
"""

import numpy as np

from posattn import contract
from posattn.reference.alibi import ALiBi, alibi_bias, alibi_slopes
from posattn.reference.attention import (
    attention_weights,
    dropout,
    masked_softmax,
    scaled_dot_product_attention,
)
from posattn.reference.axial import (
    MixedRotary,
    axial_frequencies,
    grid_coordinates,
    mrope_frequencies,
    rotate_axes,
)
from posattn.reference.cache import KVCache
from posattn.reference.complexity import (
    Cost,
    convolution,
    convolution_operations,
    layers_to_connect,
    measure,
    path_length,
    reads,
    recurrence,
    recurrence_operations,
    self_attention,
    self_attention_operations,
)
from posattn.reference.cope import CoPE
from posattn.reference.dape import DAPE
from posattn.reference.disentangled import DisentangledBias, deberta_bucket
from posattn.reference.fire import FIRE
from posattn.reference.forgetting import (
    ForgettingGate,
    forgetting_bias,
    tiled_forgetting_bias,
)
from posattn.reference.kerple import KerpleLog, KerplePower
from posattn.reference.learned import LearnedPositionalEncoding
from posattn.reference.masks import Window, causal_mask, length_mask, window_mask
from posattn.reference.multi_head import MultiHeadAttention, merge_heads, split_heads
from posattn.reference.polar import PolarKey, polar_query
from posattn.reference.randomized import randomized_positions
from posattn.reference.relative import RelativeGlobalAttention, ShawRelative, skew
from posattn.reference.ring import balanced_order, ring_attention
from posattn.reference.rotary import (
    Rotary,
    rotate,
    to_half,
    to_interleaved,
    weight_to_half,
    weight_to_interleaved,
)
from posattn.reference.sandwich import sandwich_bias
from posattn.reference.scaling import (
    dynamic_ntk,
    llama3,
    longrope,
    ntk_aware,
    position_interpolation,
    yarn,
)
from posattn.reference.sinusoidal import (
    PositionalEncoding,
    frequencies,
    shift_matrix,
    sinusoidal_encoding,
)
from posattn.reference.stick_breaking import StickBreaking
from posattn.reference.swin import SwinBias
from posattn.reference.swin_v2 import SwinV2Bias
from posattn.reference.t5 import T5Bias, t5_bucket
from posattn.reference.transformer_xl import TransformerXLBias
from posattn.reference.tupe import TUPEBias
from posattn.reference.xpos import xpos_key, xpos_query

__all__ = [
    "DAPE",
    "FIRE",
    "ALiBi",
    "CoPE",
    "Cost",
    "DisentangledBias",
    "ForgettingGate",
    "KVCache",
    "KerpleLog",
    "KerplePower",
    "LearnedPositionalEncoding",
    "MixedRotary",
    "MultiHeadAttention",
    "PolarKey",
    "PositionalEncoding",
    "RelativeGlobalAttention",
    "Rotary",
    "ShawRelative",
    "StickBreaking",
    "SwinBias",
    "SwinV2Bias",
    "T5Bias",
    "TUPEBias",
    "TransformerXLBias",
    "Window",
    "alibi_bias",
    "alibi_slopes",
    "attention_weights",
    "axial_frequencies",
    "balanced_order",
    "causal_mask",
    "convolution",
    "convolution_operations",
    "deberta_bucket",
    "dropout",
    "dynamic_ntk",
    "forgetting_bias",
    "frequencies",
    "grid_coordinates",
    "layers_to_connect",
    "length_mask",
    "llama3",
    "longrope",
    "masked_softmax",
    "measure",
    "merge_heads",
    "mrope_frequencies",
    "ntk_aware",
    "path_length",
    "polar_query",
    "position_interpolation",
    "randomized_positions",
    "reads",
    "recurrence",
    "recurrence_operations",
    "ring_attention",
    "rotate",
    "rotate_axes",
    "sandwich_bias",
    "scaled_dot_product_attention",
    "self_attention",
    "self_attention_operations",
    "shift_matrix",
    "sinusoidal_encoding",
    "skew",
    "split_heads",
    "t5_bucket",
    "tiled_forgetting_bias",
    "to_half",
    "to_interleaved",
    "weight_to_half",
    "weight_to_interleaved",
    "window_mask",
    "xpos_key",
    "xpos_query",
    "yarn",
]

contract.guard(__name__, (np.ndarray, np.generic), "NumPy array")
