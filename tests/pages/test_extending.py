"""Extending a model: what to write, what it costs, and what goes wrong."""

import numpy as np
import pytest

from posattn import reference
from posattn.reference import frequencies, rope_from_config, rotate
from tests.nightly.studies import records
from tests.records import stored

L, N, S = 8192, 32768, 4.0
PAIRS = np.arange(64)
OMEGA = 10000.0 ** (-2 * PAIRS / 128)


def configuration(name):
    """A model's recorded configuration."""
    return stored(name)


def test_eq_dynamic_ntk():
    r"""$$ b' = b \left( 1 + s \left( \frac{\max(n, L)}{L} - 1 \right) \right)^{d/(d-2)} $$"""
    for n in (100, L, 2 * L, N):
        base = 1e4 * (1 + S * (max(n, L) / L - 1)) ** (128 / 126)
        made = reference.dynamic_ntk(128, factor=S, length=n, trained_length=L)
        assert np.allclose(made, base ** (-2 * PAIRS / 128))
        assert np.allclose(made, OMEGA) == (n <= L)


def test_eq_longrope():
    r"""$$ \omega'_j = \frac{\omega_j}{\lambda_j}, \qquad \lambda = \begin{cases} \text{short list}
    & n \le L \\ \text{long list} & n > L. \end{cases} $$
    """
    short, long = np.full(64, 1.5), np.linspace(1, 5, 64)
    lists = {"short_factors": short, "long_factors": long}
    for n, factors in ((L - 1, short), (L, short), (L + 1, long)):
        made, _ = reference.longrope(128, **lists, trained_length=L, length=n, factor=S)
        assert np.allclose(made, OMEGA / factors)


def test_eq_longrope_factor():
    r"""$$ c = \sqrt{1 + \frac{\ln s}{\ln L}}. $$"""
    lists = {"short_factors": np.ones(48), "long_factors": np.ones(48)}
    for n in (100, N):
        _, c = reference.longrope(96, **lists, factor=32.0, length=n, trained_length=4096)
        assert c == pytest.approx(np.sqrt(1 + np.log(32) / np.log(4096)))
        assert round(c, 4) == 1.1902


def test_eq_bound_on_base():
    r"""$$ \sum_{j=0}^{d/2-1} \cos(\delta\,\omega_j) \ge 0. $$"""
    rng = np.random.default_rng(0)
    for distance, wins in ((1, True), (1000, True), (5401, False)):
        q, other = 0.3 + rng.normal(size=(2, 5000, 128))
        similar = q + 0.1 * rng.normal(size=q.shape)
        gain = rotate(q, np.full(len(q), distance)) * (similar - other)
        total = np.cos(distance * OMEGA).sum()
        error = gain.sum(-1).std() / len(q) ** 0.5
        assert (total >= 0) == wins
        assert gain.sum(-1).mean() == pytest.approx(2 * total, abs=5 * error)


def test_the_configuration_of_qwen_is_read_as_the_page_says(page):
    recorded = configuration("qwen2")
    assert page.torch.qwen.items() <= recorded.items()
    rope = rope_from_config(page.torch.extended)
    plain = frequencies(128, base=1e6)
    slowed, factor = reference.yarn(128, base=1e6, factor=4.0, trained_length=32768)
    assert np.allclose(rope.frequencies, slowed)
    assert rope.attention_factor == pytest.approx(factor)
    assert plain[-1] / slowed[-1] == pytest.approx(4)
    named = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
    newer = {"rope_parameters": named | {"rope_theta": 1e6}}
    assert np.allclose(rope_from_config(page.torch.qwen | newer).frequencies, slowed)
    assert 32768 / recorded["max_position_embeddings"] == 1  # what issue 38224 made of it
    assert recorded["num_attention_heads"] == 7 * recorded["num_key_value_heads"]
    assert (131072 / 32768) ** 2 == 16


