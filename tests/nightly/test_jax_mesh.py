"""Attention to arrays that are spread over a mesh whose axes are explicit, as JAX makes them by default."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as Spec

from posattn import jax as ours
from posattn.jax.attention import tiled
from tests.conftest import BOUND, draw, error

N, HEADS, GROUPS, WIDTH, KEY = 40, 4, 2, 6, jax.random.key(0)
SPREAD = {"batch": ["data"], "heads": [None, "data"]}

pytestmark = [pytest.mark.usefixtures("unchecked", "jax_single")]


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch):
    """Tiles of 16 at most, the last of which begin earlier."""
    for name, value in {"SMALL": 0, "SIDE": 16}.items():
        monkeypatch.setattr(tiled, name, value)


@pytest.fixture
def put():
    """Lay an array on two devices, spread along an axis or the same on both."""
    mesh = jax.make_mesh((2,), ("data",), devices=jax.devices()[:2])
    with jax.set_mesh(mesh):
        yield lambda x, *axes: jax.device_put(x, NamedSharding(mesh, Spec(*axes)))


def value_and_gradients(function, *inputs):
    """What a function returns and its gradients, from one program."""

    def run(*inputs):
        value, pull_back = jax.vjp(function, *inputs)
        return value, *pull_back(jnp.cos(value))

    return jax.jit(run)(*inputs)


def texts(query_positions, key_positions):
    """Texts of 13 tokens, in one row."""
    return query_positions[..., :, None] // 13 == key_positions[..., None, :] // 13


OPTIONS = {
    "causal": {"causal": True},
    "ALiBi": {"causal": True, "bias": ours.ALiBi(HEADS)},
    "function": {"mask": texts, "causal": True},
    "array": {"mask": np.tri(N, dtype=bool)},
    "rows": {"bias": ours.StickBreaking(), "causal": True},
    "DAPE": {"bias": ours.DAPE.init(KEY, HEADS, ours.ALiBi(HEADS))},
}


@pytest.mark.parametrize(
    ("name", "small"), [*((name, 0) for name in OPTIONS), ("causal", N * N)]
)
@pytest.mark.parametrize("along", SPREAD)
def test_a_spread_attention_is_the_same(monkeypatch, put, along, name, small):
    monkeypatch.setattr(tiled, "SMALL", small)
    options, axes = dict(OPTIONS[name]), SPREAD[along]
    bias = options.pop("bias", None)
    shapes = *((2, h, N, WIDTH) for h in (HEADS, GROUPS, GROUPS)), (HEADS, 1, N)
    *inputs, learned = (draw(i, *shape).astype("f") for i, shape in enumerate(shapes))

    def run(query, key, value, learned):
        parts = [learned, bias]
        return ours.scaled_dot_product_attention(query, key, value, bias=parts, **options)

    want = value_and_gradients(run, *map(put, (*inputs, learned)))
    spread = [put(x, *axes) for x in inputs]
    got = value_and_gradients(run, *spread, put(learned))
    for x, y in zip(got, want, strict=True):
        assert error(x, np.asarray(y)) <= BOUND["float32"]
    for x in got[:-1]:
        assert x.sharding.is_equivalent_to(spread[0].sharding, x.ndim)


@pytest.mark.parametrize("along", SPREAD)
def test_a_layer_on_a_mesh_is_the_same(put, along):
    layer = ours.MultiHeadAttention.init(
        KEY,
        HEADS * WIDTH,
        HEADS,
        num_kv_heads=GROUPS,
        rotate=ours.Rotary(),
        bias=ours.T5Bias.init(KEY, HEADS),
        sinks=True,
        gate=True,
    )
    x = draw(1, 2, N, HEADS * WIDTH).astype("f")
    run = partial(ours.MultiHeadAttention.__call__, mask=texts, causal=True)
    given = jax.tree.map(put, layer)
    want = value_and_gradients(run, given, put(x))
    if along == "heads":
        names = "query_weight", "key_weight", "value_weight", "gate_weight"
        weights = {name: put(getattr(layer, name), None, "data") for name in names}
        output = put(layer.output_weight, "data")
        given = replace(
            given, **weights, output_weight=output, sinks=put(layer.sinks, "data")
        )
    spread = put(x, *["data"] * (along == "batch"))
    got = value_and_gradients(run, given, spread)
    assert got[0].sharding.is_equivalent_to(spread.sharding, x.ndim)
    for x, y in zip(*map(jax.tree.leaves, (got, want)), strict=True):
        assert error(x, np.asarray(y)) <= BOUND["float32"]
