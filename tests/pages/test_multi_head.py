"""Multi-head attention."""

from unittest.mock import patch

import jax
import numpy as np
import pytest
import torch

import posattn.torch
from posattn.reference import (
    KVCache,
    MultiHeadAttention,
    attention_weights,
    merge_heads,
    scaled_dot_product_attention,
    split_heads,
)
from posattn.torch import scaled_dot_product_attention as attend

DOG, MAN, OTHER = (1, 0), (0, 1), (0, 0)
SAID = [OTHER, DOG, OTHER, OTHER, MAN]
EXCHANGED = [OTHER, MAN, OTHER, OTHER, DOG]
LAYER = MultiHeadAttention.init(np.random.default_rng(0), 12, 3)
W_Q, W_K, W_V, W_O = (
    getattr(LAYER, f"{name}_weight") for name in ("query", "key", "value", "output")
)
X, CONTEXT = np.random.default_rng(1).normal(size=(2, 7, 12))
TARGET = np.linalg.qr(np.random.default_rng(0).normal(size=(4000, 16)))[0]
V_0, V_1 = np.split(TARGET, 2, axis=1)
PIECES = np.random.default_rng(0).normal(size=(3, 6, 8))  # queries, keys and values
GROUPED = np.random.default_rng(0)
EIGHT, (KEYS, VALUES) = GROUPED.normal(size=(8, 6, 4)), GROUPED.normal(size=(2, 2, 6, 4))


def columns(x, h):
    """The columns of head h, of width 4."""
    return x[:, h * 4 : (h + 1) * 4]


def lost(*heads):
    """The share of the target that the best matrix does not get from what some heads return."""
    seen = np.hstack(heads)
    estimate = seen @ np.linalg.lstsq(seen, TARGET)[0]
    return ((estimate - TARGET) ** 2).sum() / (TARGET**2).sum()


def parameters(H):
    """How many numbers a layer of width 8 has."""
    layer = vars(MultiHeadAttention.init(np.random.default_rng(0), 8, H))
    return sum(value.size for value in layer.values() if hasattr(value, "size"))


def test_what_the_heads_find(page):
    """The first head asks for a noun that comes earlier, the second for a noun that comes later.

    the first head finds dog and the second finds man. The single head asks both questions in one dot
    product, which adds the two scores. Dog gets 2 points from the first question and 1 from the second,
    while man gets 1 and 2, so they tie at 3 and share the weight.

    A key gets one point for being a noun and another for being on the side that the head asks for.
    """
    first, second, single = page.torch.panels[:, 2]
    assert np.allclose([first[1], second[4], *single[[1, 4]]], [1, 1, 0.5, 0.5], atol=0.001)
    Q, K = page.torch.Q, page.torch.K
    both = Q[:, :6] @ K[:, :6].T + Q[:, 6:] @ K[:, 6:].T
    assert np.allclose(Q @ K.T, both)
    before, after = Q[2, :6] @ K[:, :6].T / 20, Q[2, 6:] @ K[:, 6:].T / 20
    assert before[[1, 4]].tolist() == [2, 1]
    assert after[[1, 4]].tolist() == [1, 2]
    assert (before + after).max() == 3


def test_other_rows_have_no_such_luck(page):
    """A head always gives out a total weight of 1, even when it finds nothing. Before the first the there
    is no noun at all, so the weight of the first head goes to the two nouns that come after, because
    they have one point each and no key has two.
    """
    assert np.allclose(page.torch.panels.sum(-1), 1)
    first = page.torch.panels[0, 0]
    points = page.torch.Q[0, :6] @ page.torch.K[:, :6].T / 20
    assert points.tolist() == [0, 1, 0, 0, 1]
    assert np.allclose(first[[1, 4]], 0.5, atol=0.001)


