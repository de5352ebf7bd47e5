"""Relative position."""

import re

import numpy as np
import torch

from posattn import reference
from posattn.conformance import check, gallery
from posattn.reference import frequencies, shift_matrix, sinusoidal_encoding

W = frequencies(32)
ROWS = np.arange(60)
P = sinusoidal_encoding(60, 32)
DRAWN = np.random.default_rng(1)
X = DRAWN.normal(size=(60, 32))
Q, K, V = DRAWN.normal(size=(3, 1, 6, 4))  # a head of width 4, six tokens
PLACES = np.arange(6)
KEYS = np.array([[1, 1], [1, 0], [2, -1]])  # (1, 0) and the vectors of Shaw's example
G = np.cos(np.arange(10000)[:, None] * W).sum(1)


def clip(delta, m):
    """An offset that ends at m on both sides."""
    return max(-m, min(m, delta))


def softmax(scores):
    """The softmax of each row."""
    e = np.exp(scores)
    return e / e.sum(-1, keepdims=True)


# Offsets and one clock


def test_yesterday(page):
    """Every position grows by one, so a rule like "the subject is at position 1" breaks.

    The subject is still one place before the verb, and the rule "look one place back" still
    works.
    """
    names = ["the", "dog", "bites", "the", "man"]
    moved = ["yesterday", *names]
    assert [moved.index(word) - names.index(word) for word in names] == [1] * 5
    assert (names.index("dog"), moved.index("dog")) == (1, 2)
    assert moved.index("bites") - moved.index("dog") == 1


def test_offsets_are_the_same_along_a_diagonal(page):
    r"""It needs the *offset* $\delta = j - i$ from the query at position $i$ to the key at
    position $j$, which is negative when the key comes first.

    In the row of *bites*, *dog* is at $-1$ and *man* is at 2.

    It is the same all along a diagonal.

    In *offsets clipped at 1*, everything beyond 1 counts as 1, and everything beyond −1 as −1.
    """
    offsets = page.torch.offsets
    row = dict(zip(("the", "dog", "bites", "the", "man"), offsets[2].tolist(), strict=True))
    assert (row["bites"], row["dog"], row["man"]) == (0, -1, 2)
    assert all(len({*np.diagonal(offsets, k)}) == 1 for k in range(-4, 5))
    clipped = [[clip(j - i, 1) for j in range(5)] for i in range(5)]
    assert page.torch.clipped.tolist() == clipped


def test_one_point_turned_on(page):
    r"""Position 1 is then $(0.54, 0.84)$, and position 3 is $(-0.99, 0.14)$.

    With $\cos 2 = -0.42$ and $\sin 2 = 0.91$, that is

    $$ \begin{aligned} -0.42 \cdot 0.54 - 0.91 \cdot 0.84 &= -0.99, \\
    0.91 \cdot 0.54 - 0.42 \cdot 0.84 &= 0.14. \end{aligned} $$
    """
    points = sinusoidal_encoding(4, 2)[:, ::-1]  # cosine first
    assert points[[1, 3]].round(2).tolist() == [[0.54, 0.84], [-0.99, 0.14]]
    assert [np.cos(2).round(2), np.sin(2).round(2)] == [-0.42, 0.91]
    assert round(-0.42 * 0.54 - 0.91 * 0.84, 2) == -0.99
    assert round(0.91 * 0.54 - 0.42 * 0.84, 2) == 0.14


def test_the_same_turn_from_everywhere(page):
    """The same matrix takes 1 to 3 and 100 to 102, since both lie 2 radians further around the
    circle.
    """
    points = sinusoidal_encoding(103, 2)[:, ::-1]
    assert np.allclose(points[[1, 100]] @ page.torch.turn.T, points[[3, 102]])
    for line in (
        "1 rotated by 2 radians: [-0.99  0.14]",
        "102:                    [0.1  0.99]",
    ):
        assert f"position {line}" in page.printed


def test_the_block_is_the_transpose_of_the_turn(page):
    """That is why the block in {eq}`eq_shift` is the transpose of turn, which acts on $(\\cos, \\sin)$."""
    assert np.allclose(shift_matrix(2, 2), page.torch.turn.T)


# A shift is a rotation


