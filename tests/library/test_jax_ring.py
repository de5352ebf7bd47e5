"""Ring attention on several devices of one program: equal to attention on one, with the memory of a shard."""

from collections import Counter
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as Spec

from posattn import jax as ours
from posattn.jax.attention import tiled
from tests.conftest import BOUND, draw, error

N, HEADS, GROUPS, WIDTH, KEY = 64, 4, 2, 6, jax.random.key(0)
SHARDS = Spec(None, None, "ring", None)

pytestmark = pytest.mark.usefixtures("unchecked")


def mesh_of(**axes):
    """A mesh of so many devices along each axis."""
    count = int(np.prod([*axes.values()]))
    devices = np.array(jax.devices()[:count]).reshape(*axes.values())
    return Mesh(devices, [*axes])


def arrays(dtype="float32", n_q=N, n_k=N):
    """Queries, keys and values, whose width is another one."""
    shapes = (HEADS, n_q, WIDTH), (GROUPS, n_k, WIDTH), (GROUPS, n_k, 5)
    return [jnp.asarray(draw(i, 2, *shape), dtype) for i, shape in enumerate(shapes)]


def on_one(query, key, value, bias=None, turn=None, **options):
    """Attention of whole sequences on one device."""
    if turn is not None:
        query, key = turn(query), turn(key)
    return ours.scaled_dot_product_attention(query, key, value, bias=bias, **options)


def in_ring(query, key, value, bias=None, turn=None, mask=None, *, mesh, order, **options):
    """The same, from shards on several devices, whose tokens are in some order."""
    rows = "data" if "data" in mesh.shape else None
    tokens, where = Spec(rows, None, "ring", None), Spec("ring")
    keys = jnp.ones((1, 1, 1, N), bool) if mask is None or callable(mask) else mask
    of_mask = Spec(rows if len(keys) > 1 else None, None, None, "ring")

    def run(query, key, value, bias, keys, places):
        if turn is not None:
            query, key = turn(query, places), turn(key, places)
        given = {"bias": bias, "mask": mask if callable(mask) else keys} | options
        given |= {"query_positions": places, "key_positions": places}
        return ours.ring_attention(query, key, value, across="ring", **given)

    specs = tokens, tokens, tokens, Spec(), of_mask, where
    run = jax.shard_map(run, mesh=mesh, in_specs=specs, out_specs=tokens)
    cut = [x[:, :, order] for x in (query, key, value)]
    return run(*cut, bias, keys[..., order], order)[:, :, jnp.argsort(order)]


def value_and_gradients(function, *inputs):
    """What a function returns, and the gradients of all that moves, from one program."""

    @jax.jit
    def run(*inputs):
        out, pull_back = jax.vjp(function, *inputs)
        change = jnp.cos(jnp.arange(out.size)).reshape(out.shape).astype(out.dtype)
        return out, *jax.tree.leaves(pull_back(change))

    found = (x for x in run(*inputs) if x.dtype != jax.dtypes.float0)
    return [np.asarray(x, "float64") for x in found]


BALANCED, ROWS = {"ring": 4}, {"data": 2, "ring": 2}
T5 = ours.T5Bias.init(KEY, HEADS, num_buckets=8)
GATES = -(jnp.asarray(draw(8, HEADS, N), "float32") ** 2)
PADDING = jnp.asarray(np.random.default_rng(1).random((2, 1, 1, N)) < 0.7)
CONTENT = ours.TransformerXLBias.init(KEY, HEADS * WIDTH, HEADS)

# mesh and options
CASES = {
    "rotary": (BALANCED, {"turn": ours.Rotary(), "causal": True}),
    "T5 beside ALiBi": (ROWS, {"bias": (ours.ALiBi(HEADS), T5)}),
    "T5 in a ring of one": ({"data": 2, "ring": 1}, {"bias": T5}),
    "FoX": (BALANCED, {"bias": ours.tiled_forgetting_bias(GATES), "causal": True}),
    "content": (BALANCED, {"bias": CONTENT, "scale": 0.3}),
    "window": (BALANCED, {"mask": ours.Window(9), "causal": True}),
    "padding": (ROWS, {"mask": PADDING, "bias": ours.ALiBi(HEADS)}),
}
TRIED = [("float32", name) for name in CASES] + [("bfloat16", "window")]


