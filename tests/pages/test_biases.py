"""Biases on the scores."""

import re
import warnings

import numpy as np
import pytest
import torch
from torch.nn.attention.flex_attention import flex_attention

from posattn import reference
from posattn.reference import sinusoidal_encoding, t5_bucket
from posattn.torch import T5Bias, scaled_dot_product_attention
from posattn.torch import t5_bucket as t5_bucket_torch

DRAWN = np.random.default_rng(1)
Q, K = DRAWN.normal(size=(2, 1, 6, 4))  # a head of width 4, six tokens
PLACES = np.arange(6)
DELTA = PLACES - PLACES[:, None]
FAR = np.arange(200)
ENCODER = t5_bucket(-FAR)
DECODER = t5_bucket(-FAR, bidirectional=False)


def softmax(scores):
    """The softmax of each row."""
    e = np.exp(scores)
    return e / e.sum(-1, keepdims=True)


def attend(bias, causal=False):
    """Attention of six tokens whose products are all equal."""
    zeros = np.zeros((6, 1))
    return reference.attention_weights(zeros, zeros, bias=bias, causal=causal)


def last_row(scheme, n, head=0):
    """The bias of the last of n queries, over the distance."""
    return scheme(np.array([n - 1]), np.arange(n - 1, -1, -1))[head, 0]


# ALiBi


def test_half_a_point_per_step(page):
    """The exponentials of $-1$, $-0.5$ and $0$ are 0.37, 0.61 and 1, which add up to 1.97. Divide by
    the sum: *the* gets 0.19, *dog* 0.31 and *bites* 0.51.

    Each step back multiplies the weight by $e^{-1/2} = 0.61$.
    """
    e = np.exp([-1, -0.5, 0])
    assert e.round(2).tolist() == [0.37, 0.61, 1]
    assert e.sum().round(2) == 1.97
    assert (e / e.sum()).round(2).tolist() == [0.19, 0.31, 0.51]
    assert np.isclose(e[1] / e[2], e[0] / e[1])
    assert np.exp(-1 / 2).round(2) == 0.61
    assert "scores [-1.  -0.5  0. ], weights [0.19 0.31 0.51]" in page.printed
    library = reference.attention_weights(
        np.zeros((1, 1)), np.zeros((3, 1)), bias=-0.5 * np.array([[2.0, 1.0, 0.0]])
    )
    assert np.allclose(library, e / e.sum())


def test_content_argues(page):
    """Let *the* have a product that is 2 higher than the others. Its score becomes $2 - 1 = 1$,
    and it wins again with 0.63 of the weight
    """
    weights = softmax(np.array([2.0, 0, 0]) - [1, 0.5, 0])
    assert weights.argmax() == 0
    assert weights[0].round(2) == 0.63
    assert "weights [0.63 0.14 0.23]" in page.printed


def test_eq_score_bias(page):
    r"""$$ s_{ij} = \frac{\mathbf{q}_i^\top\mathbf{k}_j}{\sqrt{d_h}} + t(j - i) . $$"""
    t5 = reference.T5Bias.init(DRAWN, 1)
    for scheme in (reference.alibi_bias(8), t5):
        t = scheme(np.array([0]), np.arange(-5, 6))[0, 0]  # at the offsets -5 to 5
        bias = scheme(PLACES, PLACES)[0]
        assert np.allclose(bias, t[DELTA + 5])
        weights = reference.attention_weights(Q[0], K[0], bias=bias)
        assert np.allclose(weights, softmax(Q[0] @ K[0].T / np.sqrt(4) + t[DELTA + 5]))


def test_eq_alibi(page):
    r"""$$ t_h(\delta) = -\lambda_h\,|\delta| . $$"""
    alibi = reference.alibi_bias(8)(PLACES, PLACES)
    for head, slope in enumerate(2.0 ** -np.arange(1, 9)):
        assert np.allclose(alibi[head], -slope * abs(DELTA))


def test_eq_alibi_slopes(page):
    r"""$$ \lambda_h = 2^{-8h/H}, \qquad h = 1, \ldots, H . $$

    With 8 heads these are $\frac{1}{2}, \frac{1}{4}, \ldots, \frac{1}{256}$.
    """
    for heads in (1, 2, 4, 8, 16, 32):
        h = np.arange(1, heads + 1)
        assert np.allclose(reference.alibi_slopes(heads), 2.0 ** (-8 * h / heads))
    assert reference.alibi_slopes(8).tolist() == [1 / 2**h for h in range(1, 9)]


