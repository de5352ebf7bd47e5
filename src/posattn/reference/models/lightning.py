"""The lightning indexer: weights of its own that select the keys of an attention."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Inexact, Integer, Real

from posattn import contract
from posattn.reference.attention.heads import split_heads
from posattn.reference.attention.indexer import indexer_scores
from posattn.reference.attention.selection import select_keys
from posattn.reference.validated import validated

__all__ = ["LightningIndexer"]


@validated
@dataclass(frozen=True, eq=False)
class LightningIndexer:
    r"""What selects the keys of a layer, from the tokens: a part of :class:`LatentAttention`.

    .. math:: \mathbf{k} = \operatorname{rotate}(\operatorname{norm}(\mathbf{x}\mathbf{W}^{(k)})), \qquad
        \mathbf{q}_h = \operatorname{rotate}(\mathbf{c}\mathbf{W}^{(q)}_h), \qquad
        w_h = (\mathbf{x}\mathbf{W}^{(w)})_h / \sqrt{H}.

    Here $\mathbf{c}$ is what the layer makes its own queries from, and the norm subtracts the mean, divides
    by the standard deviation and has learned factors and offsets.
    :func:`indexer_scores` turns these into scores, and :func:`select_keys` picks the best keys.
    The choice is no function that has a gradient, so nothing here learns from the attention's output:
    models train their indexers to imitate the attention's weights.

    The layout of the indexer's rotation need not be that of the layer: DeepSeek-V3.2 rotates halves here
    and neighbors there. Only the first entries of a head rotate.

    Args:
        query_weight: $\mathbf{W}^{(q)}$ of all heads, `(d_q, H D)`; `x @ weight` projects.
        key_weight: $\mathbf{W}^{(k)}$, `(d, D)`.
        key_norm_weight: the factors of the norm, `(D)`.
        key_norm_bias: its offsets, `(D)`.
        head_weight: $\mathbf{W}^{(w)}$, `(d, H)`.
        count: how many keys a query reads at most.
        rotate: None, or a function `(x, positions) -> x` of a head's first entries, such as `Rotary()`.
        eps: added to the variance in the norm.

    Examples:
        >>> indexer = LightningIndexer.init(np.random.default_rng(0), 8, 4, 6, count=2)
        >>> x = np.random.default_rng(1).normal(size=(5, 8))
        >>> key = indexer.keys(x, np.arange(5))
        >>> indexer(x, x, key, np.arange(5), causal=True).shape
        (5, 2)

    References:
        :cite:t:`deepseek2025v32`, section 2.1.
    """

    query_weight: Inexact[np.ndarray, "d_q hd"]
    key_weight: Inexact[np.ndarray, "d d_h"]
    key_norm_weight: Inexact[np.ndarray, " d_h"]
    key_norm_bias: Inexact[np.ndarray, " d_h"]
    head_weight: Inexact[np.ndarray, "d h"]
    count: int
    rotate: contract.Rotation | None = None
    eps: float = 1e-6

    @classmethod
    def init(
        cls,
        rng: np.random.Generator,
        dim: int,
        num_heads: int,
        head_dim: int,
        *,
        count: int,
        query_rank: int | None = None,
        rotate: contract.Rotation | None = None,
        eps: float = 1e-6,
    ) -> "LightningIndexer":
        r"""Draw the weights uniformly, within Glorot's bounds: $\pm\sqrt{6/(a + b)}$ from $a$ to $b$ entries.

        Args:
            rng: where the weights are drawn from.
            dim: the width $d$ of the tokens, at least 1.
            num_heads: the number of heads $H$.
            head_dim: the width $D$ of a head.
            count: how many keys a query reads at most, at least 1.
            query_rank: the width of what queries are made from; `dim` if not given.
            rotate: acts on queries and keys, `(x, positions) -> x`, such as `Rotary()`.
            eps: added to the variance in the norm.

        Returns:
            The indexer.

        Raises:
            TypeError: if `rng` is no generator or a number is not of its kind.
            ValueError: if a number lies outside its range.
        """
        _, count, shapes = contract.indexer_sizes(
            dim, num_heads, head_dim, count, query_rank
        )
        weights = {
            f"{name}_weight": rng.uniform(-1, 1, shape) * np.sqrt(6 / sum(shape))
            for name, shape in shapes.items()
        }
        norm = {"key_norm_weight": np.ones(head_dim), "key_norm_bias": np.zeros(head_dim)}
        eps = contract.positive("eps", eps)
        return cls(**weights, **norm, count=count, rotate=rotate, eps=eps)

    def keys(
        self, x: Inexact[np.ndarray, "*batch n d"], positions: Real[np.ndarray, "*#batch n"]
    ) -> Inexact[np.ndarray, "*batch n d_h"]:
        """The keys of tokens, which a cache keeps.

        Args:
            x: `(*batch, n, d)`.
            positions: where the tokens stand, `(n)` or `(*batch, n)`.

        Returns:
            Rotated keys, `(*batch, n, D)`.

        Raises:
            TypeError: if an array is missing or has a wrong dtype.
            ValueError: if shapes do not fit.
        """
        contract.sequence("x", x, self.key_weight.shape[0])
        contract.positions_of(x.shape, positions)
        key = x @ self.key_weight
        key = key - np.mean(key, axis=-1, keepdims=True)
        key = key / np.sqrt(np.mean(key**2, axis=-1, keepdims=True) + self.eps)
        key = key * self.key_norm_weight + self.key_norm_bias
        return self._turn(key[..., None, :, :], positions)[..., 0, :, :]

    def __call__(
        self,
        x: Inexact[np.ndarray, "*batch n d"],
        narrow: Inexact[np.ndarray, "*batch n d_q"],
        key: Inexact[np.ndarray, "*batch n_k d_h"],
        positions: Real[np.ndarray, "*#batch n"],
        *,
        mask: Bool[np.ndarray, "*#batch #n n_k"] | None = None,
        causal: bool = False,
    ) -> Integer[np.ndarray, "*batch n count"]:
        """The keys that each token reads.

        Args:
            x: the tokens, `(*batch, n, d)`.
            narrow: what their queries are made from, `(*batch, n, d_q)`.
            key: what `keys` has returned for all tokens so far, `(*batch, n_k, D)`.
            positions: where the tokens stand, `(n)` or `(*batch, n)`.
            mask: bool, True means may attend; its shape broadcasts to `(*batch, n, n_k)`.
            causal: hide the future; the tokens are aligned to the end of the keys.

        Returns:
            Indices in rising order, then -1, `(*batch, n, min(count, n_k))`.

        Raises:
            TypeError: if an array is missing or has a wrong dtype.
            ValueError: if shapes do not fit.
        """
        contract.indexer_weights(self, x, narrow)
        contract.positions_of(x.shape, positions)
        num_heads = self.head_weight.shape[1]
        query = split_heads(narrow @ self.query_weight, num_heads)
        weights = x @ self.head_weight * num_heads**-0.5
        scores = indexer_scores(self._turn(query, positions), key, weights)
        return select_keys(scores, self.count, mask=mask, causal=causal)

    def _turn(self, x, positions):
        """Rotate `(*batch, h, n, D)`."""
        return x if self.rotate is None else self.rotate(x, positions[..., None, :])
