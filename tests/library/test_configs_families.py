"""What families read beyond their records: options that few models use, and what contradicts itself."""

import json

import pytest

from posattn import configs
from posattn.configs.data import data
from posattn.configs.reading import as_heads
from tests.library import families
from tests.pages.reading import DOCS
from tests.records import stored

SIZES = {"hidden_size": 64, "num_hidden_layers": 6, "num_attention_heads": 4}
LLAMA = SIZES | {"rope_theta": 1e4, "num_key_value_heads": 2, "rms_norm_eps": 1e-6}
FULL, SLIDING = "full_attention", "sliding_attention"
CHUNKS = {"attention_chunk_size": None, "layer_types": ["chunked_attention"] * 48}


def changed(name, **changes):
    """A recorded configuration (its text model, if it has one) with some keys changed, or taken out by ..."""
    values = stored(name)
    values = values.get("text_config", values) | changes
    return {key: value for key, value in values.items() if value is not ...}


DEBERTA = SIZES | {
    "model_type": "deberta-v2",
    "max_position_embeddings": 512,
    "max_relative_positions": -1,
    "position_biased_input": False,
    "relative_attention": True,
    "pos_att_type": "p2c|c2p",
}
GEMMA4 = {"layer_types": [SLIDING, FULL] * 3, "num_hidden_layers": 6}
OTHER_HEADS = {"5": {"head_dim": 512}, "3": {"head_dim": 512}, "1": {"head_dim": 512}}
WIDER = {str(k): {"head_dim": 512, "num_key_value_heads": 4} for k in (1, 3, 5)}
FALCON = {"alibi": True, "new_decoder_architecture": True, "num_kv_heads": 8}
GLM45 = LLAMA | {"model_type": "glm4_moe", "partial_rotary_factor": 0.5}


STEP = SIZES | {"model_type": "step3p5", "num_key_value_heads": 2, "head_dim": 16,
    "layer_types": [FULL, SLIDING] * 4, "sliding_window": 8, "rope_theta": [5e6, 1e4] * 4,
    "attention_other_setting": {"num_attention_heads": 8}, "partial_rotary_factors": [0.5, 1] * 4
}  # fmt: skip
NAS = LLAMA | {"model_type": "nemotron-nas", "num_hidden_layers": 2, "block_configs": [
    {"attention": {"n_heads_in_group": 2}}, {"attention": {"replace_with_linear": True}}]}  # fmt: skip
HYBRID = LLAMA | {"model_type": "nemotron_h", "num_hidden_layers": None}
HYBRID = HYBRID | {"layer_types": ["mlp", FULL]}
BAICHUAN = SIZES | {"model_type": "baichuan", "model_max_length": 4096}
YARN = {"rope_type": "yarn", "factor": 4.0}
LONG = {"type": "longrope", "short_factor": [1.0] * 8, "long_factor": [2.0] * 8, "short_mscale": 1.25,
    "long_mscale": 1.5, "original_max_position_embeddings": 4096}  # fmt: skip

VIT = SIZES | {"image_size": 32, "patch_size": [16, 8]}
QWEN3 = {"model_type": "qwen3_vl", "hidden_size": 64, "num_heads": 4, "depth": 6}
FLUX = {"_class_name": "FluxTransformer2DModel", "axes_dims_rope": [16, 56, 56]}

LATE = changed("qwen2", use_sliding_window=True, max_window_layers=20)
WINDOWS = {"use_sliding_window": True, "sliding_window": 64}

