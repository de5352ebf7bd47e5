# %%
import mlx.core as mx
from posattn.ports.mlx import MultiHeadAttention, length_mask

layer = MultiHeadAttention(100, 5, dropout_rate=0.5)
layer.load_weights([(f"{name}.weight", mx.array(w.T)) for name, w in weights.items()])
mask = length_mask(mx.array(lengths), 4)
x, z = mx.array(X), mx.array(other)
out = np.array(layer(x, x, x, mask=mask))
print(out.shape, out[0, 0, :4].round(4))
print(np.allclose(out, np.array(layer(x, z, z, mask=mask)), atol=1e-6))
print(np.allclose(out, np.array(layer(x, z, z)), atol=0.1))
print((np.abs(out - np.array(layer(z, z, z, mask=mask))) > 1e-6).any(-1))
# %%
import mlx.core as mx
from posattn.ports.mlx import MultiHeadAttention, length_mask, masked_softmax

layer = MultiHeadAttention(100, 5)
layer.load_weights([(f"{name}.weight", mx.array(w.T)) for name, w in weights.items()])
x, mask = mx.array(X), length_mask(mx.array(lengths), 4)
q, k = (
    project(x).reshape(2, 4, 5, 20).swapaxes(1, 2) for project in (layer.query, layer.key)
)
W = np.array(masked_softmax(q @ k.swapaxes(-2, -1) / 20**0.5, mask[:, None]))
print(W[0, 0].diagonal().round(4), (W[0, :, range(3), range(3)] > 0).all())
