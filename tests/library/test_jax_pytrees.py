"""Layers of the JAX column as values: equal if made equal, stacked, scanned, pickled, and nothing hidden."""

import copy
import operator
import pickle
from dataclasses import dataclass, field, replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from jax.tree_util import register_dataclass

from posattn import jax as ours
from tests.conftest import BOUND, draw, error

DIM, HEADS, WIDTH, N = 8, 2, 4, 5
SPEEDS = np.array([1.0, 0.25])


def shift(x, positions):
    return x + positions[..., None]


def near(query_positions, key_positions):
    return -0.1 * abs(key_positions[..., None, :] - query_positions[..., :, None]).astype(
        float
    )


def norm(x, power=1):
    return x / jnp.mean(abs(x) ** power, axis=-1, keepdims=True) ** (1 / power)


@jax.jit
def fast_turn(x, positions):
    return 2 * x


class Scaled:
    """A callable object that is its own constant."""

    def __init__(self, by):
        self.by = by

    def __call__(self, x, positions):  # noqa: D102
        return self.by * x

    def __eq__(self, other):
        return isinstance(other, Scaled) and self.by == other.by

    def __hash__(self):
        return hash(self.by)

    def turn(self, x, positions):
        """A bound method that works as well."""
        return self.by * x


class Unhashable(Scaled):
    """One that cannot be hashed, and so is itself alone."""

    __hash__ = None


class Content:
    """A bias that depends on content, and that nobody has registered."""

    def scores(self, query, key, query_positions, key_positions):
        """Constant scores."""
        return jnp.zeros((*query.shape[:-1], key.shape[-2]), query.dtype)


@register_dataclass
@dataclass(frozen=True, eq=False)
class Gain:
    """A parameter, and a method that uses it."""

    by: Array
    axis: int = field(default=0, metadata={"static": True})

    def turn(self, x, positions):
        """Multiply by the parameter."""
        return self.by * x


SAME = Scaled(2.0)
# what is plugged in, made anew at each call; whether two of them are equal
PLUGGED = {
    "nothing": (lambda: {}, True),
    "value": (lambda: {"rotate": ours.Rotary(frequencies=SPEEDS)}, True),
    "function": (lambda: {"rotate": shift, "bias": near}, True),
    "jitted function": (lambda: {"rotate": fast_turn}, True),
    "partial": (lambda: {"rotate": partial(ours.rotate, layout="half")}, True),
    "partial of arrays": (lambda: {"rotate": partial(ours.rotate, frequencies=jnp.array(SPEEDS))}, True),
    "partial of a list": (lambda: {"rotate": partial(partial(shift), *[])}, True),
    "callable object": (lambda: {"rotate": Scaled(2.0)}, True),
    "unhashable object": (lambda: {"rotate": Unhashable(2.0)}, False),
    "bound method": (lambda: {"rotate": SAME.turn}, True),
    "method of a pytree": (lambda: {"rotate": Gain(jnp.ones(())).turn}, True),
    "content": (lambda: {"bias": Content()}, False),
    "pair": (lambda: {"rotate": (partial(ours.xpos_query, gamma=0.5), ours.xpos_key)}, True),
    "list": (lambda: {"bias": [ours.ALiBi(HEADS), near, ours.T5Bias.init(jax.random.key(3), HEADS)]}, True),
    "norms": (lambda: {"query_norm": norm, "key_norm": partial(norm, power=2)}, True),
}  # fmt: skip
every_kind = pytest.mark.parametrize(("plugged", "equal"), PLUGGED.values(), ids=PLUGGED)


def layer_of(seed=0, **plugged):
    return ours.MultiHeadAttention.init(jax.random.key(seed), DIM, HEADS, **plugged)


def tokens():
    return jnp.asarray(draw(8, 2, N, DIM), "float32")


def close(got, want):
    return error(np.asarray(got), np.asarray(want)) <= BOUND["float32"]


@every_kind
def test_fresh_layers_are_equal_trees(unchecked, plugged, equal):
    """Also a layer whose parts were replaced, or given to the class."""
    fresh, bare = plugged(), layer_of(2)
    weights = bare.query_weight, bare.key_weight, bare.value_weight, bare.output_weight
    layers = [
        layer_of(1, **plugged()),
        replace(bare, **plugged()),
        ours.MultiHeadAttention(*weights, num_heads=HEADS, **plugged()),
    ]
    first, *others = map(jax.tree.structure, [layer_of(0, **fresh), *layers])
    for other in others:
        assert (first == other) == equal
        assert not equal or hash(first) == hash(other)
    for layer in layers:
        leaves = jax.tree.leaves(jax.tree.map(lambda leaf: object(), layer))
        assert not any(map(callable, leaves))


