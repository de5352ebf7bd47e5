"""Equinox and Flax beside our columns; `nox -s oracles` runs this with the pinned versions.

Where they differ from us, a test says in what, and who is right.
"""

import equinox
import flax.linen
import jax
import jax.numpy as jnp
import numpy as np
import pytest
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


def ours(column, mask=MASK, **options):
    layer = column.multi_head(
        [column.array(w) for w in WEIGHTS + OFFSETS], HEADS, **options
    )
    return layer(*map(column.array, inputs()), mask=column.array(mask[None]))


def tree(value):
    """The parameters of an Equinox layer, whose weights are PyTorch's way around."""
    names = ("query_proj", "key_proj", "value_proj", "output_proj")
    return [getattr(getattr(value, n), part) for part in ("weight", "bias") for n in names]


def equinox_layer():
    layer = equinox.nn.MultiheadAttention(
        HEADS, DIM, use_query_bias=True, use_key_bias=True, use_value_bias=True,
        use_output_bias=True, key=jax.random.key(0),
    )  # fmt: skip
    new = [jnp.asarray(w.T) for w in WEIGHTS] + [jnp.asarray(o) for o in OFFSETS]
    return equinox.tree_at(tree, layer, new)


def flax_kernels():
    """Kernels `(d, h, d_h)` of the projections to heads, `(h, d_h, d)` of the one back, and biases."""
    kernels = [w.reshape(DIM, HEADS, WIDTH) for w in WEIGHTS[:3]]
    kernels.append(WEIGHTS[3].reshape(HEADS, WIDTH, DIM))
    return kernels, [o.reshape(HEADS, WIDTH) for o in OFFSETS[:3]] + [OFFSETS[3]]


# attention


def test_equinoxs_layer(column):
    want = jax.vmap(equinox_layer(), (0, 0, 0, None))(*map(jnp.asarray, inputs()), MASK)
    assert_agree(column, ours(column), want)


def test_equinoxs_layer_with_its_rotation(column):
    rope = equinox.nn.RotaryPositionalEmbedding(WIDTH)
    rotate = jax.vmap(rope, in_axes=1, out_axes=1)
    x = inputs()[1]

    def theirs(x):
        def process(q, k, v):
            return rotate(q), rotate(k), v

        return equinox_layer()(x, x, x, process_heads=process)

    layer = column.multi_head(
        [column.array(w) for w in WEIGHTS + OFFSETS],
        HEADS,
        rotate=lambda x, positions: column.rotate(x, positions, layout="half"),
    )
    got = layer(*[column.array(x)] * 3)
    assert_agree(column, got, jax.vmap(theirs)(jnp.asarray(x)))


def test_flax_nnx_layer(column):
    layer = nnx.MultiHeadAttention(HEADS, DIM, decode=False, rngs=nnx.Rngs(0))
    for name, kernel, offset in zip(
        ("query", "key", "value", "out"), *flax_kernels(), strict=True
    ):
        projection = getattr(layer, name)
        projection.kernel[...] = jnp.asarray(kernel, projection.kernel.dtype)
        projection.bias[...] = jnp.asarray(offset, projection.bias.dtype)
    assert_agree(
        column, ours(column), layer(*map(jnp.asarray, inputs()), mask=MASK[None, None])
    )


def test_flax_linen_layer(column):
    parameters = {
        name: {"kernel": jnp.asarray(kernel), "bias": jnp.asarray(offset)}
        for name, kernel, offset in zip(
            ("query", "key", "value", "out"), *flax_kernels(), strict=True
        )
    }
    layer = flax.linen.MultiHeadDotProductAttention(HEADS)
    want = layer.apply(
        {"params": parameters}, *map(jnp.asarray, inputs()), mask=MASK[None, None]
    )
    assert_agree(column, ours(column), want)


FUNCTIONS = {
    "flax.nnx": nnx.dot_product_attention,
    "flax.linen": flax.linen.dot_product_attention,
    "jax.nn": jax.nn.dot_product_attention,
}
every_function = pytest.mark.parametrize("name", FUNCTIONS)


def heads():
    """Queries, keys, values and a bias, heads before tokens."""
    q, k, v = (draw(380 + i, BATCH, HEADS, n, WIDTH) for i, n in enumerate((N_Q, N_K, N_K)))
    return q, k, v, draw(383, BATCH, HEADS, N_Q, N_K)


def attend(name, mask):
    """One of their functions, for which heads come after tokens."""
    q, k, v, bias = map(jnp.asarray, heads())
    q, k, v = (x.swapaxes(1, 2) for x in (q, k, v))
    return FUNCTIONS[name](q, k, v, bias=bias, mask=mask[None, None]).swapaxes(1, 2)


@every_function
def test_functions_with_bias_and_mask(column, name):
    q, k, v, bias = map(column.array, heads())
    got = column.scaled_dot_product_attention(q, k, v, bias=bias, mask=column.array(MASK))
    assert_agree(column, got, attend(name, MASK))


@every_function
def test_a_row_that_may_attend_to_nothing_gets_the_mean_of_the_values(column, name):
    """Known difference: theirs hide with a large negative score, which hides nothing if all have it."""
    mask = MASK.copy()
    mask[2] = False
    q, k, v, bias = heads()
    arrays = map(column.array, (q, k, v))
    got = column.numpy(
        column.scaled_dot_product_attention(
            *arrays, bias=column.array(bias), mask=column.array(mask)
        )
    )
    theirs = np.asarray(attend(name, mask), np.float64)
    assert not got[:, :, 2].any()
    assert error(theirs[:, :, 2], v.mean(axis=-2)) <= SINGLE
    seen = [0, 1, 3]
    assert error(got[:, :, seen], theirs[:, :, seen]) <= SINGLE


# rotation


def test_equinox_rotates_halves(column):
    x = draw(390, N_K, WIDTH)
    want = equinox.nn.RotaryPositionalEmbedding(WIDTH)(jnp.asarray(x))
    assert_agree(column, column.rotate(column.array(x), layout="half"), want)


def test_a_second_base_of_equinox_has_the_angles_of_the_first(column):
    """Known difference: its cache is found by width and dtype, whatever the base (`theta`) is."""
    width = 12  # no other test fills the cache for it
    x = draw(391, N_K, width)
    first, second = (
        equinox.nn.RotaryPositionalEmbedding(width, theta=theta)(jnp.asarray(x))
        for theta in (100.0, 5000.0)
    )
    assert np.array_equal(first, second)
    for base, theirs in ((100.0, first), (5000.0, second)):
        got = column.numpy(column.rotate(column.array(x), base=base, layout="half"))
        agrees = error(got, np.asarray(theirs, np.float64)) <= SINGLE
        assert agrees == (base == 100.0)