def test_the_factors_of_well_known_models():
    found = {}
    for name in ("llama-2", "llama-3", "mistral-0.3", "qwen2"):
        trained = configuration(name)["max_position_embeddings"]
        found[name] = trained, 32768 / trained, 131072 / trained
    assert found["llama-2"] == (4096, 8, 32)
    assert found["llama-3"] == (8192, 4, 16)
    assert found["mistral-0.3"] == found["qwen2"] == (32768, 1, 4)
    for name in ("llama-3.1", "gpt-oss", "phi-4-mini"):
        assert configuration(name)["max_position_embeddings"] == 131072
        assert configuration(name)["rope_scaling"]


def test_a_dropped_scaling_spoils_short_texts_under_linear():
    q, k = np.random.default_rng(0).normal(size=(2, 200, 128))
    unscaled = rotate(q) @ rotate(k).T

    def error(slowed):
        scores = rotate(q, frequencies=slowed) @ rotate(k, frequencies=slowed).T
        return abs(unscaled - scores).mean() / abs(scores).mean()

    assert error(OMEGA / S) > 0.9
    assert error(reference.yarn(128, factor=S, trained_length=L)[0]) < 0.3
    assert error(reference.llama3(128, base=1e4, factor=S, trained_length=L)) < 0.3


def test_what_the_page_says_of_phi_4_mini():
    lists = configuration("phi-4-mini")["rope_scaling"]
    long = np.array(lists["long_factor"])
    assert lists["short_factor"] == [1] * 48
    assert np.allclose(np.diff(np.log(long[:32])), np.log(long[1]), atol=1e-4)
    assert long[30] < 32 < long[31:].min()
    assert long[16].round(2) == 5.98
    assert round(4096 * frequencies(96)[16] / (2 * np.pi)) == 30
    slowed, _ = reference.yarn(96, factor=32.0, trained_length=4096)
    assert round((frequencies(96) / slowed)[16], 2) == 1.05


def test_reach_of_a_base():
    total = np.cos(np.outer(range(1, 2001), OMEGA)).sum(-1)
    assert (total < 0).argmax() == 1706 < 2000


def test_a_released_model_reads_on_unless_all_pairs_are_slowed(page):
    cheaper = {
        text: (found["YaRN"] - found["NTK-aware"])[:64].mean() < 0
        for text, found in page.torch.twice.items()
    }
    assert cheaper == {"King James": False, "Python": True, "code": False}
    for found in page.torch.twice.values():
        plain, read = found["nothing"], map(found.get, page.torch.order[1:-1])
        thousands = plain[64:].reshape(8, 8).mean(axis=1)
        assert thousands[-1] - plain[:64].mean() > 1.5
        assert np.all(np.diff(thousands[::2]) > 0)
        for slowed in (each for each in read if each is not None):
            assert abs(slowed[64:].mean() - slowed[:64].mean()) < 0.5
            assert 0 < (slowed - plain)[:64].mean() < 0.05
    for found in page.torch.fourfold.values():
        far = {name: loss.reshape(-1, 64).mean(1) for name, loss in found.items()}
        assert far["nothing"][3] - far["YaRN"][3] > 4
        assert abs(far["YaRN"][1:].mean() - far["YaRN"][0]) < 0.5
    far = {name: loss.reshape(-1, 64).mean(1) for name, loss in page.torch.far.items()}
    assert np.all(np.diff(far["nothing"]) > 1)
    assert {each for each, loss in far.items() if loss[3] <= loss[2] + 0.02} == {"YaRN"}
    assert not page.torch.hits["nothing"][16384].any()
    kings = page.torch.kings
    assert 0.4 < (kings["position interpolation"] - kings["nothing"])[:64].mean() < 0.8
    assert (kings["YaRN without its factor"] - kings["YaRN"])[64:].mean() < 0.01
    known = records.load("topics")["cells"]
    small = [known[f"rotary, seed {seed}"]["extended"] for seed in range(5)]
    last = {
        method: np.mean([each[method]["before"]["by_position"][2:4] for each in small])
        for method in ("none", "YaRN", "llama3")
    }
    assert 0.5 < last["llama3"] - last["none"] < 0.6
    assert last["YaRN"] - last["none"] == pytest.approx(0.25, abs=0.02)
