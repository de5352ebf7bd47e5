"""Every formula of a docstring, written once more: number by number, in the letters of the docstring.

Each function below has the name of what it checks, and yields what the library computes beside what the
formula says. Its eight digits are a fingerprint of all mathematics of the docstring: who changes a
formula is asked to read it again here, and then takes the digits that the test names.
"""

import ast
import hashlib
import re
from dataclasses import replace
from itertools import combinations
from math import ceil, comb, cos, exp, floor, log, log2, pi, prod, sin, sqrt, tanh
from pathlib import Path

import numpy as np
import pytest

import posattn.reference as ours

MATH = re.compile(r"\.\. math:: (.+?)(?:\n\n|\Z)|(?<!\\)\$([^$]+)\$", re.DOTALL)
RELATION = re.compile(  # what a reader may rely on
    r"[=^<>]|\\(le(?!ft)|ge|ne|[lr]floor|[lr]ceil|bmod|sum|sqrt|mapsto|sim)"
)
OWN = {  # how both twins compute sinusoids, and how exactly
    "TransformerXLBias": [
        r"\cos(i-j)=\cosi\cosj+\sini\sinj",
        "10^{-16}",
        r"2\cdot10^{-6}",
        "2^{20}",
    ]
}
STATED = {}  # the function below, and the fingerprint, of each name
POSITIONS = np.array([0, 3, 4, 9])  # of queries and of keys
PAIRS = [(i, j) for i in range(4) for j in range(4)]


def formula(digits):
    """What a function below states, as its docstring was when somebody compared the two."""

    def enter(states):
        STATED[states.__name__.replace("__", ".", 1)] = (states, digits)
        return states

    return enter


def normal(*shape):
    """Numbers that are the same for the same shape."""
    return np.random.default_rng(shape).normal(size=shape)


def drawn():
    return np.random.default_rng(5)


def dot(a, b):
    return sum(x * y for x, y in zip(a, b, strict=True))


def sigma(z):
    return 1 / (1 + exp(-z))


def softmax(s):
    e = [exp(x) for x in s]
    return [x / sum(e) for x in e]


def omega(j, d, b=10000.0):
    return b ** (-2 * j / d)


def pairs_of(m, layout="interleaved"):
    """Which entries make pair 0 to m - 1."""
    half = layout == "half"
    return [[j, j + m] if half else [2 * j, 2 * j + 1] for j in range(m)]


def rotated(pair, angle):
    a, b = pair
    return [a * cos(angle) - b * sin(angle), a * sin(angle) + b * cos(angle)]


def heads():
    """Queries, keys and values of two heads of width 6."""
    return normal(2, 4, 6), normal(2, 4, 6) + 0.1, normal(2, 4, 6) - 0.2


def weights_of_two_heads():
    return np.array([[softmax(row) for row in head] for head in normal(2, 5, 5)])


def within(array, bound):
    """Whether numbers are drawn uniformly up to a bound, as far as many of them can tell."""
    size = np.abs(array)
    return size.max() <= bound and abs(size.mean() / bound - 0.5) < 0.05


@formula("18d34608")
def alibi_slopes():
    for H in (1, 4, 16):
        yield ours.alibi_slopes(H), [2 ** (-8 * h / H) for h in range(1, H + 1)]
    P, H = 4, 6
    of_twice = [2 ** (-8 * h / (2 * P)) for h in range(1, 2 * P + 1)]
    yield ours.alibi_slopes(H)[P:], of_twice[::2][: H - P]


@formula("db623ba6")
def ALiBi():
    m, b = ours.alibi_slopes(2), ours.ALiBi(2)(POSITIONS, POSITIONS)
    for i, j in PAIRS:
        yield b[:, i, j], [-m[h] * abs(POSITIONS[j] - POSITIONS[i]) for h in (0, 1)]


@formula("196a60b3")
def masked_softmax():
    s, m = normal(3, 4), normal(4, 3).T > 0
    m[2] = False
    for i in range(3):
        total = sum(m[i, k] * exp(s[i, k]) for k in range(4))
        want = [m[i, j] * exp(s[i, j]) / total if total else 0 for j in range(4)]
        yield ours.masked_softmax(s, m)[i], want


@formula("0c7f80b1")
def attention_weights():
    Q, K, _ = heads()
    B = normal(2, 4, 4)
    W = ours.attention_weights(Q, K, bias=B)
    for h in (0, 1):
        for i in range(4):
            s = [dot(Q[h, i], K[h, j]) / sqrt(6) + B[h, i, j] for j in range(4)]
            yield W[h, i], softmax(s)
    a, c, d = [0.5, -1.0], 0.75, 6
    W = ours.attention_weights(Q, K, bias=B, sinks=np.array(a), soft_cap=c)
    for h in (0, 1):
        for i in range(4):
            s = [dot(Q[h, i], K[h, j]) / sqrt(d) for j in range(4)]
            e = [exp(c * tanh(s[j] / c) + B[h, i, j]) for j in range(4)]
            yield W[h, i], [x / (exp(a[h]) + sum(e)) for x in e]
            assert all(abs(c * tanh(x / c)) < c for x in s)


@formula("5fe6119c")
def scaled_dot_product_attention():
    d, d_v = 6, 5
    (Q, K, _), V, B = heads(), normal(2, 4, d_v), normal(2, 4, 4)
    got = ours.scaled_dot_product_attention(Q, K, V, bias=B)
    for h in (0, 1):
        for i in range(4):
            w = softmax([dot(Q[h, i], K[h, j]) / sqrt(d) + B[h, i, j] for j in range(4)])
            yield got[h, i], [dot(w, V[h, :, c]) for c in range(d_v)]
    a, c = [0.5, -1.0], 0.75
    got = ours.scaled_dot_product_attention(Q, K, V, sinks=np.array(a), soft_cap=c)
    for h in (0, 1):
        for i in range(4):
            s = [dot(Q[h, i], K[h, j]) / sqrt(d) for j in range(4)]
            e = [exp(c * tanh(x / c)) for x in s]
            w = [x / (exp(a[h]) + sum(e)) for x in e]
            yield got[h, i], [dot(w, V[h, :, k]) for k in range(d_v)]


@formula("8f80b03d")
def dropout():
    p, x = 0.25, 2 + normal(100, 100) ** 2
    y = ours.dropout(x, p, drawn())
    u = y != 0
    yield y, u / (1 - p) * x
    assert abs(u.mean() - (1 - p)) < 0.02


@formula("18fc9aa7")
def causal_mask():
    mask = ours.causal_mask(3, 5)
    yield mask, [[j <= i + 5 - 3 for j in range(5)] for i in range(3)]


@formula("6892017e")
def length_mask():
    per_example, per_query = np.array([2, 0]), np.array([[1, 4, 3], [0, 2, 4]])
    for b in (0, 1):
        mask = ours.length_mask(per_example, 4)
        yield mask[b], [[j < per_example[b] for j in range(4)]]
        mask = ours.length_mask(per_query, 4)
        yield mask[b], [[j < per_query[b, i] for j in range(4)] for i in range(3)]


