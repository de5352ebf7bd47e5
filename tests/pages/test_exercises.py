"""Exercises with solutions."""

from itertools import pairwise

import numpy as np
import pytest

from posattn import reference
from posattn.__main__ import main
from posattn.conformance import gallery
from posattn.exercises import EXERCISES
from posattn.reference import (
    LearnedPositionalEncoding,
    attention_weights,
    frequencies,
    rotate,
    sinusoidal_encoding,
)
from tests.pages.reading import DOCS


def test_nearly_every_chapter_ends_with_exercises(page):
    """Each of these five problems takes an evening:

    Nearly every chapter ends with a few exercises, from easy to hard, and the index <sec_all-exercises>
    at the end of this page lists them all.
    """
    chapters = [
        path.read_text(encoding="utf-8")
        for part in ("attention", "position")
        for path in (DOCS / part).glob("*.md")
    ]
    with_exercises = sum("\n## Exercises\n" in text for text in chapters)
    assert 0.8 * len(chapters) < with_exercises
    assert page.text.count("\n### ") == page.text.count("\n#### Hint\n") == 5
    assert page.text.count("{ref}`") == 7
    *_, end = page.text.split("\n## ")
    assert "```{exercises}" in end


def test_a_stack_is_quadratic(page):
    """Take a layer of width $d = 512$ and double its text from 4096 tokens. The work grows by a factor
    of …. It would be 2 for a layer that is linear in $n$, and 4 for one that is purely quadratic.
    """
    short, long = (reference.self_attention_operations(n, 512) for n in (4096, 8192))
    assert page.glued["growth"] == long / short
    assert 2 < page.glued["growth"] < 4
    short, long = (reference.convolution_operations(n, 512, 3) for n in (4096, 8192))
    assert long == 2 * short


def test_sizes_of_the_stacks(page):
    """we take 64 sequences of 32 random tokens and send them through twelve layers with random weights

    There are four ways to stack them

    Each list holds the input of its stack and then the output of each layer.

    Chance is 1 in 32.
    """
    assert 2 * page.torch.half == len(page.torch.start) == 64
    assert {len(outputs) for outputs in page.torch.stacks.values()} == {1 + 12}
    assert all(outputs[0] is page.torch.start for outputs in page.torch.stacks.values())
    assert page.torch.P.shape == (32, 64)
    assert page.torch.positions.tolist() == 32 * list(
        range(32)
    )  # of the tokens of one half
    assert len(page.torch.layers) == 12
    assert {len(curve) for curve in page.torch.found.values()} == {13}
    assert len(page.torch.stacks) == len(page.torch.alike) == len(page.torch.found) == 4


def test_the_mean_cosine(page):
    """It is 0 for random directions, and 1 if all tokens are parallel.

    The cosines begin at 0.23 and not at 0 because the rows of $\\mathbf{P}$ are somewhat alike.
    """

    def mean_cosine(x):
        n = x.shape[-2]
        unit = x / np.linalg.norm(x, axis=-1, keepdims=True)
        return ((unit @ unit.mT).sum((-2, -1)) - n).mean() / (n * (n - 1))

    assert abs(mean_cosine(np.random.default_rng(0).normal(size=(64, 32, 64)))) < 0.01
    assert mean_cosine(sinusoidal_encoding(32, 64)) > 0.4
    assert np.isclose(mean_cosine(np.ones((32, 64))), 1)
    assert all(round(cosines[0], 2) == 0.23 for cosines in page.torch.alike.values())


