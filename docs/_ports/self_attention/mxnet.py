# %%
from mxnet import np as mnp, npx
from posattn.ports.mxnet import MultiHeadAttention, length_mask

npx.set_np()
layer = MultiHeadAttention(100, 5, dropout_rate=0.5)
for name, weight in drawn.items():
    getattr(layer, name).weight.set_data(mnp.array(weight.T))
mask = length_mask(mnp.array(lengths), 4)
x, z = mnp.array(tokens), mnp.array(other)
out = layer(x, x, x, mask=mask).asnumpy()
print("shape:", out.shape, "first row:", out[0, 0, :4].round(4))
for name, y in {
    "keys": layer(x, z, z, mask=mask),
    "keys, without the mask": layer(x, z, z),
    "queries and keys": layer(z, z, z, mask=mask),
}.items():
    changed = (abs(out - y.asnumpy()) > 1e-5).any(-1)
    print(f"other padding as {name}: {changed.sum()} of 8 outputs change")
