"""Attention in tiles: equal to the definition, with no array of all pairs."""

import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import ClosedJaxpr, Jaxpr

from posattn import jax as ours
from posattn import reference
from posattn.jax.attention import tiled
from posattn.jax.attention.call import checked
from tests.conftest import BOUND, REFERENCE, TWINS, assert_twin_agrees, draw, error

HEADS, WIDTH, KEY = 4, 6, jax.random.key(0)


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch, unchecked):
    """Tiles of 16 at most, for sequences of any length."""
    for name, value in {"SMALL": 0, "SIDE": 16, "TILE": 2**11}.items():
        monkeypatch.setattr(tiled, name, value)


def arrays(seed, batch, n_q, n_k, kv_heads=2):
    """Queries, keys and values, whose width is another one."""
    shapes = (HEADS, n_q, WIDTH), (kv_heads, n_k, WIDTH), (kv_heads, n_k, 5)
    return [draw(seed + i, *batch, *shape) for i, shape in enumerate(shapes)]


def single(batch, n_q, n_k):
    return [jnp.asarray(x, "float32") for x in arrays(1, batch, n_q, n_k)]


def attend(column, query, key, value, **options):
    return column.scaled_dot_product_attention(query, key, value, **options)


RANDOM = np.random.default_rng(3).random((HEADS, 20, 33)) < 0.5
RANDOM[:, 0] = False  # a query that attends to nothing

# dtype, batch axes, n_q, n_k, mask, whether causal
PROBLEMS = {
    "window": ("float64", (2,), 33, 40, reference.window_mask(33, 40, 5), True),
    "more queries": ("float64", (), 40, 17, None, True),
    "random mask": ("float64", (), 20, 33, RANDOM, False),
    "half precision": ("bfloat16", (), 17, 20, None, True),
}


@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)
def test_tiles_give_what_the_reference_gives(problem):
    dtype, batch, n_q, n_k, mask, causal = problem
    (twin,) = (twin for twin in TWINS if str(twin) == f"jax-{dtype}")

    def run(column, query, key, value, slopes, table):
        where = {
            "query_positions": column.positions(np.arange(3, 3 + n_q)),
            "key_positions": column.positions(np.arange(n_k)),
        }
        seen = None if mask is None else column.array(mask)
        t5 = column.with_parameters("T5Bias", {"table": table}, HEADS)
        options = {"mask": seen, "causal": causal, "bias": [slopes, t5]}
        return attend(column, query, key, value, **options, **where)

    inputs = *arrays(1, batch, n_q, n_k), draw(7, HEADS, 1, n_k), draw(8, 32, HEADS)
    with twin.mode():
        assert_twin_agrees(twin, run, *inputs)


def value_and_gradients(function, *inputs):
    """What a function returns and its gradients, all in one program."""

    def run(*inputs):
        value, pull_back = jax.vjp(function, *inputs)
        return value, *pull_back(jnp.cos(jnp.arange(value.size * 1.0)).reshape(value.shape))

    return jax.jit(run)(*inputs)


def assert_tiles_change_nothing(monkeypatch, function, *inputs):
    """In tiles, values and gradients are those of the definition."""
    got = value_and_gradients(function, *inputs)
    monkeypatch.setattr(tiled, "SMALL", 10**9)
    for x, y in zip(got, value_and_gradients(function, *inputs), strict=True):
        assert error(x, y) <= 2 * BOUND["float32"]  # each may be off by one of it


SCHEMES = {
    "function": lambda q, k: jnp.cos(q[:, None] - 2.0 * k),
    "rows and columns": [draw(5, 1, 40).astype("f"), draw(6, HEADS, 35, 40).astype("f")],
    "Transformer-XL": ours.TransformerXLBias.init(KEY, HEADS * WIDTH, HEADS),
    "CoPE": ours.CoPE.init(KEY, 9, WIDTH),
    "FoX": ours.tiled_forgetting_bias(-(jnp.asarray(draw(9, HEADS, 40), "float32") ** 2)),
}


