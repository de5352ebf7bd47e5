"""Decoders made from a configuration and the weights of a model, without transformers."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from posattn import configs, reference
from posattn import jax as jax_column
from posattn import torch as torch_column
from posattn.configs import decoders
from tests.conftest import draw

TWINS = {"torch": torch_column, "jax": jax_column}
on_twins = pytest.mark.parametrize("column", TWINS.values(), ids=TWINS)
SIZES = {
    "vocab_size": 11,
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "tie_word_embeddings": False,
}
LLAMA = SIZES | {
    "model_type": "llama",
    "intermediate_size": 12,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
}
GPT2 = {
    "model_type": "gpt2",
    "vocab_size": 11,
    "n_embd": 8,
    "n_layer": 1,
    "n_head": 2,
    "n_positions": 9,
    "activation_function": "gelu",
    "layer_norm_epsilon": 1e-5,
}
BLOOM = {
    "model_type": "bloom",
    "vocab_size": 11,
    "hidden_size": 8,
    "n_layer": 1,
    "n_head": 2,
    "layer_norm_epsilon": 1e-5,
}
GEMMA2 = SIZES | {
    "model_type": "gemma2",
    "num_key_value_heads": 1,
    "head_dim": 4,
    "intermediate_size": 12,
    "hidden_activation": "gelu_pytorch_tanh",
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "query_pre_attn_scalar": 4,
    "sliding_window": 3,
    "attn_logit_softcapping": 5.0,
    "final_logit_softcapping": 2.0,
    "tie_word_embeddings": True,
}
PHI3 = LLAMA | {"model_type": "phi3"}
NEOX = SIZES | {
    "model_type": "gpt_neox",
    "intermediate_size": 12,
    "hidden_act": "gelu",
    "layer_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "rotary_pct": 0.5,
}
ATTENTION = {
    "llama": {f"self_attn.{x}_proj.weight": (8, 8) for x in "qkvo"},
    "phi3": {"self_attn.qkv_proj.weight": (24, 8), "self_attn.o_proj.weight": (8, 8)},
    "gemma2": {
        "self_attn.q_proj.weight": (8, 8),
        "self_attn.k_proj.weight": (4, 8),
        "self_attn.v_proj.weight": (4, 8),
        "self_attn.o_proj.weight": (8, 8),
    },
    "gpt2": {
        "attn.c_attn.weight": (8, 24),
        "attn.c_attn.bias": (24,),
        "attn.c_proj.weight": (8, 8),
        "attn.c_proj.bias": (8,),
    },
    **dict.fromkeys(("gpt_neox", "bloom"), None),
}
FUSED = {
    "query_key_value.weight": (24, 8),
    "query_key_value.bias": (24,),
    "dense.weight": (8, 8),
    "dense.bias": (8,),
}
ROOTS = {"gpt2": "transformer.", "bloom": "transformer.", "gpt_neox": "gpt_neox."}
NAMED = {
    "Llama": LLAMA,
    "GPT-2": GPT2,
    "BLOOM": BLOOM,
    "Gemma 2": GEMMA2,
    "Phi-3": PHI3,
    "GPT-NeoX": NEOX,
}


def arrays_of(config):
    """What a checkpoint of this configuration holds, as NumPy arrays by transformers' names."""
    model = decoders.decoder(config)
    kind = model.plan.model_type
    root, shapes = ROOTS.get(kind, "model."), {}
    own = ATTENTION[kind]
    if own is None:
        module = "attention." if kind == "gpt_neox" else "self_attention."
        own = {module + name: shape for name, shape in FUSED.items()}
    for index in range(len(model.plan.layers)):
        prefix = root + model.family.layers.format(index)
        shapes |= {prefix + name: shape for name, shape in own.items()}
        for part, name in model.family.layer.items():
            wide = isinstance(name, tuple) + 1
            name = name if isinstance(name, str) else name[0]
            shapes |= around(model, part, prefix + name, wide)
    for part, name in model.family.top.items():
        shapes |= around(model, part, root + name)
    if not model.tied:
        shapes["lm_head.weight"] = (11, 8)
    return {
        name: (draw(i, *shape) / 8).astype(np.float32)
        for i, (name, shape) in enumerate(shapes.items())
    }


def around(model, part, name, wide=1):
    hidden = wide * model.hidden_dim
    shape = {
        "embedding": (11, 8),
        "encoding": (9, 8),
        "feed_forward.up": (hidden, 8),
        "feed_forward.gate": (hidden, 8),
        "feed_forward.down": (8, hidden),
    }.get(part, (8,))
    biased = model.use_bias if "feed" in part and "norm" not in part else "norm" in part
    biased = biased and (model.family.norm == "layer" or "norm" not in part)
    rotated = model.plan.model_type == "gpt2" and len(shape) == 2 and "feed" in part
    found = {f"{name}.weight": shape[::-1] if rotated else shape}
    return found | ({f"{name}.bias": (shape[0],)} if biased else {})


