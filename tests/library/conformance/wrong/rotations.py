"""Rotations that are subtly wrong, as they were seen or are easily written."""

import numpy as np
import torch

from tests.library.conformance.examples import wrong

HALF, NEIGHBORS = {"layout": "half"}, {"layout": "interleaved"}


def places(x, positions):
    """The positions, or 0, 1, 2 and so on."""
    return torch.arange(x.shape[-2]) if positions is None else positions


def angles_of(x, positions, base):
    """Angles of all pairs in float64, which are right."""
    even = torch.arange(0, x.shape[-1], 2, dtype=torch.float64)
    return places(x, positions)[..., None] * base ** (-even / x.shape[-1])


def halves(x, angles):
    """A turn of the two halves, which is right."""
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)


def neighbors(x, angles):
    """A turn of neighbors, which is right."""
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    a, b = x[..., ::2], x[..., 1::2]
    return torch.stack([a * cos - b * sin, b * cos + a * sin], dim=-1).flatten(-2)


@wrong("rotary", "torch", cause="positions_of_the_first", settings=HALF)
def first_example_for_all(x, positions=None, base=10000.0):
    """The first example's positions serve all, as where a table is built from position_ids[0]."""
    where = places(x, positions)
    where = where[:1] if where.ndim > 1 else where
    return halves(x, angles_of(x, where, base))


@wrong("rotary", "torch", cause="positions_of_the_first", settings=NEIGHBORS)
def first_example_for_neighbors(x, positions=None, base=10000.0):
    """The first example's positions serve all, in the other layout."""
    where = places(x, positions)
    return neighbors(x, angles_of(x, where[:1] if where.ndim > 1 else where, base))


@wrong("rotary", "torch", cause="counted_anew_in_decoding", settings=HALF)
def reset_in_decoding(x, positions=None, base=10000.0):
    """A token alone stands at position 0, as where a cache's length is not added."""
    where = places(x, positions)
    return halves(x, angles_of(x, where * (x.shape[-2] > 1), base))


@wrong("rotary", "torch", cause="offset_of_the_first", settings=HALF)
def counted_from_the_first(x, positions=None, base=10000.0):
    """Tokens are counted on from the first position, so a gap or left padding is not seen."""
    start = places(x, positions)[..., :1]
    return halves(x, angles_of(x, start + torch.arange(x.shape[-2]), base))


@wrong("rotary", "torch", settings=HALF)
def counted_back_from_the_last(x, positions=None, base=10000.0):
    """Tokens are counted back from the largest position of all examples, as where a length is a number."""
    n = x.shape[-2]
    last = places(x, positions).max() if n else 0
    return halves(x, angles_of(x, last - n + 1 + torch.arange(n), base))


@wrong("rotary", "torch", cause="CacheWithoutOffset", settings=HALF)
class TableOfTheLength:
    """A table is kept for each length, whatever the positions: it is that of the first call."""

    def __init__(self):
        self.tables = {}

    def __call__(self, x, positions=None, base=10000.0):
        """Rotate."""
        key = x.shape[-2], x.shape[-1], base
        if key not in self.tables:
            self.tables[key] = angles_of(x, positions, base)
        return halves(x, self.tables[key])


@wrong("rotary", "torch", cause="CacheWithoutBase", settings=HALF)
class TableOfTheFirstBase:
    """Frequencies are kept for each width, with the first base that comes."""

    def __init__(self):
        self.frequencies = {}

    def __call__(self, x, positions=None, base=10000.0):
        """Rotate."""
        one = angles_of(x, torch.ones(1), base)[0]
        one = self.frequencies.setdefault(len(one), one)
        return halves(x, places(x, positions)[..., None] * one)


@wrong("rotary", "torch", settings=HALF)
def sixteen_bits_for_positions(x, positions=None, base=10000.0):
    """Positions are kept in 16 bits, so those beyond 32767 come round again."""
    return halves(x, angles_of(x, places(x, positions).long().short(), base))


@wrong("rotary", "torch", settings=NEIGHBORS)
def positions_of_whole_numbers(x, positions=None, base=10000.0):
    """Positions are made whole, so interpolated ones lose their fraction."""
    return neighbors(x, angles_of(x, places(x, positions).long(), base))


@wrong("rotary", "torch", settings=HALF)
def clamped_to_the_table(x, positions=None, base=10000.0):
    """Positions beyond the table's end read its last row."""
    return halves(x, angles_of(x, places(x, positions).clamp(max=4095), base))


