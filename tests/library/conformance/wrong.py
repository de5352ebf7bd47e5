"""Functions that are subtly wrong as `conformance.faults` is not: they fail, and nothing is named.

Most are the reference, used wrongly. What has a name there is no entry here.
"""

import numpy as np

from posattn import reference
from posattn.reference import frequencies, rotate
from tests.library.conformance.examples import wrong
from tests.library.conformance.threads.rotations import places


@wrong("rotary")
def clamped_to_the_table(x, positions=None, *, base=10000.0):
    """Positions beyond the table's end read its last row."""
    return rotate(x, np.minimum(places(x, positions), 4095), base=base)


@wrong("rotary")
def counted_from_one_in_the_exponent(x, positions=None, *, base=10000.0):
    """The paper counts pairs from 1 and subtracts it; here they count from 0, and it stays."""
    d = x.shape[-1]
    omega = base ** (2 / d) * frequencies(d, base=base)
    return rotate(x, positions, frequencies=omega)


@wrong("rotary_scores")
def distance_without_a_sign(query, key, query_positions, key_positions, *, base=10000.0):
    """The score rotates by the distance, whichever of the two comes first."""
    apart = query_positions[..., :, None] - key_positions[..., None, :]
    rotated = rotate(query[..., :, None, :], np.abs(apart), base=base)
    return np.einsum("...ijd,...jd->...ij", rotated, key)


@wrong("window_mask")
def last_keys_of_the_cache(query_positions, key_positions, window):
    """The last keys of the cache count as those in the window, whatever their positions."""
    i, j = query_positions[..., :, None], key_positions[..., None, :]
    return (j <= i) & (np.arange(j.shape[-1]) >= j.shape[-1] - window)


@wrong("ids_left_padding")
def counted_from_the_first_token(mask):
    """Padding in the middle is counted."""
    first = np.argmax(mask, axis=-1, keepdims=True)
    return np.where(mask, np.arange(mask.shape[-1]) - first, 0)


@wrong("ids_packing")
def beginning_by_search(segment_ids):
    """A text begins where its number first occurs, though numbers may come back."""
    same = segment_ids[..., :, None] == segment_ids[..., None, :]
    return np.arange(segment_ids.shape[-1]) - same.argmax(axis=-1)


@wrong("alibi")
def from_the_last_key(query_positions, key_positions, *, num_heads):
    """Distances are counted from the last key, which is the query only in decoding."""
    last = key_positions.max(-1, keepdims=True) + 0 * query_positions
    return reference.ALiBi(num_heads)(last, key_positions)


@wrong("t5_bucket")
def zero_is_the_future(relative_position, *, bidirectional=True, **options):
    """A token's own distance, 0, counts as the future: >= stands where > should."""
    made = reference.t5_bucket(relative_position, bidirectional=bidirectional, **options)
    count = options.get("num_buckets", 32) // 2
    return made + count * (bidirectional & (relative_position == 0))


@wrong("t5_bucket")
def future_by_its_distance(relative_position, *, bidirectional=True, **options):
    """In one direction the future has the buckets of its distance, where it should have 0."""
    past = relative_position if bidirectional else -np.abs(relative_position)
    return reference.t5_bucket(past, bidirectional=bidirectional, **options)


@wrong("yarn")
def trained_length_after_scaling(dim, *, factor, trained_length, **options):
    """The length is the long one, max_position_embeddings, where that of training is meant."""
    return reference.yarn(
        dim, factor=factor, trained_length=factor * trained_length, **options
    )


@wrong("mrope_interleaved")
def width_before_height(dim, sections, *, base=10000.0):
    """The axes take turns in another order: time, width, height."""
    made = reference.mrope_frequencies(dim, sections, base=base, interleaved=True)
    return made[[0, 2, 1]]
