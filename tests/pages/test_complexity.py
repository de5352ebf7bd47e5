"""Convolution, recurrence and self-attention."""

from itertools import count, product, repeat
from math import ceil

import numpy as np
import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from posattn import reference
from posattn.reference import layers_to_connect, measure, path_length, reads
from posattn.torch import MultiHeadAttention

N, D, K = 100, 16, 3  # of the table
FIVE, W = np.ones((5, 4)), np.ones((4, 4, 4))  # of the page's example by hand


def convolution(x):
    """One layer of each kind, for five words of width 4 or one token of it."""
    return reference.convolution(x, W[:3])


def recurrence(x):
    return reference.recurrence(x, W[0], W[1])


def self_attention(x):
    return reference.self_attention(x, *W)


def neighbors(n, k):
    """Who reads whom in a convolution."""
    return abs(np.subtract.outer(np.arange(n), np.arange(n))) <= k // 2


def reached(n, k, layers):
    """Which outputs depend on which inputs after each number of layers, by powers of a matrix."""
    graph = neighbors(n, k).astype(float)
    powers = (np.linalg.matrix_power(graph, L) for L in count())
    return [power > 0 for _, power in zip(range(layers + 1), powers, strict=False)]


def row(page, name):
    """The four numbers of a row of the table."""
    return [
        page.glued[f"{name}-{what}"] for what in ("operations", "steps", "across", "meet")
    ]


def test_the_verb_needs_words_on_both_sides(page):
    """the verb needs the dog just before it and the man two places after it"""
    words = ["the", "dog", "bites", "the", "man"]
    places = [words.index(word) - words.index("bites") for word in ("dog", "man")]
    assert places == [-1, 2]


def test_who_reads_whom_by_experiment(page):
    """It replaces one input after another by NaN, and looks where NaN comes out.

    every sum or product with a NaN is NaN again

    The first matrix belongs to the convolution, whose outputs read the token in their own place and those
    next to it. At both ends one neighbor is missing
    """
    assert np.isnan([np.nan + 1, np.nan * 0]).all()
    for j in range(5):
        x = np.ones((5, 4))
        x[j] = np.nan
        found = np.isnan(convolution(x)).any(-1)
        assert np.array_equal(found, page.torch.cnn[:, j])
    assert page.torch.cnn.sum(1).tolist() == [2, 3, 3, 3, 2]
    assert f"{neighbors(5, 3).astype(int)}\n" in page.printed


def test_only_direct_arrows_are_drawn(page):
    """The second belongs to the recurrence, where a state depends on all inputs up to its own and on none
    after it. The matrix of self-attention isn't printed, since all of its entries are 1.

    For the recurrence only the direct arrows are drawn

    The middle state of the recurrence never sees the last two tokens, however many such layers are
    stacked.
    """
    assert f"{np.tri(5, dtype=int)}\n" in page.printed
    assert reads(self_attention, FIVE).all()
    stacked = np.linalg.matrix_power(np.tri(5), 9)
    assert (stacked[2] > 0).tolist() == [True, True, True, False, False]
    assert np.array_equal(page.torch.rnn, np.tri(5))
    assert np.array_equal(page.torch.direct, np.eye(5, k=-1))


def test_the_receptive_field_of_the_middle(page):
    """One convolution reaches three tokens, and it takes a second one to reach all five, while
    self-attention reaches all five in one layer.
    """
    cnn = page.torch.cnn
    assert np.array_equal(cnn, neighbors(5, 3))
    assert cnn[2].sum() == 3
    assert (cnn @ cnn)[2].all()
    assert reads(self_attention, FIVE).all()


def test_a_token_times_a_matrix(page):
    r"""A token times a $4 \times 4$ matrix takes 16 multiply-adds, which are 32 operations."""
    assert measure(lambda x: x @ W[0], FIVE[:1]).operations == 2 * 16 == 32


def test_a_convolution_by_hand(page):
    r"""multiplies 5 tokens by 3 matrices, which takes $5 \cdot 3 \cdot 32 = 480$ operations. None of
    them waits for another, so it's one step.
    """
    assert 5 * 3 * 32 == 480
    assert measure(convolution, FIVE) == (480, 1)
    assert "convolution     480 operations, steps: 1\n" in page.printed