def test_one_head_by_hand(page):
    r"""and the mean is half a dog and half a man.

    The mean is half a man and half a dog, which is the same vector, so bites knows who was involved,
    but not who bit whom.

    For bites, one head with the weights $\tfrac12$ and $\tfrac12$ returns $\tfrac12 (1, 0) + \tfrac12
    (0, 1) = (\tfrac12, \tfrac12)$, and it returns the same when dog and man change places.

    The first and third lines are equal, so one head can't tell the two sentences apart
    """
    one = np.array([0, 0.5, 0, 0, 0.5])
    assert np.array_equal(one @ SAID, [0.5, 0.5])
    assert np.array_equal(one @ EXCHANGED, [0.5, 0.5])
    assert page.printed.count("one head:  [0.5 0.5]\n") == 2


def test_two_heads_by_hand(page):
    """Two heads return $(1, 0)$ and $(0, 1)$, which is $(1, 0, 0, 1)$ when they are written next to each
    other. When dog and man change places, it becomes $(0, 1, 1, 0)$.

    The second and fourth differ, so two heads can.
    """
    two = np.eye(5)[[1, 4]]
    assert np.array_equal((two @ SAID).ravel(), [1, 0, 0, 1])
    assert np.array_equal((two @ EXCHANGED).ravel(), [0, 1, 1, 0])
    assert "two heads: [1 0 0 1]\n" in page.printed
    assert "two heads: [0 1 1 0]\n" in page.printed


def test_uneven_weights(page):
    r"""With $\tfrac34$ and $\tfrac14$ the two sentences do come out differently."""
    uneven = np.array([0, 3 / 4, 0, 0, 1 / 4])
    assert not np.array_equal(uneven @ SAID, uneven @ EXCHANGED)


def test_one_equation_for_two_unknowns(page):
    r"""Then $\tfrac34 a + \tfrac14 b = 2.5$, which is one equation for two unknowns: $a = 3$ and $b =
    1$ is a solution, and so is $a = b = 2.5$.
    """
    assert np.allclose([[3, 1], [2.5, 2.5]] @ np.array([3 / 4, 1 / 4]), 2.5)


def test_a_second_equation(page):
    r"""A second head with the weights $\tfrac14$ and $\tfrac34$ returns, say, $1.5$ and gives a second
    equation, $\tfrac14 a + \tfrac34 b = 1.5$, and now only $a = 3$ and $b = 1$ fits
    """
    both = [[3 / 4, 1 / 4], [1 / 4, 3 / 4]]
    assert np.linalg.matrix_rank(both) == 2
    assert np.allclose(np.linalg.solve(both, [2.5, 1.5]), [3, 1])
    assert "a and b: [3. 1.]\n" in page.printed


def test_eq_heads(page):
    r"""$$ \mathbf{Q}_h = \left[\mathbf{Q}\mathbf{W}^{(q)}\right]_h, \quad
    \mathbf{K}_h = \left[\mathbf{K}\mathbf{W}^{(k)}\right]_h, \quad
    \mathbf{V}_h = \left[\mathbf{V}\mathbf{W}^{(v)}\right]_h . $$

    head $h$ takes its share of the columns of each product, $h d_h, \ldots, (h + 1) d_h - 1$.

    give each head its own matrices of shape $d \times d_h$, which are blocks of columns of ours.

    With $d = 8$ and $H = 2$, for example, head 0 works in columns 0 to 3 and head 1 in columns 4 to 7.
    """
    first, second = split_heads(np.arange(8.0)[None], 2)
    assert (first.tolist(), second.tolist()) == ([[0, 1, 2, 3]], [[4, 5, 6, 7]])
    for x, W in ((X, W_Q), (CONTEXT, W_K), (CONTEXT, W_V)):
        heads = split_heads(x @ W, 3)
        for h in range(3):
            assert np.allclose(heads[h], columns(x @ W, h))
            assert np.allclose(heads[h], x @ columns(W, h))


