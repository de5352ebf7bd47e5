"""Learned positional encoding: what a table learns, and where it ends."""

from itertools import pairwise

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from torch.nn.functional import interpolate

from posattn import reference
from posattn.reference import frequencies, sinusoidal_encoding
from posattn.torch import LearnedPositionalEncoding

N, D = 512, 32
DRAWN = reference.LearnedPositionalEncoding.init(np.random.default_rng(0), N, D).table
SINUSOID = sinusoidal_encoding(N, D)


def residual(table, A):
    """How much of the next rows a matrix misses."""
    missed = sum(((A @ row - after) ** 2).sum() for row, after in pairwise(table))
    return np.sqrt(missed / (table[1:] ** 2).sum())


def best_shift(table):
    """The matrix that takes each row nearest to the next one."""
    return np.linalg.lstsq(table[:-1], table[1:])[0].T


def stretched(table, n):
    """A table that PyTorch interpolates at n places."""
    rows = torch.from_numpy(table.T.copy())[None]
    return interpolate(rows, size=n, mode="linear", align_corners=True)[0].T.numpy()


def test_eq_learned_encoding():
    r"""$$ \mathbf{y}_i = \mathbf{x}_i + \mathbf{t}_i, \quad i = 0, \ldots, n - 1, \quad n \leq n_{\max}. $$"""
    layer, x = LearnedPositionalEncoding(6, 2), torch.randn(3, 4, 2)
    y = layer(x)
    for i in range(4):
        assert torch.allclose(y[:, i], x[:, i] + layer.table[i])


def test_eq_table_gradient():
    r"""$$ \frac{\partial L}{\partial \mathbf{t}_i} = \sum_{\text{tokens at position } i} \frac{\partial L}{\partial \mathbf{y}}, $$"""
    layer, slope = LearnedPositionalEncoding(6, 2), torch.randn(3, 4, 2)
    (layer(torch.randn(3, 4, 2)) * slope).sum().backward()
    for i in range(6):
        expected = slope[:, i].sum(0) if i < 4 else torch.zeros(2)
        assert torch.allclose(layer.table.grad[i], expected)


def test_eq_interpolated_table():
    r"""$$ \mathbf{t}'_i = (1 - f)\,\mathbf{t}_k + f\,\mathbf{t}_{k+1} , $$"""
    table = np.random.default_rng(0).normal(size=(8, 4))
    longer = stretched(table, 15)
    for i in range(14):
        k = i // 2
        f = i * 7 / 14 - k
        assert np.allclose(longer[i], (1 - f) * table[k] + f * table[k + 1])
    assert np.allclose(longer[14], table[7])


def test_eq_shift_residual(page):
    r"""$$ r(\mathbf{T}) = \min_{\mathbf{A}} \left( \frac{\sum_{i} \lVert \mathbf{A}\,\mathbf{t}_i - \mathbf{t}_{i+1} \rVert^2}{\sum_{i} \lVert \mathbf{t}_{i+1} \rVert^2} \right)^{1/2} $$"""
    A = best_shift(DRAWN)
    nudge = 1e-3 * np.random.default_rng(0).normal(size=A.shape)
    assert residual(DRAWN, A) < residual(DRAWN, A + nudge)
    learned = page.torch.learned
    assert residual(learned, best_shift(learned)) == pytest.approx(
        page.glued["learned_residual"]
    )
    shift = reference.shift_matrix(1, D)
    assert residual(SINUSOID, shift) < 1e-10


def test_a_trained_table_rotates_as_a_sinusoid_of_width_16_does(page):
    assert page.glued["learned_residual"] < 0.1 < 0.9 < page.glued["random_residual"]
    ratio = page.torch.angles / frequencies(16)[:5]
    assert np.all((ratio > 1) & (ratio < 1.35))
    longest = np.argsort(page.torch.lengths)[::-1]
    assert longest[:4].tolist() == [0, 511, 510, 127]


def test_rows_that_were_not_read_learn_nothing(page):
    start, weight = page.torch.start, page.torch.weight
    tables = (
        page.torch.train_torch(torch.from_numpy(start), torch.from_numpy(weight), n=5),
        page.jax.train_jax(jnp.asarray(start), jnp.asarray(weight), n=5),
    )
    for table in map(np.asarray, tables):
        weights = reference.attention_weights(table @ weight, table, scale=1.0)
        assert np.array_equal(table[5:], start[5:])
        assert weights.diagonal(-1)[:4].min() > 0.99
        assert abs(weights[5:] - 1 / 8).max() < 0.03


def test_an_image_is_stretched_in_two_dimensions(page):
    table = torch.from_numpy(np.indices((14, 14))[None].astype(float))
    larger = interpolate(table, size=(24, 24), mode="bilinear", align_corners=True)[0]
    assert np.allclose(larger[0], page.torch.rows_2d)
    assert np.allclose(larger[1], page.torch.columns_2d)
    assert larger[1, 1, 23] == pytest.approx(13)
    assert page.torch.columns_1d[1, 23] < 3
    for antialias in (False, True):  # of transformers and of timm
        other = interpolate(
            table, size=(24, 24), mode="bicubic", align_corners=False, antialias=antialias
        )
        assert abs(other[0] - larger).max() > 0.05


def test_jax_clips_an_index():
    table, outside = jnp.arange(3.0), jnp.array([7])
    assert table[outside].tolist() == [2]
    assert jnp.isnan(table.at[outside].get(mode="fill")).all()


def test_by_hand(page):
    assert np.allclose(stretched(page.torch.table, 5)[1], [0.05, 0.1])
    embedding = torch.nn.Embedding(1024, 4)
    embedding(torch.tensor([0, 1023]))
    with pytest.raises(IndexError, match=r"^index out of range in self$"):
        embedding(torch.arange(1025))
    rows = reference.LearnedPositionalEncoding.init(np.random.default_rng(0), 64, 768)
    lengths = np.linalg.norm(rows.table, axis=1)
    assert lengths.mean() == pytest.approx(0.55, abs=0.01)
