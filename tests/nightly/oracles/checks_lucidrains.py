"""x-transformers and rotary-embedding-torch beside our columns; `nox -s oracles` runs this."""

import math

import numpy as np
import torch
from rotary_embedding_torch import RotaryEmbedding, apply_rotary_emb
from x_transformers import x_transformers

from tests.conftest import REFERENCE, draw, error
from tests.nightly.oracles.checks_transformers import (
    SINGLE,
    assert_agree,
    double,
    positions_of,
    single,
)

BATCH, HEADS, N, WIDTH = 2, 3, 7, 8
HEADED = (BATCH, HEADS, N, WIDTH)


# rotation


def test_pope_of_x_transformers(column):
    """Cosines first, as here; positions in float32 there."""
    theirs = x_transformers.PolarEmbedding(WIDTH, HEADS)
    phase = -np.abs(draw(350, HEADS, WIDTH))
    theirs.learned_bias.data = single(phase[:, None])
    frequencies, bias = theirs(torch.arange(N))
    query, key = draw(351, *HEADED), draw(352, *HEADED)
    ours = (
        column.polar_query(column.array(query)),
        column.with_parameters("PolarKey", {"phase": column.array(phase)}, HEADS, WIDTH)(
            column.array(key)
        ),
    )
    for got, x, angles in zip(
        ours, (query, key), (frequencies, frequencies + bias), strict=True
    ):
        assert_agree(column, got, x_transformers.apply_polar_pos_emb(single(x), angles))


def test_axial_rotation(column):
    height, width = 3, 4
    x = draw(333, HEADS, height * width, WIDTH)
    share = REFERENCE.frequencies(WIDTH // 2, base=100.0)
    theirs = RotaryEmbedding(WIDTH // 2, custom_freqs=single(share))
    angles = theirs.get_axial_freqs(height, width)
    want = apply_rotary_emb(angles, single(x).unflatten(1, (height, width)))
    cells = column.grid_coordinates(height, width)
    got = column.rotate_axes(column.array(x), cells, column.axial_frequencies(WIDTH))
    assert_agree(column, got, want.flatten(1, 2))


def test_xpos_scores(column):
    """They count positions from the middle of the sequence, which scores do not see."""
    query, key = draw(334, *HEADED), draw(335, *HEADED)
    q, k = single(query), single(key)
    rotary = x_transformers.RotaryEmbedding(WIDTH, use_xpos=True)
    frequencies, scale = rotary(torch.arange(N))
    x_q, x_k = (
        x_transformers.apply_rotary_pos_emb(x, frequencies, s)
        for x, s in ((q, scale), (k, scale**-1))
    )
    at_query, at_key = positions_of(column)
    query = column.xpos_query(column.array(query), at_query)
    got = query @ column.xpos_key(column.array(key), at_key).mT
    assert_agree(column, got, x_q @ x_k.mT)


# biases


def test_cope(column):
    """Theirs is the paper's listing, which we follow; the mask reaches the gates through the scores."""
    query, key, table = draw(339, *HEADED), draw(340, *HEADED), draw(341, 4, WIDTH)
    theirs = x_transformers.CoPE(WIDTH, HEADS, 4)
    theirs.pos_emb.data = single(table)
    scores = single(query) @ single(key).mT / math.sqrt(WIDTH)
    future = torch.ones(N, N, dtype=torch.bool).triu(1)
    want = theirs(single(query), scores.masked_fill(future, -math.inf))
    ours = column.with_parameters("CoPE", {"table": column.array(table)}, 4, WIDTH)
    got = ours.scores(column.array(query), column.array(key), *positions_of(column))
    assert_agree(column, got, want)


def test_forgetting_bias(column):
    """The future is left to the mask: theirs is positive there, ours 0."""
    x, weight, offset = (
        draw(342, BATCH, N, WIDTH),
        draw(343, WIDTH, HEADS),
        draw(344, HEADS),
    )
    theirs = x_transformers.DataDependentAlibi(WIDTH, HEADS)
    theirs.to_forget_gates[0].weight.data = single(weight.T)
    theirs.to_forget_gates[0].bias.data = single(offset)
    parameters = {"weight": column.array(weight), "offset": column.array(offset)}
    gate = column.with_parameters("ForgettingGate", parameters, WIDTH, HEADS)
    got = column.numpy(column.forgetting_bias(gate(column.array(x))))
    want = double(theirs(single(x)))
    past = np.tri(N, dtype=bool)
    assert error(got[..., past], want[..., past]) <= SINGLE
    assert not got[..., ~past].any()
