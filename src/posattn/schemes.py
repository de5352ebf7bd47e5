"""All schemes in one view: where each of them acts, and which properties it has.

A scheme changes attention in one of three places: the input, the query and key, or the scores.
Each has a card in its module of `posattn.reference.position`, which `CARDS` collects, and `SCHEMES` makes
one instance of each. `properties` runs a check for each property on a small instance:
2 heads of width 8, trained on 16 tokens, or on 8 if the scheme is meant to be extended beyond them.
`posattn.atlas` explains what each scheme is.
"""

from dataclasses import fields, is_dataclass

import numpy as np

from posattn import reference
from posattn.reference.position import collect
from posattn.reference.position.card import HEADS, SMALL, Card, Scheme, Sizes

__all__ = ["CARDS", "PROPERTIES", "SCHEMES", "Card", "Scheme", "Sizes", "properties"]

LARGE = Sizes(32, 64, 8)
LENGTHS = (6, 12)  # within the length of training of all, and beyond that of some
FAR = 2**20
NONE = Card(
    title="No encoding (NoPE)",
    year=2022,
    idea=(
        "Add nothing. Under a causal mask a later token sees more tokens, and from "
        "that a model can learn where it is."
    ),
    formula=r"s_{ij} = \mathbf{q}_i^\top\mathbf{k}_j / \sqrt{d_h}",
    symbols="",
    cites=("haviv2022transformer", "kazemnejad2023impact"),
    function=None,
    shows="one shade: all scores are equal",
    models=(
        "Jamba (whose other layers are recurrent)",
        "Llama 4 (every fourth layer)",
        "SmolLM3 (every fourth layer)",
        "Cohere 2 (every fourth layer)",
        "EXAONE 4.0 (every fourth layer)",
    ),
    page="position/permutation",
    make=lambda n, z=SMALL: Scheme(),
)

#: Maps the name of a scheme to its card.
CARDS = {"none": NONE, **collect("CARDS")}

#: Maps the name of a scheme to a function that makes it for sequences of `n` tokens, in the given sizes.
SCHEMES = {name: card.make for name, card in CARDS.items()}


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
        whole = scheme.gate_bias(gates, n)[:, 5:n, columns]
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
