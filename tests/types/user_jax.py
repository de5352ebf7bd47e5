"""What a user of JAX writes, in the strict mode of type checkers."""

import jax
from jax import Array

from posattn.jax import (
    ALiBi,
    KVCache,
    MultiHeadAttention,
    PositionalEncoding,
    Rotary,
    causal_mask,
    rotate,
    scaled_dot_product_attention,
)

key = jax.random.key(0)
layer = MultiHeadAttention.init(
    key, 16, 4, num_kv_heads=2, rotate=Rotary(layout="half"), bias=[ALiBi(4)]
)
pair = MultiHeadAttention.init(key, 16, 4, rotate=(rotate, None))
x: Array = PositionalEncoding(16)(jax.random.normal(key, (1, 5, 16)), rng=key)
out: Array = scaled_dot_product_attention(x, x, x, mask=causal_mask(5), rng=key)
cache = KVCache.init((1,), 2, 8, 4, window=4)
result = layer(x, cache=cache, rng=key)
weights: Array = layer.attention_weights(x, causal=True, bias=ALiBi(4))
next_positions: Array = cache.next_positions(1)
