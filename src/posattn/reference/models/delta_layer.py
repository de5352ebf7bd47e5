"""A layer with the delta rule: projections, a short convolution, gates, and a state in place of a cache."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Bool, Inexact, Integer

from posattn import contract
from posattn.reference.attention.convolution import short_convolution
from posattn.reference.attention.delta import gated_delta, kimi_delta
from posattn.reference.attention.heads import merge_heads, split_heads
from posattn.reference.attention.state_cache import StateCache
from posattn.reference.validated import validated

__all__ = ["DeltaAttention"]


@validated
@dataclass(frozen=True, eq=False)
class DeltaAttention:
    r"""The layer of Gated DeltaNet and of Kimi Delta Attention: order is kept in a state, without positions.

    .. math:: [\mathbf{Q}, \mathbf{K}, \mathbf{V}] = \operatorname{silu}(\operatorname{conv}(
        \mathbf{X}[\mathbf{W}^{(q)}, \mathbf{W}^{(k)}, \mathbf{W}^{(v)}])), \qquad
        \hat{\mathbf{k}} = \frac{\mathbf{k}}{\sqrt{\|\mathbf{k}\|^2 + 10^{-6}}},

    likewise $\hat{\mathbf{q}}$, in each head. The gates of a token $\mathbf{x}$ are

    .. math:: \mathbf{g} = -e^{\mathbf{a}} \log(1 + e^{\mathbf{x}\mathbf{W}^{(g)} + \mathbf{d}}), \qquad
        \boldsymbol{\beta} = \beta_{\max}\,\sigma(\mathbf{x}\mathbf{W}^{(b)}) .

    Then :func:`gated_delta` reads and writes if there is one log gate for each head, and
    :func:`kimi_delta` if there is one for each channel of the keys. Of each head's output $\mathbf{o}$,

    .. math:: \mathbf{y} = \frac{\mathbf{w} \odot \mathbf{o}}{\sqrt{\tfrac{1}{d_v}\|\mathbf{o}\|^2
        + \varepsilon}} \odot \phi(\mathbf{x}\mathbf{W}^{(z)})

    is projected by $\mathbf{W}^{(o)}$, where $\phi$ is the SiLU or, in Kimi's layer, the sigmoid.
    Kimi projects log gates and output gates through a few entries. GLM-5-Next keeps log gates above
    $L = -5$: there, $\mathbf{g} = L\,\sigma(e^{\mathbf{a}}(\mathbf{x}\mathbf{W}^{(g)} + \mathbf{d}))$.

    The epsilon matters for short keys: one of length 0.001 becomes one of length 0.71.

    What it guarantees: a token sees what came before it, in its own document, wherever padding stands.
    A text cut into calls has the outputs of one call.

    Where it fails: the state can't go back to an earlier token (see :class:`StateCache`).

    Make a layer with `DeltaAttention.init(rng, dim, num_heads, ...)`, or from weights that exist.

    Args:
        query_weight: $\mathbf{W}^{(q)}$, `(d, h_k d_k)`; `x @ weight` projects.
        key_weight: $\mathbf{W}^{(k)}$, `(d, h_k d_k)`.
        value_weight: $\mathbf{W}^{(v)}$, `(d, h d_v)`.
        taps: of the convolution, `(2 h_k d_k + h d_v, k)`, of queries, keys and values in this order.
        decay_weight: $\mathbf{W}^{(g)}$, `(d, h)` or `(d, h d_k)`, or from `rank` entries.
        decay_offset: $\mathbf{d}$, `(h)` or `(h d_k)`.
        decay_rate: $\mathbf{a}$, `(h)`.
        beta_weight: $\mathbf{W}^{(b)}$, `(d, h)`.
        gate_weight: $\mathbf{W}^{(z)}$, `(d, h d_v)`, or from `rank` entries.
        norm_weight: $\mathbf{w}$, `(d_v)`.
        output_weight: $\mathbf{W}^{(o)}$, `(h d_v, d)`.
        decay_down_weight: `(d, rank)`, what comes before `decay_weight`; None if nothing does.
        gate_down_weight: `(d, rank)`, what comes before `gate_weight`; likewise.
        num_heads: $h$, of values.
        num_key_heads: $h_k$, of queries and keys, a divisor of $h$.
        gate: $\phi$, `"silu"` or `"sigmoid"`.
        most: $\beta_{\max}$, 1, or 2 in OLMo hybrid.
        eps: $\varepsilon$.
        bound: $L$, or None.

    Examples:
        >>> layer = DeltaAttention.init(np.random.default_rng(0), 8, 2, key_dim=4)
        >>> x = np.random.default_rng(1).normal(size=(3, 5, 8))
        >>> whole = layer(x)
        >>> out, cache = layer(x[:, :4], cache=layer.init_cache((3,)))
        >>> out, cache = layer(x[:, 4:], cache=cache)
        >>> np.allclose(out, whole[:, 4:])
        True

    References:
        :cite:t:`yang2025gated`, section 3.4, and :cite:t:`kimi2025linear`.
    """

    query_weight: Inexact[np.ndarray, "d keys"]
    key_weight: Inexact[np.ndarray, "d keys"]
    value_weight: Inexact[np.ndarray, "d values"]
    taps: Inexact[np.ndarray, "c k"]
    decay_weight: Inexact[np.ndarray, "d_g gates"]
    decay_offset: Inexact[np.ndarray, " gates"]
    decay_rate: Inexact[np.ndarray, " h"]
    beta_weight: Inexact[np.ndarray, "d h"]
    gate_weight: Inexact[np.ndarray, "d_g values"]
    norm_weight: Inexact[np.ndarray, " d_v"]
    output_weight: Inexact[np.ndarray, "values d"]
    decay_down_weight: Inexact[np.ndarray, "d d_g"] | None = None
    gate_down_weight: Inexact[np.ndarray, "d d_g"] | None = None
    num_heads: int = 1
    num_key_heads: int = 1
    gate: Literal["silu", "sigmoid"] = "silu"
    most: float = 1.0
    eps: float = 1e-6
    bound: float | None = None

    @classmethod
    def init(
        cls,
        rng: np.random.Generator,
        dim: int,
        num_heads: int,
        *,
        num_key_heads: int | None = None,
        key_dim: int,
        value_dim: int | None = None,
        taps: int = 4,
        per_channel: bool = False,
        rank: int | None = None,
        gate: Literal["silu", "sigmoid"] = "silu",
        most: float = 1.0,
        eps: float = 1e-6,
        bound: float | None = None,
    ) -> "DeltaAttention":
        r"""Draw the weights uniformly: matrices within Glorot's bounds, taps within $\pm 1/\sqrt{k}$.

        Rates $e^{\mathbf{a}}$ are drawn from 0.01 to 16, and the offsets of the log gates are 1, as in
        Qwen3-Next.

        Args:
            rng: where the weights are drawn from.
            dim: the width $d$ of the input and of the output, at least 1.
            num_heads: $h$, the number of heads of values.
            num_key_heads: $h_k$, that of queries and keys; $h$ if not given.
            key_dim: $d_k$, the width of a head of queries and keys.
            value_dim: $d_v$, that of values; $d_k$ if not given.
            taps: $k$ of the convolution.
            per_channel: whether each channel of the keys has a log gate of its own.
            rank: through how many entries the gates are projected; directly if not given.
            gate: what acts on the output gates.
            most: the upper bound of $\beta$.
            eps: added to the mean square in the norm.
            bound: the lower bound of log gates, which a scaled sigmoid keeps; none if not given.
        """
        contract.delta_gate(gate, bound)
        sizes = contract.delta_sizes(
            dim, num_heads, num_key_heads, key_dim, value_dim, taps, per_channel, rank
        )
        weights = {
            f"{name}_weight": rng.uniform(-1, 1, shape) * np.sqrt(6 / sum(shape))
            for name, shape in sizes.matrices.items()
        }
        return cls(
            **weights,
            taps=rng.uniform(-1, 1, (sizes.width, sizes.taps)) * sizes.taps**-0.5,
            decay_offset=np.ones(sizes.gates),
            decay_rate=np.log(rng.uniform(0.01, 16, sizes.num_heads)),
            norm_weight=np.ones(sizes.value_dim),
            num_heads=sizes.num_heads,
            num_key_heads=sizes.num_key_heads,
            gate=gate,
            most=contract.positive("most", most),
            eps=contract.positive("eps", eps),
            bound=bound,
        )

    def init_cache(self, batch_shape: int | Sequence[int]) -> StateCache:
        """Make an empty cache that fits this layer.

        Args:
            batch_shape: the batch axes of the sequences, `(8,)` or just 8.
        """
        sizes = contract.delta_weights(self)
        shape = sizes.num_heads, sizes.key_dim, sizes.value_dim
        return StateCache.init(batch_shape, *shape, sizes.taps - 1, sizes.width)

    def __call__(
        self,
        x: Inexact[np.ndarray, "*batch n d"],
        *,
        mask: Bool[np.ndarray, "*#batch n"] | None = None,
        documents: Integer[np.ndarray, "*#batch n"] | None = None,
        cache: StateCache | None = None,
    ) -> (
        Inexact[np.ndarray, "*batch n d"]
        | tuple[Inexact[np.ndarray, "*batch n d"], StateCache]
    ):
        r"""Let each token read the state of those before it.

        Args:
            x: `(*batch, n, d)`.
            mask: bool, `(n)` or `(*batch, n)`, True is a token. Others are treated as absent, wherever they
                stand, and their outputs are zeros.
            documents: integers, `(n)` or `(*batch, n)`. Where the number changes, another document starts
                with an empty state and no inputs of the convolution.
            cache: what was kept of the tokens before.

        Returns:
            `(*batch, n, d)`. With a cache, that and the cache of all tokens so far.
        """
        sizes = contract.delta_weights(self)
        contract.delta_gate(self.gate, self.bound)
        contract.sequence("x", x, self.query_weight.shape[0])
        contract.passed(mask, documents, x.shape[:-2], x.shape[-2])
        if mask is not None:
            x = np.where(mask[..., None], x, 0)
        before = self.init_cache(x.shape[:-2]) if cache is None else cache
        passed = {"mask": mask, "documents": documents}
        mixed = x @ np.concatenate(
            [self.query_weight, self.key_weight, self.value_weight], axis=-1
        )
        mixed, inputs = short_convolution(mixed, self.taps, state=before.inputs, **passed)
        keys = sizes.num_key_heads * sizes.key_dim
        query, key, value = np.split(_silu(mixed), [keys, 2 * keys], axis=-1)
        query, key = (
            _unit(split_heads(part, sizes.num_key_heads)) for part in (query, key)
        )
        value = split_heads(value, sizes.num_heads)
        log_gates, beta = self._gates(x, sizes)
        rule = gated_delta if log_gates.ndim == beta.ndim else kimi_delta
        options = passed | {"state": before.state}
        heads, state = rule(query, key, value, log_gates, beta, **options)
        heads = heads / np.sqrt(np.mean(heads**2, axis=-1, keepdims=True) + self.eps)
        narrow = x if self.gate_down_weight is None else x @ self.gate_down_weight
        gate = narrow @ self.gate_weight
        gate = _silu(gate) if self.gate == "silu" else _sigmoid(gate)
        heads = self.norm_weight * heads * split_heads(gate, sizes.num_heads)
        out = merge_heads(heads) @ self.output_weight
        if cache is None:
            return out
        return out, StateCache(inputs, state)

    def _gates(self, x, sizes):
        """The log gates and betas, `(*batch, h, n)`, or `(*batch, h, n, d_k)` for each channel."""
        narrow = x if self.decay_down_weight is None else x @ self.decay_down_weight
        step = narrow @ self.decay_weight + self.decay_offset
        step = split_heads(step, sizes.num_heads)
        rate = np.exp(self.decay_rate)[:, None, None]
        log_gates = -rate * _softplus(step)
        if self.bound is not None:
            log_gates = self.bound * _sigmoid(rate * step)
        if sizes.gates == sizes.num_heads:
            log_gates = log_gates[..., 0]
        beta = self.most * _sigmoid(x @ self.beta_weight)
        return log_gates, np.swapaxes(beta, -1, -2)


def _sigmoid(x):
    """One over one plus `exp(-x)`, without overflow."""
    negative = x.real < 0
    small = np.exp(np.where(negative, x, -x))
    return np.where(negative, small, 1) / (1 + small)


def _silu(x):
    """The product with the sigmoid."""
    return x * _sigmoid(x)


def _softplus(x):
    """The logarithm of one plus `exp(x)`, without overflow."""
    negative = x.real < 0
    return np.where(negative, 0, x) + np.log1p(np.exp(np.where(negative, x, -x)))


def _unit(x):
    """Vectors of length 1, but for short ones."""
    return x / np.sqrt(np.sum(x**2, axis=-1, keepdims=True) + 1e-6)
