"""Attention and masks that are subtly wrong, as they were seen or are easily written."""

import numpy as np
import torch

from tests.library.conformance.examples import wrong


def softmax(scores, seen):
    """Weights, and zero for rows that may attend to nothing, which is right."""
    seen = np.broadcast_to(seen, scores.shape)
    scores = np.where(seen, scores, -np.inf)
    top = scores.max(axis=-1, keepdims=True, initial=np.finfo(scores.dtype).min)
    exp = np.exp(scores - top)
    return exp / np.maximum(exp.sum(axis=-1, keepdims=True), np.finfo(scores.dtype).tiny)


def past(scores):
    """What a query at the end of the keys may see, which is right."""
    n_q, n_k = scores.shape[-2:]
    return np.tri(n_q, n_k, n_k - n_q, dtype=bool)


def scores_of(query, key, bias=None, scale=None):
    """Scaled scores and the bias, which are right."""
    scores = query @ np.swapaxes(key, -1, -2)
    scores = scores * (query.shape[-1] ** -0.5 if scale is None else scale)
    return scores if bias is None else scores + bias


def product(weights, value):
    """What the weights pick, without what is hidden and no number."""
    return weights @ np.nan_to_num(value, posinf=0.0, neginf=0.0)


@wrong("masked_softmax")
def floor_of_the_sum(scores, mask=None):
    """A small number is added to the sum, which takes weight from rows whose scores are equal."""
    exp = np.exp(scores - scores.max(-1, keepdims=True)) * (True if mask is None else mask)
    return exp / (exp.sum(-1, keepdims=True) + 1e-3)


@wrong("masked_softmax")
def nothing_subtracted(scores, mask=None):
    """The exponential is taken as it stands, and overflows where scores are large."""
    exp = np.exp(scores) * (True if mask is None else mask)
    return exp / np.maximum(exp.sum(-1, keepdims=True), 1e-300)


@wrong("masked_softmax")
def hidden_after_the_softmax(scores, mask=None):
    """Weights are set to 0 where something is hidden, after they were made to sum to 1."""
    return softmax(scores, np.True_) * (True if mask is None else mask)


@wrong("masked_softmax", "torch", cause="ten_thousand_subtracted")
def ten_thousand_subtracted(scores, mask=None):
    """What is hidden loses 10000, which is not enough where scores are larger."""
    weights = scores if mask is None else scores - 1e4 * ~mask
    return weights.softmax(-1) if mask is None else weights.softmax(-1) * mask


@wrong("attention", cause="bias_or_causal")
def bias_lost_when_causal(
    query, key, value, *, mask=None, causal=False, bias=None, scale=None
):
    """The causal mask takes the place of the bias, as where one argument holds either."""
    scores = scores_of(query, key, None if causal else bias, scale)
    seen = past(scores) if causal else np.True_
    return product(softmax(scores, seen if mask is None else seen & mask), value)


@wrong("attention", cause="bias_or_mask")
def bias_lost_when_masked(
    query, key, value, *, mask=None, causal=False, bias=None, scale=None
):
    """The mask takes the place of the bias."""
    scores = scores_of(query, key, bias if mask is None else None, scale)
    seen = past(scores) if causal else np.True_
    return product(softmax(scores, seen if mask is None else seen & mask), value)


@wrong("attention", cause="scaled_by_the_width")
def scaled_twice(query, key, value, *, mask=None, causal=False, bias=None, scale=None):
    """The query is scaled, and the scores are scaled again."""
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    scores = scores_of(query * scale, key, bias, scale)
    seen = past(scores) if causal else np.True_
    return product(softmax(scores, seen if mask is None else seen & mask), value)


@wrong("attention", cause="causal_in_squares_only")
def causal_only_for_squares(
    query, key, value, *, mask=None, causal=False, bias=None, scale=None
):
    """Causal holds only where there are as many queries as keys, as if all else were decoding."""
    scores = scores_of(query, key, bias, scale)
    seen = past(scores) if causal and scores.shape[-1] == scores.shape[-2] else np.True_
    return product(softmax(scores, seen if mask is None else seen & mask), value)


@wrong("attention")
def mask_of_the_first_example(
    query, key, value, *, mask=None, causal=False, bias=None, scale=None
):
    """The first example's mask serves all."""
    scores = scores_of(query, key, bias, scale)
    seen = past(scores) if causal else np.True_
    return product(softmax(scores, seen if mask is None else seen & mask[:1]), value)


