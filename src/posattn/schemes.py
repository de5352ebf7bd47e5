"""All schemes in one view: where each acts, and which properties it has, found by running it.

A scheme changes what attention sees in one of three places: the input, the query and key, or the scores.
`SCHEMES` makes one small instance of each, for 2 heads of width 8, trained on 16 tokens, and every entry
of `table()` is the outcome of a check on that instance. Nothing in the table is typed.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from functools import partial

import numpy as np

from posattn import reference

__all__ = ["PROPERTIES", "SCHEMES", "Scheme", "properties", "table"]

DIM, HEADS, HEAD_DIM, TRAINED, SIDE = 16, 2, 8, 16, 4
FAR = 2**20


@dataclass(frozen=True)
class Scheme:
    """One positional scheme, by the places in which it acts.

    Args:
        encode: the input, `(x, positions) -> x`.
        rotate: queries and keys, `(x, positions) -> x` or a pair of such functions.
        bias: the scores, a function of positions or an object with `scores`.
        gate: the scores by way of the tokens, `x -> log gates`.
        scale: the factor on the products of queries and keys.
        layer: what holds the parameters of `encode` or `rotate`.
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
        """The place where the scheme acts, which is `nowhere` if it does not."""
        if self.encode is not None:
            return "input"
        if self.rotate is not None:
            return "query and key"
        return "scores" if self.bias is not None or self.gate is not None else "nowhere"

    def turned(self, query, key, query_positions, key_positions):
        """Queries and keys as the scores see them."""
        turn_query, turn_key = (
            self.rotate if isinstance(self.rotate, tuple) else (self.rotate, self.rotate)
        )
        return (
            query if turn_query is None else turn_query(query, query_positions),
            key if turn_key is None else turn_key(key, key_positions),
        )

    def added(self, query, key, query_positions, key_positions, gates):
        """What is added to the scores of all heads, or None."""
        if hasattr(self.bias, "scores"):
            return self.bias.scores(query, key, query_positions, key_positions)
        if self.gate is not None:
            return reference.forgetting_bias(gates, query.shape[-2])
        return None if self.bias is None else self.bias(query_positions, key_positions)

    def attend(self, query, key, value, query_positions, key_positions, *, gates, causal):
        """Attention of heads whose queries and keys are turned already."""
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


