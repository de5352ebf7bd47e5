"""Decoders of equal layers; what a family does otherwise than Llama by its keys only is in equal.json."""

from dataclasses import replace
from functools import partial

from posattn.configs.data import data
from posattn.configs.families import rotary, stack
from posattn.configs.families.stack import FULL, SLIDING
from posattn.configs.keys import REQUIRED
from posattn.configs.layers import Norm, Temperature
from posattn.configs.rotation import TRAINED

__all__ = ["FAMILIES", "RMS", "decoder", "layer_of", "norm_of", "required"]

DENOISED = "blocks of {block_size} tokens in both directions while they are denoised"
RMS = {"kind": "rms", "eps": "rms_norm_eps"}


def layer_of(
    keys,
    *,
    bias="attention_bias",
    output=None,
    norm=None,
    scale=None,
    clip=None,
    gate=False,
    head_gate=False,
    told="",
    **sizes,
):
    """A layer before it is told of positions.

    Args:
        keys: of the configuration.
        bias: whether the projections of queries, keys and values have offsets, or the key that says so; a
            list if each has its own.
        output: whether the output's has one, or the key; as the others if None.
        norm: for `norm_of`, the norms of queries and keys.
        scale: the factor on scores, or its key.
        clip: the key of the number at which projections are clipped.
        gate: whether each entry of the output is gated, or the key that says so.
        head_gate: likewise each head.
        told: for `filled`, what else it does.
        sizes: for `plain`.
    """
    layer = stack.plain(keys, **sizes)
    each = bias if isinstance(bias, list) else [bias] * 3
    *offsets, output, gate, head_gate = (
        keys.flag(said, absent=False) if isinstance(said, str) else said
        for said in (*each, each[0] if output is None else output, gate, head_gate)
    )
    scale = keys.number(scale) if isinstance(scale, str) else scale
    norm = None if norm is None else norm_of(keys, **norm)
    return replace(
        layer,
        use_bias=tuple(offsets),
        use_output_bias=output,
        query_norm=norm,
        key_norm=norm,
        scale=layer.scale if scale is None else scale,
        clip=None if clip is None else keys.number(clip, absent=None),
        gate=gate,
        head_gate=head_gate,
        told=stack.filled(keys, told),
    )


def norm_of(keys, *, kind, eps, flag=None, absent=False, **options):
    """A norm of queries and keys, if no flag of the family says that there is none."""
    keys.ignore(eps)
    if flag is not None and not keys.flag(flag, absent=absent):
        return None
    return Norm(kind, keys.number(eps), **options)


def decoder(keys, *, only=(), ignored=(), window=False, methods=None, rope=None, **options):
    """A stack of layers that rotate.

    Args:
        keys: of the configuration.
        only: keys that may be absent, and the value they must otherwise have.
        ignored: keys that say nothing about this family's attention.
        window: whether all layers have the window, if there is one.
        methods: the methods of scaling that the family knows, if not all.
        rope: for `rotation`.
        options: for `layer_of`.
    """
    for name, value in only:
        keys.only(name, value)
    keys.ignore(*ignored)
    layer = layer_of(keys, **options)
    rope = rotary.rotation(keys, layer.head_dim, **(rope or {}))
    if methods is not None and rope.method not in methods:
        known = " or ".join(map(repr, methods))
        raise keys.error(f"rope_type must be {known}, got {rope.method!r}")
    if window:
        size = stack.sliding_window(keys)
        kind = SLIDING if size else FULL
        stack.kinds(keys, lambda place: kind, among=(kind,))
        layer = stack.windowed(keys, layer, kind, size)
    return stack.equal(keys, layer, rope=rope)


def ministral3(keys, told=""):
    """Ministral 3 and Devstral 2: the window of Mistral, and queries that grow with the position."""
    options = dict(keys.section("rope_parameters", absent=REQUIRED))
    scale, floor = options.pop("llama_4_scaling_beta", 0), options.get(TRAINED)
    options.pop("max_position_embeddings", None)
    inner = keys.changed(rope_parameters=options)
    layers = decoder(inner, bias=False, window=True, told=told)
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
    return decoder(keys, window=True, methods=("default", "longrope"))


def hunyuan(keys):
    """Hunyuan: norms after the rotation, whose base grows by `alpha`, whatever the length."""
    name, options = rotary.section_of(keys)
    methods = options.get("rope_type"), options.get("type")
    if options.get("alpha") and "dynamic" in methods:
        kept = {key: options[key] for key in ("rope_theta",) if key in options}
        kept |= {"rope_type": "ntk", "factor": options["alpha"]}
        keys = keys.without("rope_parameters", "rope_scaling").changed(**{name: kept})
    return decoder(keys, norm=RMS | {"after": True}, only=[("use_qk_norm", True)])


def required(options):
    """The options of a family, where a table can only write `required` for what a class must define."""
    if isinstance(options, dict):
        return {name: required(value) for name, value in options.items()}
    return REQUIRED if options == "required" else options


FAMILIES = {
    **{
        name: partial(decoder, **required(given))
        for names, given in data("equal.json").items()
        for name in names.split()
    },
    "hunyuan_v1_dense": hunyuan,
    "hunyuan_v1_moe": hunyuan,
    "ministral3": ministral3,
    "nemotron_labs_diffusion": partial(ministral3, told=DENOISED),
    "phimoe": phimoe,
}
