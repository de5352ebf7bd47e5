"""Transformers that draw pictures and films, as diffusers has them: each part of a head has a coordinate."""

from dataclasses import replace
from functools import partial

from posattn.configs.data import data
from posattn.configs.families import rotary, stack
from posattn.configs.layers import Norm
from posattn.configs.rotation import rope

BASE = {"rope_theta": 1e4}  # which is no key


def drawing(keys, *, axes, double=None, single=None):
    """A stack whose first layers keep the projections of text and picture apart.

    Args:
        keys: of the configuration.
        axes: what the coordinates are.
        double: the key of the number of layers with two streams.
        single: the key of the number of those in which all tokens share the projections.
    """
    heads = keys.count("num_attention_heads", most=2**16)
    each = keys.count("attention_head_dim", most=2**16)
    sized = keys.changed(hidden_size=heads * each)
    layer = stack.layer_of(sized, bias=True, grouped=False, head_dim=False, each=each)
    if double is None:  # Wan, whose norms are of all heads at once
        keys.known(qk_norm="rms_norm_across_heads")
        keys.ignore("cross_attn_norm", "added_kv_proj_dim", "rope_max_seq_len")
        norm = Norm("rms", keys.number("eps"), axes="width")
        side = 2 * (each // 6)
        widths = [each - 2 * side, side, side]
    else:
        keys.ignore("joint_attention_dim", "use_layer3d_rope")
        norm, widths = Norm("rms", 1e-6), keys.sequence("axes_dims_rope")
    if sum(widths) != each:
        raise keys.error(
            f"axes_dims_rope = {widths} must add up to attention_head_dim = {each}"
        )
    parts = [
        rope(BASE, width, layout="interleaved", family=keys.family) for width in widths
    ]
    turned = rotary.beside(parts, axes)
    layer = replace(layer, causal=False, rope=turned, query_norm=norm, key_norm=norm)
    counts = [keys.count(name, most=10_000) if name else 0 for name in (double, single)]
    return stack.numbered([replace(layer, streams=2)] * counts[0] + [layer] * counts[1])


FAMILIES = {name: partial(drawing, **told) for name, told in data("diffusion.json").items()}
