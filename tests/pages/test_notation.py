"""Notation: shapes and conventions."""

import numpy as np
import pytest
import torch

from posattn import reference
from posattn.reference import attention_weights, split_heads


def test_the_example(page):
    """The sentence the dog bites the man has $n = 5$ tokens, from the at position 0 to man at position
    4.

    Then every head works with vectors of width $d_h = 12 / 3 = 4$, and has its own 5 by 5 weights.
    """
    words = ["the", "dog", "bites", "the", "man"]
    assert (len(words), words[0], words[4]) == (5, "the", "man")
    assert page.torch.X.shape == (5, 12)
    q = k = split_heads(page.torch.X, 3)
    assert q.shape == (3, 5, 12 / 3)
    assert attention_weights(q, k).shape == (3, 5, 5)
    assert "the weights: (3, 5, 5)\n" in page.printed


def test_a_formula_from_the_middle(page):
    r"""$\mathbf{y}_i = \sum_{j=0}^{n-1} \alpha_{ij}\,\mathbf{v}_j .

    In code, all outputs together are `weights @ value`.

    `X` has 5 tokens of width 12. The last three shapes begin with the 3 heads. In `Q` and `Y` the heads
    are followed by 5 tokens and their width 4, and in the weights by 5 queries and 5 keys.
    """
    X = page.torch.X
    assert X.shape == (5, 12)
    assert page.torch.Q.shape == page.torch.Y.shape == (3, 5, 4)
    q = k = v = split_heads(X, 3)
    weights = attention_weights(q, k)
    outputs = np.zeros((3, 5, 4))
    for head, i, j in np.ndindex(3, 5, 5):
        outputs[head, i] += weights[head, i, j] * v[head, j]
    assert np.allclose(outputs, weights @ v)
    assert np.allclose(outputs, page.torch.Y)
    assert np.allclose(outputs, reference.scaled_dot_product_attention(q, k, v))


def test_longer_contexts(page):
    r"""With $L = 8192$ and $n = 32768$ the factor is $s = 4$

    Pair 0 is the fastest, and a factor of 1 leaves it as it is. The slow pair 63 is slowed by the
    whole factor, and pair 45 lies in the blend between them.

    pairs with $\beta_{\text{fast}} = 32$ turns or more keep their speed, and pairs with
    $\beta_{\text{slow}} = 1$ turn or less are slowed by the whole factor

    attention factor, which multiplies rotated queries and keys, so that a score is multiplied by $c^2$

    The attention factor multiplies queries and keys, so it enters each score squared.
    """
    slowed, c = reference.yarn(128, factor=4.0, trained_length=8192)
    named = reference.yarn(
        128, factor=4.0, trained_length=8192, beta_fast=32.0, beta_slow=1.0
    )
    omega = reference.frequencies(128)
    slowing = omega / slowed
    assert page.torch.s == 4
    assert omega.argmax() == 0
    assert slowing[[0, 63]].tolist() == pytest.approx([1, 4])
    assert 1.1 < slowing[45] < 3.9
    assert np.array_equal(named[0], slowed)
    turns = 8192 * omega / (2 * np.pi)
    assert np.allclose(slowing[turns >= 33], 1)
    assert np.allclose(slowing[turns <= 0.95], 4)
    assert not np.allclose(slowing[turns <= 28], 4)
    q, k = np.random.default_rng(0).normal(size=(2, 3, 128))
    plain = (
        reference.rotate(q, frequencies=slowed) @ reference.rotate(k, frequencies=slowed).T
    )
    scaled = {"frequencies": slowed, "attention_factor": c}
    ours = reference.rotate(q, **scaled) @ reference.rotate(k, **scaled).T
    assert c > 1
    assert np.allclose(ours, c**2 * plain)


def test_everything_is_counted_from_0(page):
    r"""We count from 0

    and the clocks $0, \ldots, \lceil d/2 \rceil - 1$
    """
    for d in (7, 8):
        assert len(reference.frequencies(d)) == np.ceil(d / 2)
    row = reference.sinusoidal_encoding(np.array([5]), 8)[0]
    assert np.array_equal(row, reference.sinusoidal_encoding(6, 8)[-1])
    assert np.array_equal(page.torch.counted[0], row)


