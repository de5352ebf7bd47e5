"""Rotary position embedding."""

import jax
import numpy as np
import pytest

from posattn import jax as column
from posattn import reference
from posattn.reference import frequencies, rotate
from tests.records import PLANS, ROTARY

Q, K = np.random.default_rng(0).normal(size=(2, 64))
BITE = rotate(np.array([[1.0, 0.0]] * 3), np.array([2, 0, 3]))  # bites, the, the


def at(x, position):
    """One vector, turned to its position."""
    return rotate(x[None], np.array([position]))[0]


def matrix(position, d):
    """The matrix that turns a vector of width d to its position."""
    return rotate(np.eye(d)[:, None], np.array([position]))[:, 0].T


def test_the_words_of_the_example(page):
    """One the comes two words before the verb

    Now put five words in front: I heard him say that the dog bites the man. Every position has
    grown by five

    One the is still two words before the verb, and the other is still right after it.
    """
    words = ["the", "dog", "bites", "the", "man"]
    places = [i - words.index("bites") for i, word in enumerate(words) if word == "the"]
    assert places == [-2, 1]
    longer = ["I", "heard", "him", "say", "that", "the", "dog", "bites", "the", "man"]
    assert longer == longer[:5] + words


def test_vectors_turn_by_57_degrees_and_keep_their_angles(page):
    """each rotated by one radian, about 57 degrees, per position

    All three arrows have moved, and the angles between them are the same as before.

    On the left, the angle from bites to its first the is 115 degrees, which is two radians for two
    words. On the right, everything has turned five radians further, and it is still 115 degrees.
    """
    assert round(np.degrees(1)) == 57
    assert round(np.degrees(2)) == 115
    here, there = page.torch.vectors
    for bites, first, _ in (here, there):
        assert np.isclose(np.arccos(bites @ first), 2)
    assert np.allclose(there, here @ matrix(5, 2).T)
    assert np.allclose(here, BITE)
    assert np.allclose(here, [(np.cos(p), np.sin(p)) for p in (2, 0, 3)])
    assert abs(there - here).max(-1).min() > 0.5
    assert np.allclose(here @ here.T, there @ there.T)


def test_a_sum_does_not_rotate(page):
    """Move a text, and its position vectors all rotate (relative).

    the sum of a word and a position no longer rotates when the text moves
    """
    word = np.random.default_rng(0).normal(size=(5, 64))
    here, there = (reference.sinusoidal_encoding(np.arange(5) + p, 64) for p in (0, 1000))
    shift = reference.shift_matrix(1000, 64)
    assert np.allclose(shift.T @ shift, np.eye(64))
    assert np.allclose(here @ shift.T, there)
    assert not np.isclose(
        *(np.linalg.norm(word + p, axis=-1) for p in (here, there))
    ).any()  # a rotation would keep the lengths


def test_eq_rotary_goal(page):
    r"""$$ \mathbf{R}_i^\top \mathbf{R}_j = \mathbf{R}_{j-i} . $$

    The transpose of a rotation undoes it, so this matrix turns forward to position $j$ and back from
    position $i$.

    Rotating a pair back by $i\,\omega_c$ and forward by $j\,\omega_c$ is one rotation by
    $(j - i)\,\omega_c$.
    """
    i, j = 7, 3
    assert np.allclose(matrix(i, 64).T @ matrix(i, 64), np.eye(64))
    assert np.allclose(matrix(i, 64).T @ matrix(j, 64), matrix(j - i, 64))
    assert not np.allclose(matrix(i, 64).T @ matrix(j, 64), matrix(i - j, 64))


def test_eq_rotary_wish(page):
    r"""$$ (\mathbf{R}_i\,\mathbf{q})^\top \mathbf{R}_j\,\mathbf{k} = \mathbf{q}^\top \mathbf{R}_{j-i}\,\mathbf{k} , $$"""
    i, j = 7, 3
    assert np.isclose(at(Q, i) @ at(K, j), Q @ at(K, j - i))
    assert not np.isclose(at(Q, i) @ at(K, j), Q @ at(K, i - j))


