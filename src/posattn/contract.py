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
    except (TypeError, AttributeError):  # TensorFlow raises the second
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


def table_rows(value, max_len, *, known=True, name="positions"):
    """Reject positions that are no rows of a learned table."""
    if "int" not in dtype(value):
        raise TypeError(f"{name} must have an integer dtype, got {dtype(value)}")
    if known and 0 not in value.shape:
        for got in (int(value.min()), int(value.max())):
            if not 0 <= got < max_len:
                raise ValueError(
                    f"{name} must lie between 0 and max_len - 1 = {max_len - 1}, got {got}"
                )


def rng(value, accepted, kind):
    """Reject a source of randomness that this column cannot draw from."""
    if not accepted:
        raise TypeError(f"rng must be a {kind}, got {type(value).__name__}")


def position_pair(query_positions, key_positions, *, integers=False):
    """Reject positions of queries and keys that are not of their kind or do not belong together."""
    named = ("query_positions", query_positions), ("key_positions", key_positions)
    for name, value in named:
        positions(name, value)
        if integers:
            integer_array(name, value)
    query_batch, key_batch = (tuple(value.shape[:-1]) for _, value in named)
    if query_batch and key_batch and query_batch != key_batch:
        wanted = ", ".join(str(e) for e in (*query_batch, "n_k"))
        raise ValueError(
            f"key_positions must have shape (n_k) or ({wanted}), got {tuple(key_positions.shape)}"
        )


def integer_array(name, value):
    """Reject what is no array of integers."""
    array(name, value)
    if "int" not in dtype(value):
        raise TypeError(f"{name} must have an integer dtype, got {dtype(value)}")


def parameter(name, value, expected):
    """Reject a parameter whose shape is not `expected`, in which a string stands for any size."""
    floating(name, value)
    _shape(name, value, expected)


def buckets(num_buckets, max_distance, bidirectional):
    """Return the buckets of one direction and the distance from which all share the last of them."""
    right_kind = is_index(num_buckets)
    least, kind = (4, "an even integer") if bidirectional else (2, "an integer")
    if not right_kind or num_buckets < least or (bidirectional and num_buckets % 2):
        raise (ValueError if right_kind else TypeError)(
            f"num_buckets must be {kind} of at least {least}, got {num_buckets!r}"
        )
    one_way = operator.index(num_buckets) // (2 if bidirectional else 1)
    right_kind = is_index(max_distance)
    if not right_kind or max_distance <= one_way // 2:
        raise (ValueError if right_kind else TypeError)(
            f"max_distance must be an integer greater than {one_way // 2}, got {max_distance!r}"
        )
    return one_way, operator.index(max_distance)


def network(hidden_weight, hidden_bias, output_weight, output_bias):
    """Reject parameters of a network with one input and one hidden layer whose shapes do not fit."""
    parameter("hidden_weight", hidden_weight, ("m",))
    parameter("hidden_bias", hidden_bias, tuple(hidden_weight.shape))
    parameter("output_bias", output_bias, ("num_heads",))
    shape = (*hidden_weight.shape, *output_bias.shape)
    parameter("output_weight", output_weight, shape)


def window_positions(name, value, height, width, *, known=True):
    """Reject positions that are no cells of a window of `height` times `width` cells."""
    if known and 0 not in value.shape:
        for got in (int(value.min()), int(value.max())):
            if not 0 <= got < height * width:
                raise ValueError(
                    f"{name} must lie between 0 and height * width - 1 = {height * width - 1}, got {got}"
                )


def tile_positions(query_positions, key_positions, shape, *, integers=False):
    """Reject positions that do not fit scores of shape `(*batch, h, n_q, n_k)`."""
    position_pair(query_positions, key_positions, integers=integers)
    *batch, _, n_q, n_k = shape
    for name, value, n in (
        ("query_positions", query_positions, n_q),
        ("key_positions", key_positions, n_k),
    ):
        got = tuple(value.shape)
        if got != (n,) and got != (*batch, n):
            raise ValueError(f"{name} must have shape {(n,)} or {(*batch, n)}, got {got}")


def offset_table(name, table, *, odd):
    """Return how far a table of offsets reaches: rows for both directions, and for none if `odd`."""
    rows = table.shape[-2]
    if rows % 2 != odd:
        wanted = "2 * max_distance + 1" if odd else "2 * max_distance"
        raise ValueError(f"{name} must have {wanted} rows, got shape {tuple(table.shape)}")
    return rows // 2


