"""Operations, steps and path lengths, counted while layers run."""

from itertools import count, repeat
from math import ceil

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given
from torch.utils.flop_counter import FlopCounterMode

from posattn import reference
from tests.conftest import BOUND, draw, error

# tokens, tokens read, layers until all positions meet
CONNECTED_BY_CONVOLUTIONS = [(5, 3, 2), (128, 3, 64), (1024, 7, 171)]
sizes, widths, kernels = st.integers(1, 8), st.integers(1, 5), st.integers(1, 5)


def convolution(k, d):
    kernel = draw(90, k, d, d)
    return lambda x: reference.convolution(x, kernel)


def recurrence(d):
    weights = draw(91, 2, d, d)
    return lambda x: reference.recurrence(x, *weights)


def self_attention(d):
    weights = draw(92, 4, d, d)
    return lambda x: reference.self_attention(x, *weights)


def within(n, k, dilation=1):
    """Which tokens a convolution reads, spelled out."""
    distance = np.subtract.outer(np.arange(n), np.arange(n)) / -dilation
    return (distance % 1 == 0) & (-(k // 2) <= distance) & (distance < k - k // 2)


@given(sizes, widths, kernels)
def test_a_convolution_costs_its_formula_in_one_step(n, d, k):
    cost = reference.measure(convolution(k, d), draw(93, n, d))
    assert cost == (2 * k * n * d**2, 1)
    assert reference.convolution_operations(n, d, k) == cost.operations


@given(sizes, widths)
def test_a_recurrence_costs_its_formula_in_a_step_per_token(n, d):
    cost = reference.measure(recurrence(d), draw(93, n, d))
    assert cost == (4 * n * d**2, n)
    assert reference.recurrence_operations(n, d) == cost.operations


@given(sizes, widths)
def test_self_attention_costs_its_formula_in_four_steps(n, d):
    cost = reference.measure(self_attention(d), draw(93, n, d))
    assert cost == (4 * n**2 * d + 8 * n * d**2, 4)
    assert reference.self_attention_operations(n, d) == cost.operations


@given(sizes, widths)
def test_pytorch_counts_the_same_operations(n, d):
    x, eye = torch.ones(n, d), torch.ones(d, d)
    with FlopCounterMode(display=False) as attention:
        scores = (x @ eye) @ (x @ eye).T
        scores @ (x @ eye) @ eye
    with FlopCounterMode(display=False) as recurrence:
        for token in x:
            token[None] @ eye
            token[None] @ eye
    with FlopCounterMode(display=False) as convolution:
        for _ in range(3):
            x @ eye
    assert attention.get_total_flops() == reference.self_attention_operations(n, d)
    assert recurrence.get_total_flops() == reference.recurrence_operations(n, d)
    assert convolution.get_total_flops() == reference.convolution_operations(n, d, 3)


@given(widths)
def test_the_quadratic_part_takes_over_at_twice_the_width(d):
    def quadratic_share(n):
        return 4 * n**2 * d / reference.self_attention_operations(n, d)

    assert (
        quadratic_share(2 * d - 1)
        < quadratic_share(2 * d)
        == 0.5
        < quadratic_share(2 * d + 1)
    )


@given(sizes, widths, st.integers(1, 3), kernels)
def test_a_convolution_is_its_sum(n, d, dilation, k):
    x, kernel = draw(94, n, d), draw(95, k, d, d)
    want = np.zeros((n, d))
    for i in range(n):
        for m in range(k):
            j = i + (m - k // 2) * dilation
            if 0 <= j < n:
                want[i] += x[j] @ kernel[m]
    assert (
        error(reference.convolution(x, kernel, dilation=dilation), want) <= BOUND["float64"]
    )


def test_an_odd_convolution_is_pytorchs():
    x, kernel = draw(94, 7, 2), draw(95, 3, 2, 2)
    weight = torch.tensor(kernel).permute(2, 1, 0)
    want = torch.nn.functional.conv1d(torch.tensor(x.T), weight, padding="same")
    assert error(reference.convolution(x, kernel), want.numpy().T) <= BOUND["float64"]


def test_a_recurrence_is_pytorchs():
    x, (w, u) = draw(96, 5, 3), draw(97, 2, 3, 3)
    layer = torch.nn.RNN(3, 3, bias=False, dtype=torch.float64)
    layer.load_state_dict(
        {"weight_ih_l0": torch.tensor(w.T), "weight_hh_l0": torch.tensor(u.T)}
    )
    want, _ = layer(torch.tensor(x))
    assert (
        error(np.stack(reference.recurrence(x, w, u)), want.detach().numpy())
        <= BOUND["float64"]
    )


@given(sizes, widths)
def test_self_attention_is_multi_head_attention_with_one_head(n, d):
    x, weights = draw(98, n, d), draw(99, 4, d, d)
    want = reference.MultiHeadAttention(*weights, num_heads=1)(x, x, x)
    assert error(reference.self_attention(x, *weights), want) <= BOUND["float64"]


@given(sizes, kernels)
def test_layers_read_what_their_definition_says(n, k):
    x = draw(93, n, 2)
    assert np.array_equal(reference.reads(convolution(k, 2), x), within(n, k))
    assert reference.reads(self_attention(2), x).all()
    assert np.array_equal(reference.reads(recurrence(2), x), np.tri(n, dtype=bool))


@pytest.mark.slow
@pytest.mark.parametrize(("n", "k", "layers"), CONNECTED_BY_CONVOLUTIONS)
def test_convolutions_connect_in_the_published_number_of_layers(n, k, layers):
    assert reference.layers_to_connect(repeat(within(n, k))) == layers


@given(st.integers(1, 20), st.integers(2, 6))
def test_convolutions_connect_at_the_speed_of_their_kernel(n, k):
    assert reference.layers_to_connect(repeat(within(n, k))) == ceil((n - 1) / (k - 1))


@given(st.integers(1, 40), st.integers(2, 5))
def test_dilated_convolutions_connect_in_a_logarithm(n, k):
    layers = next(layers for layers in count() if k**layers >= n)
    assert (
        reference.layers_to_connect(within(n, k, k**layer) for layer in count()) == layers
    )


def test_self_attention_and_recurrence_connect_in_one_layer():
    x = draw(93, 6, 2)
    assert reference.layers_to_connect([reference.reads(self_attention(2), x)]) == 1
    assert reference.layers_to_connect([reference.reads(recurrence(2), x)]) == 1


@given(st.integers(1, 20), st.sampled_from([3, 5, 7]))
def test_a_way_through_convolutions_is_twice_as_long_as_the_way_to_a_meeting(n, k):
    layers = reference.path_length(repeat(within(n, k)))
    assert layers == ceil(2 * (n - 1) / (k - 1))
    assert ceil(layers / 2) == reference.layers_to_connect(repeat(within(n, k)))


def test_the_two_lengths_differ_on_the_five_tokens_of_the_figure():
    graphs = repeat(within(5, 3))
    assert reference.path_length(graphs) == 4
    assert reference.layers_to_connect(graphs) == 2


def test_a_dilated_way_may_leave_the_sequence_and_never_arrive():
    graphs = [within(3, 3, 3**layer) for layer in range(5)]
    assert not np.linalg.multi_dot([graph * 1 for graph in graphs])[2, 0]
    assert reference.path_length(graphs) == 1


@given(st.integers(2, 12))
def test_a_chain_of_states_is_as_long_as_the_sequence_and_attention_is_one_layer(n):
    chain = np.eye(n, dtype=bool) | np.eye(n, k=-1, dtype=bool)
    assert reference.path_length(repeat(chain)) == n - 1
    assert reference.path_length(repeat(np.ones((n, n), bool))) == 1
    assert reference.path_length(repeat(np.ones((1, 1), bool))) == 0


def test_a_layer_that_forgets_a_position_has_no_path_length():
    text = "^graphs must let every position read itself, but 2 in layer 2 does not$"
    with pytest.raises(ValueError, match=text):
        reference.path_length([within(4, 3), np.diag([True, True, False, True])])


UNCONNECTED = [
    (
        [np.eye(3, dtype=bool)],
        "graphs must connect all positions, but layer 1 connects no new ones",
    ),
    (
        repeat(within(4, 1)),
        "graphs must connect all positions, but layer 1 connects no new ones",
    ),
    ([within(9, 3)] * 3, "graphs must connect all positions, but the layers end before"),
    ([], "graphs must connect all positions, but the layers end before"),
]


@pytest.mark.parametrize(("graphs", "text"), UNCONNECTED)
def test_layers_that_never_connect_are_an_error(graphs, text):
    with pytest.raises(ValueError, match=f"^{text}$"):
        reference.layers_to_connect(graphs)


def test_a_path_ends_where_the_layers_do():
    neighbours = abs(np.subtract.outer(np.arange(5), np.arange(5))) <= 1
    assert reference.path_length([neighbours]) == 1  # and 0 and 4 have not met


@pytest.mark.parametrize(
    "count",
    [
        lambda n: reference.convolution_operations(n, 4, 3),
        lambda n: reference.recurrence_operations(n, 4),
        lambda n: reference.self_attention_operations(n, 4),
    ],
    ids=["convolution", "recurrence", "self-attention"],
)
def test_a_negative_length_is_refused_by_name(count):
    with pytest.raises(ValueError, match=r"^n must be a non-negative integer, got -1$"):
        count(-1)
