"""Transformer-XL: attention by content and by distance, with two queries that are the same everywhere."""

import math
from dataclasses import KW_ONLY, dataclass, field

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import DTypeLike
from jaxtyping import Float, Real

from posattn import contract
from posattn.jax.position.sinusoidal import sinusoidal_encoding
from posattn.jax.trees import register
from posattn.jax.validated import validated

__all__ = ["TransformerXLBias"]


@validated
@register
@dataclass(frozen=True, eq=False)
class TransformerXLBias:
    r"""Transformer-XL's terms of the score: relative position, and preferences of every query.

    Twin of :class:`posattn.reference.TransformerXLBias`; a pytree.
    Instead of shifting a matrix of products, which needs tokens without gaps, it splits the sinusoids
    of a distance into those of query and key: $\cos(i - j) = \cos i \cos j + \sin i \sin j$.
    So it takes any positions and never holds a vector per pair, at the price of products as wide as
    the layer for each head.
    Whole positions count from the first key.
    So float64 agrees with the reference to about $10^{-16}$ times the largest distance, and float32 to
    $2 \cdot 10^{-6}$ of the largest score for distances up to $2^{20}$.

    Args:
        content_bias: $\mathbf{u}$, `(h, d_h)`.
        position_bias: $\mathbf{v}$, `(h, d_h)`.
        weight: $\mathbf{W}$, `(d, h * d_h)`, the columns of head after head; $d$, the width of the
            sinusoids, is even.
        base: $b$ of the frequencies of the sinusoids, positive.

    Examples:
        >>> bias = TransformerXLBias.init(jax.random.key(0), dim=6, num_heads=3)
        >>> query = key = jnp.ones((3, 5, 2))
        >>> bias.scores(query, key, jnp.arange(5), jnp.arange(5)).shape
        (3, 5, 5)
    """

    needs_all_keys = False
    content_bias: Float[Array, "h d_h"]
    position_bias: Float[Array, "h d_h"]
    weight: Float[Array, "d width"]
    _: KW_ONLY
    base: float = field(default=10000.0, metadata={"static": True})

    def __post_init__(self):
        contract.base(self.base)

    @classmethod
    def init(
        cls,
        rng: Array,
        dim: int,
        num_heads: int,
        *,
        base: float = 10000.0,
        dtype: DTypeLike | None = None,
    ) -> "TransformerXLBias":
        """Draw all parameters from a normal distribution with standard deviation 0.02.

        Twin of :meth:`posattn.reference.TransformerXLBias.init`; `rng` is a JAX key.

        Args:
            rng: where the parameters are drawn from.
            dim: the width $d$ of the layer, and of the sinusoids, even.
            num_heads: the number of heads, a divisor of `dim`.
            base: $b$ of the frequencies, positive.
            dtype: of the parameters; JAX's default one if not given.
        """
        dim = contract.integer("dim", dim, least=1, even=True)
        num_heads = contract.heads(num_heads, dim)
        dtype = jnp.result_type(float if dtype is None else dtype)
        drawn = 0.02 * jax.random.normal(rng, (dim + 2, dim), dtype)
        biases = drawn[:2].reshape(2, num_heads, dim // num_heads)
        return cls(*biases, drawn[2:], base=base)

    def scores(
        self,
        query: Float[Array, "*batch h n_q d_h"],
        key: Float[Array, "*batch h n_k d_h"],
        query_positions: Real[Array, "*#batch n_q"],
        key_positions: Real[Array, "*#batch n_k"],
    ) -> Float[Array, "*batch h n_q n_k"]:
        """What is added to the scores, the last three terms.

        Twin of :meth:`posattn.reference.TransformerXLBias.scores`.

        Args:
            query: the queries of each head, `(*batch, h, n_q, d_h)`.
            key: the keys, `(*batch, h, n_k, d_h)`.
            query_positions: where the queries stand, `(n_q)` or `(*batch, n_q)`.
            key_positions: where the keys stand, `(n_k)` or `(*batch, n_k)`.

        Returns:
            `(*batch, h, n_q, n_k)`.
        """
        num_heads, head_dim = self.content_bias.shape
        contract.parameter("position_bias", self.position_bias, (num_heads, head_dim))
        contract.tile(query, key, query_positions, key_positions, head_dim,
                      num_heads=num_heads)  # fmt: skip
        dim = contract.sinusoid_weight(self.weight, num_heads * head_dim)
        wide = jnp.promote_types(query.dtype, jnp.float32)
        u, v, weight = (
            p.astype(wide) for p in (self.content_bias, self.position_bias, self.weight)
        )
        at_query, at_key = (
            sinusoidal_encoding(p, dim, base=self.base, dtype=wide)[..., None, :, :]
            for p in _from_first(query_positions, key_positions)
        )
        projections = weight.reshape(dim, num_heads, head_dim).transpose(1, 2, 0)
        asked = (query.astype(wide) + v[:, None]) @ projections
        scores = _turn(asked, at_query) @ at_key.mT
        scores += jnp.einsum("hd,...hjd->...hj", u, key.astype(wide))[..., None, :]
        return (scores / math.sqrt(head_dim)).astype(query.dtype)


def _from_first(query_positions, key_positions):
    """The positions, counted from the first key if that is exact: if all are integers."""
    whole = all(
        jnp.issubdtype(p.dtype, jnp.integer) for p in (query_positions, key_positions)
    )
    if not (whole and key_positions.size):
        return query_positions, key_positions
    queries, keys = query_positions.astype(int), key_positions.astype(int)
    return queries - keys[..., :1], keys - keys[..., :1]


def _turn(asked, encoding):
    """What a query asks of sines and cosines of distances, asked of those of the keys' positions."""
    asked_sin, asked_cos = asked[..., ::2], asked[..., 1::2]
    sin, cos = encoding[..., ::2], encoding[..., 1::2]
    of_sin, of_cos = asked_cos * sin - asked_sin * cos, asked_sin * sin + asked_cos * cos
    return jnp.stack([of_sin, of_cos], axis=-1).reshape(asked.shape)