def test_eq_shift_all(page):
    r"""$$ \mathbf{p}_{i+\delta} = \mathbf{R}_\delta\,\mathbf{p}_i \qquad \text{for every } i \in \mathbb{R}, $$"""
    for delta in (7, 5, -3, 0.5):
        R = shift_matrix(delta, 32)
        for i in (0, 3, 41.5):
            here, there = sinusoidal_encoding(np.array([i, i + delta]), 32)
            assert np.allclose(there, R @ here)
        assert np.allclose(P @ R.T, sinusoidal_encoding(ROWS + delta, 32))


def test_the_shift_is_a_rotation(page):
    r"""$\mathbf{R}_\delta$ is a rotation: $\mathbf{R}_\delta^\top \mathbf{R}_\delta =
    \mathbf{I}$ and $\det \mathbf{R}_\delta = 1$. Moreover $\mathbf{R}_\gamma
    \mathbf{R}_\delta = \mathbf{R}_{\gamma+\delta}$ for every offset $\gamma$, and
    $\mathbf{R}_{-\delta} = \mathbf{R}_\delta^\top$.
    """
    for delta in (5, -3, 0.5):
        R = shift_matrix(delta, 32)
        assert np.allclose(R.T @ R, np.eye(32))
        assert np.isclose(np.linalg.det(R), 1)
        assert np.allclose(shift_matrix(2, 32) @ R, shift_matrix(2 + delta, 32))
        assert np.allclose(R.T, shift_matrix(-delta, 32))


def test_eq_shift(page):
    r"""$$ \begin{aligned} &\begin{bmatrix} \cos(\delta\omega_c) & \sin(\delta\omega_c) \\ -\sin(\delta\omega_c) & \cos(\delta\omega_c) \end{bmatrix} \begin{bmatrix} p_{i,2c} \\ p_{i,2c+1} \end{bmatrix} \\
    &\quad = \begin{bmatrix} \cos(\delta\omega_c)\sin(i\omega_c) + \sin(\delta\omega_c)\cos(i\omega_c) \\ -\sin(\delta\omega_c)\sin(i\omega_c) + \cos(\delta\omega_c)\cos(i\omega_c) \end{bmatrix} \\
    &\quad = \begin{bmatrix} \sin\left((i+\delta)\,\omega_c\right) \\ \cos\left((i+\delta)\,\omega_c\right) \end{bmatrix} = \begin{bmatrix} p_{i+\delta,2c} \\ p_{i+\delta,2c+1} \end{bmatrix}. \end{aligned} $$
    """
    delta = 7
    later = sinusoidal_encoding(ROWS + delta, 32)
    for c, omega in enumerate(W):
        cos, sin = np.cos(delta * omega), np.sin(delta * omega)
        block = np.array([[cos, sin], [-sin, cos]])
        added = [
            cos * np.sin(ROWS * omega) + sin * np.cos(ROWS * omega),
            -sin * np.sin(ROWS * omega) + cos * np.cos(ROWS * omega),
        ]
        moved = [np.sin((ROWS + delta) * omega), np.cos((ROWS + delta) * omega)]
        pair = slice(2 * c, 2 * c + 2)
        assert np.allclose(block @ P[:, pair].T, added)
        assert np.allclose(added, moved)
        assert np.allclose(moved, later[:, pair].T)
        assert np.allclose(shift_matrix(delta, 32)[pair, pair], block)


def test_the_shift_is_no_projection(page):
    r"""Projecting twice is the same as projecting once, whereas rotating twice takes you twice as
    far: $\mathbf{R}_\delta\mathbf{R}_\delta = \mathbf{R}_{2\delta}$. And a projection other than
    $\mathbf{I}$ loses something, but a rotation can always be undone.

    The first two lines say that $\mathbf{R}_5$ is a rotation. The next two say that
    rotations add up and that the transpose undoes them.

    It has $d^2$ entries but only $d/2$ different angles
    """
    for delta in (5, -3, 0.5):
        R = shift_matrix(delta, 32)
        assert np.allclose(R @ R, shift_matrix(2 * delta, 32))
        assert abs(np.linalg.det(R @ R)) > 0.9
        assert abs(R @ R - R).max() > 0.1
        assert np.count_nonzero(R) <= 2 * 32
    assert page.printed.count("rotated and shifted rows differ by 0.000000") == 3
    assert "R^T R and the identity differ by 0.000000" in page.printed
    assert "R_2 R_5 and R_7 differ by 0.000000" in page.printed
    assert "the determinant is 1.000000" in page.printed
    assert "R_5^T and R_-5 differ by 0.000000" in page.printed
    assert "R_5 applied twice and once differ by 1.7" in page.printed


