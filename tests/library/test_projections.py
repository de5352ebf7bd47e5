"""The projections of a layer of attention: what is drawn, what an input becomes, and how it turns."""

from importlib import import_module

import numpy as np
import pytest

from tests.conftest import assert_close, draw
from tests.library.test_multi_head import layer_of

DIM, HEADS, N = 6, 2, 5
WEIGHTS = [draw(70 + i, DIM, DIM) for i in range(4)]
X = draw(80, 3, N, DIM)


def projections(column):
    return import_module(f"posattn.{column.name}.models.projections")


def heads_by_hand(x, weight):
    return (x @ weight).reshape(3, N, HEADS, -1).swapaxes(1, 2)


def test_queries_and_keys_are_columns_of_projected_tokens(column):
    layer, x = layer_of(column, WEIGHTS, HEADS, key_norm=lambda k: 2 * k), column.array(X)
    found = projections(column)
    heads = found.project(layer, found.Inputs(x))
    assert_close(column, heads.query, heads_by_hand(X, WEIGHTS[0]))
    assert_close(column, heads.key, 2 * heads_by_hand(X, WEIGHTS[1]))
    assert_close(column, heads.value, heads_by_hand(X, WEIGHTS[2]))
    assert [column.numpy(p).tolist() for p in heads.positions] == [[0, 1, 2, 3, 4]] * 2


def test_values_are_the_keys_and_a_sequence_of_its_own_begins_at_0(column):
    layer, x = layer_of(column, WEIGHTS, HEADS), column.array(X)
    at = column.positions(np.arange(N) + 7)
    found = projections(column)
    heads = found.project(layer, found.Inputs(x, x[:, 1:], query_positions=at))
    assert_close(column, heads.value, heads_by_hand(X, WEIGHTS[2])[:, :, 1:])
    assert column.numpy(heads.positions.query)[0] == 7
    assert column.numpy(heads.positions.key).tolist() == [0, 1, 2, 3]


def test_values_are_columns_of_projected_tokens_and_may_be_normalised(column):
    x, values = column.array(X), projections(column).values
    want = heads_by_hand(X, WEIGHTS[2])
    assert_close(column, values(layer_of(column, WEIGHTS, HEADS), x), want)
    layer = layer_of(column, WEIGHTS, HEADS, value_norm=lambda v: 2 * v)
    assert_close(column, values(layer, x), 2 * want)
    assert_close(column, layer(x), 2 * column.numpy(layer_of(column, WEIGHTS, HEADS)(x)))


@pytest.mark.parametrize("pair", [False, True])
def test_queries_and_keys_turn_by_positions_that_all_heads_share(column, pair):
    def turn(x, at):
        return x * (at[..., None] if len(at.shape) == 2 else at.sum(-1)[..., None])

    x, rotated = column.array(draw(81, 3, HEADS, N, 4)), projections(column).rotated
    rotate = (None, turn) if pair else turn
    where = column.array(np.arange(float(N)))
    same = rotated(rotate, 0, x, where)
    assert (same is x) == pair
    want = column.numpy(x) * np.arange(N)[:, None]
    assert_close(column, rotated(rotate, 1, x, where), want)
    coordinates = column.array(np.stack([np.arange(float(N)), np.ones(N)], -1))
    want = column.numpy(x) * (np.arange(N)[:, None] + 1)
    assert_close(column, rotated(rotate, 1, x, where, coordinates), want)
    assert rotated(None, 1, x, where) is x
