"""Threads on attention and its masks, from their texts."""

from functools import partial

import numpy as np
import torch

from posattn.conformance import gallery
from posattn.conformance.generate import SCHEMES
from tests.conftest import REFERENCE
from tests.library.conformance.examples import right, thread

thread("pytorch/pytorch #103749", "pytorch/pytorch #41508", scheme="attention",
       cause="empty_rows_are_nan")(gallery.attention_of_nan)  # fmt: skip
thread("jax.nn.dot_product_attention of jax 0.10.2", scheme="attention",
       cause="empty_rows_are_the_mean")(gallery.attention_of_the_mean)  # fmt: skip
thread("pytorch/pytorch #108108", "pytorch/pytorch #144858", "onnx/onnx #8068",
       scheme="attention", cause="causal_from_the_start")(gallery.attention_from_the_start)  # fmt: skip


@thread("pytorch/pytorch #101967", scheme="attention", cause="hidden_nan_leaks")
def zero_times_nan(query, key, value, *, mask=None, causal=False, bias=None, scale=None):
    """What is hidden has the weight 0, and 0 times NaN is NaN."""
    scores = query @ np.swapaxes(key, -1, -2) * (scale or query.shape[-1] ** -0.5)
    scores = scores if bias is None else scores + bias
    n_q, n_k = scores.shape[-2:]
    seen = (
        np.tri(n_q, n_k, n_k - n_q, dtype=bool)
        if causal
        else np.ones((n_q, n_k), dtype=bool)
    )
    seen = np.broadcast_to(seen if mask is None else seen & mask, scores.shape)
    scores = np.where(seen, scores, -np.inf)
    exp = np.exp(scores - np.max(scores, -1, keepdims=True, initial=-1e300))
    with np.errstate(invalid="ignore"):
        return exp / np.maximum(exp.sum(-1, keepdims=True), 1e-300) @ value


@thread("pytorch/executorch #21749", scheme="attention", framework="torch",
        cause="causal_from_the_start")  # fmt: skip
def is_causal_for_a_chunk(
    query, key, value, *, mask=None, causal=False, bias=None, scale=None
):
    """PyTorch's is_causal, with tokens of a cache before the query: the first query sees one key."""
    added = torch.zeros(query.shape[-2], key.shape[-2]) if bias is None else bias
    added = added if mask is None else added.masked_fill(~mask, float("-inf"))
    future = (
        torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool).tril().logical_not()
    )
    added = added.masked_fill(future, float("-inf")) if causal else added
    attend = torch.nn.functional.scaled_dot_product_attention
    return attend(query, key, value, attn_mask=added.to(query.dtype), scale=scale)


@thread("MultiHeadAttention of onnxruntime 1.32.0", scheme="attention",
        cause="last_query_sees_all")  # fmt: skip
def all_rows_but_the_last(
    query, key, value, *, mask=None, causal=False, bias=None, scale=None
):
    """The triangle begins at the first key and is added to all rows but the last, which hides nothing."""
    scores = query @ np.swapaxes(key, -1, -2) * (scale or query.shape[-1] ** -0.5)
    scores = scores if bias is None else scores + bias
    scores = scores if mask is None else np.where(mask, scores, -np.inf)
    if causal:
        later = np.triu(np.ones(scores.shape[-2:], bool), 1)
        scores[..., :-1, :] = np.where(later[:-1], -np.inf, scores[..., :-1, :])
    exp = np.exp(scores - np.max(scores, -1, keepdims=True, initial=-1e300))
    return exp / np.maximum(exp.sum(-1, keepdims=True), 1e-300) @ value


@thread("GroupQueryAttention of onnxruntime 1.32.0", scheme="rotary_scores",
        cause="offset_of_the_first")  # fmt: skip
def position_ids_as_an_offset(query, key, *where, base=10000.0, layout="interleaved"):
    """A first prompt reads one position of each example, and counts on."""
    rotated = [
        REFERENCE.rotate(x, at[..., :1] + np.arange(x.shape[-2]), base=base, layout=layout)
        for x, at in zip((query, key), where, strict=True)
    ]
    return rotated[0] @ rotated[1].mT


