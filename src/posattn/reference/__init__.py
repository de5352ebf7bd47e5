"""The contract: every definition in NumPy and float64, written to be read.

Arrays of any floating dtype come in, float64 comes out.
Complex input passes through, so that a complex step differentiates each function to rounding error.
An argument of the wrong kind is a TypeError, and one of the wrong shape or outside its range a ValueError;
both say what was expected and what came. A docstring names only the other reasons for an error.
"""

from posattn.reference.attention.attention import (
    attention_weights,
    dropout,
    masked_softmax,
    scaled_dot_product_attention,
)
from posattn.reference.attention.cache import KVCache
from posattn.reference.attention.complexity import (
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
from posattn.reference.attention.convolution import short_convolution
from posattn.reference.attention.delta import gated_delta, kimi_delta
from posattn.reference.attention.heads import merge_heads, split_heads
from posattn.reference.attention.indexer import group_keys, group_tokens, indexer_scores
from posattn.reference.attention.latent_cache import LatentCache
from posattn.reference.attention.linear import linear_attention
from posattn.reference.attention.masks import (
    Chunk,
    Window,
    causal_mask,
    length_mask,
    window_mask,
)
from posattn.reference.attention.patterns import (
    first_token_score,
    induction_score,
    previous_token_score,
)
from posattn.reference.attention.ring import balanced_order, ring_attention
from posattn.reference.attention.selection import (
    group_mask,
    select_blocks,
    select_groups,
    select_keys,
)
from posattn.reference.attention.state_cache import StateCache
from posattn.reference.attention.temperature import log_temperature
from posattn.reference.models.decoder import Decoder
from posattn.reference.models.delta_layer import DeltaAttention
from posattn.reference.models.latent import LatentAttention
from posattn.reference.models.layer_plan import rope_from_config
from posattn.reference.models.lightning import LightningIndexer
from posattn.reference.models.multi_head import MultiHeadAttention
from posattn.reference.position.alibi import ALiBi, alibi_slopes
from posattn.reference.position.axial import (
    MixedRotary,
    RotaryAxes,
    axial_frequencies,
    grid_coordinates,
    rotate_axes,
)
from posattn.reference.position.cope import CoPE
from posattn.reference.position.dape import DAPE
from posattn.reference.position.disentangled import DisentangledBias, deberta_bucket
from posattn.reference.position.fire import FIRE
from posattn.reference.position.fope import fope, fope_frequencies
from posattn.reference.position.forgetting import (
    ForgettingGate,
    forgetting_bias,
    tiled_forgetting_bias,
)
from posattn.reference.position.kerple import KerpleLog, KerplePower
from posattn.reference.position.learned import LearnedPositionalEncoding
from posattn.reference.position.mrope import mrope_frequencies, mrope_positions
from posattn.reference.position.polar import PolarKey, polar_query
from posattn.reference.position.proportional import proportional_frequencies
from posattn.reference.position.randomized import randomized_positions
from posattn.reference.position.relative import RelativeGlobalAttention, ShawRelative, skew
from posattn.reference.position.rotary import (
    Rotary,
    rotate,
    to_half,
    to_interleaved,
    weight_to_half,
    weight_to_interleaved,
)
from posattn.reference.position.sandwich import sandwich_bias
from posattn.reference.position.scaling import (
    dynamic_ntk,
    llama3,
    longrope,
    ntk_aware,
    position_interpolation,
    yarn,
)
from posattn.reference.position.selective import selective_rotation
from posattn.reference.position.sinusoidal import (
    PositionalEncoding,
    frequencies,
    shift_matrix,
    sinusoidal_encoding,
)
from posattn.reference.position.stick_breaking import StickBreaking
from posattn.reference.position.swin import SwinBias
from posattn.reference.position.swin_v2 import SwinV2Bias
from posattn.reference.position.t5 import T5Bias, t5_bucket
from posattn.reference.position.transformer_xl import TransformerXLBias
from posattn.reference.position.tupe import TUPEBias
from posattn.reference.position.xpos import xpos_key, xpos_query

__all__ = [
    "DAPE",
    "FIRE",
    "ALiBi",
    "Chunk",
    "CoPE",
    "Cost",
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
    "convolution",
    "convolution_operations",
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
    "layers_to_connect",
    "length_mask",
    "linear_attention",
    "llama3",
    "log_temperature",
    "longrope",
    "masked_softmax",
    "measure",
    "merge_heads",
    "mrope_frequencies",
    "mrope_positions",
    "ntk_aware",
    "path_length",
    "polar_query",
    "position_interpolation",
    "previous_token_score",
    "proportional_frequencies",
    "randomized_positions",
    "reads",
    "recurrence",
    "recurrence_operations",
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
    "self_attention",
    "self_attention_operations",
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
