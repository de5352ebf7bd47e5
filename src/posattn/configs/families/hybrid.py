"""Jamba and MiniMax, where some layers attend to pairs, and Inkling, which adds profiles to the scores."""

from dataclasses import replace

from posattn.configs.families.llama import RMS, layer_of, norm_of
from posattn.configs.families.stack import (
    FULL,
    LINEAR,
    SLIDING,
    kinds,
    plain,
    rotation,
    sliding_window,
    stacked,
    windowed,
    with_groups,
)
from posattn.configs.keys import REQUIRED
from posattn.configs.layers import Profiles, Temperature

__all__ = ["FAMILIES"]

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
    window = sliding_window(keys)
    kind = kinds(keys, among=(FULL, LINEAR))
    pairs = windowed(keys, layer, SLIDING if window else FULL, window)
    pairs = replace(pairs, rope=rotation(keys, layer.head_dim, partial=True))
    linear = replace(layer, kind="linear attention")
    return stacked(keys, lambda place: linear if kind[place] == LINEAR else pairs)


def inkling(keys):
    """Inkling: each query mixes profiles over the distance; keys and values are convolved."""
    norm = norm_of(keys, **RMS)
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


def minimax_m2(keys):
    """MiniMax-M2: norms over all heads at once; how many entries rotate may stand as `rotary_dim`."""
    layer = layer_of(keys, bias=False, norm=RMS | {"axes": "width"})
    keys.only("use_qk_norm", True)
    keys.only("qk_norm_type", "per_layer")
    kept = keys.sequence("attn_type_list", absent=[])
    if any(kind != 1 for kind in kept):
        raise keys.error(
            f"attn_type_list is known only with 1 for each layer, got {kept!r:.60}"
        )
    rope = part_of(keys, layer)
    return stacked(keys, lambda place: replace(layer, rope=rope))


def part_of(keys, layer):
    """The rotation of a part of each head, which may stand as `rotary_dim`, a share, or both."""
    nested = keys.values.get("rope_parameters") or {}
    share = keys.values.get("partial_rotary_factor", nested.get("partial_rotary_factor"))
    absent = REQUIRED if share is None else None
    turns = keys.count("rotary_dim", absent=absent, most=2**16)
    if share is None:
        return rotation(keys, turns)
    rope = rotation(keys, layer.head_dim, partial=REQUIRED)
    if turns not in (None, rope.rotary_dim):
        raise keys.error(
            f"rotary_dim = {turns} and partial_rotary_factor = {share!r} contradict each other",
            do="keep the one that is meant",
        )
    return rope


FAMILIES = {
    "inkling_text": inkling,
    "jamba": jamba,
    "minimax": minimax,
    "minimax_m2": minimax_m2,
}
