"""Checks of lengths, positions and coordinates."""

import operator

from posattn.contract.arrays import _shape, array, floating, integer_array
from posattn.contract.numbers import (
    TOO_LARGE,
    below,
    dtype,
    ends,
    integer,
    is_index,
    is_symbolic,
)

_HALF = ("float16", "bfloat16")


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
        for got in ends(value):
            if not 0 <= got <= n_k:
                raise ValueError(f"lengths must lie between 0 and n_k = {n_k}, got {got}")


def length_or_positions(value):
    """Return the length if `value` is one, or None if it is an array of positions."""
    expected = "length_or_positions must be a non-negative integer or an array of positions"
    if is_index(value):
        if is_symbolic(value):
            return value
        length = value if isinstance(value, int) else operator.index(value)
        if not 0 <= length < TOO_LARGE:
            raise ValueError(f"{expected}{below(length)}, got {value!r}")
        return length
    if not hasattr(value, "shape"):
        raise TypeError(f"{expected}, got {value!r}")
    positions("length_or_positions", value)
    return None


def positions(name, value):
    """Reject positions that are no numbers, are scalars, or have passed through a half-precision dtype."""
    array(name, value)
    kind = dtype(value)
    if ("int" not in kind and "float" not in kind) or kind in _HALF:
        raise TypeError(f"{name} must hold integers, float32 or float64, got {kind}")
    if len(value.shape) == 0:
        raise ValueError(f"{name} must have shape (*batch, n), got ()")


def positions_of(x_shape, value):
    """Reject positions that are neither one per token of `x` nor shared by its batch."""
    if value is None:
        return
    positions("positions", value)
    *batch, n, _ = x_shape
    per_token("positions", value, batch, n)


def per_token(name, value, batch, n):
    """Reject what does not hold a number for each of `n` tokens, the same or others for each example."""
    got = tuple(value.shape)
    # written out, because torch.compile cannot trace `in`
    if got != (n,) and got != (*batch, n):
        expected = f"{(n,)} or {(*batch, n)}" if batch else f"{(n,)}"
        raise ValueError(f"{name} must have shape {expected}, got {got}")


def attention_positions(query_positions, key_positions, batch, n_q, n_k):
    """Reject positions that do not belong to the queries and keys of a call, whose heads share them."""
    named = ("query_positions", query_positions, n_q), ("key_positions", key_positions, n_k)
    for name, value, n in named:
        if value is None:
            continue
        positions(name, value)
        per_token(name, value, batch, n)
    taken = query_positions is None and key_positions is not None
    if taken and not (is_symbolic(n_q) or is_symbolic(n_k)) and n_q > n_k:
        raise ValueError(
            f"key_positions must cover the {n_q} queries where query_positions are not given, got {n_k}"
        )


def cache_shape(batch_shape, num_kv_heads, max_len, head_dim, window):
    """Return the shape of the keys of a cache: with a window there are no more slots than it holds."""
    max_len = integer("max_len", max_len, least=1)
    if window is not None:
        max_len = min(max_len, integer("window", window, least=1))
    num_kv_heads = integer("num_kv_heads", num_kv_heads, least=1)
    batch = batch_axes(batch_shape)
    return (*batch, num_kv_heads, max_len, integer("head_dim", head_dim, least=1))


def batch_axes(batch_shape):
    """Return the sizes of the batch axes of a cache; a number is the size of one axis."""
    if not isinstance(batch_shape, (list, tuple)):
        return [integer("batch_shape", batch_shape)]
    return [integer(f"batch_shape[{i}]", size) for i, size in enumerate(batch_shape)]


def cache_arrays(cache):
    """Reject a cache whose arrays do not belong together."""
    shape = tuple(cache.key.shape)
    _shape("value", cache.value, shape)
    _shape("positions", cache.positions, (*shape[:-3], shape[-2]))


def cache_entry(key, value, where, cache):
    """Reject keys, values and positions that do not fit what a cache keeps."""
    cache_arrays(cache)
    kept = cache.key
    *batch, num_heads, _, head_dim = kept.shape
    floating("key", key, like=kept, owner="the cache")
    _shape("key", key, (*batch, num_heads, "n", head_dim))
    floating("value", value, like=kept, owner="the cache")
    _shape("value", value, tuple(key.shape))
    integer_array("query_positions", where)
    per_token("query_positions", where, batch, key.shape[-2])