def test_eq_rotary_by_hand(page):
    r"""$$ \begin{aligned} (-0.42) \cdot 1 + 0.91 \cdot 0 &= -0.42, \\
    (-0.42) \cdot (-0.99) + 0.91 \cdot 0.14 &= 0.54. \end{aligned} $$

    The first the is 2 words away, and $\cos 2 = -0.42$. The second is 1 word away, and $\cos 1 = 0.54$.

    The verb is at position 2, so its query is $(-0.42, 0.91)$. The two keys are at positions 0
    and 3, so they are $(1, 0)$ and $(-0.99, 0.14)$.

    Put five words in front, and every coordinate changes. The scores don't
    """
    bites, *thes = BITE
    assert np.allclose([bites @ the for the in thes], np.cos([2, 1]))
    assert np.allclose(BITE, [(-0.42, 0.91), (1, 0), (-0.99, 0.14)], atol=0.005)
    assert np.allclose(np.cos([2, 1]), [-0.42, 0.54], atol=0.005)
    later = np.array([page.torch.bites, page.torch.first, page.torch.second])
    assert abs(later - BITE).min() > 0.01
    assert np.allclose(later @ later.T, BITE @ BITE.T)


def test_each_pair_has_a_speed(page):
    """a pair is back where it started after about six words

    | pair | entries | radians per position | positions for a full turn | turned after 100 words |
    |---|---|---|---|---|
    | 0 | 0 and 1 | 1 | 6.3 | almost 16 times around |
    | 1 | 2 and 3 | 0.1 | 63 | 1.6 times around |
    | 2 | 4 and 5 | 0.01 | 628 | 57 degrees |
    | 3 | 6 and 7 | 0.001 | 6283 | 6 degrees |
    """
    speeds = frequencies(8)
    assert np.allclose(speeds, [1, 0.1, 0.01, 0.001])
    assert np.allclose(2 * np.pi / speeds, [6.3, 63, 628, 6283], rtol=0.005)
    turns = 100 * speeds / (2 * np.pi)
    assert 15.9 < turns[0] < 16
    assert round(turns[1], 1) == 1.6
    assert (360 * turns[2:]).round().tolist() == [57, 6]
    for pair in range(4):  # which entries turn, and with which speed
        moved = at(np.eye(8)[2 * pair], 1)
        assert np.flatnonzero(moved).tolist() == [2 * pair, 2 * pair + 1]
        assert np.isclose(np.arccos(moved[2 * pair]), speeds[pair])


