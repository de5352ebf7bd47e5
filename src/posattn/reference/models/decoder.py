"""A decoder: a language model that predicts each next token from those before it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Inexact, Integer

from posattn import contract
from posattn.reference.attention.cache import KVCache
from posattn.reference.attention.latent_cache import LatentCache
from posattn.reference.attention.masks import Every
from posattn.reference.attention.state_cache import StateCache
from posattn.reference.models.block import Block, FeedForward, Norm, applied
from posattn.reference.models.multi_head import Bias, MultiHeadAttention, Rotate
from posattn.reference.validated import validated

__all__ = ["Decoder"]

Tokens = Integer[np.ndarray, "*batch n"]
Positions = Integer[np.ndarray, "*#batch n"]
CallMask = Bool[np.ndarray, "*#batch #n n_k"] | contract.PositionMask
Cache = KVCache | LatentCache | StateCache
LayerOptions = Mapping[str, Any] | Callable[[int], Mapping[str, Any] | None]


@validated
@dataclass(frozen=True, eq=False)
class Decoder:
    r"""A language model: what it says of each next token depends only on the tokens before it.

    .. math:: \mathbf{x}^{(0)}_i = \mathbf{e}_{t_i}, \qquad
        \mathbf{h}^{(l)} = \mathbf{x}^{(l)} + \operatorname{Attention}(N(\mathbf{x}^{(l)})), \qquad
        \mathbf{x}^{(l+1)} = \mathbf{h}^{(l)} + \operatorname{FeedForward}(N(\mathbf{h}^{(l)})),

    for each of $L$ layers. Row $i$ of $N(\mathbf{x}^{(L)})\,\mathbf{W}$ has the logits of token $i + 1$.
    A norm $N$ stands before each part (pre-norm), with weights of its own; attention is causal.
    The feed-forward network is $(\mathbf{x}\mathbf{U} \odot f(\mathbf{x}\mathbf{G}))\,\mathbf{D}$ with an
    activation $f$, or $f(\mathbf{x}\mathbf{U})\,\mathbf{D}$ if it is not gated.
    With tied weights, $\mathbf{W}$ is the transposed embedding.

    Positions enter where `MultiHeadAttention` takes them, or are added to the embeddings.

    Make a decoder with `Decoder.init(rng, vocab_size, dim, num_layers, num_heads)`.

    Args:
        embedding: a row for each token of the vocabulary, `(vocab_size, d)`.
        blocks: the layers, each with its `attention` and `feed_forward`, and a norm before both.
        norm: the last norm.
        head: $\mathbf{W}$, `(d, vocab_size)`; None if it is the transposed embedding.
        encoding: adds positions to the embeddings, called as `encoding(x, positions=positions)`; or None.
        embedding_norm: a norm of the embeddings, as in BLOOM; or None.
        embedding_scale: a factor on the embeddings, as in Gemma.
        logit_scale: a factor on the logits, as in Cohere.
        logit_cap: $c$ of $c \tanh(z / c)$, as in Gemma 2; None if logits are not capped.

    Examples:
        >>> from posattn.reference import Rotary
        >>> rng = np.random.default_rng(0)
        >>> decoder = Decoder.init(rng, 50, 8, num_layers=2, num_heads=2, rotate=Rotary())
        >>> tokens = np.array([[3, 14, 15]])
        >>> decoder(tokens).shape
        (1, 3, 50)
        >>> decoder.generate(tokens, 4).shape
        (1, 7)

    References:
        :cite:t:`radford2019language`; the place of the norms: :cite:t:`xiong2020layer`; gates:
        :cite:t:`shazeer2020glu`; norms without a mean: :cite:t:`zhang2019root`.
    """

    embedding: Inexact[np.ndarray, "vocab_size d"]
    blocks: Sequence[Any]
    norm: Callable[[Any], Any]
    head: Inexact[np.ndarray, "d vocab_size"] | None = None
    encoding: Callable[..., Any] | None = None
    embedding_norm: Callable[[Any], Any] | None = None
    embedding_scale: float = 1.0
    logit_scale: float = 1.0
    logit_cap: float | None = None

    @classmethod
    def init(
        cls,
        rng: np.random.Generator,
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
    ) -> "Decoder":
        """Draw the weights: embedding and head with standard deviation 0.02, the rest within Glorot's bounds.

        Args:
            rng: where the weights are drawn from.
            vocab_size: how many tokens there are, at least 1.
            dim: the width $d$ of the stream, at least 1.
            num_layers: the number of layers $L$, at least 1.
            num_heads: the number of heads of queries.
            num_kv_heads: the number of heads of keys and values; `num_heads` if not given.
            head_dim: the width of a head; `dim / num_heads` if not given.
            hidden_dim: the width within a feed-forward network; if not given $4d$, or $8d/3$ rounded down
                where it is gated, which is as many weights.
            gated: whether the feed-forward networks are gated.
            activation: a function of each entry; SiLU where it is gated, otherwise GELU, by its tanh formula.
            norm: `"rms"`, or `"layer"` for one that takes off the mean and has an offset.
            eps: added to the mean square in a norm.
            use_bias: give each projection an offset, which starts at zero.
            tied: whether the head is the transposed embedding.
            encoding: adds positions to the embeddings, such as `LearnedPositionalEncoding`.
            rotate: acts on queries and keys of all layers, as in `MultiHeadAttention`.
            bias: is added to the scores of all layers. Each layer has what it learns for itself.
            mask: a function of positions that always holds, such as `Window`.
            layer_options: further options of `MultiHeadAttention.init`: a dictionary, or a function of the
                layer's number that returns one, such as `lambda i: {"mask": Window(64)} if i % 2 else {}`;
                or another layer in its place, a `DeltaAttention` or a `LatentAttention`.

        Returns:
            The decoder.

        Raises:
            ValueError: if a number lies outside its range or does not divide what it must.
        """
        sizes = contract.decoder_sizes(vocab_size, num_layers, hidden_dim, dim, gated)
        vocab_size, num_layers, hidden_dim = sizes
        eps = contract.decoder_norm(norm, eps)
        embedding = rng.normal(0, 0.02, (vocab_size, dim))
        head = None if tied else rng.normal(0, 0.02, (dim, vocab_size))
        shared = {
            "dim": dim,
            "num_heads": num_heads,
            "num_kv_heads": num_kv_heads,
            "head_dim": head_dim,
            "use_bias": use_bias,
            "rotate": rotate,
            "bias": bias,
            "mask": mask,
        }
        network = {"gated": gated, "activation": activation, "use_bias": use_bias}
        blocks = []
        for index in range(num_layers):
            options, attention = contract.layer_options(layer_options, index)
            if attention is None:
                attention = MultiHeadAttention.init(rng, **shared | options)
            fed = FeedForward.init(rng, dim, hidden_dim, **network)
            blocks.append(Block(attention, fed, *(Norm.init(norm, dim, eps) for _ in "12")))
        return cls(embedding, tuple(blocks), Norm.init(norm, dim, eps), head, encoding)

    def init_cache(
        self, batch_shape: int | Sequence[int], max_len: int
    ) -> tuple[Cache, ...]:
        """Make an empty cache for each layer.

        Args:
            batch_shape: the batch axes of the sequences, `(8,)` or just 8.
            max_len: how many positions there are, at least 1.

        Returns:
            The empty caches.
        """
        return tuple(
            block.attention.init_cache(batch_shape, *[max_len] * (not block.keeps_state))
            for block in self.blocks
        )

    def __call__(
        self,
        tokens: Tokens,
        *,
        mask: CallMask | None = None,
        positions: Positions | None = None,
        documents: Positions | None = None,
        cache: Sequence[Cache] | None = None,
        rng: np.random.Generator | None = None,
    ) -> (
        Inexact[np.ndarray, "*batch n vocab_size"]
        | tuple[Inexact[np.ndarray, "*batch n vocab_size"], tuple[Cache, ...]]
    ):
        r"""The logits of each next token.

        Args:
            tokens: integers from 0 to `vocab_size - 1`, `(*batch, n)`.
            mask: what may be attended to besides what is hidden anyway, in all layers: bool, True means
                may attend, broadcasts to `(*batch, n, n_k)`; or a function of positions.
            positions: where the tokens stand, integers, `(n)` or `(*batch, n)`. If not given,
                $0, \ldots, n - 1$, or after those of the cache. A negative position marks padding, to
                which nobody attends.
            documents: another number for another document, integers, `(n)` or `(*batch, n)`: packed documents
                don't see each other. Not with a cache.
            cache: what was kept of the tokens before, one for each layer.
            rng: where dropout draws from; None means no dropout.

        Returns:
            `(*batch, n, vocab_size)`. With a cache, that and the cache of all tokens so far.

        Raises:
            ValueError: if shapes do not fit, a token is not in the vocabulary, or the cache is full.
        """
        x, options = self._start(tokens, mask, positions, cache, documents)
        kept = []
        for block, own in zip(self.blocks, cache or [None] * len(self.blocks), strict=True):
            x, own = block(x, cache=own, rng=rng, **options)
            kept.append(own)
        logits = self._logits(x)
        return logits if cache is None else (logits, tuple(kept))

    def attention_weights(
        self,
        tokens: Tokens,
        *,
        mask: CallMask | None = None,
        positions: Positions | None = None,
    ) -> tuple[Inexact[np.ndarray, "*batch h n n"] | None, ...]:
        """How much each token attends to each, in every layer and head.

        Args:
            tokens: as in the call, like all that follow.
            mask: True means may attend.
            positions: where the tokens stand.

        Returns:
            For each layer `(*batch, h, n, n)`; None for one that keeps a state.

        Raises:
            ValueError: if shapes do not fit, or a token is not in the vocabulary.
        """
        x, options = self._start(tokens, mask, positions)
        found = []
        for block in self.blocks:
            found.append(block.attention_weights(x, **options))
            x, _ = block(x, **options)
        return tuple(found)

    def generate(
        self,
        tokens: Tokens,
        max_new_tokens: int,
        *,
        positions: Positions | None = None,
        temperature: float = 0.0,
        eos_token_id: int | Sequence[int] | None = None,
        rng: np.random.Generator | None = None,
    ) -> Integer[np.ndarray, "*batch m"]:
        """Go on with a text, token by token, with a cache.

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

        Raises:
            ValueError: if a number lies outside its range, or `rng` is missing where tokens are drawn.
        """
        contract.tokens(tokens, len(self.embedding), positions)
        given = max_new_tokens, temperature, rng
        max_new_tokens, temperature = contract.generation(tokens, *given)
        ends = contract.end_tokens(eos_token_id, len(self.embedding))
        *batch, n = tokens.shape
        cache = self.init_cache(tuple(batch), n + max_new_tokens)
        text = last = tokens
        ended = np.zeros((*batch, 1), bool)
        for _ in range(max_new_tokens):
            logits, cache = self(last, positions=positions, cache=cache)
            scores = logits[..., -1, :]
            if temperature > 0:
                scores = scores / temperature + rng.gumbel(size=scores.shape)
            likeliest = np.argmax(scores, axis=-1)[..., None].astype(tokens.dtype)
            last = np.where(ended, last[..., -1:], likeliest)
            text = np.concatenate([text, last], axis=-1)
            positions = None
            ended = np.isin(last, ends)
        return text

    def _start(self, tokens, mask, positions, cache=None, documents=None):
        """The stream before the first layer, and what every layer is told."""
        contract.tokens(tokens, len(self.embedding), positions)
        states = any(block.keeps_state for block in self.blocks)
        contract.packed(mask, documents, cache, tokens.shape, states=states)
        if cache is None:
            mask = shown(mask, positions, tokens.shape, documents)
        else:
            contract.caches(cache, [True] * len(self.blocks), tokens)
            if positions is None:
                positions = contract.next_positions(cache, tokens)
        x = self.embedding[tokens] * self.embedding_scale
        if self.encoding is not None:
            rows = None if positions is None else np.maximum(positions, 0)
            x = self.encoding(x, positions=rows)
        x = applied(self.embedding_norm, x)
        return x, {"mask": mask, "query_positions": positions, "documents": documents}

    def _logits(self, x):
        """What the stream says of the next tokens."""
        head = self.embedding.T if self.head is None else self.head
        logits = (self.norm(x) * self.logit_scale) @ head
        if self.logit_cap is None:
            return logits
        return self.logit_cap * np.tanh(logits / self.logit_cap)


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
