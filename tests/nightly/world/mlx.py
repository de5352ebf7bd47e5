"""MLX, `mx.fast.scaled_dot_product_attention` and `mx.fast.rope`, on a CPU."""

import mlx.core as mx

INSTALL = ["numpy==2.4.6", "mlx[cpu]==0.32.4"]
FAST = mx.fast


def _attend(*arrays, **options):
    return FAST.scaled_dot_product_attention(*map(mx.array, arrays), scale=0.25, **options)


def _rope(x, dims=16, *, base=10000.0, scale=1.0, offset=0, **options):
    numbers = {"base": base, "scale": scale, "offset": offset}
    return FAST.rope(mx.array(x), dims, traditional=False, **numbers, **options)


def causal(last, key, value):
    return _attend(last, key, value, mask="causal")


def empty_row(query, key, value, empty):
    return _attend(query, key, value, mask=mx.array(empty))


def true(query, key, value, mask):
    return _attend(query, key, value, mask=mx.array(mask))


def rotated(x):
    return _rope(x)


def partly(x, part):
    return _rope(x, part)


def by_freqs(x, freqs):
    return _rope(x, base=None, freqs=mx.array(freqs))


def stretched(x, stretch):
    return _rope(x, scale=stretch)


def shifted(x, offset):
    return _rope(x, offset=offset)


def distant(x, far):
    tokens = [_rope(x[:, :, n : n + 1], offset=int(far[n])) for n in range(6)]
    return mx.concatenate(tokens, axis=2)
