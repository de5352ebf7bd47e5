"""Mixtures of experts: which networks a router picks, what they add up to, and where their weights are."""

import zlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from posattn import jax as jax_column
from posattn import torch as torch_column
from posattn.configs.decoders import decoder
from posattn.configs.experts import Mixture
from posattn.jax.models import experts as jax_experts
from posattn.reference.models import block
from posattn.reference.models import experts as reference_experts
from posattn.torch.models import experts as torch_experts
from tests.conftest import assert_close, draw, error

MODULES = {"reference": reference_experts, "torch": torch_experts, "jax": jax_experts}
COUNT, DIM, HIDDEN = 6, 8, 4
LOGITS = np.log([1, 4, 2, 3])


def log_odds(*probabilities):
    p = np.array(probabilities)
    return np.log(p / (1 - p))


SIGMOID = {"score": "sigmoid", "normalized": False}
PICKED = {
    "softmax, then the highest": ({"normalized": False}, LOGITS, None, [0, 0.4, 0, 0.3]),
    "the highest, then softmax": ({}, LOGITS, None, [0, 4 / 7, 0, 3 / 7]),
    "sigmoid": (SIGMOID | {"scale": 2.0}, log_odds(0.5, 0.2, 0.9), None, [1, 0, 1.8]),
    # which decides and does not count
    "correction": (SIGMOID, log_odds(0.5, 0.2, 0.4), [0, 0.4, 0], [0.5, 0.2, 0]),
    # the best two of a group sum to 0.7, 0.65 and 0.75: the second group is out, with the highest of all
    "groups": ({"score": "sigmoid", "scale": 2.5, "groups": 3, "kept_groups": 2},
        log_odds(0.5, 0.2, 0.6, 0.05, 0.35, 0.4), None, [1.25 / 0.9, 0, 0, 0, 0, 1 / 0.9]),
}  # fmt: skip


@pytest.mark.parametrize("case", PICKED.values(), ids=PICKED)
def test_a_router_picks_and_weighs(column, case):
    options, logits, correction, want = case
    correction = None if correction is None else column.array(np.array(correction, float))
    mixture = Mixture(len(logits), 2, HIDDEN, **options)
    got = MODULES[column.name].routed(column.array(logits[None]), correction, mixture)
    assert_close(column, got, np.array([want], float))


@pytest.mark.parametrize("column", [torch_column, jax_column])
def test_a_router_in_bfloat16_weighs_in_float32(column):
    name = "model.layers.1.mlp.gate.e_score_correction_bias"
    shifts, logits = np.arange(COUNT) / 999, 4 * draw(3, 2, 5, COUNT).astype(np.float32)
    arrays = checkpoint("glm4_moe") | {name: shifts.astype(np.float32)}
    convert, kind = torch.tensor, torch.bfloat16
    if column is jax_column:
        convert, kind = jnp.asarray, jnp.bfloat16
    weights = {name: convert(x) for name, x in arrays.items()}
    made = column.Decoder.from_config(GLM, weights=weights, dtype=kind)
    own = made.blocks[1].feed_forward
    routed = (jax_experts if column is jax_column else torch_experts).routed
    got = routed(convert(logits, dtype=kind), own.correction, own.mixture)
    want = reference_experts.routed(logits.astype(float), shifts, own.mixture)
    assert error(np.asarray(got), want) <= 1e-6


SIZES = {
    "vocab_size": 11,
    "hidden_size": DIM,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "head_dim": 4,
    "num_key_value_heads": 2,
    "intermediate_size": HIDDEN,
    "rope_theta": 10000.0,
}
QWEN2 = {"model_type": "qwen2_moe", "num_experts": COUNT, "moe_intermediate_size": HIDDEN}
QWEN2 |= SIZES | {"shared_expert_intermediate_size": 5, "num_experts_per_tok": 3}
GLM = {"model_type": "glm4_moe", "n_routed_experts": COUNT, "moe_intermediate_size": HIDDEN}
GLM |= SIZES | {"n_group": 3, "topk_group": 2, "num_experts_per_tok": 3}
GLM |= {"num_nextn_predict_layers": 1}
GPT_OSS = {"model_type": "gpt_oss", "num_local_experts": COUNT, "num_experts_per_tok": 2}
GPT_OSS |= SIZES | {"swiglu_limit": 0.5, "rope_theta": 150000.0}
HEADS = [f"self_attn.{role}_proj" for role in "qkvo"]
NORMS = ["input_layernorm", "post_attention_layernorm"]


