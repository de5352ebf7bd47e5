# %%
import tensorflow as tf
from posattn.ports.tensorflow import MultiHeadAttention, length_mask

layer = MultiHeadAttention(100, 5, dropout_rate=0.5)
for name, weight in drawn.items():
    getattr(layer, name).kernel.assign(weight)
mask = length_mask(tf.constant(lengths), 4)
x, z = tf.constant(tokens), tf.constant(other)
out = layer(x, x, x, mask=mask).numpy()
print("shape:", out.shape, "first row:", out[0, 0, :4].round(4))
for name, y in {
    "keys": layer(x, z, z, mask=mask),
    "keys, without the mask": layer(x, z, z),
    "queries and keys": layer(z, z, z, mask=mask),
}.items():
    changed = (abs(out - y.numpy()) > 1e-5).any(-1)
    print(f"other padding as {name}: {changed.sum()} of 8 outputs change")
