"""Twelve faults, planted one at a time into a decoder whose configuration is right.

Each is a function of a decoder and of how many tokens its first call reads, the prompt; what follows is read
token by token with a cache. Where a fault lies in those later calls, its effect is the same in one pass.
"""

import copy
from dataclasses import replace

import torch
from torch import nn

from posattn.torch import Rotary, scaled_dot_product_attention
from tests.nightly.real.methods import METHODS

LEAD, PADDING = 64, 2  # how many tokens stand before the text, and which


def layout(decoder, prompt):
    """Neighbors are pairs: they should be halves."""
    rotate(decoder, lambda rotary: replace(rotary, layout="interleaved"))


def base(decoder, prompt):
    """The base is 10000: it should be 100000."""
    rotate(decoder, lambda rotary: Rotary(base=10000.0, layout="half"))


def scale(decoder, prompt):
    """Scores are not divided by the square root of the head's width."""
    for block in decoder.blocks:
        block.attention.scale = 1.0


def unrotated(decoder, prompt):
    """Queries and keys are not rotated."""
    rotate(decoder, lambda rotary: None)


def tiled(decoder, prompt):
    """Key heads are repeated in the order of `tile`."""

    def attend(query, key, value, **options):
        repeats = (1, query.shape[1] // key.shape[1], 1, 1)
        key, value = key.repeat(repeats), value.repeat(repeats)
        return scaled_dot_product_attention(query, key, value, **options)

    for block in decoder.blocks:
        block.attention.attention = attend


def one_off(decoder, prompt):
    """Each query is rotated one position too far, and its key is not."""
    rotate(decoder, lambda rotary: [lambda x, at: rotary(x, at + 1), rotary])


def rescaled(decoder, prompt):
    """The frequencies are slowed with YaRN by 2, of which the configuration says nothing."""
    rotate(decoder, lambda rotary: METHODS["YaRN"])


def reset(decoder, prompt):
    """After the prompt each query and key is rotated as if it stood at position 0."""
    rotate(decoder, lambda rotary: lambda x, at: rotary(x, torch.where(at < prompt, at, 0)))


def top_left(decoder, prompt):
    """After the prompt the causal mask of a call begins in its top left corner: it shows the first key."""

    def seen(queries, keys):
        rows = torch.where(queries < prompt, queries, 0)
        return keys[..., None, :] <= rows[..., :, None]

    for block in decoder.blocks:
        block.attention.mask = seen


def padding(decoder, prompt):
    """The text has padding on its left that is not masked, which `lead` gives."""


def coarse(decoder, prompt):
    """Angles are computed in bfloat16."""
    rotate(decoder, angles_in(torch.bfloat16))


def epsilon(decoder, prompt):
    """The norms add 1e-3: the configuration says 1e-5."""
    for part in decoder.modules():
        if isinstance(part, nn.RMSNorm):
            part.eps = 1e-3


def from_zero(decoder):
    """`reset` as it stands in code: each call counts from 0."""
    rotate(decoder, lambda rotary: lambda x, at: rotary(x, at - at[..., :1]))


def cornered(decoder):
    """`top_left` as it stands in code: each call's mask begins in its corner."""

    def seen(queries, keys):
        return keys[..., None, :] <= (queries - queries[..., :1])[..., None]

    for block in decoder.blocks:
        block.attention.mask = seen


def none(decoder, prompt):
    """Nothing is wrong."""


FAULTS = {
    "none": none,
    "layout": layout,
    "not rotated": unrotated,
    "scale missing": scale,
    "key heads tiled": tiled,
    "base 10000": base,
    "query one off": one_off,
    "positions reset": reset,
    "mask from the top left": top_left,
    "padding seen": padding,
    "YaRN not asked for": rescaled,
    "angles in bfloat16": coarse,
    "norm epsilon": epsilon,
}
IN_CALLS = {"positions reset": from_zero, "mask from the top left": cornered}


def rotate(decoder, change):
    """Give each layer a rotation made from its own."""
    for block in decoder.blocks:
        block.attention.rotate = change(block.attention.rotate)


def angles_in(dtype):
    """What makes a rotation by halves compute its angles in a dtype."""

    def rounded(rotary):
        frequencies = torch.tensor(rotary.frequencies).to(dtype)

        def turned(x, at):
            angles = at.to(dtype)[..., None] * frequencies
            cos, sin = angles.cos().float(), angles.sin().float()
            first, second = x.chunk(2, dim=-1)
            halves = first * cos - second * sin, first * sin + second * cos
            return torch.cat(halves, dim=-1)

        return turned

    return rounded


def copied(decoder):
    """A decoder with the weights of another, which may be changed otherwise."""
    return copy.deepcopy(decoder, {id(each): each for each in decoder.parameters()})


def planted(fault, decoder, prompt):
    """A decoder with a fault, and with the weights of the one that is given."""
    made = copied(decoder)
    FAULTS[fault](made, prompt)
    return made


def lead(fault, rows):
    """The padding that stands before a text."""
    length = LEAD if FAULTS[fault] is padding else 0
    return torch.full((rows, length), PADDING)