@wrong("rotary", "torch", cause="positions_in_bfloat16", settings=HALF)
def arange_of_the_model(x, positions=None, base=10000.0):
    """The positions have the dtype of the model, bfloat16, as by arange(dtype=x.dtype)."""
    return halves(x, angles_of(x, places(x, positions).bfloat16().double(), base))


@wrong("rotary", "torch", cause="positions_in_float16", settings=NEIGHBORS)
def arange_in_float16(x, positions=None, base=10000.0):
    """The positions are float16, which ends at 65504."""
    return neighbors(x, angles_of(x, places(x, positions).half().double(), base))


@wrong("rotary", "torch", cause="frequencies_in_bfloat16", settings=HALF)
def exact_positions_rounded_frequencies(x, positions=None, base=10000.0):
    """Positions are exact, and the frequencies went to bfloat16 with the model."""
    one = angles_of(x, torch.ones(1), base)[0].bfloat16().double()
    return halves(x, places(x, positions)[..., None] * one)


@wrong("rotary", "torch", cause="products_in_bfloat16", settings=HALF)
def angles_of_bfloat16(x, positions=None, base=10000.0):
    """Positions and frequencies are exact, and their product is bfloat16, as under autocast."""
    return halves(x, angles_of(x, positions, base).bfloat16().double())


@wrong("rotary", "torch", settings=HALF)
def sine_and_cosine_exchanged(x, positions=None, base=10000.0):
    """The two tables are unpacked in the wrong order."""
    return halves(x, torch.pi / 2 - angles_of(x, positions, base))


@wrong("rotary", "torch", settings=HALF)
def sign_of_one_half(x, positions=None, base=10000.0):
    """Both halves are added with the same sign: the minus of rotate_half is missing."""
    angles = angles_of(x, positions, base)
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * cos + b * sin, b * cos + a * sin], dim=-1)


@wrong("rotary")
def overwritten_while_read(x, positions=None, *, base=10000.0):
    """The second entries are rotated with first ones that have already been rotated."""
    made, d = x.copy(), x.shape[-1]
    positions = np.arange(x.shape[-2]) if positions is None else positions
    angles = positions[..., None] * base ** (-np.arange(0, d, 2) / d)
    a, b = made[..., ::2], made[..., 1::2]
    made[..., ::2] = a * np.cos(angles) - b * np.sin(angles)
    made[..., 1::2] = a * np.sin(angles) + b * np.cos(angles)
    return made


@wrong("rotary")
def turned_in_place(x, positions=None, *, base=10000.0):
    """The caller's array is rotated itself, so that it is rotated twice where two layers share it."""
    d = x.shape[-1]
    positions = np.arange(x.shape[-2]) if positions is None else positions
    angles = positions[..., None] * base ** (-np.arange(0, d, 2) / d)
    a, b = x[..., ::2].copy(), x[..., 1::2].copy()
    x[..., ::2] = a * np.cos(angles) - b * np.sin(angles)
    x[..., 1::2] = a * np.sin(angles) + b * np.cos(angles)
    return x


