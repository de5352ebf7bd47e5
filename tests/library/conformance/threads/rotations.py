"""Threads on rotations and encodings, from their texts."""

from itertools import pairwise

import numpy as np
import torch

from posattn.conformance import gallery
from tests.library.conformance.examples import right, thread

HALF, NEIGHBORS = {"layout": "half"}, {"layout": "interleaved"}


def plain(dim, base=10000.0):
    """The frequencies, which are right."""
    return base ** (-np.arange(0, dim, 2) / dim)


def places(x, positions):
    """The positions, or 0, 1, 2 and so on."""
    return np.arange(x.shape[-2]) if positions is None else positions


def halves(x, angles):
    """A turn of the two halves, which is right."""
    cos, sin = np.cos(angles), np.sin(angles)
    a, b = np.split(x, 2, axis=-1)
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)


thread("AkiRusProd/numpy-transformer #1", scheme="positional_encoding",
       cause="wrong_axis")(gallery.encoding_along_the_batch)  # fmt: skip
thread("Dao-AILab/flash-attention #288", "huggingface/transformers #25199",
       "huggingface/transformers #33826", scheme="rotary",
       cause="other_layout")(gallery.rotary_by_halves)  # fmt: skip
thread("raiyanyahya/how-to-train-your-gpt #6", scheme="rotary",
       cause="layouts_mixed_the_other_way")(gallery.rotary_of_mixed_layouts)  # fmt: skip
thread("vllm-project/vllm-metal #44", scheme="rotary",
       cause="pairs_come_back_in_the_other_layout")(gallery.rotary_back_in_halves)  # fmt: skip
thread("huggingface/transformers #22161", scheme="rotary",
       cause="positions_ignored")(gallery.rotary_from_zero)  # fmt: skip
thread("lucidrains/rotary-embedding-torch #11", scheme="rotary",
       cause="CacheWithoutOffset")(gallery.CacheByLength)  # fmt: skip
thread("patrick-kidger/equinox (its cache lacks theta)", scheme="rotary",
       cause="CacheWithoutBase")(gallery.CacheByWidth)  # fmt: skip
thread("ml-explore/mlx #561", scheme="rotary",
       cause="CacheOfHalfTheWidth")(gallery.CacheByHalfTheWidth)  # fmt: skip
thread("EleutherAI/gpt-neox #1003", scheme="rotary",
       cause="angles_in_float16")(gallery.rotary_in_float16)  # fmt: skip


@thread("codertimo/BERT-pytorch #78", "zhouhaoyi/Informer2020 #224", scheme="sinusoidal",
        framework="torch", cause="odd_width_fails")  # fmt: skip
def as_many_cosines_as_sines(length_or_positions, dim, base=10000.0):
    """The cosines of all pairs go into the odd columns, of which an odd width has one less."""
    given = hasattr(length_or_positions, "shape")
    positions = length_or_positions if given else torch.arange(length_or_positions)
    angles = positions[..., None] * torch.from_numpy(plain(dim, base))
    made = torch.zeros(*positions.shape, dim, dtype=torch.float64)
    made[..., 0::2] = angles.sin()
    made[..., 1::2] = angles.cos()
    return made


@thread("huggingface/transformers #25681", "huggingface/transformers #29496", scheme="rotary",
        framework="torch", cause="angles_in_bfloat16", settings=HALF)  # fmt: skip
def model_in_bfloat16(x, positions=None, base=10000.0):
    """The frequencies were cast with the model, and the positions take their dtype."""
    omega = torch.from_numpy(plain(x.shape[-1], base)).bfloat16()
    where = torch.arange(x.shape[-2]) if positions is None else positions
    return halves_of_torch(x, where.type_as(omega)[..., None] * omega)


def halves_of_torch(x, angles):
    """A turn of the two halves, which is right."""
    cos, sin = (f(angles.double()).to(x.dtype) for f in (torch.cos, torch.sin))
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)


@thread("sgl-project/sglang-jax #1472", "Modalities/modalities #462", scheme="rotary",
        framework="torch", cause="frequencies_in_bfloat16", settings=HALF)  # fmt: skip
def frequencies_of_the_model(x, positions=None, base=10000.0):
    """The frequencies are cast to bfloat16 before they are multiplied by exact positions."""
    omega = torch.from_numpy(plain(x.shape[-1], base)).bfloat16().double()
    where = torch.arange(x.shape[-2]) if positions is None else positions
    return halves_of_torch(x, where[..., None] * omega)


