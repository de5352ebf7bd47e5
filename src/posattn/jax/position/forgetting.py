"""The forgetting gate: how much of the past each token lets through."""

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.tree_util import Partial
from jax.typing import DTypeLike
from jaxtyping import Float

from posattn import contract
from posattn.jax.trees import register
from posattn.jax.validated import validated

__all__ = ["ForgettingGate", "forgetting_bias", "tiled_forgetting_bias"]

SHUT = -1e4  # no dtype tells the weight behind such a gate from 0


@validated
def forgetting_bias(
    log_gates: Float[Array, "*batch h n_k"], n_q: int | None = None
) -> Float[Array, "*batch h n_q n_k"]:
    r"""The bias of the Forgetting Transformer: how much the gates between a key and a query let through.

    Twin of :func:`posattn.reference.forgetting_bias`.
    Half-precision gates are summed in float32.

    Args:
        log_gates: $\log f$, one per token and head, `(*batch, h, n_k)`, none above 0.
        n_q: the number of queries, which are aligned to the end of the keys; $n_k$ if not given.

    Returns:
        $d$, `(*batch, h, n_q, n_k)`.

    Examples:
        >>> jnp.exp(forgetting_bias(jnp.log(jnp.array([[0.5, 0.25, 0.5]]))))
        Array([[[1.   , 1.   , 1.   ],
                [0.25 , 1.   , 1.   ],
                [0.125, 0.5  , 1.   ]]], dtype=float32)
    """
    n_q, n_k = contract.log_gates(log_gates, n_q)
    before = jnp.arange(n_k) < jnp.arange(n_k - n_q, n_k)[:, None]
    wide = jnp.promote_types(log_gates.dtype, jnp.float32)
    following = jnp.roll(log_gates.astype(wide), -1, axis=-1)
    steps = jnp.where(before, following[..., None, :], 0)
    sums = jax.lax.cumsum(steps, axis=steps.ndim - 1, reverse=True)
    return sums.astype(log_gates.dtype)


@validated
def tiled_forgetting_bias(log_gates: Float[Array, "*batch h n"]) -> Callable:
    r"""The bias of the Forgetting Transformer as a function of positions, for sequences of any length.

    Twin of :func:`posattn.reference.tiled_forgetting_bias`; what it returns is a pytree.
    Gates are summed in pairs of floats, of which the second holds what the first rounds away.

    Args:
        log_gates: $\log f$, one per token and head, `(*batch, h, n)`, none above 0.

    Returns:
        A function `bias(query_positions, key_positions)` of integers, `(n_q)` and `(n_k)` or with the batch
        axes of the gates, those of queries below $n$, that returns $d$, `(*batch, h, n_q, n_k)`.

    Examples:
        >>> bias = tiled_forgetting_bias(jnp.log(jnp.array([[0.5, 0.25, 0.5]])))
        >>> jnp.exp(bias(jnp.array([2]), jnp.arange(3)))
        Array([[[0.125, 0.5  , 1.   ]]], dtype=float32)
    """
    contract.log_gates(log_gates, None)
    shut = log_gates < SHUT
    wide = jnp.promote_types(log_gates.dtype, jnp.float32)
    gates = jnp.where(shut, 0, log_gates.astype(wide))
    high = jnp.cumsum(gates, axis=-1)
    exact = lax.associative_scan(_add, lax.stop_gradient((gates, 0 * gates)), axis=-1)
    low = exact[0] - lax.stop_gradient(high) + exact[1]
    sums = high, low, jnp.cumsum(shut, axis=-1)
    first = [(0, 0)] * (log_gates.ndim - 1) + [(1, 0)]
    before = (jnp.pad(x, first) for x in sums)
    return Partial(_tile, *before, jnp.zeros((), log_gates.dtype))


def _add(one, other):
    """The sum of two numbers, each a pair of floats, as such a pair."""
    high = one[0] + other[0]
    part = high - one[0]
    low = (one[0] - (high - part)) + (other[0] - part) + (one[1] + other[1])
    total = high + low
    return total, low - (total - high)


def _tile(high, low, shut, like, query_positions, key_positions):
    """The difference of the sums at each query and key, and of the numbers of gates that are shut."""
    known = not isinstance(query_positions, jax.core.Tracer)
    shape = (*high.shape[:-1], high.shape[-1] - 1)
    contract.gated_positions(query_positions, key_positions, shape, known=known)
    query_positions, key_positions = (
        p.astype(int) for p in (query_positions, key_positions)
    )
    pair = jnp.maximum(query_positions, -1), jnp.clip(key_positions, -1, shape[-1] - 1)
    queries, keys = (
        jnp.broadcast_to(p + 1, (*shape[:-2], p.shape[-1]))[..., None, :] for p in pair
    )
    high, low, behind = (
        jnp.take_along_axis(x, queries, axis=-1)[..., None]
        - jnp.take_along_axis(x, keys, axis=-1)[..., None, :]
        for x in (high, low, shut)
    )
    past = keys[..., None, :] < queries[..., None]
    bias = jnp.where(behind > 0, -jnp.inf, high + low)
    return jnp.where(past, bias, 0).astype(like.dtype)


@validated
@register
@dataclass(frozen=True, eq=False)
class ForgettingGate:
    r"""A gate per token and head, as its logarithm.

    Twin of :class:`posattn.reference.ForgettingGate`; a pytree.
    Half-precision tokens are projected in float32; give `x.astype("float32")` for log gates that
    stay float32.

    Args:
        weight: $\mathbf{W}$, `(d, h)`; `x @ weight` projects.
        offset: $\mathbf{b}$, `(h)`.

    Examples:
        >>> gate = ForgettingGate.init(jax.random.key(0), 8, 2)
        >>> jax.jit(gate)(jnp.ones((3, 5, 8))).shape
        (3, 2, 5)
    """

    weight: Float[Array, "d h"]
    offset: Float[Array, " h"]

    @classmethod
    def init(
        cls, rng: Array, dim: int, num_heads: int, *, dtype: DTypeLike | None = None
    ) -> "ForgettingGate":
        """Draw the weight from a normal distribution with standard deviation 0.02; the offset is zero.

        Twin of :meth:`posattn.reference.ForgettingGate.init`; `rng` is a JAX key.

        Args:
            rng: where the weight is drawn from.
            dim: the width of the tokens, at least 1.
            num_heads: the number of heads, at least 1.
            dtype: of the parameters; JAX's default one if not given.

        Returns:
            The gate.
        """
        dim, num_heads = contract.sizes(dim=dim, num_heads=num_heads)
        dtype = jnp.result_type(float if dtype is None else dtype)
        weight = 0.02 * jax.random.normal(rng, (dim, num_heads), dtype)
        return cls(weight, jnp.zeros(num_heads, dtype))

    def __call__(self, x: Float[Array, "*batch n d"]) -> Float[Array, "*batch h n"]:
        r"""The log gates of a sequence.

        Twin of calling :class:`posattn.reference.ForgettingGate`.

        Args:
            x: `(*batch, n, d)`.

        Returns:
            $\log f$, `(*batch, h, n)`.
        """
        contract.sequence("x", x, self.weight.shape[0])
        contract.parameter("offset", self.offset, tuple(self.weight.shape[1:]))
        wide = jnp.promote_types(x.dtype, jnp.float32)
        z = x.astype(wide) @ self.weight + self.offset
        return jax.nn.log_sigmoid(z).mT.astype(x.dtype)
