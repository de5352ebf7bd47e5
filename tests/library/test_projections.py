"""The projections of a layer of attention: what an input becomes, and how it rotates."""

import numpy as np

from tests.conftest import assert_close, draw
from tests.library.test_multi_head import layer_of

DIM, HEADS, N = 6, 2, 5
WEIGHTS = [draw(70 + i, DIM, DIM) for i in range(4)]
X = draw(80, 3, N, DIM)


def test_values_may_be_normalised(column):
    x = column.array(X)
    want = 2 * column.numpy(layer_of(column, WEIGHTS, HEADS)(x))
    layer = layer_of(column, WEIGHTS, HEADS, value_norm=lambda v: 2 * v)
    assert_close(column, layer(x), want)


def test_one_of_a_pair_may_rotate_nothing(column):
    """All heads share the positions: 3 examples are not taken for heads."""
    shapes = []

    def turn(x, at):
        shapes.append((tuple(x.shape), tuple(at.shape)))
        return x * at[..., None]

    layer = layer_of(column, WEIGHTS, HEADS, rotate=(None, turn))
    at = np.stack([np.arange(N), np.arange(N) + 1, np.arange(N) ** 2])
    got = layer.attention_weights(column.array(X), query_positions=column.positions(at))
    q, k = ((X @ w).reshape(3, N, HEADS, -1).swapaxes(1, 2) for w in WEIGHTS[:2])
    exp = np.exp(q @ (k * at[:, None, :, None]).mT / 3**0.5)
    assert_close(column, got, exp / exp.sum(-1, keepdims=True))
    assert shapes == [((3, HEADS, N, 3), (3, 1, N))]