def test_tokens_become_parallel(page):
    """In the first row, two layers of nothing but attention make all tokens parallel.

    A residual connection slows this down but, with random weights, does not stop it. It keeps each
    token, but every layer adds nearly the same vector to all of them, and this common part grows.
    Normalization doesn't stop it either. Only the stack that gets $\\mathbf{P}$ before each layer stays
    below 1.
    """
    alike = page.torch.alike
    assert alike["only attention"][2] > 0.99 > alike["with norm too"][7]
    for name in ("with residual", "with norm too"):
        assert alike[name][2] < 0.6
        assert alike[name][12] > 0.99
    assert max(alike["P at each layer"]) < 0.9
    common = []
    for x, y in pairwise(page.torch.residual):
        unit = (y - x) / np.linalg.norm(y - x, axis=-1, keepdims=True)
        assert (unit @ unit.mT)[:, page.torch.two_tokens].mean() > 0.8
        common.append(np.linalg.norm(y.mean(axis=-2), axis=-1).mean())
    assert (np.diff(common) > 0).all()


def test_a_probe_reads_positions(page):
    """We ask a probe, a linear map from a token to its position.

    At the input the probe names only … of the positions, because the random tokens hide the others.
    """
    P = sinusoidal_encoding(32, 64)
    probe = np.linalg.lstsq(P, np.eye(32))[0]
    assert np.array_equal(np.argmax(P @ probe, axis=-1), np.arange(32))
    assert page.glued["input"] == page.torch.found["only attention"][0] < 0.4


def test_attention_alone_forgets_positions(page):
    """After one layer of attention it names …, and after two …, which is chance.

    Only attention falls to chance within two layers.
    """
    found = page.torch.found["only attention"]
    assert page.glued["alone_1"] == found[1]
    assert page.glued["alone_2"] == found[2]
    assert abs(found[2] - 1 / 32) < 0.01
    assert found[2] < 0.06


def test_positions_after_twelve_layers(page):
    """After twelve layers … are left, which is hardly better than chance. With normalization too it is ….
    These tokens are parallel to two digits, and yet their small differences still tell where they stand.

    If the encoding is added before every layer, it adds up, and the probe names ….

    Four curves that start together at about a third.
    """
    found = page.torch.found
    ends = [
        found[name][12] for name in ("with residual", "with norm too", "P at each layer")
    ]
    assert [page.glued[name] for name in ("residual", "normed", "again")] == ends
    residual, normed, again = ends
    assert residual < normed < again == 1
    assert 1 / 32 < residual < 0.045 < 0.15 < normed
    assert round(page.torch.alike["with norm too"][12], 2) == 1
    for name, curve in found.items():
        assert f"{name:15} {curve[1]:4.0%} {curve[12]:4.0%}\n" in page.printed
    assert len({curve[0] for curve in found.values()}) == 1


def test_a_table_has_a_hard_end(page):
    r"""That costs $n_{\max} d$ parameters, and it has a hard end

    A learned table ends, and a longer sequence is an error (exercise 2).

    The table would have raised an error.
    """
    with pytest.raises(ValueError, match="at most max_len = 16 tokens, got 17"):
        LearnedPositionalEncoding(np.ones((16, 4)))(np.zeros((17, 4)))


