"""Scaled dot-product attention."""

from unittest import mock

import numpy as np
import pytest
import torch

import posattn.torch
from posattn import reference
from posattn.reference import attention_weights, scaled_dot_product_attention

# dog, bites, man
Q = np.array([[0, 1, 1, 0], [1, 0, 1, 0], [0, 1, 0, 1.0]])
K = np.array([[2, 0, 1, 0], [0, 2, 0, 0], [2, 0, 0, 1.0]])
V = np.array([[1, 0, 2, 0], [0, 1, 0, 0], [1, 0, 0, 2.0]])
SCORES = Q @ K.T / np.sqrt(4)
WEIGHTS = attention_weights(Q, K)
STEP = 1e-30  # of complex differentiation, which is exact


def test_who_attends_to_whom(page):
    """Each row is a query, each column is a key, and each row sums to 1.

    It takes a little more than half of its answer from dog, which is probably the biter, a third from
    man, and the rest from itself.

    The other two rows give half of their weight to the verb.
    """
    assert np.array_equal(page.torch.Q, Q)
    assert np.allclose(WEIGHTS.sum(1), 1)
    assert np.allclose(WEIGHTS.round(2)[1], [0.55, 0.12, 0.33])
    assert np.allclose(WEIGHTS.round(2)[[0, 2], 1], 0.51)
    assert (WEIGHTS.argmax(1) == [1, 0, 1]).all()


def test_queries_and_keys_of_three_words(page):
    """| dog | $(0, 1, 1, 0)$, a verb or another animal | $(2, 0, 1, 0)$, a noun and an animal |

    | bites | $(1, 0, 1, 0)$, a noun, preferably an animal | $(0, 2, 0, 0)$, a verb |

    | man | $(0, 1, 0, 1)$, a verb or another human | $(2, 0, 0, 1)$, a noun and a human |

    With respect to the query the derivative is the key, and with respect to the key it is the query.
    """
    assert page.torch.Q.tolist() == [[0, 1, 1, 0], [1, 0, 1, 0], [0, 1, 0, 1]]
    assert page.torch.K.tolist() == [[2, 0, 1, 0], [0, 2, 0, 0], [2, 0, 0, 1]]
    by_query = [((Q[1] + 1j * STEP * row) @ K[0]).imag / STEP for row in np.eye(4)]
    by_key = [(Q[1] @ (K[0] + 1j * STEP * row)).imag / STEP for row in np.eye(4)]
    assert np.allclose(by_query, K[0])
    assert np.allclose(by_key, Q[1])


def test_all_dot_products_are_one_matrix_product(page):
    """the dot products of all queries with all keys are one matrix product

    three queries meet three keys, which makes nine scores
    """
    assert SCORES.size == 9
    assert np.array_equal(Q @ K.T, [[a @ b for b in K] for a in Q])


def test_the_score_of_dog_by_hand(page):
    r"""The query of bites is $(1, 0, 1, 0)$

    The key of dog is $(2, 0, 1, 0)$.

    Their dot product is $1 \cdot 2 + 0 \cdot 0 + 1 \cdot 1 + 0 \cdot 0 = 3$.

    The other two dot products are found the same way.
    """
    assert np.array_equal(page.torch.bites, [1, 0, 1, 0])
    assert np.array_equal(page.torch.bites, Q[1])
    assert np.array_equal(page.torch.K, K)
    assert np.array_equal(K @ Q[1], [3, 0, 2])
    assert np.array_equal(SCORES[1], [1.5, 0, 1])


def test_the_table(page):
    """| dog $(2, 0, 1, 0)$ | 3 | 1.5 | 4.482 | 0.547 | $(1, 0, 2, 0)$ |

    | bites $(0, 2, 0, 0)$ | 0 | 0.0 | 1.000 | 0.122 | $(0, 1, 0, 0)$ |

    | man $(2, 0, 0, 1)$ | 2 | 1.0 | 2.718 | 0.331 | $(1, 0, 0, 2)$ |

    The exponentials sum to 8.200, and each of them divided by this sum is a weight.
    """
    exponentials = np.exp(SCORES[1])
    assert np.array_equal(exponentials.round(3), [4.482, 1, 2.718])
    assert exponentials.sum().round(3) == 8.2
    assert np.array_equal(
        (exponentials / exponentials.sum()).round(3), [0.547, 0.122, 0.331]
    )
    assert np.array_equal(page.torch.exponentials, exponentials)
    assert np.array_equal(page.torch.V, V)


