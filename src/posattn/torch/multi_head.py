"""Multi-head attention: several attentions side by side, each in its own projection."""

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float, Real
from torch import Tensor, nn

from posattn import contract
from posattn.torch.attention import (
    attention_weights,
    dropout,
    mask_and_bias,
    scaled_dot_product_attention,
    zero_unattended,
)

__all__ = ["MultiHeadAttention", "merge_heads", "split_heads"]


def split_heads(
    x: Float[Tensor, "*batch n d"], num_heads: int
) -> Float[Tensor, "*batch h n d_h"]:
    """Cut the width into heads and make the heads a batch axis.

    Twin of :func:`posattn.reference.split_heads`; the result is a view.

    Examples:
        >>> split_heads(torch.tensor([[0.0, 1.0, 2.0, 3.0]]), 2)
        tensor([[[0., 1.]],
        <BLANKLINE>
                [[2., 3.]]])
    """
    contract.sequence("x", x)
    num_heads = contract.heads(num_heads, x.shape[-1])
    return x.unflatten(-1, (num_heads, x.shape[-1] // num_heads)).transpose(-3, -2)


def merge_heads(x: Float[Tensor, "*batch h n d_h"]) -> Float[Tensor, "*batch n d"]:
    """Put the heads back side by side: the inverse of `split_heads`.

    Twin of :func:`posattn.reference.merge_heads`.

    Examples:
        >>> merge_heads(torch.tensor([[[0.0, 1.0]], [[2.0, 3.0]]]))
        tensor([[0., 1., 2., 3.]])
    """
    contract.head_sequence("x", x)
    return x.transpose(-3, -2).flatten(-2)


class MultiHeadAttention(nn.Module):
    """Several attentions side by side, each in its own projection of the input.

    Twin of :class:`posattn.reference.MultiHeadAttention`.
    The weights are those of four :class:`torch.nn.Linear`, which keep them transposed.
    Dropout acts when `rng` is given to the call, not in `train` mode.
    `rotate` and `bias` may be modules with parameters of their own; a pair of those is a
    :class:`torch.nn.ModuleList`.

    Examples:
        >>> layer = MultiHeadAttention(8, 2)
        >>> x = torch.ones(3, 5, 8)
        >>> layer(x, x, x, causal=True).shape
        torch.Size([3, 5, 8])
    """

    def __init__(
        self,
        dim: int,
        num_heads: int,
        *,
        use_bias: bool = False,
        dropout_rate: float = 0.0,
        rotate: Callable | tuple[Callable, Callable] | None = None,
        bias: Callable | contract.ContentBias | None = None,
        scale: float | None = None,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
        rng: torch.Generator | None = None,
    ):
        super().__init__()
        self.dim = contract.integer("dim", dim, least=1)
        self.num_heads = contract.heads(num_heads, self.dim)
        self.dropout_rate = contract.dropout_rate(dropout_rate)
        self.rotate = rotate
        self.bias = bias
        self.scale = None if scale is None else contract.scale(scale)
        contract.rng(
            rng, rng is None or isinstance(rng, torch.Generator), "torch.Generator"
        )
        device = torch.get_default_device() if device is None else device
        for role in ("query", "key", "value", "output"):
            linear = nn.utils.skip_init(
                nn.Linear, self.dim, self.dim, bias=use_bias, device=device, dtype=dtype
            )
            nn.init.xavier_uniform_(linear.weight, generator=rng)
            if use_bias:
                nn.init.zeros_(linear.bias)
            self.add_module(role, linear)

    def forward(
        self,
        query: Float[Tensor, "*batch n_q d"],
        key: Float[Tensor, "*batch n_k d"],
        value: Float[Tensor, "*batch n_k d"],
        *,
        mask: Bool[Tensor, "*#batch #n_q n_k"] | None = None,
        causal: bool = False,
        bias: Float[Tensor, "*#batch_and_heads #n_q n_k"] | None = None,
        positions: Real[Tensor, "*#batch n_k"] | None = None,
        rng: torch.Generator | None = None,
    ) -> Float[Tensor, "*batch n_q d"]:
        """Attend from `query` to `key` and mix `value`.

        Twin of calling :class:`posattn.reference.MultiHeadAttention`.
        """
        contract.layer_inputs(query, key, value, self.dim)
        if not torch.is_autocast_enabled(query.device.type):
            contract.floating("query", query, like=self.query.weight, owner="the weights")
        n_q, n_k = query.shape[-2], key.shape[-2]
        contract.mask(mask, (*query.shape[:-1], n_k))
        contract.bias(bias, (*query.shape[:-2], self.num_heads, n_q, n_k))
        contract.key_positions(positions, key.shape, n_q)
        if positions is None:
            key_positions = torch.arange(n_k, device=key.device)
            query_positions = torch.arange(n_k - n_q, n_k, device=key.device)
        else:
            query_positions, key_positions = positions[..., n_k - n_q :], positions
        q = split_heads(self.query(query), self.num_heads)
        k = split_heads(self.key(key), self.num_heads)
        v = split_heads(self.value(value), self.num_heads)
        rotate_query, rotate_key = (
            self.rotate
            if isinstance(self.rotate, tuple | nn.ModuleList)
            else (self.rotate, self.rotate)
        )
        q = q if rotate_query is None else rotate_query(q, query_positions[..., None, :])
        k = k if rotate_key is None else rotate_key(k, key_positions[..., None, :])
        mask = None if mask is None else mask[..., None, :, :]
        where = query_positions, key_positions
        if hasattr(self.bias, "scores"):
            mask, bias = mask_and_bias(q, k, mask, causal, bias)
            causal, k = False, zero_unattended(k, mask)
            own = self.bias.scores(q, k, *where)
        else:
            own = None if self.bias is None else self.bias(*where)
        if own is not None:
            bias = own if bias is None else bias + own
        options = {"mask": mask, "causal": causal, "bias": bias, "scale": self.scale}
        if hasattr(self.bias, "values"):
            weights = dropout(attention_weights(q, k, **options), self.dropout_rate, rng)
            heads = weights @ zero_unattended(v, mask) + self.bias.values(weights, *where)
        else:
            heads = scaled_dot_product_attention(
                q, k, v, dropout_rate=self.dropout_rate, rng=rng, **options
            )
        return self.output(merge_heads(heads))
