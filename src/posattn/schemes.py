"""All schemes in one view: where each of them acts, and which properties it has.

A scheme changes attention in one of three places: the input, the query and key, or the scores.
`SCHEMES` makes one instance of each. `properties` runs a check for each property on a small instance:
2 heads of width 8, trained on 16 tokens, or on 8 if the scheme is meant to be extended beyond them.
`posattn.atlas` explains what each scheme is.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from functools import partial

import numpy as np

from posattn import reference

__all__ = ["PROPERTIES", "SCHEMES", "Scheme", "Sizes", "properties"]


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


HEADS, SMALL, LARGE = 2, Sizes(8, 16, 4), Sizes(32, 64, 8)
LENGTHS = (6, 12)  # within the length of training of all, and beyond that of some
FAR = 2**20


@dataclass(frozen=True)
class Scheme:
    """One positional scheme, described by the places where it acts.

    Args:
        encode: the input, `(x, positions) -> x`.
        rotate: queries and keys, `(x, positions) -> x` or a pair of such functions.
        bias: the scores, a function of positions or an object with `scores`.
        gate: the scores, computed from the tokens, `x -> log gates`.
        scale: the factor on the products of queries and keys.
        layer: the object that holds the parameters of `encode` or `rotate`.
        positions: the positions of a sequence of `n` tokens.
    """

    encode: Callable | None = None
    rotate: Callable | tuple | None = None
    bias: object | None = None
    gate: Callable | None = None
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
        turn_query, turn_key = (
            self.rotate if isinstance(self.rotate, tuple) else (self.rotate, self.rotate)
        )
        return (
            query if turn_query is None else turn_query(query, query_positions),
            key if turn_key is None else turn_key(key, key_positions),
        )

    def added(self, query, key, query_positions, key_positions, gates):
        """The bias that is added to the scores of all heads, or None."""
        if hasattr(self.bias, "scores"):
            return self.bias.scores(query, key, query_positions, key_positions)
        if self.gate is not None:
            return reference.forgetting_bias(gates, query.shape[-2])
        return None if self.bias is None else self.bias(query_positions, key_positions)

    def attend(self, query, key, value, query_positions, key_positions, *, gates, causal):
        """Attention of heads whose queries and keys have been rotated already."""
        added = self.added(query, key, query_positions, key_positions, gates)
        weights = reference.attention_weights(
            query, key, causal=causal, bias=added, scale=self.scale
        )
        out = weights @ value
        if hasattr(self.bias, "values"):
            out = out + self.bias.values(weights, query_positions, key_positions)
        return out


def _rng():
    return np.random.default_rng(0)


def _turn(frequencies, attention_factor=1.0):
    return partial(
        reference.rotate, frequencies=frequencies, attention_factor=attention_factor
    )


def _on_axes(frequencies, side):
    """A rotation by row and column of a grid, and by time where there are frequencies for it too."""
    axes = len(frequencies)
    return lambda x, p: reference.rotate_axes(
        x, np.stack([p // side] * (axes - 1) + [p % side], axis=-1), frequencies
    )


def _waves(z):
    kept = reference.fope_frequencies(z.head_dim, trained_length=z.trained)
    noise = _rng().normal(size=(2, 1, len(kept), len(kept))) / np.sqrt(len(kept))
    cos, sin = np.eye(len(kept)) + 0.3 * noise
    return partial(reference.fope, frequencies=kept, cos_weight=cos, sin_weight=sin)


def _input(layer):
    return Scheme(encode=lambda x, p: layer(x, positions=p), layer=layer)


def _bias(kind, *sizes, **options):
    bias = kind.init(_rng(), *sizes, **options)
    return Scheme(bias=bias, scale=getattr(bias, "scale", None))


def _mixed(z):
    layer = reference.MixedRotary.init(_rng(), z.head_dim, HEADS, z.side)
    return Scheme(rotate=layer, layer=layer)


def _polar(z):
    key, scale = reference.PolarKey.init(HEADS, z.head_dim), z.head_dim**-0.5
    return Scheme(rotate=(reference.polar_query, key), layer=key, scale=scale)


def _longrope(n, z):
    return reference.longrope(
        z.head_dim,
        short_factors=[1.0] * (z.head_dim // 2),
        long_factors=np.linspace(1, 3, z.head_dim // 2).tolist(),
        length=n,
        trained_length=z.trained // 2,
        factor=4.0,
    )


def _dynamic(n, z):
    half = z.trained // 2
    return reference.dynamic_ntk(z.head_dim, factor=2.0, length=n, trained_length=half)


#: Maps the name of a scheme to a function that makes it for sequences of `n` tokens, in the given sizes.
SCHEMES = {
    "none": lambda n, z=SMALL: Scheme(),
    "sinusoidal": lambda n, z=SMALL: _input(reference.PositionalEncoding(z.dim)),
    "learned": lambda n, z=SMALL: _input(
        reference.LearnedPositionalEncoding.init(_rng(), z.trained, z.dim)
    ),
    "randomized": lambda n, z=SMALL: Scheme(
        encode=lambda x, p: reference.PositionalEncoding(z.dim)(x, positions=p),
        positions=lambda n: reference.randomized_positions(
            n, 1000, rng=np.random.default_rng(n)
        ),
    ),
    "rotary": lambda n, z=SMALL: Scheme(rotate=reference.rotate),
    "rotary, partial": lambda n, z=SMALL: Scheme(
        rotate=_turn(reference.frequencies(z.head_dim // 2))
    ),
    "rotary, proportional": lambda n, z=SMALL: Scheme(
        rotate=_turn(reference.proportional_frequencies(z.head_dim, rotary_dim=8))
    ),
    "FoPE": lambda n, z=SMALL: Scheme(rotate=_waves(z)),
    "xPos": lambda n, z=SMALL: Scheme(rotate=(reference.xpos_query, reference.xpos_key)),
    "PoPE": lambda n, z=SMALL: _polar(z),
    "rotary, axial": lambda n, z=SMALL: Scheme(
        rotate=_on_axes(reference.axial_frequencies(z.head_dim), z.side)
    ),
    "rotary, mixed": lambda n, z=SMALL: _mixed(z),
    "M-RoPE": lambda n, z=SMALL: Scheme(
        rotate=_on_axes(
            reference.mrope_frequencies(z.head_dim, [z.head_dim // k for k in (8, 8, 4)]),
            z.side,
        )
    ),
    "position interpolation": lambda n, z=SMALL: Scheme(
        rotate=_turn(reference.position_interpolation(z.head_dim, factor=4.0))
    ),
    "NTK-aware": lambda n, z=SMALL: Scheme(
        rotate=_turn(reference.ntk_aware(z.head_dim, factor=4.0))
    ),
    "dynamic NTK": lambda n, z=SMALL: Scheme(rotate=_turn(_dynamic(n, z))),
    "YaRN": lambda n, z=SMALL: Scheme(
        rotate=_turn(*reference.yarn(z.head_dim, factor=4.0, trained_length=z.trained))
    ),
    "LongRoPE": lambda n, z=SMALL: Scheme(rotate=_turn(*_longrope(n, z))),
    "Llama 3": lambda n, z=SMALL: Scheme(rotate=_turn(reference.llama3(z.head_dim))),
    "Shaw": lambda n, z=SMALL: _bias(reference.ShawRelative, z.trained // 8, z.head_dim),
    "Music Transformer": lambda n, z=SMALL: _bias(
        reference.RelativeGlobalAttention, z.trained, HEADS, z.head_dim
    ),
    "Transformer-XL": lambda n, z=SMALL: _bias(reference.TransformerXLBias, z.dim, HEADS),
    "DeBERTa": lambda n, z=SMALL: _bias(
        reference.DisentangledBias, z.trained // 4, z.dim, HEADS
    ),
    "TUPE": lambda n, z=SMALL: _bias(reference.TUPEBias, z.trained, z.dim, HEADS),
    "CoPE": lambda n, z=SMALL: _bias(reference.CoPE, z.trained, z.head_dim),
    "FoX": lambda n, z=SMALL: Scheme(
        gate=reference.ForgettingGate.init(_rng(), z.dim, HEADS)
    ),
    "stick-breaking": lambda n, z=SMALL: Scheme(bias=reference.StickBreaking()),
    "DAPE": lambda n, z=SMALL: _bias(reference.DAPE, HEADS, reference.ALiBi(HEADS)),
    "ALiBi": lambda n, z=SMALL: Scheme(bias=reference.ALiBi(HEADS)),
    "T5": lambda n, z=SMALL: _bias(reference.T5Bias, HEADS),
    "KERPLE, logarithmic": lambda n, z=SMALL: _bias(reference.KerpleLog, HEADS),
    "KERPLE, power": lambda n, z=SMALL: _bias(reference.KerplePower, HEADS),
    "Sandwich": lambda n, z=SMALL: Scheme(bias=reference.sandwich_bias(HEADS)),
    "FIRE": lambda n, z=SMALL: _bias(reference.FIRE, HEADS, threshold=2.0),
    "Swin": lambda n, z=SMALL: _bias(reference.SwinBias, HEADS, z.side, z.side),
    "Swin V2": lambda n, z=SMALL: _bias(reference.SwinV2Bias, HEADS, z.side, z.side),
}


def maker(name):
    """The function that makes a scheme, or an error that names all schemes."""
    if name not in SCHEMES:
        raise ValueError(f"name must be one of {', '.join(SCHEMES)}, got {name!r}")
    return SCHEMES[name]


def tokens(n, sizes=SMALL):
    """Tokens without positions, and the weights of queries, keys and values."""
    rng, dim = np.random.default_rng(1), sizes.dim
    return rng.normal(size=(n, dim)), rng.normal(size=(3, dim, dim)) / np.sqrt(dim)


def projected(scheme, x, weights, positions):
    """Queries, keys and values of the tokens after the scheme has acted on them, and the gates."""
    x = x if scheme.encode is None else scheme.encode(x, positions)
    q, k, v = (reference.split_heads(x @ w, HEADS) for w in weights)
    q, k = scheme.rotated(q, k, positions, positions)
    return q, k, v, None if scheme.gate is None else scheme.gate(x)


def _run(scheme, positions, *, causal=False, backwards=False):
    """The outputs of all heads for tokens at `positions`, in their order or backwards."""
    x, weights = tokens(len(positions))
    q, k, v, gates = projected(scheme, x[::-1] if backwards else x, weights, positions)
    return scheme.attend(q, k, v, positions, positions, gates=gates, causal=causal)


def shift_invariant(make):
    """Moving all tokens by the same offset changes no output."""
    return all(
        _same(_run(make(n), np.arange(n)), _run(make(n), np.arange(n) + SMALL.side))
        for n in LENGTHS
    )


def norm_preserving(make):
    """Tokens, queries and keys keep their lengths."""
    return all(_keeps_lengths(make(n), n) for n in LENGTHS)


def _keeps_lengths(scheme, n):
    where = np.arange(n)
    x, weights = tokens(n)
    encoded = x if scheme.encode is None else scheme.encode(x, where)
    q, k = (reference.split_heads(x @ w, HEADS) for w in weights[:2])
    pairs = zip((x, q, k), (encoded, *scheme.rotated(q, k, where, where)), strict=True)
    return all(_same(*(np.linalg.norm(y, axis=-1) for y in pair)) for pair in pairs)


def tells_direction(make):
    """Without a mask, a key before the query counts differently from the same key after it."""
    for scheme in map(make, LENGTHS):
        behind = _run(scheme, np.array([5, 6]))[:, 0]
        before = _run(scheme, np.array([4, 5]), backwards=True)[:, 1]
        if _same(behind, before):
            return False
    return True


def defined_beyond_training(make):
    """Positions and offsets far beyond the trained length give finite outputs, and no error."""
    where = np.concatenate([np.arange(3), np.arange(FAR, FAR + 3)])
    try:
        with np.errstate(over="ignore", invalid="ignore"):
            far = (_run(make(n), where, causal=True) for n in (*LENGTHS, FAR + 3))
            return all(bool(np.isfinite(outputs).all()) for outputs in far)
    except ValueError:
        return False


def cache_safe(make):
    """Decoding token by token, with keys cached as they were computed, gives the outputs of one pass."""
    n = LENGTHS[-1]
    whole, (x, weights) = make(n), tokens(n)
    want = _run(whole, whole.positions(n), causal=True)
    keys, values, gates, got = [], [], [], []
    for t in range(n):
        scheme = make(t + 1)
        where = scheme.positions(t + 1)
        q, k, v, gate = projected(scheme, x[t : t + 1], weights, where[t:])
        keys.append(k)
        values.append(v)
        if gate is not None:
            gates.append(gate)
        kept = [np.concatenate(rows, axis=-2) for rows in (keys, values)]
        step = np.concatenate(gates, axis=-1) if gates else None
        got.append(scheme.attend(q, *kept, where[t:], where, gates=step, causal=True))
    return _same(np.concatenate(got, axis=-2), want)


def learned_parameters(make):
    """The scheme has parameters of its own."""
    scheme = make(6)
    layers = [x for x in (scheme.layer, scheme.bias, scheme.gate) if is_dataclass(x)]
    return any(
        isinstance(getattr(x, field.name), np.ndarray)
        for x in layers
        for field in fields(x)
    )


def bidirectional(make):
    """Without a mask, the position of a later key matters."""
    for scheme in map(make, LENGTHS):
        one, other = (_run(scheme, np.array(where)) for where in ([0, 1, 2], [0, 2, 1]))
        if _same(one[:, 0], other[:, 0]):
            return False
    return True


def tiled(make):
    """The scores of a block of queries and keys need nothing outside that block."""
    scheme, n = make(LENGTHS[-1]), LENGTHS[-1]
    where, (x, weights) = np.arange(n), tokens(n)
    q, k = (reference.split_heads(x @ w, HEADS) for w in weights[:2])
    rows, columns = slice(4, n), slice(2, 5)
    if scheme.gate is not None:  # a number per token, summed once, is all a block needs
        gates = scheme.gate(x)
        sums = np.cumsum(gates, axis=-1)
        whole = reference.forgetting_bias(gates)[:, 5:n, columns]
        return _same(whole, sums[:, 5:n, None] - sums[:, None, columns])
    whole = scheme.added(q, k, where, where, None)
    if whole is None:
        return True
    block = scheme.added(q[:, rows], k[:, columns], where[rows], where[columns], None)
    return _same(whole[:, rows, columns], block)


#: Maps the name of a property to its check, which takes a value of `SCHEMES`.
PROPERTIES = {
    "shift": shift_invariant,
    "norm": norm_preserving,
    "side": tells_direction,
    "far": defined_beyond_training,
    "cache": cache_safe,
    "learns": learned_parameters,
    "future": bidirectional,
    "tiles": tiled,
}


def properties(name):
    """Run all checks on one scheme.

    Args:
        name: a key of `SCHEMES`.

    Returns:
        A dict from each name in `PROPERTIES` to True or False.

    Raises:
        ValueError: if there is no such scheme.

    Examples:
        >>> [name for name, holds in properties("ALiBi").items() if not holds]
        ['side', 'learns']
    """
    make = maker(name)
    return {title: check(make) for title, check in PROPERTIES.items()}


def _same(a, b):
    return bool(np.allclose(a, b, rtol=1e-9, atol=1e-9))
