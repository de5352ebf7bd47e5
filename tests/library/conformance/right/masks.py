"""Masks and positions of tokens as others write them. All are right."""

import jax.numpy as jnp
import numpy as np
import torch

from tests.library.conformance.examples import right


@right("causal_mask", "torch")
def compared_by_broadcasting(query_positions, key_positions):
    """Positions of queries in rows and of keys in columns, compared."""
    return query_positions.unsqueeze(-1) >= key_positions.unsqueeze(-2)


@right("causal_mask")
def least_number_to_add(query_positions, key_positions):
    """The smallest float32 where the future is, and 0 elsewhere, to be added to the scores."""
    future = key_positions[..., None, :] > query_positions[..., :, None]
    return np.where(future, np.finfo(np.float32).min, np.float32(0))


@right("causal_mask", "jax")
def score_by_score(query_positions, key_positions):
    """Minus infinity above the diagonal of the positions, in JAX."""
    far = query_positions[..., :, None] - key_positions[..., None, :]
    return jnp.where(far < 0, -jnp.inf, 0.0)


@right("window_mask", "torch")
def both_sides_of_a_window(query_positions, key_positions, window):
    """The past, and not so far that it has left the window, as in Mistral's masks."""
    far = query_positions[..., :, None] - key_positions[..., None, :]
    return (far >= 0) & (far < window)


@right("window_mask")
def left_and_right_of_a_kernel(query_positions, key_positions, window):
    """The pair (window - 1, 0), as FlashAttention counts what is left and right of a token."""
    left, after = window - 1, 0
    far = key_positions[..., None, :] - query_positions[..., :, None]
    return (far >= -left) & (far <= after)


@right("chunk_mask")
def same_quotient(query_positions, key_positions, size):
    """Whole quotients are compared, as in Llama 4."""
    q, k = query_positions[..., :, None], key_positions[..., None, :]
    return np.logical_and(q // size == k // size, k <= q)


@right("prefix_mask", "torch")
def larger_of_two(query_positions, key_positions, prefix):
    """The past of a query that stands at least at the end of the prefix."""
    end = torch.clamp(query_positions, min=prefix - 1)
    after = key_positions[..., None, :] > end[..., :, None]
    return torch.where(after, float("-inf"), 0.0)


@right("length_mask", "torch")
def keys_before_the_length(lengths, n_k):
    """Numbers of keys below the length, with one row for all queries if it has no others."""
    lengths = lengths[:, None] if lengths.ndim == 1 else lengths
    return torch.arange(n_k) < lengths[..., None]


@right("length_mask")
def ten_thousand_for_padding(lengths, n_k):
    """Minus 10000 where there is padding, as BERT's first code added it."""
    shown = np.arange(n_k) < np.reshape(lengths, (len(lengths), -1, 1))
    return (1.0 - shown) * -10000.0


@right("ids_left_padding", "torch")
def running_sum_of_the_mask(mask):
    """The running sum of the mask less one, and 0 for padding."""
    return (mask.long().cumsum(-1) - 1).masked_fill(~mask, 0)


@right("ids_left_padding")
def one_row_after_the_other(mask):
    """A counter for each row, which moves where a token counts."""
    made = np.zeros(mask.shape, dtype=int)
    for row, shown in zip(made, mask, strict=True):
        row[shown] = np.arange(shown.sum())
    return made


@right("ids_packing", "torch")
def largest_beginning_so_far(segment_ids):
    """The number of each token, less the largest number at which a text has begun."""
    n = torch.arange(segment_ids.shape[-1])
    begins = torch.ones_like(segment_ids, dtype=torch.bool)
    begins[..., 1:] = segment_ids.diff(dim=-1) != 0
    return n - torch.where(begins, n, 0).cummax(dim=-1).values


@right("ids_mrope")
def counters_for_three_axes(is_image, grids):
    """A walk through the text, with three coordinates that go on after the largest of a picture."""
    made, at, after = [], 0, 0
    pictures = iter(grids.tolist())
    while at < len(is_image):
        if is_image[at]:
            grid = next(pictures)
            made += [[after + c for c in cell] for cell in np.ndindex(*grid)]
            at, after = at + int(np.prod(grid)), after + max(grid)
        else:
            made.append([after] * 3)
            at, after = at + 1, after + 1
    return np.array(made)
