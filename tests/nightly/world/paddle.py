"""PaddlePaddle, `scaled_dot_product_attention` and `MultiHeadAttention`: tokens before heads."""

import numpy as np
import paddle
from paddle.nn.functional import scaled_dot_product_attention as sdpa

INSTALL = ["numpy==2.4.6", "paddlepaddle==3.3.1"]


def _attend(*arrays, **options):
    heads = (paddle.to_tensor(array.swapaxes(1, 2)) for array in arrays)
    return np.swapaxes(sdpa(*heads, **options).numpy(), 1, 2)


def _layer():
    paddle.seed(0)
    return paddle.nn.MultiHeadAttention(16, 2)


PROBES = {
    "causal": lambda last, key, value: _attend(last, key, value, is_causal=True),
    "true": lambda query, key, value, mask: _attend(query, key, value, attn_mask=paddle.to_tensor(mask)),
    "scale": lambda query, key, value: _attend(query, key, value),
}  # fmt: skip


def empty_row(query, key, value, empty):
    return _attend(query, key, value, attn_mask=paddle.to_tensor(empty))


def padded(x):
    layer, batch = _layer(), paddle.to_tensor(4 * x[0])
    mask = paddle.to_tensor(np.arange(6)[None, None, None] >= 2)
    return layer(batch[:, 2:]).numpy(), layer(batch, attn_mask=mask)[:, 2:].numpy()


def cached(x):
    layer, batch = _layer(), paddle.to_tensor(4 * x[0])
    once = layer(batch, attn_mask=paddle.to_tensor(np.tri(6, dtype=bool)))
    cache, steps = layer.gen_cache(batch), []
    for n in range(6):
        token, cache = layer(batch[:, n : n + 1], cache=cache)
        steps.append(token.numpy())
    return once.numpy(), np.concatenate(steps, 1)


def rotation_on_a_cpu():
    """Its rotation, `fused_rotary_position_embedding`, does not run on a CPU."""
    from paddle.incubate.nn.functional import fused_rotary_position_embedding as rotate

    try:
        rotate(paddle.ones([1, 2, 1, 4]))
    except RuntimeError as error:
        print(str(error).strip().splitlines()[0])
