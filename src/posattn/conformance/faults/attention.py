"""Faults of attention, of its softmax and its sinks."""

import numpy as np

from posattn import reference
from posattn.conformance.faults.registry import fault, line, misuse, named_as
from posattn.reference.attention.attention import positions_of, total_bias, visible

attention = reference.scaled_dot_product_attention


def of_the_weights(*, seen=""):
    """Enter a wrong softmax, `weigh(scores, mask)`, and the attention that has it."""

    def enter(weigh):
        @named_as(weigh)
        def attend(query, key, value, **keywords):
            return naive(query, key, value, weigh, **keywords)

        fault("attention", seen=seen)(attend)
        return fault("masked_softmax", seen=seen)(weigh)

    return enter


def naive(query, key, value, weigh, *, mask=None, causal=False, bias=None, scale=None):
    """Attention as it is written down, with weights from `weigh(scores, mask)`."""
    mask = visible(query, key, mask, causal)
    bias = total_bias(bias, query, key, positions_of(query, key, None, None))
    scores = query @ key.mT * (query.shape[-1] ** -0.5 if scale is None else scale)
    return weigh(scores if bias is None else scores + bias, mask) @ value


def softmax(scores, mask, hidden, axis=-1):
    """The softmax as it is written down, with the score `hidden` for what the mask hides."""
    scores = scores if mask is None else np.where(mask, scores, hidden)
    exp = np.exp(scores - np.max(scores, axis=axis, keepdims=True))
    return exp / exp.sum(axis=axis, keepdims=True)


@of_the_weights(seen="pytorch/pytorch #41508, #103749")
def empty_rows_are_nan(scores, mask=None):
    """Rows that may attend to nothing are NaN: the softmax of minus infinities divides 0 by 0."""
    return softmax(scores, mask, -np.inf)


@of_the_weights(seen="jax.nn.dot_product_attention of jax 0.10.2")
def empty_rows_are_the_mean(scores, mask=None):
    """Rows that may attend to nothing are the mean of all values: what is hidden has a finite score."""
    return softmax(scores, mask, -1e30)


@fault("masked_softmax")
def mask_inverted(scores, mask=None):
    """The mask is inverted: True hides, where True should mean may attend."""
    return reference.masked_softmax(scores, None if mask is None else ~mask)


@of_the_weights()
def mask_added(scores, mask=None):
    """The mask is added to the scores as 0 and 1, and hides nothing."""
    return softmax(scores if mask is None else scores + mask, None, None)


@of_the_weights()
def mask_ignored(scores, mask=None):
    """The mask is ignored."""
    return softmax(scores, None, None)


@fault("masked_softmax")
def ten_thousand_subtracted(scores, mask=None):
    """What is hidden loses 10000, which is not enough where scores are larger."""
    if mask is None:
        return softmax(scores, None, None)
    return softmax(scores - 1e4 * ~mask, None, None) * mask


@of_the_weights()
def minus_infinity_added(scores, mask=None):
    """Minus infinity is added to what is hidden: NaN there stays, and a row of nothing else is NaN."""
    return softmax(scores + (0 if mask is None else np.where(mask, 0, -np.inf)), None, None)


@fault("masked_softmax")
def nan_replaced_by_zero(scores, mask=None):
    """NaN is replaced by zero: one hidden NaN empties its row, and broken data are silent."""
    made = minus_infinity_added(scores, mask)
    return np.where(np.isnan(made), 0, made)


@fault("attention", seen="Attention of ONNX in openvino 2026.4.1")
@named_as(nan_replaced_by_zero)
def nan_replaced_by_zero_in_attention(query, key, value, **keywords):
    """The same, in what comes out."""
    made = naive(query, key, value, minus_infinity_added, **keywords)
    return np.where(np.isnan(made), 0, made)


@of_the_weights()
def maximum_begins_at_minus_50000(scores, mask=None):
    """The running maximum begins at -50000: where all scores are lower, all weights are zero."""
    scores = scores if mask is None else np.where(mask, scores, -np.inf)
    top = np.maximum(np.max(scores, axis=-1, keepdims=True), -5e4)
    exp = np.exp(scores - top)
    return exp / (exp.sum(axis=-1, keepdims=True) + np.exp(-5e4 - top))


