"""The JAX column: the contract of `posattn.reference`, as a JAX user would write it."""

import numpy as np
from jax import Array, dtypes

from posattn import contract
from posattn.jax.alibi import ALiBi, alibi_bias, alibi_slopes
from posattn.jax.attention import (
    attention_weights,
    dropout,
    masked_softmax,
    scaled_dot_product_attention,
)
from posattn.jax.axial import (
    MixedRotary,
    axial_frequencies,
    grid_coordinates,
    mrope_frequencies,
    rotate_axes,
)
from posattn.jax.cache import KVCache
from posattn.jax.cope import CoPE
from posattn.jax.dape import DAPE
from posattn.jax.disentangled import DisentangledBias, deberta_bucket
from posattn.jax.fire import FIRE
from posattn.jax.forgetting import (
    ForgettingGate,
    forgetting_bias,
    tiled_forgetting_bias,
)
from posattn.jax.kerple import KerpleLog, KerplePower
from posattn.jax.learned import LearnedPositionalEncoding
from posattn.jax.masks import Window, causal_mask, length_mask, window_mask
from posattn.jax.multi_head import MultiHeadAttention, merge_heads, split_heads
from posattn.jax.polar import PolarKey, polar_query
from posattn.jax.randomized import randomized_positions
from posattn.jax.relative import RelativeGlobalAttention, ShawRelative, skew
from posattn.jax.ring import balanced_order, ring_attention
from posattn.jax.rotary import (
    Rotary,
    rotate,
    to_half,
    to_interleaved,
    weight_to_half,
    weight_to_interleaved,
)
from posattn.jax.sandwich import sandwich_bias
from posattn.jax.scaling import (
    dynamic_ntk,
    llama3,
    longrope,
    ntk_aware,
    position_interpolation,
    yarn,
)
from posattn.jax.sinusoidal import (
    PositionalEncoding,
    frequencies,
    shift_matrix,
    sinusoidal_encoding,
)
from posattn.jax.stick_breaking import StickBreaking
from posattn.jax.swin import SwinBias
from posattn.jax.swin_v2 import SwinV2Bias
from posattn.jax.t5 import T5Bias, t5_bucket
from posattn.jax.transformer_xl import TransformerXLBias
from posattn.jax.tupe import TUPEBias
from posattn.jax.xpos import xpos_key, xpos_query

__all__ = [
    "DAPE",
    "FIRE",
    "ALiBi",
    "CoPE",
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
    "deberta_bucket",
    "dropout",
    "dynamic_ntk",
    "forgetting_bias",
    "frequencies",
    "grid_coordinates",
    "length_mask",
    "llama3",
    "longrope",
    "masked_softmax",
    "merge_heads",
    "mrope_frequencies",
    "ntk_aware",
    "polar_query",
    "position_interpolation",
    "randomized_positions",
    "ring_attention",
    "rotate",
    "rotate_axes",
    "sandwich_bias",
    "scaled_dot_product_attention",
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

contract.guard(
    __name__,
    (Array, np.ndarray, np.generic),
    "JAX array",
    lambda given: dtypes.issubdtype(given, np.floating),
)
