"""Checks of what selects keys: an indexer's queries and keys, groups of keys, and the indices."""

from posattn.contract.arrays import (
    _broadcasts,
    _shape,
    array,
    floating,
    integer_array,
    mask,
    scores,
    sequence,
)
from posattn.contract.numbers import dtype, ends, integer
from posattn.contract.positions import per_token, positions


def indexer(query, key, weights):
    """Reject queries, keys and weights of an indexer that do not belong together."""
    floating("query", query)
    if len(query.shape) < 3:
        raise ValueError(
            f"query must have shape (*batch, h, n_q, d), got {tuple(query.shape)}"
        )
    *batch, heads, n_q, width = query.shape
    floating("key", key, like=query)
    _shape("key", key, (*batch, "n_k", width))
    if weights is not None:
        floating("weights", weights)
        _shape("weights", weights, (*batch, n_q, heads))


def selected(select, query, key, *, known=True):
    """Reject indices of keys that do not fit the queries, or (if `known`) are of no key and not -1."""
    if select is None:
        return
    integer_array("select", select)
    *batch, n_q, _ = query.shape
    n_k, got = key.shape[-2], tuple(select.shape)
    by_head = bool(batch) and len(got) == len(query.shape)
    lead, own = batch[:-1], got[: -3 if by_head else -2]
    fits = 2 <= len(got) <= len(query.shape) and got[-2] == n_q and len(own) <= len(lead)
    fits = fits and (not by_head or got[-3] in (1, key.shape[-3], batch[-1]))
    if not (fits and all(g in (1, e) for g, e in zip(own[::-1], lead[::-1]))):
        few = ", ".join(map(str, (*lead, n_q, "k")))
        more = ", ".join(map(str, (*batch, n_q, "k")))
        expected = f"({few}) or, with an axis of heads, ({more})" if batch else f"({few})"
        raise ValueError(f"select must have shape {expected}, got {got}")
    if known and 0 not in got:
        for index in ends(select):
            if not -1 <= index < n_k:
                raise ValueError(
                    f"select must lie between -1 (no key) and n_k - 1 = {n_k - 1}, got {index}"
                )


def choice(value, count, seen):
    """Return how many keys or groups `scores` choose, which `mask` must fit."""
    scores(value)
    mask(seen, value.shape)
    return integer("count", count)


def group_size(size, n_k, seen, batch=None):
    """Return the size of groups of `n_k` keys, whose mask of tokens must fit them."""
    size, n_k = integer("size", size, least=1), integer("n_k", n_k)
    if seen is not None:
        array("mask", seen)
        if "bool" not in str(seen.dtype):
            raise TypeError(f"mask must be bool (True means a token), got {dtype(seen)}")
        got = tuple(seen.shape)
        expected = (*(got[:-1] if batch is None else batch), n_k)
        fits = 1 <= len(got) <= len(expected) and got[-1] == n_k
        if not (fits and all(g in (1, e) for g, e in zip(got[::-1], expected[::-1]))):
            raise ValueError(
                f"mask must have shape (*batch, n) that broadcasts to {expected}, got {got}"
            )
    return size, n_k


def group_keys(key, size, gates, seen, overlap):
    """Return the size of groups of keys, which `gates` and `mask` must fit."""
    sequence("key", key)
    if gates is not None:
        floating("gates", gates)
        _broadcasts("gates", gates, tuple(key.shape))
    if overlap and key.shape[-1] % 2:
        raise ValueError(
            f"key must have an even width where overlap is True, got {key.shape[-1]}"
        )
    return group_size(size, key.shape[-2], seen, tuple(key.shape[:-2]))


def group_scores(value, count, size, n_k, seen):
    """Return how many groups `scores` choose, of which size, and the number of keys."""
    count = choice(value, count, None)
    size, n_k = group_size(size, n_k, seen, tuple(value.shape[:-2]))
    if value.shape[-1] != n_k // size:
        raise ValueError(
            f"scores must have shape (*batch, n_q, n_k // size = {n_k // size}), got {tuple(value.shape)}"
        )
    return count, size, n_k


def indexer_sizes(dim, num_heads, head_dim, count, query_rank, pooled=None, size=1):
    """Return how many heads an indexer has and keys it selects, and the shapes of its weights by name."""
    if pooled not in (None, "max", "mean", "gated"):
        kind = ValueError if isinstance(pooled, str) else TypeError
        raise kind(f"pooled must be 'max', 'mean', 'gated' or None, got {pooled!r}")
    integer("size", size, least=1)
    dim = integer("dim", dim, least=1)
    num_heads = integer("num_heads", num_heads, least=1)
    head_dim = integer("head_dim", head_dim, least=1)
    width = dim if query_rank is None else integer("query_rank", query_rank, least=1)
    shapes = {
        "query": (width, num_heads * head_dim),
        "key": (dim, head_dim * (1 + (pooled == "gated"))),
        "head": (dim, num_heads),
    }
    if pooled in ("max", "mean"):
        del shapes["head"]
    return num_heads, integer("count", count, least=1), shapes


def indexer_weights(part, x, narrow):
    """Reject an indexer whose weights do not belong together, or to what it is given."""
    dim, (width,) = part.key_weight.shape[0], part.key_norm_weight.shape
    heads = part.query_weight.shape[1] // width
    norm = {"query_weight": ("d_q", heads * width)}
    norm["key_weight"] = dim, width * (1 + (part.pooled == "gated"))
    if part.pooled in (None, "gated"):
        norm |= {"head_weight": (dim, heads), "key_norm_bias": (width,)}
    else:
        norm["query_norm_weight"] = (width,)
    if part.pooled == "gated":
        norm["places"] = part.size, width
    if part.temperature is not None:
        norm["temperature"] = 2, heads
    if part.input_norm_weight is not None:
        norm |= dict.fromkeys(("input_norm_weight", "input_norm_bias"), narrow.shape[-1:])
    for name, shape in norm.items():
        _shape(name, getattr(part, name), shape)
    sequence("x", x, dim)
    sequence("narrow", narrow, part.query_weight.shape[0])


def chosen_before(select, shared):
    """Reject indices for a layer that does not share a choice, or their absence in one that does."""
    if select is not None:
        integer_array("select", select)
    if shared == (select is None):
        told = "given: what the layer before has returned" if shared else "None"
        raise ValueError(f"select must be {told} where shared is {shared}, got {select!r}")


def returned(out, cache, select, with_select, latent=None):
    """What a call of a layer returns: its output, and what else there is."""
    found = (out, *(() if cache is None else (cache,)), *([select] * with_select))
    found += () if latent is None else (latent,)
    return found if len(found) > 1 else out


def indexed(indexer, key, coordinates, select=None, cache=None):
    """Reject what does not go with an indexer, or with none."""
    given = {"key": key, "coordinates": coordinates, "select": select}
    for name, value in given.items():
        if indexer is not None and value is not None:
            raise ValueError(f"{name} must be None in a layer with an indexer")
    if indexer is not None and cache is not None and cache.index is None:
        raise ValueError(
            "cache must be one that init_cache of a layer with an indexer makes"
        )


def indexer_keys(x, key, key_positions, pooled):
    """Reject keys of an indexer that do not belong to tokens, or lack positions where their mean rotates."""
    sequence("key", key)
    _shape("key", key, (*x.shape[:-2], "n_k", "d"))
    if key_positions is None and pooled == "mean":
        raise ValueError("key_positions must be given where pooled is 'mean', got None")
    if key_positions is not None:
        positions("key_positions", key_positions)
        per_token("key_positions", key_positions, key.shape[:-2], key.shape[-2])