INNER = {"attn_config": {"kv_n_heads": 2, "clip_qkv": 8}}
DBRX = {"model_type": "dbrx", "d_model": 64, "n_heads": 4, **INNER}
COMMAND = SIZES | {"model_type": "cohere2_moe"}
KIMI = LLAMA | {"model_type": "kimi_linear", "num_key_value_heads": 4}
READ = [
    (SIZES | DBRX, 0, "rotary base 10000, halves; projections clipped at 8; 4 heads, 2 of keys"),
    (LLAMA | {"model_type": "bamba", "mamba_d_head": 8, "mamba_n_heads": 6}, 0, "6 heads of 8, state of"),
    (COMMAND | {"mlp_layer_types": ["dense"] * 6}, 3, "full attention, rotary base 10000, neighbors"),
    (COMMAND | {"first_k_dense_replace": 2}, 2, "over 4096 positions, rotary base 10000, neighbors"),
    (COMMAND | {"first_k_dense_replace": 3, "prefix_dense_sliding_window_pattern": 3}, 2, "no position"),
    (LLAMA | {"model_type": "glm4v_moe", "head_dim": 128}, 0, "64 of 128 entries, sections 8, 12, 12"),
    (KIMI, 4, "full attention, no position"),
    (LATE, 19, "layer 19: full attention"),
    (LATE, 20, "layer 20: sliding attention over 131072 positions"),
    (changed("smollm3", **WINDOWS), 2, "layer 2: full attention, rotary"),
    (changed("smollm3", **WINDOWS), 3, "sliding attention over 64 positions, no position"),
    (changed("smollm3", no_rope_layers=[1, 1, 1, 0] * 9, **WINDOWS), 35, "over 64 positions, no position"),
    ({"model_type": "smollm3", "num_layers": 40}, 39, "no position"),
    (changed("gemma-3", use_bidirectional_attention=True) | {"model_type": "gemma3_text"}, 0,
        "layer 0: sliding attention in both directions over 1025 positions"),
    (changed("gpt2", scale_attn_by_inverse_layer_idx=True), 3, "scores times 0.03125; 12 heads"),
    (changed("gpt2", scale_attn_weights=False), 3, "scores times 1; 12 heads"),
    (VIT | {"model_type": "vit"}, 0, "both directions, learned table of 9 rows at the input; 4 heads"),
    (VIT | {"model_type": "clip_vision_model"}, 0, "learned table of 9 rows at the input"),
    (SIZES | {"model_type": "clip_text_model"}, 0, "full attention, learned table of 77 rows"),
    (VIT | {"model_type": "siglip_vision_model"}, 0, "learned table of 8 rows at the input"),
    (SIZES | {"model_type": "siglip2_vision_model"}, 0, "learned and resized table of 256 rows"),
    ({"model_type": "siglip", "text_config": SIZES | {"model_type": "siglip_text_model"}}, 0,
        "full attention in both directions, learned table of 64 rows"),
    (QWEN3 | {"rope_parameters": {"rope_type": "axial", "rope_theta": 500.0}}, 5, "base 500, halves, sectio"),
    ({"model_type": "chatglm", "rope_ratio": 16, "_name_or_path": "THUDM/chatglm2-6b-32k", "hidden_size": 64,
        "num_attention_heads": 4, "num_layers": 1, "kv_channels": 16}, 0, "8 of 16 entries, scaled by 16 l"),
    (STEP, 0, "base 5000000, halves, 8 of 16 entries; query and key norms; each head's output gated; 4"),
    (STEP, 1, "over 8 positions, rotary base 10000, halves; query and key norms; each head's output gated"),
    (NAS, 1, "layer 1: no attention, a network; not computed by posattn"),
    (HYBRID, 1, "full attention, no position"),
    (BAICHUAN, 0, "ALiBi with slopes"),
    (LLAMA | {"model_type": "minicpmv", "version": 2.6}, 0, "halves; 4 heads, 2 of keys"),
    (LLAMA | {"model_type": "phimoe", "rope_scaling": LONG}, 0, "from 4096 positions, attention factor 1.25"),
    (LLAMA | {"model_type": "minimax_m3", "layer_types": ["minimax_m3_sparse"] * 6}, 0, "in blocks of 128"),
    (LLAMA | {"model_type": "lfm2", "full_attn_idxs": [2]}, 2, "full attention, rotary base 10000"),
    ({"model_type": "gemma3", "text_config": LLAMA}, 0, "over 4096 positions, rotary base 10000, halves"),
    ({"model_type": "t5", "num_layers": 2, "num_decoder_layers": 3}, 4, "full attention, 32 buckets"),
    (DEBERTA, 0, "terms p2c and c2p of offsets up to 512; scores times 0.144338"),
    (DEBERTA | {"position_buckets": 256, "share_att_key": True, "norm_rel_ebd": "layer_norm"}, 0,
        "offsets up to 512 in 256 buckets on each side"),
    (DEBERTA | {"model_type": "deberta", "max_relative_positions": 64, "pos_att_type": ["c2p"]}, 0,
        "terms c2p of offsets up to 64; scores times 0.176777"),
    (DEBERTA | {"relative_attention": False, "position_biased_input": True}, 0, "learned table of 512"),
    (changed("bert", is_decoder=True), 0, "full attention, learned table"),
    (changed("esm-2", position_embedding_type="absolute"), 0, "learned table of 1026 rows"),
    (changed("modernbert", layer_types=..., rope_parameters=..., global_attn_every_n_layers=2,
        global_rope_theta=9e4, local_rope_theta=8e3), 1, "129 positions, 64 on each side, rotary base 8000"),
    (changed("gemma-4", use_bidirectional_attention="all"), 0, "in both directions over 1025 positions"),
    (changed("gemma-4", global_head_dim=..., per_layer_config=OTHER_HEADS, **GEMMA4), 1, "8 of keys"),
    (changed("gemma-4", global_head_dim=..., per_layer_config=WIDER, **GEMMA4), 1, "4 of keys"),
    (changed("gemma-4", attention_k_eq_v=False), 5, "16 heads, 8 of keys"),
    (changed("gemma-4", num_kv_shared_layers=2, **GEMMA4), 5, "keys and values of layer 3"),
    (changed("command-r", use_qk_norm=True), 0, "query and key norms"),
    (changed("olmo", clip_qkv=8.0), 0, "projections clipped at 8"),
    (changed("exaone-4", sliding_window=None, layer_types=...), 3, "full attention, rotary base"),
    (changed("exaone-4", layer_types=...), 3, "full attention, no position"),
    (changed("exaone-4", layer_types=..., sliding_window_pattern=2), 1, "full attention, no position"),
    (changed("exaone-4", sliding_window_pattern=...), 3, "full attention, no position"),
    (changed("llama-4-scout", attention_chunk_size=None, layer_types=...), 0, "full attention, rotary"),
    (changed("llama-4-scout", attn_temperature_tuning=False), 3, "full attention, no position; 40"),
    (changed("llama-4-scout", no_rope_layers=[], layer_types=...), 3, "full attention, no position"),
    (changed("falcon", **FALCON, num_attention_heads=32, hidden_size=2048), 0,
        "ALiBi with slopes from 0.105112 to 0.000488281; 32 heads, 8 of keys"),
    (changed("falcon", multi_query=False), 0, "halves; 71 heads"),
    (changed("phi-2", qk_layernorm=True), 0, "query and key norms"),
    (GLM45, 0, "halves, 8 of 16 entries; 4 heads, 2 of keys"),
    (GLM45 | {"use_qk_norm": True}, 0, "query and key norms"),
    (changed("minimax-m2", rotary_dim=..., partial_rotary_factor=0.5), 0, "64 of 128 entries"),
    (changed("minimax-m2", partial_rotary_factor=0.5), 0, "64 of 128 entries"),
    (LLAMA | {"model_type": "qwen2_moe", "use_sliding_window": True, "sliding_window": 8,
        "max_window_layers": 3}, 2, "sliding attention over 8 positions"),
    (LLAMA | {"model_type": "qwen2_moe"}, 2, "full attention"),
    (changed("qwen3-moe", use_sliding_window=True, sliding_window=8), 0, "sliding attention over 8"),
    (changed("inkling", layer_types=..., local_layer_ids=[0, 1], log_scaling_n_floor=8192), 2,
        "queries grow beyond 8192 positions"),
]  # fmt: skip


