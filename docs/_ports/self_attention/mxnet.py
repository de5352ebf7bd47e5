# %%
from mxnet import np as mnp, npx
from posattn.ports.mxnet import MultiHeadAttention, length_mask

npx.set_np()
layer = MultiHeadAttention(100, 5, dropout_rate=0.5)
for name, weight in weights.items():
    getattr(layer, name).weight.set_data(mnp.array(weight.T))
mask = length_mask(mnp.array(lengths), 4)
x, z = mnp.array(X), mnp.array(other)
out = layer(x, x, x, mask=mask).asnumpy()
print(out.shape, out[0, 0, :4].round(4))
print(np.allclose(out, layer(x, z, z, mask=mask).asnumpy(), atol=1e-6))
print(np.allclose(out, layer(x, z, z).asnumpy(), atol=0.1))
print((np.abs(out - layer(z, z, z, mask=mask).asnumpy()) > 1e-6).any(-1))
# %%
from mxnet import np as mnp, npx
from posattn.ports.mxnet import MultiHeadAttention, length_mask, masked_softmax

npx.set_np()
layer = MultiHeadAttention(100, 5)
for name, weight in weights.items():
    getattr(layer, name).weight.set_data(mnp.array(weight.T))
x, mask = mnp.array(X), length_mask(mnp.array(lengths), 4)
q, k = (
    project(x).reshape(2, 4, 5, 20).swapaxes(1, 2) for project in (layer.query, layer.key)
)
W = masked_softmax(q @ k.swapaxes(-2, -1) / 20**0.5, mask[:, None]).asnumpy()
print(W[0, 0].diagonal().round(4), (W[0, :, range(3), range(3)] > 0).all())
