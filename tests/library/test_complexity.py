"""Operations, steps and path lengths, counted while layers run."""

from itertools import count, repeat

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from posattn import reference
from tests.conftest import BOUND, draw, error

# tokens, tokens read, layers until all positions meet
CONNECTED_BY_CONVOLUTIONS = [(5, 3, 2), (128, 3, 64)]


def convolution(k, d):
    kernel = draw(90, k, d, d)
    return lambda x: reference.convolution(x, kernel)


def recurrence(d):
    weights = draw(91, 2, d, d)
    return lambda x: reference.recurrence(x, *weights)


def self_attention(d):
    weights = draw(92, 4, d, d)
    return lambda x: reference.self_attention(x, *weights)


N, D, K = 5, 3, 2


def within(n, k, dilation=1):
    """Which tokens a convolution reads, spelled out."""
    distance = np.subtract.outer(np.arange(n), np.arange(n)) / -dilation
    return (distance % 1 == 0) & (-(k // 2) <= distance) & (distance < k - k // 2)


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


def test_layers_cost_their_formulas_in_their_steps():
    x = draw(93, N, D)
    costs = [
        reference.measure(f, x)
        for f in (convolution(K, D), recurrence(D), self_attention(D))
    ]
    assert costs == [
        (2 * K * N * D**2, 1),
        (4 * N * D**2, N),
        (4 * N**2 * D + 8 * N * D**2, 4),
    ]
    assert [cost.operations for cost in costs] == [
        reference.convolution_operations(N, D, K),
        reference.recurrence_operations(N, D),
        reference.self_attention_operations(N, D),
    ]


def test_pytorch_counts_the_same_operations():
    x, eye = torch.ones(N, D), torch.ones(D, D)
    with FlopCounterMode(display=False) as counter:
        scores = (x @ eye) @ (x @ eye).T
        scores @ (x @ eye) @ eye
    assert counter.get_total_flops() == reference.self_attention_operations(N, D)


@pytest.mark.parametrize("dilation", [1, 2])
@pytest.mark.parametrize("k", [2, 3])
def test_a_convolution_is_its_sum(k, dilation):
    x, kernel = draw(94, N, D), draw(95, k, D, D)
    want = np.zeros((N, D))
    for i in range(N):
        for m in range(k):
            j = i + (m - k // 2) * dilation
            if 0 <= j < N:
                want[i] += x[j] @ kernel[m]
    got = reference.convolution(x, kernel, dilation=dilation)
    assert error(got, want) <= BOUND["float64"]


def test_self_attention_is_its_formula():
    x, (query, key, value, output) = draw(98, N, D), draw(99, 4, D, D)
    scores = np.exp((x @ query) @ (x @ key).T / np.sqrt(D))
    want = scores / scores.sum(-1, keepdims=True) @ x @ value @ output
    got = reference.self_attention(x, query, key, value, output)
    assert error(got, want) <= BOUND["float64"]


def test_layers_read_what_their_definition_says():
    x = draw(93, 6, 2)
    layers = [recurrence(2), self_attention(2), convolution(2, 2)]
    memory, attention, kernel = [reference.reads(layer, x) for layer in layers]
    assert np.array_equal(memory, np.tri(6, dtype=bool))
    assert attention.all()
    assert np.array_equal(kernel, within(6, 2))
    assert reference.layers_to_connect([attention]) == 1
    assert reference.layers_to_connect([memory]) == 1  # first and last token meet


@pytest.mark.parametrize(("n", "k", "layers"), CONNECTED_BY_CONVOLUTIONS)
def test_convolutions_connect_in_the_published_number_of_layers(n, k, layers):
    assert reference.layers_to_connect(repeat(within(n, k))) == layers


def test_a_layer_that_forgets_a_position_has_no_path_length():
    text = "^graphs must let every position read itself, but 2 in layer 2 does not$"
    with pytest.raises(ValueError, match=text):
        reference.path_length([within(4, 3), np.diag([True, True, False, True])])


def test_dilated_convolutions_connect_in_a_logarithm():
    graphs = (within(28, 3, 3**layer) for layer in count())
    assert reference.layers_to_connect(graphs) == 4  # 3**3 < 28 <= 3**4


def test_a_way_is_longer_than_the_way_to_a_meeting():
    graphs = repeat(within(5, 3))
    assert reference.path_length(graphs) == 4
    assert reference.layers_to_connect(graphs) == 2
    assert reference.path_length([within(5, 3)]) == 1  # it ends where the layers do


@pytest.mark.parametrize("n", [1, 2, 7])
def test_a_chain_of_states_is_as_long_as_the_sequence(n):
    chain = np.eye(n, dtype=bool) | np.eye(n, k=-1, dtype=bool)
    assert reference.path_length(repeat(chain)) == n - 1
    assert reference.path_length(repeat(np.ones((n, n), bool))) == min(1, n - 1)


UNCONNECTED = [
    (repeat(within(4, 1)), "layer 1 connects no new ones"),
    ([within(9, 3)] * 3, "the layers end before"),
    ([], "the layers end before"),
]


@pytest.mark.parametrize(("graphs", "text"), UNCONNECTED)
def test_layers_that_never_connect_are_an_error(graphs, text):
    with pytest.raises(
        ValueError, match=f"^graphs must connect all positions, but {text}$"
    ):
        reference.layers_to_connect(graphs)


def test_a_negative_length_is_refused_by_name():
    with pytest.raises(ValueError, match=r"^n must be a non-negative integer, got -1$"):
        reference.self_attention_operations(-1, 4)
