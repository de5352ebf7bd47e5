"""Attention pooling."""

import numpy as np
import pytest
import torch

from posattn import reference
from posattn.reference import masked_softmax

HOURS, DEGREES = np.array([[6, 9, 12], [10, 16, 19]])
COUNTS = 0.5 ** abs(8 - HOURS)  # of the readings, at 8 o'clock
SIGMA = 0.7
DRAW = np.random.default_rng(3)
Q, KEYS, VALUES = DRAW.normal(size=3), DRAW.normal(size=(5, 3)), DRAW.normal(size=(5, 2))
KERNEL = np.array([np.exp(-sum((Q - key) ** 2) / (2 * SIGMA**2)) for key in KEYS])
FAR = -((20.0 - HOURS[None]) ** 2) / (2 * 0.2**2)


def mean_of_all(asked, hours=HOURS, degrees=DEGREES):
    """What the soft look-up answers at some hours."""
    counts = 0.5 ** abs(np.asarray(asked)[:, None] - hours)
    return counts @ degrees / counts.sum(1)


def test_a_dictionary_answers_or_fails(page):
    """It stores each reading as a key (the hour) with a value (the degrees), and readings[8] raises
    KeyError: 8.
    """
    with pytest.raises(KeyError, match="8"):
        dict(zip(HOURS.tolist(), DEGREES.tolist(), strict=True))[8]


def test_the_nearest_reading_jumps(page):
    """But then it is 16 degrees from half past seven until half past ten, and at both ends the
    answer jumps.

    The nearest reading jumps.

    The mean of all three does not: here a reading counts half as much for each hour between it and
    the query.
    """
    nearest = [DEGREES[abs(q - HOURS).argmin()] for q in (7.49, 7.51, 10.49, 10.51)]
    assert nearest == [10, 16, 16, 19]
    steps = DEGREES[page.torch.away.argmin(axis=1)]
    assert abs(np.diff(steps)).max() == 6
    assert abs(np.diff(page.torch.soft)).max() < 0.2
    assert np.allclose(page.torch.soft, mean_of_all(page.torch.asked))


def test_the_smooth_curve(page):
    """a smooth one climbs from about 11 to 18.5 degrees, passing a square at 8 o'clock and 14.4
    degrees
    """
    asked, soft = page.torch.asked, page.torch.soft
    assert (asked[0], asked[80], asked[-1]) == (4, 8, 14)
    assert abs(soft[0] - 11) < 0.5
    assert abs(soft[-1] - 18.5) < 0.1
    assert round(soft[80], 1) == 14.4
    assert np.diff(soft).min() > -1e-9


def test_the_mean_passes_near_the_readings(page):
    """passes near the readings but not through them.

    Even at 9 o'clock, where a key matches exactly, the answer is … degrees and not 16, because
    the other two readings still have their say.
    """
    missed = abs(mean_of_all(HOURS) - DEGREES)
    assert missed.min() > 0.2
    assert missed.max() < 1
    assert page.glued["at_nine"] == pytest.approx(mean_of_all([9])[0])


def test_counts_and_weights(page):
    """| 6 | 10 | 2 | 1/4 | 4/13 = 0.308 |

    | 9 | 16 | 1 | 1/2 | 8/13 = 0.615 |

    | 12 | 19 | 4 | 1/16 | 1/13 = 0.077 |

    The counts sum to 13/16.

    Divide each count by this sum and you get the weights, which sum to 1.

    Each reading starts with a count of 1, and the count is halved for every hour between the reading
    and 8 o'clock.

    Our kernel was $2^{-|q - k|}$.
    """
    assert np.array_equal(page.torch.hours, [6, 9, 12])
    assert np.array_equal(page.torch.degrees, [10, 16, 19])
    assert np.array_equal(abs(8 - HOURS), [2, 1, 4])
    assert np.array_equal(COUNTS, [1 / 4, 1 / 2, 1 / 16])
    assert COUNTS.sum() == 13 / 16
    weights = COUNTS / COUNTS.sum()
    assert np.allclose(weights, [4 / 13, 8 / 13, 1 / 13])
    assert np.array_equal(weights.round(3), [0.308, 0.615, 0.077])
    assert "weights: [0.308 0.615 0.077]\n" in page.printed
    scores = -np.log(2) * abs(8 - HOURS[None])
    assert np.allclose(masked_softmax(scores)[0], weights)


