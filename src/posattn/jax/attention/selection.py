"""Selection: the indices of the keys that each query reads."""

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float, Integer

from posattn import contract
from posattn.jax.attention.indexer import group_tokens, in_order
from posattn.jax.attention.masks import causal_mask
from posattn.jax.validated import validated

__all__ = ["group_mask", "select_blocks", "select_groups", "select_keys"]

Scores = Float[Array, "*batch n_q n_k"]
Mask = Bool[Array, "*#batch #n_q n_k"]
TokenMask = Bool[Array, "*#batch n_k"]
Indices = Integer[Array, "*batch n_q count"]


@validated
def select_keys(
    scores: Scores, count: int, *, mask: Mask | None = None, causal: bool = False
) -> Indices:
    """The keys with the highest scores, `count` of them for each query; of equal ones the earlier.

    Twin of :func:`posattn.reference.select_keys`.

    Args:
        scores: such as those of `indexer_scores`, `(*batch, n_q, n_k)`; minus infinity counts as masked.
        count: how many keys a query reads at most.
        mask: bool, True means may attend; its shape broadcasts to that of `scores`.
        causal: hide the future; queries are aligned to the end of the keys.

    Returns:
        Indices of keys in rising order, then -1, `(*batch, n_q, min(count, n_k))`: what attention
        takes as `select`.

    Examples:
        >>> select_keys(jnp.array([[0.0, 2.0, 0.0, 1.0], [5.0, 0.0, 0.0, 0.0]]), 2)
        Array([[1, 3],
               [0, 1]], dtype=int32)
    """
    count = contract.choice(scores, count, mask)
    scores = _masked(scores, mask, causal)
    values, places = jax.lax.top_k(scores, min(count, scores.shape[-1]))
    return rising(jnp.where(values > -jnp.inf, places, -1), scores.shape[-1])


