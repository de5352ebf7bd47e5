"""Self-attention does not see order."""

from itertools import permutations

import numpy as np
import pytest
import torch

from posattn import reference
from posattn.reference import causal_mask, length_mask, window_mask
from posattn.reference import scaled_dot_product_attention as attend
from posattn.torch import PositionalEncoding

ORDERS = [list(p) for p in permutations(range(5))]
SWAP = [0, 4, 2, 3, 1]
DOG = ["the", "dog", "bites", "the", "man"]
MAN = ["the", "man", "bites", "the", "dog"]
NUMBERS = np.array([[2.0], [1.0], [0.0]])  # dog, bites, man
TOKENS, W_Q, W_K, W_V = np.random.default_rng(1).normal(size=(4, 5, 5))
SCORES = (TOKENS @ W_Q) @ (TOKENS @ W_K).T / np.sqrt(5)


def f(X, **mask):
    """Self-attention as the library has it."""
    return attend(X @ W_Q, X @ W_K, X @ W_V, **mask)


def softmax(S):
    """The softmax of each row."""
    return np.exp(S) / np.exp(S).sum(1, keepdims=True)


def matrix(order):
    """The permutation matrix, whose row i has its 1 in column order[i]."""
    return np.eye(5)[order]


def keeps(mask, order):
    """Whether the permutation leaves a mask as it is."""
    Pi = matrix(order)
    return np.array_equal(Pi @ mask @ Pi.T, mask)


def test_the_same_five_words(page):
    r"""The same five words, but in the first sentence the man gets hurt and in the second
    the dog.

    $\pi = (0, 4, 2, 3, 1)$ turns *the dog bites the man* into *the man bites the dog*
    """
    assert sorted(DOG) == sorted(MAN)
    assert [DOG[i] for i in SWAP] == MAN
    assert page.torch.swap.tolist() == SWAP


def test_only_positions_tell_who_bites(page):
    r"""six animals and all 30 sentences of the form A bites B

    the two sentences about a pair of animals always need opposite answers

    With positions the task is easy

    Without them the loss does not move: it stays at $\ln 2 = 0.69$, which is the loss of
    tossing a coin.
    """
    assert page.torch.sentences.shape == (30, 3, 8)
    assert page.torch.answers.mean() == 1 / 2
    answers = dict(zip(page.torch.pairs, page.torch.answers.tolist(), strict=True))
    assert all(answers[a, b] != answers[b, a] for a, b in answers)
    words, positions = page.torch.learned.values()
    assert np.allclose(words, np.log(2), atol=0.003)
    assert min(words) > 0.693
    assert round(np.log(2), 2) == 0.69
    assert positions[0] > 0.69
    assert positions[-1] < 0.1


def test_a_sentence_and_its_mirror_cost_a_coin_toss(page):
    r"""The right answers are opposite, so if one of the two losses is $\ln(1 + e^{z})$, the
    other is $\ln(1 + e^{-z})$. Their mean is smallest at $z = 0$, where it is $\ln 2$.
    """
    z = np.linspace(-5, 5, 101)
    mean = (np.log1p(np.exp(z)) + np.log1p(np.exp(-z))) / 2
    assert z[mean.argmin()] == pytest.approx(0)
    assert mean.min() == pytest.approx(np.log(2))
    one, other = torch.tensor([1.0, 0.0]), torch.tensor([0.7, 0.7])
    losses = torch.nn.functional.binary_cross_entropy_with_logits(
        other, one, reduction="none"
    )
    assert np.allclose(sorted(losses), np.log1p(np.exp([-0.7, 0.7])))


def test_each_word_comes_out_the_same(page):
    """bites gets the same output in both sentences, and so does every other word

    On the left each word has the same bar in both sentences. On the right none has

    In man bites dog the terms come in another order, above and below the bar, and both sums
    stay the same.
    """
    alone, masked = page.torch.given.values()
    assert np.allclose(alone[0], alone[1][::-1])
    assert not np.isclose(masked[0], masked[1][::-1]).any()


def test_the_numbers_of_the_words(page):
    """Let dog, bites and man be the numbers 2, 1 and 0

    The three words in both orders, each with its output as a bar.
    """
    assert page.torch.three.ravel().tolist() == [2, 1, 0]
    assert [page.torch.number[word] for word in ("dog", "bites", "man")] == [2, 1, 0]


