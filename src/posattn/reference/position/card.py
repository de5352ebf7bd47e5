"""What is told of a scheme, its card, and what the card makes: a small instance of the scheme."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from posattn.reference.attention.attention import attention_weights

__all__ = ["Card", "Scheme", "Sizes"]

HEADS = 2


@dataclass(frozen=True)
class Sizes:
    """The size of an instance of a scheme.

    Args:
        head_dim: the width of each of the 2 heads.
        trained: the length of training, or twice that length if a scheme is meant to extend it.
        side: the side of the square that `trained` tokens make as an image.
    """

    head_dim: int
    trained: int
    side: int

    @property
    def dim(self):
        """The width of a token."""
        return HEADS * self.head_dim


SMALL = Sizes(8, 16, 4)


@dataclass(frozen=True)
class Scheme:
    """One positional scheme, described by the places where it acts.

    Args:
        encode: the input, `(x, positions) -> x`.
        rotate: queries and keys, `(x, positions) -> x` or a pair of such functions.
        bias: the scores, a function of positions or an object with `scores`.
        gate: the scores, computed from the tokens, `x -> log gates`.
        gate_bias: what the gates add to the scores of the last `n` queries, `(log gates, n) -> bias`.
        scale: the factor on the products of queries and keys.
        layer: the object that holds the parameters of `encode` or `rotate`.
        positions: the positions of a sequence of `n` tokens.
    """

    encode: Callable | None = None
    rotate: Callable | tuple | None = None
    bias: object | None = None
    gate: Callable | None = None
    gate_bias: Callable | None = None
    scale: float | None = None
    layer: object | None = None
    positions: Callable[[int], np.ndarray] = np.arange

    @property
    def place(self):
        """The place where the scheme acts, or `nowhere`."""
        if self.encode is not None:
            return "input"
        if self.rotate is not None:
            return "query and key"
        return "scores" if self.bias is not None or self.gate is not None else "nowhere"

    def rotated(self, query, key, query_positions, key_positions):
        """Queries and keys after the scheme has acted on them."""
        rotate_query, rotate_key = (
            self.rotate if isinstance(self.rotate, tuple) else (self.rotate, self.rotate)
        )
        return (
            query if rotate_query is None else rotate_query(query, query_positions),
            key if rotate_key is None else rotate_key(key, key_positions),
        )

    def added(self, query, key, query_positions, key_positions, gates):
        """The bias that is added to the scores of all heads, or None."""
        if hasattr(self.bias, "scores"):
            return self.bias.scores(query, key, query_positions, key_positions)
        if self.gate is not None:
            return self.gate_bias(gates, query.shape[-2])
        return None if self.bias is None else self.bias(query_positions, key_positions)

    def attend(self, query, key, value, query_positions, key_positions, *, gates, causal):
        """Attention of heads whose queries and keys have been rotated already."""
        added = self.added(query, key, query_positions, key_positions, gates)
        weights = attention_weights(query, key, causal=causal, bias=added, scale=self.scale)
        out = weights @ value
        if hasattr(self.bias, "values"):
            out = out + self.bias.values(weights, query_positions, key_positions)
        return out


@dataclass(frozen=True)
class Card:
    r"""What the atlas says about one scheme.

    Args:
        title: its full name.
        year: when the first of the cited works appeared, as a preprint if there was one.
        idea: what it does, in a sentence or two.
        formula: what happens to a token, a query or a score, in LaTeX.
        symbols: a sentence that explains the symbols of the formula, or nothing if the page does.
        cites: keys of the bibliography, beginning with the work that introduced it.
        function: its name in each column, or none.
        shows: what the picture of its scores looks like.
        make: makes an instance, a `Scheme`, for sequences of `n` tokens in given sizes.
        models: released models that use it, as far as we have verified them. A remark may follow
            a name in parentheses.
        page: the page that teaches it, or none.
    """

    title: str
    year: int
    idea: str
    formula: str
    symbols: str
    cites: tuple[str, ...]
    function: str | None
    shows: str
    make: Callable
    models: tuple[str, ...] = ()
    page: str | None = None


def generator():
    """The source of the parameters that are learned."""
    return np.random.default_rng(0)


def input_layer(layer):
    """The scheme of a layer that adds to the input."""
    return Scheme(encode=lambda x, p: layer(x, positions=p), layer=layer)


def learned_bias(kind, *sizes, **options):
    """The scheme of a bias with learned parameters."""
    made = kind.init(generator(), *sizes, **options)
    return Scheme(bias=made, scale=getattr(made, "scale", None))