def test_three_points_turn_by_the_same_angle(page):
    """Pair 3 of width 32 as a point: the cosine to the right, the sine upward. The open marks
    are the positions 0, 9 and 18, and the filled marks are five positions later.

    position 0 is at the right, at $(1, 0)$, and positions move counterclockwise. The three
    open marks lie in different directions, and yet the three arrows span the same angle.
    """
    before, after = page.torch.before, page.torch.after
    start, end = (points[:, 0] + 1j * points[:, 1] for points in (before, after))
    turns = np.angle(end / start)
    assert np.allclose(turns, 5 * W[3])
    assert np.allclose(start, np.exp(1j * W[3] * np.array([0, 9, 18])))
    assert np.allclose(before[0], [1, 0])
    assert 0 < turns[0] < np.pi
    assert np.ptp(before, axis=0).min() > 0.5


# Products, and a head


def test_eq_gram(page):
    r"""$$ \begin{aligned} \mathbf{p}_i^\top \mathbf{p}_j &= \mathbf{p}_0^\top \mathbf{R}_{j-i}\,\mathbf{p}_0 \\ &= \sum_{c=0}^{d/2-1} \cos\left((i - j)\,\omega_c\right) =: g(i - j) . \end{aligned} $$

    In $\mathbf{p}_0$ all sines are 0 and all cosines are 1
    """
    for i, j in ((0, 5), (7, 2), (40, 40)):
        assert np.isclose(P[0] @ shift_matrix(j - i, 32) @ P[0], P[i] @ P[j])
    assert np.allclose(P @ P.T, np.cos((ROWS[:, None] - ROWS)[..., None] * W).sum(-1))
    assert np.allclose(sinusoidal_encoding(1, 32), [[0, 1] * 16])


def test_g_is_largest_at_0(page):
    r"""It is largest at offset 0, where $g(0) = d/2$. No other whole offset reaches that value:
    the fastest pair has $\omega_0 = 1$, and the cosine of a whole number other than 0 is
    below 1.
    """
    assert G[0] == 32 / 2
    assert G[1:].max() < G[0]
    assert np.cos(np.arange(1, 10000)).max() < 1


def test_products_of_rows_are_even_in_the_offset(page):
    """The two lines agree, because only the offsets matter, and in the middle is $g(0) = 32/2 =
    16$. Each line is also the same read backward, because the cosine is even, so $g(-2) = g(2)$.
    """
    line = "[13.73 15.31 16.   15.31 13.73]"
    assert f"row 6 times rows 4 to 8: {line}" in page.printed
    assert f"row 106 times rows 104 to 108: {line}" in page.printed
    products = P @ P[30]
    assert np.isclose(products[30], 16)
    assert np.allclose(products[30 - 29 : 30], products[31 : 30 + 30][::-1])


def test_a_head_looks_two_places_back(page):
    r"""Rotate the query of position 6 by $\mathbf{R}_{-2}$, and it becomes the encoding of
    position 4, which matches key 4 best.

    Its scores are $(\mathbf{R}_\delta\,\mathbf{p}_i)^\top \mathbf{p}_j = g(i + \delta -
    j)$, up to a factor. The largest score is at $j = i + \delta$, for every $i$ for which that
    key exists.

    In {numref}`fig-two-back` both ridges run two places below the diagonal
    """
    assert np.allclose(shift_matrix(-2, 32) @ P[6], P[4])
    assert (P @ P[4]).argmax() == 4
    row, rows = np.arange(12), P[:12]
    scores = rows @ shift_matrix(-2, 32).T @ rows.T
    assert np.allclose(scores, G[abs(row[:, None] - 2 - row)])
    assert (scores.argmax(1)[2:] == row[2:] - 2).all()
    for weights in (page.torch.usual, page.torch.sharp):
        assert (weights.argmax(1)[2:] == row[2:] - 2).all()


