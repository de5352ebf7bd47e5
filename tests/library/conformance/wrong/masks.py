"""Masks and positions of tokens that are subtly wrong, as they were seen or are easily written."""

import numpy as np
import torch

from tests.library.conformance.examples import wrong


def apart(query_positions, key_positions):
    """How far each key stands behind each query, which is right."""
    return query_positions[..., :, None] - key_positions[..., None, :]


@wrong("causal_mask", "torch", cause="own_position_hidden")
def upper_triangle_with_diagonal(query_positions, key_positions):
    """The diagonal is hidden with the future: triu(diagonal=0), where it should be 1."""
    hidden = apart(query_positions, key_positions) <= 0
    return torch.where(hidden, float("-inf"), 0.0)


@wrong("causal_mask", "torch", cause="aligned_to_the_end")
def triangle_of_the_sizes(query_positions, key_positions):
    """A triangle of so many queries and keys, which does not fit keys of a ring."""
    n_q, n_k = query_positions.shape[-1], key_positions.shape[-1]
    batch = torch.broadcast_shapes(query_positions.shape[:-1], key_positions.shape[:-1])
    return torch.ones(*batch, n_q, n_k, dtype=torch.bool).tril(n_k - n_q)


@wrong("causal_mask")
def square_cut_from_a_table(query_positions, key_positions):
    """Rows and columns are cut from a triangle of 1024 positions, beyond which nothing is hidden."""
    return (apart(query_positions, key_positions) >= 0) | (
        key_positions[..., None, :] >= 1024
    )


@wrong("causal_mask", cause="zeros_and_ones_added")
def ones_for_the_past(query_positions, key_positions):
    """The mask is made of floats, 1 for the past, and hides nothing when it is added."""
    return np.float32(apart(query_positions, key_positions) >= 0)


@wrong("window_mask", "torch", cause="window_one_too_large")
def not_further_than_the_window(query_positions, key_positions, window):
    """A key may stand as far behind as the window is wide: <= stands where < should."""
    far = apart(query_positions, key_positions)
    return (far >= 0) & (far <= window)


@wrong("window_mask", cause="future_seen")
def window_on_both_sides(query_positions, key_positions, window):
    """The window is one of two sides, and nothing makes it causal."""
    return np.abs(apart(query_positions, key_positions)) < window


@wrong("window_mask")
def last_keys_of_the_cache(query_positions, key_positions, window):
    """The last keys of the cache are taken for those in the window, whatever their positions."""
    n = key_positions.shape[-1]
    return (apart(query_positions, key_positions) >= 0) & (np.arange(n) >= n - window)


@wrong("chunk_mask", cause="chunks_from_the_first")
def chunks_of_the_cache(query_positions, key_positions, size):
    """Chunks are counted from the oldest key at hand, and not from position 0."""
    first = key_positions.min()
    q, k = (query_positions - first)[..., :, None], (key_positions - first)[..., None, :]
    return (q // size == k // size) & (k <= q)


@wrong("prefix_mask", cause="prefix_one_too_large")
def one_token_after_the_prefix(query_positions, key_positions, prefix):
    """The first token after the prefix is seen from before."""
    early = key_positions[..., None, :] <= prefix
    return early | (apart(query_positions, key_positions) >= 0)


@wrong("length_mask", "torch", cause="one_more_key")
def one_key_of_padding(lengths, n_k):
    """The first key of the padding is seen: <= stands where < should."""
    lengths = lengths[:, None] if lengths.ndim == 1 else lengths
    return torch.arange(n_k) <= lengths[..., None]


@wrong("length_mask", cause="padding_at_the_left")
def last_keys_count(lengths, n_k):
    """The last keys count, as in a batch that is padded at the left."""
    return np.arange(n_k) >= n_k - np.reshape(lengths, (len(lengths), -1, 1))


@wrong("ids_left_padding", "torch", cause="padding_is_minus_one")
def padding_before_the_first(mask):
    """Padding before the first token keeps the -1 of the running sum."""
    return mask.long().cumsum(-1) - 1


@wrong("ids_left_padding")
def counted_from_the_first_token(mask):
    """The number of each token less that of the first that counts: padding in the middle is counted."""
    first = np.argmax(mask, axis=-1, keepdims=True)
    return np.where(mask, np.arange(mask.shape[-1]) - first, 0)


@wrong("ids_packing", cause="never_restarted")
def numbers_of_the_row(segment_ids):
    """The tokens of a row are numbered through all of its texts."""
    return np.broadcast_to(np.arange(segment_ids.shape[-1]), segment_ids.shape)


@wrong("ids_packing", "torch")
def beginning_by_search(segment_ids):
    """The first place of each number in its row is taken for the beginning of its text."""
    same = segment_ids[..., :, None] == segment_ids[..., None, :]
    return torch.arange(segment_ids.shape[-1]) - same.int().argmax(dim=-1)
