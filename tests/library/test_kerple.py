"""KERPLE. What it shares with the other biases is in test_biases.py."""

import math

import numpy as np
import pytest
import torch

from tests.conftest import REFERENCE, TWINS, error
from tests.library.test_biases import FAR

KERNELS = {
    "KerpleLog": lambda r1, r2, distance: -r1 * math.log(1 + r2 * distance),
    "KerplePower": lambda r1, r2, distance: -r1 * distance**r2 if distance else 0.0,
}
KERNELS_END = {
    "KerpleLog": 9.0,
    "KerplePower": 2.0,
}  # what a second parameter of 9 counts as
# what each number may be off, in its own size, up to 2**20: a few roundings
ROUNDINGS = {"float64": 2e-15, "float32": 4e-7, "bfloat16": 2.0**-8}
every_kernel = pytest.mark.parametrize("name", KERNELS)


def layer(column, name, r1, r2):
    parameters = {"r1": column.array(np.array(r1)), "r2": column.array(np.array(r2))}
    return column.with_parameters(name, parameters, len(r1))


def bias(column, name, r1, r2, query, key):
    pair = map(column.positions, (np.asarray(query), np.asarray(key)))
    return column.numpy(layer(column, name, r1, r2)(*pair))


@every_kernel
def test_each_number_is_the_kernel_of_its_distance(twin, name):
    r1, r2 = [1.5, 0.25, 1.0, 0.5], [2.0, 0.75, 0.125, 1.0]
    where = np.random.default_rng(0).integers(-FAR, FAR, 20, endpoint=True)
    got = bias(twin, name, r1, r2, where, where)
    for h, i, j in np.ndindex(got.shape):
        want = KERNELS[name](r1[h], r2[h], float(abs(where[j] - where[i])))
        assert abs(got[h, i, j] - want) <= ROUNDINGS[twin.dtype] * abs(want)


@every_kernel
def test_parameters_count_within_the_authors_bounds(column, name):
    where, most = np.arange(5), KERNELS_END[name]
    got = bias(column, name, [0.005, -1.0, 1.0, 1.0], [1.0, 1.0, 0.0, 9.0], where, where)
    r1, r2 = [0.01, 0.01, 1.0, 1.0], [1.0, 1.0, 0.01, most]
    assert error(got, bias(REFERENCE, name, r1, r2, where, where)) <= 1e-15


@every_kernel
def test_clamped_parameters_still_learn(name):
    where = np.arange(5)
    for column in TWINS[:2]:

        def apply(r1, r2, column=column):
            made = column.with_parameters(name, {"r1": r1, "r2": r2}, 1)
            return made(column.positions(where), column.positions(where))

        with column.mode():
            _, outside = column.value_and_gradients(apply, [[-1.0], [0.0]])
            _, inside = column.value_and_gradients(apply, [[0.01], [0.01]])
        assert all((np.abs(slope) > 1e-3).all() for slope in outside)
        assert np.allclose(outside, inside, rtol=1e-12)


@every_kernel
def test_parameters_are_bounded_themselves(column, name):
    """By each call in PyTorch, elsewhere by `clamped` after an update."""
    made, most = layer(column, name, [-3.0, 0.5], [9.0, -9.0]), KERNELS_END[name]
    if column.name == "torch":
        state = {"r1": made.r1, "r2": made.r2}
        made = getattr(column, name)(2, dtype=torch.float64)
        made.load_state_dict(state)
        made(torch.arange(2), torch.arange(2))
    else:
        made = made.clamped()
    assert made.r1.tolist() == [0.01, 0.5]
    assert made.r2.tolist() == [most, 0.01]


@every_kernel
def test_large_parameters_count_in_every_dtype(twin, name):
    """They counted as 0 where their bound was reached by adding a difference."""
    r1, r2, where = [2.0**40, 1.0], [0.5, 2.0**40], np.arange(3)
    got, want = (bias(c, name, r1, r2, where, where) for c in (twin, REFERENCE))
    assert np.allclose(got, want, rtol=2.0**-7, atol=0)
