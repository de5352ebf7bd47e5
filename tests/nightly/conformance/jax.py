"""JAX: its attention with masks and with `is_causal`."""

from functools import partial

import jax.numpy as jnp
from jax.nn import dot_product_attention

from posattn.conformance.adapters import attention_of_heads
from tests.nightly.conformance.adapting import CORNER, MEAN, NAN_LEAKS, against


def attend(query, key, value, scale=None, **options):
    """The attention of JAX, whose keys are as wide as values."""
    width = max(query.shape[-1], value.shape[-1])
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    heads = [
        jnp.pad(x, [(0, 0)] * 3 + [(0, width - x.shape[-1])]) for x in (query, key, value)
    ]
    return dot_product_attention(*heads, scale=scale, **options)[..., : value.shape[-1]]


@against("attention", NAN_LEAKS, MEAN, framework="jax")
@partial(attention_of_heads, head_axis=2)
def masked(query, key, value, *, mask, bias=None, scale=None):
    """`dot_product_attention` with a mask or a bias."""
    return attend(query, key, value, mask=mask, bias=bias, scale=scale)


@against("attention", CORNER, framework="jax", causal=True)
@partial(attention_of_heads, head_axis=2)
def is_causal(query, key, value, *, scale=None):
    """`dot_product_attention` with `is_causal`."""
    return attend(query, key, value, is_causal=True, scale=scale)
