"""MLX on the CPU: its fast rotation in both layouts, its attention, and ALiBi."""

import math

import mlx.core as mx

from tests.nightly.conformance.adapting import NAN_LEAKS, against, because


@NAN_LEAKS
def nan():
    values = mx.array([1.0, mx.nan]).reshape(1, 1, 2, 1)
    mask = mx.array([[[[True, False]]]])
    print(
        mx.fast.scaled_dot_product_attention(
            values[:, :, :1], values, values, scale=1.0, mask=mask
        ),
        "for 1",
    )


@because("one of them 0", "one length per query", "more queries than keys", whose="convention",
         why="a query that may attend to nothing gets the mean of all values; we ask for zero")  # fmt: skip
def empty():
    values = mx.array([0.0, 1.0]).reshape(1, 1, 2, 1)
    mask = mx.array([[[[False, False]]]])
    print(
        mx.fast.scaled_dot_product_attention(
            values[:, :, :1], values, values, scale=1.0, mask=mask
        ),
        "for 0",
    )


@because("2**20", "cannot hold", whose="precision",
         why="it makes angles and frequencies in float32")  # fmt: skip
def far():
    row = mx.array([[[0.0, 0.0, 1.0, 0.0]]])
    rotated = mx.fast.rope(
        row, 4, traditional=True, base=10000.0, scale=1.0, offset=1000003
    )
    print(rotated[0, 0, 3].item(), "for", math.sin(1000003 / 100))


@because("fractions", whose="convention",
         why="positions are whole numbers: `offset` is an integer")  # fmt: skip
def whole():
    mx.fast.rope(
        mx.ones((1, 1, 4)), 4, traditional=True, base=10000.0, scale=1.0, offset=0.5
    )


def rotated(x, positions, base, rotary_dim, neighbors):
    """Each token rotated for itself, since the positions of a call follow each other."""
    places = mx.arange(x.shape[-2]) if positions is None else positions
    options = {"traditional": neighbors, "base": base, "scale": 1.0}
    rows = x.reshape(-1, 1, x.shape[-1])
    places = mx.broadcast_to(places, x.shape[:-1]).reshape(-1)
    turn = [
        mx.fast.rope(row[None], rotary_dim or x.shape[-1], offset=int(p), **options)
        for row, p in zip(rows, places.tolist(), strict=True)
    ]
    return mx.concatenate(turn).reshape(x.shape) if turn else x


@against("rotary", far, whole, framework="mlx", layout="interleaved")
def neighbors(x, positions=None, *, base=10000.0, rotary_dim=None):
    """`mx.fast.rope`, `traditional`."""
    return rotated(x, positions, base, rotary_dim, True)


@against("rotary", far, whole, framework="mlx", layout="half")
def halves(x, positions=None, *, base=10000.0, rotary_dim=None):
    """`mx.fast.rope`, not `traditional`."""
    return rotated(x, positions, base, rotary_dim, False)


def attend(query, key, value, mask, scale):
    """The fast attention of MLX, which has an axis of heads."""
    heads = [x[:, None] if x.ndim == 3 else x for x in (query, key, value)]
    out = mx.fast.scaled_dot_product_attention(
        *heads, scale=scale or query.shape[-1] ** -0.5, mask=mask
    )
    return out.reshape(*query.shape[:-1], -1)


@against("attention", nan, empty, framework="mlx")
def masked(query, key, value, *, mask=None, bias=None, scale=None):
    """`mx.fast.scaled_dot_product_attention` with a mask or a bias."""
    if bias is not None:
        mask = bias if mask is None else mx.where(mask, bias, -mx.inf)
    mask = mask if mask is None or mask.ndim == 4 else mask[:, None]
    return attend(query, key, value, mask, scale)


@against("attention", empty, framework="mlx", causal=True)
def causal(query, key, value, *, scale=None):
    """`mx.fast.scaled_dot_product_attention` with the mask `causal`."""
    return attend(query, key, value, "causal", scale)
