"""Temperature: queries that grow with their position, so that long contexts don't blur the weights."""

import numpy as np
from jaxtyping import Num

from posattn import contract
from posattn.reference.validated import validated

__all__ = ["log_temperature"]


@validated
def log_temperature(
    positions: Num[np.ndarray, "*batch n"],
    trained_length: float,
    scale: float = 0.1,
    *,
    first: int = 1,
    smooth: bool = False,
) -> Num[np.ndarray, "*batch n"]:
    r"""The factor on a query that grows with the logarithm of its position.

    .. math:: 1 + \beta \ln\left(1 + \left\lfloor \frac{p + a}{L} \right\rfloor\right)
        \qquad\text{or, if smooth,}\qquad 1 + \beta \ln \max\left(\frac{p + a}{L},\, 1\right).

    A key whose score lies $s$ above those of $n$ equal others has the weight $1 / (1 + n e^{-s})$. To keep
    it when there are more keys, $s$ must grow with $\ln n$. Below $L$ the factor is 1.

    Llama 4 has $a = 1$ and $L = 8192$ in its layers without rotation, Ministral 3 $a = 0$ and
    $L = 16384$, Inkling 2 the smooth form with $a = 1$ and $L = 128000$.
    Mistral Large 4 learns $s_h \ln(p + 1) + b_h$ for each head: $1 + \beta \ln(p + 1)$ is this function
    with $L = 1$ and `smooth`.

    The factor multiplies queries after their norm and rotation, `query * factor[:, None]`. It does not
    commute with a soft cap, nor with a sink.

    Args:
        positions: $p$, `(*batch, n)`.
        trained_length: $L$, above 0, in tokens.
        scale: $\beta$.
        first: $a$, what position 0 counts as.
        smooth: grow with every position, and not in steps of $L$.

    Returns:
        The factor, `(*batch, n)`.

    Examples:
        >>> log_temperature(np.array([0, 8190, 8191, 40000]), 8192).round(4)
        array([1.    , 1.    , 1.0693, 1.1609])
    """
    contract.positions("positions", positions)
    share = (positions + np.float64(contract.integer("first", first))) / contract.positive(
        "trained_length", trained_length
    )
    grown = np.log(np.maximum(share, 1)) if smooth else np.log1p(np.floor(share))
    return 1 + contract.finite("scale", scale) * grown
