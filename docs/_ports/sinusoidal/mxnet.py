# %%
from posattn.ports.mxnet import sinusoidal_encoding

encoding = sinusoidal_encoding(60, 32)
print(encoding[1, 6:10].asnumpy())
# %%
from mxnet import np, npx
from posattn.ports.mxnet import PositionalEncoding

npx.set_np()
layer = PositionalEncoding(32)
P = layer(np.zeros((1, 60, 32)))[0]
print(P.shape)
# %%
from mxnet import np, npx
from posattn.ports.mxnet import sinusoidal_encoding

npx.set_np()
P = sinusoidal_encoding(5000, 32, dtype="float64")
print(bool((np.abs(np.square(P).sum(-1) - 16) < 1e-12).all()))
print(bool((P[:1000] == sinusoidal_encoding(1000, 32, dtype="float64")).all()))
print(
    bool((P[7:10] == sinusoidal_encoding(np.array([7, 8, 9]), 32, dtype="float64")).all())
)
