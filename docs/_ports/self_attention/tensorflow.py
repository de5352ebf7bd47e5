# %%
import tensorflow as tf
from posattn.ports.tensorflow import MultiHeadAttention, length_mask

layer = MultiHeadAttention(100, 5, dropout_rate=0.5)
for name, weight in weights.items():
    getattr(layer, name).kernel.assign(weight)
mask = length_mask(tf.constant(lengths), 4)
x, z = tf.constant(X), tf.constant(other)
out = layer(x, x, x, mask=mask).numpy()
print(out.shape, out[0, 0, :4].round(4))
print(np.allclose(out, layer(x, z, z, mask=mask).numpy(), atol=1e-6))
print(np.allclose(out, layer(x, z, z).numpy(), atol=0.1))
print((np.abs(out - layer(z, z, z, mask=mask).numpy()) > 1e-6).any(-1))
# %%
import tensorflow as tf
from posattn.ports.tensorflow import MultiHeadAttention, length_mask, masked_softmax

layer = MultiHeadAttention(100, 5)
for name, weight in weights.items():
    getattr(layer, name).kernel.assign(weight)
x, mask = tf.constant(X), length_mask(tf.constant(lengths), 4)
q, k = (tf.reshape(project(x), (2, 4, 5, 20)) for project in (layer.query, layer.key))
scores = tf.einsum("bihd,bjhd->bhij", q, k) / 20**0.5
W = masked_softmax(scores, mask[:, None]).numpy()
print(W[0, 0].diagonal().round(4), (W[0, :, range(3), range(3)] > 0).all())
