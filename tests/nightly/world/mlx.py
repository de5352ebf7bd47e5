"""MLX, `mx.fast.scaled_dot_product_attention` and `mx.fast.rope`, on a CPU."""

import mlx.core as mx

INSTALL = ["numpy==2.4.6", "mlx[cpu]==0.32.4"]
FAST = mx.fast


def _attend(*arrays, **options):
    return FAST.scaled_dot_product_attention(*map(mx.array, arrays), scale=0.25, **options)


def _rope(x, dims=16, *, base=10000.0, scale=1.0, offset=0, **options):
    numbers = {"base": base, "scale": scale, "offset": offset}
    return FAST.rope(mx.array(x), dims, traditional=False, **numbers, **options)


PROBES = {
    "causal": lambda last, key, value: _attend(last, key, value, mask="causal"),
    "empty_row": lambda query, key, value, empty: _attend(query, key, value, mask=mx.array(empty)),
    "true": lambda query, key, value, mask: _attend(query, key, value, mask=mx.array(mask)),
    "scale": lambda query, key, value: FAST.scaled_dot_product_attention(*map(mx.array, (query, key, value))),
    "rotated": lambda x: _rope(x),
    "partly": lambda x, part: _rope(x, part),
    "by_freqs": lambda x, freqs: _rope(x, base=None, freqs=mx.array(freqs)),
    "stretched": lambda x, stretch: _rope(x, scale=stretch),
    "shifted": lambda x, offset: _rope(x, offset=offset),
}  # fmt: skip


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