def test_eq_pooling_by_hand(page):
    r"""$$ \tfrac{4}{13} \cdot 10 + \tfrac{8}{13} \cdot 16 + \tfrac{1}{13} \cdot 19 = \tfrac{187}{13} = 14.38 . $$

    It lies between the readings of 6 and 9 o'clock, and nearer to the second.
    """
    answer = 4 / 13 * 10 + 8 / 13 * 16 + 1 / 13 * 19
    assert np.allclose([answer, 187 / 13], mean_of_all([8]))
    assert np.isclose(page.torch.soft[80], answer)
    scores = -np.log(2) * abs(8 - HOURS[None])
    assert np.isclose(masked_softmax(scores)[0] @ DEGREES, answer)
    assert round(answer, 2) == 14.38
    assert "answer:  14.38 degrees\n" in page.printed
    assert 10 < answer < 16
    assert 16 - answer < answer - 10


def test_who_bites(page):
    """Dog gets 9, man gets 6, and the other words get 0.

    Dog is 1 away from the query and counts 1/2. Man is 4 away and counts 1/16. The other words are 10
    away, and each counts only 1/1024.

    Bites now knows that it is mostly about a dog.

    The cell of dog is dark, with 0.88; that of man is light, with 0.11; the other three are empty,
    with 0.00.
    """
    counts = [2.0 ** -(10 - key) for key in (0, 9, 0, 0, 6)]
    assert counts == [1 / 1024, 1 / 2, 1 / 1024, 1 / 1024, 1 / 16]
    weights = np.array(counts) / sum(counts)
    lines = [line for line in page.printed.splitlines() if line.startswith("bites gives")]
    assert lines == [
        f"bites gives {word:5} the weight {weight:.3f}"
        for word, weight in zip(["the", "dog", "bites", "the", "man"], weights, strict=True)
    ]
    assert f"answer: {weights[[1, 4]].round(2)} = how much dog" in page.printed
    assert weights.round(2).tolist() == [0, 0.88, 0, 0, 0.11]


def test_the_man_bites_the_dog(page):
    """In the man bites the dog the same five keys and values take part, so the answer is the same."""
    names = page.torch
    order = [0, 4, 2, 3, 1]
    keys, values = names.likely_to_bite[order], names.meanings[order]
    counts = 0.5 ** abs(10 - keys)
    assert not np.array_equal(keys, names.likely_to_bite)
    first = 0.5 ** abs(10 - names.likely_to_bite)
    assert np.allclose(counts @ values / counts.sum(), first @ names.meanings / first.sum())


def test_eq_square_of_a_difference(page):
    r"""$$ -\lVert \mathbf{q} - \mathbf{k}_j \rVert^2 = -\lVert \mathbf{q} \rVert^2 + 2\,\mathbf{q}^\top \mathbf{k}_j - \lVert \mathbf{k}_j \rVert^2 . $$

    Its first term, $-\lVert \mathbf{q} \rVert^2 / (2\sigma^2)$, does not depend on $j$.
    """
    for key in KEYS:
        left = -(np.linalg.norm(Q - key) ** 2)
        assert np.isclose(left, -(Q @ Q) + 2 * Q @ key - key @ key)


def test_eq_attention_pooling(page):
    r"""$$ \operatorname{Attention}(\mathbf{q}, \mathcal{D}) = \sum_{j=0}^{n-1} \alpha(\mathbf{q}, \mathbf{k}_j)\, \mathbf{v}_j,
    \qquad \alpha(\mathbf{q}, \mathbf{k}_j) \ge 0, \qquad \sum_{j=0}^{n-1} \alpha(\mathbf{q}, \mathbf{k}_j) = 1. $$
    """
    alpha = reference.attention_weights(Q[None], KEYS)[0]
    pooled = reference.scaled_dot_product_attention(Q[None], KEYS, VALUES)[0]
    assert np.allclose(pooled, sum(a * v for a, v in zip(alpha, VALUES, strict=True)))
    assert alpha.min() >= 0
    assert np.isclose(alpha.sum(), 1)