def gated(prefix, hidden):
    wide = {f"{prefix}.{name}_proj.weight": (hidden, DIM) for name in ("gate", "up")}
    return wide | {f"{prefix}.down_proj.weight": (DIM, hidden)}


def separate(shared, width):
    """A network by itself for each expert, and one that every token passes."""
    each = [gated(f"mlp.experts.{index}", HIDDEN) for index in range(COUNT)]
    found = {"mlp.gate.weight": (COUNT, DIM)} | gated(f"mlp.{shared}", width)
    return found | {name: shape for one in each for name, shape in one.items()}


PARTS = {
    "qwen2_moe": separate("shared_expert", 5) | {"mlp.shared_expert_gate.weight": (1, DIM)}
    | {f"{name}.bias": (DIM,) for name in HEADS[:3]},
    "glm4_moe": separate("shared_experts", HIDDEN) | {"mlp.gate.e_score_correction_bias": (COUNT,)},
    "gpt_oss": {
        "mlp.router.weight": (COUNT, DIM),
        "mlp.router.bias": (COUNT,),
        "mlp.experts.gate_up_proj": (COUNT, DIM, 2 * HIDDEN),
        "mlp.experts.gate_up_proj_bias": (COUNT, 2 * HIDDEN),
        "mlp.experts.down_proj": (COUNT, HIDDEN, DIM),
        "mlp.experts.down_proj_bias": (COUNT, DIM),
        "self_attn.sinks": (2,),
    } | {f"{name}.bias": (DIM,) for name in HEADS},
}  # fmt: skip


def checkpoint(family):
    """Arrays under the names of a released file, whose numbers follow from the names."""
    tables = {"model.embed_tokens.weight": (11, DIM), "lm_head.weight": (11, DIM)}
    shapes = tables | {"model.norm.weight": (DIM,)}
    for index in range(2):
        own = {f"{name}.weight": (DIM, DIM) for name in HEADS}
        own |= {f"{name}.weight": (DIM,) for name in NORMS}
        own |= gated("mlp", HIDDEN) if (family, index) == ("glm4_moe", 0) else PARTS[family]
        shapes |= {f"model.layers.{index}.{name}": shape for name, shape in own.items()}
    if family == "glm4_moe":  # a layer that predicts later tokens
        shapes["model.layers.2.eh_proj.weight"] = DIM, 2 * DIM
    return {
        name: draw(zlib.crc32(name.encode()), *shape).astype(np.float32)
        for name, shape in shapes.items()
    }


def decoder_of(column, config, arrays):
    convert = torch.tensor if column is torch_column else jnp.asarray
    weights = {name: convert(array) for name, array in arrays.items()}
    return column.Decoder.from_config(config, weights=weights)


def as_reference(module, activation):
    """A mixture of PyTorch's column as one of the reference's."""

    def array(tensor):
        return None if tensor is None else tensor.detach().double().numpy().T

    def network(part):
        linears = part.up, part.down, part.gate
        offsets = [array(linear.bias) for linear in linears]
        weights = [array(linear.weight) for linear in linears]
        return block.FeedForward(*weights, *offsets, activation, part.limit)

    return reference_experts.Experts(
        array(module.router.weight),
        [network(one) for one in module.experts],
        module.mixture,
        array(module.router.bias),
        array(module.correction),
        module.shared and network(module.shared),
        module.shared_gate and array(module.shared_gate.weight),
    )