def cache_room(last, max_len):
    """Reject a token, numbered from 0, beyond the end of a cache that has no window."""
    if last >= max_len:
        raise ValueError(
            f"cache must have room for all tokens, max_len = {max_len}, got {last + 1} tokens"
        )


def cache_rises(fallen, window):
    """Reject positions that do not rise where a cache keeps only what a window holds."""
    if fallen:
        raise ValueError(
            f"query_positions must rise from token to token in a cache with a window of {window}, got one "
            "that does not: make one with KVCache.init(..., window=None)"
        )


def cache_trim(n, positions):
    """Return how many tokens a cache is to forget: a number, or integers, one for each example."""
    if not hasattr(n, "shape"):
        return integer("n", n)
    integer_array("n", n)
    _shape("n", n, tuple(positions.shape[:-1]) if n.shape else ())
    return n


def cache_trimmed(wrapped, kept, n, window):
    """Reject forgetting tokens that are not there, or some whose predecessors a ring no longer has."""
    if n < 0 or n > kept:
        raise ValueError(
            f"n must lie between 0 and the {kept} tokens that are kept, got {n}"
        )
    if wrapped and n:
        raise ValueError(
            f"n must be 0 once a cache with a window of {window} has wrapped, since what its newest tokens "
            f"put out is gone, got {n}: keep a copy from before, or give the cache no window"
        )


def cached(cache, query, **others):
    """Reject a memory where a cache is given, which holds the keys of the queries' own sequences."""
    cache_batch("query", query, 2, cache)
    for name, value in others.items():
        if value is not None:
            array(name, value)
            raise ValueError(
                f"{name} must be None where a cache is given, got shape {tuple(value.shape)}"
            )


def cache_batch(name, value, own, cache):
    """Reject what has other batch axes, before its `own` last ones, than a cache has."""
    got, kept = tuple(value.shape[:-own]), tuple(cache.positions.shape[:-1])
    if got != kept:
        raise ValueError(
            f"{name} must have the batch axes {kept} of the cache, got {got}; "
            f"make a cache for it with init_cache({got}, max_len)"
        )


def placed(query_positions, rotate, attention):
    """Reject tokens that rotate as if they were all there are, where an attention may know others."""
    if query_positions is None and None not in (rotate, attention):
        raise ValueError(
            "query_positions must be given where a layer has rotate and an attention of its own, "
            "which may see other tokens than those of the call, got None"
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
        for got in ends(value):
            if not 0 <= got < max_len:
                raise ValueError(
                    f"{name} must lie between 0 and max_len - 1 = {max_len - 1}, got {got}"
                )


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


def tile_positions(query_positions, key_positions, shape, *, integers=False):
    """Reject positions that do not fit scores of shape `(*batch, h, n_q, n_k)`."""
    position_pair(query_positions, key_positions, integers=integers)
    *batch, _, n_q, n_k = shape
    for name, value, n in (
        ("query_positions", query_positions, n_q),
        ("key_positions", key_positions, n_k),
    ):
        per_token(name, value, batch, n)


def sample(length, max_len):
    """Return how many positions to draw, and from how many."""
    length = integer("length", length)
    max_len = integer("max_len", max_len, least=1)
    if length > max_len:
        raise ValueError(f"length must be at most max_len = {max_len}, got {length}")
    return length, max_len


def _shared(name, value, expected, own):
    """Accept `expected` with batch axes that may be 1, or only its last `own` axes."""
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


def layer_coordinates(value, x_shape, key, cache):
    """Reject coordinates that are not those of `query`, or that a cache would need again."""
    if value is None:
        return
    positions("coordinates", value)
    got = tuple(value.shape)
    _shared("coordinates", value, (*x_shape[:-1], got[-1]), 2)
    if key is not None:
        raise ValueError(
            f"coordinates must be None where key is given: they are those of query, got shape {got}"
        )
    if cache is not None and not cache.rotated:
        raise ValueError(
            "coordinates must be None with a cache whose keys are not rotated (rotated=False): "
            f"it would need those of all tokens at each step, got shape {got}"
        )


def _precise(name, value):
    """Reject what does not hold floating-point numbers of at least 32 bits."""
    array(name, value)
    kind = dtype(value)
    if kind in _HALF or ("float" not in kind and "complex" not in kind):
        raise TypeError(f"{name} must hold float32 or float64, got {kind}")
