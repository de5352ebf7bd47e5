"""Equinox, `RotaryPositionalEmbedding` and `MultiheadAttention`: one example, tokens before heads."""

import equinox as eqx
import jax
import numpy as np
from equinox.nn import MultiheadAttention, RotaryPositionalEmbedding

INSTALL = ["numpy==2.4.6", "jax==0.10.2", "equinox==0.13.8"]


def _layer(**options):
    made = MultiheadAttention(1, 16, key=jax.random.key(0), **options)
    names = "query_proj", "key_proj", "value_proj", "output_proj"
    weights = [np.eye(16, dtype="f4")] * 4  # so it projects nothing
    return eqx.tree_at(
        lambda layer: [getattr(layer, name).weight for name in names], made, weights
    )


def _attend(query, key, value, mask=None):
    heads = jax.vmap(jax.vmap(lambda q, k, v: _layer()(q, k, v, mask=mask)))
    return heads(query, key, value)


PROBES = {
    "empty_row": lambda query, key, value, empty: _attend(query, key, value, mask=empty[0, 0]),
    "true": lambda query, key, value, mask: _attend(query, key, value, mask=mask[0, 0]),
    "scale": lambda query, key, value: _attend(query, key, value),
    "rotated": lambda x: jax.vmap(jax.vmap(RotaryPositionalEmbedding(16)))(x),
}  # fmt: skip


def distant(x, far):
    tables = RotaryPositionalEmbedding.precompute_freqs_cis(
        16, far[0] + 1, 10000.0, x.dtype
    )
    cos, sin = (np.tile(table[far], 2) for table in tables)
    half = np.concatenate([-x[..., 8:], x[..., :8]], -1)
    return x * cos + half * sin


def padded(x):
    layer, batch = _layer(), 2 * x[0, 0]
    mask = np.tile(np.arange(6) >= 2, (6, 1))
    return layer(*[batch[2:]] * 3), layer(*[batch] * 3, mask=mask)[2:]


def two_bases():
    """Two rotations of one width share the angles of whichever was called first, whatever their `theta`."""
    x = np.array([[0.0, 1.0, 0.0, 0.0]] * 2, "float32")
    first, second = (RotaryPositionalEmbedding(4, theta=base) for base in (1e4, 1e2))
    print(f"theta 10000: {first(x)[1, 3]:.4f}, sin(1/100) is {np.sin(1 / 100):.4f}")
    print(f"theta   100: {second(x)[1, 3]:.4f}, sin(1/10)  is {np.sin(1 / 10):.4f}")


def no_positions():
    """`RotaryPositionalEmbedding` takes no positions."""
    import inspect

    print("it takes", *inspect.signature(RotaryPositionalEmbedding(8)).parameters)


def any_field():
    """Equinox looks for weights in every field."""

    class Block(eqx.Module):
        layer: dict

    block = Block({"weight": np.ones(2)})
    print(
        "weights found:", len(jax.tree.leaves(eqx.filter(block, eqx.is_inexact_array_like)))
    )
