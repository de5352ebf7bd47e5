"""Cases of attention: masks, alignment, biases, rows that may attend to nothing, sinks, a soft cap."""

import numpy as np

from posattn import reference
from posattn.reference.cases import Cases, draw

LOWEST = float(np.finfo(np.float32).min)


def masked_softmax():
    """Normalised scores: what the mask hides has no weight, and a hidden row is zero."""
    scores = draw(0, 2, 3, 4)
    some = np.random.default_rng(0).random((2, 3, 4)) < 0.6
    some[0, 1], some[1, 2] = False, True
    yield "no mask", (scores,), {}
    yield "a mask with an empty row", (scores, some), {}
    yield "one row for all queries", (scores, np.array([[True, False, True, True]])), {}
    yield "large scores", (scores * 2**13,), {}
    yield (
        "scores that are larger where hidden",
        (np.where(some, scores, 5) * 2**13, some),
        {},
    )
    yield "scores far below zero", (-61440 - 256 * (np.arange(8.0).reshape(2, 4) % 3),), {}
    yield "equal scores", (np.zeros((2, 5)),), {}
    yield "hidden infinities", (np.where(some, scores, np.inf), some), {}


def attention():
    """Scaled dot-product attention: masks, alignment, biases, empty rows, NaN in hidden keys."""
    query, key, value = draw(1, 2, 3, 4), draw(2, 2, 5, 4), draw(3, 2, 5, 6)
    few = reference.length_mask(np.array([3, 0]), 5)
    per_query = reference.length_mask(np.array([[1, 2, 3], [0, 5, 4]]), 5)
    short = reference.length_mask(np.array([3, 2]), 5)
    hidden = ~short[:, 0]
    heads = tuple(draw(seed, 2, 3, 4, 3) for seed in (4, 5, 6))
    yield "plain", (query, key, value), {}
    yield "a scale", (query, key, value), {"scale": 0.25}
    yield "one query and one key", (query[:, :1], key[:, :1], value[:, :1]), {}
    yield "causal, queries at the end of the keys", (query, key, value), {"causal": True}
    yield ("causal, decoding one token", (query[:, :1], key, value), {"causal": True})
    yield "causal, more queries than keys", (key, query, query), {"causal": True}
    yield "one length per example, one of them 0", (query, key, value), {"mask": few}
    yield "one length per query", (query, key, value), {"mask": per_query}
    some = reference.length_mask(np.array([4, 2]), 5)
    yield "a mask and causal", (query, key, value), {"mask": some, "causal": True}
    bias = {"bias": draw(7, 1, 3, 5)}
    yield "a bias", (query, key, value), bias
    yield "a bias and causal", (query, key, value), {**bias, "causal": True}
    yield "a bias and a mask", (query, key, value), {**bias, "mask": some}
    every = {"mask": some, "causal": True, "scale": 0.25, **bias}
    yield "all options at once", (query, key, value), every
    yield "three heads, causal", heads, {"causal": True}
    nan = [
        np.where(hidden[..., None], bad, x) for x, bad in ((key, np.nan), (value, np.inf))
    ]
    yield "NaN and infinity in hidden keys", (query, *nan), {"mask": short}
    yield "NaN in hidden keys", (query, nan[0], value), {"mask": short}
    padded = reference.length_mask(np.array([4, 2]), 4)[:, None]
    yield "heads, padding (b, 1, 1, n) and causal", heads, {"mask": padded, "causal": True}
    yield (
        "the lowest float added, in a whole row too",
        (query, key, value),
        {"bias": np.where(few, 0, LOWEST)},
    )
    first = query * np.array([1, 0])[:, None, None]  # so no score is lost beside 10,000
    yield (
        "about -10000 added, in a whole row too",
        (first, key, value),
        {"bias": np.where(few, 0, -9984.0)},
    )
    low = (
        np.full((2, 3, 4), 128.0),
        -np.array([120.0, 121, 120, 122, 124])[:, None] + 0 * key,
    )
    yield "scores far below zero", (*low, value), {"scale": 1.0}


def sinks():
    """Attention with a sink in each head: it joins the sum that divides the weights, and has no value."""
    heads = draw(8, 2, 4, 3, 3), draw(9, 2, 4, 4, 3), draw(10, 2, 4, 4, 3)
    grouped = (
        heads[0][:1],
        *(x[:1, :2] for x in heads[1:]),
    )  # never as many examples as heads
    levels = np.array([-2.5, 0.5, 4.0, 1.25])
    yield "a sink in each head", heads, {"sinks": levels}
    yield "sinks of zero, which are one more in each sum", heads, {"sinks": np.zeros(4)}
    yield "causal", heads, {"sinks": levels, "causal": True}
    yield "heads that share keys, and have sinks of their own", grouped, {"sinks": levels}
    query, key, value = heads
    decoding = query[:, :, -1:], key, value
    yield "decoding one token", decoding, {"sinks": levels, "causal": True}
    yield "another scale", heads, {"sinks": levels, "scale": 0.25}
    yield "a bias", heads, {"sinks": levels, "bias": draw(11, 4, 3, 4)}
    short = reference.length_mask(np.array([3, 0]), 4)[:, None]
    yield "one length per example, one of them 0", heads, {"sinks": levels, "mask": short}
    late = np.array([[False, False, True, True], [False, True, True, True]])
    late = late[:, None, None]
    yield (
        "the first keys hidden, as by left padding",
        heads,
        {"sinks": levels, "mask": late},
    )
    every = {"mask": short, "causal": True, "scale": 0.25, "bias": draw(11, 4, 3, 4)}
    yield "all options at once", heads, {"sinks": levels, **every}
    high, far = np.array([7.0, 6.5, 5.0, 6.0]), np.array([-7.0, -6.5, -7.0, -5.5])
    yield "high sinks: heads attend to next to nothing", heads, {"sinks": high}
    yield "low sinks: hardly any", heads, {"sinks": far}
    extreme = {"sinks": np.array([2000.0, -2000.0, 0.5, 4.0]), "bias": 1024 * np.eye(3, 4)}
    yield "scores and sinks whose exponentials overflow", heads, extreme


