"""ALiBi. What it shares with the other biases is in test_biases.py."""

import jax
import numpy as np
import pytest

from tests.conftest import REFERENCE
from tests.library.test_biases import FAR, dtype_of

# minus the exponents of the slopes, as published
KNOWN = {
    1: [8],
    8: [1, 2, 3, 4, 5, 6, 7, 8],
    14: [1, 2, 3, 4, 5, 6, 7, 8, 0.5, 1.5, 2.5, 3.5, 4.5, 5.5],
    16: [h / 2 for h in range(1, 17)],
}
# what each number may be off, in its own size, up to 2**20: the slope, the product, the rounding
ROUNDINGS = {"float64": 2.0**-52, "float32": 2.0**-23, "bfloat16": 2.0**-8}


@pytest.mark.parametrize(("num_heads", "exponents"), KNOWN.items())
def test_slopes_are_the_published_ones(column, num_heads, exponents):
    slopes = np.asarray(column.alibi_slopes(num_heads))
    assert slopes.dtype == np.float64
    assert np.allclose(-np.log2(slopes), exponents, rtol=0, atol=1e-14)


def test_numbers_are_exact_to_the_last_digits(twin):
    places = np.random.default_rng(0).integers(-FAR, FAR, 20, endpoint=True)
    bias = twin.ALiBi(12, **dtype_of(twin))
    run = jax.jit(bias) if twin.name == "jax" else bias
    got = twin.numpy(run(twin.positions(places), twin.positions(places)))
    slopes = REFERENCE.alibi_slopes(12)[:, None, None]
    want = -slopes * abs(places - places[:, None])
    assert (np.abs(got - want) <= ROUNDINGS[twin.dtype] * np.abs(want)).all()


def test_jax_biases_of_equal_arguments_share_a_compilation(jax_single):
    traces = []
    run = jax.jit(lambda bias, p: traces.append(1) or bias(p, p))
    for make in (jax_single.ALiBi, jax_single.sandwich_bias):
        before = len(traces)
        for num_heads in (4, 4, 2):
            made = run(make(num_heads), jax_single.positions(np.arange(3)))
            assert made.dtype == "float32"
        assert len(traces) == before + 2
