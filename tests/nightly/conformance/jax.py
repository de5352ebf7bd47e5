"""JAX: its attention with masks and with `is_causal`."""

import jax
import jax.numpy as jnp
from jax.nn import dot_product_attention

from tests.nightly.conformance.adapting import NAN_LEAKS, against, because


@NAN_LEAKS
def nan():
    values = jnp.array([1.0, jnp.nan]).reshape(1, 2, 1, 1)
    mask = jnp.array([[[[True, False]]]])
    print(jax.nn.dot_product_attention(values[:, :1], values, values, mask=mask), "for 1")


@because("one of them 0", "one length per query", whose="convention",
         why="a query that may attend to nothing gets the mean of all values; we ask for zero")  # fmt: skip
def empty():
    values = jnp.array([0.0, 1.0]).reshape(1, 2, 1, 1)
    mask = jnp.array([[[[False, False]]]])
    print(jax.nn.dot_product_attention(values[:, :1], values, values, mask=mask), "for 0")


@because("queries at the end", "decoding one token", "more queries than keys",
         whose="convention",
         why="`is_causal` aligns the first query with the first key; we align the last ones")  # fmt: skip
def corner():
    values = jnp.array([0.0, 1.0]).reshape(1, 2, 1, 1)
    print(
        jax.nn.dot_product_attention(values[:, :1], values, values, is_causal=True),
        "for 0.5",
    )


def attend(query, key, value, scale=None, **options):
    """The attention of JAX: tokens before heads, and keys as wide as values."""
    heads = [
        x[:, :, None] if x.ndim == 3 else x.swapaxes(1, 2) for x in (query, key, value)
    ]
    width = max(query.shape[-1], value.shape[-1])
    heads = [jnp.pad(x, [(0, 0)] * 3 + [(0, width - x.shape[-1])]) for x in heads]
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    out = dot_product_attention(*heads, scale=scale, **options)[..., : value.shape[-1]]
    return out[:, :, 0] if query.ndim == 3 else out.swapaxes(1, 2)


@against("attention", nan, empty, framework="jax")
def masked(query, key, value, *, mask=None, bias=None, scale=None):
    """`dot_product_attention` with a mask or a bias."""
    mask = mask if mask is None or mask.ndim == 4 else mask[:, None]
    bias = None if bias is None else bias[:, None]
    return attend(query, key, value, mask=mask, bias=bias, scale=scale)


@against("attention", corner, framework="jax", causal=True)
def is_causal(query, key, value, *, scale=None):
    """`dot_product_attention` with `is_causal`."""
    return attend(query, key, value, is_causal=True, scale=scale)
