"""M-RoPE: positions in time, height and width for text with pictures and videos."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Integer

from posattn import contract
from posattn.reference.cases import Cases
from posattn.reference.position.axial import rotation_on_grid
from posattn.reference.position.card import SMALL, Card
from posattn.reference.position.sinusoidal import frequencies
from posattn.reference.validated import validated

__all__ = ["mrope_frequencies", "mrope_positions"]


@validated
def mrope_frequencies(
    dim: int, sections: Sequence[int], *, base: float = 10000.0, interleaved: bool = False
) -> Float[np.ndarray, "c m"]:
    r"""Give each axis a section of the pairs of a text model.

    .. math:: \omega_{k,j} = \begin{cases} b^{-2j/d} & \text{if pair } j \text{ belongs to axis } k \\
        0 & \text{elsewhere,} \end{cases} \qquad j = 0, \ldots, d/2 - 1.

    This is M-RoPE, with the axes time, height and width, for `rotate_axes(..., layout="half")`.
    The frequencies continue from section to section, whereas :func:`axial_frequencies` starts again.
    The three coordinates of a word all equal its position, so :func:`rotate` would rotate it the same way,
    and the model reads text as it did before it saw images.

    In Qwen2-VL and Qwen2.5-VL the sections are blocks: the first $n_0$ pairs belong to time, the next
    $n_1$ to height, the last $n_2$ to width, with `sections=(16, 24, 24)` for heads of width 128 and
    `base=1e6`.
    So time rotates fastest and width slowest.

    In Qwen3-VL and Qwen3.5 the axes take turns (`interleaved=True`; `mrope_interleaved` in their
    configurations), with `sections=(24, 20, 20)` for heads of width 128 and `base=5e6`.
    Pair $j$ belongs to axis $k = j \bmod c$ if $j < c\,n_k$. All other pairs belong to time.
    Each axis then has fast and slow pairs.
    Interleaving sections says nothing about which entries make a pair. Those models also rotate in the
    layout `"half"`.

    Args:
        dim: the number of entries that rotate, $d$, even.
        sections: $n_0, \ldots, n_{c-1}$, how many pairs belong to each axis, in the order of the
            coordinates; positive integers with sum $d/2$. Interleaved, an axis $k > 0$ has room for
            $\lceil (d/2 - k) / c \rceil$.
        base: $b$, positive.
        interleaved: whether the axes take turns from pair to pair.

    Returns:
        $\omega$ in radians per step, `(len(sections), d / 2)`.

    Raises:
        ValueError: if the sections do not add up or have no room, or a number lies outside its range.

    Examples:
        >>> mrope_frequencies(8, (1, 1, 2), base=16.0)
        array([[1.   , 0.   , 0.   , 0.   ],
               [0.   , 0.5  , 0.   , 0.   ],
               [0.   , 0.   , 0.25 , 0.125]])
        >>> mrope_frequencies(8, (2, 1, 1), base=16.0, interleaved=True)
        array([[1.   , 0.   , 0.   , 0.125],
               [0.   , 0.5  , 0.   , 0.   ],
               [0.   , 0.   , 0.25 , 0.   ]])

    References:
        :cite:t:`wang2024qwen2vl`, section 2.1; interleaved: :cite:t:`bai2025qwen3vl`.
        `nox -s oracles` compares it with `Qwen2VLRotaryEmbedding` and `Qwen3VLTextRotaryEmbedding` of
        transformers. (In older versions the sections stood in a function,
        `apply_multimodal_rotary_pos_emb`.)
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
) -> tuple[Integer[np.ndarray, "n c"], int]:
    r"""Time, row and column of each token of a text with pictures and videos.

    A segment begins at position $a$, the first one at `start`.
    Word $i$ of a text stands at $a + i$ on all three axes.
    Token $(f h + y)\,w + x$ of a grid of $t$ frames with $h$ rows and $w$ columns stands at

    .. math:: \bigl(a + \lfloor \delta f \rfloor,\; a + y,\; a + x\bigr).

    The next segment begins after the largest coordinate so far, at
    $\max(\lfloor \delta (t - 1) \rfloor, h - 1, w - 1) + 1$ steps from $a$.
    So a picture of 20 by 30 tokens takes 30 positions and not 600.

    A picture is a grid `(1, h, w)`.
    How a video is given depends on the model.
    In Qwen2-VL it is one grid `(t, h, w)`.
    In Qwen2.5-VL it is `(t, h, w, step)`, where `step` is the model's `tokens_per_second` times the
    seconds between two frames of the grid, so that time is absolute.
    In Qwen3-VL and Qwen3.5 each frame is a grid `(1, h, w)` of its own, and the text before it holds
    its time stamp.

    Heights and widths are counted in tokens, after the patches have been merged: divide those of a
    processor's `image_grid_thw` by `spatial_merge_size`, 2 in these models.
    A video with more frames than rows and columns ends later on the axis of time than on the others.
    The paper lets the text go on after that, and transformers after the
    larger of $h$ and $w$, also where frames reach further.

    Pass the coordinates to :func:`rotate_axes`, or to a layer that rotates with :class:`RotaryAxes`.
    While decoding, all three coordinates of a new token are the position that follows, which grows by 1
    with each token.

    Args:
        segments: the parts of the text in their order: a number of words (text tokens), or a grid
            `(t, h, w)` or `(t, h, w, step)` with sizes of at least 1 and $\delta$ = `step` a
            finite number of at least 0; 1 if not given.
        start: the position of the first token, at least 0.

    Returns:
        The coordinates, integers `(n, 3)`, and the position of the token that follows.

    Raises:
        TypeError: if a segment is neither a number nor a grid, or an argument is not of its kind.

    Examples:
        >>> coordinates, following = mrope_positions([2, (1, 2, 2), 1])
        >>> coordinates
        array([[0, 0, 0],
               [1, 1, 1],
               [2, 2, 2],
               [2, 2, 3],
               [2, 3, 2],
               [2, 3, 3],
               [4, 4, 4]])
        >>> following
        5

    References:
        :cite:t:`wang2024qwen2vl`, section 2.1; absolute time: :cite:t:`bai2025qwen25vl`;
        time stamps: :cite:t:`bai2025qwen3vl`. `nox -s oracles` compares it with
        `get_rope_index` of the models of transformers.
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
    return np.concatenate(places), position


def mrope_frequencies_cases():
    """A section of the pairs of a text model for each axis."""
    yield "Qwen2-VL", (128, [16, 24, 24]), {"base": 1e6}
    yield "unequal sections", (8, [1, 1, 2]), {}
    yield "one section", (8, [4]), {"base": 500.0}


def mrope_interleaved_cases():
    """Time, height and width take turns from pair to pair, and time has the pairs that are left."""
    yield "Qwen3-VL", (128, [24, 20, 20]), {"base": 5e6}
    yield "Qwen3.5: nothing is left", (64, [11, 11, 10]), {"base": 1e7}
    yield "more for time", (16, [4, 2, 2]), {}
    yield "another base", (12, [2, 2, 2]), {"base": 500.0}


def interleaved_frequencies(dim, sections, *, base=10000.0):
    """The sections of Qwen3-VL, as a function of their own."""
    return mrope_frequencies(dim, sections, base=base, interleaved=True)


CARDS = {
    "M-RoPE": Card(
        title="M-RoPE, for text, images and video",
        year=2024,
        idea=(
            "The pairs are split into three "
            "sections, which rotate with time, height and width."
        ),
        formula=(
            r"\text{pair } c \text{ rotates by } t_i\,\omega_c,\ y_i\,\omega_c \text{ or "
            r"} x_i\,\omega_c"
        ),
        symbols=(
            "$t_i$, $y_i$ and $x_i$ are time, row and column of token $i$, which are "
            r"equal for text, and $\omega_c$ is the frequency of pair $c$."
        ),
        cites=("wang2024qwen2vl",),
        function="mrope_frequencies",
        shows=(
            "blocks of 8 by 8, each of nearly one shade, because the columns get the "
            "slowest pairs"
        ),
        models=("Qwen2-VL",),
        make=lambda n, z=SMALL: rotation_on_grid(
            mrope_frequencies(z.head_dim, [z.head_dim // k for k in (8, 8, 4)]), z.side
        ),
    )
}

CASES = {
    "mrope_frequencies": Cases(
        mrope_frequencies,
        mrope_frequencies_cases,
        "wang2024qwen2vl, section 2.1",
        relative=True,
        exact=True,
    ),
    "mrope_interleaved": Cases(
        interleaved_frequencies,
        mrope_interleaved_cases,
        "bai2025qwen3vl",
        name="mrope_frequencies(..., interleaved=True)",
        relative=True,
        exact=True,
    ),
}