def test_the_mean_of_the_values(page):
    r"""The output is the mean of the values with these weights:
    $0.547 \cdot (1, 0, 2, 0) + 0.122 \cdot (0, 1, 0, 0) + 0.331 \cdot (1, 0, 0, 2) = (0.88, 0.12, 1.09, 0.66)$.
    In words, bites has learned of a noun that is more of an animal than of a human.
    """
    assert np.array_equal((WEIGHTS[1] @ V).round(2), [0.88, 0.12, 1.09, 0.66])
    _, verb, animal, human = WEIGHTS[1] @ V
    assert animal > human > verb
    assert np.array_equal(page.torch.output.round(2), [0.88, 0.12, 1.09, 0.66])


def test_eq_softmax_QK_V(page):
    r"""$$ \operatorname{softmax}\left(\frac{\mathbf{Q}\mathbf{K}^\top}{\sqrt{d}}\right)\mathbf{V} \in \mathbb{R}^{n_q \times d_v} . $$

    Its row $i$ is $\mathbf{y}_i = \sum_j \alpha_{ij} \mathbf{v}_j$
    """
    scores = [[sum(q * k) / 4**0.5 for k in K] for q in Q]
    alpha = [[np.exp(s) / sum(np.exp(row)) for s in row] for row in scores]
    rows = [sum(alpha[i][j] * V[j] for j in range(3)) for i in range(3)]
    assert np.allclose(rows, scaled_dot_product_attention(Q, K, V))
    assert scaled_dot_product_attention(Q[:2], K, V[:, :3]).shape == (2, 3)


def test_pytorch_calls_the_fused_kernel(page):
    """In PyTorch it calls the framework's fused kernel, unless there is dropout.

    Always call a function that may run a fused kernel: the library's
    """
    kernel = "torch.nn.functional.scaled_dot_product_attention"
    with mock.patch(kernel, wraps=torch.nn.functional.scaled_dot_product_attention) as call:
        x = torch.ones(1, 6, 4)
        for options in ({}, {"causal": True}, {"bias": x @ x.mT}):
            posattn.torch.scaled_dot_product_attention(x, x, x, **options)
    assert call.call_count == 3


def test_masked_softmax_is_the_softmax_of_attention_weights(page):
    """This is the softmax of attention_weights."""
    assert np.allclose(WEIGHTS, reference.masked_softmax(SCORES))


def test_a_walk_ends_the_root_of_its_steps_away(page):
    r"""After $d$ steps such a walk is typically about $\sqrt{d}$ away from where it started. That is
    2 at width 4, and 32 at width 1024.

    Each product of two entries is again 1 or $-1$, and the dot product adds up $d$ of them.
    """
    tosses = np.random.default_rng(2).choice([-1, 1], (2, 4000, 1024))
    walks = tosses.prod(0).cumsum(1)
    assert np.allclose((walks[:, [3, 1023]] ** 2).mean(0) ** 0.5, [2, 32], rtol=0.03)


def test_a_softmax_of_wide_scores_is_a_look_up(page):
    r"""The first gets $e^{32}$ times the weight of the second, about 80 million million times as
    much.

    Divide by $\sqrt{d}$ and the two scores are 1 and 0, at any width. The weights are then … and ….
    """
    assert 7.5e13 < np.exp(32) < 8.5e13
    near, rest = reference.masked_softmax(np.array([[1.0, 0.0]]))[0]
    assert np.allclose([page.glued["near"], page.glued["rest"]], [near, rest])


def test_the_dial(page):
    """at temperature 0.25 dog has the weight ….

    Undivided, at temperature 1, it still has ….

    At 2, where we divide, dog leads, man has a third, and bites itself is heard as well.

    at temperature 20 dog has … and bites …, and in the end every word has one third

    The weights that bites gives to the three words when its scores 3, 0 and 2 are divided by a
    temperature.
    """
    rows = {t: np.exp(np.array([3, 0, 2]) / t) for t in (0.25, 1, 2, 20, 100)}
    rows = {t: row / row.sum() for t, row in rows.items()}
    for name, t in {"cold": 0.25, "plain": 1, "hot": 20}.items():
        assert page.glued[f"{name}_dog"] == pytest.approx(rows[t][0])
        assert page.glued[f"{name}_bites"] == pytest.approx(rows[t][1])
    assert rows[0.25][0] > 0.95
    assert np.allclose(rows[2], WEIGHTS[1])
    assert rows[2].round(2).tolist() == [0.55, 0.12, 0.33]
    assert abs(rows[100] - 1 / 3).max() < 0.01
    drawn = np.stack(list(page.torch.dial.values()), 1)
    temperatures = page.torch.temperatures
    expected = np.exp(np.array([3, 0, 2]) / temperatures[:, None])
    assert np.allclose(drawn, expected / expected.sum(1, keepdims=True))


