"""Swin V2's continuous bias: a small network reads the displacement inside a window of an image."""

import torch
from jaxtyping import Float, Integer
from torch import Tensor, nn

from posattn import contract
from posattn.torch.position.swin import look_up
from posattn.torch.validated import validated

__all__ = ["SwinV2Bias"]


@validated
class SwinV2Bias(nn.Module):
    """A learned function of the displacement inside a window, which also works for a larger window.

    Twin of :class:`posattn.reference.SwinV2Bias`.
    Half-precision parameters are used in float32; the bias has their dtype.
    Under `torch.compile` a cell outside the window is not named here, but fails in the look-up.

    Args:
        num_heads: the number of heads, at least 1.
        height: the number of rows of the window, at least 1.
        width: the number of columns of the window, at least 1.
        trained_height: the number of rows in training, `height` if not given.
        trained_width: the number of columns in training, `width` if not given.
        hidden_dim: the width of the hidden layer, at least 1.
        dtype: of the parameters `hidden_weight`, `(2, hidden_dim)`, `hidden_bias`, `(hidden_dim)`,
            and `output_weight`, `(hidden_dim, num_heads)`.
        device: where the parameters lie.
        rng: where the weights are drawn from, PyTorch's own generator if not given.

    Examples:
        >>> layer = SwinV2Bias(2, 8, 8, trained_height=4, trained_width=4)
        >>> layer(torch.arange(64), torch.arange(64)).shape
        torch.Size([2, 64, 64])
    """

    hidden_weight: Float[Tensor, "2 m"]
    hidden_bias: Float[Tensor, " m"]
    output_weight: Float[Tensor, "m h"]

    def __init__(
        self,
        num_heads: int,
        height: int,
        width: int,
        *,
        trained_height: int | None = None,
        trained_width: int | None = None,
        hidden_dim: int = 512,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
        rng: torch.Generator | None = None,
    ):
        super().__init__()
        num_heads, hidden_dim, self.height, self.width = contract.sizes(
            num_heads=num_heads, hidden_dim=hidden_dim, height=height, width=width
        )
        self.trained_height, self.trained_width = (
            side if trained is None else contract.integer(name, trained, least=1)
            for name, trained, side in (
                ("trained_height", trained_height, self.height),
                ("trained_width", trained_width, self.width),
            )
        )

        def empty(*shape):
            return nn.Parameter(torch.empty(shape, dtype=dtype, device=device))

        self.hidden_weight = empty(2, hidden_dim)
        self.hidden_bias = empty(hidden_dim)
        self.output_weight = empty(hidden_dim, num_heads)
        self.reset_parameters(rng)

    def reset_parameters(self, rng: torch.Generator | None = None) -> None:
        """Draw the weights with standard deviation 0.02, and set the offset to zero.

        Args:
            rng: where the weights are drawn from, PyTorch's own generator if not given.
        """
        nn.init.normal_(self.hidden_weight, std=0.02, generator=rng)
        nn.init.zeros_(self.hidden_bias)
        nn.init.normal_(self.output_weight, std=0.02, generator=rng)

    def extra_repr(self) -> str:
        """What was given, for `repr`."""
        hidden_dim, num_heads = self.output_weight.shape
        return (
            f"{num_heads}, {self.height}, {self.width}, trained_height={self.trained_height}, "
            f"trained_width={self.trained_width}, hidden_dim={hidden_dim}"
        )

    def forward(
        self,
        query_positions: Integer[Tensor, "*#batch n_q"],
        key_positions: Integer[Tensor, "*#batch n_k"],
    ) -> Float[Tensor, "*batch h n_q n_k"]:
        """Compute the bias of each query and key.

        Twin of calling :class:`posattn.reference.SwinV2Bias`.

        Args:
            query_positions: integers from 0 to `height * width - 1`, `(*batch, n_q)`.
            key_positions: integers from 0 to `height * width - 1`, `(*batch, n_k)`.

        Returns:
            `(*batch, num_heads, n_q, n_k)`.
        """
        contract.window_network(self.hidden_weight, self.hidden_bias, self.output_weight)
        wide = torch.promote_types(self.hidden_weight.dtype, torch.float32)
        device = self.hidden_weight.device
        rows = _coordinates(self.height, self.trained_height, device)
        columns = _coordinates(self.width, self.trained_width, device)
        displacements = torch.cartesian_prod(rows, columns).to(wide)
        hidden = displacements @ self.hidden_weight.to(wide) + self.hidden_bias.to(wide)
        table = 16 * torch.sigmoid(hidden.relu() @ self.output_weight.to(wide))
        bias = look_up(table, query_positions, key_positions, self.height, self.width)
        return bias.to(self.hidden_weight.dtype)


def _coordinates(side, trained, device):
    """The displacements along one side, as the network reads them."""
    steps = torch.arange(1 - side, side, device=device, dtype=torch.float64)
    steps = 8 * steps / max(trained - 1, 1)
    return steps.sign() * torch.log2(1 + steps.abs()) / 3
