"""Cases of attention: masks, alignment, biases, rows that may attend to nothing."""

import numpy as np

from posattn import reference
from posattn.conformance.cases import Scheme, draw


def masked_softmax():
    """Normalised scores: what the mask hides has no weight, and a hidden row is zero."""
    scores = draw(0, 2, 3, 4)
    some = np.random.default_rng(0).random((2, 3, 4)) < 0.6
    some[0, 1], some[1, 2] = False, True
    yield "no mask", (scores,), {}
    yield "a mask with an empty row", (scores, some), {}
    yield "one row for all queries", (scores, np.array([[True, False, True, True]])), {}
    yield "large scores", (scores * 2**13,), {}
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
    yield (
        "causal, decoding one token",
        (query[:, :1], key, value),
        {"causal": True},
    )
    yield "causal, more queries than keys", (key, query, query), {"causal": True}
    yield "one length per example, one of them 0", (query, key, value), {"mask": few}
    yield "one length per query", (query, key, value), {"mask": per_query}
    some = reference.length_mask(np.array([4, 2]), 5)
    yield "a mask and causal", (query, key, value), {"mask": some, "causal": True}
    yield "a bias", (query, key, value), {"bias": draw(7, 1, 3, 5)}
    yield "three heads, causal", heads, {"causal": True}
    nan = [
        np.where(hidden[..., None], bad, x) for x, bad in ((key, np.nan), (value, np.inf))
    ]
    yield "NaN and infinity in hidden keys", (query, *nan), {"mask": short}


PAPER = "Vaswani.Shazeer.Parmar.ea.2017"
SCHEMES = {
    "masked_softmax": Scheme(
        reference.masked_softmax,
        masked_softmax,
        f"{PAPER}, section 3.2",
    ),
    "attention": Scheme(
        reference.scaled_dot_product_attention,
        attention,
        f"{PAPER}, equation 1",
    ),
}
