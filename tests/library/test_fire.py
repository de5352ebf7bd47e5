"""FIRE. What it shares with the other biases is in test_biases.py."""

import math

import numpy as np
import pytest
import torch

from tests.conftest import BOUND, REFERENCE, assert_twin_agrees, draw, error

NAMES = ("c", "multiplier", "hidden_weight", "hidden_bias", "output_weight", "output_bias")
HIDDEN, HEADS = 5, 2
NETWORK = (draw(240, HIDDEN), draw(241, HIDDEN), draw(242, HIDDEN, HEADS), draw(243, HEADS))
IDENTITY = (np.ones(1), np.zeros(1), np.ones((1, 1)), np.zeros(1))


def layer(column, c, multiplier, network, **options):
    arrays = (np.asarray(float(c)), np.asarray(float(multiplier)), *network)
    named = dict(zip(NAMES, map(column.array, arrays), strict=True))
    return column.with_parameters("FIRE", named, network[-1].shape[0], **options)


def bias(column, query, key, c=0.1, multiplier=1.0, network=NETWORK, **options):
    made = layer(column, c, multiplier, network, **options)
    return column.numpy(made(*map(column.positions, map(np.asarray, (query, key)))))


def naive(query, key, c, multiplier, network, threshold=512.0):
    """One pair at a time, as the authors' program: it has an epsilon of 1e-6."""
    w1, b1, w2, b2 = network
    psi = lambda x: math.log(abs(c * x) + 1)  # noqa: E731
    out = np.zeros((len(b2), len(query), len(key)))
    for h, i, j in np.ndindex(out.shape):
        q, k = query[i], key[j]
        ratio = psi(q - k) / (psi(max(abs(multiplier * threshold), q)) + 1e-6)
        hidden = [max(0.0, ratio * w + b) for w, b in zip(w1, b1, strict=True)]
        out[h, i, j] = sum(x * w2[m, h] for m, x in enumerate(hidden)) + b2[h]
    return out


@pytest.mark.parametrize(
    ("c", "multiplier", "threshold"), [(0.5, 1.5, 4.0), (-3.0, -0.25, 600.0)]
)
def test_each_number_is_the_network_of_its_ratio(column, c, multiplier, threshold):
    query, key = [-5, 3, 7, 1500], [-5.5, 3.0, 1400.25]
    got = bias(column, query, key, c, multiplier, threshold=threshold)
    want = naive(query, key, c, multiplier, NETWORK, threshold)
    assert error(got, want) <= BOUND["float64"]


@pytest.mark.parametrize(("c", "multiplier"), [(0.0, 1.0), (0.5, 0.0), (0.0, 0.0)])
def test_where_the_divisor_is_0_the_ratio_is_the_authors(column, c, multiplier):
    where = np.arange(4)
    got = bias(column, where, where, c, multiplier, network=IDENTITY)
    assert np.allclose(
        got, naive(where, where, c, multiplier, IDENTITY), rtol=1e-12, atol=0
    )


def test_where_c_is_0_gradients_agree(precise_twin):
    def biases(column, c, multiplier):
        named = dict(zip(NAMES[2:], map(column.array, NETWORK), strict=True))
        if column is REFERENCE:  # NumPy turns arrays without axes into scalars
            c, multiplier = np.asarray(c), np.asarray(multiplier)
        named |= {"c": c, "multiplier": multiplier}
        made = column.with_parameters("FIRE", named, HEADS)
        return made(*2 * [column.positions(np.arange(4))])

    assert_twin_agrees(precise_twin, biases, np.asarray(0.0), np.asarray(0.0))


def test_ratios_of_the_past_stay_between_0_and_1(column):
    where = np.concatenate([np.arange(8), [511, 512, 513, 2**20]])
    ratios = bias(column, where, where, network=IDENTITY)[0]
    past = ratios[where[:, None] >= where]
    assert past.min() == 0
    assert 1 - 1e-6 < past.max() < 1
    assert ratios.max() > 1  # of the far future


def test_at_the_threshold_it_is_the_threshold_that_learns(precise_twin):
    """A query at L exactly, where a maximum could pass the gradient to either side."""
    twin = precise_twin

    def ratio(multiplier):
        named = dict(zip(NAMES, (np.asarray(0.5), multiplier, *IDENTITY), strict=True))
        named = {k: v if k == "multiplier" else twin.array(v) for k, v in named.items()}
        made = twin.with_parameters("FIRE", named, 1, threshold=4.0)
        return made(*map(twin.positions, (np.array([4, 5]), np.array([1]))))[:, :1]

    _, (slope,) = twin.value_and_gradients(ratio, [np.asarray(1.0)])
    value, psi = math.log1p(1.5), math.log1p(2.0) + 1e-6
    want = draw(1, 1, 1, 1).item() * -value / psi**2 * (0.5 * 4.0) / 3.0
    assert error(slope, want) <= BOUND[twin.dtype]


def test_torch_keeps_numbers_with_an_axis_and_loads_scalars(torch_column):
    """FSDP2 shards a parameter along its first axis, and refuses one that has none."""
    made = torch_column.FIRE(HEADS)
    assert [tuple(made.get_parameter(name).shape) for name in NAMES[:2]] == [(1,), (1,)]
    holder = torch.nn.Sequential(torch_column.FIRE(HEADS))
    state = {f"0.{name}": value.detach() for name, value in made.state_dict().items()}
    numbers = {"0.c": torch.tensor(0.5), "0.multiplier": torch.tensor(2.0)}
    holder.load_state_dict(state | numbers)
    assert (holder[0].c.tolist(), holder[0].multiplier.tolist()) == ([0.5], [2.0])
    state.pop("0.c")
    with pytest.raises(RuntimeError, match=r'Missing key\(s\) in state_dict: "0.c"'):
        holder.load_state_dict(state)
