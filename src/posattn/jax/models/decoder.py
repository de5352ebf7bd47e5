"""A decoder: a language model that predicts each next token from those before it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import DTypeLike
from jaxtyping import Bool, Float, Integer

from posattn import contract
from posattn.jax.attention.cache import KVCache
from posattn.jax.attention.latent_cache import LatentCache
from posattn.jax.attention.masks import Every
from posattn.jax.attention.state_cache import StateCache
from posattn.jax.models.block import Block, FeedForward, Norm, applied
from posattn.jax.models.decoder_plan import from_config
from posattn.jax.models.multi_head import Bias, MultiHeadAttention, Rotate
from posattn.jax.trees import as_pytree, register
from posattn.jax.validated import validated

__all__ = ["Decoder"]

Tokens = Integer[Array | np.ndarray, "*batch n"]
Positions = Integer[Array | np.ndarray, "*#batch n"]
CallMask = Bool[Array | np.ndarray, "*#batch #n n_k"] | contract.PositionMask
Cache = KVCache | LatentCache | StateCache | None
LayerOptions = Mapping[str, Any] | Callable[[int], Mapping[str, Any] | None]


@validated
@register
@dataclass(frozen=True, eq=False)
class Decoder:
    r"""A language model: what it says of each next token depends only on the tokens before it.

    Twin of :class:`posattn.reference.Decoder`; a pytree.
    Under `jax.jit` a token outside the vocabulary cannot raise: the logits of its text become NaN.

    Make a decoder with `Decoder.init(rng, vocab_size, dim, num_layers, num_heads)`, or from a checkpoint of
    Llama, Qwen, Gemma, gpt-oss or GPT-2 with `Decoder.from_config(config, weights=...)`.

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
        layer_embedding: makes what each layer reads of the tokens besides the stream, as in Gemma 4; or None.

    Examples:
        >>> from posattn.jax import Rotary
        >>> key = jax.random.key(0)
        >>> decoder = Decoder.init(key, 50, 8, num_layers=2, num_heads=2, rotate=Rotary())
        >>> tokens = jnp.array([[3, 14, 15]])
        >>> jax.jit(decoder)(tokens).shape
        (1, 3, 50)
        >>> jax.jit(lambda decoder, tokens: decoder.generate(tokens, 4))(decoder, tokens).shape
        (1, 7)
    """

    embedding: Float[Array, "vocab_size d"]
    blocks: Sequence[Any]
    norm: Callable[[Any], Any]
    head: Float[Array, "d vocab_size"] | None = None
    encoding: Callable[..., Any] | None = None
    embedding_norm: Callable[[Any], Any] | None = None
    embedding_scale: float = field(default=1.0, metadata={"static": True})
    logit_scale: float = field(default=1.0, metadata={"static": True})
    logit_cap: float | None = field(default=None, metadata={"static": True})
    layer_embedding: Callable[..., Any] | None = None

    def __post_init__(self):
        object.__setattr__(self, "encoding", as_pytree(self.encoding))

    @classmethod
    def init(
        cls,
        rng: Array,
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
        dtype: DTypeLike | None = None,
    ) -> "Decoder":
        """Draw the weights: embedding and head with standard deviation 0.02, the rest within Glorot's bounds.

        Twin of :meth:`posattn.reference.Decoder.init`.

        Args:
            rng: a JAX key, where the weights are drawn from.
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
            dtype: of the weights; JAX's default one if not given.

        Returns:
            The decoder.
        """
        sizes = contract.decoder_sizes(vocab_size, num_layers, hidden_dim, dim, gated)
        vocab_size, num_layers, hidden_dim = sizes
        eps = contract.decoder_norm(norm, eps)
        dtype = jnp.result_type(float if dtype is None else dtype)
        first, last, *keys = jax.random.split(rng, 2 + 2 * num_layers)
        embedding = 0.02 * jax.random.normal(first, (vocab_size, dim), dtype)
        head = None if tied else 0.02 * jax.random.normal(last, (dim, vocab_size), dtype)
        shared = {
            "dim": dim,
            "num_heads": num_heads,
            "num_kv_heads": num_kv_heads,
            "head_dim": head_dim,
            "use_bias": use_bias,
            "rotate": rotate,
            "bias": bias,
            "mask": mask,
            "dtype": dtype,
        }
        network = {"gated": gated, "activation": activation, "use_bias": use_bias}
        blocks = []
        for index in range(num_layers):
            options, attention = contract.layer_options(layer_options, index)
            if attention is None:
                attention = MultiHeadAttention.init(keys[2 * index], **shared | options)
            key = keys[2 * index + 1]
            fed = FeedForward.init(key, dim, hidden_dim, **network, dtype=dtype)
            norms = [Norm.init(norm, dim, eps, dtype) for _ in range(2)]
            blocks.append(Block(attention, fed, *norms))
        norm = Norm.init(norm, dim, eps, dtype)
        return cls(embedding, tuple(blocks), norm, head, encoding)

    from_config = classmethod(from_config)

    def init_cache(
        self,
        batch_shape: int | Sequence[int],
        max_len: int,
        *,
        dtype: DTypeLike | None = None,
    ) -> tuple[Cache, ...]:
        """Make an empty cache for each layer.

        Twin of :meth:`posattn.reference.Decoder.init_cache`.

        Args:
            batch_shape: the batch axes of the sequences, `(8,)` or just 8.
            max_len: how many positions there are, at least 1.
            dtype: of keys and values; that of the weights if not given.

        Returns:
            The empty caches; None for a layer that uses the keys and values of another.
        """
        return tuple(
            None
            if block.borrows
            else block.attention.init_cache(
                batch_shape, *[max_len] * (not block.keeps_state), dtype=dtype
            )
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
        rng: Array | None = None,
    ) -> (
        Float[Array, "*batch n vocab_size"]
        | tuple[Float[Array, "*batch n vocab_size"], tuple[Cache, ...]]
    ):
        r"""The logits of each next token.

        Twin of calling :class:`posattn.reference.Decoder`.

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
            rng: a JAX key where dropout draws from; None means no dropout.

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
    ) -> tuple[Float[Array, "*batch h n n"] | None, ...]:
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

    def generate(
        self,
        tokens: Tokens,
        max_new_tokens: int,
        *,
        positions: Positions | None = None,
        temperature: float = 0.0,
        eos_token_id: int | Sequence[int] | None = None,
        rng: Array | None = None,
    ) -> Integer[Array, "*batch m"]:
        """Go on with a text, token by token, with a cache.

        Twin of :meth:`posattn.reference.Decoder.generate`.

        Args:
            tokens: the text so far, `(*batch, n)`, at least one token.
            max_new_tokens: how many tokens come, at least 1.
            positions: where the tokens stand; negative ones are padding, which stands on the left.
            temperature: 0 for the likeliest token each time; otherwise tokens are drawn from the softmax of
                the logits divided by it. A number, also under `jax.jit`.
            eos_token_id: the token that ends a text, or several, as `config.json` names it. What follows it
                repeats it. None to never end.
            rng: a JAX key where tokens are drawn from.

        Returns:
            The text with the new tokens, `(*batch, n + max_new_tokens)`.
        """
        known = not isinstance(tokens, jax.core.Tracer)
        contract.tokens(tokens, len(self.embedding), positions, known=known)
        given = max_new_tokens, temperature, rng
        max_new_tokens, temperature = contract.generation(tokens, *given)
        ends = contract.end_tokens(eos_token_id, len(self.embedding))
        ends = jnp.asarray(ends, tokens.dtype)
        *batch, n = tokens.shape

        def choose(x, key):
            scores = self._logits(x[..., -1, :])
            if temperature > 0:
                found = jax.random.categorical(key, scores / temperature)
            else:
                found = scores.argmax(axis=-1)
            return found.astype(tokens.dtype)

        def step(state, key):
            cache, last = state
            x, cache = self._stream(last[..., None], None, None, cache)
            last = jnp.where(jnp.isin(last, ends), last, choose(x, key))
            return (cache, last), last

        keys = jnp.arange(max_new_tokens)  # that nothing is drawn from
        if temperature > 0:
            keys = jax.random.split(rng, max_new_tokens)
        cache = self.init_cache(tuple(batch), n + max_new_tokens)
        x, cache = self._stream(tokens, None, positions, cache)
        first = choose(x, keys[0])
        _, others = jax.lax.scan(step, (cache, first), keys[1:])
        others = jnp.moveaxis(others, 0, -1)
        return jnp.concatenate([tokens, first[..., None], others], axis=-1)

    def _start(self, tokens, mask, positions, cache=None, documents=None):
        """The stream before the first layer, and what each layer is told."""
        known = not isinstance(tokens, jax.core.Tracer)
        contract.tokens(tokens, len(self.embedding), positions, known=known)
        states = any(block.keeps_state for block in self.blocks)
        contract.packed(mask, documents, cache, tokens.shape, states=states)
        if cache is None:
            mask = shown(mask, positions, tokens.shape, documents)
        else:
            contract.caches(cache, [not block.borrows for block in self.blocks], tokens)
        rows = self.embedding.at[tokens].get(
            mode="fill", fill_value=jnp.nan, wrap_negative_indices=False
        )
        x = rows * self.embedding_scale
        if self.encoding is not None:
            if cache is not None and positions is None:
                rows = contract.next_positions(cache, tokens)
            else:
                rows = None if positions is None else jnp.maximum(positions, 0)
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
        caches, kept = cache or [None] * len(self.blocks), []
        given = zip(self.blocks, caches, told, strict=True)
        for index, (block, own, options) in enumerate(given):
            key = None if rng is None else jax.random.fold_in(rng, index)
            x, own = block(x, cache=own, rng=key, **options)
            kept.append(own)
        return x, None if cache is None else tuple(kept)

    def _logits(self, x):
        """What the stream says of the next tokens."""
        head = self.embedding.T if self.head is None else self.head
        logits = (self.norm(x) * self.logit_scale) @ head
        if self.logit_cap is None:
            return logits
        return self.logit_cap * jnp.tanh(logits / self.logit_cap)


def shown(mask, positions, shape, documents=None):
    """The mask of a call that also hides other documents, and padding, which stands at negative positions."""
    if not (mask is None or callable(mask)):
        contract.mask(mask, (*shape, shape[-1]))
    if documents is not None:
        same = jnp.asarray(documents[..., :, None] == documents[..., None, :])
        mask = same if mask is None else mask & same
    if positions is None:
        return mask
    if callable(mask):
        return Every((mask, present))
    there = jnp.asarray(present(positions, positions))
    return there if mask is None else mask & there


def present(query_positions, key_positions):
    """Whether a key is a token, and no padding."""
    return (key_positions >= 0)[..., None, :]