@pytest.mark.parametrize(("values", "layer", "words"), READ)
def test_what_few_models_use_is_read(values, layer, words):
    assert words in str(configs.plan(values).layers[layer])


WRONG = [
    (VIT | {"model_type": "vit", "patch_size": [16, 8, 4]}, r"patch_size must be a number or two, got \[16"),
    (QWEN3 | {"hidden_size": 56}, "an even number of entries of a head must rotate, got 7"),
    (FLUX | {"attention_head_dim": 64}, r"axes_dims_rope = \[16, 56, 56\] must add up to attention_head_dim"),
    (LLAMA | {"model_type": "llama", "rope_scaling": YARN, "max_position_embeddings": 512},
        "original_max_position_embeddings is missing .transformers takes max_position_embeddings = 512, wh"),
    (HYBRID | {"hybrid_override_pattern": "MX", "layer_types": None, "num_hidden_layers": 2},
        "hybrid_override_pattern must be of M, E, .*, -, got"),
    (LLAMA | {"model_type": "minicpmv", "version": 3}, "version must be one of 2.6, 4.0, 4.5, got 3; corr"),
    (DEBERTA | {"pos_att_type": ["p2p"]}, "pos_att_type must name c2p, p2c or both, got"),
    (changed("gemma-4", layer_types=[SLIDING] * 30), r"layer_types\[29\] must be 'full_attention'"),
    (changed("gemma-4", global_head_dim=...), "global_head_dim or per_layer_config is missing"),
    (changed("gemma-4", per_layer_config={"5": {"head_dim": 512}}), "must say the same of layers"),
    (changed("gemma-4", num_global_key_value_heads=3), "num_global_key_value_heads = 3 must divide"),
    (changed("gemma-4", num_kv_shared_layers=6, **GEMMA4), "leaves no 'sliding_attention' with keys"),
    (changed("exaone-4", sliding_window_pattern="LX"), "sliding_window_pattern must be of L and G"),
    (changed("llama-4-scout", **CHUNKS), "attention_chunk_size is null, but layer_types"),
    (changed("llama-4-scout", attn_temperature_tuning="yes"), "must be true, false or a whole number"),
    (changed("falcon", **FALCON), "num_kv_heads = 8 must divide num_attention_heads = 71"),
    (changed("minimax-m2", rotary_dim=...), "rotary_dim is missing"),
    (changed("minimax-m2", partial_rotary_factor=0.25), "rotary_dim = 64 and partial_rotary_factor = 0.25"),
    (changed("minimax-m2", attn_type_list=[1, 0]), r"attn_type_list\[1\] must be one of 1"),
    (changed("qwen2.5-vl", rope_scaling={"type": "mrope", "mrope_section": [8, 4, 4]}), "whose sum is 64"),
    (changed("qwen2.5-vl", rope_scaling={"type": "mrope", "mrope_section": [16, 24, 24],
        "mrope_interleaved": True}), "mrope_interleaved must be false"),
    (changed("inkling", swa_num_key_value_heads=7), "swa_num_key_value_heads = 7 must divide"),
    (changed("jamba", sliding_window=8), "sliding_window is known only as None, got 8"),
]  # fmt: skip