def sample(length, max_len):
    """Return how many positions to draw, and from how many."""
    length = integer("length", length)
    max_len = integer("max_len", max_len, least=1)
    if length > max_len:
        raise ValueError(f"length must be at most max_len = {max_len}, got {length}")
    return length, max_len


def log_gates(value, n_q):
    """Return the numbers of queries and keys that belong to gates, which are one per head and key."""
    floating("log_gates", value)
    got = tuple(value.shape)
    if len(got) < 2:
        raise ValueError(f"log_gates must have shape (*batch, h, n_k), got {got}")
    n_q = got[-1] if n_q is None else integer("n_q", n_q)
    if n_q > got[-1]:
        raise ValueError(f"n_q must be at most n_k = {got[-1]}, got {n_q}")
    return n_q, got[-1]


def tile(
    query, key, query_positions, key_positions, head_dim, *, num_heads=None, integers=False
):
    """Reject queries and keys of heads that do not fit a table, or have no fitting positions."""
    floating("query", query)
    got = tuple(query.shape)
    if len(got) < 3 or got[-1] != head_dim or num_heads not in (None, got[-3]):
        h = "h" if num_heads is None else num_heads
        raise ValueError(f"query must have shape (*batch, {h}, n_q, {head_dim}), got {got}")
    floating("key", key, like=query)
    _shape("key", key, (*got[:-2], "n_k", head_dim))
    shape = (*got[:-1], key.shape[-2])
    tile_positions(query_positions, key_positions, shape, integers=integers)


def square(name, value):
    """Reject what is not `*batch n n`."""
    floating(name, value)
    got = tuple(value.shape)
    if len(got) < 2 or got[-1] != got[-2]:
        raise ValueError(f"{name} must have shape (*batch, n, n), got {got}")


def positive(name, value):
    """Return a positive finite number."""
    return _number(name, value, "a positive finite number", lambda v: 0 < v < math.inf)


def above(name, value, bound, of=""):
    """Return a finite number above `bound`, which `of` names."""
    return _number(
        name, value, f"a finite number above {of}{bound}", lambda v: bound < v < math.inf
    )


def factor(value):
    """Return how many times longer a context becomes."""
    return _number(
        "factor", value, "a finite number of at least 1", lambda v: 1 <= v < math.inf
    )


def factors(name, values, m):
    """Return `m` divisors of frequencies as Python numbers."""
    expected = f"{name} must hold {m} positive finite numbers"
    try:
        numbers = [float(v) for v in values]
    except (TypeError, ValueError):
        raise TypeError(f"{expected}, got {values!r}") from None
    if len(numbers) != m:
        raise ValueError(f"{expected}, got {len(numbers)}")
    for got in numbers:
        if not 0 < got < math.inf:
            raise ValueError(f"{expected}, got {got!r}")
    return numbers


def layout(value):
    """Reject what is no arrangement of pairs."""
    if not isinstance(value, str) or value not in ("interleaved", "half"):
        raise (ValueError if isinstance(value, str) else TypeError)(
            f"layout must be 'interleaved' or 'half', got {value!r}"
        )


def _shared(name, value, expected, own):
    """Accept `expected` with batch axes that may be 1, and its last `own` axes alone."""
    got = tuple(value.shape)
    lead = len(got) - own
    fits = 0 <= lead <= len(expected) - own and got[lead:] == expected[-own:]
    if lead == len(expected) - own:
        fits = fits and all(g == 1 or g == e for g, e in zip(got, expected))
    else:
        fits = fits and all(g == 1 for g in got[:lead])
    if not fits:
        raise ValueError(
            f"{name} must have shape {expected[-own:]} or {expected}, in which a batch axis "
            f"may be 1, got {got}"
        )


def token_positions(value, x_shape, *, integers=False):
    """Reject positions that do not belong to the tokens of `x`."""
    if value is None:
        return
    positions("positions", value)
    if integers:
        integer_array("positions", value)
    _shared("positions", value, tuple(x_shape[:-1]), 1)


