"""Plans of real configurations beside the classes of transformers (`nox -s oracles`)."""

import json
from pathlib import Path

import pytest
import transformers
from transformers import CONFIG_MAPPING

from posattn import configs
from posattn.configs import FAMILIES
from posattn.configs.forms import both_forms
from tests import records
from tests.nightly.oracles import defaults, reads

ROOT = Path(__file__).parents[3]
CALLED = {"kimi_k2": "deepseek_v3"}  # what transformers reads as another family
RELEASED = json.loads((ROOT / "tests" / "library" / "released.json").read_text("utf-8"))
UNLIKE = {
    # whose partial_rotary_factor transformers drops, so that it cannot rotate
    *("GLM4V-sophgo", "glm-4.1v"),
    *("dinov3", "dinov3-vitb16"),  # see checks_towers.py
    *("Qwen3.8-27B-DFlash2", "GLM-5.3-DFlash2"),  # whose mask alone is not causal
    # whose classes refuse a whole kda_lower_bound, put a base for null, and read no thinker_config
    *("Edge0-8B-A1B-preview", "olmo-hybrid-tiny-docs", "Qwen3-ASR-0.6B"),
    "Step-3.7-Flash-FP8",  # flat, where transformers reads a text_config
    # whose text model AutoModel does not make
    *("Llama3_2-Vision-sophgo", "llama-3.2-vision", "Muse-Glimmer-30B", "PaddleOCR-VL-1.5"),
}
WHOLE = {name: told["config"] for name, told in RELEASED.items() if "part" not in told}
STORED = records.CLASSES | records.FILES | WHOLE
FILES = {
    name: config
    for name, config in STORED.items()
    if name not in UNLIKE and {config.get("model_type")} & {*CALLED, *CONFIG_MAPPING}
}
NAMES = sorted(FILES)
each = pytest.mark.parametrize("name", NAMES)


def loaded(name):
    """A recorded configuration: its dictionary, transformers' object, and the text part of that."""
    values = json.loads(json.dumps(FILES[name]))
    values["model_type"] = CALLED.get(values["model_type"], values["model_type"])
    known = transformers.CONFIG_MAPPING[values["model_type"]]
    whole = known.from_dict(json.loads(json.dumps(values)))
    return values, whole, whole.get_text_config()


@each
def test_the_object_of_transformers_gives_the_plan_of_the_file(name):
    values, whole, _ = loaded(name)
    assert configs.plan(whole).layers == configs.plan(values).layers


@each
def test_what_transformers_saves_is_read_like_its_object(name):
    _, whole, _ = loaded(name)
    saved = json.loads(whole.to_json_string(use_diff=True))
    assert configs.plan(saved).layers == configs.plan(whole).layers


@each
def test_both_forms_of_the_keys_are_read_like_the_file(name):
    def plain(found, whole=1.0):
        text = json.dumps(found, default=str)
        return json.loads(text, object_hook=lambda part: part | {"type": None} | {
            "partial_rotary_factor": part.get("partial_rotary_factor") or whole
        })  # fmt: skip

    values, whole, _ = loaded(name)
    read = type(whole).from_dict
    for file in (values, json.loads(json.dumps(whole.to_diff_dict(), default=str))):
        assert plain(read(both_forms(file)).to_dict()) == plain(read(file).to_dict())


@pytest.mark.parametrize("model_type", sorted(set(FAMILIES) & set(CONFIG_MAPPING)))
def test_an_empty_file_is_the_class_of_transformers_or_refused(model_type):
    known = CONFIG_MAPPING[model_type]
    try:
        bare, whole = configs.plan({"model_type": model_type}), configs.plan(known())
    except (TypeError, ValueError):
        return  # a class whose own defaults make no model, or whose sizes a file must have
    assert bare.layers == whole.layers


def test_the_defaults_are_those_of_the_release():
    again = "run python -m tests.nightly.oracles.defaults"
    assert defaults.FILE.read_text("utf-8") == defaults.written(), again
    assert reads.FILE.read_text("utf-8") == reads.written(), again.replace(
        "defaults", "reads"
    )
