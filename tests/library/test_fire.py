"""FIRE. What it shares with the other biases is in test_biases.py."""

import dataclasses
import math
import re

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given

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


def naive(query, key, c, multiplier, network, threshold):
    """One pair at a time, as the authors' program: it has an epsilon of 1e-6."""
    w1, b1, w2, b2 = network
    psi = lambda x: math.log(abs(c * x) + 1)  # noqa: E731
    out = np.zeros((len(b2), len(query), len(key)))
    for i, q in enumerate(query):
        for j, k in enumerate(key):
            ratio = psi(q - k) / (psi(max(abs(multiplier * threshold), q)) + 1e-6)
            hidden = [max(0.0, ratio * w + b) for w, b in zip(w1, b1, strict=True)]
            for h in range(len(b2)):
                out[h, i, j] = sum(x * w2[m, h] for m, x in enumerate(hidden)) + b2[h]
    return out


@given(
    st.floats(0.05, 3),
    st.floats(0.25, 3),
    st.floats(1, 600),
    st.lists(st.integers(-5, 1500), min_size=1, max_size=3),
    st.lists(st.floats(-5, 1500), min_size=1, max_size=3),
)
def test_each_number_is_the_network_of_its_ratio(c, multiplier, threshold, query, key):
    got = bias(REFERENCE, query, key, c, multiplier, threshold=threshold)
    want = naive(query, key, c, multiplier, NETWORK, threshold)
    assert error(got, want) <= BOUND["float64"]


@pytest.mark.parametrize(("c", "multiplier"), [(0.0, 1.0), (0.5, 0.0), (0.0, 0.0)])
def test_where_nothing_is_to_be_divided_by_the_ratio_is_the_authors(column, c, multiplier):
    """A divisor of 0 for all queries, or for the one at 0."""
    where = np.arange(4)
    got = bias(column, where, where, c, multiplier, network=IDENTITY)
    want = naive(where, where, c, multiplier, IDENTITY, 512.0)
    assert np.isfinite(want).all()
    assert np.allclose(got, want, rtol=1e-12, atol=0)


def test_where_c_is_0_its_gradient_is_the_same_in_all_columns(twin):
    where = np.arange(4)

    def biases(column, c, multiplier):
        named = dict(zip(NAMES[2:], map(column.array, NETWORK), strict=True))
        if column is REFERENCE:  # NumPy turns arrays without axes into scalars
            c, multiplier = np.asarray(c), np.asarray(multiplier)
        made = column.with_parameters(
            "FIRE", {"c": c, "multiplier": multiplier} | named, HEADS
        )
        return made(*2 * [column.positions(where)])

    assert_twin_agrees(twin, biases, np.asarray(0.0), np.asarray(0.0))


@pytest.mark.parametrize("changed", range(6))
def test_a_parameter_that_is_no_number_gives_none(column, changed):
    where, parameters = np.arange(4), [np.asarray(0.5), np.asarray(1.0), *NETWORK]
    parameters[changed] = np.full_like(parameters[changed], np.nan)
    c, multiplier, *network = parameters
    assert np.isnan(bias(column, where, where, c, multiplier, tuple(network))).all()


@pytest.mark.parametrize("name", ["c", "multiplier"])
def test_a_number_that_was_replaced_by_several_is_told(column, unchecked, name):
    fire = layer(column, 0.1, 1.0, NETWORK)
    several = column.array(np.ones(2))
    if column.name == "torch":
        setattr(fire, name, torch.nn.Parameter(several))
    else:
        fire = dataclasses.replace(fire, **{name: several})
    shape = "(1)" if column.name == "torch" else "()"
    with pytest.raises(
        ValueError, match=re.escape(f"{name} must have shape {shape}, got (2,)")
    ):
        fire(*map(column.positions, (np.arange(3), np.arange(3))))


def test_ratios_of_the_past_lie_between_0_and_1_at_any_length(column):
    where = np.concatenate([np.arange(8), [500, 511, 512, 513, 10**4, 2**20]])
    ratios = bias(column, where, where, network=IDENTITY)[0]
    past = ratios[where[:, None] >= where]
    assert past.min() == 0
    assert 1 - 1e-6 < past.max() < 1
    assert ratios.max() > 1  # of the far future


@given(st.integers(0, 100), st.integers(0, 300))
def test_only_below_the_threshold_does_a_shift_change_nothing(query, shift):
    key = np.arange(5)
    before, after = (bias(REFERENCE, [query + s], key + s) for s in (0, shift))
    assert error(after, before) <= BOUND["float64"]
    beyond = bias(REFERENCE, [query + 2000], key + 2000, network=IDENTITY)
    assert (beyond < bias(REFERENCE, [query], key, network=IDENTITY)).sum() == (
        key != query
    ).sum()


@pytest.mark.parametrize("signs", [(-1, 1), (1, -1), (-1, -1)])
def test_the_signs_of_c_and_of_the_multiplier_do_not_matter(column, signs):
    where = np.arange(8)
    want = bias(column, where, where, 0.5, 0.75, threshold=4.0)
    got = bias(column, where, where, 0.5 * signs[0], 0.75 * signs[1], threshold=4.0)
    assert np.array_equal(got, want)


def test_the_learned_threshold_is_a_product(column):
    where = np.arange(8)
    want = bias(column, where, where, multiplier=2.0, threshold=2.0)
    assert np.array_equal(bias(column, where, where, multiplier=0.5, threshold=8.0), want)
    assert (
        np.abs(bias(column, where, where, multiplier=1.0, threshold=2.0) - want).max()
        > 1e-2
    )


def test_at_the_threshold_it_is_the_threshold_that_learns(twin):
    """A query at L exactly, where a maximum could pass the gradient to either side."""

    def ratio(multiplier):
        named = dict(zip(NAMES, (np.asarray(0.5), multiplier, *IDENTITY), strict=True))
        named = {k: v if k == "multiplier" else twin.array(v) for k, v in named.items()}
        made = twin.with_parameters("FIRE", named, 1, threshold=4.0)
        return made(*map(twin.positions, (np.array([4, 5]), np.array([1]))))[:, :1]

    _, (slope,) = twin.value_and_gradients(ratio, [np.asarray(1.0)])
    value, psi = math.log1p(1.5), math.log1p(2.0) + 1e-6
    want = draw(1, 1, 1, 1).item() * -value / psi**2 * (0.5 * 4.0) / 3.0
    assert error(slope, want) <= BOUND[twin.dtype]


def test_fresh_networks_begin_as_the_authors_and_repeat_with_their_rng(column):
    def fresh(hidden_dim=500):
        if column.name == "torch":
            options = {"dtype": torch.float64, "rng": column.rng()}
            made = column.FIRE(20, hidden_dim=hidden_dim, **options)
        else:
            made = column.FIRE.init(column.rng(), 20, hidden_dim=hidden_dim)
        return made, [column.numpy(getattr(made, name)) for name in NAMES]

    made, (c, multiplier, *network) = fresh()
    assert made.threshold == 512
    assert (c.item(), multiplier.item()) == (0.1, 1.0)
    assert [w.shape for w in network] == [(500,), (500,), (500, 20), (20,)]
    for weights, bound in zip(network, (1, 1, 500**-0.5, 500**-0.5), strict=True):
        assert 0.8 * bound < np.abs(weights).max() <= bound
        assert abs(weights.mean()) < 0.4 * bound
    for before, after in zip(network, fresh()[1][2:], strict=True):
        assert np.array_equal(before, after)


def test_torch_keeps_numbers_with_an_axis_and_loads_them_without(torch_column):
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
