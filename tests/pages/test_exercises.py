"""Exercises with solutions."""

import numpy as np
import pytest

from posattn import reference
from posattn.reference import (
    LearnedPositionalEncoding,
    attention_weights,
    frequencies,
    sinusoidal_encoding,
)
from tests.pages.reading import DOCS


def test_nearly_every_chapter_ends_with_exercises(page):
    """Nearly every chapter ends with a few exercises

    three larger ones, for an evening each, follow below
    """
    chapters = [
        path.read_text(encoding="utf-8")
        for part in ("attention", "position")
        for path in (DOCS / part).glob("*.md")
    ]
    with_exercises = sum("\n## Exercises\n" in text for text in chapters)
    assert 0.8 * len(chapters) < with_exercises
    assert page.text.count("\n### ") == 3


def test_a_stack_is_quadratic(page):
    """twice as many tokens as 4096 take … times the work, between the 2 of a layer that is linear in
    $n$ and the 4 of one that is purely quadratic
    """
    short, long = (reference.self_attention_operations(n, 512) for n in (4096, 8192))
    assert page.glued["growth"] == long / short
    assert 2 < page.glued["growth"] < 4
    short, long = (reference.convolution_operations(n, 512, 3) for n in (4096, 8192))
    assert long == 2 * short


def test_sizes_of_the_stacks(page):
    """we take 64 sequences of 32 random tokens and twelve layers

    Both measurements run on four stacks

    Chance is 1 in 32.
    """
    assert 2 * page.torch.half == 64
    assert page.torch.P.shape == (32, 64)
    assert page.torch.positions.tolist() == 32 * list(
        range(32)
    )  # of the tokens of one half
    assert len(page.torch.layers) == 12
    assert {len(curve) for curve in page.torch.found.values()} == {13}
    assert len(page.torch.stacks) == len(page.torch.alike) == len(page.torch.found) == 4


def test_the_mean_cosine(page):
    """0 for random directions, 1 if all tokens are parallel

    The cosines begin above 0 because the rows of $\\mathbf{P}$ are somewhat alike.
    """

    def mean_cosine(x):
        n = x.shape[-2]
        unit = x / np.linalg.norm(x, axis=-1, keepdims=True)
        return ((unit @ unit.mT).sum((-2, -1)) - n).mean() / (n * (n - 1))

    assert abs(mean_cosine(np.random.default_rng(0).normal(size=(64, 32, 64)))) < 0.01
    assert mean_cosine(sinusoidal_encoding(32, 64)) > 0.4
    assert np.isclose(mean_cosine(np.ones((32, 64))), 1)
    assert all(cosines[0] > 0.2 for cosines in page.torch.alike.values())


def test_tokens_become_parallel(page):
    """Two layers of attention alone make all tokens parallel.

    A residual connection slows this down and, with random weights, does not stop it, nor does
    normalization; only the stack that gets $\\mathbf{P}$ before each layer stays short of 1.
    """
    alike = page.torch.alike
    assert alike["attention"][2] > 0.99 > alike["+ norm"][7]
    for name in ("+ residual", "+ norm"):
        assert alike[name][2] < 0.6
        assert alike[name][12] > 0.99
    assert max(alike["+ P per layer"]) < 0.9


def test_a_probe_reads_positions(page):
    """After each layer we fit a linear map, a probe

    the probe names … of the positions at the input, where the random tokens already hide some
    """
    P = sinusoidal_encoding(32, 64)
    probe = np.linalg.lstsq(P, np.eye(32))[0]
    assert np.array_equal(np.argmax(P @ probe, axis=-1), np.arange(32))
    assert page.glued["input"] == page.torch.found["attention"][0] < 0.4


def test_attention_alone_forgets_positions(page):
    """After one layer of attention alone it names …, after two …, which is chance.

    Attention alone falls to chance within two layers
    """
    found = page.torch.found["attention"]
    assert page.glued["alone_1"] == found[1]
    assert page.glued["alone_2"] == found[2]
    assert abs(found[2] - 1 / 32) < 0.01
    assert found[2] < 0.06


