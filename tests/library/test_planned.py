"""Vectors made from configurations: what engineers write passes, and what they misread has a name."""

import json
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from posattn import reference
from posattn.__main__ import main
from posattn.configs import plan
from posattn.conformance import UsageError, check, worker
from posattn.conformance.misreadings import misreadings
from posattn.conformance.planned import attend, planned
from tests.records import PLANS, RECORDS

pytestmark = pytest.mark.usefixtures("unchecked")  # other tests check the annotations

# a layer of each kind, as (family, layer)
LAYERS = [
    (family, layer.index)
    for family, plan in PLANS.items()
    for layer in {str(x).partition(":")[2]: x for x in reversed(plan.layers)}.values()
]


def made(family, layer):
    """The vectors of a layer, or None if it is refused."""
    try:
        return planned(narrow(PLANS[family]), layer)
    except UsageError:
        return None


def narrow(described):
    """A model of fewer heads, whose vectors take less time; slopes belong to all heads."""

    def narrowed(layer):
        if layer.bias is not None or not layer.num_kv_heads:
            return layer
        heads = min(2, layer.num_kv_heads)
        group = min(2, layer.num_heads // layer.num_kv_heads)
        return replace(layer, num_heads=heads * group, num_kv_heads=heads)

    return replace(described, layers=tuple(map(narrowed, described.layers)))


def llama(query, key, value, query_positions, key_positions):
    """The attention of Llama 3, as people write it."""
    return by_hand(query, key, value, query_positions, key_positions, base=500000.0)


def by_hand(
    query, key, value, query_positions, key_positions, *,
    base=10000.0, window=None, scale=None, sinks=None, layout="half",
):  # fmt: skip
    """Rotary attention by hand, in NumPy."""
    d, group = query.shape[-1], query.shape[1] // key.shape[1]
    frequencies = base ** (-np.arange(0, d, 2) / d)

    def rotated(x, positions):
        angles = positions[..., None] * frequencies
        angles = angles if positions.ndim == 1 else angles[:, None]
        cos, sin = np.cos(angles), np.sin(angles)
        if layout == "half":
            a, b = x[..., : d // 2], x[..., d // 2 :]
            return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)
        a, b = x[..., 0::2], x[..., 1::2]
        return np.stack([a * cos - b * sin, b * cos + a * sin], -1).reshape(x.shape)

    query, key = rotated(query, query_positions), rotated(key, key_positions)
    key, value = (np.repeat(x, group, axis=1) for x in (key, value))
    scores = query @ np.swapaxes(key, -1, -2) * (d**-0.5 if scale is None else scale)
    apart = query_positions[..., :, None] - key_positions[..., None, :]
    seen = apart >= 0 if window is None else (apart >= 0) & (apart < window)
    scores = np.where(seen if seen.ndim == 2 else seen[:, None], scores, -np.inf)
    if sinks is not None:
        column = np.broadcast_to(sinks[:, None, None], (*scores.shape[:-1], 1))
        scores = np.concatenate([scores, column], -1)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights = weights / weights.sum(-1, keepdims=True)
    return weights[..., : key.shape[-2]] @ value


def test_a_layer_by_hand_passes_and_a_misreading_is_named():
    vectors = planned(RECORDS["Llama 3"], 5)
    assert not check(llama, vectors, framework="numpy").failures
    for wrong, cause in (
        ({"base": 10000.0}, "base_of_10000"),
        ({"base": 500000.0, "layout": "interleaved"}, "other_layout"),
    ):
        report = check(
            lambda *given, wrong=wrong: by_hand(*given, **wrong), vectors, framework="numpy"
        )
        assert report.causes[0].name == cause, f"{report}"
        assert report.title.endswith(" as layer 5 of llama, numpy float64")


YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
LLAMA3 = {"rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0}


@pytest.mark.parametrize(
    ("built", "cause"),
    [
        ({"rope_scaling": YARN | LLAMA3}, "scaled_as_llama3"),
        ({"rope_scaling": YARN | {"factor": 8.0}}, "factor_of_8"),
        (
            {"rope_scaling": YARN | {"original_max_position_embeddings": 131072}},
            "original_length_of_131072",
        ),
        ({"rope_scaling": YARN | {"truncate": False}}, "ends_not_rounded"),
        ({"rope_theta": 1e4}, "base_of_10000"),
        ({"rope_theta": 1e6}, "base_of_1e+06"),
        ({"rope_theta": 1e4, "rope_scaling": None}, "base_of_10000_alone"),
        ({"rope_scaling": None}, "scaling_ignored"),
        ({"rope_scaling": YARN | {"attention_factor": 1.0}}, "attention_factor_missing"),
    ],
)
def test_a_number_of_the_scaling_is_named(built, cause):
    said = {
        "model_type": "llama",
        "hidden_size": 512,
        "num_attention_heads": 4,
        "num_hidden_layers": 1,
        "rope_theta": 5e5,
        "rope_scaling": YARN,
    }
    layer = plan(said | built).layers[0]
    report = check(partial(attend, layer), planned(said), framework="numpy")
    assert report.causes[0].name == cause
    assert not check(
        partial(attend, layer), planned(said | built), framework="numpy"
    ).failures


def test_methods_that_take_more_than_numbers_are_misread_in_fewer_ways():
    said = {
        "model_type": "llama",
        "hidden_size": 8,
        "num_attention_heads": 1,
        "num_hidden_layers": 1,
        "rope_theta": 1e4,
        "max_position_embeddings": 64,
    }
    lists = {"short_factor": [1.0, 1.0, 2.0, 4.0], "long_factor": [1.0, 2.0, 4.0, 8.0]}
    for scaling in (
        {"rope_type": "dynamic", "factor": 2.0},
        {"rope_type": "longrope", "original_max_position_embeddings": 32} | lists,
    ):
        model = plan(said | {"rope_scaling": scaling}, length=128)
        names = [name for name, _, _ in misreadings(model.layers[0], model)]
        assert "scaling_ignored" in names
        assert not [name for name in names if name.startswith("factor_of")]


def test_the_local_and_the_global_layers_of_gemma_are_told_apart():
    text = RECORDS["Gemma 3"].get("text_config", RECORDS["Gemma 3"])
    vectors = planned(RECORDS["Gemma 3"], 0)
    scale = PLANS["Gemma 3"].layers[0].scale
    local = {"base": 10000.0, "window": text["sliding_window"], "scale": scale}
    assert not check(lambda *x: by_hand(*x, **local), vectors, framework="numpy").failures
    for changed, cause in (
        ({"base": 1000000.0}, "base_of_1e+06"),
        ({"window": local["window"] + 1}, "window_one_too_large"),
        ({"window": None}, "window_ignored"),
    ):
        wrong = {**local, **changed}
        report = check(
            lambda *x, wrong=wrong: by_hand(*x, **wrong), vectors, framework="numpy"
        )
        assert report.causes[0].name == cause, f"{report}"


def test_where_no_fault_of_a_layer_is_known_the_report_says_what_to_check_next():
    vectors = planned(RECORDS["Llama 3"], 0)
    report = check(lambda *x: by_hand(*x, base=3.0), vectors, framework="numpy")
    assert report.causes == []
    assert "no known fault explains this\nCheck the function that rotates" in str(report)
    assert str(report).endswith("--scheme rotary knows more of its faults.")
    scaled = planned(RECORDS["Llama 3.1"], 0)
    report = check(lambda *x: by_hand(*x, base=3.0), scaled, framework="numpy")
    assert "--scheme rotary knows more of its faults, and --scheme llama3" in " ".join(
        str(report).split()
    )
    gpt2 = planned(RECORDS["GPT-2"])  # which rotates nothing
    report = check(lambda *x: by_hand(*x, base=3.0), gpt2, framework="numpy")
    assert str(report).endswith("no known fault explains this")


def test_where_prompts_pass_the_rotation_is_not_suspected():
    def forgets_a_key(query, key, value, query_positions, key_positions):
        if query.shape[-2] < key.shape[-2]:
            value = np.concatenate([0 * value[..., :1, :], value[..., 1:, :]], axis=-2)
        return llama(query, key, value, query_positions, key_positions)

    report = check(forgets_a_key, planned(RECORDS["Llama 3"], 0), framework="numpy")
    assert "no known fault explains this\nPrompts pass" in str(report)
    assert "rotary" not in str(report)


def test_what_raises_gets_no_hint_about_the_rotation():
    report = check(lambda *given: None, planned(RECORDS["Llama 3"]), framework="numpy")
    assert "returns NoneType" in str(report)
    assert "rotary" not in str(report)


def top_left(query, key, value, query_positions, key_positions):
    """Llama's attention with a mask that begins at the first key in each call."""
    shape = query.shape[-2], key.shape[-2]
    d, group = query.shape[-1], query.shape[1] // key.shape[1]
    turn = reference.Rotary(base=500000.0, layout="half")
    q, k = (p if p.ndim == 1 else p[:, None] for p in (query_positions, key_positions))
    key, value = (np.repeat(x, group, axis=1) for x in (turn(key, k), value))
    scores = turn(query, q) @ np.swapaxes(key, -1, -2) / d**0.5
    scores = np.where(np.tri(*shape, dtype=bool), scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ value


def unscaled(*given):
    """Llama's attention without a scale."""
    return by_hand(*given, base=500000.0, scale=1.0)


def tiled(query, key, value, *positions):
    """Llama's attention with key heads in the order of tile."""
    key, value = (np.tile(x, (1, 4, 1, 1)) for x in (key, value))
    return llama(query, key, value, *positions)


def as_if_at_0(x, positions):
    """What is as after a rotation from 0 on, once `llama` rotates it by its positions."""
    turn = reference.Rotary(base=500000.0, layout="half")
    back = -positions if positions.ndim == 1 else -positions[:, None]
    return turn(turn(x, np.arange(x.shape[-2])), back)


def later_queries_from_0(query, key, value, query_positions, key_positions):
    """Llama's attention of a model that forgets in later calls where it is."""
    query = as_if_at_0(query, query_positions)
    return llama(query, key, value, query_positions, key_positions)


def all_from_0(query, key, value, query_positions, key_positions):
    """The same, and it forgets where the keys are."""
    key = as_if_at_0(key, key_positions)
    return later_queries_from_0(query, key, value, query_positions, key_positions)


@pytest.mark.parametrize(
    ("wrong", "cause"),
    [
        (top_left, "mask_from_the_top_left"),
        (unscaled, "scores_unscaled"),
        (tiled, "key_heads_tiled"),
        (later_queries_from_0, "queries_from_0"),
        (all_from_0, "positions_from_0"),
    ],
)
def test_slips_of_code_are_named(wrong, cause):
    report = check(wrong, planned(RECORDS["Llama 3"], 3), framework="numpy")
    assert report.causes[0].name == cause, f"{report}"


def test_lengths_that_give_the_same_blend_are_named_together():
    said = {
        "model_type": "llama",
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_hidden_layers": 1,
        "rope_theta": 5e5,
        "max_position_embeddings": 16384,
        "rope_scaling": YARN | {"original_max_position_embeddings": 4096},
    }
    wrong = said | {"rope_scaling": YARN | {"original_max_position_embeddings": 16384}}
    layer = plan(wrong).layers[0]
    report = check(partial(attend, layer), planned(said), framework="numpy")
    assert (
        report.causes[0].sentence
        == "The original length is 8192 or 16384: the configuration says 4096."
    )


def test_a_layer_with_sinks_needs_a_function_that_takes_them():
    with pytest.raises(UsageError, match="llama has no parameter sinks"):
        check(llama, planned(RECORDS["gpt-oss"], 1), framework="numpy")


@pytest.mark.parametrize(("family", "layer"), LAYERS)
def test_every_misreading_of_a_layer_is_the_cause_that_is_named(family, layer):
    vectors = made(family, layer)
    if vectors is None:
        assert PLANS[family].layers[layer] is not None
        return
    for fault in vectors["faults"]:
        report = check(fault.make, vectors, framework="numpy", dtype="float64")
        if report.failures:
            same = report.causes[0].name == fault.name
            assert same or equal(vectors, fault, report.causes[0].name), (
                fault.name,
                f"{report}",
            )
        else:
            assert equal(vectors, fault, None), fault.name


def equal(vectors, fault, name):
    """Whether a fault computes what another does, or what is right, in all cases."""
    other = next((f.make for f in vectors["faults"] if f.name == name), None)
    for case in vectors["cases"]:
        given = case["arguments"], case["keywords"]
        want = case["expected"] if other is None else other(*given[0], **given[1])
        if not np.allclose(fault.make(*given[0], **given[1]), want, atol=1e-6):
            return False
    return True


def test_many_models_have_such_vectors():
    found = {family for family, layer in LAYERS if made(family, layer) is not None}
    assert len(found) > 40


def test_a_window_of_one_can_only_be_too_large():
    config = {**RECORDS["Mistral 7B v0.1"], "sliding_window": 1}
    names = {fault.name for fault in planned(config)["faults"]}
    assert "window_one_too_large" in names
    assert "window_one_too_small" not in names


def test_what_cannot_be_checked_is_one_line():
    for config, layer, message in (
        ({"model_type": "lama"}, 0, "did you mean llama"),
        (RECORDS["Llama 3"], 99, "layer must be below"),
        (RECORDS["DeepSeek-V3"], 0, "has latent"),
        (RECORDS["Qwen2.5-VL"], 0, "must turn with one position"),
        (RECORDS["T5"], 0, "must have no learned bias"),
        ("nowhere.json", 0, "nowhere.json"),
    ):
        with pytest.raises(UsageError, match=message):
            planned(config, layer)


@pytest.mark.slow
def test_the_command_takes_a_configuration(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(RECORDS["Llama 3"]))
    (tmp_path / "mine.py").write_text(
        "import numpy as np\nfrom posattn.reference import Rotary, scaled_dot_product_attention\n"
        "def attention(query, key, value, query_positions, key_positions, base=10000.0):\n"
        "    turn = Rotary(base=base, layout='half')\n"
        "    q, k = (p if p.ndim == 1 else p[:, None] for p in (query_positions, key_positions))\n"
        "    mask = k[..., None, :] <= q[..., :, None]\n"
        "    return scaled_dot_product_attention(turn(query, q), turn(key, k), value, mask=mask)\n"
        "def right(*given): return attention(*given, base=500000.0)\n"
    )
    usual = "--config", "config.json", "--layer", "5"
    assert main(["check", "mine.py:right", *usual]) == 0
    assert "right as layer 5 of llama, numpy float64: all " in capsys.readouterr().out
    assert main(["check", "mine.py:attention", *usual]) == 1
    assert "The base is 10000: the configuration says 500000." in capsys.readouterr().out
    assert main(["check", "mine.py:right", "--config", "config.json", "--layer", "99"]) == 2
    assert "layer must be below" in capsys.readouterr().err


def test_the_worker_makes_the_cases_of_a_configuration(tmp_path):
    (tmp_path / "mine.py").write_text(
        "import numpy\ndef attention(query, key, value, query_positions, key_positions): return query"
    )
    request = {"function": f"{tmp_path / 'mine.py'}:attention", "layer": 5}
    said = []
    worker.work({**request, "config": RECORDS["Llama 3"]}, lambda **what: said.append(what))
    assert said[-1]["report"].startswith("attention as layer 5 of llama, numpy float64: ")
    assert said[-1]["code"] == 1
