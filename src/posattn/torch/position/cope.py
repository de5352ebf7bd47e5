"""CoPE: a position is a count of the tokens that the query holds for worth counting."""

import math

import torch
from jaxtyping import Float, Real
from torch import Tensor, nn

from posattn import contract
from posattn.torch.validated import validated

__all__ = ["CoPE"]


@validated
class CoPE(nn.Module):
    """Contextual position encoding: gates count the tokens between a query and a key.

    Twin of :class:`posattn.reference.CoPE`.
    Half-precision heads are counted in float32.

    Args:
        max_len: the number of rows, one more than the largest count, at least 1.
        head_dim: the width of the heads, at least 1.
        dtype: of the parameters; PyTorch's default one if not given.
        device: where the parameters are made; PyTorch's default one if not given.
        rng: where they are drawn from; PyTorch's own source if not given.

    Examples:
        >>> cope = CoPE(16, 4)
        >>> query, key = torch.ones(2, 1, 4), torch.ones(2, 3, 4)
        >>> cope.scores(query, key, torch.tensor([2]), torch.arange(3)).shape
        torch.Size([2, 1, 3])
    """

    needs_all_keys = True  # a score counts the other keys, too
    table: Float[Tensor, "max_len d_h"]

    def __init__(
        self,
        max_len: int,
        head_dim: int,
        *,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
        rng: torch.Generator | None = None,
    ):
        super().__init__()
        max_len, head_dim = contract.sizes(max_len=max_len, head_dim=head_dim)
        self.table = nn.Parameter(
            torch.empty(max_len, head_dim, dtype=dtype, device=device)
        )
        self.reset_parameters(rng)

    def reset_parameters(self, rng: torch.Generator | None = None) -> None:
        """Draw the table from a normal distribution with standard deviation 0.02.

        Args:
            rng: where they are drawn from, or None for PyTorch's own source.
        """
        nn.init.normal_(self.table, std=0.02, generator=rng)

    def extra_repr(self) -> str:
        """The sizes, for `repr`."""
        max_len, head_dim = self.table.shape
        return f"max_len={max_len}, head_dim={head_dim}"

    def scores(
        self,
        query: Float[Tensor, "*batch h n_q d_h"],
        key: Float[Tensor, "*batch h n_k d_h"],
        query_positions: Real[Tensor, "*#batch n_q"],
        key_positions: Real[Tensor, "*#batch n_k"],
    ) -> Float[Tensor, "*batch h n_q n_k"]:
        r"""What is added to the scaled scores.

        Twin of `scores` of :class:`posattn.reference.CoPE`.

        Args:
            query: $\mathbf{q}$ of each head, not yet scaled, `(*batch, h, n_q, d_h)`.
            key: $\mathbf{k}$ of each head, `(*batch, h, n_k, d_h)`, in the order of their positions.
            query_positions: where the queries stand, `(n_q)` or `(*batch, n_q)`.
            key_positions: where the keys stand, `(n_k)` or `(*batch, n_k)`; a query counts
                the keys that stand at or before its own position.

        Returns:
            $b$, `(*batch, h, n_q, n_k)`.
        """
        max_len, head_dim = self.table.shape
        contract.tile(query, key, query_positions, key_positions, head_dim)
        dtype = query.dtype
        wide = torch.promote_types(dtype, torch.float32)
        query, key = query.to(wide), key.to(wide)
        passed = key_positions[..., None, :] <= query_positions[..., :, None]
        gates = torch.sigmoid(query @ key.mT / math.sqrt(head_dim))
        gates = gates.where(passed[..., None, :, :], 0)
        count = gates.flip(-1).cumsum(-1).flip(-1)
        count = count.where(count < max_len - 1, max_len - 1)
        below, above = count.detach().floor(), count.detach().ceil()
        products = query @ self.table.to(wide).mT
        return torch.lerp(
            products.gather(-1, below.long()),
            products.gather(-1, above.long()),
            count - below,
        ).to(dtype)
