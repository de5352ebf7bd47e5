"""From config.json to a layer."""

import numpy as np
import pytest

from posattn.configs import plan
from posattn.reference import (
    Window,
    attention_weights,
    rotate,
    scaled_dot_product_attention,
    yarn,
)
from tests.records import stored

RNG = np.random.default_rng(7)
SAYS = {  # a plan, of models in the table
    "scaled by": "llama-3.1 gpt-oss gemma-3",
    "24 of 96 entries": "gpt-neox",
    "96 of 128 entries": "phi-4-mini",
    "no position": "smollm3 llama-4-scout cohere-2",
    "capped at 50": "gemma-2",
    "sliding attention": "gemma-2 gemma-3 mistral-0.1 gpt-oss",
    "query and key norms": "qwen3 gemma-3 olmo-2",
    "norms after the rotation": "llama-4-scout",
    "gated output": "qwen3.5 qwen3-next",
    "sinks": "gpt-oss deepseek-v4-flash",
    "attention factor 1.347": "gpt-oss",
    "linear attention, no position": "qwen3-next",
    "2048 of the keys chosen by an indexer": "deepseek-v3.2",
    "one projection for keys and values": "gemma-4",
    "16 profiles over distances": "inkling",
}


def record(name):
    """What a real configuration says of the text model."""
    found = stored(name)
    return found.get("text_config", found)


def test_eq_sink_error():
    r"""$$ \frac{|\text{wrong} - \text{right}|}{|\text{right}|} = \frac{e^a}{\sum_j e^{s_j}}. $$"""
    q, k, v = RNG.normal(size=(3, 9, 4))
    for a in (-1.0, 0.5, 3.0):
        right = scaled_dot_product_attention(q, k, v, sinks=np.array(a))
        wrong = scaled_dot_product_attention(q, k, v)
        error = np.linalg.norm(wrong - right, axis=1) / np.linalg.norm(right, axis=1)
        assert np.allclose(error, np.exp(a) / np.exp(q @ k.T / 2).sum(axis=1))


def test_by_hand_rotations():
    right, wrong = 5e5 ** (-16 / 64), 1e4 ** (-16 / 64)
    assert np.allclose([right, wrong, wrong - right], [0.038, 0.1, 0.062], atol=5e-4)
    assert 50 * (wrong - right) == pytest.approx(3.1, abs=0.05)
    assert 0.1 * np.log(32) + 1 == pytest.approx(1.35, abs=0.005)
    assert np.sqrt(168 / 128) == pytest.approx(1.15, abs=0.005)
    circles = 8192 * 5e5 ** (-np.arange(64) / 64) / (2 * np.pi)
    more, less = (circles > 4).sum(), (circles < 1).sum()
    assert (more, less, 64 - more - less) == (29, 29, 6)


def test_by_hand_scores():
    few, some, many = 50 * np.tanh(np.array([5, 40, 80]) / 50)
    assert (round(few, 2), round(some, 1), round(many, 1)) == (4.98, 33.2, 46.1)
    assert round(many - some, 1) == 12.9
    zeros = np.zeros((3, 1))
    assert np.allclose(attention_weights(zeros, zeros), 1 / 3)
    assert np.allclose(attention_weights(zeros, zeros, sinks=np.array(np.log(3))), 1 / 6)


def test_the_configuration_is_the_recorded_one(page):
    assert plan(page.torch.gemma3).layers == plan(record("gemma-3")).layers
    slowed, factor = yarn(64, **page.torch.numbers)
    rope = plan(record("gpt-oss")).layers[0].rope
    assert np.allclose(slowed, rope.frequencies)
    assert factor == pytest.approx(rope.attention_factor)


@pytest.mark.parametrize("words", SAYS)
def test_the_table_names_who_has_it(words):
    for name in SAYS[words].split():
        assert words in str(plan(record(name))), name
    assert words not in str(plan(record("llama-3")))


def test_mistakes_fall_into_three_groups(page):
    errors = {name: row[0] / 100 for name, row in page.torch.percents.items()}
    random, worst = errors["attending at random"], errors["the other layout of pairs"]
    for name in (
        "base of other layers",
        "scaling left out",
        "other meaning of a part",
        "rotated by mistake",
    ):
        assert 0.45 * random < errors[name] < worst < 0.76 * random
    for name in ("scale by head dimension", "soft cap left out", "window one too large"):
        assert 0.08 < errors[name] < 0.13
    assert errors["1 added twice"] == max(errors.values()) == pytest.approx(2 * random, 0.1)


def test_both_quarters_rotate_sixteen_entries(page):
    one = np.eye(1, 64)
    for omega, partner in ((page.torch.first_omega, 8), (page.torch.pair_omega, 32)):
        rotated = rotate(np.ones((1, 64)), np.array([1]), frequencies=omega, layout="half")
        assert (rotated != 1).sum() == 16
        alone = rotate(one, np.array([1]), frequencies=omega, layout="half")[0]
        assert np.flatnonzero(alone).tolist() == [0, partner]


def test_a_second_one_makes_scores_four_times_as_large():
    q, k = RNG.normal(size=(2, 256, 64))
    q, k = (x / np.sqrt((x**2).mean(axis=-1, keepdims=True)) for x in (q, k))
    w_q, w_k = 0.3 * RNG.normal(size=(2, 64))
    assert np.allclose(2.0 * np.array([0.3, 1.3, 2.3]), [0.6, 2.6, 4.6])
    scores = [(q * (one + w_q)) @ (k * (one + w_k)).T / 8 for one in (0, 1, 2)]
    none, once, twice = (score.std() for score in scores)
    assert none < 0.15
    assert 3 < twice / once < 5
    largest = attention_weights(q * (2 + w_q), k * (2 + w_k), causal=True).max(axis=1)
    assert 0.4 < np.median(largest) < 0.55


def test_a_window_counts_the_query():
    zeros = np.zeros((101, 1))
    right, wrong = (
        attention_weights(zeros, zeros, causal=True, mask=Window(size)) > 0
        for size in (64, 65)
    )
    assert np.flatnonzero(right[100]).tolist() == list(range(37, 101))
    assert np.flatnonzero((right != wrong).any(axis=1)).tolist() == list(range(64, 101))


def test_a_stored_norm_weight_takes_up_the_scale():
    q, k, v = RNG.normal(size=(3, 9, 64))
    unit, w = q / np.sqrt((q**2).mean(axis=-1, keepdims=True)), RNG.normal(size=64)
    right = scaled_dot_product_attention(unit * (1 + w), k, v, scale=84**-0.5)
    stored = np.sqrt(64 / 84) * (1 + w) - 1
    assert np.allclose(scaled_dot_product_attention(unit * (1 + stored), k, v), right)
