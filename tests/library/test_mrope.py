"""M-RoPE: its frequencies, and the positions of a text with pictures and videos."""

import math

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given

from tests.conftest import REFERENCE, assert_close, draw


def rotate(column, x, coordinates, frequencies):
    """In the layout of these models."""
    exact = torch.tensor(frequencies) if column.name == "torch" else frequencies
    return column.rotate_axes(
        column.array(x), column.positions(coordinates), exact, layout="half"
    )


@pytest.mark.parametrize("interleaved", [False, True])
def test_words_are_turned_as_in_a_text_model(column, interleaved):
    x, positions = draw(284, 4, 16), np.array([0, 3, 77, 2**20])
    options = {"base": 1e6, "interleaved": interleaved}
    frequencies = REFERENCE.mrope_frequencies(16, (3, 3, 2), **options)
    got = rotate(column, x, np.repeat(positions[:, None], 3, axis=1), frequencies)
    plain = column.rotate(
        column.array(x), column.positions(positions), base=1e6, layout="half"
    )
    assert np.array_equal(column.numpy(got), column.numpy(plain))


def test_sections_are_those_of_qwen2vl(column):
    x, sections = draw(285, 5, 16), (2, 3, 3)
    coordinates = np.random.default_rng(0).integers(0, 50, (5, 3))
    angles = coordinates.T[:, :, None] * REFERENCE.frequencies(16, base=1e6)
    cos, sin = (np.concatenate([f(angles)] * 2, axis=-1) for f in (np.cos, np.sin))
    ends = np.cumsum(sections * 2)[:-1]
    cos, sin = (
        np.concatenate(
            [part[i % 3] for i, part in enumerate(np.split(t, ends, axis=-1))], axis=-1
        )
        for t in (cos, sin)
    )
    theirs = x * cos + np.concatenate([-x[:, 8:], x[:, :8]], axis=-1) * sin
    frequencies = column.mrope_frequencies(16, sections, base=1e6)
    got = rotate(column, x, coordinates, np.asarray(frequencies))
    assert_close(column, got, theirs)


@pytest.mark.parametrize("sections", [(4,), (1, 3), (1, 1, 2), [2, 1, 1]])
def test_each_section_goes_on_where_the_last_one_ended(column, sections):
    got = np.asarray(column.mrope_frequencies(8, sections, base=50.0))
    assert got.dtype == np.float64
    assert np.array_equal(got.sum(axis=0), REFERENCE.frequencies(8, base=50.0))
    assert np.count_nonzero(got, axis=1).tolist() == list(sections)


@pytest.mark.parametrize("sections", [(3, 3, 2), (4, 2, 2), (6, 1, 1), (5, 3), (8,)])
def test_interleaved_sections_are_those_of_qwen3vl(column, sections):
    x, c = draw(311, 5, 16), len(sections)
    coordinates = np.random.default_rng(1).integers(0, 50, (5, c))
    each = coordinates.T[:, :, None] * REFERENCE.frequencies(16, base=5e6)
    angles = each[0].copy()
    for axis, size in enumerate(sections[1:], start=1):
        turns = slice(axis, c * size, c)
        angles[:, turns] = each[axis][:, turns]
    cos, sin = (np.concatenate([f(angles)] * 2, axis=-1) for f in (np.cos, np.sin))
    theirs = x * cos + np.concatenate([-x[:, 8:], x[:, :8]], axis=-1) * sin
    options = {"base": 5e6, "interleaved": True}
    frequencies = np.asarray(column.mrope_frequencies(16, sections, **options))
    assert np.count_nonzero(frequencies, axis=1).tolist() == list(sections)
    assert_close(column, rotate(column, x, coordinates, frequencies), theirs)


def test_each_parameter_of_the_frequencies_changes_them(column):
    base, *others = (
        np.asarray(column.mrope_frequencies(8, sections, **options))
        for sections, options in (
            ((2, 2), {}),
            ((3, 1), {}),
            ((2, 2), {"base": 9.0}),
            ((2, 2), {"interleaved": True}),
        )
    )
    assert not any(np.array_equal(base, other) for other in others)


def naive(segments, start=0):
    """Token by token."""
    places, position = [], start
    for segment in segments:
        if isinstance(segment, int):
            own = [(position + i,) * 3 for i in range(segment)]
        else:
            t, h, w, step = (*segment, 1)[:4]
            own = [
                (position + math.floor(step * frame), position + row, position + column)
                for frame in range(t)
                for row in range(h)
                for column in range(w)
            ]
        places += own
        position = max([position - 1, *(max(place) for place in own)]) + 1
    return np.array(places, int).reshape(-1, 3), position


def positions(column, segments, **options):
    coordinates, following = column.mrope_positions(segments, **options)
    assert type(following) is int
    found = np.asarray(coordinates)
    assert found.dtype.kind == "i"
    return found, following


def assert_places(column, segments, start=0):
    got, following = positions(column, segments, start=start)
    want, after = naive(segments, start)
    assert np.array_equal(got, want)
    assert following == after


TEXTS = {
    "words": [5],
    "nothing": [],
    "no words": [0, (1, 1, 1), 0],
    "a picture between words": [3, (1, 4, 6), 2],
    "two pictures": [(1, 2, 2), (1, 3, 1), 4],
    "a video of Qwen2-VL, longer than wide": [2, (7, 2, 3), 2],
    "a video of Qwen2.5-VL": [2, (4, 2, 3, 2.0), 1, (3, 2, 2, 0.7), 1],
    "a video that stands still": [1, (3, 2, 2, 0), 1],
    "frames of Qwen3-VL, with their times": [4, (1, 2, 3), 5, (1, 2, 3), 5, (1, 2, 3), 1],
    "lists": [[1, 2, 2], 3],
}


@pytest.mark.parametrize("segments", TEXTS.values(), ids=TEXTS)
def test_tokens_stand_where_they_were_counted(column, segments):
    assert_places(column, segments)
    assert_places(column, tuple(segments), start=11)


def test_a_picture_takes_as_many_positions_as_its_longer_side(column):
    got, following = positions(column, [10, (1, 20, 30), 1])
    assert got.shape == (611, 3)
    assert got[-1].tolist() == [40, 40, 40]
    assert following == 41


GRIDS = st.tuples(
    st.integers(1, 4), st.integers(1, 4), st.integers(1, 4), st.sampled_from([0, 0.5, 1, 2])
)


@given(st.lists(st.integers(0, 5) | GRIDS, max_size=4), st.lists(st.integers(0, 5) | GRIDS))
def test_a_text_goes_on_where_its_beginning_ended(column, first, second):
    assert_places(column, first)
    whole, end = positions(column, first + second)
    before, middle = positions(column, first)
    after, last = positions(column, second, start=middle)
    assert np.array_equal(whole, np.concatenate([before, after]))
    assert end == last


def test_torch_makes_everything_where_it_is_asked(torch_column):
    frequencies = torch_column.mrope_frequencies(
        8, (2, 2), dtype=torch.float32, device="meta"
    )
    assert (frequencies.device.type, frequencies.dtype) == ("meta", torch.float32)
    coordinates, following = torch_column.mrope_positions([2, (1, 2, 3)], device="meta")
    assert coordinates.device.type == "meta"
    assert coordinates.shape == (8, 3)
    assert following == 5
