"""Relative representations: a learned vector for each offset between query and key."""

import math

import torch
from jaxtyping import Float, Integer
from torch import Tensor, nn
from torch.nn import functional

from posattn import contract
from posattn.torch.attention.masks import relative_positions
from posattn.torch.validated import validated

__all__ = ["RelativeGlobalAttention", "ShawRelative", "skew"]


@validated
class ShawRelative(nn.Module):
    """Shaw's relative representations: each offset has a vector that is added to keys, and one for values.

    Twin of :class:`posattn.reference.ShawRelative`.
    Queries meet each vector once, and their products are then picked by offset, so that no vector is
    copied for a pair; sums are taken in float32 at least.

    Args:
        max_distance: $m$, the largest offset that has its own vector, at least 0.
        head_dim: the width $d_h$ of a head, at least 1.
        use_values: whether offsets act on values, too.
        dtype: of the parameters; PyTorch's default one if not given.
        device: where the parameters are made; PyTorch's default one if not given.
        rng: where they are drawn from; PyTorch's own source if not given.

    Examples:
        >>> bias = ShawRelative(max_distance=4, head_dim=2)
        >>> query = key = torch.ones(3, 5, 2)
        >>> bias.scores(query, key, torch.arange(5), torch.arange(5)).shape
        torch.Size([3, 5, 5])
    """

    needs_all_keys = False  # a score needs only its own query and key
    key_table: Float[Tensor, "offsets d_h"]
    value_table: Float[Tensor, "offsets d_h"] | None

    def __init__(
        self,
        max_distance: int,
        head_dim: int,
        *,
        use_values: bool = True,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
        rng: torch.Generator | None = None,
    ):
        super().__init__()
        rows = 2 * contract.integer("max_distance", max_distance) + 1
        head_dim = contract.integer("head_dim", head_dim, least=1)
        for name, used in (("key_table", True), ("value_table", use_values)):
            empty = torch.empty(rows, head_dim, dtype=dtype, device=device)
            self.register_parameter(name, nn.Parameter(empty) if used else None)
        self.reset_parameters(rng)

    def reset_parameters(self, rng: torch.Generator | None = None) -> None:
        """Draw the tables uniformly, within the bounds of Glorot.

        Args:
            rng: where they are drawn from, or None for PyTorch's own source.
        """
        for table in self.parameters():
            nn.init.xavier_uniform_(table, generator=rng)

    def extra_repr(self) -> str:
        """The sizes, for `repr`."""
        rows, head_dim = self.key_table.shape
        use_values = self.value_table is not None
        return f"max_distance={rows // 2}, head_dim={head_dim}, use_values={use_values}"

    def scores(
        self,
        query: Float[Tensor, "*batch h n_q d_h"],
        key: Float[Tensor, "*batch h n_k d_h"],
        query_positions: Integer[Tensor, "*#batch n_q"],
        key_positions: Integer[Tensor, "*#batch n_k"],
    ) -> Float[Tensor, "*batch h n_q n_k"]:
        """What is added to the scores.

        Twin of :meth:`posattn.reference.ShawRelative.scores`.

        Args:
            query: the queries of each head, `(*batch, h, n_q, d_h)`.
            key: the keys, `(*batch, h, n_k, d_h)`; only their shape and dtype are looked at.
            query_positions: where the queries stand, integers, `(n_q)` or `(*batch, n_q)`.
            key_positions: where the keys stand, integers, `(n_k)` or `(*batch, n_k)`.

        Returns:
            `(*batch, h, n_q, n_k)`.
        """
        head_dim = self.key_table.shape[-1]
        contract.tile(query, key, query_positions, key_positions, head_dim, integers=True)
        reach = contract.offset_table("key_table", self.key_table, odd=True)
        rows = offsets(query_positions, key_positions).clamp(-reach, reach) + reach
        wide = torch.promote_types(query.dtype, torch.float32)
        products = query.to(wide) @ self.key_table.to(wide).mT / math.sqrt(head_dim)
        return pick(products, rows).to(query.dtype)

    def values(
        self,
        weights: Float[Tensor, "*batch h n_q n_k"],
        query_positions: Integer[Tensor, "*#batch n_q"],
        key_positions: Integer[Tensor, "*#batch n_k"],
    ) -> Float[Tensor, "*batch h n_q d_h"]:
        """What is added to the output of the heads.

        Twin of :meth:`posattn.reference.ShawRelative.values`; it adds up the weights of each offset first.

        Args:
            weights: the attention weights $w$, `(*batch, h, n_q, n_k)`.
            query_positions: where the queries stand, integers, `(n_q)` or `(*batch, n_q)`.
            key_positions: where the keys stand, integers, `(n_k)` or `(*batch, n_k)`.

        Returns:
            `(*batch, h, n_q, d_h)`, zeros without a table of values.
        """
        contract.head_sequence("weights", weights)
        contract.tile_positions(
            query_positions, key_positions, weights.shape, integers=True
        )
        if self.value_table is None:
            return weights.new_zeros(*weights.shape[:-1], self.key_table.shape[-1])
        reach = contract.offset_table("value_table", self.value_table, odd=True)
        rows = offsets(query_positions, key_positions).clamp(-reach, reach) + reach
        wide = torch.promote_types(weights.dtype, torch.float32)
        totals = weights.new_zeros(*weights.shape[:-1], 2 * reach + 1, dtype=wide)
        totals = totals.scatter_add(-1, rows.expand(weights.shape), weights.to(wide))
        return (totals @ self.value_table.to(wide)).to(weights.dtype)


