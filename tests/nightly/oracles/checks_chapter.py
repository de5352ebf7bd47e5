"""Lines of the book that no page runs, beside the libraries that they name.

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
from flax import nnx

import posattn.jax
from posattn.conformance import check
from posattn.conformance.adapters import rotation_by_tables

PAGE = Path(__file__).parents[3] / "docs" / "build" / "model.md"
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


def in_jax(word, **names):
    names |= {
        "MultiHeadAttention": posattn.jax.MultiHeadAttention,
        "Rotary": posattn.jax.Rotary,
        "orbax": orbax,
        "equinox": equinox,
        "nnx": nnx,
        "jax": jax,
    }
    return lines(word, **names, __name__="page")


@pytest.fixture
def layer():
    return posattn.jax.MultiHeadAttention.init(
        jax.random.key(1), 64, 8, num_kv_heads=2, rotate=posattn.jax.Rotary()
    )


def test_the_adapter_of_the_page_for_llama():
    """It passes, except for the case that shows its angles in float32."""
    page = (PAGE.parents[1] / "fix" / "conformance.md").read_text()
    code, _ = re.findall(
        r"^```\{code-block\} python\n(.*?)^```", page, re.DOTALL | re.MULTILINE
    )  # checks_adapters.py runs the other
    names = {"rotation_by_tables": rotation_by_tables}
    exec(compile(code, "conformance.md", "exec"), names)
    options = {"settings": {"layout": "half"}, "framework": "torch"}
    assert not check(names["llama"], "rotary", **options).failures
    report = check(names["llama"], "rotary", **options, tolerance="exact")
    (failed,) = report.failures
    assert failed.case["name"] == "layout half, large positions, up to 2**20"
    assert "in float32" in report.causes[0].sentence


def test_orbax_brings_back_the_layer(unchecked, tmp_path, layer):
    restored = in_jax("orbax", path=tmp_path / "layer", layer=layer)["layer"]
    assert jax.tree.structure(restored) == jax.tree.structure(layer)
    assert (restored(X) == layer(X)).all()


def test_equinox_trains_a_layer_that_is_a_field(unchecked, layer):
    block = in_jax("equinox")["EquinoxBlock"](layer)

    @equinox.filter_value_and_grad
    def loss(block):
        return ((block.attention(X) - TARGET) ** 2).mean()

    optimizer = optax.adam(1e-2)
    state = optimizer.init(equinox.filter(block, equinox.is_inexact_array))
    losses = []
    for _ in range(4):
        value, slopes = loss(block)
        updates, state = optimizer.update(slopes, state)
        block = equinox.apply_updates(block, updates)
        losses.append(float(value))
    assert losses[-1] < losses[0]
    assert not np.allclose(block.attention.query_weight, layer.query_weight)


def trained(block):
    """The losses of some steps over all that Flax takes for a parameter."""
    optimizer = nnx.Optimizer(block, optax.adam(1e-2), wrt=nnx.Param)

    @nnx.jit
    def step(block, optimizer):
        value, slopes = nnx.value_and_grad(lambda b: ((b(X) - TARGET) ** 2).mean())(block)
        optimizer.update(block, slopes)
        return value

    return [float(step(block, optimizer)) for _ in range(4)]


def test_flax_trains_a_layer_that_is_a_parameter(unchecked):
    block = in_jax("FlaxBlock")["FlaxBlock"](nnx.Rngs(0))
    before = nnx.as_pure(block.attention)
    losses = trained(block)
    after = nnx.as_pure(block.attention)
    assert losses[-1] < losses[0]
    for name in ("query_weight", "key_weight", "value_weight", "output_weight"):
        assert not np.allclose(getattr(before, name), getattr(after, name))
