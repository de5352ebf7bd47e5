"""A decoder: a language model that predicts each next token from those before it."""

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from typing import Any

import torch
from jaxtyping import Bool, Float, Integer
from torch import Tensor, nn

from posattn import contract
from posattn.torch.attention.cache import KVCache
from posattn.torch.attention.latent_cache import LatentCache
from posattn.torch.attention.masks import Every
from posattn.torch.attention.random import Rng, seed
from posattn.torch.attention.state_cache import StateCache
from posattn.torch.models.block import Block, FeedForward, applied, norm_of
from posattn.torch.models.decoder_plan import from_config
from posattn.torch.models.multi_head import Bias, MultiHeadAttention, Rotate
from posattn.torch.validated import validated

__all__ = ["Decoder"]

Tokens = Integer[Tensor, "*batch n"]
Positions = Integer[Tensor, "*#batch n"]
CallMask = Bool[Tensor, "*#batch #n n_k"] | contract.PositionMask
Cache = KVCache | LatentCache | StateCache | None
LayerOptions = Mapping[str, Any] | Callable[[int], Mapping[str, Any] | None]


@validated
class Decoder(nn.Module):
    """A language model: what it says of each next token depends only on the tokens before it.

    Twin of :class:`posattn.reference.Decoder`.
    Its parts are `embedding`, `blocks`, each with `attention` and `feed_forward`, `norm` and `head`.
    Make one from a checkpoint of Llama, Qwen, Gemma, gpt-oss or GPT-2 with `Decoder.from_config`.
    Dropout acts when `rng` is given to the call.

    Args:
        vocab_size: how many tokens there are, at least 1.
        dim: the width of the stream, at least 1.
        num_layers: the number of layers, at least 1.
        num_heads: the number of heads of queries.
        num_kv_heads: the number of heads of keys and values; `num_heads` if not given.
        head_dim: the width of a head; `dim / num_heads` if not given.
        hidden_dim: the width within a feed-forward network; if not given `4 * dim`, or `8 * dim // 3` where
            it is gated, which is as many weights.
        gated: whether the feed-forward networks are gated.
        activation: a function of each entry; SiLU where it is gated, otherwise GELU, by its tanh formula.
        norm: `"rms"`, or `"layer"` for one that takes off the mean and has an offset.
        eps: added to the mean square in a norm.
        use_bias: give each projection an offset, which starts at zero.
        tied: whether the head is the transposed embedding.
        encoding: adds positions to the embeddings, such as `LearnedPositionalEncoding`.
        rotate: acts on queries and keys of all layers, as in `MultiHeadAttention`.
        bias: is added to the scores of all layers. Each layer has what it learns for itself, so a module is
            copied.
        mask: a function of positions that always holds, such as `Window`.
        layer_options: further options of `MultiHeadAttention`: a dictionary, or a function of the layer's
            number that returns one, such as `lambda i: {"mask": Window(64)} if i % 2 else {}`; or another
            layer in its place, a `DeltaAttention` or a `LatentAttention`.
        dtype: of the weights; PyTorch's default one if not given.
        device: of the weights.
        rng: where the weights are drawn from.

    Examples:
        >>> from posattn.torch import Rotary
        >>> decoder = Decoder(50, 8, num_layers=2, num_heads=2, rotate=Rotary())
        >>> tokens = torch.tensor([[3, 14, 15]])
        >>> decoder(tokens).shape
        torch.Size([1, 3, 50])
        >>> decoder.generate(tokens, 4).shape
        torch.Size([1, 7])
    """

    def __init__(
        self,
        vocab_size: int,
        dim: int,
        num_layers: int,
        num_heads: int,
        *,
        num_kv_heads: int | None = None,
        head_dim: int | None = None,
        hidden_dim: int | None = None,
        gated: bool = True,
        activation: Callable[[Any], Any] | None = None,
        norm: str = "rms",
        eps: float = 1e-6,
        use_bias: bool = False,
        tied: bool = True,
        encoding: Callable[..., Any] | None = None,
        rotate: Rotate | None = None,
        bias: Bias | Sequence[Bias] | None = None,
        mask: contract.PositionMask | None = None,
        layer_options: LayerOptions | None = None,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
        rng: torch.Generator | None = None,
    ):
        super().__init__()
        sizes = contract.decoder_sizes(vocab_size, num_layers, hidden_dim, dim, gated)
        vocab_size, num_layers, hidden_dim = sizes
        eps = contract.decoder_norm(norm, eps)
        device = torch.get_default_device() if device is None else device
        made = {"dtype": dtype, "device": device}
        shared = {
            "dim": dim,
            "num_heads": num_heads,
            "num_kv_heads": num_kv_heads,
            "head_dim": head_dim,
            "use_bias": use_bias,
            "mask": mask,
            **made,
        }
        network = {"gated": gated, "activation": activation, "use_bias": use_bias, **made}
        self.embedding = nn.utils.skip_init(nn.Embedding, vocab_size, dim, **made)
        self.blocks = nn.ModuleList()
        for index in range(num_layers):
            schemes = {"rotate": deepcopy(rotate), "bias": deepcopy(bias)}
            options, attention = contract.layer_options(layer_options, index)
            if attention is None:
                attention = MultiHeadAttention(**shared | schemes | options)
            network_of = FeedForward(dim, hidden_dim, **network)
            norms = (norm_of(norm, dim, eps, **made) for _ in range(2))
            self.blocks.append(Block(attention, network_of, *norms))
        self.norm = norm_of(norm, dim, eps, **made)
        self.head = None
        if not tied:
            self.head = nn.utils.skip_init(nn.Linear, dim, vocab_size, bias=False, **made)
        self.encoding, self.embedding_norm, self.layer_embedding = encoding, None, None
        self.embedding_scale, self.logit_scale, self.logit_cap = 1.0, 1.0, None
        self.reset_parameters(rng)

    from_config = classmethod(from_config)

    def reset_parameters(self, rng: torch.Generator | None = None) -> None:
        """Draw the weights: embedding and head with standard deviation 0.02, the rest within Glorot's bounds.

        Args:
            rng: where the weights are drawn from; PyTorch's own generator if not given.
        """
        for part in filter(None, (self.embedding, self.head)):
            nn.init.normal_(part.weight, std=0.02, generator=rng)
        for block in self.blocks:
            block.attention.reset_parameters(rng)
            block.feed_forward.reset_parameters(rng)
        for module in self.modules():
            if isinstance(module, nn.RMSNorm | nn.LayerNorm):
                module.reset_parameters()

    def init_cache(
        self,
        batch_shape: int | Sequence[int],
        max_len: int,
        *,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> tuple[Cache, ...]:
        """Make an empty cache for each layer.

        Twin of :meth:`posattn.reference.Decoder.init_cache`.

        Args:
            batch_shape: the batch axes of the sequences, `(8,)` or just 8.
            max_len: how many positions there are, at least 1.
            dtype: of keys and values; what the layers make of them if not given.
            device: where the caches live; where the weights are if not given.

        Returns:
            The empty caches; None for a layer that uses the keys and values of another.
        """
        made = {"dtype": dtype, "device": device}
        return tuple(
            None
            if block.borrows
            else block.attention.init_cache(
                batch_shape, *[max_len] * (not block.keeps_state), **made
            )
            for block in self.blocks
        )

    def forward(
        self,
        tokens: Tokens,
        *,
        mask: CallMask | None = None,
        positions: Positions | None = None,
        documents: Positions | None = None,
        cache: Sequence[Cache] | None = None,
        rng: Rng | None = None,
    ) -> (
        Float[Tensor, "*batch n vocab_size"]
        | tuple[Float[Tensor, "*batch n vocab_size"], tuple[Cache, ...]]
    ):
        """The logits of each next token.

        Twin of calling :class:`posattn.reference.Decoder`.

        Args:
            tokens: integers from 0 to `vocab_size - 1`, `(*batch, n)`.
            mask: what may be attended to besides what is hidden anyway, in all layers: bool, True means
                may attend, broadcasts to `(*batch, n, n_k)`; or a function of positions.
            positions: where the tokens stand, integers, `(n)` or `(*batch, n)`. If not given, from 0 on, or
                after those of the cache. A negative position marks padding, to which nobody attends.
            documents: another number for another document, integers, `(n)` or `(*batch, n)`: packed documents
                don't see each other. Not with a cache.
            cache: what was kept of the tokens before, one for each layer.
            rng: where dropout draws from, a generator or a seed; None means no dropout.

        Returns:
            `(*batch, n, vocab_size)`. With a cache, that and the cache of all tokens so far.
        """
        x, cache = self._stream(tokens, mask, positions, cache, rng, documents)
        logits = self._logits(x)
        return logits if cache is None else (logits, cache)

    def attention_weights(
        self,
        tokens: Tokens,
        *,
        mask: CallMask | None = None,
        positions: Positions | None = None,
    ) -> tuple[Float[Tensor, "*batch h n n"] | None, ...]:
        """How much each token attends to each, in every layer and head.

        Twin of :meth:`posattn.reference.Decoder.attention_weights`.

        Args:
            tokens: as in the call, like all that follow.
            mask: True means may attend.
            positions: where the tokens stand.

        Returns:
            For each layer `(*batch, h, n, n)`; None for one that keeps a state.
        """
        x, told = self._start(tokens, mask, positions)
        found = []
        for block, options in zip(self.blocks, told, strict=True):
            found.append(block.attention_weights(x, **options))
            x, _ = block(x, **options)
        return tuple(found)

    @torch.no_grad()
    def generate(
        self,
        tokens: Tokens,
        max_new_tokens: int,
        *,
        positions: Positions | None = None,
        temperature: float = 0.0,
        eos_token_id: int | Sequence[int] | None = None,
        rng: torch.Generator | None = None,
    ) -> Integer[Tensor, "*batch m"]:
        """Go on with a text, token by token, with a cache.

        Twin of :meth:`posattn.reference.Decoder.generate`.

        Args:
            tokens: the text so far, `(*batch, n)`, at least one token.
            max_new_tokens: how many tokens come, at least 1.
            positions: where the tokens stand; negative ones are padding, which stands on the left.
            temperature: 0 for the likeliest token each time; otherwise tokens are drawn from the softmax of
                the logits divided by it.
            eos_token_id: the token that ends a text, or several, as `config.json` names it. What follows it
                repeats it. None to never end.
            rng: where tokens are drawn from.

        Returns:
            The text with the new tokens, `(*batch, n + max_new_tokens)`.
        """
        contract.tokens(tokens, self.embedding.num_embeddings, positions)
        given = max_new_tokens, temperature, rng
        max_new_tokens, temperature = contract.generation(tokens, *given)
        ends = contract.end_tokens(eos_token_id, self.embedding.num_embeddings)
        *batch, n = tokens.shape
        cache = self.init_cache(tuple(batch), n + max_new_tokens)
        text = last = tokens
        ended = torch.zeros_like(tokens[..., :1], dtype=torch.bool)
        for _ in range(max_new_tokens):
            x, cache = self._stream(last, None, positions, cache)
            scores = self._logits(x[..., -1, :])
            if temperature > 0:  # the largest of these is drawn from the softmax
                drawn = torch.empty_like(scores).exponential_(generator=rng)
                scores = scores / temperature - drawn.log()
            likeliest = scores.argmax(dim=-1, keepdim=True).to(tokens.dtype)
            last = torch.where(ended, last[..., -1:], likeliest)
            text = torch.cat([text, last], dim=-1)
            positions = None
            ended = torch.isin(last, last.new_tensor(ends))
            if ends and ended.all():
                break
        missing = n + max_new_tokens - text.shape[-1]
        return torch.cat([text, last.expand(*batch, missing)], dim=-1)

    def _start(self, tokens, mask, positions, cache=None, documents=None):
        """The stream before the first layer, and what each layer is told."""
        known = not (torch.compiler.is_compiling() or tokens.is_meta)
        contract.tokens(tokens, self.embedding.num_embeddings, positions, known=known)
        states = any(block.keeps_state for block in self.blocks)
        contract.packed(mask, documents, cache, tokens.shape, states=states)
        if cache is None:
            mask = shown(mask, positions, tokens.shape, documents)
        else:
            contract.caches(cache, [not block.borrows for block in self.blocks], tokens)
            if positions is None:
                positions = contract.next_positions(cache, tokens)
        x = self.embedding(tokens.long()) * self.embedding_scale
        if self.encoding is not None:
            rows = None if positions is None else positions.clamp(min=0)
            x = self.encoding(x, positions=rows)
        x = applied(self.embedding_norm, x)
        own = [None] * len(self.blocks)
        if self.layer_embedding is not None:
            own = self.layer_embedding(tokens, x)
        told = {"mask": mask, "query_positions": positions, "documents": documents}
        told["lent"] = {}
        return x, [told | {"own": one} for one in own]

    def _stream(self, tokens, mask, positions, cache, rng=None, documents=None):
        """The stream after the last layer, and the cache of all tokens so far if there is one."""
        x, told = self._start(tokens, mask, positions, cache, documents)
        layers = len(self.blocks)
        kept = []
        caches = cache or [None] * layers
        rngs = [None] * layers
        if rng is not None:  # each layer drops other weights
            first = torch.as_tensor(seed(rng)) * layers
            rngs = [first + index for index in range(layers)]
        for block, options, own, drawn in zip(self.blocks, told, caches, rngs, strict=True):
            x, own = block(x, cache=own, rng=drawn, **options)
            kept.append(own)
        return x, None if cache is None else tuple(kept)

    def _logits(self, x):
        """What the stream says of the next tokens."""
        head = self.embedding if self.head is None else self.head
        logits = nn.functional.linear(self.norm(x) * self.logit_scale, head.weight)
        if self.logit_cap is None:
            return logits
        return self.logit_cap * torch.tanh(logits / self.logit_cap)


def shown(mask, positions, shape, documents=None):
    """The mask of a call that also hides other documents, and padding, which stands at negative positions."""
    if not (mask is None or callable(mask)):
        contract.mask(mask, (*shape, shape[-1]))
    if documents is not None:
        same = documents[..., :, None] == documents[..., None, :]
        mask = same if mask is None else mask & same
    if positions is None:
        return mask
    if callable(mask):
        return Every((mask, present))
    there = present(positions, positions)
    return there if mask is None else mask & there


def present(query_positions, key_positions):
    """Whether a key is a token, and no padding."""
    return (key_positions >= 0)[..., None, :]
