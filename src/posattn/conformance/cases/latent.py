"""Cases of latent attention: one narrow vector per token, and entries of their own that rotate."""

import numpy as np

from posattn import reference
from posattn.reference.cases import Cases, draw


def layer(
    x,
    positions=None,
    *,
    query_weight,
    kv_down_weight,
    kv_norm_weight,
    key_weight,
    value_weight,
    output_weight,
    num_heads,
    query_down_weight=None,
    query_norm_weight=None,
    mask=None,
    causal=False,
    base=10000.0,
    layout="interleaved",
    scale=None,
    eps=1e-6,
):
    """Latent attention whose last entries rotate, as one function of tokens, positions and weights."""
    made = reference.LatentAttention(
        query_weight,
        kv_down_weight,
        kv_norm_weight,
        key_weight,
        value_weight,
        output_weight,
        query_down_weight,
        query_norm_weight,
        num_heads=num_heads,
        rotate=reference.Rotary(base=base, layout=layout),
        scale=scale,
        eps=eps,
    )
    return made(x, mask=mask, causal=causal, query_positions=positions)


def weights(rank=None):
    """Weights of two heads, with content, rotation entries and values of widths 3, 4 and 2.

    The latent vector is wider than the content: who divides by the one for the other is seen.
    """
    d, latent, heads = 6, 5, 2
    shapes = {
        "query_weight": (d if rank is None else rank, heads * (3 + 4)),
        "kv_down_weight": (d, latent + 4),
        "key_weight": (latent, heads * 3),
        "value_weight": (latent, heads * 2),
        "output_weight": (heads * 2, d),
    }
    norms = {"kv_norm_weight": latent}
    if rank is not None:
        shapes["query_down_weight"] = d, rank
        norms["query_norm_weight"] = rank
    drawn = {name: draw(k, *shape) for k, (name, shape) in enumerate(shapes.items(), 20)}
    near = {name: 1 + draw(k, n) / 4 for k, (name, n) in enumerate(norms.items(), 30)}
    return {**drawn, **near, "num_heads": heads}


def latent():
    """Multi-head latent attention, as in DeepSeek V2 and V3: a shared key that rotates, and norms."""
    x, made, narrow = (
        draw(40, 3, 5, 6),
        weights(),
        weights(2),
    )  # never as many examples as heads
    later = np.arange(7, 12)
    yield "positions that do not begin at 0", (x, later), made
    yield "no positions given", (x,), made
    yield "causal", (x, later), {**made, "causal": True}
    gaps = np.array([0, 2, 3, 7, 11])
    yield "positions with gaps", (x, gaps), made
    yield "queries from a latent vector", (x, later), {**narrow, "causal": True}
    yield "layout half", (x, later), {**made, "layout": "half"}
    yield "another base", (x, later), {**made, "base": 50.0}
    yield "a scale that YaRN has sharpened", (x, later), {**made, "scale": 0.625}
    yield "another epsilon", (x, later), {**narrow, "eps": 0.25}
    seen = reference.length_mask(np.array([5, 3, 4]), 5)
    yield "one length per example", (x, later), {**made, "mask": seen}
    left = np.array([[0, 0, 0, 1, 2], [0, 1, 2, 3, 4], [0, 0, 1, 2, 3]])
    seen = (np.arange(5) >= np.array([[2], [0], [1]]))[:, None] | np.eye(5, dtype=bool)
    padded = {**made, "mask": seen, "causal": True}
    yield "left padding: positions per example", (x, left), padded
    every = {"base": 50.0, "layout": "half", "scale": 0.625, "eps": 0.25}
    yield (
        "all options at once",
        (x, left),
        {**narrow, "mask": seen, "causal": True, **every},
    )


CASES = {
    "latent": Cases(
        layer,
        latent,
        "deepseek2024v2, section 2.1",
        name="LatentAttention(*weights, rotate=Rotary(...))",
    )
}