@pytest.mark.parametrize(("dtype", "name"), TRIED)
def test_a_ring_gives_what_one_device_gives(jax_single, dtype, name):
    axes, options = CASES[name]
    options, mesh = dict(options), mesh_of(**axes)
    order = ours.balanced_order(N, 4) if axes is BALANCED else jnp.arange(N)
    bias = options.pop("bias", None)
    ring = partial(in_ring, mesh=mesh, order=order, **options)
    got = value_and_gradients(ring, *arrays(dtype), bias)
    want = value_and_gradients(partial(on_one, **options), *arrays(dtype), bias)
    moves = [jnp.issubdtype(x.dtype, jnp.floating) for x in jax.tree.leaves(bias)]
    assert len(got) == len(want) == 4 + sum(moves)
    for x, y in zip(got, want, strict=True):
        assert error(x, y) <= 2 * BOUND[dtype]  # each may be off by one of it


def in_shards(function, *inputs, mesh=None, specs=SHARDS, out=SHARDS, **options):
    """Call a function inside `jax.shard_map`, compiled as a whole."""
    mesh = mesh_of(ring=4) if mesh is None else mesh
    spread = jax.shard_map(function, mesh=mesh, in_specs=specs, out_specs=out, **options)
    return jax.jit(spread)(*inputs)


def test_fewer_queries_stand_at_the_end(jax_single):
    inputs = arrays(n_q=32)
    options = {"causal": True, "bias": ours.ALiBi(HEADS)}
    ring = partial(ours.ring_attention, across="ring", **options)
    assert error(in_shards(ring, *inputs), on_one(*inputs, **options)) < BOUND["float32"]


def test_positions_may_be_those_of_each_example_and_have_gradients(jax_single):
    inputs = arrays()
    places = jnp.arange(N) + 0.25 * jnp.arange(2.0)[:, None]
    slope = jnp.linspace(0.1, 0.4, HEADS)[:, None, None]

    def near(slope, query, key):
        return -slope * jnp.square(0.1 * (key[..., None, :] - query[..., None]))[:, None]

    def run(attention, query, key, value, places, slope):
        where = {"query_positions": places, "key_positions": places}
        bias = jax.tree_util.Partial(near, slope)
        return attention(query, key, value, bias=bias, mask=ours.Window(12), **where)

    def ring(*inputs):
        specs = SHARDS, SHARDS, SHARDS, Spec(None, "ring"), Spec()
        attention = partial(run, partial(ours.ring_attention, across="ring"))
        return in_shards(attention, *inputs, specs=specs)

    one = partial(run, ours.scaled_dot_product_attention)
    got, want = (value_and_gradients(f, *inputs, places, slope) for f in (ring, one))
    for x, y in zip(got, want, strict=True):
        assert error(x, y) <= 2 * BOUND["float32"]


def test_what_nobody_attends_to_reaches_nothing(jax_single):
    query, key, value = arrays()
    hidden = jnp.arange(N) % 7 == 3
    key, value = (x.at[:, :, hidden].set(jnp.nan) for x in (key, value))

    def mask(q, k):
        return (k % 7 != 3) & (q[:, None] != 9)

    order = ours.balanced_order(N, 4)
    ring = partial(in_ring, mesh=mesh_of(ring=4), order=order, mask=mask)
    got = value_and_gradients(ring, query, key, value)
    clean = value_and_gradients(ring, query, *map(jnp.nan_to_num, (key, value)))
    assert all(map(np.array_equal, got, clean))
    assert not any(x[:, :, hidden].any() for x in got[2:])
    assert not any(x[:, :, 9].any() for x in got[:2])


def test_no_keys_and_no_queries_are_no_trouble():
    query, key, value = arrays()
    ring = partial(ours.ring_attention, across="ring")
    assert np.all(in_shards(ring, query, key[:, :, :0], value[:, :, :0]) == 0)
    assert in_shards(ring, query[:, :, :0], key, value).shape == (2, HEADS, 0, 5)