def test_each_weight_depends_on_all_keys(page):
    """Each weight depends on all the keys, because together they must sum to 1."""
    moved = 0.5 ** abs(8 - np.array([6, 9, 11]))  # one key
    assert (COUNTS / COUNTS.sum() != moved / moved.sum()).all()


def test_eq_nadaraya_watson(page):
    r"""$$ \alpha(\mathbf{q}, \mathbf{k}_j) = \frac{K(\mathbf{q}, \mathbf{k}_j)}{\sum_{l=0}^{n-1} K(\mathbf{q}, \mathbf{k}_l)},
    \qquad K(\mathbf{q}, \mathbf{k}) = \exp\left(-\frac{\lVert \mathbf{q} - \mathbf{k} \rVert^2}{2 \sigma^2}\right). $$
    """
    kernel = [np.exp(-(np.linalg.norm(Q - k) ** 2) / (2 * SIGMA**2)) for k in KEYS]
    alpha = np.array([one / sum(kernel) for one in kernel])
    by_torch = page.torch.pool_torch(*map(torch.tensor, (Q[None], KEYS, VALUES)), SIGMA)
    by_jax = page.jax.pool_jax(Q[None], KEYS, VALUES, SIGMA)
    squares = ((Q - KEYS) ** 2).sum(-1)
    assert np.allclose(masked_softmax(-squares[None] / (2 * SIGMA**2))[0], alpha)
    assert np.allclose(by_torch, alpha @ VALUES)
    assert np.allclose(by_jax, alpha @ VALUES, atol=1e-5)


def test_eq_softmax_pooling(page):
    r"""$$ \alpha(\mathbf{q}, \mathbf{k}_j) = \frac{\exp(s_j)}{\sum_{l=0}^{n-1} \exp(s_l)} . $$

    This logarithm is the score $s_j = \log K(\mathbf{q}, \mathbf{k}_j)$.
    """
    s = np.log(KERNEL)
    alpha = np.exp(s) / sum(np.exp(s))
    assert np.allclose(masked_softmax(s[None])[0], alpha)
    assert np.allclose(KERNEL / KERNEL.sum(), alpha)


def test_scores_of_the_readings(page):
    r"""The logarithms of these counts are their scores: $-1.39$, $-0.69$ and $-2.77$.

    Add $\log 16$ to our three scores. The counts are then 4, 8 and 1, each 16 times as large as
    before. Their sum has grown by the same factor, to 13. The weights are still 4/13, 8/13 and 1/13.
    """
    scores = np.log(COUNTS)
    assert scores.round(2).tolist() == [-1.39, -0.69, -2.77]
    counts = np.exp(scores + np.log(16))
    assert np.allclose(counts, [4, 8, 1])
    assert np.isclose(counts.sum(), 13)
    assert np.isclose(counts.sum(), 16 * COUNTS.sum())
    for some in (scores, scores + np.log(16)):
        assert np.allclose(masked_softmax(some[None])[0], [4 / 13, 8 / 13, 1 / 13])


def test_eq_products_of_hours(page):
    r"""$$ 2 \cdot 8 \cdot 6 - 6^2 = 60, \qquad 2 \cdot 8 \cdot 9 - 9^2 = 63, \qquad 2 \cdot 8 \cdot 12 - 12^2 = 48 . $$

    The three readings get $-4$, $-1$ and $-16$. Now add $8^2 = 64$ to each of them, which changes no
    weight. The scores become $60$, $63$ and $48$
    """
    scores = -((8 - HOURS) ** 2)
    products = 2 * 8 * HOURS - HOURS**2
    assert scores.tolist() == [-4, -1, -16]
    assert (scores + 64).tolist() == products.tolist() == [60, 63, 48]
    same = masked_softmax(scores[None] + 0.0), masked_softmax(products[None] + 0.0)
    assert np.allclose(*same)


