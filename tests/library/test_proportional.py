"""Proportional rotation."""

import numpy as np
import pytest
import torch

from posattn.configs import rope
from tests.conftest import BOUND, REFERENCE, draw, error

# width of a head, the share of it that rotates: the last two do not end with a pair
SHARES = [(512, 0.25), (20, 0.3), (64, 0.3), (10, 0.5)]


def theirs(head_dim, share, base=10000.0, factor=1.0):
    """As transformers computes it: the number of pairs is rounded down."""
    rotating = int(share * head_dim // 2)
    speeds = 1.0 / base ** (np.arange(0, 2 * rotating, 2) / head_dim)
    return np.concatenate([speeds, np.zeros(head_dim // 2 - rotating)]) / factor


@pytest.mark.parametrize(("head_dim", "share"), SHARES)
def test_frequencies_are_those_of_transformers(column, head_dim, share):
    want = theirs(head_dim, share, base=1e6, factor=8.0)
    options = {"base": 1e6, "rotary_dim": 2 * int(np.count_nonzero(want)), "factor": 8.0}
    got = np.asarray(column.proportional_frequencies(head_dim, **options))
    assert got.dtype == np.float64
    assert np.allclose(got, want, rtol=1e-15, atol=0)


@pytest.mark.parametrize(("head_dim", "share"), SHARES)
def test_a_configuration_rounds_pairs_down(head_dim, share):
    parameters = {
        "rope_type": "proportional",
        "rope_theta": 10000.0,
        "partial_rotary_factor": share,
    }
    got = rope(parameters, head_dim).frequencies
    assert np.allclose(got, theirs(head_dim, share), rtol=1e-15, atol=0)


def test_the_last_entries_of_each_half_pass_through(column):
    x, positions = draw(310, 3, 16), np.array([5, 1000, 2**20])
    made = np.asarray(column.proportional_frequencies(16, rotary_dim=8))
    rotate = column.Rotary(frequencies=made.tolist(), layout="half")
    got = column.numpy(rotate(column.array(x), column.positions(positions)))
    still, moving = np.r_[4:8, 12:16], np.r_[0:4, 8:12]
    assert np.array_equal(got[:, still], x[:, still])
    want = REFERENCE.rotate(x, positions, layout="half")
    assert error(got[:, moving], want[:, moving]) <= BOUND[column.dtype]


def test_torch_makes_them_where_and_as_it_is_asked(torch_column):
    made = torch_column.proportional_frequencies(
        8, rotary_dim=4, dtype=torch.float32, device="meta"
    )
    assert (made.device.type, made.dtype) == ("meta", torch.float32)