@thread("facebookresearch/vjepa2 #15", "huggingface/transformers #47328", scheme="rotary",
        cause="layouts_mixed", settings=NEIGHBORS)  # fmt: skip
def tables_of_halves(x, positions=None, *, base=10000.0):
    """Neighbors are rotated, and the tables hold the angles twice, one copy after the other."""
    return neighbors_by_halves(
        x, places(x, positions)[..., None] * plain(x.shape[-1], base)
    )


def neighbors_by_halves(x, angles):
    """Neighbors of the first entries by tables of halves, and the rest as it is."""
    angles = np.tile(angles, 2)
    x, rest = np.split(x, [angles.shape[-1]], axis=-1)
    across = np.stack([-x[..., 1::2], x[..., ::2]], -1).reshape(x.shape)
    return np.concatenate([x * np.cos(angles) + across * np.sin(angles), rest], -1)


@thread("ml-explore/mlx-lm #1189", scheme="rotary", cause="frequencies_inverted")
def divided_by_frequencies(x, positions=None, *, base=10000.0):
    """A kernel that divides by wavelengths is given frequencies: positions are divided by them."""
    angles = places(x, positions)[..., None] / plain(x.shape[-1], base)
    return gallery.rotated(x, angles)


@thread("pie-project/pie #602", scheme="rotary", cause="across_the_whole_head", settings=HALF)  # fmt: skip
def pairs_across_the_head(x, positions=None, *, rotary_dim=None, base=10000.0):
    """A part of the head turns, with frequencies of the whole head and pairs across it."""
    d = x.shape[-1]
    rotation = np.arange(d // 2) < (d if rotary_dim is None else rotary_dim) // 2
    return halves(
        x, places(x, positions)[..., None] * np.where(rotation, plain(d, base), 0)
    )


@thread("vllm-project/vllm #55204", scheme="fope", cause="rest_always_turned")
def padded_with_ones(
    x, positions=None, *, frequencies, cos_weight, sin_weight, rest_sine=1.0
):
    """The sines of pairs without waves are padded as the cosines are, whatever is asked for."""
    angles = places(x, positions)[..., None] * frequencies
    share, rest = x.shape[-3] // len(cos_weight), x.shape[-1] // 2 - cos_weight.shape[-1]
    tables = []
    for table, weight in ((np.cos(angles), cos_weight), (np.sin(angles), sin_weight)):
        waves = table @ np.repeat(weight, share, axis=0)
        tables.append(
            np.pad(waves, [(0, 0)] * (waves.ndim - 1) + [(0, rest)], constant_values=1)
        )
    (cos, sin), (a, b) = tables, np.split(x, 2, axis=-1)
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)


