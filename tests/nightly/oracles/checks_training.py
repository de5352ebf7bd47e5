"""Layers of the JAX column inside Flax NNX and Equinox, where all that should be trained is."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest
from flax import nnx

from posattn import jax as ours

DIM, HEADS = 8, 2
# other libraries put placeholders into trees
pytestmark = pytest.mark.usefixtures("unchecked")


def fresh():
    """A layer with a learned bias, and a rotation that has no parameters."""
    bias = ours.T5Bias.init(jax.random.key(1), HEADS)
    key = jax.random.key(0)
    return ours.MultiHeadAttention.init(key, DIM, HEADS, rotate=ours.Rotary(), bias=bias)


def tokens():
    return jax.random.normal(jax.random.key(2), (2, 5, DIM))


def wanted():
    """The leaves after one step of gradient descent in JAX alone."""
    layer = fresh()
    slope = jax.grad(lambda layer: jnp.mean(layer(tokens(), causal=True) ** 2))(layer)
    stepped = jax.tree.map(lambda p, g: p - 0.1 * g, layer, slope)
    assert all(np.abs(g).max() > 0 for g in jax.tree.leaves(slope))
    return jax.tree.leaves(stepped)


class Block(nnx.Module):
    """A model of NNX that trains a layer: its leaves are parameters, its structure is not data."""

    def __init__(self, layer):
        leaves, self.structure = jax.tree.flatten(layer)
        self.leaves = nnx.List([nnx.Param(leaf) for leaf in leaves])

    def __call__(self, x):  # noqa: D102
        leaves = [leaf[...] for leaf in self.leaves]
        return jax.tree.unflatten(self.structure, leaves)(x, causal=True)


class Unseen(nnx.Module):
    """A model that holds the same layer as data, which no optimizer of parameters sees."""

    def __init__(self, layer):
        self.layer = nnx.data(layer)


def test_nnx_trains_the_leaves_of_a_layer():
    model = Block(fresh())
    optimizer = nnx.Optimizer(model, optax.sgd(0.1), wrt=nnx.Param)

    @nnx.jit
    def step(model, optimizer, x):
        slope = nnx.grad(lambda model: jnp.mean(model(x) ** 2))(model)
        optimizer.update(model, slope)

    step(model, optimizer, tokens())
    got = [leaf[...] for leaf in model.leaves]
    assert all(np.allclose(a, b, atol=1e-6) for a, b in zip(got, wanted(), strict=True))


def test_nnx_does_not_see_a_layer_that_is_data():
    assert jax.tree.leaves(nnx.state(Unseen(fresh()), nnx.Param)) == []
    assert len(jax.tree.leaves(nnx.state(Block(fresh()), nnx.Param))) == 5


class Wrapped(eqx.Module):
    """A model of Equinox, for which a layer is a field like any other."""

    layer: ours.MultiHeadAttention

    def __call__(self, x):  # noqa: D102
        return self.layer(x, causal=True)


def test_equinox_trains_the_leaves_of_a_layer():
    model = Wrapped(fresh())
    optimizer = optax.sgd(0.1)
    state = optimizer.init(eqx.filter(model, eqx.is_inexact_array))

    @eqx.filter_jit
    def step(model, state, x):
        slope = eqx.filter_grad(lambda model: jnp.mean(model(x) ** 2))(model)
        change, state = optimizer.update(slope, state)
        return eqx.apply_updates(model, change), state

    model, _ = step(model, state, tokens())
    got = jax.tree.leaves(model)
    assert all(np.allclose(a, b, atol=1e-6) for a, b in zip(got, wanted(), strict=True))


def test_orbax_keeps_a_layer(tmp_path):
    layer = fresh()
    with ocp.StandardCheckpointer() as keeper:
        keeper.save(tmp_path / "layer", layer)
        keeper.wait_until_finished()
        again = keeper.restore(tmp_path / "layer", jax.tree.map(jnp.zeros_like, fresh()))
    assert jax.tree.structure(again) == jax.tree.structure(layer)
    pairs = zip(jax.tree.leaves(again), jax.tree.leaves(layer), strict=True)
    assert all(np.array_equal(a, b) for a, b in pairs)