def test_a_recurrence_by_hand(page):
    r"""multiplies 5 tokens and 5 previous states (the first of them is zero), which takes
    $10 \cdot 32 = 320$ operations. Each state waits for the one before, so there are 5 steps.
    """
    assert 10 * 32 == 320
    assert measure(recurrence, FIVE) == (320, 5)
    assert "recurrence      320 operations, steps: 5\n" in page.printed


def test_self_attention_by_hand(page):
    r"""multiplies 5 tokens by 4 matrices, for queries, keys, values and outputs, which takes
    $4 \cdot 5 \cdot 32 = 640$ operations. Its $5 \cdot 5$ scores take 4 multiply-adds each, 200
    operations. The weighted sums of the values take another 200, which makes 1040 in total. There are 4
    steps

    Self-attention does the most work, and the recurrence, which does the least, is the only one with a
    step for every token.
    """
    assert (
        measure(recurrence, FIVE)
        < measure(convolution, FIVE)
        < measure(self_attention, FIVE)
    )
    longer = [
        measure(layer, np.ones((9, 4))).steps for layer in (convolution, self_attention)
    ]
    assert longer == [1, 4]
    assert (4 * 5 * 32, 2 * 5 * 5 * 4, 640 + 200 + 200) == (640, 200, 1040)
    assert measure(self_attention, FIVE) == (1040, 4)
    assert measure(lambda x: [x @ w for w in W], FIVE).operations == 640
    assert "self-attention 1040 operations, steps: 4\n" in page.printed


def test_the_costs_of_a_convolution(page):
    r"""| convolution | $2knd^2 =$ … | … | $\left\lceil \frac{2(n-1)}{k-1} \right\rceil =$ … |
    $\left\lceil \frac{n-1}{k-1} \right\rceil =$ … |
    """
    operations = 2 * K * N * D**2
    paths = ceil(2 * (N - 1) / (K - 1)), ceil((N - 1) / (K - 1))
    assert row(page, "convolution") == [operations, 1, *paths]
    assert reference.convolution_operations(N, D, K) == operations


def test_the_costs_of_a_recurrence(page):
    """| recurrence | $4nd^2 =$ … | $n =$ … | $n =$ … | $n =$ … |"""
    assert row(page, "recurrence") == [4 * N * D**2, N, N, N]
    assert reference.recurrence_operations(N, D) == 4 * N * D**2


def test_a_recurrence_connects_everything_in_one_layer(page):
    """It connects everything within a single layer, so for it both columns count arrows inside that
    layer: the first token needs $n$ of them to reach the last state, where it meets the last token.
    """
    layer = reads(lambda x: reference.recurrence(x, W[0], W[1]), np.ones((N, 4)))
    assert layers_to_connect(repeat(layer)) == 1
    assert layer[-1].all()  # only the last state has read both the first word and the last
    assert not layer[:-1, -1].any()
    states = np.eye(N) + np.eye(N, k=-1)  # a state, and the one before it
    between = path_length(repeat(states))
    assert row(page, "recurrence")[2:] == [1 + between, 1 + between] == [N, N]


def test_the_costs_of_self_attention(page):
    """| self-attention | $4n^2d + 8nd^2 =$ … | … | … | … |

    it costs $4n^2d + 8nd^2$
    """
    operations = 4 * N**2 * D + 8 * N * D**2
    assert row(page, "self-attention") == [operations, 4, 1, 1]
    assert reference.self_attention_operations(N, D) == operations
    assert page.glued["attention-path"] == 1


@pytest.mark.parametrize("heads", [1, 4])
def test_heads_do_not_change_the_count(page, heads):
    """Several heads do not change the count (multi_head), because each of $h$ heads computes $n^2$ scores
    at a width of only $d / h$. PyTorch's own counter finds the same number of operations.
    """
    layer = MultiHeadAttention(D, heads)
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        layer(*[torch.ones(1, N, D)] * 3)
    assert counter.get_total_flops() == page.glued["self-attention-operations"]


def test_only_self_attention_grows_with_the_square(page):
    """Only self-attention has operations that grow with the square of $n$, and on short inputs they are
    few.

    Three of the lines are parallel, because they grow like $n$.
    """
    *linear, pairs = page.torch.operations.values()
    n, d = page.torch.lengths, page.torch.width
    assert len(linear) == 3
    for line in linear:
        assert (line[1:] == 2 * line[:-1]).all()
    assert (page.torch.operations["attention: projections"] == 8 * n * d**2).all()
    assert (pairs == 4 * n**2 * d).all()