@of_the_weights()
def exponentials_of_raw_scores(scores, mask=None):
    """The largest score is not subtracted before the exponential: it overflows, or all of them vanish."""
    exp = np.exp(scores) * (1.0 if mask is None else mask)
    return exp / exp.sum(axis=-1, keepdims=True)


@of_the_weights()
def normalised_over_queries(scores, mask=None):
    """The wrong axis: weights sum to 1 over the queries, not over the keys."""
    return softmax(scores, mask, -np.inf, axis=-2)


@fault("attention", seen="pytorch/pytorch #101967")
def hidden_nan_leaks(query, key, value, **keywords):
    """NaN or infinity in hidden keys or values leaks: 0 times either is NaN."""
    finite = naive(query, key, value, empty_rows_are_the_mean, **keywords)
    return np.where(np.isnan(finite), np.nan, attention(query, key, value, **keywords))


@fault("attention", seen="hyunwoongko/transformer #40")
def mask_of_the_queries(query, key, value, *, mask=None, **keywords):
    """The padding of the keys hides queries: the mask has its axes exchanged."""
    mask = None if mask is None else mask.mT
    weigh = empty_rows_are_the_mean
    return naive(query, key, value, weigh, mask=mask, **keywords)


@fault("attention", seen="NVIDIA-NeMo/Automodel #2658")
def lowest_float_added_twice(query, key, value, *, mask=None, causal=False, **keywords):
    """Mask and causal each add the lowest float: together that is minus infinity, alone it is not."""
    hidden = [visible(query, key, mask, False), visible(query, key, None, causal)]
    times = sum(0 if x is None else 1 * ~x for x in hidden)

    def weigh(scores, _):
        return softmax(scores + np.choose(times, [0, -1e30, -np.inf]), None, None)

    return naive(query, key, value, weigh, **keywords)


@fault("attention")
def ten_thousand_cancels(query, key, value, **keywords):
    """What is hidden loses 10000: where that is all, it cancels, and the row is as if nothing were hidden."""

    def weigh(scores, mask):
        return softmax(scores - (0 if mask is None else 1e4 * ~mask), None, None)

    return naive(query, key, value, weigh, **keywords)


@fault("attention")
def nan_of_hidden_keys_stays(query, key, value, **keywords):
    """The mask is added to the scores: a NaN in a hidden key stays NaN, and so does its whole row."""

    def weigh(scores, mask):
        return softmax(scores + (0 if mask is None else -1e30 * ~mask), None, None)

    finite = naive(query, key, value, weigh, **keywords)
    return np.where(np.isnan(finite), np.nan, attention(query, key, value, **keywords))


@fault("attention", seen="Attention of onnxruntime 1.32.0 at opset 23")
def lowest_float_hides(query, key, value, **keywords):
    """The lowest float in a bias hides, as a mask would: a row of nothing else is zero, not the mean."""

    def weigh(scores, mask):
        return reference.masked_softmax(np.where(scores < -1e38, -np.inf, scores), mask)

    return naive(query, key, value, weigh, **keywords)


@fault("gradients of attention", seen="pytorch/pytorch #41508")
def empty_rows_have_nan_slopes(name, exact, query, key, value, **keywords):
    """The gradient is NaN where a row may attend to nothing: replacing the NaN of a value keeps its slope."""
    causal = keywords.get("causal", False)
    mask = visible(query, key, keywords.get("mask"), causal)
    if mask is None or name == "value":
        return exact
    empty = ~np.any(np.broadcast_to(mask, (*query.shape[:-1], key.shape[-2])), axis=-1)
    rows = empty if name == "query" else np.any(empty, axis=-1, keepdims=True)
    return np.where(rows[..., None], np.nan, exact)


@fault("gradients of masked_softmax", seen="pytorch/pytorch #41508")
def empty_rows_have_nan_gradients(name, exact, scores, mask=None):
    """The gradient is NaN where a row may attend to nothing: replacing the NaN of a value keeps its slope."""
    if mask is None:
        return exact
    return np.where(np.any(mask, axis=-1, keepdims=True), exact, np.nan)


