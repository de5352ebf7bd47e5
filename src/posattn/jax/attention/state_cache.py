"""A cache of a recurrent layer: its state, and the last inputs of its convolution."""

from collections.abc import Sequence
from dataclasses import dataclass

import jax.numpy as jnp
from jax import Array
from jax.typing import DTypeLike
from jaxtyping import Float

from posattn import contract
from posattn.jax.trees import register
from posattn.jax.validated import validated

__all__ = ["StateCache"]


@validated
@register
@dataclass(frozen=True, eq=False)
class StateCache:
    """What a layer with the delta rule keeps of the tokens so far, of the same size after any number.

    Twin of :class:`posattn.reference.StateCache`; a pytree whose leaves are the arrays.

    Args:
        inputs: the last inputs of the convolution, `(*batch, k - 1, c)`.
        state: of each head, `(*batch, h, d_k, d_v)`, float32 or float64.

    Examples:
        >>> cache = StateCache.init((), num_heads=1, key_dim=2, value_dim=2, past=3, width=6)
        >>> cache.trim(0) is cache
        True
    """

    inputs: Float[Array, "*batch past c"]
    state: Float[Array, "*batch h d_k d_v"]

    @classmethod
    def init(
        cls,
        batch_shape: int | Sequence[int],
        num_heads: int,
        key_dim: int,
        value_dim: int,
        past: int,
        width: int,
        *,
        dtype: DTypeLike | None = None,
    ) -> "StateCache":
        """Make a cache of no tokens.

        Twin of :meth:`posattn.reference.StateCache.init`.

        Args:
            batch_shape: the batch axes, `(8,)` or just 8.
            num_heads: the number of heads of values.
            key_dim: the width of a head of keys.
            value_dim: the width of a head of values.
            past: how many inputs of the convolution are kept, one less than its taps.
            width: of the convolution.
            dtype: of the inputs; JAX's default one if not given. The state has 32 bits at least.
        """
        inputs, state = contract.state_shapes(
            batch_shape, num_heads, key_dim, value_dim, past, width
        )
        dtype = jnp.result_type(float if dtype is None else dtype)
        wide = jnp.promote_types(dtype, jnp.float32)
        return cls(jnp.zeros(inputs, dtype), jnp.zeros(state, wide))

    def trim(self, n: int) -> "StateCache":
        """Forget the newest `n` tokens, which a state can only do for none.

        Twin of :meth:`posattn.reference.StateCache.trim`.

        Args:
            n: how many tokens.

        Returns:
            This cache, if `n` is 0.
        """
        contract.state_trim(n)
        return self
