# %%
import mlx.core as mx
from posattn.ports.mlx import MultiHeadAttention, length_mask

layer = MultiHeadAttention(100, 5, dropout_rate=0.5)
layer.load_weights([(f"{name}.weight", mx.array(w.T)) for name, w in drawn.items()])
mask = length_mask(mx.array(lengths), 4)
x, z = mx.array(tokens), mx.array(other)
out = np.array(layer(x, x, x, mask=mask))
print("shape:", out.shape, "first row:", out[0, 0, :4].round(4))
for name, y in {
    "keys": layer(x, z, z, mask=mask),
    "keys, without the mask": layer(x, z, z),
    "queries and keys": layer(z, z, z, mask=mask),
}.items():
    changed = (abs(out - np.array(y)) > 1e-5).any(-1)
    print(f"other padding as {name}: {changed.sum()} of 8 outputs change")