def hide(query, key, mask, causal, diagonal):
    """Let each query see the keys up to `diagonal` more than its own number."""
    seen = np.tri(query.shape[-2], key.shape[-2], diagonal, dtype=bool)
    return mask if not causal else seen if mask is None else mask & seen


@fault("attention", "sinks", "soft_cap", seen="pytorch/pytorch #108108, #144858")
def causal_from_the_start(query, key, value, *, mask=None, causal=False, **keywords):
    """Causal is aligned to the start: with fewer queries than keys the newest keys are hidden."""
    mask = hide(query, key, mask, causal, 0)
    return attention(query, key, value, mask=mask, **keywords)


LAST = "MultiHeadAttention of onnxruntime 1.32.0"


@fault("attention", "sinks", seen=LAST)
def last_query_sees_all(query, key, value, *, mask=None, causal=False, **keywords):
    """The last query sees all keys, and causal is aligned to the start in the rows before it."""
    last = np.arange(query.shape[-2])[:, None] == query.shape[-2] - 1
    seen = hide(query, key, None, causal, 0)
    seen = seen if seen is None else seen | last
    mask = seen if mask is None else mask if seen is None else mask & seen
    return attention(query, key, value, mask=mask, **keywords)


@fault("attention")
def no_query_before_the_keys(query, key, value, *, mask=None, causal=False, **keywords):
    """With more queries than keys, the first query sees the first key: the last should see the last."""
    mask = hide(query, key, mask, causal, max(key.shape[-2] - query.shape[-2], 0))
    return attention(query, key, value, mask=mask, **keywords)


@fault("attention")
def causal_without_itself(query, key, value, *, mask=None, causal=False, **keywords):
    """Causal hides the query's own position too."""
    mask = hide(query, key, mask, causal, key.shape[-2] - query.shape[-2] - 1)
    return attention(query, key, value, mask=mask, **keywords)


@misuse("attention")
def causal_in_squares_only(definition, query, key, value, *, causal=False, **keywords):
    """Causal holds for as many queries as keys only: with others, the future is seen."""
    causal = causal and query.shape[-2] == key.shape[-2]
    return definition(query, key, value, causal=causal, **keywords)


@misuse("attention")
def scaled_by_the_width(definition, query, *others, **keywords):
    """The scores are divided by the width, not by its square root."""
    return definition(query, *others, **{"scale": 1 / query.shape[-1], **keywords})


@misuse("attention")
def bias_scaled(definition, query, *others, bias=None, scale=None, **keywords):
    """The bias is scaled along with the scores: it should be added after the scale."""
    factor = query.shape[-1] ** -0.5 if scale is None else scale
    bias = None if bias is None else bias * factor
    return definition(query, *others, bias=bias, scale=scale, **keywords)


@misuse("sinks")
def sinks_scaled(definition, query, *others, sinks, scale=None, **keywords):
    """The sinks are scaled along with the scores: they should join them after the scale."""
    factor = query.shape[-1] ** -0.5 if scale is None else scale
    return definition(query, *others, sinks=sinks * factor, scale=scale, **keywords)


@misuse("sinks")
def sinks_in_other_order(definition, query, key, *others, sinks, **keywords):
    """Sinks go to heads in another order: those that share keys are neighbors."""
    order = sinks.reshape(key.shape[-3], -1).T.ravel()
    return definition(query, key, *others, sinks=order, **keywords)


@misuse("sinks")
def keys_in_turns(definition, query, key, value, **keywords):
    """Heads take shared keys in turns: those that share keys are neighbors."""
    times = query.shape[-3] // key.shape[-3], 1, 1
    return definition(query, np.tile(key, times), np.tile(value, times), **keywords)


@misuse("sinks", seen="modular/modular #6591")
def sinks_go_by_rows(definition, query, key, value, *, sinks, **keywords):
    """A row's number, modulo the heads, chooses its sink: that is right for one query only."""
    heads, n = query.shape[-3:-1]
    sinks = sinks[np.arange(heads * n) % heads].reshape(heads, n, 1)
    zeros, ones = np.zeros(heads), np.ones_like(value[..., :1])
    made = definition(query, key, value, sinks=zeros, **keywords)
    kept = definition(query, key, ones, sinks=zeros, **keywords)
    return made / np.where(kept > 0, kept + (1 - kept) * np.exp(sinks), 1)


