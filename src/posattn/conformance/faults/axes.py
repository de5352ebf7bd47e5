"""Faults of xPos, of rotations by several coordinates, and of conversions between layouts."""

import numpy as np

from posattn.conformance.faults.layouts import OTHER as OTHER_LAYOUT
from posattn.conformance.faults.layouts import mixed
from posattn.conformance.faults.registry import fault, line, misuse, misuses, tokens
from posattn.reference.position.axial import rotate_axes
from posattn.reference.position.mrope import mrope_frequencies
from posattn.reference.position.rotary import rotate
from posattn.reference.position.sinusoidal import frequencies
from posattn.reference.position.xpos import xpos_key, xpos_query

XPOS = ("xpos_query", "xpos_key")
OTHER = {xpos_query: xpos_key, xpos_key: xpos_query}
CONVERSIONS = ("to_half", "to_interleaved", "weight_to_half", "weight_to_interleaved")


# fmt: off
misuses(  # a name, schemes, the wrong use, a sentence, and threads
    ("query_and_key_exchanged", XPOS,
     lambda definition, x, *where, **keywords: OTHER[definition](x, *where, **keywords),
     "Query and key are exchanged: the one that should fade grows."),
    ("turned_backwards", XPOS,
     lambda definition, x, positions=None, **keywords:
     OTHER[definition](x, -tokens(x, positions), **keywords),
     "The wrong sign: pairs rotate clockwise, (a cos + b sin, b cos - a sin)."),
    ("nothing_fades", XPOS,
     lambda definition, x, *where, base=10000.0, layout="interleaved", **keywords:
     rotate(x, *where, base=base, layout=layout), "Nothing fades: it is the plain rotation."),
    ("lengths_may_be_negative", ("polar_query", "polar_key"),
     lambda definition, x, *where, **keywords:
     definition(np.log(np.expm1(np.abs(x) + 1e-09)), *where, **keywords) * np.tile(np.sign(x), 2),
     "The entries themselves are the lengths: the softplus is missing."),
    ("weight_transposed", ("weight_to_half", "weight_to_interleaved"),
     lambda definition, weight, num_heads, rotary_dim=None: definition(weight.T, num_heads, rotary_dim).T,
     "The weight is transposed: (d_in, d_out) is expected, and PyTorch's Linear has (d_out, d_in)."),
    ("heads_not_separated", ("weight_to_half", "weight_to_interleaved"),
     lambda definition, weight, num_heads, rotary_dim=None: definition(weight, 1),
     "The columns change places across the heads: each head should be converted on its own."),
)
# fmt: on


@misuse(*XPOS)
def zero_in_the_middle(definition, x, positions=None, *, layout="interleaved", **keywords):
    """What fades is counted from the middle of the text, as in the authors' code: scores are the same."""
    where = tokens(x, positions)
    shift = where - np.mean(where[..., [0, -1]], axis=-1, keepdims=True).astype(int)
    faded = definition(x, shift, layout=layout, **keywords)
    return rotate(faded, where - shift, base=keywords.get("base", 10000.0), layout=layout)


@misuse(*XPOS, seen="rotary-embedding-torch 0.9.1")
def zero_in_the_middle_of_a_call(
    definition, x, positions=None, *, layout="interleaved", **keywords
):
    """What fades is counted from the middle of each call: a query alone fades otherwise than in its text."""
    where, middle = tokens(x, positions), x.shape[-2] // 2
    faded = definition(x, where - middle, layout=layout, **keywords)
    return rotate(faded, 0 * where + middle, base=keywords.get("base", 1e4), layout=layout)


@misuse("polar_key")
def angle_subtracted(definition, x, *where, phase, **keywords):
    """The learned angle is subtracted: it belongs to the key, whose angle it adds to."""
    nothing, turn = 0 * phase, np.clip(phase, -2 * np.pi, 0)[:, None, :]
    cos, sin = np.split(definition(x, *where, phase=nothing, **keywords), 2, axis=-1)
    cosine, sine = np.cos(turn), np.sin(turn)
    return np.concatenate([cos * cosine + sin * sine, sin * cosine - cos * sine], axis=-1)