@wrong("attention", "torch")
def cleaned_of_everything(
    query, key, value, *, mask=None, causal=False, bias=None, scale=None
):
    """NaN becomes 0 in the weights, so that a hidden NaN takes its whole row with it."""
    scores = query @ key.mT * (query.shape[-1] ** -0.5 if scale is None else scale)
    scores = scores if bias is None else scores + bias
    seen = torch.from_numpy(past(scores)) if causal else torch.tensor(True)
    seen = seen if mask is None else seen & mask
    weights = (scores + torch.where(seen, 0.0, float("-inf"))).softmax(-1)
    return weights.nan_to_num(0.0) @ value.nan_to_num(0.0, 0.0, 0.0)


def heads_of(x, heads, axis_first):
    """Shared keys for each head: neighbors share, or all come again and again."""
    times = heads // x.shape[1]
    return np.tile(x, (1, times, 1, 1)) if axis_first else np.repeat(x, times, axis=1)


def with_sink(scores, seen, column):
    """Weights beside a column of sinks, which are right."""
    column = np.broadcast_to(column, (*scores.shape[:-1], 1))
    seen = np.broadcast_to(seen, scores.shape)
    beside = np.concatenate([scores, column], -1)
    weights = softmax(beside, np.concatenate([seen, np.ones_like(column, dtype=bool)], -1))
    return weights[..., :-1]


@wrong("sinks", cause="keys_in_turns")
def heads_in_turns(
    query, key, value, *, mask=None, causal=False, bias=None, scale=None, sinks=None
):
    """Shared keys are tiled, where each should be repeated for the heads beside it."""
    key, value = (heads_of(x, query.shape[1], True) for x in (key, value))
    scores = scores_of(query, key, bias, scale)
    seen = past(scores) if causal else np.True_
    seen = seen if mask is None else seen & mask
    return with_sink(scores, seen, sinks[:, None, None]) @ value


@wrong("sinks")
def sink_without_the_largest(
    query, key, value, *, mask=None, causal=False, bias=None, scale=None, sinks=None
):
    """The largest score is subtracted from the scores, and not from the sink."""
    key, value = (heads_of(x, query.shape[1], False) for x in (key, value))
    scores = scores_of(query, key, bias, scale)
    seen = past(scores) if causal else np.True_
    scores = np.where(seen if mask is None else seen & mask, scores, -np.inf)
    top = scores.max(-1, keepdims=True, initial=np.finfo(scores.dtype).min)
    exp = np.exp(scores - top)
    return exp / (exp.sum(-1, keepdims=True) + np.exp(sinks[:, None, None])) @ value


@wrong("sinks", cause="sinks_of_the_first_head")
def sink_of_the_first_head(
    query, key, value, *, mask=None, causal=False, bias=None, scale=None, sinks=None
):
    """The first head's sink serves all, as where a loop over heads forgets its index."""
    key, value = (heads_of(x, query.shape[1], False) for x in (key, value))
    scores = scores_of(query, key, bias, scale)
    seen = past(scores) if causal else np.True_
    seen = seen if mask is None else seen & mask
    return with_sink(scores, seen, sinks[0]) @ value


@wrong("soft_cap", cause="soft_cap_after_the_mask")
def cap_after_the_mask(
    query, key, value, *, mask=None, causal=False, bias=None, scale=None, soft_cap=None
):
    """The cap comes after the mask, and minus infinity becomes minus the cap: the hidden is seen."""
    scores = scores_of(query, key, None, scale)
    seen = past(scores) if causal else np.True_
    scores = np.where(seen if mask is None else seen & mask, scores, -np.inf)
    scores = np.tanh(scores / soft_cap) * soft_cap
    return softmax(scores if bias is None else scores + bias, np.True_) @ value


@wrong("soft_cap")
def cap_of_the_square_root(
    query, key, value, *, mask=None, causal=False, bias=None, scale=None, soft_cap=None
):
    """The bent scores are scaled once more, as where a kernel scales inside and the caller outside."""
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    scores = np.tanh(scores_of(query, key, None, scale) / soft_cap) * soft_cap * scale
    scores = scores if bias is None else scores + bias
    seen = past(scores) if causal else np.True_
    return product(softmax(scores, seen if mask is None else seen & mask), value)
