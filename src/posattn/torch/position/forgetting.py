"""The forgetting gate: how much of the past each token lets through."""

import math
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from posattn import contract
from posattn.torch.validated import validated

__all__ = ["ForgettingGate", "forgetting_bias", "tiled_forgetting_bias"]

SHUT = -1e4  # no dtype tells the weight behind such a gate from 0


@validated
def forgetting_bias(
    log_gates: Float[Tensor, "*batch h n_k"], n_q: int | None = None
) -> Float[Tensor, "*batch h n_q n_k"]:
    r"""The bias of the Forgetting Transformer: how much the gates between a key and a query let through.

    Twin of :func:`posattn.reference.forgetting_bias`.
    Half-precision gates are summed in float32.

    Args:
        log_gates: $\log f$, one per token and head, `(*batch, h, n_k)`, none above 0.
        n_q: the number of queries, which are aligned to the end of the keys; $n_k$ if not given.

    Returns:
        $d$, `(*batch, h, n_q, n_k)`.

    Examples:
        >>> forgetting_bias(torch.tensor([[0.5, 0.25, 0.5]]).log()).exp()
        tensor([[[1.0000, 1.0000, 1.0000],
                 [0.2500, 1.0000, 1.0000],
                 [0.1250, 0.5000, 1.0000]]])
    """
    n_q, n_k = contract.log_gates(log_gates, n_q)
    keys = torch.arange(n_k, device=log_gates.device)
    before = keys < keys[n_k - n_q :, None]
    wide = torch.promote_types(log_gates.dtype, torch.float32)
    following = log_gates.to(wide).roll(-1, -1)
    steps = following[..., None, :].where(before, 0)
    return steps.flip(-1).cumsum(-1).flip(-1).to(log_gates.dtype)


@validated
def tiled_forgetting_bias(log_gates: Float[Tensor, "*batch h n"]) -> Callable:
    r"""The bias of the Forgetting Transformer as a function of positions, for sequences of any length.

    Twin of :func:`posattn.reference.tiled_forgetting_bias`.
    Gates are summed in float64.

    Args:
        log_gates: $\log f$, one per token and head, `(*batch, h, n)`, none above 0.

    Returns:
        A function `bias(query_positions, key_positions)` of integers, `(n_q)` and `(n_k)` or with the batch
        axes of the gates, those of queries below $n$, that returns $d$, `(*batch, h, n_q, n_k)`.

    Examples:
        >>> bias = tiled_forgetting_bias(torch.tensor([[0.5, 0.25, 0.5]]).log())
        >>> bias(torch.tensor([2]), torch.arange(3)).exp()
        tensor([[[0.1250, 0.5000, 1.0000]]])
    """
    contract.log_gates(log_gates, None)
    shut = log_gates < SHUT
    sums = log_gates.double().masked_fill(shut, 0).cumsum(-1)
    return _Tiles(sums, shut.cumsum(-1), log_gates.dtype)


class _Tiles(nn.Module):
    """The difference of the sums at each query and key, and of the numbers of gates that are shut.

    The sums are buffers, which attention knows to be what the bias learns through.
    """

    def __init__(self, sums, shut, dtype):
        super().__init__()
        self.register_buffer("sums", functional.pad(sums, (1, 0)), persistent=False)
        self.register_buffer("shut", functional.pad(shut, (1, 0)), persistent=False)
        self.dtype = dtype

    def forward(self, query_positions, key_positions):
        n = self.sums.shape[-1] - 1
        known = not (torch.compiler.is_compiling() or self.sums.is_meta)
        shape = (*self.sums.shape[:-1], n)
        contract.gated_positions(query_positions, key_positions, shape, known=known)
        pair = query_positions.long().clamp(-1), key_positions.long().clamp(-1, n - 1)
        queries, keys = ((p + 1)[..., None, :].expand(*shape[:-1], -1) for p in pair)
        (at_query, at_key), (shut_at_query, shut_at_key) = (
            [x.gather(-1, p) for p in (queries, keys)] for x in (self.sums, self.shut)
        )
        bias = at_query[..., None] - at_key[..., None, :]
        behind = shut_at_query[..., None] > shut_at_key[..., None, :]
        future = pair[1][..., None, None, :] >= pair[0][..., None, :, None]
        return bias.masked_fill(behind, -math.inf).masked_fill(future, 0).to(self.dtype)


@validated
class ForgettingGate(nn.Module):
    """A gate per token and head, as its logarithm.

    Twin of :class:`posattn.reference.ForgettingGate`.
    Half-precision tokens are projected in float32; give `x.float()` for log gates that stay float32.

    Args:
        dim: the width of the tokens, at least 1.
        num_heads: the number of heads, at least 1.
        dtype: of the parameters; PyTorch's default one if not given.
        device: where the parameters are made; PyTorch's default one if not given.
        rng: where they are drawn from; PyTorch's own source if not given.

    Examples:
        >>> gate = ForgettingGate(8, 2)
        >>> gate(torch.ones(3, 5, 8)).shape
        torch.Size([3, 2, 5])
    """

    weight: Float[Tensor, "d h"]
    offset: Float[Tensor, " h"]

    def __init__(
        self,
        dim: int,
        num_heads: int,
        *,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
        rng: torch.Generator | None = None,
    ):
        super().__init__()
        dim, num_heads = contract.sizes(dim=dim, num_heads=num_heads)
        self.weight = nn.Parameter(torch.empty(dim, num_heads, dtype=dtype, device=device))
        self.offset = nn.Parameter(torch.empty(num_heads, dtype=dtype, device=device))
        self.reset_parameters(rng)

    def reset_parameters(self, rng: torch.Generator | None = None) -> None:
        """Draw the weight from a normal distribution with standard deviation 0.02; the offset is zero.

        Args:
            rng: where they are drawn from, or None for PyTorch's own source.
        """
        nn.init.normal_(self.weight, std=0.02, generator=rng)
        nn.init.zeros_(self.offset)

    def extra_repr(self) -> str:
        """The sizes, for `repr`."""
        dim, num_heads = self.weight.shape
        return f"dim={dim}, num_heads={num_heads}"

    def forward(self, x: Float[Tensor, "*batch n d"]) -> Float[Tensor, "*batch h n"]:
        r"""The log gates of a sequence.

        Twin of calling :class:`posattn.reference.ForgettingGate`.

        Args:
            x: `(*batch, n, d)`.

        Returns:
            $\log f$, `(*batch, h, n)`.
        """
        contract.sequence("x", x, len(self.weight))
        contract.parameter("offset", self.offset, tuple(self.weight.shape[1:]))
        wide = torch.promote_types(x.dtype, torch.float32)
        z = x.to(wide) @ self.weight.to(wide) + self.offset.to(wide)
        return functional.logsigmoid(z).mT.to(x.dtype)
