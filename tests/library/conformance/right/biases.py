"""Encodings and biases as others write them. All are right."""

import math

import numpy as np
import torch

from tests.library.conformance.examples import right


def whole(length_or_positions):
    """The positions, also where a length is given."""
    given = hasattr(length_or_positions, "shape")
    return length_or_positions if given else np.arange(length_or_positions)


@right("sinusoidal")
def two_loops(length_or_positions, dim, base=10000.0):
    """Two loops over positions and columns, as in tutorials."""
    positions = whole(length_or_positions)
    made = np.zeros((*positions.shape, dim))
    for at in np.ndindex(positions.shape):
        for column in range(dim):
            angle = positions[at] / base ** (2 * (column // 2) / dim)
            made[(*at, column)] = math.cos(angle) if column % 2 else math.sin(angle)
    return made


@right("sinusoidal", "torch")
def slices_of_a_table(length_or_positions, dim, base=10000.0):
    """Sines into the even columns and cosines into the odd ones, as in the annotated transformer."""
    positions = torch.as_tensor(whole(length_or_positions))
    columns = torch.arange(0, dim, 2, dtype=torch.float64)
    angles = positions[..., None].double() * torch.exp(columns * (-math.log(base) / dim))
    made = torch.zeros(*positions.shape, dim, dtype=torch.float64)
    made[..., 0::2] = angles.sin()
    made[..., 1::2] = angles[..., : dim // 2].cos()
    return made


@right("sinusoidal_concatenated")
def fitted_from_fairseq(length_or_positions, dim, base=10000.0):
    """Sines, then cosines; its exponents end at one, so the base is fitted to those of the paper."""
    half = (dim + 1) // 2
    base = base ** (2 * (half - 1) / dim)
    omega = np.exp(np.arange(half) * -math.log(base) / max(half - 1, 1))
    angles = whole(length_or_positions)[..., None] * omega
    return np.concatenate([np.sin(angles), np.cos(angles[..., : dim // 2])], axis=-1)


@right("positional_encoding", "torch")
def added_by_a_layer(x, positions=None, base=10000.0):
    """The encoding is made for the positions at hand, and added."""
    n, d = x.shape[-2:]
    positions = torch.arange(n) if positions is None else positions
    columns = torch.arange(d, dtype=torch.float64)
    angles = positions.unsqueeze(-1) * base ** -(columns.div(2).floor() * 2 / d)
    even = torch.arange(d) % 2 == 0
    return x + torch.where(even, angles.sin(), angles.cos()).to(x.dtype)


@right("learned", "torch")
def embedding_of_positions(x, positions=None, table=None):
    """An embedding of the positions, as in GPT-2."""
    positions = torch.arange(x.size(-2)) if positions is None else positions
    return x + torch.nn.functional.embedding(positions, table)


@right("learned")
def product_with_ones(x, positions=None, table=None):
    """Rows of a unit matrix, multiplied by the table, as on devices that cannot gather."""
    positions = np.arange(x.shape[-2]) if positions is None else positions
    return x + np.eye(len(table), dtype=x.dtype)[positions] @ table


@right("alibi_slopes")
def slopes_by_recursion(num_heads):
    """Powers of a ratio, and every other slope of twice as many heads, as in the authors' code."""
    power = 2 ** math.floor(math.log2(num_heads))
    start = 2 ** (-(2 ** -(math.log2(power) - 3)))
    slopes = [start ** (h + 1) for h in range(power)]
    if power < num_heads:
        slopes += slopes_by_recursion(2 * power)[0::2][: num_heads - power].tolist()
    return np.array(slopes)


@right("alibi_slopes", "torch")
def slopes_by_two_bases(num_heads):
    """A base, and a base for the heads that are left, as in BLOOM."""
    power = 2 ** (num_heads.bit_length() - 1)
    base = 2.0 ** (-8 / power)
    slopes = torch.tensor(base, dtype=torch.float64) ** torch.arange(1, 1 + power)
    extra = torch.tensor(2.0 ** (-4 / power), dtype=torch.float64)
    odd = torch.arange(1, 1 + 2 * (num_heads - power), 2)
    return torch.cat([slopes, extra**odd])


@right("alibi", "torch")
def minus_the_distance(query_positions, key_positions, num_heads):
    """Minus the slope times the distance, from a grid of positions."""
    slopes = slopes_by_two_bases(num_heads)[:, None, None]
    keys, queries = key_positions[..., None, None, :], query_positions[..., None, :, None]
    return -(keys - queries).abs() * slopes


@right("t5_bucket", "torch")
def buckets_by_logarithm(
    relative_position, num_buckets=32, max_distance=128, bidirectional=True
):
    """Half of the buckets are exact, and a logarithm in float32 has the others, as in Mesh TensorFlow."""
    made = torch.zeros_like(relative_position)
    if bidirectional:
        num_buckets //= 2
        made += (relative_position > 0) * num_buckets
        distance = relative_position.abs()
    else:
        distance = -torch.min(relative_position, torch.zeros_like(relative_position))
    exact = num_buckets // 2
    share = torch.log(distance.float() / exact) / math.log(max_distance / exact)
    large = exact + (share * (num_buckets - exact)).to(torch.long)
    large = torch.min(large, torch.full_like(large, num_buckets - 1))
    return made + torch.where(distance < exact, distance, large)


@right("t5_bucket")
def buckets_by_search(
    relative_position, num_buckets=32, max_distance=128, bidirectional=True
):
    """The first distance of each bucket in whole numbers, and a search in their list."""
    count = num_buckets // 2 if bidirectional else num_buckets
    exact, far = count // 2, range(count // 2, max_distance + 1)
    rest = count - exact
    first = [
        next(n for n in far if n**rest * exact**k >= max_distance**k * exact**rest)
        for k in range(rest)
    ]
    distance = (
        np.abs(relative_position) if bidirectional else -np.minimum(relative_position, 0)
    )
    made = np.searchsorted([*range(1, exact), *first], distance, side="right")
    return made + (count * (relative_position > 0) if bidirectional else 0)


@right("swin", "torch")
def index_of_a_window(query_positions, key_positions, table, height, width):
    """A grid by meshgrid, differences from zero on, and one index of two, as in Swin's code."""
    grid = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    cells = torch.stack(grid).flatten(1).T
    apart = cells[query_positions][:, None] - cells[key_positions][None]
    rows, columns = apart[..., 0] + height - 1, apart[..., 1] + width - 1
    return table[rows * (2 * width - 1) + columns].permute(2, 0, 1)


@right("kerple_log", "torch")
def logarithm_of_distances(query_positions, key_positions, r1, r2):
    """Minus the first parameter times log1p of the second times the distance."""
    far = (query_positions[..., :, None] - key_positions[..., None, :]).abs()[
        ..., None, :, :
    ]
    r1, r2 = r1[:, None, None], r2[:, None, None]
    return (-r1 * torch.log1p(r2 * far)).to(r1.dtype)
