"""T5's buckets. What the bias shares with the others is in test_biases.py."""

from fractions import Fraction

import numpy as np
import pytest

from tests.conftest import draw

# number of buckets, bidirectional, the first distance of each, as published (max_distance 128)
KNOWN = [
    (32, True, [*range(8), 8, 12, 16, 23, 32, 46, 64, 91]),
    (
        32,
        False,
        [*range(16), 16, 19, 21, 24, 27, 31, 35, 40, 46, 52, 59, 67, 77, 87, 99, 113],
    ),
]
# buckets of one direction, max_distance: powers that meet exactly, and odd ones
SIZES = [(16, 128), (9, 128), (2, 2), (20, 1000), (64, 2**20)]


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
    options = {"num_buckets": num_buckets, "bidirectional": bidirectional}
    past = bucket(column, -np.arange(200), **options)
    assert np.array_equal(np.flatnonzero(np.diff(past, prepend=-1)), starts)
    ahead = bucket(column, np.arange(1, 200), **options)
    assert np.array_equal(ahead, past[1:] + 16 if bidirectional else 0 * ahead)


@pytest.mark.parametrize(("one_way", "max_distance"), SIZES)
def test_buckets_are_exact_up_to_a_million(column, one_way, max_distance):
    """Exact at both ends of every bucket, and steady between them."""
    options = {"num_buckets": one_way, "max_distance": max_distance, "bidirectional": False}
    past = bucket(column, -np.arange(2**20 + 1), **options)
    steps = np.diff(past)
    assert (steps >= 0).all()
    ends = np.concatenate([[0], *((i, i + 1) for i in np.flatnonzero(steps)), [2**20]])
    assert past[ends].tolist() == [exact(int(i), one_way, max_distance) for i in ends]


@pytest.mark.parametrize("kind", [np.int8, np.uint8])
def test_small_integers_do_not_overflow(column, kind):
    relative = np.array([0, 3, 100, 127], kind)
    assert bucket(column, relative).tolist() == [0, 19, 31, 31]
    if kind == np.int8:
        assert bucket(column, -relative - 1).tolist() == [1, 4, 15, 15]


def test_only_buckets_that_were_read_learn(precise_twin):
    def bias(table):
        layer = precise_twin.with_parameters("T5Bias", {"table": table}, 2)
        where = np.array([10]), np.array([10, 12, 1, 0])
        return layer(*map(precise_twin.positions, where))

    _, (slope,) = precise_twin.value_and_gradients(bias, (draw(230, 32, 2),))
    assert np.flatnonzero(slope.any(axis=-1)).tolist() == [0, 8, 18]