@misuse("sinks")
def sinks_have_a_value(definition, query, key, value, **keywords):
    """What the sink takes goes to the first token: a sink has no value."""
    kept = definition(query, key, np.ones_like(value), **keywords)
    first = np.repeat(value[..., :1, :], query.shape[-3] // key.shape[-3], axis=-3)
    return definition(query, key, value, **keywords) + (1 - kept) * first


@misuse("sinks")
def sinks_of_the_keys(definition, query, key, *others, sinks, **keywords):
    """There is a sink for each head of keys: heads that share keys have sinks of their own."""
    group = query.shape[-3] // key.shape[-3]
    shared = np.repeat(sinks[: key.shape[-3]], group)
    return definition(query, key, *others, sinks=shared, **keywords)


@misuse("sinks", seen="ROCm/rocm-libraries #12227")
def sinks_again_after_hidden_keys(definition, query, key, value, *, sinks, **keywords):
    """Sinks are counted twice where the first half of the keys is hidden: each part of them has a sink."""
    once, twice = (
        definition(query, key, value, sinks=x, **keywords)
        for x in (sinks, sinks + np.log(2))
    )
    seen = visible(query, key, keywords.get("mask"), keywords.get("causal", False))
    if seen is None:
        return once
    half = key.shape[-2] // 2
    return np.where(np.any(seen[..., :half], axis=-1, keepdims=True), once, twice)


@misuse("sinks")
def sinks_not_in_decoding(definition, query, key, value, *, sinks, **keywords):
    """Sinks are ignored where there is one query: decoding has a program of its own."""
    kept = {} if query.shape[-2] == 1 else {"sinks": sinks}
    return definition(query, key, value, **kept, **keywords)


@misuse("sinks")
def largest_not_subtracted(definition, query, key, value, *, bias=None, **keywords):
    """The largest score is not subtracted before the exponential, which overflows to NaN."""
    made = definition(query, key, value, bias=bias, **keywords)
    overflows = bias is not None and np.any(np.isinf(np.exp(bias)), -1, keepdims=True)
    return np.where(overflows, np.nan, made)


def of_the_window(name, seen, sentence):
    """Enter an attention with a wrong window, which sees `seen(i, j, window)`."""

    def attend(query, key, value, *, window, scale=None):
        j = np.arange(key.shape[-2])
        mask = seen(j[len(j) - query.shape[-2] :, None], j, window)
        return attention(query, key, value, mask=mask, scale=scale)

    line(name, attend, sentence, "window_attention")


# fmt: off
WINDOWS = (  # a name, which keys j the queries i see in a window w, and a sentence
    ("window_ignored", lambda i, j, w: j <= i, "The window is ignored: all of the past is seen."),
    ("window_not_in_decoding", lambda i, j, w: (j <= i) & ((i - j < w) | (len(i) == 1)),
     "The window is ignored where there is one query: decoding has a program of its own."),
    ("window_one_too_small", lambda i, j, w: (j <= i) & (i - j < max(w - 1, 1)),
     "The window is one too small: the query's own token is one of those that it holds."),
    ("window_from_the_start", lambda i, j, w: (j <= i - i[0]) & (i - i[0] - j < w),
     "Queries are counted from 0: with cached keys they see the oldest keys, not the newest."),
    ("future_seen", lambda i, j, w: abs(i - j) < w, "The future is seen: the window holds on both sides."),
    ("all_of_the_future_seen", lambda i, j, w: i - j < w,
     "All of the future is seen: the window is open on that side, and not causal."),
)
# fmt: on
for row in WINDOWS:
    of_the_window(*row)


@misuse("image_window_attention", seen="swin_t of torchvision 0.28.0")
def padding_of_windows_seen(definition, *heads, window, **keywords):
    """Padding that fills the last windows of an image gets weight: it should be hidden."""
    height, width = heads[0].shape[-3:-1]
    ends = [(0, 0), (0, 0), (0, -height % window), (0, -width % window), (0, 0)]
    made = definition(*(np.pad(x, ends) for x in heads), window=window, **keywords)
    return made[..., :height, :width, :]
