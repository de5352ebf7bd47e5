"""TUPE: positions attend to positions, through their own projections."""

from dataclasses import KW_ONLY, dataclass, field

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import DTypeLike
from jaxtyping import Float, Integer

from posattn import contract
from posattn.jax.attention.heads import split_heads
from posattn.jax.trees import register
from posattn.jax.validated import validated

__all__ = ["TUPEBias"]


@validated
@register
@dataclass(frozen=True, eq=False)
class TUPEBias:
    r"""TUPE's term of the score: absolute positions attend to each other, apart from the content.

    Twin of :class:`posattn.reference.TUPEBias`; a pytree.
    Under `jax.jit` a position outside the table cannot raise: its scores become NaN.

    Args:
        table: $\mathbf{T}$, `(max_len, d)` with $n_{\max}$ = `max_len`.
        query_weight: $\mathbf{U}^{(q)}$, `(d, h * d_h)`, the columns of head after head.
        key_weight: $\mathbf{U}^{(k)}$, `(d, h * d_h)`.
        cls_bias: $\theta_1$ and $\theta_2$ of each head, `(2, h)`, or None for no reset.
        num_heads: the number of heads, a divisor of the columns.

    Examples:
        >>> bias = TUPEBias.init(jax.random.key(0), 10, dim=6, num_heads=3, use_cls=True)
        >>> bias(jnp.arange(2), jnp.arange(5)).shape
        (3, 2, 5)
        >>> bias.scale
        0.5
    """

    table: Float[Array, "max_len d"]
    query_weight: Float[Array, "d width"]
    key_weight: Float[Array, "d width"]
    cls_bias: Float[Array, "2 h"] | None = None
    _: KW_ONLY
    num_heads: int = field(metadata={"static": True})

    def __post_init__(self):
        contract.integer("num_heads", self.num_heads, least=1)

    @classmethod
    def init(
        cls,
        rng: Array,
        max_len: int,
        dim: int,
        num_heads: int,
        *,
        use_cls: bool = False,
        dtype: DTypeLike | None = None,
    ) -> "TUPEBias":
        r"""Draw table and weights from a normal distribution with standard deviation 0.02.

        Twin of :meth:`posattn.reference.TUPEBias.init`; `rng` is a JAX key.

        Args:
            rng: where the parameters are drawn from.
            max_len: $n_{\max}$, the number of positions, at least 1.
            dim: the width $d$ of the layer, and of the table, at least 1.
            num_heads: the number of heads, a divisor of `dim`.
            use_cls: whether position 0 holds [CLS]; $\theta$ starts at 0.
            dtype: of the parameters; JAX's default one if not given.
        """
        max_len, dim = contract.sizes(max_len=max_len, dim=dim)
        num_heads = contract.heads(num_heads, dim)
        dtype = jnp.result_type(float if dtype is None else dtype)
        drawn = 0.02 * jax.random.normal(rng, (max_len + 2 * dim, dim), dtype)
        weights = drawn[max_len:].reshape(2, dim, dim)
        cls_bias = jnp.zeros((2, num_heads), dtype) if use_cls else None
        return cls(drawn[:max_len], *weights, cls_bias, num_heads=num_heads)

    @property
    def scale(self) -> float:
        """The factor of both terms, which the attention must be given."""
        return (2 * self.key_weight.shape[1] / self.num_heads) ** -0.5

    def __call__(
        self,
        query_positions: Integer[Array, "*#batch n_q"],
        key_positions: Integer[Array, "*#batch n_k"],
    ) -> Float[Array, "*batch_and_heads n_q n_k"]:
        r"""What is added to the scores.

        Twin of calling :class:`posattn.reference.TUPEBias`.

        Args:
            query_positions: where the queries stand, integers from 0 to $n_{\max} - 1$, `(n_q)` or
                `(*batch, n_q)`.
            key_positions: where the keys stand, likewise, `(n_k)` or `(*batch, n_k)`.

        Returns:
            `(h, n_q, n_k)`, or `(*batch, h, n_q, n_k)` if positions have batch axes.
        """
        contract.untied(
            self.table, self.query_weight, self.key_weight, self.cls_bias, self.num_heads
        )
        contract.position_pair(query_positions, key_positions, integers=True)
        for name, where in (
            ("query_positions", query_positions),
            ("key_positions", key_positions),
        ):
            known = not isinstance(where, jax.core.Tracer)
            contract.table_rows(where, len(self.table), known=known, name=name)
        queries, keys = (
            split_heads(self._rows(where) @ weight, self.num_heads)
            for where, weight in (
                (query_positions, self.query_weight),
                (key_positions, self.key_weight),
            )
        )
        scores = queries @ keys.mT * self.scale
        if self.cls_bias is None:
            return scores
        from_cls, to_cls = self.cls_bias[..., None, None]
        scores = jnp.where((key_positions == 0)[..., None, None, :], to_cls, scores)
        return jnp.where((query_positions == 0)[..., None, :, None], from_cls, scores)

    def _rows(self, positions):
        return self.table.at[positions].get(
            mode="fill", fill_value=jnp.nan, wrap_negative_indices=False
        )
