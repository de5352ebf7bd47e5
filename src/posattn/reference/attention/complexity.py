"""What a layer costs: operations, sequential steps and path lengths, counted while real layers run."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from posattn import contract
from posattn.reference.validated import validated

__all__ = [
    "Cost",
    "convolution",
    "convolution_operations",
    "layers_to_connect",
    "measure",
    "path_length",
    "reads",
    "recurrence",
    "recurrence_operations",
    "self_attention",
    "self_attention_operations",
]

Tokens = Float[np.ndarray, "n d"]


@validated
class Cost(NamedTuple):
    """What one run of a layer took."""

    operations: int
    """Floating-point operations in matrix products; a multiply-add counts two."""

    steps: int
    """Matrix products on the longest chain in which each waits for the one before."""


class _Counted(np.ndarray):
    """An array that remembers its cost: how long a chain of products led to it."""

    steps = 0
    ledger: list[int]

    def __array_ufunc__(self, ufunc, method, *inputs, **kwargs):
        plain = [np.asarray(x) for x in inputs]
        out = np.asarray(getattr(ufunc, method)(*plain, **kwargs)).view(_Counted)
        counted = [x for x in inputs if isinstance(x, _Counted)]
        out.ledger = counted[0].ledger
        out.steps = max(x.steps for x in counted)
        if ufunc is np.matmul:
            out.steps += 1
            out.ledger.append(2 * out.size * plain[0].shape[-1])
        return out

    def __array_finalize__(self, parent):
        if isinstance(parent, _Counted):
            self.ledger, self.steps = parent.ledger, parent.steps


@validated
def convolution(
    x: Tokens, kernel: Float[np.ndarray, "k d d"], *, dilation: int = 1
) -> Tokens:
    r"""A convolution over tokens that reads $k$ of them, `dilation` apart, around each.

    .. math:: \mathbf{y}_i = \sum_{m=0}^{k-1} \mathbf{x}_{i + (m - \lfloor k/2 \rfloor) r}\,
        \mathbf{W}_m, \qquad \mathbf{x} = \mathbf{0} \text{ outside the sequence.}

    Args:
        x: the tokens, `(n, d)`.
        kernel: $\mathbf{W}$, `(k, d, d)`.
        dilation: $r$, the distance between the tokens that are read, at least 1.

    Returns:
        The outputs, `(n, d)`.

    Examples:
        >>> convolution(np.array([[1.0], [2.0], [4.0]]), np.ones((3, 1, 1))).ravel()
        array([3., 7., 6.])

    References:
        :cite:t:`gehring2017convolutional`; dilated: :cite:t:`kalchbrenner2016bytenet`.
    """
    dilation = contract.integer("dilation", dilation, least=1)
    (n, d), k = x.shape, len(kernel)
    start = k // 2 * dilation
    padded = np.zeros_like(x, shape=(n + (k - 1) * dilation, d))
    padded[start : start + n] = x
    return sum(padded[m * dilation : m * dilation + n] @ kernel[m] for m in range(k))


@validated
def recurrence(
    x: Tokens,
    input_weight: Float[np.ndarray, "d d"],
    state_weight: Float[np.ndarray, "d d"],
):
    r"""A recurrent layer: each state waits for the one before.

    .. math:: \mathbf{h}_i = \tanh(\mathbf{x}_i \mathbf{W} + \mathbf{h}_{i-1} \mathbf{U}),
        \qquad \mathbf{h}_{-1} = \mathbf{0}.

    Args:
        x: the tokens, `(n, d)`.
        input_weight: $\mathbf{W}$, `(d, d)`.
        state_weight: $\mathbf{U}$, `(d, d)`.

    Returns:
        The states, a list of $n$ rows `(d)`.

    Examples:
        >>> rows = recurrence(np.array([[0.5], [0.0]]), np.eye(1), np.eye(1))
        >>> np.concatenate(rows).round(4)
        array([0.4621, 0.4318])
    """
    rows = []
    state = np.zeros_like(x[0])
    for token in x:
        state = np.tanh(token @ input_weight + state @ state_weight)
        rows.append(state)
    return rows


@validated
def self_attention(
    x: Tokens,
    query_weight: Float[np.ndarray, "d d"],
    key_weight: Float[np.ndarray, "d d"],
    value_weight: Float[np.ndarray, "d d"],
    output_weight: Float[np.ndarray, "d d"],
) -> Tokens:
    r"""One head of self-attention with its four projections, in matrix products that can be counted.

    The same as `MultiHeadAttention` with one head.

    Args:
        x: the tokens, `(n, d)`.
        query_weight: `(d, d)`; likewise the next three.
        key_weight: `(d, d)`.
        value_weight: `(d, d)`.
        output_weight: `(d, d)`.

    Returns:
        The outputs, `(n, d)`.

    Examples:
        >>> self_attention(np.array([[1.0], [3.0]]), *np.zeros((2, 1, 1)), *np.ones((2, 1, 1)))
        array([[2.],
               [2.]])
    """
    scores = (x @ query_weight) @ (x @ key_weight).T / np.sqrt(x.shape[-1])
    exp = np.exp(scores - np.maximum.reduce(scores, axis=-1, keepdims=True))
    weights = exp / np.add.reduce(exp, axis=-1, keepdims=True)
    return weights @ (x @ value_weight) @ output_weight


@validated
def measure(layer: Callable, x: Tokens) -> Cost:
    """Run a layer and count its matrix products.

    Args:
        layer: a function of tokens `(n, d)` that is written with `@` and NumPy's ufuncs and returns
            the output tokens, as one array or as a list of rows.
        x: the tokens, `(n, d)`.

    Returns:
        The operations it did and the longest chain of products that waited for one another.

    Examples:
        >>> measure(lambda x: x @ np.ones((3, 3)) @ np.ones((3, 2)), np.ones((5, 3)))
        Cost(operations=150, steps=2)
    """
    counted = x.view(_Counted)
    counted.ledger = []
    outputs = layer(counted)
    steps = max(row.steps for row in (outputs if isinstance(outputs, list) else [outputs]))
    return Cost(sum(counted.ledger), steps)


@validated
def reads(layer: Callable, x: Tokens) -> Bool[np.ndarray, "n n"]:
    """Find out which outputs depend on which inputs, by making one input after another NaN.

    Args:
        layer: a function of tokens `(n, d)` that returns `n` output tokens.
        x: the tokens, `(n, d)`, finite.

    Returns:
        The connectivity, `(n, n)`. Entry (i, j) is True where output i depends on input j.

    Examples:
        >>> reads(lambda x: np.cumsum(x, axis=0), np.ones((3, 2))).astype(int)
        array([[1, 0, 0],
               [1, 1, 0],
               [1, 1, 1]])
    """
    columns = []
    for j in range(len(x)):
        probe = x.copy()
        probe[j] = np.nan
        columns.append(np.isnan(np.stack(list(layer(probe)))).any(axis=-1))
    return np.stack(columns, axis=-1)


@validated
def layers_to_connect(graphs: Iterable[Bool[np.ndarray, "n n"]]) -> int:
    """Count the layers after which every two inputs have met: some output depends on both.

    They may meet halfway, so this can be half of `path_length`, which counts the whole way from an
    input to an output.

    Args:
        graphs: the connectivity of one layer after another, from the input up; may be endless.

    Returns:
        The number of layers, 0 for a sequence of one token.

    Raises:
        ValueError: if the layers end before all positions are connected, or if a layer cannot add a
            connection although some are missing.

    Examples:
        >>> from itertools import repeat
        >>> neighbours = np.abs(np.subtract.outer(np.arange(5), np.arange(5))) <= 1
        >>> layers_to_connect(repeat(neighbours))
        2
    """
    reached = None
    for layers, graph in enumerate(graphs, start=1):
        before = np.eye(len(graph), dtype=np.float32) if reached is None else reached
        if len(graph) == 1:
            return 0
        reached = np.minimum(graph.astype(np.float32) @ before, 1)
        if np.all(reached.T @ reached):
            return layers
        if np.array_equal(before, reached):
            raise ValueError(
                f"graphs must connect all positions, but layer {layers} connects no new ones"
            )
    raise ValueError("graphs must connect all positions, but the layers end before")


@validated
def path_length(graphs: Iterable[Bool[np.ndarray, "n n"]]) -> int:
    """Count the layers on the longest way from an input to an output that depends on it.

    Counting ends where every output depends on every input, or a layer adds no dependence.

    Args:
        graphs: the connectivity of one layer after another, from the input up; may be endless. Every
            position reads itself, so that what has been reached stays reached.

    Returns:
        The number of layers, 0 for a sequence of one token.

    Raises:
        ValueError: if a position does not read itself.

    Examples:
        >>> from itertools import repeat
        >>> neighbours = np.abs(np.subtract.outer(np.arange(5), np.arange(5))) <= 1
        >>> path_length(repeat(neighbours))
        4

    References:
        :cite:t:`Vaswani.Shazeer.Parmar.ea.2017`, section 4: between any two input and output
        positions; :cite:t:`Hochreiter.Bengio.Frasconi.ea.2001`.
    """
    reached, layers = None, 0
    for graph in graphs:
        if not graph.diagonal().all():
            i = graph.diagonal().argmin()
            raise ValueError(
                f"graphs must let every position read itself, but {i} in layer {layers + 1} does not"
            )
        before = np.eye(len(graph), dtype=np.float32) if reached is None else reached
        reached = np.minimum(graph.astype(np.float32) @ before, 1)
        if np.array_equal(before, reached):
            break
        layers += 1
        if reached.all():
            break
    return layers


@validated
def convolution_operations(n: int, dim: int, kernel_size: int) -> int:
    r"""The operations of a convolution that reads $k$ tokens for each of $n$: $2knd^2$.

    At the ends of the sequence a real layer may skip the products with padding.

    Args:
        n: the number of tokens, at least 0.
        dim: the width $d$ of input and output, at least 1.
        kernel_size: $k$, at least 1.

    Returns:
        Floating-point operations; a multiply-add counts two.

    Examples:
        >>> convolution_operations(10, 4, 3)
        960
    """
    n, dim = contract.integer("n", n), contract.integer("dim", dim, least=1)
    return 2 * contract.integer("kernel_size", kernel_size, least=1) * n * dim**2


@validated
def recurrence_operations(n: int, dim: int) -> int:
    r"""The operations of a recurrent layer: $4nd^2$, for the input and for the state.

    Args:
        n: the number of tokens, at least 0.
        dim: the width $d$, at least 1.

    Returns:
        Floating-point operations; a multiply-add counts two.

    Examples:
        >>> recurrence_operations(10, 4)
        640
    """
    n, dim = contract.integer("n", n), contract.integer("dim", dim, least=1)
    return 4 * n * dim**2


@validated
def self_attention_operations(n: int, dim: int) -> int:
    r"""The operations of self-attention: $4n^2d$ for scores and sums, $8nd^2$ for four projections.

    The quadratic part takes over at $n = 2d$.

    Args:
        n: the number of tokens, at least 0.
        dim: the width $d$, at least 1.

    Returns:
        Floating-point operations; a multiply-add counts two.

    Examples:
        >>> self_attention_operations(8, 4)
        2048
    """
    n, dim = contract.integer("n", n), contract.integer("dim", dim, least=1)
    return 4 * n**2 * dim + 8 * n * dim**2
