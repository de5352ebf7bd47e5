"""The lines of the chapter "Use it in a model" beside the libraries that they name.

`nox -s oracles` runs this with the pinned versions.
"""

import re
from pathlib import Path

import equinox
import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint
import pytest
import torch
from flax import nnx
from transformers import LlamaConfig, LlamaForCausalLM

import posattn.jax
import posattn.torch

PAGE = Path(__file__).parents[2] / "docs" / "model.md"
LINES = re.findall(
    r"^```\{code-block\} python\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE
)
X = jnp.asarray(np.random.default_rng(0).normal(size=(2, 5, 64)), jnp.float32)
TARGET = jnp.flip(X, axis=1)


def lines(word, **names):
    """Run the lines of the page that name a library, and return what they define."""
    (found,) = [block for block in LINES if word in block]
    exec(compile(found, PAGE.name, "exec"), names)  # the page's own lines
    return names


def in_jax(path, layer):
    names = {
        "MultiHeadAttention": posattn.jax.MultiHeadAttention,
        "Rotary": posattn.jax.Rotary,
    }
    names |= {
        "orbax": orbax,
        "equinox": equinox,
        "nnx": nnx,
        "jax": jax,
        "path": path,
        "layer": layer,
    }
    return lines("orbax", **names, __name__="page")


@pytest.fixture
def layer():
    return posattn.jax.MultiHeadAttention.init(
        jax.random.key(1), 64, 8, num_kv_heads=2, rotate=posattn.jax.Rotary()
    )


def test_a_llama_is_loaded_by_its_lines():
    config = LlamaConfig(
        vocab_size=7, hidden_size=32, intermediate_size=8, num_hidden_layers=1,
        num_attention_heads=4, num_key_value_heads=2,
        rope_parameters={"rope_type": "default", "rope_theta": 500000.0},
    )  # fmt: skip
    theirs = LlamaForCausalLM(config).eval().model
    ours = lines(
        "hidden_size",
        theirs=theirs.layers[0].self_attn,
        c=config,
        MultiHeadAttention=posattn.torch.MultiHeadAttention,
        Rotary=posattn.torch.Rotary,
    )["layer"]
    x = torch.randn(2, 5, 32)
    angles = theirs.rotary_emb(x, torch.arange(5)[None])
    hidden = torch.full((5, 5), -torch.inf).triu(1)[None, None]
    with torch.no_grad():
        want, _ = theirs.layers[0].self_attn(x, angles, hidden)
        assert (ours(x, causal=True) - want).abs().max() < 1e-6


def test_orbax_brings_back_the_layer(unchecked, tmp_path, layer):
    restored = in_jax(tmp_path / "layer", layer)["layer"]
    assert jax.tree.structure(restored) == jax.tree.structure(layer)
    assert (restored(X) == layer(X)).all()


def test_equinox_trains_a_layer_that_is_a_field(unchecked, tmp_path, layer):
    block = in_jax(tmp_path / "layer", layer)["EquinoxBlock"](layer)

    @equinox.filter_value_and_grad
    def loss(block):
        return ((block.attention(X) - TARGET) ** 2).mean()

    optimizer = optax.adam(1e-2)
    state = optimizer.init(equinox.filter(block, equinox.is_inexact_array))
    losses = []
    for _ in range(20):
        value, slopes = loss(block)
        updates, state = optimizer.update(slopes, state)
        block = equinox.apply_updates(block, updates)
        losses.append(float(value))
    assert losses[-1] < 0.7 * losses[0]
    assert not np.allclose(block.attention.query_weight, layer.query_weight)


def trained(block):
    """The losses of some steps over all that Flax takes for a parameter."""
    optimizer = nnx.Optimizer(block, optax.adam(1e-2), wrt=nnx.Param)

    @nnx.jit
    def step(block, optimizer):
        value, slopes = nnx.value_and_grad(lambda b: ((b(X) - TARGET) ** 2).mean())(block)
        optimizer.update(block, slopes)
        return value

    return [float(step(block, optimizer)) for _ in range(20)]


def test_flax_trains_a_layer_that_is_a_parameter(unchecked, tmp_path, layer):
    block = in_jax(tmp_path / "layer", layer)["FlaxBlock"](nnx.Rngs(0))
    before = nnx.as_pure(block.attention)
    losses = trained(block)
    after = nnx.as_pure(block.attention)
    assert losses[-1] < 0.7 * losses[0]
    for name in ("query_weight", "key_weight", "value_weight", "output_weight"):
        assert not np.allclose(getattr(before, name), getattr(after, name))


def test_flax_does_not_see_a_layer_that_is_data(unchecked, layer):
    """The mistake of the page: the rest is trained, and the layer is not."""

    class Block(nnx.Module):
        def __init__(self):
            self.attention, self.gain = nnx.data(layer), nnx.Param(jnp.ones(64))

        def __call__(self, x):
            return self.gain * x + self.attention(x, causal=True)

    block = Block()
    losses = trained(block)
    assert losses[-1] < losses[0]
    assert (block.attention.query_weight == layer.query_weight).all()
