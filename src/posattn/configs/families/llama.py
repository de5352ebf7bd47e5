"""Decoders that are built like Llama, with grouped heads and a rotation of every head."""

from dataclasses import replace

from posattn.configs.families.stack import (
    FULL,
    SLIDING,
    kinds,
    plain,
    rotation,
    stacked,
    windowed,
)
from posattn.configs.keys import REQUIRED
from posattn.configs.layers import Norm

__all__ = [
    "apertus",
    "cohere",
    "ernie4_5",
    "gpt_oss",
    "granite",
    "helium",
    "hunyuan",
    "llama",
    "mistral",
    "mixtral",
    "olmo",
    "olmo2",
    "olmo3",
    "phi3",
    "seed_oss",
    "starcoder2",
]


def biased(keys, layer, absent=False):
    """The layer with `attention_bias` on all four projections."""
    bias = keys.flag("attention_bias", absent=absent)
    return replace(layer, use_bias=(bias,) * 3, use_output_bias=bias)


def rms(keys, absent=REQUIRED, **options):
    """A root-mean-square norm with the model's eps."""
    return Norm("rms", keys.number("rms_norm_eps", absent=absent), **options)


def every(keys, layer, rope):
    """A stack of equal layers."""
    return stacked(keys, lambda place: replace(layer, rope=rope))


def sliding_window(keys, absent=REQUIRED):
    """How many positions a query sees; null is no window."""
    return keys.count("sliding_window", absent=absent, null=None, most=2**62)


def llama(keys):
    """Llama: `attention_bias` on all four projections."""
    layer = biased(keys, plain(keys))
    return every(keys, layer, rotation(keys, layer.head_dim))


def mistral(keys):
    """Mistral: every layer has the window; transformers ignores `layer_types`."""
    layer = plain(keys)
    window = sliding_window(keys)
    kind = SLIDING if window else FULL
    kinds(keys, lambda place: kind, among=(kind,))
    return every(keys, windowed(keys, layer, kind, window), rotation(keys, layer.head_dim))


def olmo2(keys):
    """OLMo 2: norms of queries and keys over all heads at once."""
    norm = rms(keys, axes="width")
    layer = replace(biased(keys, plain(keys)), query_norm=norm, key_norm=norm)
    return every(keys, layer, rotation(keys, layer.head_dim))


def olmo3(keys):
    """OLMo 3: three layers in four slide, and only the others are scaled."""
    norm = rms(keys, axes="width")
    layer = replace(biased(keys, plain(keys)), query_norm=norm, key_norm=norm)
    window = sliding_window(keys)
    kind = kinds(keys, lambda place: FULL if (place + 1) % 4 == 0 else SLIDING)
    ropes = {name: turning_of_olmo3(keys, layer.head_dim, name) for name in set(kind)}
    return stacked(
        keys,
        lambda place: windowed(
            keys, replace(layer, rope=ropes[kind[place]]), kind[place], window
        ),
    )


def turning_of_olmo3(keys, head_dim, kind):
    """The rotation of a kind of layer: nested, or in the older form, where sliding layers are not scaled."""
    if keys.values.get("rope_parameters"):
        return rotation(keys, head_dim, kind=kind)
    base = keys.number("rope_theta", "rope_parameters", above=1)
    if base != 500_000:
        raise keys.error(
            f"rope_theta = {base:g} would rotate full layers only, and transformers rotates "
            "sliding ones by 500000; write rope_parameters for each"
        )
    return rotation(keys if kind == FULL else keys.without("rope_scaling"), head_dim)


def gpt_oss(keys):
    """gpt-oss: sinks, and a window in every other layer."""
    layer = plain(keys)
    rope = rotation(keys, layer.head_dim)
    layer = replace(biased(keys, layer, absent=REQUIRED), rope=rope, sinks=True)
    window = sliding_window(keys)
    kind = kinds(keys, lambda place: FULL if place % 2 else SLIDING)
    return stacked(keys, lambda place: windowed(keys, layer, kind[place], window))


