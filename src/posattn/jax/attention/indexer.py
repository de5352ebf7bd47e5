"""The indexer: cheap scores that say which keys an attention reads."""

import math

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float, Integer

from posattn import contract
from posattn.jax.validated import validated

__all__ = ["group_keys", "group_tokens", "indexer_scores"]


@validated
def indexer_scores(
    query: Float[Array, "*batch h n_q d"],
    key: Float[Array, "*batch n_k d"],
    weights: Float[Array, "*batch n_q h"] | None = None,
    *,
    scale: float | None = None,
) -> Float[Array, "*batch n_q n_k"]:
    """How much each query wants to read each key, in the eyes of an indexer.

    Twin of :func:`posattn.reference.indexer_scores`.
    Half precision is computed in float32, and so is the result: rounded scores would tie.

    Args:
        query: q, `(*batch, h, n_q, d)`, rotated where the model rotates them.
        key: k, `(*batch, n_k, d)`: one head, which all heads of queries share.
        weights: w, one for each query and head, `(*batch, n_q, h)`; 1 if not given.
        scale: the factor on the products, 1/sqrt(d) if not given.

    Returns:
        s, `(*batch, n_q, n_k)`, float32 or float64.

    Examples:
        >>> query = jnp.array([[[1.0, 0.0]], [[0.0, 1.0]]])
        >>> key = jnp.array([[2.0, 1.0], [-1.0, 3.0]])
        >>> indexer_scores(query, key, jnp.array([[1.0, 10.0]]), scale=1.0)
        Array([[12., 30.]], dtype=float32)
    """
    contract.indexer(query, key, weights)
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else contract.scale(scale)
    wide = jnp.promote_types(query.dtype, jnp.float32)
    if weights is None:
        weights = jnp.ones((1, query.shape[-3]), wide)
    heads = (
        jnp.moveaxis(query.astype(wide), -3, 0),
        jnp.moveaxis(weights.astype(wide), -1, 0),
    )
    key = key.astype(wide).mT

    def add(total, head):  # one at a time: all of them would take h times the memory
        part, weight = head
        return total + jax.nn.relu(part @ key * scale) * weight[..., None], None

    total = jnp.zeros((*query.shape[:-3], query.shape[-2], key.shape[-1]), wide)
    return jax.lax.scan(add, total, heads)[0]


@validated
def group_tokens(
    n_k: int, size: int, *, mask: Bool[Array, "*batch n_k"] | None = None
) -> Integer[Array, "*batch groups size"]:
    """Which tokens make each group of neighbors, counted from the first that is not masked.

    Twin of :func:`posattn.reference.group_tokens`.

    Args:
        n_k: the number of tokens.
        size: m, at least 1.
        mask: bool, True means a token and False padding, `(*batch, n_k)`.

    Returns:
        The place of each token in the row, `(*batch, n_k // size, size)`, and -1 in groups that are
        not complete because of the mask.

    Examples:
        >>> group_tokens(5, 2, mask=jnp.array([False, True, True, True, False]))
        Array([[ 1,  2],
               [-1, -1]], dtype=int32)
    """
    size, n_k = contract.group_size(size, n_k, mask)
    count = n_k // size
    if mask is None:
        return jnp.arange(count * size).reshape(count, size)
    order, total = in_order(mask)
    members = order[..., : count * size].reshape(*mask.shape[:-1], count, size)
    complete = jnp.arange(count) < (total // size)[..., None]
    return jnp.where(complete[..., None], members, -1)


@validated
def group_keys(
    key: Float[Array, "*batch n_k d_in"],
    size: int,
    *,
    gates: Float[Array, "*#batch #n_k d_in"] | None = None,
    mask: Bool[Array, "*#batch n_k"] | None = None,
    overlap: bool = False,
) -> Float[Array, "*batch groups d"]:
    """One key for each complete group of neighboring tokens: their mean, or a softmax of gates.

    Twin of :func:`posattn.reference.group_keys`.
    Half precision is computed in float32 and rounded once.

    Args:
        key: k, `(*batch, n_k, d)`, or `(*batch, n_k, 2d)` with `overlap`.
        size: m, the tokens of a group, at least 1.
        gates: z, which broadcasts to the shape of `key`; all alike if not given.
        mask: bool, True means a token and False padding, `(*batch, n_k)`.
        overlap: whether a group reads the group before it, too.

    Returns:
        c, `(*batch, n_k // size, d)`; zeros in groups that are not complete.

    Examples:
        >>> group_keys(jnp.array([[1.0], [3.0], [5.0], [9.0], [7.0]]), 2)
        Array([[2.],
               [7.]], dtype=float32)
    """
    contract.group_keys(key, size, gates, mask, overlap)
    wide = jnp.promote_types(key.dtype, jnp.float32)
    members = group_tokens(key.shape[-2], size, mask=mask)
    keys = _taken(key.astype(wide), members)
    gates = jnp.zeros(1, wide) if gates is None else gates.astype(wide)
    gates = _taken(jnp.broadcast_to(gates, key.shape), members)
    complete = jnp.broadcast_to(members[..., :1] >= 0, keys.shape[:-1])
    if overlap:
        keys, gates = _before_and_own(keys), _before_and_own(gates)
        before = jnp.concatenate(
            [jnp.zeros_like(complete[..., :1, :]), complete[..., :-1, :]], -2
        )
        complete = jnp.concatenate([before & complete, complete], axis=-1)
    complete = complete[..., None]
    gates = jnp.where(complete, gates, -jnp.inf)
    peak = jnp.max(gates, axis=-2, keepdims=True, initial=jnp.finfo(wide).min)
    exp = jnp.exp(gates - jax.lax.stop_gradient(peak))
    total = exp.sum(-2)
    mixed = (exp * jnp.where(complete, keys, 0)).sum(-2) / jnp.where(total == 0, 1, total)
    return mixed.astype(key.dtype)


def _taken(x, members):
    """The rows of `x`, `(*batch, n, d)`, of the tokens of each group: `(*batch, groups, size, d)`."""
    members = jnp.broadcast_to(members, (*x.shape[:-2], *members.shape[-2:]))
    places = jnp.maximum(members, 0).reshape(*members.shape[:-2], -1, 1)
    rows = jnp.take_along_axis(x, places, axis=-2)
    return rows.reshape(*members.shape, x.shape[-1])


def _before_and_own(x):
    """The first half of the width of the group before, then the second half of each group's own."""
    first, second = jnp.split(x, 2, axis=-1)
    before = jnp.concatenate(
        [jnp.zeros_like(first[..., :1, :, :]), first[..., :-1, :, :]], -3
    )
    return jnp.concatenate([before, second], axis=-2)


def in_order(mask):
    """The places of tokens with those that are masked after all others, and how many are not."""
    return jnp.argsort(~mask, axis=-1, stable=True), jnp.sum(mask, axis=-1)
