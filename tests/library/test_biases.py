"""What every bias that is a function of positions has to do: one table of schemes, one test for all."""

import hypothesis.strategies as st
import jax
import numpy as np
import pytest
import torch
from hypothesis import given

from tests.conftest import BOUND, REFERENCE, TWINS, assert_twin_agrees, draw, error

HEADS, HIDDEN = 3, 4
FAR = 2**20


def dtype_of(column):
    """How a column is asked for its dtype."""
    dtypes = {"torch": getattr(torch, column.dtype), "jax": column.dtype}
    return {"dtype": dtypes[column.name]} if column.name in dtypes else {}


def positive(seed, *shape):
    return np.abs(draw(seed, *shape)) + 0.125


def alibi(column):
    return column.ALiBi(HEADS, **dtype_of(column))


def sandwich(column):
    return column.sandwich_bias(HEADS, dim=16, base=100.0, **dtype_of(column))


def t5(column, table):
    return column.with_parameters("T5Bias", {"table": table}, HEADS, max_distance=20)


def t5_causal(column, table):
    options = {"max_distance": 20, "bidirectional": False}
    return column.with_parameters("T5Bias", {"table": table}, HEADS, **options)


def kerple_log(column, r1, r2):
    return column.with_parameters("KerpleLog", {"r1": r1, "r2": r2}, HEADS)


def kerple_power(column, r1, r2):
    return column.with_parameters("KerplePower", {"r1": r1, "r2": r2}, HEADS)


def fire(column, *parameters):
    names = (
        "c",
        "multiplier",
        "hidden_weight",
        "hidden_bias",
        "output_weight",
        "output_bias",
    )
    if column is REFERENCE:  # NumPy turns arrays without axes into scalars
        parameters = map(np.asarray, parameters)
    named = dict(zip(names, parameters, strict=True))
    return column.with_parameters("FIRE", named, HEADS, threshold=5.0)


def swin(column, table):
    return column.with_parameters("SwinBias", {"table": table}, HEADS, height=3, width=4)


def swin_v2(column, hidden_weight, hidden_bias, output_weight):
    named = {
        "hidden_weight": hidden_weight,
        "hidden_bias": hidden_bias,
        "output_weight": output_weight,
    }
    options = {"height": 3, "width": 4, "trained_width": 3}
    if column.name == "torch":
        options["hidden_dim"] = HIDDEN
    return column.with_parameters("SwinV2Bias", named, HEADS, **options)


# how to make it from a column and its parameters, and those
NETWORK = (draw(204, HIDDEN), draw(205, HIDDEN), draw(206, HIDDEN, HEADS), draw(207, HEADS))
SCHEMES = {
    "alibi": (alibi, ()),
    "sandwich": (sandwich, ()),
    "t5": (t5, (draw(200, 16, HEADS),)),
    "t5, causal": (t5_causal, (draw(201, 9, HEADS),)),
    "kerple, log": (kerple_log, (positive(202, HEADS), positive(203, HEADS))),
    "kerple, power": (kerple_power, (positive(202, HEADS), np.array([0.5, 1.0, 1.875]))),
    "fire": (fire, (np.array(0.75), np.array(0.875), *NETWORK)),
    "swin": (swin, (draw(208, 35, HEADS),)),
    "swin, v2": (swin_v2, (draw(205, 2, HIDDEN), draw(206, HIDDEN), NETWORK[2] / 4)),
}
WINDOWED = {"swin", "swin, v2"}
INTEGERS = {"t5", "t5, causal", *WINDOWED}
ANYWHERE = set(SCHEMES) - WINDOWED
RELATIVE = ANYWHERE - {"fire"}