@thread("Attention of ONNX in openvino 2026.4.1", scheme="attention",
        framework="torch", cause="nan_replaced_by_zero")  # fmt: skip
def guarded(query, key, value, *, mask=None, causal=False, bias=None, scale=None):
    """A guard behind the graph writes zero over every NaN, for rows that see nothing."""
    scores = query @ key.mT * (scale or query.shape[-1] ** -0.5)
    scores = scores if bias is None else scores + bias
    if mask is not None:
        scores = scores + torch.zeros(mask.shape).masked_fill(~mask, -torch.inf)
    n_q, n_k = scores.shape[-2:]
    seen = torch.ones(n_q, n_k).tril(n_k - n_q).log() if causal else torch.zeros(())
    made = torch.softmax(scores + seen, -1).to(value.dtype) @ value
    return made.masked_fill(made.isnan(), 0)


@thread("Attention of onnxruntime 1.32.0 at opset 23", scheme="attention",
        cause="lowest_float_hides")  # fmt: skip
def rows_without_a_number_above_the_lowest(query, key, value, *, bias=None, **options):
    """A row whose mask is nowhere above the lowest float becomes zero."""
    made = REFERENCE.scaled_dot_product_attention(query, key, value, bias=bias, **options)
    low = np.finfo(np.float32).min
    return made if bias is None else made * np.any(bias > low, axis=-1, keepdims=True)


@thread("NVIDIA-NeMo/Megatron-Bridge #2656", scheme="window_mask", cause="window_one_too_large")  # fmt: skip
def bounds_that_are_inclusive(query_positions, key_positions, *, window):
    """The window of a configuration goes to a kernel as (W, 0), whose bounds count W tokens before."""
    apart = query_positions[..., :, None] - key_positions[..., None, :]
    return (apart >= 0) & (apart <= window)


@thread("huggingface/transformers #41184", scheme="window_mask", framework="torch",
        cause="near_future_hidden")  # fmt: skip
def both_diagonals_of_the_future(query_positions, key_positions, *, window):
    """The future is filled first, and what lies beyond a diagonal of the window is taken back."""
    ahead = key_positions[..., None, :] - query_positions[..., None]
    return ~((ahead > 0) & (ahead <= window))


@thread("NVIDIA-NeMo/Megatron-Bridge #5259", scheme="causal_mask", framework="torch",
        cause="aligned_to_the_start")  # fmt: skip
def local_index_of_a_query(query_positions, key_positions):
    """The index of a query within its block is compared with that of a key in the whole cache."""
    n_q, n_k = query_positions.shape[-1], key_positions.shape[-1]
    batch = torch.broadcast_shapes(query_positions.shape[:-1], key_positions.shape[:-1])
    return (torch.arange(n_k) <= torch.arange(n_q)[:, None]).expand(*batch, n_q, n_k)