@formula("262993c5")
def window_mask():
    n_q, n_k, w = 3, 6, 2
    want = [[abs(j - (i + n_k - n_q)) < w for j in range(n_k)] for i in range(n_q)]
    yield ours.window_mask(n_q, n_k, w), want
    for i, row in enumerate(ours.window_mask(n_k, n_k, w) & ours.causal_mask(n_k)):
        yield row.sum(), min(w, i + 1)
    w, W = 4, 3  # of Longformer, on both sides together; of Mistral, before the query
    yield ours.window_mask(9, 9, w // 2 + 1)[4, 5:].sum(), w // 2
    yield ours.window_mask(9, 9, W + 1)[8, :8].sum(), W


@formula("1f974321")
def Window():
    q, k, w = np.array([3, 8]), np.array([1.5, 3, 5, 6, 9.5]), 2
    want = [[abs(k[j] - q[i]) < w for j in range(5)] for i in (0, 1)]
    yield ours.Window(w)(q, k), want


@formula("c8ce5cb7")
def Chunk():
    q, k, c = np.array([3, 8, -1]), np.array([1.5, 3, 5, 6, 9.5, -4]), 4
    want = [[floor(x / c) == floor(y / c) for x in k] for y in q]
    yield ours.Chunk(c)(q, k), want


@formula("c4fe7007")
def axial_frequencies():
    d, c = 12, 3
    for b in (100.0, 50.0):
        w = np.zeros((c, d // 2))
        for k in range(c):
            for j in range(d // (2 * c)):
                w[k, k * d // (2 * c) + j] = b ** (-2 * c * j / d)
        yield ours.axial_frequencies(d, c, base=b), w


@formula("4cf1d4bc")
def grid_coordinates():
    h, w = 3, 4
    yield ours.grid_coordinates(h, w), [(floor(p / w), p % w) for p in range(h * w)]


@formula("39db7d69")
def rotate_axes():
    x, p, w = normal(4, 8), normal(4, 2), normal(2, 3)  # and two entries that pass through
    for layout in ("interleaved", "half"):
        got = ours.rotate_axes(x, p, w, layout=layout)
        yield got[:, 6:], x[:, 6:]
        for i in range(4):
            for j, pair in enumerate(pairs_of(3, layout)):
                phi = sum(p[i, k] * w[k, j] for k in (0, 1))
                yield got[i, pair], rotated(x[i, pair], phi)
        alpha = 1.5
        scaled = ours.rotate_axes(x, p, w, layout=layout, attention_factor=alpha)
        yield scaled[:, :6], alpha * got[:, :6]
        yield scaled[:, 6:], x[:, 6:]
        q, k = x[:, :6], normal(4, 8)[::-1, :6]
        options = {"layout": layout, "attention_factor": alpha}
        products = (
            ours.rotate_axes(q, p, w, **options) @ ours.rotate_axes(k, p, w, **options).T
        )
        plain = (
            ours.rotate_axes(q, p, w, layout=layout)
            @ ours.rotate_axes(k, p, w, layout=layout).T
        )
        yield products, alpha**2 * plain


@formula("1c2f0c14")
def mrope_frequencies():
    d, sections = 12, (1, 2, 3)
    for b in (10000.0, 50.0):
        w = np.zeros((3, 6))
        for k, j in [(0, 0), (1, 1), (1, 2), (2, 3), (2, 4), (2, 5)]:
            w[k, j] = b ** (-2 * j / d)
        yield ours.mrope_frequencies(d, sections, base=b), w
    for d, sections in ((16, (4, 2, 2)), (16, (3, 3, 2)), (12, (5, 1))):
        c, w = len(sections), np.zeros((len(sections), d // 2))
        for j in range(d // 2):
            k = j % c
            w[k if j < c * sections[k] else 0, j] = omega(j, d, 10000.0)
        got = ours.mrope_frequencies(d, sections, interleaved=True)
        yield got, w
        yield np.count_nonzero(got, axis=1), sections
        for k in range(1, c):
            room = ceil((d / 2 - k) / c)
            yield room, len([j for j in range(d // 2) if j % c == k])


@formula("9e03d1b7")
def mrope_positions():
    for a in (0, 7):
        for t, h, w, delta in ((1, 2, 3, 1), (4, 2, 1, 0.75), (2, 1, 2, 0)):
            got, after = ours.mrope_positions([(t, h, w, delta)], start=a)
            for f in range(t):
                for y in range(h):
                    for x in range(w):
                        want = a + floor(delta * f), a + y, a + x
                        yield got[(f * h + y) * w + x], want
            yield after, a + max(floor(delta * (t - 1)), h - 1, w - 1) + 1
            yield after, got.max() + 1
        got, after = ours.mrope_positions([5], start=a)
        for i in range(5):
            yield got[i], (a + i, a + i, a + i)


@formula("76ed7d24")
def MixedRotary():
    width, w, x = 3, normal(2, 2, 2), normal(2, 6, 4)
    got = ours.MixedRotary(w, width)(x)
    for h in (0, 1):
        for p in range(6):
            for j in (0, 1):
                phi = floor(p / width) * w[0, h, j] + p % width * w[1, h, j]
                pair = slice(2 * j, 2 * j + 2)
                yield got[h, p, pair], rotated(x[h, p, pair], phi)


@formula("75ab93da")
def MixedRotary__init():
    d, H, b = 16, 3, 50.0
    theta = drawn().uniform(0, 2 * pi, H)
    w = ours.MixedRotary.init(drawn(), d, H, 5, base=b).frequencies
    for h in range(H):
        for j in range(d // 4):
            size, (s, c) = b ** (-4 * j / d), (sin(theta[h]), cos(theta[h]))
            yield w[:, h, j], [size * c, size * s]
            yield w[:, h, j + d // 4], [-size * s, size * c]


@formula("4a1461ca")
def KVCache():
    positions, w = np.array([[3, 4, 5, 6, 7]]), 3
    for window in (None, w):
        cache = ours.KVCache.init((1,), 1, 8, 2, window=window)
        cache, *_ = cache.append(normal(1, 1, 5, 2), normal(1, 1, 5, 2), positions)
        slots = [2**31 - 1] * (window or 8)
        for p in positions[0]:
            slots[p % window if window else p] = p
        yield cache.positions[0], slots
        for q in (6, 7, 8):  # 7 is not yet there for the first, 5 has left for the last
            seen = [n <= q and (window is None or q - n < window) for n in slots]
            yield cache.mask(np.array([[q]]))[0, 0], seen


@formula("e6dcfc78")
def convolution_operations():
    yield ours.convolution_operations(11, 5, 3), 2 * 3 * 11 * 5**2


@formula("cc6575dc")
def recurrence_operations():
    yield ours.recurrence_operations(11, 5), 4 * 11 * 5**2


@formula("fb853735")
def self_attention_operations():
    n, d = 11, 5
    yield ours.self_attention_operations(n, d), 4 * n**2 * d + 8 * n * d**2
    n = 2 * d
    yield 4 * n**2 * d, 8 * n * d**2


@formula("38fbf452")
def convolution():
    x, W, r = normal(7, 3), normal(4, 3, 3), 2
    y = ours.convolution(x, W, dilation=r)
    for i in range(7):
        read = [(m, i + (m - 4 // 2) * r) for m in range(4)]
        yield y[i], sum((x[n] @ W[m] for m, n in read if 0 <= n < 7), np.zeros(3))


@formula("31b17900")
def recurrence():
    x, W, U = normal(5, 3), normal(3, 3), normal(3, 3) / 2
    got, h = ours.recurrence(x, W, U), np.zeros(3)
    for i in range(5):
        h = [tanh(a) for a in x[i] @ W + h @ U]
        yield got[i], h


@formula("f1466c0c")
def CoPE():
    (q, k, _), e = heads(), normal(3, 6)  # n_max = 3
    b = ours.CoPE(e).scores(q, k, POSITIONS, POSITIONS)
    for h in (0, 1):
        for i, j in PAIRS:
            g = [sigma(dot(q[h, i], k[h, n]) / sqrt(6)) for n in range(j, i + 1)]
            p = min(sum(g), 3 - 1)  # 0 for keys after the query
            part = p - floor(p)
            low, high = dot(q[h, i], e[floor(p)]), dot(q[h, i], e[ceil(p)])
            yield b[h, i, j], (1 - part) * low + part * high


@formula("a4ae8b1f")
def DAPE():
    q, k, _ = heads()
    alibi = ours.ALiBi(2)
    W1, w1, W2, w2 = normal(4, 5), normal(5), normal(5, 2), normal(2)
    b = ours.DAPE(alibi, W1, w1, W2, w2).scores(q, k, POSITIONS, POSITIONS)
    for i, j in PAIRS:
        beta = alibi(POSITIONS, POSITIONS)[:, i, j]
        s = [dot(q[h, i], k[h, j]) / sqrt(6) for h in (0, 1)]
        hidden = [max(z, z / 100) for z in W1.T @ [*s, *beta] + w1]
        yield b[:, i, j], beta + W2.T @ hidden + w2


@formula("853058d2")
def DAPE__init():
    H, m = 8, 300
    dape = ours.DAPE.init(drawn(), H, ours.ALiBi(H), hidden_dim=m)
    yield within(dape.hidden_weight, 1 / sqrt(2 * H)), True
    yield within(dape.output_weight, 1 / sqrt(m)), True


@formula("80ef01cf")
def deberta_bucket():
    for m, D in [(16, 128), (256, 512), (6, 9)]:
        E = m / 2
        for delta in range(-2 * D, 2 * D):
            n, want = abs(delta), delta
            if n > E:
                steps = log(n / E) / log((D - 1) / E) * (E - 1)
                want = (1 if delta > 0 else -1) * min(m, E + ceil(steps - 1e-9))
            yield ours.deberta_bucket(np.array(delta), num_buckets=m, max_distance=D), want
        found = ours.deberta_bucket(np.arange(2 * D), num_buckets=m, max_distance=D)
        E = m // 2
        for k in range(1, E + 1):
            begins = (
                n for n in range(2 * D) if n ** (E - 1) > (D - 1) ** (k - 1) * E ** (E - k)
            )
            yield np.argmax(found >= E + k), next(begins)


@formula("8fd86e67")
def DisentangledBias():
    (q, k, _), m, d, D = heads(), 4, 6, 6
    T, Wq, Wk = normal(2 * m, 5), normal(5, 2 * d), normal(5, 2 * d) + 0.1
    for bucketed_to, same_row in [(None, False), (None, True), (D, False), (D, True)]:
        options = {"num_heads": 2, "bucketed_to": bucketed_to, "same_row": same_row}
        made = ours.DisentangledBias(T, Wq, Wk, **options)
        got = made.scores(q, k, POSITIONS, POSITIONS)

        def delta(i, j, bucketed_to=bucketed_to):
            n = POSITIONS[i] - POSITIONS[j]
            if bucketed_to:
                n = ours.deberta_bucket(
                    np.array(n), num_buckets=m, max_distance=bucketed_to
                )
            return int(max(0, min(2 * m - 1, n + m)))

        for h in (0, 1):
            own = slice(d * h, d * h + d)
            for i, j in PAIRS:
                to_key = dot(q[h, i], T[delta(i, j)] @ Wk[:, own])
                row = delta(i, j) if same_row else delta(j, i)
                to_query = dot(k[h, j], T[row] @ Wq[:, own])
                yield got[h, i, j], (to_key + to_query) / sqrt(3 * d)


@formula("1875abbb")
def DisentangledBias__scale():
    made = ours.DisentangledBias(normal(6, 5), normal(5, 12), normal(5, 12), num_heads=2)
    yield made.scale, 1 / sqrt(3 * 6)


@formula("bd209806")
def FIRE():
    c, mu, w1, b1, W2, b2 = -0.3, -0.5, normal(5), normal(5), normal(5, 2), normal(2)
    L = abs(mu) * 10.0
    arrays = np.array(c), np.array(mu), w1, b1, W2, b2
    b = ours.FIRE(*arrays, threshold=10.0)(POSITIONS, POSITIONS)

    def psi(x):
        return log(1 + abs(c) * x)

    for n, m in PAIRS:
        i, j = POSITIONS[n], POSITIONS[m]
        x = psi(abs(j - i)) / (psi(max(L, i)) + 1e-6)
        yield b[:, n, m], W2.T @ [max(0, z) for z in x * w1 + b1] + b2


@formula("a6a5e309")
def FIRE__init():
    m = 300
    fire = ours.FIRE.init(drawn(), 8, hidden_dim=m, threshold=7.0)
    yield [fire.c, fire.multiplier, fire.threshold], [0.1, 1, 7]
    yield within(fire.hidden_weight, 1 / sqrt(1)), True
    yield within(fire.output_weight, 1 / sqrt(m)), True


@formula("ec27e4cf")
def forgetting_bias():
    f = np.exp(-(normal(2, 4) ** 2))
    d = ours.forgetting_bias(np.log(f))
    for h in (0, 1):
        for i, j in PAIRS:
            yield d[h, i, j], sum(log(f[h, n]) for n in range(j + 1, i + 1))  # 0 for j > i
            s = 0.7
            passed = prod(f[h, n] for n in range(j + 1, i + 1))
            yield exp(s + d[h, i, j]), exp(s) * passed
    same = 0.3
    d = ours.forgetting_bias(np.full((1, 4), log(same)))[0]
    yield [d[i, j] for i, j in PAIRS], [max(i - j, 0) * log(same) for i, j in PAIRS]


@formula("e782d62c")
def tiled_forgetting_bias():
    f = np.exp(-(normal(2, 4) ** 2))
    d = ours.tiled_forgetting_bias(np.log(f))(np.arange(4), np.arange(4))
    for h in (0, 1):
        for p, r in PAIRS:
            yield d[h, p, r], sum(log(f[h, n]) for n in range(r + 1, p + 1))  # 0 for r > p


@formula("8337e443")
def ForgettingGate():
    x, W, b = normal(4, 3), normal(3, 2), normal(2)
    got = ours.ForgettingGate(W, b)(x)
    for n in range(4):
        yield got[:, n], [log(sigma(z)) for z in x[n] @ W + b]


@formula("1dbedb58")
def KerpleLog():
    given = np.array([0.5, 0.002, -3.0]), np.array([3.0, 0.25, 0.001])
    layer = ours.KerpleLog(*given)
    r1, r2 = (np.array([max(r, 0.01) for r in rs]) for rs in given)
    yield [layer.clamped().r1, layer.clamped().r2], [r1, r2]
    b = layer(POSITIONS, POSITIONS)
    for i, j in PAIRS:
        n = abs(POSITIONS[j] - POSITIONS[i])
        yield b[:, i, j], [-r1[h] * log(1 + r2[h] * n) for h in range(3)]
        yield np.exp(b[:, i, j]), (1 + r2 * n) ** -r1


@formula("3fdfd051")
def KerplePower():
    given = np.array([0.5, 2.0, 0.001, 3.0]), np.array([2.0, 0.25, -1.0, 2.5])
    layer = ours.KerplePower(*given)
    r1 = [max(r, 0.01) for r in given[0]]
    r2 = [min(max(r, 0.01), 2) for r in given[1]]
    yield [layer.clamped().r1, layer.clamped().r2], [r1, r2]
    b = layer(POSITIONS, POSITIONS)
    for i, j in PAIRS:
        n = abs(POSITIONS[j] - POSITIONS[i])
        yield b[:, i, j], [-r1[h] * n ** r2[h] if n else 0 for h in range(4)]


@formula("fa8bd92e")
def LearnedPositionalEncoding():
    x, T = normal(2, 4, 3), normal(5, 3)
    y = ours.LearnedPositionalEncoding(T)(x)
    for n in (0, 1):
        for i in range(4):
            yield y[n, i], x[n, i] + T[i]


@formula("d495d610")
def LearnedPositionalEncoding____call__():
    layer = ours.LearnedPositionalEncoding(normal(5, 3))
    for n in (4, 5):
        x = normal(2, n, 3)
        yield layer(x), layer(x, positions=np.arange(n))
    with pytest.raises(ValueError, match="at most max_len = 5 tokens"):
        layer(normal(2, 6, 3))
    yield (
        layer(normal(2, 6, 3), positions=np.arange(6) % 5),
        normal(2, 6, 3) + layer.table[np.arange(6) % 5],
    )
    with pytest.raises(ValueError, match="positions"):
        layer(normal(2, 5, 3), positions=np.arange(1, 6))


@formula("5bf37067")
def split_heads():
    x, d, H = normal(3, 6), 6, 2
    width = d // H
    for h in range(H):
        columns = list(range(h * width, (h + 1) * width))
        yield ours.split_heads(x, H)[h], x[:, columns]


@formula("8be33d97")
def MultiHeadAttention():
    d, d_h, H, H_kv = 5, 6, 4, 2
    Q, K, V = normal(3, d), normal(4, d), normal(4, d) + 0.1
    Wq, Wk = normal(d, H * d_h), normal(d, H_kv * d_h)
    Wv, Wo, B = normal(d, H_kv * d_h) + 0.1, normal(H * d_h, d), normal(H, 3, 4)
    layer = ours.MultiHeadAttention(Wq, Wk, Wv, Wo, num_heads=H, num_kv_heads=H_kv)
    got, found = layer(Q, K, V, bias=B), []
    for h in range(H):
        own, shared = slice(h * d_h, (h + 1) * d_h), floor(h * H_kv / H)
        theirs = slice(shared * d_h, (shared + 1) * d_h)
        Qh, Kh, Vh = (Q @ Wq)[:, own], (K @ Wk)[:, theirs], (V @ Wv)[:, theirs]
        W = [softmax(row) for row in Qh @ Kh.T / sqrt(d_h) + B[h]]
        found.append(np.array(W) @ Vh)
    heads = np.concatenate(found, axis=-1)
    yield got, heads @ Wo
    Wg = normal(d, H * d_h)
    got = replace(layer, gate_weight=Wg)(Q, K, V, bias=B)
    yield got, heads / (1 + np.exp(-Q @ Wg)) @ Wo


@formula("644e282c")
def MultiHeadAttention__init():
    d, H, d_kv = 24, 4, 30
    layer = ours.MultiHeadAttention.init(drawn(), d, H)
    assert layer.query_weight.shape == layer.value_weight.shape == (d, H * (d // H))
    assert layer.num_kv_heads in (None, H)
    layer = ours.MultiHeadAttention.init(
        drawn(), d, H, num_kv_heads=2, head_dim=9, kv_dim=d_kv
    )
    for weight, (a, b) in [
        (layer.query_weight, (d, H * 9)),
        (layer.key_weight, (d_kv, 2 * 9)),
        (layer.value_weight, (d_kv, 2 * 9)),
        (layer.output_weight, (H * 9, d)),
    ]:
        yield weight.shape, (a, b)
        yield within(weight, sqrt(6 / (a + b))), True


@formula("62c4bec8")
def LatentAttention():
    d, H, r, d_c, d_r, d_v, eps = 5, 3, 4, 6, 2, 3, 0.1
    X, Wc, Wr, g = normal(4, d), normal(d, r), normal(d, d_r), normal(r)
    Wk, Wv, Wo = normal(r, H * d_c), normal(r, H * d_v) + 0.1, normal(H * d_v, d)

    def norm(x, g):
        return [
            a * b / sqrt(sum(x_n**2 for x_n in x) / len(x) + eps)
            for a, b in zip(g, x, strict=True)
        ]

    def rotate(x):
        return np.array([rotated(row, i * 1.0) for i, row in enumerate(x)])

    for rank in (None, 3):
        Z, Wa, g_q = X, None, None
        if rank is not None:
            Wa, g_q = normal(d, rank), normal(rank)
            Z = np.array([norm(row, g_q) for row in X @ Wa])
        Wq, Wp = normal(Z.shape[1], H * d_c), normal(Z.shape[1], H * d_r)
        cut = [np.split(W, H, axis=1) for W in (Wq, Wp, Wk, Wv)]
        both = [np.concatenate([q, p], axis=1) for q, p in zip(*cut[:2], strict=True)]
        down = np.concatenate([Wc, Wr], axis=1)
        layer = ours.LatentAttention(
            np.concatenate(both, axis=1), down, g, Wk, Wv, Wo, Wa, g_q,
            num_heads=H, rotate=ours.Rotary(), eps=eps,
        )  # fmt: skip
        C = np.array([norm(row, g) for row in X @ Wc])
        R, found = rotate(X @ Wr), []
        for q, p, k, v in zip(*cut, strict=True):
            Q = np.concatenate([Z @ q, rotate(Z @ p)], axis=1)
            K = np.concatenate([C @ k, R], axis=1)
            A = np.array([softmax(row) for row in Q @ K.T / sqrt(d_c + d_r)])
            found.append(A @ (C @ v))
            yield (Z @ q) @ (C @ k).T, (Z @ q @ k.T) @ C.T
            yield A @ (C @ v), (A @ C) @ v
        Y = np.concatenate(found, axis=1) @ Wo
        yield layer(X), Y
        yield layer(X[None], cache=layer.init_cache((1,), 4))[0][0, -1], Y[-1]
    cache = layer.init_cache((), 9)
    yield cache.latent.shape[-1], r + d_r


@formula("b3820732")
def LatentAttention__init():
    sizes = {"kv_rank": 20, "content_dim": 8, "rotary_dim": 4, "value_dim": 6}
    layer = ours.LatentAttention.init(drawn(), 24, 3, query_rank=9, **sizes)
    for weight, (a, b) in [
        (layer.query_down_weight, (24, 9)),
        (layer.query_weight, (9, 3 * 12)),
        (layer.kv_down_weight, (24, 24)),
        (layer.key_weight, (20, 24)),
        (layer.value_weight, (20, 18)),
        (layer.output_weight, (18, 24)),
    ]:
        yield weight.shape, (a, b)
        yield within(weight, sqrt(6 / (a + b))), True
    yield (
        layer(normal(1, 4, 24)),
        replace(layer, scale=1 / sqrt(8 + 4))(normal(1, 4, 24)),
    )


@formula("767928de")
def LatentCache():
    positions = np.array([[-1, 0, 1, 3]])
    cache = ours.LatentCache.init((1,), 5, 2).append(normal(1, 4, 2), positions)
    slots = [2**31 - 1] * 5
    for p in positions[0, 1:]:
        slots[p] = p
    yield cache.positions[0], slots
    yield cache.latent[0, 3], normal(1, 4, 2)[0, 3]
    for q in (1, 2, 3):
        yield cache.mask(np.array([[q]]))[0, 0], [n <= q for n in slots]


@formula("55cec307")
def Decoder():
    def N(x):
        return [row / sqrt(sum(v * v for v in row) / len(row) + 1e-6) for row in x]

    for gated in (True, False):
        decoder, tokens = ours.Decoder.init(drawn(), 7, 4, 2, 2, gated=gated), [3, 5, 0]
        x = np.array([decoder.embedding[t] for t in tokens])
        for block in decoder.blocks:
            h = x + block.attention(np.array(N(x)), causal=True)
            part, read = block.feed_forward, np.array(N(h))
            U, D, G = part.up_weight, part.down_weight, part.gate_weight
            inner = (
                read @ U * part.activation(read @ G) if gated else part.activation(read @ U)
            )
            x = h + inner @ D
        z, c = N(x) @ decoder.embedding.T, 0.5
        yield decoder(np.array(tokens)), z
        capped = replace(decoder, logit_cap=c)(np.array(tokens))
        yield capped, [[c * tanh(value / c) for value in row] for row in z]


def arrows(x, angles):
    """All cosines before all sines, each as long as the entry of `x` says."""
    mu = [log(1 + exp(value)) for value in x]
    ways = [(cos(a), sin(a)) for a in angles]
    return [m * way[n] for n in (0, 1) for m, way in zip(mu, ways, strict=True)]


@formula("5348dc4f")
def polar_query():
    (q, k, _), d, phi = heads(), 6, -np.abs(normal(2, 6))
    for b in (10000.0, 50.0):
        got = ours.polar_query(q, POSITIONS, base=b)
        key = ours.PolarKey(phi, b)(k, POSITIONS)
        w = [b ** (-c / d) for c in range(d)]
        for h in (0, 1):
            for i, p in enumerate(POSITIONS):
                yield got[h, i], arrows(q[h, i], [p * w[c] for c in range(d)])
            for i, j in PAIRS:
                n, (x, y) = POSITIONS[j] - POSITIONS[i], (q[h, i], k[h, j])
                mu = [log(1 + exp(x[c])) * log(1 + exp(y[c])) for c in range(d)]
                s = sum(mu[c] * cos(n * w[c] + phi[h, c]) for c in range(d))
                yield dot(got[h, i], key[h, j]), s


@formula("7e62b1f1")
def PolarKey():
    (_, k, _), d, phi = heads(), 6, np.linspace(-9, 3, 12).reshape(2, 6)
    nearest = [[min(0, max(-2 * pi, angle)) for angle in row] for row in phi]
    for b in (10000.0, 50.0):
        got = ours.PolarKey(phi, b)(k, POSITIONS)
        for h in (0, 1):
            for i, p in enumerate(POSITIONS):
                angles = [p * b ** (-c / d) + nearest[h][c] for c in range(d)]
                yield got[h, i], arrows(k[h, i], angles)
    x, phi, w, i = np.array([[[-800.0, 1.0]]]), -1.9, 50.0**-0.5, 3.0  # of entry 1 alone
    query = ours.polar_query(x, np.array([i]), base=50.0)
    for turns in (0, 1):
        likes = np.array([i - phi / w + turns * 2 * pi / w])
        key = ours.PolarKey(np.array([[0.0, phi]]), 50.0)(x, likes)
        yield dot(query[0, 0], key[0, 0]), log(1 + exp(1)) ** 2


@formula("b12397d9")
def randomized_positions():
    (L, n), rng = (6, 3), drawn()
    draws = [tuple(ours.randomized_positions(n, L, rng=rng)) for _ in range(8000)]
    assert all(0 <= i < j < k < L for i, j, k in draws)
    sets = {subset: draws.count(subset) for subset in set(draws)}
    assert len(sets) == comb(L, n)
    assert max(abs(count * comb(L, n) / 8000 - 1) for count in sets.values()) < 0.2
    every = list(combinations(range(L), n))
    for j in range(n):
        yield np.mean([subset[j] for subset in every]), (j + 1) * (L + 1) / (n + 1) - 1
    yield np.mean([b - a for a, b, _ in every]), (L + 1) / (n + 1)
    yield [np.mean([i in subset for subset in every]) for i in range(L)], [n / L] * L
    yield ours.randomized_positions(L, L, rng=rng), range(L)


@formula("fedabc2d")
def ShawRelative():
    (q, k, v), (layer, row) = heads(), shaw()
    options = {"query_positions": POSITIONS, "key_positions": POSITIONS}
    got = ours.scaled_dot_product_attention(q, k, v, bias=layer, **options)
    for h in (0, 1):
        for i in range(4):
            a_k, a_v = layer.key_table[row[i]], layer.value_table[row[i]]
            w = softmax([dot(q[h, i], k[h, j] + a_k[j]) / sqrt(6) for j in range(4)])
            yield got[h, i], sum(w[j] * (v[h, j] + a_v[j]) for j in range(4))


@formula("9f968c9c")
def ShawRelative__init():
    m, d_h = 20, 30
    shaw = ours.ShawRelative.init(drawn(), m, d_h)
    for table in (shaw.key_table, shaw.value_table):
        yield within(table, sqrt(6 / (2 * m + 1 + d_h))), True


def shaw():
    """Scores and values for offsets that are clipped to m = 2, with the row of each offset."""
    tables = normal(5, 6), normal(5, 6) + 0.1
    row = [[max(-2, min(2, j - i)) + 2 for j in POSITIONS] for i in POSITIONS]
    return ours.ShawRelative(*tables), row


@formula("e1a5b04a")
def ShawRelative__scores():
    (q, k, _), (layer, row) = heads(), shaw()
    got = layer.scores(q, k, POSITIONS, POSITIONS)
    for h in (0, 1):
        for i, j in PAIRS:
            yield got[h, i, j], dot(q[h, i], layer.key_table[row[i][j]]) / sqrt(6)


@formula("4a288d42")
def ShawRelative__values():
    w, (layer, row) = np.abs(normal(2, 4, 4)), shaw()
    got = layer.values(w, POSITIONS, POSITIONS)
    for h in (0, 1):
        for i in range(4):
            yield (
                got[h, i],
                sum(w[h, i, j] * layer.value_table[row[i][j]] for j in range(4)),
            )


@formula("5383b4f6")
def skew():
    n, X = 5, normal(5, 5)
    got = ours.skew(X)
    for i in range(n):
        for j in range(n):
            if j <= i:
                yield got[i, j], X[i, n - 1 - (i - j)]
            else:
                yield got[i, j], 0 if j == i + 1 else X[i + 1, j - i - 2]


@formula("25cae0b7")
def RelativeGlobalAttention():
    (q, k, _), n_max = heads(), 6  # distances of 5, 6 and 9 are there
    table = normal(2, n_max, 6)
    got = ours.RelativeGlobalAttention(table).scores(q, k, POSITIONS, POSITIONS)
    for h in (0, 1):
        for i, j in PAIRS:
            distance = POSITIONS[i] - POSITIONS[j]
            e = table[h, n_max - 1 - distance] if 0 <= distance < n_max else np.zeros(6)
            plain = dot(q[h, i], k[h, j]) / sqrt(6)
            yield plain + got[h, i, j], dot(q[h, i], k[h, j] + e) / sqrt(6)


@formula("cf3c7df9")
def RelativeGlobalAttention__init():
    made = ours.RelativeGlobalAttention.init(drawn(), 100, 8, 25)
    yield abs(made.table.std() / (1 / sqrt(25)) - 1) < 0.02, True


@formula("26ad2219")
def RelativeGlobalAttention__scores():
    (q, k, _), table = heads(), normal(2, 6, 6)
    e = table[:, ::-1]  # from the query itself to the farthest
    got = ours.RelativeGlobalAttention(table).scores(q, k, POSITIONS, POSITIONS)
    for h in (0, 1):
        for i, j in PAIRS:
            n = POSITIONS[i] - POSITIONS[j]
            yield got[h, i, j], dot(q[h, i], e[h, n]) / sqrt(6) if 0 <= n < 6 else 0


@formula("89841998")
def ring_attention():
    q, k, v = normal(2, 8, 6), normal(2, 8, 6) + 0.1, normal(2, 8, 5)
    balanced = ours.balanced_order(8, 2)
    for W, where, causal in [
        (2, np.arange(8), False),
        (4, np.arange(8), True),
        (2, balanced, True),
    ]:
        options = {"query_positions": where, "key_positions": where, "causal": causal}
        got = ours.ring_attention(q, k, v, across=W, **options)
        shard = 8 // W

        def read(h, i, T, where=where, causal=causal):
            T = [j for j in T if not causal or where[j] <= where[i]]
            s = [dot(q[h, i], k[h, j]) / sqrt(6) for j in T]
            mu = max(s, default=-1e9)
            e = [exp(x - mu) for x in s]
            return mu, sum(e), sum((e[n] * v[h, j] for n, j in enumerate(T)), np.zeros(5))

        for h in (0, 1):
            for i in range(8):
                r = i // shard
                steps = [
                    range((r - t) % W * shard, ((r - t) % W + 1) * shard) for t in range(W)
                ]
                mu, Z, a = read(h, i, steps[0])
                for T in steps[1:]:
                    mu2, Z2, a2 = read(h, i, T)
                    top = max(mu, mu2)
                    Z = exp(mu - top) * Z + exp(mu2 - top) * Z2
                    a, mu = exp(mu - top) * a + exp(mu2 - top) * a2, top
                yield got[h, i], a / Z
        if where is not balanced:  # `causal` there hides by index
            yield got, ours.scaled_dot_product_attention(q, k, v, causal=causal)


@formula("f7f7967f")
def balanced_order():
    n, W = 24, 3
    order = ours.balanced_order(n, W)
    size = n // (2 * W)
    yield sorted(order), range(n)
    for r in range(W):
        shard = order[r * n // W : r * n // W + n // W]
        pieces = r, 2 * W - 1 - r
        yield shard, [piece * size + t for piece in pieces for t in range(size)]
        yield sum(shard[::size] // size), 2 * W - 1  # pieces before its own

    def cost(pieces):
        return sum(piece + 1 / 2 for piece in pieces)

    yield cost((2 * W - 2, 2 * W - 1)) / cost((0, 1)), 2 * W - 1


@formula("a57fa017")
def rotate():
    x, c, b = normal(4, 6), 1.5, 100.0
    w = [omega(j, 6, b) for j in range(3)]
    for layout in ("interleaved", "half"):
        got = ours.rotate(x, POSITIONS, base=b, attention_factor=c, layout=layout)
        two = np.array(w[:2])
        partial = ours.rotate(x, POSITIONS, frequencies=two, layout=layout)
        yield partial[:, 4:], x[:, 4:]
        for i, p in enumerate(POSITIONS):
            for j, pair in enumerate(pairs_of(3, layout)):
                yield got[i, pair], [c * y for y in rotated(x[i, pair], p * w[j])]
            for j, pair in enumerate(pairs_of(2, layout)):
                yield partial[i, pair], rotated(x[i, pair], p * w[j])


@formula("f2aa6ef2")
def Rotary():
    x, m, b = normal(4, 10), 6, 100.0
    got = ours.Rotary(rotary_dim=m, base=b)(x, POSITIONS)
    yield got[:, m:], x[:, m:]
    for i, p in enumerate(POSITIONS):
        for j in range(m // 2):
            pair = slice(2 * j, 2 * j + 2)
            yield got[i, pair], rotated(x[i, pair], p * b ** (-2 * j / m))


@formula("3ac8d937")
def to_half():
    yield ours.to_half(np.arange(6.0)), [0, 2, 4, 1, 3, 5]


@formula("5ab0f7c2")
def sandwich_bias():
    H, d = 4, 6
    for base in (10000.0, 50.0):
        b = ours.sandwich_bias(H, dim=d, base=base)(POSITIONS, POSITIONS)
        table = ours.sinusoidal_encoding(POSITIONS, d, base=base)
        for h in range(1, H + 1):
            for i, j in PAIRS:
                n = POSITIONS[j] - POSITIONS[i]
                waves = sum(cos(n * omega(k, d, base)) for k in range(d // 2))
                yield b[h - 1, i, j], H / (8 * h) * waves
                yield b[h - 1, i, j], H / (8 * h) * dot(table[i], table[j])
            yield b[h - 1, 0, 0], H / (8 * h) * d / 2


@formula("bce6f482")
def fope_frequencies():
    d, b = 12, 50.0
    for L in (1, 7, 20, 1000):
        slow = [omega(j, d, b) for j in range(d // 2) if omega(j, d, b) > 2 * pi / L]
        yield ours.fope_frequencies(d, base=b, trained_length=L), slow


@formula("8dc13934")
def fope():
    d, H, K, m = 6, 2, 4, 2
    h, w = 2 * H, normal(K)
    x = normal(h, 3, d)
    A, B = normal(H, K, m), normal(m, H, K).reshape(H, K, m)
    for layout, rest in (("half", 1.0), ("interleaved", 0.0)):
        keywords = {"frequencies": w, "cos_weight": A, "sin_weight": B, "layout": layout}
        got = ours.fope(x, np.array([0, 2, 7]), **keywords, rest_sine=rest)
        for head in range(h):
            for n, p in enumerate((0, 2, 7)):
                for j, pair in enumerate(pairs_of(d // 2, layout)):
                    c, s = 1.0, rest
                    if j < m:
                        c = sum(A[head // 2, i, j] * cos(p * w[i]) for i in range(K))
                        s = sum(B[head // 2, i, j] * sin(p * w[i]) for i in range(K))
                    u, v = x[head, n, pair]
                    yield got[head, n, pair], (c * u - s * v, s * u + c * v)
    one, q, k = np.eye(3)[None], normal(2, 2, d), normal(2, d, 2).reshape(2, 2, d)
    plain = {"frequencies": normal(3), "cos_weight": one, "sin_weight": one}
    yield ours.fope(q, **plain), ours.rotate(q, frequencies=normal(3), layout="half")
    still = {"frequencies": w, "cos_weight": A[:1, :, :0], "sin_weight": B[:1, :, :0]}
    turned_q, turned_k = (ours.fope(each, **still) for each in (q, k))
    yield (
        (turned_q * turned_k).sum(-1),
        2 * (q * k).sum(-1),
    )  # 45 degrees, and the square of sqrt(2)
    yield (turned_q**2).sum(-1), sqrt(2) ** 2 * (q**2).sum(-1)


@formula("4fdb40cf")
def proportional_frequencies():
    d, r, s = 12, 4, 2.0
    for b in (10000.0, 50.0):
        want = [b ** (-2 * j / d) / s if j < r / 2 else 0 for j in range(d // 2)]
        got = ours.proportional_frequencies(d, base=b, rotary_dim=r, factor=s)
        yield got, want
    for f in (0.25, 0.5, 0.3):
        r = 2 * floor(f * 20 / 2)
        rotation = ours.proportional_frequencies(20, rotary_dim=r) > 0
        yield rotation.sum(), int(f * 20 // 2)
    whole = ours.proportional_frequencies(d, rotary_dim=d)
    yield whole, [omega(j, d, 10000.0) for j in range(d // 2)]


@formula("fa399baf")
def position_interpolation():
    s, d = 4.0, 8
    for b in (10000.0, 50.0):
        want = [omega(j, d, b) / s for j in range(d // 2)]
        yield ours.position_interpolation(d, base=b, factor=s), want


@formula("8e5eb3cb")
def ntk_aware():
    s, d, b = 4.0, 8, 100.0
    larger = b * s ** (d / (d - 2))
    want = [larger ** (-2 * j / d) for j in range(d // 2)]
    yield ours.ntk_aware(d, base=b, factor=s), want
    yield want[-1], omega(d // 2 - 1, d, b) / s
    yield (
        ours.ntk_aware(2, base=b, factor=1e308),
        [1],
    )  # no larger base, which would be infinite


@formula("77548d4a")
def dynamic_ntk():
    s, d, b, L = 3.0, 8, 100.0, 50
    for n in (20, 50, 80):
        larger = b * (1 + s * (max(n, L) / L - 1)) ** (d / (d - 2))
        want = [larger ** (-2 * j / d) for j in range(d // 2)]
        options = {"base": b, "factor": s, "length": n, "trained_length": L}
        yield ours.dynamic_ntk(d, **options), want
        yield ours.dynamic_ntk(2, **options | {"factor": 1e308}), [1]


@formula("06a74554")
def yarn():
    fast, slow, m, m2 = 32.0, 1.0, 0.7, 1.3
    reached = []
    for d, b, s, L in [
        (32, 10000.0, 8.0, 2048),
        (32, 50.0, 8.0, 2048),
        (8, 10000.0, 4.0, 100),  # begins before pair 0
        (8, 10000.0, 4.0, 4),  # ends there too
        (8, 4.0, 4.0, 300),  # ends beyond d - 1
        (8, 1.5, 4.0, 5000),  # begins there too
    ]:

        def at(beta, d=d, b=b, L=L):
            return d * log(L / (2 * pi * beta)) / (2 * log(b))

        for truncate in (True, False):
            first, last = at(fast), at(slow)
            if truncate:
                first, last = floor(first), ceil(last)
            bounds = first < 0, last > d - 1
            first, last = max(first, 0), min(last, d - 1)
            reached.append([*bounds, first == last, first > last])
            want = []
            for j in range(d // 2):
                gamma = min(1, max(0, (j - first) / max(last - first, 1e-3)))
                want.append(gamma * omega(j, d, b) / s + (1 - gamma) * omega(j, d, b))
            options = {"base": b, "factor": s, "trained_length": L, "truncate": truncate}
            got, c = ours.yarn(d, **options)
            yield got, want
            yield c, 0.1 * log(s) + 1
    assert np.any(reached, axis=0).all()
    _, c = ours.yarn(d, factor=s, trained_length=L, mscale=m, mscale_all_dim=m2)
    yield c, (0.1 * m * log(s) + 1) / (0.1 * m2 * log(s) + 1)
    _, c = ours.yarn(d, factor=s, trained_length=L, mscale=m, mscale_all_dim=m)
    yield c, 1


@formula("be8d1466")
def longrope():
    d, s, L = 8, 4.0, 100
    short, long = [1.0, 1.5, 2.0, 2.5], [3.0, 4.0, 5.0, 6.0]
    for b in (10000.0, 50.0):
        for n, factors in [(100, short), (101, long)]:
            options = {"short_factors": short, "long_factors": long, "length": n}
            got, c = ours.longrope(d, base=b, trained_length=L, factor=s, **options)
            yield got, [omega(j, d, b) / factors[j] for j in range(4)]
            yield c, sqrt(1 + log(s) / log(L))


@formula("0ad6bd8f")
def llama3():
    d = 64
    for b, s, L, alpha, beta in [
        (5e5, 8.0, 8192, 1.0, 4.0),
        (100.0, 32.0, 500, 2.0, 7.0),
        (100.0, 32.0, 500, 3.0, 3.0),
    ]:
        want = []
        for j in range(d // 2):
            w = omega(j, d, b)
            r = L * w / (2 * pi)
            gamma = r >= beta
            if alpha < beta:
                gamma = min(1, max(0, (r - alpha) / (beta - alpha)))
            want.append((1 - gamma) * w / s + gamma * w)
        ends = {"low_frequency_factor": alpha, "high_frequency_factor": beta}
        got = ours.llama3(d, base=b, factor=s, trained_length=L, **ends)
        yield got, want
        if b == 5e5:
            yield ours.llama3(d), got


@formula("926edc79")
def frequencies():
    for d in (7, 8):
        yield (
            ours.frequencies(d, base=50.0),
            [omega(j, d, 50.0) for j in range(ceil(d / 2))],
        )


@formula("65bacd6d")
def sinusoidal_encoding():
    d = 7
    for b in (10000.0, 50.0):
        p = ours.sinusoidal_encoding(POSITIONS, d, base=b)
        for n, i in enumerate(POSITIONS):
            yield p[n, 0::2], [sin(i * omega(j, d, b)) for j in range(4)]
            yield p[n, 1::2], [cos(i * omega(j, d, b)) for j in range(3)]
    d, b = 8, 50.0
    w = [b ** (-2 * j / (d - 2)) for j in range(d // 2)]  # of tensor2tensor
    yield w[-1], 1 / b
    p = ours.sinusoidal_encoding(POSITIONS, d, base=b ** (d / (d - 2)))
    for n, i in enumerate(POSITIONS):
        yield ours.to_half(p)[n], [f(i * x) for f in (sin, cos) for x in w]


@formula("c9c847fb")
def shift_matrix():
    d, delta = 6, 2.5
    for b in (10000.0, 50.0):
        R = ours.shift_matrix(delta, d, base=b)
        want = np.zeros((d, d))
        for j, pair in enumerate(pairs_of(d // 2)):
            c, s = cos(delta * omega(j, d, b)), sin(delta * omega(j, d, b))
            want[np.ix_(pair, pair)] = [[c, s], [-s, c]]
        yield R, want
        before, after = (
            ours.sinusoidal_encoding(POSITIONS + n, d, base=b) for n in (0, delta)
        )
        yield after, [R @ p for p in before]


@formula("aca5268b")
def PositionalEncoding():
    X = normal(2, 4, 6)
    P = ours.sinusoidal_encoding(4, 6)
    yield ours.PositionalEncoding(6)(X), X + P
    other = ours.sinusoidal_encoding(4, 6, base=50.0)
    yield ours.PositionalEncoding(6, base=50.0)(X), X + other
    got = ours.PositionalEncoding(6, dropout_rate=0.5)(X, rng=drawn())
    yield got, ours.dropout(X + P, 0.5, drawn())


@formula("f62e5e0a")
def StickBreaking():
    q, k, _ = heads()
    b = ours.StickBreaking().scores(q, k, POSITIONS, POSITIONS)
    for h in (0, 1):
        for i, j in PAIRS:
            s = [dot(q[h, i], k[h, n]) / sqrt(6) for n in range(4)]
            if j < i:
                alpha = sigma(s[j]) * prod(1 - sigma(s[n]) for n in range(j + 1, i))
                yield b[h, i, j], log(alpha) - s[j]
                yield b[h, i, j], sum(log(1 - sigma(s[n])) for n in range(j, i))
            if j == i:
                yield b[h, i, i], log(prod(1 - sigma(s[n]) for n in range(i))) - s[i]
            if j > i:
                yield b[h, i, j], 0


@formula("cf2f4f59")
def SwinBias():
    M_y, M_x = 2, 3
    t = normal((2 * M_y - 1) * (2 * M_x - 1), 2)
    b = ours.SwinBias(t, M_y, M_x)(np.arange(6), np.arange(6))
    for i in range(6):
        for j in range(6):
            (y_i, x_i), (y_j, x_j) = divmod(i, M_x), divmod(j, M_x)
            row = (y_i - y_j + M_y - 1) * (2 * M_x - 1) + (x_i - x_j + M_x - 1)
            yield b[:, i, j], t[row]


@formula("d08a1e38")
def SwinV2Bias():
    M_y, M_x, W1, w1, W2 = 2, 3, normal(2, 5), normal(5), normal(5, 2)
    b = ours.SwinV2Bias(W1, w1, W2, M_y, M_x, trained_height=4, trained_width=5)(
        np.arange(6), np.arange(6)
    )

    def g(u, M):
        return np.sign(u) * log2(1 + 8 * abs(u) / (M - 1)) / log2(8)

    for i in range(6):
        for j in range(6):
            (y_i, x_i), (y_j, x_j) = divmod(i, M_x), divmod(j, M_x)
            u = [g(y_i - y_j, 4), g(x_i - x_j, 5)]
            hidden = [max(0, z) for z in u @ W1 + w1]
            yield b[:, i, j], [16 * sigma(z) for z in hidden @ W2]
    yield [round(g(7, 8), 2), round(g(15, 8), 2), round(15 / 7, 2)], [1.06, 1.39, 2.14]
    far = 10**6
    yield [round(g(2 * far - 1, far), 2), round((2 * far - 1) / (far - 1), 2)], [1.36, 2]


@formula("ea5e7a9f")
def t5_bucket():
    for B, D in [(16, 128), (6, 20), (7, 30)]:
        E = floor(B / 2)
        alone = {"num_buckets": B, "max_distance": D, "bidirectional": False}
        both = {"num_buckets": 2 * B, "max_distance": D}

        def f(a, B=B, D=D, E=E):
            if a < E:
                return a
            steps = log(a / E) / log(D / E) * (B - E)
            return min(B - 1, E + floor(steps + 1e-9))

        for delta in range(-2 * D, 2 * D):
            yield ours.t5_bucket(np.array(delta), **alone), f(max(-delta, 0))
            yield ours.t5_bucket(np.array(delta), **both), f(abs(delta)) + B * (delta > 0)
        found = ours.t5_bucket(-np.arange(2 * D), **alone)
        for k in range(B - E):
            begins = (a for a in range(2 * D) if a ** (B - E) >= D**k * E ** (B - E - k))
            yield np.argmax(found >= E + k), next(begins)


@formula("8994b78a")
def T5Bias():
    t = normal(32, 2)
    b = ours.T5Bias(t)(POSITIONS, POSITIONS)
    for i, j in PAIRS:
        yield b[:, i, j], t[ours.t5_bucket(np.array(POSITIONS[j] - POSITIONS[i]))]


@formula("7520d5a9")
def T5Bias__init():
    N, H = 40, 30
    yield within(ours.T5Bias.init(drawn(), H, num_buckets=N).table, sqrt(6 / (N + H))), True


@formula("9627f27c")
def TransformerXLBias():
    q, k, _ = heads()
    u, v, W = normal(2, 6), normal(2, 6) + 0.1, normal(4, 12)
    for b in (10000.0, 50.0):
        got = ours.TransformerXLBias(u, v, W, base=b).scores(q, k, POSITIONS, POSITIONS)
        for h in (0, 1):
            for i, j in PAIRS:
                n = POSITIONS[i : i + 1] - POSITIONS[j]
                r = ours.sinusoidal_encoding(n, 4, base=b)[0] @ W[:, 6 * h : 6 * h + 6]
                terms = dot(q[h, i], r) + dot(u[h], k[h, j]) + dot(v[h], r)
                yield got[h, i, j], terms / sqrt(6)


@formula("762d9754")
def TUPEBias():
    T, Uq, Uk, theta = normal(10, 5), normal(5, 12), normal(5, 12) + 0.1, normal(2, 2)
    (q, k, _), where = heads(), np.array([3, 0, 9, 4])  # position 0 is not the first
    options = {"query_positions": where, "key_positions": where}
    made = ours.TUPEBias(T, Uq, Uk, num_heads=2)
    plain = made(where, where)
    got = ours.attention_weights(q, k, bias=made, scale=made.scale, **options)
    reset = ours.TUPEBias(T, Uq, Uk, theta, num_heads=2)(where, where)
    for h in (0, 1):
        own, s = slice(6 * h, 6 * h + 6), np.zeros((4, 4))
        for n, m in PAIRS:
            i, j = where[n], where[m]
            b = dot(T[i] @ Uq[:, own], T[j] @ Uk[:, own]) / sqrt(2 * 6)
            s[n, m] = dot(q[h, n], k[h, m]) / sqrt(2 * 6) + b
            yield plain[h, n, m], b
            yield reset[h, n, m], theta[0, h] if i == 0 else theta[1, h] if j == 0 else b
        yield got[h], [softmax(row) for row in s]


@formula("4648deda")
def TUPEBias__scale():
    made = ours.TUPEBias(normal(10, 5), normal(5, 12), normal(5, 12), num_heads=2)
    yield made.scale, 1 / sqrt(2 * 6)


@formula("d03941b7")
def xpos_query():
    (q, k, _), d, gamma, tau = heads(), 6, 0.4, 512.0
    for b, layout in [(10000.0, "interleaved"), (50.0, "half")]:
        options = {"base": b, "layout": layout}
        got = ours.xpos_query(q, POSITIONS, **options)
        key = ours.xpos_key(k, POSITIONS, **options)
        for h in (0, 1):
            for i, p in enumerate(POSITIONS):
                for j, pair in enumerate(pairs_of(3, layout)):
                    zeta = (2 * j / d + gamma) / (1 + gamma)
                    x, y = (rotated(a[h, i, pair], p * omega(j, d, b)) for a in (q, k))
                    yield got[h, i, pair], [zeta ** (p / tau) * a for a in x]
                    yield key[h, i, pair], [zeta ** (-p / tau) * a for a in y]
    for power, said in [(126, 35600), (14, 3900), (1022, 289000)]:  # 1 / M is 2^-power
        most = tau * log(2**power) / log((1 + gamma) / gamma)
        yield (gamma / (1 + gamma)) ** (most / tau) * 2.0**power, 1
        assert said < most < 1.02 * said


@formula("b109d2a4")
def xpos_key():
    k, options = heads()[1], {"base": 50.0, "gamma": 0.7, "scale_base": 9.0}
    query, key = (f(k, POSITIONS, **options) for f in (ours.xpos_query, ours.xpos_key))
    for i, p in enumerate(POSITIONS):
        zeta = [(2 * j / 6 + 0.7) / 1.7 for j in range(3)]
        up, down = ([z ** (n * p / 9.0) for z in zeta for _ in (0, 1)] for n in (1, -1))
        yield key[:, i] / down, query[:, i] / up


@formula("5488334c")
def first_token_score():
    w, n = weights_of_two_heads(), 5
    yield ours.first_token_score(w), 1 / (n - 1) * sum(w[:, i, 0] for i in range(1, n))


@formula("f8c86009")
def induction_score():
    w, n = weights_of_two_heads(), 5
    for P in (1, 2, 4):
        mean = 1 / (n - P) * sum(w[:, i, i - P + 1] for i in range(P, n))
        yield ours.induction_score(w, P), mean


@formula("bb318e63")
def previous_token_score():
    w, n = weights_of_two_heads(), 5
    for r in (0, 1, 3):
        mean = 1 / (n - r) * sum(w[:, i, i - r] for i in range(r, n))
        yield ours.previous_token_score(w, r), mean


def mathematics(column):
    """The mathematics of each docstring of a column, each formula without white space."""
    found = {}

    def visit(node, outside):
        for inner in ast.iter_child_nodes(node):
            if isinstance(inner, (ast.FunctionDef, ast.ClassDef)):
                name, said = outside + inner.name, ast.get_docstring(inner) or ""
                parts = [display or line for display, line in MATH.findall(said)]
                found[name] = ["".join(part.split()) for part in parts]
                visit(inner, f"{name}.")

    for path in sorted(Path("src/posattn", column).rglob("*.py")):
        visit(ast.parse(path.read_text("utf-8")), "")
    return found


def test_every_formula_of_a_docstring_is_stated_here_as_it_stands():
    said = {
        name: hashlib.sha256("".join(parts).encode()).hexdigest()[:8]
        for name, parts in mathematics("reference").items()
        if name in STATED or any(RELATION.search(part) for part in parts)
    }
    assert said == {name: digits for name, (_, digits) in STATED.items()}


@pytest.mark.parametrize("column", ["torch", "jax"])
def test_the_formulas_of_a_twin_are_those_of_the_definition(column):
    of_definitions = mathematics("reference")
    for name, parts in mathematics(column).items():
        where = name.replace(".forward", ".__call__")
        own = [
            p
            for p in parts
            if RELATION.search(p) and p not in of_definitions.get(where, [])
        ]
        assert own == OWN.get(name, []), name


@pytest.mark.parametrize("name", STATED)
def test_a_formula_is_what_is_computed(name):
    states, _ = STATED[name]
    pairs = list(states())
    assert pairs
    for got, want in pairs:
        np.testing.assert_allclose(
            got, np.asarray(want, np.float64), rtol=1e-11, atol=1e-13
        )