# positions of queries and keys
CASES = {
    "queries are keys": (np.arange(5), np.arange(5)),
    "fewer queries than keys": (np.arange(9, 12), np.arange(12)),
    "one of each": (np.array([3]), np.array([3])),
    "out of order and repeated": (np.array([8, 2, 8]), np.array([5, 5, 11, 0])),
    "per example": (np.array([[1, 2], [7, 8]]), np.array([[0, 1, 2], [3, 7, 8]])),
    "queries per example": (np.array([[4], [9]]), np.arange(6)),
    "keys per example": (np.array([9]), np.array([[0, 9], [8, 9]])),
    "two batch axes": (np.arange(6).reshape(2, 1, 3), np.arange(6).reshape(2, 1, 3)),
    "unsigned": (np.array([1, 2], np.uint8), np.array([0, 2, 4], np.uint8)),
    "no queries": (np.zeros(0, int), np.arange(3)),
    "no keys": (np.arange(3), np.zeros(0, int)),
    "no examples": (np.zeros((0, 2), int), np.zeros((0, 3), int)),
}
FAR_CASES = {
    "negative": (np.array([-7, -1, 2]), np.array([-9, -7, 0, 2])),
    "far from zero": (FAR - np.arange(4)[::-1], FAR - np.arange(6)[::-1]),
    "far apart": (np.array([FAR]), np.array([0, 1, FAR // 3, FAR - 100, FAR])),
}
NEAR_FRACTIONS = {
    "fractions": (np.array([0.5, 7.25]), np.array([-1.5, 0.5, 3.0])),
    "mixed": (np.array([3]), np.array([0.25, 1.0])),
}
FAR_FRACTIONS = {
    "far fractions": (np.array([FAR + 0.5]), np.array([FAR - 0.75, FAR + 0.5, 8.0])),
}
DIFFERENTIATED = ("out of order and repeated", "per example", "fractions", "far apart")
JOIN = {"reference": np.concatenate, "torch": torch.cat, "jax": jax.numpy.concatenate}
every_scheme = pytest.mark.parametrize("scheme", SCHEMES)
relative_schemes = pytest.mark.parametrize("scheme", sorted(RELATIVE))
# compiles once for each scheme and shape
apply = jax.jit(lambda bias, *positions: bias(*positions))


def cases_of(scheme):
    """The cases for which a scheme is defined, near ones and far ones."""
    near = {**CASES, **({} if scheme in INTEGERS else NEAR_FRACTIONS)}
    far = {**FAR_CASES, **({} if scheme in INTEGERS else FAR_FRACTIONS)}
    return near, far if scheme in ANYWHERE else {}


def make(column, scheme):
    build, parameters = SCHEMES[scheme]
    return build(column, *map(column.array, parameters))


def truth(scheme, query, key):
    return make(REFERENCE, scheme)(query, key)


def call(column, bias, *positions):
    """Call a bias; in JAX with traced positions."""
    run = apply if column.name == "jax" else lambda bias, *positions: bias(*positions)
    return column.numpy(run(bias, *map(column.positions, positions)))


@every_scheme
def test_biases_agree_with_the_reference(twin, scheme):
    near, far = cases_of(scheme)
    cases = {**near, **far}
    if twin.dtype != TWINS[0].dtype:  # the same code in another dtype
        cases = {case: cases[case] for case in cases if case in DIFFERENTIATED}
    places = [tuple(map(twin.positions, pair)) for pair in cases.values()]

    def biases(bias, places):
        return [bias(*pair) for pair in places]

    run = jax.jit(biases) if twin.name == "jax" else biases
    for case, got in zip(cases, run(make(twin, scheme), places), strict=True):
        want, (query, key) = truth(scheme, *cases[case]), cases[case]
        assert want.shape[-3:] == (HEADS, query.shape[-1], key.shape[-1])
        assert error(twin.numpy(got), want) <= BOUND[twin.dtype], case


@every_scheme
def test_gradients_of_parameters_agree_with_the_reference(twin, scheme):
    build, parameters = SCHEMES[scheme]
    for cases in cases_of(scheme) if parameters else ():
        chosen = [cases[case] for case in DIFFERENTIATED if case in cases]

        def biases(column, *parameters, chosen=chosen):
            bias = build(column, *parameters)
            flat = [bias(*map(column.positions, pair)).reshape(-1) for pair in chosen]
            return JOIN[column.name](flat)

        if chosen:
            assert_twin_agrees(twin, biases, *parameters)


@pytest.mark.slow
@every_scheme
def test_jax_computes_known_positions_as_traced_ones(jax_single, scheme):
    bias, (near, far) = make(jax_single, scheme), cases_of(scheme)
    known = {name: {**near, **far}[name] for name in ("per example", *list(far)[-1:])}
    for query, key in known.values():
        got = bias(*map(jax_single.positions, (query, key)))
        assert error(jax_single.numpy(got), truth(scheme, query, key)) <= BOUND["float32"]


@every_scheme
def test_what_depends_on_distances_alone_says_so(torch_column, scheme):
    assert getattr(make(torch_column, scheme), "relative", False) == (scheme in RELATIVE)


@every_scheme
def test_a_tile_is_a_part_of_the_whole(column, scheme):
    bias = make(column, scheme)
    query, key = np.arange(12), np.arange(12)
    whole = call(column, bias, query, key)
    tile = call(column, bias, query[3:7], key[5:10])
    assert error(tile, whole[:, 3:7, 5:10]) <= BOUND["float64"]


@every_scheme
def test_positions_of_one_byte_are_as_good_as_others(column, scheme):
    query, key = np.array([0, 7], np.uint8), np.array([5, 1, 7], np.uint8)
    want = truth(scheme, query.astype(int), key.astype(int))
    assert error(call(column, make(column, scheme), query, key), want) <= BOUND["float64"]


@every_scheme
def test_examples_do_not_mix(column, scheme):
    bias = make(column, scheme)
    query, key = CASES["per example"]
    together = call(column, bias, query, key)
    for i in range(2):
        alone = call(column, bias, query[i], key[i])
        assert error(together[i], alone) <= BOUND["float64"]


@relative_schemes
@given(
    shift=st.integers(-FAR, FAR),
    query=st.tuples(*[st.integers(-300, 300)] * 2).map(np.array),
    key=st.tuples(*[st.integers(-300, 300)] * 3).map(np.array),
)
def test_only_the_difference_of_positions_matters(column, scheme, shift, query, key):
    bias = make(column, scheme)
    moved = call(column, bias, query + shift, key + shift)
    assert error(moved, call(column, bias, query, key)) <= BOUND["float64"]


@every_scheme
def test_every_parameter_matters_to_every_head(column, scheme):
    build, parameters = SCHEMES[scheme]
    places = np.arange(12)
    before = call(column, make(column, scheme), places, places)
    for i in range(len(parameters)):
        changed = [np.asarray(p + (j == i) * 0.0625) for j, p in enumerate(parameters)]
        after = call(column, build(column, *map(column.array, changed)), places, places)
        assert (np.abs(after - before).max(axis=(-2, -1)) > 1e-3).all()


@every_scheme
def test_where_query_and_key_meet_all_derivatives_are_finite(precise_twin, scheme):
    build, parameters = SCHEMES[scheme]
    places = precise_twin.positions(np.array([0, 3, 3]))
    if parameters:
        value, slopes = precise_twin.value_and_gradients(
            lambda *p: build(precise_twin, *p)(places, places), parameters
        )
        assert all(np.isfinite(x).all() for x in (value, *slopes))


@pytest.mark.parametrize("scheme", sorted(ANYWHERE - INTEGERS))
def test_derivatives_by_position_are_finite_everywhere(scheme):
    places = np.array([0.0, 3.0, 3.0])
    for column in TWINS[:2]:
        with column.mode():
            bias = make(column, scheme)
            _, slopes = column.value_and_gradients(bias, (places, places))
        assert all(np.isfinite(slope).all() for slope in slopes)


@every_scheme
@pytest.mark.parametrize("name", ["torch", "jax"])
def test_a_layer_of_attention_takes_it_with_its_parameters(name, scheme):
    twin = next(t for t in TWINS if t.name == name)
    x, weights = draw(209, 2, 3, 6), [draw(210 + i, 6, 6) / 4 for i in range(4)]
    build, parameters = SCHEMES[scheme]
    positions = np.array([[0, 1, 2], [5, 6, 7]])

    def layer(column, x, *rest):
        attend = column.multi_head(rest[:4], HEADS, bias=build(column, *rest[4:]))
        return attend(x, x, x, causal=True, key_positions=column.positions(positions))

    with twin.mode():
        assert_twin_agrees(twin, layer, x, *weights, *parameters)


@every_scheme
def test_decoding_token_by_token_equals_prefill(column, scheme):
    x = column.array(draw(214, 2, 3, 6))
    weights = [column.array(draw(215 + i, 6, 6)) for i in range(4)]
    layer = column.multi_head(weights, HEADS, bias=make(column, scheme))

    def decode(x):
        steps = [layer(x[:, n - 1 : n], x[:, :n], x[:, :n]) for n in range(1, 4)]
        return [layer(x, x, x, causal=True), *steps]

    whole, *steps = map(
        column.numpy, (jax.jit(decode) if column.name == "jax" else decode)(x)
    )
    assert error(np.concatenate(steps, axis=1), whole) <= BOUND["float64"]


@every_scheme
def test_jax_maps_and_differentiates_a_bias(jax_single, scheme):
    bias = make(jax_single, scheme)
    places = jax_single.positions(np.array([[0, 1, 2], [3, 7, 8]]))

    @jax.jit
    def run(bias, places):
        slopes = jax.grad(lambda bias: bias(places, places).sum())(bias)
        return jax.vmap(lambda bias, p: bias(p, p), in_axes=(None, 0))(bias, places), slopes

    mapped, slopes = run(bias, places)
    assert error(jax_single.numpy(mapped), truth(scheme, *2 * [np.asarray(places)])) <= 2e-6
    assert jax.tree.structure(slopes) == jax.tree.structure(bias)


@pytest.mark.slow
@every_scheme
def test_torch_compiles_it_in_one_graph(torch_column, unchecked, scheme):
    torch.compiler.reset()
    bias = make(torch_column, scheme)
    compiled = torch.compile(bias, fullgraph=True, backend="aot_eager")
    for query, key in (CASES["queries are keys"], CASES["per example"]):
        query, key = torch.tensor(query), torch.tensor(key)
        assert torch.equal(compiled(query, key), bias(query, key))


@pytest.mark.parametrize("scheme", sorted(s for s in SCHEMES if SCHEMES[s][1]))
@pytest.mark.parametrize("name", ["torch", "jax"])
def test_half_precision_gradients_are_summed_in_single_precision(name, scheme):
    """A sum of thousands of numbers in bfloat16 would stop growing."""
    exact, half = (
        t for t in TWINS if t.name == name and t.dtype in ("float64", "bfloat16")
    )
    for got, want in zip(
        slopes_of_mean(half, scheme), slopes_of_mean(exact, scheme), strict=True
    ):
        assert np.abs(got - want).max() <= BOUND["bfloat16"] * np.abs(want).max()


def slopes_of_mean(column, scheme):
    """How each parameter changes the mean bias of thousands of pairs."""
    build, parameters = SCHEMES[scheme]
    places = np.arange(12 if scheme in WINDOWED else 200)
    wide = {"torch": torch.float64, "jax": "float64"}[column.name]

    def mean(*parameters):
        bias = build(column, *parameters)
        pair = map(column.positions, (np.repeat(places, 8), places))
        return bias(*pair).mean(dtype=wide)

    with column.mode(), jax.enable_x64(True):
        inputs = [column.array(p) for p in parameters]
        if column.name == "jax":
            slopes = jax.jit(jax.grad(mean, tuple(range(len(inputs)))))(*inputs)
        else:
            slopes = torch.autograd.grad(
                mean(*[x.requires_grad_() for x in inputs]), inputs
            )
        return [column.numpy(slope) for slope in slopes]


@every_scheme
def test_half_precision_parameters_do_not_round_distances(scheme):
    """Distances that bfloat16 cannot hold give the bias of exact ones, rounded once at the end."""
    query, key = (
        (np.array([11]), np.arange(12))
        if scheme in WINDOWED
        else (np.array([1003]), np.arange(0, 1003, 37))
    )
    want = truth(scheme, query, key)
    for column in TWINS[4:]:
        with column.mode():
            got = call(column, make(column, scheme), query, key)
        assert (np.abs(got - want) <= 2.0**-8 * np.abs(want) + 1e-5).all()