def test_eq_multi_head(page):
    r"""$$ \begin{aligned}
    \mathbf{H}_h &= \operatorname{softmax}\left(\frac{\mathbf{Q}_h \mathbf{K}_h^\top}{\sqrt{d_h}}\right) \mathbf{V}_h \in \mathbb{R}^{n_q \times d_h}, \\
    \mathbf{Y} &= \left[\mathbf{H}_0, \ldots, \mathbf{H}_{H-1}\right] \mathbf{W}^{(o)} \in \mathbb{R}^{n_q \times d}.
    \end{aligned} $$

    Nothing in eq_multi-head says that queries and keys come from the same sequence.

    the output of head $h$ meets only the $d_h$ rows of $\mathbf{W}^{(o)}$ with the numbers of its columns,
    so every head has a small matrix of its own, and $\mathbf{Y}$ is the sum of what these matrices make
    of the heads' outputs.
    """
    H = []
    for h in range(3):
        scores = X @ columns(W_Q, h) @ (CONTEXT @ columns(W_K, h)).T / np.sqrt(4)
        weights = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
        H.append(weights @ (CONTEXT @ columns(W_V, h)))
        assert H[h].shape == (7, 4)
    Y = np.hstack(H) @ W_O
    assert Y.shape == (7, 12)
    assert np.allclose(LAYER(X, CONTEXT, CONTEXT), Y)
    assert np.allclose(sum(H[h] @ W_O[h * 4 : (h + 1) * 4] for h in range(3)), Y)


def test_three_tokens_in_two_heads(page):
    """Each head has all three tokens, and half of the columns of each: head 0 has columns 0 and 1, head 1
    has columns 2 and 3.

    the tens digit of each number tells its token and the last digit its column
    """
    token, column = np.indices((3, 4))
    assert np.array_equal(page.torch.numbered, 10 * token + column)
    assert "head 0: [[0, 1], [10, 11], [20, 21]]\n" in page.printed
    assert "head 1: [[2, 3], [12, 13], [22, 23]]\n" in page.printed
    assert np.array_equal(split_heads(page.torch.numbered * 1.0, 2), page.torch.halves)


def test_shapes_in_the_layer(page):
    r"""| projected queries | $(n_q, d)$ |

    | the same, cut into heads | $(H, n_q, d_h)$ |

    | scores and weights | $(H, n_q, n_k)$ |

    | what the heads return | $(H, n_q, d_h)$ |

    | the same, side by side | $(n_q, d)$ |
    """
    n_q, n_k, d, H, d_h = 7, 5, 12, 3, 4
    projected = X @ W_Q
    q, k, v = (split_heads(x, H) for x in (projected, X[:n_k] @ W_K, X[:n_k] @ W_V))
    weights = attention_weights(q, k)
    returned = weights @ v
    assert projected.shape == (n_q, d)
    assert q.shape == (H, n_q, d_h)
    assert weights.shape == (H, n_q, n_k)
    assert returned.shape == (H, n_q, d_h)
    assert merge_heads(returned).shape == (n_q, d)


def test_an_offset_for_each_projection(page):
    """With use_bias=True it adds a learned vector to each projection."""
    layer = posattn.torch.MultiHeadAttention(8, 2, use_bias=True)
    roles = {name.split(".")[0] for name, _ in layer.named_parameters() if "bias" in name}
    assert roles == {"query", "key", "value", "output"}


def test_the_layer_of_torch(page):
    """With the same weights, `torch.nn.MultiheadAttention` gives the same output, and so does
    `jax.nn.dot_product_attention` between our projections.
    """
    own = torch.nn.MultiheadAttention(
        12, 3, bias=False, batch_first=True, dtype=torch.float64
    )
    projections = np.hstack([W_Q, W_K, W_V]).T
    own.load_state_dict(
        {
            "in_proj_weight": torch.tensor(projections),
            "out_proj.weight": torch.tensor(W_O.T),
        }
    )
    made = LAYER(X, CONTEXT, CONTEXT)
    y, _ = own(*map(torch.tensor, (X, CONTEXT, CONTEXT)))
    assert np.allclose(y.detach(), made)
    pairs = ((X, W_Q), (CONTEXT, W_K), (CONTEXT, W_V))
    heads = jax.nn.dot_product_attention(*((x @ W).reshape(7, 3, 4) for x, W in pairs))
    assert np.allclose(heads.reshape(7, 12) @ W_O, made, atol=1e-5)


