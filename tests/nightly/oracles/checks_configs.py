"""Plans of real configurations beside the classes of transformers (`nox -s oracles`)."""

import importlib
import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
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
SINGLE = 2e-5  # of frequencies in float32, relative
# those whose layers do not know their place
NO_PLACE = {"esm-2", "marian", "nomic-bert", "t5", "whisper"}
TABLES = {"gpt-j", "roformer"}  # of sines and cosines
each = pytest.mark.parametrize("name", NAMES)


def every_one_but(names):
    """All records but some, each of which must exist."""
    assert names <= set(NAMES)
    return pytest.mark.parametrize("name", sorted(set(NAMES) - names))


def loaded(name):
    """A recorded configuration: its dictionary, transformers' object, and the text part of that."""
    values = json.loads(json.dumps(FILES[name]))
    values["model_type"] = CALLED.get(values["model_type"], values["model_type"])
    known = transformers.CONFIG_MAPPING[values["model_type"]]
    whole = known.from_dict(json.loads(json.dumps(values)))
    return values, whole, whole.get_text_config()


def module_of(config):
    """The module with the classes of a model."""
    return importlib.import_module(
        type(config).__module__.replace("configuration_", "modeling_")
    )


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


QUERY_NORMS = ("q_norm", "qk_norm", "query_layernorm", "q_layernorm", "q_b_norm")


def attentions(config):
    """The modules of attention of a text model, by their layers, without memory."""
    if getattr(config, "vocab_size", None) is None:
        config.vocab_size = 40  # which ESM's class leaves open
    with torch.device("meta"):
        model = transformers.AutoModel.from_config(config)
    found = {}
    for module in model.modules():
        place = getattr(module, "layer_idx", None)
        name = type(module).__name__
        if place is not None and re.search(
            "(?<!Lightning)(?<!Delta)(?<!Linear)Attention$", name
        ):
            found[place] = module
    return found


@every_one_but(NO_PLACE)
def test_a_layer_is_what_the_module_of_transformers_is(name):
    values, _, config = loaded(name)
    plan = configs.plan(values)
    modules = attentions(config)
    assert len(modules) == sum(
        layer.kind in ("full", "sliding", "chunked") for layer in plan.layers
    )
    for place, module in modules.items():
        layer = plan.layers[place]
        if hasattr(module, "scaling"):
            assert layer.scale == pytest.approx(module.scaling)
        if hasattr(module, "head_dim"):
            assert layer.head_dim == module.head_dim
        if hasattr(module, "sliding_window") and getattr(module, "is_sliding", True):
            assert layer.window == module.sliding_window
        if getattr(module, "is_causal", None) is not None:
            assert layer.causal == module.is_causal
        assert layer.sinks == (getattr(module, "sinks", None) is not None)
        assert (layer.query_norm is None) == (
            not any(hasattr(module, norm) for norm in QUERY_NORMS)
        )
        projections(layer, module)


def projections(layer, module):
    """Widths and offsets of the projections that are not fused."""
    if layer.latent is not None:  # see checks_latent.py
        return
    heads = (layer.num_heads, layer.num_kv_heads, layer.num_kv_heads)
    for name, count, bias in zip(("q", "k", "v"), heads, layer.use_bias, strict=True):
        projection = getattr(module, f"{name}_proj", None)
        if projection is not None:
            each = layer.head_dim if name != "v" else layer.value_dim or layer.head_dim
            twice = layer.gate and name == "q" and not hasattr(module, "gate_proj")
            rows = count * each * (1 + twice)
            assert tuple(projection.weight.shape) == (rows, layer.dim)
            assert (projection.bias is not None) == bias
    for fused in ("qkv_proj", "query_key_value", "c_attn"):
        projection = getattr(module, fused, None)
        if projection is not None:
            assert (getattr(projection, "bias", None) is not None) == layer.use_bias[0]
            width = (layer.num_heads + 2 * layer.num_kv_heads) * layer.head_dim
            assert width in projection.weight.shape
    for output in ("o_proj", "dense", "c_proj"):
        projection = getattr(module, output, None)
        if projection is not None:
            assert (projection.bias is not None) == layer.use_output_bias


@every_one_but(TABLES)
def test_frequencies_are_those_of_transformers(name):
    values, _, config = loaded(name)
    plan = configs.plan(values)
    module = module_of(config)
    classes = [
        c
        for n, c in vars(module).items()
        if n.endswith("RotaryEmbedding") and "Vision" not in n
    ]
    if not any(layer.rope for layer in plan.layers):
        assert not classes or config.position_embedding_type == "nope"
        return
    rotary = classes[-1](config)
    kinds = getattr(config, "layer_types", None)
    for layer in plan.layers:
        if layer.rope is None:
            continue
        windows_only = layer.compressed is None
        named = [f"{kinds[layer.index]}_"] if kinds else []
        named += ["", "main_" if windows_only else "compress_"]
        prefix = next(name for name in named if hasattr(rotary, f"{name}inv_freq"))
        wanted = getattr(rotary, f"{prefix}inv_freq").double().numpy()
        np.testing.assert_allclose(layer.rope.frequencies, wanted, rtol=SINGLE, atol=1e-30)
        factor = getattr(rotary, f"{prefix}attention_scaling")
        assert layer.rope.attention_factor == pytest.approx(factor)
