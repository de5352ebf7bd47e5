"""Flax: its attention, with a mask or a bias."""

from functools import partial

from flax.linen import dot_product_attention

from posattn.conformance.adapters import attention_of_heads
from tests.nightly.conformance.adapting import MEAN, NAN_LEAKS, against


@against("attention", NAN_LEAKS, MEAN, framework="jax")
@partial(attention_of_heads, head_axis=2)
def masked(query, key, value, *, mask, bias=None):
    """`flax.linen.dot_product_attention`."""
    return dot_product_attention(query, key, value, mask=mask, bias=bias)
