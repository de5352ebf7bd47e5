"""The forgetting gate: how much of the past each token lets through."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from jaxtyping import Inexact

from posattn import contract
from posattn.reference.cases import Cases, draw, flat
from posattn.reference.position.card import HEADS, SMALL, Card, Scheme, generator
from posattn.reference.validated import validated

__all__ = ["ForgettingGate", "forgetting_bias", "tiled_forgetting_bias"]


@validated
def forgetting_bias(
    log_gates: Inexact[np.ndarray, "*batch h n_k"], n_q: int | None = None
) -> Inexact[np.ndarray, "*batch h n_q n_k"]:
    r"""The bias of the Forgetting Transformer: how much the gates between a key and a query let through.

    .. math:: d_{ij} = \sum_{l=j+1}^{i} \log f_l \quad (j \le i), \qquad
        e^{s_{ij} + d_{ij}} = e^{s_{ij}} \prod_{l=j+1}^{i} f_l .

    Here $s_{ij}$ is the score, and each token $l$ has a gate $f_l$ in $(0, 1)$ for each head.
    A key $i - j$ tokens back has passed the gates of all tokens after it, up to and including the
    query's. It has not passed its own gate, so $d_{ii} = 0$.
    The bias is added to the scores of causal attention:

    .. code-block:: python

        layer(x, x, x, causal=True, bias=forgetting_bias(gate(x)))

    If all tokens have the same gate, $d_{ij} = (i - j) \log f$, which is ALiBi with the slope
    $-\log f$. Gates that depend on the token forget where the content says so.

    What it guarantees: the bias is not positive, and it does not grow with the distance from the
    query.
    It needs no positions, because it counts tokens. Padding on the left and packed sequences come out
    right as soon as the mask hides the other tokens.
    It is defined for every length.
    When decoding, keep the log gates of all tokens with their keys. `n_q=1` then gives the row of
    the new token, for one addition per key.

    Where it fails: the future has no bias here ($d_{ij} = 0$ for $j > i$) and must be hidden by
    `causal=True`. The paper has $d_{ij} = -\infty$ there.
    `log_gates` are logarithms: gates themselves would reward distance.

    Accuracy: each entry is summed on its own, over terms of one sign.
    Its *relative* error is that of a sum, below $10^{-12}$ in float64 and $10^{-6}$ in float32
    for $2^{20}$ tokens, whatever came before the key.
    The usual difference of two cumulative sums, $c_i - c_j$, has an *absolute* error that grows with
    the sequence: in float32 after $2^{20}$ gates near $1/2$ it is off by up to $0.06$ for neighbouring
    tokens, 6 percent of their weight, and a gate of 0 leaves NaN for all that follow.
    For sequences whose pairs do not fit into memory, see :func:`tiled_forgetting_bias`.

    Args:
        log_gates: $\log f$, one per token and head, `(*batch, h, n_k)`, none above 0.
        n_q: the number of queries, which are aligned to the end of the keys; $n_k$ if not given.

    Returns:
        $d$, `(*batch, h, n_q, n_k)`.

    Raises:
        ValueError: if `log_gates` have fewer than two axes, or `n_q` is larger than $n_k$.

    Examples:
        >>> gates = np.array([[0.5, 0.25, 0.5, 1.0]])
        >>> np.exp(forgetting_bias(np.log(gates)))[0]
        array([[1.   , 1.   , 1.   , 1.   ],
               [0.25 , 1.   , 1.   , 1.   ],
               [0.125, 0.5  , 1.   , 1.   ],
               [0.125, 0.5  , 1.   , 1.   ]])
        >>> np.exp(forgetting_bias(np.log(gates), n_q=1))[0]
        array([[0.125, 0.5  , 1.   , 1.   ]])

    References:
        :cite:t:`lin2025forgetting`, section 3.
    """
    n_q, n_k = contract.log_gates(log_gates, n_q)
    before = np.arange(n_k) < np.arange(n_k - n_q, n_k)[:, None]
    following = np.roll(log_gates, -1, axis=-1)
    steps = np.where(before, following[..., None, :], 0)
    return np.cumsum(steps[..., ::-1], axis=-1)[..., ::-1]


@validated
def tiled_forgetting_bias(log_gates: Inexact[np.ndarray, "*batch h n"]) -> Callable:
    r"""The bias of the Forgetting Transformer as a function of positions, for sequences of any length.

    .. math:: d_{pr} = \sum_{l=r+1}^{p} \log f_l \quad (r \le p), \qquad d_{pr} = 0 \quad (r > p) .

    Here $p$ and $r$ are the positions of a query and a key, counted from 0 among the tokens that have gates.
    :func:`forgetting_bias` is the array of all pairs. This function gives any part of it, so attention can
    ask for one tile at a time, and memory grows with $n$ instead of $n^2$:

    .. code-block:: python

        layer(x, x, x, causal=True, bias=tiled_forgetting_bias(gate(x)))

    What it guarantees: the same array, however it is cut into tiles.
    A negative position, which marks padding in a cache, counts as before the first token. A key beyond the
    last token is in the future.

    Where it fails: it counts the tokens of `log_gates`, which must be those of the keys. With a cache, keep
    the log gates of all tokens too.

    Accuracy: PyTorch and JAX take the difference of two cumulative sums, $c_p - c_r$, in float64 and in pairs
    of floats: after $2^{20}$ gates near $1/2$ it is off by less than $10^{-8}$.
    A gate with a logarithm below $-10^4$ counts as shut there: keys behind it have the bias $-\infty$, and
    keys after it are exact.
    This reference computes the array of all pairs and reads from it.

    Args:
        log_gates: $\log f$, one per token and head, `(*batch, h, n)`, none above 0.

    Returns:
        A function `bias(query_positions, key_positions)` of integers, `(n_q)` and `(n_k)` or with the batch
        axes of the gates, those of queries below $n$, that returns $d$, `(*batch, h, n_q, n_k)`.

    Raises:
        ValueError: if `log_gates` have fewer than two axes, or positions do not fit them.

    Examples:
        >>> gates = np.array([[0.5, 0.25, 0.5, 1.0]])
        >>> bias = tiled_forgetting_bias(np.log(gates))
        >>> np.exp(bias(np.array([2, 3]), np.array([0, 1])))
        array([[[0.125, 0.5  ],
                [0.125, 0.5  ]]])

    References:
        :cite:t:`lin2025forgetting`, section 3.
    """
    contract.log_gates(log_gates, None)
    before = np.zeros((*log_gates.shape[:-1], 1), log_gates.dtype)
    return partial(_tile, forgetting_bias(np.concatenate([before, log_gates], axis=-1)))


def _tile(bias, query_positions, key_positions):
    """A part of the bias of all pairs, whose first token stands before the others."""
    shape = (*bias.shape[:-2], bias.shape[-1] - 1)
    contract.gated_positions(query_positions, key_positions, shape)
    rows, columns = (
        np.broadcast_to(
            np.clip(p.astype(int), -1, shape[-1] - 1) + 1, (*shape[:-2], p.shape[-1])
        )[..., None, :]
        for p in (query_positions, key_positions)
    )
    bias = np.take_along_axis(bias, rows[..., None], axis=-2)
    return np.take_along_axis(bias, columns[..., None, :], axis=-1)


@validated
@dataclass(frozen=True, eq=False)
class ForgettingGate:
    r"""A gate per token and head, as its logarithm.

    .. math:: \log f_l = \log \sigma(\mathbf{x}_l \mathbf{W} + \mathbf{b}), \qquad
        \sigma(z) = \frac{1}{1 + e^{-z}} .

    Its result goes to `forgetting_bias`.
    The logarithm is computed from the sum and not from the gate, so it is accurate even for a gate
    that rounds to 0 or to 1.

    Make a gate with `ForgettingGate.init(rng, dim, num_heads)`, or from parameters that exist.

    Variants: this is the gate that the paper calls data-dependent.
    A zero `weight` gives its data-independent gate. A constant `offset` on top of that gives its fixed
    gate.

    Args:
        weight: $\mathbf{W}$, `(d, h)`; `x @ weight` projects.
        offset: $\mathbf{b}$, `(h)`.

    Examples:
        >>> gate = ForgettingGate(np.array([[1.0], [0.0]]), np.array([0.0]))
        >>> np.exp(gate(np.array([[0.0, 7.0], [np.log(3.0), 7.0]])))
        array([[0.5 , 0.75]])

    References:
        :cite:t:`lin2025forgetting`, section 3.
    """

    weight: Inexact[np.ndarray, "d h"]
    offset: Inexact[np.ndarray, " h"]

    @classmethod
    def init(cls, rng: np.random.Generator, dim: int, num_heads: int) -> "ForgettingGate":
        """Draw the weight from a normal distribution with standard deviation 0.02; the offset is zero.

        Every gate starts near 1/2, as in the authors' code.

        Args:
            rng: where the weight is drawn from.
            dim: the width of the tokens, at least 1.
            num_heads: the number of heads, at least 1.

        Returns:
            The gate.
        """
        dim, num_heads = contract.sizes(dim=dim, num_heads=num_heads)
        return cls(rng.normal(0, 0.02, (dim, num_heads)), np.zeros(num_heads))

    def __call__(
        self, x: Inexact[np.ndarray, "*batch n d"]
    ) -> Inexact[np.ndarray, "*batch h n"]:
        r"""The log gates of a sequence.

        Args:
            x: `(*batch, n, d)`.

        Returns:
            $\log f$, `(*batch, h, n)`.

        Raises:
            ValueError: if `x` has another width.
        """
        contract.sequence("x", x, self.weight.shape[0])
        contract.parameter("offset", self.offset, tuple(self.weight.shape[1:]))
        z = np.swapaxes(x @ self.weight + self.offset, -1, -2)
        negative = z.real < 0
        return np.where(negative, z, 0) - np.log1p(np.exp(np.where(negative, z, -z)))


def forgetting_cases():
    """The bias of the forgetting gate: the log gates between a key and a query."""
    gates = -np.abs(draw(0, 2, 3, 6))
    yield "two examples of three heads", (gates,), {}
    yield "decoding: one query", (gates, 1), {}
    yield "decoding: three queries", (gates, 3), {}
    yield "open gates", (np.zeros((1, 4)),), {}
    yield "gates that are nearly closed", (gates - 7,), {}
    yield "a long past", (-np.abs(draw(1, 1, 500)) - 1, 2), {}


def forgetting_gate_cases():
    """The log gates of tokens, for each head."""
    given = {"weight": draw(0, 6, 3), "offset": draw(1, 3)}
    x = draw(2, 2, 4, 6)
    yield "two examples of four tokens", (x,), given
    yield "gates open and closed", (x * 8,), given
    yield "one token", (x[:1, :1],), given


CARDS = {
    "FoX": Card(
        title="Forgetting Transformer (FoX)",
        year=2025,
        idea=(
            "Each token computes a gate between 0 and 1, and everything before the token "
            "counts less by that factor."
        ),
        formula=(
            r"s_{ij} + \textstyle\sum_{l=j+1}^{i} \log f_l, \quad f_l = "
            r"\sigma(\mathbf{w}^\top\mathbf{x}_l + w_0)"
        ),
        symbols=(
            r"$f_l$ is the gate of token $\mathbf{x}_l$, $\sigma$ the logistic function, "
            r"and $\mathbf{w}$ and $w_0$ are learned."
        ),
        cites=("lin2025forgetting",),
        function="ForgettingGate",
        shows="strongest on and above the diagonal, fading evenly into the past",
        models=("FoX (research checkpoints by the authors)",),
        make=lambda n, z=SMALL: Scheme(
            gate=ForgettingGate.init(generator(), z.dim, HEADS), gate_bias=forgetting_bias
        ),
    ),
}

CASES = {
    "forgetting": Cases(forgetting_bias, forgetting_cases, "lin2025forgetting, section 3"),
    "forgetting_gate": Cases(
        flat(ForgettingGate, "x"),
        forgetting_gate_cases,
        "lin2025forgetting, section 3",
        name="ForgettingGate",
    ),
}
