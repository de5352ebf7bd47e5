"""Decoders made from a configuration and the weights of a model, without transformers."""

import json
import zlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from posattn import configs
from posattn import jax as jax_column
from posattn import torch as torch_column
from tests.conftest import draw

TWINS = {"torch": torch_column, "jax": jax_column}
on_twins = pytest.mark.parametrize("column", TWINS.values(), ids=TWINS)
SIZES = {
    "vocab_size": 11,
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 12,
    "tie_word_embeddings": False,
}
LLAMA = SIZES | {
    "model_type": "llama",
    "hidden_act": "silu",
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
}
GPT2 = {
    "model_type": "gpt2",
    "vocab_size": 11,
    "n_embd": 8,
    "n_layer": 2,
    "n_head": 2,
    "n_positions": 9,
    "activation_function": "gelu_new",
    "layer_norm_epsilon": 1e-5,
}
BLOOM = {
    "model_type": "bloom",
    "vocab_size": 11,
    "hidden_size": 8,
    "n_layer": 2,
    "n_head": 2,
    "layer_norm_epsilon": 1e-5,
}
GEMMA2 = SIZES | {
    "model_type": "gemma2",
    "num_key_value_heads": 1,
    "head_dim": 4,
    "hidden_activation": "gelu_pytorch_tanh",
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "query_pre_attn_scalar": 9,
    "sliding_window": 3,
    "attn_logit_softcapping": 5.0,
    "final_logit_softcapping": 2.0,
    "tie_word_embeddings": True,
}
NEOX = SIZES | {
    "model_type": "gpt_neox",
    "hidden_act": "gelu",
    "layer_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "rotary_pct": 0.5,
}
BEFORE = "input_layernorm post_attention_layernorm"
AROUND = f"{BEFORE} pre_feedforward_layernorm post_feedforward_layernorm"
SWIGLU = {(12, 8): "mlp.gate_proj mlp.up_proj", (8, 12): "mlp.down_proj"}
HEADS = "self_attn.q_proj self_attn.k_proj self_attn.v_proj self_attn.o_proj"
# what a checkpoint holds, as transformers names it: of the stack and of each layer, by shape
LLAMA_STACK = {(11, 8): "model.embed_tokens lm_head", (8,): "model.norm"}
HELD = {
    "llama": (LLAMA_STACK, "model.layers.", {(8, 8): HEADS, (8,): BEFORE} | SWIGLU),
    "phi3": (
        LLAMA_STACK,
        "model.layers.",
        {
            (24, 8): "self_attn.qkv_proj mlp.gate_up_proj",
            (8, 8): "self_attn.o_proj",
            (8, 12): "mlp.down_proj",
            (8,): BEFORE,
        },
    ),
    "gemma2": (
        {(11, 8): "model.embed_tokens", (8,): "model.norm"},
        "model.layers.",
        {
            (8, 8): "self_attn.q_proj self_attn.o_proj",
            (4, 8): "self_attn.k_proj self_attn.v_proj",
            (8,): AROUND,
        }
        | SWIGLU,
    ),
    "gpt2": (
        {
            (11, 8): "transformer.wte",
            (9, 8): "transformer.wpe",
            (8,): "transformer.ln_f",
        },
        "transformer.h.",
        {
            (8, 24): "attn.c_attn",
            (8, 8): "attn.c_proj",
            (8, 32): "mlp.c_fc",
            (32, 8): "mlp.c_proj",
            (8,): "ln_1 ln_2",
        },
    ),
    "gpt_neox": (
        {(11, 8): "gpt_neox.embed_in lm_head", (8,): "gpt_neox.final_layer_norm"},
        "gpt_neox.layers.",
        {
            (24, 8): "attention.query_key_value",
            (8, 8): "attention.dense",
            (12, 8): "mlp.dense_h_to_4h",
            (8, 12): "mlp.dense_4h_to_h",
            (8,): BEFORE,
        },
    ),
    "bloom": (
        {
            (11, 8): "transformer.word_embeddings",
            (8,): "transformer.word_embeddings_layernorm transformer.ln_f",
        },
        "transformer.h.",
        {
            (24, 8): "self_attention.query_key_value",
            (8, 8): "self_attention.dense",
            (32, 8): "mlp.dense_h_to_4h",
            (8, 32): "mlp.dense_4h_to_h",
            (8,): BEFORE,
        },
    ),
}


