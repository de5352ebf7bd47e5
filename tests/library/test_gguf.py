"""A model in one GGUF file, written here as llama.cpp's converter writes it, with the names of gguf."""

import math
import sys

import numpy as np
import pytest

from posattn import configs
from posattn import torch as torch_column
from posattn.configs import decoders
from posattn.configs.gguf import GGUF
from posattn.configs.rotation import TRAINED
from posattn.conformance.diagnosis import diagnose
from tests.conftest import draw
from tests.library.test_decoder_plan import (
    GEMMA2,
    LLAMA,
    arrays_of,
    given,
    logits,
    on_twins,
)
from tests.library.test_diagnosis import CONFIG, Model

gguf = pytest.importorskip("gguf")

GROUPS = {"num_key_value_heads": 2, "head_dim": 4, "max_position_embeddings": 64}
LLAMA = LLAMA | GROUPS
SMOLLM3 = LLAMA | {"model_type": "smollm3", "num_hidden_layers": 4}
PHI3 = LLAMA | {"model_type": "phi3", "sliding_window": None}
GEMMA2 = GEMMA2 | GROUPS | {"num_key_value_heads": 1, "query_pre_attn_scalar": 4}
GEMMA3 = GEMMA2 | {"model_type": "gemma3_text", "rope_local_base_freq": 10.0}
GEMMA3 |= {"attn_logit_softcapping": None, "sliding_window_pattern": 2}
WIDE = LLAMA | {"head_dim": 16, "rope_theta": 500000.0}
ADDED = {  # what writes a key of transformers
    "hidden_size": "embedding_length", "num_hidden_layers": "block_count",
    "intermediate_size": "feed_forward_length", "num_attention_heads": "head_count",
    "num_key_value_heads": "head_count_kv", "max_position_embeddings": "context_length",
    "head_dim": "key_length", "rms_norm_eps": "layer_norm_rms_eps",
    "rope_theta": "rope_freq_base", "rope_local_base_freq": "rope_freq_base_swa",
    "sliding_window": "sliding_window", "sliding_window_pattern": "sliding_window_pattern",
    "attn_logit_softcapping": "attn_logit_softcapping",
    "final_logit_softcapping": "final_logit_softcapping",
}  # fmt: skip
EMBEDDING = {"model.embed_tokens.weight": np.ones((11, 8), np.float32)}
HEAD = EMBEDDING | {"lm_head.weight": EMBEDDING["model.embed_tokens.weight"]}


