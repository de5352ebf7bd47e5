"""Jamba and MiniMax, where some layers attend to pairs, and Inkling, which adds profiles to the scores."""

from dataclasses import replace

from posattn.configs.families.llama import rms, sliding_window
from posattn.configs.families.stack import (
    FULL,
    LINEAR,
    SLIDING,
    kinds,
    plain,
    rotation,
    stacked,
    windowed,
    with_groups,
)
from posattn.configs.keys import REQUIRED
from posattn.configs.layers import Profiles, Temperature

__all__ = ["inkling", "jamba", "minimax"]

NEAR, FAR = "hybrid_sliding", "hybrid"


def jamba(keys):
    """Jamba: one layer in some attends, without position; the others are state spaces."""
    layer = plain(keys, head_dim=False)
    period, start = (
        keys.count("attn_layer_period"),
        keys.count("attn_layer_offset", least=0),
    )
    keys.only("sliding_window")
    keys.ignore("max_position_embeddings")
    names = {"attention": "full", "mamba": "state space"}
    kind = kinds(
        keys,
        lambda place: "attention" if place % period == start else "mamba",
        among=tuple(names),
        names=("layers_block_type", "layer_types"),
    )
    return stacked(keys, lambda place: replace(layer, kind=names[kind[place]]))


def minimax(keys):
    """MiniMax: layers of linear attention between those that attend to pairs."""
    layer = plain(keys)
    keys.ignore("full_attn_alpha_factor", "full_attn_beta_factor")
    keys.ignore("linear_attn_alpha_factor", "linear_attn_beta_factor")
    window = sliding_window(keys, absent=None)
    kind = kinds(keys, among=(FULL, LINEAR))
    pairs = windowed(keys, layer, SLIDING if window else FULL, window)
    pairs = replace(pairs, rope=rotation(keys, layer.head_dim, partial=True))
    linear = replace(layer, kind="linear attention")
    return stacked(keys, lambda place: linear if kind[place] == LINEAR else pairs)


def inkling(keys):
    """Inkling: each query mixes profiles over the distance; keys and values are convolved."""
    norm = rms(keys)
    keys.ignore("max_position_embeddings", "model_max_length")
    floor = keys.count("log_scaling_n_floor", null=None)
    scale = keys.number("log_scaling_alpha", absent=REQUIRED if floor else None)
    count = keys.count("d_rel", most=2**16)
    window = keys.count("sliding_window_size", "sliding_window")
    convolved = keys.count("conv_kernel_size", "sconv_kernel_size")

    def made(layer, extent):
        return replace(
            layer,
            scale=1 / layer.head_dim,
            query_norm=norm,
            key_norm=norm,
            bias=Profiles(count, extent),
            convolved=convolved,
        )

    far = made(plain(keys), keys.count("rel_extent"))
    if floor is not None:
        far = replace(far, temperature=Temperature(floor, scale, smooth=True))
    near = made(of_windows(keys), window)
    near = windowed(keys, near, SLIDING, window)
    local = keys.sequence("local_layer_ids", absent=None)
    kind = kinds(
        keys,
        None if local is None else lambda place: NEAR if place in local else FAR,
        among=(NEAR, FAR),
    )
    return stacked(keys, lambda place: near if kind[place] == NEAR else far)


def of_windows(keys):
    """The layer with the heads of layers that slide, whose keys begin with `swa_`."""
    heads = keys.count("swa_num_attention_heads", most=2**16)
    groups = keys.count("swa_num_key_value_heads", most=2**16)
    each = keys.count("swa_head_dim", most=2**16)
    layer = replace(plain(keys), head_dim=each)
    return with_groups(keys, layer, groups, "swa_num_key_value_heads", heads)
