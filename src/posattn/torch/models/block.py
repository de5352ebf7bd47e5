"""A block of a decoder: attention and a feed-forward network, each added to what went in."""

from functools import partial

from torch import nn

from posattn.torch.models.delta_layer import DeltaAttention
from posattn.torch.models.multi_head import MultiHeadAttention

__all__ = []

silu, gelu = nn.functional.silu, partial(nn.functional.gelu, approximate="tanh")


def norm_of(norm, dim, eps, **options):
    """A norm that multiplies by 1, and adds 0 where it is a layer norm, but for Cohere's."""
    if norm == "rms":
        return nn.RMSNorm(dim, eps=eps, **options)
    return nn.LayerNorm(dim, eps=eps, bias=norm == "layer", **options)


class FeedForward(nn.Module):
    """Two projections with an activation between them, or three if it is gated: each token by itself.

    Args:
        dim: the width of the stream.
        hidden_dim: the width within.
        gated: whether it is gated.
        activation: a function of each entry; SiLU if gated, otherwise GELU, if not given.
        use_bias: give each projection an offset.
        limit: gpt-oss's bound c, which makes it `(1 + clip(up, -c, c)) * f(min(gate, c))`; None for
            `up * f(gate)`.
        options: `dtype` and `device` of the weights.
    """

    def __init__(
        self, dim, hidden_dim, *, gated, activation, use_bias, limit=None, **options
    ):
        super().__init__()
        make = partial(nn.utils.skip_init, nn.Linear, bias=use_bias, **options)
        self.up, self.down = make(dim, hidden_dim), make(hidden_dim, dim)
        self.gate = make(dim, hidden_dim) if gated else None
        self.activation, self.limit = activation or (silu if gated else gelu), limit

    def reset_parameters(self, rng=None):
        """Draw the weights uniformly, within Glorot's bounds, and set the offsets to zero."""
        for linear in self.modules():
            if not isinstance(linear, nn.Linear):
                continue
            nn.init.xavier_uniform_(linear.weight, generator=rng)
            if linear.bias is not None:
                nn.init.zeros_(linear.bias)

    def forward(self, x):
        """What is added to `x`, `(*batch, n, d)`."""
        if self.gate is None:
            return self.down(self.activation(self.up(x)))
        up, gate = self.up(x), self.gate(x)
        if self.limit is not None:
            up = 1 + up.clamp(-self.limit, self.limit)
            gate = gate.clamp(max=self.limit)
        return self.down(up * self.activation(gate))


class Block(nn.Module):
    """Attention and a feed-forward network, each added to what went in.

    Twin of the reference's; what it says of norms that may be None holds here, too.
    """

    def __init__(
        self,
        attention: nn.Module,
        feed_forward: nn.Module,
        attention_norm: nn.Module | None,
        feed_forward_norm: nn.Module | None,
    ):
        super().__init__()
        self.attention, self.feed_forward = attention, feed_forward
        self.attention_norm, self.feed_forward_norm = attention_norm, feed_forward_norm
        self.attention_post_norm = self.feed_forward_post_norm = None
        self.parallel, self.residual_scale = False, 1.0

    def forward(self, x, *, cache=None, **options):
        """The stream after this block, `(*batch, n, d)`, and the next cache if there is one."""
        read = applied(self.attention_norm, x)
        heads = self.attention(read, cache=cache, **self._told(**options))
        heads, cache = (heads, None) if cache is None else heads
        heads = applied(self.attention_post_norm, heads)
        attended = x.add(heads, alpha=self.residual_scale)
        read = x if self.parallel else attended
        fed = self.feed_forward(applied(self.feed_forward_norm, read))
        fed = applied(self.feed_forward_post_norm, fed)
        return attended.add(fed, alpha=self.residual_scale), cache

    def attention_weights(self, x, **options):
        """How much each token attends to each in every head, `(*batch, h, n, n)`; None without pairs."""
        if self.keeps_state:
            return None
        read = applied(self.attention_norm, x)
        return self.attention.attention_weights(read, **self._told(**options))

    @property
    def keeps_state(self):
        """Whether the layer keeps a state, not keys and values."""
        return isinstance(self.attention, DeltaAttention)

    def _told(self, *, mask=None, query_positions=None, documents=None, rng=None):
        """What the layer hears of a call: with a state, which tokens are padding, not where they stand."""
        if self.keeps_state:
            there = None if query_positions is None else query_positions >= 0
            return {"mask": there, "documents": documents}
        drops = rng is not None and isinstance(self.attention, MultiHeadAttention)
        told = {"mask": mask, "query_positions": query_positions, "causal": True}
        return told | {"rng": rng} if drops else told


def applied(norm, x):
    """What comes out of a norm, or `x` if there is none."""
    return x if norm is None else norm(x)