@fault("axial_frequencies")
def axes_alternate(dim, num_axes=2, *, base=100.0):
    """The axes alternate from pair to pair, as in the paper's formula: the code gives each a block."""
    omega = np.repeat(frequencies(dim // num_axes, base=base), num_axes)
    return np.where(
        np.arange(dim // 2) % num_axes == np.arange(num_axes)[:, None], omega, 0.0
    )


@fault("mrope_frequencies")
def begun_anew(dim, sections, *, base=10000.0, interleaved=False):
    """The frequencies begin anew in each section: they should go on from one to the next."""
    made = np.zeros((len(sections), dim // 2))
    for axis, size in enumerate(sections):
        start = sum(sections[:axis])
        made[axis, start : start + size] = frequencies(dim, base=base)[:size]
    return made


@fault("mrope_frequencies")
def sections_in_turns(dim, sections, *, base=10000.0, interleaved=False):
    """The axes take turns from pair to pair, as in Qwen3-VL: here each has a block of pairs."""
    axis = np.zeros(dim // 2, int)
    for k, size in enumerate(sections[1:], start=1):
        axis[k : size * len(sections) : len(sections)] = k
    axes = axis == np.arange(len(sections))[:, None]
    return np.where(axes, frequencies(dim, base=base), 0.0)


@fault("mrope_interleaved")
def left_over_in_turns(dim, sections, *, base=10000.0):
    """The axes take turns to the last pair: what is left over should belong to the first axis."""
    axes = np.arange(dim // 2) % len(sections) == np.arange(len(sections))[:, None]
    return np.where(axes, frequencies(dim, base=base), 0.0)


@misuse(*CONVERSIONS)
def converted_back(definition, x, *sizes, **keywords):
    """The conversion goes the other way."""
    there = definition(x, *sizes, **keywords)
    order = definition(np.arange(float(x.size)).reshape(x.shape), *sizes, **keywords)
    back = np.empty_like(there).ravel()
    back[order.astype(int).ravel()] = x.ravel()
    return back.reshape(x.shape)


@fault("fope_frequencies")
def one_radian_is_enough(head_dim, *, base=10000.0, trained_length):
    """A pair is kept from one radian on: a full circle has 2 pi of them."""
    made = frequencies(head_dim, base=base)
    return made[made * trained_length > 1]


def begun_at(begins):
    """A rotation whose axes begin at `begins(least)`, where the least coordinates should be."""

    def rotation(x, where, omega, **more):
        least = where.min(axis=-2, keepdims=True)
        return rotate_axes(x, where - least + begins(least), omega, **more)

    return rotation


# fmt: off
line("offset_of_the_first_axis", begun_at(lambda least: least[..., :1]),
     "Each axis begins where the first one does: a tile of an image has an offset for each.", "axial",
     seen="rotary-embedding-torch 0.9.1 (offsets of axes)")
line("offsets_ignored", begun_at(lambda least: 0 * least),
     "Coordinates are counted from 0 in each call: a tile of an image stands elsewhere.", "axial")
line("first_axis_only", lambda x, where, omega, **more: rotate_axes(x, where[..., :1], omega[:1], **more),
     "The first coordinate alone counts.", "axial")
line("first_coordinate_for_all", lambda x, where, omega, **more: rotate_axes(
         x, np.repeat(where[..., :1], where.shape[-1], -1), omega, **more),
     "All pairs rotate by the first coordinate: images stand still in height and width.", "axial",
     seen="sgl-project/sglang #34446, #35744")
line("layouts_of_axes_mixed", lambda x, where, omega, *, layout="interleaved", attention_factor=1: mixed(
         x, np.moveaxis(np.tensordot(where, omega, 1), -2, 0) if omega.ndim > 2 else where @ omega,
         OTHER_LAYOUT[layout], attention_factor),
     "Layouts are mixed: angles are laid out as asked for, entries paired as in the other layout.", "axial",
     seen="huggingface/pytorch-image-models #2692")
line("coordinates_exchanged", lambda x, where, omega, **more: rotate_axes(x, where[..., ::-1], omega, **more),
     "The coordinates are read from the last to the first: column before row.", "axial")
line("turned_backwards_by_coordinates", lambda x, where, omega, **more: rotate_axes(x, -where, omega, **more),
     "The wrong sign: pairs rotate clockwise, (a cos + b sin, b cos - a sin).", "axial")
line("sections_in_blocks", mrope_frequencies,
     "Each axis has a block of pairs, as in Qwen2-VL: here the axes take turns from pair to pair.",
     "mrope_interleaved", seen="alibaba/MNN #4133, vllm-project/vllm-gaudi #1437")
line("slow_pairs_kept", lambda dim, *, base=1e4, trained_length: frequencies(dim, base=base),
     "The slow pairs are kept too: those that complete no circle should be left out.", "fope_frequencies")
# fmt: on
