"""Encodings and biases that are subtly wrong, as they were seen or are easily written."""

import math

import numpy as np
import torch

from tests.library.conformance.examples import wrong


@wrong("sinusoidal_concatenated", cause="exponent_up_to_one")
def exponents_of_fairseq(length_or_positions, dim, base=10000.0):
    """Its exponents end at one, as in fairseq and Tensor2Tensor, and the base is not fitted."""
    given = hasattr(length_or_positions, "shape")
    positions = length_or_positions if given else np.arange(length_or_positions)
    half = (dim + 1) // 2
    omega = base ** (-np.arange(half) * 2 / max(dim - 2, 1))
    angles = positions[..., None] * omega
    return np.concatenate([np.sin(angles), np.cos(angles[..., : dim // 2])], axis=-1)


@wrong("sinusoidal", "torch")
def counted_after_the_padding(length_or_positions, dim, base=10000.0):
    """Positions begin at 2, after the index of the padding, as in fairseq."""
    given = hasattr(length_or_positions, "shape")
    positions = length_or_positions if given else torch.arange(length_or_positions)
    columns = torch.arange(dim)
    omega = base ** (-(columns - columns % 2).double() / dim)
    angles = (positions + 2)[..., None] * omega
    return torch.where(columns % 2 == 0, angles.sin(), angles.cos())


@wrong("positional_encoding", "torch", cause="positions_ignored")
def sliced_from_the_start(x, positions=None, base=10000.0):
    """A table is cut to the length of the input, wherever its tokens stand."""
    n, d = x.shape[-2:]
    columns = torch.arange(d)
    omega = base ** (-(columns - columns % 2).double() / d)
    angles = torch.arange(n)[:, None] * omega
    return x + torch.where(columns % 2 == 0, angles.sin(), angles.cos()).to(x.dtype)


@wrong("positional_encoding")
def added_in_place(x, positions=None, *, base=10000.0):
    """The caller's array is changed: x += encoding."""
    n, d = x.shape[-2:]
    columns = np.arange(d)
    positions = np.arange(n) if positions is None else positions
    angles = positions[..., None] * base ** (-(columns - columns % 2) / d)
    x += np.where(columns % 2 == 0, np.sin(angles), np.cos(angles)).astype(x.dtype)
    return x


@wrong("learned", "torch")
def two_rows_for_padding(x, positions=None, table=None):
    """The first two rows are kept for padding, as in OPT, in a table that has no such rows."""
    positions = torch.arange(x.size(-2)) if positions is None else positions
    return x + table[(positions + 2).clamp(max=len(table) - 1)]


@wrong("learned", "torch", cause="positions_of_the_first")
def first_row_of_positions(x, positions=None, table=None):
    """The first example's positions serve all."""
    positions = torch.arange(x.size(-2)) if positions is None else positions
    return x + table[positions[:1] if positions.ndim > 1 else positions]


@wrong("alibi_slopes")
def slopes_of_the_next_power(num_heads):
    """The slopes of the next power of two, cut off."""
    power = 2 ** math.ceil(math.log2(num_heads))
    return 2.0 ** (-8 / power * np.arange(1, num_heads + 1))


@wrong("alibi_slopes")
def remaining_from_the_even_ones(num_heads):
    """The heads beyond a power of two have every other slope of twice as many, from the second."""
    power = 2 ** math.floor(math.log2(num_heads))
    slopes = 2.0 ** (-8 / power * np.arange(1, power + 1))
    more = 2.0 ** (-8 / (2 * power) * np.arange(2, 2 * power + 1, 2))
    return np.concatenate([slopes, more[: num_heads - power]])


def slopes_of(num_heads):
    """The slopes, which are right."""
    power = 2 ** (num_heads.bit_length() - 1)
    more = 2.0 ** (-4 / power * np.arange(1, 2 * (num_heads - power), 2))
    return np.concatenate([2.0 ** (-8 / power * np.arange(1, power + 1)), more])


@wrong("alibi")
def from_the_last_key(query_positions, key_positions, num_heads):
    """Distances are counted from the last key, which is the query only while decoding one token."""
    far = key_positions.max(axis=-1, keepdims=True)[..., None] - key_positions[..., None, :]
    far = np.broadcast_to(far, (*far.shape[:-2], query_positions.shape[-1], far.shape[-1]))
    return -slopes_of(num_heads)[:, None, None] * far[..., None, :, :]


@wrong("alibi", "torch")
def distances_in_float16(query_positions, key_positions, num_heads):
    """Distances go through float16, in which 2049 is 2048."""
    far = (
        (query_positions[..., :, None] - key_positions[..., None, :]).abs().half().double()
    )
    return -torch.from_numpy(slopes_of(num_heads))[:, None, None] * far[..., None, :, :]


def buckets_of(relative, count, exact, max_distance, step):
    """T5's buckets, `step` from the logarithm to a whole number."""
    distance = np.abs(relative)
    share = np.log(np.maximum(distance, exact) / exact) / math.log(max_distance / exact)
    large = np.minimum(exact + step(share * (count - exact)).astype(int), count - 1)
    return np.where(distance < exact, distance, large)


def down(x):
    """Cut off, with room for rounding."""
    return np.floor(x + 1e-9)


@wrong("t5_bucket")
def half_of_all_is_exact(
    relative_position, num_buckets=32, max_distance=128, bidirectional=True
):
    """Half of all buckets are exact, where half of those of one direction should be."""
    count = num_buckets // 2 if bidirectional else num_buckets
    past = relative_position if bidirectional else np.minimum(relative_position, 0)
    made = buckets_of(past, count, num_buckets // 4, max_distance, down)
    return made + (count * (relative_position > 0) if bidirectional else 0)


@wrong("t5_bucket")
def zero_is_the_future(
    relative_position, num_buckets=32, max_distance=128, bidirectional=True
):
    """A token's own distance, 0, counts as the future: >= stands where > should."""
    count = num_buckets // 2 if bidirectional else num_buckets
    past = relative_position if bidirectional else np.minimum(relative_position, 0)
    made = buckets_of(past, count, count // 2, max_distance, down)
    return made + (count * (relative_position >= 0) if bidirectional else 0)


@wrong("t5_bucket")
def future_by_its_distance(
    relative_position, num_buckets=32, max_distance=128, bidirectional=True
):
    """In one direction the future has the buckets of its distance, where it should have 0."""
    count = num_buckets // 2 if bidirectional else num_buckets
    made = buckets_of(relative_position, count, count // 2, max_distance, down)
    return made + (count * (relative_position > 0) if bidirectional else 0)


@wrong("t5_bucket", cause="one_bucket_off")
def one_bucket_less_to_share(
    relative_position, num_buckets=32, max_distance=128, bidirectional=True
):
    """The share of the logarithm is spread over one bucket less."""
    count = num_buckets // 2 if bidirectional else num_buckets
    past = relative_position if bidirectional else np.minimum(relative_position, 0)
    exact, distance = count // 2, np.abs(past)
    share = np.log(np.maximum(distance, exact) / exact) / math.log(max_distance / exact)
    large = np.minimum(exact + down(share * (count - exact - 1)).astype(int), count - 1)
    made = np.where(distance < exact, distance, large)
    return made + (count * (relative_position > 0) if bidirectional else 0)


@wrong("t5", "torch", skip=("causal", "eight"))
def heads_at_the_end(query_positions, key_positions, table):
    """The heads stand last: the axes of the table's rows are not moved."""
    far = (key_positions[..., None, :] - query_positions[..., :, None]).numpy()
    made = buckets_of(far, 16, 8, 128, down) + 16 * (far > 0)
    return table[torch.from_numpy(made)]


@wrong("swin", "torch")
def multiplied_by_the_height(query_positions, key_positions, table, height, width):
    """Rows are multiplied by the number of row differences, which is right for squares only."""
    grid = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    cells = torch.stack(grid).flatten(1).T
    apart = cells[query_positions][:, None] - cells[key_positions][None]
    rows, columns = apart[..., 0] + height - 1, apart[..., 1] + width - 1
    return table[(rows * (2 * height - 1) + columns).clamp(max=len(table) - 1)].permute(
        2, 0, 1
    )
