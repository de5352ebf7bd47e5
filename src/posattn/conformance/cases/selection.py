"""Cases of chosen keys: the scores of an indexer, what is chosen by them, and attention to it."""

import numpy as np

from posattn import reference
from posattn.reference.cases import Cases, draw


def indexer_scores():
    """The scores of an indexer, as in DeepSeek-V3.2: a weighted sum of positive products, no softmax."""
    query, key, weights = draw(0, 2, 16, 4, 4), draw(1, 2, 7, 4), draw(2, 2, 4, 16)
    yield "sixteen heads, weights of either sign", (query, key, weights), {}
    yield "no weights", (query, key), {}
    yield "decoding: one query", (query[:, :, -1:], key, weights[:, -1:]), {}
    yield "a scale of 1", (query[:1, :2], key[:1], weights[:1, :, :2]), {"scale": 1.0}


def select_keys():
    """The keys with the highest scores, in rising order of their places, then -1."""
    scores = draw(3, 2, 6, 12)
    yield "three of twelve", (scores, 3), {}
    yield "three of twelve, causal", (scores, 3), {"causal": True}
    square = draw(4, 1, 9, 9)
    yield "the first queries see fewer than three", (square, 3), {"causal": True}
    yield "as many as there are", (square, 9), {"causal": True}
    yield "more than there are", (square, 20), {"causal": True}
    yield "equal scores: the earlier key", (0 * scores, 3), {"causal": True}
    padding = {"mask": np.arange(12) > np.array([0, 4])[:, None, None]}
    yield "padding on the left", (scores, 3), {**padding, "causal": True}
    yield "padding on the left, not causal", (scores, 3), padding
    yield (
        "one query with nothing to read",
        (scores[:1, :1], 3),
        {"mask": np.zeros((1, 12), bool)},
    )


def indexer(
    query, key, weights, *, count, rotary_dim=None, layout="half", last=False, base=10000.0
):
    """Rotate some entries of an indexer's queries and keys, score, and choose keys of the past."""
    query, key = rotated(query, key, rotary_dim, layout, last, base)
    scores = reference.indexer_scores(query, key, weights)
    return reference.select_keys(scores, count, causal=True)


def rotated(query, key, rotary_dim=None, layout="half", last=False, base=10000.0):
    """Queries and keys of an indexer at their positions, of which some entries are rotated."""
    width = query.shape[-1]
    turning = width if rotary_dim is None else rotary_dim
    part = slice(width - turning, width) if last else slice(0, turning)
    for x in (query, key):
        where, made = np.arange(key.shape[-2] - x.shape[-2], key.shape[-2]), x.copy()
        made[..., part] = reference.rotate(x[..., part], where, base=base, layout=layout)
        yield made


def indexers():
    """A whole indexer: its own rotation, scores, and the keys of the past that it chooses."""
    given = draw(5, 1, 4, 24, 8), draw(6, 1, 24, 8), draw(7, 1, 24, 4)
    yield (
        "halves, the first four entries",
        given,
        {"count": 5, "rotary_dim": 4, "layout": "half"},
    )
    other = {"count": 5, "rotary_dim": 4, "layout": "interleaved"}
    yield "neighbors, the first four entries", given, other
    end = {"count": 5, "rotary_dim": 4, "layout": "half", "last": True}
    yield "halves, the last four entries", given, end
    yield "the whole width", given, {"count": 5, "layout": "half"}
    slow = {"count": 5, "rotary_dim": 4, "layout": "half", "base": 500.0}
    yield "another base", given, slow
    every = {**other, "last": True, "base": 500.0}
    yield "neighbors, the last four entries, another base", given, every
    last = given[0][:, :, -3:], given[1], given[2][:, -3:]
    yield "decoding: three queries", last, {"count": 5, "rotary_dim": 4, "layout": "half"}
    few = [x[..., :5, :] for x in given]
    yield "no more keys than it chooses", tuple(few), {"count": 5, "layout": "half"}


def select_blocks():
    """Blocks by their best key, as in MiniMax-M3: for each group of heads, the query's own block always."""
    scores = draw(8, 1, 2, 13, 13)
    yield "two of five blocks, two groups of heads", (scores, 2, 3), {"causal": True}
    yield "one block: the own one", (scores, 1, 3), {"causal": True}
    yield "decoding: two queries", (scores[:, :, -2:], 2, 3), {"causal": True}
    padding = {"mask": (np.arange(13) > 1)[None]}
    yield "padding on the left", (scores, 2, 3), {**padding, "causal": True}
    yield "padding on the left, not causal", (scores, 2, 3), padding
    yield "all blocks", (scores, 5, 3), {"causal": True}


