"""Faults that others had, each in a small implementation of our own: what the checker must find.

`python -m posattn check posattn.conformance.gallery:rotary_by_halves --scheme rotary` names the fault.
All are NumPy, so that they run everywhere; threads are named by repository and number.
"""

import math

import numpy as np


def angles(positions, dim, base=10000.0):
    """Positions times frequencies: this is right."""
    return positions[..., None] * base ** (-np.arange(0, dim, 2) / dim)


def rotated(x, by):
    """Neighbors rotate by angles: this is right."""
    even, odd = x[..., 0::2], x[..., 1::2]
    pairs = [even * np.cos(by) - odd * np.sin(by), even * np.sin(by) + odd * np.cos(by)]
    return np.stack(pairs, -1).reshape(x.shape)


def sinusoidal_of_even_width(length_or_positions, dim, *, base=10000.0):
    """As many cosines as sines: zhouhaoyi/Informer2020 #224."""
    positions = np.asarray(length_or_positions)
    positions = positions if positions.ndim else np.arange(length_or_positions)
    by = angles(positions, dim, base)
    table = np.zeros((*positions.shape, dim))
    table[..., 0::2] = np.sin(by)
    table[..., 1::2] = np.cos(by)
    return table


def encoding_along_the_batch(x):
    """The first axis is taken for the tokens: AkiRusProd/numpy-transformer #1."""
    by = angles(np.arange(x.shape[0]), x.shape[-1])
    table = np.stack([np.sin(by), np.cos(by)], -1).reshape(x.shape[0], -1)[:, : x.shape[-1]]
    return x + (table[:, None] if x.ndim == 3 else table)


def rotary_by_halves(x, positions, *, base=10000.0):
    """Halves are paired, not neighbors: huggingface/transformers #25199 and #33826."""
    by = np.tile(angles(positions, x.shape[-1], base), 2)
    half = x.shape[-1] // 2
    across = np.concatenate([-x[..., half:], x[..., :half]], -1)
    return x * np.cos(by) + across * np.sin(by)


def rotary_clockwise(x, positions, *, base=10000.0):
    """The sine has the wrong sign."""
    return rotated(x, -angles(positions, x.shape[-1], base))


def rotary_of_mixed_layouts(x, positions, *, base=10000.0):
    """Angles of neighbors, and halves are paired: raiyanyahya/how-to-train-your-gpt #6."""
    by = np.repeat(angles(positions, x.shape[-1], base), 2, axis=-1)
    half = x.shape[-1] // 2
    across = np.concatenate([-x[..., half:], x[..., :half]], -1)
    return x * np.cos(by) + across * np.sin(by)


def rotary_back_in_halves(x, positions, *, base=10000.0):
    """Neighbors are paired, and come back as halves: vllm-project/vllm-metal #44."""
    by = angles(positions, x.shape[-1], base)
    even, odd = x[..., 0::2], x[..., 1::2]
    pairs = [even * np.cos(by) - odd * np.sin(by), even * np.sin(by) + odd * np.cos(by)]
    return np.concatenate(pairs, -1)


def rotary_in_float32(x, positions, *, base=10000.0):
    """Angles are float32, as almost everywhere."""
    exponents = np.arange(0, x.shape[-1], 2, dtype=np.float32) / np.float32(x.shape[-1])
    frequencies = np.float32(1) / np.float32(base) ** exponents
    return rotated(x, positions.astype(np.float32)[..., None] * frequencies)


def rotary_in_float16(x, positions, *, base=10000.0):
    """A model cast to half precision casts its frequencies: EleutherAI/gpt-neox #1003."""
    frequencies = (base ** (-np.arange(0, x.shape[-1], 2) / x.shape[-1])).astype(np.float16)
    with np.errstate(all="ignore"):  # float16 ends at 65504
        by = positions.astype(np.float16)[..., None] * frequencies
        return rotated(x, by.astype(np.float64))


def rotary_in_bfloat16(x, positions, *, base=10000.0):
    """The same in bfloat16: huggingface/transformers #25681."""
    frequencies = to_bfloat16(base ** (-np.arange(0, x.shape[-1], 2) / x.shape[-1]))
    return rotated(x, to_bfloat16(to_bfloat16(positions)[..., None] * frequencies))


def to_bfloat16(x):
    """The nearest of the numbers with eight binary digits: ties to even."""
    fraction, exponent = np.frexp(np.asarray(x, np.float64))
    return np.ldexp(np.rint(fraction * 256), exponent - 8)


def rotary_from_zero(x, positions=None, *, base=10000.0):
    """Positions are not looked at, as if nothing stood to the left: huggingface/transformers #22161."""
    return rotated(x, angles(np.arange(x.shape[-2]), x.shape[-1], base))