@pytest.mark.parametrize("kind", ["list", "method of a pytree"])
def test_equal_layers_are_compiled_once_and_scanned(unchecked, kind):
    traced = []
    run = jax.jit(lambda layer, x: (traced.append(layer), layer(x))[1])
    layers = [layer_of(seed, **PLUGGED[kind][0]()) for seed in range(3)]
    for layer in layers:
        assert close(run(layer, tokens()), layer(tokens()))
    assert len(traced) == 1
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *layers)
    got, _ = jax.lax.scan(lambda x, layer: (x + layer(x), None), tokens(), stacked)
    want = tokens()
    for layer in layers:
        want = want + layer(want)
    assert close(got, want)


@every_kind
def test_states_of_an_optimizer_survive_pickling(plugged, equal):
    if not equal:
        return  # another object is not equal
    layer = layer_of(**plugged())
    state = jax.tree.map(jnp.ones_like, layer)
    copies = [copy.deepcopy(state)]
    if plugged is not PLUGGED["bound method"][0]:
        copies.append(pickle.loads(pickle.dumps(state)))
    for again in copies:
        added = jax.tree.map(jnp.add, layer, again)
        assert close(added.query_weight, layer.query_weight + 1)


def test_a_method_keeps_the_parameters_of_its_object_in_the_tree(unchecked):
    layer = layer_of(rotate=Gain(jnp.full((), 2.0)).turn)
    slope = jax.grad(lambda layer: (layer(tokens()) ** 2).sum())(layer)
    assert np.abs(jax.tree.leaves(slope.rotate)).max() > 0
    pair = layer_of(rotate=[Gain(jnp.ones(())).turn, None], bias=(near,))
    assert len(jax.tree.leaves(pair)) == 5


HIDING = {
    "object with arrays": Scaled(jnp.ones(())),
    "its method": Scaled(jnp.ones(())).turn,
    "partial of a pytree's method": partial(Gain(jnp.ones(())).turn),
    "partial that holds a pytree": partial(shift, Gain(jnp.ones(()))),
    "pytree in a list": partial(shift, [Gain(jnp.ones(()))]),
    "jitted method": jax.jit(Gain(jnp.ones(())).turn),
}  # fmt: skip


@pytest.mark.parametrize("hiding", HIDING.values(), ids=HIDING)
def test_what_would_not_be_trained_is_rejected(hiding):
    with pytest.raises(TypeError, match="it holds arrays that would not be trained"):
        layer_of(rotate=hiding)


def test_constants_differ_where_their_values_do():
    def structure(*arguments, **options):
        return jax.tree.structure(layer_of(rotate=partial(*arguments, **options)))

    speeds = partial(structure, ours.rotate)
    fresh = [
        speeds(),
        speeds(base=1.0),
        speeds(base=1),
        speeds(frequencies=SPEEDS),
        speeds(frequencies=2 * SPEEDS),
        speeds(frequencies=SPEEDS.astype("float32")),
        speeds(frequencies=SPEEDS[:, None]),
        structure(shift),
        structure(shift, SPEEDS),
        structure(shift, (SPEEDS,)),
        structure(shift, [SPEEDS]),
        structure(shift, {"a": SPEEDS}),
        jax.tree.structure(layer_of(rotate=shift)),
        jax.tree.structure(layer_of()),
    ]
    for i, one in enumerate(fresh):
        assert [one == other for other in fresh] == [i == j for j in range(len(fresh))]


def test_what_is_plugged_in_prints_as_itself_and_has_no_more_attributes():
    layer = layer_of(rotate=partial(shift), bias=Content())
    assert repr(layer.rotate) == repr(partial(shift))
    assert not hasattr(layer.bias, "values")
    assert not hasattr(layer.bias, "rows")
    assert layer.rotate != shift
    assert hash(layer.rotate) == hash(layer_of(rotate=partial(shift)).rotate)


def test_layers_of_different_classes_are_different_trees():
    """Else a compiled function runs the one for the other when their hashes collide."""
    r = jnp.ones(HEADS)
    trees = map(jax.tree.structure, (ours.KerpleLog(r, r), ours.KerplePower(r, r)))
    assert operator.ne(*trees)


@pytest.mark.parametrize("value", [
    ours.Rotary(rotary_dim=4, base=5e5, layout="half", attention_factor=1.5),
    ours.Rotary(frequencies=jnp.array(SPEEDS)),
    ours.ALiBi(3, dtype=jnp.bfloat16),
    ours.PositionalEncoding(DIM),
    ours.Window(3),
])  # fmt: skip
def test_schemes_without_parameters_are_values(value):
    assert jax.tree.leaves(value) == []
    names = {**vars(ours), "dtype": jnp.dtype, "bfloat16": jnp.bfloat16}
    printed, pickled = eval(repr(value), names), pickle.loads(pickle.dumps(value))
    for again in (pickled, copy.deepcopy(value), replace(value), printed):
        assert again == value
        assert hash(again) == hash(value)
        assert jax.tree.structure(again) == jax.tree.structure(value)
