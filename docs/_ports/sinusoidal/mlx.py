# %%
import mlx.core as mx
import numpy as np
from posattn.ports.mlx import PositionalEncoding

layer = PositionalEncoding(32)
P = layer(mx.zeros((1, 60, 32)))[0]
print("row 1, columns 6 to 9:", np.array(P[1, 6:10]).round(6))