def test_exactly_orthogonal_columns(page):
    """Let's measure it on 4000 random pairs. A finite sample is only nearly uncorrelated, so qr makes its 16
    columns exactly orthogonal.
    """
    drawn = np.corrcoef(np.random.default_rng(0).normal(size=(4000, 16)).T) - np.eye(16)
    assert 0 < abs(drawn).max() < 0.1
    assert TARGET.shape == (4000, 16)
    assert np.allclose(TARGET.T @ TARGET, np.eye(16), atol=1e-12)


@pytest.mark.parametrize("angle", np.linspace(0, 3, 9))
def test_one_head_loses_half(page, angle):
    r"""Take one head whose queries and keys do not depend on the values. Whatever its four matrices, its
    relative error is at least $\tfrac12$.

    asked for two values, one head loses at least half of what it should bring back

    from the mean of two values no linear map recovers both: half of what was asked is lost
    """
    assert np.isclose(lost(np.cos(angle) * V_0 + np.sin(angle) * V_1), 1 / 2)


def test_two_heads_lose_nothing(page):
    r"""If $\alpha_0 \alpha_1' \neq \alpha_1 \alpha_0'$, there are matrices with which they make no error.

    One head loses half, however it divides its attention, even when it gives all of it to one value and so
    brings back that value perfectly. The two heads of the last line have soft weights and still make no
    error, because heads don't have to be sharp, they only have to differ.
    """
    first, second = 0.9 * V_0 + 0.1 * V_1, 0.1 * V_0 + 0.9 * V_1
    assert lost(first, second) < 1e-20
    assert np.isclose(lost(first, 2 * first), 1 / 2)
    lines = [line for line in page.printed.splitlines() if "relative error" in line]
    errors = [float(line.split()[-1]) for line in lines]
    assert errors == [0.5, 0.5, 0.5, 0]
    assert lines[0].startswith("weights (1.0, 0.0) ")
    assert "(0.9, 0.1) (0.1, 0.9)" in lines[-1]


def test_a_residual_connection_helps_one_head(page):
    """The same is true if one of the values comes through a residual connection, which adds the token
    itself to the output.
    """
    assert lost(V_0 + V_1, V_1) < 1e-20


def test_an_induction_head(page):
    """Every token attends to the one before it, and writes what it saw there into its own vector.

    so the head attends to dog and proposes dog as the next token.

    In the first panel of fig-induction each token attends to the one before it, except for the first,
    which has only itself. In the last row of the second panel, the second the finds dog. The other rows
    have no match, so all their scores are 0 and they spread their weight evenly over the past.

    it completes [A] [B] ... [A] with [B]
    """
    previous, induction = page.torch.roles
    assert np.allclose(previous, [[1, 0, 0, 0], *np.eye(4)[:3]], atol=1e-6)
    even = np.tri(4) / np.arange(1, 5)[:, None]
    assert np.allclose(induction[:3], even[:3])
    assert np.allclose(induction[3], [0, 1, 0, 0], atol=1e-6)
    assert np.allclose(page.torch.copied, [0, 1, 0], atol=1e-6)
    assert "the second 'the' attends to: dog\n" in page.printed
    assert "and copies: {'the': 0.0, 'dog': 1.0, 'bites': 0.0}\n" in page.printed


def test_who_has_written_down_the(page):
    """At the second the, the induction head asks who has seen the just before it. Dog has, because the
    first the came right before it
    """
    scores = page.torch.tokens @ page.torch.written_down.T
    assert np.allclose(np.tril(scores)[:3], 0, atol=1e-6)  # no match in the other rows
    written, words = page.torch.written_down, page.torch.said
    holds = [word for word, row in zip(words, written, strict=True) if row[0] > 0.5]
    assert holds == ["dog"]


