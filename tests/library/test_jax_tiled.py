"""Attention in tiles: equal to the definition, with no array of all pairs."""

import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from jax.extend.core import ClosedJaxpr, Jaxpr

from posattn import jax as ours
from posattn import reference
from posattn.jax.attention import tiled
from posattn.jax.attention.call import checked
from tests.conftest import BOUND, REFERENCE, TWINS, assert_twin_agrees, draw, error

HEADS, WIDTH, KEY = 4, 6, jax.random.key(0)
COLUMNS = [twin for twin in TWINS if twin.name == "jax"]
PRECISE, HALF = (
    [twin for twin in COLUMNS if twin.dtype == d] for d in ("float64", "bfloat16")
)


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch, unchecked):
    """Tiles of 16 at most, for sequences of any length."""
    for name, value in {"SMALL": 0, "SIDE": 16, "TILE": 2**11}.items():
        monkeypatch.setattr(tiled, name, value)


def arrays(seed, batch, n_q, n_k, kv_heads=2):
    """Queries, keys and values, whose width is another one."""
    shapes = (HEADS, n_q, WIDTH), (kv_heads, n_k, WIDTH), (kv_heads, n_k, 5)
    return [draw(seed + i, *batch, *shape) for i, shape in enumerate(shapes)]


def attend(column, query, key, value, **options):
    return column.scaled_dot_product_attention(query, key, value, **options)


@st.composite
def problems(draw_from):
    """Sizes, which queries see which keys, and where they stand."""
    batch = draw_from(st.sampled_from([(), (2,), (1, 3)]))
    n_q, n_k = draw_from(st.integers(1, 40)), draw_from(st.integers(1, 40))
    shape = draw_from(st.sampled_from([(n_q, n_k), (1, n_k), (*batch, HEADS, n_q, n_k)]))
    kind = draw_from(st.sampled_from(["none", "window", "random"]))
    mask = None
    if kind == "window":
        mask = reference.window_mask(n_q, n_k, 5)
    elif kind == "random":
        mask = np.random.default_rng(n_q).random(shape) < 0.5
        mask[..., 0, :] = False  # one that attends to nothing
    return batch, n_q, n_k, mask, draw_from(st.booleans()), draw_from(st.integers(0, 9))


def learned(problem):
    """Attention with biases that learn, as a function of a column and arrays, and the arrays."""
    batch, n_q, n_k, mask, causal, start = problem

    def run(column, query, key, value, slopes, table):
        where = {
            "query_positions": column.positions(np.arange(start, start + n_q)),
            "key_positions": column.positions(np.arange(n_k)),
        }
        seen = None if mask is None else column.array(mask)
        t5 = column.with_parameters("T5Bias", {"table": table}, HEADS)
        options = {"mask": seen, "causal": causal, "bias": [slopes, t5]}
        return attend(column, query, key, value, **options, **where)

    return run, (*arrays(1, batch, n_q, n_k), draw(7, HEADS, 1, n_k), draw(8, 32, HEADS))


@pytest.mark.slow
@pytest.mark.parametrize("column", PRECISE, ids=str)
@settings(max_examples=4)
@given(problem=problems())
@example(problem=((2,), 33, 40, reference.window_mask(33, 40, 5), True, 3))
@example(problem=((), 48, 17, None, True, 0))
def test_tiles_give_what_the_reference_gives(column, problem):
    with column.mode():
        run, inputs = learned(problem)
        assert_twin_agrees(column, run, *inputs)


@pytest.mark.slow
@pytest.mark.parametrize("column", HALF, ids=str)
@settings(max_examples=2)
@given(problem=problems())
def test_half_precision_loses_what_rounding_loses(column, problem):
    run, inputs = learned(problem)
    (precise,) = (twin for twin in PRECISE if twin.name == column.name)
    found = []
    for twin in (column, precise):
        with twin.mode():
            value, gradients = twin.value_and_gradients(partial(run, twin), inputs)
        found.append([value, *gradients])
    assert error(found[0][0], run(REFERENCE, *inputs)) <= BOUND["bfloat16"]
    for got, want in zip(*found, strict=True):
        assert error(got, want) <= BOUND["bfloat16"]