def phi3(keys):
    """Phi-3 and Phi-4: a part of each head may rotate, by LongRoPE under several names."""
    layer = plain(keys)
    rope = rotation(
        keys,
        layer.head_dim,
        partial=True,
        names={"su": "longrope", "yarn": "longrope"},
    )
    if rope.method not in ("default", "longrope"):
        raise keys.error(f"rope_type must be 'default' or 'longrope', got {rope.method!r}")
    window = sliding_window(keys, absent=None)
    kind = SLIDING if window else FULL
    return every(keys, windowed(keys, layer, kind, window), rope)


def slides_everywhere(keys, layer, **options):
    """A stack whose layers all have the window, if there is one."""
    window = sliding_window(keys, absent=None)
    kind = SLIDING if window else FULL
    rope = rotation(keys, layer.head_dim, **options)
    return every(keys, windowed(keys, layer, kind, window), rope)


def mixtral(keys):
    """Mixtral: Mistral with experts."""
    return slides_everywhere(keys, plain(keys))


def starcoder2(keys):
    """StarCoder 2: `use_bias` on all four projections."""
    bias = keys.flag("use_bias")
    layer = plain(keys)
    return slides_everywhere(
        keys, replace(layer, use_bias=(bias,) * 3, use_output_bias=bias)
    )


def granite(keys):
    """Granite: scores times a number of its own."""
    layer = biased(keys, plain(keys))
    layer = replace(layer, scale=keys.number("attention_multiplier"))
    return every(keys, layer, rotation(keys, layer.head_dim))


def olmo(keys):
    """OLMo: queries, keys and values may be clipped."""
    layer = biased(keys, plain(keys))
    layer = replace(layer, clip=keys.number("clip_qkv", absent=None))
    return every(keys, layer, rotation(keys, layer.head_dim))


def helium(keys):
    """Helium: neighbors rotate, and the output has no offset."""
    layer = plain(keys)
    layer = replace(biased(keys, layer), use_output_bias=False)
    return every(keys, layer, rotation(keys, layer.head_dim, layout="interleaved"))


def apertus(keys):
    """Apertus: norms of queries and keys, each head by itself."""
    norm = rms(keys)
    keys.only("qk_norm", True)
    layer = replace(biased(keys, plain(keys)), query_norm=norm, key_norm=norm)
    return every(keys, layer, rotation(keys, layer.head_dim))


def cohere(keys):
    """Command R: neighbors rotate, and each head may have a norm of its own."""
    layer = biased(keys, plain(keys))
    normed = keys.flag("use_qk_norm", absent=False)
    eps = keys.number("layer_norm_eps", absent=REQUIRED if normed else None)
    if normed:
        norm = Norm("layer", eps, axes="heads")
        layer = replace(layer, query_norm=norm, key_norm=norm)
    return every(keys, layer, rotation(keys, layer.head_dim, layout="interleaved"))


def ernie4_5(keys):
    """ERNIE 4.5: neighbors rotate, and `use_bias` is for all four projections."""
    bias = keys.flag("use_bias", absent=False)
    layer = plain(keys)
    layer = replace(layer, use_bias=(bias,) * 3, use_output_bias=bias)
    return every(keys, layer, rotation(keys, layer.head_dim, layout="interleaved"))


def hunyuan(keys):
    """Hunyuan: norms after the rotation."""
    norm = rms(keys, after=True)
    keys.only("use_qk_norm", True)
    layer = biased(keys, plain(keys))
    rope = rotation(keys, layer.head_dim)
    return every(keys, replace(layer, query_norm=norm, key_norm=norm), rope)


def seed_oss(keys):
    """Seed-OSS: offsets on queries, keys and values, and for the output by a key of its own."""
    layer = biased(keys, plain(keys), absent=REQUIRED)
    layer = replace(layer, use_output_bias=keys.flag("attention_out_bias"))
    return every(keys, layer, rotation(keys, layer.head_dim))
