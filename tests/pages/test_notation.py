"""Notation: shapes and conventions."""

import numpy as np
import pytest
import torch

from posattn import reference
from posattn.reference import attention_weights, split_heads


def test_the_example(page):
    """The sentence the dog bites the man has $n = 5$ tokens, from the at position 0 to man at position
    4.

    then every head works with vectors of width $d_h = 12 / 3 = 4$, and has its own 5 by 5 weights
    """
    words = ["the", "dog", "bites", "the", "man"]
    assert (len(words), words[0], words[4]) == (5, "the", "man")
    assert page.torch.X.shape == (5, 12)
    q = k = split_heads(page.torch.X, 3)
    assert q.shape == (3, 5, 12 / 3)
    assert attention_weights(q, k).shape == (3, 5, 5)
    assert "the weights: (3, 5, 5)\n" in page.printed


def test_everything_is_counted_from_0(page):
    r"""Everything is counted from 0

    the clocks $0, \ldots, \lceil d/2 \rceil - 1$
    """
    for d in (7, 8):
        assert len(reference.frequencies(d)) == np.ceil(d / 2)
    row = reference.sinusoidal_encoding(np.array([5]), 8)[0]
    assert np.array_equal(row, reference.sinusoidal_encoding(6, 8)[-1])
    assert np.array_equal(page.torch.counted[0], row)


def test_heads_are_a_batch_axis(page):
    """Heads are a batch axis too, (*batch, H, n, d_h), so one attention function serves one head or
    many.

    with two sentences of seven tokens the shapes are these
    """
    x = np.random.default_rng(0).normal(size=(2, 7, 12))
    heads = split_heads(x, 3)
    assert heads.shape == page.torch.heads.shape == (2, 3, 7, 4)
    both = attention_weights(heads, heads)
    assert np.array_equal(both[1, 2], attention_weights(x[1, :, 8:], x[1, :, 8:]))


def test_true_means_may_attend(page):
    """A mask is Boolean, and True means may attend.

    A query that may attend to nothing has weights 0
    """
    assert page.torch.weights.tolist() == [[1, 0], [0, 0]]
    assert page.torch.mask.tolist() == [[True, False], [False, False]]


def test_masks_of_the_other_convention(page):
    """every query reads exactly what it should not, without an error; where that leaves it nothing to
    read, NaN, or zeros with need_weights=False

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
    """as integers or, where they choose no row of a table, as real numbers"""
    at = np.array([0.5])
    assert np.isfinite(reference.sinusoidal_encoding(at, 4)).all()
    assert np.isfinite(reference.rotate(np.ones((1, 4)), at)).all()
    assert np.isfinite(reference.alibi_bias(2)(at, at)).all()
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
    """Its negation, which one row of shape (1, 5) gives to all queries.

    It hides the same keys as the length 2
    """
    ours = ~page.torch.hidden[None]
    assert ours.shape == (1, 5)
    assert np.array_equal(ours, reference.length_mask(np.array([2]), 5)[0])


def test_heads_on_another_axis(page):
    """An exchange of the axes of tokens and heads"""
    theirs = np.arange(168.0).reshape(2, 7, 3, 4)
    assert np.array_equal(theirs.swapaxes(1, 2), split_heads(theirs.reshape(2, 7, 12), 3))


def test_where_the_queries_stand(page):
    """With $n_q = 3$ and $n_k = 10$ query $i$ stands at $i + 7$: at 7, 8 and 9.

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
