"""Swin's relative bias: one learned number per head and displacement inside a window of an image."""

from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import DTypeLike
from jaxtyping import Float, Integer

from posattn import contract
from posattn.jax.trees import register
from posattn.jax.validated import validated

__all__ = ["SwinBias"]


@validated
@register
@dataclass(frozen=True, eq=False)
class SwinBias:
    r"""A learned bias for each head and each displacement inside a two-dimensional window.

    Twin of :class:`posattn.reference.SwinBias`; a pytree.
    The gradient of a half-precision table is summed in float32: a row has many pairs.
    Under `jax.jit` a cell outside the window cannot raise: its bias becomes NaN.

    Args:
        table: $\mathbf{T}$, `((2 * height - 1) * (2 * width - 1), num_heads)`.
        height: $M_y$, at least 1.
        width: $M_x$, at least 1.

    Examples:
        >>> layer = SwinBias.init(jax.random.key(0), 2, 4, 4)
        >>> layer(jnp.arange(16), jnp.arange(16)).shape
        (2, 16, 16)
    """

    table: Float[Array, "displacements h"]
    height: int = field(metadata={"static": True})
    width: int = field(metadata={"static": True})

    def __post_init__(self):
        contract.integer("height", self.height, least=1)
        contract.integer("width", self.width, least=1)

    @classmethod
    def init(
        cls,
        rng: Array,
        num_heads: int,
        height: int,
        width: int,
        *,
        dtype: DTypeLike | None = None,
    ) -> "SwinBias":
        """Draw the table from a normal distribution with mean 0 and standard deviation 0.02.

        Twin of :meth:`posattn.reference.SwinBias.init`; `rng` is a JAX key.

        Args:
            rng: where the table is drawn from.
            num_heads: the number of heads, at least 1.
            height: the number of rows of the window, at least 1.
            width: the number of columns of the window, at least 1.
            dtype: of the parameters; JAX's default one if not given.
        """
        num_heads, height, width = contract.sizes(
            num_heads=num_heads, height=height, width=width
        )
        dtype = jnp.result_type(float if dtype is None else dtype)
        shape = ((2 * height - 1) * (2 * width - 1), num_heads)
        return cls(0.02 * jax.random.normal(rng, shape, dtype), height, width)

    def __call__(
        self,
        query_positions: Integer[Array, "*#batch n_q"],
        key_positions: Integer[Array, "*#batch n_k"],
    ) -> Float[Array, "*batch h n_q n_k"]:
        """Look up the bias of each query and key.

        Twin of calling :class:`posattn.reference.SwinBias`.

        Args:
            query_positions: integers from 0 to `height * width - 1`, `(*batch, n_q)`.
            key_positions: integers from 0 to `height * width - 1`, `(*batch, n_k)`.

        Returns:
            `(*batch, num_heads, n_q, n_k)`.
        """
        height, width = self.height, self.width
        displacements = (2 * height - 1) * (2 * width - 1)
        contract.parameter("table", self.table, (displacements, "num_heads"))
        contract.position_pair(query_positions, key_positions, integers=True)
        for name, p in (("query", query_positions), ("key", key_positions)):
            if not isinstance(p, jax.core.Tracer):
                contract.window_positions(f"{name}_positions", np.asarray(p), height, width)
        query, key = (
            query_positions[..., :, None].astype(int),
            key_positions[..., None, :].astype(int),
        )
        row = query // width - key // width + height - 1
        column = query % width - key % width + width - 1
        outside = (jnp.minimum(query, key) < 0) | (
            jnp.maximum(query, key) >= height * width
        )
        index = jnp.where(outside, displacements, row * (2 * width - 1) + column)
        table = self.table.astype(jnp.promote_types(self.table.dtype, jnp.float32))
        bias = table.at[index].get(mode="fill", fill_value=jnp.nan)
        return jnp.moveaxis(bias, -1, -3).astype(self.table.dtype)