def test_only_the_contrast_changes(page):
    """The order of the words never changes along the way, only the contrast does.

    Dog falls from 1 to one third. Man rises from 0 to a little above one third and settles there.
    Bites stays near 0 until about 0.5 and then rises to one third.
    """
    dog, bites, man = page.torch.dial.values()
    assert (dog > man).all()
    assert (man > bites).all()
    assert (np.diff(dog) <= 0).all()
    assert (np.diff(bites) >= 0).all()
    assert 1 / 3 < man.max() < 0.36
    assert bites[page.torch.temperatures < 0.5].max() < 0.01


def test_a_width_is_a_temperature(page):
    """With coin tosses of width 1024 the undivided scores are 16 times as large as at width 4. For a
    softmax, that is the same as turning this dial down by a factor of 16.
    """
    assert np.sqrt(1024) == 16 * np.sqrt(4)
    assert np.allclose(
        attention_weights(Q, 16 * K, scale=1 / 2), attention_weights(Q, K, scale=16 / 2)
    )


def test_variance_of_a_dot_product(page):
    r"""Then $\mathbf{q}^\top \mathbf{k}$ has mean 0 and variance $d$, and
    $\mathbf{q}^\top \mathbf{k} / \sqrt{d}$ has variance 1.

    The division lets training begin with scores of about 1

    The variance grows with the width if we don't divide, and stays at 1 if we do.

    The division keeps the variance of scores at 1 when training starts
    """
    measured = page.torch.variances
    assert np.allclose(measured["not divided"], page.torch.widths, rtol=0.1)
    assert np.allclose(measured["divided"], 1, rtol=0.1)


def test_queries_and_keys_at_the_start_of_training(page):
    """Suppose all entries of these matrices are independent with mean 0 and variance $1/d$, and the
    squared length of every token is $d$. Then the entries of any query and of any key are independent
    with mean 0 and variance 1

    That can hold when training starts
    """
    matrices = np.random.default_rng(3).normal(size=(2, 4000, 16, 16)) / 4
    token = np.ones(16)
    entries = np.concatenate(2 * token @ matrices / 2, axis=1)  # of query and key
    assert abs(entries.mean(0)).max() < 0.1
    assert abs(np.cov(entries.T) - np.eye(32)).max() < 0.12


def test_eq_softmax_jacobian(page):
    r"""$$ \frac{\partial \alpha_{ij}}{\partial s_{il}} = \alpha_{ij}\,\big([j = l] - \alpha_{il}\big) . $$

    So $\log \alpha_{ij}$ has the derivative $[j = l] - \alpha_{il}$.
    """
    alpha = WEIGHTS[1]
    formula = [[alpha[j] * ((j == r) - alpha[r]) for j in range(3)] for r in range(3)]
    stepped = reference.masked_softmax(SCORES[1] + 1j * STEP * np.eye(3)).imag / STEP
    assert np.allclose(stepped, formula)
    assert np.allclose(page.torch.jacobian.T, formula)


def test_a_weight_takes_from_the_others(page):
    """Each column sums to 0, because a weight can grow only at the expense of the others.

    The first column is the nudge of dog again.

    With the weights 0.998, 0.001 and 0.001 no entry of the matrix reaches 0.002.
    """
    assert np.allclose(page.torch.rates, page.torch.jacobian[:, 0], atol=1e-4)
    assert np.allclose(page.torch.jacobian.sum(0), 0)
    sure = np.array([0.998, 0.001, 0.001])
    assert abs(sure[:, None] * (np.eye(3) - sure)).max() < 0.002


