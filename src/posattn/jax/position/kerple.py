"""KERPLE: learned penalties on distance, from kernels that are positive definite up to a constant."""

import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import DTypeLike
from jaxtyping import Float, Real

from posattn import contract
from posattn.jax.attention.masks import relative_positions
from posattn.jax.trees import register
from posattn.jax.validated import validated

__all__ = ["KerpleLog", "KerplePower"]

LEAST, MOST = 0.01, math.inf  # a parameter outside counts as the nearer of these


@validated
@register
@dataclass(frozen=True, eq=False)
class KerpleLog:
    """A penalty that grows with the logarithm of the distance, with learned strengths for each head.

    Twin of :class:`posattn.reference.KerpleLog`; a pytree.
    Half-precision parameters are used in float32, as distances need it; the bias has their dtype.
    Up to position 2**20 its relative error is below 4e-7 in float32.

    Args:
        r1: $r_1$, `(num_heads)`: the strength.
        r2: $r_2$, `(num_heads)`: the inverse of the distance at which the logarithm begins to bend.

    Examples:
        >>> layer = KerpleLog.init(jax.random.key(0), 2)
        >>> layer(jnp.arange(3, 6), jnp.arange(6)).shape
        (2, 3, 6)
    """

    r1: Float[Array, " h"]
    r2: Float[Array, " h"]

    @classmethod
    def init(
        cls, rng: Array, num_heads: int, *, dtype: DTypeLike | None = None
    ) -> "KerpleLog":
        """Draw `r1` uniformly from 0 to 2 and `r2` from 0 to 1.

        Twin of :meth:`posattn.reference.KerpleLog.init`; `rng` is a JAX key.

        Args:
            rng: where the parameters are drawn from.
            num_heads: the number of heads, at least 1.
            dtype: of the parameters; JAX's default one if not given.
        """
        uniform = _uniform(rng, num_heads, dtype)
        return cls(2 * uniform[0], uniform[1])

    def clamped(self) -> "KerpleLog":
        """Set parameters outside their bounds to the bounds, as the authors have them after an update.

        Twin of `clamped` of :class:`posattn.reference.KerpleLog`.
        """
        return KerpleLog(*_bounded(self.r1, self.r2))

    def __call__(
        self,
        query_positions: Real[Array, "*#batch n_q"],
        key_positions: Real[Array, "*#batch n_k"],
    ) -> Float[Array, "*batch h n_q n_k"]:
        """Compute the bias of each query and key.

        Twin of calling :class:`posattn.reference.KerpleLog`.

        Args:
            query_positions: any real numbers, `(*batch, n_q)`.
            key_positions: any real numbers, `(*batch, n_k)`.

        Returns:
            `(*batch, num_heads, n_q, n_k)`.
        """
        r1, r2 = map(_wide, _bounded(self.r1, self.r2))
        distances = _distances(query_positions, key_positions, r1.dtype)
        return (-r1 * jnp.log1p(r2 * distances)).astype(self.r1.dtype)


@validated
@register
@dataclass(frozen=True, eq=False)
class KerplePower:
    """A penalty that grows with a power of the distance, with learned strengths for each head.

    Twin of :class:`posattn.reference.KerplePower`; a pytree.
    Dtypes and rounding are those of :class:`KerpleLog`.

    Args:
        r1: $r_1$, `(num_heads)`: the strength.
        r2: $r_2$, `(num_heads)`: the exponent.

    Examples:
        >>> layer = KerplePower.init(jax.random.key(0), 2)
        >>> layer(jnp.arange(3, 6), jnp.arange(6)).shape
        (2, 3, 6)
    """

    r1: Float[Array, " h"]
    r2: Float[Array, " h"]

    @classmethod
    def init(
        cls, rng: Array, num_heads: int, *, dtype: DTypeLike | None = None
    ) -> "KerplePower":
        """Draw `r1` uniformly from 0 to 1 and `r2` from 0 to 2.

        Twin of :meth:`posattn.reference.KerplePower.init`; `rng` is a JAX key.

        Args:
            rng: where the parameters are drawn from.
            num_heads: the number of heads, at least 1.
            dtype: of the parameters; JAX's default one if not given.
        """
        uniform = _uniform(rng, num_heads, dtype)
        return cls(uniform[0], 2 * uniform[1])

    def clamped(self) -> "KerplePower":
        """Set parameters outside their bounds to the bounds, as the authors have them after an update.

        Twin of `clamped` of :class:`posattn.reference.KerplePower`.
        """
        return KerplePower(*_bounded(self.r1, self.r2, 2))

    def __call__(
        self,
        query_positions: Real[Array, "*#batch n_q"],
        key_positions: Real[Array, "*#batch n_k"],
    ) -> Float[Array, "*batch h n_q n_k"]:
        """Compute the bias of each query and key.

        Twin of calling :class:`posattn.reference.KerplePower`.

        Args:
            query_positions: any real numbers, `(*batch, n_q)`.
            key_positions: any real numbers, `(*batch, n_k)`.

        Returns:
            `(*batch, num_heads, n_q, n_k)`.
        """
        r1, r2 = map(_wide, _bounded(self.r1, self.r2, 2))
        distances = _distances(query_positions, key_positions, r1.dtype)
        here = distances == 0
        powers = jnp.where(here, 1, distances) ** r2
        return (-r1 * jnp.where(here, 0, powers)).astype(self.r1.dtype)


def _uniform(rng, num_heads, dtype):
    num_heads = contract.integer("num_heads", num_heads, least=1)
    dtype = jnp.result_type(float if dtype is None else dtype)
    return jax.random.uniform(rng, (2, num_heads), dtype)


def _bounded(r1, r2, most=MOST):
    """Both parameters, of which the second is at most `most`; the derivative passes unbounded."""
    contract.parameter("r2", r2, r1.shape)
    for r, bound in ((r1, MOST), (r2, most)):
        fixed = jax.lax.stop_gradient(r)
        yield jnp.clip(fixed, LEAST, bound) + (r - fixed)


def _wide(r):
    """In float32 at least, with axes for queries and keys."""
    return r.astype(jnp.promote_types(r.dtype, jnp.float32))[:, None, None]


def _distances(query_positions, key_positions, dtype):
    """For every head, `(*batch, 1, n_q, n_k)`."""
    distances = abs(relative_positions(query_positions, key_positions))
    return jnp.asarray(distances, dtype)[..., None, :, :]
