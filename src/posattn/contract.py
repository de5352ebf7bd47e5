"""The border of every column: argument checks with one text per mistake.

Nothing here computes, and nothing here knows a framework.
A check reads `shape` and `dtype`, which all frameworks have, so a wrong argument raises the same
exception with the same words whichever column or port was called.
This file runs on Python 3.8 too, the last that MXNet knows.
"""

import math
import operator
from numbers import Real
from typing import Protocol, runtime_checkable

_HALF = ("float16", "bfloat16")


@runtime_checkable
class ContentBias(Protocol):
    """A bias that depends on content, and not on positions alone.

    It may also have `values(weights, query_positions, key_positions)`, `(*batch, h, n_q, d_h)`, which
    is added to the output of the heads.
    """

    def scores(self, query, key, query_positions, key_positions):
        """What is added to the scores, `(*batch, h, n_q, n_k)`."""


def dtype(array):
    """The bare name of an array's dtype: `float32` for `torch.float32` as for `<dtype: 'float32'>`."""
    return str(array.dtype).strip("'>_").replace("'", ".").rpartition(".")[2]


def is_index(value):
    """Whether `value` is an integer: a Python or NumPy one, or an integer scalar of a framework."""
    if isinstance(value, int):
        return not isinstance(value, bool)
    if hasattr(value, "dtype") and (dtype(value) == "bool" or tuple(value.shape) != ()):
        return False  # PyTorch would take an array of one integer for that integer
    try:
        operator.index(value)
    except TypeError:
        return False
    return True


def integer(name, value, *, least=0, even=False):
    """Return `value` as an int that is at least `least` (0 or 1), and even if asked."""
    right_kind = is_index(value)
    if right_kind and value >= least and not (even and value % 2):
        return operator.index(value)
    kind = (
        "non-negative integer"
        if least == 0
        else "positive even integer"
        if even
        else "positive integer"
    )
    raise (ValueError if right_kind else TypeError)(
        f"{name} must be a {kind}, got {value!r}"
    )


def _number(name, value, expected, accepts):
    right_kind = isinstance(value, Real) and not isinstance(value, bool)
    if right_kind and accepts(value):
        return float(value)
    raise (ValueError if right_kind else TypeError)(
        f"{name} must be {expected}, got {value!r}"
    )


def base(value):
    """Return the base of a geometric sequence of frequencies."""
    return _number("base", value, "a positive finite number", lambda v: 0 < v < math.inf)


def scale(value):
    """Return the factor on the scores."""
    return _number("scale", value, "a finite number", lambda v: -math.inf < v < math.inf)


def offset(value):
    """Return a number of positions."""
    return _number("offset", value, "a finite number", lambda v: -math.inf < v < math.inf)


def dropout_rate(value):
    """Return the probability of dropping an entry."""
    return _number("dropout_rate", value, "a number in [0, 1)", lambda v: 0 <= v < 1)


def array(name, value):
    """Reject what has no shape and dtype: lists, numbers, None."""
    if not (hasattr(value, "shape") and hasattr(value, "dtype")):
        raise TypeError(f"{name} must be an array, got {type(value).__name__}")


def floating(name, value, *, like=None, owner="query"):
    """Reject arrays that do not hold floating-point numbers, or hold others than `like` does."""
    array(name, value)
    if "float" not in dtype(value) and "complex" not in dtype(value):
        raise TypeError(f"{name} must have a floating dtype, got {dtype(value)}")
    if like is not None and dtype(value) != dtype(like):
        raise TypeError(
            f"{name} must have the dtype of {owner}, {dtype(like)}, got {dtype(value)}"
        )


def _shape(name, value, expected):
    """Compare a shape with a tuple in which a string stands for any size."""
    got = tuple(value.shape)
    if len(got) != len(expected) or any(
        not isinstance(e, str) and e != g for e, g in zip(expected, got)
    ):
        wanted = ", ".join(str(e) for e in expected)
        raise ValueError(f"{name} must have shape ({wanted}), got {got}")


def sequence(name, value, dim=None):
    """Reject what is not `*batch n d`, or whose width is not `dim`."""
    floating(name, value)
    width = "d" if dim is None else dim
    got = tuple(value.shape)
    if len(got) < 2 or (dim is not None and got[-1] != dim):
        raise ValueError(f"{name} must have shape (*batch, n, {width}), got {got}")


def scores(value):
    """Reject scores that are not floating or have no query and key axes."""
    floating("scores", value)
    if len(value.shape) < 2:
        raise ValueError(
            f"scores must have shape (*batch, n_q, n_k), got {tuple(value.shape)}"
        )


def heads(num_heads, dim):
    """Return `num_heads`, which must divide `dim`."""
    num_heads = integer("num_heads", num_heads, least=1)
    if dim % num_heads:
        raise ValueError(f"num_heads must divide dim = {dim}, got {num_heads}")
    return num_heads


def head_sequence(name, value):
    """Reject what is not `*batch h n d_h`."""
    floating(name, value)
    if len(value.shape) < 3:
        raise ValueError(
            f"{name} must have shape (*batch, h, n, d_h), got {tuple(value.shape)}"
        )


