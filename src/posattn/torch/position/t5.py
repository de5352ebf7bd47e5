"""T5's relative bias: one learned number per head and bucket of distances."""

from bisect import bisect_left

import torch
from jaxtyping import Float, Integer
from torch import Tensor, nn

from posattn import contract
from posattn.torch.attention.masks import relative_positions
from posattn.torch.validated import validated

__all__ = ["T5Bias", "t5_bucket"]


@validated
def t5_bucket(
    relative_position: Integer[Tensor, "*shape"],
    *,
    num_buckets: int = 32,
    max_distance: int = 128,
    bidirectional: bool = True,
) -> Integer[Tensor, "*shape"]:
    """The bucket of a relative position: narrow ones near the query, wide ones far from it.

    Twin of :func:`posattn.reference.t5_bucket`.

    Args:
        relative_position: position of the key minus position of the query, integers of any shape.
        num_buckets: at least 2; even and at least 4 if `bidirectional`.
        max_distance: $D$, greater than $E$.
        bidirectional: use separate buckets for the two directions.

    Returns:
        Integers from 0 to `num_buckets - 1`, of the shape of `relative_position`.

    Examples:
        >>> t5_bucket(torch.tensor([-12, -11, 0, 1, 8]))
        tensor([ 9,  8,  0, 17, 24])
    """
    contract.integer_array("relative_position", relative_position)
    one_way, max_distance = contract.buckets(num_buckets, max_distance, bidirectional)
    relative = relative_position.long()
    distance = relative.abs() if bidirectional else (-relative).clamp(min=0)
    starts = torch.tensor(_starts(one_way, max_distance), device=relative.device)
    bucket = torch.bucketize(distance, starts, right=True)
    return bucket + one_way * (relative > 0) if bidirectional else bucket


def _starts(one_way, max_distance):
    """The first distance of each bucket but bucket 0."""
    exact = one_way // 2
    power = one_way - exact
    bounds = [max_distance**k * exact ** (power - k) for k in range(power)]
    distances = range(max_distance)
    first = [bisect_left(distances, bound, key=lambda d: d**power) for bound in bounds]
    return [*range(1, exact), *first]


# all that torch.compiler.assume_constant_result does, but it imports the compiler
_starts._dynamo_marked_constant = True


@validated
class T5Bias(nn.Module):
    """A learned bias for each head and each bucket of relative positions.

    Twin of :class:`posattn.reference.T5Bias`.
    The gradient of a half-precision table is summed in float32: a bucket has many pairs.

    Args:
        num_heads: the number of heads, at least 1.
        num_buckets: at least 2; even and at least 4 if `bidirectional`.
        max_distance: where the last bucket begins.
        bidirectional: use separate buckets for the two directions.
        dtype: of the parameters; PyTorch's default one if not given.
        device: where the parameters are made; PyTorch's default one if not given.
        rng: where they are drawn from; PyTorch's own source if not given.

    Examples:
        >>> layer = T5Bias(2)
        >>> layer(torch.arange(3, 6), torch.arange(6)).shape
        torch.Size([2, 3, 6])
    """

    relative = True  # a function of distances only
    table: Float[Tensor, "num_buckets h"]

    def __init__(
        self,
        num_heads: int,
        *,
        num_buckets: int = 32,
        max_distance: int = 128,
        bidirectional: bool = True,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
        rng: torch.Generator | None = None,
    ):
        super().__init__()
        num_heads = contract.integer("num_heads", num_heads, least=1)
        contract.buckets(num_buckets, max_distance, bidirectional)
        self.max_distance = max_distance
        self.bidirectional = bidirectional
        self.table = nn.Parameter(
            torch.empty(num_buckets, num_heads, dtype=dtype, device=device)
        )
        self.reset_parameters(rng)

    def reset_parameters(self, rng: torch.Generator | None = None) -> None:
        """Draw the table uniformly, within the bounds of Glorot.

        Args:
            rng: where they are drawn from, or None for PyTorch's own source.
        """
        nn.init.xavier_uniform_(self.table, generator=rng)

    def extra_repr(self) -> str:
        """The sizes, for `repr`."""
        num_buckets, num_heads = self.table.shape
        return (
            f"num_heads={num_heads}, num_buckets={num_buckets}, "
            f"max_distance={self.max_distance}, bidirectional={self.bidirectional}"
        )

    def forward(
        self,
        query_positions: Integer[Tensor, "*#batch n_q"],
        key_positions: Integer[Tensor, "*#batch n_k"],
    ) -> Float[Tensor, "*batch h n_q n_k"]:
        """Look up the bias of each query and key.

        Twin of calling :class:`posattn.reference.T5Bias`.

        Args:
            query_positions: integers, `(*batch, n_q)`.
            key_positions: integers, `(*batch, n_k)`.

        Returns:
            `(*batch, num_heads, n_q, n_k)`.
        """
        contract.position_pair(query_positions, key_positions, integers=True)
        bucket = t5_bucket(
            relative_positions(query_positions, key_positions),
            num_buckets=self.table.shape[0],
            max_distance=self.max_distance,
            bidirectional=self.bidirectional,
        )
        table = self.table.to(torch.promote_types(self.table.dtype, torch.float32))
        bias = nn.functional.embedding(bucket, table).movedim(-1, -3)
        return bias.to(self.table.dtype)
