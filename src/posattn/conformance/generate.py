"""Make the vectors from the reference: `python -m posattn.conformance.generate`.

Each generator yields cases: a name, positional arguments and keywords.
The reference adds the expected output, and the gradients by complex step.
"""

import json

import numpy as np

from posattn import reference
from posattn.conformance.vectors import FOLDER

VERSION = 1
STEP = 1e-30  # of complex differentiation, which subtracts nothing


def sinusoidal():
    """The encoding itself: lengths, positions given, odd widths, other bases."""
    yield "four columns", (4, 4), {}
    yield "columns 6 to 9 of 60 positions", (60, 32), {}
    yield "odd width, the last column is a sine", (5, 7), {}
    yield "width 1", (3, 1), {}
    yield "no positions", (0, 4), {}
    yield "another base", (6, 8), {"base": 500.0}
    yield "offsets and an order of their own", (np.array([7, 3, 1048576]), 6), {}
    yield "positions per example", (np.array([[0, 1, 2], [5, 6, 7]]), 4), {}
    yield "fractions and negative numbers", (np.array([-2.5, 0.25, 1000.75]), 6), {}
    yield "beyond a table of 1000", (np.arange(998, 1003), 8), {}


def masked_softmax():
    """Normalised scores: what the mask hides has no weight, and a hidden row is zero."""
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(2, 3, 4))
    some = rng.random((2, 3, 4)) < 0.6
    some[0, 1], some[1, 2] = False, True
    yield "no mask", (scores,), {}
    yield "a mask with an empty row", (scores, some), {}
    yield "one row for all queries", (scores, np.array([[True, False, True, True]])), {}
    yield "large scores", (scores * 1e4,), {}
    yield "equal scores", (np.zeros((2, 5)),), {}
    yield "hidden infinities", (np.where(some, scores, np.inf), some), {}


def attention():
    """Scaled dot-product attention: masks, alignment, biases, empty rows, NaN in hidden keys."""
    rng = np.random.default_rng(1)
    query, key, value = (rng.normal(size=(2, n, d)) for n, d in ((3, 4), (5, 4), (5, 6)))
    few = reference.length_mask(np.array([3, 0]), 5)
    per_query = reference.length_mask(np.array([[1, 2, 3], [0, 5, 4]]), 5)
    hidden = np.arange(5) >= np.array([3, 0])[:, None]
    heads = tuple(rng.normal(size=(2, 2, 4, 3)) for _ in range(3))
    yield "plain", (query, key, value), {}
    yield "a scale", (query, key, value), {"scale": 0.25}
    yield "causal, queries at the end of the keys", (query, key, value), {"causal": True}
    yield (
        "causal, more queries than keys",
        (key, query, query),
        {"causal": True},
    )
    yield "one length per example, one of them 0", (query, key, value), {"mask": few}
    yield "one length per query", (query, key, value), {"mask": per_query}
    yield "a mask and causal", (query, key, value), {"mask": few, "causal": True}
    yield "a bias", (query, key, value), {"bias": rng.normal(size=(1, 3, 5))}
    yield "heads, causal", heads, {"causal": True}
    nan = [
        np.where(hidden[..., None], bad, x) for x, bad in ((key, np.nan), (value, np.inf))
    ]
    yield "NaN and infinity in hidden keys", (query, *nan), {"mask": few}


SETS = {
    "sinusoidal": (sinusoidal, reference.sinusoidal_encoding),
    "masked_softmax": (masked_softmax, reference.masked_softmax),
    "attention": (attention, reference.scaled_dot_product_attention),
}


def gradients(function, arguments, cotangent):
    """The gradients of `sum(cotangent * function(*arguments))`, entry by entry."""
    return [
        np.array(
            [slope(function, arguments, k, at, cotangent) for at in np.ndindex(x.shape)]
        ).reshape(x.shape)
        for k, x in enumerate(arguments)
    ]


def slope(function, arguments, k, at, cotangent):
    """How the sum changes with one entry of argument `k`."""
    moved = [x.astype(complex) for x in arguments]
    moved[k][at] += 1j * STEP
    return np.sum(cotangent * function(*moved).imag) / STEP


def make(name):
    """Return one set of vectors, with NumPy arrays."""
    cases, function = SETS[name]
    made = []
    for title, arguments, keywords in cases():
        expected = function(*arguments, **keywords)
        case = {
            "name": title,
            "arguments": list(arguments),
            "keywords": keywords,
            "expected": expected,
        }
        moving = [x for x in arguments if isinstance(x, np.ndarray) and x.dtype == float]
        if name != "sinusoidal":
            fixed = arguments[len(moving) :]
            cotangent = np.random.default_rng(2).normal(size=expected.shape)
            case["cotangent"] = cotangent
            case["gradients"] = gradients(
                lambda *xs, fixed=fixed, keywords=keywords: function(
                    *xs, *fixed, **keywords
                ),
                moving,
                cotangent,
            )
        made.append(case)
    return {
        "version": VERSION,
        "function": function.__name__,
        "what": cases.__doc__,
        "cases": made,
    }


def encode(value):
    """The JSON form of an array or a number."""
    if isinstance(value, np.ndarray):
        data = [x if np.isfinite(x) else str(x) for x in value.ravel().tolist()]
        return {"dtype": str(value.dtype), "shape": list(value.shape), "data": data}
    raise TypeError(f"value must be an array, got {type(value).__name__}")


def to_json(vectors):
    """The text of a set, a case per line."""
    head = json.dumps({**vectors, "cases": []}).removesuffix("]}")
    cases = (json.dumps(case, default=encode, allow_nan=False) for case in vectors["cases"])
    return head + "\n" + ",\n".join(cases) + "\n]}\n"


def main():
    """Write all sets."""
    for name in SETS:
        (FOLDER / f"{name}.json").write_text(to_json(make(name)), encoding="utf-8")


if __name__ == "__main__":
    main()
