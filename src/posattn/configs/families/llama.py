"""Decoders of equal layers whose keys a row of equal.json cannot say."""

from dataclasses import replace
from functools import partial

from posattn.configs.families import rotary
from posattn.configs.families.stack import RMS
from posattn.configs.families.told import by_row
from posattn.configs.keys import REQUIRED
from posattn.configs.layers import Temperature
from posattn.configs.rotation import TRAINED

DENOISED = "blocks of {block_size} tokens in both directions while they are denoised"


def ministral3(keys, told=""):
    """Ministral 3 and Devstral 2: the window of Mistral, and queries that grow with the position."""
    options = dict(keys.section("rope_parameters", absent=REQUIRED))
    scale, floor = options.pop("llama_4_scaling_beta", 0), options.get(TRAINED)
    options.pop("max_position_embeddings", None)
    inner = keys.changed(rope_parameters=options)
    layers = by_row(inner, bias=False, window="sliding_window", rope={}, told=told)
    if not scale:
        return layers
    scale = keys.finite("llama_4_scaling_beta", scale)
    growing = Temperature(keys.whole(TRAINED, floor), scale, first=0)
    return tuple(replace(layer, temperature=growing) for layer in layers)


def phimoe(keys):
    """Phi-3.5-MoE: offsets on all projections; LongRoPE, whose attention factor stands there twice."""
    name, options = rotary.section_of(keys)
    factors = options.pop("short_mscale", None), options.pop("long_mscale", None)
    if factors != (None, None):
        beyond = (keys.length or 0) > keys.count(TRAINED, absent=options.get(TRAINED, 4096))
        options["attention_factor"] = factors[beyond]
        keys = keys.changed(**{name: options})
    return by_row(keys, window="sliding_window", rope={"methods": ["default", "longrope"]})


def hunyuan(keys):
    """Hunyuan: norms after the rotation, whose base grows by `alpha`, whatever the length."""
    name, options = rotary.section_of(keys)
    methods = options.get("rope_type"), options.get("type")
    if options.get("alpha") and "dynamic" in methods:
        kept = {key: options[key] for key in ("rope_theta",) if key in options}
        kept |= {"rope_type": "ntk", "factor": options["alpha"]}
        keys = keys.without("rope_parameters", "rope_scaling").changed(**{name: kept})
    return by_row(keys, rope={}, norm=RMS | {"after": True}, only=[("use_qk_norm", True)])


FAMILIES = {
    "hunyuan_v1_dense": hunyuan,
    "hunyuan_v1_moe": hunyuan,
    "ministral3": ministral3,
    "nemotron_labs_diffusion": partial(ministral3, told=DENOISED),
    "phimoe": phimoe,
}
