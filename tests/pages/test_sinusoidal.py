"""Sinusoidal positional encoding: its equations, its promises, and what other choices break."""

import jax.numpy as jnp
import numpy as np
import pytest
import torch

from posattn.jax import PositionalEncoding as JaxEncoding
from posattn.reference import frequencies, sinusoidal_encoding
from posattn.torch import PositionalEncoding as TorchEncoding


def length(rows):
    """The length of each row."""
    return np.linalg.norm(rows, axis=-1)


def test_eq_frequencies():
    r"""$$
    \omega_j = b^{-2j/d}, \qquad j = 0, \ldots, \lceil d/2 \rceil - 1, \qquad b = 10000.
    $$
    """
    for d in (7, 32):
        omega = [10000 ** (-2 * j / d) for j in range(-(-d // 2))]
        assert np.allclose(frequencies(d), omega, rtol=1e-12)


def test_eq_positional_encoding_def():
    r"""$$
    p_{i,2j} = \sin\left(\frac{i}{10000^{2j/d}}\right), \qquad p_{i,2j+1} = \cos\left(\frac{i}{10000^{2j/d}}\right).
    $$
    """
    d = 7
    p = sinusoidal_encoding(5000, d)
    for i in (0, 3, 4999):
        for j in range(4):
            assert np.isclose(p[i, 2 * j], np.sin(i / 10000 ** (2 * j / d)))
        for j in range(3):
            assert np.isclose(p[i, 2 * j + 1], np.cos(i / 10000 ** (2 * j / d)))


def test_eq_bit_is_a_clock():
    r"""$$ \beta_{i,j} = 1 \iff \sin\left(\frac{\pi}{2^j}\left(i + \tfrac{1}{2}\right)\right) < 0 . $$"""
    i = np.arange(64)
    for j in range(6):
        beta = i // 2**j % 2
        assert np.array_equal(beta == 1, np.sin(np.pi / 2**j * (i + 1 / 2)) < 0)


def test_eq_distance():
    r"""$$ \begin{aligned} \lVert \mathbf{p}_i - \mathbf{p}_k \rVert^2 &= d - 2\,\mathbf{p}_i^\top \mathbf{p}_k \\ &= 4 \sum_{j=0}^{d/2-1} \sin^2\left(\frac{(i - k)\,\omega_j}{2}\right) . \end{aligned} $$"""
    i = np.arange(60)
    for d in (2, 8):
        p = sinusoidal_encoding(60, d)
        squared = length(p[:, None] - p) ** 2
        omega = 10000.0 ** (-np.arange(0, d, 2) / d)
        angles = (i[:, None] - i)[..., None] * omega
        assert np.allclose(squared, d - 2 * p @ p.T)
        assert np.allclose(squared, 4 * (np.sin(angles / 2) ** 2).sum(-1))


def test_rows_are_distinct_equally_long_and_evenly_spaced():
    p = sinusoidal_encoding(5000, 32)
    assert length(p[1:] - p[0]).min() > 1
    assert np.allclose(length(p) ** 2, 16)
    assert np.allclose(length(np.diff(p, axis=0)), length(p[1] - p[0]))
    for delta in (1, 7, 1000):
        products = (p[delta:] * p[:-delta]).sum(1)
        assert np.allclose(products, np.cos(delta * frequencies(32)).sum())


def test_products_with_later_rows_fall_on_the_whole():
    p = sinusoidal_encoding(60, 32)
    products = p @ p[0]
    assert (np.diff(products[:5]) < 0).all()
    assert products[4] < products[5] < 12
    assert 5 < products[4:].min() < products[4:].max() < 12
    assert products[30:].mean() < products[:30].mean()


def test_evenly_spaced_frequencies_return_to_row_0(page):
    angles = np.arange(1, 1000)[:, None] * np.arange(1, 17) / 16
    far = np.sqrt(length(np.sin(angles)) ** 2 + length(np.cos(angles) - 1) ** 2)
    assert far.argmin() + 1 == page.glued["equal_where"] == 201
    assert far.min() == pytest.approx(page.glued["equal_near"])
    assert far.min() < far[0] / 4


def test_a_larger_base_leaves_fewer_fast_pairs():
    bases = (100.0, 10000.0, 1e6)
    slow = [(2 * np.pi / frequencies(32, base=b) > 2000).sum() for b in bases]
    fast = [(frequencies(32, base=b) > 0.1).sum() for b in bases]
    assert 0 == slow[0] < slow[1] < slow[2]
    assert fast[0] > fast[1] > fast[2]


def test_angles_in_float32_cost_three_digits(page):
    p = sinusoidal_encoding(5000, 512)
    omega = np.float32(10000) ** (-np.arange(0, 512, 2, dtype="f4") / np.float32(512))
    rough = np.sin(np.arange(5000, dtype="f4")[:, None] * omega)
    error = abs(rough - p[:, ::2]).max()
    assert error == pytest.approx(page.glued["rough"], rel=1e-3)
    assert error > 1000 * abs(p.astype(np.float32) - p).max()


def test_a_token_without_positions_gets_row_0():
    row = sinusoidal_encoding(1, 32)
    assert np.allclose(TorchEncoding(32)(torch.zeros(1, 1, 32)), row)
    assert np.allclose(JaxEncoding(32)(jnp.zeros((1, 1, 32))), row)


def test_by_hand():
    table = [[0, 1, 0, 1], [0.84, 0.54, 0.01, 1], [0.91, -0.42, 0.02, 1]]
    assert abs(sinusoidal_encoding(3, 4) - table).max() < 0.005
    assert np.allclose(np.diff(np.arange(1000) / 1000), 0.001)
    assert round(np.degrees(1)) == 57
    assert [int(f"{i:b}") for i in (5, 6, 7, 63)] == [101, 110, 111, 111111]
