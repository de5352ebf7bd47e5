"""From d2l to posattn: what both compute, and where they differ."""

import ast
import random

import jax.numpy as jnp
import matplotlib
import numpy as np
import pytest
import torch
from matplotlib import pyplot

from posattn import jax as jax_column
from posattn import reference
from posattn import torch as ours

HALF_EACH, QUARTER, NONE = [[0.5, 0.5, 0.0, 0.0]], [[0.25] * 4], [[0.0] * 4]
DEEP = torch.zeros(2, 1, 5, 32)


@pytest.fixture
def d2l(page):
    """What the page keeps of the PyTorch file."""
    return page.torch.d2l


@pytest.fixture(autouse=True, scope="module")
def settings():
    """Put back what d2l changes for all figures."""
    with matplotlib.rc_context():
        yield
    pyplot.close("all")


def scores(array):
    """The scores 0, 0, 1 and 1, twice."""
    return array([[[0.0, 0.0, 1.0, 1.0]]] * 2)


def test_by_hand_in_pytorch(page, d2l):
    r"""Both libraries give the weights $\frac12, \frac12, 0, 0$.

    the softmax of four equal numbers is $\frac14$ for each, so the query reads the padding

    posattn gives weights of 0, because there is nothing to read
    """
    lengths = torch.tensor([2, 0])
    weights = ours.masked_softmax(scores(torch.tensor), ours.length_mask(lengths, 4))
    assert weights.tolist() == [HALF_EACH, NONE]
    assert d2l.masked_softmax(scores(torch.tensor), lengths).tolist() == [
        HALF_EACH,
        QUARTER,
    ]


def test_by_hand_in_jax(page):
    """The cells under Lengths and the softmax print this."""
    lengths = jnp.array([2, 0])
    mask = jax_column.length_mask(lengths, 4)
    weights = jax_column.masked_softmax(scores(jnp.array), mask)
    assert weights.tolist() == [HALF_EACH, NONE]
    theirs = page.jax.d2l_jax.masked_softmax(scores(jnp.array), lengths)
    assert theirs.tolist() == [HALF_EACH, QUARTER]
    assert page.printed.count(f"{[HALF_EACH, NONE]}\n") == 2
    assert page.printed.count(f"{[HALF_EACH, QUARTER]}\n") == 2