def arrays_of(kind):
    """A checkpoint, whose numbers follow from the names."""
    stack, prefix, layer = HELD[kind]
    named = {name: shape for shape, names in stack.items() for name in names.split()}
    for shape, names in layer.items():
        named |= {f"{prefix}{i}.{name}": shape for i in range(2) for name in names.split()}
    shapes = {f"{name}.weight": shape for name, shape in named.items()}
    if kind in ("gpt2", "gpt_neox", "bloom"):
        for name, shape in named.items():
            if shape[0] not in (9, 11):  # no table of tokens or positions
                shapes[f"{name}.bias"] = (shape[-1 if kind == "gpt2" else 0],)
    return {
        name: (draw(zlib.crc32(name.encode()), *shape) / 2).astype(np.float32)
        for name, shape in shapes.items()
    }


def given(column, arrays):
    convert = torch.tensor if column is torch_column else jnp.asarray
    return {name: convert(x) for name, x in arrays.items()}


def logits(column, decoder):
    tokens = np.array([[1, 2, 3, 4, 5]])
    if column is torch_column:
        return decoder(torch.tensor(tokens)).detach().numpy()
    return np.asarray(decoder(jnp.asarray(tokens)))


def loaded(column, config, arrays=None):
    arrays = arrays_of(config["model_type"]) if arrays is None else arrays
    return column.Decoder.from_config(config, weights=given(column, arrays))


# the last token's first four logits, as transformers 5.23 computes them in float64
KNOWN = {
    "Llama": (LLAMA, [-1.033941, -0.228444, -2.022961, -0.225524]),
    "Phi-3": (LLAMA | {"model_type": "phi3"}, [0.425192, 0.889199, -0.259529, 0.628520]),
    "Gemma 2": (GEMMA2, [1.484577, -1.574698, 1.332449, 0.319429]),
    "GPT-2": (GPT2, [1.759836, 1.493395, 1.301560, -0.779025]),
    "GPT-NeoX": (NEOX, [0.270980, 0.534417, -0.345310, 0.992222]),
    "GPT-NeoX, in sequence": (
        NEOX | {"use_parallel_residual": False},
        [0.041876, 0.719399, -0.437218, 0.853397],
    ),
    "BLOOM": (BLOOM, [-0.067405, -0.370136, 0.630077, -0.863506]),
}


@on_twins
@pytest.mark.parametrize(("config", "want"), KNOWN.values(), ids=KNOWN)
def test_a_checkpoint_gives_the_logits_of_transformers(column, config, want):
    got = logits(column, loaded(column, config))[0, -1, :4]
    assert np.allclose(got, want, rtol=0, atol=2e-5)


HYBRID = SIZES | {"model_type": "olmo_hybrid", "hidden_act": "silu", "rms_norm_eps": 1e-6}
HYBRID |= {"num_hidden_layers": 4, "linear_num_key_heads": 1, "linear_num_value_heads": 2}
HYBRID |= {"linear_key_head_dim": 3, "linear_value_head_dim": 4, "rope_theta": 10000.0}
LATENT = SIZES | {"model_type": "kimi_k2", "hidden_act": "silu", "rms_norm_eps": 1e-6}
LATENT |= {
    "q_lora_rank": 5,
    "kv_lora_rank": 6,
    "qk_nope_head_dim": 4,
    "qk_rope_head_dim": 2,
}
LATENT |= {"v_head_dim": 3, "rope_theta": 10000.0, "n_routed_experts": 4, "n_group": 2}
LATENT |= {"num_experts_per_tok": 2, "moe_intermediate_size": 5, "first_k_dense_replace": 1}
LATENT |= {"topk_group": 1, "num_key_value_heads": 2}
GEMMA4 = SIZES | {"model_type": "gemma4_text", "num_hidden_layers": 4, "head_dim": 4}
GEMMA4 |= {"global_head_dim": 8, "num_key_value_heads": 1, "rms_norm_eps": 0.01}
GEMMA4 |= {"layer_types": ["sliding_attention", "full_attention"] * 2}
GEMMA4 |= {"num_kv_shared_layers": 2, "sliding_window": 3}
GEMMA4 |= {"enable_moe_block": True, "num_experts": 4, "top_k_experts": 2}
GEMMA4 |= {"hidden_size_per_layer_input": 2, "vocab_size_per_layer_input": 11}
GEMMA4["moe_intermediate_size"] = 5
OTHERS = {"a state": HYBRID, "latent vectors": LATENT, "keys of others": GEMMA4}


