"""Plans of real configurations, of the older forms and the newer ones, and what each says in words."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from posattn import configs
from posattn.__main__ import main
from posattn.configs.families.stack import slopes
from posattn.configs.forms import both_forms
from posattn.reference import alibi_slopes, frequencies, ntk_aware
from tests.records import CLASSES, FILES, FOLDER
from tests.records import stored as record

LLAMA = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "rope_theta": 10000.0,
}


RELEASED = json.loads(Path(__file__).with_name("released.json").read_text("utf-8"))
WORDS = [
    line.split(" | ")
    for line in (Path(__file__).parent / "plans.txt").read_text("utf-8").splitlines()
]


@pytest.mark.parametrize("name", sorted({name for name, *_ in WORDS}))
def test_a_layer_says_in_words_what_it_does(name):
    plan = configs.plan(record(name))
    assert record(name)["_source"]
    for layer, words in (line[1:] for line in WORDS if line[0] == name):
        assert str(plan.layers[int(layer)]) == f"layer {layer}: {words}"
        count = len(plan.layers)
        assert plan.describe(int(layer)) == f"layer {layer} of {count}: {words}"


@pytest.mark.parametrize("name", RELEASED)
def test_a_released_file_is_read_as_it_stands(name):
    """Each was read by hand beside the code of its model, and has its source."""
    told = RELEASED[name]
    assert told["source"]
    plan = configs.plan(told["config"], part=told.get("part"))
    assert str(plan).splitlines() == told["plan"]


def test_a_tower_is_told_and_planned_by_its_key(tmp_path, capsys):
    tower = RELEASED["Qwen2.5-VL-3B tower"]["config"]["vision_config"]
    config = record("qwen2.5-vl") | {"vision_config": tower, "audio_config": {"depth": 3}}
    told = "vision_config (plan it with part='vision_config'), audio_config (of qwen2_5_vl_audio)"
    plan = configs.plan(config)
    assert plan == configs.plan(record("qwen2.5-vl"))
    assert str(plan).splitlines()[-1] == f"not read: {told}"
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config), "utf-8")
    assert main(["plan", str(path), "--part", "vision_config"]) == 0
    named = configs.plan(tower | {"model_type": "qwen2_5_vl"})  # as older files call it
    assert capsys.readouterr().out == f"{named}\n"
    with pytest.raises(
        ValueError, match="got 'visual'; the configuration has vision_config, audio"
    ):
        configs.plan(config, part="visual")
    with pytest.raises(
        ValueError, match="'glm4v_vision' is not known"
    ):  # not the text model
        configs.plan(
            {"model_type": "glm4v", "vision_config": {"depth": 24}}, part="vision_config"
        )


def test_every_class_has_its_words_and_no_record_is_one():
    assert set(CLASSES) <= {name for name, _, _ in WORDS} <= set(FILES) | set(CLASSES)
    assert not any("default" in told["_source"] for told in FILES.values())


def test_a_plan_prints_each_kind_of_layer_once():
    plan = configs.plan(
        LLAMA
        | {
            "model_type": "mistral",
            "num_key_value_heads": 1,
            "sliding_window": 8,
            "num_hidden_layers": 12,
        }
    )
    assert str(plan) == (
        "mistral, 12 layers from 0 on\n"
        "0-11  sliding attention over 8 positions, rotary base 10000, halves; "
        "4 heads, 1 of keys"
    )
    lines = str(configs.plan(record("smollm3"))).splitlines()
    assert lines[1].startswith("0-2, 4-6, 8-10, …, 32-34  full attention, rotary")
    assert lines[2].startswith("3, 7, 11, …, 35           full attention, no position")
    assert len(lines) == 3


@pytest.mark.parametrize(
    ("full", "first", "second"),
    [
        ([1, 3, 5, 7, 9], "0, 2, 4, …, 8", "1, 3, 5, …, 9"),
        ([1, 3, 5], "0, 2, 4, 6-9", "1, 3, 5"),
        ([2, 4, 5, 7, 8], "0-1, 3, 6, 9", "2, 4-5, 7-8"),
        ([1], "0, 2-9", "1"),
    ],
)
def test_a_plan_names_layers_by_ranges(full, first, second):
    kinds = ["full_attention" if k in full else "sliding_attention" for k in range(10)]
    changes = {"layer_types": kinds, "num_hidden_layers": 10}
    lines = str(configs.plan(record("gpt-oss") | changes)).splitlines()
    assert [line.split("  ")[0] for line in lines[1:]] == [first, second]


def test_a_configuration_is_a_dictionary_a_path_a_folder_or_an_object(tmp_path):
    class Config:
        def to_dict(self):
            return LLAMA

    path = tmp_path / "config.json"
    path.write_text(json.dumps(LLAMA), "utf-8")
    plan = configs.plan(LLAMA)
    for given in (path, str(path), tmp_path, Config()):
        assert configs.plan(given) == plan
    for name in ("text_config", "llm_config"):
        assert configs.plan({"model_type": "seer", name: LLAMA}) == plan
        assert configs.plan({"model_type": "seer", name: Config()}) == plan


def test_params_json_of_mistral_and_meta_is_read(tmp_path):
    path = tmp_path / "params.json"  # Llama 3.1 8B, as Meta released it
    sizes = {"dim": 4096, "n_layers": 32, "n_heads": 32, "n_kv_heads": 8, "norm_eps": 1e-05}
    rope = {"rope_theta": 500000.0, "use_scaled_rope": True}
    path.write_text(json.dumps(sizes | rope | {"multiple_of": 1024}), "utf-8")
    halves = configs.plan(record("llama-3.1")).layers[0]
    turned = replace(halves.rope, layout="interleaved")  # the same pairs at other places
    for given in (tmp_path, path):
        assert configs.plan(given).layers[0] == replace(halves, rope=turned)
    mistral = sizes | {"head_dim": 128, "sliding_window": 4096}
    assert configs.plan(mistral).layers[31].window == 4096
    assert not configs.plan(mistral | {"ffn_dim_multiplier": 1.3}).unread


READ = [  # what says nothing of attention, or stands without its tower
    (LLAMA | {"sliding_window": 9, "use_sliding_window": False}, LLAMA),
    (LLAMA | {"model_type": "gemma3"}, LLAMA | {"model_type": "gemma3_text"}),
    ({"model_type": "deberta-v2", "conv_kernel_size": 3, "conv_act": "gelu"}, {"model_type": "deberta-v2"}),
]  # fmt: skip


@pytest.mark.parametrize(("config", "same"), READ)
def test_a_key_that_changes_no_attention_is_read(config, same):
    assert configs.plan(config) == configs.plan(same)


def test_minimax_rotates_whole_heads_unless_a_share_is_told():
    """As its classes in transformers: that of M3 has a `rotary_dim` of 64 and does not use it."""
    config = {"model_type": "minimax_m3_vl_text", "num_hidden_layers": 1}
    assert configs.plan(config).layers[0].rope.rotary_dim == 128
    half = configs.plan(config | {"partial_rotary_factor": 0.5, "rotary_dim": 64})
    assert half.layers[0].rope.rotary_dim == 64
    told = configs.plan(config | {"rotary_dim": 64})
    assert told.layers[0].rope.rotary_dim == 128
    assert told.unread == ("rotary_dim = 64, as all 128 entries rotate",)
    bare = {"rope_parameters": {"rope_type": "default", "rope_theta": 5e6}}
    assert (
        configs.plan(config | bare | {"model_type": "minimax_m2"}).layers[0].rope.rotary_dim
        == 128
    )


META = {"dim": 64, "n_layers": 2, "n_heads": 4}
OTHERS = (  # keys of ExecuTorch's params.json, of which some are named config.json
    "use_hf_rope partial_rotary_factor no_rope_layer_interval attention_multiplier query_window "
    "rms_norm_add_unit_offset embedding_scale_factor layer_types"
)
UNREADABLE = [  # bytes are what a file holds
    (b"{", ValueError, "is no JSON"),
    (b"\xff\xfe\xfd", ValueError, "is no JSON"),
    (b"[1]", TypeError, r"must hold a dictionary, got \[1\]"),
    ("no/config.json", ValueError, "config.json' cannot be read: No such file"),
    (3, TypeError, "config must be a path, a dictionary or .*got int"),
    ({"model_typ": "llama"}, ValueError, "model_type is missing.*did you mean it by model_typ"),
    ({}, ValueError, "model_type is missing, which names the family; add it$"),
    ({"model_type": 3}, TypeError, "model_type must be a string, got 3"),
    ({"model_type": "lama"}, ValueError, "'lama' is not known; did you mean llama"),
    ({"model_type": "phi4"}, ValueError, "'phi4' is not known; did you mean phi3"),
    ({"model_type": "fluxTransformer2dModel"}, ValueError, "did you mean FluxTransformer2DModel"),
    *(({"model_type": name}, ValueError, f"'{name}' is not known; if its attention is")
        for name in ("zzz", "glm4v2")),  # near to a known one, with another attention
    *((META | {key: 0.75}, ValueError, f"{key} = 0.75 is no key that Meta or Mistral have")
        for key in OTHERS.split()),
    ({"model_type": "seer", "text_config": 3}, TypeError, "seer: text_config must be a dictionary, got 3"),
    ({"model_type": "seer", "text_config": {"hidden_size": 3}}, ValueError, "text_config: model_type is m"),
]  # fmt: skip


@pytest.mark.parametrize(("config", "kind", "match"), UNREADABLE)
def test_what_cannot_be_read_is_an_error(config, kind, match, tmp_path):
    if isinstance(config, bytes):
        path = tmp_path / "config.json"
        path.write_bytes(config)
        config = path
    with pytest.raises(kind, match=match):
        configs.plan(config)


def test_the_command_prints_the_table(capsys):
    path = str(FOLDER / "gemma-2.json")
    assert main(["plan", path]) == 0
    assert capsys.readouterr().out == f"{configs.plan(path)}\n"
    phi = str(FOLDER / "phi-4-mini.json")
    assert main(["plan", phi, "--length", "5000"]) == 0
    assert main(["plan", phi + "x"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("posattn: config ")
    assert error.count("\n") == 1


def test_a_plan_says_what_it_has_from_a_class_and_strict_refuses_it(capsys, tmp_path):
    """Llama 2's file, as it was released, says nothing of the base."""
    path = tmp_path / "config.json"
    bare = {key: value for key, value in LLAMA.items() if key != "rope_theta"}
    path.write_text(json.dumps(bare | {"rope_scaling": None}), "utf-8")
    plan = configs.plan(path)
    assert plan == configs.plan(LLAMA)
    assert plan.defaults == (("rope_theta", 10000.0),)
    assert configs.plan(LLAMA).defaults == ()
    told = "the defaults of LlamaConfig, transformers 5.24.0: rope_theta = 10000"
    assert str(plan).splitlines()[-1] == f"from {told}"
    assert main(["plan", str(path)]) == 0
    assert told in capsys.readouterr().out
    assert main(["plan", str(path), "--strict"]) == 2
    error = capsys.readouterr().err
    assert "LlamaConfig, transformers 5.24.0: rope_theta = 10000; add these keys" in error
    assert configs.plan(LLAMA, strict=True) == plan


