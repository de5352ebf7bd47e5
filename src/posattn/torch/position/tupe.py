"""TUPE: positions attend to positions, through their own projections."""

import torch
from jaxtyping import Float, Integer
from torch import Tensor, nn
from torch.nn import functional

from posattn import contract
from posattn.torch.attention.heads import split_heads
from posattn.torch.validated import validated

__all__ = ["TUPEBias"]


@validated
class TUPEBias(nn.Module):
    r"""TUPE's term of the score: absolute positions attend to each other, apart from the content.

    Twin of :class:`posattn.reference.TUPEBias`.
    Under `torch.compile` the values of positions are not checked here, but by the look-up.

    Args:
        max_len: $n_{\max}$, the number of positions, at least 1.
        dim: the width $d$ of the layer, and of the table, at least 1.
        num_heads: the number of heads, a divisor of `dim`.
        use_cls: whether position 0 holds [CLS]; $\theta$ starts at 0.
        dtype: of the parameters; PyTorch's default one if not given.
        device: where the parameters are made; PyTorch's default one if not given.
        rng: where they are drawn from; PyTorch's own source if not given.

    Examples:
        >>> bias = TUPEBias(max_len=10, dim=6, num_heads=3, use_cls=True)
        >>> bias(torch.arange(2), torch.arange(5)).shape
        torch.Size([3, 2, 5])
        >>> bias.scale
        0.5
    """

    table: Float[Tensor, "max_len d"]
    query_weight: Float[Tensor, "d width"]
    key_weight: Float[Tensor, "d width"]
    cls_bias: Float[Tensor, "2 h"] | None

    def __init__(
        self,
        max_len: int,
        dim: int,
        num_heads: int,
        *,
        use_cls: bool = False,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
        rng: torch.Generator | None = None,
    ):
        super().__init__()
        max_len, dim = contract.sizes(max_len=max_len, dim=dim)
        self.num_heads = contract.heads(num_heads, dim)
        for name, rows in (("table", max_len), ("query_weight", dim), ("key_weight", dim)):
            empty = torch.empty(rows, dim, dtype=dtype, device=device)
            self.register_parameter(name, nn.Parameter(empty))
        of_cls = torch.empty(2, self.num_heads, dtype=dtype, device=device)
        self.cls_bias = nn.Parameter(of_cls) if use_cls else None
        self.reset_parameters(rng)

    def reset_parameters(self, rng: torch.Generator | None = None) -> None:
        """Draw table and weights from a normal distribution with standard deviation 0.02.

        Args:
            rng: where they are drawn from, or None for PyTorch's own source.
        """
        for parameter in (self.table, self.query_weight, self.key_weight):
            nn.init.normal_(parameter, std=0.02, generator=rng)
        if self.cls_bias is not None:
            nn.init.zeros_(self.cls_bias)

    def extra_repr(self) -> str:
        """The sizes, for `repr`."""
        (max_len, dim), use_cls = self.table.shape, self.cls_bias is not None
        return (
            f"max_len={max_len}, dim={dim}, num_heads={self.num_heads}, use_cls={use_cls}"
        )

    @property
    def scale(self) -> float:
        """The factor of both terms, which the attention must be given."""
        return (2 * self.key_weight.shape[1] / self.num_heads) ** -0.5

    def forward(
        self,
        query_positions: Integer[Tensor, "*#batch n_q"],
        key_positions: Integer[Tensor, "*#batch n_k"],
    ) -> Float[Tensor, "*batch_and_heads n_q n_k"]:
        r"""What is added to the scores.

        Twin of calling :class:`posattn.reference.TUPEBias`.

        Args:
            query_positions: where the queries stand, integers from 0 to $n_{\max} - 1$, `(n_q)` or
                `(*batch, n_q)`.
            key_positions: where the keys stand, likewise, `(n_k)` or `(*batch, n_k)`.

        Returns:
            `(h, n_q, n_k)`, or `(*batch, h, n_q, n_k)` if positions have batch axes.
        """
        contract.untied(
            self.table, self.query_weight, self.key_weight, self.cls_bias, self.num_heads
        )
        contract.position_pair(query_positions, key_positions, integers=True)
        for name, where in (
            ("query_positions", query_positions),
            ("key_positions", key_positions),
        ):
            known = not (torch.compiler.is_compiling() or where.is_meta)
            contract.table_rows(where, len(self.table), known=known, name=name)
        queries, keys = (
            split_heads(
                functional.embedding(where.long(), self.table) @ weight, self.num_heads
            )
            for where, weight in (
                (query_positions, self.query_weight),
                (key_positions, self.key_weight),
            )
        )
        scores = queries @ keys.mT * self.scale
        if self.cls_bias is None:
            return scores
        from_cls, to_cls = self.cls_bias[..., None, None]
        scores = torch.where((key_positions == 0)[..., None, None, :], to_cls, scores)
        return torch.where((query_positions == 0)[..., None, :, None], from_cls, scores)
