"""What every bias that is a function of positions has to do; conformance vectors have the values."""

import jax
import numpy as np
import pytest
import torch

from tests.conftest import BOUND, REFERENCE, TWINS, assert_twin_agrees, draw, error

HEADS, HIDDEN = 3, 4
FAR = 2**20


def dtype_of(column):
    """How a column is asked for its dtype."""
    dtypes = {"torch": getattr(torch, column.dtype), "jax": column.dtype}
    return {"dtype": dtypes[column.name]} if column.name in dtypes else {}


def positive(seed, *shape):
    return np.abs(draw(seed, *shape)) + 0.125


# parameters by name; options of the constructor
NETWORK = {
    "hidden_weight": draw(204, HIDDEN),
    "hidden_bias": draw(205, HIDDEN),
    "output_weight": draw(206, HIDDEN, HEADS),
    "output_bias": draw(207, HEADS),
}
SLOPES = {"r1": positive(202, HEADS), "r2": np.array([0.5, 1.0, 1.875])}
WINDOW = {"height": 3, "width": 4}
LEARNED = {
    "T5Bias": ({"table": draw(200, 16, HEADS)}, {"max_distance": 20}),
    "T5Bias, causal": (
        {"table": draw(201, 9, HEADS)},
        {"max_distance": 20, "bidirectional": False},
    ),
    "KerpleLog": (SLOPES, {}),
    "KerplePower": (SLOPES, {}),
    "FIRE": (
        {"c": np.array(0.75), "multiplier": np.array(0.875)} | NETWORK,
        {"threshold": 5.0},
    ),
    "SwinBias": ({"table": draw(208, 35, HEADS)}, WINDOW),
    "SwinV2Bias": (
        {
            "hidden_weight": draw(205, 2, HIDDEN),
            "hidden_bias": draw(206, HIDDEN),
            "output_weight": NETWORK["output_weight"] / 4,
        },
        WINDOW | {"trained_width": 3},
    ),
}
SCHEMES = [*LEARNED, "ALiBi", "sandwich_bias"]
WINDOWED = {"SwinBias", "SwinV2Bias"}
INTEGERS = {"T5Bias", "T5Bias, causal", *WINDOWED}
RELATIVE = {*SCHEMES} - WINDOWED - {"FIRE"}

# positions of queries and keys
CASES = {
    "out of order and repeated": (np.array([8, 2, 8]), np.array([5, 5, 11, 0])),
    "per example": (np.array([[1, 2], [7, 8]]), np.array([[0, 1, 2], [3, 7, 8]])),
    "no queries": (np.zeros(0, int), np.arange(3)),
    "no keys": (np.arange(3), np.zeros(0, int)),
    "fractions": (np.array([0.5, 7.25]), np.array([-1.5, 0.5, 3.0])),
    "whole queries, fractional keys": (np.array([3]), np.array([0.25, 1.0])),
}
JOIN = {"reference": np.concatenate, "torch": torch.cat, "jax": jax.numpy.concatenate}
every_scheme = pytest.mark.parametrize("scheme", SCHEMES)
learned_schemes = pytest.mark.parametrize("scheme", LEARNED)


def make(column, scheme, *arrays):
    """The bias of a column, with these parameters or the ones above."""
    if scheme not in LEARNED:
        return getattr(column, scheme)(HEADS, **dtype_of(column))
    parameters, options = LEARNED[scheme]
    arrays = arrays or map(column.array, parameters.values())
    if column is REFERENCE:  # NumPy turns arrays without axes into scalars
        arrays = map(np.asarray, arrays)
    if column.name == "torch" and scheme == "SwinV2Bias":
        options = options | {"hidden_dim": HIDDEN}
    named = dict(zip(parameters, arrays, strict=True))
    return column.with_parameters(scheme.partition(",")[0], named, HEADS, **options)


def call(column, scheme, *positions):
    return column.numpy(make(column, scheme)(*map(column.positions, positions)))


@learned_schemes
def test_values_and_gradients_agree_with_the_reference(twin, scheme):
    pairs = [
        pair
        for pair in CASES.values()
        if scheme not in INTEGERS or all(p.dtype.kind == "i" for p in pair)
    ]

    def biases(column, *parameters):
        bias = make(column, scheme, *parameters)
        made = [bias(*map(column.positions, pair)) for pair in pairs]
        return JOIN[column.name]([bias.reshape(-1) for bias in made])

    assert_twin_agrees(twin, biases, *LEARNED[scheme][0].values())


@every_scheme
def test_what_depends_on_distances_alone_says_so(torch_column, scheme):
    assert getattr(make(torch_column, scheme), "relative", False) == (scheme in RELATIVE)