class CacheByLength:
    """Positions are not part of the key: lucidrains/rotary-embedding-torch #11."""

    def __init__(self):
        self.tables = {}

    def __call__(self, x, positions, *, base=10000.0):
        """Rotate."""
        key = x.shape[-2], x.shape[-1], base
        if key not in self.tables:
            self.tables[key] = angles(positions, x.shape[-1], base)
        return rotated(x, self.tables[key])


class CacheByWidth:
    """The base is not part of the key: equinox's rotary embedding and its theta."""

    def __init__(self):
        self.frequencies = {}

    def __call__(self, x, positions, *, base=10000.0):
        """Rotate."""
        d = x.shape[-1]
        if d not in self.frequencies:
            self.frequencies[d] = base ** (-np.arange(0, d, 2) / d)
        return rotated(x, positions[..., None] * self.frequencies[d])


class CacheByHalfTheWidth:
    """The key holds half the width, and is compared with the whole: ml-explore/mlx #561."""

    def __init__(self):
        self.key = self.table = None

    def __call__(self, x, positions, *, base=10000.0):
        """Rotate."""
        d, rest = x.shape[-1], (positions.tolist(), base)
        if (d, rest) != self.key:
            self.key, self.table = (d // 2, rest), angles(positions, d, base)
        return rotated(x, self.table)


class NtkOfTheLongest:
    """The frequencies of the longest text stay: huggingface/transformers #25306."""

    def __init__(self):
        self.longest = {}

    def __call__(self, dim, *, base=10000.0, factor, length, trained_length):
        """Compute frequencies."""
        key = dim, base, factor
        self.longest[key] = length = max(length, trained_length, self.longest.get(key, 0))
        stretch = 1 + factor * (length / trained_length - 1)
        return (base * stretch ** (dim / (dim - 2))) ** (-np.arange(0, dim, 2) / dim)


def alibi_by_the_formula(num_heads):
    """One geometric sequence for any number of heads: ml-explore/mlx #343."""
    return np.array([1 / (2**8) ** ((h + 1) / num_heads) for h in range(num_heads)])


def t5_of_the_query(
    relative_position, *, num_buckets=32, max_distance=128, bidirectional=True
):
    """Query minus key, not key minus query: dmlc/gluon-nlp #1470."""
    apart = -relative_position
    one_way = num_buckets // 2 if bidirectional else num_buckets
    first = one_way * (apart > 0) if bidirectional else 0
    distance = np.abs(apart) if bidirectional else np.maximum(-apart, 0)
    exact = one_way // 2
    far = np.log(np.maximum(distance, exact) / exact) / math.log(max_distance / exact)
    large = exact + np.floor(far * (one_way - exact) + 1e-9).astype(int)
    return first + np.where(distance < exact, distance, np.minimum(large, one_way - 1))


def attend(
    weigh, query, key, value, *, mask=None, causal=False, bias=None, scale=None, diagonal=None
):  # fmt: skip
    """Attention with weights from `weigh(scores, mask)`, and a diagonal for causal masks."""
    scores = query @ np.swapaxes(key, -1, -2) * (scale or query.shape[-1] ** -0.5)
    scores = scores if bias is None else scores + bias
    n_q, n_k = scores.shape[-2:]
    if causal:
        past = np.tri(n_q, n_k, n_k - n_q if diagonal is None else diagonal, dtype=bool)
        mask = past if mask is None else mask & past
    with np.errstate(all="ignore"):
        return weigh(scores, True if mask is None else mask) @ value


def softmax_of(hidden):
    """The softmax as it is written down, with a score for what is hidden."""

    def weigh(scores, mask):
        scores = np.where(mask, scores, hidden)
        exp = np.exp(scores - scores.max(-1, keepdims=True))
        return exp / exp.sum(-1, keepdims=True)

    return weigh


def softmax_or_zero(scores, mask):
    """The softmax, and zero for rows that may attend to nothing: this is right."""
    return np.where(np.any(mask, -1, keepdims=True), softmax_of(-np.inf)(scores, mask), 0)


def attention_of_nan(query, key, value, **options):
    """Minus infinity hides, and 0 / 0 is NaN: pytorch/pytorch #41508 and #103749."""
    return attend(softmax_of(-np.inf), query, key, value, **options)


def attention_of_the_mean(query, key, value, **options):
    """A large negative number hides, but not if all are equal: jax.nn.dot_product_attention."""
    return attend(softmax_of(-1e30), query, key, value, **options)


def attention_from_the_start(query, key, value, **options):
    """The first query stands at the first key: pytorch/pytorch #108108."""
    return attend(softmax_or_zero, query, key, value, diagonal=0, **options)
