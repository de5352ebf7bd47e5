"""The lightning indexer: weights of its own that select the keys of an attention."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Inexact, Integer, Real

from posattn import contract
from posattn.reference.attention.heads import split_heads
from posattn.reference.attention.indexer import indexer_scores
from posattn.reference.attention.masks import causal_mask, of_pairs
from posattn.reference.attention.selection import rising, select_keys
from posattn.reference.models.projections import grown, normed, rotated
from posattn.reference.validated import validated

__all__ = ["LightningIndexer"]


@validated
@dataclass(frozen=True, eq=False)
class LightningIndexer:
    r"""What selects the keys of a layer, from the tokens: a part of its attention.

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

    Where keys are pooled, queries are normalised too, the norms divide by the root mean square, and blocks
    of `size` keys are chosen. They begin at the first key that a query may attend to, behind padding or
    another document; the keys that it may attend to must be neighbors.
    With `"max"` (MiniMax-M3) each head $h$ selects for its group of the layer's heads: a block is worth
    $\max_{j} \mathbf{q}_h\cdot\mathbf{k}_j$, and the query's own block is one of those it reads.
    With `"mean"` (Qwen4-Exp) all heads select together, $w_h = 1$, and $\mathbf{k}$ is the mean of a
    complete block, normalised and rotated as its first token; what comes after the last complete block is
    read, too.
    With `"gated"` (GLM-5-Next) scores are as without blocks, and the key of a block is a weighted mean of its
    normalised keys: each channel has weights of its own, a softmax over the block of
    $\mathbf{x}_j\mathbf{W}^{(g)} + \mathbf{e}_j$ with a learned $\mathbf{e}_j$ for each place $j$.

    Mistral Large 4 makes queries from tokens that a norm like that of keys has passed, and multiplies them by
    $s_h \ln(p + 1) + b_h$ at position $p$.

    Args:
        query_weight: $\mathbf{W}^{(q)}$ of all heads, `(d_q, H D)`; `x @ weight` projects.
        key_weight: $\mathbf{W}^{(k)}$, `(d, D)`, or $[\mathbf{W}^{(k)}, \mathbf{W}^{(g)}]$ of gated keys.
        key_norm_weight: the factors of the norm, `(D)`.
        key_norm_bias: its offsets, `(D)`; None where keys are pooled without gates.
        head_weight: $\mathbf{W}^{(w)}$, `(d, H)`; likewise.
        count: how many keys a query reads at most, or how many blocks of keys.
        rotate: None, or a function `(x, positions) -> x` of a head's first entries, such as `Rotary()`.
        eps: added to the variance in the norm.
        size: how many neighboring keys make a block.
        pooled: None, or what a block is worth: its best key, `"max"`, or its keys' mean, `"mean"` or
            `"gated"`.
        query_norm_weight: the factors of the norm of queries, `(D)`, where keys are pooled without gates.
        places: $\mathbf{e}$, `(size, D)`, of gated keys.
        input_norm_weight: the factors of a norm of what queries are made from, `(d_q)`, if there is one.
        input_norm_bias: its offsets, `(d_q)`.
        temperature: $s$ and $b$, `(2, H)`, if queries grow with their position.

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
    key_weight: Inexact[np.ndarray, "d d_k"]
    key_norm_weight: Inexact[np.ndarray, " d_h"]
    key_norm_bias: Inexact[np.ndarray, " d_h"] | None
    head_weight: Inexact[np.ndarray, "d h"] | None
    count: int
    rotate: contract.Rotation | None = None
    eps: float = 1e-6
    size: int = 1
    pooled: str | None = None
    query_norm_weight: Inexact[np.ndarray, " d_h"] | None = None
    places: Inexact[np.ndarray, "size d_h"] | None = None
    input_norm_weight: Inexact[np.ndarray, " d_q"] | None = None
    input_norm_bias: Inexact[np.ndarray, " d_q"] | None = None
    temperature: Inexact[np.ndarray, "2 h"] | None = None

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
        size: int = 1,
        pooled: str | None = None,
        input_norm: bool = False,
        temperature: bool = False,
    ) -> "LightningIndexer":
        r"""Draw the weights uniformly, within Glorot's bounds: $\pm\sqrt{6/(a + b)}$ from $a$ to $b$ entries.

        Args:
            rng: where the weights are drawn from.
            dim: the width $d$ of the tokens, at least 1.
            num_heads: the number of heads $H$.
            head_dim: the width $D$ of a head.
            count: how many keys a query reads at most, or how many blocks of keys, at least 1.
            query_rank: the width of what queries are made from; `dim` if not given.
            rotate: acts on queries and keys, `(x, positions) -> x`, such as `Rotary()`.
            eps: added to the variance in the norm.
            size: how many neighboring keys make a block.
            pooled: None, or what a block is worth: `"max"`, `"mean"` or `"gated"`.
            input_norm: whether queries are made from what a norm has passed.
            temperature: whether queries grow with their position as each head learns.

        Returns:
            The indexer.
        """
        sizes = dim, num_heads, head_dim, count, query_rank, pooled, size
        _, count, shapes = contract.indexer_sizes(*sizes)
        weights = {
            f"{name}_weight": rng.uniform(-1, 1, shape) * np.sqrt(6 / sum(shape))
            for name, shape in shapes.items()
        }
        norm = {"key_norm_weight": np.ones(head_dim), "key_norm_bias": np.zeros(head_dim)}
        if pooled in ("max", "mean"):
            norm |= {"key_norm_bias": None, "query_norm_weight": np.ones(head_dim)}
            norm["head_weight"] = None
        if pooled == "gated":
            norm["places"] = np.zeros((size, head_dim))
        if input_norm:
            width = shapes["query"][0]
            norm |= {
                "input_norm_weight": np.ones(width),
                "input_norm_bias": np.zeros(width),
            }
        if temperature:
            norm["temperature"] = np.eye(2, 1, -1).repeat(num_heads, axis=1)
        eps = contract.positive("eps", eps)
        return cls(
            **weights, **norm, count=count, rotate=rotate, eps=eps, size=size, pooled=pooled
        )

    def keys(
        self, x: Inexact[np.ndarray, "*batch n d"], positions: Real[np.ndarray, "*#batch n"]
    ) -> Inexact[np.ndarray, "*batch n d_h"]:
        """The keys of tokens, which a cache keeps.

        Args:
            x: `(*batch, n, d)`.
            positions: where the tokens stand, `(n)` or `(*batch, n)`.

        Returns:
            Rotated keys, `(*batch, n, D)`; keys as they are if their mean is asked for; with gates,
            `(*batch, n, 2 D)`, where these stand behind the keys.
        """
        contract.sequence("x", x, self.key_weight.shape[0])
        contract.positions_of(x.shape, positions)
        key = x @ self.key_weight
        if self.pooled == "mean":
            return key
        key, gates = np.split(key, self.key_norm_weight.shape, axis=-1)
        return np.concatenate([self._rotated(key, positions), gates], axis=-1)

    def __call__(
        self,
        x: Inexact[np.ndarray, "*batch n d"],
        narrow: Inexact[np.ndarray, "*batch n d_q"],
        key: Inexact[np.ndarray, "*batch n_k d_h"],
        positions: Real[np.ndarray, "*#batch n"],
        *,
        key_positions: Real[np.ndarray, "*#batch n_k"] | None = None,
        mask: Bool[np.ndarray, "*#batch_and_heads #n n_k"] | None = None,
        causal: bool = False,
    ) -> Integer[np.ndarray, "*heads n count"]:
        """The keys that each token reads.

        Args:
            x: the tokens, `(*batch, n, d)`.
            narrow: what their queries are made from, `(*batch, n, d_q)`.
            key: what `keys` has returned for all tokens so far, `(*batch, n_k, D)`.
            positions: where the tokens stand, `(n)` or `(*batch, n)`.
            key_positions: where the keys stand, `(n_k)` or `(*batch, n_k)`, if their mean is asked for.
            mask: bool, True means may attend, `(*batch, n, n_k)`, or with an axis of heads: to any of them.
            causal: hide the future; the tokens are aligned to the end of the keys.

        Returns:
            Indices in rising order, then -1, `(*batch, n, k)`; of `"max"`, `(*batch, H, n, k)`.
        """
        contract.indexer_weights(self, x, narrow)
        contract.positions_of(x.shape, positions)
        contract.indexer_keys(x, key, key_positions, self.pooled)
        if getattr(mask, "ndim", 0) > x.ndim:
            mask = mask.any(-3)
        contract.mask(mask, (*x.shape[:-1], key.shape[-2]))
        num_heads = self.query_weight.shape[1] // len(self.key_norm_weight)
        if self.input_norm_weight is not None:
            norm = self.input_norm_weight, self.input_norm_bias
            narrow = centered(narrow, *norm, self.eps)
        query = split_heads(narrow @ self.query_weight, num_heads)
        if self.query_norm_weight is not None:
            query = normed(query, self.query_norm_weight, self.eps)
        query = grown(query, self.temperature, positions)
        query = rotated(self.rotate, 0, query, positions)
        weights = None
        if self.head_weight is not None:
            weights = x @ self.head_weight * num_heads**-0.5
        if self.pooled is not None:
            return self._blocks(query, key, weights, key_positions, mask, causal)
        scores = indexer_scores(query, key, weights)
        return select_keys(scores, self.count, mask=mask, causal=causal)

    def _blocks(self, query, key, weights, positions, mask, causal):
        """The keys of the best blocks, which begin at the first key that each query sees."""
        size = self.size
        mean = self.pooled != "max"
        n, n_k = query.shape[-2], key.shape[-2]
        if mean:  # of each key and those after it
            ends = [(0, 0)] * (key.ndim - 2) + [(0, size - 1), (0, 0)]
            padded = np.pad(key, ends)
            key = np.stack([padded[..., i : i + n_k, :] for i in range(size)], axis=-2)
            if self.pooled == "gated":
                key, gates = np.split(key, 2, axis=-1)
                gates = np.exp(
                    gates + self.places - (gates + self.places).max(-2, keepdims=True)
                )
                key = (gates * key).sum(-2) / gates.sum(-2)
            else:
                key = self._rotated(key.mean(-2), positions)
            scores = indexer_scores(query, key, weights)[..., None, :, :]
        else:
            scores = query @ key[..., None, :, :].mT
        seen = np.ones((1, 1), bool) if mask is None else mask
        seen = seen & causal_mask(n, n_k) if causal else seen
        seen = np.broadcast_to(seen, (*query.shape[:-3], n, n_k))[..., None, :, :]
        first = np.argmax(seen, axis=-1)[..., None]
        end = n_k - np.argmax(seen[..., ::-1], axis=-1)[..., None]
        blocks = np.arange(n_k // size + 1)
        places = first + np.arange(blocks.size * size)
        lead, ends = scores.shape[:-1], [(0, 0)] * (scores.ndim - 1)
        scores = np.where(seen, scores, -np.inf)
        scores = np.pad(scores, [*ends, (0, blocks.size * size)], constant_values=-np.inf)
        places = np.broadcast_to(places, (*lead, blocks.size * size))
        scores = np.take_along_axis(scores, places, axis=-1)
        each = scores.reshape(*lead, blocks.size, size)
        best = each.max(-1)
        if mean:  # whole blocks, and what stands after them
            best = np.where(each[..., -1] > -np.inf, each[..., 0], -np.inf)
        own = (end - first - 1 + mean) // size == blocks
        chosen = select_keys(np.where(own, np.inf, best), self.count + mean)[..., None]
        tokens = chosen * size + np.arange(size)
        tokens = tokens.reshape(*lead, tokens.shape[-2] * size)
        kept = np.take_along_axis(scores, np.maximum(tokens, 0), -1) > -np.inf
        kept = kept & (tokens >= 0)
        tokens = rising(np.where(kept, tokens + first, -1))
        return tokens[..., 0, :, :] if mean else tokens

    def _rotated(self, key, positions):
        """Keys, normalised and rotated."""
        if self.key_norm_bias is None:
            key = normed(key, self.key_norm_weight, self.eps)
        else:
            key = centered(key, self.key_norm_weight, self.key_norm_bias, self.eps)
        return rotated(self.rotate, 1, key[..., None, :, :], positions)[..., 0, :, :]


def centered(x, weight, bias, eps):
    """Subtract the mean and divide by the standard deviation."""
    return normed(x - np.mean(x, axis=-1, keepdims=True), weight, eps) + bias


def selects(layer, select, x, narrow, key, positions, mask, causal):
    """The keys that each query of a layer reads, where an indexer selects them."""
    contract.chosen_before(select, layer.shared)
    if layer.shared or layer.indexer is None:
        return select
    shape = *x.shape[:-2], layer.num_heads, x.shape[-2], key.shape[-2]
    seen = of_pairs(mask, positions, shape)
    return layer.indexer(x, narrow, key, positions.query, mask=seen, causal=causal)