def test_positions_after_twelve_layers(page):
    """After twelve layers it names … with residual, … with normalization too, and … where the encoding
    is added before every layer

    Four curves that start together at about a third.
    """
    found = page.torch.found
    ends = [found[name][12] for name in ("+ residual", "+ norm", "+ P per layer")]
    assert [page.glued[name] for name in ("residual", "normed", "again")] == ends
    residual, normed, again = ends
    assert residual < normed < again == 1
    assert normed > 0.06
    assert len({curve[0] for curve in found.values()}) == 1


def test_a_table_has_a_hard_end(page):
    r"""which is $n_{\max} d$ parameters and one hard end

    A learned table ends, and a longer sequence is an error (exercise 2).

    where the table would have raised an error
    """
    with pytest.raises(ValueError, match="at most max_len = 16 tokens, got 17"):
        LearnedPositionalEncoding(np.ones((16, 4)))(np.zeros((17, 4)))


def test_scores_are_largest_one_place_before(page):
    r"""A sinusoid whose frequencies $\omega_c$ are parameters needs only $d/2$ numbers and has no last
    position.

    the key at $j$ is the encoding of $j$; so the score is largest at $j = i - 1$, where both are equal
    """
    query, key = sinusoidal_encoding(np.arange(64) - 1, 16), sinusoidal_encoding(64, 16)
    assert np.array_equal(np.argmax(query @ key.T, axis=-1)[1:], np.arange(63))
    assert np.allclose(query[1:], key[:-1])
    assert page.torch.omega.shape == page.jax.omega.shape == (16 // 2,)


def test_eight_learned_numbers(page):
    """Eight learned numbers take the error at 64 tokens, most of which they never saw, from … to …"""
    for names in (page.torch, page.jax):
        assert len(names.omega) == 8
        assert all(np.less(names.after, np.divide(names.before, 5)))
        assert page.glued["copy_before"] == pytest.approx(names.before[1], abs=5e-4)
        assert page.glued["copy_after"] == pytest.approx(names.after[1], abs=5e-4)


def test_the_slow_clocks_become_fast(page):
    """The slow clocks of {eq}`eq_frequencies` hardly move from one position to the next; after training
    the slowest is more than a hundred times as fast.
    """
    slowest = np.min(frequencies(16))
    assert slowest < 1e-3
    for omega in (page.torch.omega.numpy(), page.jax.omega):
        assert np.min(omega) > 100 * slowest


def test_eq_shaw_scores(page):
    r"""$$
    s_{ij} = \frac{\mathbf{q}_i^\top \left(\mathbf{k}_j + \mathbf{a}_{\operatorname{clip}(j - i,\, -m,\, m)}\right)}{\sqrt{d}}.
    $$

    The definition {eq}`eq_shaw-scores`, written pair by pair, gives the same weights
    """
    q, k, a = (np.float64(getattr(page.torch, name)) for name in "qka")
    m = page.torch.m
    n, d = q.shape
    pairs = [
        [q[i] @ (k[j] + a[np.clip(j - i, -m, m) + m]) for j in range(n)] for i in range(n)
    ]
    scores = np.array(pairs) / np.sqrt(d)
    weights = np.exp(scores) / np.exp(scores).sum(axis=-1, keepdims=True)
    assert abs(page.torch.weights.numpy() - weights).max() < 1e-5
    assert abs(np.asarray(page.jax.weights) - weights).max() < 1e-5
    places = np.arange(n)
    bias = reference.ShawRelative(a).scores(q[None], k[None], places, places)[0]
    assert np.allclose(attention_weights(q, k, bias=bias), weights)


def test_gather_and_skew(page):
    """To skew means to multiply each query by the embeddings of all $2n - 1$ offsets

    To gather means to write one embedding per pair, $n^2 d$ numbers.

    That takes $(2n - 1)d$ numbers for the embeddings, and scores that are twice as wide for a moment.
    """
    n, dim = page.torch.q.shape
    assert f"numbers in the gathered embeddings: {n**2 * dim}\n" in page.printed
    assert f"numbers in those of the skew: {(2 * n - 1) * dim}\n" in page.printed
    for names in (page.torch, page.jax):
        assert abs(names.gathered - names.skewed).max() < 1e-6
        assert names.wide.shape == (n, 2 * n)
