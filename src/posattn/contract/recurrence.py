"""Checks of what passes through a state: keys and values, gates, convolutions and turns."""

from typing import NamedTuple

from posattn.contract.arrays import _shape, array, floating, head_sequence, integer_array
from posattn.contract.numbers import dtype, layout, scale
from posattn.contract.positions import _precise, per_token


class StateSizes(NamedTuple):
    """The shape of a state, how many heads of values each key serves, and the factor on queries."""

    state: tuple
    groups: int
    scale: float


def recurrence(query, key, value, log_gates, beta=None, factor=None, *, gates="head"):
    """Return the sizes of a recurrence, whose arrays must belong together.

    The gates are one for each `"head"`, one for each `"channel"` of the keys, or of `"either"` kind.
    """
    head_sequence("query", query)
    *batch, heads, n, width = query.shape
    if heads == 0 or width == 0:
        raise ValueError(
            f"query must have heads and a width of at least 1, got shape {tuple(query.shape)}"
        )
    floating("key", key, like=query)
    _shape("key", key, tuple(query.shape))
    floating("value", value, like=query)
    _shape("value", value, (*batch, "h", n, "d_v"))
    own = value.shape[-3]
    if own == 0 or own % heads:
        raise ValueError(
            f"value must have a positive multiple of the {heads} heads of key, got {own}"
        )
    if log_gates is not None:
        floating("log_gates", log_gates)
        channels = gates == "channel"
        if gates == "either":
            channels = len(log_gates.shape) == len(query.shape)
        _shape("log_gates", log_gates, (*batch, own, n, *[width] * channels))
    if beta is not None:
        floating("beta", beta)
        _shape("beta", beta, (*batch, own, n))
    factor = width**-0.5 if factor is None else scale(factor)
    return StateSizes((*batch, own, width, value.shape[-1]), own // heads, factor)


def state(value, expected):
    """Reject a state that is too coarse or does not have the shape that the other arguments ask for."""
    if value is not None:
        _precise("state", value)
        _shape("state", value, expected)


def passed(mask, documents, batch, n):
    """Reject a mask of tokens or numbers of documents that are not one for each token."""
    if mask is not None:
        array("mask", mask)
        if "bool" not in dtype(mask):
            raise TypeError(f"mask must be bool (True means a token), got {dtype(mask)}")
        per_token("mask", mask, batch, n)
    if documents is not None:
        integer_array("documents", documents)
        per_token("documents", documents, batch, n)


def convolved(x, weight, offset, state):
    """Reject the arguments of a convolution over time that do not belong together."""
    floating("x", x)
    if len(x.shape) < 2:
        raise ValueError(f"x must have shape (*batch, n, c), got {tuple(x.shape)}")
    *batch, _, width = x.shape
    floating("weight", weight)
    _shape("weight", weight, (width, "k"))
    if weight.shape[1] == 0:
        raise ValueError("weight must have at least 1 tap, got 0")
    if offset is not None:
        floating("offset", offset)
        _shape("offset", offset, (width,))
    if state is not None:
        floating("state", state)
        _shape("state", state, (*batch, weight.shape[1] - 1, width))


def turned(x, steps, arrangement, angles):
    """Reject steps of angles that do not fit the pairs of `x`."""
    head_sequence("x", x)
    layout(arrangement)
    *batch, heads, n, width = x.shape
    if width % 2:
        raise ValueError(f"x must have an even width, got {width}")
    floating("steps", steps)
    one = steps.shape[-3] if len(steps.shape) == len(x.shape) else heads
    wanted = (*batch, 1 if one == 1 else heads, n, width // 2)
    _shape("steps", steps, wanted)
    if angles is not None:
        _precise("state", angles)
        _shape("state", angles, (*wanted[:-2], width // 2))
