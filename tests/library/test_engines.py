"""What engines make of a file: each line has its record, and both forms of the keys have one plan."""

import json
from pathlib import Path

import pytest

from posattn.__main__ import main
from posattn.configs import plan
from posattn.configs.forms import both_forms, write_keys
from posattn.configs.rotation import OUTSIDE, TRAINED
from posattn.configs.shrunk import shrunk
from posattn.conformance.engines import ENGINES, RUNS, misread, reading
from tests.records import FILES, stored

RECORDS = Path(__file__).parents[2] / "docs" / "_records"
LINES = [(engine, line) for engine, lines in ENGINES.items() for line in lines]


def saved(name):
    """A recorded file with its rotation as transformers 5 writes it."""
    config = stored(name)
    scaling = config.pop("rope_scaling", None) or {"rope_type": "default"}
    inside = {key: config.pop(key) for key in (*OUTSIDE, TRAINED) if key in config}
    return config | {"rope_parameters": scaling | inside}


@pytest.mark.parametrize(("engine", "line"), LINES)
def test_each_line_is_what_its_record_shows(engine, line):
    """After a new run of `tests/nightly`, correct what differs in `engines.json`."""
    kind, name = line["seen"].split("/")
    if kind == "world":
        record = json.loads((RECORDS / kind / f"{name}.json").read_text("utf-8"))
        prints = record["facts"][line["fact"]]["prints"]
    else:
        records = json.loads((RECORDS / "twins.json").read_text("utf-8"))
        (record,) = (
            r for r in records if (r["engine"], r["model"]) == (name, line["fact"])
        )
        prints = record["verdict"]
    assert line["shows"] in prints
    if "absent" in line:
        assert line["shows"].endswith(f"base {line['absent']['rope_theta']:g}")
    if kind == "twins" and "reads" in line:
        small = plan(shrunk(stored(line["fact"]), 256))
        assert misread(line["reads"], small)[1] in prints
    assert RUNS[line["seen"]] == [record["version"], record["date"]]
    assert line.get("families") or line.get("method") or line.get("if"), engine


def test_a_llama_that_transformers_saved_loses_its_rotation_in_mlx_lm():
    config = saved("llama-3.1")
    told = reading(config, "mlx-lm").splitlines()
    assert told[1:] == [
        "- rope_parameters is not read. (world/mlx_lm, rope_parameters)",
        "  0-31  full attention, rotary base 10000, halves; 32 heads, 8 of keys",
        "  pair 63 rotates 376 times as fast as the plan says",
    ]
    for read in (both_forms(config), stored("llama-3.1")):
        assert "gives the logits of its plan" in reading(read, "mlx-lm")


@pytest.mark.parametrize(
    ("name", "engine", "told"),
    [
        ("gpt-oss", "llama.cpp", "pair 17 rotates 1.76 times as fast as the plan says"),
        ("mistral-0.1", "mlx-lm", "The window is ignored."),
        ("mistral-0.3", "mlx-lm", "Nothing is recorded that concerns this file."),
        ("llama-3.1", "ctranslate2", "rotary base 500000, halves; 32 heads"),
        (
            "gemma-2-27b",
            "ctranslate2",
            "full attention, rotary base 10000, halves; 32 heads",
        ),
        ("phi-4-mini", "vllm", "LongRoPE's long factors serve every text"),
    ],
)
def test_an_engine_reads_a_released_file(name, engine, told):
    assert told in reading(stored(name), engine)


@pytest.mark.parametrize("name", FILES)
def test_both_forms_have_the_plan_of_one(name):
    config = FILES[name].get("text_config", FILES[name])
    config = config if "model_type" in config else FILES[name]
    both = both_forms(config)
    assert config.keys() <= both.keys()
    assert both_forms(both) == both
    old = {"rope_theta", "rope_scaling", "partial_rotary_factor"}
    new = (
        old if both["model_type"] == "ministral3" else {"rope_parameters"}
    )  # never without
    for form in (old, new) if "rope_parameters" in both else ():
        left = {key: value for key, value in both.items() if key not in form}
        assert plan(left) == plan(config), form


def test_the_older_form_of_a_nested_file_is_that_of_its_full_layers():
    old = stored("olmo-3.1-32b")
    base = {"rope_theta": old.pop("rope_theta")}
    kinds = {"full_attention": old.pop("rope_scaling") | base}
    kinds["sliding_attention"] = {"rope_type": "default"} | base
    both = both_forms(old | {"rope_parameters": kinds})
    left = {key: value for key, value in both.items() if key != "rope_parameters"}
    assert plan(left) == plan(stored("olmo-3.1-32b"))


def test_the_command_tells_of_an_engine_and_writes_keys(tmp_path, capsys):
    old, new = tmp_path / "config.json", tmp_path / "both.json"
    config = saved("phi-4-mini") | {"dtype": "float32"}
    old.write_text(json.dumps(config), "utf-8")
    assert main(["plan", str(old), "--for", "vllm", "--write-keys", str(new)]) == 0
    assert "unless you pass --dtype float32" in capsys.readouterr().out
    both = json.loads(new.read_text("utf-8"))
    assert (both["torch_dtype"], both[TRAINED]) == ("float32", 4096)
    assert both["partial_rotary_factor"] == 0.75
    before = new.read_bytes()
    assert main(["plan", str(old), "--write-keys", str(new)]) == 2
    assert f"path must be that of a new file, got {str(new)!r}" in capsys.readouterr().err
    assert new.read_bytes() == before
    assert len(list(tmp_path.iterdir())) == 2
    with pytest.raises(ValueError, match="got 'mlx'"):
        reading(str(old), "mlx")
    with pytest.raises(ValueError, match="contradict"):
        write_keys(saved("llama-3.1") | {"rope_theta": 1e4}, tmp_path / "other.json")
