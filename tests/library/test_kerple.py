"""KERPLE. What it shares with the other biases is in test_biases.py."""

import math

import hypothesis.strategies as st
import jax
import numpy as np
import pytest
import torch
from hypothesis import given

from tests.conftest import BOUND, REFERENCE, TWINS, error
from tests.library.test_biases import FAR

KERNELS = {
    "KerpleLog": lambda r1, r2, distance: -r1 * math.log(1 + r2 * distance),
    "KerplePower": lambda r1, r2, distance: -r1 * distance**r2 if distance else 0.0,
}
# what each number may be off, in its own size, up to 2**20: a few roundings
ROUNDINGS = {"float64": 2e-15, "float32": 4e-7, "bfloat16": 2.0**-8}
every_kernel = pytest.mark.parametrize("name", KERNELS)
amounts = st.floats(0.01, 2)
places = st.lists(st.integers(-1000, 1000), min_size=1, max_size=4)


def layer(column, name, r1, r2):
    parameters = {"r1": column.array(np.array(r1)), "r2": column.array(np.array(r2))}
    return column.with_parameters(name, parameters, len(r1))


def bias(column, name, r1, r2, query, key):
    pair = map(column.positions, (np.asarray(query), np.asarray(key)))
    return column.numpy(layer(column, name, r1, r2)(*pair))


@every_kernel
@given(amounts, amounts, places, st.lists(st.floats(-1e4, 1e4), min_size=1, max_size=3))
def test_each_number_is_the_kernel_of_its_distance(name, r1, r2, query, key):
    got = bias(REFERENCE, name, [r1], [r2], query, key)
    for i, q in enumerate(query):
        for j, k in enumerate(key):
            want = KERNELS[name](r1, r2, abs(k - q))
            assert math.isclose(got[0, i, j], want, rel_tol=1e-12, abs_tol=1e-12)


@every_kernel
def test_numbers_are_right_to_a_few_roundings(twin, name):
    r1, r2 = [1.5, 0.25, 1.0, 0.5], [2.0, 0.75, 0.125, 1.0]
    query = np.random.default_rng(0).integers(-FAR, FAR, 40, endpoint=True)
    got = bias(twin, name, r1, r2, query, query)
    want = bias(REFERENCE, name, r1, r2, query, query)
    assert (np.abs(got - want) <= ROUNDINGS[twin.dtype] * np.abs(want)).all()


def test_an_exponent_of_one_is_alibi(column):
    slopes = REFERENCE.alibi_slopes(8)[:6]  # above the bound of 0.01
    where = np.arange(0, 60, 7)
    got = bias(column, "KerplePower", slopes, np.ones(6), where, where)
    assert error(got, REFERENCE.ALiBi(8)(where, where)[:6]) <= BOUND["float64"]


@every_kernel
@given(
    amounts, amounts, st.lists(st.integers(-500, 500), min_size=2, max_size=6, unique=True)
)
def test_the_kernel_is_an_inner_product_up_to_a_constant(name, r1, r2, where):
    """Conditionally positive definite: no negative value on vectors that sum to 0."""
    matrix = bias(REFERENCE, name, [r1], [r2], where, where)[0]
    centre = np.eye(len(where)) - 1 / len(where)
    eigenvalues = np.linalg.eigvalsh(centre @ matrix @ centre)
    assert eigenvalues.min() >= -1e-9 * max(1, np.abs(matrix).max())


def test_an_exponent_above_two_would_be_no_inner_product():
    where = np.arange(3.0)
    matrix = -(np.abs(where - where[:, None]) ** 2.5)
    vector = np.array([1, -2, 1])
    assert vector @ matrix @ vector < 0


@every_kernel
@pytest.mark.parametrize("r1", [0.005, 0.0, -1.0])
def test_small_and_negative_parameters_count_as_a_hundredth(column, name, r1):
    where = np.arange(5)
    for small, clamped in (([r1], [1.0]), ([1.0], [r1])):
        floor = [max(0.01, small[0])], [max(0.01, clamped[0])]
        want = bias(column, name, *floor, where, where)
        assert error(bias(column, name, small, clamped, where, where), want) <= 1e-15


def test_an_exponent_above_two_counts_as_two(column):
    where, twos = np.arange(5), [2.0, 2.0]
    got = bias(column, "KerplePower", [1.0, 0.5], [2.25, 9.0], where, where)
    assert error(got, bias(column, "KerplePower", [1.0, 0.5], twos, where, where)) <= 1e-15


@every_kernel
def test_clamped_parameters_still_learn(name):
    where = np.arange(5)
    for column in TWINS[:2]:
        with column.mode():

            def apply(r1, r2, column=column):
                positions = column.positions(where)
                return column.with_parameters(name, {"r1": r1, "r2": r2}, 1)(
                    positions, positions
                )

            _, outside = column.value_and_gradients(
                apply, [np.array([-1.0]), np.array([0.0])]
            )
            _, inside = column.value_and_gradients(
                apply, [np.array([0.01]), np.array([0.01])]
            )
        assert all((np.abs(slope) > 1e-3).all() for slope in outside)
        assert np.allclose(outside, inside, rtol=1e-12)