@validated
def skew(x: Float[Tensor, "*batch n n"]) -> Float[Tensor, "*batch n n"]:
    r"""Move products with a table of distances to the keys at those distances.

    Twin of :func:`posattn.reference.skew`.

    Args:
        x: $\mathbf{X}$, `(*batch, n, n)`, for the queries and keys of the same $n$ tokens.

    Returns:
        `(*batch, n, n)`.

    Examples:
        >>> skew(torch.tensor([[0.0, 1.0], [2.0, 3.0]]))
        tensor([[1., 0.],
                [2., 3.]])
    """
    contract.square("x", x)
    *batch, n, _ = x.shape
    return functional.pad(x, (1, 0)).reshape(*batch, n + 1, n)[..., 1:, :]


@validated
class RelativeGlobalAttention(nn.Module):
    r"""The relative attention of the Music Transformer: each head has a vector for each distance.

    Twin of :class:`posattn.reference.RelativeGlobalAttention`.
    Queries meet each vector once, and their products are then picked by distance.

    Args:
        max_len: $n_{\max}$, the number of distances with a vector, at least 1.
        num_heads: the number of heads, at least 1.
        head_dim: the width $d_h$ of a head, at least 1.
        dtype: of the parameters; PyTorch's default one if not given.
        device: where the parameters are made; PyTorch's default one if not given.
        rng: where they are drawn from; PyTorch's own source if not given.

    Examples:
        >>> bias = RelativeGlobalAttention(max_len=8, num_heads=3, head_dim=2)
        >>> query = key = torch.ones(3, 5, 2)
        >>> bias.scores(query, key, torch.arange(5), torch.arange(5)).shape
        torch.Size([3, 5, 5])
    """

    needs_all_keys = False  # a score needs only its own query and key
    table: Float[Tensor, "h max_len d_h"]

    def __init__(
        self,
        max_len: int,
        num_heads: int,
        head_dim: int,
        *,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
        rng: torch.Generator | None = None,
    ):
        super().__init__()
        max_len, num_heads, head_dim = contract.sizes(
            max_len=max_len, num_heads=num_heads, head_dim=head_dim
        )
        self.table = nn.Parameter(
            torch.empty(num_heads, max_len, head_dim, dtype=dtype, device=device)
        )
        self.reset_parameters(rng)

    def reset_parameters(self, rng: torch.Generator | None = None) -> None:
        """Draw the table from a normal distribution with standard deviation `head_dim**-0.5`.

        Args:
            rng: where they are drawn from, or None for PyTorch's own source.
        """
        head_dim = self.table.shape[-1]
        nn.init.normal_(self.table, std=head_dim**-0.5, generator=rng)

    def extra_repr(self) -> str:
        """The sizes, for `repr`."""
        num_heads, max_len, head_dim = self.table.shape
        return f"max_len={max_len}, num_heads={num_heads}, head_dim={head_dim}"

    def scores(
        self,
        query: Float[Tensor, "*batch h n_q d_h"],
        key: Float[Tensor, "*batch h n_k d_h"],
        query_positions: Integer[Tensor, "*#batch n_q"],
        key_positions: Integer[Tensor, "*#batch n_k"],
    ) -> Float[Tensor, "*batch h n_q n_k"]:
        """What is added to the scores.

        Twin of :meth:`posattn.reference.RelativeGlobalAttention.scores`.

        Args:
            query: the queries of each head, `(*batch, h, n_q, d_h)`.
            key: the keys, `(*batch, h, n_k, d_h)`; only their shape and dtype are looked at.
            query_positions: where the queries stand, integers, `(n_q)` or `(*batch, n_q)`.
            key_positions: where the keys stand, integers, `(n_k)` or `(*batch, n_k)`.

        Returns:
            `(*batch, h, n_q, n_k)`, 0 for keys in the future and for those too far away.
        """
        num_heads, max_len, head_dim = self.table.shape
        contract.tile(query, key, query_positions, key_positions, head_dim,
                      num_heads=num_heads, integers=True)  # fmt: skip
        rows = max_len - 1 + offsets(query_positions, key_positions)
        wide = torch.promote_types(query.dtype, torch.float32)
        products = query.to(wide) @ self.table.to(wide).mT / math.sqrt(head_dim)
        near = (rows >= 0) & (rows < max_len)
        return pick(products, rows.clamp(0, max_len - 1)).where(near, 0).to(query.dtype)


def offsets(query_positions, key_positions):
    """Key minus query for every head, `(*batch, 1, n_q, n_k)`."""
    return relative_positions(query_positions, key_positions)[..., None, :, :]


def pick(products, rows):
    """From the products of each query with all rows, those with the rows that its keys have."""
    return products.gather(-1, rows.expand(*products.shape[:-1], rows.shape[-1]))