def test_scores_are_largest_one_place_before(page):
    r"""A sinusoid whose frequencies $\omega_c$ are parameters needs only $d/2$ numbers and has no last
    position.

    Let the key at $j$ be the encoding of $j$.

    Then the score is largest at $j = i - 1$, where both are equal. There each sine and its cosine add
    $\sin^2 + \cos^2 = 1$, so the score is $d/2$.
    """
    query, key = sinusoidal_encoding(np.arange(64) - 1, 16), sinusoidal_encoding(64, 16)
    assert np.array_equal(np.argmax(query @ key.T, axis=-1)[1:], np.arange(63))
    assert np.allclose(query[1:], key[:-1])
    assert np.allclose(np.diagonal(query[1:] @ key[:-1].T), 16 / 2)
    assert page.torch.omega.shape == page.jax.omega.shape == (16 // 2,)


def test_eight_learned_numbers(page):
    """Eight learned numbers take the error at 64 tokens from … to …, although training used only the
    first 16 tokens.

    For comparison, a layer that always answers zero has an error of about 1.
    """
    for n in (16, 64):
        assert abs(np.square(page.torch.x[: n - 1].numpy()).mean() - 1) < 0.1
    for names in (page.torch, page.jax):
        assert len(names.omega) == 8
        assert all(np.less(names.after, np.divide(names.before, 5)))
        assert page.glued["copy_before"] == pytest.approx(names.before[1], abs=5e-4)
        assert page.glued["copy_after"] == pytest.approx(names.after[1], abs=5e-4)


def test_the_slow_clocks_become_fast(page):
    """The slow clocks of {eq}`eq_frequencies` hardly move from one position to the next, so they are no
    help.

    Before training, a neighbor scores nearly as well as the right token, and the softmax mixes them.
    After training, the slowest is more than a hundred times as fast, and the neighbors score far less.
    """
    slowest = np.min(frequencies(16))
    assert slowest < 1e-3
    for omega in (page.torch.omega.numpy(), page.jax.omega):
        assert np.min(omega) > 100 * slowest
        assert np.cos(omega).sum() < 5 < 7 < np.cos(frequencies(16)).sum() < 8


def test_distant_tokens_compete(page):
    r"""A token that stands $m$ places from the right one gets the score $\sum_c \cos m\omega_c$.

    Among 64 tokens, a distant one scores higher than a neighbor, and training on 16 tokens never met it.
    Such distant tokens are why the error is larger on 64 tokens than on 16.
    """
    x = np.random.default_rng(0).normal(size=(64, 16))
    for names in (page.torch, page.jax):
        omega = np.asarray(names.omega, np.float64)
        i = np.arange(64)
        scores = np.cos((i[:, None] - 1 - i)[..., None] * omega).sum(axis=-1)
        angles = i[:, None] * omega
        key = np.concatenate([np.sin(angles), np.cos(angles)], axis=-1)
        assert np.allclose(scores[1:], key[:-1] @ key.T)
        by_distance = np.cos(np.arange(1, 64)[:, None] * omega).sum(axis=-1)
        assert 1 + np.argmax(by_distance) > 16
        assert max(by_distance) > by_distance[0]

        def error(scores):
            weights = np.exp(scores) / np.exp(scores).sum(axis=-1, keepdims=True)
            return np.square((weights @ x)[1:] - x[:-1]).mean()

        near = np.where(abs(i[:, None] - 1 - i) < 16, scores, -np.inf)
        assert np.isclose(error(scores), names.after[1], rtol=1e-2)
        assert error(near) < error(scores) / 3


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

    In memory, the skew takes $(2n - 1)d$ numbers for the embeddings, and scores that are twice as wide for a moment.

    The skew needs about a thirtieth of the memory, and nearly all of it is for the wide scores.
    """
    n, dim = page.torch.q.shape
    assert f"numbers in the gathered embeddings: {n**2 * dim}\n" in page.printed
    assert f"numbers in the embeddings of the skew: {(2 * n - 1) * dim}\n" in page.printed
    skew, wide = page.torch.skew_bytes, page.torch.wide_bytes
    assert round(page.torch.gather_bytes / (skew + wide), -1) == 30
    assert wide > 0.95 * (skew + wide)
    assert page.torch.gather_bytes == np.zeros(64, np.float32).nbytes * 4096**2
    for names in (page.torch, page.jax):
        assert abs(names.gathered - names.skewed).max() < 1e-6
        assert names.wide.shape == (n, 2 * n)


def test_a_reshape_moves_the_rows(page):
    """Take $n = 3$, and let each row hold the offsets themselves, from $-2$ to $2$. Add a column, marked
    9, and read the rows as one line. Drop the first $n - 1$ numbers and the last one, and cut the line
    into rows that are one shorter.

    Query 0 now finds its offsets 0, 1 and 2 in the first three columns, query 1 finds $-1$, 0 and 1,
    and query 2 finds $-2$, $-1$ and 0.
    """
    kept = page.torch.moved[:, :3].tolist()
    assert kept == [[j - i for j in range(3)] for i in range(3)]
    assert "the first three columns: [0 1 2] [-1  0  1] [-2 -1  0]\n" in page.printed


def test_stretching_a_context(page):
    r"""Unchanged, the near head doesn't notice that the text is longer. The far head fails. It finds
    the first token in 1% of the new rows, the ones just beyond 64.

    The far head finds the first token in every row, because all angles stay in the trained range.

    The near head looks for the angles of one step and finds them four tokens back.

    The far head goes a little further than before and then fails.

    YaRN saves the near head too, and nearly all of the far one, 89% of the rows.

    So its pair $(1, 0)$ becomes $(\cos \delta\omega_c, -\sin \delta\omega_c)$, and the score is the
    product of these numbers with the query.
    """
    pair = reference.rotate(np.array([[1.0, 0.0]]), np.array([-7]))[0]
    assert np.allclose(pair, page.torch.key_products(np.ones(1), 10)[9, 2])
    products = page.torch.key_products(frequencies(32), 256)
    rows = np.argmax(page.torch.look(page.torch.learned["first"], products)[64:], axis=-1)
    hits = np.flatnonzero(rows == 0)
    assert hits.tolist() == [*range(len(hits))]
    assert round(len(hits) / 192, 2) == 0.01
    near, far = ({k: v[i] for k, v in page.torch.stretched.items()} for i in (0, 1))
    assert near == {"unchanged": 1, "interpolation": 0, "NTK-aware": 1, "YaRN": 1}
    assert round(far["unchanged"], 2) == 0.01
    assert round(far["YaRN"], 2) == 0.89
    assert 0.1 < far["NTK-aware"] < 0.5 < 0.8 < far["YaRN"] < far["interpolation"] == 1
    look, learned = page.torch.look, page.torch.learned
    products = page.torch.key_products(
        reference.position_interpolation(32, factor=4.0), 256
    )
    seen = np.argmax(look(learned["previous"], products)[64:], axis=-1)
    assert np.array_equal(seen, np.arange(64, 256) - 4)
    products = page.torch.key_products(reference.ntk_aware(32, factor=4.0), 256)
    found = np.argmax(look(learned["first"], products)[64:], axis=-1) == 0
    assert found[:40].all()
    assert not found[60:].any()
    for name in near:
        line = f"{name:13} finds the previous token in {near[name]:.0%}, the first in {far[name]:.0%}"
        assert f"{line}\n" in page.printed


def test_the_far_head_meets_new_angles(page):
    """It uses the slow pairs, and beyond 64 tokens they reach angles that they never had in training.

    because all angles stay in the trained range

    It leaves the fast pairs alone and interpolates the slow ones. The pairs in between are slowed down
    by less than 4. In the last rows they leave the trained range, and there the far head fails.
    """
    trained = frequencies(32)
    assert np.allclose(reference.position_interpolation(32, factor=4.0) * 256, trained * 64)
    slowed, factor = page.torch.methods["YaRN"]
    by = trained / slowed
    assert by[0] == 1
    assert np.allclose(by[-4:], 4)
    assert ((by > 1.1) & (by < 3.9)).any()
    products = page.torch.key_products(slowed, 256)
    seen = page.torch.look(page.torch.learned["first"], products, factor)[64:]
    found = np.argmax(seen, axis=-1) == 0
    assert found[20:150].all()
    assert not found[-10:].any()
    slow = trained * 64 < 2 * np.pi
    far = page.torch.learned["first"].reshape(16, 2)
    without = np.where(slow[:, None], 0, far).ravel()
    products = page.torch.key_products(trained, 64)
    kept = page.torch.look(without, products)[32:, 0].mean()
    assert kept < 0.5 * page.torch.look(far.ravel(), products)[32:, 0].mean()


def test_six_questions(page):
    """The first four faults give themselves away, and each by a different pattern:

    It gives token 5 the angle of token 0 when it comes alone, and positions 300 and 301 are both zero
    to it.

    In bfloat16, position 301 is rounded to 300.

    That is no rotation, so lengths change, and scores change with a shift.

    keeps the frequencies of its first call, and a new base comes too late.

    The last two pass everything.
    """
    x, at = np.random.default_rng(0).normal(size=(1, 8)), np.array([5])
    assert np.allclose(page.torch.strangers["counts from zero"](x, at), x)
    for position in ([300], [301]):
        assert np.allclose(
            page.torch.strangers["counts from zero"](x, np.array(position)), x
        )
    assert gallery.to_bfloat16(301) == 300
    cached = gallery.CacheByWidth()
    first = cached(x, at)
    assert np.array_equal(cached(x, at, base=500.0), first)
    assert np.allclose(gallery.CacheByWidth()(x, at, base=500.0), rotate(x, at, base=500.0))
    answers = {
        name: [
            question for question, passed in page.torch.examine(rope).items() if not passed
        ]
        for name, rope in page.torch.strangers.items()
    }
    library, *faults = answers.values()
    assert library == []
    assert faults[4:] == [[], []]
    assert faults[0] == ["alone", "neighbors"]
    assert faults[1] == ["shift", "neighbors"]
    assert faults[2] == ["lengths", "shift"]
    assert faults[3] == ["base"]
    patterns = {tuple(found) for found in faults[:4]}
    assert len(patterns) == 4
    assert () not in patterns
    for name, failed in answers.items():
        assert f"{name}: fails {', '.join(failed) or 'nothing'}\n" in page.printed


def test_the_scores_of_the_far_head(page):
    """Unchanged, the score rises with the distance until a little beyond 64 and then falls far below.
    NTK-aware scaling moves the peak to beyond 100. Interpolation stretches the curve, so that it
    rises over the whole range. YaRN's curve rises nearly as far and ends a little below its peak.

    Where a curve turns down, a token nearer than the first one gets the higher score, and the head
    begins to miss.

    Unchanged, this holds only a little beyond the trained 64 tokens.
    """
    curves = page.torch.curves
    assert 64 <= np.argmax(curves["unchanged"]) < 70
    assert curves["unchanged"][255] < curves["unchanged"][64] / 2
    assert 100 < np.argmax(curves["NTK-aware"]) < 130
    assert np.argmax(curves["interpolation"]) == 255
    every_tenth = curves["interpolation"][5::10]
    assert (np.diff(every_tenth) > 0).all()
    peak = np.argmax(curves["YaRN"])
    assert 225 < peak < 245
    assert 0.85 < curves["YaRN"][255] / curves["YaRN"][peak] < 1
    for method, (omega_c, factor) in page.torch.methods.items():
        products = page.torch.key_products(omega_c, 256)
        seen = page.torch.look(page.torch.learned["first"], products, factor)[64:]
        last = 64 + np.flatnonzero(np.argmax(seen, axis=-1) == 0).max()
        assert last == np.argmax(curves[method])


def test_the_two_heads_after_training(page):
    """The near head, which looks at the previous token, is almost certain. The far head gives most of its
    weight to the first token, and nearly all of the rest to the two after it.

    From far away, one token more hardly changes the slow angles.
    """
    look, learned, short = page.torch.look, page.torch.learned, page.torch.short
    assert (
        look(learned["previous"], short)[
            page.torch.rows, page.torch.right_keys["previous"]
        ].mean()
        > 0.98
    )
    first, second, third = look(learned["first"], short)[8:, :3].mean(axis=0)
    assert first > 0.5
    assert second + third > 0.8 * (1 - first)
    assert frequencies(32)[8:].max() < 0.02


def test_ten_functions_are_graded(page, tmp_path, capsys):
    """Ten stubs come with the library.

    The grade tells you how far you are, where you are most wrong, and what you probably overlooked:
    """
    assert len(EXERCISES) == 10
    assert all(name in page.printed for name in EXERCISES)
    (cell,) = [cell for cell in page.text.split("```") if "def alibi_slopes" in cell]
    path = tmp_path / "alibi_slopes.py"
    path.write_text(cell.partition(":tags: [scratch]")[2], encoding="utf-8")
    assert main(["grade", str(path)]) == 1
    assert capsys.readouterr().out in page.text
