"""DeBERTa's disentangled attention: content asks for positions, and positions ask for content."""

import torch
from jaxtyping import Float, Integer
from torch import Tensor, nn

from posattn import contract
from posattn.torch.multi_head import split_heads
from posattn.torch.relative import offsets, pick

__all__ = ["DisentangledBias"]


class DisentangledBias(nn.Module):
    """DeBERTa's terms of the score: content to position, and position to content.

    Twin of :class:`posattn.reference.DisentangledBias`.
    Queries and keys meet each row of the table once, and their products are then picked by offset.

    Examples:
        >>> bias = DisentangledBias(max_distance=4, dim=6, num_heads=3)
        >>> query = key = torch.ones(3, 5, 2)
        >>> bias.scores(query, key, torch.arange(5), torch.arange(5)).shape
        torch.Size([3, 5, 5])
        >>> round(bias.scale, 4)
        0.4082
    """

    def __init__(
        self,
        max_distance: int,
        dim: int,
        num_heads: int,
        *,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
        rng: torch.Generator | None = None,
    ):
        super().__init__()
        max_distance = contract.integer("max_distance", max_distance, least=1)
        dim = contract.integer("dim", dim, least=1)
        self.num_heads = contract.heads(num_heads, dim)
        contract.rng(
            rng, rng is None or isinstance(rng, torch.Generator), "torch.Generator"
        )
        for name, rows in (
            ("table", 2 * max_distance),
            ("query_weight", dim),
            ("key_weight", dim),
        ):
            drawn = nn.Parameter(torch.empty(rows, dim, dtype=dtype, device=device))
            nn.init.normal_(drawn, std=0.02, generator=rng)
            self.register_parameter(name, drawn)

    @property
    def scale(self) -> float:
        """The factor of all terms, which the attention must be given."""
        return (3 * self.key_weight.shape[1] / self.num_heads) ** -0.5

    def scores(
        self,
        query: Float[Tensor, "*batch h n_q d_h"],
        key: Float[Tensor, "*batch h n_k d_h"],
        query_positions: Integer[Tensor, "*#batch n_q"],
        key_positions: Integer[Tensor, "*#batch n_k"],
    ) -> Float[Tensor, "*batch h n_q n_k"]:
        """What is added to the scores, content to position and position to content.

        Twin of :meth:`posattn.reference.DisentangledBias.scores`.
        """
        reach, head_dim = contract.projected_table(
            self.table, self.query_weight, self.key_weight, self.num_heads
        )
        contract.tile(query, key, query_positions, key_positions, head_dim,
                      num_heads=self.num_heads, integers=True)  # fmt: skip
        wide = torch.promote_types(query.dtype, torch.float32)
        table = self.table.to(wide)
        of_query, of_key = (
            split_heads(table @ weight.to(wide), self.num_heads)
            for weight in (self.query_weight, self.key_weight)
        )
        ahead = offsets(query_positions, key_positions)
        rows_of_query, rows_of_key = (
            (distance + reach).clamp(0, 2 * reach - 1) for distance in (ahead, -ahead)
        )
        content_to_position = pick(query.to(wide) @ of_key.mT, rows_of_key)
        position_to_content = pick(key.to(wide) @ of_query.mT, rows_of_query.mT).mT
        return ((content_to_position + position_to_content) * self.scale).to(query.dtype)
