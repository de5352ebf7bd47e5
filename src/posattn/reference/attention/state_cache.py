"""A cache of a recurrent layer: its state, and the last inputs of its convolution."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Inexact

from posattn import contract
from posattn.reference.validated import validated

__all__ = ["StateCache"]


@validated
@dataclass(frozen=True, eq=False)
class StateCache:
    r"""What a layer with the delta rule keeps of the tokens so far, of the same size after any number.

    A cache of keys and values can forget its last tokens: the rows before them are still there.
    A state can't. Every token has changed all of it, and the change can't be undone.
    To go back, keep the value that a call has returned and continue from it. A call makes a new one and
    leaves the old one as it is.

    `DeltaAttention` takes a cache in its call and returns the next one; its `init_cache` makes an empty
    one.

    Args:
        inputs: the last inputs of the convolution, `(*batch, k - 1, c)`.
        state: $\mathbf{S}$ of each head, `(*batch, h, d_k, d_v)`.

    Examples:
        >>> cache = StateCache.init((), num_heads=1, key_dim=2, value_dim=2, past=3, width=6)
        >>> cache.trim(0) is cache
        True
    """

    inputs: Inexact[np.ndarray, "*batch past c"]
    state: Inexact[np.ndarray, "*batch h d_k d_v"]

    @classmethod
    def init(
        cls,
        batch_shape: int | Sequence[int],
        num_heads: int,
        key_dim: int,
        value_dim: int,
        past: int,
        width: int,
    ) -> "StateCache":
        """Make a cache of no tokens.

        Args:
            batch_shape: the batch axes, `(8,)` or just 8.
            num_heads: the number of heads of values.
            key_dim: the width of a head of keys.
            value_dim: the width of a head of values.
            past: how many inputs of the convolution are kept, one less than its taps.
            width: of the convolution.
        """
        inputs, state = contract.state_shapes(
            batch_shape, num_heads, key_dim, value_dim, past, width
        )
        return cls(np.zeros(inputs), np.zeros(state))

    def trim(self, n: int) -> "StateCache":
        """Forget the newest `n` tokens, which a state can only do for none.

        Args:
            n: how many tokens.

        Returns:
            This cache, if `n` is 0.

        Raises:
            ValueError: if it is not 0: the caches from before are the way back.
        """
        contract.state_trim(n)
        return self
