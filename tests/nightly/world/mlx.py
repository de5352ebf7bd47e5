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


def scale(query, key, value):
    return FAST.scaled_dot_product_attention(*map(mx.array, (query, key, value)))


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


def mask_of_integers():
    """A mask of ones and zeros is added to the scores, so that a zero hides nothing."""
    query, key = mx.zeros((1, 1, 1, 4)), mx.zeros((1, 1, 2, 4))
    value = mx.broadcast_to(mx.array([[0.0], [1.0]]), (1, 1, 2, 4))
    for mask in mx.array([[1, 0]]), mx.array([[True, False]]):
        out = FAST.scaled_dot_product_attention(query, key, value, scale=0.5, mask=mask)
        print(f"{mask.dtype}: the second key has weight {out[0, 0, 0, 0].item():.3f}")


def alibi_slopes():
    """`nn.ALiBi` gives 12 heads the slopes of the program that came with ALiBi's paper."""
    from mlx.nn import ALiBi

    slopes = ALiBi.create_alibi_slope(12).flatten().tolist()
    print("12 heads:", *(f"{slope:.4f}" for slope in slopes))