def test_bites_by_hand(page):
    r"""*dog* gets 1.85 in both sentences, *bites* gets 1.58, and *man* gets 1.00.

    so its scores are 2, 1 and 0. (The width is 1, so dividing by its square root changes
    nothing.) Their exponentials are 7.39, 2.72 and 1

    $$ \frac{7.39 \cdot 2 + 2.72 \cdot 1 + 1 \cdot 0}{7.39 + 2.72 + 1} = \frac{17.50}{11.11} = 1.58 . $$
    """
    assert np.exp(NUMBERS[1] @ NUMBERS.T).round(2).tolist() == [7.39, 2.72, 1]
    assert np.allclose([7.39 * 2 + 2.72 * 1 + 1 * 0, 7.39 + 2.72 + 1], [17.50, 11.11])
    assert round(17.50 / 11.11, 2) == 1.58
    for order in ([0, 1, 2], [2, 1, 0]):
        x = NUMBERS[order]
        assert attend(x, x, x)[np.argsort(order), 0].round(2).tolist() == [1.85, 1.58, 1.00]


def test_eq_self_attention_map(page):
    r"""$$ f(\mathbf{X}) = \operatorname{softmax}\left(\mathbf{S}(\mathbf{X})\right)\,\mathbf{X}\mathbf{W}^{(v)}, \qquad \mathbf{S}(\mathbf{X}) = \frac{\mathbf{X}\mathbf{W}^{(q)}\,\big(\mathbf{X}\mathbf{W}^{(k)}\big)^\top}{\sqrt{d_h}}, $$"""
    S = (TOKENS @ W_Q) @ (TOKENS @ W_K).T / np.sqrt(5)
    assert np.allclose(softmax(S) @ TOKENS @ W_V, f(TOKENS))


def test_permutation_matrices(page):
    r"""Row $i$ of $\boldsymbol{\Pi}$ has its 1 in column $\pi(i)$, so row $i$ of
    $\boldsymbol{\Pi}\mathbf{X}$ is $\mathbf{x}_{\pi(i)}$

    $\boldsymbol{\Pi}^\top \boldsymbol{\Pi} = \mathbf{I}$, because the columns are the unit
    vectors in some order.

    $(\boldsymbol{\Pi}\mathbf{S}\boldsymbol{\Pi}^\top)_{ij} = s_{\pi(i)\pi(j)}$

    The second step holds because every column of $\boldsymbol{\Pi}$ has a single 1
    """
    for order in ORDERS:
        Pi = matrix(order)
        assert np.array_equal(Pi @ TOKENS, TOKENS[order])
        assert np.array_equal(Pi.T @ Pi, np.eye(5))
        assert np.array_equal(Pi @ SCORES @ Pi.T, SCORES[np.ix_(order, order)])
        assert (Pi.sum(0) == 1).all()


def test_eq_equivariance(page):
    r"""$$ f(\boldsymbol{\Pi}\mathbf{X}) = \boldsymbol{\Pi} f(\mathbf{X}). $$

    A mask keeps the symmetry only for the permutations that leave the mask as it is.
    """
    for order in ORDERS:
        Pi = matrix(order)
        assert np.allclose(f(Pi @ TOKENS), Pi @ f(TOKENS))


def test_eq_softmax_permutes(page):
    r"""$$ \frac{\exp s_{\pi(i)\pi(j)}}{\sum_{l=0}^{n-1} \exp s_{\pi(i)\pi(l)}}
    = \frac{\exp s_{\pi(i)\pi(j)}}{\sum_{l=0}^{n-1} \exp s_{\pi(i)l}}, $$

    The right side is entry $(\pi(i), \pi(j))$ of $\operatorname{softmax}(\mathbf{S})$
    """
    for order in ORDERS:
        Pi = matrix(order)
        permuted = softmax(Pi @ SCORES @ Pi.T)
        for i, j in ((0, 1), (3, 3), (4, 2)):
            above = np.exp(SCORES[order[i], order[j]])
            left = above / sum(np.exp(SCORES[order[i], order[n]]) for n in range(5))
            right = above / sum(np.exp(SCORES[order[i], n]) for n in range(5))
            assert np.allclose([left, right], permuted[i, j])
        assert np.allclose(permuted, softmax(SCORES)[np.ix_(order, order)])