def test_twice_the_tokens(page):
    """Scores and sums grow like $n^2$, so doubling $n$ multiplies them by ….

    From 8 to 16 tokens, where the projections dominate, the whole layer grows by a factor of …, which is
    nearly linear. From 512 to 1024 tokens it grows by …, which is nearly quadratic.
    """
    eight, sixteen, half, most = (
        reference.self_attention_operations(n, 64) for n in (8, 16, 512, 1024)
    )
    assert page.glued["doubling"] == 4
    assert page.glued["doubling-short"] == sixteen / eight < 2.2
    assert page.glued["doubling-whole"] == most / half > 3.5


def test_scores_catch_up_with_projections(page):
    """A token pays $8d^2$ operations for its own four projections, and $4d$ for each token that it
    attends to, so $2d$ tokens cost as much as the projections. That is at $n = 2d$, here at … tokens

    scores and sums become the larger part only beyond $n = 2d$
    """
    n, d = page.torch.lengths, page.torch.width
    pairs = page.torch.operations["attention: scores and sums"]
    projections = page.torch.operations["attention: projections"]
    assert (np.sign(pairs - projections) == np.sign(n - 2 * d)).all()
    assert (projections == n * 8 * d**2).all()
    assert (pairs == n * n * 4 * d).all()
    assert page.glued["crossing"] == 2 * d == 128


def test_a_feed_forward_network_moves_the_crossing(page):
    """make that network's hidden layer $4d$ wide, so its two matrices cost each token another $16d^2$
    operations. With $24d^2$ for the linear part, the crossing moves from $2d$ to $6d$, which is 24576
    tokens at width 4096.

    which are almost half of all pairs, each crossing moves to almost twice as many tokens
    """
    d = 4
    up, down = np.ones((d, 4 * d)), np.ones((4 * d, d))
    network = measure(lambda x: np.maximum(x @ up, 0) @ down, FIVE[:1]).operations
    assert network == 16 * d**2
    projections = measure(lambda x: [x @ w for w in W], FIVE[:1]).operations
    assert projections + network == 24 * d**2
    for n, more in ((6 * d - 1, 1), (6 * d, 0), (6 * d + 1, -1)):
        assert np.sign(24 * n * d**2 - 4 * n**2 * d) == more
    assert 6 * 4096 == 24576
    seen = reference.causal_mask(64, 64).sum()
    assert 0.5 < seen / 64**2 == (64 + 1) / (2 * 64) < 0.51
    for linear, crossing in ((8, 2 * d), (24, 6 * d)):
        n = 2 * crossing - 1  # n (n + 1) / 2 pairs are left
        assert linear * n * d**2 == 4 * d * n * (n + 1) / 2


def test_a_wide_layer_is_linear_for_long(page):
    """But take a self-attention layer of width 4096 and count: as long as the input is shorter than 8192
    tokens, most of the arithmetic is in four matrix products whose cost grows only linearly.

    and at 8192 for the layer of width 4096 that this page began with
    """
    for n, more in ((4096, 1), (8191, 1), (8192, 0), (8193, -1)):
        whole = reference.self_attention_operations(n, 4096)
        products = 4 * 2 * n * 4096**2
        assert np.sign(products - (whole - products)) == more
    four = measure(lambda x: [x @ w for w in W], FIVE).operations
    twice = measure(lambda x: [x @ w for w in W], np.ones((10, 4))).operations
    assert twice == 2 * four


class Memory:
    """Main memory of 16-bit numbers, and what programs move between it and a processor."""

    def __init__(self):
        self.moved = 0

    def run(self, program, *inputs):
        """Read the inputs, run a program, and write its result."""
        result = program(*inputs).astype(np.float16)
        self.moved += sum(x.nbytes for x in inputs) + result.nbytes
        return result


def moved(n, d_h):
    """The bytes that attention moves in three programs, in one, and for the last token."""
    q, k, v = np.ones((3, n, d_h), np.float16) / 8
    three, one, last = Memory(), Memory(), Memory()
    scores = three.run(lambda q, k: q @ k.T, q, k)
    weights = three.run(lambda s: np.exp(s) / np.exp(s).sum(1, keepdims=True), scores)
    three.run(lambda a, v: a @ v, weights, v)
    for memory, queries in ((one, q), (last, q[-1:])):
        memory.run(
            lambda *qkv: reference.scaled_dot_product_attention(*qkv),
            *(x.astype(np.float16) for x in (queries, k, v)),
        )
    return three.moved, one.moved, last.moved