def test_eq_output_by_score(page):
    r"""$$ \begin{aligned}
    \frac{\partial \mathbf{y}_i}{\partial s_{il}}
    &= \sum_j \alpha_{ij}\,\big([j = l] - \alpha_{il}\big)\,\mathbf{v}_j \\
    &= \alpha_{il}\,\mathbf{v}_l - \alpha_{il}\,\mathbf{y}_i = \alpha_{il}\,(\mathbf{v}_l - \mathbf{y}_i) .
    \end{aligned} $$

    its first part keeps only the term with $j = l$, and its second part leaves $\alpha_{il}$ times the
    output

    So through a pair of weight 0, neither the query nor the key learns anything.

    The derivative of $\mathbf{y}_i$ with respect to $\mathbf{v}_l$ is the weight $\alpha_{il}$ itself
    """
    alpha = WEIGHTS[1]
    assert np.allclose(page.torch.jacobian.T @ V, alpha[:, None] * (V - alpha @ V))
    first = [sum(alpha[j] * (j == r) * V[j] for j in range(3)) for r in range(3)]
    second = [sum(alpha[j] * alpha[r] * V[j] for j in range(3)) for r in range(3)]
    assert np.allclose(first, alpha[:, None] * V)
    assert np.allclose(second, alpha[:, None] * (alpha @ V))
    raised = SCORES[1] + 1j * STEP * np.eye(3)
    stepped = (reference.masked_softmax(raised) @ V).imag / STEP
    assert np.allclose(stepped, alpha[:, None] * (V - alpha @ V))
    for key in range(3):
        moved = V + 1j * STEP * np.eye(3)[key][:, None]  # every number of one value
        assert np.allclose((alpha @ moved).imag / STEP, alpha[key])


def test_eq_attention_gradient(page):
    r"""$$ \frac{\partial y_i}{\partial \mathbf{q}_i} = \frac{1}{\sqrt{d}} \sum_{l} \alpha_{il}\,(v_l - y_i)\,\mathbf{k}_l . $$

    the query moves towards the keys whose values lie above the output, and away from the keys
    whose values lie below it. Each of these steps is proportional to the key's weight and to the
    difference of the values.
    """
    v, alpha = V[:, 2], WEIGHTS[1]
    y = alpha @ v
    formula = sum(alpha[r] * (v[r] - y) * K[r] for r in range(3)) / np.sqrt(4)
    nudged = Q[1] + 1j * STEP * np.eye(4)
    outputs = scaled_dot_product_attention(nudged, K + 0j, v[:, None] + 0j)
    assert np.allclose(outputs.imag[:, 0] / STEP, formula)
    steps = np.linalg.solve((K @ K.T), K @ outputs.imag[:, 0] / STEP)  # along each key
    assert np.allclose(steps, alpha * (v - y) / 2)
    assert steps.min() < 0 < steps.max()
    assert abs(formula).max() > 0.1


def test_the_gradient_is_measured_for_1024_queries(page):
    """for 1024 random queries with 64 keys each and five widths

    At $d = 1024$ the largest of the 64 weights is … on average without the division, and … with it.
    """
    assert page.torch.lengths["divided"][-1].size == 1024
    assert page.torch.A.shape[-1] == 64
    assert page.glued["largest_raw"] > 0.9
    assert page.glued["largest_raw"] == page.torch.largest["not divided"][-1]
    assert page.glued["largest_scaled"] == page.torch.largest["divided"][-1] < 0.2


def test_median_and_mean_of_the_gradient(page):
    """For the typical query it does vanish: the median is … without the division and … with it.

    But the mean goes up: it is … without and … with.
    """
    glued, lengths = page.glued, page.torch.lengths
    assert glued["median_raw"] == np.median(lengths["not divided"][-1])
    assert glued["median_scaled"] == np.median(lengths["divided"][-1])
    assert glued["mean_raw"] == np.mean(lengths["not divided"][-1])
    assert glued["mean_scaled"] == np.mean(lengths["divided"][-1])
    assert glued["median_raw"] < glued["median_scaled"] / 10
    assert glued["mean_raw"] > 5 * glued["mean_scaled"]


