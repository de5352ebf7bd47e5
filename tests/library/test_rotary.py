"""Rotary position embedding."""

import functools
import math
import weakref

import hypothesis.strategies as st
import jax
import numpy as np
import pytest
import torch
from hypothesis import given

from tests.conftest import (
    BOUND,
    REFERENCE,
    TWINS,
    assert_close,
    assert_twin_agrees,
    draw,
    error,
)

# Up to 2**20 positions, relative to the largest entry: float64 angles carry 2**-53 of themselves, which
# all columns share; half precision is rounded once.
FAR = {"float64": 1e-12, "float32": 5e-7, "bfloat16": 2.0**-8}
FAR_POSITIONS = np.array([2**20, -(2**20), 2**20 - 1, 77777, 3])

# shape of x, positions, options
CASES = {
    "interleaved": ((5, 6), None, {}),
    "half": ((5, 6), None, {"layout": "half"}),
    "another base": ((2, 5, 4), None, {"base": 100.0}),
    "heads": ((2, 3, 4, 6), None, {}),
    "one token": ((2, 1, 6), np.array([41]), {"layout": "half"}),
    "no tokens": ((2, 0, 6), None, {}),
    "no examples": ((0, 3, 6), None, {"layout": "half"}),
    "offset": ((2, 3, 6), np.array([7, 8, 9]), {}),
    "negative and fractional": ((2, 3, 6), np.array([-2.5, 0.25, 1000.75]), {}),
    "not in order": ((3, 6), np.array([100, 0, 17]), {"layout": "half"}),
    "positions per example": ((2, 3, 6), np.array([[0, 1, 2], [0, 0, 5]]), {}),
    "positions per example, shared by heads": (
        (2, 3, 2, 6), np.array([[[0, 1]], [[5, 9]]]), {"layout": "half"}
    ),
    "positions shared by all": ((2, 3, 2, 6), np.array([[3, 4]]), {}),
    "partial": ((2, 3, 7), None, {"frequencies": np.array([1.0, 0.25])}),
    "partial, half": ((2, 3, 7), None, {"frequencies": np.array([1.0, 0.25]), "layout": "half"}),
    "nothing turns": ((3, 5), None, {"frequencies": np.zeros(0)}),
    "attention factor": ((3, 6), None, {"frequencies": np.array([0.5]), "attention_factor": 1.5}),
}  # fmt: skip
every_case = pytest.mark.parametrize(
    ("shape", "positions", "options"), CASES.values(), ids=CASES
)
layouts = pytest.mark.parametrize("layout", ["interleaved", "half"])


def rotate(column, x, positions=None, **options):
    """Rotate an array of the column by NumPy positions and frequencies."""
    if "frequencies" in options:
        options |= {"frequencies": precise(column, options["frequencies"])}
    where = None if positions is None else column.positions(positions)
    return column.rotate(x, where, **options)


def precise(column, frequencies):
    """Frequencies as each column makes them: in float64."""
    return torch.tensor(frequencies) if column.name == "torch" else np.asarray(frequencies)


