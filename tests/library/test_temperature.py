"""Temperature: queries that grow with their position."""

import math

import numpy as np
import pytest

from tests.conftest import REFERENCE, error

POSITIONS = np.array([[0, 1, 8190, 8191], [8192, 16383, 100000, 1000000]])
FORMS = {
    "Llama 4": ((8192,), {}, lambda p: 1 + 0.1 * math.log(1 + (p + 1) // 8192)),
    "Ministral 3": (
        (16384, 0.1),
        {"first": 0},
        lambda p: 1 + 0.1 * math.log(1 + p // 16384),
    ),
    "Inkling 2": (
        (128000,),
        {"smooth": True},
        lambda p: 1 + 0.1 * math.log(max((p + 1) / 128000, 1)),
    ),
    "Mistral Large 4": ((1, 0.5), {"smooth": True}, lambda p: 1 + 0.5 * math.log(p + 1)),
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_the_factor_grows_with_the_logarithm(precise_twin, form):
    numbers, words, formula = form
    want = np.vectorize(formula)(POSITIONS)
    got = precise_twin.log_temperature(precise_twin.positions(POSITIONS), *numbers, **words)
    assert error(np.asarray(got, float), want) <= 1e-6
    assert error(REFERENCE.log_temperature(POSITIONS, *numbers, **words), want) == 0
