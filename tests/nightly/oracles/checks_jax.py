"""Flax and JAX beside our columns; `nox -s oracles` runs this with the pinned versions."""

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from tests.conftest import draw, error

SINGLE = 1e-5  # where theirs is float32, as JAX is out of the box
BATCH, HEADS, N_Q, N_K, WIDTH = 2, 3, 4, 6, 8
DIM = HEADS * WIDTH
WEIGHTS = [draw(350 + i, DIM, DIM) / 8 for i in range(4)]
OFFSETS = [draw(360 + i, DIM) for i in range(4)]
MASK = np.tri(N_Q, N_K, 2, dtype=bool) & (np.arange(N_K) != 1)


def assert_agree(column, ours, theirs):
    assert error(column.numpy(ours), np.asarray(theirs, np.float64)) <= SINGLE


def inputs():
    return [
        draw(370, BATCH, N_Q, DIM),
        draw(371, BATCH, N_K, DIM),
        draw(372, BATCH, N_K, DIM),
    ]


def test_flax_nnx_layer(column):
    """Kernels are `(d, h, d_h)` to the heads, and `(h, d_h, d)` back."""
    layer = nnx.MultiHeadAttention(HEADS, DIM, decode=False, rngs=nnx.Rngs(0))
    names = "query", "key", "value", "out"
    for name, weight, offset in zip(names, WEIGHTS, OFFSETS, strict=True):
        projection = getattr(layer, name)
        shape = (HEADS, WIDTH, DIM) if name == "out" else (DIM, HEADS, WIDTH)
        kernel = weight.reshape(shape)
        offset = offset if name == "out" else offset.reshape(HEADS, WIDTH)
        projection.kernel[...] = jnp.asarray(kernel, projection.kernel.dtype)
        projection.bias[...] = jnp.asarray(offset, projection.bias.dtype)
    ours = column.multi_head([column.array(w) for w in WEIGHTS + OFFSETS], HEADS)
    got = ours(*map(column.array, inputs()), mask=column.array(MASK[None]))
    want = layer(*map(jnp.asarray, inputs()), mask=MASK[None, None])
    assert_agree(column, got, want)


def test_attention_with_bias_and_mask(column):
    """Their heads come after the tokens."""
    shapes = *((BATCH, HEADS, n, WIDTH) for n in (N_Q, N_K, N_K)), (BATCH, HEADS, N_Q, N_K)
    drawn = [draw(380 + i, *shape) for i, shape in enumerate(shapes)]
    q, k, v, bias = map(column.array, drawn)
    got = column.scaled_dot_product_attention(q, k, v, bias=bias, mask=column.array(MASK))
    q, k, v = (jnp.asarray(x).swapaxes(1, 2) for x in drawn[:3])
    want = jax.nn.dot_product_attention(
        q, k, v, bias=jnp.asarray(drawn[3]), mask=MASK[None, None]
    )
    assert_agree(column, got, want.swapaxes(1, 2))
