"""What families share: the sizes of heads, the rotation, the kinds of layers, and a stack of them."""

import math
import re
from dataclasses import replace

from posattn.configs.keys import OPTIONAL, REQUIRED
from posattn.configs.layers import Layer, Norm, Slopes

FULL, SLIDING = "full_attention", "sliding_attention"
CHUNKED, LINEAR = "chunked_attention", "linear_attention"
DEPTH = "num_hidden_layers", "n_layer", "num_layers", "n_layers"
LONGEST = 2**62  # of positions, which no array is made of
RMS = {"kind": "rms", "eps": "rms_norm_eps"}
LIMITED = {  # kinds of layers that see a part: what they are called, and where the size stands
    SLIDING: ("sliding", "window", "sliding_window"),
    CHUNKED: ("chunked", "chunk", "attention_chunk_size"),
}


def plain(
    keys,
    *,
    grouped=True,
    head_dim=True,
    dim=("hidden_size",),
    heads=("num_attention_heads", "n_head"),
    each=None,
):
    """A layer of causal attention with heads, scaled as usual, and without positions.

    Args:
        keys: of the configuration.
        grouped: whether the family has `num_key_value_heads`; as many as queries have if nobody says.
        head_dim: whether the family has `head_dim`; an equal share of the width if nobody says.
        dim: the names of the width.
        heads: the names of their number.
        each: the width of a head, where the family's keys say it in another way.
    """
    width = keys.count(*dim)
    count = keys.count(*heads, most=2**16)
    groups = count
    if grouped:
        groups = keys.count("num_key_value_heads", absent=OPTIONAL, null=count) or count
    if head_dim:
        each = keys.count("head_dim", absent=OPTIONAL, null=None, most=2**16)
    if each is None:
        if width % count:
            raise keys.error(
                f"hidden_size = {width} must be a multiple of num_attention_heads = {count}"
            )
        each = width // count
    layer = Layer(0, "full", width, count, count, each, scale=each**-0.5)
    return with_groups(keys, layer, groups)


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
    layer = plain(keys, **sizes)
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
        told=filled(keys, told),
    )


def norm_of(keys, *, kind, eps, flag=None, absent=False, **options):
    """A norm of queries and keys, if no flag of the family says that there is none."""
    keys.ignore(eps)
    if flag is not None and not keys.flag(flag, absent=absent):
        return None
    return Norm(kind, keys.number(eps), **options)


def alone(keys, **options):
    """A layer of a family whose heads all have keys of their own, and the same share of the width."""
    return plain(keys, grouped=False, head_dim=False, **options)


def offset(layer, bias=True):
    """The layer with offsets on all four projections, if it has any."""
    return replace(layer, use_bias=(bias,) * 3, use_output_bias=bias)


def with_groups(keys, layer, groups, name="num_key_value_heads", heads=None):
    """The layer with so many heads of keys, which must divide those of queries."""
    heads = layer.num_heads if heads is None else heads
    if heads % groups:
        raise keys.error(
            f"{name} = {groups} must divide num_attention_heads = {heads}",
            do="correct one of them",
        )
    return replace(layer, num_heads=heads, num_kv_heads=groups)


def slopes(layer, scale=1.0):
    """ALiBi for the heads of a layer."""
    power = 2 ** (layer.num_heads.bit_length() - 1)
    exponents = [8 * h / power for h in range(1, power + 1)]
    between = [4 * h / power for h in range(1, 2 * power, 2)]
    found = [2.0**-exponent for exponent in [*exponents, *between][: layer.num_heads]]
    return Slopes(tuple(scale * slope for slope in found))


def filled(keys, words):
    """Words in which `{key}` is what a key holds, `{key|key}` the first there is, `{key*key}` a product."""

    def number(found):
        names = (name.split("|") for name in found[1].split("*"))
        own = (next((n for n in each if n in keys.values), each[0]) for each in names)
        product = math.prod(map(keys.count, own))
        return str(product)

    return re.sub(r"{(.+?)}", number, words)


def stacked(keys, change, names=DEPTH):
    """The layers of a stack, each made by a function of its place."""
    count = keys.count(*names, most=10_000)
    return numbered(change(place) for place in range(count))


def numbered(layers):
    """The layers, each with its place."""
    return tuple(replace(layer, index=place) for place, layer in enumerate(layers))


def equal(keys, layer, *, names=DEPTH, **changes):
    """A stack of equal layers, with some changes."""
    layer = replace(layer, **changes)
    return stacked(keys, lambda place: layer, names)


def kinds(keys, pattern=None, among=(FULL, SLIDING), names=("layer_types",)):
    """The kind of each layer: from `layer_types`, or by a pattern of the place if it is absent."""
    count = keys.count(*DEPTH, most=10_000)
    absent = REQUIRED if pattern is None else None
    given = keys.sequence(*names, length=count, absent=absent, among=among)
    return [pattern(k) for k in range(count)] if given is None else given


def sliding_window(keys):
    """How many positions a query sees; null is no window."""
    return keys.count("sliding_window", null=None, most=LONGEST)


def patterned(keys, kind, made, size):
    """The layers of a stack, made by a function of the place, each with the window or chunk of its kind."""
    return stacked(keys, lambda place: windowed(keys, made(place), kind[place], size))


def lent(keys, kind, layers, absent=REQUIRED):
    """A stack whose last layers use the keys and values of the last layer of their kind before those."""
    count = keys.count("num_kv_shared_layers", absent=absent, least=0, most=len(kind))
    own = len(kind) - count
    lenders = {kind[place]: place for place in range(own)}
    if missing := [name for name in kind[own:] if name not in lenders]:
        raise keys.error(
            f"num_kv_shared_layers = {count} leaves no {missing[0]!r} with keys of its own"
        )
    lent = tuple(replace(x, kv_layer=lenders[kind[x.index]]) for x in layers[own:])
    return layers[:own] + lent


def by_kind(keys, layers, **options):
    """A stack of layers, given by their kinds; `options` are for `kinds`."""
    kind = kinds(keys, among=tuple(layers), **options)
    return stacked(keys, lambda place: layers[kind[place]])


def spoken(keys, layer, words):
    """The layer as another mechanism in words, `"what; sizes"`."""
    what, _, sizes = words.partition("; ")
    return replace(layer, kind=what, told=filled(keys, sizes))


def windowed(keys, layer, kind, size):
    """The layer with its window or its chunk, if it is of a kind that has one."""
    if kind not in LIMITED:
        return layer
    name, field, key = LIMITED[kind]
    if size is None:
        raise keys.missing(key, why=f", but layer_types has layers that are {name}")
    return replace(layer, kind=name, **{field: size})


def all_but(interval, often=SLIDING, rest=FULL):
    """The pattern of a stack in which every so many layers are of another kind."""
    return lambda place: often if (place + 1) % interval else rest