@every_scheme
def test_positions_of_one_byte_do_not_overflow(column, scheme):
    query, key = np.array([0, 7], np.uint8), np.array([5, 1, 7], np.uint8)
    want = call(REFERENCE, scheme, query.astype(int), key.astype(int))
    assert error(call(column, scheme, query, key), want) <= BOUND["float64"]


@pytest.mark.parametrize("scheme", sorted(RELATIVE - INTEGERS | {"FIRE"}))
def test_derivatives_by_position_are_finite_where_tokens_meet(scheme):
    places = np.array([0.0, 3.0, 3.0])
    for column in TWINS[:2]:
        with column.mode():
            bias = make(column, scheme)
            _, slopes = column.value_and_gradients(bias, (places, places))
        assert all(np.isfinite(slope).all() for slope in slopes)


@pytest.mark.parametrize("scheme", ["T5Bias, causal", "SwinV2Bias"])
def test_a_layer_takes_it_with_its_parameters(precise_twin, scheme):
    x, weights = draw(209, 2, 3, 6), [draw(210 + i, 6, 6) / 4 for i in range(4)]
    positions = np.array([[0, 1, 2], [5, 6, 7]])

    def layer(column, x, *rest):
        attend = column.multi_head(rest[:4], HEADS, bias=make(column, scheme, *rest[4:]))
        return attend(x, x, x, causal=True, key_positions=column.positions(positions))

    assert_twin_agrees(precise_twin, layer, x, *weights, *LEARNED[scheme][0].values())


@every_scheme
def test_jax_maps_and_differentiates_a_bias(jax_single, scheme):
    bias = make(jax_single, scheme)
    places = jax_single.positions(np.array([[0, 1, 2], [3, 7, 8]]))

    @jax.jit
    def run(bias, places):
        slopes = jax.grad(lambda bias: bias(places, places).sum())(bias)
        return jax.vmap(lambda bias, p: bias(p, p), in_axes=(None, 0))(bias, places), slopes

    mapped, slopes = run(bias, places)
    assert error(jax_single.numpy(mapped), call(REFERENCE, scheme, places, places)) <= 2e-6
    assert jax.tree.structure(slopes) == jax.tree.structure(bias)


def slopes_of_mean(column, scheme):
    """How each parameter changes the mean bias of thousands of pairs."""
    places = np.arange(12 if scheme in WINDOWED else 200)
    wide = {"torch": torch.float64, "jax": "float64"}[column.name]

    def mean(*parameters):
        bias = make(column, scheme, *parameters)
        pair = map(column.positions, (np.repeat(places, 8), places))
        return bias(*pair).mean(dtype=wide)

    with column.mode(), jax.enable_x64(True):
        inputs = [column.array(p) for p in LEARNED[scheme][0].values()]
        if column.name == "jax":
            slopes = jax.jit(jax.grad(mean, tuple(range(len(inputs)))))(*inputs)
        else:
            slopes = torch.autograd.grad(
                mean(*[x.requires_grad_() for x in inputs]), inputs
            )
        return [column.numpy(slope) for slope in slopes]


@learned_schemes
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


@every_scheme
def test_half_precision_parameters_do_not_round_distances(scheme):
    """Distances that bfloat16 cannot hold give the bias of exact ones, rounded once at the end."""
    query, key = (
        (np.array([11]), np.arange(12))
        if scheme in WINDOWED
        else (np.array([1003]), np.arange(0, 1003, 37))
    )
    want = call(REFERENCE, scheme, query, key)
    for column in TWINS[4:]:
        with column.mode():
            got = call(column, scheme, query, key)
        assert (np.abs(got - want) <= 2.0**-8 * np.abs(want) + 1e-5).all()


# Schemes that read content keep the dtype of what they read, whatever that of their parameters.
CONTENT = {
    "DisentangledBias": (2, 6, 2),
    "RelativeGlobalAttention": (5, 2, 3),
    "ShawRelative": (2, 3),
    "TransformerXLBias": (6, 2),
}


@pytest.mark.parametrize("scheme", CONTENT)
@pytest.mark.parametrize("column", TWINS[2:4], ids=str)
def test_half_precision_heads_stay_so_beside_float32_parameters(column, scheme):
    kind, sizes = getattr(column, scheme), CONTENT[scheme]
    bias = kind(*sizes) if column.name == "torch" else kind.init(column.rng(), *sizes)
    half = {"torch": torch.bfloat16, "jax": "bfloat16"}[column.name]
    module = {"torch": torch, "jax": jax.numpy}[column.name]
    x, n = module.ones((2, 5, 3), dtype=half), module.arange(5)
    scores = bias.scores(x, x, n, n)
    assert scores.dtype == half
    if hasattr(bias, "values"):
        assert bias.values(scores, n, n).dtype == half