SCHEMES = {
    "ALiBi": lambda: ours.ALiBi(HEADS),
    "function": lambda: lambda q, k: jnp.cos(q[:, None] - 2.0 * k),
    "method": lambda: ours.ALiBi(HEADS).__call__,
    "rows and columns": lambda: [draw(5, 1, 40).astype("f"), draw(6, HEADS, 35, 40)],
    "Transformer-XL": lambda: ours.TransformerXLBias.init(KEY, HEADS * WIDTH, HEADS),
    "DAPE": lambda: ours.DAPE.init(KEY, HEADS, ours.ALiBi(HEADS)),
    "Shaw": lambda: ours.ShawRelative.init(KEY, 4, WIDTH, use_values=False),
    "CoPE": lambda: ours.CoPE.init(KEY, 9, WIDTH),
    "stick": lambda: ours.StickBreaking(),
    "FoX": lambda: ours.tiled_forgetting_bias(-(draw(9, HEADS, 40).astype("f") ** 2)),
    "plugged": lambda: ours.MultiHeadAttention.init(
        KEY, 8, 2, bias=lambda q, k: 0.1 * (k - q[:, None])
    ).bias,
}  # fmt: skip


def value_and_gradients(function, *inputs):
    """What a function returns and its gradients, all in one program."""

    def run(*inputs):
        value, pull_back = jax.vjp(function, *inputs)
        return value, *pull_back(jnp.cos(jnp.arange(value.size * 1.0)).reshape(value.shape))

    return jax.jit(run)(*inputs)


@pytest.mark.slow
@pytest.mark.parametrize("name", SCHEMES)
def test_each_kind_of_bias_gives_what_the_definition_gives(jax_single, monkeypatch, name):
    bias = SCHEMES[name]()
    inputs = [jnp.asarray(x, "float32") for x in arrays(1, (), 35, 40)[:2]]

    def run(query, key):
        return attend(ours, query, key, key, bias=bias, causal=True)

    got = value_and_gradients(run, *inputs)
    monkeypatch.setattr(tiled, "SMALL", 10**9)
    for x, y in zip(got, value_and_gradients(run, *inputs), strict=True):
        assert error(x, y) <= BOUND["float32"]


@pytest.mark.slow
def test_gradients_reach_what_a_function_encloses(jax_single, monkeypatch):
    inputs = [jnp.asarray(x, "float32") for x in arrays(1, (), 20, 20)]

    def run(slope, places):
        def bias(query, key):
            return -slope * abs(key - query[:, None])

        options = {"bias": bias, "query_positions": places, "key_positions": places}
        return attend(ours, *inputs, **options)

    at = jnp.float32(0.5), jnp.linspace(0, 3, 20)
    got = value_and_gradients(run, *at)
    monkeypatch.setattr(tiled, "SMALL", 10**9)
    for x, y in zip(got, value_and_gradients(run, *at), strict=True):
        assert error(x, y) <= 2 * BOUND["float32"]  # each may be off by one of it


def packed(query_positions, key_positions):
    """Texts of 100 positions at most, in one row."""
    return query_positions[..., :, None] // 100 == key_positions[..., None, :] // 100


def by_head(query_positions, key_positions):
    """A window for each head."""
    distance = abs(key_positions[..., None, :] - query_positions[..., :, None])
    return distance < jnp.array([1, 5, 9, 40])[:, None, None]


MASKS = {"window": ours.Window(5), "packed": packed, "by head": by_head}
BIASES = {"tiles": ours.ALiBi(HEADS), "rows": ours.StickBreaking()}


