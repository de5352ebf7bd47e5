"""Swin's window. What it shares with the other biases is in test_biases.py."""

import jax
import numpy as np
import pytest
import torch

from tests.conftest import REFERENCE, draw

SIZES = [(1, 1), (1, 4), (3, 1), (2, 3), (4, 4), (3, 5)]


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


@pytest.mark.parametrize(("height", "width"), SIZES)
def test_a_whole_window_reads_the_table_as_the_authors_program_does(column, height, width):
    table = draw(250, (2 * height - 1) * (2 * width - 1), 2)
    cells = column.positions(np.arange(height * width))
    got = column.numpy(layer(column, table, height, width)(cells, cells))
    assert np.array_equal(got, np.moveaxis(table[authors_index(height, width)], -1, 0))


@pytest.mark.parametrize(("height", "width"), SIZES)
def test_every_displacement_has_one_row_and_every_row_is_used(column, height, width):
    rows = np.arange((2 * height - 1) * (2 * width - 1), dtype=float)
    cells = np.arange(height * width)
    got = column.numpy(
        layer(column, rows[:, None], height, width)(*2 * [column.positions(cells)])
    )[0]
    y, x = np.divmod(cells, width)
    seen = {}
    for i in cells:
        for j in cells:
            assert seen.setdefault((y[j] - y[i], x[j] - x[i]), got[i, j]) == got[i, j]
    assert sorted(seen.values()) == rows.tolist()


def test_height_and_width_are_not_exchanged(column):
    table, cells = draw(251, 15, 1), column.positions(np.arange(6))
    tall, wide = (
        column.numpy(layer(column, table, *size)(cells, cells)) for size in ((3, 2), (2, 3))
    )
    assert np.abs(tall - wide).max() > 0.1


def test_shifting_both_inside_the_window_changes_nothing(column):
    made = layer(column, draw(252, 49, 2), 4, 4)
    query, key = np.array([0, 1, 5]), np.array([2, 4, 6])
    biases = [
        column.numpy(made(*map(column.positions, (query + s, key + s)))) for s in (0, 1, 4)
    ]
    assert np.array_equal(biases[0], biases[1])
    assert np.array_equal(biases[0], biases[2])


def test_under_jit_a_cell_outside_the_window_becomes_nan(jax_single):
    made = layer(jax_single, draw(253, 15, 1), 2, 3)
    cells = np.array([0, -1, 5, 6, 8])
    got = np.asarray(jax.jit(made)(cells, np.array([0, 6])))[0]
    assert np.isnan(got).tolist() == [
        [False, True],
        [True, True],
        [False, True],
        [True, True],
        [True, True],
    ]


def test_known_cells_are_checked_under_jit_as_well(jax_single):
    made = layer(jax_single, draw(253, 15, 1), 2, 3)
    cells = jax_single.positions(np.array([0, 6]))
    with pytest.raises(ValueError, match="key_positions must lie between 0 and height"):
        jax.jit(lambda q: made(q, cells))(np.array([0]))


@pytest.mark.slow
def test_under_compile_a_cell_outside_the_window_fails_in_the_look_up(
    torch_column, unchecked
):
    torch.compiler.reset()
    made = layer(torch_column, draw(254, 15, 1), 2, 3)
    compiled = torch.compile(made, fullgraph=True, backend="eager")
    assert torch.equal(
        compiled(torch.arange(6), torch.arange(6)), made(torch.arange(6), torch.arange(6))
    )
    for query, key in ((-1, 0), (6, 3), (3, 6)):  # whose row would exist
        with pytest.raises(IndexError):
            compiled(torch.tensor([query]), torch.tensor([key]))


def test_fresh_tables_are_normal_and_repeat_with_their_rng(column):
    def fresh():
        if column.name == "torch":
            made = column.SwinBias(50, 7, 8, dtype=torch.float64, rng=column.rng())
        else:
            made = column.SwinBias.init(column.rng(), 50, 7, 8)
        return column.numpy(made.table)

    table = fresh()
    assert table.shape == (13 * 15, 50)
    assert abs(table.std() / 0.02 - 1) < 0.05
    assert np.array_equal(fresh(), table)
    assert REFERENCE.SwinBias.init(REFERENCE.rng(), 2, 3, 4).width == 4