def test_several_heads_are_equivariant(page):
    """since both steps leave the rows in place, {prf:ref}`thm-equivariance` holds for
    {doc}`/attention/multi_head` too.
    """
    X = page.torch.X
    layer = reference.MultiHeadAttention.init(np.random.default_rng(0), 8, 2)
    there, here = layer(*[X[SWAP]] * 3), layer(*[X] * 3)
    assert np.allclose(there, here[SWAP], atol=1e-5)
    assert not np.allclose(there, here, atol=0.01)


def test_the_outputs_did_change(page):
    r"""the second checks {eq}`eq_equivariance`: the difference is 0. That 0 would mean little
    if the swap had left the outputs as they were. The third line shows that it did not,
    because $f(\boldsymbol{\Pi}\mathbf{X})$ and $f(\mathbf{X})$ are far apart.

    A classifier on top of this average gives A bites B and B bites A the same score
    """
    X, W = page.torch.X, page.torch.W
    y, permuted = attend(*(X @ W)), attend(*(X[SWAP] @ W))
    assert abs(permuted - y).max() > 1
    assert np.allclose(permuted.mean(0), y.mean(0), atol=1e-5)
    assert page.printed.count("f(Pi X) and Pi f(X) differ by at most 0.0000") == 2


def test_rows_and_columns_of_the_weights_change_places(page):
    """*Dog* and *man* have changed places, and so have the rows 1 and 4 and the columns 1
    and 4. Every number is still there.

    Row 1 on the left and row 4 on the right hold the same numbers, with the second and the
    last exchanged.

    in each panel the rows 0 and 3 are equal, because both are the
    """
    left, right = page.torch.heads
    assert np.allclose(right, left[np.ix_(SWAP, SWAP)], atol=1e-6)
    assert (DOG[1], MAN[4]) == ("dog", "dog")
    assert np.allclose(right[4], left[1][SWAP])
    assert [SWAP[i] for i in (1, 4)] == [4, 1]
    assert all(np.allclose(weights[0], weights[3]) for weights in (left, right))


def test_an_encoding_breaks_the_symmetry(page):
    r"""but its input is now $\boldsymbol{\Pi}\mathbf{X} + \mathbf{P}$, which is not
    $\boldsymbol{\Pi}(\mathbf{X} + \mathbf{P})$

    four columns of the mean of the outputs, without the encoding and with it

    Without positions, both sentences have the same mean. With them, the means differ, so
    a classifier has something to go by.
    """
    X, P = page.torch.X, reference.sinusoidal_encoding(5, 8)
    assert not np.allclose(attend(*[X + P] * 3)[SWAP], attend(*[X[SWAP] + P] * 3))
    means = []
    for sentence in ("dog bites man", "man bites dog"):
        x = np.stack([page.torch.word[word] for word in sentence.split()])
        rows = x + reference.sinusoidal_encoding(3, 8)
        means.append([attend(z, z, z).mean(0)[:4] for z in (x, rows)])
    without, with_it = abs(np.subtract(*means)).max(-1)
    assert without < 1e-6
    assert with_it > 0.01


def test_eq_mask_symmetry(page):
    r"""$$ \boldsymbol{\Pi}\mathbf{M}\boldsymbol{\Pi}^\top = \mathbf{M}. $$

    If the two entries agree for all $i$ and $j$, {eq}`eq_equivariance` holds with the mask
    too.

    For any other permutation, some weights and tokens break the symmetry.
    """
    for mask in (np.ones((5, 5), bool), causal_mask(5), window_mask(5, 5, 2)):
        for order in ORDERS:
            Pi = matrix(order)
            equivariant = np.allclose(f(Pi @ TOKENS, mask=mask), Pi @ f(TOKENS, mask=mask))
            assert equivariant == np.array_equal(Pi @ mask @ Pi.T, mask)