def test_at_the_usual_scale_it_hardly_points(page):
    r"""The target gets 0.13 of the weight, little more than its neighbors, because $g(1)$ is
    close to $g(0)$ ({numref}`fig-offsets`).

    From 16 to 15.31 is a difference of 0.69, which leaves a difference of only $0.69/\sqrt{32} =
    0.12$ between the scores, and $e^{-0.12}$ is still close to 1.

    At scale 4 the scores are $4\sqrt{32} \approx 23$ times as large, and the target gets
    0.89. Now the scores differ by $4 \cdot 0.69 = 2.76$, so a neighbor gets only $e^{-2.76} =
    0.06$ times the weight of the target.
    """
    assert [G[0], G[1].round(2), (G[0] - G[1]).round(2)] == [16, 15.31, 0.69]
    assert round(0.69 / np.sqrt(32), 2) == 0.12
    assert np.exp(-0.12) > 0.88
    assert round(4 * 0.69, 2) == 2.76
    assert round(np.exp(-2.76), 2) == 0.06
    sharp_ratio = page.torch.sharp[6, 3] / page.torch.sharp[6, 4]
    assert sharp_ratio.round(2) == 0.06
    usual, sharp = page.torch.usual, page.torch.sharp
    assert G[1] > 0.95 * G[0]
    assert 0.85 < usual[6, 3] / usual[6, 4] < 1
    assert (sharp[2:].max(1) > 0.85).all()
    assert round(4 / (1 / np.sqrt(32))) == round(4 * np.sqrt(32)) == 23
    assert [usual[6, 4].round(2), sharp[6, 4].round(2)] == [0.13, 0.89]


def test_eq_four_terms(page):
    r"""$$ (\mathbf{x}_i + \mathbf{p}_i)^\top \mathbf{C}\,(\mathbf{x}_j + \mathbf{p}_j) = \underbrace{\mathbf{x}_i^\top \mathbf{C}\,\mathbf{x}_j}_{\text{content}}
    + \underbrace{\mathbf{x}_i^\top \mathbf{C}\,\mathbf{p}_j + \mathbf{p}_i^\top \mathbf{C}\,\mathbf{x}_j}_{\text{content and absolute position}} + \underbrace{\mathbf{p}_i^\top \mathbf{C}\,\mathbf{p}_j}_{\text{position}} . $$
    """
    W_q, W_k = DRAWN.normal(size=(2, 32, 4))
    C = W_q @ W_k.T
    scores = ((X + P) @ W_q) @ ((X + P) @ W_k).T
    assert np.allclose(scores, X @ C @ X.T + X @ C @ P.T + P @ C @ X.T + P @ C @ P.T)


def test_only_the_last_term_can_see_the_offset(page):
    r"""The last one depends only on the offset if $\mathbf{C}$ is special. With $\mathbf{C} =
    \mathbf{R}_\delta^\top$, for example, it is the score $(\mathbf{R}_\delta\,\mathbf{p}_i)^\top
    \mathbf{p}_j$ of the head that we just built. The trouble is in the two middle terms, which pair a
    token with an absolute position

    Of these three terms only the last stays the same, and only when $\mathbf{C}$ is a shift. Even
    then the two in the middle change by up to 2.13, although the tokens and all their offsets are
    the same as before. With a random $\mathbf{C}$ all three change.
    """
    R = shift_matrix(-2, 32)
    assert np.allclose(P @ R.T @ P.T, (P @ R.T) @ P.T)
    assert np.allclose(P[7] @ R.T @ P[3], (R @ P[7]) @ P[3])
    later, shift = sinusoidal_encoding(ROWS + 1, 32), shift_matrix(-2, 32).T
    for C, still in (
        (shift, True),
        (np.random.default_rng(0).normal(size=(32, 32)), False),
    ):
        assert np.allclose(later @ C @ later.T, P @ C @ P.T) == still
        assert abs(X @ C @ (later - P).T).max() > 1
        assert abs((later - P) @ C @ X.T).max() > 1
    changes = re.findall(r"changes by up to ([\d.]+)\n", page.printed)[:6]
    assert changes[:3] == ["2.13", "2.13", "0.00"]
    assert all(float(change) > 1 for change in changes[3:])


def test_weights_change_when_the_text_moves(page):
    """Moved by 100 places, the same twelve tokens get different weights, and one of them goes
    from 0.59 to 0.81.
    """
    C = shift_matrix(-2, 32).T
    x = np.random.default_rng(0).normal(size=(12, 32))
    here, there = (x + sinusoidal_encoding(s + np.arange(12), 32) for s in (0, 100))
    before, after = (softmax(t @ C @ t.T / np.sqrt(32)) for t in (here, there))
    place = np.unravel_index(abs(after - before).argmax(), before.shape)
    assert [before[place].round(2), after[place].round(2)] == [0.59, 0.81]
    assert "moved by 100: a weight goes from 0.59 to 0.81" in page.printed