def test_the_german_sentence(page):
    """the German sentence den Mann beißt der Hund, which says the dog bites the man with the object first."""
    p = page.torch
    english = [p.pairs[word] for word in p.target]
    assert english == ["the", "man", "bites", "the", "dog"]
    assert p.source == ["the", "dog", "bites", "the", "man"]
    assert english == p.source[3:] + p.source[2:3] + p.source[:2]


def test_a_dictionary_in_a_matrix(page):
    """Multiply the vector of Hund by this matrix, and you get nearly the vector of dog, because the dot
    product of Hund with itself is about 64, and with the other German vectors it is much smaller. So the
    query of Hund is nearly the key of dog, and the score of the two is large
    """
    p = page.torch
    hund, dog = p.german["Hund"], p.english["dog"]
    products = {word: hund @ vector for word, vector in p.german.items()}
    assert 45 < products.pop("Hund") < 85
    assert max(abs(product) for product in products.values()) < 25
    found = hund @ p.dictionary
    assert found @ dog / np.linalg.norm(found) / np.linalg.norm(dog) > 0.9
    assert np.allclose(p.query[4], found)
    scores = p.query[4] @ p.key.T
    assert scores[1] > 45 > 25 > abs(np.delete(scores, 1)).max()


def test_the_alignment(page):
    """Mann, beißt and Hund find their partners, although the order is different.

    since a dictionary cannot say which the, they give half their weight to each

    den and der give one half to each the
    """
    the, man, bites, other, dog = page.torch.alignment
    assert min(man[4], bites[2], dog[1]) > 0.95
    assert np.allclose([the[[0, 3]], other[[0, 3]]], 0.5, atol=0.02)


@pytest.mark.parametrize("G", [8, 2])
def test_the_cache(page, G):
    r"""the cache shrinks to $2 n\,G d_h$ numbers

    For $n$ tokens that is $2 n d$ numbers in each layer, and all of them are loaded again for each new token

    The queries still have $H$ heads, so there are as many rows of weights as before

    and the layer's cache (/model) keeps only $G$ heads
    """
    n, d, d_h = 6, 8, 1
    layer = MultiHeadAttention.init(np.random.default_rng(0), d, 8, num_kv_heads=G)
    _, kept = layer(np.ones((n, d)), cache=KVCache.init((), G, n, d_h))
    assert kept.key.size + kept.value.size == 2 * n * G * d_h
    assert kept.key.shape[-3] == G
    queries, keys = np.ones((8, n, d_h)), np.ones((G, n, d_h))
    assert attention_weights(queries, keys).shape == (8, n, n)


def test_the_frameworks_group_by_themselves(page):
    """With 8 heads of queries and 2 of keys and values, the function agrees with the library

    jax.nn.dot_product_attention always does, and torch.nn.functional.scaled_dot_product_attention
    does with enable_gqa=True.
    """
    mine = page.torch.grouped(EIGHT, KEYS, VALUES)
    inputs = EIGHT, KEYS, VALUES
    by_torch = torch.nn.functional.scaled_dot_product_attention(
        *(torch.tensor(x)[None] for x in inputs), enable_gqa=True
    )
    assert np.allclose(by_torch[0], mine)
    by_jax = jax.nn.dot_product_attention(*(x.swapaxes(0, 1) for x in inputs))
    assert np.allclose(by_jax.swapaxes(0, 1), mine, atol=1e-5)


def test_no_keys_are_repeated(page):
    """In this library scaled_dot_product_attention groups whenever keys have fewer heads than queries

    Neither of them repeats keys
    """
    assert np.allclose(
        scaled_dot_product_attention(EIGHT, KEYS, VALUES),
        page.torch.grouped(EIGHT, KEYS, VALUES),
    )
    with patch("torch.nn.functional.scaled_dot_product_attention") as called:
        attend(torch.ones(8, 6, 4), *torch.ones(2, 2, 6, 4))
    assert called.call_args.args[1].shape[-3:] == (2, 6, 4)


