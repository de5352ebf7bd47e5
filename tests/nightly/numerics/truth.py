"""What is right, computed another way: angles in integers, the rest with the 64 bits of a long double."""

from functools import cache, lru_cache

import mpmath
import numpy as np

WIDE = np.longdouble
if np.finfo(WIDE).nmant < 63:
    raise ImportError("the right results need the long double of an x86 processor")
WIDE_PI = WIDE("3.14159265358979323846264338327950288")
PLACES = 2**128  # of a fraction of a turn


def power(base, dim):
    """The frequencies `base ** (-2 * j / dim)`, in turns per position, of which few digits are lost."""
    with mpmath.workdps(60):
        tau, base = 2 * mpmath.pi, mpmath.mpf(base)
        return [base ** (-mpmath.mpf(j) / dim) / tau for j in range(0, dim, 2)]


@cache
def plain(dim):
    """Those of the sinusoid and of rotary embedding, as integers."""
    return whole(power(10000, dim))


@cache
def ntk_aware(dim, factor):
    """Those of a larger base."""
    with mpmath.workdps(60):
        return whole(
            power(10000 * mpmath.mpf(factor) ** (mpmath.mpf(dim) / (dim - 2)), dim)
        )


@cache
def llama3(dim, factor=8, low=1, high=4, length=8192):
    """Those of Llama 3.1: divided where there are few turns in the trained length, and blended between."""
    with mpmath.workdps(60):
        shares = [
            (f, min(max((length * f - low) / (high - low), 0), 1))
            for f in power(500000, dim)
        ]
        return whole([(1 - stay) * f / factor + stay * f for f, stay in shares])


@cache
def yarn(dim, factor, length, fast=32, slow=1):
    """Those of YaRN, blended between two pairs; and what multiplies the entries."""
    with mpmath.workdps(60):
        first, last = (
            dim * mpmath.log(length / (2 * mpmath.pi * turns)) / (2 * mpmath.log(10000))
            for turns in (fast, slow)
        )
        first, last = mpmath.floor(first), mpmath.ceil(last)
        shares = [
            (f, min(max((j - first) / (last - first), 0), 1))
            for j, f in enumerate(power(10000, dim))
        ]
        found = whole([slowed * f / factor + (1 - slowed) * f for f, slowed in shares])
        return found, WIDE(mpmath.nstr(1 + mpmath.log(factor) / 10, 25))


def whole(turns):
    """Fractions of a turn as integers."""
    with mpmath.workdps(60):
        return tuple(int(mpmath.nint(t * PLACES)) for t in turns)


def cos_sin(positions, turns):
    """Cosine and sine of integer positions, `(n, 1)` or `(n, m)`, times frequencies `(m)`.

    A turn has `2**64` steps, which an unsigned integer counts, and forgets whole turns by itself.
    """
    return _cos_sin(positions.astype(np.uint64).tobytes(), positions.shape, turns)


@lru_cache(maxsize=1)  # for each dtype the same
def _cos_sin(positions, shape, turns):
    positions = np.frombuffer(positions, np.uint64).reshape(shape)
    high = np.array([t >> 64 for t in turns], np.uint64)
    low = np.array([t >> 32 & 0xFFFFFFFF for t in turns], np.uint64)
    steps = positions * high + (positions * low >> np.uint64(32))
    angles = steps.view(np.int64).astype(WIDE) * (2 * WIDE_PI / 2**64)
    return np.cos(angles), np.sin(angles)


def rotated(x, cos, sin):
    """Pairs of entries, each half of `x`, rotated."""
    a, b = np.split(x, 2, axis=-1)
    return np.concatenate([a * cos - b * sin, a * sin + b * cos], axis=-1)


def softmax(scores):
    """Weights of each row."""
    exp = np.exp(scores - scores.max(-1, keepdims=True))
    return exp / exp.sum(-1, keepdims=True)


def attention(query, key, value, penalty=0):
    """Rows of attention, where `penalty` is subtracted from the scores."""
    scores = query @ key.swapaxes(-1, -2) / np.sqrt(WIDE(query.shape[-1]))
    return softmax(scores - penalty) @ value


def bucket(distance, one_way=32, most=128):
    """T5's bucket of distances to the past, from powers of integers."""
    exact = one_way // 2
    starts = [
        next(
            d
            for d in range(exact, most + 1)
            if d ** (one_way - exact) >= most**k * exact ** (one_way - exact - k)
        )
        for k in range(one_way - exact)
    ]
    far = exact + np.searchsorted(starts, distance, side="right") - 1
    return np.where(distance < exact, distance, far)


def fire(c, multiplier, hidden_weight, hidden_bias, output_weight, output_bias, distance):
    """FIRE's bias of the query at the largest distance from the first key."""
    furthest = max(distance.max(), abs(multiplier) * 512)
    ratio = np.log1p(abs(c) * distance) / (np.log1p(abs(c) * furthest) + 1e-6)
    total = output_bias[:, None]
    for w, b, out in zip(hidden_weight, hidden_bias, output_weight, strict=True):
        total = total + out[:, None] * np.maximum(ratio * w + b, 0)
    return total