def tiles_of_each(order):
    """How many tiles each of 4 devices computes."""
    seen = []

    def bias(query_positions, key_positions):
        jax.debug.callback(
            lambda device: seen.append(int(device)), jax.lax.axis_index("ring")
        )
        return jnp.zeros((query_positions.size, key_positions.size))

    def run(x, where):
        options = {"query_positions": where, "key_positions": where, "causal": True}
        return ours.ring_attention(x, x, x, across="ring", bias=bias, **options)

    specs = SHARDS, Spec("ring")
    run = jax.jit(partial(in_shards, run, specs=specs, check_vma=False))
    jax.block_until_ready(run(jnp.ones((1, 1, N, 2)), order))
    jax.effects_barrier()
    return [count for _, count in sorted(Counter(seen).items())]


def test_balanced_shards_cost_each_device_the_same():
    assert tiles_of_each(ours.balanced_order(N, 4)) == [9, 9, 9, 9]
    assert tiles_of_each(jnp.arange(N)) == [3, 7, 11, 15]


def planned(devices, n=1024):
    """The bytes on each device that a program of attention and its gradients plans for."""
    shape = jax.ShapeDtypeStruct((1, 2, n, 16), "float32")
    ring = partial(ours.ring_attention, across="ring", causal=True, bias=ours.ALiBi(2))
    mesh = mesh_of(ring=devices)

    def loss(*inputs):
        return jnp.sum(in_shards(ring, *inputs, mesh=mesh) ** 2)

    shards = jax.sharding.NamedSharding(mesh, SHARDS)
    program = jax.jit(jax.grad(loss, (0, 1, 2)), in_shardings=shards, out_shardings=shards)
    plan = program.lower(shape, shape, shape).compile().memory_analysis()
    return plan.temp_size_in_bytes + plan.argument_size_in_bytes + plan.output_size_in_bytes


def test_memory_is_that_of_a_shard(monkeypatch):
    monkeypatch.setattr(tiled, "SIDE", 64)
    two, four = (planned(devices) for devices in (2, 4))
    assert four < 0.6 * two
    assert two < 1024**2  # bytes, a quarter of the scores of one head


def penalty(of, query, key):
    return -of * abs(key - query[:, None])


def slope(of):
    return partial(penalty, of)


ERRORS = {
    "axis": ({"across": "rows"}, r"^across must name an axis of the mesh \('ring'\), got"),
    "array": ({"bias": jnp.zeros((1, 16))}, "^bias must be a function of positions where"),
    "all keys": ({"bias": ours.CoPE.init(KEY, 4, WIDTH)}, "got CoPE, which needs all keys"),
    "values": ({"bias": ours.ShawRelative.init(KEY, 4, WIDTH)}, "also changes the values"),
    "heads": ({"bias": ours.ALiBi(3)}, "^bias must have a shape that broadcasts to"),
    "pairs": ({"mask": jnp.ones((16, 16), bool)}, r"^mask must .* got \(16, 16\)"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_what_a_ring_cannot_do_is_named(jax_single, name):
    options, text = ERRORS[name]
    ring = partial(ours.ring_attention, **{"across": "ring"} | options)
    with pytest.raises((TypeError, ValueError), match=text):
        in_shards(ring, *arrays())


def test_an_array_that_a_function_encloses_has_its_gradient_or_an_error():
    def loss(of, *, plugged=slope, **options):
        def one(query, key, value, of):
            return ours.ring_attention(query, key, value, across="ring", bias=plugged(of))

        specs = SHARDS, SHARDS, SHARDS, Spec()
        return jnp.sum(in_shards(one, *arrays(), of, specs=specs, **options) ** 2)

    def derivative(**options):
        return jax.jit(jax.grad(partial(loss, **options)))(0.1)

    tree = derivative(plugged=lambda of: jax.tree_util.Partial(penalty, of))
    assert error(derivative(check_vma=False), tree) <= BOUND["float32"]
    with pytest.raises(ValueError, match="bias must be a pytree of its arrays"):
        derivative()