def test_the_cache_of_mistral(page):
    r"""If every head has its own keys and values, a layer keeps $2 \cdot 8192 \cdot 32 \cdot 128$ numbers of 2
    bytes, and with 32 layers the cache takes … GiB. With the 8 key-value heads that Mistral 7B has, it
    takes … GiB, and with a single one it takes … GiB.
    """
    whole = KVCache.init((), 32, 8192, 128)
    assert whole.key.size + whole.value.size == 2 * 8192 * 32 * 128
    for heads, size in ((32, 4), (8, 1), (1, 1 / 8)):
        cache = KVCache.init((), heads, 8192, 128)
        numbers = 32 * (cache.key.size + cache.value.size)
        assert page.glued[f"cache_{heads}"] == 2 * numbers / 2**30 == size


def test_heads_are_free_in_parameters(page):
    r"""They divide the columns of four $d \times d$ matrices among themselves, so at width 8 there are …
    numbers for one head and for eight.
    """
    assert page.glued["parameters"] == parameters(1) == parameters(8) == 4 * 8 * 8


def test_the_memory_for_weights(page):
    """Heads also need memory wherever the weights are stored, since there are $H n_q n_k$ of them."""
    heads = (split_heads(x, 2) for x in (page.torch.Q, page.torch.K))
    assert attention_weights(*heads).size == 2 * 5 * 5


@pytest.mark.parametrize("H", [3, 6, 12])
def test_the_rank_of_a_head(page, H):
    r"""The scores of a head, $\mathbf{Q}_h \mathbf{K}_h^\top$, have rank at most $d_h$

    With head dimension 1, a score is just the product of two numbers, so apart from its sign every query
    ranks the keys in the same order.
    """
    q, k = split_heads(X @ W_Q, H), split_heads(X @ W_K, H)
    scores = q @ k.mT
    assert np.linalg.matrix_rank(scores).max() == 12 // H
    if H == 12:
        order = np.argsort(scores * np.sign(q), axis=-1)
        assert (order == order[:, :1]).all()


def test_a_reshape_that_mixes_tokens(page):
    """a head now holds half of the tokens, when it should hold half of the columns.

    numbered.reshape(2, 3, 2) gives head 0 the rows [0, 1], [2, 3] and [10, 11], which is all of the first
    token and half of the second.

    outputs that are off by 1.20 or 1.22 are wrong altogether, and yet both have the right shape.

    cut the width first, then swap the axes
    """
    first = page.torch.numbered.reshape(2, 3, 2)[0]
    assert first.tolist() == [[0, 1], [2, 3], [10, 11]]
    assert page.printed.count("only:    off by 1.20\n") == 1
    assert page.printed.count("only: off by 1.22\n") == 1
    q, _, _ = PIECES
    assert np.array_equal(q.reshape(2, 6, 4)[0].ravel(), q[:3].ravel())
    assert np.array_equal(split_heads(q, 2), q.reshape(6, 2, 4).swapaxes(0, 1))
    heads = scaled_dot_product_attention(*(split_heads(x, 2) for x in PIECES))
    cut = scaled_dot_product_attention(*(x.reshape(2, 6, 4) for x in PIECES))
    wrong = {"cut by a reshape only:   ": merge_heads(cut)}
    wrong["joined by a reshape only:"] = heads.reshape(6, 8)
    for name, y in wrong.items():
        moved = abs(y - merge_heads(heads)).max()
        assert moved > 0.1
        assert f"heads {name} off by {moved:.2f}\n" in page.printed


def test_groups_in_the_wrong_order(page):
    """the copies come in the order 0, 1, 0, 1, so head 1 meets the keys of group 1, when it belongs to
    group 0. For the eight heads above, outputs are off by up to ….

    because neighbors share.
    """
    groups = np.arange(2)
    assert np.tile(groups, 4)[:4].tolist() == [0, 1, 0, 1]
    assert np.tile(groups, 4)[1] == 1
    assert np.repeat(groups, 4)[1] == 0
    right = scaled_dot_product_attention(EIGHT, KEYS, VALUES)
    tiled, shared = (
        scaled_dot_product_attention(EIGHT, *(x[order] for x in (KEYS, VALUES)))
        for order in (np.tile(groups, 4), np.repeat(groups, 4))
    )
    assert np.allclose(shared, right)
    assert page.glued["tiled"] == pytest.approx(abs(tiled - right).max())
    assert page.glued["tiled"] > 0.1