def coordinates(value, x_shape, num_axes):
    """Reject coordinates that do not belong to the tokens of `x`, `num_axes` for each of them."""
    positions("coordinates", value)
    _shared("coordinates", value, (*x_shape[:-1], num_axes), 2)


def _precise(name, value):
    """Reject what does not hold floating-point numbers of at least 32 bits."""
    array(name, value)
    kind = dtype(value)
    if kind in _HALF or ("float" not in kind and "complex" not in kind):
        raise TypeError(f"{name} must hold float32 or float64, got {kind}")


def pair_frequencies(value, x_shape):
    """Reject frequencies that are not one per pair of the first entries of `x`."""
    width = x_shape[-1]
    if value is None:
        if width % 2:
            raise ValueError(
                f"x must have an even width where frequencies are not given, got {width}"
            )
        return
    _precise("frequencies", value)
    got = tuple(value.shape)
    if len(got) != 1 or got[0] > width // 2:
        raise ValueError(
            f"frequencies must have shape (m) with m <= {width // 2}, got {got}"
        )


def axis_frequencies(value, x_shape):
    """Reject frequencies that are not one per axis and pair of `x`, or per axis, head and pair."""
    _precise("frequencies", value)
    got, m = tuple(value.shape), x_shape[-1] // 2
    heads = (x_shape[-3] if len(x_shape) > 2 else "h",)
    known = len(got) == 2 or (len(got) == 3 and got[1:2] == heads)
    if not known or got[0] == 0 or got[-1] > m:
        raise ValueError(
            f"frequencies must have shape (c, m) or (c, {heads[0]}, m) with m <= {m}, got {got}"
        )


def columns(value):
    """Reject what has no last axis."""
    array("x", value)
    if len(value.shape) == 0:
        raise ValueError("x must have shape (*batch, d), got ()")


def projection(value):
    """Reject what is neither the weight of a projection nor its offset."""
    floating("weight", value)
    if len(value.shape) != 1 and len(value.shape) != 2:
        raise ValueError(f"weight must have 1 or 2 axes, got shape {tuple(value.shape)}")


def rotary_dim(value, head_dim):
    """Return how many entries of a head turn, all if not given."""
    value = head_dim if value is None else value
    value = integer("rotary_dim", value, least=1, even=True)
    if value > head_dim:
        raise ValueError(
            f"rotary_dim must be at most the width of a head, {head_dim}, got {value}"
        )
    return value


def multiple(name, value, of):
    """Return `value`, which must be a positive multiple of `of`."""
    right_kind = is_index(value)
    if right_kind and value > 0 and value % of == 0:
        return operator.index(value)
    raise (ValueError if right_kind else TypeError)(
        f"{name} must be a positive multiple of {of}, got {value!r}"
    )


def sections(values, m):
    """Return how many of `m` pairs belong to each axis."""
    expected = f"sections must be positive integers with sum {m}"
    if not isinstance(values, (list, tuple)) or not all(is_index(v) for v in values):
        raise TypeError(f"{expected}, got {values!r}")
    if any(v <= 0 for v in values) or sum(values) != m:
        raise ValueError(f"{expected}, got {values!r}")
    return [operator.index(v) for v in values]


def sinusoid_weight(value, width):
    """Return the width of the sinusoids that a matrix projects: even, because they come in pairs."""
    parameter("weight", value, ("d", width))
    return integer("the number of rows of weight", value.shape[0], least=1, even=True)


def projected_table(table, query_weight, key_weight, num_heads):
    """Return the reach of a table of offsets and the width of the heads to which two matrices project it."""
    floating("table", table)
    reach = offset_table("table", table, odd=False)
    parameter("query_weight", query_weight, (table.shape[-1], "h * d_h"))
    parameter("key_weight", key_weight, tuple(query_weight.shape))
    width = key_weight.shape[-1]
    return reach, width // heads(num_heads, width)


def untied(table, query_weight, key_weight, cls_bias, num_heads):
    """Reject a table, projections of it, and resets, that do not belong together."""
    parameter("table", table, ("max_len", "d"))
    parameter("query_weight", query_weight, (table.shape[-1], "h * d_h"))
    parameter("key_weight", key_weight, tuple(query_weight.shape))
    heads(num_heads, key_weight.shape[-1])
    if cls_bias is not None:
        parameter("cls_bias", cls_bias, (2, num_heads))