def test_what_four_heads_add(page):
    """What four of eight heads of ALiBi add to a score."""
    assert [line[32] for line in page.torch.lines.values()] == [-16, -8, -2, -0.125]
    assert next(iter(page.torch.lines)) == "slope 1/2"
    slopes = reference.alibi_slopes(8)[[0, 1, 3, 7]]
    assert np.allclose(list(page.torch.lines.values()), -slopes[:, None] * np.arange(33))


def test_what_three_heads_look_at(page):
    """The first head lives in the last few words. The last head is nearly an average over
    everything before it.
    """
    steep, _, flat = page.torch.maps[:, 15]
    assert steep[-5:].sum() > 0.9
    assert flat.max() / flat.min() < 1.07


def test_twelve_heads(page):
    """The program takes the eight slopes of 8 heads. Then it adds four from the sequence for 16
    heads, every second one from the steepest on. The exponents of the first eight are whole
    numbers, and those of the four lie halfway between whole numbers

    The two agree in none of the twelve heads.
    """
    exponents = np.log2(page.torch.program)
    assert np.allclose(exponents[:8] % 1, 0)
    assert np.allclose(exponents[8:] % 1, 0.5)
    eight, sixteen = (2.0 ** (-8 * np.arange(1, H + 1) / H) for H in (8, 16))
    assert np.allclose(page.torch.program, [*eight, *sixteen[::2][:4]])
    assert not np.isclose(page.torch.program, page.torch.formula).any()
    printed = page.printed.split("exponent by program:")[1].split("\n")[0].split()
    assert [float(exponent) for exponent in printed] == [
        *range(-1, -9, -1),
        -0.5,
        -1.5,
        -2.5,
        -3.5,
    ]


def test_how_far_alibi_looks(page):
    """At distance 1000 the flattest head keeps 2 percent of the weight, and the other two keep
    nothing a computer could notice. Before the bias, a key that far away needs a score about 4 points
    above its rivals' to get even
    """
    left = np.exp(1000 * -reference.alibi_slopes(8)[[0, 3, 7]])
    assert left[2].round(2) == 0.02
    assert (left[:2] < np.finfo(np.float32).eps).all()
    assert round(1000 * reference.alibi_slopes(8).min()) == 4
    row = softmax(last_row(reference.alibi_bias(8), 1001, head=7))
    assert np.isclose(row[1000] / row[0], left[2])
    assert "slope 1/256: at distance 1000, 0.02 of the weight" in page.printed


# T5


def test_eq_t5(page):
    r"""$$ t(\delta) = t_{\operatorname{bucket}(\delta)} . $$"""
    table = DRAWN.normal(size=(32, 2))
    bias = reference.T5Bias(table)(PLACES, PLACES)
    assert np.allclose(bias, np.moveaxis(table[t5_bucket(DELTA)], -1, 0))


def test_eq_t5_bucket(page):
    r"""$$ \operatorname{bucket} = \min\left(15,\; 8 + \left\lfloor 8\,\frac{\ln(a/8)}{\ln(128/8)} \right\rfloor\right) . $$

    Of the first 16, eight hold one distance each, from 0 to 7.
    """
    a = FAR[8:]
    a = a[~np.isin(a, (16, 32, 64, 128))]  # where rounding decides
    formula = 8 + np.floor(8 * np.log(a / 8) / np.log(128 / 8))
    assert np.array_equal(np.minimum(15, formula), ENCODER[a])
    assert ENCODER[:8].tolist() == list(range(8))
    assert ENCODER[[16, 32, 64, 128]].tolist() == [10, 12, 14, 15]


def test_distance_20(page):
    """The logarithm of $20/8$ is 0.92, that of $128/8$ is 2.77, and 8 times their ratio is 2.64.
    Round down to 2, and distance 20 is in bucket 10. A key *after* the query gets the same
    number plus 16.
    """
    assert np.log(20 / 8).round(2) == 0.92
    assert np.log(128 / 8).round(2) == 2.77
    assert (8 * np.log(20 / 8) / np.log(128 / 8)).round(2) == 2.64
    assert ENCODER[20] == 10
    assert np.array_equal(t5_bucket(FAR[1:]), ENCODER[1:] + 16)


