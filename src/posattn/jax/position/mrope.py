"""M-RoPE: positions in time, height and width for text with pictures and videos."""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Integer

from posattn import contract
from posattn.jax.position.sinusoidal import frequencies
from posattn.jax.validated import validated

__all__ = ["mrope_frequencies", "mrope_positions"]


@validated
def mrope_frequencies(
    dim: int, sections: Sequence[int], *, base: float = 10000.0, interleaved: bool = False
) -> Float[np.ndarray, "c m"]:
    r"""Give each axis a section of the pairs of a text model.

    Twin of :func:`posattn.reference.mrope_frequencies`; a NumPy array in float64.

    Args:
        dim: the number of entries that rotate, $d$, even.
        sections: $n_0, \ldots, n_{c-1}$, how many pairs belong to each axis, in the order of the
            coordinates; positive integers with sum $d/2$. Interleaved, an axis $k > 0$ has room for
            $\lceil (d/2 - k) / c \rceil$.
        base: $b$, positive.
        interleaved: whether the axes take turns from pair to pair.

    Returns:
        $\omega$ in radians per step, `(len(sections), d / 2)`.

    Examples:
        >>> mrope_frequencies(8, (2, 1, 1), base=16.0, interleaved=True)
        array([[1.   , 0.   , 0.   , 0.125],
               [0.   , 0.5  , 0.   , 0.   ],
               [0.   , 0.   , 0.25 , 0.   ]])
    """
    dim = contract.integer("dim", dim, least=1, even=True)
    sections = contract.sections(sections, dim // 2, interleaved)
    axes = np.arange(len(sections))
    pairs = np.arange(dim // 2)
    if interleaved:
        turn = pairs % len(sections)
        axis = np.where(pairs < len(sections) * np.array(sections)[turn], turn, 0)
    else:
        axis = np.repeat(axes, sections)
    return np.where(axis == axes[:, None], frequencies(dim, base=base), 0.0)


@validated
def mrope_positions(
    segments: Sequence[int | Sequence[int | float]], *, start: int = 0
) -> tuple[Integer[Array, "n c"], int]:
    r"""Time, row and column of each token of a text with pictures and videos.

    Twin of :func:`posattn.reference.mrope_positions`.

    Args:
        segments: the parts of the text in their order: a number of words (text tokens), or a grid
            `(t, h, w)` or `(t, h, w, step)` with sizes of at least 1 and $\delta$ = `step` a
            finite number of at least 0; 1 if not given.
        start: the position of the first token, at least 0.

    Returns:
        The coordinates, integers `(n, 3)`, and the position of the token that follows.

    Examples:
        >>> coordinates, following = mrope_positions([1, (1, 1, 2), 1])
        >>> coordinates
        Array([[0, 0, 0],
               [1, 1, 1],
               [1, 1, 2],
               [3, 3, 3]], dtype=int32)
        >>> following
        4
    """
    segments = contract.segments(segments)
    position = contract.integer("start", start)
    places = [np.zeros((0, 3), int)]
    for t, h, w, step in segments:
        if step is None:  # words
            places.append(np.tile(np.arange(t)[:, None], 3) + position)
            position += t
        else:
            frame, row, column = np.indices((t, h, w)).reshape(3, -1)
            time = np.floor(step * frame).astype(int)
            places.append(np.stack([time, row, column], axis=-1) + position)
            position += max(int(step * (t - 1)), h - 1, w - 1) + 1
    return jnp.array(np.concatenate(places)), position