@pytest.mark.slow
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("bias", BIASES)
@pytest.mark.parametrize(("mask", "batch"), [*((m, ()) for m in MASKS), ("window", (2,))])
def test_masks_may_be_functions_of_positions(
    jax_single, monkeypatch, mask, batch, bias, causal
):
    mask, bias = MASKS[mask], BIASES[bias]
    inputs = [jnp.asarray(x, "float32") for x in arrays(1, batch, 35, 40)]
    start = jnp.arange(math.prod(batch)).reshape(*batch, 1)  # each row begins elsewhere
    places = start + jnp.where(jnp.arange(40) < 17, jnp.arange(40), jnp.arange(40) + 90)
    where = {"query_positions": places[..., 5:], "key_positions": places}

    def run(mask, *inputs):
        return attend(ours, *inputs, mask=mask, bias=bias, causal=causal, **where)

    got = value_and_gradients(partial(run, mask), *inputs)
    monkeypatch.setattr(tiled, "SMALL", 10**9)
    pairs = mask(places[..., 5:], places)
    pairs = pairs[:, None] if batch else pairs
    for seen in (mask, pairs):  # the definition itself, too
        want = value_and_gradients(partial(run, seen), *inputs)
        for x, y in zip(got, want, strict=True):
            assert error(x, y) <= BOUND["float32"]


@pytest.mark.slow
def test_masks_may_be_functions_of_what_is_mapped_over(jax_single):
    x = jnp.asarray(draw(1, 3, 2, 40, WIDTH), "float32")
    texts = jnp.asarray(np.sort(np.random.default_rng(0).integers(0, 3, (3, 40))))

    def run(x, text):
        def same(query_positions, key_positions):
            return text[query_positions][:, None] == text[key_positions]

        return attend(ours, x, x, x, mask=same)

    @jax.jit
    def mapped(x):
        return jax.vmap(run)(x, texts)

    got = value_and_gradients(mapped, x)
    pairs = (texts[:, :, None] == texts[:, None])[:, None]
    want = value_and_gradients(lambda x: attend(ours, x, x, x, mask=pairs), x)
    for a, b in zip(got, want, strict=True):
        assert error(a, b) <= BOUND["float32"]


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


@pytest.mark.parametrize(
    ("mask", "text"),
    [
        (lambda q, k: q[:, None] - k, "must be bool .* got int32"),
        (
            lambda q, k: jnp.ones((3, 40), bool),
            r"must have .* broadcasts to \(4, 1, 40\), got \(3, 40\)",
        ),
        (lambda q, k: None, "must be an array, got NoneType"),
    ],
)
def test_a_function_that_is_no_mask_is_named(jax_single, mask, text):
    inputs = [jnp.asarray(x, "float32") for x in arrays(1, (), 20, 40)]
    with pytest.raises((TypeError, ValueError), match="mask " + text):
        attend(ours, *inputs, mask=mask)


@pytest.mark.slow
@pytest.mark.parametrize("function", [False, True], ids=["array", "function"])
@pytest.mark.parametrize("bias", [None, ours.StickBreaking()], ids=["tiles", "rows"])
def test_what_nobody_attends_to_reaches_nothing(jax_single, bias, function):
    query, key, value = (jnp.asarray(x, "float32") for x in arrays(1, (), 20, 40))
    mask = (jnp.arange(40) != 35) & (jnp.arange(20) != 4)[:, None]
    if function:
        mask = lambda q, k: (k != 35) & (q[:, None] != 24)  # noqa: E731
    nan = [query, *(x.at[:, 35].set(jnp.nan) for x in (key, value))]

    def run(*inputs):
        return attend(ours, *inputs, mask=mask, bias=bias)

    value, d_query, d_key, d_value = value_and_gradients(run, *nan)
    hidden = value[:, 4], d_query[:, 4], d_key[:, 35], d_value[:, 35]
    assert all(np.all(x == 0) for x in hidden)
    clean = value_and_gradients(run, query, *(jnp.nan_to_num(x) for x in nan[1:]))
    assert all(map(np.array_equal, (value, d_query, d_key, d_value), clean))


@pytest.mark.slow
def test_rows_draw_what_they_drop_for_themselves(jax_single):
    ones = jnp.ones((HEADS, 40, WIDTH))

    def run(value):
        return attend(ours, ones, ones, value, dropout_rate=0.5, rng=KEY)

    value, gradient = value_and_gradients(run, ones)
    assert np.array_equal(value, run(ones))
    assert len(np.unique(value[0, :, 0])) > 10
    assert abs(value.mean() - 1) < 0.05
    kept = jax.vjp(run, ones)[1](ones)[0]  # what is recomputed drops the same
    assert abs(kept.sum() - value.sum()) < 1e-2
    assert np.isfinite(gradient).all()


