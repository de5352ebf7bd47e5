"""The cache of the JAX column, as a decoder uses it: under jit, in a scan, with biases that read content."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posattn import jax as ours
from tests.conftest import BOUND, draw, error

N, DIM, HEADS, WIDTH = 9, 8, 4, 2
KEY = jax.random.key(0)
ROTARY = {"rotate": ours.Rotary()}
SCHEMES = {
    "xPos": {"rotate": (ours.xpos_query, ours.xpos_key)},
    "Shaw": {"bias": ours.ShawRelative.init(KEY, 4, WIDTH)},
    "Music": {"bias": ours.RelativeGlobalAttention.init(KEY, N, HEADS, WIDTH)},
    "Transformer-XL": {"bias": ours.TransformerXLBias.init(KEY, DIM, HEADS)},
    "CoPE": {"bias": ours.CoPE.init(KEY, 6, WIDTH)},
    "two": {"rotate": ours.Rotary(), "bias": (ours.ALiBi(HEADS), ours.FIRE.init(KEY, HEADS))},
}  # fmt: skip

pytestmark = pytest.mark.usefixtures("unchecked")


def layer_of(scheme, **options):
    return ours.MultiHeadAttention.init(KEY, DIM, HEADS, use_bias=True, **scheme, **options)


def tokens():
    return jnp.asarray(draw(7, 2, N, DIM), "float32")


def room(max_len=N, **options):
    return ours.KVCache.init((2,), HEADS, max_len, WIDTH, **options)


def decoded(layer, x, cache, step):
    """The outputs of a sequence that enters the cache in one chunk and then token by token."""
    out, cache = layer(x[..., :4, :], cache=cache)
    outs = [out]
    for i in range(4, x.shape[-2]):
        out, cache = step(layer, x[..., i : i + 1, :], cache)
        outs.append(out)
    return jnp.concatenate(outs, axis=-2), cache


def close(got, want):
    return error(np.asarray(got), np.asarray(want)) <= BOUND["float32"]


@pytest.mark.parametrize("name", SCHEMES)
def test_one_program_of_a_step_serves_all_of_them(name):
    layer, x, traces = layer_of(SCHEMES[name]), tokens(), []
    step = jax.jit(lambda layer, x, cache: traces.append(1) or layer(x, cache=cache))
    got, cache = decoded(layer, x, room(N + 3), step)
    assert close(got, layer(x, causal=True))
    assert np.array_equal(cache.next_positions(2), [[N, N + 1]] * 2)
    assert len(traces) == 1


def test_keys_may_be_kept_as_they_are():
    layer, x = layer_of(ROTARY), tokens()
    _, cache = layer(x, cache=room(rotated=False))
    plain = x @ layer.key_weight + layer.key_bias
    assert close(cache.key, ours.split_heads(plain, HEADS))


@pytest.mark.parametrize("window", [None, 3])
def test_a_scan_decodes(window):
    layer, x, cache = layer_of(ROTARY), tokens(), room(window=window)
    assert cache.key.shape == (2, HEADS, window or N, WIDTH)

    def step(cache, token):
        out, cache = layer(token[:, None], cache=cache)
        return cache, out[:, 0]

    end, outs = jax.lax.scan(step, cache, x.swapaxes(0, 1))
    mask = None if window is None else ours.window_mask(N, N, window)
    assert close(outs.swapaxes(0, 1), layer(x, causal=True, mask=mask))
    assert jax.tree.structure(end) == jax.tree.structure(cache)


def test_buffers_that_are_given_away_are_written_in_place():
    layer, x, cache = layer_of(ROTARY), tokens(), room()
    step = jax.jit(lambda x, cache: layer(x, cache=cache), donate_argnums=1)
    place = cache.key.unsafe_buffer_pointer()
    _, new = step(x[:, :1], cache)
    assert cache.key.is_deleted()
    assert new.key.unsafe_buffer_pointer() == place


@pytest.mark.parametrize("window", [None, 9])
def test_a_token_without_a_slot_is_an_error_or_nan_and_is_not_stored(window):
    layer, x, cache = layer_of(ROTARY), tokens(), room(4, window=window)
    with pytest.raises(ValueError, match="room for all tokens, max_len = 4, got 5"):
        layer(x[:, :5], cache=cache)
    out, full = jax.jit(layer)(x[:, :5], cache=cache)
    assert close(out[:, :4], layer(x[:, :4], causal=True))
    assert np.isnan(out[:, 4]).all()
    assert np.array_equal(full.positions, [range(4)] * 2)
    assert np.isfinite(full.key).all()


def test_a_cache_has_the_dtype_of_the_layer():
    layer, x = layer_of(ROTARY, dtype="bfloat16"), tokens().astype("bfloat16")
    got, cache = layer(x, cache=room(dtype="bfloat16"))
    assert got.dtype == cache.key.dtype == jnp.bfloat16
    with pytest.raises(TypeError, match="dtype of the cache, float32"):
        layer(x, cache=room())


def test_gradients_pass_through_a_cache():
    layer, x = layer_of(SCHEMES["two"]), tokens()[:, :6]

    def stepwise(layer):
        return decoded(layer, x, room(), lambda layer, x, cache: layer(x, cache=cache))[0]

    def loss(run, layer):
        return jnp.sum(run(layer) ** 2)

    got = jax.grad(partial(loss, stepwise))(layer)
    want = jax.grad(partial(loss, lambda layer: layer(x, causal=True)))(layer)
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert error(np.asarray(a), np.asarray(b)) <= 2e-5
