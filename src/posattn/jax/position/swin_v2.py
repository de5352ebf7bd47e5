"""Swin V2's continuous bias: a small network reads the displacement inside a window of an image."""

from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import DTypeLike
from jaxtyping import Float, Integer

from posattn import contract
from posattn.jax.position.swin import SwinBias
from posattn.jax.trees import register
from posattn.jax.validated import validated

__all__ = ["SwinV2Bias"]


@validated
@register
@dataclass(frozen=True, eq=False)
class SwinV2Bias:
    """A learned function of the displacement inside a window, which also works for a larger window.

    Twin of :class:`posattn.reference.SwinV2Bias`; a pytree.
    Half-precision parameters are used in float32; the bias has their dtype.
    Under `jax.jit` a cell outside the window cannot raise: its bias becomes NaN.

    Args:
        hidden_weight: `(2, m)`: rows, then columns of the image.
        hidden_bias: `(m)`.
        output_weight: `(m, num_heads)`.
        height: the number of rows of the window, at least 1; static, as are the next three.
        width: the number of columns of the window, at least 1.
        trained_height: the number of rows in training, `height` if not given.
        trained_width: the number of columns in training, `width` if not given.

    Examples:
        >>> rng = jax.random.key(0)
        >>> layer = SwinV2Bias.init(rng, 2, 8, 8, trained_height=4, trained_width=4)
        >>> layer(jnp.arange(64), jnp.arange(64)).shape
        (2, 64, 64)
    """

    hidden_weight: Float[Array, "2 m"]
    hidden_bias: Float[Array, " m"]
    output_weight: Float[Array, "m h"]
    height: int = field(metadata={"static": True})
    width: int = field(metadata={"static": True})
    trained_height: int | None = field(default=None, metadata={"static": True})
    trained_width: int | None = field(default=None, metadata={"static": True})

    def __post_init__(self):
        contract.integer("height", self.height, least=1)
        contract.integer("width", self.width, least=1)
        for name in ("trained_height", "trained_width"):
            if getattr(self, name) is not None:
                contract.integer(name, getattr(self, name), least=1)

    @classmethod
    def init(
        cls,
        rng: Array,
        num_heads: int,
        height: int,
        width: int,
        *,
        trained_height: int | None = None,
        trained_width: int | None = None,
        hidden_dim: int = 512,
        dtype: DTypeLike | None = None,
    ) -> "SwinV2Bias":
        """Draw the weights from a normal distribution with standard deviation 0.02; the offset is zero.

        Twin of :meth:`posattn.reference.SwinV2Bias.init`.

        Args:
            rng: a JAX key, from which the weights are drawn.
            num_heads: the number of heads, at least 1.
            height: the number of rows of the window, at least 1.
            width: the number of columns of the window, at least 1.
            trained_height: the number of rows in training, `height` if not given.
            trained_width: the number of columns in training, `width` if not given.
            hidden_dim: the width of the hidden layer, at least 1.
            dtype: of the parameters, JAX's default one if not given.
        """
        num_heads, hidden_dim = contract.sizes(num_heads=num_heads, hidden_dim=hidden_dim)
        dtype = jnp.result_type(float if dtype is None else dtype)
        of_hidden, of_output = jax.random.split(rng)
        hidden_weight = 0.02 * jax.random.normal(of_hidden, (2, hidden_dim), dtype)
        shape = (hidden_dim, num_heads)
        output_weight = 0.02 * jax.random.normal(of_output, shape, dtype)
        sides = height, width, trained_height, trained_width
        return cls(hidden_weight, jnp.zeros(hidden_dim, dtype), output_weight, *sides)

    def __call__(
        self,
        query_positions: Integer[Array, "*#batch n_q"],
        key_positions: Integer[Array, "*#batch n_k"],
    ) -> Float[Array, "*batch h n_q n_k"]:
        """Compute the bias of each query and key.

        Twin of calling :class:`posattn.reference.SwinV2Bias`.

        Args:
            query_positions: integers from 0 to `height * width - 1`, `(*batch, n_q)`.
            key_positions: integers from 0 to `height * width - 1`, `(*batch, n_k)`.

        Returns:
            `(*batch, num_heads, n_q, n_k)`.
        """
        contract.window_network(self.hidden_weight, self.hidden_bias, self.output_weight)
        wide = jnp.promote_types(self.hidden_weight.dtype, jnp.float32)
        rows = _coordinates(self.height, self.trained_height)
        columns = _coordinates(self.width, self.trained_width)
        along, across = np.meshgrid(rows, columns, indexing="ij")
        displacements = np.stack([along.ravel(), across.ravel()], axis=-1)
        hidden = jnp.matmul(
            jnp.asarray(displacements, wide),
            self.hidden_weight.astype(wide),
            precision="highest",
        )
        hidden = jax.nn.relu(hidden + self.hidden_bias.astype(wide))
        output_weight = self.output_weight.astype(wide)
        table = 16 * jax.nn.sigmoid(jnp.matmul(hidden, output_weight, precision="highest"))
        bias = SwinBias(table, self.height, self.width)(query_positions, key_positions)
        return bias.astype(self.hidden_weight.dtype)


def _coordinates(side, trained):
    """The displacements along one side, as the network reads them, in float64."""
    trained = side if trained is None else trained
    steps = 8 * np.arange(1 - side, side) / max(trained - 1, 1)
    return np.sign(steps) * np.log2(1 + np.abs(steps)) / 3