def test_minus_infinity_hides_a_key(page):
    """A score of minus infinity becomes a weight of 0, so it hides its key"""
    assert np.array_equal(masked_softmax(np.array([[-np.inf, 0.0]])), [[0, 1]])


def test_eq_gaussian_score(page):
    r"""$$ s_j = \frac{1}{\sigma^2}\,\mathbf{q}^\top \mathbf{k}_j - \frac{\lVert \mathbf{k}_j \rVert^2}{2 \sigma^2}. $$

    That is a dot product times the scale $1/\sigma^2$, plus a bias that depends only on the key.

    adding the same number to all scores changes nothing.
    """
    alpha = KERNEL / KERNEL.sum()
    s = np.array(
        [1 / SIGMA**2 * Q @ k - np.linalg.norm(k) ** 2 / (2 * SIGMA**2) for k in KEYS]
    )
    assert np.allclose(masked_softmax(s[None])[0], alpha)
    gap = np.log(KERNEL) - s
    assert np.allclose(gap, -(Q @ Q) / (2 * SIGMA**2))
    given = {"scale": 1 / SIGMA**2, "bias": -(KEYS**2).sum(-1)[None] / (2 * SIGMA**2)}
    assert np.allclose(reference.attention_weights(Q[None], KEYS, **given)[0], alpha)
    pooled = reference.scaled_dot_product_attention(Q[None], KEYS, VALUES, **given)
    assert np.allclose(pooled[0], alpha @ VALUES)


def test_keys_of_one_length(page):
    """Then it cancels, and the dot product by itself ranks keys by distance.

    or use keys of one length
    """
    spread = np.random.default_rng(5).normal(size=(6, 3))
    queries, keys = spread[:2], spread[2:]
    equal = keys / np.linalg.norm(keys, axis=1, keepdims=True)
    for some, alike in ((equal, True), (keys, False)):
        distances = ((queries[:, None] - some) ** 2).sum(-1)
        weights = masked_softmax(-distances / 2)
        assert np.allclose(weights, masked_softmax(queries @ some.T)) == alike


def test_the_library_needs_no_function_for_this_kernel(page):
    r"""If you give its attention the scale and the bias of eq_gaussian-score, it returns the same
    answers.

    With this kernel 8 o'clock gets 14.01 degrees, where halving gave 14.38. The answer for 9 o'clock
    is 15.41, a little further from the reading than before. At 20:00 every reading is hours
    away, but noon is the nearest by far, so its 19 degrees take nearly all the weight.

    With $\sigma = 2$ the scale $1/\sigma^2$ is 1/4, and the bias is $-k^2/8$.
    """
    assert page.printed.count("largest difference from the library: 0.000\n") == 2
    kernel = np.exp(-((np.array([[8], [9], [20]]) - HOURS) ** 2) / (2 * 2.0**2))
    answers = (kernel @ DEGREES / kernel.sum(1)).round(2)
    assert page.printed.count(f"degrees at 8:00, 9:00 and 20:00: {answers}\n") == 2
    assert answers.tolist() == [14.01, 15.41, DEGREES[-1]]
    assert 16 - answers[1] > 16 - mean_of_all([9])[0]
    assert kernel[2, 2] > 0.99 * kernel[2].sum()
    q, k = np.array([[8.0], [9.0], [20.0]]), HOURS[:, None].astype(float)
    given = reference.attention_weights(q, k, scale=1 / 4, bias=-(k.T**2) / 8)
    assert np.allclose(given, kernel / kernel.sum(1, keepdims=True))