def test_length_masks_keep_tokens_and_padding_apart(page):
    r"""It satisfies {eq}`eq_mask-symmetry` exactly when $\pi$ permutes the first $\ell$ places
    among themselves
    """
    for order in ORDERS:
        for real in range(6):
            mask = np.tile(np.arange(5) < real, (5, 1))
            assert keeps(mask, order) == (set(order[:real]) == set(range(real)))


def test_causal_masks_keep_the_identity(page):
    r"""satisfies it only for the identity. Row $i$ of $\mathbf{M}$ allows $i + 1$ keys, and
    row $i$ of $\boldsymbol{\Pi}\mathbf{M}\boldsymbol{\Pi}^\top$ allows $\pi(i) + 1$, so
    $\pi(i) = i$.

    Under a causal mask only the identity remains.

    no reordering is sure to go unnoticed.

    man is at place 4 and may attend to dog at place 1. Exchange the two, and man is at
    place 1 and may no longer attend to dog, which is now at place 4.
    """
    mask = causal_mask(5)
    assert mask.sum(1).tolist() == [1, 2, 3, 4, 5]
    assert mask[DOG.index("man"), DOG.index("dog")]
    assert not mask[MAN.index("man"), MAN.index("dog")]
    for order in ORDERS:
        Pi = matrix(order)
        assert np.array_equal((Pi @ mask @ Pi.T).sum(1), np.array(order) + 1)
        assert keeps(mask, order) == (order == [0, 1, 2, 3, 4])


def test_symmetries_are_counted(page):
    r"""among all $5! = 120$ permutations, for three real tokens and two of padding. There
    should be $3! \cdot 2! = 12$ for the length mask, and 1 for the causal one.

    The count is 12 against 1.

    the difference is 0. But exchange a real token with padding, and the outputs differ by
    1.86. Under the causal mask even the first shuffle is noticed
    """
    length = length_mask(np.full((1, 5), 3), 5)[0]
    assert length.sum(1).tolist() == [3] * 5
    assert len(ORDERS) == 120
    counted = [sum(keeps(mask, p) for p in ORDERS) for mask in (length, causal_mask(5))]
    assert counted == [12, 1]
    assert "length mask: 12 of 120" in page.printed
    assert "causal mask: 1 of 120" in page.printed
    assert (
        "real tokens permuted: f(Pi X) and Pi f(X) differ by at most 0.00" in page.printed
    )
    assert "padding exchanged: f(Pi X) and Pi f(X) differ by at most 1.86" in page.printed
    X, order = page.torch.X, [2, 0, 1, 3, 4]
    y, permuted = (attend(x, x, x, causal=True) for x in (X, X[order]))
    assert abs(permuted - y[order]).max() > 0.1


def test_a_running_mean(page):
    r"""under a causal mask output $i$ is the running mean $(\mathbf{v}_0 + \cdots +
    \mathbf{v}_i)/(i + 1)$ of the values $\mathbf{v}_j$
    """
    means = np.cumsum(SCORES, 0) / np.arange(1, 6)[:, None]
    zeros = np.zeros((5, 1))
    assert np.allclose(attend(zeros, zeros, SCORES, causal=True), means)


def test_a_marked_first_token_tells_positions(page):
    """Output $i$ is $1/(i+1)$, so $i$ can be read from it.

    if all values are equal, the mean is the same for every $i$, and nothing can be read.

    With the mark, the positions 0 to 5 come out, but without it, every token seems to be
    at 0.
    """
    assert "position read [0. 1. 2. 3. 4. 5.]" in page.printed
    assert "position read [0. 0. 0. 0. 0. 0.]" in page.printed
    constant, marked = np.zeros((6, 1)), np.eye(6)[:, :1]
    outputs = attend(constant, constant, marked, causal=True)[:, 0]
    assert np.allclose(outputs, 1 / np.arange(1, 7))
    assert np.allclose(attend(constant, constant, constant + 3, causal=True), 3)


def test_the_last_output_of_one_layer_is_blind(page):
    """After one layer the shuffle can't be seen in the last output, and after two layers it
    can.
    """
    x, z = page.torch.X, page.torch.X[[2, 0, 3, 1, 4]]
    apart = []
    for _ in range(2):
        x, z = attend(x, x, x, causal=True), attend(z, z, z, causal=True)
        apart.append(abs(x - z)[-1].max())
    assert apart[0] < 1e-6
    assert apart[1] > 0.1


