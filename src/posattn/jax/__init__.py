"""The JAX column: the contract of `posattn.reference`, as a JAX user would write it."""

from posattn.jax.attention.attention import attention_weights, scaled_dot_product_attention
from posattn.jax.attention.cache import KVCache
from posattn.jax.attention.convolution import short_convolution
from posattn.jax.attention.definition import masked_softmax
from posattn.jax.attention.delta import gated_delta, kimi_delta
from posattn.jax.attention.heads import merge_heads, split_heads
from posattn.jax.attention.indexer import group_keys, group_tokens, indexer_scores
from posattn.jax.attention.latent_cache import LatentCache
from posattn.jax.attention.linear import linear_attention
from posattn.jax.attention.masks import Chunk, Window, causal_mask, length_mask, window_mask
from posattn.jax.attention.patterns import (
    first_token_score,
    induction_score,
    previous_token_score,
)
from posattn.jax.attention.random import dropout
from posattn.jax.attention.ring import balanced_order, ring_attention
from posattn.jax.attention.selection import (
    group_mask,
    select_blocks,
    select_groups,
    select_keys,
)
from posattn.jax.attention.state_cache import StateCache
from posattn.jax.attention.temperature import log_temperature
from posattn.jax.models.decoder import Decoder
from posattn.jax.models.delta_layer import DeltaAttention
from posattn.jax.models.latent import LatentAttention
from posattn.jax.models.layer_plan import rope_from_config
from posattn.jax.models.lightning import LightningIndexer
from posattn.jax.models.multi_head import MultiHeadAttention
from posattn.jax.position.alibi import ALiBi, alibi_slopes
from posattn.jax.position.axial import (
    MixedRotary,
    RotaryAxes,
    axial_frequencies,
    grid_coordinates,
    rotate_axes,
)
from posattn.jax.position.cope import CoPE
from posattn.jax.position.dape import DAPE
from posattn.jax.position.disentangled import DisentangledBias, deberta_bucket
from posattn.jax.position.fire import FIRE
from posattn.jax.position.fope import fope, fope_frequencies
from posattn.jax.position.forgetting import (
    ForgettingGate,
    forgetting_bias,
    tiled_forgetting_bias,
)
from posattn.jax.position.kerple import KerpleLog, KerplePower
from posattn.jax.position.learned import LearnedPositionalEncoding
from posattn.jax.position.mrope import mrope_frequencies, mrope_positions
from posattn.jax.position.polar import PolarKey, polar_query
from posattn.jax.position.proportional import proportional_frequencies
from posattn.jax.position.randomized import randomized_positions
from posattn.jax.position.relative import RelativeGlobalAttention, ShawRelative, skew
from posattn.jax.position.rotary import (
    Rotary,
    rotate,
    to_half,
    to_interleaved,
    weight_to_half,
    weight_to_interleaved,
)
from posattn.jax.position.sandwich import sandwich_bias
from posattn.jax.position.scaling import (
    dynamic_ntk,
    llama3,
    longrope,
    ntk_aware,
    position_interpolation,
    yarn,
)
from posattn.jax.position.selective import selective_rotation
from posattn.jax.position.sinusoidal import (
    PositionalEncoding,
    frequencies,
    shift_matrix,
    sinusoidal_encoding,
)
from posattn.jax.position.stick_breaking import StickBreaking
from posattn.jax.position.swin import SwinBias
from posattn.jax.position.swin_v2 import SwinV2Bias
from posattn.jax.position.t5 import T5Bias, t5_bucket
from posattn.jax.position.transformer_xl import TransformerXLBias
from posattn.jax.position.tupe import TUPEBias
from posattn.jax.position.xpos import xpos_key, xpos_query

__all__ = [
    "DAPE",
    "FIRE",
    "ALiBi",
    "Chunk",
    "CoPE",
    "Decoder",
    "DeltaAttention",
    "DisentangledBias",
    "ForgettingGate",
    "KVCache",
    "KerpleLog",
    "KerplePower",
    "LatentAttention",
    "LatentCache",
    "LearnedPositionalEncoding",
    "LightningIndexer",
    "MixedRotary",
    "MultiHeadAttention",
    "PolarKey",
    "PositionalEncoding",
    "RelativeGlobalAttention",
    "Rotary",
    "RotaryAxes",
    "ShawRelative",
    "StateCache",
    "StickBreaking",
    "SwinBias",
    "SwinV2Bias",
    "T5Bias",
    "TUPEBias",
    "TransformerXLBias",
    "Window",
    "alibi_slopes",
    "attention_weights",
    "axial_frequencies",
    "balanced_order",
    "causal_mask",
    "deberta_bucket",
    "dropout",
    "dynamic_ntk",
    "first_token_score",
    "fope",
    "fope_frequencies",
    "forgetting_bias",
    "frequencies",
    "gated_delta",
    "grid_coordinates",
    "group_keys",
    "group_mask",
    "group_tokens",
    "indexer_scores",
    "induction_score",
    "kimi_delta",
    "length_mask",
    "linear_attention",
    "llama3",
    "log_temperature",
    "longrope",
    "masked_softmax",
    "merge_heads",
    "mrope_frequencies",
    "mrope_positions",
    "ntk_aware",
    "polar_query",
    "position_interpolation",
    "previous_token_score",
    "proportional_frequencies",
    "randomized_positions",
    "ring_attention",
    "rope_from_config",
    "rotate",
    "rotate_axes",
    "sandwich_bias",
    "scaled_dot_product_attention",
    "select_blocks",
    "select_groups",
    "select_keys",
    "selective_rotation",
    "shift_matrix",
    "short_convolution",
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