def test_eq_roofline(page):
    r"""$$ \text{time} \ge \max\left( \frac{\text{operations}}{F}, \; \frac{\text{bytes}}{B} \right) . $$

    The quotient $F / B$ is 156, so in the time that one byte takes to arrive, the A100 can do 156
    operations.

    A line that rises with slope one up to 156 operations per byte and is flat at 312 from there on.
    """
    F, B = page.torch.F, page.torch.B
    assert (F, B) == (312 * 1e6 * 1e6, 2 * 1e6 * 1e6)
    assert F / B == 156
    (roof,) = page.torch.roof.values()
    bytes_ = 1e9
    for intensity, speed in zip(page.torch.per_byte, roof, strict=True):
        least = max(intensity * bytes_ / F, bytes_ / B)
        assert np.isclose(intensity * bytes_ / least, speed * 1e12)


@pytest.mark.parametrize(("n", "d_h"), [(16, 4), (64, 4), (64, 16)])
def test_eq_intensity(page, n, d_h):
    r"""$$ \frac{4n^2d_h}{b\,(4n^2 + 4nd_h)} = \frac{d_h}{b} \cdot \frac{n}{n + d_h} . $$

    Together, the three programs move $4n^2 + 4nd_h$ numbers

    its score and its share of the sum take $4d_h$ operations, and for them four numbers are moved

    which is $4nd_h$ numbers for the same $4n^2d_h$ operations. The intensity is then $n / b$

    | scores | $2n^2d_h$ | $2nd_h$ | $n^2$ |

    | softmax | none that we count | $n^2$ | $n^2$ |

    | sums of values | $2n^2d_h$ | $n^2 + nd_h$ | $nd_h$ |
    """
    three, one, last = moved(n, d_h)
    assert three == 2 * (4 * n**2 + 4 * n * d_h)
    assert one == 2 * 4 * n * d_h
    assert last == 2 * (2 * n * d_h + 2 * d_h)
    q = np.ones((n, d_h))
    work = measure(lambda x: (x @ q.T) @ q, q).operations
    assert work == 4 * n**2 * d_h
    assert np.isclose(work / three, d_h / 2 * n / (n + d_h))
    assert work / one == n / 2
    assert (work / n**2, (three - one) / 2 / n**2) == (4 * d_h, 4)


def test_when_a_fused_kernel_saves_most_of_the_traffic(page):
    """scores and weights are most of what three programs move as soon as $n$ exceeds the head dimension.
    Beyond about $2d$ tokens the scores and sums are most of the arithmetic too, and a
    fused kernel doesn't save that
    """
    for n, d_h, most in ((8, 16, False), (15, 16, False), (17, 16, True), (64, 16, True)):
        three, one, _ = moved(n, d_h)
        squares = three - one  # what three programs move and one does not
        assert (squares > three / 2) == most
    works = {work for work, _ in list(page.torch.jobs.values())[:2]}
    assert len(works) == 1  # of three programs and of one


def test_the_three_jobs(page):
    """With a head dimension of 64 and numbers of 2 bytes it is 32, a fifth of what the A100 needs

    The three programs need five times as long for memory as for arithmetic. The fused kernel does exactly
    the same arithmetic, but memory is no longer its limit, so the least possible time falls from 270.53
    microseconds to 55.06. The new token needs 156 times as long for memory as for arithmetic, because
    it does about one operation per byte where the A100 could do 156.

    it can use at most 2 of the 312 trillion operations per second

    One new token lies on the rising part at 1, the three programs at 32, and the fused kernel on the
    flat part at 4096.
    """
    p = page.torch
    assert (p.n, p.d_h, p.b) == (1000, 64, 2)  # n is that of the last exercise by now
    n, d_h = 8192, 64
    three, one, new = (np.array(p.jobs[name]) for name in p.jobs)
    assert three.tolist() == [4 * n**2 * d_h, 4 * n**2 + 4 * n * d_h]
    assert one.tolist() == [4 * n**2 * d_h, 4 * n * d_h]
    assert new.tolist() == [4 * n * d_h, 2 * n * d_h + 2 * d_h]
    intensities = [work / (2 * numbers) for work, numbers in (new, three, one)]
    assert np.allclose(intensities, [1, 32, 4096], rtol=0.01)
    assert np.isclose(64 / 2 / 156, 1 / 5, atol=0.01)
    arithmetic, memory = three[0] / p.F, 2 * three[1] / p.B
    assert 4.9 < memory / arithmetic < 5
    assert 2 * one[1] / p.B < one[0] / p.F
    assert one[0] == three[0]
    bounds = [max(work / p.F, 2 * numbers / p.B) for work, numbers in (three, one)]
    assert [f"{1e6 * bound:.2f}" for bound in bounds] == ["270.53", "55.06"]
    assert np.isclose(p.points["one new token"][0][1], 2, rtol=0.01)
    assert round((2 * new[1] / p.B) / (new[0] / p.F)) == 156
    for line in ("541.1 megabytes", "31.8 operations", "55.06 micro", "270.53 micro"):
        assert f"  {line}" in page.printed or f": {line}" in page.printed
    for name, ((intensity, speed),) in p.points.items():
        work, numbers = p.jobs[name]
        assert np.isclose(intensity, work / (2 * numbers))
        assert np.isclose(speed * 1e12, work / max(work / p.F, 2 * numbers / p.B))


