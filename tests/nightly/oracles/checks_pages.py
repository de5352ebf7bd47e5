"""Lines of the book that no page runs, beside the libraries that they name (`nox -s oracles`)."""

import re
from pathlib import Path

import equinox
import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint
import pytest
from flax import linen, nnx

import posattn.jax
from posattn.conformance import check
from posattn.conformance.adapters import rotation_by_tables
from posattn.jax import rotate

DOCS = Path(__file__).parents[3] / "docs"
HALF = {"layout": "half"}
X = jnp.asarray(np.random.default_rng(0).normal(size=(2, 5, 64)), jnp.float32)
TARGET = jnp.flip(X, axis=1)
KNOWN = {name: getattr(posattn.jax, name) for name in ("MultiHeadAttention", "Rotary")}
KNOWN |= {"orbax": orbax, "equinox": equinox, "nnx": nnx, "jax": jax}
KNOWN |= {"rotation_by_tables": rotation_by_tables, "__name__": "page"}


def lines(page, word, **names):
    """Run the lines of a page that say a word, and return what they define."""
    text, block = (DOCS / f"{page}.md").read_text(), r"^```\{code-block\} python\n(.*?)^```"
    (found,) = (x for x in re.findall(block, text, re.DOTALL | re.MULTILINE) if word in x)
    names = KNOWN | names
    exec(compile(found, page, "exec"), names)  # the page's own lines
    return names


class Turn(linen.Module):
    """A module of Flax that rotates."""

    base: float = 10000.0

    @linen.compact
    def __call__(self, x, positions):
        """Rotate `(b, h, n, d)` by positions of shape `(b, n)`."""
        return rotate(x, positions[:, None], base=self.base, layout="half")


@pytest.fixture
def layer():
    return posattn.jax.MultiHeadAttention.init(
        jax.random.key(1), 64, 8, num_kv_heads=2, rotate=posattn.jax.Rotary()
    )


def test_the_adapter_of_the_page_for_llama():
    """It passes, except for the case that shows its angles in float32."""
    llama = lines("fix/conformance", "llama = ")["llama"]
    options = {"settings": HALF, "framework": "torch"}
    assert not check(llama, "rotary", **options).failures
    report = check(llama, "rotary", **options, tolerance="exact")
    (failed,) = report.failures
    assert failed.case["name"] == "layout half, large positions, up to 2**20"
    assert "in float32" in report.causes[0].sentence


def test_a_module_of_flax_passes():
    for base, right in ((10000.0, True), (500.0, False)):
        made = lines("fix/conformance", "flax_rope", module=Turn(base), variables={})
        report = check(made["flax_rope"], "rotary", framework="jax", settings=HALF)
        assert len(report.runs) > 10
        assert right != bool(report.failures)


def test_a_module_of_equinox_takes_no_positions():
    page = (DOCS / "fix" / "conformance.md").read_text("utf-8")
    (line,) = re.findall(r"`(lambda x: [^`]*)` is all it needs", page)
    module = equinox.nn.RotaryPositionalEmbedding(8)
    for called in (module, lambda x: module(x[::-1])[::-1]):
        rope = eval(line, {"jax": jax, "module": called})
        report = check(rope, "rotary", framework="jax", settings=HALF)
        assert bool(report.failures) == (called is not module)
        names = {run.case["name"] for run in report.runs}
        assert "layout half, no positions given" in names


def test_orbax_brings_back_the_layer(unchecked, tmp_path, layer):
    made = lines("build/model", "orbax", path=tmp_path / "layer", layer=layer)
    assert jax.tree.structure(made["layer"]) == jax.tree.structure(layer)
    assert (made["layer"](X) == layer(X)).all()


def test_equinox_trains_a_layer_that_is_a_field(unchecked, layer):
    block = lines("build/model", "equinox")["EquinoxBlock"](layer)

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


def test_flax_trains_a_layer_that_is_a_parameter(unchecked):
    block = lines("build/model", "FlaxBlock")["FlaxBlock"](nnx.Rngs(0))
    before = nnx.as_pure(block.attention)
    optimizer = nnx.Optimizer(block, optax.adam(1e-2), wrt=nnx.Param)

    @nnx.jit
    def step(block, optimizer):
        value, slopes = nnx.value_and_grad(lambda b: ((b(X) - TARGET) ** 2).mean())(block)
        optimizer.update(block, slopes)
        return value

    losses = [float(step(block, optimizer)) for _ in range(4)]
    after = nnx.as_pure(block.attention)
    assert losses[-1] < losses[0]
    for name in ("query_weight", "key_weight", "value_weight", "output_weight"):
        assert not np.allclose(getattr(before, name), getattr(after, name))
