"""The probes of Keras's layers and of KerasHub's rotation, which every backend runs."""

import keras
import numpy as np
from keras import ops
from keras_hub.layers import CachedMultiHeadAttention, RotaryEmbedding


def _layer(kind=keras.layers.MultiHeadAttention, **options):
    """A layer of one head of width 16 without projections."""
    layer = kind(1, 16, use_bias=False, **options)
    layer.build((1, 6, 16), (1, 6, 16), (1, 6, 16))
    layer.set_weights([np.eye(16).reshape(w.shape) for w in layer.get_weights()])
    return layer


def _through(layer, *arrays, **options):
    query, key, value = (array.reshape(2, -1, 16) for array in arrays)
    out = layer(query, value, key, **options)
    return ops.convert_to_numpy(out)[None]


def _rope(x, start_index=0, positions=None, **options):
    heads = x.swapaxes(1, 2)
    out = RotaryEmbedding(**options)(heads, start_index=start_index, positions=positions)
    return ops.convert_to_numpy(out).swapaxes(1, 2)


PROBES = {
    "causal": lambda last, key, value: _through(_layer(), last, key, value, use_causal_mask=True),
    "true": lambda query, key, value, mask: _through(_layer(), query, key, value, attention_mask=mask[0]),
    "scale": lambda query, key, value: _through(_layer(), query, key, value),
    "rotated": lambda x: _rope(x),
    "stretched": lambda x, stretch: _rope(x, scaling_factor=stretch),
    "shifted": lambda x, offset: _rope(x, start_index=offset),
    "distant": lambda x, far: _rope(x, positions=far[None]),
}  # fmt: skip


def empty_row(query, key, value, empty):
    return _through(_layer(), query, key, value, attention_mask=empty[0])


def soft_cap(query, key, value, mask, cap):
    heads = (array.swapaxes(1, 2) for array in (query, key, value))
    out = keras.ops.dot_product_attention(*heads, mask=mask, attn_logits_soft_cap=cap)
    return ops.convert_to_numpy(out).swapaxes(1, 2)


def sliding(query, key, value, window):
    layer = _layer(sliding_window=window)
    return _through(layer, query, key, value, use_causal_mask=True)


def padded(x):
    layer, tokens = _layer(), 2 * x[0, :1]
    mask = np.arange(6)[None, None] >= 2
    alone, batch = tokens[:, 2:], layer(tokens, tokens, attention_mask=mask)
    once = layer(alone, alone)
    return ops.convert_to_numpy(once), ops.convert_to_numpy(batch[:, 2:])


def cached(x):
    layer, tokens, steps = _layer(CachedMultiHeadAttention), 2 * x[0], []
    once = layer(tokens, tokens, attention_mask=np.tri(6, dtype=bool)[None])
    cache = np.zeros((2, 2, 6, 1, 16), "float32")  # examples, key and value, tokens, heads
    for n in range(6):
        token, seen = tokens[:, n : n + 1], np.arange(6)[None, None] <= n
        options = {"attention_mask": seen, "cache_update_index": n}
        step, cache = layer(token, token, cache=cache, **options)
        steps.append(ops.convert_to_numpy(step))
    return ops.convert_to_numpy(once), np.concatenate(steps, 1)


def functional_layer():
    """`keras.layers.Attention` does not divide the scores by √d unless it is told to."""
    query = np.array([[[4.0, 0, 0, 0]]])
    key = np.array([[[1.0, 0, 0, 0], [0, 0, 0, 0]]])
    value = np.array([[[1.0], [0.0]]])
    out = keras.layers.Attention()([query, value, key])
    print(f"weight of the first key: {float(out[0, 0, 0]):.3f}")
    print(
        f"softmax of 4 and 0: {1 / (1 + np.exp(-4)):.3f}, of 2 and 0: {1 / (1 + np.exp(-2)):.3f}"
    )


def empty_row_with_dropout():
    """At inference a query without visible keys gets the mean if the dropout rate is 0, zero otherwise."""
    x, mask = np.ones((1, 3, 16), "float32"), np.zeros((1, 3, 3), bool)
    for rate in 0.0, 0.1:
        out = _layer(dropout=rate)(x, x, attention_mask=mask)
        print(f"dropout={rate}: {float(out[0, 0, 0]):.0f}")