def naive(x, positions=None, *, frequencies=None, base=10000.0, layout="interleaved",
          attention_factor=1.0):  # fmt: skip
    """Every pair by itself."""
    n, d = x.shape[-2:]
    if frequencies is None:
        frequencies = [base ** (-2 * j / d) for j in range(d // 2)]
    where = np.broadcast_to(np.arange(n) if positions is None else positions, x.shape[:-1])
    out, m = x.copy(), len(frequencies)
    for token in np.ndindex(x.shape[:-1]):
        for j, omega in enumerate(frequencies):
            a, b = (2 * j, 2 * j + 1) if layout == "interleaved" else (j, j + m)
            cos, sin = math.cos(where[token] * omega), math.sin(where[token] * omega)
            out[(*token, a)] = attention_factor * (
                x[(*token, a)] * cos - x[(*token, b)] * sin
            )
            out[(*token, b)] = attention_factor * (
                x[(*token, a)] * sin + x[(*token, b)] * cos
            )
    return out


@every_case
def test_each_pair_turns_by_its_own_angle(column, shape, positions, options):
    x = draw(200, *shape)
    got = rotate(column, column.array(x), positions, **options)
    assert_close(column, got, naive(x, positions, **options))


@every_case
def test_rotations_and_their_gradients_agree_with_the_reference(
    twin, shape, positions, options
):
    assert_twin_agrees(
        twin, lambda column, x: rotate(column, x, positions, **options), draw(200, *shape)
    )


def test_rows_are_the_published_ones(column):
    x = column.array(np.array([[1.0, 0.0, 1.0, 0.0]] * 4))
    want = [-0.98999250, 0.14112001, 0.99955003, 0.02999550]
    assert np.allclose(column.numpy(column.rotate(x))[3], want, rtol=0, atol=6e-9)


def test_pairs_turn_as_complex_numbers_do(column):
    x, positions = draw(201, 4, 6), np.array([0, 1, 5, -3])
    rotated = (x[:, ::2] + 1j * x[:, 1::2]) * np.exp(
        1j * np.outer(positions, REFERENCE.frequencies(6))
    )
    got = column.numpy(rotate(column, column.array(x), positions))
    assert error(got[:, ::2] + 1j * got[:, 1::2], rotated) <= BOUND["float64"]


def test_frequencies_learn(precise_twin):
    def rotated(column, x, frequencies):
        where = column.positions(np.array([0, 3, -1]))
        return column.rotate(x, where, frequencies=frequencies, layout="half")

    assert_twin_agrees(precise_twin, rotated, draw(202, 2, 3, 5), draw(203, 2) / 4)


def test_positions_have_the_slope_of_a_further_quarter_turn(precise_twin):
    x, positions = draw(204, 3, 4), np.array([0.5, -2.0, 7.25])
    _, (slope,) = precise_twin.value_and_gradients(
        lambda p: precise_twin.rotate(precise_twin.array(x), p), [positions]
    )
    omega = np.repeat(REFERENCE.frequencies(4), 2)
    quarter = np.stack([-x[:, 1::2], x[:, ::2]], axis=-1).reshape(3, 4)
    moved = REFERENCE.rotate(quarter, positions) * omega
    assert error(slope, np.sum(draw(1, 3, 4) * moved, axis=-1)) <= BOUND[precise_twin.dtype]


@layouts
def test_bounds_hold_up_to_a_million_positions(twin, layout):
    x = draw(205, 5, 64)
    want = REFERENCE.rotate(x, FAR_POSITIONS, layout=layout)

    def run(x, positions):
        return twin.rotate(x, positions, layout=layout)

    got = run(twin.array(x), twin.positions(FAR_POSITIONS))
    assert np.max(np.abs(twin.numpy(got) - want)) <= FAR[twin.dtype] * np.max(np.abs(x))
    if twin.name == "jax":
        got = jax.jit(run)(twin.array(x), twin.positions(FAR_POSITIONS))
        assert np.max(np.abs(twin.numpy(got) - want)) <= FAR[twin.dtype] * np.max(np.abs(x))


@layouts
def test_tokens_in_a_row_are_turned_as_exactly(twin, layout):
    x = draw(205, 2**18 + 3, 4)
    want = REFERENCE.rotate(x, layout=layout)
    off = np.abs(twin.numpy(twin.rotate(twin.array(x), layout=layout)) - want)
    assert off.max() <= FAR[twin.dtype] * np.abs(x).max()


def test_half_precision_is_rounded_once(twin):
    x = draw(206, 300, 8)
    want = torch.tensor(REFERENCE.rotate(x)).to(getattr(torch, twin.dtype)).double().numpy()
    got = twin.numpy(twin.rotate(twin.array(x)))
    off = np.abs(got - want) / np.maximum(np.abs(want), 1e-2)
    # float32 products may fall on the other side of a tie
    assert np.mean(off > 1e-4) < 1e-3


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_tokens_keep_their_dtype(dtype):
    wide = torch.tensor([1.0, 0.5])
    x = torch.ones(2, 5, dtype=getattr(torch, dtype))
    assert TWINS[2].rotate(x, frequencies=wide).dtype == x.dtype
    x = jax.numpy.ones((2, 5), dtype)
    assert TWINS[3].rotate(x, frequencies=wide.numpy()).dtype == dtype


offsets = st.integers(-1000, 1000)
bases = st.floats(1.5, 1e6)


@pytest.mark.slow
@given(offsets, offsets, st.sampled_from(["interleaved", "half"]), bases)
def test_scores_depend_on_the_offset_alone(column, offset, position, layout, base):
    query, key = draw(207, 1, 8), draw(208, 3, 8)

    def scores(shift):
        q, k = (
            column.numpy(
                rotate(column, column.array(x), where + shift, base=base, layout=layout)
            )
            for x, where in ((query, np.array([position])), (key, np.arange(3)))
        )
        return q @ k.T

    assert error(scores(offset), scores(0)) <= BOUND["float64"]


@pytest.mark.slow
@given(offsets, st.floats(0.5, 2), st.sampled_from(["interleaved", "half"]))
def test_lengths_stay_up_to_the_attention_factor(column, position, factor, layout):
    x = draw(209, 1, 9)
    options = {"frequencies": np.array([1.0, 0.3, 0.01]), "layout": layout}
    rotated = column.numpy(rotate(column, column.array(x), np.array([position]),
                                 attention_factor=factor, **options))  # fmt: skip
    assert abs(np.linalg.norm(rotated[:, :6]) / np.linalg.norm(x[:, :6]) - factor) <= 1e-12
    assert np.array_equal(rotated[:, 6:], x[:, 6:])


@pytest.mark.parametrize("options", [
    {"base": 10001.0}, {"layout": "half"}, {"attention_factor": 1.0001},
    {"frequencies": np.array([1.0, 0.02])}, {"positions": np.array([0, 2])},
], ids=str)  # fmt: skip
def test_each_parameter_changes_the_output(column, options):
    x = column.array(draw(210, 2, 4))
    changed = column.numpy(rotate(column, x, **options))
    assert np.abs(changed - column.numpy(column.rotate(x))).max() > 1e-7


TURNS = {
    "interleaved": {},
    "half": {"layout": "half"},
    "partial": {"frequencies": [1.0, 0.25]},
    "another base": {"base": 500.0, "layout": "half"},
}
each_turn = pytest.mark.parametrize("options", TURNS.values(), ids=TURNS)
BACK = {"float64": 1e-12, "float32": 2e-6, "bfloat16": 2.0**-6}  # two roundings


@each_turn
def test_negative_positions_turn_back(column, options):
    x, positions = draw(213, 2, 3, 8), np.array([0, 7, 2**20])
    turn = column.Rotary(**options)
    there = turn(column.array(x), column.positions(positions))
    assert np.abs(column.numpy(there) - x).max() > 0.5
    back = column.numpy(turn(there, column.positions(-positions)))
    assert np.abs(back - x).max() <= BACK[column.dtype] * np.abs(x).max()
    if "frequencies" not in options:
        back = column.rotate(there, column.positions(-positions), **options)
        assert np.abs(column.numpy(back) - x).max() <= BACK[column.dtype] * np.abs(x).max()


@each_turn
def test_an_output_of_turned_values_is_turned_back_to_offsets(column, options):
    """As DeepSeek-V4 has it: the key is the value, and the output turns back by the query's position."""
    query, latent = draw(214, 2, 3, 8) / 4, draw(215, 2, 5, 8) / 4
    turn = column.Rotary(**options)

    def attend(shift, *, back=True):
        here, there = (
            column.positions(p + shift) for p in (np.array([2, 9, 4]), np.arange(0, 15, 3))
        )
        q, kv = turn(column.array(query), here), turn(column.array(latent), there)
        out = column.scaled_dot_product_attention(q, kv, kv)
        away = column.positions(-np.array([2, 9, 4]) - shift)
        return column.numpy(turn(out, away) if back else out)

    assert error(attend(1000), attend(0)) <= 2 * BOUND[column.dtype]
    assert error(attend(1000, back=False), attend(0, back=False)) > 0.05


@pytest.mark.parametrize("d", [0, 1, 2, 5, 8])
def test_layouts_convert_back_and_forth(column, d):
    x = np.arange(3 * d).reshape(3, d)
    half = column.to_half(column.positions(x))
    assert np.array_equal(
        np.asarray(half), np.concatenate([x[:, ::2], x[:, 1::2]], axis=-1)
    )
    assert np.array_equal(np.asarray(column.to_interleaved(half)), x)
    there = column.to_half(column.to_interleaved(column.positions(x)))
    assert np.array_equal(np.asarray(there), x)


def test_layouts_convert(twin):
    x = twin.array(draw(211, 2, 4, 6))
    rotated = twin.numpy(twin.to_half(twin.rotate(x)))
    half = twin.numpy(twin.rotate(twin.to_half(x), layout="half"))
    last_digit = np.finfo("float64" if twin.dtype == "float64" else "float32").eps
    assert np.allclose(half, rotated, rtol=0, atol=last_digit * np.abs(rotated).max())


def test_the_order_of_tensor2tensor_is_a_permutation(column):
    n, d, positions = 7, 6, np.arange(7)
    rows = column.to_half(column.sinusoidal_encoding(n, d, base=10000.0 ** (d / (d - 2))))
    step = math.log(10000) / (d / 2 - 1)
    angles = np.outer(positions, np.exp(-step * np.arange(d // 2)))
    want = np.concatenate([np.sin(angles), np.cos(angles)], axis=1)
    assert np.allclose(np.asarray(rows), want, rtol=0, atol=1e-6)


DIM, HEADS, HEAD_DIM = 12, 2, 6
WEIGHTS = [draw(220 + i, DIM, DIM) / 4 for i in range(4)]
OFFSETS = [draw(230 + i, DIM) for i in range(4)]


def converted(column, arrays, name, rotary_dim):
    """Weights and offsets in NumPy's orientation, those of queries and keys for another layout."""
    convert = getattr(column, name)

    def one(x):
        turn = np.transpose if column.name == "torch" else np.asarray
        ours = column.array(np.ascontiguousarray(turn(x)))
        return turn(column.numpy(convert(ours, HEADS, rotary_dim)))

    return [one(x) if i % 4 < 2 else x for i, x in enumerate(arrays)]


@pytest.mark.parametrize("rotary_dim", [None, 4])
@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("weight_to_half", "interleaved", "half"),
        ("weight_to_interleaved", "half", "interleaved"),
    ],
)
def test_converted_weights_give_the_same_layer(column, rotary_dim, name, before, after):
    omega = precise(column, [1.0, 0.1] if rotary_dim else [1.0, 0.1, 0.01])
    x = column.array(draw(212, 2, 5, DIM))
    outputs = []
    for layout, weights in (
        (before, WEIGHTS + OFFSETS),
        (after, converted(column, WEIGHTS + OFFSETS, name, rotary_dim)),
    ):
        layer = column.multi_head(
            [column.array(w) for w in weights],
            HEADS,
            rotate=functools.partial(column.rotate, frequencies=omega, layout=layout),
        )
        outputs.append(column.numpy(layer(x, x, x, causal=True)))
    assert error(outputs[1], outputs[0]) <= BOUND["float64"]
    assert not np.array_equal(WEIGHTS[0], weights[0])


@pytest.mark.parametrize("shape", [(DIM, 5), (DIM,)])
def test_weights_convert_as_hugging_face_converts_llama(column, shape):
    weight = draw(213, *shape)  # as torch keeps it
    llama = (
        weight.reshape(HEADS, HEAD_DIM // 2, 2, *shape[1:]).swapaxes(1, 2).reshape(shape)
    )
    ours = weight if column.name == "torch" else weight.T
    half = column.weight_to_half(column.array(np.ascontiguousarray(ours)), HEADS)
    got = column.numpy(half)
    assert np.array_equal(got if column.name == "torch" else got.T, llama)
    back = column.numpy(column.weight_to_interleaved(half, HEADS))
    assert np.array_equal(back, ours)


def test_only_what_turns_is_converted(column):
    offset = column.array(np.arange(10.0))
    got = column.numpy(column.weight_to_half(offset, 2, rotary_dim=4))
    assert got.tolist() == [0, 2, 1, 3, 4, 5, 7, 6, 8, 9]
    got = column.numpy(column.weight_to_interleaved(offset, 2, rotary_dim=4))
    assert got.tolist() == [0, 2, 1, 3, 4, 5, 7, 6, 8, 9]


@pytest.fixture
def layer(column):
    return column.multi_head(
        [column.array(w) for w in WEIGHTS], HEADS, rotate=column.rotate
    )


def test_layers_with_rotation_agree_with_the_reference(twin):
    positions = np.array([[0, 1, 2, 3], [0, 0, 0, 1]])

    def run(column, x, *weights):
        layer = column.multi_head(weights, HEADS, rotate=column.rotate)
        return layer(x, x, x, causal=True, key_positions=column.positions(positions))

    assert_twin_agrees(twin, run, draw(214, 2, 4, DIM), *WEIGHTS)


@pytest.mark.slow
def test_decoding_with_cached_keys_equals_prefill(column, layer):
    x = column.array(draw(215, 2, 3, DIM))
    whole = column.numpy(layer(x, x, x, causal=True))
    for i in range(3):
        one = layer(x[:, i : i + 1], x[:, : i + 1], x[:, : i + 1], causal=True)
        assert error(column.numpy(one)[:, 0], whole[:, i]) <= BOUND["float64"]
    heads = column.array(draw(216, 2, 2, 3, 8))
    cached = [
        column.numpy(
            column.rotate(heads[..., i : i + 1, :], column.positions(np.array([i])))
        )
        for i in range(3)
    ]
    assert error(np.concatenate(cached, axis=-2), column.numpy(column.rotate(heads))) == 0


@pytest.mark.slow
def test_left_padding_changes_nothing(column, layer):
    x = draw(217, 1, 4, DIM)
    padded = np.concatenate([np.full((1, 3, DIM), 7.0), x], axis=1)
    options = {
        "key_positions": column.positions(np.array([[0, 0, 0, 0, 1, 2, 3]])),
        "mask": column.positions(np.arange(7) >= 3)[None],
    }
    plain = layer(*[column.array(x)] * 3, causal=True)
    moved = layer(*[column.array(padded)] * 3, causal=True, **options)
    assert_close(column, moved[:, 3:], column.numpy(plain))


def test_frequencies_of_a_partial_stay_exact_under_jit(jax_single):
    slowed = REFERENCE.frequencies(64) / 3
    layer = jax_single.MultiHeadAttention.init(
        jax.random.key(0), 64, 1, rotate=functools.partial(jax_single.rotate, frequencies=slowed)
    )  # fmt: skip
    x = jax_single.array(draw(218, 5, 64))

    def scores(layer, x, positions):
        return layer.rotate(x, positions)

    got = jax.jit(scores)(layer, x, FAR_POSITIONS)
    want = REFERENCE.rotate(np.asarray(x, np.float64), FAR_POSITIONS, frequencies=slowed)
    assert np.abs(got - want).max() <= FAR["float32"] * np.abs(want).max()
    assert jax.jit(layer)(x, x, x).shape == (5, 64)


def test_jax_maps_over_examples(jax_single):
    x, positions = jax_single.array(draw(219, 3, 4, 6)), np.arange(12).reshape(3, 4)
    mapped = jax.vmap(jax_single.rotate)(x, positions)
    assert np.abs(mapped - jax_single.rotate(x, positions)).max() <= 2e-6


@layouts
@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # torch.func itself
def test_torch_maps_and_differentiates_forward(torch_column, layout):
    x, moved = torch.randn(2, 3, 4, 6, dtype=torch.double)
    run = functools.partial(torch_column.rotate, layout=layout)
    where = torch.arange(12).reshape(3, 4)
    assert torch.allclose(torch.func.vmap(run)(x, where), run(x, where), atol=1e-14)
    # a rotation is linear
    value, tangent = torch.func.jvp(run, (x,), (moved,))
    assert torch.allclose(value, run(x), atol=1e-14)
    assert torch.allclose(tangent, run(moved), atol=1e-14)


@layouts
def test_torch_differentiates_in_every_way(torch_column, layout):
    def rotated(x, positions, frequencies):
        return torch_column.rotate(x, positions, frequencies=frequencies, layout=layout)

    shapes = (2, 3, 5), (3,), (2,)
    inputs = [torch.rand(s, dtype=torch.double, requires_grad=True) for s in shapes]
    assert torch.autograd.gradcheck(
        rotated, inputs, check_forward_ad=True, check_batched_grad=True
    )
    assert torch.autograd.gradgradcheck(rotated, inputs, check_batched_grad=True)
    plain = torch.autograd.functional.jacobian(rotated, tuple(inputs))
    for strategy in ("reverse-mode", "forward-mode"):
        mapped = torch.autograd.functional.jacobian(
            rotated, tuple(inputs), vectorize=True, strategy=strategy
        )
        for got, want in zip(mapped, plain, strict=True):
            assert torch.allclose(got, want, atol=1e-12)


@layouts
def test_torch_keeps_no_tokens_for_the_backward_pass(torch_column, layout):
    x = torch.ones(3, 4, requires_grad=True) * 2
    kept = weakref.ref(x)
    rotated = torch_column.rotate(x, layout=layout)
    assert rotated.requires_grad
    del x
    assert kept() is None


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_torch_compiles_the_rotation_in_one_graph(torch_column, unchecked, backend):
    torch.compiler.reset()
    x, positions = torch.randn(2, 3, 4, 6), torch.tensor([[3, 4, 5, 6]])
    some = torch.tensor([1.0, 0.1])
    for options in ({}, {"layout": "half", "frequencies": some, "attention_factor": 1.5}):
        run = functools.partial(torch_column.rotate, **options)
        compiled = torch.compile(run, fullgraph=True, backend=backend)
        assert torch.allclose(compiled(x, positions), run(x, positions), atol=1e-6)
        assert torch.allclose(compiled(x), run(x), atol=1e-6)


def test_torch_rotates_where_the_tokens_are(torch_column):
    x = torch.ones(2, 4, device="meta")
    assert torch_column.rotate(x, layout="half").device.type == "meta"
    assert torch_column.to_interleaved(x).device.type == "meta"