def test_a_narrow_head_keeps_some_pairs(page):
    r"""The rank of $\mathbf{C}$ is at most $d_h$, so a head narrower than the model can't hold all
    of $\mathbf{R}_\delta$, but it can hold the blocks of $d_h/2$ pairs. Its last term is then the sum
    of cosines over those pairs, which still depends only on the offset.
    """
    d_h, delta = 8, -2
    R = shift_matrix(delta, 32)
    W_q, W_k = R.T[:, :d_h], np.eye(32)[:, :d_h]  # the blocks of the first four pairs
    C = W_q @ W_k.T
    assert np.linalg.matrix_rank(C) == d_h < np.linalg.matrix_rank(R) == 32
    offsets = ROWS[:, None] + delta - ROWS
    assert np.allclose(P @ C @ P.T, np.cos(offsets[..., None] * W[: d_h // 2]).sum(-1))


# Enforce


def test_eq_shaw(page):
    r"""$\operatorname{clip}(\delta) = \max(-m, \min(m, \delta))$

    $$ s_{ij} = \frac{\mathbf{q}_i^\top \big(\mathbf{k}_j + \mathbf{a}^{(k)}_{\operatorname{clip}(j-i)}\big)}{\sqrt{d_h}}, \qquad \mathbf{y}_i = \sum_{j=0}^{n-1} \alpha_{ij} \big(\mathbf{v}_j + \mathbf{a}^{(v)}_{\operatorname{clip}(j-i)}\big) . $$
    """
    m = 2
    shaw = reference.ShawRelative.init(DRAWN, m, 4)
    scores = shaw.scores(Q[None], K[None], PLACES, PLACES)
    weights = reference.attention_weights(Q[None], K[None], bias=scores)
    y = (weights @ V[None] + shaw.values(weights, PLACES, PLACES))[0, 0]
    for i in PLACES:
        a_k = np.array([shaw.key_table[m + clip(j - i, m)] for j in PLACES])
        a_v = np.array([shaw.value_table[m + clip(j - i, m)] for j in PLACES])
        alpha = softmax((K[0] + a_k) @ Q[0, i] / np.sqrt(4))
        assert np.allclose(alpha, weights[0, 0, i])
        assert np.allclose(sum(alpha[j] * (V[0, j] + a_v[j]) for j in PLACES), y[i])


def test_shaw_by_hand(page):
    r"""Its product with *dog* is $1 + 2 = 3$: 1 from the key and 2 from the vector for one place
    back. With itself it is $1 + 0 = 1$, and with *man* it is $1 - 1 = 0$. Divided by $\sqrt{2}$,
    the scores are 2.12, 0.71 and 0, and the softmax turns them into 0.73, 0.18 and 0.09. The
    query looks one place back, wherever the three words are in the text
    """
    products = KEYS @ [1, 2]
    assert products.tolist() == [3, 1, 0]
    assert (products / np.sqrt(2)).round(2).tolist() == [2.12, 0.71, 0]
    assert softmax(products / np.sqrt(2)).round(2).tolist() == [0.73, 0.18, 0.09]
    for place in (1, 1001):
        line = f"bites at {place}: scores [2.12 0.71 0.  ], weights [0.73 0.18 0.09]"
        assert line in page.printed


def test_products_instead_of_vectors(page):
    r"""With 1000 tokens and $d_h = 64$ that makes $1000^2 \cdot 64 = 64{,}000{,}000$ numbers.

    With $m = 16$ there are just $1000 \cdot 33 = 33{,}000$ products to pick from.
    """
    assert 1000**2 * 64 == 64_000_000
    table = reference.ShawRelative.init(DRAWN, 16, 64).key_table
    assert (DRAWN.normal(size=(1000, 64)) @ table.T).size == 33_000


def test_favored_distances(page):
    r"""At width 2, for example, with $\mathbf{W}^{(r)} = \mathbf{I}$ and $\mathbf{u}' = (0, 1)$,
    it is $\cos(i - j)$, which is 1 at distance 0, 0.54 at distance 1 and −0.42 at distance 2.
    """
    r = sinusoidal_encoding(3, 2) @ np.eye(2)
    assert (r @ [0, 1]).round(2).tolist() == [1, 0.54, -0.42]
    bias = reference.TransformerXLBias(np.zeros((1, 2)), np.array([[0.0, 1.0]]), np.eye(2))
    zero = np.zeros((1, 1, 3, 2))
    scores = bias.scores(zero, zero, np.arange(3), np.arange(3))[0, 0] * np.sqrt(2)
    assert np.allclose(scores, np.cos(np.arange(3)[:, None] - np.arange(3)))


def test_eq_transformer_xl(page):
    r"""$$ s_{ij} = \frac{1}{\sqrt{d_h}}\Big(\underbrace{\mathbf{q}_i^\top\mathbf{k}_j}_{\text{content}} + \underbrace{\mathbf{q}_i^\top\mathbf{r}_{i-j}}_{\text{distance asked for}} + \underbrace{\mathbf{u}^\top\mathbf{k}_j}_{\text{favored content}} + \underbrace{\mathbf{u}'^\top\mathbf{r}_{i-j}}_{\text{favored distance}}\Big) . $$

    $\mathbf{r}_{i-j} = \mathbf{W}^{(r)\top}\mathbf{p}_{i-j}$
    """
    u, u2, W_r = (DRAWN.normal(size=(rows, 4)) for rows in (1, 1, 8))
    bias = reference.TransformerXLBias(u, u2, W_r)
    scores = Q @ K.mT / np.sqrt(4) + bias.scores(Q[None], K[None], PLACES, PLACES)[0]
    for i in PLACES:
        for j in PLACES:
            q, k = Q[0, i], K[0, j]
            r = W_r.T @ sinusoidal_encoding(np.array([i - j]), 8)[0]
            s = (q @ k + q @ r + u[0] @ k + u2[0] @ r) / np.sqrt(4)
            assert np.isclose(s, scores[0, i, j])


def test_rotary_is_a_shift(page):
    r"""The matrices of this page expect the sine first, so on such a pair $\mathbf{R}_i$ rotates
    clockwise. The rotary rotation is the opposite one, $\mathbf{R}_i^\top = \mathbf{R}_{-i}$.

    The score becomes $(\mathbf{R}_{-i}\,\mathbf{q})^\top \mathbf{R}_{-j}\,\mathbf{k} =
    \mathbf{q}^\top \mathbf{R}_{i-j}\,\mathbf{k}$

    On the rotary page $\mathbf{R}_i$ names the opposite rotation, so the same score is
    $\mathbf{q}^\top \mathbf{R}_{j-i}\,\mathbf{k}$ there.
    """
    q, k = DRAWN.normal(size=(2, 32))
    assert np.allclose(shift_matrix(7, 32).T, shift_matrix(-7, 32))
    assert np.allclose(reference.rotate(q[None], ROWS[7:8])[0], shift_matrix(-7, 32) @ q)
    for i in ROWS:
        j = i + 4
        score = (shift_matrix(-i, 32) @ q) @ (shift_matrix(-j, 32) @ k)
        assert np.isclose(score, q @ shift_matrix(i - j, 32) @ k)
        turned = reference.rotate(k[None], np.array([j - i]))[0]  # R_{j-i} k of that page
        assert np.isclose(score, q @ turned)


def test_what_each_scheme_learns(page):
    r"""$2\,(2m + 1)\,d_h$ numbers

    $d^2 + 2d$ numbers

    With $d = 512$, $d_h = 64$ and $m = 16$, Shaw's tables take $2 \cdot 33 \cdot 64 = 4224$
    numbers per layer. Transformer-XL takes $512^2 + 2 \cdot 512 = 263{,}168$, nearly all of them
    in $\mathbf{W}^{(r)}$.
    """
    shaw = reference.ShawRelative.init(DRAWN, 16, 64)
    assert shaw.key_table.size + shaw.value_table.size == 2 * 33 * 64 == 4224
    xl = reference.TransformerXLBias.init(DRAWN, 512, 8)
    biases = xl.content_bias.size + xl.position_bias.size
    assert xl.weight.size + biases == 263_168
    assert xl.weight.size > 0.99 * 263_168
    m, d = 3, 8
    shaw = reference.ShawRelative.init(DRAWN, m, 4)
    assert shaw.key_table.size + shaw.value_table.size == 2 * (2 * m + 1) * 4
    xl = reference.TransformerXLBias.init(DRAWN, d, 2)
    assert xl.weight.size + xl.content_bias.size + xl.position_bias.size == d**2 + 2 * d


def test_far_words(page):
    """all tokens more than $m$ away look alike"""
    shaw = reference.ShawRelative.init(DRAWN, 3, 4)
    query, key = DRAWN.normal(size=(2, 1, 1, 4))
    scores = shaw.scores(
        query, key[:, [0] * 4], np.array([900]), np.array([0, 500, 800, 899])
    )
    assert np.ptp(scores[..., :3]) == 0
    assert scores[..., 3] != scores[..., 0]


def test_a_table_read_backward(page):
    """rows = (i[:, None] - i).clamp(-m, m) + m, query minus key.

    use key minus query, or flip the table with a_k.flip(0)
    """
    m, i = 2, torch.arange(6)
    a_k = torch.from_numpy(DRAWN.normal(size=(2 * m + 1, 4)))
    rows = (i - i[:, None]).clamp(-m, m) + m
    backward = (i[:, None] - i).clamp(-m, m) + m
    assert torch.equal(a_k.flip(0)[backward], a_k[rows])
    assert not torch.equal(a_k[backward], a_k[rows])


def test_the_wrong_sign(page):
    r"""$\mathbf{R}_i\,\mathbf{q}$ and $\mathbf{R}_j\,\mathbf{k}$, which rotate pairs clockwise

    the shift test passes, because scores still depend only on the offset. But two places back
    now counts as two places ahead, and a rotary checkpoint gives wrong outputs. Our checker
    reports a wrong sign
    """
    q, k = DRAWN.normal(size=(2, 32))
    turned = gallery.rotary_clockwise(q[None], np.array([7]))[0]
    assert np.allclose(turned, shift_matrix(7, 32) @ q)
    R = shift_matrix(4, 32)
    backwards = [(shift_matrix(i, 32) @ q) @ shift_matrix(i + 4, 32) @ k for i in range(9)]
    assert np.allclose(backwards, q @ R @ k)
    assert not np.isclose(backwards[0], q @ R.T @ k)
    report = check(gallery.rotary_clockwise, "rotary", only="base", framework="numpy")
    assert "wrong sign" in str(report)


# Exercises


def test_look_ahead(page):
    """The products are $1 - 2 = -1$ with *dog*, 1 with itself and $1 + 3 = 4$ with *man*,
    one place ahead. So *man* gets the largest weight
    """
    products = KEYS @ [1, -2]
    assert products.tolist() == [-1, 1, 4]
    assert softmax(products / np.sqrt(2)).argmax() == 2


def test_710_comes_near(page):
    r"""At width 2 the only angle is $\delta$, so $\delta$ must be a multiple of $2\pi$. Apart
    from 0, no such multiple is whole, because $\pi$ is irrational. But 710 comes close
    """
    assert np.allclose(shift_matrix(2 * np.pi, 2), np.eye(2))
    assert 0 < abs(shift_matrix(710, 2) - np.eye(2)).max() < 1e-4


def test_the_key_that_does_not_exist(page):
    """Key $j$ has the score $g(-2 - j) = g(j + 2)$. No $g(j + 2)$ with $j > 0$ reaches $g(2)$
    ({numref}`fig-offsets` shows them all), so the answer is key 0.
    """
    assert G[3:].max() < G[2]
    scores = P[:12] @ shift_matrix(-2, 32) @ P[0]
    assert np.allclose(scores, G[np.arange(12) + 2])
    assert scores.argmax() == 0


def test_what_commutes_with_all_shifts(page):
    r"""no entry of $\mathbf{C}$ may mix two pairs. Within a pair, $\mathbf{C}$ has a block
    $\begin{bmatrix} x & y \\ -y & x \end{bmatrix}$, because these are the $2 \times 2$ matrices
    that commute with rotations. With two numbers for each of the $d/2$ pairs, there are $d$ free numbers.
    """
    R, same = shift_matrix(0.7, 8), np.eye(8)
    assert np.linalg.matrix_rank(np.kron(R, same) - np.kron(same, R.T)) == 64 - 8
    x, y = DRAWN.normal(size=(2, 4))
    C = np.kron(np.diag(x), np.eye(2)) + np.kron(np.diag(y), [[0, 1], [-1, 0]])
    assert np.allclose(C @ R, R @ C)
    assert "along diagonals the products change by up to 0.000000" in page.printed