def test_one_token_times_a_matrix(page):
    r"""One token times a $d \times d$ matrix is $2d^2$ operations, and all $d^2$ numbers of the matrix
    have to be fetched for it. With numbers of 2 bytes that is one operation per byte again.
    """
    matrix = np.ones((64, 64), np.float16)
    work = measure(lambda x: x @ matrix.astype(float), np.ones((1, 64))).operations
    assert work == 2 * matrix.size == matrix.nbytes


def test_a_prompt_shares_the_matrix(page):
    """The matrix is fetched once for all $n$ of them, which makes nearly $n$ operations per byte as long
    as $n$ is much smaller than $d$. With $d = 4096$, a prompt of 200 tokens already does 182 operations
    per byte, counting its inputs and outputs too, and so it is on the flat part.
    """

    def intensity(n, d):
        memory = Memory()
        x, matrix = np.ones((n, d), np.float16), np.ones((d, d), np.float16)
        memory.run(lambda x, w: x.astype(np.float32) @ w.astype(np.float32), x, matrix)
        work = measure(lambda x: x @ np.ones((d, d)), np.ones((n, d))).operations
        return work / memory.moved

    assert np.isclose(intensity(4, 512), 4, rtol=0.02)
    n, d = 200, 4096
    by_formula = 2 * n * d**2 / (2 * (d**2 + 2 * n * d))
    assert np.isclose(intensity(25, 512), 2 * 25 * 512**2 / (2 * (512**2 + 2 * 25 * 512)))
    assert round(by_formula) == 182 > page.torch.F / page.torch.B


def test_a_linear_recurrence_in_parallel(page):
    r"""A recurrence that is linear in its state can be computed in parallel, in about $\log_2 n$ rounds, each
    of which joins neighboring stretches of the sequence.
    """
    rng = np.random.default_rng(0)
    keep, add = rng.random((2, 16))
    states, state = [], 0.0
    for a, b in zip(keep, add, strict=True):
        state = a * state + b
        states.append(state)
    rounds = 0
    while 2**rounds < 16:  # what a stretch does to the state before it: keep a, add b
        before = np.arange(16) - 2**rounds
        a = np.where(before < 0, 1, keep[before])
        b = np.where(before < 0, 0, add[before])
        keep, add = keep * a, keep * b + add
        rounds += 1
    assert rounds == 4
    assert np.allclose(add, states)


def test_reported_peaks(page):
    """FlashAttention-2 reaches 50 to 73 percent of 312

    On the newer H100 it reaches only 35 percent of the peak, and FlashAttention-3, written for that
    processor, 75 percent

    outside of matrix products an A100 does only 19.5 trillion operations per second
    """
    assert page.torch.F == 312e12
    assert 312 / 19.5 == 16  # the factor that the paper names


def test_the_speed_limit_of_writing(page):
    """For each token, all weights have to be fetched once, which is 14 billion bytes. At 2 trillion bytes
    per second this takes 7 milliseconds, so the limit is 142 tokens per second.

    and arithmetic becomes the limit at 156 users
    """
    fetched = 7 * 10**9 * 2
    assert fetched == 14 * 10**9
    assert fetched / 2e12 == 7e-3
    assert 142 <= 1 / 7e-3 < 143
    for users, limited in ((155, False), (157, True)):
        assert (7e9 * 2 * users / page.torch.F > fetched / page.torch.B) == limited
    lines = ("milliseconds per token: 7", "tokens per second: 142", "users: 156")
    assert "\n".join(lines) in page.printed


