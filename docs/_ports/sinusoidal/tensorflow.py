# %%
from posattn.ports.tensorflow import sinusoidal_encoding

encoding = sinusoidal_encoding(60, 32)
print(encoding[1, 6:10].numpy())
# %%
import tensorflow as tf
from posattn.ports.tensorflow import PositionalEncoding

layer = PositionalEncoding(32)
P = layer(tf.zeros((1, 60, 32)))[0]
print(tuple(P.shape))
# %%
import tensorflow as tf
from posattn.ports.tensorflow import sinusoidal_encoding

P = sinusoidal_encoding(5000, 32, dtype=tf.float64)
print(bool(tf.reduce_all(tf.abs(tf.reduce_sum(P**2, -1) - 16) < 1e-12)))
print(bool(tf.reduce_all(P[:1000] == sinusoidal_encoding(1000, 32, dtype=tf.float64))))
print(
    bool(
        tf.reduce_all(P[7:10] == sinusoidal_encoding(tf.range(7, 10), 32, dtype=tf.float64))
    )
)
