"""Learned positional encoding."""

import jax
import numpy as np
import pytest
import torch

from posattn import jax as jax_column
from posattn import torch as torch_column
from tests.conftest import assert_close, assert_twin_agrees, draw

MAX_LEN, DIM = 6, 3
TABLE = draw(70, MAX_LEN, DIM)


def test_each_token_gets_the_row_of_its_position(column):
    x, layer = draw(71, 2, 3, DIM), column.learned(column.array(TABLE))
    positions = np.array([[0, 1, 5], [4, 4, 0]])
    got = layer(column.array(x), positions=column.positions(positions))
    assert_close(column, got, x + TABLE[positions])
    assert_close(column, layer(column.array(x)), x + TABLE[:3])


def test_values_and_gradients_agree_with_the_reference(twin):
    def layer(column, table, x):
        return column.learned(table)(x, positions=column.positions(np.array([5, 0, 0, 2])))

    assert_twin_agrees(twin, layer, TABLE, draw(71, 2, 4, DIM))


def test_bfloat16_tokens_stay_so_beside_a_float32_table():
    layer = torch_column.LearnedPositionalEncoding(MAX_LEN, DIM)
    assert layer(torch.zeros(2, DIM, dtype=torch.bfloat16)).dtype == torch.bfloat16
    layer = jax_column.LearnedPositionalEncoding.init(jax.random.key(0), MAX_LEN, DIM)
    x = jax.numpy.zeros((2, DIM), "bfloat16")
    assert layer(x).dtype == "bfloat16"
    assert layer(x, positions=jax.numpy.array([1, 2])).dtype == "bfloat16"


def test_under_jit_a_position_outside_becomes_nan(jax_single):
    layer = jax_single.learned(jax_single.array(TABLE))
    encode = jax.jit(lambda x, positions: layer(x, positions=positions))
    x, where = np.zeros((5, DIM), "float32"), np.array([0, -1, 6, 5, 2**31 - 1])
    out = encode(x, jax_single.positions(where))
    assert np.isnan(out).all(axis=-1).tolist() == [False, True, True, False, True]
    assert np.array_equal(out[0], TABLE[0])


def test_enclosed_positions_are_checked_under_jit(jax_single):
    layer, x = jax_single.learned(jax_single.array(TABLE)), np.zeros((2, DIM), "float32")
    inside, outside = (jax.numpy.array(p) for p in ([4, 1], [1, MAX_LEN]))
    got = jax.jit(lambda x: layer(x, positions=inside))(x)
    assert np.array_equal(got, np.float32(TABLE[[4, 1]]))
    with pytest.raises(ValueError, match=r"positions must lie between 0 and .* got 6"):
        jax.jit(lambda x: layer(x, positions=outside))(x)