def called(decoder, tokens, **named):
    if isinstance(decoder, torch.nn.Module):
        named = {name: torch.tensor(x) for name, x in named.items()}
        return decoder(torch.tensor(tokens), **named).detach().numpy()
    return np.asarray(decoder(tokens, **named))


@pytest.mark.parametrize("config", OTHERS.values(), ids=OTHERS)
@on_twins
def test_layers_of_other_kinds_pack_pad_and_step(column, config):
    decoder = column.Decoder.from_config(config)
    tokens = np.arange(12).reshape(2, 6) % 11
    whole = called(decoder, tokens)
    documents = np.array([0, 0, 0, 1, 1, 1])
    packed = called(decoder, tokens, documents=documents)
    alone = [called(decoder, part) for part in np.split(tokens, 2, axis=1)]
    assert np.allclose(packed, np.concatenate(alone, 1), rtol=0, atol=1e-5)
    assert not np.allclose(packed, whole, rtol=0, atol=1e-4)
    padded = called(decoder, tokens[:1], positions=np.arange(-2, 4))[:, 2:]
    assert np.allclose(padded, called(decoder, tokens[:1, 2:]), rtol=0, atol=1e-5)
    own = torch.tensor if column is torch_column else jnp.asarray
    cache, parts = decoder.init_cache((2,), 6), []
    padding = {"positions": own(np.full(2, -1))}
    for part in np.split(tokens, [0, 3, 4], axis=1):
        found, cache = decoder(own(part), cache=cache)
        _, cache = decoder(own(tokens[:, :2]), cache=cache, **padding)
        parts.append(np.asarray(found.detach() if column is torch_column else found))
    assert np.allclose(np.concatenate(parts, 1), whole, rtol=0, atol=1e-5)
    shown = [x is not None for x in decoder.attention_weights(own(tokens))]
    assert shown == [config is not HYBRID] * (len(shown) - 1) + [True]
    assert sum(x is None for x in cache) == 2 * (config is GEMMA4)
    assert decoder.generate(own(tokens), 2).shape == (2, 8)
    with pytest.raises(ValueError, match="documents must be None beside a cache"):
        decoder(own(tokens), documents=own(documents), cache=cache)
    if config is HYBRID:
        with pytest.raises(ValueError, match="mask must be None where layers keep a state"):
            decoder(own(tokens), mask=own(np.ones((6, 6), bool)))


@on_twins
def test_without_weights_they_are_drawn(column):
    rng = torch.Generator().manual_seed(0) if column is torch_column else jax.random.key(0)
    decoder = column.Decoder.from_config(GPT2, rng=rng)
    assert np.isfinite(logits(column, decoder)).all()
    assert logits(column, column.Decoder.from_config(GPT2)).shape == (1, 5, 11)