def test_the_drawn_lengths(page):
    """With the division, median and mean stay close at every width

    Length of the gradient with respect to a query: median and mean over 1024 queries, with and
    without the division by

    Without it the mean rises above 1, while the median falls by more than two orders of magnitude.
    """
    drawn = page.torch.lines
    assert (
        abs(np.stack([drawn["divided, median"], drawn["divided, mean"]]) - 0.17).max()
        < 0.06
    )
    assert drawn["not divided, mean"][-1] > 1
    assert drawn["not divided, median"].max() > 100 * drawn["not divided, median"][-1]
    for way, lengths in page.torch.lengths.items():
        assert np.array_equal(drawn[f"{way}, mean"], np.mean(lengths, axis=(1, 2)))
        assert np.array_equal(drawn[f"{way}, median"], np.median(lengths, axis=(1, 2)))


def test_queries_that_hesitate_get_the_steep_gradients(page):
    """A few queries hesitate between two keys and get steep gradients, while the others get almost none.

    Queries near $t = 0$ are the few with steep gradients.
    """
    lengths = page.torch.lengths["not divided"][-1].ravel()
    longest = lengths.argsort()[-100:]
    weights = page.torch.A.reshape(1024, 64)[
        longest
    ]  # the last: at width 1024, not divided
    two = np.sort(weights)[:, -2:]
    assert lengths[longest].sum() > 0.7 * lengths.sum()
    assert (two.mean(0) > 0.2).all()
    assert two.sum(1).mean() > 0.95


def test_a_bias_that_doubles_a_key(page):
    r"""Its exponential has to double, and for that we add $\ln 2$ to its score

    Man now leads with 0.498.

    Its weight has grown from 0.331 but not doubled, because the sum has grown too.

    A bias of minus infinity goes all the way: it hides a key
    """
    exponentials = np.exp(SCORES[1])
    doubled = exponentials * [1, 1, 2]
    row = attention_weights(Q[1:2], K, bias=np.log([[1, 1, 2]]))[0]
    assert np.allclose(row, doubled / doubled.sum())
    assert row.round(3).tolist() == [0.41, 0.092, 0.498]
    assert WEIGHTS[1, 2].round(3) == 0.331
    assert row.argmax() == 2
    hidden = attention_weights(Q[1:2], K, bias=np.array([[0, 0, -np.inf]]))[0]
    assert np.allclose(hidden, [*exponentials[:2] / exponentials[:2].sum(), 0])


def test_a_bias_is_given_positions(page):
    """The function is given the positions of the queries and the keys, so it can make far words
    count less.
    """
    seen = []

    def bias(queries, keys):
        seen.append((list(queries), list(keys)))
        return -1.0 * abs(queries[:, None] - keys)

    near = attention_weights(np.zeros((4, 2)), np.zeros((4, 2)), bias=bias)
    assert seen == [([0, 1, 2, 3], [0, 1, 2, 3])]
    assert (np.diff(near[0]) < 0).all()


def test_one_query_stands_at_the_last_of_the_keys(page):
    """If there are fewer queries than keys, the queries are taken to be the last ones."""
    x, bias = np.zeros((8, 4, 2)), reference.alibi_bias(8)
    one = attention_weights(x[:, :1], x, bias=bias)[0]
    every = attention_weights(x, x, bias=bias)[0]
    assert np.array_equal(one, every[3:])
    assert not np.allclose(one, every[:1])


def test_operations_and_memory(page):
    r"""the two matrix products take $4 n^2 d$ floating-point operations, counting a multiply-add as
    two. The weights are $n^2$ numbers, and storing them takes that much memory.

    when NumPy attends over 32 tokens of width 16, it does … operations in its matrix products, and
    that is $4 \cdot 32^2 \cdot 16$.
    """
    assert page.glued["counted"] == 4 * 32**2 * 16
    assert WEIGHTS.size == len(Q) * len(K)


def test_order_is_lacking(page):
    """Permute the keys together with their values, and nothing changes"""
    order = [2, 0, 1]
    assert np.allclose(
        scaled_dot_product_attention(Q, K[order], V[order]),
        scaled_dot_product_attention(Q, K, V),
    )


def test_a_softmax_of_ones_own(page):
    """NaN for a score of 1000

    the framework's softmax, which subtracts the largest score first
    """
    large = torch.tensor([1000.0, 0.0])
    assert torch.isnan(large.exp() / large.exp().sum())[0]
    assert torch.softmax(large, -1).isfinite().all()


