"""TensorFlow with Keras 2, `tf_keras.layers.MultiHeadAttention`."""

import numpy as np
import tensorflow as tf
import tf_keras

INSTALL = ["numpy==2.4.6", "tensorflow-cpu==2.21.0", "tf_keras==2.21.0"]


def _layer(**options):
    """A layer of one head of width 16 without projections."""
    layer = tf_keras.layers.MultiHeadAttention(1, 16, use_bias=False, **options)
    layer(*[np.ones((1, 6, 16), "float32")] * 2)
    layer.set_weights([np.eye(16).reshape(w.shape) for w in layer.get_weights()])
    return layer


def _attend(*arrays, **options):
    query, key, value = (array[0] for array in arrays)  # heads are examples here
    return _layer()(query, value, key, **options).numpy()[None]


PROBES = {
    "causal": lambda last, key, value: _attend(last, key, value, use_causal_mask=True),
    "empty_row": lambda query, key, value, empty: _attend(query, key, value, attention_mask=empty[0]),
    "true": lambda query, key, value, mask: _attend(query, key, value, attention_mask=mask[0]),
    "scale": lambda query, key, value: _attend(query, key, value),
}  # fmt: skip


def padded(x):
    layer, batch = _layer(), tf.constant(2 * x[0])
    mask = np.arange(6)[None, None] >= 2
    alone = layer(batch[:, 2:], batch[:, 2:])
    return alone.numpy(), layer(batch, batch, attention_mask=mask).numpy()[:, 2:]
