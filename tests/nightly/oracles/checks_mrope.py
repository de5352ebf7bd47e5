"""Places of words, pictures and videos in Qwen2-VL, Qwen2.5-VL and Qwen3-VL (`nox -s oracles`)."""

import importlib
import math
import types
from functools import partial

import pytest
import torch

from posattn.torch import mrope_positions


def their_places(name, parts, **options):
    """The places that a model of transformers gives to a text, and where its answer begins.

    A part is a number of words, or the grid of a picture or of a video in patches.
    """
    found = importlib.import_module(f"transformers.models.{name}.modeling_{name}")
    model = getattr(found, {"qwen3_vl": "Qwen3VLModel"}.get(name, "Qwen2VLModel"), None)
    model = model or found.Qwen2_5_VLModel
    kinds, grids = [], {1: [], 2: []}
    for part in parts:
        if isinstance(part, int):
            kinds += [0] * part
        else:
            kind = 1 if part[0] == 1 else 2
            kinds += [kind] * (math.prod(part) // 4)
            grids[kind].append(part)
    vision = types.SimpleNamespace(spatial_merge_size=2, tokens_per_second=2)
    told = types.SimpleNamespace(
        config=types.SimpleNamespace(vision_config=vision),
        get_vision_position_ids=partial(model.get_vision_position_ids, None),
    )
    images, videos = (torch.tensor(grids[k]) if grids[k] else None for k in (1, 2))
    tokens = torch.zeros(1, len(kinds), dtype=torch.long)
    places, delta = model.get_rope_index(
        told, tokens, torch.tensor([kinds]), images, videos, **options
    )
    return places[:, 0].T, len(kinds) + int(delta)


def assert_places(got, want):
    (coordinates, following), (places, after) = got, want
    assert torch.equal(coordinates, places)
    assert following == after


PICTURES = [4, (1, 8, 6), 3, (1, 4, 10), 2]


@pytest.mark.parametrize("name", ["qwen2_vl", "qwen2_5_vl", "qwen3_vl"])
def test_places_of_pictures(name):
    ours = [4, (1, 4, 3), 3, (1, 2, 5), 2]
    assert_places(mrope_positions(ours), their_places(name, PICTURES))


def test_places_of_videos():
    got = mrope_positions([2, (3, 4, 3), 2])
    assert_places(got, their_places("qwen2_vl", [2, (3, 8, 6), 2]))
    got = mrope_positions([2, (3, 8, 2, 3.0), 2])
    seconds = {"second_per_grid_ts": torch.tensor([1.5])}
    assert_places(got, their_places("qwen2_5_vl", [2, (3, 16, 4), 2], **seconds))


def test_places_of_frames_between_their_times():
    parts = [2, (1, 8, 6), 5, (1, 8, 6), 5, (1, 8, 6), 3]
    got = mrope_positions([2, (1, 4, 3), 5, (1, 4, 3), 5, (1, 4, 3), 3])
    assert_places(got, their_places("qwen3_vl", parts))
