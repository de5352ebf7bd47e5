"""Heads cut from a width and put back together."""

import numpy as np

from tests.conftest import draw


def test_merging_undoes_splitting(column):
    x = draw(58, 2, 5, 6)
    split = column.split_heads(column.array(x), 3)
    assert tuple(split.shape) == (2, 3, 5, 2)
    for h in range(3):
        assert np.array_equal(column.numpy(split)[:, h], x[..., 2 * h : 2 * h + 2])
    assert np.array_equal(column.numpy(column.merge_heads(split)), x)
