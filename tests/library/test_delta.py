"""The delta rules."""

import jax
import numpy as np
import pytest

from posattn.jax import gated_delta
from tests.conftest import assert_close, draw, error
from tests.library.recurrences import VALUES, WIDTH, N, arrays, call, written_out

RULES = pytest.mark.parametrize("kind", ["gated", "kimi"])
REACH = {"float64": 1e-12, "float32": 1e-6}


def test_the_last_value_of_a_key_is_what_is_read(column):
    key = np.array([[[1.0, 0], [0, 1], [1, 0]]])
    value = np.array([[[2.0], [3], [5]]])
    still, whole = np.zeros((1, 3)), np.ones((1, 3))
    given = map(column.array, (key, key, value, still, whole))
    output, state = column.gated_delta(*given, scale=1.0)
    assert_close(column, output, value)
    assert_close(column, state, np.array([[[5.0], [3]]]))


@RULES
@pytest.mark.parametrize(
    ("strong", "weak"), [(-5, -1e-4), (-5, -5), (-80, -1e-6), (-1e4, -0.1), (0, 0)]
)
def test_chunks_are_exact_whatever_the_gates(precise_twin, kind, strong, weak):
    """Sums of strong gates don't blur the weak ones after them."""
    named = arrays(kind)
    high = draw(5, *named["log_gates"].shape) > 0
    named["log_gates"] = np.where(high, strong, weak) * 1.0
    want, last = written_out(named)
    output, state = call(precise_twin, kind, named)
    assert error(precise_twin.numpy(output), want) <= REACH[precise_twin.dtype]
    assert error(precise_twin.numpy(state), last) <= REACH[precise_twin.dtype]


def test_the_first_half_of_a_chunk_may_shut_what_the_second_keeps(precise_twin):
    named = arrays("kimi")
    named["log_gates"][:, :, :32] = -40
    named["log_gates"][:, :, 32:] = -1e-3
    want, _ = written_out(named)
    output, _ = call(precise_twin, "kimi", named)
    assert error(precise_twin.numpy(output), want) <= REACH[precise_twin.dtype]


@RULES
def test_gradients_are_finite_where_gates_shut_or_stay_open(torch_column, kind):
    named = arrays(kind)
    shape = named["log_gates"].shape
    which = np.arange(np.prod(shape)).reshape(shape) % 3
    named["log_gates"] = np.choose(which, [-1e4, -5, 0.0])

    def output(*given):
        return getattr(torch_column, f"{kind}_delta")(*given)[0]

    _, gradients = torch_column.value_and_gradients(output, tuple(named.values()))
    assert all(np.isfinite(gradient).all() for gradient in gradients)


def test_a_gate_of_0_empties_the_state(column):
    named = arrays("kimi", 6)
    named["log_gates"][:, :, 3] = -np.inf
    want, _ = written_out({name: x[:, :, 3:] for name, x in named.items()})
    output, _ = call(column, "kimi", named)
    assert np.isfinite(column.numpy(output)).all()
    assert_close(column, output[:, :, 3:], want)


@RULES
@pytest.mark.parametrize(("length", "most"), [(0.001, 1), (1, 2), (1.4, 1)])
def test_keys_of_any_length_and_steps_up_to_2_are_exact(precise_twin, kind, length, most):
    named = arrays(kind)
    named["key"] = named["key"] * length
    named["beta"] = named["beta"] * most
    want, last = written_out(named)
    output, state = call(precise_twin, kind, named)
    assert error(precise_twin.numpy(output), want) <= REACH[precise_twin.dtype]
    assert error(precise_twin.numpy(state), last) <= REACH[precise_twin.dtype]


def test_keys_are_taken_as_they_are(column):
    named = arrays("gated", 2)
    named["key"] = named["key"] * 3
    assert_close(column, call(column, "gated", named)[0], written_out(named)[0])
    assert VALUES * WIDTH < N


def test_jax_solves_no_system_that_may_never_return():
    tokens = [jax.numpy.ones((1, 70, 4))] * 3 + [jax.numpy.zeros((1, 70))] * 2
    made = str(
        jax.make_jaxpr(jax.grad(lambda q: gated_delta(q, *tokens[1:])[0].sum()))(tokens[0])
    )
    assert "triangular_solve" not in made
    assert "dot_general" in made


def test_many_heads_in_jax_are_what_a_few_are():
    """From 64 on, XLA erred in a sum of gates that it fused with the keys which these decay."""
    shapes = [(64, 5, 32)] * 3 + [(64, 5)] * 2
    query, key, value, gates, beta = (draw(i, *shape) / 4 for i, shape in enumerate(shapes))
    tokens = [jax.numpy.asarray(x) for x in (query, key, value, -abs(gates), abs(beta))]
    whole = gated_delta(*tokens)
    few = [gated_delta(*(x[i : i + 16] for x in tokens)) for i in range(0, 64, 16)]
    for got, want in zip(whole, map(np.concatenate, zip(*few, strict=True)), strict=True):
        assert error(got, want) <= 1e-6
