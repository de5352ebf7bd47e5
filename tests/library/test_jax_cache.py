"""The cache of the JAX column, as a decoder uses it: under jit, in a scan, padded, with a window."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posattn import jax as ours
from tests.conftest import BOUND, draw, error

N, DIM, HEADS, WIDTH = 9, 8, 4, 2
KEY = jax.random.key(0)
SCHEMES = {
    "none": {},
    "rotary": {"rotate": ours.Rotary()},
    "half": {"rotate": ours.Rotary(layout="half", rotary_dim=2)},
    "xPos": {"rotate": (ours.xpos_query, ours.xpos_key)},
    "ALiBi": {"bias": ours.ALiBi(HEADS)},
    "T5": {"bias": ours.T5Bias.init(KEY, HEADS, bidirectional=False)},
    "KERPLE": {"bias": ours.KerpleLog.init(KEY, HEADS)},
    "FIRE": {"bias": ours.FIRE.init(KEY, HEADS)},
    "Shaw": {"bias": ours.ShawRelative.init(KEY, 4, WIDTH)},
    "Music": {"bias": ours.RelativeGlobalAttention.init(KEY, N, HEADS, WIDTH)},
    "Transformer-XL": {"bias": ours.TransformerXLBias.init(KEY, DIM, HEADS)},
    "CoPE": {"bias": ours.CoPE.init(KEY, 6, WIDTH)},
    "two": {"rotate": ours.Rotary(), "bias": (ours.ALiBi(HEADS), ours.T5Bias.init(KEY, HEADS))},
}  # fmt: skip


def layer_of(scheme, **options):
    return ours.MultiHeadAttention.init(KEY, DIM, HEADS, use_bias=True, **scheme, **options)


def tokens(*batch, n=N):
    return jnp.asarray(draw(7, *batch, n, DIM), "float32")


@jax.jit
def stepped(layer, x, cache):
    """One token, compiled once for all tests with such a layer and cache."""
    return layer(x, cache=cache)


def decoded(layer, x, cache, *, first=4, step=stepped):
    """The outputs of a sequence that enters the cache in one chunk and then token by token."""
    out, cache = layer(x[..., :first, :], cache=cache)
    outs = [out]
    for i in range(first, x.shape[-2]):
        out, cache = step(layer, x[..., i : i + 1, :], cache)
        outs.append(out)
    return jnp.concatenate(outs, axis=-2), cache


def close(got, want):
    return error(np.asarray(got), np.asarray(want)) <= BOUND["float32"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "shared"), [*((name, 2) for name in SCHEMES), ("two", HEADS), ("Shaw", 1)]
)
def test_prefill_and_steps_are_the_whole_sequence(unchecked, name, shared):
    layer = layer_of(SCHEMES[name], num_kv_heads=shared)
    x = tokens(2)
    cache = ours.KVCache.init((2,), shared, N + 3, WIDTH)
    got, cache = decoded(layer, x, cache)
    assert close(got, layer(x, causal=True))
    assert np.array_equal(cache.next_positions(2), [[N, N + 1]] * 2)


@pytest.mark.slow
@pytest.mark.parametrize("first", [1, 2, 8])
@pytest.mark.parametrize(
    ("name", "rotated"),
    [("rotary", True), ("rotary", False), ("ALiBi", True), ("Shaw", True)],
)
def test_a_window_holds_what_a_query_sees(unchecked, name, rotated, first):
    layer, x = layer_of(SCHEMES[name]), tokens(2)
    cache = ours.KVCache.init((2,), HEADS, 99, WIDTH, window=3, rotated=rotated)
    assert cache.key.shape == (2, HEADS, 3, WIDTH)
    got, _ = decoded(layer, x, cache, first=first)
    assert close(got, layer(x, causal=True, mask=ours.window_mask(N, N, 3)))


@pytest.mark.slow
def test_a_window_larger_than_the_cache_still_ends_with_it(unchecked):
    layer, x = layer_of(SCHEMES["rotary"]), tokens(1)
    cache = ours.KVCache.init((1,), HEADS, N, WIDTH, window=2 * N)
    got, cache = decoded(layer, x, cache)
    assert close(got, layer(x, causal=True))
    with pytest.raises(ValueError, match=f"must be less than max_len = {N}"):
        layer(x[:, :1], cache=cache)


@pytest.mark.slow
def test_keys_may_be_turned_at_each_call(unchecked):
    layer, x = layer_of(SCHEMES["rotary"]), tokens(2)
    got, cache = decoded(layer, x, ours.KVCache.init((2,), HEADS, N, WIDTH, rotated=False))
    assert close(got, layer(x, causal=True))
    plain = x @ layer.key_weight + layer.key_bias
    assert close(cache.key, ours.split_heads(plain, HEADS))


@pytest.mark.slow
@pytest.mark.parametrize("window", [None, 3])
@pytest.mark.parametrize("side", ["left", "right"])
def test_rows_may_have_lengths_of_their_own(unchecked, side, window):
    layer, x = layer_of(SCHEMES["two"]), tokens(2)
    lengths, n = [5, 2], 5
    positions = np.full((2, n), -1)
    rows = np.array(x[:, :n])
    for row, length in enumerate(lengths):
        place = slice(n - length, n) if side == "left" else slice(length)
        positions[row, place] = np.arange(length)
        rows[row] = np.nan
        rows[row, place] = x[row, :length]
    cache = ours.KVCache.init((2,), HEADS, N, WIDTH, window=window)
    outs, cache = layer(
        jnp.asarray(rows), cache=cache, query_positions=jnp.asarray(positions)
    )
    one, _ = jax.jit(layer)(x[:, 5:6], cache=cache)
    for row, length in enumerate(lengths):
        alone = jnp.concatenate([x[row, :length], x[row, 5:6]])
        mask = None if window is None else ours.window_mask(length + 1, length + 1, window)
        want = layer(alone, causal=True, mask=mask)
        assert close(outs[row][positions[row] >= 0], want[:-1])
        assert close(one[row], want[-1:])


@pytest.mark.slow
def test_one_compilation_serves_all_steps(unchecked):
    layer, x = layer_of(SCHEMES["two"]), tokens(2)
    traces = []
    step = jax.jit(lambda layer, x, cache: traces.append(1) or layer(x, cache=cache))
    decoded(layer, x, ours.KVCache.init((2,), HEADS, N, WIDTH), step=step)
    decoded(
        layer_of(SCHEMES["two"]), x, ours.KVCache.init((2,), HEADS, N, WIDTH), step=step
    )
    assert len(traces) == 1


@pytest.mark.parametrize("window", [None, 3])
def test_a_scan_decodes(unchecked, window):
    layer, x = layer_of(SCHEMES["rotary"]), tokens(2)
    cache = ours.KVCache.init((2,), HEADS, N, WIDTH, window=window)

    def step(cache, token):
        out, cache = layer(token[:, None], cache=cache)
        return cache, out[:, 0]

    end, outs = jax.lax.scan(step, cache, x.swapaxes(0, 1))
    mask = None if window is None else ours.window_mask(N, N, window)
    assert close(outs.swapaxes(0, 1), layer(x, causal=True, mask=mask))
    assert jax.tree.structure(end) == jax.tree.structure(cache)


def test_buffers_that_are_given_away_are_written_in_place(unchecked):
    layer, x = layer_of(SCHEMES["rotary"]), tokens(2)
    cache = ours.KVCache.init((2,), HEADS, N, WIDTH)
    step = jax.jit(lambda x, cache: layer(x, cache=cache), donate_argnums=1)
    place = cache.key.unsafe_buffer_pointer()
    _, new = step(x[:, :1], cache)
    assert cache.key.is_deleted()
    assert new.key.unsafe_buffer_pointer() == place


@pytest.mark.slow
def test_a_token_without_a_slot_is_an_error_or_nan_and_is_not_stored(unchecked):
    layer, x = layer_of(SCHEMES["rotary"]), tokens(2)
    cache = ours.KVCache.init((2,), HEADS, 4, WIDTH)
    message = "must be less than max_len = 4 of the cache, got 4"
    with pytest.raises(ValueError, match=message):
        layer(x[:, :5], cache=cache)
    out, full = jax.jit(layer)(x[:, :5], cache=cache)
    assert close(out[:, :4], layer(x[:, :4], causal=True))
    assert np.isnan(out[:, 4]).all()
    assert np.array_equal(full.positions, [range(4)] * 2)
    assert np.isfinite(full.key).all()


@pytest.mark.slow
def test_a_mask_of_the_call_hides_slots(unchecked):
    layer, x = layer_of({}), tokens(2)
    cache = ours.KVCache.init((2,), HEADS, N, WIDTH)
    hidden = jnp.arange(N) != 1
    out, _ = layer(x, cache=cache, mask=hidden[None])
    assert close(out, layer(x, causal=True, mask=hidden[None]))
    each = jnp.broadcast_to(hidden, (2, HEADS, N, N))
    assert close(layer(x, cache=cache, mask=each)[0], out)


@pytest.mark.slow
def test_a_cache_takes_several_batch_axes_or_none(unchecked):
    layer = layer_of(SCHEMES["rotary"])
    for batch in [(), (2, 3)]:
        x = tokens(*batch)
        cache = ours.KVCache.init(batch, HEADS, N, WIDTH)
        got, _ = decoded(layer, x, cache)
        assert close(got, layer(x, causal=True))
        assert layer(x[..., :0, :], cache=cache)[0].shape == (*batch, 0, DIM)


@pytest.mark.slow
def test_a_cache_may_be_mapped_over(unchecked):
    layer, x = layer_of(SCHEMES["rotary"]), tokens(3)
    cache = ours.KVCache.init((3,), HEADS, N, WIDTH)
    out, _ = jax.vmap(lambda x, cache: layer(x, cache=cache))(x, cache)
    assert close(out, layer(x, causal=True))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_a_cache_has_the_dtype_of_the_layer(unchecked, dtype):
    layer = layer_of(SCHEMES["rotary"], dtype=dtype)
    x = tokens(2).astype(dtype)
    got, cache = decoded(layer, x, ours.KVCache.init((2,), HEADS, N, WIDTH, dtype=dtype))
    assert got.dtype == cache.key.dtype == jnp.dtype(dtype)
    want = layer(x, causal=True).astype("float32")
    assert error(np.asarray(got, "float32"), np.asarray(want)) <= BOUND["bfloat16"]
    with pytest.raises(TypeError, match="dtype of the cache, float32"):
        layer(x, cache=ours.KVCache.init((2,), HEADS, N, WIDTH))


def test_a_memory_of_its_own_and_a_cache_exclude_each_other(unchecked):
    layer, x = layer_of({}), tokens(2)
    with pytest.raises(
        ValueError, match=r"^key must be None where a cache is given, got shape \(2, 9, 8\)"
    ):
        layer(x, x, cache=ours.KVCache.init((2,), HEADS, N, WIDTH))


@pytest.mark.slow
def test_gradients_pass_through_a_cache(unchecked):
    layer, x = layer_of(SCHEMES["two"]), tokens(2)
    cache = ours.KVCache.init((2,), HEADS, N, WIDTH)

    def loss(run, layer):
        return jnp.sum(run(layer) ** 2)

    got = jax.grad(partial(loss, lambda layer: decoded(layer, x, cache)[0]))(layer)
    want = jax.grad(partial(loss, lambda layer: layer(x, causal=True)))(layer)
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert error(np.asarray(a), np.asarray(b)) <= 2e-5


@pytest.mark.slow
def test_of_a_chunk_longer_than_a_window_the_last_positions_stay():
    cache = ours.KVCache.init((), 1, 9, WIDTH, window=3)
    backwards = jnp.arange(6)[::-1]
    tokens = jnp.broadcast_to(backwards[:, None], (1, 6, WIDTH)).astype("float32")
    cache, _ = cache.append(tokens, tokens, backwards)
    assert np.array_equal(cache.positions, [3, 4, 5])
    assert np.array_equal(cache.key[0, :, 0], [3, 4, 5])