@pytest.mark.slow
def test_tiles_may_be_mapped_and_scanned(jax_single):
    x = jnp.asarray(draw(1, 3, 2, 20, WIDTH), "float32")

    def run(x):
        return attend(ours, x, x, x, causal=True, bias=ours.ALiBi(2))

    whole, gradient = value_and_gradients(run, x)
    mapped, of_mapped = value_and_gradients(jax.vmap(run), x)
    _, scanned = jax.lax.scan(lambda _, x: (None, run(x)), None, x)
    assert error(mapped, whole) + error(scanned, whole) < BOUND["float32"]
    assert error(of_mapped, gradient) < BOUND["float32"]


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


@pytest.mark.parametrize("mask", [None, ours.Window(9)], ids=["all", "window"])
@pytest.mark.parametrize(
    "bias",
    [None, ours.ALiBi(HEADS), ours.CoPE.init(KEY, 9, WIDTH)],
    ids=["none", "ALiBi", "CoPE"],
)
def test_no_array_holds_all_pairs(jax_single, bias, mask):
    n = 512
    shapes = [jax.ShapeDtypeStruct(x.shape, "float32") for x in arrays(1, (), n, n)]

    def run(*inputs):
        value, pull_back = jax.vjp(
            lambda *xs: attend(ours, *xs, mask=mask, causal=True, bias=bias), *inputs
        )
        return pull_back(value)

    most = max(sizes(jax.make_jaxpr(run)(*shapes).jaxpr))
    assert HEADS * n * WIDTH <= most < n * n / 4


def test_a_bias_that_does_not_fit_is_named(jax_single):
    inputs = [jnp.asarray(x, "float32") for x in arrays(1, (), 20, 40)]
    with pytest.raises(ValueError, match="bias must have a shape that broadcasts to"):
        attend(ours, *inputs, bias=jnp.zeros((3, 20, 40)))
    with pytest.raises(ValueError, match="bias must have a shape that broadcasts to"):
        attend(ours, *inputs, bias=ours.ALiBi(3))


def test_positions_that_need_64_bits_keep_the_definition(jax_single):
    inputs = [jnp.asarray(x, "float32") for x in arrays(1, (), 20, 20)]
    whole, third = np.arange(20.0), np.arange(20) / 3
    for where, wanted in [(whole, False), (third, True), (jnp.asarray(third), False)]:
        call = checked(*inputs, query_positions=where, key_positions=where)
        assert tiled.at_once(call) == wanted


@pytest.mark.slow
def test_prefilled_caches_attend_in_tiles(jax_single, monkeypatch):
    layer = ours.MultiHeadAttention.init(
        KEY, 16, HEADS, num_kv_heads=2, bias=ours.ALiBi(HEADS)
    )
    cache = ours.KVCache.init((2,), 2, 40, 4)
    x = jnp.asarray(draw(1, 2, 20, 16), "float32")
    got, _ = layer(x, cache=cache)
    near, _ = layer(x, cache=cache, mask=ours.Window(3))
    monkeypatch.setattr(tiled, "SMALL", 10**9)
    want, _ = layer(x, cache=cache)
    assert error(got, want) < BOUND["float32"]
    want = layer(x, mask=ours.window_mask(20, 20, 3), causal=True)
    assert error(near, want) < BOUND["float32"]


def test_a_prefill_holds_no_array_of_all_slots(jax_single):
    n = 256
    layer = ours.MultiHeadAttention.init(KEY, 16, 2)
    cache = ours.KVCache.init((), 2, n, 8)
    program = jax.make_jaxpr(lambda x: layer(x, cache=cache)[0])(jnp.ones((n, 16)))
    assert 2 * n * 8 <= max(sizes(program.jaxpr)) < n * n / 4
