"""x-transformers and rotary-embedding-torch beside our columns; `nox -s oracles` runs this.

Where they differ from us, a test says in what, and who is right.
"""

import math

import numpy as np
import pytest
import torch
from rotary_embedding_torch import RotaryEmbedding, apply_rotary_emb
from x_transformers import x_transformers

from tests.conftest import REFERENCE, draw, error

SINGLE = 1e-5  # of float32 tables at the small positions that are compared
BATCH, HEADS, N, WIDTH = 2, 3, 7, 8
HEADED = (BATCH, HEADS, N, WIDTH)


def single(x):
    return torch.tensor(x, dtype=torch.float32)


def double(x):
    return x.detach().double().numpy()


def assert_agree(column, ours, theirs, bound=SINGLE):
    assert error(column.numpy(ours), double(theirs)) <= bound


def positions_of(column, n_q=N, n_k=N):
    return column.positions(np.arange(n_k - n_q, n_k)), column.positions(np.arange(n_k))


# rotation


@pytest.mark.parametrize("offset", [0, 30])
@pytest.mark.parametrize("rotated", [WIDTH, 4])
def test_rotary_embedding_torch_rotates_pairs(column, offset, rotated):
    x = draw(330, *HEADED)
    want = RotaryEmbedding(rotated).rotate_queries_or_keys(single(x), offset=offset)
    got = column.rotate(
        column.array(x),
        column.positions(offset + np.arange(N)),
        frequencies=column.frequencies(rotated),
    )
    assert_agree(column, got, want)


@pytest.mark.parametrize("rotated", [WIDTH, 4])
def test_x_transformers_rotates_pairs(column, rotated):
    x = draw(331, *HEADED)
    frequencies, scale = x_transformers.RotaryEmbedding(rotated)(torch.arange(N))
    want = x_transformers.apply_rotary_pos_emb(single(x), frequencies, scale)
    got = column.rotate(column.array(x), frequencies=column.frequencies(rotated))
    assert_agree(column, got, want)


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


def test_scaled_frequencies(column):
    ntk = column.ntk_aware(WIDTH, factor=4.0)
    for theirs in (
        RotaryEmbedding(WIDTH, theta_rescale_factor=4.0).freqs,
        x_transformers.RotaryEmbedding(WIDTH, base_rescale_factor=4.0).inv_freq,
    ):
        assert np.allclose(np.asarray(ntk), double(theirs), rtol=2e-6, atol=0)
    x = draw(332, *HEADED)
    theirs = RotaryEmbedding(WIDTH, interpolate_factor=4.0)
    want = theirs.rotate_queries_or_keys(single(x))
    slow = column.position_interpolation(WIDTH, factor=4.0)
    assert_agree(column, column.rotate(column.array(x), frequencies=slow), want)


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


def xpos_scores(column, query, key):
    """Our scores of the last queries with all keys."""
    at_query, at_key = positions_of(column, query.shape[-2], key.shape[-2])
    query = column.xpos_query(column.array(query), at_query)
    return query @ column.xpos_key(column.array(key), at_key).mT


def test_xpos_scores(column):
    """They count positions from the middle of the sequence, which scores do not see."""
    query, key = draw(334, *HEADED), draw(335, *HEADED)
    q, k = single(query), single(key)
    rotary = RotaryEmbedding(WIDTH, use_xpos=True)
    lucid_q, lucid_k = rotary.rotate_queries_and_keys(q, k)
    rotary = x_transformers.RotaryEmbedding(WIDTH, use_xpos=True)
    frequencies, scale = rotary(torch.arange(N))
    x_q, x_k = (
        x_transformers.apply_rotary_pos_emb(x, frequencies, s)
        for x, s in ((q, scale), (k, scale**-1))
    )
    for want in (lucid_q @ lucid_k.mT, x_q @ x_k.mT):
        assert_agree(column, xpos_scores(column, query, key), want)