@thread("vllm-project/vllm #55243", scheme="fope", cause="first_head_for_all")
def waves_of_head_zero(
    x, positions=None, *, frequencies, cos_weight, sin_weight, rest_sine=1.0
):
    """The weights of head 0 are taken, so that an einsum without heads fits."""
    angles = places(x, positions)[..., None] * frequencies
    cos, sin = np.cos(angles) @ cos_weight[0], np.sin(angles) @ sin_weight[0]
    padding = [(0, 0)] * (cos.ndim - 1) + [(0, x.shape[-1] // 2 - cos.shape[-1])]
    cos, sin = (
        np.pad(cos, padding, constant_values=1),
        np.pad(sin, padding, constant_values=rest_sine),
    )
    a, b = np.split(x, 2, axis=-1)
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)


@thread("alibaba/MNN #4133", "vllm-project/vllm-gaudi #1437", scheme="mrope_interleaved",
        cause="sections_in_blocks")  # fmt: skip
def chunks_for_axes(dim, sections, *, base=10000.0):
    """Each axis has a chunk of pairs, where the model's axes take turns."""
    ends = np.cumsum([0, *sections])
    made = np.zeros((len(sections), dim // 2))
    for axis, (start, end) in enumerate(pairwise(ends)):
        made[axis, start:end] = plain(dim, base)[start:end]
    return made


@thread("AMD-AGI/Primus #928", scheme="inverse_rotation", cause="not_turned_back")
def output_stays_turned(x, positions, rotary_dim=None, base=10000.0, layout="interleaved"):
    """The output of attention is not rotated back before it is projected."""
    return x


@thread("Avarok-Cybersecurity/atlas #276", scheme="rotary", cause="base_of_160000",
        settings=NEIGHBORS)  # fmt: skip
def one_table_for_all_layers(x, positions=None, *, base=10000.0):
    """One table, with the base 160000 of the compressed layers, serves the others too."""
    angles = places(x, positions)[..., None] * plain(x.shape[-1], 160000.0)
    return gallery.rotated(x, angles)


def by_axes(x, coordinates, frequencies):
    """The angles of tokens that stand at several coordinates, which are right."""
    return np.einsum("...nc,c...m->...nm", coordinates, frequencies)


@thread("sgl-project/sglang #34446", "sgl-project/sglang #35744", scheme="axial",
        cause="first_coordinate_for_all", settings=HALF)  # fmt: skip
def one_row_of_positions(x, coordinates, frequencies):
    """A kernel reads row 0 of positions of three rows, so height and width are lost."""
    first = np.repeat(coordinates[..., :1], len(frequencies), axis=-1)
    return of_a_part(x, by_axes(x, first, frequencies))


@thread("rotary-embedding-torch 0.9.1 (offsets of axes)", scheme="axial",
        cause="offset_of_the_first_axis", settings=HALF)  # fmt: skip
def second_axis_from_the_table_of_the_first(x, coordinates, frequencies):
    """The table of the first axis begins at its offset, and answers the second by its length."""
    first, *others = np.moveaxis(coordinates, -1, 0)
    moved = [other - other.min(-1, keepdims=True) + first.min(-1, keepdims=True)
             for other in others]  # fmt: skip
    return of_a_part(x, by_axes(x, np.stack([first, *moved], -1), frequencies))


@right("axial", settings=HALF)
def of_three_rows(x, coordinates, frequencies):
    """All rows of positions: this is right."""
    return of_a_part(x, by_axes(x, coordinates, frequencies))


def of_a_part(x, angles):
    """Halves of the first entries, and the rest as it is."""
    part = 2 * angles.shape[-1]
    return np.concatenate([halves(x[..., :part], angles), x[..., part:]], -1)


@thread("huggingface/pytorch-image-models #2692", scheme="axial",
        cause="layouts_of_axes_mixed", settings=HALF)  # fmt: skip
def neighbors_of_a_block(x, coordinates, frequencies):
    """The tables are those of halves, and a block that is not told so rotates neighbors."""
    return neighbors_by_halves(x, by_axes(x, coordinates, frequencies))


@thread("apple/coreai-models #66", scheme="rotary", cause="zeros_left_out",
        settings=HALF, only="frequencies given")  # fmt: skip
def pairs_within_the_part(x, positions=None, *, frequencies):
    """A composite operator pairs what lies within the entries that rotate, as many as are not 0."""
    turning = frequencies[frequencies > 0]
    return of_a_part(x, places(x, positions)[..., None] * turning)


@thread("huggingface/optimum-neuron #848", scheme="rotary", settings=HALF,
        cause="one_ahead_in_decoding")  # fmt: skip
def incremented_once_more(x, positions=None, *, base=10000.0):
    """A step of decoding adds 1 to positions that count the new token already."""
    where = places(x, positions) + (x.shape[-2] == 1)
    return halves(x, where[..., None] * plain(x.shape[-1], base))


@thread("ml-explore/mlx #3494", "ml-explore/mlx #3795", "ml-explore/mlx #3949", scheme="rotary",
        settings=HALF, cause="first_example_only_in_decoding")  # fmt: skip
def one_row_written(x, positions=None, *, base=10000.0):
    """The kernel for one token has a grid without the batch."""
    made = halves(x, places(x, positions)[..., None] * plain(x.shape[-1], base))
    if x.ndim > 2 and x.shape[-2] == 1:
        made[1:] = 0
    return made


@thread("lablup/mlxcel #1324", scheme="rotary", settings=HALF, cause="rotated_twice")
def doubled_unless_linear(x, positions=None, *, base=10000.0):
    """The scale of positions falls through to 2 where no linear scaling is asked for."""
    angles = 2.0 * places(x, positions)[..., None] * plain(x.shape[-1], base)
    return halves(x, angles)


@thread("rotary-embedding-torch 0.9.1", scheme="xpos_query", settings=NEIGHBORS,
        cause="zero_in_the_middle_of_a_call")  # fmt: skip
def centered_in_each_call(x, positions=None, *, base=10000.0, gamma=0.4, scale_base=512.0):
    """The power of the decay is counted from the middle of the tokens at hand."""
    where, d = places(x, positions), x.shape[-1]
    power = (where - len(where[..., :].T) // 2)[..., None] / scale_base
    fade = ((np.arange(0, d, 2) / d + gamma) / (1 + gamma)) ** power
    return gallery.rotated(x, where[..., None] * plain(d, base)) * np.repeat(fade, 2, -1)