def test_the_files_import_what_no_helper_needs(page):
    """The files of d2l import torchvision, pandas and more, which none of these helpers needs.

    It reads two files of version 1.0.3
    """
    trees = page.torch.trees
    assert len(trees) == 2
    modules = {
        file: {
            alias.name.partition(".")[0]
            for node in ast.walk(tree)
            if isinstance(node, ast.Import)
            for alias in node.names
        }
        | {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        for file, tree in trees.items()
    }
    assert {"torchvision", "pandas"} <= modules["torch"]
    assert "pandas" in modules["jax"]


def test_the_lesson_is_ported(page):
    """On the inputs of a lesson, and in eval(), both give the same outputs up to rounding, as we check
    below.

    This is the lesson: two sequences of four tokens with lengths 3 and 2, an encoding, and attention
    with five heads
    """
    assert page.torch.tokens.shape == (2, 4, 100)
    weights = {f"{k}_weight": w.T for k, w in page.torch.weights.items()}
    layer = reference.MultiHeadAttention(**weights, num_heads=5)
    x = reference.PositionalEncoding(100)(page.torch.tokens)
    for name in ("padding", "causal"):
        assert page.printed.count(f"{name}: largest difference from d2l 0.0000\n") == 2
        mask = reference.length_mask(np.array([3, 2]), 4) if name == "padding" else None
        expected = layer(x, x, x, mask=mask, causal=name == "causal")
        assert np.allclose(page.torch.outputs[name].detach(), expected, atol=1e-5)
        assert np.allclose(page.jax.outputs[name], expected, atol=1e-5)


def test_scores_are_overwritten(page, d2l):
    """Where a key is hidden, d2l writes $-10^6$ over its score.

    masked_softmax of d2l writes into the array that you pass.

    The function writes into the scores that you pass, unless their layout in memory forces a copy.
    """
    given = scores(torch.tensor)
    d2l.masked_softmax(given, torch.tensor([2, 0]))
    assert given.min() == -1e6
    assert page.torch.kept.min() == -1e6
    assert page.torch.copied.min() == 0


def test_in_float16_the_number_is_minus_infinity(page, d2l):
    """In float16 the number is minus infinity, and the empty row is NaN."""
    assert torch.tensor(-1e6).half().isneginf()
    half = torch.zeros(1, 1, 4).half()
    assert d2l.masked_softmax(half, torch.tensor([0])).isnan().all()


def test_lengths_out_of_range(page, d2l):
    """A length beyond the keys counts as all of them, and a negative one as 0. Ours raises an error."""
    for wrong, counted in ((9, 4), (-1, 0)):
        lengths = torch.tensor([wrong, counted])
        first, second = d2l.masked_softmax(torch.arange(4.0).repeat(2, 1, 1), lengths)
        assert first.equal(second)
        with pytest.raises(ValueError, match="length"):
            ours.length_mask(lengths, 4)


def test_two_calls_in_train_mode(page):
    """a newly built layer drops entries at random. Ours drops only where a call gets rng, whatever the
    mode.

    Two calls of a new layer differ in d2l, and not here
    """
    (line,) = (line for line in page.printed.splitlines() if "train mode differ" in line)
    theirs, own = (part.split(" by ")[1] for part in line.partition(":")[2].split(", "))
    assert float(theirs) > 0
    assert own == "0.0"


def test_the_table_is_short_and_float32(page, d2l):
    """The encoding of d2l makes a float32 table for max_len=1000 tokens. With 1001 tokens it fails unless
    you raise max_len, an odd width fails, and bfloat16 becomes float32.

    d2l fails at 1001 tokens, or at an odd width
    """
    layer = d2l.PositionalEncoding(32, 0.0)
    assert layer.P.shape[1] == 1000
    assert layer.P.dtype == layer(DEEP.bfloat16()).dtype == torch.float32
    assert ours.PositionalEncoding(32)(DEEP.bfloat16()).dtype == torch.bfloat16
    with pytest.raises(RuntimeError):
        d2l.PositionalEncoding(7, 0.0)
    with pytest.raises(RuntimeError):
        layer(torch.zeros(1, 1001, 32))


def test_tokens_lie_on_axis_1(page, d2l):
    """Put a second batch axis of size 1 before the token axis, and each token silently gets position 0.
    Ours takes any batch axes.
    """
    layer = d2l.PositionalEncoding(32, 0.0)
    assert layer(DEEP)[0, 0].equal(layer.P[0, :1].repeat(5, 1))
    encoded = ours.PositionalEncoding(32)(DEEP)[0, 0]
    assert torch.allclose(encoded, layer.P[0, :5], atol=1e-6)


def test_how_far_the_table_is_off(page, d2l):
    """At width 512, the sines and cosines of the first 1000 rows of d2l are off by up to …. Ours come from
    float64 angles and are off by less than a ten-millionth.
    """
    exact = reference.sinusoidal_encoding(1000, 512)
    table = d2l.PositionalEncoding(512, 0.0).P[0].numpy()
    assert page.glued["old_error"] == abs(table - exact).max() > 1e-7
    assert abs(ours.sinusoidal_encoding(1000, 512).numpy() - exact).max() < 1e-7


def test_lines_that_are_not_drawn(page):
    """plot has four line formats and drops any lines beyond the fourth. It also changes the default size
    of all later figures.
    """
    assert (len(page.torch.theirs_axes.lines), len(page.torch.own_axes.lines)) == (4, 6)
    assert "of six lines drawn: d2l 4 and ours 6\n" in page.printed
    assert "size of all later figures: [6.0, 2.5]\n" in page.printed
    assert pyplot.rcParamsDefault["figure.figsize"] != [6.0, 2.5]


def test_keys_come_from_the_global_generator(page):
    """Each call gives another key, and a second run repeats them only after random.seed."""
    first, second = page.torch.keys
    assert (first != second).any()
    state, seeded = random.getstate(), []
    for _ in range(2):
        random.seed(0)
        seeded.append(page.torch.d2l_jax.get_key())
    random.setstate(state)
    assert (seeded[0] == seeded[1]).all()


def test_a_very_low_score(page, d2l):
    r"""Ours gives everything to the real key. d2l writes $-10^6$ over the 0, and that is still larger than
    $-2 \cdot 10^6$.
    """
    low, one = torch.tensor([[[-2e6, 0.0]]]), torch.tensor([1])
    assert ours.masked_softmax(low, ours.length_mask(one, 2)).tolist() == [[[1, 0]]]
    assert d2l.masked_softmax(low.clone(), one).tolist() == [[[0, 1]]]


def test_lengths_and_a_causal_mask(page, d2l):
    """So each query has a length, the smaller of the two."""
    valid_lens = page.torch.valid_lens
    assert valid_lens.tolist() == [[1, 2, 3, 3], [1, 2, 2, 2]]
    both = ours.length_mask(torch.tensor([3, 2]), 4) & ours.causal_mask(4, 4)
    own = ours.masked_softmax(torch.zeros(2, 4, 4), both)
    assert d2l.masked_softmax(torch.zeros(2, 4, 4), valid_lens).equal(own)


def test_where_float32_is_coarse(page):
    r"""The table of d2l is least exact in its last rows, but not in the columns 0 and 1.

    In the first two columns $\omega_0 = 1$, and float32 holds $i$ itself exactly
    """
    errors = page.torch.old_errors
    worst = errors.max(axis=1)
    assert worst[:10].max() < worst[90:100].max() < worst[990:].max()
    assert errors[:, :2].max() < 1e-7
    assert np.array_equal(np.arange(1000, dtype=np.float32), np.arange(1000))


def test_tokens_of_another_width(page):
    """Let the linear layer copy the 20 entries and append zeros. Then the first 20 columns of our
    projections are those of d2l, and the others don't matter.
    """
    wide = page.torch.wide
    assert torch.allclose(page.torch.new(wide, wide, wide), page.torch.expected, atol=1e-5)
    state = page.torch.state
    for name in ("query", "key", "value"):
        weight = state[f"{name}.weight"]
        assert weight.shape == (100, 100)
        assert weight[:, :20].any()
        assert not weight[:, 20:].any()
