"""Cases of rotations with more than one rotation's worth of options: xPos, PoPE, images and video."""

import numpy as np

from posattn.conformance.cases import Scheme, draw, single
from posattn.reference.position import axial, fope, mrope, polar, xpos

VIDEO = np.array([[0, 0, 0], [1, 1, 1], [2, 2, 3], [2, 3, 2], [4, 4, 4]])


def xpos_query():
    """The query of xPos: rotation, and a factor that falls with the position."""
    x, later = draw(0, 1, 5, 8), np.arange(7, 12)
    fine = np.array([257, 511, 999, 1021, 1500])
    both, per_example = draw(2, 2, 3, 8), np.array([[0, 0, 1], [5, 6, 7]])
    heads = draw(1, 2, 2, 3, 6), np.array([[[5, 6, 7]], [[0, 0, 1]]])
    for layout in ("interleaved", "half"):
        said, options = "layout half, " * (layout == "half"), {}
        if layout == "half":
            options = {"layout": layout}
        yield f"{said}positions that do not begin at 0", (x, later), options
        yield f"{said}positions 0 to 4", (x, np.arange(5)), options
        yield f"{said}no positions given", (x,), options
        apart = np.array([-700.5, -2.25, 0, 1, 512])
        yield f"{said}negative positions and fractions", (x, apart), options
        yield f"{said}positions that bfloat16 cannot hold", (x, fine), options
        yield f"{said}positions per example", (both, per_example), options
        yield f"{said}two heads", heads, options
        yield f"{said}another base", (x, later), {"base": 500.0, **options}
        yield f"{said}another gamma", (x, later), {"gamma": 1.5, **options}
        yield f"{said}another scale base", (x, later), {"scale_base": 64.0, **options}
        every = {"base": 500.0, "gamma": 1.5, "scale_base": 64.0, **options}
        yield f"{said}all options at once", (x, later), every
        yield f"{said}decoding: one token", (x[:, :1], np.array([41])), options
        one = both[:, :1], np.array([[41], [7]])
        yield f"{said}decoding: one token of each example", one, options


def xpos_key():
    """The key of xPos: rotation, and a factor that grows with the position."""
    yield from xpos_query()


def polar_query():
    """The query of PoPE: each entry is the length of an arrow, which the position turns; cosines first."""
    x, later = draw(0, 2, 3, 5, 4), np.arange(7, 12)
    yield "positions that do not begin at 0", (x, later), {}
    yield "no positions given", (x,), {}
    yield "another base", (x, later), {"base": 500.0}
    yield "an odd width", (x[..., :3], later), {}
    yield "negative positions and fractions", (x, np.array([-700.5, -2.25, 0, 1, 512])), {}
    yield (
        "positions that bfloat16 cannot hold",
        (x, np.array([257, 511, 999, 1021, 1500])),
        {},
    )
    yield (
        "positions per example",
        (x, np.array([[[0, 0, 0, 1, 2]], [[0, 1, 2, 3, 4]]])),
        {},
    )
    yield "decoding: one token", (x[:1, :, :1], np.array([41])), {}


def polar_key():
    """The key of PoPE: as the query, and rotated by a learned angle of each head and entry."""
    phase = -np.abs(draw(1, 3, 4)) / 4
    for name, (x, *where), options in polar_query():
        yield name, (x, *where), {"phase": phase[:, : x.shape[-1]], **options}
    beyond = draw(2, 3, 4) * 7
    yield (
        "angles beyond a turn",
        (draw(0, 2, 3, 5, 4),),
        {"phase": np.clip(beyond, -16, 16)},
    )


def turned_key(x, positions=None, *, phase, base=10000.0):
    """The layer, as one function."""
    return polar.PolarKey(phase, base)(x, positions)


def axial_rotation():
    """Rotation by several coordinates: the angle of a pair is linear in them."""
    x, grid = draw(0, 2, 6, 8), axial.grid_coordinates(2, 3)
    omega = single(axial.axial_frequencies(8))
    half = {"layout": "half"}
    yield "a grid of two rows of three cells", (x, grid, omega), {}
    yield "layout half", (x, grid, omega), half
    yield "other places", (x, grid + np.array([5, 100]), omega), {}
    yield (
        "large coordinates, up to 2**20",
        (x, grid + np.array([4095, 2**20 - 3]), omega),
        {},
    )
    yield "fractions and negative coordinates", (x, grid / 4 - 0.5, omega), {}
    yield "places per example", (x, np.stack([grid, grid[::-1]]), omega), {}
    yield (
        "a class token that does not turn",
        (x, np.concatenate([grid[:1], grid[:-1]]), omega),
        {},
    )
    yield "partial", (x, grid, omega[:, ::2]), {}
    yield "an attention factor", (x, grid, omega[:, ::2]), {"attention_factor": 1.5}
    every = {"attention_factor": 1.5, **half}
    yield "all options at once", (x, grid, omega[:, ::2]), every
    heads, mixed = draw(1, 3, 6, 8), draw(2, 2, 3, 4)
    yield "three heads with frequencies of their own", (heads, grid, mixed), {}
    sections = single(mrope.mrope_frequencies(8, (1, 1, 2)))
    yield "time, height and width", (x[:, :5], VIDEO, sections), half
    yield "one coordinate", (x, np.arange(6)[:, None], single(omega[:1])), {}