@wrong("rotary", "torch", settings=HALF)
def counted_from_one_in_the_exponent(x, positions=None, base=10000.0):
    """The paper counts pairs from 1 and subtracts it; here they are counted from 0, and it stays."""
    d = x.shape[-1]
    exponents = -2 * (torch.arange(d // 2, dtype=torch.float64) - 1) / d
    return halves(x, places(x, positions)[..., None] * base**exponents)


@wrong("rotary", "torch", settings=NEIGHBORS, dtype="bfloat16")
def promoted_to_float32(x, positions=None, base=10000.0):
    """The tables are float32, and with them what comes back for bfloat16."""
    angles = angles_of(x, positions, base).float()
    a, b = x[..., ::2], x[..., 1::2]
    rotated = a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()
    return torch.stack(rotated, dim=-1).flatten(-2)


@wrong("rotary", "torch", cause="attention_factor_on_all", settings=HALF)
def rest_scaled_too(
    x, positions=None, *, frequencies=None, base=10000.0, attention_factor=1.0
):
    """The attention factor multiplies the whole head, also the entries that do not turn."""
    if frequencies is None:
        frequencies = angles_of(x, torch.ones(1), base)[0]
    width = 2 * len(frequencies)
    rotated = halves(x[..., :width], places(x, positions)[..., None] * frequencies)
    return torch.cat([rotated, x[..., width:]], dim=-1) * attention_factor


@wrong("rotary", "torch", settings=NEIGHBORS)
def factor_of_the_cosine(x, positions=None, base=10000.0, attention_factor=1.0):
    """The attention factor multiplies the cosines, and not the sines."""
    angles = angles_of(x, positions, base)
    cos, sin = (angles.cos() * attention_factor).to(x.dtype), angles.sin().to(x.dtype)
    a, b = x[..., ::2], x[..., 1::2]
    return torch.stack([a * cos - b * sin, b * cos + a * sin], dim=-1).flatten(-2)


@wrong("rotary", "torch", settings=HALF)
def rest_is_lost(x, positions=None, *, frequencies=None, base=10000.0):
    """The entries that do not turn are not put back."""
    if frequencies is None:
        frequencies = angles_of(x, torch.ones(1), base)[0]
    where = places(x, positions)[..., None] * frequencies
    return halves(x[..., : 2 * len(frequencies)], where)


@wrong("rotary_scores", settings=NEIGHBORS)
def distance_without_a_sign(query, key, query_positions, key_positions, *, base=10000.0):
    """The pairs are rotated by the distance, whichever of the two comes first."""
    d = query.shape[-1]
    q, k = (x[..., 0::2] + 1j * x[..., 1::2] for x in (query, key))
    far = np.abs(query_positions[..., :, None] - key_positions[..., None, :])
    turns = np.exp(1j * far[..., None] * base ** (-np.arange(0, d, 2) / d))
    made = np.einsum("...ip,...jp,...ijp->...ij", q, k.conj(), turns, optimize=True)
    return made.real.astype(query.dtype)


@wrong("xpos_key", cause="query_and_key_exchanged", settings=HALF)
def key_fades_as_the_query(x, positions=None, *, base=10000.0, gamma=0.4, scale_base=512.0):
    """The key has the factor of the query: the scores fade with the sum of the positions."""
    d = x.shape[-1]
    positions = np.arange(x.shape[-2]) if positions is None else positions
    scale = (np.arange(0, d, 2) + gamma * d) / ((1 + gamma) * d)
    power = np.tile(scale ** (positions[..., None] / scale_base), 2)
    angles = np.tile(positions[..., None] / base ** (np.arange(0, d, 2) / d), 2)
    across = np.concatenate([-x[..., d // 2 :], x[..., : d // 2]], axis=-1)
    return ((x * np.cos(angles) + across * np.sin(angles)) * power).astype(x.dtype)


@wrong("rotary", "torch", cause="exponents_of_the_whole_head", settings=HALF)
def exponents_of_the_head(x, positions=None, rotary_dim=None, base=10000.0):
    """The first entries turn as a smaller head, and their exponents divide by the whole one."""
    width = x.shape[-1] if rotary_dim is None else rotary_dim
    even = torch.arange(0, width, 2, dtype=torch.float64)
    rotation, passing = x.split([width, x.shape[-1] - width], dim=-1)
    angles = places(x, positions)[..., None] * base ** (-even / x.shape[-1])
    return torch.cat([halves(rotation, angles), passing], dim=-1)


@wrong("rotary", "torch", cause="last_entries_turn", settings=HALF)
def rest_comes_first(x, positions=None, rotary_dim=None, base=10000.0):
    """The entries that turn are the last, as in DeepSeek's latent attention."""
    width = x.shape[-1] if rotary_dim is None else rotary_dim
    passing, rotation = x.split([x.shape[-1] - width, width], dim=-1)
    return torch.cat(
        [passing, halves(rotation, angles_of(rotation, positions, base))], dim=-1
    )


@wrong("rotary", "torch", settings=NEIGHBORS)
def half_as_many_pairs(x, positions=None, rotary_dim=None, base=10000.0):
    """The width that turns is taken for a number of pairs and halved once too often."""
    width = x.shape[-1] if rotary_dim is None else rotary_dim // 2
    rotation, passing = x.split([width, x.shape[-1] - width], dim=-1)
    return torch.cat(
        [neighbors(rotation, angles_of(rotation, positions, base)), passing], dim=-1
    )


@wrong("inverse_rotation", "torch", cause="turned_once_more", settings=NEIGHBORS)
def turned_forwards(x, positions, base=10000.0):
    """The output is rotated by its position once more, where it should be rotated back."""
    return neighbors(x, angles_of(x, positions, base))