def test_far_from_the_start_it_hardly_changes(page):
    """The number $1/(i+1)$ hardly changes far from the start: the step from 1 to 2 is easy
    to see, and the step from 1000 to 1001 is not.
    """
    assert 1 / 2 - 1 / 3 > 0.1
    assert 1 / 1000 - 1 / 1001 < 1e-6


def test_a_transformer_without_positions(page):
    """PyTorch's layers add no position.

    no error, a loss that falls, and a model that treats every text as a bag of words

    With batch_first=True, x of shape (batch, n, d) and a shuffled list order, compare
    model(x[:, order]) with model(x)[:, order], with dropout off. If they agree, your model
    can't see order.
    """
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    step = torch.optim.Adam(model.parameters(), 0.01)
    x, losses = torch.from_numpy(page.torch.X), []
    for _ in range(50):
        step.zero_grad()
        losses.append((model(x).mean(0) - torch.arange(8) / 8).square().mean())
        losses[-1].backward()
        step.step()
    assert losses[-1] < losses[0] / 2
    x = torch.stack([x, x.flip(1)])
    assert torch.allclose(model(x[:, SWAP]), model(x)[:, SWAP], atol=1e-4)
    encoded = torch.nn.Sequential(PositionalEncoding(8), model)
    assert not torch.allclose(encoded(x[:, SWAP]), encoded(x)[:, SWAP], atol=0.01)


def test_twice_the_same_word(page):
    """The two outputs are equal for all weights."""
    y = attend(*(page.torch.X @ page.torch.W))
    assert np.allclose(y[0], y[3], atol=1e-5)
    assert not np.allclose(y[0], y[1], atol=0.01)


def test_the_symmetries_of_a_window(page):
    r"""Two, the identity and the reversal. The two ends are the only places with one
    neighbor, so $\pi$ keeps them or exchanges them.
    """
    mask = window_mask(5, 5, 2)
    assert mask.sum(1).tolist() == [2, 3, 3, 3, 2]
    assert [order for order in ORDERS if keeps(mask, order)] == [
        [0, 1, 2, 3, 4],
        [4, 3, 2, 1, 0],
    ]


def test_move_the_tokens_or_the_encoding(page):
    r"""Show that $f(\boldsymbol{\Pi}\mathbf{X} + \mathbf{P}) = \boldsymbol{\Pi}
    f(\mathbf{X} + \boldsymbol{\Pi}^\top \mathbf{P})$.
    """
    Pi, P = matrix([2, 0, 1, 4, 3]), reference.sinusoidal_encoding(5, 5)
    assert np.allclose(f(Pi @ TOKENS + P), Pi @ f(TOKENS + Pi.T @ P))
    assert not np.allclose(f(Pi @ TOKENS + P), Pi @ f(TOKENS + Pi @ P), atol=0.01)


def test_how_far_the_mask_counts(page):
    """From position $2^{10}$ to $2^{11} - 1$ the outputs lie between $2^{-11}$ and
    $2^{-10}$, where the steps of float16 are $2^{-21}$. Neighbors differ by about $1/i^2$,
    which is less than a step from $i = 2^{10.5} \\approx 1448$ on. A little later two of
    them are rounded to the same number. Below $2^{10}$ the steps are finer than $1/i^2$.

    in float16, with 11 significant bits
    """
    told = (1 / np.arange(1, 4097)).astype(np.float16)
    i = np.arange(1024, 2048)
    assert np.finfo(np.float16).nmant + 1 == 11
    assert round(2**10.5) == 1448
    assert (1 / (i + 1)).min() >= 2**-11
    assert (1 / (i + 1)).max() < 2**-10
    assert (np.spacing(told[1024:2048]) == 2**-21).all()
    assert ((1 / i**2 < 2**-21) == (i > 2**10.5)).all()
    assert abs((1 / i - 1 / (i + 1)) * i**2 - 1).max() < 0.001
    assert 1448 < np.flatnonzero(np.diff(told) == 0)[0] + 1 < 1500
    assert (np.spacing(told[1:1023]) < 1 / np.arange(1, 1023) ** 2).all()
