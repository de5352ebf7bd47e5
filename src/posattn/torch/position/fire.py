"""FIRE: a small network that reads how far back a key lies on the way to the first token."""

import math

import torch
from jaxtyping import Float, Real
from torch import Tensor, nn

from posattn import contract
from posattn.torch.attention.masks import relative_positions
from posattn.torch.validated import validated

__all__ = ["FIRE"]

EPSILON = 1e-6  # of the authors, beside a divisor that may be 0


@validated
class FIRE(nn.Module):
    """A learned function of the distance, divided by the distance to the first token.

    Twin of :class:`posattn.reference.FIRE`.
    The numbers `c` and `multiplier` have the shape `(1)`, since FSDP2 shards nothing without axes.
    Half-precision parameters are used in float32, as distances need it; the bias has their dtype.
    Up to position 2**20 its error is below 2e-6 of the largest value in float32.

    Args:
        num_heads: the number of heads, at least 1.
        hidden_dim: the width $m$ of the hidden layer, at least 1.
        threshold: $L_0$ in positions, positive.
        dtype: of the parameters; PyTorch's default one if not given.
        device: where the parameters are made; PyTorch's default one if not given.
        rng: where they are drawn from; PyTorch's own source if not given.

    Examples:
        >>> layer = FIRE(2)
        >>> layer(torch.arange(3, 6), torch.arange(6)).shape
        torch.Size([2, 3, 6])
    """

    c: Float[Tensor, "1"]
    multiplier: Float[Tensor, "1"]
    hidden_weight: Float[Tensor, " m"]
    hidden_bias: Float[Tensor, " m"]
    output_weight: Float[Tensor, "m h"]
    output_bias: Float[Tensor, " h"]

    def __init__(
        self,
        num_heads: int,
        *,
        hidden_dim: int = 32,
        threshold: float = 512.0,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
        rng: torch.Generator | None = None,
    ):
        super().__init__()
        num_heads, hidden_dim = contract.sizes(num_heads=num_heads, hidden_dim=hidden_dim)
        self.threshold = contract.positive("threshold", threshold)
        for name, shape in (
            ("c", (1,)),
            ("multiplier", (1,)),
            ("hidden_weight", (hidden_dim,)),
            ("hidden_bias", (hidden_dim,)),
            ("output_weight", (hidden_dim, num_heads)),
            ("output_bias", (num_heads,)),
        ):
            empty = torch.empty(shape, dtype=dtype, device=device)
            self.register_parameter(name, nn.Parameter(empty))
        self.reset_parameters(rng)

    def reset_parameters(self, rng: torch.Generator | None = None) -> None:
        """Begin with `c` of 0.1, `multiplier` of 1, and weights drawn uniformly.

        Args:
            rng: where they are drawn from, or None for PyTorch's own source.
        """
        nn.init.constant_(self.c, 0.1)
        nn.init.constant_(self.multiplier, 1)
        bound = 1 / math.sqrt(len(self.hidden_bias))
        for parameter in (self.hidden_weight, self.hidden_bias):
            nn.init.uniform_(parameter, -1, 1, generator=rng)
        for parameter in (self.output_weight, self.output_bias):
            nn.init.uniform_(parameter, -bound, bound, generator=rng)

    def _load_from_state_dict(self, state_dict, prefix, *options):
        for name in (f"{prefix}c", f"{prefix}multiplier"):
            if name in state_dict:  # they may come without axes, as other columns have them
                state_dict[name] = state_dict[name].reshape(1)
        super()._load_from_state_dict(state_dict, prefix, *options)

    def extra_repr(self) -> str:
        """The sizes, for `repr`."""
        hidden_dim, num_heads = self.output_weight.shape
        return f"num_heads={num_heads}, hidden_dim={hidden_dim}, threshold={self.threshold}"

    def forward(
        self,
        query_positions: Real[Tensor, "*#batch n_q"],
        key_positions: Real[Tensor, "*#batch n_k"],
    ) -> Float[Tensor, "*batch h n_q n_k"]:
        """Compute the bias of each query and key.

        Twin of calling :class:`posattn.reference.FIRE`.

        Args:
            query_positions: any real numbers, `(*batch, n_q)`.
            key_positions: any real numbers, `(*batch, n_k)`.

        Returns:
            `(*batch, num_heads, n_q, n_k)`.
        """
        contract.network(
            self.hidden_weight, self.hidden_bias, self.output_weight, self.output_bias
        )
        wide = torch.promote_types(self.c.dtype, torch.float32)
        distances = relative_positions(query_positions, key_positions).abs().to(wide)
        least = self.multiplier.to(wide).abs() * self.threshold
        furthest = query_positions.to(wide)
        furthest = torch.where(furthest > least, furthest, least)
        c = self.c.to(wide).abs()
        divisor = torch.log1p(c * furthest) + EPSILON
        ratios = torch.log1p(c * distances) / divisor[..., :, None]
        hidden = ratios[..., None] * self.hidden_weight.to(wide) + self.hidden_bias.to(wide)
        bias = hidden.relu() @ self.output_weight.to(wide) + self.output_bias.to(wide)
        return bias.movedim(-1, -3).to(self.c.dtype)
