"""Decoders of whose heads a part rotates: Phi, StableLM, Persimmon, Nemotron, GLM, MiniMax-M2."""

from dataclasses import replace

from posattn.configs.families.llama import biased, every, rms
from posattn.configs.families.stack import plain, rotation
from posattn.configs.keys import REQUIRED
from posattn.configs.layers import Norm

__all__ = ["glm", "glm4_moe", "minimax_m2", "nemotron", "persimmon", "phi", "stablelm"]


def rotated(keys, layer, **options):
    """A stack of equal layers, each of which rotates a part of its heads that must be said."""
    return every(keys, layer, rotation(keys, layer.head_dim, partial=REQUIRED, **options))


def normed(keys, layer, *, absent, **options):
    """The layer with norms of queries and keys that subtract the mean, if it has them."""
    eps = keys.number("layer_norm_eps", absent=None)
    if not keys.flag("qk_layernorm", absent=absent):
        return layer
    if eps is None:
        raise keys.missing("layer_norm_eps")
    norm = Norm("layer", eps, **options)
    return replace(layer, query_norm=norm, key_norm=norm)


def phi(keys):
    """Phi-1 and 2: offsets everywhere."""
    layer = replace(plain(keys), use_bias=(True,) * 3, use_output_bias=True)
    return rotated(keys, normed(keys, layer, absent=False, offset=True))


def stablelm(keys):
    """StableLM: each head has a norm of its own, if any."""
    layer = plain(keys, head_dim=False)
    bias = keys.flag("use_qkv_bias", absent=False)
    layer = replace(layer, use_bias=(bias,) * 3)
    return rotated(keys, normed(keys, layer, absent=False, axes="heads"))


def persimmon(keys):
    """Persimmon: one projection for queries, keys and values, and norms of the first two."""
    layer = plain(keys, grouped=False, head_dim=False)
    layer = replace(layer, use_bias=(True,) * 3, use_output_bias=True)
    return rotated(keys, normed(keys, layer, absent=REQUIRED, offset=True))


def nemotron(keys):
    """Nemotron: half of each head rotates."""
    names = ("partial_rotary_factor", "rope_percent", "rope_percentage")
    return rotated(keys, biased(keys, plain(keys)), share=names)


def glm(keys):
    """GLM-4: neighbors rotate; no offset for the output."""
    layer = plain(keys)
    layer = replace(biased(keys, layer, absent=REQUIRED), use_output_bias=False)
    return rotated(keys, layer, layout="interleaved")


def glm4_moe(keys):
    """GLM-4.5 to 4.7: halves rotate, and there may be norms; no offset for the output."""
    layer = biased(keys, plain(keys))
    normed = keys.flag("use_qk_norm", absent=False)
    norm = rms(keys, absent=REQUIRED if normed else None) if normed else None
    layer = replace(layer, query_norm=norm, key_norm=norm, use_output_bias=False)
    return rotated(keys, layer)


def minimax_m2(keys):
    """MiniMax-M2: norms over all heads at once; how many entries rotate may stand as `rotary_dim`."""
    norm = rms(keys, axes="width")
    layer = plain(keys)
    layer = replace(layer, query_norm=norm, key_norm=norm)
    keys.only("use_qk_norm", True)
    keys.only("qk_norm_type", "per_layer")
    kept = keys.sequence("attn_type_list", absent=[])
    if any(kind != 1 for kind in kept):
        raise keys.error(
            f"attn_type_list is known only with 1 for each layer, got {kept!r:.60}"
        )
    turns = keys.count("rotary_dim", absent=None, most=2**16)
    nested = keys.values.get("rope_parameters") or {}
    share = keys.values.get("partial_rotary_factor", nested.get("partial_rotary_factor"))
    if turns is None and share is None:
        raise keys.missing("rotary_dim", "partial_rotary_factor")
    if share is None:
        return every(keys, layer, rotation(keys, turns))
    rope = rotation(keys, layer.head_dim, partial=REQUIRED)
    if turns not in (None, rope.rotary_dim):
        raise keys.error(
            f"rotary_dim = {turns} and partial_rotary_factor = {share!r} contradict each other"
        )
    return every(keys, layer, rope)