@pytest.mark.parametrize("name", SCHEMES)
def test_each_kind_of_bias_gives_what_the_definition_gives(jax_single, monkeypatch, name):
    def run(query, key):
        return attend(ours, query, key, key, bias=SCHEMES[name], causal=True)

    assert_tiles_change_nothing(monkeypatch, run, *single((), 35, 40)[:2])


def test_gradients_reach_what_a_function_encloses(jax_single, monkeypatch):
    inputs = single((), 20, 20)

    def run(slope, places):
        def bias(query, key):
            return -slope * abs(key - query[:, None])

        options = {"bias": bias, "query_positions": places, "key_positions": places}
        return attend(ours, *inputs, **options)

    at = jnp.float32(0.5), jnp.linspace(0, 3, 20)
    assert_tiles_change_nothing(monkeypatch, run, *at)


def packed(query_positions, key_positions):
    """Texts of 100 positions at most, in one row."""
    return query_positions[..., :, None] // 100 == key_positions[..., None, :] // 100


def by_head(query_positions, key_positions):
    """A window for each head."""
    distance = abs(key_positions[..., None, :] - query_positions[..., :, None])
    return distance < jnp.array([1, 5, 9, 40])[:, None, None]


@pytest.mark.parametrize(
    ("mask", "batch", "bias"),
    [
        (packed, (), ours.ALiBi(HEADS)),
        (by_head, (), ours.StickBreaking()),
        (ours.Window(5), (2,), ours.ALiBi(HEADS)),
    ],
    ids=["packed", "by head", "each example"],
)
def test_masks_may_be_functions_of_positions(jax_single, monkeypatch, mask, batch, bias):
    start = jnp.arange(math.prod(batch)).reshape(*batch, 1)  # each row begins elsewhere
    places = start + jnp.where(jnp.arange(40) < 17, jnp.arange(40), jnp.arange(40) + 90)
    where = {"query_positions": places[..., 5:], "key_positions": places}

    def run(*inputs):
        return attend(ours, *inputs, mask=mask, bias=bias, causal=True, **where)

    assert_tiles_change_nothing(monkeypatch, run, *single(batch, 35, 40))


def test_tiles_that_a_function_hides_are_skipped(jax_single):
    seen = []

    def bias(query_positions, key_positions):
        jax.debug.callback(
            lambda q, k: seen.append((q, k)), query_positions[0], key_positions[0]
        )
        return jnp.zeros((len(query_positions), len(key_positions)))

    x = jnp.ones((HEADS, 64, WIDTH))
    jax.block_until_ready(
        attend(ours, x, x, x, mask=ours.Window(3), causal=True, bias=bias)
    )
    jax.effects_barrier()
    corners = [(q, k) for q in range(0, 64, 16) for k in (q - 16, q) if k >= 0]
    assert sorted((int(q), int(k)) for q, k in seen) == corners


def test_a_far_key_whose_product_outweighs_its_bias_counts(jax_single):
    """The bias of the first key is 75 below that of near ones, and its product 80 above theirs."""
    n, size = 310, 40**0.5
    key = np.full((HEADS, n, 1), -size)
    key[:, 0] = size
    query, value = np.full_like(key, size), np.ones_like(key).cumsum(-2)
    options = {"causal": True, "bias": REFERENCE.ALiBi(HEADS), "scale": 1.0}
    want = attend(REFERENCE, query, key, value, **options)
    options["bias"] = ours.ALiBi(HEADS)
    inputs = (jnp.asarray(x, "float32") for x in (query, key, value))
    got = attend(ours, *inputs, **options)
    assert want[0, 300, 0] < 100  # of values up to 300
    assert np.allclose(got, want, rtol=1e-4)


