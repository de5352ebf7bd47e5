"""The PyTorch column: the contract of `posattn.reference`, as a PyTorch user would write it."""

from torch import Tensor, dtype

from posattn import contract
from posattn.torch.alibi import ALiBi, alibi_bias, alibi_slopes
from posattn.torch.attention import (
    attention_weights,
    dropout,
    masked_softmax,
    scaled_dot_product_attention,
)
from posattn.torch.axial import (
    MixedRotary,
    axial_frequencies,
    grid_coordinates,
    mrope_frequencies,
    rotate_axes,
)
from posattn.torch.cache import KVCache
from posattn.torch.cope import CoPE
from posattn.torch.dape import DAPE
from posattn.torch.disentangled import DisentangledBias, deberta_bucket
from posattn.torch.fire import FIRE
from posattn.torch.forgetting import (
    ForgettingGate,
    forgetting_bias,
    tiled_forgetting_bias,
)
from posattn.torch.kerple import KerpleLog, KerplePower
from posattn.torch.learned import LearnedPositionalEncoding
from posattn.torch.masks import Window, causal_mask, length_mask, window_mask
from posattn.torch.multi_head import MultiHeadAttention, merge_heads, split_heads
from posattn.torch.polar import PolarKey, polar_query
from posattn.torch.randomized import randomized_positions
from posattn.torch.relative import RelativeGlobalAttention, ShawRelative, skew
from posattn.torch.ring import balanced_order, ring_attention
from posattn.torch.rotary import (
    Rotary,
    rotate,
    to_half,
    to_interleaved,
    weight_to_half,
    weight_to_interleaved,
)
from posattn.torch.sandwich import sandwich_bias
from posattn.torch.scaling import (
    dynamic_ntk,
    llama3,
    longrope,
    ntk_aware,
    position_interpolation,
    yarn,
)
from posattn.torch.sinusoidal import (
    PositionalEncoding,
    frequencies,
    shift_matrix,
    sinusoidal_encoding,
)
from posattn.torch.stick_breaking import StickBreaking
from posattn.torch.swin import SwinBias
from posattn.torch.swin_v2 import SwinV2Bias
from posattn.torch.t5 import T5Bias, t5_bucket
from posattn.torch.transformer_xl import TransformerXLBias
from posattn.torch.tupe import TUPEBias
from posattn.torch.xpos import xpos_key, xpos_query

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
    (Tensor,),
    "torch.Tensor",
    lambda given: isinstance(given, dtype) and given.is_floating_point,
)