def given(column, arrays):
    convert = torch.tensor if column is torch_column else jnp.asarray
    return {name: convert(x) for name, x in arrays.items()}


def logits(column, decoder):
    tokens = np.array([[1, 2, 3, 4, 5]])
    if column is torch_column:
        return decoder(torch.tensor(tokens)).detach().numpy()
    return np.asarray(decoder(jnp.asarray(tokens)))


@pytest.mark.parametrize("config", NAMED.values(), ids=NAMED)
def test_both_frameworks_make_the_same_of_a_checkpoint(config):
    arrays = arrays_of(config)
    one, two = (
        logits(column, column.Decoder.from_config(config, weights=given(column, arrays)))
        for column in TWINS.values()
    )
    assert np.abs(one - two).max() <= 2e-6 * np.abs(one).max()
    assert np.abs(one).max() > 0.01


@on_twins
def test_a_llama_is_what_its_weights_say(column):
    """Number by number, with the reference's layer."""
    arrays = arrays_of(LLAMA)
    x = arrays["model.embed_tokens.weight"][[1, 2, 3, 4, 5]][None].astype(np.float64)

    def normed(x, name):
        return arrays[f"{name}.weight"] * x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5)

    for index in range(2):
        own = f"model.layers.{index}."
        attention = reference.MultiHeadAttention(
            *(arrays[f"{own}self_attn.{r}_proj.weight"].T for r in "qkvo"),
            num_heads=2,
            rotate=reference.rope_from_config(LLAMA),
        )
        x = x + attention(normed(x, f"{own}input_layernorm"), causal=True)
        read = normed(x, f"{own}post_attention_layernorm")
        up, gate, down = (
            arrays[f"{own}mlp.{r}_proj.weight"].T for r in ("up", "gate", "down")
        )
        x = x + ((read @ up) * (read @ gate) / (1 + np.exp(-read @ gate))) @ down
    want = normed(x, "model.norm") @ arrays["lm_head.weight"].T
    decoder = column.Decoder.from_config(LLAMA, weights=given(column, arrays))
    assert np.abs(logits(column, decoder) - want).max() <= 2e-6 * np.abs(want).max()


@on_twins
@pytest.mark.parametrize("config", NAMED.values(), ids=NAMED)
def test_without_weights_they_are_drawn(column, config):
    rng = torch.Generator().manual_seed(0) if column is torch_column else jax.random.key(0)
    decoder = column.Decoder.from_config(config, rng=rng)
    assert np.isfinite(logits(column, decoder)).all()
    again = column.Decoder.from_config(config)
    assert logits(column, again).shape == (1, 5, 11)


