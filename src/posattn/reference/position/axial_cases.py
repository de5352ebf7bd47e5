"""The cards and cases of rotations by several coordinates."""

import numpy as np

from posattn.reference.cases import Cases, draw, single
from posattn.reference.position.axial import (
    MixedRotary,
    axial_frequencies,
    grid_coordinates,
    rotate_axes,
    rotation_on_grid,
)
from posattn.reference.position.card import HEADS, SMALL, Card, Scheme, generator
from posattn.reference.position.mrope import mrope_frequencies

VIDEO = np.array([[0, 0, 0], [1, 1, 1], [2, 2, 3], [2, 3, 2], [4, 4, 4]])


def axial_cases():
    """Rotation by several coordinates: the angle of a pair is linear in them."""
    x, grid = draw(0, 2, 6, 8), grid_coordinates(2, 3)
    omega = single(axial_frequencies(8))
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
        "a class token that does not rotate",
        (x, np.concatenate([grid[:1], grid[:-1]]), omega),
        {},
    )
    yield "partial", (x, grid, omega[:, ::2]), {}
    yield "an attention factor", (x, grid, omega[:, ::2]), {"attention_factor": 1.5}
    every = {"attention_factor": 1.5, **half}
    yield "all options at once", (x, grid, omega[:, ::2]), every
    heads, mixed = draw(1, 3, 6, 8), draw(2, 2, 3, 4)
    yield "three heads with frequencies of their own", (heads, grid, mixed), {}
    sections = single(mrope_frequencies(8, (1, 1, 2)))
    yield "time, height and width", (x[:, :5], VIDEO, sections), half
    turns = single(mrope_frequencies(8, (2, 1, 1), interleaved=True))
    wide = draw(3, 2, 5, 16)
    yield "Qwen3.5: pairs of a part take turns", (wide, VIDEO, turns), half
    centers, round_ = (
        single((2 * grid + 1) / np.array([2, 3]) - 1),
        single(2 * np.pi * omega),
    )
    yield "DINOv3: centers of patches, from -1 to 1", (x, centers, round_), half
    yield "one coordinate", (x, np.arange(6)[:, None], single(omega[:1])), {}


def axial_frequencies_cases():
    """An equal share of the pairs for each axis."""
    yield "two axes", (8,), {}
    yield "three axes", (12, 3), {}
    yield "one axis", (8, 1), {}
    yield "another base", (16, 2), {"base": 10000.0}


def mixed_rotary_cases():
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
    return MixedRotary(frequencies, width, layout)(x, positions)


def _mixed(z):
    layer = MixedRotary.init(generator(), z.head_dim, HEADS, z.side)
    return Scheme(rotate=layer, layer=layer)


CARDS = {
    "rotary, axial": Card(
        title="Axial rotary, for images",
        year=2024,
        idea=(
            "Half of the pairs rotate with the row of a patch, the other "
            "half with its column."
        ),
        formula=r"\text{pair } c \text{ rotates by } y_i\,\omega_c \text{ or by } x_i\,\omega_c",
        symbols=(
            r"patch $i$ is in row $y_i$ and column $x_i$, and $\omega_c$ is the frequency of "
            "pair $c$."
        ),
        cites=("heo2024rotary",),
        function="axial_frequencies",
        shows="blocks of 8 by 8, one for each pair of rows of the image",
        models=("DINOv3 ViT-B",),
        make=lambda n, z=SMALL: rotation_on_grid(axial_frequencies(z.head_dim), z.side),
    ),
    "rotary, mixed": Card(
        title="Mixed rotary, for images",
        year=2024,
        idea=(
            "Each pair rotates with a learned combination of row and column, "
            "so it can also follow a diagonal."
        ),
        formula=(
            r"\text{pair } c \text{ rotates by } y_i\,\omega_{0,c} + x_i\,\omega_{1,c}, "
            r"\text{ both learned}"
        ),
        symbols=(
            r"patch $i$ is in row $y_i$ and column $x_i$, and each pair $c$ has two learned "
            r"frequencies, $\omega_{0,c}$ and $\omega_{1,c}$."
        ),
        cites=("heo2024rotary",),
        function="MixedRotary",
        shows="blocks of 8 by 8, each with slanted stripes",
        models=("RoPE-ViT (by the authors)",),
        make=lambda n, z=SMALL: _mixed(z),
    ),
}

HEO = "heo2024rotary, section 3.2"
CASES = {
    "axial": Cases(rotate_axes, axial_cases, HEO),
    "axial_frequencies": Cases(
        axial_frequencies, axial_frequencies_cases, HEO, relative=True, exact=True
    ),
    "mixed_rotary": Cases(
        mixed, mixed_rotary_cases, HEO, name="MixedRotary", learned=("frequencies",)
    ),
}
