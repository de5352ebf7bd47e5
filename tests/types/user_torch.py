"""What a user of PyTorch writes, in the strict mode of type checkers."""

import torch
from torch import Tensor

from posattn.torch import (
    ALiBi,
    KVCache,
    MultiHeadAttention,
    PositionalEncoding,
    Rotary,
    causal_mask,
    rotate,
    scaled_dot_product_attention,
)

layer = MultiHeadAttention(
    16, 4, num_kv_heads=2, rotate=Rotary(layout="half"), bias=[ALiBi(4)], dropout_rate=0.1
)
pair = MultiHeadAttention(16, 4, rotate=(rotate, None), query_norm=torch.nn.RMSNorm(4))
x: Tensor = PositionalEncoding(16)(torch.ones(1, 5, 16), rng=3)
out: Tensor = scaled_dot_product_attention(
    x, x, x, mask=causal_mask(5), rng=torch.Generator()
)
cache = KVCache.init((1,), 2, 8, 4, window=4)
result = layer(x, cache=cache, rng=0)
weights: Tensor = layer.attention_weights(x, causal=True, bias=ALiBi(4))
next_positions: Tensor = cache.next_positions(1)
kept, seen = cache.append(torch.ones(1, 2, 1, 4), torch.ones(1, 2, 1, 4), next_positions)
mask: Tensor = seen.mask(next_positions)
