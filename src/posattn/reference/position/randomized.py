"""Randomised positions: short sequences that have seen large positions."""

import numpy as np
from jaxtyping import Integer

from posattn import contract
from posattn.reference.position.card import SMALL, Card, Scheme, input_layer
from posattn.reference.position.sinusoidal import PositionalEncoding
from posattn.reference.validated import validated

__all__ = ["randomized_positions"]


@validated
def randomized_positions(
    length: int, max_len: int, *, rng: np.random.Generator
) -> Integer[np.ndarray, " n"]:
    r"""Draw positions for a sequence, in order, from a range that is wider than the sequence.

    .. math:: i_0 < i_1 < \ldots < i_{n-1}, \qquad \{i_0, \ldots, i_{n-1}\} \text{ uniform among the }
        \binom{L}{n} \text{ subsets of } \{0, \ldots, L - 1\} \text{ with } n \text{ elements.}

    A model trained on sequences of length $n$ with the positions $0, \ldots, n - 1$ meets unseen
    positions as soon as a sequence is longer.
    If positions are drawn anew for every batch, training covers all of them below $L$. The order of the
    tokens stays and their distances vary.
    They replace the positions $0, \ldots, n - 1$ wherever those are accepted: in
    `sinusoidal_encoding`, as `positions` of a layer, and so in every rotation and bias.

    What it guarantees: the positions are sorted and distinct, each is smaller than `max_len`, and
    every position is equally likely to be among them, with probability $n / L$.
    The mean of $i_j$ is $(j + 1)(L + 1)/(n + 1) - 1$.
    Two neighbours are $(L + 1)/(n + 1)$ apart on average, so a distance no longer tells the model how
    many tokens lie between.
    With $n = L$ nothing is random.

    Where it fails: $L$ must be chosen before training, and no sequence may be longer.
    The model is noisy at test time too, where the authors draw in the same way.
    Cached keys keep their positions, so draw once for the whole sequence that you are going to decode
    and not token by token.

    Variants: the paper counts positions from 1, its code from 0 as here.
    The code draws once per batch; draw once per example and stack the results for positions of
    shape `(*batch, n)`.
    For biases and Transformer-XL's terms the code draws *distances* instead, a new set for each
    layer and call.

    NumPy, PyTorch and JAX draw from the same distribution and not the same numbers.

    Args:
        length: $n$, the number of tokens, at most `max_len`.
        max_len: $L$, the number of positions to draw from, at least 1.
        rng: where the positions are drawn from.

    Returns:
        `(n)`, increasing integers from 0 to $L - 1$.

    Raises:
        TypeError: if an argument is not of its kind; without `rng` nothing can be drawn.
        ValueError: if `length` is negative or larger than `max_len`.

    Examples:
        >>> randomized_positions(4, 100, rng=np.random.default_rng(0))
        array([26, 50, 62, 82])
        >>> randomized_positions(3, 3, rng=np.random.default_rng(0))
        array([0, 1, 2])

    References:
        :cite:t:`ruoss2023randomized`, section 3.
    """
    length, max_len = contract.sample(length, max_len)
    return np.sort(rng.choice(max_len, length, replace=False, shuffle=False))


def _drawn(n):
    """The positions of `n` tokens, drawn from 1000."""
    return randomized_positions(n, 1000, rng=np.random.default_rng(n))


CARDS = {
    "randomized": Card(
        title="Randomized positions",
        year=2023,
        idea=(
            "During training, draw increasing positions at random from a long range, so "
            "that large positions are no surprise later."
        ),
        formula=(
            r"\mathbf{x}_i \mapsto \mathbf{x}_i + \mathbf{p}_{r_i}, \quad r_0 < r_1 < "
            r"\ldots \text{ drawn from } \{0, \ldots, n_{\max} - 1\}"
        ),
        symbols=(
            r"$r_i$ is the position drawn for token $i$, $n_{\max}$ the end of the range, "
            r"and $\mathbf{p}_r$ the sinusoidal encoding of position $r$."
        ),
        cites=("ruoss2023randomized",),
        function="randomized_positions",
        shows="the waves of the sinusoid, broken into noise because the positions jump",
        make=lambda n, z=SMALL: Scheme(
            encode=input_layer(PositionalEncoding(z.dim)).encode, positions=_drawn
        ),
    ),
}

CASES = {}  # what is drawn has no expected result