@thread("ROCm/rocm-libraries #12227", scheme="sinks", cause="sinks_again_after_hidden_keys")
def sink_of_two_splits(
    query, key, value, *, mask=None, causal=False, bias=None, scale=None, sinks=None
):
    """Split 0 publishes the sink though it sees no key, and the next one seeds it again."""
    group = query.shape[1] // key.shape[1]
    key, value = (np.repeat(x, group, axis=1) for x in (key, value))
    scores = query @ np.swapaxes(key, -1, -2) * (scale or query.shape[-1] ** -0.5)
    scores = scores if bias is None else scores + bias
    n_q, n_k = scores.shape[-2:]
    seen = np.ones((n_q, n_k), bool) if mask is None else mask
    seen = seen & np.tri(n_q, n_k, n_k - n_q, dtype=bool) if causal else seen
    scores = np.where(seen, scores, -np.inf)
    sink = sinks[:, None, None]
    top = np.maximum(scores.max(-1, keepdims=True), sink)
    first, second = np.split(np.exp(scores - top), [n_k // 2], axis=-1)
    first, second = (x.sum(-1, keepdims=True) for x in (first, second))
    seeds = 1 + ((first == 0) & (second > 0))
    return np.exp(scores - top) / (first + second + seeds * np.exp(sink - top)) @ value


@thread("ollama/ollama #13893", scheme="latent", cause="latent_scaled_by_rank")
def scale_of_absorbed_weights(x, positions=None, *, scale=None, **options):
    """Queries meet the latent vector, and the scale is that of its width and the rotary part."""
    width = options["kv_down_weight"].shape[1]
    attend = SCHEMES["latent"].function
    return attend(x, positions, scale=scale or width**-0.5, **options)


@thread("hyunwoongko/transformer #40", scheme="attention", cause="mask_of_the_queries")
def unsqueezed_at_the_wrong_axis(query, key, value, *, mask=None, **options):
    """The padding of keys becomes a column, and -10000 stands for what is hidden."""
    options["mask"] = None if mask is None else np.swapaxes(mask, -1, -2)
    return gallery.attend(gallery.softmax_of(-1e4), query, key, value, **options)


@thread("NVIDIA-NeMo/Automodel #2658", scheme="attention", cause="lowest_float_added_twice")
def planes_summed(query, key, value, *, mask=True, causal=False, bias=0, scale=None):
    """The plane of padding and that of the future are added, each with the lowest float."""
    n_q, n_k = query.shape[-2], key.shape[-2]
    past = np.tri(n_q, n_k, n_k - n_q if causal else n_k, dtype=bool)
    low = np.float32(np.finfo(np.float32).min)
    bias = bias + np.float64(low * np.float32(~past) + low * np.float32(np.invert(mask)))
    weigh = gallery.softmax_of(0)
    return gallery.attend(weigh, query, key, value, bias=bias, scale=scale)


@thread("modular/modular #6591", scheme="sinks", cause="sinks_go_by_rows")
def row_modulo_heads(query, key, value, *, sinks, **options):
    """The kernel numbers rows over batch, heads and queries, and takes the number modulo the heads."""
    key, value = (np.repeat(x, query.shape[-3] // x.shape[-3], -3) for x in (key, value))

    def weigh(scores, mask):
        rows = np.arange(scores[..., 0].size).reshape(scores.shape[:-1])
        added = np.append(
            np.where(mask, scores, -np.inf), sinks[rows % len(sinks)][..., None], -1
        )
        return gallery.softmax_of(0)(added, True)[..., :-1]

    return gallery.attend(weigh, query, key, value, **options)


@thread("nntile/nntile #347", scheme="sinks", cause="heads_come_back_in_other_order")
def heads_joined_by_member(query, key, *others, **options):
    """The output projection reads the heads as (member of a group, group)."""
    made = SCHEMES["sinks"].function(query, key, *others, **options)
    groups = key.shape[-3]
    split = made.reshape(made.shape[0], groups, -1, *made.shape[2:])
    return split.swapaxes(1, 2).reshape(made.shape)


def in_windows(*heads, window, shift=0, scale=None, way=1, filled=False):
    """Attention of the cells of an image in windows that are shifted some way, or filled with zeros."""
    height, width = heads[0].shape[-3:-1]
    if filled:
        ends = (0, 0, 0, -width % window, 0, -height % window)
        heads = [torch.nn.functional.pad(x, ends) for x in heads]
    query, key, value = heads
    cells = [(torch.arange(n) - way * shift) // window for n in query.shape[-3:-1]]
    rows, columns = (x[:, None] == x for x in cells)
    scores = torch.einsum("...abk,...cdk->...abcd", query, key)
    scores = scores * (scale or query.shape[-1] ** -0.5)
    hidden = ~(rows[:, None, :, None] & columns[None, :, None])
    weights = scores.masked_fill(hidden, -torch.inf).flatten(-2).softmax(-1)
    made = weights.unflatten(-1, hidden.shape[-2:])
    made = torch.einsum("...abcd,...cdk->...abk", made, value)
    return made[..., :height, :width, :]


right("image_window_attention", "torch")(in_windows)
thread("swin_t of torchvision 0.28.0", scheme="image_window_attention", framework="torch",
       cause="padding_of_windows_seen")(partial(in_windows, filled=True))  # fmt: skip
