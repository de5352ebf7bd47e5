"""Cases of the rotation of queries and keys, and of the conversions between its layouts."""

import numpy as np

from posattn.conformance.cases import PAIRS, Scheme, draw, single
from posattn.reference.position import rotary as definition
from posattn.reference.position.sinusoidal import frequencies

FAR = np.array([2**20, 2**20 - 1, 2**19 + 1, 65537, 100003])
FINE = np.array([257, 999, 1021, 2049, 4095])
PARTS = np.array([-2.5, 0.25, 1000.75, 3.0, 0.5])
SLOW = single(frequencies(8)[:2] / 4)


def rotary():
    """Rotation of queries or keys by their positions, in both layouts, whole and partial."""
    x, first = draw(0, 2, 5, 8), np.arange(5)
    half = {"layout": "half"}
    later = np.arange(7, 12)
    yield "another base, positions that do not begin at 0", (x, later), {"base": 500.0}
    yield "positions that do not begin at 0", (x, later), {}
    yield "another base", (x, first), {"base": 500.0}
    yield "positions 0 to 4", (x, first), {}
    yield "half the width", (x[..., :4], first), {}
    yield "no positions given", (x,), {}
    yield "a pair alone", (x[..., :2], first), {}
    yield "layout half, positions that do not begin at 0", (x, later), half
    yield "layout half, positions 0 to 4", (x, first), half
    yield "layout half, no positions given", (x,), half
    yield "layout half, another base", (x, first), {"base": 500.0, **half}
    yield "an order of their own", (x, np.array([4, 0, 3, 3, 1])), {}
    yield "positions that bfloat16 and float16 cannot hold", (x, FINE), {}
    yield "layout half, positions that bfloat16 and float16 cannot hold", (x, FINE), half
    yield "large positions, up to 2**20", (x, FAR), {}
    yield "layout half, large positions", (x, FAR), half
    yield (
        "left padding: positions per example",
        (x, np.array([[0, 0, 0, 1, 2], [0, 1, 2, 3, 4]])),
        {},
    )
    heads, per_head = draw(1, 2, 3, 4, 6), np.array([[[5, 6, 7, 8]], [[0, 0, 1, 2]]])
    yield "three heads, positions per example", (heads, per_head), {}
    yield "as many examples as tokens", (draw(2, 5, 5, 8),), {}
    yield "decoding: one token", (x[:1, :1], np.array([41])), {}
    yield "no tokens", (x[:, :0], first[:0]), {}
    yield "fractions and negative positions", (x, PARTS), {}
    yield "partial: two pairs turn", (x, first), {"frequencies": SLOW}
    yield "layout half, partial: two pairs turn", (x, first), {"frequencies": SLOW, **half}
    yield "partial of an odd width", (draw(3, 1, 5, 7), FINE), {"frequencies": SLOW}
    yield "an attention factor", (x, first), {"attention_factor": 1.25}
    yield (
        "partial, with an attention factor",
        (x, first),
        {"frequencies": SLOW, "attention_factor": 1.25},
    )


def rotary_scores():
    """Scores of queries and keys that were both rotated: `rotate(query, ...) @ rotate(key, ...)`."""
    for name, where in PAIRS.items():
        shapes = ((*at.shape[:-1], 3, at.shape[-1], 8) for at in where)
        heads = [draw(seed, *shape) for seed, shape in enumerate(shapes)]
        if name == "positions per example":
            where = tuple(at[:, None] for at in where)
        yield name, (*heads, *where), {}
        if name in ("six tokens", "positions per example"):
            yield f"{name}, layout half", (*heads, *where), {"layout": "half"}
            yield f"{name}, another base", (*heads, *where), {"base": 500.0}


def scores(
    query, key, query_positions, key_positions, *, base=10000.0, layout="interleaved"
):
    """The two rotations and the product, as one function."""
    options = {"base": base, "layout": layout}
    turned = definition.rotate(query, query_positions, **options)
    return turned @ definition.rotate(key, key_positions, **options).mT


def to_half():
    """Activations of the layout interleaved, put into the layout half."""
    yield "eight columns", (draw(0, 2, 3, 8),), {}
    yield "six columns", (draw(1, 4, 6),), {}
    yield "an odd width", (draw(2, 2, 7),), {}
    yield "two columns", (draw(3, 2, 2),), {}


def to_interleaved():
    """Activations of the layout half, put into the layout interleaved."""
    yield from to_half()


def weight_to_half():
    """Checkpoint weights of queries or keys, made for the layout interleaved: `x @ weight`."""
    yield "two heads", (draw(0, 5, 12), 2), {}
    yield "three heads", (draw(1, 12, 12), 3), {}
    yield "one head", (draw(2, 4, 6), 1), {}
    yield "partial: four of six entries turn", (draw(3, 4, 12), 2, 4), {}
    yield "an offset", (draw(4, 12), 3), {}


def weight_to_interleaved():
    """Checkpoint weights of queries or keys, made for the layout half: `x @ weight`."""
    yield from weight_to_half()


LAYOUTS = "biderman2021rotary, the two layouts"
SCHEMES = {
    "rotary": Scheme(definition.rotate, rotary, "su2024roformer, section 3.2.2"),
    "rotary_scores": Scheme(
        scores, rotary_scores, "su2024roformer, section 3.2.2", name="rotate"
    ),
    "to_half": Scheme(definition.to_half, to_half, LAYOUTS),
    "to_interleaved": Scheme(definition.to_interleaved, to_interleaved, LAYOUTS),
    "weight_to_half": Scheme(definition.weight_to_half, weight_to_half, LAYOUTS),
    "weight_to_interleaved": Scheme(
        definition.weight_to_interleaved, weight_to_interleaved, LAYOUTS
    ),
}