def test_the_starts_of_the_buckets(page):
    """Then 16 hold one distance each, and the other 16 grow.

    In the encoder, every distance from 91 on is in bucket 15. A key at 91 and a key at 9000 get
    exactly the same bias.
    """
    wide = [8, 12, 16, 23, 32, 46, 64, 91]
    assert [ENCODER.tolist().index(b) for b in range(8, 16)] == wide
    assert f"buckets 8 to 15 start at: {wide}" in page.printed
    assert DECODER[:16].tolist() == list(range(16))
    late = [16, 19, 21, 24, 27, 31, 35, 40], [46, 52, 59, 67, 77, 87, 99, 113]
    for first, starts in zip((16, 24), late, strict=True):
        assert [DECODER.tolist().index(first + b) for b in range(8)] == starts
        assert f"start at: {starts}" in page.printed
    assert (t5_bucket(-np.arange(91, 9001)) == 15).all()


def test_rounding_in_the_logarithm(page):
    """The logarithm has an exact answer at 16, 32 and 64, and rounding may put such a distance
    into the bucket before. In float32 the code above is right for T5's own numbers.
    """
    assert [8 * np.log2(a / 8) / 4 for a in (16, 32, 64)] == [2, 4, 6]
    far = 3000
    table = torch.arange(32.0)[:, None]
    layer = T5Bias(1)
    layer.table.data = table
    i = torch.arange(far)
    exact = layer(i[:1], i)[0, 0]
    assert torch.equal(page.torch.t5_torch(table, far)[0, 0], exact)
    assert torch.equal(page.torch.t5_torch(table, far)[0, -1], layer(i[-1:], i)[0, 0])


def test_a_table_learns_a_spike(page):
    """{numref}`fig-t5-learned` has one spike, at distance 3

    They are still exactly 0, where they started. They begin at distance 67, and no text in
    training had more than 64 tokens, so no gradient ever reached them.
    """
    for learned in (page.torch.learned, page.jax.learned):
        assert learned.argmax() == 3
        assert learned[3] > 8
        assert np.delete(learned, 3).max() <= 0
        assert (learned[27:] == 0).all()
        assert (np.delete(learned[:27], 3) < 0).all()
    assert DECODER.tolist().index(27) == 67
    assert DECODER[:64].max() == 26


def test_alibi_could_never_do_this(page):
    """its line only falls, so with equal products its largest weight is always on the query's
    own token
    """
    for bias in reference.alibi_bias(8)(PLACES, PLACES):
        assert (attend(bias).argmax(1) == PLACES).all()


# Repairs


def test_eq_kerple(page):
    r"""$$ t(\delta) = -r_1 \ln(1 + r_2\,|\delta|) . $$

    a weight is multiplied by $(1 + r_2|\delta|)^{-r_1}$
    """
    r1, r2 = np.array([0.7]), np.array([1.9])
    bias = reference.KerpleLog(r1, r2)(PLACES, PLACES)[0]
    assert np.allclose(bias, -r1 * np.log(1 + r2 * abs(DELTA)))
    assert np.allclose(np.exp(bias), (1 + r2 * abs(DELTA)) ** -r1)


def test_a_power_against_an_exponential(page):
    r"""With $r_1 = r_2 = 1$ a key at distance 1000 keeps $\frac{1}{1001}$ of its weight, where
    ALiBi with slope $\frac{1}{16}$ kept $7 \cdot 10^{-28}$.
    """
    one = np.array([1.0])
    kerple = reference.KerpleLog(one, one)(np.array([1000]), np.array([0]))
    assert np.isclose(np.exp(kerple).item(), 1 / 1001)
    assert f"{np.exp(-1000 / 16):.0e}" == "7e-28"


