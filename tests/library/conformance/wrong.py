"""Functions that are subtly wrong as `conformance.faults` is not: they fail, and nothing is named.

Most are the reference, used wrongly. What has a name there is no entry here.
"""

import numpy as np

from posattn import reference
from posattn.reference import frequencies, rotate
from tests.library.conformance.examples import wrong


def tokens(x, positions):
    """The positions, or 0, 1, 2 and so on."""
    return np.arange(x.shape[-2]) if positions is None else positions


@wrong("rotary")
def positions_of_whole_numbers(x, positions=None, *, base=10000.0):
    """Interpolated positions lose their fraction."""
    return rotate(x, tokens(x, positions).astype(int), base=base)


@wrong("rotary")
def clamped_to_the_table(x, positions=None, *, base=10000.0):
    """Positions beyond the table's end read its last row."""
    return rotate(x, np.minimum(tokens(x, positions), 4095), base=base)


@wrong("rotary")
def sign_of_one_half(x, positions=None, *, base=10000.0):
    """Both entries are added with the same sign: a minus is missing."""
    right, back = (rotate(x, s * tokens(x, positions), base=base) for s in (1, -1))
    return np.where(np.arange(x.shape[-1]) % 2, right, back)


@wrong("rotary")
def overwritten_while_read(x, positions=None, *, base=10000.0):
    """The second entry of a pair is computed from the first when that has rotated."""
    angles = tokens(x, positions)[..., None] * frequencies(x.shape[-1], base=base)
    made = x.copy()
    a, b = made[..., ::2], made[..., 1::2]
    made[..., ::2] = a * np.cos(angles) - b * np.sin(angles)
    made[..., 1::2] = a * np.sin(angles) + b * np.cos(angles)
    return made


@wrong("rotary")
def rotated_in_place(x, positions=None, *, base=10000.0):
    """The caller's array itself rotates, and again where two layers share it."""
    x[...] = rotate(x, positions, base=base)
    return x


@wrong("rotary")
def counted_from_one_in_the_exponent(x, positions=None, *, base=10000.0):
    """The paper counts pairs from 1 and subtracts it; here they count from 0, and it stays."""
    d = x.shape[-1]
    omega = base ** (2 / d) * frequencies(d, base=base)
    return rotate(x, positions, frequencies=omega)


@wrong("rotary", dtype="float16")
def promoted_to_float32(x, positions=None, *, base=10000.0):
    """The tables are float32, and with them what comes back for float16."""
    return rotate(x.astype(np.float32), positions, base=base)


@wrong("rotary")
def rest_is_lost(x, positions=None, *, rotary_dim=None, base=10000.0):
    """The entries that do not rotate are not put back."""
    return rotate(x[..., :rotary_dim], positions, base=base)


@wrong("rotary_scores")
def distance_without_a_sign(query, key, query_positions, key_positions, *, base=10000.0):
    """The score rotates by the distance, whichever of the two comes first."""
    apart = query_positions[..., :, None] - key_positions[..., None, :]
    rotated = rotate(query[..., :, None, :], np.abs(apart), base=base)
    return np.einsum("...ijd,...jd->...ij", rotated, key)


@wrong("causal_mask")
def square_cut_from_a_table(query_positions, key_positions):
    """The table is a triangle of 1024 positions, beyond which nothing is hidden."""
    i, j = query_positions[..., :, None], key_positions[..., None, :]
    return (j <= i) | (j >= 1024)


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


@wrong("alibi_slopes")
def slopes_of_the_next_power(num_heads):
    """The slopes of the next power of two, cut off."""
    power = 2 ** int(np.ceil(np.log2(num_heads)))
    return reference.alibi_slopes(power)[:num_heads]


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


@wrong("swin")
def multiplied_by_the_height(query_positions, key_positions, *, table, height, width):
    """Rows are multiplied by the number of row differences, which is right for squares only."""
    i, j = (divmod(p, width) for p in (query_positions[:, None], key_positions))
    rows, columns = i[0] - j[0] + height - 1, i[1] - j[1] + width - 1
    made = table[np.minimum(rows * (2 * height - 1) + columns, len(table) - 1)]
    return np.moveaxis(made, -1, 0)


@wrong("masked_softmax")
def hidden_after_the_softmax(scores, mask=None):
    """Weights are set to 0 where something is hidden, after they were made to sum to 1."""
    return reference.masked_softmax(scores) * (True if mask is None else mask)


@wrong("attention")
def mask_of_the_first_example(query, key, value, *, mask=None, **options):
    """The first example's mask serves all."""
    mask = None if mask is None else mask[:1]
    return reference.scaled_dot_product_attention(query, key, value, mask=mask, **options)


@wrong("yarn")
def sharpened_by_the_logarithm_alone(dim, **options):
    """The attention factor is 0.1 ln s, without the 1."""
    made, sharp = reference.yarn(dim, **options)
    return made, sharp - 1


@wrong("yarn")
def trained_length_after_scaling(dim, *, factor, trained_length, **options):
    """The length is the long one, max_position_embeddings, where that of training is meant."""
    return reference.yarn(
        dim, factor=factor, trained_length=factor * trained_length, **options
    )


@wrong("llama3")
def wavelengths_of_another_base(dim, *, base=500000.0, **options):
    """The wavelengths are those of the base 10000, and the frequencies the model's."""
    by = reference.llama3(dim, base=10000.0, **options) / frequencies(dim, base=10000.0)
    return by * frequencies(dim, base=base)


@wrong("dynamic_ntk")
def stretch_without_subtraction(dim, *, factor, length, trained_length, **options):
    """The base grows by factor times length over trained length: factor - 1 stays."""
    stretch = max(factor * length / trained_length, 1.0)
    return reference.ntk_aware(dim, factor=stretch, **options)


@wrong("ntk_aware")
def exponent_upside_down(dim, *, base=10000.0, factor):
    """The exponent is (d - 2) / d, where d / (d - 2) should be."""
    return frequencies(dim, base=base * factor ** ((dim - 2) / dim))


@wrong("mrope_interleaved")
def width_before_height(dim, sections, *, base=10000.0):
    """The axes take turns in another order: time, width, height."""
    made = reference.mrope_frequencies(dim, sections, base=base, interleaved=True)
    return made[[0, 2, 1]]
