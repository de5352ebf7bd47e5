"""Attention in tiles."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from posattn import reference
from posattn.jax import MultiHeadAttention
from posattn.jax import scaled_dot_product_attention as jax_attention
from posattn.torch import scaled_dot_product_attention as torch_attention

RNG = np.random.default_rng(3)
SCORES, VALUES, GRADIENT = (
    5 * RNG.normal(size=9),
    RNG.normal(size=(9, 2)),
    RNG.normal(size=2),
)
STEP = 1e-30  # of complex differentiation, which is exact
SMALL = np.log([1.0, 2.0, 5.0]), np.array([8.0, 16.0, 24.0])  # dog, bites, man


def state(s, v):
    """The maximum, the sum and the weighted sum of some keys, as the page defines them."""
    mu = max(s)
    Z = sum(np.exp(s_j - mu) for s_j in s)
    a = sum(np.exp(s_j - mu) * v_j for s_j, v_j in zip(s, v, strict=True))
    return mu, Z, a


def test_all_pairs_of_a_long_text(page):
    """A text of … tokens has … billion pairs of a query and a key. The weights of one head, at four bytes
    each, fill … gigabytes.

    The output of that head, with its 64 numbers for each token, fills only … megabytes.
    """
    n = page.glued["many_tokens"]
    assert page.glued["many_pairs"] == n**2 / 10**9
    weights = np.broadcast_to(np.float32(0), (n, n))
    assert page.glued["many_gigabytes"] == weights.size * weights.itemsize / 2**30
    assert page.glued["output_megabytes"] == n * 64 * weights.itemsize / 2**20


def test_more_arithmetic_in_less_time(page):
    """In 2022 a new implementation of attention did 13 percent more arithmetic than the usual one.

    it was nearly six times as fast: 7.3 milliseconds instead of 41.7

    The usual implementation moved 40.3 gigabytes between the processor and its main memory, while
    the new one, FlashAttention, moved 4.4.
    """
    flops = 66.6, 75.2  # of the same table: the numbers that the page quotes as a ratio
    assert round(100 * (flops[1] / flops[0] - 1)) == 13
    assert 5.5 < 41.7 / 7.3 < 6


def test_a_tile_fits(page):
    """128 queries and 128 keys make a tile of 64 kilobytes, at four bytes for a score, and an A100
    has 192 kilobytes of fast memory in each of its 108 multiprocessors
    """
    assert np.zeros((128, 128), np.float32).nbytes == 64 * 1024 < 192 * 1000


@pytest.mark.parametrize(("n", "t", "d"), [(64, 16, 4), (64, 8, 16)])
def test_eq_tile_traffic(page, n, t, d):
    r"""$$ \underbrace{2nd}_{\text{queries and outputs}} + \; \underbrace{\frac{n}{t} \cdot 2nd}_{\text{keys and values}} $$

    The $n^2$ is still there, but $4n^2$ has become $2n^2 d/t$, which is smaller by a factor of $2t/d$,
    because each key is read once for a whole tile of queries.
    """
    q, k, v = RNG.normal(size=(3, n, d))
    moved, rows = 0, []
    for start in range(0, n, t):
        strip = q[start : start + t]
        moved += strip.size
        states = []
        for first in range(0, n, t):
            keys, values = k[first : first + t], v[first : first + t]
            moved += keys.size + values.size
            states.append((strip @ keys.T / d**0.5, values))
        exp = np.exp(np.hstack([s for s, _ in states]))
        rows.append(exp @ np.vstack([x for _, x in states]) / exp.sum(1, keepdims=True))
        moved += rows[-1].size
    assert np.allclose(np.vstack(rows), reference.scaled_dot_product_attention(q, k, v))
    assert moved == 2 * n * d + n / t * 2 * n * d
    assert np.isclose(4 * n**2 / (n / t * 2 * n * d), 2 * t / d)


def test_the_bill(page):
    """Nearly everything that the three kernels move is scores and weights. In tiles these never leave
    the chip, and the traffic falls to a quarter.

    An A100 can do 156 operations in the time it takes one byte to arrive

    The three kernels give it 32, so most of the time it waits for memory, while the tiles give it 126
    """
    p, n, d, t = page.torch, 8192, 64, 128
    three, tiles = 4 * n**2 + 4 * n * d, 2 * n * d + n / t * 2 * n * d
    assert p.whole == three
    assert p.tiled == tiles
    assert p.operations == reference.self_attention_operations(n, d) - 8 * n * d**2
    assert p.squares / p.whole > 0.99
    assert np.isclose(tiles / three, 1 / 4, rtol=0.01)
    assert 312 / 2 == 156
    assert round(p.operations / (2 * three)) == 32
    assert round(p.operations / (2 * tiles)) == 126
    assert "in three kernels: 541 megabytes\n" in page.printed
    assert "in tiles: 136 megabytes\n" in page.printed


def test_causal_attention_does_half_of_the_work(page):
    """with a causal mask the hidden tiles cost nothing, so only a little more than half of the work
    is left. With a window of fixed width, the work grows only linearly with the length.
    """
    tiles = np.tri(100, dtype=bool)
    assert 0.5 < tiles.mean() < 0.51
    for n in (48, 96):
        seen = reference.causal_mask(n) & reference.window_mask(n, n, 8)
        tiles = seen.reshape(n // 4, 4, n // 4, 4).any(axis=(1, 3))
        assert tiles.sum() == 3 * n // 4 - 3


def test_all_at_once_by_hand(page):
    r"""let the query of bites have the scores $0$, $\ln 2$ and $\ln 5$, and let the values be $8$, $16$
    and $24$

    The exponentials are $1$, $2$ and $5$, their sum is $8$, and the output is
    $(1 \cdot 8 + 2 \cdot 16 + 5 \cdot 24)/8 = 20$
    """
    scores, values = SMALL
    exponentials = np.exp([0, np.log(2), np.log(5)])
    assert np.allclose(np.exp(scores), exponentials)
    assert np.allclose(exponentials, [1, 2, 5])
    assert np.isclose(exponentials.sum(), 8)
    assert (1 * 8 + 2 * 16 + 5 * 24) / 8 == 20
    assert np.isclose(reference.masked_softmax(scores[None])[0] @ values, 20)


def test_the_first_tile_by_hand(page):
    r"""The largest score of the first tile is $\ln 2$, and relative to it the exponentials are $\tfrac12$ and
    $1$. We remember three things: the largest score $\ln 2$, the sum of the exponentials $\tfrac32$, and
    the sum of the values with these weights, $\tfrac12 \cdot 8 + 1 \cdot 16 = 20$.
    """
    mu, Z, a = state(SMALL[0][:2], SMALL[1][:2])
    assert mu == np.log(2)
    assert np.allclose(np.exp([0 - mu, mu - mu]), [1 / 2, 1])
    assert np.isclose(Z, 3 / 2)
    assert 1 / 2 * 8 + 1 * 16 == 20
    assert np.isclose(a, 20)
    assert "largest: ln 2, sum: 1.5, weighted sum: 20\n" in page.printed


def test_the_second_tile_by_hand(page):
    r"""The second tile brings a larger score, $\ln 5$, but what we remember was measured against $\ln 2$.

    multiply by $e^{\ln 2 - \ln 5} = \tfrac25$. The sum becomes $\tfrac25 \cdot \tfrac32 + 1 = 1.6$, and
    the weighted sum becomes $\tfrac25 \cdot 20 + 24 = 32$. Divide, and $32/1.6$ is $20$ again.
    """
    mu, Z, a = state(*SMALL)
    assert mu == np.log(5) > np.log(2)
    assert np.isclose(np.exp(np.log(2) - np.log(5)), 2 / 5)
    assert np.isclose(Z, 2 / 5 * 3 / 2 + 1)
    assert np.isclose(Z, 1.6)
    assert 2 / 5 * 20 + 24 == 32
    assert np.isclose(a, 32)
    assert 32 / 1.6 == 20
    assert "largest: ln 5, sum: 1.6, weighted sum: 32\n" in page.printed


def test_eq_online_state(page):
    r"""$$ \mu = \max_{j \in T} s_j, \qquad Z = \sum_{j \in T} e^{s_j - \mu}, \qquad \mathbf{a} = \sum_{j \in T} e^{s_j - \mu}\, \mathbf{v}_j . $$

    The output for the keys so far is $\mathbf{a}/Z$

    With $T$ all keys, $e^{s_j - \mu}/Z$ is the weight of key $j$.
    """
    mu, Z, a = state(SCORES, VALUES)
    weights = reference.masked_softmax(SCORES[None])[0]
    assert np.allclose(a / Z, weights @ VALUES)
    assert np.allclose(np.exp(SCORES - mu) / Z, weights)
    assert np.isclose(mu + np.log(Z), np.log(np.exp(SCORES).sum()))
    assert (mu >= SCORES).all()


def test_eq_online_merge(page):
    r"""$$ \hat\mu = \max(\mu, \mu'), \qquad \hat Z = e^{\mu - \hat\mu}\, Z + e^{\mu' - \hat\mu}\, Z', \qquad \hat{\mathbf{a}} = e^{\mu - \hat\mu}\, \mathbf{a} + e^{\mu' - \hat\mu}\, \mathbf{a}' , $$

    By hand we had $\mu = \ln 2$, $Z = \tfrac32$, $\mathbf{a} = 20$ from the first tile and $\mu' = \ln 5$, $Z' = 1$, $\mathbf{a}' = 24$ from the second, which gives $\hat Z = 1.6$ and $\hat{\mathbf{a}} = 32$.

    By {eq}`eq_online-merge` the states of two disjoint sets of keys give the state of their union
    """
    first, second = (
        state(SMALL[0][part], SMALL[1][part]) for part in (slice(2), slice(2, 3))
    )
    assert np.allclose(first, [np.log(2), 3 / 2, 20])
    assert np.allclose(second, [np.log(5), 1, 24])
    shrink = np.exp(first[0] - second[0])
    assert np.allclose(
        [shrink * first[1] + second[1], shrink * first[2] + second[2]], [1.6, 32]
    )
    (mu1, Z1, a1), (mu2, Z2, a2) = (
        state(SCORES[part], VALUES[part]) for part in (slice(4), slice(4, 9))
    )
    mu = max(mu1, mu2)
    Z = np.exp(mu1 - mu) * Z1 + np.exp(mu2 - mu) * Z2
    a = np.exp(mu1 - mu) * a1 + np.exp(mu2 - mu) * a2
    mu_of_all, Z_of_all, a_of_all = state(SCORES, VALUES)
    assert mu == mu_of_all
    assert np.isclose(Z, Z_of_all)
    assert np.allclose(a, a_of_all)
    assert np.allclose(a / Z, reference.masked_softmax(SCORES[None])[0] @ VALUES)


def test_nothing_overflows(page):
    """No exponent is ever positive, so nothing overflows"""
    large = 1e4 * np.random.default_rng(0).normal(size=(3, 100, 8))
    assert page.torch.tiled_torch(*torch.from_numpy(large).float(), 7).isfinite().all()
    assert jnp.isfinite(page.jax.tiled_jax(*jnp.asarray(large, jnp.float32), 7)).all()


def test_the_layer_goes_through_tiles(page):
    """scaled_dot_product_attention and MultiHeadAttention switch to tiles automatically when a text
    is long
    """
    layer = MultiHeadAttention.init(jax.random.key(0), 64, 1)
    x = jax.ShapeDtypeStruct((1, 4096, 64), "float32")
    plan = jax.jit(lambda x: layer(x, causal=True)).lower(x).compile().memory_analysis()
    assert plan.temp_size_in_bytes < 4 * 4096**2 / 8


def no_bias(asked, queries, keys):
    """A bias of zeros that notes for how many queries at a time it is called."""
    asked.append(queries.shape[-1])
    return torch.zeros(8, queries.shape[-1], keys.shape[-1])


def test_how_long_is_long(page):
    """Our JAX functions cut the square into tiles beyond … tokens.

    beyond … million pairs, counted over all heads and examples, they compute a block of queries at a time. For
    one text and 8 heads that is beyond … tokens.
    """
    n = page.glued["jax_tiles_from"]
    assert n == 512
    for length, loops in ((n, False), (n + 1, True)):
        x = np.ones((1, 1, length, 4), np.float32)
        program = str(jax.make_jaxpr(jax_attention)(x, x, x))
        assert ("while" in program or "scan" in program) == loops
    n = page.glued["torch_tiles_from"]
    assert page.glued["torch_pairs"] == 2**22 / 1e6
    assert 8 * n**2 <= 2**22 < 8 * (n + 1) ** 2
    for length, whole in ((n, True), (n + 1, False)):
        asked = []
        x = torch.ones(1, 8, length, 4)
        torch_attention(x, x, x, bias=partial(no_bias, asked))
        assert (max(asked) == length) == whole


def test_which_kernel_ran(page):
    """when no fused one can run, it silently uses one that stores all weights

    If none of them can run, you get the error No available kernel, and warnings that say why. To see
    which kernel did run, look for attention among the names in a trace of torch.profiler.
    """
    x = torch.ones(1, 2, 6, 4)
    fused = [
        SDPBackend.FLASH_ATTENTION,
        SDPBackend.EFFICIENT_ATTENTION,
        SDPBackend.CUDNN_ATTENTION,
    ]
    attend = torch.nn.functional.scaled_dot_product_attention
    for dropout, ran in ((0.0, "flash_attention"), (0.1, "attention_math")):
        with torch.profiler.profile() as trace:
            attend(x, x, x, dropout_p=dropout)
        names = [event.key for event in trace.key_averages() if "attention" in event.key]
        assert any(ran in name for name in names)
    with sdpa_kernel(fused):
        attend(x, x, x)
    with (
        sdpa_kernel(fused),
        pytest.warns(UserWarning, match="not used because|dropout") as warned,
        pytest.raises(RuntimeError, match="No available kernel"),
    ):
        attend(x, x, x, dropout_p=0.1)
    assert any("dropout" in str(warning.message) for warning in warned)


def test_stick_breaking_in_order(page):
    """reads the tiles in order, from the query backward, and carries along the logarithm of what is left"""
    logits = np.random.default_rng(0).normal(size=8)  # of the keys before a query
    parts = 1 / (1 + np.exp(-logits))
    weights = [parts[j] * np.prod(1 - parts[j + 1 :]) for j in range(8)]
    tiles, left = [], 0.0
    for tile in (slice(4, 8), slice(0, 4)):
        logs = np.log(1 - parts[tile])
        later = logs[::-1].cumsum()[::-1] - logs  # of the keys after each, in this tile
        tiles.append(parts[tile] * np.exp(left + later))
        left += logs.sum()
    assert np.allclose(np.concatenate(tiles[::-1]), weights)
    forward = parts[:4] * np.exp(
        np.log(1 - parts[:4])[::-1].cumsum()[::-1] - np.log(1 - parts[:4])
    )
    assert not np.allclose(forward, weights[:4])  # a tile that does not know what is left


def test_each_weight_comes_from_its_own_score(page):
    r"""the logarithm of the sum of exponentials, $\lambda_i = \mu_i + \ln Z_i$. Then
    $\alpha_{ij} = e^{s_{ij} - \lambda_i}$, and no other key is needed. In our example $\lambda$ is $\ln 8$,
    and the weight of man is $e^{\ln 5 - \ln 8} = \tfrac58$.
    """
    largest, total, _ = state(*SMALL)
    assert np.isclose(largest + np.log(total), np.log(8))
    assert np.isclose(np.exp(np.log(5) - np.log(8)), 5 / 8)
    mu, Z, _ = state(SCORES, VALUES)
    log_sum = mu + np.log(Z)
    assert np.isclose(log_sum, np.log(np.exp(SCORES).sum()))
    assert np.allclose(np.exp(SCORES - log_sum), reference.masked_softmax(SCORES[None])[0])


def test_eq_tiled_gradient(page):
    r"""$$ \frac{\partial L}{\partial s_{ij}} = \alpha_{ij} \Bigl( \mathbf{g}_i^\top \mathbf{v}_j - \sum_l \alpha_{il}\, \mathbf{g}_i^\top \mathbf{v}_l \Bigr) = \alpha_{ij} \bigl( \mathbf{g}_i^\top \mathbf{v}_j - \mathbf{g}_i^\top \mathbf{y}_i \bigr) . $$"""
    g, v, alpha = GRADIENT, VALUES, reference.masked_softmax(SCORES[None])[0]
    y = alpha @ v
    mean = sum(alpha[j] * (g @ v[j]) for j in range(9))
    by_sum = [alpha[j] * (g @ v[j] - mean) for j in range(9)]
    by_output = [alpha[j] * (g @ v[j] - g @ y) for j in range(9)]
    raised = SCORES + 1j * STEP * np.eye(9)  # row j raises the score of key j
    slopes = (reference.masked_softmax(raised) @ v @ g).imag / STEP
    assert np.allclose(slopes, by_sum)
    assert np.allclose(slopes, by_output)


def test_eq_tiled_gradient_keys(page):
    r"""$$ \frac{\partial L}{\partial \mathbf{k}_j} = \frac{1}{\sqrt d} \sum_i \frac{\partial L}{\partial s_{ij}}\, \mathbf{q}_i, \qquad \frac{\partial L}{\partial \mathbf{q}_i} = \frac{1}{\sqrt d} \sum_j \frac{\partial L}{\partial s_{ij}}\, \mathbf{k}_j . $$

    The value $\mathbf{v}_j$ gets $\sum_i \alpha_{ij} \mathbf{g}_i$, a sum over queries.
    """
    q, k, v, g = np.random.default_rng(0).normal(size=(4, 5, 3))
    by_torch = [torch.tensor(x, requires_grad=True) for x in (q, k, v)]
    y = torch.softmax(by_torch[0] @ by_torch[1].T / 3**0.5, -1) @ by_torch[2]
    (y * torch.tensor(g)).sum().backward()
    alpha = reference.attention_weights(q, k)
    of_scores = alpha * (g @ v.T - (g * (alpha @ v)).sum(1, keepdims=True))
    for j in range(5):
        of_key = sum(of_scores[i, j] * q[i] for i in range(5)) / 3**0.5
        of_query = sum(of_scores[j, i] * k[i] for i in range(5)) / 3**0.5
        of_value = sum(alpha[i, j] * g[i] for i in range(5))
        for one, other in zip(by_torch, (of_query, of_key, of_value), strict=True):
            assert np.allclose(one.grad[j], other)


def test_from_a_gradient_of_weights_to_one_of_scores(page):
    """Take the gradient of a weight, subtract the weighted mean of these gradients over all keys, and
    multiply by the weight. The result is the gradient of the score
    """
    weights = torch.softmax(torch.from_numpy(SCORES), 0).numpy()
    of_weights = VALUES @ GRADIENT
    result = (of_weights - weights @ of_weights) * weights
    scores = torch.tensor(SCORES, requires_grad=True)
    output = torch.softmax(scores, 0) @ torch.from_numpy(VALUES)
    output.backward(torch.from_numpy(GRADIENT))
    assert np.allclose(scores.grad, result)


def test_gradients_by_hand(page):
    r"""The output was $20$, and suppose that its gradient is $1$.

    The scores get $\tfrac18 (8 - 20) = -1.5$, $\tfrac28 (16 - 20) = -1$ and
    $\tfrac58 (24 - 20) = 2.5$. A larger score for man raises the output, because the value of man is above
    the mean of $20$, and larger scores for the other two lower it. The three gradients sum to zero, since
    adding the same number to all scores changes nothing.

    The second line uses each score, the one number $\lambda$ and the output, and agrees with the framework.
    """
    for names in (page.torch, page.jax):
        gradients = np.array([float(x) for x in names.by_framework])
        assert np.allclose(
            gradients, [1 / 8 * (8 - 20), 2 / 8 * (16 - 20), 5 / 8 * (24 - 20)]
        )
        assert np.allclose(gradients, [-1.5, -1, 2.5])
        assert abs(gradients.sum()) < 1e-5
        assert np.allclose(gradients, [x.item() for x in names.by_key])
        assert np.isclose(names.output.item(), 20)


def test_one_row_holds_all_biases(page):
    """A text of $n$ tokens has only $2n - 1$ offsets between a key and a query, so one row of $2n - 1$
    numbers holds all biases. Each query reads the same row, starting one place earlier than the query
    before it.
    """
    n, alibi = 6, reference.ALiBi(1)
    where = np.arange(n)
    assert len(np.unique(where - where[:, None])) == 2 * n - 1
    row = alibi(np.array([n - 1]), np.arange(2 * n - 1))[0, 0]
    bias = alibi(where, where)[0]
    for i in where:
        start = n - 1 - i
        assert np.allclose(bias[i], row[start : start + n])


def test_gates_need_one_number_for_each_token(page):
    """If $c_i$ is the running sum of the logarithms up to token $i$, the bias is just $c_i - c_j$

    tiled_forgetting_bias is that function of positions.
    """
    log_gates = -np.random.default_rng(0).random((8, 6))
    bias = reference.forgetting_bias(log_gates)
    c = log_gates.cumsum(-1)
    i, j = np.tril_indices(6)
    assert np.allclose(bias[:, i, j], c[:, i] - c[:, j])
    tile = reference.tiled_forgetting_bias(log_gates)(np.arange(4, 6), np.arange(1, 3))
    assert np.array_equal(tile, bias[:, 4:, 1:3])


def test_two_schemes_need_all_keys(page):
    """CoPE adds up the gates of all keys from this one up to the query, and stick-breaking gives each
    key a share of what later keys have left over. So these keys can't be read in just any order

    Only the first two ask for all keys, and every other scheme in the list works in tiles.
    """
    names = [scheme.__name__ for scheme in page.torch.schemes]
    assert names[:2] == ["CoPE", "StickBreaking"]
    for name in names:
        needs = "all keys at once" if name in names[:2] else "one tile at a time"
        assert f"{name:23} {needs}\n" in page.printed


def test_memory_of_all_weights_grows_with_the_square(page):
    """From … tokens on, twice the tokens need four times the memory, and the line ends at … gigabytes. In
    tiles, … megabytes are enough for the same text.

    a straight line of slope two
    """
    lines, lengths = page.torch.lines, page.torch.lengths
    whole = np.log2(lines["all weights at once"])
    assert page.glued["square_from"] == lengths[2] == 4096
    assert np.allclose(np.diff(whole)[2:], 2, atol=0.05)
    assert page.glued["memory_whole"] == pytest.approx(64, abs=0.01)
    assert page.glued["memory_whole"] == lines["all weights at once"][-1] / 1024
    assert page.glued["memory_tiles"] == lines["in tiles"][-1] < 64


def test_memory_of_tiles_grows_with_the_length(page):
    """What grows with the length is the output and one number for each query.

    nearly flat at 4 megabytes up to 4096 tokens, then rising with slope one to 35
    """
    tiles = np.array(page.torch.lines["in tiles"])
    assert max(np.diff(np.log2(tiles))) < 1.05
    assert np.allclose(tiles[:3], 4, atol=0.6)
    assert round(tiles[-1]) == 35


def test_a_bias_that_is_an_array(page):
    """the right result, but memory for all pairs, which you allocated yourself before the call

    pass the function, bias=ALiBi(8), which is then called one tile at a time
    """
    where, alibi = np.arange(6), reference.ALiBi(8)
    q, k, v = np.random.default_rng(0).normal(size=(3, 8, 6, 4))
    array = alibi(where, where)
    assert array.shape == (8, 6, 6)
    by_array = reference.scaled_dot_product_attention(q, k, v, bias=array)
    assert np.allclose(
        by_array, reference.scaled_dot_product_attention(q, k, v, bias=alibi)
    )


def test_the_sum_without_the_shrinking(page):
    """the right result as long as the first tile holds the largest score, as in many small tests, and
    a wrong one otherwise

    test with scores that rise
    """
    for scores, right in ((-np.arange(6.0), True), (np.arange(6.0), False)):
        tiles = scores.reshape(2, 3)
        peaks = np.maximum.accumulate(tiles.max(1))
        total = np.exp(tiles - peaks[:, None]).sum()
        assert np.isclose(total, np.exp(scores - scores.max()).sum()) == right


def test_a_row_that_has_seen_nothing_yet(page):
    r"""NaN for a query whose first tile is hidden completely, because $-\infty - (-\infty)$ is not a
    number

    start the maximum at the most negative finite number. Skipping hidden tiles isn't enough. At the edge
    of a window a tile is hidden from some of its queries but not from all, so it has to be computed, and
    for those queries it may be the first tile they meet.
    """
    with np.errstate(invalid="ignore"):
        assert np.isnan(np.exp(-np.inf - np.maximum(-np.inf, -np.inf)))
    least = np.finfo(float).min
    assert np.exp(-np.inf - least) == 0
    assert np.exp(least - 1.0) == 0
    t, w, n = 4, 8, 48  # of exercise 2
    seen = reference.causal_mask(n) & reference.window_mask(n, n, w)
    computed = seen.reshape(n // t, t, n // t, t).any(axis=(1, 3))[-1]
    first = int(np.argmax(computed))  # tile of the last queries
    edge = seen[-t:, first * t : (first + 1) * t]
    assert edge[0].any()
    assert not edge[-1].any()
    q, k, v = np.random.default_rng(0).normal(size=(3, n, 4))
    for start, right in ((-np.inf, False), (least, True)):
        largest, total, summed = start, 0.0, 0.0
        for tile in range(n // t):
            if not computed[tile]:  # hidden tiles are skipped
                continue
            keys = slice(tile * t, (tile + 1) * t)
            scores = np.where(seen[-1, keys], q[-1] @ k[keys].T / 2, -np.inf)
            new = max(largest, scores.max())
            with np.errstate(invalid="ignore"):
                shrink, exp = np.exp(largest - new), np.exp(scores - new)
            total = shrink * total + exp.sum()
            summed = shrink * summed + exp @ v[keys]
            largest = new
        whole = reference.scaled_dot_product_attention(q, k, v, mask=seen)[-1]
        assert np.allclose(summed / total, whole) == right


def test_rising_scores(page):
    """It changes with every key if the scores rise, and only once, with the first key, if they fall."""
    for scores, changes in ((np.arange(6.0), 6), (-np.arange(6.0), 1)):
        peaks = np.maximum.accumulate(scores)
        assert 1 + np.count_nonzero(np.diff(peaks)) == changes
    assert "rising 6\nfalling 1\n" in page.printed


def test_what_a_window_saves(page):
    """It sees its own key and $w - 1$ keys before it. These earlier keys reach into $w/t$ tiles before the
    diagonal, and of the farthest tile they miss only one key. With the tile on the diagonal that makes
    $w/t + 1$.
    """
    t, w, n = 4, 8, 48
    seen = reference.causal_mask(n) & reference.window_mask(n, n, w)
    first = n - t  # of the last row of tiles
    assert seen[first].sum() == w - 1 + 1
    assert seen[first, first - w : first].tolist() == [False] + (w - 1) * [True]
    tiles = seen.reshape(n // t, t, n // t, t).any(axis=(1, 3))
    assert tiles[-1].sum() == w // t + 1
    assert page.torch.tiles.sum() == 3 * n // t - 3


def test_two_machines(page):
    """two numbers and a weighted sum as wide as a value, however many keys they hold

    The same merge also joins the states of different machines, each of which has read only the keys that
    it holds.
    """
    assert [np.size(part) for part in page.torch.states[0]] == [1, 1, 2]
    weights = reference.masked_softmax(page.torch.s[None])[0]
    assert np.allclose(page.torch.summed / page.torch.total, weights @ page.torch.v)


@pytest.mark.parametrize("t", [64, 128])
def test_larger_tiles(page, t):
    """For a long text the traffic is nearly $2n^2d/t$ numbers, so $4n^2d$ operations make $2t/b$ per
    byte. With 2 bytes that is $t$, whatever the width of the head.
    """
    n = 2**20
    for d in (64, 128):
        moved = 2 * n * d + n // t * 2 * n * d
        assert np.isclose(moved, 2 * n**2 * d / t, rtol=0.001)
        assert np.isclose(4 * n**2 * d / (2 * moved), t, rtol=0.001)
    assert f"tiles of {t}: {t} operations per byte" in page.printed