def test_eq_fire(page):
    r"""$$ t(i, j) = f\left(\frac{\psi(|j - i|)}{\psi(\max(L, i))}\right), \qquad \psi(x) = \ln(1 + c\,x) . $$

    Take $c = 0.1$, $L = 512$ and the query at 1000. The keys at distance 10, 100 and 1000 have the ratios
    0.15, 0.52 and 1. However long the text is, a key in the past has a ratio between 0 and 1.
    """
    line = (np.ones(1), np.zeros(1), np.ones((1, 1)), np.zeros(1))  # f(x) = x
    fire = reference.FIRE(np.array(0.1), np.array(1.0), *line)
    for i in (3, 1000, 10**6):
        far = np.unique(np.minimum([1, 2, 10, 100, 1000, i], i))
        ratio = np.log1p(0.1 * far) / np.log1p(0.1 * max(512, i))
        assert np.allclose(fire(np.array([i]), i - far)[0, 0], ratio, atol=1e-6)
        assert 0 < ratio.min() <= ratio.max() <= 1
    ratios = fire(np.array([1000]), 1000 - np.array([10, 100, 1000]))[0, 0]
    assert ratios.round(2).tolist() == [0.15, 0.52, 1]


def test_only_fire_sees_a_shift(page):
    """shifting a whole text changes the bias, unless all queries stay below $L$. It is the only
    scheme on this page with that property.
    """
    for name, scheme in page.torch.schemes.items():
        biases = [scheme(PLACES + start, PLACES + start) for start in (0, 100, 1000)]
        assert np.allclose(biases[0], biases[1])
        assert np.allclose(biases[0], biases[2]) == (name != "FIRE")


def test_eq_sandwich(page):
    r"""$$ t_h(\delta) = \frac{H}{8h} \sum_{c=0}^{d/2-1} \cos(\delta\,\omega_c) . $$

    It also wiggles: a far key may get a little more than a nearer one.
    """
    H, d = 4, 32
    omega = 10000.0 ** (-np.arange(0, d, 2) / d)
    bias = reference.sandwich_bias(H, dim=d)(PLACES, PLACES)
    P = sinusoidal_encoding(6, d)
    for h in range(1, H + 1):
        t = H / (8 * h) * np.cos(DELTA[..., None] * omega).sum(-1)
        assert np.allclose(bias[h - 1], t)
        assert np.allclose(t, H / (8 * h) * P @ P.T)
    assert (np.diff(last_row(reference.sandwich_bias(8), 500)) > 0).any()


def test_a_row_for_each_scheme(page):
    r"""At distance 100 ALiBi, with slope $\frac{1}{64}$, is the mildest of the five. At 1000 it
    is the harshest, and subtracts more than twice as much as any other. On the way from 100 to
    1000, T5 lost just $\frac{1}{4}$ more, and KERPLE 2.29.
    """
    found = re.findall(r"^(\w+) +0\.00((?: +-[\d.]+){4})$", page.printed, re.M)
    rows = {name: [float(number) for number in numbers.split()] for name, numbers in found}
    assert list(rows) == ["ALiBi", "T5", "KERPLE", "FIRE", "Sandwich"]
    assert reference.alibi_slopes(8)[page.torch.shown["ALiBi"]] == 1 / 64
    others = [row for name, row in rows.items() if name != "ALiBi"]
    assert rows["ALiBi"][2] > max(row[2] for row in others)
    assert rows["ALiBi"][3] < 2 * min(row[3] for row in others)
    assert rows["T5"][2] - rows["T5"][3] == 1 / 4
    assert round(rows["KERPLE"][2] - rows["KERPLE"][3], 2) == 2.29


def test_fire_below_its_threshold(page):
    """Below the threshold $L$ all queries share one divisor, so a short text doesn't fill the
    whole scale.
    """
    line = (np.ones(1), np.zeros(1), np.ones((1, 1)), np.zeros(1))  # f(x) = x
    fire = reference.FIRE(np.array(0.1), np.array(1.0), *line)  # L is 512
    first, second = (fire(np.array([i]), np.array([i - 50]))[0, 0, 0] for i in (60, 500))
    assert np.isclose(first, second)
    assert fire(np.array([60]), np.array([0]))[0, 0, 0] < 0.6


def test_five_curves(page):
    """only ALiBi keeps its pace. The other four spend most of their fall on the first hundred
    tokens and then level off
    """
    for name, curve in page.torch.curves.items():
        early = curve[100] / curve[512]
        assert early == pytest.approx(100 / 512) if name == "ALiBi" else early > 0.5
    assert page.torch.curves["ALiBi"][512] == -8
    assert np.ptp(page.torch.curves["T5"][113:]) == 0


