"""Settings that are dropped from a small model are named by the twin that lacks them."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from posattn.__main__ import main
from posattn.configs.shrunk import shrunk
from posattn.conformance import UsageError
from posattn.conformance.twins import TOLERANCE, judge, write
from posattn.torch import Decoder

CONFIGS = Path(__file__).parents[2] / "docs" / "_records" / "configs"
N = 256
DROPPED = [  # a released model, keys of its configuration and what stands there in their place, what is said
    ("llama-3.1", {"rope_scaling": None}, "The scaling, llama3, is ignored."),
    ("llama-3.1", {"rope_theta": 1e4}, "The base is 10000"),
    ("gemma-2-27b", {"attn_logit_softcapping": None}, "The soft cap is ignored."),
    ("gemma-2-27b", {"final_logit_softcapping": None}, "logit_cap is ignored."),
    ("gemma-2-27b", {"sliding_window": N}, "The window is ignored."),
    ("gemma-2-27b", {"sliding_window": 96}, "The window is twice as large."),
    ("gemma-2-27b", {"query_pre_attn_scalar": 32}, "The scale is one over"),
    ("pythia", {"rotary_pct": 1.0}, "All entries rotate"),
    ("smollm3", {"no_rope_layers": [1] * 4}, "It rotates as other layers"),
    ("phi-4-mini", {"length": None}, "within the trained length."),
    ("gemma-2-27b", {"sliding_window": 49}, "The window is one too large"),
    ("granite", {"attention_multiplier": 32**-0.5}, "The scale is one over"),
]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Makes the folder of a released model, once."""
    folders = {}

    def folder(name):
        if name not in folders:
            folders[name] = tmp_path_factory.mktemp(name)
            write(CONFIGS / f"{name}.json", folders[name], N)
        return folders[name]

    return folder


def engine(folder, *, length=N, **changed):
    """What a program computes that reads some keys otherwise."""
    config = json.loads((folder / "config.json").read_text())
    model = Decoder.from_config(config | changed, weights=folder, length=length)
    with torch.no_grad():
        return model(torch.from_numpy(np.load(folder / "tokens.npy"))).numpy()


@pytest.mark.parametrize(("name", "changed", "said"), DROPPED)
def test_a_setting_that_is_dropped_is_named(made, name, changed, said):
    folder = made(name)
    found = judge(folder, engine(folder, **changed))
    assert [what for what in found.twins if said in what], found
    assert len(found.twins) < 3
    assert found.error < TOLERANCE < found.own


def test_an_engine_that_reads_all_equals_the_model(made):
    found = judge(made("gemma-2-27b"), engine(made("gemma-2-27b"))[None])
    assert found.agrees
    assert str(found).startswith("It equals the model")


def test_several_settings_at_once_are_named(made):
    changed = {"attn_logit_softcapping": None, "sliding_window": 4096}
    found = judge(made("gemma-2-27b"), engine(made("gemma-2-27b"), **changed))
    assert found.twins == ("The window is ignored. The soft cap is ignored.",)


@pytest.mark.parametrize(
    ("dtype", "changed", "said"),
    [
        ("float16", {}, "Weights are rounded to float16."),
        ("bfloat16", {"rope_scaling": None}, "ignored. Weights are rounded to bfloat16."),
    ],
)
def test_weights_in_half_precision_are_named(made, dtype, changed, said):
    folder = made("llama-3.1")
    config = json.loads((folder / "config.json").read_text()) | changed
    model = Decoder.from_config(config, weights=folder, length=N)
    for weight in model.parameters():
        weight.data = weight.data.to(getattr(torch, dtype)).float()
    with torch.no_grad():
        found = judge(folder, model(torch.from_numpy(np.load(folder / "tokens.npy"))))
    assert [what for what in found.twins if what.endswith(said)], found


def test_a_small_configuration_keeps_every_key():
    names = {"resid_pdrop": 0.1, "torch_dtype": "bfloat16", "quantization_config": {}}
    given = json.loads((CONFIGS / "gpt2.json").read_text()) | {"n_ctx": 1024} | names
    small = shrunk(given, N)
    assert set(given) - set(small) == {"quantization_config"}
    assert small["n_ctx"] == small["n_positions"] == N
    assert small["torch_dtype"] == "float32"
    beyond = json.loads((CONFIGS / "phi-4-mini.json").read_text())
    assert (
        shrunk(beyond, N)["sliding_window"]
        == 2 * shrunk(beyond, N)["max_position_embeddings"]
    )


def test_what_no_twin_explains_is_said(made):
    got = np.array(engine(made("pythia")))
    got[7:, 0] += 1
    found = judge(made("pythia"), got)
    assert (found.twins, found.first, found.tokens) == ((), 7, N)


def test_tokens_that_were_not_computed_and_words_that_were_added_are_left_out(made):
    got = np.pad(engine(made("llama-3.1"), rope_scaling=None), ((0, 0), (0, 6)))
    got[40:] = np.nan
    found = judge(made("llama-3.1"), got)
    assert found.tokens == 40
    assert "llama3" in found.twins[0]


@pytest.mark.parametrize(
    ("got", "said"),
    [
        (np.zeros((N, 63)), r"must have shape \(256, 64\), got \(256, 63\)"),
        (np.zeros((N - 1, 64)), "must have shape"),
        (np.zeros((N, 64), int), "floating-point"),
        (np.full((N, 64), np.nan), "all are NaN"),
        (np.diag([np.inf] * N)[:, :64], "token 0"),
    ],
)
def test_other_logits_are_refused(made, got, said):
    with pytest.raises(UsageError, match=said):
        judge(made("pythia"), got)


def test_the_command_writes_a_folder_and_judges(tmp_path, capsys):
    config = str(CONFIGS / "gpt2.json")
    assert main(["twins", config, "--output", str(tmp_path / "model")]) == 0
    logits = tmp_path / "model" / "logits.npy"
    assert main(["twins", str(tmp_path / "model"), "--logits", str(logits)]) == 0
    assert "It equals the model" in capsys.readouterr().out
    assert main(["twins", str(tmp_path), "--logits", str(logits)]) == 2
    assert main(["twins", config, "--logits", str(tmp_path / "no.npy")]) == 2
    assert main(["twins", str(CONFIGS / "bert.json"), "--output", str(tmp_path)]) == 2
    assert "model_type must be one of" in capsys.readouterr().err
