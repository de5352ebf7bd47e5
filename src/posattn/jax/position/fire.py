"""FIRE: a small network that reads how far back a key lies on the way to the first token."""

import math
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import DTypeLike
from jaxtyping import Float, Real

from posattn import contract
from posattn.jax.attention.masks import relative_positions
from posattn.jax.trees import register
from posattn.jax.validated import validated

__all__ = ["FIRE"]

EPSILON = 1e-6  # of the authors, beside a divisor that may be 0


@validated
@register
@dataclass(frozen=True, eq=False)
class FIRE:
    r"""A learned function of the distance, divided by the distance to the first token.

    Twin of :class:`posattn.reference.FIRE`; a pytree.
    Half-precision parameters are used in float32, as distances need it; the bias has their dtype.
    Up to position 2**20 its error is below 2e-6 of the largest value in float32.

    Args:
        c: $c$, a number, `()`: how far the logarithm bends.
        multiplier: $\mu$, a number, `()`: the learned part of the threshold.
        hidden_weight: $\mathbf{w}_1$, `(m)`.
        hidden_bias: $\mathbf{b}_1$, `(m)`.
        output_weight: $\mathbf{W}_2$, `(m, num_heads)`.
        output_bias: $\mathbf{b}_2$, `(num_heads)`.
        threshold: $L_0$ in positions, the first value of $L$, positive.

    Examples:
        >>> layer = FIRE.init(jax.random.key(0), 2)
        >>> layer(jnp.arange(3, 6), jnp.arange(6)).shape
        (2, 3, 6)
    """

    c: Float[Array, ""]
    multiplier: Float[Array, ""]
    hidden_weight: Float[Array, " m"]
    hidden_bias: Float[Array, " m"]
    output_weight: Float[Array, "m h"]
    output_bias: Float[Array, " h"]
    threshold: float = field(default=512.0, metadata={"static": True})

    def __post_init__(self):
        contract.positive("threshold", self.threshold)

    @classmethod
    def init(
        cls,
        rng: Array,
        num_heads: int,
        *,
        hidden_dim: int = 32,
        threshold: float = 512.0,
        dtype: DTypeLike | None = None,
    ) -> "FIRE":
        """Begin with `c` of 0.1, `multiplier` of 1, and weights drawn uniformly.

        Twin of :meth:`posattn.reference.FIRE.init`; `rng` is a JAX key.

        Args:
            rng: where the weights are drawn from.
            num_heads: the number of heads, at least 1.
            hidden_dim: the width $m$ of the hidden layer, at least 1.
            threshold: $L_0$ in positions, positive.
            dtype: of the parameters; JAX's default one if not given.
        """
        num_heads, hidden_dim = contract.sizes(num_heads=num_heads, hidden_dim=hidden_dim)
        dtype = jnp.result_type(float if dtype is None else dtype)
        of_hidden, of_output = jax.random.split(rng)
        hidden = jax.random.uniform(of_hidden, (2, hidden_dim), dtype, -1, 1)
        bound = 1 / math.sqrt(hidden_dim)
        shape = (hidden_dim + 1, num_heads)
        output = jax.random.uniform(of_output, shape, dtype, -bound, bound)
        c, multiplier = jnp.array(0.1, dtype), jnp.array(1.0, dtype)
        return cls(c, multiplier, *hidden, output[:-1], output[-1], threshold)

    def __call__(
        self,
        query_positions: Real[Array, "*#batch n_q"],
        key_positions: Real[Array, "*#batch n_k"],
    ) -> Float[Array, "*batch h n_q n_k"]:
        """Compute the bias of each query and key.

        Twin of calling :class:`posattn.reference.FIRE`.

        Args:
            query_positions: any real numbers, `(*batch, n_q)`.
            key_positions: any real numbers, `(*batch, n_k)`.

        Returns:
            `(*batch, num_heads, n_q, n_k)`.
        """
        contract.network(
            self.hidden_weight, self.hidden_bias, self.output_weight, self.output_bias
        )
        wide = jnp.promote_types(self.c.dtype, jnp.float32)
        distances = jnp.asarray(
            abs(relative_positions(query_positions, key_positions)), wide
        )
        least = _absolute(self.multiplier.astype(wide)) * self.threshold
        furthest = query_positions.astype(wide)
        furthest = jnp.where(furthest > least, furthest, least)
        c = _absolute(self.c.astype(wide))
        divisor = jnp.log1p(c * furthest) + EPSILON
        ratios = jnp.log1p(c * distances) / divisor[..., :, None]
        hidden = ratios[..., None] * self.hidden_weight.astype(wide)
        hidden = jax.nn.relu(hidden + self.hidden_bias.astype(wide))
        output_weight = self.output_weight.astype(wide)
        bias = jnp.matmul(hidden, output_weight, precision="highest")
        bias = bias + self.output_bias.astype(wide)
        return jnp.moveaxis(bias, -1, -3).astype(self.c.dtype)


def _absolute(x):
    """With the slope 0 at 0, as in PyTorch; that of `abs` is 1 there."""
    return x * jnp.sign(x)