def attention(query, key, value=None):
    """Reject queries, keys and values whose shapes or dtypes do not belong together."""
    sequence("query", query)
    *batch, _, width = query.shape
    if width == 0:
        raise ValueError(
            f"query must have a width of at least 1, got shape {tuple(query.shape)}"
        )
    floating("key", key, like=query)
    _shape("key", key, (*batch, "n_k", width))
    if value is not None:
        floating("value", value, like=query)
        _shape("value", value, (*batch, key.shape[-2], "d_v"))


def layer_inputs(query, key, value, dim):
    """Reject queries, keys and values that do not all have the width of a layer."""
    sequence("query", query, dim)
    floating("key", key, like=query)
    floating("value", value, like=query)
    *batch, _, _ = query.shape
    _shape("key", key, (*batch, "n_k", dim))
    _shape("value", value, (*batch, key.shape[-2], dim))


def _broadcasts(name, value, expected):
    """Accept axes of size 1, but never on the last axis, and no axes that `expected` lacks."""
    got = tuple(value.shape)
    fits = 2 <= len(got) <= len(expected) and got[-1] == expected[-1]
    if not (fits and all(g in (1, e) for g, e in zip(got[::-1], expected[::-1]))):
        raise ValueError(
            f"{name} must have a shape that broadcasts to {tuple(expected)}, got {got}"
        )


def mask(value, expected):
    """Reject masks that are not bool or do not fit scores of shape `expected`."""
    if value is None:
        return
    array("mask", value)
    if dtype(value) != "bool":
        raise TypeError(f"mask must be bool (True means may attend), got {dtype(value)}")
    _broadcasts("mask", value, expected)


def bias(value, expected):
    """Reject biases that are not floating or do not fit scores of shape `expected`."""
    if value is None:
        return
    floating("bias", value)
    _broadcasts("bias", value, expected)


def lengths(value, n_k, *, known=True):
    """Reject lengths that are no integers, have a wrong rank, or (if `known`) leave 0..n_k."""
    array("lengths", value)
    if "int" not in dtype(value):
        raise TypeError(f"lengths must have an integer dtype, got {dtype(value)}")
    if len(value.shape) not in (1, 2):
        raise ValueError(
            f"lengths must have shape (batch) or (batch, n_q), got {tuple(value.shape)}"
        )
    if known and 0 not in value.shape:
        for got in (int(value.min()), int(value.max())):
            if not 0 <= got <= n_k:
                raise ValueError(f"lengths must lie between 0 and n_k = {n_k}, got {got}")


def length_or_positions(value):
    """Return the length if `value` is one, or None if it is an array of positions."""
    expected = "length_or_positions must be a non-negative integer or an array of positions"
    if is_index(value):
        if value < 0:
            raise ValueError(f"{expected}, got {value!r}")
        return operator.index(value)
    if not hasattr(value, "shape"):
        raise TypeError(f"{expected}, got {value!r}")
    positions("length_or_positions", value)
    return None


def positions(name, value):
    """Reject positions that are no numbers, are scalars, or have passed through a half-precision dtype."""
    array(name, value)
    if ("int" not in dtype(value) and "float" not in dtype(value)) or dtype(value) in _HALF:
        raise TypeError(
            f"{name} must hold integers, float32 or float64, got {dtype(value)}"
        )
    if len(value.shape) == 0:
        raise ValueError(f"{name} must have shape (*batch, n), got ()")


def positions_of(x_shape, value):
    """Reject positions that are neither one per token of `x` nor shared by its batch."""
    if value is None:
        return
    positions("positions", value)
    *batch, n, _ = x_shape
    got = tuple(value.shape)
    if got != (n,) and got != (
        *batch,
        n,
    ):  # written out, because torch.compile cannot trace `in`
        raise ValueError(f"positions must have shape {(n,)} or {(*batch, n)}, got {got}")


def key_positions(value, key_shape, n_q):
    """Reject positions of keys that do not fit the keys, or from which n_q queries cannot be taken."""
    if value is None:
        return
    positions_of(key_shape, value)
    n_k = key_shape[-2]
    if n_q > n_k:
        raise ValueError(
            f"positions must cover the {n_q} queries, got {n_k} positions, one per key"
        )


def table_length(length, max_len):
    """Reject a sequence that is longer than a learned table."""
    if length > max_len:
        raise ValueError(f"x must have at most max_len = {max_len} tokens, got {length}")


def table_rows(value, max_len, *, known=True):
    """Reject positions that are no rows of a learned table."""
    if "int" not in dtype(value):
        raise TypeError(f"positions must have an integer dtype, got {dtype(value)}")
    if known and 0 not in value.shape:
        for got in (int(value.min()), int(value.max())):
            if not 0 <= got < max_len:
                raise ValueError(
                    f"positions must lie between 0 and max_len - 1 = {max_len - 1}, got {got}"
                )


def rng(value, accepted, kind):
    """Reject a source of randomness that this column cannot draw from."""
    if not accepted:
        raise TypeError(f"rng must be a {kind}, got {type(value).__name__}")
