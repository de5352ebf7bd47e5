"""Multi-head attention: several attentions side by side, each in its own projection."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Inexact, Num

from posattn import contract
from posattn.reference.attention import (
    attention_weights,
    dropout,
    mask_and_bias,
    scaled_dot_product_attention,
    zero_unattended,
)

__all__ = ["MultiHeadAttention", "merge_heads", "split_heads"]


def split_heads(
    x: Num[np.ndarray, "*batch n d"], num_heads: int
) -> Num[np.ndarray, "*batch h n d_h"]:
    r"""Cut the width into heads and make the heads a batch axis.

    Head $h$ gets the columns $h d_h, \ldots, (h + 1) d_h - 1$ with $d_h = d / H$.

    Args:
        x: `(*batch, n, d)`.
        num_heads: the number of heads $H$, a divisor of $d$.

    Returns:
        `(*batch, H, n, d / H)`.

    Raises:
        TypeError: if `x` is not floating or `num_heads` is not an integer.
        ValueError: if `x` has fewer than two axes or `num_heads` does not divide its width.

    Examples:
        >>> split_heads(np.array([[0.0, 1.0, 2.0, 3.0]]), 2)
        array([[[0., 1.]],
        <BLANKLINE>
               [[2., 3.]]])

    References:
        :cite:t:`Vaswani.Shazeer.Parmar.ea.2017`, section 3.2.2.
    """
    contract.sequence("x", x)
    *batch, n, d = x.shape
    num_heads = contract.heads(num_heads, d)
    return np.swapaxes(x.reshape(*batch, n, num_heads, d // num_heads), -3, -2)


def merge_heads(x: Num[np.ndarray, "*batch h n d_h"]) -> Num[np.ndarray, "*batch n d"]:
    r"""Put the heads back side by side: the inverse of `split_heads`.

    Args:
        x: `(*batch, H, n, d_h)`.

    Returns:
        `(*batch, n, H d_h)`.

    Raises:
        TypeError: if `x` is not floating.
        ValueError: if `x` has fewer than three axes.

    Examples:
        >>> merge_heads(np.array([[[0.0, 1.0]], [[2.0, 3.0]]]))
        array([[0., 1., 2., 3.]])
    """
    contract.head_sequence("x", x)
    *batch, num_heads, n, head_dim = x.shape
    return np.swapaxes(x, -3, -2).reshape(*batch, n, num_heads * head_dim)


@dataclass(frozen=True, eq=False)
class MultiHeadAttention:
    r"""Several attentions side by side, each in its own projection of the input.

    .. math:: \operatorname{MultiHead}(\mathbf{Q}, \mathbf{K}, \mathbf{V}) =
        [\mathbf{H}_0, \ldots, \mathbf{H}_{H-1}]\,\mathbf{W}^{(o)}, \qquad
        \mathbf{H}_h = \operatorname{softmax}\left(\frac{\mathbf{Q}_h\mathbf{K}_h^\top}{\sqrt{d_h}}
        + \mathbf{B}_h\right)\mathbf{V}_h,

    where $\mathbf{Q}_h, \mathbf{K}_h, \mathbf{V}_h$ are the columns of head $h$ in
    $\mathbf{Q}\mathbf{W}^{(q)}$, $\mathbf{K}\mathbf{W}^{(k)}$ and $\mathbf{V}\mathbf{W}^{(v)}$, and
    $d_h = d / H$.
    Self-attention is the case in which queries, keys and values are the same sequence.

    A positional scheme enters through two callables: `rotate(x, positions)` acts on the
    queries and keys of each head, and `bias(query_positions, key_positions)` returns what is
    added to the scores, `(H, n_q, n_k)`.
    Where queries and keys need different functions, `rotate` is a pair of them.
    A scheme that depends on content is a `bias` with a method
    `scores(query, key, query_positions, key_positions)` in the place of the call, and where it
    changes the values as well, with `values(weights, query_positions, key_positions)`, which is
    added to the output of the heads.

    Make a layer with `MultiHeadAttention.init(rng, dim, num_heads)`, or from weights that exist.

    Args:
        query_weight: $\mathbf{W}^{(q)}$, `(d, d)`; `x @ weight` projects.
        key_weight: $\mathbf{W}^{(k)}$, `(d, d)`.
        value_weight: $\mathbf{W}^{(v)}$, `(d, d)`.
        output_weight: $\mathbf{W}^{(o)}$, `(d, d)`.
        query_bias: `(d)`, or None for a projection without an offset; likewise the next three.
        key_bias: `(d)` or None.
        value_bias: `(d)` or None.
        output_bias: `(d)` or None.
        num_heads: $H$, a divisor of $d$.
        dropout_rate: probability in [0, 1) of dropping an attention weight.
        rotate: None, a function `(x, positions) -> x`, or a pair of them for queries and keys.
        bias: None, a function `(query_positions, key_positions) -> (H, n_q, n_k)`, or an object
            with a method `scores`.
        scale: the factor on $\mathbf{Q}_h\mathbf{K}_h^\top$, $1/\sqrt{d_h}$ if not given.

    Examples:
        >>> layer = MultiHeadAttention.init(np.random.default_rng(0), 8, 2)
        >>> x = np.random.default_rng(1).normal(size=(3, 5, 8))
        >>> layer(x, x, x, causal=True).shape
        (3, 5, 8)

    References:
        :cite:t:`Vaswani.Shazeer.Parmar.ea.2017`, section 3.2.2.
    """

    query_weight: Inexact[np.ndarray, "d d"]
    key_weight: Inexact[np.ndarray, "d d"]
    value_weight: Inexact[np.ndarray, "d d"]
    output_weight: Inexact[np.ndarray, "d d"]
    query_bias: Inexact[np.ndarray, " d"] | None = None
    key_bias: Inexact[np.ndarray, " d"] | None = None
    value_bias: Inexact[np.ndarray, " d"] | None = None
    output_bias: Inexact[np.ndarray, " d"] | None = None
    num_heads: int = 1
    dropout_rate: float = 0.0
    rotate: Callable | tuple[Callable, Callable] | None = None
    bias: Callable | contract.ContentBias | None = None
    scale: float | None = None

    @classmethod
    def init(
        cls,
        rng: np.random.Generator,
        dim: int,
        num_heads: int,
        *,
        use_bias: bool = False,
        dropout_rate: float = 0.0,
        rotate: Callable | tuple[Callable, Callable] | None = None,
        bias: Callable | contract.ContentBias | None = None,
        scale: float | None = None,
    ) -> "MultiHeadAttention":
        r"""Draw the weights uniformly from $\pm\sqrt{3/d}$, the bounds of Glorot for square matrices.

        Args:
            rng: where the weights are drawn from.
            dim: the width $d$, at least 1.
            num_heads: the number of heads $H$, a divisor of $d$.
            use_bias: give each projection an offset, which starts at zero.
            dropout_rate: probability in [0, 1) of dropping an attention weight.
            rotate: acts on queries and keys, `(x, positions) -> x`, or a pair of functions.
            bias: is added to the scores, `(query_positions, key_positions) -> (H, n_q, n_k)`.
            scale: the factor on the products of queries and keys, $1/\sqrt{d_h}$ if not given.

        Returns:
            The layer.

        Raises:
            TypeError: if `rng` is no generator or a number is not of its kind.
            ValueError: if a number lies outside its range or `num_heads` does not divide `dim`.
        """
        dim = contract.integer("dim", dim, least=1)
        num_heads = contract.heads(num_heads, dim)
        dropout_rate = contract.dropout_rate(dropout_rate)
        contract.rng(rng, isinstance(rng, np.random.Generator), "numpy.random.Generator")
        bound = np.sqrt(3 / dim)
        weights = rng.uniform(-bound, bound, (4, dim, dim))
        offsets = np.zeros((4, dim)) if use_bias else (None,) * 4
        scale = None if scale is None else contract.scale(scale)
        return cls(*weights, *offsets, num_heads, dropout_rate, rotate, bias, scale)

    def __call__(
        self,
        query: Inexact[np.ndarray, "*batch n_q d"],
        key: Inexact[np.ndarray, "*batch n_k d"],
        value: Inexact[np.ndarray, "*batch n_k d"],
        *,
        mask: Bool[np.ndarray, "*#batch #n_q n_k"] | None = None,
        causal: bool = False,
        bias: Inexact[np.ndarray, "*#batch_and_heads #n_q n_k"] | None = None,
        positions: Num[np.ndarray, "*#batch n_k"] | None = None,
        rng: np.random.Generator | None = None,
    ) -> Inexact[np.ndarray, "*batch n_q d"]:
        r"""Attend from `query` to `key` and mix `value`.

        Args:
            query: `(*batch, n_q, d)`.
            key: `(*batch, n_k, d)`.
            value: `(*batch, n_k, d)`.
            mask: bool, True means may attend; its shape broadcasts to `(*batch, n_q, n_k)`, and it
                holds for every head.
            causal: hide the future; queries are aligned to the end of the keys.
            bias: is added to the scores of this call; its shape broadcasts to
                `(*batch, H, n_q, n_k)`.
            positions: where the keys stand, `(n_k)` or `(*batch, n_k)`; the queries take the last
                $n_q$ of them. $0, \ldots, n_k - 1$ if not given. Only `rotate` and `bias` use them.
            rng: where dropout draws from; None means no dropout.

        Returns:
            `(*batch, n_q, d)`; the offset of the output projection (or zero) where a query may
            attend to nothing.

        Raises:
            TypeError: if an array is missing or has a wrong or different dtype.
            ValueError: if shapes do not fit.
        """
        dim = self.query_weight.shape[0]
        contract.layer_inputs(query, key, value, dim)
        n_q, n_k = query.shape[-2], key.shape[-2]
        contract.mask(mask, (*query.shape[:-1], n_k))
        contract.bias(bias, (*query.shape[:-2], self.num_heads, n_q, n_k))
        contract.key_positions(positions, key.shape, n_q)
        if positions is None:
            query_positions, key_positions = np.arange(n_k - n_q, n_k), np.arange(n_k)
        else:
            query_positions, key_positions = positions[..., n_k - n_q :], positions
        q = split_heads(_affine(query, self.query_weight, self.query_bias), self.num_heads)
        k = split_heads(_affine(key, self.key_weight, self.key_bias), self.num_heads)
        v = split_heads(_affine(value, self.value_weight, self.value_bias), self.num_heads)
        rotate_query, rotate_key = (
            self.rotate if isinstance(self.rotate, tuple) else (self.rotate, self.rotate)
        )
        q = q if rotate_query is None else rotate_query(q, query_positions[..., None, :])
        k = k if rotate_key is None else rotate_key(k, key_positions[..., None, :])
        mask = None if mask is None else mask[..., None, :, :]
        where = query_positions, key_positions
        if hasattr(self.bias, "scores"):
            mask, bias = mask_and_bias(q, k, mask, causal, bias)
            causal, k = False, zero_unattended(k, mask)
            own = self.bias.scores(q, k, *where)
        else:
            own = None if self.bias is None else self.bias(*where)
        if own is not None:
            bias = own if bias is None else bias + own
        options = {"mask": mask, "causal": causal, "bias": bias, "scale": self.scale}
        if hasattr(self.bias, "values"):
            weights = dropout(attention_weights(q, k, **options), self.dropout_rate, rng)
            heads = weights @ zero_unattended(v, mask) + self.bias.values(weights, *where)
        else:
            heads = scaled_dot_product_attention(
                q, k, v, dropout_rate=self.dropout_rate, rng=rng, **options
            )
        return _affine(merge_heads(heads), self.output_weight, self.output_bias)


def _affine(x, weight, bias):
    return x @ weight if bias is None else x @ weight + bias