def test_eq_rotary(page):
    r"""$$ \begin{bmatrix} x_{2c} \\ x_{2c+1} \end{bmatrix} \mapsto \begin{bmatrix} \cos(p\,\omega_c) & -\sin(p\,\omega_c) \\ \sin(p\,\omega_c) & \cos(p\,\omega_c) \end{bmatrix}
    \begin{bmatrix} x_{2c} \\ x_{2c+1} \end{bmatrix}, \quad \omega_c = b^{-2c/d} . $$
    """
    p, d, b = 7, 64, 10000.0
    angle = p * b ** (-2 * np.arange(d // 2) / d)
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    assert np.allclose(np.einsum("xyc,cy->cx", turn, Q.reshape(-1, 2)).ravel(), at(Q, p))


def test_blocks_along_the_diagonal(page):
    r"""$\mathbf{R}_p$ is the matrix with these 2-by-2 blocks along its diagonal and zeros elsewhere"""
    whole = np.zeros((8, 8))
    for c, angle in enumerate(7 * frequencies(8)):
        block = [[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]
        whole[2 * c : 2 * c + 2, 2 * c : 2 * c + 2] = block
    assert np.allclose(matrix(7, 8), whole)


def test_eq_rotary_score(page):
    r"""$$ (\mathbf{R}_i\,\mathbf{q})^\top \mathbf{R}_j\,\mathbf{k} = \sum_{c=0}^{d/2-1} |\mathbf{q}_c|\,|\mathbf{k}_c| \cos\left((i - j)\,\omega_c + \varphi_c\right) . $$"""
    i, j = 7, 3
    q, k = Q[::2] + 1j * Q[1::2], K[::2] + 1j * K[1::2]
    waves = abs(q) * abs(k) * np.cos((i - j) * frequencies(64) + np.angle(q / k))
    assert np.isclose(at(Q, i) @ at(K, j), waves.sum())


def test_a_single_wave(page):
    r"""Our three words had a single pair with $\omega_0 = 1$, both lengths were 1, and $\varphi_0$ was 0.
    The sum shrinks to $\cos(i - j)$, which is what we found by hand.
    """
    assert frequencies(2).tolist() == [1]
    one = np.array([1.0, 0.0])
    assert np.isclose(at(one, 2) @ at(one, 0), np.cos(2 - 0))
    assert np.isclose(at(one, 2) @ at(one, 3), np.cos(2 - 3))


def test_the_three_words_again(page):
    """Those are the vectors that we multiplied by hand."""
    for names in (page.torch, page.jax):
        assert np.allclose(np.asarray(names.three_words), BITE)


def test_the_code_has_ten_lines(page):
    """RoPE in ten lines"""
    for cell in page.cells:
        if "scratch" in cell.tags:
            assert len([line for line in cell.code.splitlines() if line]) == 10


def test_angles_need_float64(page):
    """Near 100000, one float32 number and the next are $1/128$ apart, so an angle there is only good to
    about two decimals.

    Rotate by such an angle, and the third decimal of the result is wrong.

    rope_jax expects its positions as a NumPy array and lets NumPy do the angles
    """
    assert np.spacing(np.float32(100000)) == 1 / 128
    x, far = jax.numpy.linspace(-1, 1, 320).reshape(5, 64), np.arange(100000, 100005)
    exact = page.jax.rope_jax(x, far)
    assert abs(page.jax.rope_jax(x, jax.numpy.asarray(far)) - exact).max() > 1e-3
    assert abs(column.rotate(x, jax.numpy.asarray(far)) - exact).max() < 5e-7


def test_what_is_shifted_stays(page):
    """Compute all their scores twice: at positions 0 to 49, and 1000 positions later.

    With rotation nothing moves except the last digits of float32: less than 0.00001.

    The last line says that a rotated token is as long as before

    Its queries move along with its keys.
    """
    moved = [line.split()[-1] for line in page.printed.splitlines() if " moves " in line]
    assert len(moved) == 8  # four lines for each framework
    assert moved[0] == moved[4]
    assert {*moved[1:4], *moved[5:8]} == {"0.0000"}
    for names in (page.torch, page.jax):
        x, there = np.asarray(names.x), np.asarray(names.there)
        assert len(x) == 50
        assert np.asarray(names.moved)[0] == 1000
        here = rotate(x.astype(np.float64))
        assert abs(there @ there.T - here @ here.T).max() / 8 < 1e-5
        assert np.allclose(np.linalg.norm(there, axis=-1), np.linalg.norm(x, axis=-1))
    layer = reference.MultiHeadAttention.init(
        np.random.default_rng(0), 64, 4, rotate=rotate
    )
    x, places = x.astype(np.float64), np.arange(1000, 1050)
    both = layer(x, x, x, query_positions=places, key_positions=places)
    assert np.allclose(layer(x, x, x, key_positions=places), both)
    assert not np.allclose(
        layer(x, x, x, query_positions=np.arange(50), key_positions=places), both
    )


def test_how_far_adding_moves_a_score(page):
    """the score of two words can move by …, only because the text before them got longer

    the standard deviation of the scores themselves is …

    The softmax turns a difference of … into a factor of … between two weights.
    """
    line = next(line for line in page.printed.splitlines() if "added" in line)
    moved = page.glued["moved_added"]
    assert moved == pytest.approx(float(line.split()[-1]), abs=1e-3)
    assert moved > page.glued["spread"] == pytest.approx(1.5, abs=0.1)
    assert page.glued["factor"] == np.exp(moved)


def test_terms_that_move(page):
    """Two of its four terms pair the content of one word with the position of the other
    (relative), and those terms move when the text moves.
    """
    table = reference.sinusoidal_encoding
    here, there = (table(np.arange(5) + start, 64) for start in (0, 1000))
    x = np.random.default_rng(0).normal(size=(5, 64))
    assert abs(x @ here.T - x @ there.T).max() > 1
    assert abs(here @ x.T - there @ x.T).max() > 1
    assert np.allclose(here @ here.T, there @ there.T)


def test_stretching_fails(page):
    """That multiplies the score of a query at 2 and a key at 0 by $1.1^2 = 1.21$. Move both by five, to 7
    and 5, and the factor is $1.1^{12} = 3.14$.
    """
    score = Q @ K
    for i, j, factor in ((2, 0, 1.21), (7, 5, 3.14)):
        stretched = (1.1**i * Q) @ (1.1**j * K)
        assert stretched / score == pytest.approx(factor, abs=0.005)


def test_the_theorem_in_its_steps(page):
    r"""Set $i = j = 1$ in step 2: $\mathbf{R}_1^\top \mathbf{R}_1 = \mathbf{R}_0 = \mathbf{I}$.

    $\mathbf{R}_j = \mathbf{R}_1 \mathbf{R}_{j-1}$

    Conversely, let $\mathbf{R}_1$ be orthogonal and $\mathbf{R}_p = \mathbf{R}_1^p$.
    """
    one = matrix(1, 8)
    assert np.allclose(one.T @ one, np.eye(8))
    assert all(np.allclose(matrix(j, 8), one @ matrix(j - 1, 8)) for j in range(-3, 4))
    any_one, _ = np.linalg.qr(np.random.default_rng(2).normal(size=(8, 8)))
    power = np.linalg.matrix_power
    assert np.allclose(power(any_one, 7).T @ power(any_one, 3), power(any_one, -4))
    stretched = 1.1 * any_one
    assert not np.allclose(
        power(stretched, 7).T @ power(stretched, 3), power(stretched, -4)
    )


def test_the_basis_costs_nothing(page):
    r"""the learned projections can absorb $\mathbf{U}^\top$, and the outer $\mathbf{U}$ cancels in
    the dot product

    Two entries $-1$ are a plane that makes half a turn per position.
    """
    u, _ = np.linalg.qr(np.random.default_rng(2).normal(size=(64, 64)))
    score = (u @ matrix(7, 64) @ u.T @ Q) @ (u @ matrix(3, 64) @ u.T @ K)
    assert np.isclose(score, at(u.T @ Q, 7) @ at(u.T @ K, 3))
    half = rotate(np.eye(2), np.array([1, 1]), frequencies=np.array([np.pi]))
    assert np.allclose(half, -np.eye(2))


def test_more_than_rotations(page):
    r"""They are the powers of a single orthogonal matrix, which rotates some planes and may also keep
    or flip single directions.

    An entry $1$ is a direction that never turns.

    A single $-1$ flips one sign at every step
    """
    step = np.diag([0.0, 0.0, 1.0, -1.0])
    step[:2, :2] = matrix(1, 2)  # a plane, a direction that stays, a direction that flips
    power = np.linalg.matrix_power
    for i, j in ((7, 3), (107, 103), (2, 5)):
        assert np.allclose(power(step, i).T @ power(step, j), power(step, j - i))
    assert np.isclose(np.linalg.det(step), -1)  # no rotation
    assert (power(step, 7)[2, 2], power(step, 7)[3, 3]) == (1, -1)


def test_a_matrix_at_position_0(page):
    r"""With an invertible $\mathbf{R}_0 = \mathbf{A}$, the scores depend only on the offset exactly if
    $\mathbf{R}_p = \mathbf{Q}^p\,\mathbf{A}$ with an orthogonal $\mathbf{Q}$.

    Apply the theorem to $\mathbf{R}_p\,\mathbf{A}^{-1}$, which is the identity at position 0.

    The learned projections can absorb $\mathbf{A}$, because it's the same at every position.
    """
    rng = np.random.default_rng(3)
    a, (orthogonal, _) = rng.normal(size=(8, 8)), np.linalg.qr(rng.normal(size=(8, 8)))
    power = np.linalg.matrix_power

    def middle(step, i, j):
        return (power(step, i) @ a).T @ power(step, j) @ a

    assert np.allclose(middle(orthogonal, 7, 3), middle(orthogonal, 107, 103))
    assert not np.allclose(middle(1.1 * orthogonal, 7, 3), middle(1.1 * orthogonal, 9, 5))
    q, k = rng.normal(size=(2, 8))
    absorbed = (power(orthogonal, 7) @ (a @ q)) @ (power(orthogonal, 3) @ (a @ k))
    assert np.isclose(q @ middle(orthogonal, 7, 3) @ k, absorbed)
    # Without A, what the theorem asks for: the identity at position 0, and scores by offset.
    r = [power(orthogonal, p) @ a @ np.linalg.inv(a) for p in range(4)]
    assert np.allclose(r[0], np.eye(8))
    assert np.allclose(r[1].T @ r[2], r[2].T @ r[3])


def test_the_score_rises_at_some_steps(page):
    """A key equal to the query scores lower and lower on average, but at … of the first … steps the
    score goes up. With the larger base the fall is slower.
    """
    distances = np.arange(400)
    scores = np.array(
        [np.ones(128) @ at(np.ones(128), -distance) for distance in distances]
    )
    assert page.glued["rises"] == (np.diff(scores) > 0).sum() > 0
    assert page.glued["rises"] < page.glued["steps"] == 399
    small, large = (page.torch.curves[f"base {b}"] for b in (10000, 500000))
    means = [curve.reshape(4, 100).mean(1) for curve in (small, large)]
    assert all((np.diff(mean) < 0).all() for mean in means)
    assert (means[0] < means[1]).all()


def test_a_key_can_be_aimed(page):
    r"""The dotted curve belongs to the key $\mathbf{k} = \mathbf{R}_r\,\mathbf{q}$ with $r = 150$. It
    scores highest at distance $r$, however large $r$ is

    The third is for a key rotated in advance so that it scores highest at distance 150.
    """
    query, before = np.ones((1, 64)), -np.arange(400)
    for r in range(0, 400, 50):
        key = rotate(query, np.array([r])).repeat(400, 0)
        assert (query @ rotate(key, before).T).argmax() == r
    assert page.torch.curves["aimed at 150"].argmax() == 150


def test_operations(page):
    """Rotating a query or a key takes $3d$ operations. Scoring a query against $n$ keys takes $2nd$.
    So with 1000 keys, each token costs $6d$ operations for rotating its query and its key, and
    $2000d$ for its scores. The rotation adds well below one percent.
    """
    assert 6 / 2000 < 0.005  # a query and a key are turned for each token
    n, d = 5, 64
    x = np.ones((n, d), np.float32)
    turn = jax.jit(lambda x, c, s: (x[::2] * c - x[1::2] * s, x[::2] * s + x[1::2] * c))
    turned = turn.lower(x[0], *x[:2, : d // 2]).cost_analysis()["flops"]
    scored = jax.jit(lambda q, k: k @ q).lower(x[0], x).cost_analysis()["flops"]
    assert (turned, scored) == (3 * d, 2 * n * d)


def test_the_slowest_pair_of_a_longer_text(page):
    """Its slowest pair turns by at most … degrees in training. In a text four times as long it reaches
    … degrees

    Take a head of width 128, trained on texts of 8192 tokens.
    """
    radians = [n * 10000 ** (-126 / 128) for n in (8192, 4 * 8192)]
    told = [page.glued["slowest_trained"], page.glued["slowest_longer"]]
    assert np.allclose(told, np.degrees(radians))
    assert told[0] < 60 < 180 < told[1] < 360


def test_only_scores_see_positions(page):
    """Give a layer five copies of one word: the values are equal, so every weighted average of them
    is the same, and all five outputs are equal.

    The width must be even, unless only a part of it is rotated.
    """
    rng = np.random.default_rng(0)
    layer = reference.MultiHeadAttention.init(rng, 16, 2, rotate=rotate)
    alike = layer(*[np.ones((5, 16))] * 3)
    assert np.allclose(alike, alike[0])
    with pytest.raises(ValueError, match="even"):
        rotate(np.ones((5, 7)))
    assert rotate(np.ones((5, 7)), frequencies=frequencies(4)).shape == (5, 7)


def test_most_models_rotate(page):
    """Most of the models in choosing have it."""
    assert len(ROTARY) > len(PLANS) / 2


def test_look_back(page):
    r"""So the key is $(\cos 2, \sin 2)$, and it scores 1. One place after, $i - j = -1$, it scores
    $\cos(-3)$, almost as low as possible.
    """
    query, key = np.array([1.0, 0.0]), np.array([np.cos(2), np.sin(2)])
    scores = [at(query, 2) @ at(key, 0), at(query, 2) @ at(key, 3)]
    assert np.allclose(scores, [1, np.cos(3)])
    assert np.allclose([page.torch.before, page.torch.after], scores)
    assert scores[1] < -0.98
    assert at(query, 2) @ at(key, 0) > at(query, 2) @ at(key, 4) + 1


def test_a_sign_in_the_wrong_place(page):
    """the score depends on the sum of the positions. At $i = j = 0$ nothing is wrong, and at any
    other common position the score is wrong.

    The first and the last line have the same offset, and the right scores agree. The first two
    lines have the same sum, and the wrong scores agree.
    """
    lines = [line for line in page.printed.splitlines() if ", wrong" in line]
    right = [line.split("right ")[1].split(",")[0] for line in lines]
    wrong = [line.split()[-1] for line in lines]
    assert right[0] == right[2] != right[1]
    assert wrong[0] == wrong[1] != wrong[2]
    assert [line.split(":")[0] for line in lines] == [
        "i = 7, j = 3",
        "i = 8, j = 2",
        "i = 107, j = 103",
    ]
    assert np.isclose(at(Q, 0) @ at(K, 0), Q @ K)
    assert not any(np.isclose(at(Q, -p) @ at(K, p), Q @ K) for p in range(1, 10))


def test_a_loophole(page):
    """The score is multiplied by $1.1^{-i} \\cdot 1.1^{j} = 1.1^{j-i}$, which is a function of the offset.
    Far keys before the query now count less.

    A key at position 1000 grows by a factor of $1.1^{1000}$, which is more than float32 can hold.
    """
    here, later = page.torch.here, page.torch.later
    q, k = page.torch.q[0], page.torch.k[0]
    assert np.isclose(here, at(q, 5) @ at(k, 2) * 1.1 ** (2 - 5))
    assert np.isclose(here, later)
    assert 1.1 ** (2 - 5) < 1
    assert float(np.finfo(np.float32).max) < 1.1**1000
