"""Flax, `nnx.dot_product_attention` and `nnx.MultiHeadAttention`: tokens before heads."""

import numpy as np
from flax import nnx

INSTALL = ["numpy==2.4.6", "jax==0.10.2", "flax==0.12.8"]


def _attend(*arrays, **options):
    query, key, value = (array.swapaxes(1, 2) for array in arrays)
    return np.swapaxes(nnx.dot_product_attention(query, key, value, **options), 1, 2)


def _layer(x, **options):
    return nnx.MultiHeadAttention(2, x.shape[-1], rngs=nnx.Rngs(0), decode=False, **options)


def _decode(layer, x, **options):
    layer.init_cache(x.shape)
    tokens = np.split(x, x.shape[1], axis=1)
    return np.concatenate([layer(token, decode=True, **options) for token in tokens], 1)


PROBES = {
    "causal": lambda last, key, value: _attend(last, key, value, is_causal=True),
    "empty_row": lambda query, key, value, empty: _attend(query, key, value, mask=empty),
    "true": lambda query, key, value, mask: _attend(query, key, value, mask=mask),
    "scale": lambda query, key, value: _attend(query, key, value),
}


def padded(x):
    layer, pads = _layer(x), np.arange(6) >= 2
    batch = 4 * x[0]
    return layer(batch[:, 2:]), layer(batch, mask=pads[None, None, None])[:, 2:]


def cached(x):
    layer, batch = _layer(x), 4 * x[0]
    return layer(batch, mask=nnx.make_causal_mask(batch[..., 0])), _decode(layer, batch)


def decode_with_is_causal():
    """With `is_causal=True`, `nnx.MultiHeadAttention` shows every decoded token only the first key."""
    x = 4 * np.random.default_rng(0).normal(size=(1, 6, 16)).astype("float32")
    layer = _layer(x)
    once = layer(x, is_causal=True)
    off = abs(_decode(layer, x, is_causal=True) - once).max(-1)[0]
    print("largest difference from one pass, token by token:", *(f"{d:.1f}" for d in off))


def what_is_trained():
    """An optimizer over `nnx.Param` sees only what is an `nnx.Param`."""

    class Block(nnx.Module):
        def __init__(self):
            self.plain = nnx.data({"weight": np.ones(2)})
            self.trained = nnx.data({"weight": nnx.Param(np.ones(2))})

    print("seen:", *dict(nnx.state(Block(), nnx.Param)))