def authors(name, r1, r2, where, pulls, rate):
    """Their updates: both parameters are clamped before each use, and there the derivative is taken."""
    distance, path = np.abs(where - where[:, None]).astype(float), []
    for pull in pulls:
        r1, r2 = max(r1, 0.01), min(max(r2, 0.01), 2 if name == "KerplePower" else np.inf)
        path.append((r1, r2))
        if name == "KerpleLog":
            of_r1, of_r2 = -np.log1p(r2 * distance), -r1 * distance / (1 + r2 * distance)
        else:
            log = np.log(np.where(distance > 0, distance, 1))
            power = np.where(distance > 0, distance**r2, 0)
            of_r1, of_r2 = -power, -r1 * power * log
        r1 -= rate * pull * of_r1.sum()
        r2 -= rate * pull * of_r2.sum()
    return np.array(path)


def updated(column, made, where, step):
    """The layer after one update: in place in PyTorch, elsewhere a new one that is then clamped."""
    positions = column.positions(where)
    if column.name == "torch":
        made(positions, positions).sum().backward()
        with torch.no_grad():
            for parameter in made.parameters():
                parameter -= step * parameter.grad
                parameter.grad = None
        return made
    if column.name == "jax":
        slopes = jax.grad(lambda made: made(positions, positions).sum())(made)
        return jax.tree.map(lambda p, slope: p - step * slope, made, slopes).clamped()
    slopes = [
        REFERENCE.derivative(
            lambda *p: type(made)(*p)(where, where).sum(), (made.r1, made.r2), direction
        )
        for direction in np.eye(2)[:, :, None]
    ]
    return type(made)(made.r1 - step * slopes[0], made.r2 - step * slopes[1]).clamped()


@every_kernel
def test_training_is_the_authors(column, name):
    """Pulled beyond a bound, a parameter stays there, and comes back at the first pull inwards."""
    where, pulls, rate = np.arange(5), [-1.0, -1, -1, 0.5, 0.5, 2, 2, 2, -0.5, -0.5], 0.02
    made = layer(column, name, [0.3], [0.6])
    if column.name == "torch":
        state = {"r1": column.array([0.3]), "r2": column.array([0.6])}
        made = getattr(column, name)(1, dtype=torch.float64)
        made.load_state_dict(state)
    path = []
    for pull in pulls:
        made = updated(column, made, where, rate * pull)
        made(*2 * [column.positions(where)])
        path.append([made.r1.item(), made.r2.item()])
    want = authors(name, 0.3, 0.6, where, [*pulls, 0], rate)[1:]
    assert np.allclose(path, want, rtol=1e-12)
    assert (want[:, 0] == 0.01).sum() > 1
    assert want[-1, 0] > 0.01


@every_kernel
def test_large_parameters_count_in_every_dtype(twin, name):
    """They counted as 0 where their bound was reached by adding a difference."""
    where = np.arange(3)
    got = bias(twin, name, [2.0**40], [0.5], where, where)
    want = bias(REFERENCE, name, [2.0**40], [0.5], where, where)
    assert np.allclose(got, want, rtol=2.0**-7, atol=0)
    got = bias(twin, name, [1.0], [2.0**40], where, where)
    want = bias(REFERENCE, name, [1.0], [2.0**40], where, where)
    assert np.allclose(got, want, rtol=2.0**-7, atol=0)


@every_kernel
@pytest.mark.parametrize("changed", [0, 1])
def test_a_parameter_that_is_no_number_gives_none(column, name, changed):
    parameters = [[1.0], [1.0]]
    parameters[changed] = [np.nan]
    assert np.isnan(bias(column, name, *parameters, np.arange(2), 5 + np.arange(2))).all()


@every_kernel
def test_in_torch_a_call_bounds_the_parameters_themselves(torch_column, name):
    made = getattr(torch_column, name)(2)
    made.load_state_dict({"r1": torch.tensor([-3.0, 0.5]), "r2": torch.tensor([9.0, -9.0])})
    made(torch.arange(2), torch.arange(2))
    assert made.r1.tolist() == [pytest.approx(0.01), 0.5]
    assert made.r2.tolist() == [9 if name == "KerpleLog" else 2, pytest.approx(0.01)]


@pytest.mark.parametrize(("name", "most"), [("KerpleLog", (2, 1)), ("KerplePower", (1, 2))])
def test_fresh_parameters_are_uniform_and_repeat_with_their_rng(column, name, most):
    def fresh():
        kind = getattr(column, name)
        if column.name == "torch":
            made = kind(2000, dtype=torch.float64, rng=column.rng())
        else:
            made = kind.init(column.rng(), 2000)
        return np.stack([column.numpy(made.r1), column.numpy(made.r2)])

    parameters = fresh()
    assert (parameters >= 0).all()
    assert np.allclose(parameters.max(axis=1), most, atol=0.01)
    assert np.allclose(parameters.mean(axis=1), np.array(most) / 2, atol=0.05)
    assert abs(np.corrcoef(parameters)[0, 1]) < 0.1
    assert np.array_equal(fresh(), parameters)