def _on_axes(frequencies):
    """A rotation by row and column of a grid, and by time where there are frequencies for it too."""
    axes = len(frequencies)
    return lambda x, p: reference.rotate_axes(
        x, np.stack([p // SIDE] * (axes - 1) + [p % SIDE], axis=-1), frequencies
    )


def _input(layer):
    return Scheme(encode=lambda x, p: layer(x, positions=p), layer=layer)


def _learned_bias(kind, *sizes, **options):
    bias = kind.init(_rng(), *sizes, **options)
    return Scheme(bias=bias, scale=getattr(bias, "scale", None))


def _longrope(n):
    factors = {"short_factors": [1.0] * 4, "long_factors": [1.0, 1.5, 2.0, 3.0]}
    return reference.longrope(
        HEAD_DIM, length=n, trained_length=TRAINED // 2, factor=4.0, **factors
    )


def _dynamic(n):
    return reference.dynamic_ntk(
        HEAD_DIM, factor=2.0, length=n, trained_length=TRAINED // 2
    )


_AXIAL = reference.axial_frequencies(HEAD_DIM)
_MIXED = reference.MixedRotary.init(_rng(), HEAD_DIM, HEADS, SIDE)
_MROPE = reference.mrope_frequencies(HEAD_DIM, (1, 1, 2))
_YARN = {"factor": 4.0, "trained_length": TRAINED}

#: From the name of a scheme to a function that makes it for sequences of `n` tokens.
SCHEMES = {
    "none": lambda n: Scheme(),
    "sinusoidal": lambda n: _input(reference.PositionalEncoding(DIM)),
    "learned": lambda n: _input(
        reference.LearnedPositionalEncoding.init(_rng(), TRAINED, DIM)
    ),
    "randomized": lambda n: Scheme(
        encode=lambda x, p: reference.PositionalEncoding(DIM)(x, positions=p),
        positions=lambda n: reference.randomized_positions(
            n, 1000, rng=np.random.default_rng(n)
        ),
    ),
    "Shaw": lambda n: _learned_bias(reference.ShawRelative, 2, HEAD_DIM),
    "Music Transformer": lambda n: _learned_bias(
        reference.RelativeGlobalAttention, TRAINED, HEADS, HEAD_DIM
    ),
    "Transformer-XL": lambda n: _learned_bias(reference.TransformerXLBias, DIM, HEADS),
    "DeBERTa": lambda n: _learned_bias(reference.DisentangledBias, 4, DIM, HEADS),
    "TUPE": lambda n: _learned_bias(reference.TUPEBias, TRAINED, DIM, HEADS),
    "CoPE": lambda n: _learned_bias(reference.CoPE, TRAINED, HEAD_DIM),
    "FoX": lambda n: Scheme(gate=reference.ForgettingGate.init(_rng(), DIM, HEADS)),
    "ALiBi": lambda n: Scheme(bias=reference.alibi_bias(HEADS)),
    "T5": lambda n: _learned_bias(reference.T5Bias, HEADS),
    "KERPLE, logarithmic": lambda n: _learned_bias(reference.KerpleLog, HEADS),
    "KERPLE, power": lambda n: _learned_bias(reference.KerplePower, HEADS),
    "Sandwich": lambda n: Scheme(bias=reference.sandwich_bias(HEADS)),
    "FIRE": lambda n: _learned_bias(reference.FIRE, HEADS, threshold=2.0),
    "Swin": lambda n: _learned_bias(reference.SwinBias, HEADS, SIDE, SIDE),
    "rotary": lambda n: Scheme(rotate=reference.rotate),
    "rotary, partial": lambda n: Scheme(rotate=_turn(reference.frequencies(4))),
    "xPos": lambda n: Scheme(rotate=(reference.xpos_query, reference.xpos_key)),
    "rotary, axial": lambda n: Scheme(rotate=_on_axes(_AXIAL)),
    "rotary, mixed": lambda n: Scheme(rotate=_MIXED, layer=_MIXED),
    "M-RoPE": lambda n: Scheme(rotate=_on_axes(_MROPE)),
    "position interpolation": lambda n: Scheme(
        rotate=_turn(reference.position_interpolation(HEAD_DIM, factor=4.0))
    ),
    "NTK-aware": lambda n: Scheme(rotate=_turn(reference.ntk_aware(HEAD_DIM, factor=4.0))),
    "dynamic NTK": lambda n: Scheme(rotate=_turn(_dynamic(n))),
    "YaRN": lambda n: Scheme(rotate=_turn(*reference.yarn(HEAD_DIM, **_YARN))),
    "LongRoPE": lambda n: Scheme(rotate=_turn(*_longrope(n))),
    "Llama 3": lambda n: Scheme(rotate=_turn(reference.llama3(HEAD_DIM))),
}


def _tokens(n):
    """Tokens, none of which knows its place, and the weights of queries, keys and values."""
    rng = np.random.default_rng(1)
    return rng.normal(size=(n, DIM)), rng.normal(size=(3, DIM, DIM)) / np.sqrt(DIM)


def _run(scheme, positions, *, causal=False, backwards=False):
    """The outputs of all heads for tokens that stand at `positions`, in their order or backwards."""
    x, weights = _tokens(len(positions))
    x = x[::-1] if backwards else x
    x = x if scheme.encode is None else scheme.encode(x, positions)
    q, k, v = (reference.split_heads(x @ w, HEADS) for w in weights)
    q, k = scheme.turned(q, k, positions, positions)
    gates = None if scheme.gate is None else scheme.gate(x)
    return scheme.attend(q, k, v, positions, positions, gates=gates, causal=causal)


def shift_invariant(make):
    """Moving all tokens by the same offset changes no output."""
    scheme, where = make(6), np.arange(6)
    return _same(_run(scheme, where), _run(scheme, where + SIDE))


def norm_preserving(make):
    """Tokens, queries and keys keep their lengths."""
    scheme, where = make(6), np.arange(6)
    x, weights = _tokens(6)
    encoded = x if scheme.encode is None else scheme.encode(x, where)
    q, k = (reference.split_heads(x @ w, HEADS) for w in weights[:2])
    pairs = zip((x, q, k), (encoded, *scheme.turned(q, k, where, where)), strict=True)
    return all(_same(*(np.linalg.norm(y, axis=-1) for y in pair)) for pair in pairs)


def tells_direction(make):
    """Without a mask, a token counts otherwise before the query than behind it."""
    scheme = make(2)
    behind = _run(scheme, np.array([5, 6]))[:, 0]
    before = _run(scheme, np.array([4, 5]), backwards=True)[:, 1]
    return not _same(behind, before)


def defined_beyond_training(make):
    """Positions and offsets far beyond the trained length give finite outputs, and no error."""
    where = np.concatenate([np.arange(3), np.arange(FAR, FAR + 3)])
    try:
        with np.errstate(over="ignore", invalid="ignore"):
            return bool(np.isfinite(_run(make(6), where, causal=True)).all())
    except ValueError:
        return False


def cache_safe(make):
    """Token by token, with keys that are kept as they once were, the outputs are those at once."""
    n = TRAINED - 4
    whole, (x, weights) = make(n), _tokens(n)
    want = _run(whole, whole.positions(n), causal=True)
    keys, values, gates, got = [], [], [], []
    for t in range(n):
        scheme = make(t + 1)
        where = scheme.positions(t + 1)
        now = where[t:]
        token = x[t : t + 1]
        token = token if scheme.encode is None else scheme.encode(token, now)
        q, k, v = (reference.split_heads(token @ w, HEADS) for w in weights)
        q, k = scheme.turned(q, k, now, now)
        keys.append(k)
        values.append(v)
        if scheme.gate is not None:
            gates.append(scheme.gate(token))
        kept = [np.concatenate(rows, axis=-2) for rows in (keys, values)]
        step = np.concatenate(gates, axis=-1) if gates else None
        got.append(scheme.attend(q, *kept, now, where, gates=step, causal=True))
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
    """Without a mask, where a later key stands matters."""
    scheme = make(3)
    one, other = (_run(scheme, np.array(where)) for where in ([0, 1, 2], [0, 2, 1]))
    return not _same(one[:, 0], other[:, 0])


def tiled(make):
    """Scores of a block of queries and keys follow from that block alone."""
    scheme, where = make(8), np.arange(8)
    x, weights = _tokens(8)
    q, k = (reference.split_heads(x @ w, HEADS) for w in weights[:2])
    rows, columns = slice(4, 8), slice(2, 5)
    if (
        scheme.gate is not None
    ):  # a number per token, summed once, is all that a block needs
        gates = scheme.gate(x)
        sums = np.cumsum(gates, axis=-1)
        whole = reference.forgetting_bias(gates)[:, 5:8, columns]
        return _same(whole, sums[:, 5:8, None] - sums[:, None, columns])
    whole = scheme.added(q, k, where, where, None)
    if whole is None:
        return True
    block = scheme.added(q[:, rows], k[:, columns], where[rows], where[columns], None)
    return _same(whole[:, rows, columns], block)


#: From the name of a property to its check, which takes a value of `SCHEMES`.
PROPERTIES = {
    "shift-invariant": shift_invariant,
    "norm-preserving": norm_preserving,
    "tells direction": tells_direction,
    "defined beyond training length": defined_beyond_training,
    "cache-safe": cache_safe,
    "learned parameters": learned_parameters,
    "bidirectional": bidirectional,
    "tiled kernel": tiled,
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
        ['tells direction', 'learned parameters']
    """
    if name not in SCHEMES:
        raise ValueError(f"name must be one of {', '.join(SCHEMES)}, got {name!r}")
    return {title: check(SCHEMES[name]) for title, check in PROPERTIES.items()}


def table():
    """All schemes against all properties, as a table in Markdown.

    Returns:
        Text: a row per scheme, with the place where it acts and yes or no per property.
    """
    head = ["scheme", "acts on", *PROPERTIES]
    rows = [
        [
            name,
            make(6).place,
            *("yes" if holds else "no" for holds in properties(name).values()),
        ]
        for name, make in SCHEMES.items()
    ]
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _same(a, b):
    return bool(np.allclose(a, b, rtol=1e-9, atol=1e-9))