@on_twins
def test_weights_are_read_from_a_folder(column, tmp_path):
    numpy = pytest.importorskip("safetensors.numpy")
    numpy.save_file(arrays_of("llama"), tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    decoder = column.Decoder.from_config(tmp_path, weights=tmp_path)
    assert np.array_equal(logits(column, decoder), logits(column, loaded(column, LLAMA)))


@on_twins
def test_dtype_is_that_asked_for(column):
    dtype = torch.bfloat16 if column is torch_column else jnp.bfloat16
    weights = given(column, arrays_of("gemma2"))
    decoder = column.Decoder.from_config(GEMMA2, weights=weights, dtype=dtype)
    leaves = decoder.parameters() if column is torch_column else jax.tree.leaves(decoder)
    assert {str(x.dtype).rpartition(".")[2] for x in leaves} == {"bfloat16"}
    assert decoder.embedding_scale == 2.828125  # the root of 8, as bfloat16 has it


def test_what_is_outside_of_the_decoder_is_left():
    """A tied head that is there once more, and what sees pictures."""
    arrays = arrays_of("gpt2")
    arrays["lm_head.weight"] = arrays["transformer.wte.weight"]
    loaded(torch_column, GPT2, arrays)
    loaded(torch_column, LLAMA, arrays_of("llama") | {"vision.weight": np.zeros(3)})


PREFIX = "model.layers.1."
CHANGES = [
    ("model.embed_tokens.weight", None, "weights lack 'model.language_model.embed_tokens"),
    ("lm_head.weight", None, "weights lack 'lm_head.weight', the decoder's head.weight"),
    (f"{PREFIX}mlp.up_proj.weight", None, "the decoder's blocks.1.feed_forward.up.weight"),
    (f"{PREFIX}self_attn.k_proj.weight", None, "k_proj.weight', the layer's key"),
    (f"{PREFIX}mlp.up_proj.bias", (12,), "up_proj.bias', which a decoder of 'llama' with"),
    ("model.layers.2.input_layernorm.weight", (8,), "weights have 'model.layers.2.input"),
    (f"{PREFIX}self_attn.q_proj.bias", (8,), "q_proj.bias', which a layer of 'llama'"),
    ("model.norm.weight", (7,), r"must give an array of shape \(8,\), got \(7,\)"),
]


@pytest.mark.parametrize(("name", "shape", "text"), CHANGES)
def test_missing_and_left_over_weights_are_named(name, shape, text):
    arrays = arrays_of("llama")
    arrays.pop(name, None)
    if shape is not None:
        arrays[name] = np.zeros(shape, np.float32)
    for column in TWINS.values():
        with pytest.raises(ValueError, match=text):
            loaded(column, LLAMA, arrays)


GEMMA3 = GEMMA2 | {"model_type": "gemma3_text", "rope_local_base_freq": 10.0}
GEMMA3 |= {"attn_logit_softcapping": None, "use_bidirectional_attention": True}
WRONG = [
    (LLAMA | {"model_type": "nemotron"}, "Decoder, got 'nemotron'; for its attention see"),
    (LLAMA | {"hidden_act": "mish"}, "llama: hidden_act must be one of 'silu'"),
    (LLAMA | {"rms_norm_eps": None}, "llama: rms_norm_eps is null"),
    (LLAMA | {"intermediate_size": 2.5}, "llama: intermediate_size must be a whole number"),
    (LLAMA | {"mlp_bias": 1}, "llama: mlp_bias must be true or false"),
    (LLAMA | {"head_dims": 4}, "llama: head_dims = 4 is no key"),
    (BLOOM | {"apply_residual_connection_post_layernorm": True}, "is known only as False"),
    (GEMMA4 | {"vocab_size_per_layer_input": 12}, "is known only as 11 or None, got 12"),
    (GEMMA4 | {"use_double_wide_mlp": True}, "is known only as False or None, got True"),
    (GEMMA3, "gemma3_text: a Decoder hides the future, and this configuration doesn't"),
    (configs.plan(LLAMA), "config must be a path, a dictionary or a configuration"),
]


@pytest.mark.parametrize(("config", "text"), WRONG)
def test_configurations_that_are_not_clear_are_refused(config, text):
    with pytest.raises((TypeError, ValueError), match=text):
        torch_column.Decoder.from_config(config)