def test_the_explorer_on_paper(page):
    r"""Take the head of ALiBi with the slope $\frac{1}{16}$ and a query at position 127. A key at
    distance 10 gets … added to its score, and … of the weight if all products are equal.
    """
    slope = 1 / 16
    weights = softmax(-slope * np.arange(128.0))
    assert page.glued["explored_bias"] == -10 * slope
    assert np.isclose(page.glued["explored_weight"], weights[10])
    half = page.glued["explored_half"]
    assert weights[:half].sum() >= 0.5 > weights[: half - 1].sum()


def test_each_setting_doubles_the_half(page):
    """Under ALiBi, halving the slope roughly doubles that number, until the text ends."""
    halves = [
        (softmax(-np.arange(128.0) / 2**s).cumsum() < 0.5).sum() + 1 for s in range(1, 7)
    ]
    ratios = np.divide(halves[1:], halves[:-1])
    assert ((ratios >= 1.5) & (ratios <= 2.1)).all()


# Kernels


def test_bytes(page):
    """An array of 64 GiB undoes what the kernel was for. And it's full of copies: a number for
    each offset takes 4 MiB, and 64 bytes of slopes are enough to compute it all.
    """
    n, heads = 32768, 32
    assert heads * n * n * 2 == 64 * 2**30
    assert "32 heads: 64 GiB" in page.printed
    assert "a number for each offset:  4 MiB" in page.printed
    assert heads * 2 == 64
    assert round(heads * (2 * n - 1) * 2 / 2**20) == 4
    offsets = reference.alibi_bias(8)(np.array([5]), np.arange(11))[:, 0]  # 2n - 1 of them
    whole = reference.alibi_bias(8)(PLACES, PLACES)
    for i in PLACES:
        assert np.allclose(whole[:, i], offsets[:, 5 - i : 11 - i])


def test_flex_attention_takes_the_score_mod(page):
    """It gets a score and four indices and returns a new score

    In the PyTorch of this book it has no backward pass on a CPU at all.
    """
    rng = torch.Generator().manual_seed(0)
    q, k, v = torch.randn(3, 1, 4, 32, 16, generator=rng)
    layer = T5Bias(4, rng=rng)
    buckets = t5_bucket_torch(torch.arange(-31, 32))
    score_mod = page.torch.t5_score_mod(layer.table.detach(), buckets)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it is slow without a compiler
        ours = flex_attention(q, k, v, score_mod=score_mod)
        with pytest.raises(NotImplementedError, match="backward on CPU"):
            flex_attention(q.clone().requires_grad_(), k, v, score_mod=score_mod)
    library = scaled_dot_product_attention(q, k, v, bias=layer)
    assert torch.allclose(ours, library, atol=1e-5)
    plain = scaled_dot_product_attention(q, k, v)
    assert not torch.allclose(plain, library, atol=1e-3)


def test_a_gradient_is_a_sum(page):
    """Backward, the gradients of all those pairs must be added up into that one number.

    Half a billion gradients go into one number
    """
    table = torch.zeros(32, requires_grad=True)
    i = torch.arange(300)
    bucket = t5_bucket_torch(i - i[:, None], bidirectional=False)
    upstream = torch.randn(300, 300, dtype=torch.float64)
    (gradient,) = torch.autograd.grad((table.double()[bucket] * upstream).sum(), table)
    for b in (0, 3, 31):
        assert torch.isclose(gradient[b], upstream[bucket == b].sum().float())
    causal = (bucket == 31).sum()
    assert causal == (300 - 113) * (300 - 113 + 1) // 2
    assert page.torch.pairs == (32768 - 113) * (32768 - 113 + 1) // 2
    assert round(page.torch.pairs / 1e9, 1) == 0.5


def test_bfloat16_stops_adding(page):
    """In bfloat16 it stops growing after a few hundred equal terms, so this library sums such
    gradients in float32.
    """
    total, one = torch.zeros((), dtype=torch.bfloat16), torch.ones((), dtype=torch.bfloat16)
    for _ in range(1000):
        total = total + one
    assert total == 256
    layer = T5Bias(1, dtype=torch.bfloat16)
    i = torch.arange(300)
    layer(i, i).sum().backward()
    counts = torch.bincount(t5_bucket_torch(i - i[:, None]).flatten(), minlength=32)
    assert torch.allclose(layer.table.grad[:, 0].float(), counts.float(), rtol=0.01)


