"""DAPE: a bias that a small network adapts to the scores of the same pair of tokens."""

import math
from collections.abc import Callable

import torch
from jaxtyping import Float, Real
from torch import Tensor, nn
from torch.nn import functional

from posattn import contract
from posattn.torch.validated import validated

__all__ = ["DAPE"]


@validated
class DAPE(nn.Module):
    r"""A bias, corrected by a network that sees the scores and the bias of all heads.

    Twin of :class:`posattn.reference.DAPE`.
    A bias that is a module is part of this one, and trained with it.
    Half-precision heads are scored, and run through the network, in float32.

    Args:
        num_heads: the number of heads $H$, at least 1.
        bias: the bias to adapt, `(query_positions, key_positions) -> (num_heads, n_q, n_k)`.
        hidden_dim: the width $m$ of the hidden layer, at least 1.
        dtype: of the parameters `hidden_weight`, `(2 h, m)`, `hidden_bias`, `(m)`, `output_weight`,
            `(m, h)`, and `output_bias`, `(h)`.
        device: where the parameters lie.
        rng: where the network is drawn from, PyTorch's own generator if not given.

    Examples:
        >>> from posattn.torch import ALiBi
        >>> layer = DAPE(2, ALiBi(2))
        >>> query, key = torch.ones(2, 1, 4), torch.ones(2, 3, 4)
        >>> layer.scores(query, key, torch.tensor([2]), torch.arange(3)).shape
        torch.Size([2, 1, 3])
    """

    needs_all_keys = False  # a score needs only its own query and key
    hidden_weight: Float[Tensor, "two_h m"]
    hidden_bias: Float[Tensor, " m"]
    output_weight: Float[Tensor, "m h"]
    output_bias: Float[Tensor, " h"]

    def __init__(
        self,
        num_heads: int,
        bias: Callable,
        *,
        hidden_dim: int = 32,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
        rng: torch.Generator | None = None,
    ):
        super().__init__()
        num_heads, hidden_dim = contract.sizes(num_heads=num_heads, hidden_dim=hidden_dim)
        contract.function_of_positions("bias", bias)
        self.bias = bias

        def empty(*shape):
            return nn.Parameter(torch.empty(shape, dtype=dtype, device=device))

        self.hidden_weight = empty(2 * num_heads, hidden_dim)
        self.hidden_bias = empty(hidden_dim)
        self.output_weight = empty(hidden_dim, num_heads)
        self.output_bias = empty(num_heads)
        self.reset_parameters(rng)

    def reset_parameters(self, rng: torch.Generator | None = None) -> None:
        """Draw the network uniformly, as the authors do, and leave the bias that it adapts.

        Args:
            rng: where the network is drawn from, PyTorch's own generator if not given.
        """
        for weight, offset in (
            (self.hidden_weight, self.hidden_bias),
            (self.output_weight, self.output_bias),
        ):
            bound = 1 / math.sqrt(len(weight))
            nn.init.uniform_(weight, -bound, bound, generator=rng)
            nn.init.uniform_(offset, -bound, bound, generator=rng)

    def extra_repr(self) -> str:
        """What was given, for `repr`."""
        hidden_dim, num_heads = self.output_weight.shape
        return f"{num_heads}, hidden_dim={hidden_dim}"

    def scores(
        self,
        query: Float[Tensor, "*batch h n_q d_h"],
        key: Float[Tensor, "*batch h n_k d_h"],
        query_positions: Real[Tensor, "*#batch n_q"],
        key_positions: Real[Tensor, "*#batch n_k"],
    ) -> Float[Tensor, "*batch h n_q n_k"]:
        r"""What is added to the scaled scores.

        Twin of `scores` of :class:`posattn.reference.DAPE`.

        Args:
            query: the queries of each head, not yet scaled, `(*batch, h, n_q, d_h)`.
            key: the keys of each head, `(*batch, h, n_k, d_h)`.
            query_positions: where the queries stand, `(n_q)` or `(*batch, n_q)`.
            key_positions: where the keys stand, `(n_k)` or `(*batch, n_k)`.

        Returns:
            `(*batch, h, n_q, n_k)`.
        """
        network = self.hidden_weight, self.hidden_bias, self.output_weight, self.output_bias
        num_heads = contract.head_network(*network)
        contract.head_sequence("query", query)
        where = query_positions, key_positions
        contract.tile(query, key, *where, query.shape[-1], num_heads=num_heads)
        wide = torch.promote_types(query.dtype, torch.float32)
        products = query.to(wide) @ key.to(wide).mT / math.sqrt(query.shape[-1])
        bias = self.bias(*where)
        contract.base_bias(bias, products.shape)
        bias = bias.to(wide).expand_as(products)
        w1, b1, w2, b2 = (parameter.to(wide) for parameter in network)
        features = torch.cat([products, bias], dim=-3).movedim(-3, -1)
        hidden = functional.leaky_relu(features @ w1 + b1, 0.01)
        return (bias + (hidden @ w2 + b2).movedim(-1, -3)).to(query.dtype)
