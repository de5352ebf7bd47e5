"""Checks of the parameters of single schemes."""

import operator

from posattn.contract.arrays import _shape, array, floating, heads, parameter
from posattn.contract.numbers import TOO_LARGE, at_least, below, ends, integer, is_index
from posattn.contract.positions import _precise, position_pair, tile_positions


def buckets(num_buckets, max_distance, bidirectional):
    """Return the buckets of one direction and the distance from which all share the last of them."""
    least, kind = (4, "an even integer") if bidirectional else (2, "an integer")
    expected = f"{kind} of at least {least}"
    num_buckets = _whole("num_buckets", num_buckets, expected, least, even=bidirectional)
    one_way = num_buckets // (2 if bidirectional else 1)
    expected = f"an integer greater than {one_way // 2}"
    return one_way, _whole("max_distance", max_distance, expected, one_way // 2 + 1)


def _whole(name, value, expected, least, *, even=False):
    """Return an integer of 64 bits that is at least `least`, and even if asked."""
    right_kind = is_index(value)
    number = operator.index(value) if right_kind else 0
    if right_kind and least <= number < TOO_LARGE and not (even and number % 2):
        return number
    raise (ValueError if right_kind else TypeError)(
        f"{name} must be {expected}{below(number)}, got {value!r}"
    )


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
        for got in ends(value):
            if not 0 <= got < height * width:
                raise ValueError(
                    f"{name} must lie between 0 and height * width - 1 = {height * width - 1}, got {got}"
                )


def offset_table(name, table, *, odd):
    """Return how far a table of offsets reaches: rows for both directions, and for none if `odd`."""
    rows = table.shape[-2]
    if rows % 2 != odd:
        wanted = "2 * max_distance + 1" if odd else "2 * max_distance"
        raise ValueError(f"{name} must have {wanted} rows, got shape {tuple(table.shape)}")
    return rows // 2


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


def gated_positions(query_positions, key_positions, shape, *, known=True):
    """Reject queries at tokens that have no gates, where `shape` is that of the gates."""
    n = shape[-1]
    position_pair(query_positions, key_positions, integers=True)
    sizes = query_positions.shape[-1], key_positions.shape[-1]
    tile_positions(query_positions, key_positions, (*shape[:-1], *sizes))
    if known and 0 not in query_positions.shape and (got := ends(query_positions)[1]) >= n:
        raise ValueError(
            f"query_positions must lie below the number of gates, {n}, got {got}"
        )


def tile(
    query, key, query_positions, key_positions, head_dim, *, num_heads=None, integers=False
):
    """Reject queries and keys of heads that do not fit a table, or have no fitting positions."""
    floating("query", query)
    got = tuple(query.shape)
    if (
        len(got) < 3
        or got[-1] != head_dim
        or (num_heads is not None and num_heads != got[-3])
    ):
        h = "h" if num_heads is None else num_heads
        raise ValueError(f"query must have shape (*batch, {h}, n_q, {head_dim}), got {got}")
    floating("key", key, like=query)
    _shape("key", key, (*got[:-2], "n_k", head_dim))
    shape = (*got[:-1], key.shape[-2])
    tile_positions(query_positions, key_positions, shape, integers=integers)


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


def waves(frequencies, cos_weight, sin_weight, x_shape):
    """Return how many heads of `x` share each sum of waves."""
    heads, width = x_shape[-3], x_shape[-1]
    if width % 2:
        raise ValueError(f"x must have an even width, got {width}")
    _precise("frequencies", frequencies)
    if len(frequencies.shape) != 1:
        raise ValueError(f"frequencies must have shape (K), got {tuple(frequencies.shape)}")
    floating("cos_weight", cos_weight)
    floating("sin_weight", sin_weight, like=cos_weight, owner="cos_weight")
    got, waves = tuple(cos_weight.shape), frequencies.shape[0]
    fits = len(got) == 3 and got[1] == waves and got[2] <= width // 2
    if not fits or got[0] == 0 or heads % got[0]:
        raise ValueError(
            f"cos_weight must have shape (H, {waves}, m), where H divides {heads} and m <= {width // 2}, "
            f"got {got}"
        )
    parameter("sin_weight", sin_weight, got)
    return heads // got[0]


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
    """Return how many entries of a head rotate, all if not given."""
    value = head_dim if value is None else value
    value = integer("rotary_dim", value, least=1, even=True)
    if value > head_dim:
        raise ValueError(
            f"rotary_dim must be at most the width of a head, {head_dim}, got {value}"
        )
    return value


def sections(values, m, interleaved=False):
    """Return how many of `m` pairs belong to each axis, for which there is room if they take turns."""
    expected = f"sections must be positive integers with sum {m}"
    if not isinstance(values, (list, tuple)) or not all(is_index(v) for v in values):
        raise TypeError(f"{expected}, got {values!r}")
    if any(v <= 0 for v in values) or sum(values) != m:
        raise ValueError(f"{expected}, got {values!r}")
    for axis in range(1, len(values) if interleaved else 0):
        room = (m - axis - 1) // len(values) + 1
        if values[axis] > room:
            raise ValueError(
                f"sections must give axis {axis} at most {room} of {m} pairs where the axes take "
                f"turns, got {values!r}"
            )
    return [operator.index(v) for v in values]


def segments(values):
    """Return the parts of a text as grids `(t, h, w, step)`, where words have `(n, 1, 1, None)`."""
    if not isinstance(values, (list, tuple)):
        raise TypeError(
            f"segments must be a list of numbers of words and of grids (t, h, w), got {values!r}"
        )
    return [_segment(value) for value in values]


def _segment(value):
    """A number of words, or a grid."""
    if is_index(value):
        return integer("a number of words in segments", value), 1, 1, None
    if not isinstance(value, (list, tuple)):
        raise TypeError(
            f"segments must hold numbers of words and grids (t, h, w), got {value!r}"
        )
    if len(value) not in (3, 4):
        raise ValueError(
            f"a grid in segments must be (t, h, w) or (t, h, w, step), got {value!r}"
        )
    sizes = [
        integer(f"{name} of a grid in segments", size, least=1)
        for name, size in zip("thw", value)
    ]
    return (*sizes, at_least("step of a grid in segments", (*value, 1)[3], 0))


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


def window_network(hidden_weight, hidden_bias, output_weight):
    """Reject parameters of a network of two coordinates, without a last offset, whose shapes do not fit."""
    parameter("hidden_bias", hidden_bias, ("m",))
    parameter("hidden_weight", hidden_weight, (2, *hidden_bias.shape))
    parameter("output_weight", output_weight, (*hidden_bias.shape, "num_heads"))


def head_network(hidden_weight, hidden_bias, output_weight, output_bias):
    """Return the number of heads of a network that reads two numbers of each head and writes one."""
    parameter("output_bias", output_bias, ("num_heads",))
    (num_heads,) = output_bias.shape
    parameter("hidden_bias", hidden_bias, ("m",))
    parameter("hidden_weight", hidden_weight, (2 * num_heads, *hidden_bias.shape))
    parameter("output_weight", output_weight, (*hidden_bias.shape, num_heads))
    return num_heads


def function_of_positions(name, value):
    """Reject what cannot be called."""
    if not callable(value):
        raise TypeError(
            f"{name} must be a function (query_positions, key_positions), "
            f"got {type(value).__name__}"
        )


def base_bias(value, shape):
    """Reject what a bias has returned if it does not fit scores of shape `(*batch, h, n_q, n_k)`."""
    floating("what bias returns", value)
    got, expected = tuple(value.shape), tuple(shape)
    if got != expected[-3:] and got != expected:
        raise ValueError(
            f"what bias returns must have shape {expected[-3:]} or {expected}, got {got}"
        )


def log_buckets(num_buckets, max_distance, *, names=("num_buckets", "max_distance")):
    """Return the distances of one direction that have buckets of their own, and where the last one ends."""
    expected = "an even integer of at least 4"
    alone = _whole(names[0], num_buckets, expected, 4, even=True) // 2
    expected = f"an integer greater than {alone + 1}"
    return alone, _whole(names[1], max_distance, expected, alone + 2)


def bucketed(max_distance, bucketed_to):
    """Reject buckets of distances that do not fit the rows of a table; None stands for no buckets."""
    if bucketed_to is not None:
        log_buckets(max_distance, bucketed_to, names=("max_distance", "bucketed_to"))