@validated
def group_mask(
    n_q: int, n_k: int, size: int, *, mask: TokenMask | None = None
) -> Bool[Array, "*batch n_q groups"]:
    """Which groups of keys are complete at each query: the causal mask of `group_keys`.

    Twin of :func:`posattn.reference.group_mask`.

    Args:
        n_q: the number of queries, which are aligned to the end of the keys.
        n_k: the number of keys.
        size: m, the tokens of a group, at least 1.
        mask: bool, True means a token and False padding, `(*batch, n_k)`.

    Returns:
        The mask, `(*batch, n_q, n_k // size)`.

    Examples:
        >>> group_mask(3, 5, 2).astype(int)
        Array([[1, 0],
               [1, 1],
               [1, 1]], dtype=int32)
    """
    size, n_k = contract.group_size(size, n_k, mask)
    n_q = contract.integer("n_q", n_q)
    seen = _tokens_seen(jnp.ones(n_k, bool) if mask is None else mask, n_q, causal=True)
    return jnp.arange(n_k // size) < (seen // size)[..., None]


@validated
def select_groups(
    scores: Float[Array, "*batch n_q groups"],
    count: int,
    size: int,
    n_k: int,
    *,
    mask: TokenMask | None = None,
    causal: bool = False,
) -> Indices:
    """The tokens of the groups with the highest scores, and all tokens after the last complete group.

    Twin of :func:`posattn.reference.select_groups`.

    Args:
        scores: of complete groups, `(*batch, n_q, n_k // size)`.
        count: how many groups a query reads at most.
        size: how many tokens a group has, at least 1.
        n_k: the number of keys.
        mask: bool, True means a token and False padding, `(*batch, n_k)` with the batch axes of `scores`.
        causal: hide the future; queries are aligned to the end of the keys.

    Returns:
        Indices of keys in rising order, then -1,
        `(*batch, n_q, min(count, n_k // size) * size + size - 1)`.

    Examples:
        >>> select_groups(jnp.array([[1.0, 2.0], [1.0, 2.0], [1.0, 2.0]]), 1, 2, 5, causal=True)
        Array([[ 0,  1,  2],
               [ 2,  3, -1],
               [ 2,  3,  4]], dtype=int32)
    """
    count, size, n_k = contract.group_scores(scores, count, size, n_k, mask)
    batch, n_q = scores.shape[:-2], scores.shape[-2]
    mask = jnp.broadcast_to(jnp.ones(n_k, bool) if mask is None else mask, (*batch, n_k))
    seen = _tokens_seen(mask, n_q, causal)
    complete = jnp.arange(n_k // size) < (seen // size)[..., None]
    chosen = select_keys(scores, count, mask=complete)
    one = [(0, 0)] * len(batch)  # the first row, and the first place, are of no key
    members = group_tokens(n_k, size, mask=mask)
    members = jnp.pad(members, [*one, (1, 0), (0, 0)], constant_values=-1)
    rows = (chosen + 1).reshape(*batch, -1, 1)
    tokens = jnp.take_along_axis(members, rows, axis=-2).reshape(*batch, n_q, -1)
    rest = (seen // size * size)[..., None] + jnp.arange(size - 1)
    rest = jnp.where(rest < seen[..., None], rest + 1, 0)
    order = jnp.pad(in_order(mask)[0], [*one, (1, 0)], constant_values=-1)
    after = jnp.take_along_axis(order, rest.reshape(*batch, -1), axis=-1)
    return rising(jnp.concatenate([tokens, after.reshape(rest.shape)], axis=-1), n_k)


@validated
def select_blocks(
    scores: Scores, count: int, size: int, *, mask: Mask | None = None, causal: bool = False
) -> Indices:
    """The tokens of the blocks whose best key has the highest score, the query's own block among them.

    Twin of :func:`posattn.reference.select_blocks`.

    Args:
        scores: of keys, `(*batch, n_q, n_k)`; minus infinity counts as masked.
        count: how many blocks a query reads at most.
        size: how many neighboring keys a block has, at least 1.
        mask: bool, True means may attend; its shape broadcasts to that of `scores`.
        causal: hide the future; queries are aligned to the end of the keys.

    Returns:
        Indices of keys in rising order, then -1, `(*batch, n_q, min(count, blocks) * size)`.

    Examples:
        >>> scores = jnp.array([[0.0, 9.0, 1.0, 1.0, 0.0], [0.0, 0.0, 1.0, 1.0, 0.0]])
        >>> select_blocks(scores, 2, 2, causal=True)
        Array([[ 0,  1,  2,  3],
               [ 2,  3,  4, -1]], dtype=int32)
    """
    count = contract.choice(scores, count, mask)
    size = contract.integer("size", size, least=1)
    *batch, n_q, n_k = scores.shape
    blocks = -(-n_k // size)
    pad = [(0, 0)] * (len(batch) + 1) + [(0, blocks * size - n_k)]
    scores = jnp.pad(_masked(scores, mask, causal), pad, constant_values=-jnp.inf)
    best = scores.reshape(*batch, n_q, blocks, size).max(-1)
    own = jnp.arange(n_k - n_q, n_k)[:, None] // size == jnp.arange(blocks)
    chosen = select_keys(jnp.where(own, jnp.inf, best), count)[..., None]
    tokens = jnp.maximum(chosen, 0) * size + jnp.arange(size)
    flat = tokens.reshape(*batch, n_q, -1)
    seen = jnp.take_along_axis(scores, flat, axis=-1) > -jnp.inf
    seen = seen & jnp.broadcast_to(chosen >= 0, tokens.shape).reshape(flat.shape)
    return rising(jnp.where(seen, flat, -1), n_k)


def rising(indices, n_k):
    """Indices below `n_k` in rising order with -1 last."""
    ordered = jnp.sort(jnp.where(indices < 0, n_k, indices), axis=-1)
    return jnp.where(ordered < n_k, ordered, -1)


def _masked(scores, mask, causal):
    """Scores, minus infinity where they are hidden, and with one zero: JAX sorts -0 below 0."""
    seen = True if mask is None else mask
    seen = seen & causal_mask(*scores.shape[-2:]) if causal else seen
    scores = jax.lax.stop_gradient(jnp.where(scores == 0, 0, scores))
    return jnp.where(seen, scores, -jnp.inf)


def _tokens_seen(mask, n_q, causal):
    """How many tokens each query sees, `(*batch, n_q)`."""
    n_k = mask.shape[-1]
    sums = jnp.pad(jnp.cumsum(mask, axis=-1), [(0, 0)] * (mask.ndim - 1) + [(1, 0)])
    last = jnp.arange(n_k - n_q, n_k) + 1 if causal else jnp.full(n_q, n_k)
    return sums[..., jnp.clip(last, 0, n_k)]
