"""DeBERTa's disentangled attention: content asks for positions, and positions ask for content."""

from bisect import bisect_right
from functools import cache

import torch
from jaxtyping import Float, Integer
from torch import Tensor, nn

from posattn import contract
from posattn.torch.attention.heads import split_heads
from posattn.torch.position.relative import offsets, pick
from posattn.torch.validated import validated

__all__ = ["DisentangledBias", "deberta_bucket"]


@validated
def deberta_bucket(
    relative_position: Integer[Tensor, "*shape"],
    *,
    num_buckets: int = 256,
    max_distance: int = 512,
) -> Integer[Tensor, "*shape"]:
    """The bucket of a relative position in DeBERTa's second and third version, with its sign.

    Twin of :func:`posattn.reference.deberta_bucket`.

    Args:
        relative_position: the difference of two positions, integers of any shape.
        num_buckets: how many one direction has, even and at least 4: `position_buckets`.
        max_distance: where the last of them has ended: `max_relative_positions`, or, if that is negative,
            `max_position_embeddings`.

    Returns:
        Integers from `-num_buckets` to `num_buckets`, of the shape of `relative_position`.

    Examples:
        >>> deberta_bucket(torch.tensor([-512, -129, 5, 128, 132]))
        tensor([-256, -129,    5,  128,  131])
    """
    contract.integer_array("relative_position", relative_position)
    alone, max_distance = contract.log_buckets(num_buckets, max_distance)
    relative = relative_position.long()
    starts = torch.tensor(_starts(alone, max_distance), device=relative.device)
    return relative.sign() * torch.bucketize(relative.abs(), starts, right=True)


def _starts(alone, max_distance):
    """`_searched` for a compiler, which would trace a cached function."""
    return _searched(alone, max_distance)


# all that torch.compiler.assume_constant_result does, but it imports the compiler
_starts._dynamo_marked_constant = True


@cache
def _searched(alone, max_distance):
    """The first distance of each bucket but bucket 0."""
    bounds = [(max_distance - 1) ** k * alone ** (alone - 1 - k) for k in range(alone)]
    distances = range(max_distance)
    first = [
        bisect_right(distances, bound, key=lambda d: d ** (alone - 1)) for bound in bounds
    ]
    return (*range(1, alone + 1), *first)


@validated
class DisentangledBias(nn.Module):
    r"""DeBERTa's terms of the score: content to position, and position to content.

    Twin of :class:`posattn.reference.DisentangledBias`.
    Queries and keys meet each row of the table once, and their products are then picked by offset.

    Args:
        max_distance: $m$, half the number of rows of the table, at least 1.
        dim: the width $d$ of the layer, and of the table, at least 1.
        num_heads: the number of heads, a divisor of `dim`.
        same_row: whether position to content reads the row of $\delta(i, j)$, as the authors' code.
        bucketed_to: $D$, from where distances have no bucket, or None for a row for each distance.
        dtype: of the parameters; PyTorch's default one if not given.
        device: where the parameters are made; PyTorch's default one if not given.
        rng: where they are drawn from; PyTorch's own source if not given.

    Examples:
        >>> bias = DisentangledBias(max_distance=4, dim=6, num_heads=3)
        >>> query = key = torch.ones(3, 5, 2)
        >>> bias.scores(query, key, torch.arange(5), torch.arange(5)).shape
        torch.Size([3, 5, 5])
        >>> round(bias.scale, 4)
        0.4082
    """

    needs_all_keys = False  # a score needs only its own query and key
    table: Float[Tensor, "rows d"]
    query_weight: Float[Tensor, "d width"]
    key_weight: Float[Tensor, "d width"]

    def __init__(
        self,
        max_distance: int,
        dim: int,
        num_heads: int,
        *,
        same_row: bool = False,
        bucketed_to: int | None = None,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
        rng: torch.Generator | None = None,
    ):
        super().__init__()
        max_distance, dim = contract.sizes(max_distance=max_distance, dim=dim)
        self.num_heads = contract.heads(num_heads, dim)
        contract.bucketed(max_distance, bucketed_to)
        self.same_row, self.bucketed_to = same_row, bucketed_to
        for name, rows in (
            ("table", 2 * max_distance),
            ("query_weight", dim),
            ("key_weight", dim),
        ):
            empty = torch.empty(rows, dim, dtype=dtype, device=device)
            self.register_parameter(name, nn.Parameter(empty))
        self.reset_parameters(rng)

    def reset_parameters(self, rng: torch.Generator | None = None) -> None:
        """Draw all parameters from a normal distribution with standard deviation 0.02.

        Args:
            rng: where they are drawn from, or None for PyTorch's own source.
        """
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=0.02, generator=rng)

    def extra_repr(self) -> str:
        """The sizes, for `repr`."""
        rows, dim = self.table.shape
        return (
            f"max_distance={rows // 2}, dim={dim}, num_heads={self.num_heads}, "
            f"same_row={self.same_row}, bucketed_to={self.bucketed_to}"
        )

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

        Args:
            query: the queries of each head, `(*batch, h, n_q, d_h)`.
            key: the keys, `(*batch, h, n_k, d_h)`.
            query_positions: where the queries stand, integers, `(n_q)` or `(*batch, n_q)`.
            key_positions: where the keys stand, integers, `(n_k)` or `(*batch, n_k)`.

        Returns:
            `(*batch, h, n_q, n_k)`.
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
        behind = -offsets(query_positions, key_positions)
        if self.bucketed_to is not None:
            contract.bucketed(reach, self.bucketed_to)
            behind = deberta_bucket(
                behind, num_buckets=reach, max_distance=self.bucketed_to
            )
        rows_of_query, rows_of_key = (
            (distance + reach).clamp(0, 2 * reach - 1)
            for distance in (behind if self.same_row else -behind, behind)
        )
        content_to_position = pick(query.to(wide) @ of_key.mT, rows_of_key)
        position_to_content = pick(key.to(wide) @ of_query.mT, rows_of_query.mT).mT
        return ((content_to_position + position_to_content) * self.scale).to(query.dtype)
