"""Swin V2's continuous bias. What it shares with the other biases is in test_biases.py."""

import math

import jax
import numpy as np
import pytest
import torch

from tests.conftest import BOUND, REFERENCE, draw, error

HEADS, HIDDEN = 2, 5
NAMES = ("hidden_weight", "hidden_bias", "output_weight")
NETWORK = (draw(290, 2, HIDDEN), draw(291, HIDDEN) / 4, draw(292, HIDDEN, HEADS) / 4)
SIZES = [(2, 3), (4, 4), (3, 5), (1, 4), (3, 1), (1, 1)]


def layer(column, height, width, network=NETWORK, **options):
    named = dict(zip(NAMES, map(column.array, network), strict=True))
    if column.name == "torch":
        options["hidden_dim"] = len(network[1])
    sides = {"height": height, "width": width}
    return column.with_parameters(
        "SwinV2Bias", named, network[2].shape[1], **sides, **options
    )


def bias(column, height, width, *arguments, **options):
    cells = column.positions(np.arange(height * width))
    return column.numpy(layer(column, height, width, *arguments, **options)(cells, cells))


def naive(height, width, trained_height, trained_width, network=NETWORK):
    """One pair of cells at a time, in the words of the authors' program."""
    w1, b1, w2 = network
    n, heads = height * width, w2.shape[1]
    out = np.zeros((heads, n, n))
    for i in range(n):
        for j in range(n):
            u = []
            for offset, side in (
                (i // width - j // width, trained_height),
                (i % width - j % width, trained_width),
            ):
                scaled = 8.0 * offset / (side - 1) if side > 1 else 8.0 * offset
                size = math.log2(1 + abs(scaled)) / math.log2(8)
                u.append(math.copysign(size, scaled))
            hidden = [
                max(0.0, u[0] * w1[0, m] + u[1] * w1[1, m] + b1[m]) for m in range(len(b1))
            ]
            for h in range(heads):
                z = sum(hidden[m] * w2[m, h] for m in range(len(b1)))
                out[h, i, j] = 16 / (1 + math.exp(-z))
    return out


@pytest.mark.parametrize(("height", "width"), SIZES)
def test_each_number_is_the_network_of_its_displacement(column, height, width):
    want = naive(height, width, height, width)
    assert error(bias(column, height, width), want) <= BOUND["float64"]


@pytest.mark.parametrize(("trained_height", "trained_width"), [(2, 3), (8, 1), (7, 7)])
def test_a_window_of_another_size_is_scaled_as_the_trained_one(
    column, trained_height, trained_width
):
    options = {"trained_height": trained_height, "trained_width": trained_width}
    want = naive(3, 4, trained_height, trained_width)
    assert error(bias(column, 3, 4, **options), want) <= BOUND["float64"]


def test_the_sides_of_training_are_those_of_the_window_unless_given(column):
    plain = bias(column, 3, 4)
    given = bias(column, 3, 4, trained_height=3, trained_width=4)
    assert np.array_equal(plain, given)
    for other in ({"trained_height": 4}, {"trained_width": 3}):
        assert np.abs(bias(column, 3, 4, **other) - plain).max() > 1e-2


def test_a_larger_window_agrees_where_it_overlaps(column):
    small = bias(column, 3, 4)
    large = bias(column, 5, 6, trained_height=3, trained_width=4)
    cells = (np.arange(3)[:, None] * 6 + np.arange(4)).ravel()
    assert error(large[:, cells][:, :, cells], small) <= BOUND["float64"]


@pytest.mark.slow
def test_coordinates_grow_as_logarithms(column):
    """The network reads 1.0566 at the end of the trained window, and 1.3541 at that of one twice as large."""
    reads = (np.array([[0.0], [1.0]]), np.zeros(1), np.ones((1, 1)))
    for side, want in ((5, math.log2(9) / 3), (9, math.log2(17) / 3)):
        got = bias(column, 1, side, reads, trained_width=5)[0, -1, 0]
        assert -math.log(16 / got - 1) == pytest.approx(want, rel=1e-9)


def test_it_lies_between_0_and_16(column):
    strong = tuple(40 * w for w in NETWORK)
    got = bias(column, 3, 3, strong)
    assert got.min() >= 0
    assert got.max() <= 16
    assert np.ptp(got) > 7


def test_under_jit_a_cell_outside_the_window_becomes_nan(jax_single):
    made = layer(jax_single, 2, 3)
    got = np.asarray(jax.jit(made)(np.array([0, 6]), np.array([0])))
    assert np.isnan(got).all(axis=0).tolist() == [[False], [True]]


def fresh(column, hidden_dim=2000):
    if column.name == "torch":
        options = {"dtype": torch.float64, "rng": column.rng()}
        return column.SwinV2Bias(20, 2, 3, hidden_dim=hidden_dim, **options)
    return column.SwinV2Bias.init(column.rng(), 20, 2, 3, hidden_dim=hidden_dim)


def test_fresh_networks_begin_as_the_authors_and_repeat_with_their_rng(column):
    made = fresh(column)
    before, offset, after = (column.numpy(getattr(made, name)) for name in NAMES)
    assert (before.shape, offset.shape, after.shape) == ((2, 2000), (2000,), (2000, 20))
    for weight in (before, after):
        assert abs(weight.std() / 0.02 - 1) < 0.05
        assert abs(weight.mean()) < 2e-3
    assert not offset.any()
    for name, again in zip(NAMES, (before, offset, after), strict=True):
        assert np.array_equal(column.numpy(getattr(fresh(column), name)), again)
    assert (
        error(bias(column, 2, 3, (before, offset, after)), np.full((20, 6, 6), 8.0)) < 0.1
    )


def test_the_hidden_layer_has_512_entries_unless_given(column):
    sizes = (HEADS, 2, 3)
    made = (
        column.SwinV2Bias(*sizes)
        if column.name == "torch"
        else column.SwinV2Bias.init(column.rng(), *sizes)
    )
    assert tuple(made.hidden_bias.shape) == (512,)


def test_cosines_with_a_factor_per_head_are_a_rotation(column):
    """The layer of Swin V2, with nothing of its own but the bias: see the docstring."""
    dim, x = 6, draw(293, 2, 6, 6)
    weights, tau = [draw(294 + i, dim, dim) / 2 for i in range(4)], np.array([2.0, 9.0])
    factor = np.exp(np.minimum(tau, math.log(100)))[:, None, None]
    q, k, v = (REFERENCE.split_heads(x @ w, HEADS) for w in weights[:3])
    unit = [a / np.linalg.norm(a, axis=-1, keepdims=True) for a in (q, k)]
    scores = unit[0] @ unit[1].mT * factor + naive(2, 3, 2, 3)
    heads = REFERENCE.masked_softmax(scores) @ v
    want = REFERENCE.merge_heads(heads) @ weights[3]

    def key(x, positions):
        return x / (x * x).sum(-1)[..., None] ** 0.5

    def query(x, positions):
        return key(x, positions) * column.array(factor)

    scheme = {"rotate": (query, key), "bias": layer(column, 2, 3), "scale": 1.0}
    made = column.multi_head([column.array(w) for w in weights], HEADS, **scheme)
    got = made(*[column.array(x)] * 3)
    assert error(column.numpy(got), want) <= BOUND["float64"]


def test_torch_resets_and_shows_a_module(torch_column):
    made = torch_column.SwinV2Bias(3, 4, 5, trained_width=8, hidden_dim=6, device="meta")
    cells = torch.arange(20, device="meta")
    assert made(cells, cells).shape == (3, 20, 20)
    made = made.to_empty(device="cpu")
    made.reset_parameters(torch_column.rng())
    drawn = torch_column.SwinV2Bias(3, 4, 5, hidden_dim=6, rng=torch_column.rng())
    assert all(map(torch.equal, made.parameters(), drawn.parameters()))
    assert list(made.state_dict()) == list(NAMES)
    assert (
        repr(made) == "SwinV2Bias(3, 4, 5, trained_height=4, trained_width=8, hidden_dim=6)"
    )


@pytest.mark.slow
def test_torch_compiles_it_once_for_all_lengths(torch_column, unchecked):
    torch.compiler.reset()
    made, graphs = torch_column.SwinV2Bias(HEADS, 4, 5), []

    def count(graph, inputs):
        graphs.append(graph)
        return graph

    compiled = torch.compile(made, fullgraph=True, dynamic=True, backend=count)
    for n in (7, 9, 4):
        query, key = torch.arange(n), torch.arange(20)
        assert torch.allclose(compiled(query, key), made(query, key))
    assert len(graphs) == 1


@pytest.mark.slow
def test_jax_biases_are_pytrees(jax_single):
    made = jax_single.SwinV2Bias.init(jax_single.rng(), HEADS, 2, 3, dtype="bfloat16")
    assert len(jax.tree.leaves(made)) == 3
    cells = jax_single.positions(np.arange(6))
    assert made(cells, cells).dtype == "bfloat16"
    with pytest.raises(ValueError, match="trained_width must be a positive integer, got 0"):
        jax_single.SwinV2Bias.init(jax_single.rng(), HEADS, 2, 3, trained_width=0)