def test_whose_columns(page):
    """(a) The first $d_h$ columns, because the heads are next to each other and the identity mixes nothing.

    (b) Swap its rows in the same way
    """
    W, order = np.random.default_rng(1).normal(size=(4, 8, 8)), [4, 5, 6, 7, 0, 1, 2, 3]
    same, less = W.copy(), W.copy()
    same[3] = less[3] = np.eye(8)
    less[2, :, :4] = 0  # the values of head 0
    y, without = (MultiHeadAttention(*w, num_heads=2)(*PIECES) for w in (same, less))
    assert np.array_equal((y != without).any(0), np.arange(8) < 4)

    here, there, stayed = (
        MultiHeadAttention(*w, num_heads=2)(*PIECES)
        for w in (W, [*W[:3, :, order], W[3, order]], [*W[:3, :, order], W[3]])
    )
    assert np.allclose(here, there)
    assert not np.allclose(here, stayed)


def test_room_for_text(page):
    r"""A token takes $2 \cdot 32 \cdot G \cdot 128$ numbers, and each of them takes 2 bytes."""
    for G, tokens in ((32, 16384), (8, 65536), (1, 524288)):
        one = KVCache.init((), G, 1, 128)
        assert 32 * (one.key.size + one.value.size) == 2 * 32 * G * 128
        assert tokens == 8 * 2**30 // (2 * 2 * 32 * G * 128)
        assert f"with {G:2} heads of keys: {tokens} tokens\n" in page.printed


def test_a_penalty_on_distance(page):
    r"""If you subtract $\lambda\,|i - j|$ from the score of query $i$ and key $j$, with some number
    $\lambda > 0$, nearer keys get more weight.
    """
    i, (_, k, _) = np.arange(6.0)[:, None], PIECES
    near = attention_weights(0 * k, k, bias=-0.3 * abs(i - i.T))
    assert (np.diff(near[0]) < 0).all()
    assert (np.diff(near[5]) > 0).all()


def test_a_penalty_that_does_nothing(page):
    r"""It multiplies every $\exp(s_{ij})$ of row $i$ by the same factor $\exp(-\lambda\,i)$, which
    cancels in the quotient.

    Show that subtracting $\lambda\,i$ instead changes nothing.
    """
    i, (q, k, _) = np.arange(6.0)[:, None], PIECES
    weights = attention_weights(q, k)
    assert np.allclose(attention_weights(q, k, bias=-(i + 0 * i.T)), weights, atol=1e-12)
    assert page.torch.change < 1e-12
    assert "penalty by the query only  changes a weight by at most 0.00\n" in page.printed


@pytest.mark.parametrize("epsilon", [0.4, 0.1, 0.01])
def test_two_heads_that_are_almost_one(page, epsilon):
    r"""The determinant of the two equations is $2\varepsilon$. So $\mathbf{v}_0$ is the first output
    times $(\tfrac12 + \varepsilon) / (2\varepsilon)$ minus the second times $(\tfrac12 - \varepsilon)
    / (2\varepsilon)$
    """
    weights = np.array(
        [[1 / 2 + epsilon, 1 / 2 - epsilon], [1 / 2 - epsilon, 1 / 2 + epsilon]]
    )
    assert np.isclose(np.linalg.det(weights), 2 * epsilon)
    first, second = weights @ [5, 7]
    v_0 = first * (1 / 2 + epsilon) / (2 * epsilon) - second * (1 / 2 - epsilon) / (
        2 * epsilon
    )
    assert np.isclose(v_0, 5)


def test_factors_of_two_heads_that_are_almost_one(page):
    r"""For small $\varepsilon$ both factors grow like $1 / (4\varepsilon)$"""
    assert np.allclose(abs(page.torch.factors) * 4 * page.torch.epsilon, 1, atol=0.03)
    assert page.torch.epsilon == 0.01
