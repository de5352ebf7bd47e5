"""Ring attention: every device holds a shard of a sequence, and keys and values travel around it.

While a device visits the tiles of one shard of keys, the next one arrives; on the way back the gradients
of keys and values travel with them, until they are where they came from.
"""

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Bool, Float, Integer, Real

from posattn import contract
from posattn.jax.attention import online, tiled
from posattn.jax.attention.call import Call, Positions, biases
from posattn.jax.attention.masks import all_of
from posattn.jax.validated import validated

__all__ = ["balanced_order", "ring_attention"]

OF_KEYS = "key", "value", "key_positions", "masks"  # what goes round

Bias = contract.PositionBias | contract.ContentBias


@validated
def balanced_order(n: int, workers: int) -> Integer[Array, " n"]:
    """The order in which tokens are spread over workers so that causal attention costs each the same.

    Twin of :func:`posattn.reference.balanced_order`.

    Args:
        n: the number of tokens, a multiple of `2 * workers`.
        workers: the number of shards, at least 1.

    Returns:
        `(n)`, the positions 0 to $n - 1$.

    Examples:
        >>> balanced_order(8, 2)
        Array([0, 1, 6, 7, 2, 3, 4, 5], dtype=int32)
    """
    n, workers = contract.balanced(n, workers)
    pieces = jnp.arange(n).reshape(2 * workers, n // (2 * workers))
    return jnp.concatenate([pieces[:workers], pieces[workers:][::-1]], axis=1).reshape(n)


@validated
def ring_attention(
    query: Float[Array, "*batch n_q d"],
    key: Float[Array, "*kv_batch n_k d"],
    value: Float[Array, "*kv_batch n_k d_v"],
    *,
    across: str,
    mask: Bool[Array, "*#batch 1 n_k"] | contract.PositionMask | None = None,
    causal: bool = False,
    bias: Bias | Sequence[Bias | None] | None = None,
    query_positions: Real[Array, "*#examples n_q"] | None = None,
    key_positions: Real[Array, "*#examples n_k"] | None = None,
    scale: float | None = None,
) -> Float[Array, "*batch n_q d_v"]:
    """Attention to a sequence that no device holds as a whole.

    Twin of :func:`posattn.reference.ring_attention`: called inside `jax.shard_map`, with shards of all
    arrays, and it returns a shard of the result.
    Half precision is computed in float32. A device holds its own shard, one that visits and one that
    arrives, and scores of one tile; its memory does not grow with the whole sequence.
    Unlike `scaled_dot_product_attention`, it takes no sinks, no soft cap and no selection.
    Biases with parameters are pytrees, whose gradients `jax.shard_map` sums over the devices.
    Derivatives are those of the reverse mode, and first ones only.

    Args:
        query: `(*batch, n_q, d)`, a shard; where there are three axes or more, the last of the
            batch is that of heads.
        key: `(*batch, n_k, d)`, of the same batch axes, width and dtype; it may have fewer heads, a
            divisor of their number, and then each serves as many neighboring heads of queries.
        value: `(*batch, n_k, d_v)`, of the batch axes of `key` and the same dtype.
        across: the axis of the mesh along which the sequence is spread.
        mask: bool, True means may attend: which keys of the shard all queries may attend to, of a
            shape that broadcasts to `(*batch, 1, n_k)`, or a function of the positions of queries
            and keys, as for `scaled_dot_product_attention`.
        causal: hide the keys whose position is larger than that of the query.
        bias: what is added to the scores: a function of the positions of queries and keys, an
            object with a method `scores` that needs no other keys, or a list of those.
        query_positions: where the queries of the shard stand, `(n_q)`, or one row for each
            example, `(*batch, n_q)` without the axis of heads. If not given, they stand where the
            keys do, and fewer queries at the last positions of the whole sequence.
        key_positions: where the keys stand, likewise; if not given, shards follow each other, the
            first from 0 on.
        scale: the factor on the products of queries and keys, one over the root of $d$ if not given.

    Returns:
        One row per query, `(*batch, n_q, d_v)`; zeros where a query may attend to nothing.

    Examples:
        >>> from functools import partial
        >>> import numpy as np
        >>> mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ["ring"])
        >>> shards = jax.sharding.PartitionSpec(None, "ring", None)
        >>> attend = partial(ring_attention, across="ring", causal=True)
        >>> attend = jax.shard_map(attend, mesh=mesh, in_specs=shards, out_specs=shards)
        >>> x = jnp.ones((2, 5, 4))
        >>> jax.jit(attend)(x, x, x).shape
        (2, 5, 4)
    """
    contract.attention(query, key, value, grouped=True)
    contract.shard_mask(mask, query.shape, key.shape[-2])
    parts = biases(bias)
    for part in parts:
        contract.shard_bias(part)
    batch, n_q, n_k = query.shape[:-3], query.shape[-2], key.shape[-2]
    contract.shard_positions(query_positions, key_positions, batch, n_q, n_k)
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else contract.scale(scale)
    contract.mesh_axis(across, jax.sharding.get_abstract_mesh().manual_axes)
    positions = _places(query, key, query_positions, key_positions, across)
    mask = all_of([_past if causal else None, mask])
    call = Call(query, key, value, mask, parts, positions, scale)
    tiled.check(call)
    if 0 in (n_q, n_k):
        return jnp.zeros_like(query, shape=(*query.shape[:-1], value.shape[-1]))
    # tiles of half a shard at most: the halves of a balanced one lie apart
    halves = (x[..., : -(-x.shape[-2] // 2), :] for x in (query, key))
    sizes = tiled.sizes_of(*halves, False)
    given, visit, revisit = online.passes(call, sizes)
    workers = lax.axis_size(across)
    ring = [(i, (i + 1) % workers) for i in range(workers)]

    def sent(given):
        """Hand what belongs to keys to the next device."""
        keys = {name: getattr(given, name) for name in OF_KEYS}
        return given._replace(**jax.tree.map(lambda x: lax.ppermute(x, across, ring), keys))

    def forward(given, state):
        def step(_, carry):
            given, state = carry
            return sent(given), visit(given, state)

        return lax.fori_loop(0, workers, step, (given, state))[1]

    def backward(given, known, sums):
        def step(_, carry):
            given, sums = carry
            return sent(given), sent(revisit(given, known, sums))

        return lax.fori_loop(0, workers, step, (given, sums))[1]

    return online.attention_of(given, forward, backward)


def _places(query, key, query_positions, key_positions, across):
    """Where the queries and keys of a shard stand, shard after shard if nothing else is given."""
    n_q, n_k = query.shape[-2], key.shape[-2]
    rank, workers = lax.axis_index(across), lax.axis_size(across)
    if query_positions is None:
        query_positions = (
            rank * n_q + workers * (n_k - n_q) + jnp.arange(n_q)
            if key_positions is None
            else key_positions
        )
    if key_positions is None:
        key_positions = rank * n_k + jnp.arange(n_k)
    return Positions(query_positions, key_positions)


def _past(query_positions, key_positions):
    return key_positions[..., None, :] <= query_positions[..., :, None]
