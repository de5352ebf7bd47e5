"""DeBERTa's disentangled attention."""

from fractions import Fraction

import numpy as np
import pytest

from tests.conftest import REFERENCE, assert_close, assert_twin_agrees, draw

HEADS, WIDTH, DIM = 2, 3, 6
TABLE = draw(250, 4, DIM) / 4
QUERY_WEIGHT, KEY_WEIGHT = (draw(251 + i, DIM, HEADS * WIDTH) / 4 for i in range(2))
PARAMETERS = {"table": TABLE, "query_weight": QUERY_WEIGHT, "key_weight": KEY_WEIGHT}
# two examples of two queries and five keys, with distances beyond the table
PLACES = np.array([[3, 4], [8, 20]]), np.array([[0, 1, 2, 3, 4], [11, 7, 8, 6, 9]])
QUERY, KEY = draw(260, 2, HEADS, 2, WIDTH) / 4, draw(261, 2, HEADS, 5, WIDTH) / 4


def deberta(column, *parameters, **options):
    named = dict(zip(PARAMETERS, parameters, strict=True))
    options |= {"num_heads": HEADS}
    return column.with_parameters("DisentangledBias", named, 4, DIM, **options)


def delta(i, j, reach=2):
    """The paper's equation 3."""
    if i - j <= -reach:
        return 0
    return 2 * reach - 1 if i - j >= reach else i - j + reach


def two_terms(first=delta, second=lambda i, j: delta(j, i), table=TABLE):
    """The paper's content-to-position and position-to-content, pair by pair."""
    out = np.zeros((2, HEADS, 2, 5))
    for b, h, i, j in np.ndindex(out.shape):
        columns, at = slice(WIDTH * h, WIDTH * (h + 1)), (PLACES[0][b, i], PLACES[1][b, j])
        k_r = table[first(*at)] @ KEY_WEIGHT[:, columns]
        q_r = table[second(*at)] @ QUERY_WEIGHT[:, columns]
        out[b, h, i, j] = QUERY[b, h, i] @ k_r + KEY[b, h, j] @ q_r
    return out / (3 * WIDTH) ** 0.5


@pytest.mark.parametrize("same_row", [False, True])
def test_scores_are_the_two_terms_of_the_paper(same_row):
    """The authors' code reads the row of the query's distance twice."""
    bias = deberta(REFERENCE, *PARAMETERS.values(), same_row=same_row)
    assert bias.scale == (3 * WIDTH) ** -0.5
    want = two_terms(second=delta) if same_row else two_terms()
    assert_close(REFERENCE, bias.scores(QUERY, KEY, *PLACES), want)


def test_values_and_gradients_agree_with_the_reference(twin):
    def scored(column, table, query_weight, key_weight, query, key):
        bias = deberta(column, table, query_weight, key_weight)
        return bias.scores(query, key, *map(column.positions, PLACES))

    assert_twin_agrees(twin, scored, *PARAMETERS.values(), QUERY, KEY)


def exact(distance, num_buckets, max_distance):
    """The bucket by its definition, in rational numbers: the logarithms compared as powers."""
    half = num_buckets // 2
    if distance <= half:
        return distance
    power = Fraction(distance, half) ** (half - 1)
    ratio = Fraction(max_distance - 1, half)
    return half + next((k for k in range(half) if ratio**k >= power), half)


# half the rows of a table, where distances end
@pytest.mark.parametrize(
    ("num_buckets", "max_distance"), [(256, 512), (50, 1000), (4, 5), (4, 2**20)]
)
def test_buckets_are_exact_on_both_sides(column, num_buckets, max_distance):
    """Exact at both ends of every bucket, and steady between them."""
    options = {"num_buckets": num_buckets, "max_distance": max_distance}
    last = max_distance - 1
    behind = np.array([*range(min(max_distance, 2000) + 50), last, last + 1, 2**30])
    got = column.numpy(column.deberta_bucket(column.positions(behind), **options))
    steps = np.diff(got[:-3])
    assert (steps >= 0).all()
    ends = {0} | {e for i in np.flatnonzero(steps) for e in (i, i + 1)}
    wanted = [exact(int(i), num_buckets, max_distance) for i in ends]
    assert [got[i] for i in ends] == wanted
    assert got[-3:].tolist() == [num_buckets - 1, num_buckets, num_buckets]
    ahead = column.numpy(column.deberta_bucket(column.positions(-behind), **options))
    assert np.array_equal(ahead, -got)


@pytest.mark.parametrize("same_row", [True, False])
def test_buckets_take_the_place_of_distances(same_row):
    """With four buckets of a direction, a distance of 1 or 2 is its own, and 3 to 7 share one."""
    wide = draw(257, 8, DIM) / 4

    def of_bucket(i, j):
        return delta(np.sign(i - j) * exact(abs(int(i - j)), 4, 8), 0, reach=4)

    options = {"same_row": same_row, "bucketed_to": 8}
    bias = deberta(REFERENCE, wide, QUERY_WEIGHT, KEY_WEIGHT, **options)
    back = of_bucket if same_row else lambda i, j: of_bucket(j, i)
    want = two_terms(of_bucket, back, wide)
    assert_close(REFERENCE, bias.scores(QUERY, KEY, *PLACES), want)