def test_the_two_ways_of_the_figure(page):
    """meet in the middle output after two layers

    one place per layer, and arrives at the last output after four

    For $k = 3$ and 5 tokens it is 4 from input to output and 2 until two inputs meet
    """
    line = "convolution    until two inputs meet: 2, input to output: 4\n"
    assert line in page.printed
    two, four = (np.linalg.matrix_power(page.torch.cnn.astype(int), L) for L in (2, 4))
    assert two[2, [0, 4]].all()
    assert not two[4, 0]
    assert four[4, 0] == 1


@pytest.mark.parametrize(("n", "k"), [(5, 3), (27, 3), (64, 5), (81, 9)])
def test_eq_meet(page, n, k):
    r"""$$ L = \left\lceil \frac{n - 1}{k - 1} \right\rceil , $$

    The number of layers after which every two inputs have met is
    """
    L = ceil((n - 1) / (k - 1))
    assert layers_to_connect(repeat(neighbors(n, k))) == L
    before, after = reached(n, k, L)[L - 1 :]
    assert (after.T @ after).all()
    assert not (before.T @ before).all()


@pytest.mark.parametrize(("n", "k"), [(5, 3), (27, 3), (64, 5), (81, 9)])
def test_eq_across(page, n, k):
    r"""$$ L' = \left\lceil \frac{2(n - 1)}{k - 1} \right\rceil . $$

    for odd $k$, the number of layers after which every input has reached every output is
    """
    L = ceil(2 * (n - 1) / (k - 1))
    assert path_length(repeat(neighbors(n, k))) == L
    before, after = reached(n, k, L)[L - 1 :]
    assert after.all()
    assert not before.all()


def test_dilated_layers_need_a_logarithm(page):
    r"""$\lceil \log_k n \rceil$ layers are enough for every two inputs to meet

    It takes 80 layers to get from one end to the other, 40 until any two tokens have met, and only 4 if
    the layers are dilated.

    $80 = 2 \cdot 1 + 2 \cdot 3 + 2 \cdot 9 + 2 \cdot 27$, which is 2222 in base 3. In each layer both
    tokens make a step toward each other, of 1, 3, 9 and finally 27 places, and after four layers they
    have met.
    """
    assert int("2222", 3) == 2 * (1 + 3 + 9 + 27) == 80
    assert 0 + (1 + 3 + 9 + 27) == 80 - (1 + 3 + 9 + 27)
    assert "81 tokens, k = 3: 80 layers across, 40 to meet, 4 if dilated\n" in page.printed
    lines = [line for line in page.printed.splitlines() if line.endswith("if dilated")]
    found = [[int(word) for word in line.split() if word.isdigit()] for line in lines]
    assert [(n, dilated) for n, *_, dilated in found] == [(5, 2), (27, 3), (65, 3), (81, 4)]
    for n, k, dilated in [(5, 3, 2), (27, 3, 3), (65, 5, 3), (81, 3, 4)]:
        assert k ** (dilated - 1) < n <= k**dilated


def test_what_reached_counts(page):
    """Let `reached[i, j]` count the paths from input `j` to output `i`.

    in `reached.T @ reached`, which counts for every two inputs how often their paths end at a common
    output

    The convolution takes the two layers and the four layers of the figure, while for self-attention the
    difference disappears.
    """
    graph = page.torch.cnn.astype(int)
    two = graph @ graph
    for i, j in product(range(5), repeat=2):
        assert two[i, j] == sum(graph[i, m] * graph[m, j] for m in range(5))
        common = sum(two[i, j] * two[i, 0] for i in range(5))
        assert (two.T @ two)[j, 0] == common
    lines = (
        "convolution    until two inputs meet: 2, input to output: 4",
        "self-attention until two inputs meet: 1, input to output: 1",
    )
    assert "\n".join(lines) in page.printed


def test_how_far_two_inputs_come_nearer(page):
    """they come at most $k - 1$ places nearer in a layer if both walk, but only half as much if one of
    them does

    two inputs that walk toward each other come nearer by any number of places from 0 to $k - 1$"""
    k = 5
    ways = {one - other for one in range(k) for other in range(k)}
    assert ways == set(range(-(k - 1), k))
    alone = np.flatnonzero(neighbors(9, k)[:, 0])
    assert alone.max() == (k - 1) / 2
    meeting = neighbors(9, k).T.astype(int) @ neighbors(9, k)
    assert np.array_equal(meeting[0] > 0, np.arange(9) <= k - 1)


