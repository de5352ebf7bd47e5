"""Conventions of rotary embedding, and caches: what each one changes."""

from functools import partial

import numpy as np
import pytest
import torch

from posattn import reference
from posattn.reference import frequencies, rotate

Q, K, V = np.random.default_rng(0).normal(size=(3, 12, 16))
PLACES = np.arange(12)
ONE = np.array([1])


def pairs(rotation, width=8):
    """Which entries share a pair, and the frequency of the pair, from the fastest on."""
    rotated = rotation(np.eye(width)[:, None], ONE)[:, 0]
    found = {}
    for a, b in np.argwhere(np.triu(abs(rotated) > 1e-9, 1)).tolist():
        found[a, b] = np.arctan2(rotated[a, b], rotated[a, a])
    return found


def moved(name, page):
    """The numbers at the ends of the printed lines that hold a name."""
    lines = [line for line in page.printed.splitlines() if name in line]
    return [float(line.split()[-1]) for line in lines]


def test_eq_turned_values():
    r"""$$ \mathbf{R}_i^\top \sum_j \alpha_{ij}\,\mathbf{R}_j\,\mathbf{v}_j = \sum_j \alpha_{ij}\,\mathbf{R}_{j-i}\,\mathbf{v}_j . $$"""
    weights = reference.attention_weights(rotate(Q), rotate(K))
    left = rotate(weights @ rotate(V), -PLACES)
    right = [sum(weights[i, :, None] * rotate(V, PLACES - i)) for i in PLACES]
    assert np.allclose(left, right)


def test_layouts_and_parts_pair_these_entries(page):
    rotations = {
        "interleaved": rotate,
        "half": partial(rotate, layout="half"),
        "first part": page.torch.first_part,
        "part of pairs": page.torch.proportional,
    }
    expected = {
        "interleaved": {(0, 1): 1, (2, 3): 0.1, (4, 5): 0.01, (6, 7): 0.001},
        "half": {(0, 4): 1, (1, 5): 0.1, (2, 6): 0.01, (3, 7): 0.001},
        "first part": {(0, 2): 1, (1, 3): 0.01},
        "part of pairs": {(0, 4): 1, (1, 5): 0.1},
    }
    for name, rotation in rotations.items():
        assert pairs(rotation) == pytest.approx(expected[name])


def test_a_shared_shift_of_positions_changes_no_score():
    scores = rotate(Q) @ rotate(K).T
    assert np.allclose(rotate(Q, PLACES + 3) @ rotate(K, PLACES + 3).T, scores)
    assert not np.isclose(rotate(Q) @ rotate(K, PLACES + 3).T, scores).any()
    clockwise = [rotate(Q, -p) @ rotate(K, p).T for p in (PLACES, PLACES + 9)]
    assert abs(clockwise[0] - clockwise[1]).max() > 1


def test_a_context_shift_needs_the_same_options():
    options = {"frequencies": frequencies(8), "layout": "half"}
    cached = rotate(K, **options, attention_factor=1.2)
    expected = rotate(K, PLACES - 3, **options, attention_factor=1.2)
    back = np.full(12, -3)
    assert np.allclose(rotate(cached, back, **options), expected)
    for wrong in (
        {"frequencies": frequencies(8)},  # another layout
        {"layout": "half"},  # the whole head
        options | {"frequencies": frequencies(8, base=5e5)},
        options | {"attention_factor": 1.2},  # applied twice
    ):
        assert not np.allclose(rotate(cached, back, **wrong), expected)


def test_a_shifted_cache_is_not_a_shorter_text():
    rng = np.random.default_rng(0)
    layer = reference.MultiHeadAttention.init(rng, 16, 2, rotate=rotate)
    kept = np.r_[:2, 5:12]
    whole = layer(Q, Q, Q, causal=True)[kept]  # what the next layer makes keys of
    shorter = layer(Q[kept], Q[kept], Q[kept], causal=True)
    assert np.allclose(whole[:2], shorter[:2])
    assert abs(whole[2:] - shorter[2:]).max(-1).min() > 1e-3


def test_by_hand(page):
    size, *errors = [float(line.split()[-1]) for line in page.cells[0].printed.splitlines()]
    assert (size, errors[0], errors[-1]) == (1.10, 1.90, 0.59)
    assert 3 < errors[3] / size < 3.5
    assert moved("error without the shift", page) == [3.27, 3.27]
    stored = torch.tensor([256, 257, 259, 260, 261]).bfloat16()
    assert stored.tolist() == [256, 256, 260, 260, 260]
    assert page.glued["radians_lost"] > 3.14
    single = 100000 * frequencies(128).astype(np.float32)
    assert abs(single - 100000 * frequencies(128)).max() < 0.01
    pair = np.array([3, 4])
    quarter, scales = np.array([[0, -1], [1, 0]]), np.array([1, 2])
    assert (quarter @ (scales * pair)).tolist() == [-8, 3]
    assert (scales * (quarter @ pair)).tolist() == [-4, 6]
