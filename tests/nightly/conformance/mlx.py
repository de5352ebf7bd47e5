"""MLX on the CPU: its fast rotation in both layouts, its attention, and ALiBi."""

import mlx.core as mx

from posattn.conformance.adapters import attention_of_heads
from tests.nightly.conformance.adapting import FLOAT32, MEAN, NAN_LEAKS, Reason, against

WHOLE = Reason(
    ("fractions",), "convention", "positions are whole numbers: `offset` is an integer"
)
NO_KEYS = MEAN._replace(words=("more queries than keys",))


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


@against("rotary", FLOAT32, WHOLE, framework="mlx", layout="interleaved")
def neighbors(x, positions=None, *, base=10000.0, rotary_dim=None):
    """`mx.fast.rope`, `traditional`."""
    return rotated(x, positions, base, rotary_dim, True)


@against("rotary", FLOAT32, WHOLE, framework="mlx", layout="half")
def halves(x, positions=None, *, base=10000.0, rotary_dim=None):
    """`mx.fast.rope`, not `traditional`."""
    return rotated(x, positions, base, rotary_dim, False)


@against("attention", NAN_LEAKS, MEAN, framework="mlx")
@attention_of_heads
def masked(query, key, value, *, mask, bias=None, scale=None):
    """`mx.fast.scaled_dot_product_attention` with a mask or a bias."""
    mask = mask if bias is None else mx.where(mask, bias, -mx.inf)
    scale = scale or query.shape[-1] ** -0.5
    return mx.fast.scaled_dot_product_attention(query, key, value, scale=scale, mask=mask)


@against("attention", NO_KEYS, framework="mlx", causal=True)
@attention_of_heads
def causal(query, key, value, *, scale=None):
    """`mx.fast.scaled_dot_product_attention` with the mask `causal`."""
    options = {"scale": scale or query.shape[-1] ** -0.5, "mask": "causal"}
    return mx.fast.scaled_dot_product_attention(query, key, value, **options)
