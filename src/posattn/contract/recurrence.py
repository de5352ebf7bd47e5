"""Checks of what passes through a state: keys and values, gates, convolutions and turns."""

from typing import NamedTuple

from posattn.contract.arrays import (
    _shape,
    array,
    floating,
    head_sequence,
    integer_array,
    parameter,
)
from posattn.contract.numbers import dtype, finite, integer, layout, scale, sizes
from posattn.contract.positions import _precise, batch_axes, per_token


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


def state_shapes(batch_shape, num_heads, key_dim, value_dim, past, width):
    """Return the shapes of the inputs and the state that a cache of a recurrent layer keeps."""
    batch, past = batch_axes(batch_shape), integer("past", past)
    heads, keys, values, width = sizes(
        num_heads=num_heads, key_dim=key_dim, value_dim=value_dim, width=width
    )
    return (*batch, past, width), (*batch, heads, keys, values)


def state_trim(n):
    """Reject forgetting tokens of a state, in which all are mixed."""
    n = integer("n", n)
    if n:
        raise ValueError(
            f"n must be 0, got {n}: a state can't forget its newest tokens; go on from the StateCache that "
            "was there before them"
        )


class DeltaSizes(NamedTuple):
    """The sizes of a layer with the delta rule, and the shapes `(inputs, outputs)` of its matrices."""

    num_heads: int
    num_key_heads: int
    key_dim: int
    value_dim: int
    taps: int
    gates: int
    matrices: dict

    @property
    def width(self):
        """Of the convolution: queries, keys and values."""
        return 2 * self.num_key_heads * self.key_dim + self.num_heads * self.value_dim


def delta_sizes(dim, num_heads, num_key_heads, key_dim, value_dim, taps, per_channel, rank):
    """Return the sizes of a layer with the delta rule."""
    dim, num_heads, key_dim, taps = sizes(
        dim=dim, num_heads=num_heads, key_dim=key_dim, taps=taps
    )
    value_dim = key_dim if value_dim is None else integer("value_dim", value_dim, least=1)
    few = num_heads if num_key_heads is None else num_key_heads
    few = integer("num_key_heads", few, least=1)
    if num_heads % few:
        raise ValueError(f"num_key_heads must divide num_heads = {num_heads}, got {few}")
    gates = num_heads * (key_dim if per_channel else 1)
    keys, values, inner = few * key_dim, num_heads * value_dim, dim
    matrices = {"query": (dim, keys), "key": (dim, keys), "value": (dim, values)}
    if rank is not None:
        inner = integer("rank", rank, least=1)
        matrices |= {"decay_down": (dim, inner), "gate_down": (dim, inner)}
    matrices |= {"decay": (inner, gates), "beta": (dim, num_heads), "gate": (inner, values)}
    matrices["output"] = values, dim
    return DeltaSizes(num_heads, few, key_dim, value_dim, taps, gates, matrices)


def delta_gate(gate, bound=None):
    """Reject what is no activation of an output's gate, and a bound of log gates that is not below 0."""
    if bound is not None and finite("bound", bound) >= 0:
        raise ValueError(f"bound must be below 0 or None, got {bound}")
    if not isinstance(gate, str) or gate not in ("silu", "sigmoid"):
        raise (ValueError if isinstance(gate, str) else TypeError)(
            f"gate must be 'silu' or 'sigmoid', got {gate!r}"
        )


def delta_weights(layer):
    """Return the sizes of a layer with the delta rule, whose weights must belong together."""
    num_heads, few = sizes(num_heads=layer.num_heads, num_key_heads=layer.num_key_heads)
    dim, keys = layer.query_weight.shape
    values, gates = layer.value_weight.shape[1], layer.decay_offset.shape[0]
    for name, columns, heads in (
        ("num_key_heads", keys, few),
        ("num_heads", values, num_heads),
        ("num_heads", gates, num_heads),
    ):
        if columns % heads:
            raise ValueError(
                f"{name} must divide {columns} columns of the weights, got {heads}"
            )
    each = keys // few
    if gates not in (num_heads, num_heads * each):
        raise ValueError(
            f"decay_offset must have {num_heads} entries, one for each head, or {num_heads * each}, one for "
            f"each channel, got {gates}"
        )
    down, taps = layer.decay_down_weight, layer.taps.shape[1]
    found = delta_sizes(
        dim,
        num_heads,
        few,
        each,
        values // num_heads,
        taps,
        gates != num_heads,
        None if down is None else down.shape[1],
    )
    for name, shape in found.matrices.items():
        parameter(f"{name}_weight", getattr(layer, f"{name}_weight"), shape)
    parameter("taps", layer.taps, (found.width, taps))
    parameter("decay_rate", layer.decay_rate, (num_heads,))
    parameter("norm_weight", layer.norm_weight, (found.value_dim,))
    return found
