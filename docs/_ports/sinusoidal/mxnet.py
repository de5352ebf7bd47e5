# %%
from mxnet import np, npx
from posattn.ports.mxnet import PositionalEncoding

npx.set_np()
layer = PositionalEncoding(32)
P = layer(np.zeros((1, 60, 32)))[0]
print("row 1, columns 6 to 9:", P[1, 6:10].asnumpy().round(6))