def test_twice_the_tokens_four_times_the_weights(page):
    """twice the tokens, four times the weights"""
    five, ten = (reference.attention_weights(*np.ones((2, n, 4))).size for n in (5, 10))
    assert (five, ten) == (25, 4 * 25)


def test_elementwise_work_is_not_counted(page):
    """the count of operations leaves out softmax and other elementwise work"""
    assert measure(lambda x: np.exp(x) + x, FIVE).operations == 0


def test_self_attention_always_costs_more(page):
    """That is always more than the $4nd^2$ of the recurrence above, and more than a convolution with
    $k = 3$, because the projections alone exceed the $6nd^2$ of the convolution.

    the recurrence does the least work and waits the longest. The convolution waits for nothing, but
    needs many layers to look far. Self-attention sees everything at once
    """
    cnn, rnn, projections, pairs = page.torch.operations.values()
    n, d = page.torch.lengths, page.torch.width
    assert (cnn == 6 * n * d**2).all()
    assert (projections > cnn).all()
    assert (rnn < cnn).all()
    assert (cnn < projections + pairs).all()
    names = ("convolution", "recurrence", "self-attention")
    assert [page.glued[f"{name}-steps"] for name in names] == [1, N, 4]
    assert page.glued["convolution-across"] > 90
    assert page.glued["self-attention-across"] == 1


def test_an_lstm_costs_more_on_short_texts(page):
    """Against an LSTM, a recurrence with four such pairs of matrices, self-attention can win: an LSTM
    takes $16nd^2$, and self-attention takes less than that below $n = 2d$.
    """
    lstm = torch.nn.LSTM(8, 8)
    assert lstm.weight_hh_l0.shape == lstm.weight_ih_l0.shape == (4 * 8, 8)
    rnn = page.torch.operations["recurrence"]
    n, d = page.torch.lengths, page.torch.width
    assert (4 * rnn == 16 * n * d**2).all()
    whole = reference.self_attention_operations
    difference = [whole(int(length), d) for length in n] - 4 * rnn
    assert (np.sign(difference) == np.sign(n - 2 * d)).all()


def test_a_wide_kernel(page):
    """At $n = 2d$ self-attention takes $4n^2d + 8nd^2 = 16nd^2$ operations, and the convolution takes
    $2knd^2$. So the convolution takes more for $k > 8$.
    """
    attention = reference.self_attention_operations(64, 32)
    assert attention == 16 * 64 * 32**2
    seven, eight, nine = (reference.convolution_operations(64, 32, k) for k in (7, 8, 9))
    assert seven < attention == eight < nine


def test_at_the_edges(page):
    """Never. Each layer moves by its distance, forward or back, or not at all

    the only way to move by 2 is $2 = 3 - 1$, and its first step goes back by 1
    """
    assert page.torch.reached[2].tolist() == [False, True, True]
    ways = [s for s in product((-1, 0, 1), repeat=4) if np.dot(s, (1, 3, 9, 27)) == 2]
    assert ways == [(-1, 1, 0, 0)]


@pytest.mark.parametrize("w", [2, 5, 9])
def test_through_a_window(page, w):
    r"""This is eq_meet with $k = 2w - 1$: $\lceil (n - 1) / (2w - 2) \rceil$ layers."""
    window = reference.window_mask(64, 64, w)
    assert layers_to_connect(repeat(window)) == ceil((64 - 1) / (2 * w - 2))


def test_one_more_word(page):
    """With the cache there are four projections of one token, $n$ scores and a sum of $n$ values:
    $8d^2 + 4nd$ operations.

    $8nd^2 + 4n^2d$, or $n$ times as many
    """
    n, d = 1000, 64
    kept, matrix = np.ones((n, d)), np.ones((d, d))

    def last(x):
        return [x @ matrix, x @ matrix, x @ matrix @ kept.T @ kept @ matrix]

    assert measure(last, kept[:1]).operations == 8 * d**2 + 4 * n * d
    whole = reference.self_attention_operations(n, d)
    assert whole == 8 * n * d**2 + 4 * n**2 * d == n * (8 * d**2 + 4 * n * d)
