"""The PyTorch column: the contract of `posattn.reference`, as a PyTorch user would write it."""

from posattn.torch.attention.attention import (
    attention_weights,
    scaled_dot_product_attention,
)
from posattn.torch.attention.cache import KVCache
from posattn.torch.attention.convolution import short_convolution
from posattn.torch.attention.definition import masked_softmax
from posattn.torch.attention.delta import gated_delta, kimi_delta
from posattn.torch.attention.heads import merge_heads, split_heads
from posattn.torch.attention.indexer import group_keys, group_tokens, indexer_scores
from posattn.torch.attention.latent_cache import LatentCache
from posattn.torch.attention.linear import linear_attention
from posattn.torch.attention.masks import (
    Chunk,
    Window,
    causal_mask,
    length_mask,
    window_mask,
)
from posattn.torch.attention.patterns import (
    first_token_score,
    induction_score,
    previous_token_score,
)
from posattn.torch.attention.random import dropout
from posattn.torch.attention.ring import balanced_order, ring_attention
from posattn.torch.attention.selection import (
    group_mask,
    select_blocks,
    select_groups,
    select_keys,
)
from posattn.torch.attention.state_cache import StateCache
from posattn.torch.attention.temperature import log_temperature
from posattn.torch.models.decoder import Decoder
from posattn.torch.models.delta_layer import DeltaAttention
from posattn.torch.models.latent import LatentAttention
from posattn.torch.models.layer_plan import rope_from_config
from posattn.torch.models.lightning import LightningIndexer
from posattn.torch.models.multi_head import MultiHeadAttention
from posattn.torch.position.alibi import ALiBi, alibi_slopes
from posattn.torch.position.axial import (
    MixedRotary,
    RotaryAxes,
    axial_frequencies,
    grid_coordinates,
    rotate_axes,
)
from posattn.torch.position.cope import CoPE
from posattn.torch.position.dape import DAPE
from posattn.torch.position.disentangled import DisentangledBias, deberta_bucket
from posattn.torch.position.fire import FIRE
from posattn.torch.position.fope import fope, fope_frequencies
from posattn.torch.position.forgetting import (
    ForgettingGate,
    forgetting_bias,
    tiled_forgetting_bias,
)
from posattn.torch.position.kerple import KerpleLog, KerplePower
from posattn.torch.position.learned import LearnedPositionalEncoding
from posattn.torch.position.mrope import mrope_frequencies, mrope_positions
from posattn.torch.position.polar import PolarKey, polar_query
from posattn.torch.position.proportional import proportional_frequencies
from posattn.torch.position.randomized import randomized_positions
from posattn.torch.position.relative import RelativeGlobalAttention, ShawRelative, skew
from posattn.torch.position.rotary import (
    Rotary,
    rotate,
    to_half,
    to_interleaved,
    weight_to_half,
    weight_to_interleaved,
)
from posattn.torch.position.sandwich import sandwich_bias
from posattn.torch.position.scaling import (
    dynamic_ntk,
    llama3,
    longrope,
    ntk_aware,
    position_interpolation,
    yarn,
)
from posattn.torch.position.selective import selective_rotation
from posattn.torch.position.sinusoidal import (
    PositionalEncoding,
    frequencies,
    shift_matrix,
    sinusoidal_encoding,
)
from posattn.torch.position.stick_breaking import StickBreaking
from posattn.torch.position.swin import SwinBias
from posattn.torch.position.swin_v2 import SwinV2Bias
from posattn.torch.position.t5 import T5Bias, t5_bucket
from posattn.torch.position.transformer_xl import TransformerXLBias
from posattn.torch.position.tupe import TUPEBias
from posattn.torch.position.xpos import xpos_key, xpos_query

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
