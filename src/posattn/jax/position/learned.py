"""Learned positional encoding: one row of parameters per position."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import DTypeLike
from jaxtyping import Float, Integer

from posattn import contract
from posattn.jax.trees import register
from posattn.jax.validated import validated

__all__ = ["LearnedPositionalEncoding"]


@validated
@register
@dataclass(frozen=True, eq=False)
class LearnedPositionalEncoding:
    r"""Add to each token a learned vector that belongs to its position.

    Twin of :class:`posattn.reference.LearnedPositionalEncoding`; a pytree.
    Under `jax.jit` a position outside the table cannot raise: its token becomes NaN.

    Args:
        table: $\mathbf{T}$, `(max_len, d)` with $n_{\max}$ = `max_len`.

    Examples:
        >>> layer = LearnedPositionalEncoding.init(jax.random.key(0), 10, 4)
        >>> layer(jnp.zeros((2, 3, 4))).shape
        (2, 3, 4)
    """

    table: Float[Array, "max_len d"]

    @classmethod
    def init(
        cls, rng: Array, max_len: int, dim: int, *, dtype: DTypeLike | None = None
    ) -> "LearnedPositionalEncoding":
        r"""Draw the table from a normal distribution with mean 0 and standard deviation 0.02.

        Twin of :meth:`posattn.reference.LearnedPositionalEncoding.init`; `rng` is a JAX key.

        Args:
            rng: where the table is drawn from.
            max_len: $n_{\max}$, the number of positions, at least 1.
            dim: the width, at least 1.
            dtype: of the parameters; JAX's default one if not given.
        """
        max_len, dim = contract.sizes(max_len=max_len, dim=dim)
        dtype = jnp.result_type(float if dtype is None else dtype)
        return cls(0.02 * jax.random.normal(rng, (max_len, dim), dtype))

    def __call__(
        self,
        x: Float[Array, "*batch n d"],
        *,
        positions: Integer[Array, "*#batch n"] | None = None,
    ) -> Float[Array, "*batch n d"]:
        r"""Add the rows of the table to a sequence.

        Twin of calling :class:`posattn.reference.LearnedPositionalEncoding`.

        Args:
            x: `(*batch, n, d)`, with $n \le n_{\max}$ unless `positions` are given.
            positions: where the tokens stand, integers from 0 to $n_{\max} - 1$, `(n)` or
                `(*batch, n)`; $0, \ldots, n - 1$ if not given.

        Returns:
            `(*batch, n, d)`.
        """
        max_len, dim = self.table.shape
        contract.sequence("x", x, dim)
        contract.positions_of(x.shape, positions)
        if positions is None:
            contract.table_length(x.shape[-2], max_len)
            return x + self.table[: x.shape[-2]].astype(x.dtype)
        contract.table_rows(
            positions, max_len, known=not isinstance(positions, jax.core.Tracer)
        )
        rows = self.table.at[positions].get(
            mode="fill", fill_value=jnp.nan, wrap_negative_indices=False
        )
        return x + rows.astype(x.dtype)
