"""Which scheme to use."""

import json

import numpy as np
import pytest

from posattn import reference
from posattn.reference import attention_weights, frequencies
from tests.pages.reading import DOCS


def measured(task, scheme, field):
    """What the record of the trained decoders has in a field, for each seed."""
    path = DOCS / "_records" / "studies" / f"{task}.json"
    cells = json.loads(path.read_text("utf-8"))["cells"]
    return [cells[f"{scheme}, seed {seed}"][field] for seed in range(5)]


def loss(scheme, end):
    """The mean loss in some blocks of a text."""
    return np.array(measured("topics", scheme, "by_position"))[:, end].mean()


def test_loss_and_answers_of_small_decoders_disagree(page):
    far, near = slice(12, 16), slice(2, 4)
    assert 2.6 < loss("rotary", far) / loss("rotary", near) < 3
    for name in ("alibi", "kerple"):
        assert abs(loss(name, far) - loss(name, near)) < 0.03
    for name in ("rotary", "alibi", "kerple"):
        right = measured("stories", name, "right")
        short, long = (sum(run[times] for run in right) for times in ("1", "4"))
        assert long < 0.7 * short
    twice, eight = slice(6, 8), slice(24, 32)
    assert loss("partial_rotary", twice) < loss("rotary", twice) - 0.5
    assert page.glued["loss_rotary_2"] == pytest.approx(loss("rotary", twice))
    worst = max(page.torch.losses, key=lambda name: loss(name, eight))
    assert worst == "partial_rotary"


def test_a_bias_of_the_distance_cannot_tell_who_bites():
    x = np.random.default_rng(0).normal(size=(3, 4))  # dog, bites, man
    bias = -0.5 * abs(np.arange(3)[:, None] - np.arange(3)).astype(float)
    there, back = (attention_weights(y, y, bias=bias) @ y for y in (x, x[::-1]))
    assert np.allclose(there[1], back[1])
    rotated = [reference.rotate(y) for y in (x, x[::-1])]
    there, back = (attention_weights(y, y) @ y for y in rotated)
    assert not np.allclose(there[1], back[1])


def test_by_hand():
    late = reference.dynamic_ntk(64, factor=4.0, length=8193, trained_length=8192)
    assert not np.allclose(late, frequencies(64), rtol=1e-9)
    bias = reference.T5Bias.init(np.random.default_rng(0), 1)
    assert [a.size for a in vars(bias).values() if isinstance(a, np.ndarray)] == [32]
