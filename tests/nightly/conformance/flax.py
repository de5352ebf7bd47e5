"""Flax: its attention, with a mask or a bias."""

import jax.numpy as jnp
from flax.linen import dot_product_attention

from tests.nightly.conformance.adapting import NAN_LEAKS, against, because


@NAN_LEAKS
def nan():
    values = jnp.array([1.0, jnp.nan]).reshape(1, 2, 1, 1)
    mask = jnp.array([[[[True, False]]]])
    print(dot_product_attention(values[:, :1], values, values, mask=mask), "for 1")


@because("one of them 0", "one length per query", whose="convention",
         why="a query that may attend to nothing gets the mean of all values; we ask for zero")  # fmt: skip
def empty():
    values = jnp.array([0.0, 1.0]).reshape(1, 2, 1, 1)
    mask = jnp.array([[[[False, False]]]])
    print(dot_product_attention(values[:, :1], values, values, mask=mask), "for 0")


@against("attention", nan, empty, framework="jax")
def masked(query, key, value, *, mask=None, bias=None):
    """`flax.linen.dot_product_attention`."""
    heads = [
        x[:, :, None] if x.ndim == 3 else x.swapaxes(1, 2) for x in (query, key, value)
    ]
    mask = mask if mask is None or mask.ndim == 4 else mask[:, None]
    bias = None if bias is None else bias[:, None]
    out = dot_product_attention(*heads, mask=mask, bias=bias)
    return out[:, :, 0] if query.ndim == 3 else out.swapaxes(1, 2)