@pytest.mark.parametrize(("values", "match"), WRONG)
def test_what_contradicts_itself_is_an_error(values, match):
    with pytest.raises(ValueError, match=match):
        configs.plan(values)


def test_a_rope_type_and_an_older_type_may_name_sections_together():
    sections = {"type": "mrope", "rope_type": "default", "mrope_section": [16, 24, 24]}
    twice = changed("qwen2.5-vl", rope_scaling=sections)
    assert configs.plan(twice) == configs.plan(changed("qwen2.5-vl"))


@pytest.mark.parametrize(
    "name", ["deepseek-v3", "deepseek-v4-flash", "inkling", "falcon with ALiBi"]
)
def test_what_the_layer_lacks_is_refused(name):
    falcon = changed("falcon", **FALCON, num_attention_heads=32, hidden_size=2048)
    values = falcon if "with" in name else changed(name)
    with pytest.raises(ValueError, match="which MultiHeadAttention does not build"):
        as_heads(configs.plan(values).layers[0])


def test_who_is_read_as_another_was_found_so_by_the_run():
    record = json.loads((DOCS / "_records" / "families.json").read_text("utf-8"))[
        "families"
    ]
    for name, other in data("same.json").items():
        assert name in record, f"run nox -s record -- families {name} first"
        assert other in record[name]["as"], name
        assert record[name]["difference"] <= 2e-6, name


def test_a_family_that_says_little_is_planned_as_written():
    """If it should not be: `python -m tests.library.families`."""
    assert [*families.lines()] == families.WRITTEN.read_text("utf-8").splitlines()
