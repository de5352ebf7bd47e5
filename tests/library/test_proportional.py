"""Proportional rotation."""

import numpy as np
import pytest
import torch

from tests.conftest import BOUND, REFERENCE, draw, error

GEMMA_4 = (512, {"base": 1e6, "rotary_dim": 128})  # a quarter of a global head


def call(column, head_dim, **options):
    return np.asarray(column.proportional_frequencies(head_dim, **options))


def theirs(head_dim, base, share, factor=1.0):
    """As transformers computes it."""
    rotation = int(share * head_dim // 2)
    turn = 1.0 / base ** (np.arange(0, 2 * rotation, 2) / head_dim)
    return np.concatenate([turn, np.zeros(head_dim // 2 - rotation)]) / factor


def test_frequencies_are_those_of_gemma_4(column):
    got = call(column, GEMMA_4[0], **GEMMA_4[1])
    assert got.dtype == np.float64
    assert np.count_nonzero(got) == 64
    assert np.allclose(got, theirs(512, 1e6, 0.25), rtol=1e-15, atol=0)
    got = call(column, 64, base=500.0, rotary_dim=48, factor=8.0)
    assert np.allclose(got, theirs(64, 500.0, 0.75, 8.0), rtol=1e-15, atol=0)


def test_all_entries_turn_as_in_the_plain_rotation(column):
    got = call(column, 16, rotary_dim=16)
    assert np.array_equal(got, REFERENCE.frequencies(16))


def test_it_is_not_the_rotation_of_a_smaller_head(column):
    got = call(column, 16, rotary_dim=8)
    prefix = REFERENCE.frequencies(8)
    assert got.shape == (8,)
    assert got[0] == prefix[0] == 1
    assert not np.allclose(got[1:4], prefix[1:])


def test_the_last_entries_of_each_half_pass_through(column):
    x, positions = draw(310, 3, 16), np.array([5, 1000, 2**20])
    turn = column.Rotary(frequencies=call(column, 16, rotary_dim=8).tolist(), layout="half")
    got = column.numpy(turn(column.array(x), column.positions(positions)))
    still = np.r_[4:8, 12:16]
    assert np.array_equal(got[:, still], x[:, still])
    want = REFERENCE.rotate(
        x, positions, frequencies=REFERENCE.frequencies(16), layout="half"
    )
    moving = np.r_[0:4, 8:12]
    assert error(got[:, moving], want[:, moving]) <= BOUND[column.dtype]


@pytest.mark.parametrize(
    "change", [{"base": 9e3}, {"rotary_dim": 6}, {"factor": 2.0}], ids=str
)
def test_each_parameter_changes_the_output(column, change):
    options = {"base": 1e4, "rotary_dim": 4, "factor": 1.0}
    before, after = (call(column, 8, **each) for each in (options, options | change))
    assert not np.allclose(before, after)


def test_torch_makes_them_where_and_as_it_is_asked(torch_column):
    made = torch_column.proportional_frequencies(
        8, rotary_dim=4, dtype=torch.float32, device="meta"
    )
    assert (made.device.type, made.dtype) == ("meta", torch.float32)
