"""A block of a decoder: attention and a feed-forward network, each added to what went in."""

from functools import partial

from torch import nn

from posattn.torch.models.delta_layer import DeltaAttention
from posattn.torch.models.multi_head import MultiHeadAttention, called, weights
from posattn.torch.models.projections import Inputs

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
        self.activation = activation or (silu if gated else gelu)
        self.limit = limit

    def reset_parameters(self, rng=None):
        """Draw the weights uniformly, within Glorot's bounds, and set the offsets to zero."""
        for linear in self.modules():
            if not isinstance(linear, nn.Linear):
                continue
            nn.init.xavier_uniform_(linear.weight, generator=rng)
            if linear.bias is not None:
                nn.init.zeros_(linear.bias)

    def forward(self, x, up=None):
        """What is added to `x`, `(*batch, n, d)`; `up` is what is gated, if it is no projection."""
        if self.gate is None:
            return self.down(self.activation(self.up(x)))
        up, gate = self.up(x) if up is None else up, self.gate(x)
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
        self.parallel, self.residual_scale, self.lender = False, 1.0, None
        self.layer_input = self.layer_norm = None
        self.register_buffer("scalar", None)

    def forward(self, x, *, cache=None, lent=None, own=None, **options):
        """The stream after this block, `(*batch, n, d)`, and the next cache; what others use is in `lent`."""
        read = applied(self.attention_norm, x)
        told = self._told(**options)
        if self.lender is None:
            heads = self.attention(read, cache=cache, **told)
            heads, cache = (heads, None) if cache is None else heads
        else:
            rng = told.pop("rng", None)
            theirs = lent.get(self.lender)
            found = called(self.attention, Inputs(read, **told), cache, rng, lent=theirs)
            heads, cache, lent[self.lender] = found
        heads = applied(self.attention_post_norm, heads)
        attended = x.add(heads, alpha=self.residual_scale)
        read = x if self.parallel else attended
        beside = [read] if getattr(self.feed_forward, "counts", None) is not None else []
        fed = self.feed_forward(applied(self.feed_forward_norm, read), *beside)
        fed = applied(self.feed_forward_post_norm, fed)
        x = attended.add(fed, alpha=self.residual_scale)
        if self.layer_input is not None:
            x = x + self.layer_norm(self.layer_input(x, own))
        return x if self.scalar is None else x * self.scalar, cache

    def attention_weights(self, x, *, lent=None, own=None, **options):
        """How much each token attends to each in every head, `(*batch, h, n, n)`; None without pairs."""
        if self.keeps_state:
            return None
        read = applied(self.attention_norm, x)
        told = self._told(**options)
        if self.borrows:
            return weights(self.attention, Inputs(read, **told), lent[self.lender])
        return self.attention.attention_weights(read, **told)

    @property
    def borrows(self):
        """Whether keys and values are those of an earlier layer."""
        return getattr(self.attention, "key", self) is None

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


class LayerEmbedding(nn.Module):
    """What each layer reads of a token besides the stream: a row of its own, and a projection (Gemma 4)."""

    def __init__(self, rows, layers, dim, width, eps, **options):
        super().__init__()
        self.embedding = nn.utils.skip_init(nn.Embedding, rows, layers * width, **options)
        linear = nn.Linear, dim, layers * width
        self.projection = nn.utils.skip_init(*linear, bias=False, **options)
        self.norm = norm_of("rms", width, eps, **options)

    def reset_parameters(self, rng=None):
        """Draw the rows with standard deviation 0.02, the rest within Glorot's bounds."""
        nn.init.normal_(self.embedding.weight, std=0.02, generator=rng)
        FeedForward.reset_parameters(self, rng)

    def forward(self, tokens, x):
        """What each layer reads, `(*batch, n, width)`, of tokens and the embeddings `x` of these."""
        width = len(self.norm.weight)
        told = self.projection(x) * x.shape[-1] ** -0.5
        own = self.embedding(tokens.long()) * width**0.5
        told, own = (part.unflatten(-1, (-1, width)) for part in (told, own))
        return ((self.norm(told) + own) * 0.5**0.5).unbind(-2)


def applied(norm, x):
    """What comes out of a norm, or `x` if there is none."""
    return x if norm is None else norm(x)