def write(path, config, arrays=EMBEDDING, kind=None, **also):
    """A GGUF file of a model; `also` are further values by the methods that write them."""
    name = config["model_type"].removesuffix("_text")
    path.unlink(missing_ok=True)
    writer = gguf.GGUFWriter(path, name)
    added = {ADDED[key]: value for key, value in config.items() if key in ADDED}
    for method, value in (added | also).items():
        if value is not None:
            given_to = value if isinstance(value, tuple) else (value,)
            getattr(writer, f"add_{method}")(*given_to)
    known = {told: arch for arch, told in gguf.MODEL_ARCH_NAMES.items()}
    names = gguf.get_tensor_name_map(known.get(name, gguf.MODEL_ARCH.LLAMA), 8)
    for whole, array in arrays.items():
        part, _, end = whole.rpartition(".")
        if name in ("llama", "smollm3") and part.endswith(("q_proj", "k_proj")):
            heads = config[f"num_{'key_value' if 'k_proj' in part else 'attention'}_heads"]
            halves = array.reshape(heads, 2, -1, *array.shape[1:])
            array = halves.swapaxes(1, 2).reshape(array.shape)
        if name.startswith("gemma") and part.endswith("norm"):
            array = array + np.float32(1)
        stored = array if kind is None else gguf.quantize(array, kind)
        writer.add_tensor(f"{names.get_name(part) or part}.{end}", stored, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


LINEAR = {"rope_type": "linear", "factor": 4.0}
YARN = {"rope_type": "yarn", "factor": 4.0, TRAINED: 32, "beta_fast": 16.0}
LONG = {"rope_type": "longrope", "short_factor": [1.05], "long_factor": [3.2]}
LONG |= {TRAINED: 32, "attention_factor": 1.25}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0}
LLAMA3 |= {"high_freq_factor": 4.0, TRAINED: 8192}
WAVES = 2 * np.pi * 500000 ** np.linspace(0, 1, 8, endpoint=False)
PART = np.clip((8192 / WAVES - 1) / 3, 0, 1)
DIVIDED = (1 / ((1 - PART) / 8 + PART)).astype(np.float32)
NAMED = {"short_factor": "rope_factors_short", "long_factor": "rope_factors_long"}
PAIR = {f"{NAMED[key]}.weight": np.float32(LONG[key]) for key in NAMED}
LONGEST = {"rope_scaling_orig_ctx_len": 32, "rope_scaling_attn_factors": 1.25}
SLOWED = {"rope_scaling_type": gguf.RopeScalingType.YARN, "rope_scaling_factor": 4.0}
SLOWED |= {"rope_scaling_orig_ctx_len": 32, "rope_scaling_yarn_beta_fast": 16.0}
PHI3_HALF, HALF = PHI3 | {"partial_rotary_factor": 0.5}, {"rope_dimension_count": 2}
HEADERS = {
    "Llama": (LLAMA, HEAD, {}),
    "the width's share": (LLAMA | {"head_dim": None}, HEAD, {}),
    "Qwen 2": (LLAMA | {"model_type": "qwen2"}, HEAD, {}),
    "Qwen 3": (LLAMA | {"model_type": "qwen3"}, HEAD, {}),
    "SmolLM3": (SMOLLM3, HEAD, {}),
    "Phi-3": (PHI3_HALF, HEAD, HALF),
    "Phi-4": (PHI3, HEAD, {"sliding_window": 0}),
    "Gemma 2": (GEMMA2, EMBEDDING, {}),
    "Gemma 2 27B": (GEMMA2 | {"num_hidden_layers": 46, "head_dim": 6}, EMBEDDING, {}),
    "Gemma 3 27B": (GEMMA3 | {"num_hidden_layers": 62, "head_dim": 6}, EMBEDDING, {}),
    "Gemma 3": (GEMMA3 | {"rope_scaling": LINEAR}, EMBEDDING, {"rope_scaling_factor": 4.0}),
    "Llama 3": (WIDE | {"rope_scaling": LLAMA3}, HEAD | {"rope_freqs.weight": DIVIDED}, {}),
    "YaRN": (LLAMA | {"rope_scaling": YARN}, HEAD, SLOWED),
    "YaRN, its factor": (
        LLAMA | {"rope_scaling": YARN | {"attention_factor": 2 + 0.2 * math.log(4)}},
        HEAD,
        SLOWED | {"rope_scaling_attn_factors": 2.0},
    ),  # llama.cpp multiplies
    "Gemma 3, layer by layer": (
        GEMMA3
        | {
            "sliding_window_pattern": None,
            "layer_types": ["sliding_attention", "full_attention"],
        },
        EMBEDDING,
        {"sliding_window_pattern": [True, False]},
    ),
    "LongRoPE": (PHI3_HALF | {"rope_scaling": LONG}, HEAD | PAIR, HALF | LONGEST),
}


@pytest.mark.parametrize(("config", "arrays", "also"), HEADERS.values(), ids=HEADERS)
def test_a_header_says_what_config_json_says(tmp_path, config, arrays, also):
    path = write(tmp_path / "model.gguf", config, arrays, **also)
    found = decoders.decoder(path)
    assert found == decoders.decoder(config)
    assert found.plan.defaults == found.plan.unread == ()


NORMS = {"self_attn.q_norm.weight": 4, "self_attn.k_norm.weight": 4}
OFFSETS = {f"self_attn.{x}_proj.bias": 8 for x in "qkv"}
FAMILIES = {  # by the one whose arrays they have, and what they have besides
    "llama": ("llama", {}),
    "qwen2": ("llama", OFFSETS),
    "qwen3": ("llama", NORMS),
    "smollm3": ("llama", {}),
    "phi3": ("phi3", {}),
    "gemma2": ("gemma2", {}),
    "gemma3_text": ("gemma2", NORMS),
}


@on_twins
@pytest.mark.parametrize("family", FAMILIES)
def test_a_file_is_a_decoder_and_its_layers(column, family, tmp_path):
    like, more = FAMILIES[family]
    config = {"phi3": PHI3, "gemma2": GEMMA2, "gemma3_text": GEMMA3}.get(family, LLAMA)
    config = config | {"model_type": family, "num_hidden_layers": 2}
    arrays = arrays_of(like)
    for name, width in more.items():
        arrays |= {f"model.layers.{i}.{name}": np.float32(draw(i, width)) for i in (0, 1)}
    weights, path = given(column, arrays), write(tmp_path / "model.gguf", config, arrays)
    want = column.Decoder.from_config(config, weights=weights)
    got = column.Decoder.from_config(path)
    assert np.allclose(logits(column, got), logits(column, want), rtol=0, atol=2e-5)
    layer = column.MultiHeadAttention.from_config(str(path), 1)
    other = column.MultiHeadAttention.from_config(config, 1, weights=path)
    x = given(column, {"x": np.float32(draw(3, 1, 5, 8))})["x"]
    want = want.blocks[1].attention(x, causal=True)
    for made in (layer, other):
        assert abs(made(x, causal=True) - want).max() < 2e-5