def test_xpos_with_cached_keys_counts_from_two_middles(column):
    """Known difference: rotary-embedding-torch counts queries from their own middle when decoding.

    Its scores then do not repeat those of prefill, as ours do; they fade by the distance of the
    two middles more.
    """
    n = 400
    query, key = draw(336, 1, n, WIDTH), draw(337, 1, n, WIDTH)
    rotary = RotaryEmbedding(WIDTH, use_xpos=True)
    q, k = rotary.rotate_queries_and_keys(single(query), single(key))
    prefill = double(q @ k.mT)[:, -1:]
    q, k = rotary.rotate_queries_with_cached_keys(single(query[:, -1:]), single(key))
    decoded = double(q @ k.mT)
    ours = column.numpy(xpos_scores(column, query[:, -1:], key))
    assert error(ours, prefill) < 1e-4
    assert error(ours, decoded) > 1e-2
    zeta = np.repeat((np.arange(0, WIDTH, 2) / WIDTH + 0.4) / 1.4, 2)
    faded = query[:, -1:] * zeta ** ((n // 2 - 1 // 2) / 512)
    assert error(column.numpy(xpos_scores(column, faded, key)), decoded) < 1e-4


# biases


@pytest.mark.parametrize("num_heads", [1, 3, 8, 12, 71])
def test_alibi(column, num_heads):
    want = x_transformers.AlibiPositionalBias(num_heads)(3, N)
    ours = column.ALiBi(num_heads)(*positions_of(column, 3))
    assert error(np.asarray(ours, np.float64), double(want)) <= SINGLE


@pytest.mark.parametrize("causal", [True, False])
def test_t5_bias(column, causal):
    theirs = x_transformers.RelativePositionBias(scale=1.0, causal=causal, heads=HEADS)
    table = draw(338, 32, HEADS)
    theirs.relative_attention_bias.weight.data = single(table)
    layer = column.with_parameters(
        "T5Bias", {"table": column.array(table)}, HEADS, bidirectional=not causal
    )
    assert_agree(column, layer(*positions_of(column, 150, 300)), theirs(150, 300))


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


def forget(column, x, weight, offset):
    parameters = {"weight": column.array(weight), "offset": column.array(offset)}
    gate = column.with_parameters("ForgettingGate", parameters, len(weight), HEADS)
    return column.forgetting_bias(gate(column.array(x)))


def their_gate(weight, offset):
    theirs = x_transformers.DataDependentAlibi(len(weight), HEADS)
    theirs.to_forget_gates[0].weight.data = single(weight.T)
    theirs.to_forget_gates[0].bias.data = single(offset)
    return theirs


def test_forgetting_bias(column):
    """The future is left to the mask: theirs is positive there, ours 0."""
    x, weight, offset = (
        draw(342, BATCH, N, WIDTH),
        draw(343, WIDTH, HEADS),
        draw(344, HEADS),
    )
    want = double(their_gate(weight, offset)(single(x)))
    got = column.numpy(forget(column, x, weight, offset))
    past = np.tri(N, dtype=bool)
    assert error(got[..., past], want[..., past]) <= SINGLE
    assert (want[..., ~past] > 0).all()
    assert not got[..., ~past].any()


def test_a_difference_of_sums_forgets_less_exactly(torch_column):
    """Known difference: theirs subtracts two cumulative sums in float32, each as long as the sequence."""
    n, last = 2048, np.s_[:, :, -1:, -20:]
    x, weight, offset = draw(345, 1, n, WIDTH), draw(346, WIDTH, HEADS), draw(347, HEADS)
    exact = forget(REFERENCE, x, weight, offset)[last]
    theirs = double(their_gate(weight, offset)(single(x)))[last]
    gate = torch_column.ForgettingGate(WIDTH, HEADS)
    gate.weight.data, gate.offset.data = single(weight), single(offset)
    ours = double(torch_column.forgetting_bias(gate(single(x)), 1))[..., -20:]
    assert np.abs(ours - exact).max() < 1e-5
    assert np.abs(theirs - exact).max() > 1e-4


# absolute encodings


def test_absolute_encodings_are_ours_times_a_scale(column):
    """Both scale by one over the root of the width, as the size of an embedding."""
    x = torch.zeros(1, N, WIDTH)
    scale = WIDTH**-0.5
    encoding = column.sinusoidal_encoding(column.positions(np.arange(N)), WIDTH)
    ours = np.asarray(column.to_half(encoding), np.float64)
    want = x_transformers.ScaledSinusoidalEmbedding(WIDTH)(x)
    assert error(scale * ours, double(want)) <= SINGLE
    table = draw(348, 9, WIDTH)
    theirs = x_transformers.AbsolutePositionalEmbedding(WIDTH, 9)
    theirs.emb.weight.data = single(table)
    layer = column.learned(column.array(scale * table))
    assert_agree(column, layer(column.array(np.zeros((N, WIDTH)))), theirs(x))