def group_keys():
    """One key for each complete group of tokens: the mean, or a softmax of gates for each channel."""
    key, gates = draw(9, 2, 9, 4), draw(10, 2, 9, 4)
    yield "the mean of two", (key, 2), {}
    yield "the mean of four, one token left over", (key, 4), {}
    yield "gates", (key, 2), {"gates": gates}
    rows = np.arange(9) >= np.array([0, 3])[:, None]
    yield "groups from the first token on", (key, 2), {"mask": rows}
    yield "the group before it, too", (key, 2), {"gates": gates, "overlap": True}
    both = {"gates": gates, "overlap": True, "mask": rows}
    yield "the group before it, from the first token on", (key, 2), both


def select_groups():
    """Groups of tokens by scores, as in Qwen4-Exp: complete ones, and all tokens after the last of them."""
    scores = draw(11, 2, 9, 4)
    yield "two of four groups", (scores, 2, 2, 9), {"causal": True}
    yield "decoding: two queries", (scores[:, -2:], 2, 2, 9), {"causal": True}
    rows = {"mask": np.arange(9) >= np.array([0, 3])[:, None]}
    yield "groups from the first token on", (scores, 2, 2, 9), {**rows, "causal": True}
    yield "groups from the first token on, not causal", (scores, 2, 2, 9), rows


def attention_to(query, key, value, select, *, mask=None, causal=False, scale=None):
    """Attention to the keys that were chosen."""
    return reference.scaled_dot_product_attention(
        query, key, value, mask=mask, causal=causal, scale=scale, select=select
    )


def selected_attention():
    """Attention to chosen keys: exactly that to all keys whose mask is what was chosen and may be seen."""
    query, key, value = (draw(seed, 2, 4, 6, 4) for seed in (12, 13, 14))
    key, value = key[:, :2], value[:, :2]
    chosen = reference.select_keys(draw(15, 2, 1, 6, 6), 3, causal=True)
    yield "three keys of the past, for all heads", (query, key, value, chosen), {}
    groups = reference.select_keys(draw(16, 2, 2, 6, 6), 3, causal=True)
    yield "for each head of keys its own", (query, key, value, groups), {}
    heads = reference.select_keys(draw(17, 2, 4, 6, 6), 3, causal=True)
    yield "for each head of queries its own", (query, key, value, heads), {}
    ahead = reference.select_keys(draw(18, 2, 1, 6, 6), 3)
    yield "some of the future, hidden", (query, key, value, ahead), {"causal": True}
    seen = {"mask": np.arange(6) > np.array([0, 2])[:, None, None, None]}
    yield "some that are padding", (query, key, value, ahead), seen
    yield (
        "hidden by both",
        (query, key, value, ahead),
        {**seen, "causal": True, "scale": 1.0},
    )
    yield "a scale of 1", (query, key, value, chosen), {"scale": 1.0}
    yield "decoding: one query", (query[:, :, -1:], key, value, chosen[:, :, -1:]), {}
    yield (
        "one that comes twice",
        (query, key, value, np.append(chosen, chosen[..., :1], axis=-1)),
        {},
    )
    none = np.full_like(chosen, -1)
    yield "nothing", (query, key, value, none), {}


SOURCE, OWN = "deepseek2025v32, section 2.1", {"exact": True}
CASES = {
    "indexer_scores": Cases(reference.indexer_scores, indexer_scores, SOURCE, **OWN),
    "select_keys": Cases(reference.select_keys, select_keys, SOURCE, **OWN),
    "indexer": Cases(indexer, indexers, SOURCE, name="select_keys(indexer_scores)", **OWN),
    "select_blocks": Cases(reference.select_blocks, select_blocks, SOURCE, **OWN),
    "select_groups": Cases(reference.select_groups, select_groups, SOURCE, **OWN),
    "group_keys": Cases(reference.group_keys, group_keys, "deepseek2026v4, section 2.3"),
    "selected_attention": Cases(
        attention_to,
        selected_attention,
        SOURCE,
        name="scaled_dot_product_attention(..., select=select)",
    ),
}