def soft_cap():
    """Attention whose scores are capped by c tanh(s / c) after the scale, before bias and mask."""
    query, key, value = 2 * draw(12, 2, 5, 4), draw(13, 2, 5, 4), draw(14, 2, 5, 4)
    heads = query, key, value
    yield "a cap", heads, {"soft_cap": 1.5}
    yield "a cap that hardly matters", heads, {"soft_cap": 50.0}
    yield "another scale", heads, {"soft_cap": 1.5, "scale": 0.25}
    yield "causal", heads, {"soft_cap": 2.0, "causal": True}
    yield (
        "decoding one token",
        (query[:, -1:], key, value),
        {"soft_cap": 2.0, "causal": True},
    )
    yield "a bias above the cap", heads, {"soft_cap": 1.0, "bias": 3 * draw(15, 1, 5, 5)}
    short = reference.length_mask(np.array([3, 0]), 5)
    yield "one length per example, one of them 0", heads, {"soft_cap": 1.5, "mask": short}
    every = {"causal": True, "scale": 0.25, "bias": draw(16, 2, 5, 5)}
    every["mask"] = reference.length_mask(np.array([3, 2]), 5)
    yield "all options at once", heads, {"soft_cap": 1.0, **every}


def windowed(query, key, value, *, window, scale=None):
    """Causal attention within a window, the queries at the end of the keys."""
    options = {"mask": reference.Window(window), "causal": True, "scale": scale}
    return reference.scaled_dot_product_attention(query, key, value, **options)


def window_attention():
    """Causal attention to the last `window` keys, the query's own among them, as kernels have it."""
    query, key, value = (draw(seed, 2, 3, 7, 4) for seed in (17, 18, 19))
    yield "a text", (query, key, value), {"window": 3}
    yield "decoding one token", (query[..., -1:, :], key, value), {"window": 3}
    yield "decoding three tokens", (query[..., -3:, :], key, value), {"window": 3}
    yield "a window of one: each token sees itself", (query, key, value), {"window": 1}
    yield "decoding, a window of one", (query[..., -1:, :], key, value), {"window": 1}
    yield "a window as long as the text", (query, key, value), {"window": 7}
    yield "a window larger than the text", (query, key, value), {"window": 64}
    grouped = draw(20, 1, 4, 7, 4), key[:1, :2], value[:1, :2]
    yield "heads that share keys, another scale", grouped, {"window": 4, "scale": 0.25}


def within_windows(query, key, value, *, window, shift=0, scale=None):
    """Attention of the cells `(h, w)` of an image within squares, `shift` further down and right."""
    height, width = query.shape[-3:-1]
    grid = np.stack(np.divmod(np.arange(height * width), width), axis=-1)
    square = (grid - shift) // window
    mask = np.all(square[:, None] == square, axis=-1)
    tokens = (x.reshape(*x.shape[:-3], height * width, -1) for x in (query, key, value))
    made = reference.scaled_dot_product_attention(*tokens, mask=mask, scale=scale)
    return made.reshape(query.shape)


def image_window_attention():
    """Attention within windows of an image of any size, as in Swin: padding has no weight."""
    image = tuple(draw(seed, 1, 2, 5, 7, 4) for seed in (21, 22, 23))
    wide = tuple(x[..., :4, :6, :] for x in image)
    yield "windows that fit", wide, {"window": 2}
    yield "windows that do not fit", image, {"window": 3}
    yield "shifted windows that fit", wide, {"window": 2, "shift": 1}
    yield "shifted windows that do not fit", image, {"window": 3, "shift": 1}
    yield "a window larger than the image", image, {"window": 8}
    yield "all options at once", image, {"window": 3, "shift": 1, "scale": 0.25}


PAPER = "Vaswani.Shazeer.Parmar.ea.2017"
CASES = {
    "masked_softmax": Cases(
        reference.masked_softmax, masked_softmax, f"{PAPER}, section 3.2"
    ),
    "attention": Cases(
        reference.scaled_dot_product_attention, attention, f"{PAPER}, equation 1"
    ),
    "sinks": Cases(
        reference.scaled_dot_product_attention,
        sinks,
        "openai2025gptoss, and transformers' program",
    ),
    "window_attention": Cases(
        windowed,
        window_attention,
        "jiang2023mistral, section 2",
        name="scaled_dot_product_attention(..., mask=Window(window), causal=True)",
    ),
    "image_window_attention": Cases(
        within_windows, image_window_attention, "liu2021swin, section 3.2"
    ),
    "soft_cap": Cases(
        reference.scaled_dot_product_attention,
        soft_cap,
        "gemma2024gemma2, and transformers' program",
    ),
}
