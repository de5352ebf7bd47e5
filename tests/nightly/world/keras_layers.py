"""The probes of Keras's layers and of KerasHub's rotation, which every backend runs."""

import keras
import numpy as np
from keras import ops
from keras_hub.layers import RotaryEmbedding


def _layer(**options):
    """A layer of one head of width 16 without projections."""
    layer = keras.layers.MultiHeadAttention(1, 16, use_bias=False, **options)
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


def causal(last, key, value):
    return _through(_layer(), last, key, value, use_causal_mask=True)


def empty_row(query, key, value, empty):
    return _through(_layer(), query, key, value, attention_mask=empty[0])


def true(query, key, value, mask):
    return _through(_layer(), query, key, value, attention_mask=mask[0])


def scale(query, key, value):
    return _through(_layer(), query, key, value)


def rotated(x):
    return _rope(x)


def stretched(x, stretch):
    return _rope(x, scaling_factor=stretch)


def shifted(x, offset):
    return _rope(x, start_index=offset)


def distant(x, far):
    return _rope(x, positions=far[None])


def padded(x):
    layer, tokens = _layer(), 2 * x[0, :1]
    mask = np.arange(6)[None, None] >= 2
    alone, batch = tokens[:, 2:], layer(tokens, tokens, attention_mask=mask)
    once = layer(alone, alone)
    return ops.convert_to_numpy(once), ops.convert_to_numpy(batch[:, 2:])


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