@pytest.mark.parametrize("bias", [None, ours.StickBreaking()], ids=["tiles", "rows"])
def test_what_nobody_attends_to_reaches_nothing(jax_single, bias):
    query, key, value = single((), 20, 40)
    nan = [query, *(x.at[:, 35].set(jnp.nan) for x in (key, value))]

    def mask(q, k):
        return (k != 35) & (q[:, None] != 24)

    def run(*inputs):
        return attend(ours, *inputs, mask=mask, bias=bias)

    value, d_query, d_key, d_value = value_and_gradients(run, *nan)
    hidden = value[:, 4], d_query[:, 4], d_key[:, 35], d_value[:, 35]
    assert all(np.all(x == 0) for x in hidden)
    clean = value_and_gradients(run, query, *(jnp.nan_to_num(x) for x in nan[1:]))
    assert all(map(np.array_equal, (value, d_query, d_key, d_value), clean))


def test_rows_draw_what_they_drop_for_themselves(jax_single):
    x, n = jnp.ones((1, 160, WIDTH)), 160

    def run(value):
        return attend(ours, x, x, value, dropout_rate=0.5, rng=KEY)

    kept, pull_back = jax.vjp(run, jnp.eye(n)[None])
    assert len(np.unique(kept[0] > 0, axis=0)) == n
    assert abs(kept.sum() / n - 1) < 0.05
    (gradient,) = pull_back(jnp.ones_like(kept))  # what is recomputed drops the same
    assert error(gradient[0, :, 0], kept[0].sum(0)) <= BOUND["float32"]


def sizes(jaxpr):
    """How many numbers each array of a program has, those of its loops and branches included."""
    for equation in jaxpr.eqns:
        yield from (v.aval.size for v in equation.outvars)
        for inner in jax.tree.leaves(
            list(equation.params.values()),
            is_leaf=lambda x: isinstance(x, Jaxpr | ClosedJaxpr),
        ):
            inner = getattr(inner, "jaxpr", inner)
            if isinstance(inner, Jaxpr):
                yield from sizes(inner)


@pytest.mark.parametrize(
    ("bias", "mask"),
    [(ours.ALiBi(HEADS), ours.Window(9)), (ours.CoPE.init(KEY, 9, WIDTH), None)],
    ids=["tiles", "rows"],
)
def test_no_array_holds_all_pairs(jax_single, bias, mask):
    n = 512
    shapes = [jax.ShapeDtypeStruct(x.shape, "float32") for x in arrays(1, (), n, n)]

    def run(*inputs):
        options = {"mask": mask, "causal": True, "bias": bias}
        value, pull_back = jax.vjp(partial(attend, ours, **options), *inputs)
        return pull_back(value)

    most = max(sizes(jax.make_jaxpr(run)(*shapes).jaxpr))
    assert HEADS * n * WIDTH <= most < n * n / 4


@pytest.mark.parametrize(
    "options",
    [
        {"bias": jnp.zeros((3, 20, 40))},
        {"bias": ours.ALiBi(3)},
        {"mask": lambda q, k: jnp.ones((3, 40), bool)},
    ],
)
def test_a_bias_or_a_mask_that_does_not_fit_is_named(jax_single, options):
    with pytest.raises(ValueError, match=r"^(bias|mask) must have .* broadcasts to"):
        attend(ours, *single((), 20, 40), **options)


def test_positions_that_need_64_bits_keep_the_definition(jax_single):
    for where, wanted in [(np.arange(20.0), False), (np.arange(20) / 3, True)]:
        call = checked(*single((), 20, 20), query_positions=where, key_positions=where)
        assert tiled.at_once(call) == wanted


def test_prefilled_caches_attend_in_tiles(jax_single):
    layer = ours.MultiHeadAttention.init(
        KEY, 16, HEADS, num_kv_heads=2, bias=ours.ALiBi(HEADS)
    )
    cache = ours.KVCache.init((2,), 2, 256, 4)
    x = jnp.asarray(draw(1, 2, 20, 16), "float32")
    for option, mask in [(None, None), (ours.Window(3), ours.window_mask(20, 20, 3))]:
        got, _ = layer(x, cache=cache, mask=option)
        assert error(got, layer(x, mask=mask, causal=True)) < BOUND["float32"]
    x = jnp.ones((2, 256, 16))
    program = jax.make_jaxpr(lambda x: layer(x, cache=cache)[0])(x)
    assert max(sizes(program.jaxpr)) < 256 * 256
