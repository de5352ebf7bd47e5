# %%
import numpy as np
from posattn.ports.mlx import sinusoidal_encoding

encoding = sinusoidal_encoding(60, 32)
print(np.array(encoding[1, 6:10]))
# %%
import mlx.core as mx
from posattn.ports.mlx import PositionalEncoding

layer = PositionalEncoding(32)
P = layer(mx.zeros((1, 60, 32)))[0]
print(P.shape)
# %%
import mlx.core as mx
from posattn.ports.mlx import sinusoidal_encoding

mx.set_default_device(mx.cpu)  # where MLX has float64
P = sinusoidal_encoding(5000, 32, dtype=mx.float64)
print(mx.allclose(P.square().sum(-1), mx.array(16.0, mx.float64)).item())
print(mx.array_equal(P[:1000], sinusoidal_encoding(1000, 32, dtype=mx.float64)).item())
print(
    mx.array_equal(
        P[7:10], sinusoidal_encoding(mx.arange(7, 10), 32, dtype=mx.float64)
    ).item()
)