def test_the_bandwidth_decides(page):
    """With bandwidth 0.05 the curve in fig-kernel-regression chases the noise, because only
    the nearest two or three samples count.

    With 0.4 it follows the sine.

    the curve flattens towards the mean of all values
    """
    pooled, wide = page.torch.pooled, page.torch.wide
    assert list(pooled) == [0.05, 0.4, 3]
    turns = {s: (np.diff(np.sign(np.diff(pooled[s][20:141]))) != 0).sum() for s in pooled}
    assert turns[0.05] > 10 > 4 > turns[0.4]
    inside = (wide > 0.3) & (wide < 5.7)
    assert abs(pooled[0.4] - np.sin(wide))[inside].max() < 0.15
    keys, queries = page.torch.keys, page.torch.queries[:, None]
    weights = masked_softmax(-((queries - keys) ** 2) / (2 * 0.05**2))
    assert 1 < np.median(1 / (weights**2).sum(1)) < 3  # the effective number of samples
    mean = page.torch.values.mean()
    assert abs(pooled[3] - mean).max() < 0.5 < abs(pooled[0.4] - mean).max()
    assert np.ptp(pooled[3]) < 1


def test_beyond_the_samples(page):
    """There are no samples left of 0 or right of 6, so there the estimates have nothing to follow, and
    the sine runs away from all three.

    there the sine goes on while the estimates with small bandwidth level off

    With bandwidth 0.05 the estimate stays at the value of the outermost sample
    """
    pooled, wide, keys = page.torch.pooled, page.torch.wide, page.torch.keys
    assert len(keys) == 60
    assert keys.min() > 0
    assert keys.max() < 6
    beyond = (wide < -0.5) | (wide > 6.5)
    for estimate in pooled.values():
        assert abs(estimate - np.sin(wide))[beyond].mean() > 0.4
    assert np.ptp(pooled[0.05][wide > 6.3]) < 0.05
    first, *_, last = page.torch.values
    assert np.allclose(pooled[0.05][wide < -0.5], first, atol=0.01)
    assert np.allclose(pooled[0.05][wide > 6.5], last, atol=0.01)


def test_attention_never_leaves_its_values(page):
    """Whatever hour you ask for, our thermometer never says more than 19 degrees or less than 10.

    it never leaves the convex hull of the values
    """
    answers = mean_of_all(np.linspace(0, 24, 97))
    assert answers.min() > 10
    assert answers.max() < 19
    assert page.torch.room.shape == (20, 20)
    assert page.torch.room.min() >= 0


def test_two_limits(page):
    """At scale 0 all scores are equal and every weight is $1/n$: the plain mean.

    As the scale grows, all the weight moves to the largest score

    Each row of fig-two-limits is a query, and its weights sum to 1.

    At scale 0 every weight is one seventh.

    At scale 1 there is a soft spot around the query, and at scale 1000 each query has picked its
    nearest key.
    """
    flat, soft, sharp = page.torch.panels
    assert np.allclose(page.torch.panels.sum(-1), 1)
    assert np.allclose(flat, 1 / 7)
    nearest = abs(page.torch.wanted[:, None] - np.arange(7)).argmin(axis=-1)
    assert np.array_equal(soft.argmax(axis=-1), nearest)
    assert soft.max() < 0.7
    assert np.allclose(sharp, np.eye(7)[nearest])


def test_all_keys_are_scored_for_each_query(page):
    """All $n$ keys are scored for each query, so $n_q$ queries need $n_q n$ scores."""
    assert page.torch.panels[0].size == 3 * 7
    assert reference.attention_weights(np.ones((3, 2)), np.ones((7, 2))).size == 3 * 7


def test_proportions_not_multiplicities(page):
    """Write the list of readings twice, and the answer does not change.

    The answer does move when only one pair is doubled, because its share grows. With 9 o'clock twice,
    it moves towards the 16 degrees of 9 o'clock.
    """
    once, twice, only_nine = (
        mean_of_all([8], np.repeat(HOURS, times), np.repeat(DEGREES, times))[0]
        for times in (1, 2, [1, 2, 1])
    )
    assert np.isclose(once, twice)
    assert only_nine - once > 0.5
    for what, answer in (("each twice     ", twice), ("9 o'clock twice", only_nine)):
        assert f"{what}: {answer:.2f} degrees\n" in page.printed


