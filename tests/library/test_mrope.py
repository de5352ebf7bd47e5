"""M-RoPE: its frequencies, and the positions of a text with pictures and videos."""

import math

import numpy as np
import pytest
import torch

from tests.conftest import REFERENCE, assert_close, draw

# sections, and whether they alternate
SPLITS = [
    ((2, 3, 3), False),
    ((1, 7), False),
    ((8,), True),
    ((3, 3, 2), True),
    ((4, 2, 2), True),
    ((6, 1, 1), True),
]
each_split = pytest.mark.parametrize(("sections", "interleaved"), SPLITS)


def rotate(column, x, coordinates, frequencies):
    """In the layout of these models."""
    exact = torch.tensor(frequencies) if column.name == "torch" else frequencies
    return column.rotate_axes(
        column.array(x), column.positions(coordinates), exact, layout="half"
    )


def theirs(x, coordinates, sections, interleaved):
    """As Qwen2-VL splits cosines and sines, and Qwen3-VL has the axes take turns."""
    each = coordinates.T[:, :, None] * REFERENCE.frequencies(16, base=1e6)
    if interleaved:
        angles = each[0].copy()
        for axis, size in enumerate(sections[1:], start=1):
            places = slice(axis, len(sections) * size, len(sections))
            angles[:, places] = each[axis][:, places]
    else:
        parts = np.split(each, np.cumsum(sections)[:-1], axis=-1)
        angles = np.concatenate([part[i] for i, part in enumerate(parts)], axis=-1)
    cos, sin = (np.concatenate([f(angles)] * 2, axis=-1) for f in (np.cos, np.sin))
    return x * cos + np.concatenate([-x[:, 8:], x[:, :8]], axis=-1) * sin


@each_split
def test_sections_are_those_of_qwen(column, sections, interleaved):
    x, options = draw(285, 5, 16), {"base": 1e6, "interleaved": interleaved}
    coordinates = np.random.default_rng(0).integers(0, 50, (5, len(sections)))
    frequencies = np.asarray(column.mrope_frequencies(16, sections, **options))
    assert frequencies.dtype == np.float64
    assert np.count_nonzero(frequencies, axis=1).tolist() == list(sections)
    got = rotate(column, x, coordinates, frequencies)
    assert_close(column, got, theirs(x, coordinates, sections, interleaved))


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


TEXTS = {
    "words": [5],
    "nothing": [],
    "two pictures": [3, (1, 4, 6), (1, 3, 1), 0, 2],
    "a video of Qwen2-VL, longer than wide": [2, (7, 2, 3), 2],
    "videos of Qwen2.5-VL": [2, (4, 2, 3, 2.0), 1, (3, 2, 2, 0.7), 1],
    "a video that stands still": [1, (3, 2, 2, 0), 1],
    "lists": [[1, 2, 2], 3],
}


@pytest.mark.parametrize("segments", TEXTS.values(), ids=TEXTS)
def test_tokens_stand_where_they_were_counted(column, segments):
    coordinates, following = column.mrope_positions(tuple(segments), start=11)
    want, after = naive(segments, 11)
    assert np.array_equal(np.asarray(coordinates), want)
    assert np.asarray(coordinates).dtype.kind == "i"
    assert type(following) is int
    assert following == after


def test_a_picture_advances_by_its_longer_side(column):
    coordinates, following = column.mrope_positions([10, (1, 20, 30), 1])
    assert np.asarray(coordinates)[-1].tolist() == [40, 40, 40]
    assert following == 41


def test_torch_makes_everything_where_it_is_asked(torch_column):
    frequencies = torch_column.mrope_frequencies(
        8, (2, 2), dtype=torch.float32, device="meta"
    )
    assert (frequencies.device.type, frequencies.dtype) == ("meta", torch.float32)
    coordinates, _ = torch_column.mrope_positions([2, (1, 2, 3)], device="meta")
    assert coordinates.device.type == "meta"
