"""Heads cut from a width and put back together."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import draw


@pytest.mark.slow
@given(st.integers(1, 3), st.integers(1, 3), st.integers(0, 3))
def test_merging_undoes_splitting(column, heads, width, n):
    x = column.array(draw(58, 2, n, heads * width))
    split = column.split_heads(x, heads)
    assert tuple(split.shape) == (2, heads, n, width)
    for h in range(heads):
        part = column.numpy(x)[..., h * width : (h + 1) * width]
        assert np.array_equal(column.numpy(split)[:, h], part)
    assert np.array_equal(column.numpy(column.merge_heads(split)), column.numpy(x))
