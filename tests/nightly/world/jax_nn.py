"""JAX, `jax.nn.dot_product_attention`: tokens before heads."""

import jax
import numpy as np
from jax.nn import dot_product_attention

INSTALL = ["numpy==2.4.6", "jax==0.10.2"]


def _attend(*arrays, **options):
    query, key, value = (array.swapaxes(1, 2) for array in arrays)
    return np.swapaxes(dot_product_attention(query, key, value, **options), 1, 2)


PROBES = {
    "causal": lambda last, key, value: _attend(last, key, value, is_causal=True),
    "empty_row": lambda query, key, value, empty: _attend(query, key, value, mask=empty),
    "true": lambda query, key, value, mask: _attend(query, key, value, mask=mask),
    "scale": lambda query, key, value: _attend(query, key, value),
}


def sliding(query, key, value, window):
    return _attend(query, key, value, is_causal=True, local_window_size=window)


def groups():
    """With fewer heads of keys than of queries, `jax.nn.dot_product_attention` groups the queries."""
    query, key = np.ones((1, 2, 4, 8)), np.ones((1, 2, 2, 8))
    value = key * np.arange(2.0)[:, None]
    out = dot_product_attention(query, key, value)
    print("heads of values that four heads of queries read:", *out[0, 0, :, 0].astype(int))


def float64():
    """JAX makes float32 of float64 unless it is told otherwise."""
    import jax.numpy as jnp

    print(jnp.asarray(np.ones(1, "float64")).dtype)


def softmax():
    """`jax.nn.dot_product_attention` computes its softmax in float32, also of float64."""
    with jax.enable_x64(True):
        query = np.random.default_rng(0).normal(size=(1, 6, 1, 6))
        weights = dot_product_attention(query, query, np.eye(6)[None, :, None])
    print(weights.dtype, "with digits of float32:", (weights == np.float32(weights)).all())