@pytest.mark.parametrize("kind", ["F16", "BF16", "Q8_0", "Q4_1"])
def test_an_array_is_dequantized_in_the_order_of_its_family(tmp_path, kind):
    kind = gguf.GGMLQuantizationType[kind]
    config = LLAMA | {"num_attention_heads": 4, "head_dim": 16, "hidden_size": 64}
    shapes = {"embed_tokens": (300, 64), "layers.0.self_attn.q_proj": (64, 64)}
    shapes |= {"layers.0.self_attn.k_proj": (32, 64)}
    arrays = {f"model.{x}.weight": np.float32(draw(1, *shapes[x])) for x in shapes}
    found = GGUF(write(tmp_path / "model.gguf", config, arrays, kind, custom_alignment=512))
    assert found.keys() == arrays.keys()
    for name, array in arrays.items():
        assert found[name].dtype == np.float32
        assert abs(found[name] - array).max() < 0.25  # half a step of 4 bits


def test_layers_of_a_model_are_judged_by_its_file(tmp_path):
    config = CONFIG | {"model_type": "llama", "intermediate_size": 8, "rms_norm_eps": 1e-6}
    del config["sliding_window"]
    plain = {"window": None}
    model = Model(plain, plain | {"layout": "interleaved"}, plain)
    state = {f"model.{x}": y.numpy() for x, y in model.state_dict().items() if "attn" in x}
    path = write(tmp_path / "model.gguf", config, EMBEDDING | state)
    for weights in (None, path):
        found = diagnose(model, path, weights=weights)
        assert [line.agrees for line in found.findings] == [True, False, True]


FACTORS = {"rope_freqs.weight": np.float32([1, 1.5])}
EXPERTS = {"blk.0.ffn_gate_inp.weight": np.ones(3, np.float32)}
HEADED = [
    ({"model_type": "falcon"}, {}, "must be one of gemma2, .*, got 'falcon'; give"),
    ({}, {"expert_count": 8}, "llama.expert_count = 8 is not known of this family; give"),
    ({}, {"value_length": 3}, "value_length must be 4, got 3; give"),
    ({}, {"attention_scale": 0.5}, "llama.attention.scale = 0.5 is not known of"),
    ({}, {"causal_attention": False}, "llama.attention.causal = False is not known"),
    ({}, {"rope_dimension_count": 2}, "partial_rotary_factor must be 1, .* got 0.5"),
    ({}, {"rope_scaling_type": gguf.RopeScalingType.LONGROPE}, "'longrope' is not known"),
    (
        {"hidden_size": None},
        {},
        "embedding_length must be a positive whole number, got None",
    ),
    ({}, {"uint16": ("split.count", 2)}, "is one of 2 parts; join them"),
    ({}, {"arrays": HEAD | FACTORS}, "'rope_freqs.weight' must hold .* as weights"),
    ({}, {"arrays": {"norm.weight": DIVIDED}}, "lacks 'token_embd.weight'; give"),
]


@pytest.mark.parametrize(("changed", "also", "text"), HEADED)
def test_what_a_plan_cannot_say_is_refused(tmp_path, changed, also, text):
    path = write(tmp_path / "model.gguf", LLAMA | changed, **also)
    with pytest.raises(ValueError, match=text):
        configs.plan(path)


def test_files_and_arrays_that_cannot_be_read_are_refused(tmp_path, monkeypatch):
    path = write(tmp_path / "model.gguf", LLAMA, EMBEDDING | EXPERTS)
    with pytest.raises(
        ValueError, match=r"have 'blk.0.ffn_gate_inp.weight', which .*; give"
    ):
        torch_column.Decoder.from_config(path)
    whole = write(path, LLAMA).read_bytes()
    monkeypatch.setattr(gguf, "dequantize", lambda *_: gguf.GGMLQuantizationType(-1))
    with pytest.raises(
        ValueError, match=r"'token_embd.weight', .* cannot read: -1 is .*Q8_0"
    ):
        GGUF(path)["model.embed_tokens.weight"]
    path.write_bytes(whole[:-1])
    with pytest.raises(ValueError, match=r"its end is missing; download it again"):
        GGUF(path)["model.embed_tokens.weight"]
    for size in (3, 99, len(whole) - 400):
        path.write_bytes(whole[:size])
        with pytest.raises(
            ValueError, match=r"is no whole GGUF file: .*; download it again"
        ):
            configs.plan(path)
    path.write_bytes(whole[:4] + b"\1" + whole[5:])
    with pytest.raises(ValueError, match=r"version 2 or 3, got 1; convert it again"):
        configs.plan(path)
    path.write_bytes(whole)
    monkeypatch.setitem(sys.modules, "gguf", None)
    assert configs.plan(path).layers
    with pytest.raises(ImportError, match=r"needs the package gguf: pip install gguf"):
        torch_column.Decoder.from_config(path)
