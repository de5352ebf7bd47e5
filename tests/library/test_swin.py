"""Swin's window. What it shares with the other biases is in test_biases.py."""

import jax
import numpy as np
import pytest

from tests.conftest import draw


def layer(column, table, height, width):
    table = column.array(table)
    return column.with_parameters(
        "SwinBias", {"table": table}, table.shape[-1], height=height, width=width
    )


def authors_index(height, width):
    """The index of the authors' program, in our own words: displacement from key to query."""
    rows, columns = np.divmod(np.arange(height * width), width)
    down = rows[:, None] - rows[None] + height - 1
    right = columns[:, None] - columns[None] + width - 1
    return down * (2 * width - 1) + right


@pytest.mark.parametrize(("height", "width"), [(1, 4), (3, 5)])
def test_a_window_reads_the_table_as_the_authors_do(column, height, width):
    table = draw(250, (2 * height - 1) * (2 * width - 1), 2)
    cells = column.positions(np.arange(height * width))
    got = column.numpy(layer(column, table, height, width)(cells, cells))
    assert np.array_equal(got, np.moveaxis(table[authors_index(height, width)], -1, 0))


def test_under_jit_a_cell_outside_becomes_nan(jax_single):
    made = layer(jax_single, draw(253, 15, 1), 2, 3)
    got = jax.jit(made)(np.array([0, -1, 5, 6]), np.array([0, 6]))
    inside = [[False, True], [True, True], [False, True], [True, True]]
    assert np.isnan(got[0]).tolist() == inside
    cells = jax_single.positions(np.array([0, 6]))  # known while it is traced
    with pytest.raises(ValueError, match="key_positions must lie between 0 and height"):
        jax.jit(lambda q: made(q, cells))(np.array([0]))