def test_weights_in_bfloat16(page):
    """In bfloat16, weights are off by up to … percent, where rounding the exact weight once costs at
    most … percent.

    on scores in float32. The library does this.
    """
    q, k = torch.from_numpy(np.random.default_rng(1).normal(size=(2, 64, 64))).bfloat16()
    exact = attention_weights(q.double().numpy(), k.double().numpy())
    once = posattn.torch.attention_weights(q, k).double().numpy()
    often = torch.softmax(q @ k.mT / 8, -1).double().numpy()
    error_once, error_often = abs(np.stack([once, often]) / exact - 1).max((1, 2))
    assert np.isclose(page.glued["rounded_once"], 100 * error_once)
    assert np.isclose(page.glued["rounded_often"], 100 * error_often)
    assert error_once <= 1.001 * 2**-8
    assert error_once < error_often


def test_weights_along_the_wrong_axis(page):
    """Columns sum to 1 instead of rows, and the answer to one query changes with the other queries in
    the batch.
    """
    scores = torch.tensor(SCORES)
    wrong = torch.softmax(scores, dim=-2)
    assert np.allclose(wrong.sum(0), 1)
    assert not np.allclose(wrong.sum(1), 1)
    assert not np.allclose(wrong[:2], torch.softmax(scores[:2], dim=-2))


def test_divided_twice(page):
    """The temperature is too high, so the weights are closer to a plain mean. Divided twice, the
    largest weight of bites becomes … instead of ….

    the square root of the model's width, where the width of one head belongs
    """
    twice = attention_weights(Q, K, scale=1 / 4)
    assert abs(twice - 1 / 3).max() < abs(WEIGHTS - 1 / 3).max()
    model_width = attention_weights(
        Q, K, scale=1 / np.sqrt(8 * 4)
    )  # eight heads of width 4
    assert abs(model_width - 1 / 3).max() < abs(WEIGHTS - 1 / 3).max()
    assert np.isclose(page.glued["twice"], twice[1].max())
    assert np.isclose(page.glued["one_division"], WEIGHTS[1].max())
    assert round(WEIGHTS[1].max(), 2) == 0.55


def test_another_variance(page):
    r"""The dot product therefore has variance $81 d$, and the scale is $1/(9\sqrt{d})$."""
    q, k = page.torch.q, page.torch.k
    assert abs(np.var(q) - 9) < 0.9
    assert abs(np.var(q @ k.T / (9 * np.sqrt(64))) - 1) < 0.1


def test_a_token_that_looks_for_itself(page):
    r"""the sum of $d$ squares has mean $d$ and variance $2d$

    After the division, the score of a token with itself is about $\sqrt{d}$, while the other scores are
    about 1. So at the start of training each token attends almost only to itself.
    """
    squares, tokens = page.torch.squares, page.torch.tokens
    assert np.allclose([squares.mean(), squares.var()], [64, 128], rtol=0.05)
    scores = tokens @ tokens.T / np.sqrt(64)
    assert abs(scores.diagonal().mean() - 8) < 1
    assert abs(scores[~np.eye(64, dtype=bool)].std() - 1) < 0.1
    assert page.torch.own.mean() > 0.9


def test_a_gigabyte_of_weights(page):
    """A weight takes 4 bytes, so $4 n^2 = 2^{30}$, and $n = 2^{14}$."""
    assert 4 * (2**14) ** 2 == 2**30
    assert f"tokens: {2**14}\n" in page.printed


def test_a_query_that_hesitates(page):
    r"""the first weight $\alpha$ therefore grows at the rate
    $\frac12 \alpha (1 - \alpha) + \frac12 \alpha (1 - \alpha) = \alpha (1 - \alpha)$. This is largest
    where $\alpha = \frac12$, at $t = 0$.
    """
    t = np.linspace(-4, 4, 801)
    alpha = attention_weights(t[:, None] / 2, np.array([[1.0], [-1.0]]))[:, 0]
    rate = np.gradient(alpha, t)
    assert np.allclose(rate[1:-1], (alpha * (1 - alpha))[1:-1], atol=1e-5)
    assert t[rate.argmax()] == 0
    assert np.isclose(alpha[rate.argmax()], 1 / 2)


def test_one_key_at_a_time(page):
    r"""both sums are multiplied by $\exp(t - t')$. The mean is $\mathbf{o}/z$.

    It keeps a running maximum and a running sum for each row (exercise 5)
    """
    assert np.allclose(page.torch.o / page.torch.z, WEIGHTS[1] @ V)
    assert page.torch.t == SCORES[1].max()