def test_heads_are_a_batch_axis(page):
    """Heads are a batch axis too, as in (*batch, H, n, d_h). That is why one attention function
    serves one head or many.

    With two sentences of seven tokens the shapes are these

    2 sentences, 3 heads, 7 tokens, width 4
    """
    x = np.random.default_rng(0).normal(size=(2, 7, 12))
    heads = split_heads(x, 3)
    assert heads.shape == page.torch.heads.shape == (2, 3, 7, 4)
    both = attention_weights(heads, heads)
    assert np.array_equal(both[1, 2], attention_weights(x[1, :, 8:], x[1, :, 8:]))


def test_true_means_may_attend(page):
    """A mask is Boolean, and True means may attend.

    A query that may attend to nothing has weights 0

    The first query gives all its weight to the only key it may see. The second has no key, so its
    weights don't sum to 1 but to 0.
    """
    assert page.torch.weights.tolist() == [[1, 0], [0, 0]]
    assert page.torch.mask.tolist() == [[True, False], [False, False]]


def test_masks_of_the_other_convention(page):
    """no error, but every query reads exactly the keys that you meant to hide. A query that is left
    without any key gives NaN, or zeros with need_weights=False.

    that layer reads True as hidden
    """
    layer, token = torch.nn.MultiheadAttention(4, 1), torch.ones(3, 4)
    ours = torch.tensor([[True, False, False], [True, True, False], [True, True, True]])
    output, weights = layer(token, token, token, attn_mask=ours)
    assert torch.equal(weights[:2] > 0, ~ours[:2])
    assert output[2].isnan().all()
    output, _ = layer(token, token, token, attn_mask=ours, need_weights=False)
    assert not output[2].any()
    assert torch.equal(layer(token, token, token, attn_mask=~ours)[1] > 0, ours)


def test_positions_may_be_real_numbers(page):
    """A position need not be an integer: 0.5 is fine for sines, rotations and slopes.

    Only schemes that look something up insist on integers, for example a learned table or the
    buckets of T5.

    Asking for positions 5 and 6 gives the same two rows as counting to 7 and keeping the last two.
    """
    assert np.array_equal(page.torch.given, page.torch.counted)
    assert np.array_equal(page.torch.given, reference.sinusoidal_encoding(7, 8)[[5, 6]])
    at = np.array([0.5])
    assert np.isfinite(reference.sinusoidal_encoding(at, 4)).all()
    assert np.isfinite(reference.rotate(np.ones((1, 4)), at)).all()
    assert np.isfinite(reference.ALiBi(2)(at, at)).all()
    table = reference.LearnedPositionalEncoding(np.ones((4, 4)))
    with pytest.raises(TypeError):
        table(np.ones((1, 4)), positions=at)
    with pytest.raises(TypeError):
        reference.t5_bucket(at)


def test_from_formula_to_code(page):
    r"""The tokens are rows, so $\mathbf{Y} = \mathbf{X}\,\mathbf{W}^\top$, in code X @ W.T."""
    W, X = page.torch.W, page.torch.X
    assert np.allclose(X @ W.T, [W @ token for token in X])
    assert not np.allclose(X @ W, [W @ token for token in X], atol=0.1)


def test_a_mask_from_elsewhere(page):
    """Its negation. Give it the shape (1, 5), and its one row holds for all queries.

    It hides the same keys as the length 2
    """
    ours = ~page.torch.hidden[None]
    assert ours.shape == (1, 5)
    assert np.array_equal(ours, reference.length_mask(np.array([2]), 5)[0])
    x = np.random.default_rng(0).normal(size=(5, 4))
    assert (attention_weights(x, x, mask=ours) > 0).tolist() == [
        [True, True] + 3 * [False]
    ] * 5


def test_heads_on_another_axis(page):
    """Exchange the axes of tokens and heads."""
    theirs = np.arange(168.0).reshape(2, 7, 3, 4)
    assert np.array_equal(theirs.swapaxes(1, 2), split_heads(theirs.reshape(2, 7, 12), 3))


def test_where_the_queries_stand(page):
    """There are $n_q = 3$ queries and $n_k = 10$ keys, so query $i$ stands at $i + 7$. That is at 7,
    8 and 9.

    The first query is token 2, so it sees keys 0, 1 and 2. The second is token 3 and sees all four.

    Each sees itself and all before it.

    query $i$ stands at position $i + n_k - n_q$
    """
    n_q, n_k = 3, 10
    stands = np.arange(n_q) + n_k - n_q
    assert stands.tolist() == [7, 8, 9]
    assert np.array_equal(
        reference.causal_mask(n_q, n_k), np.arange(n_k) <= stands[:, None]
    )
    assert page.torch.visible.tolist() == [8, 9, 10]
    assert reference.causal_mask(2, 4).tolist() == [[True, True, True, False], [True] * 4]