@pytest.mark.parametrize(("n", "ones", "share"), [(5, 1, 5), (6, 1, 6), (12, 2, 6)])
def test_a_share(page, n, ones, share):
    """Among $n$ equal keys, a single value of 1 among zeros comes out as $1/n$

    All weights are $1/n$, so the output is $1/n$, and its reciprocal is $n$. Two out of $2n$ is the
    same proportion, so the output is the same.
    """
    weights = reference.attention_weights(np.ones((1, 2)), np.ones((n, 2)))[0]
    assert np.allclose(weights, 1 / n)
    assert np.isclose(weights @ (np.arange(n) < ones), 1 / share)
    assert f"{ones} of {n:2} values are 1: output {1 / share:.4f}\n" in page.printed


def test_the_kernel_before_the_quotient(page):
    r"""Every kernel is rounded to 0, and 0/0 is NaN.

    At 20:00 with $\sigma = 0.2$ the largest kernel is …, while the weights from softmax sum to
    ….
    """
    with np.errstate(invalid="ignore"):
        assert np.isnan(np.exp(FAR) / np.exp(FAR).sum()).all()
    assert page.glued["far_kernel"] == np.exp(FAR).max() == 0
    assert page.glued["far_weights"] == masked_softmax(FAR).sum() == 1


def test_a_dot_product_taken_for_nearness(page):
    """a long key wins from far away

    The query 1 equals the key 1, and yet it gives the key 5 a weight of ….
    """
    query, keys = np.array([[1.0]]), np.array([[1.0], [5.0]])
    weights = reference.attention_weights(query, keys, scale=1)
    assert page.glued["long_key"] == pytest.approx(weights[0, 1])
    assert weights[0, 1] > 0.9


def test_a_fourth_reading(page):
    r"""The new key is five hours away and counts 1/32. In 32nds the counts are 1, 8, 16 and 2, so
    the answer is $(1 \cdot 7 + 8 \cdot 10 + 16 \cdot 16 + 2 \cdot 19)/27 = 381/27$.
    """
    hours, degrees = np.array([3, *HOURS]), np.array([7, *DEGREES])
    assert np.array_equal(32 * 0.5 ** abs(8 - hours), [1, 8, 16, 2])
    assert 1 * 7 + 8 * 10 + 16 * 16 + 2 * 19 == 381
    assert np.isclose(mean_of_all([8], hours, degrees)[0], 381 / 27)
    assert f"degrees at 8: {381 / 27:.2f}\n" in page.printed


def test_shift_and_stretch(page):
    """Each exponential gets the same factor, which cancels. Multiplying by 2 squares every
    exponential, so a ratio of 3 becomes 9.
    """
    scores = np.log([[1.0, 3.0]])
    assert np.allclose(masked_softmax(scores), [[1 / 4, 3 / 4]])
    assert np.allclose(masked_softmax(scores + 5), [[1 / 4, 3 / 4]])
    assert np.allclose(masked_softmax(2 * scores), [[1 / 10, 9 / 10]])


def test_one_value_for_all(page):
    """the weights sum to 1. That none of them is negative does not matter here."""
    weights = masked_softmax(-abs(8.0 - HOURS)[None])
    assert np.isclose(weights @ np.full(3, 16.0), 16)
    assert np.array([3, -1, -1]) @ np.full(3, 16.0) == 16


def test_choose_the_bandwidth(page):
    """With the mask the search finds 0.2, and our 0.4 is hardly worse. About $0.3^2 = 0.09$ of the
    error is noise, which no bandwidth removes. Without the mask the smallest bandwidth wins, since each sample
    predicts itself.
    """
    keys, values, tried = page.torch.keys, page.torch.values, page.torch.tried
    scores = [-((keys[:, None] - keys) ** 2) / (2 * s**2) for s in tried]
    means = [masked_softmax(s, ~np.eye(60, dtype=bool)) @ values for s in scores]
    hidden = np.mean((means - values) ** 2, axis=-1)
    assert tried[hidden.argmin()] == 0.2
    assert tried[5] == 0.4
    assert hidden[5] < 1.1 * hidden.min()
    assert hidden.min() > 0.3**2
    shown = np.mean(([masked_softmax(s) @ values for s in scores] - values) ** 2, axis=-1)
    assert page.torch.best == tried[shown.argmin()] == tried.min() == 0.01