def axial_frequencies():
    """An equal share of the pairs for each axis."""
    yield "two axes", (8,), {}
    yield "three axes", (12, 3), {}
    yield "one axis", (8, 1), {}
    yield "another base", (16, 2), {"base": 10000.0}


def mrope_frequencies():
    """A section of the pairs of a text model for each axis."""
    yield "Qwen2-VL", (128, [16, 24, 24]), {"base": 1e6}
    yield "unequal sections", (8, [1, 1, 2]), {}
    yield "one section", (8, [4]), {"base": 500.0}


def mrope_interleaved():
    """Time, height and width take turns from pair to pair, and time has the pairs that are left."""
    yield "Qwen3-VL", (128, [24, 20, 20]), {"base": 5e6}
    yield "Qwen3.5: nothing is left", (64, [11, 11, 10]), {"base": 1e7}
    yield "more for time", (16, [4, 2, 2]), {}
    yield "another base", (12, [2, 2, 2]), {"base": 500.0}


def in_turns(dim, sections, *, base=10000.0):
    """The sections of Qwen3-VL, as a function of their own."""
    return mrope.mrope_frequencies(dim, sections, base=base, interleaved=True)


def mixed_rotary():
    """Rotation by row and column, with learned frequencies for both in every pair of every head."""
    x, given = draw(0, 2, 3, 6, 8), {"frequencies": draw(1, 2, 3, 4), "width": 3}
    yield "a grid of two rows of three cells", (x,), given
    yield "some of the cells", (x[:, :, :2], np.array([4, 1])), given
    yield "one of the cells", (x[:, :, :1], np.array([4])), given
    yield "cells per example", (x[:, :, :2], np.array([[[4, 1]], [[0, 5]]])), given
    yield "layout half", (x,), {**given, "layout": "half"}
    yield "another width", (x,), {**given, "width": 2}


def mixed(x, positions=None, *, frequencies, width, layout="interleaved"):
    """The layer, as one function."""
    return axial.MixedRotary(frequencies, width, layout)(x, positions)


def waves():
    """FoPE: each pair turns with a sum of waves, and the pairs without waves stand still."""
    x = draw(0, 2, 4, 5, 6)
    given = {"frequencies": single(np.array([1.0, 0.3, 0.01]))}
    given |= {"cos_weight": draw(1, 2, 3, 2), "sin_weight": draw(2, 2, 3, 2)}
    yield "two sets of waves for four heads", (x,), given
    yield "positions that do not begin at 0", (x, np.arange(7, 12)), given
    apart = np.array([[[0, 0, 0, 1, 2]], [[5, 6, 8, 9, 13]]])
    yield "positions per example", (x, apart), given
    yield "decoding: one token", (x[:, :, :1], np.array([41])), given
    yield "the pairs without waves stay as they are", (x,), given | {"rest_sine": 0.0}
    yield "layout interleaved", (x,), given | {"layout": "interleaved"}
    every = {"layout": "interleaved", "rest_sine": 0.0}
    yield "all options at once", (x, apart), given | every
    one = draw(1, 1, 3, 3)
    yield (
        "waves for every pair",
        (x,),
        given | {"cos_weight": one, "sin_weight": draw(3, 1, 3, 3)},
    )


def kept():
    """FoPE keeps the frequencies that complete a turn within the trained length."""
    yield "Intern-S1-Pro", (128,), {"base": 5e6, "trained_length": 262144}
    yield "a short text", (16,), {"trained_length": 20}
    yield "all complete a turn", (8,), {"base": 4.0, "trained_length": 512}
    yield "none does", (8,), {"trained_length": 6}


SUN, HEO = "sun2023length, section 3.2, algorithm 1", "heo2024rotary, section 3.2"
SCHEMES = {
    "xpos_query": Scheme(xpos.xpos_query, xpos_query, SUN),
    "xpos_key": Scheme(xpos.xpos_key, xpos_key, SUN),
    "polar_query": Scheme(polar.polar_query, polar_query, "gopalakrishnan2025decoupling"),
    "polar_key": Scheme(
        turned_key, polar_key, "gopalakrishnan2025decoupling", name="PolarKey"
    ),
    "axial": Scheme(axial.rotate_axes, axial_rotation, HEO),
    "axial_frequencies": Scheme(
        axial.axial_frequencies, axial_frequencies, HEO, relative=True, exact=True
    ),
    "mrope_frequencies": Scheme(
        mrope.mrope_frequencies,
        mrope_frequencies,
        "wang2024qwen2vl, section 2.1",
        relative=True,
        exact=True,
    ),
    "mrope_interleaved": Scheme(
        in_turns,
        mrope_interleaved,
        "bai2025qwen3vl",
        name="mrope_frequencies",
        relative=True,
        exact=True,
    ),
    "mixed_rotary": Scheme(
        mixed, mixed_rotary, HEO, name="MixedRotary", learned=("frequencies",)
    ),
    "fope": Scheme(fope.fope, waves, "hua2025fourier"),
    "fope_frequencies": Scheme(
        fope.fope_frequencies, kept, "hua2025fourier", relative=True, exact=True
    ),
}