def test_keys_that_nobody_reads_are_told_and_must_not_contradict():
    stray = LLAMA | {"offset_alibi": 100, "head_dim": None, "kv_channels": 16}
    plan = configs.plan(stray)
    assert plan == configs.plan(LLAMA)
    told = "not read: offset_alibi = 100, kv_channels = 16, which holds anyway"
    assert str(plan).splitlines()[-1] == told
    wrong = (
        "llama: use_qk_norm = True is no key .* and its layers have False for it; remove"
    )
    with pytest.raises(ValueError, match=wrong):
        configs.plan(LLAMA | {"use_qk_norm": True})


def test_the_plan_is_made_without_any_array_library():
    code = (
        "import sys, posattn.configs; print({'numpy', 'torch', 'jax'} & set(sys.modules))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert found.stdout.split() == [b"set()"]


def test_slopes_are_the_references():
    bloom = configs.plan(record("bloom")).layers[0]
    np.testing.assert_array_equal(bloom.bias.values, alibi_slopes(16))
    heads = replace(bloom, num_heads=12)
    np.testing.assert_array_equal(slopes(heads).values, alibi_slopes(12))


def rope_of(name, layer=0, **options):
    return configs.plan(record(name), **options).layers[layer].rope


def test_longrope_changes_beyond_the_trained_length():
    within, at, beyond = (rope_of("phi-4-mini", length=n) for n in (None, 4096, 4097))
    assert within == at
    assert within.frequencies[-1] > 40 * beyond.frequencies[-1]
    assert (
        within.attention_factor
        == beyond.attention_factor
        == pytest.approx(1.1902, abs=1e-4)
    )


def test_the_first_qwen_grows_its_base_by_octaves():
    qwen = RELEASED["Qwen-7B-Chat"]["config"]  # trained on 8192 tokens
    for length, factor in ((8193, 3.0), (16384, 3.0), (16385, 7.0), (32769, 15.0)):
        rope = configs.plan(qwen, length=length).layers[0].rope
        np.testing.assert_allclose(rope.frequencies, ntk_aware(128, factor=factor))
    assert configs.plan(qwen, length=8192) == configs.plan(qwen)


def test_new_and_old_forms_of_gemma_3_say_the_same():
    gemma = record("gemma-3")
    text = gemma["text_config"]
    for key in ("rope_theta", "rope_local_base_freq", "rope_scaling"):
        text.pop(key, None)
    text["rope_parameters"] = {
        "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1000000.0},
    }
    assert configs.plan(gemma) == configs.plan(record("gemma-3"))
    assert configs.plan(both_forms(gemma)) == configs.plan(gemma)


def test_latent_attention_has_its_widths():
    v3 = configs.plan(record("deepseek-v3")).layers[0]
    assert v3.latent == configs.Latent(1536, 512, 128, 64, 128)
    assert (v3.head_dim, v3.rope.rotary_dim, v3.rope.last) == (192, 64, True)
    v2 = record("deepseek-v3") | {"model_type": "deepseek_v2", "q_lora_rank": None}
    v2 |= {"attention_bias": True}
    layer = configs.plan(v2).layers[0]
    assert layer.latent.query_rank is None
    assert layer.use_bias == (False, True, True)
    plain = record("deepseek-v3") | {"rope_scaling": None, "rope_interleave": False}
    layer = configs.plan(plain).layers[0]
    assert (layer.scale, layer.rope.layout) == (192**-0.5, "half")


def test_equal_bounds_of_yarn_leave_one_step():
    found = np.array(rope_of("kimi-k2").frequencies)
    shares = found / frequencies(64, base=50000.0)
    assert set(np.round(shares, 9)) == {1.0, round(1 / 32, 9)}


def test_deepseek_v4_in_both_forms():
    old = record("deepseek-v4-flash")
    assert configs.plan(old).layers[5].rope.attention_factor == 1
    names = {
        0: "sliding_attention",
        4: "compressed_sparse_attention",
        128: "heavily_compressed_attention",
    }
    new = {
        key: value
        for key, value in old.items()
        if key not in ("compress_ratios", "rope_scaling")
    }
    new["layer_types"] = [names[rate] for rate in old["compress_ratios"][:43]]
    new["rope_parameters"] = old["rope_scaling"]
    del new["qk_rope_head_dim"]
    assert configs.plan(new | {"partial_rotary_factor": 0.125}) == configs.plan(old)
    share = {"partial_rotary_factor": 0.125, "rope_theta": 10000.0}
    scaled = old["rope_scaling"] | share | {"rope_theta": 160000.0, "attention_factor": 1.0}
    new["rope_parameters"] = {"main": share, "compress": scaled}
    new["partial_rotary_factor"] = 0.125
    assert configs.plan(new) == configs.plan(old)


CONTRADICTIONS = [
    ("llama-3", {"rope_parameters": {"rope_theta": 1e4}}, r"rope_theta = 500000.0, which contr"),
    ("llama-3", {"rope_parameters": {"rope_theta": 5e5}, "rope_scaling": {"type": "linear"}},
        "rope_parameters = .* and rope_scaling = .* contradict"),
    ("llama-3.1", {"rope_scaling": {"type": "yarn", "rope_type": "linear", "factor": 2.0}},
        "rope_type = 'linear' and type = 'yarn', which contradict"),
    ("llama-3.1", {"original_max_position_embeddings": 4096}, "original_max_position_embeddings = 8192"),
    ("llama-3", {"num_key_value_heads": 5}, "num_key_value_heads = 5 must divide"),
    ("llama-3", {"partial_rotary_factor": 0.5}, "partial_rotary_factor must be 1, since"),
    *(("llama-3", {key: 5}, f"{key} = 5 is no key .*; did you mean rope_theta?")
        for key in ("rope_thetaa", "rope_thta", "rope_theat", "rope_theto")),  # beside the right one
    ("llama-3", {"sliding_window": 4096}, "sliding_window = 4096 is no key that this"),
    ("llama-3", {"rope_scaling": {"full_attention": {"type": "linear"}}}, "must hold numbers, since"),
    ("gpt-oss", {"layer_types": ["full_attention"]}, "layer_types must hold 24 entries, got 1"),
    ("gpt-oss", {"sliding_window": None}, "sliding_window is null, but layer_types has layers"),
    ("qwen2", {"layer_types": ["sliding_attention"] * 28}, "sliding_window is missing, but|sliding_window"),
    ("smollm3", {"no_rope_layers": [2] * 36}, r"no_rope_layers\[0\] must be one of 0, 1, got 2"),
    ("olmo-3", {"rope_parameters": None, "rope_theta": 1e4}, "rope_theta = 10000 would rotate full"),
    ("olmo-3", {"rope_parameters": {"rope_theta": 1e4}}, r"rope_parameters\['\w+'\] is missing"),
    ("phi-3", {"rope_scaling": {"type": "linear", "factor": 2.0}}, "must be 'default' or 'longrope'"),
    ("deepseek-v3", {"num_key_value_heads": 64}, "num_key_value_heads = 64 must be num_attention_heads"),
    ("deepseek-v3", {"rope_scaling": {"type": "yarn", "factor": None, "mscale_all_dim": 1.0,
        "original_max_position_embeddings": 4096}}, "factor is missing beside mscale_all_dim"),
    ("deepseek-v4-flash", {"compress_ratios": [0] * 9}, "must hold 43 entries or more, got 9"),
    ("deepseek-v4-flash", {"partial_rotary_factor": 0.5}, "qk_rope_head_dim = 64 and partial_rotary"),
    ("deepseek-v4-flash", {"compress_ratios": None, "layer_types": ["sliding_attention"] * 43,
        "compress_rates": {"compressed_sparse_attention": 8}}, "is known only as 4, got 8"),
    ("gpt2", {"hidden_size": 64}, "n_embd = 768 and hidden_size = 64 contradict"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "change", "match"), CONTRADICTIONS)
def test_what_contradicts_itself_is_an_error(name, change, match):
    with pytest.raises((TypeError, ValueError), match=match):
        configs.plan(record(name) | change)


ROPE = configs.rope({"rope_theta": 100.0, "mrope_section": [2, 1, 1]}, 8)
PARTS = [
    ({"kind": "state space"}, "state space, no position; not computed by posattn"),
    ({"kind": "chunked", "chunk": 9}, "attention in chunks of 9 positions, no position; 1 head"),
    ({"bias": configs.Buckets(32, 128, True)}, "32 buckets of offsets up to 128; 1 head"),
    ({"rope": ROPE}, "rotary base 100, halves, sections 2, 1, 1 for time, height and width"),
    ({"rope": replace(ROPE, interleaved=True)}, "halves, alternating sections 2, 1, 1 for"),
    ({"rope": replace(ROPE, layout="interleaved", sections=())}, "base 100, neighbors; 1 head"),
    ({"rope": replace(ROPE, base=1e16, last=True), "head_dim": 16}, "1e+16, halves, last 8 of 16"),
    ({"rope": configs.rope({"type": "proportional", "rope_theta": 9.0,
        "partial_rotary_factor": 0.5}, 8)}, "rotary base 9, halves, 4 of 8 entries; 1 head"),
    ({"temperature": configs.Temperature(8192, 0.1)}, "queries grow beyond 8192 positions"),
    ({"gate": True}, "gated output"),
    ({"kv_layer": 7}, "1 head, keys and values of layer 7"),
    ({"query_norm": configs.Norm("l2", 1e-6, after=True)}, "; query norms after the rotation;"),
    ({"latent": configs.Latent(None, 512, 6, 2, 8)}, "1 head, keys and values from 512 numbers"),
    ({"latent": configs.Latent(None, 512, 8, 8, 8), "rope": replace(ROPE, sections=())},
        "rotary base 100, halves; 1 head"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "words"), PARTS)
def test_each_part_of_a_layer_has_its_words(changes, words):
    layer = replace(configs.Layer(0, "full", 8, 1, 1, 8, scale=8**-0.5), **changes)
    assert words in str(layer)
