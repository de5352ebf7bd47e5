"""PaddlePaddle, `scaled_dot_product_attention`: tokens before heads."""

import numpy as np
import paddle
from paddle.nn.functional import scaled_dot_product_attention as sdpa

INSTALL = ["numpy==2.4.6", "paddlepaddle==3.3.1"]


def _attend(*arrays, **options):
    heads = (paddle.to_tensor(array.swapaxes(1, 2)) for array in arrays)
    return np.swapaxes(sdpa(*heads, **options).numpy(), 1, 2)


def causal(last, key, value):
    return _attend(last, key, value, is_causal=True)


def empty_row(query, key, value, empty):
    return _attend(query, key, value, attn_mask=paddle.to_tensor(empty))


def true(query, key, value, mask):
    return _attend(query, key, value, attn_mask=paddle.to_tensor(mask))


def scale(query, key, value):
    return _attend(query, key, value)


def rotated(x):
    from paddle.incubate.nn.functional import fused_rotary_position_embedding as rotate

    tokens = paddle.to_tensor(x.swapaxes(1, 2))
    return np.swapaxes(rotate(tokens)[0].numpy(), 1, 2)
