"""Shaw's relative representations, the skewing procedure and the Music Transformer's attention."""

import numpy as np
import pytest

from tests.conftest import REFERENCE, assert_close, assert_twin_agrees, draw

HEADS, WIDTH, REACH, MAX_LEN = 2, 3, 2, 4
KEY_TABLE, VALUE_TABLE = (draw(200 + i, 2 * REACH + 1, WIDTH) / 4 for i in range(2))
TABLE = draw(202, HEADS, MAX_LEN, WIDTH) / 4
# two examples of two queries and five keys, with offsets beyond both tables
PLACES = np.array([[3, 4], [8, 20]]), np.array([[0, 1, 2, 3, 4], [11, 7, 8, 6, 9]])
QUERY, KEY = draw(210, 2, HEADS, 2, WIDTH) / 4, draw(211, 2, HEADS, 5, WIDTH) / 4
WEIGHTS = np.abs(draw(212, 2, HEADS, 2, 5)) / 16


def shaw(column, key_table, value_table=None):
    tables = {"key_table": key_table, "value_table": value_table}
    return column.with_parameters("ShawRelative", tables, REACH, WIDTH)


def music(column, table):
    sizes = (MAX_LEN, HEADS, WIDTH)
    return column.with_parameters("RelativeGlobalAttention", {"table": table}, *sizes)


def pairs():
    """Example, head, query and key, with the offset between them."""
    for b, h, i, j in np.ndindex(WEIGHTS.shape):
        yield (b, h), i, j, PLACES[1][b, j] - PLACES[0][b, i]


def test_shaw_adds_the_vector_of_the_clipped_offset():
    bias = shaw(REFERENCE, KEY_TABLE, VALUE_TABLE)
    scores, values = np.zeros(WEIGHTS.shape), np.zeros(QUERY.shape)
    for at, i, j, offset in pairs():
        row = max(-REACH, min(REACH, offset)) + REACH
        scores[*at, i, j] = QUERY[*at, i] @ KEY_TABLE[row] / WIDTH**0.5
        values[*at, i] += WEIGHTS[*at, i, j] * VALUE_TABLE[row]
    assert_close(REFERENCE, bias.scores(QUERY, KEY, *PLACES), scores)
    assert_close(REFERENCE, bias.values(WEIGHTS, *PLACES), values)


def test_the_music_transformer_has_vectors_of_the_past():
    want = np.zeros(WEIGHTS.shape)
    for (b, h), i, j, offset in pairs():
        if 0 <= -offset < MAX_LEN:
            vector = TABLE[h, MAX_LEN - 1 + offset]
            want[b, h, i, j] = QUERY[b, h, i] @ vector / WIDTH**0.5
    assert_close(REFERENCE, music(REFERENCE, TABLE).scores(QUERY, KEY, *PLACES), want)


def test_values_and_gradients_agree_with_the_reference(twin):
    def chain(column, key_table, value_table, table, query, key, weights):
        """Everything in one graph, which compiles once: values, mixed with the sum of all scores."""
        at = [column.positions(p) for p in PLACES]
        bias = shaw(column, key_table, value_table)
        scores = bias.scores(query, key, *at) + music(column, table).scores(query, key, *at)
        return bias.values(weights + scores, *at)

    assert_twin_agrees(twin, chain, KEY_TABLE, VALUE_TABLE, TABLE, QUERY, KEY, WEIGHTS)


def test_offsets_of_small_integers_do_not_overflow(column):
    places = np.array([-100, 3]), np.array([1, 100, 4, 2, 3])
    query, key = map(column.array, (QUERY, KEY))
    for make, table in ((shaw, KEY_TABLE), (music, TABLE)):
        small, large = (
            make(column, column.array(table)).scores(
                query, key, *(column.positions(p.astype(kind)) for p in places)
            )
            for kind in (np.int8, int)
        )
        assert np.array_equal(column.numpy(small), column.numpy(large))


def test_half_precision_weights_of_many_keys_are_summed_in_full(twin):
    n = 4096
    bias = shaw(twin, twin.array(KEY_TABLE), twin.array(np.ones_like(VALUE_TABLE)))
    weights = twin.array(np.full((1, 1, n), 1 / n))
    got = bias.values(weights, twin.positions(np.array([n])), twin.positions(np.arange(n)))
    assert_close(twin, got, np.ones((1, 1, WIDTH)))


def test_without_a_table_of_values_nothing_is_added(column):
    bias = shaw(column, column.array(KEY_TABLE))
    out = bias.values(column.array(WEIGHTS), *map(column.positions, PLACES))
    assert_close(column, out, np.zeros(QUERY.shape))


@pytest.mark.parametrize("shape", [(2, 3, 4, 4), (1, 1), (2, 0, 0)])
def test_skewing_is_the_gather_below_the_diagonal(column, shape):
    x = draw(213, *shape)
    n, want = shape[-1], np.zeros(shape)
    for i, j in np.ndindex(n, n):
        if j <= i:
            want[..., i, j] = x[..., i, n - 1 - (i - j)]
        elif j >= i + 2:
            want[..., i, j] = x[..., i + 1, j - i - 2]
    assert np.array_equal(column.numpy(column.skew(column.array(x))), want)