@on_twins
def test_weights_are_read_from_a_folder(column, tmp_path):
    numpy = pytest.importorskip("safetensors.numpy")
    arrays = arrays_of(LLAMA)
    numpy.save_file(arrays, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    decoder = column.Decoder.from_config(tmp_path, weights=tmp_path)
    want = column.Decoder.from_config(LLAMA, weights=given(column, arrays))
    assert np.array_equal(logits(column, decoder), logits(column, want))


@on_twins
def test_dtype_is_that_asked_for(column):
    dtype = torch.bfloat16 if column is torch_column else jnp.bfloat16
    weights = given(column, arrays_of(GEMMA2))
    decoder = column.Decoder.from_config(GEMMA2, weights=weights, dtype=dtype)
    leaves = decoder.parameters() if column is torch_column else jax.tree.leaves(decoder)
    assert {str(x.dtype).rpartition(".")[2] for x in leaves} == {"bfloat16"}
    assert decoder.embedding_scale == 2.828125  # the root of 8, as bfloat16 has it


@on_twins
@pytest.mark.parametrize("name", ["lm_head.weight", "embed_out.weight"])
def test_a_head_has_one_of_two_names(column, name):
    arrays = arrays_of(NEOX)
    want = logits(column, column.Decoder.from_config(NEOX, weights=given(column, arrays)))
    arrays[name] = arrays.pop("lm_head.weight")
    got = logits(column, column.Decoder.from_config(NEOX, weights=given(column, arrays)))
    assert np.array_equal(got, want)


@on_twins
def test_a_tied_head_may_be_there_once_more(column):
    arrays = arrays_of(GPT2)
    arrays["lm_head.weight"] = arrays["transformer.wte.weight"]
    column.Decoder.from_config(GPT2, weights=given(column, arrays))


WITHOUT_ROOT = "weights lack 'model.language_model.embed_tokens.weight' or "
CHANGES = [
    ({"model.embed_tokens.weight": None}, WITHOUT_ROOT),
    (
        {"model.norm.weight": None},
        "weights lack 'model.norm.weight', the decoder's norm.weight",
    ),
    ({"lm_head.weight": None}, "weights lack 'lm_head.weight', the decoder's head.weight"),
    (
        {"model.layers.1.mlp.up_proj.weight": None},
        "weights lack 'model.layers.1.mlp.up_proj.weight', the decoder's "
        "blocks.1.feed_forward.up.weight",
    ),
    (
        {"model.layers.1.self_attn.k_proj.weight": None},
        "weights lack 'model.layers.1.self_attn.k_proj.weight', the layer's key",
    ),
    (
        {"model.layers.0.mlp.up_proj.bias": (12,)},
        "weights have 'model.layers.0.mlp.up_proj.bias', which a decoder of 'llama' with this",
    ),
    (
        {"model.layers.2.input_layernorm.weight": (8,)},
        "weights have 'model.layers.2.input_layernorm.weight', which a decoder of 'llama'",
    ),
    (
        {"model.layers.0.self_attn.q_proj.bias": (8,)},
        "weights have 'model.layers.0.self_attn.q_proj.bias', which a layer of 'llama'",
    ),
    (
        {"model.norm.weight": (7,)},
        r"'model.norm.weight' must give an array of shape \(8,\), got \(7,\)",
    ),
    (
        {"model.embed_tokens.weight": (12, 8)},
        r"'model.embed_tokens.weight' must give an array of shape \(11, 8\), got \(12, 8\)",
    ),
]


@on_twins
@pytest.mark.parametrize(("changes", "text"), CHANGES)
def test_missing_and_left_over_weights_are_named(column, changes, text):
    arrays = arrays_of(LLAMA)
    for name, shape in changes.items():
        if shape is None:
            del arrays[name]
        else:
            arrays[name] = np.zeros(shape, np.float32)
    with pytest.raises(ValueError, match=text):
        column.Decoder.from_config(LLAMA, weights=given(column, arrays))


@on_twins
def test_what_is_outside_of_the_text_model_is_left_alone(column):
    arrays = arrays_of(LLAMA) | {"vision_tower.weight": np.zeros(3, np.float32)}
    column.Decoder.from_config(LLAMA, weights=given(column, arrays))


WRONG = [
    (LLAMA | {"model_type": "gpt_oss"}, ValueError, "must be one of bloom, .* for a Decoder, got 'gpt_oss'"),
    (LLAMA | {"model_type": "lama"}, ValueError, "did you mean llama?"),
    (LLAMA | {"hidden_act": "mish"}, ValueError, "llama: hidden_act must be one of 'silu'"),
    (LLAMA | {"rms_norm_eps": None}, ValueError, "llama: rms_norm_eps is null"),
    (LLAMA | {"intermediate_size": 2.5}, TypeError, "llama: intermediate_size must be a whole number"),
    (
        {n: x for n, x in LLAMA.items() if n != "tie_word_embeddings"} | {"tie_word_embedding": True},
        ValueError,
        "tie_word_embedding = True is no key that .*; did you mean tie_word_embeddings",
    ),
    (LLAMA | {"mlp_bias": 1}, TypeError, "llama: mlp_bias must be true or false"),
    (LLAMA | {"head_dims": 4}, ValueError, "llama: head_dims = 4 is no key"),
    (
        BLOOM | {"apply_residual_connection_post_layernorm": True},
        ValueError,
        "bloom: apply_residual_connection_post_layernorm is known only as False",
    ),
    (
        GEMMA2 | {"model_type": "gemma3_text", "attn_logit_softcapping": None,
                  "rope_local_base_freq": 10.0, "use_bidirectional_attention": True},
        ValueError,
        "gemma3_text: a Decoder hides the future, and this configuration doesn't",
    ),
    (configs.plan(LLAMA), TypeError, "config must be a path, a dictionary or a configuration"),
]  # fmt: skip


@on_twins
@pytest.mark.parametrize(("config", "kind", "text"), WRONG)
def test_configurations_that_are_not_clear_are_refused(column, config, kind, text):
    with pytest.raises(kind, match=text):
        column.Decoder.from_config(config)


@pytest.mark.usefixtures("unchecked")
@on_twins
def test_what_nothing_can_be_drawn_from_is_refused(column):
    with pytest.raises(
        TypeError, match=r"rng must be a (torch\.Generator|JAX key), got str"
    ):
        column.Decoder.from_config(LLAMA, rng="seed")


def test_everything_that_a_family_names_is_a_part_of_the_decoder():
    assert set(decoders.DECODERS) <= set(configs.families.FAMILIES)
    for family in decoders.DECODERS.values():
        parts = {*decoders.NORMS, *(f"feed_forward.{x}" for x in ("up", "gate", "down"))}
        assert set(family.layer) <= parts
        assert set(family.top) <= {"embedding", "encoding", "embedding_norm", "norm"}
