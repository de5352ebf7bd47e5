"""FoPE: each pair rotates with a sum of waves, and the slowest pairs stand still."""

import math

import torch
from jaxtyping import Float, Real
from torch import Tensor
from torch.nn import functional

from posattn import contract
from posattn.torch.position.rotary import rotate_by
from posattn.torch.position.sinusoidal import frequencies as sinusoidal_frequencies
from posattn.torch.validated import validated

__all__ = ["fope", "fope_frequencies"]


@validated
def fope_frequencies(
    head_dim: int,
    *,
    base: float = 10000.0,
    trained_length: int,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
) -> Float[Tensor, " k"]:
    r"""Keep the frequencies that complete a circle within the trained length.

    Twin of :func:`posattn.reference.fope_frequencies`; float64 by default.

    Args:
        head_dim: the width of a head, $d$, even.
        base: $b$, positive.
        trained_length: $L$ in tokens, at least 1.
        dtype: of the frequencies; float64 if not given.
        device: where they are made; PyTorch's default one if not given.

    Returns:
        $\omega$ in radians per position, `(K)`, from fast to slow.

    Examples:
        >>> fope_frequencies(8, base=16.0, trained_length=20)
        tensor([1.0000, 0.5000], dtype=torch.float64)
    """
    head_dim = contract.integer("head_dim", head_dim, least=1, even=True)
    trained_length = contract.integer("trained_length", trained_length, least=1)
    kept = sinusoidal_frequencies(head_dim, base=base)
    return kept[kept > 2 * math.pi / trained_length].to(device, dtype)


@validated
def fope(
    x: Float[Tensor, "*batch h n d"],
    positions: Real[Tensor, "*#batch_and_heads n"] | None = None,
    *,
    frequencies: Float[Tensor, " k"],
    cos_weight: Float[Tensor, "h_w k m"],
    sin_weight: Float[Tensor, "h_w k m"],
    layout: str = "half",
    rest_sine: float = 1.0,
) -> Float[Tensor, "*batch h n d"]:
    r"""Rotate each pair of entries with a sum of waves instead of a single one.

    Twin of :func:`posattn.reference.fope`.
    Angles are float64 until sine and cosine are taken; these are weighted in the dtype of the weights, at
    least float32.

    Args:
        x: the queries or keys of each head, `(*batch, h, n, d)`, $d$ even.
        positions: $p$, any real numbers: `(n)`, or with batch axes of which each is that of `x` or 1;
            $0, \ldots, n - 1$ if not given.
        frequencies: $\omega$ in radians per position, `(K)`.
        cos_weight: $\mathbf{A}$, `(H, K, m)`, where $2m \le d$ and $H$ divides $h$.
        sin_weight: $\mathbf{B}$, of the same shape.
        layout: `"interleaved"` or `"half"`.
        rest_sine: the sine of the other $d/2 - m$ pairs, finite: 1 in the authors' program.

    Returns:
        `(*batch, h, n, d)`.

    Examples:
        >>> one, x = torch.ones(1, 1, 1), torch.tensor([[[1.0, 1.0, 0.0, 0.0]] * 2])
        >>> still = {"cos_weight": one, "sin_weight": one, "rest_sine": 0.0}
        >>> fope(x, frequencies=torch.tensor([math.pi / 2]), **still).abs()
        tensor([[[1.0000e+00, 1.0000e+00, 0.0000e+00, 0.0000e+00],
                 [4.3711e-08, 1.0000e+00, 1.0000e+00, 0.0000e+00]]])
    """
    contract.head_sequence("x", x)
    contract.token_positions(positions, x.shape)
    groups = contract.waves(frequencies, cos_weight, sin_weight, x.shape)
    rest = contract.finite("rest_sine", rest_sine)
    if positions is None:
        positions = torch.arange(x.shape[-2], device=x.device)
    angles = positions.double()[..., None] * frequencies.double()
    wide = torch.promote_types(cos_weight.dtype, torch.float32)
    cos, sin = (
        wave.to(wide) @ weight.to(wide).repeat_interleave(groups, dim=0)
        for wave, weight in ((angles.cos(), cos_weight), (angles.sin(), sin_weight))
    )
    others = (0, x.shape[-1] // 2 - cos.shape[-1])
    cos = functional.pad(cos, others, value=1.0)
    return rotate_by(x, cos, functional.pad(sin, others, value=rest), layout)
