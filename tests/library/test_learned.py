"""Learned positional encoding."""

import jax
import numpy as np
import pytest
import torch

from tests.conftest import assert_close, assert_twin_agrees, draw

MAX_LEN, DIM = 6, 3
TABLE = draw(70, MAX_LEN, DIM)

# shape of x, positions
CASES = {
    "no batch axis": ((4, DIM), None),
    "batch axes": ((2, 2, 4, DIM), None),
    "as long as the table": ((2, MAX_LEN, DIM), None),
    "no tokens": ((2, 0, DIM), None),
    "no positions": ((2, 0, DIM), np.zeros((2, 0), int)),
    "offset": ((2, 2, DIM), np.array([3, 4])),
    "one token": ((2, 1, DIM), np.array([5])),
    "repeated and out of order": ((2, 4, DIM), np.array([5, 0, 0, 2])),
    "more tokens than rows": ((2, 8, DIM), np.array([0, 1, 2, 3, 0, 1, 2, 3])),
    "positions per example": ((2, 3, DIM), np.array([[0, 1, 2], [3, 4, 5]])),
}
every_case = pytest.mark.parametrize(("shape", "positions"), CASES.values(), ids=CASES)


def encode(column, table, x, positions):
    return column.learned(table)(
        x, positions=None if positions is None else column.array(positions)
    )


@every_case
def test_each_token_gets_the_row_of_its_position(column, shape, positions):
    x = draw(71, *shape)
    where = np.arange(shape[-2]) if positions is None else positions
    assert_close(
        column,
        encode(column, column.array(TABLE), column.array(x), positions),
        x + TABLE[where],
    )


@every_case
def test_encodings_and_their_gradients_agree_with_the_reference(twin, shape, positions):
    def layer(column, table, x):
        return encode(column, table, x, positions)

    assert_twin_agrees(twin, layer, TABLE, draw(71, *shape))


def test_only_rows_that_were_read_learn(twin):
    positions = np.array([1, 4, 1])
    _, (slope, _) = twin.value_and_gradients(
        lambda table, x: encode(twin, table, x, positions), (TABLE, draw(72, 3, DIM) + 1)
    )
    assert slope.any(axis=-1).tolist() == [False, True, False, False, True, False]


def test_fresh_tables_are_normal_and_repeat_with_their_rng(column):
    def fresh():
        if column.name == "torch":
            return column.LearnedPositionalEncoding(
                200, 50, dtype=torch.float64, rng=column.rng()
            ).table
        return column.LearnedPositionalEncoding.init(column.rng(), 200, 50).table

    table = column.numpy(fresh())
    assert table.shape == (200, 50)
    assert abs(table.std() / 0.02 - 1) < 0.05
    assert abs(table.mean()) < 1e-3
    assert np.array_equal(column.numpy(fresh()), table)


@pytest.mark.slow
def test_bfloat16_tokens_stay_bfloat16_beside_a_float32_table():
    from posattn import jax as jax_column
    from posattn import torch as torch_column

    table = torch_column.LearnedPositionalEncoding(MAX_LEN, DIM)
    assert table(torch.zeros(2, DIM, dtype=torch.bfloat16)).dtype == torch.bfloat16
    table = jax_column.LearnedPositionalEncoding.init(jax.random.key(0), MAX_LEN, DIM)
    for positions in (None, jax.numpy.array([1, 2])):
        assert (
            table(jax.numpy.zeros((2, DIM), "bfloat16"), positions=positions).dtype
            == "bfloat16"
        )


def test_under_jit_a_position_outside_the_table_becomes_nan(jax_single):
    layer = jax_single.learned(jax_single.array(TABLE))
    encode = jax.jit(lambda x, positions: layer(x, positions=positions))
    out = encode(
        jax_single.array(np.zeros((5, DIM))),
        jax_single.array(np.array([0, -1, 6, 5, 2**31 - 1])),
    )
    assert np.isnan(out).all(axis=-1).tolist() == [False, True, True, False, True]
    assert np.array_equal(out[0], TABLE[0])


def test_positions_that_a_jitted_function_encloses_are_checked_where_it_is_traced(
    jax_single,
):
    layer, x = jax_single.learned(jax_single.array(TABLE)), np.zeros((2, DIM), "float32")
    inside, outside = (jax.numpy.array(p) for p in ([4, 1], [1, MAX_LEN]))
    got = jax.jit(lambda x: layer(x, positions=inside))(x)
    assert np.array_equal(got, np.float32(TABLE[[4, 1]]))
    with pytest.raises(ValueError, match=r"positions must lie between 0 and .* got 6"):
        jax.jit(lambda x: layer(x, positions=outside))(x)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_torch_compiles_the_layer_in_one_graph(torch_column, unchecked, backend):
    torch.compiler.reset()
    layer = torch_column.LearnedPositionalEncoding(MAX_LEN, DIM)
    compiled = torch.compile(layer, fullgraph=True, backend=backend)
    x, positions = torch.zeros(2, DIM), torch.tensor([3, 4])
    assert torch.equal(compiled(x), layer(x))
    assert torch.equal(compiled(x, positions=positions), layer(x, positions=positions))
