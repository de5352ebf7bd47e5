"""T5's buckets. What the bias shares with the others is in test_biases.py."""

import math
from fractions import Fraction

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given

from tests.conftest import REFERENCE, draw

# number of buckets, bidirectional, the first distance of each, as published (max_distance 128)
KNOWN = [
    (32, True, [*range(8), 8, 12, 16, 23, 32, 46, 64, 91]),
    (
        32,
        False,
        [*range(16), 16, 19, 21, 24, 27, 31, 35, 40, 46, 52, 59, 67, 77, 87, 99, 113],
    ),
]
# what the port of ml-explore/mlx-examples pull request 113 should have given
MATRIX = [
    [0, 17, 18, 19, 20, 21, 22, 23, 24, 24],
    [1, 0, 17, 18, 19, 20, 21, 22, 23, 24],
    [2, 1, 0, 17, 18, 19, 20, 21, 22, 23],
    [3, 2, 1, 0, 17, 18, 19, 20, 21, 22],
    [4, 3, 2, 1, 0, 17, 18, 19, 20, 21],
    [5, 4, 3, 2, 1, 0, 17, 18, 19, 20],
    [6, 5, 4, 3, 2, 1, 0, 17, 18, 19],
    [7, 6, 5, 4, 3, 2, 1, 0, 17, 18],
    [8, 7, 6, 5, 4, 3, 2, 1, 0, 17],
    [8, 8, 7, 6, 5, 4, 3, 2, 1, 0],
]
# buckets of one direction, max_distance: powers that meet exactly, and odd ones
SIZES = [
    (16, 128),
    (32, 128),
    (9, 128),
    (4, 200),
    (2, 2),
    (3, 100),
    (16, 9),
    (20, 1000),
    (64, 2**20),
]


def bucket(column, relative, **options):
    return column.numpy(column.t5_bucket(column.positions(np.asarray(relative)), **options))


def exact(distance, one_way, max_distance):
    """The bucket by its definition, in rational numbers: the logarithms compared as powers."""
    half = one_way // 2
    if distance < half:
        return distance
    power = Fraction(distance, half) ** (one_way - half)
    ratio = Fraction(max_distance, half)
    above = [k for k in range(one_way - half) if power >= ratio**k]
    return half + above[-1]


@pytest.mark.parametrize(("num_buckets", "bidirectional", "starts"), KNOWN)
def test_buckets_begin_where_published(column, num_buckets, bidirectional, starts):
    past = bucket(
        column, -np.arange(200), num_buckets=num_buckets, bidirectional=bidirectional
    )
    assert np.array_equal(np.flatnonzero(np.diff(past, prepend=-1)), starts)
    assert np.array_equal(past[starts], np.arange(len(starts)))


def test_keys_in_the_future_have_buckets_of_their_own_or_none(column):
    ahead = np.arange(1, 200)
    assert np.array_equal(bucket(column, ahead), bucket(column, -ahead) + 16)
    assert not bucket(column, ahead, bidirectional=False).any()


def test_a_small_matrix_is_that_of_another_program(column):
    relative = np.arange(10) - np.arange(10)[:, None]
    assert np.array_equal(bucket(column, relative), MATRIX)


@pytest.mark.parametrize(("one_way", "max_distance"), SIZES)
def test_buckets_are_exact_up_to_a_million(column, one_way, max_distance):
    """Exact at both ends of every bucket, and steady between them."""
    options = {"num_buckets": one_way, "max_distance": max_distance, "bidirectional": False}
    past = bucket(column, -np.arange(2**20 + 1), **options)
    steps = np.diff(past)
    assert (steps >= 0).all()
    ends = np.concatenate([[0], *((i, i + 1) for i in np.flatnonzero(steps)), [2**20]])
    assert past[ends].tolist() == [exact(int(i), one_way, max_distance) for i in ends]


@given(st.integers(2, 40), st.integers(1, 3000), st.integers(0, 5000))
def test_buckets_are_exact_for_any_sizes(one_way, above, distance):
    max_distance = one_way // 2 + above
    options = {"num_buckets": one_way, "max_distance": max_distance, "bidirectional": False}
    got = bucket(REFERENCE, [-distance], **options)
    assert got == exact(distance, one_way, max_distance)


def test_logarithms_misplace_the_boundaries():
    """In bfloat16 for the default numbers; in float32 and float64 for others, on some machines."""
    distance = torch.arange(8, 128)
    logs = torch.log(distance.bfloat16() / 8) / math.log(128 / 8) * 8
    assert distance[(8 + logs.long()).clamp(max=15) != -1][
        ((8 + logs.long()).clamp(max=15).numpy() != bucket(REFERENCE, -distance.numpy()))
    ].tolist() == [16, 32, 90]


@pytest.mark.parametrize("kind", [np.int8, np.uint8, np.int32, np.int64])
def test_any_integers_will_do(column, kind):
    relative = np.array([0, 3, 100, 127], kind)
    assert bucket(column, relative).tolist() == [0, 19, 31, 31]
    if kind == np.int8:
        assert bucket(column, -relative - 1).tolist() == [1, 4, 15, 15]


def test_shapes_are_kept(column):
    for shape in ((), (0,), (2, 0, 3), (1, 2, 3)):
        assert bucket(column, np.zeros(shape, int)).shape == shape


def test_only_buckets_that_were_read_learn(twin):
    table = draw(230, 32, 2)

    def bias(table):
        layer = twin.with_parameters("T5Bias", {"table": table}, 2)
        return layer(*map(twin.positions, (np.array([10]), np.array([10, 12, 1, 0]))))

    _, (slope,) = twin.value_and_gradients(bias, (table,))
    assert np.flatnonzero(slope.any(axis=-1)).tolist() == [0, 8, 18]


def test_fresh_tables_are_glorots_and_repeat_with_their_rng(column):
    """Which mesh-tensorflow leaves to TensorFlow, and flaxformer asks for."""

    def fresh():
        if column.name == "torch":
            layer = column.T5Bias(
                50, num_buckets=200, dtype=torch.float64, rng=column.rng()
            )
        else:
            layer = column.T5Bias.init(column.rng(), 50, num_buckets=200)
        return column.numpy(layer.table)

    table, bound = fresh(), math.sqrt(6 / 250)
    assert table.shape == (200, 50)
    assert 0.99 * bound < np.abs(table).max() <= bound
    assert abs(table.std() / (bound / math.sqrt(3)) - 1) < 0.05
    assert np.array_equal(fresh(), table)
