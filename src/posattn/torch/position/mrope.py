"""M-RoPE: positions in time, height and width for text with pictures and videos."""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Integer
from torch import Tensor

from posattn import contract
from posattn.torch.position.sinusoidal import frequencies
from posattn.torch.validated import validated

__all__ = ["mrope_frequencies", "mrope_positions"]


@validated
def mrope_frequencies(
    dim: int,
    sections: Sequence[int],
    *,
    base: float = 10000.0,
    interleaved: bool = False,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
) -> Float[Tensor, "c m"]:
    r"""Give each axis a section of the pairs of a text model.

    Twin of :func:`posattn.reference.mrope_frequencies`; float64 by default.

    Args:
        dim: the number of entries that rotate, $d$, even.
        sections: $n_0, \ldots, n_{c-1}$, how many pairs belong to each axis, in the order of the
            coordinates; positive integers with sum $d/2$. Interleaved, an axis $k > 0$ has room for
            $\lceil (d/2 - k) / c \rceil$.
        base: $b$, positive.
        interleaved: whether the axes take turns from pair to pair.
        dtype: of the frequencies; float64 if not given.
        device: where they are made; PyTorch's default one if not given.

    Returns:
        $\omega$ in radians per step, `(len(sections), d / 2)`.

    Examples:
        >>> mrope_frequencies(8, (2, 1, 1), base=16.0, interleaved=True)
        tensor([[1.0000, 0.0000, 0.0000, 0.1250],
                [0.0000, 0.5000, 0.0000, 0.0000],
                [0.0000, 0.0000, 0.2500, 0.0000]], dtype=torch.float64)
    """
    dim = contract.integer("dim", dim, least=1, even=True)
    sections = contract.sections(sections, dim // 2, interleaved)
    axes = torch.arange(len(sections))
    pairs = torch.arange(dim // 2)
    if interleaved:
        turn = pairs % len(sections)
        axis = torch.where(pairs < len(sections) * torch.tensor(sections)[turn], turn, 0)
    else:
        axis = axes.repeat_interleave(torch.tensor(sections))
    ours = axis == axes[:, None]
    return torch.where(ours, frequencies(dim, base=base), 0.0).to(device, dtype)


@validated
def mrope_positions(
    segments: Sequence[int | Sequence[int | float]],
    *,
    start: int = 0,
    device: torch.device | str | None = None,
) -> tuple[Integer[Tensor, "n c"], int]:
    r"""Time, row and column of each token of a text with pictures and videos.

    Twin of :func:`posattn.reference.mrope_positions`.

    Args:
        segments: the parts of the text in their order: a number of words (text tokens), or a grid
            `(t, h, w)` or `(t, h, w, step)` with sizes of at least 1 and $\delta$ = `step` a
            finite number of at least 0; 1 if not given.
        start: the position of the first token, at least 0.
        device: where the result lives.

    Returns:
        The coordinates, integers `(n, 3)`, and the position of the token that follows.

    Examples:
        >>> coordinates, following = mrope_positions([1, (1, 1, 2), 1])
        >>> coordinates
        tensor([[0, 0, 0],
                [1, 1, 1],
                [1, 1, 2],
                [3, 3, 3]])
        >>> following
        4
    """
    segments = contract.segments(segments)
    position = contract.integer("start", start)
    places = [torch.zeros(0, 3, dtype=torch.long, device=device)]
    for t, h, w, step in segments:
        along = torch.arange(t, device=device)
        if step is None:  # words
            places.append(along[:, None].expand(t, 3) + position)
            position += t
        else:
            time = (step * along.double()).long()
            rows, columns = (torch.arange(size, device=device) for size in (h, w))
            places.append(torch.cartesian_prod(time, rows, columns) + position)
            position += max(int(step * (t - 1)), h - 1, w - 1) + 1
    return torch.cat(places), position
