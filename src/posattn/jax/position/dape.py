"""DAPE: a bias that a small network adapts to the scores of the same pair of tokens."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import DTypeLike
from jaxtyping import Float, Real

from posattn import contract
from posattn.jax.trees import as_pytree, register
from posattn.jax.validated import validated

__all__ = ["DAPE"]


@validated
@register
@dataclass(frozen=True, eq=False)
class DAPE:
    r"""A bias, corrected by a network that sees the scores and the bias of all heads.

    Twin of :class:`posattn.reference.DAPE`; a pytree.
    `bias` is part of the tree, so it may be a pytree with its own parameters.
    Half-precision heads are scored, and run through the network, in float32.

    Args:
        bias: the bias to adapt, a function `(query_positions, key_positions)` that returns
            `(h, n_q, n_k)` or `(*batch, h, n_q, n_k)`.
        hidden_weight: `(2 h, m)`: the scores of all heads, then their biases.
        hidden_bias: `(m)`.
        output_weight: `(m, h)`.
        output_bias: `(h)`.

    Examples:
        >>> from posattn.jax import ALiBi
        >>> layer = DAPE.init(jax.random.key(0), 2, ALiBi(2))
        >>> query, key = jnp.ones((2, 1, 4)), jnp.ones((2, 3, 4))
        >>> layer.scores(query, key, jnp.array([2]), jnp.arange(3)).shape
        (2, 1, 3)
    """

    needs_all_keys = False
    bias: Callable
    hidden_weight: Float[Array, "two_h m"]
    hidden_bias: Float[Array, " m"]
    output_weight: Float[Array, "m h"]
    output_bias: Float[Array, " h"]

    def __post_init__(self):
        object.__setattr__(self, "bias", as_pytree(self.bias))

    @classmethod
    def init(
        cls,
        rng: Array,
        num_heads: int,
        bias: Callable,
        *,
        hidden_dim: int = 32,
        dtype: DTypeLike | None = None,
    ) -> "DAPE":
        """Draw the network uniformly, as the authors do.

        Twin of :meth:`posattn.reference.DAPE.init`.

        Args:
            rng: a JAX key, from which the network is drawn.
            num_heads: the number of heads, at least 1.
            bias: the bias to adapt, `(query_positions, key_positions) -> (num_heads, n_q, n_k)`.
            hidden_dim: the width of the hidden layer, at least 1.
            dtype: of the network, JAX's default one if not given.
        """
        num_heads, hidden_dim = contract.sizes(num_heads=num_heads, hidden_dim=hidden_dim)
        contract.function_of_positions("bias", bias)
        dtype = jnp.result_type(float if dtype is None else dtype)
        parameters = []
        for of_layer, inputs, outputs in zip(
            jax.random.split(rng),
            (2 * num_heads, hidden_dim),
            (hidden_dim, num_heads),
            strict=True,
        ):
            bound = 1 / math.sqrt(inputs)
            shape = (inputs + 1, outputs)
            drawn = jax.random.uniform(of_layer, shape, dtype, -bound, bound)
            parameters += drawn[:-1], drawn[-1]
        return cls(bias, *parameters)

    def scores(
        self,
        query: Float[Array, "*batch h n_q d_h"],
        key: Float[Array, "*batch h n_k d_h"],
        query_positions: Real[Array, "*#batch n_q"],
        key_positions: Real[Array, "*#batch n_k"],
    ) -> Float[Array, "*batch h n_q n_k"]:
        r"""What is added to the scaled scores.

        Twin of `scores` of :class:`posattn.reference.DAPE`.

        Args:
            query: the queries of each head, not yet scaled, `(*batch, h, n_q, d_h)`.
            key: the keys of each head, `(*batch, h, n_k, d_h)`.
            query_positions: where the queries stand, `(n_q)` or `(*batch, n_q)`.
            key_positions: where the keys stand, `(n_k)` or `(*batch, n_k)`.

        Returns:
            `(*batch, h, n_q, n_k)`.
        """
        network = self.hidden_weight, self.hidden_bias, self.output_weight, self.output_bias
        num_heads = contract.head_network(*network)
        contract.head_sequence("query", query)
        where = query_positions, key_positions
        contract.tile(query, key, *where, query.shape[-1], num_heads=num_heads)
        wide = jnp.promote_types(query.dtype, jnp.float32)
        matmul = partial(jnp.matmul, precision="highest")
        products = matmul(query.astype(wide), key.astype(wide).mT)
        products = products / math.sqrt(query.shape[-1])
        bias = self.bias(*where)
        contract.base_bias(bias, products.shape)
        bias = jnp.zeros_like(products) + bias.astype(wide)  # spread over devices alike
        w1, b1, w2, b2 = (parameter.astype(wide) for parameter in network)
        features = jnp.moveaxis(jnp.concatenate([products, bias], axis=-3), -3, -1)
        hidden = matmul(features, w1) + b1
        hidden = jnp.where(hidden > 0, hidden, hidden / 100)
        added = jnp.moveaxis(matmul(hidden, w2) + b2, -1, -3)
        return (bias + added).astype(query.dtype)
