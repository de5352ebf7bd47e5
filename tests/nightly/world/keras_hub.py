"""KerasHub, small models of random weights on JAX."""

import json
import os
import tempfile

os.environ["KERAS_BACKEND"] = "jax"
import keras
import keras_hub as hub
import numpy as np
from safetensors.numpy import save_file

INSTALL = [
    "numpy==2.4.6 torch==2.13.0 jax==0.10.2 tensorflow-cpu==2.21.0 keras==3.15.1",
    "safetensors==0.8.0",
    "keras-hub==0.32.0",
]
SIZES = {
    "vocabulary_size": 64, "num_layers": 1, "num_query_heads": 4, "num_key_value_heads": 4,
    "hidden_dim": 64, "intermediate_dim": 64,
}  # fmt: skip
TEXT = np.random.default_rng(0).integers(3, 64, (1, 12))


def _backbone(kind, **options):
    """A model of large random weights, whose attention is sharp."""
    keras.utils.set_random_seed(0)
    model = getattr(hub.models, f"{kind}Backbone")(**SIZES | options)
    for weight in model.weights:
        if weight.ndim > 1:
            weight.assign(8 * weight)
    return model


def _states(model, text=TEXT):
    return np.array(model({"token_ids": text, "padding_mask": np.ones_like(text)}))


def _reached(model):
    """How many tokens notice another first token."""
    other = TEXT.copy()
    other[0, 0] = 3 + TEXT[0, 0] % 61
    return int((abs(_states(model) - _states(model, other))[0].max(-1) > 1e-4).sum())


def _preset(kind, **rope):
    """What `from_preset` makes of a folder in the format of transformers."""
    rng, folder = np.random.default_rng(0), tempfile.mkdtemp()
    config = {
        "model_type": kind, "vocab_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4,
        "num_key_value_heads": 4, "hidden_size": 64, "intermediate_size": 64, "head_dim": 16,
        "rms_norm_eps": 1e-6, "max_position_embeddings": 512, "tie_word_embeddings": False,
        "rope_theta": 1e4, "sliding_window": None, "use_sliding_window": False,
    } | rope  # fmt: skip
    with open(f"{folder}/config.json", "w", encoding="utf-8") as file:
        json.dump(config, file)
    layer = "model.layers.0."
    shapes = {f"{layer}self_attn.{name}_proj": (64, 64) for name in "qkvo"}
    shapes |= {f"{layer}mlp.{name}_proj": (64, 64) for name in ("gate", "up", "down")}
    shapes |= {f"{layer}{name}_layernorm": (64,) for name in ("input", "post_attention")}
    shapes |= {"model.norm": (64,), "model.embed_tokens": (64, 64), "lm_head": (64, 64)}
    if kind == "qwen3":
        shapes |= {f"{layer}self_attn.{name}_norm": (16,) for name in "qk"}
    weights = {
        f"{k}.weight": rng.normal(size=v).astype("f4") / 4 for k, v in shapes.items()
    }
    save_file(weights, f"{folder}/model.safetensors", {"format": "pt"})
    return hub.models.Backbone.from_preset(folder, dtype="float32")


def scaling_factor():
    """`LlamaBackbone` and `Llama3Backbone` take `rope_position_scaling_factor` and do not scale."""
    for kind, name in (
        ("Llama", "rope_position_scaling_factor"),
        ("Llama3", "rope_position_scaling_factor"),
        ("Mistral", "rope_scaling_factor"),
    ):
        one, four = (_states(_backbone(kind, **{name: factor})) for factor in (1.0, 4.0))
        print(f"{kind}: factor 4 changes hidden states by {abs(one - four).max():.2f}")


def scaling_of_files():
    """`from_preset` reads Llama 3's scaling under the key of old files only, and Qwen 3's YaRN nowhere."""
    llama = {"rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    yarn = {"rope_type": "yarn"}
    for kind, rope in (("llama", llama), ("qwen3", yarn)):
        rope |= {"factor": 8.0, "original_max_position_embeddings": 64}
        plain = _states(_preset(kind))
        for name, told in (
            ("in rope_scaling", {"rope_scaling": rope}),
            ("in rope_parameters", {"rope_parameters": rope | {"rope_theta": 1e4}}),
        ):
            off = abs(_states(_preset(kind, **told)) - plain).max()
            print(f"{kind}, {rope['rope_type']} {name}: hidden states change by {off:.2f}")
        off = abs(_states(_preset(kind, rope_theta=1e3)) - plain).max()
        print(f"{kind}, another rope_theta: {off:.2f}")


def dynamic():
    """`RotaryEmbedding(rope_type="dynamic")` slows every pair; dynamic NTK keeps the fastest."""
    plain, scaled = (
        np.array(hub.layers.RotaryEmbedding(**options)._get_inverse_freq(8))
        for options in ({}, {"rope_type": "dynamic", "scaling_factor": 4.0})
    )
    print("frequencies divided by", *(plain / scaled).round(2))


def gpt_oss_windows():
    """The window of gpt-oss is missing in layer 0, and in every other layer that should have one."""
    experts = {"num_experts": 2, "top_k": 1, "head_dim": 16}
    model = _backbone("GptOss", **experts, sliding_window=4)
    print(f"layer 0, window of 4: {_reached(model)} of 12 tokens reached")


def qwen_window():
    """On JAX the window of `Qwen3Backbone` is ignored, and that of `MistralBackbone` is not."""
    for kind, options in (
        ("Mistral", {"sliding_window": 4}),
        ("Qwen3", {"sliding_window_size": 4, "head_dim": 16}),
    ):
        print(
            f"{kind}, window of 4: {_reached(_backbone(kind, **options))} of 12 tokens reached"
        )


def mistral_weights():
    """`from_preset` rounds all weights of Mistral to float16, also with `dtype="float32"`."""
    for kind in ("llama", "mistral"):
        weights = np.array(_preset(kind).token_embedding.embeddings)
        off = abs(weights - weights.astype("float16")).max()
        print(f"{kind}: {weights.dtype}, differs from float16 by at most {off:.1e}")