# Mistakes


def test_the_sign(page):
    """Under a causal mask the *farthest* key gets the most weight, so the first token of the text
    attracts every query.

    the bias is never positive. Print one row and check that it rises toward the query
    """
    for wrong in (0.5 * abs(DELTA), -0.5 * DELTA):
        assert (attend(wrong, causal=True).argmax(1) == 0).all()
    bias = reference.alibi_bias(8)(PLACES, PLACES)
    assert bias.max() == 0
    assert (np.diff(bias[:, 5]) > 0).all()


def test_buckets_in_the_wrong_direction(page):
    """In a decoder every past key falls into bucket 0, so the bias does nothing.

    A key just before the query has bucket 1, and one just after it has bucket 17.
    """
    assert (t5_bucket(FAR, bidirectional=False) == 0).all()
    assert t5_bucket(np.array([-1, 1])).tolist() == [1, 17]


def test_t5_is_not_scaled(page):
    r"""the call divides the products by $\sqrt{d_h}$

    it is added after the division
    """
    q, k = DRAWN.normal(size=(2, 6, 64))
    bias = reference.T5Bias.init(DRAWN, 1)(PLACES, PLACES)[0]
    right = reference.attention_weights(q, k, bias=bias, scale=1.0)
    wrong = reference.attention_weights(q, k, bias=bias)
    assert np.allclose(right, softmax(q @ k.T + bias))
    assert np.allclose(wrong, softmax(q @ k.T / 8 + bias))
    assert (wrong.max(1) < right.max(1)).all()


def test_distances_in_half_precision(page):
    """In bfloat16, whole numbers above 256 are rounded, so keys 257 and 256 places back look the
    same.
    """
    rounded = torch.arange(300).bfloat16()
    assert torch.equal(rounded[:257].long(), torch.arange(257))
    assert rounded[257] == rounded[256]


# Exercises


def test_flat_enough(page):
    r"""From $e^{-1000\lambda} = \frac{1}{2}$ follows $\lambda = \ln 2 / 1000$."""
    assert np.isclose(np.exp(-1000 * np.log(2) / 1000), 1 / 2)
    assert "slope 1/1443, 5.6 times flatter" in page.printed


def test_a_shortcut(page):
    r"""Under the mask $j \le i$, so $-\lambda\,|j - i| = \lambda j - \lambda i$."""
    short = np.broadcast_to(0.5 * PLACES, (6, 6))
    usual = -0.5 * abs(DELTA)
    assert np.allclose(attend(usual, causal=True), attend(short, causal=True))
    assert not np.allclose(attend(usual), attend(short), atol=0.1)
    assert (attend(short).argmax(1) == 5).all()


def test_untrained_zeros(page):
    """Each has the number 0, which is *more* than most trained numbers, whose mean is about −0.3."""
    trained = np.delete(page.torch.learned[:27], 3)
    assert (trained < 0).all()
    assert trained.mean().round(1) == -0.3
    found = re.findall(r"tokens: ([\d.]+) three back, ([\d.]+) on", page.printed)
    assert found == [("0.99", "0.00"), ("0.96", "0.03"), ("0.28", "0.71")]


def test_before_and_after(page):
    """ALiBi, KERPLE, FIRE and Sandwich give the two the same bias, so exchanging them changes
    nothing. T5 has different buckets for the two sides.
    """
    for name, scheme in page.torch.schemes.items():
        bias = scheme(PLACES[:3], PLACES[:3])[0, 1]
        assert name == "T5" or np.isclose(bias[0], bias[2])
    threshold = np.array(0.0)  # so all queries are beyond it
    beyond = reference.FIRE(np.array(0.1), threshold, *page.torch.line)
    assert np.isclose(*beyond(PLACES[:3], PLACES[:3])[0, 1, [0, 2]])
    sides = reference.T5Bias(np.arange(32.0)[:, None])(PLACES[:3], PLACES[:3])[0, 1]
    assert sides.tolist() == [1, 0, 17]
    assert "ALiBi: the outputs of bites differ by 0.00" in page.printed
    assert "T5: the outputs of bites differ by 0.00" not in page.printed