def quick_gelu(x):
    return x / (1 + np.exp(-1.702 * x))


KIMI = {"model_type": "kimi_linear", "kv_lora_rank": 4, "num_experts": 6}
KIMI |= SIZES | {"num_experts_per_token": 2, "rms_norm_eps": 1e-5}
KIMI["linear_attn_config"] = {"full_attn_layers": [1], "kda_layers": [2], "head_dim": 4,
    "num_heads": 2, "short_conv_kernel_size": 4}  # fmt: skip
DEEP = QWEN2 | {"num_hidden_layers": 5}
MIXED = [  # keys of a configuration, and what its mixture then has
    (DEEP | {"decoder_sparse_step": 2}, "layers", {1, 3}),
    (DEEP | {"mlp_only_layers": [1, 4]}, "layers", {0, 2, 3}),
    (GLM | {"first_k_dense_replace": 0}, "layers", {0, 1}),
    (GLM | {"n_shared_experts": 2}, "shared_dim", 2 * HIDDEN),
    (QWEN2, "shared_dim", 5),
    (KIMI | {"num_expert_group": 3}, "groups", 3),
    (KIMI | {"moe_renormalize": False}, "normalized", False),
    (KIMI | {"num_experts_per_token": 4}, "chosen", 4),
]


@pytest.mark.parametrize(("config", "name", "want"), MIXED)
def test_a_mixture_is_what_the_keys_say(config, name, want):
    assert getattr(decoder(config).mixture, name) == want


CASES = {"qwen2_moe": (QWEN2, block.silu), "glm4_moe": (GLM, block.silu)}
CASES |= {"gpt_oss": (GPT_OSS, quick_gelu)}


@pytest.mark.parametrize(("config", "activation"), CASES.values(), ids=CASES)
def test_columns_mix_alike(config, activation):
    arrays, x = checkpoint(config["model_type"]), draw(5, 2, 7, DIM).astype(np.float32)
    ours, theirs = (decoder_of(c, config, arrays) for c in (torch_column, jax_column))
    mixed, twin = (decoder.blocks[1].feed_forward for decoder in (ours, theirs))
    want = as_reference(mixed, activation)(x)
    with torch.no_grad():
        assert error(mixed(torch.tensor(x)).numpy(), want) <= 2e-6
    assert error(np.asarray(twin(jnp.asarray(x))), want) <= 2e-6
    logits = jax_column.Decoder.from_config(config)(jnp.arange(5))  # drawn
    assert np.isfinite(logits).all()
    torch_column.Decoder.from_config(config)(torch.arange(5))


def test_rows_of_gates_alternate_with_others():
    arrays = checkpoint("gpt_oss")
    expert = decoder_of(torch_column, GPT_OSS, arrays).blocks[1].feed_forward.experts[4]
    rows = arrays["model.layers.1.mlp.experts.gate_up_proj"][4].T
    assert np.array_equal(expert.gate.weight.detach(), rows[::2])
    assert np.array_equal(expert.up.weight.detach(), rows[1::2])


def test_what_cannot_be_read_is_refused():
    arrays = checkpoint("gpt_oss")
    packed = arrays.pop("model.layers.1.mlp.experts.gate_up_proj")
    arrays["model.layers.1.mlp.experts.gate_up_proj_blocks"] = packed
    with pytest.raises(ValueError, match="weight; it is quantized: save the"):
        decoder_of(torch_column, GPT_OSS, arrays)
    with pytest.raises(ValueError, match="= 7 cannot be chosen from 2 of 3"):
        torch_column.Decoder.from_config(GLM | {"num_experts_per_tok": 7})


def test_shapes_are_told_without_memory():
    ours = torch_column.Decoder.from_config(GLM, device="meta")
    theirs = jax.eval_shape(lambda: jax_column.Decoder.from_config(GLM)(jnp.arange(5)))
    assert ours(torch.zeros(5, dtype=torch.int64, device="meta")).shape == theirs.shape
