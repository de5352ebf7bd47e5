"""Sinusoidal positional encoding, and what its rows tell of absolute positions."""

import warnings

import jax.numpy as jnp
import numpy as np
import pytest
import torch

from posattn.jax import PositionalEncoding as JaxEncoding
from posattn.reference import (
    frequencies,
    scaled_dot_product_attention,
    sinusoidal_encoding,
)
from posattn.torch import PositionalEncoding as TorchEncoding

NUMBERS = np.arange(1000)[:, None]
TRIES = {
    "number": NUMBERS,
    "fraction": NUMBERS / 1000,
    "bits": NUMBERS >> np.arange(10) & 1,
    "clocks": sinusoidal_encoding(1000, 32),
}
COUNT = np.arange(64)
GRAM = sinusoidal_encoding(60, 32) @ sinusoidal_encoding(60, 32).T
WORDS = np.random.default_rng(0).normal(0, 512**-0.5, size=(5000, 512))


def length(rows):
    """The length of each row."""
    return np.linalg.norm(rows, axis=-1)


def all_distances(rows):
    """The distances of all pairs of rows, and infinity for a row and itself."""
    squares = (rows.astype(float) ** 2).sum(1)
    squared = squares[:, None] + squares - 2 * rows.astype(float) @ rows.T
    return np.sqrt(np.maximum(squared, 0)) + np.diag(np.full(len(rows), np.inf))


# Count, divide, write in binary


def test_the_same_word_twice(page):
    """The dog bites the man has the word the twice. Both times it enters the model as the
    same vector, so self-attention without a mask gives it the same output both times
    """
    words = ["the", "dog", "bites", "the", "man"]
    assert [i for i, word in enumerate(words) if word == "the"] == [0, 3]
    vectors = dict(zip(sorted({*words}), WORDS[:, :8], strict=False))
    x = np.stack([vectors[word] for word in words])
    y = scaled_dot_product_attention(x, x, x)
    assert np.allclose(y[0], y[3])
    assert not np.allclose(y[0], y[1])


def test_numbers_have_even_steps_and_grow(page):
    """Every position is different, and every step has the same size.

    At 998 both vectors are almost $(999, 999)$.

    position 3 is always 0.003, but neighbors are only 0.001 apart
    """
    the, dog = np.array([0.5, -0.2]), page.torch.dog
    assert np.linalg.norm(the - dog) > 1
    for far in (the + 998, dog + 999):
        assert abs(far / 999 - 1).max() < 0.002
    assert np.isclose(TRIES["fraction"][3, 0], 0.003)
    assert page.glued["fraction_near"] == pytest.approx(0.001)
    assert page.glued["number_short"] == page.glued["number_long"] == 1
    assert page.glued["number_large"] == range(1000)[-1] == 999


def test_fractions_change_with_the_text(page):
    """divide each position by the number of tokens, and everything lies between 0 and 1.

    Position 3 is $3/5 = 0.6$ in a text of five tokens and $3/1000 = 0.003$ in a text of a
    thousand.
    """
    assert 0 == TRIES["fraction"].min() <= TRIES["fraction"].max() < 1
    assert (3 / 5, 3 / 1000) == (0.6, 0.003)
    assert page.glued["third"] == 0.6 - 0.003


def test_binary_steps_are_uneven(page):
    """Binary digits are all 0 or 1, they are the same in every text, and no two positions
    share a row.

    From 2 to 3 one bit changes, and from 3 to 4 all three do.

    From 3 to 4 every bit flips
    """
    assert (f"{3:03b}", f"{4:03b}") == ("011", "100")
    assert set(np.unique(TRIES["bits"])) == {0, 1}
    assert len(np.unique(TRIES["bits"], axis=0)) == 1000
    assert ((2 ^ 3).bit_count(), (3 ^ 4).bit_count()) == (1, 3)


def test_one_step_back_flips_one_bit_or_four(page):
    """sometimes one bit flips, sometimes four. What it learns at position 7 is wrong at
    position 8.
    """
    assert ((7 ^ 6).bit_count(), (8 ^ 7).bit_count()) == (1, 4)
    at_7, at_8 = (TRIES["bits"][i - 1] - TRIES["bits"][i] for i in (7, 8))
    assert not np.array_equal(at_7, at_8)


def test_each_digit_changes_half_as_often(page):
    """The rightmost digit changes at every position, its neighbor at every second, the next
    at every fourth.
    """
    for c, change in enumerate(np.diff(TRIES["bits"].T)):
        assert np.array_equal(np.flatnonzero(change), range(2**c - 1, 999, 2**c))


def test_each_hand_turns_by_the_same_angle_at_every_step(page):
    """the hand turns by the same angle at every step

    Within a column, it is the same at every step.

    the wedges of row 4 are as large as those of row 3
    """
    P = sinusoidal_encoding(5000, 32)
    hands = P[:, 1::2] + 1j * P[:, ::2]
    assert np.allclose(np.angle(hands[1:] / hands[:-1]), frequencies(32))


def test_four_clocks_halve(page):
    """on four clocks, each half as fast as the one before

    {numref}`fig-clocks` has width 8 and the base 16, hence the factor 2.
    """
    assert np.allclose(frequencies(8, base=16), [1, 1 / 2, 1 / 4, 1 / 8])


def test_the_table_of_four_tries(page):
    """distinct: nearest two vectors | … | … | … | … |

    bounded: largest number | … | … | … | … |

    even: longest step / shortest step | … / … | … / … | … / … | … / … |

    Counting fails the second, fractions fail the third, and bits fail the fourth. The
    clocks pass all four.
    """
    for name, rows in TRIES.items():
        step = length(np.diff(rows, axis=0))
        assert page.glued[f"{name}_near"] == pytest.approx(all_distances(rows).min())
        assert page.glued[f"{name}_large"] == rows.max()
        assert page.glued[f"{name}_short"] == step.min()
        assert page.glued[f"{name}_long"] == step.max()
        assert page.glued[f"{name}_near"] > 0
        assert (rows.max() > 1) == (name == "number")
        assert (step.max() > step.min() + 1e-9) == (name == "bits")
    assert page.glued["third"] > 0


# Two clocks, and the definition


def test_one_radian_is_57_degrees(page):
    """by 1 radian per position, which is about 57 degrees"""
    assert round(np.degrees(1)) == 57


def test_the_clock_of_bit_0_is_a_bit(page):
    """The clock of bit 0 makes half a turn per number. Its hand would only jump between the
    top and the bottom, which is a bit again.
    """
    angle = np.pi / 2**0 * COUNT
    assert np.allclose(np.sin(angle), 0)
    assert np.allclose(np.cos(angle), 1 - 2 * (COUNT % 2))


def test_the_rows_by_hand(page):
    """| 0 | dog | 0.00 | 1.00 | 0.00 | 1.00 |
    | 1 | bites | 0.84 | 0.54 | 0.01 | 1.00 |
    | 2 | man | 0.91 | −0.42 | 0.02 | 1.00 |

    Width 4 gives the two clocks from the pocket calculator.
    """
    table = [[0, 1, 0, 1], [0.84, 0.54, 0.01, 1], [0.91, -0.42, 0.02, 1]]
    assert abs(sinusoidal_encoding(3, 4) - table).max() < 0.005


def test_the_fast_clock_tells_three_apart(page):
    """The fast clock tells the three words apart. The slow one has hardly left the top"""
    rows = sinusoidal_encoding(3, 4)[[0, 1, 2, 0], :2]
    assert length(np.diff(rows, axis=0)).min() > 0.9
    assert np.degrees(2 / 100) < 2


def test_a_radian_is_a_sixth_of_the_circle(page):
    """1 radian, about a sixth of the circle"""
    assert abs(1 / (2 * np.pi) - 1 / 6) < 0.01


def test_eq_frequencies(page):
    r"""$$
    \omega_j = b^{-2j/d}, \qquad j = 0, \ldots, \lceil d/2 \rceil - 1, \qquad b = 10000.
    $$

    Each clock is slower than the one before by the same factor $r$

    so $r^{-d/2} = 1/b$. Hence $r = b^{2/d}$
    """
    b = 10000
    for d in (7, 32):
        j = np.arange(np.ceil(d / 2))
        assert np.allclose(b ** (-2 * j / d), frequencies(d))
        r = b ** (2 / d)
        assert np.allclose(r ** (-d / 2), 1 / b)
        assert np.allclose(r**-j, frequencies(d))
        assert (np.diff(frequencies(d)) < 0).all()


def test_the_slowest_clock(page):
    r"""At width 512 the slowest clock needs … positions for a turn, a little less than the
    $2\pi b \approx$ … that
    """
    assert page.glued["turn_last"] == pytest.approx(2 * np.pi / frequencies(512)[-1])
    assert page.glued["bound"] == pytest.approx(2 * np.pi * 10000)
    assert 0.95 < page.glued["turn_last"] / page.glued["bound"] < 1


def test_eq_positional_encoding_def(page):
    r"""$$
    p_{i,2j} = \sin\left(\frac{i}{10000^{2j/d}}\right), \qquad p_{i,2j+1} = \cos\left(\frac{i}{10000^{2j/d}}\right).
    $$
    """
    d = 7
    p = sinusoidal_encoding(5000, d)
    for i in (0, 3, 4999):
        for j in range(4):
            assert np.isclose(p[i, 2 * j], np.sin(i / 10000 ** (2 * j / d)))
        for j in range(3):
            assert np.isclose(p[i, 2 * j + 1], np.cos(i / 10000 ** (2 * j / d)))


# In code


def test_columns_6_to_9(page):
    """Columns 6 and 7 are the sine and the cosine of one clock, 8 and 9 those of the next,
    slower one.

    Within a pair, one wave is the other moved by a quarter of a turn.
    """
    i, w = np.arange(5000), frequencies(32)
    P = sinusoidal_encoding(5000, 32)
    want = [np.sin(i * w[3]), np.cos(i * w[3]), np.sin(i * w[4]), np.cos(i * w[4])]
    assert np.allclose(P[:, 6:10].T, want)
    assert np.allclose(np.sin(i * w[3] + np.pi / 2), P[:, 7])


def test_turns_of_clocks_3_and_4(page):
    """Columns 6 and 7 are clock 3, which needs … positions for a turn. Columns 8 and 9 are
    clock 4, which needs ….
    """
    turns = 2 * np.pi / frequencies(32)
    assert page.glued["turn_fast"] == turns[3]
    assert page.glued["turn_slow"] == turns[4] > turns[3]


def test_the_layer_keeps_the_dtype(page):
    """It has no largest length and keeps the dtype of its input."""
    for kind in (jnp.float16, jnp.bfloat16, jnp.float32):
        assert JaxEncoding(32)(jnp.zeros((2, 32), kind)).dtype == kind


def test_train_drops_nothing(page):
    """Dropout acts only where the call gets rng=, and PyTorch's train() does not switch it on."""
    layer, zeros = TorchEncoding(4, dropout_rate=0.5), torch.zeros(3, 4)
    with warnings.catch_warnings(action="ignore"):
        trained = layer.train()(zeros)
    assert torch.equal(trained, layer.eval()(zeros))


# Bits and clocks


def test_bits_are_drawn_lowest_last(page):
    """Left, the numbers 0 to 15 in binary, the lowest bit rightmost. Right, the encoding of
    60 positions, width 32, the fastest clock leftmost.
    """
    want = [[int(bit) for bit in f"{number:04b}"] for number in range(16)]
    assert page.torch.bits.tolist() == want
    assert (np.diff(frequencies(32)) < 0).all()


def test_the_right_columns_are_upright_stripes(page):
    """The clock of the columns 16 and 17 makes only … turns within 60 positions. Farther
    right the sines stay near 0 and the cosines near 1
    """
    assert page.glued["turn"] == pytest.approx(60 * frequencies(32)[8] / (2 * np.pi))
    assert page.glued["turn"] < 0.1
    far = sinusoidal_encoding(60, 32)[:, 18:]
    assert abs(far[:, ::2]).max() < 1 / 3
    assert far[:, 1::2].min() > 0.94


def test_halving_5(page):
    """halve it again and again, rounding down: 5, 2, 1. The remainders on division by 2 are
    the bits from the lowest up. They are 1, 0, 1, so 5 is 101.
    """
    assert [5, 5 // 2, 5 // 4] == [5, 2, 1]
    assert [5 % 2, 2 % 2, 1 % 2] == [1, 0, 1]
    assert f"{5:b}" == "101"


def test_bits_change_at_multiples(page):
    """bit $j$ of the number $i$ is the remainder of $\\lfloor i / 2^j \\rfloor$ on division
    by 2

    Then bit $j$ changes at the multiples of $2^j$, and its pattern repeats after $2^{j+1}$
    numbers.

    0, 1, 0, 1 for bit 0, and 0, 0, 1, 1 for bit 1
    """
    assert [i & 1 for i in range(4)] == [0, 1, 0, 1]
    assert [i >> 1 & 1 for i in range(4)] == [0, 0, 1, 1]
    for j in range(5):
        bit = COUNT // 2**j % 2
        assert np.array_equal(bit, (COUNT >> j) & 1)
        assert np.array_equal(
            np.flatnonzero(np.diff(bit)) + 1, COUNT[COUNT % 2**j == 0][1:]
        )
        assert np.array_equal(bit[2 ** (j + 1) :], bit[: -(2 ** (j + 1))])
        assert not np.array_equal(bit[2**j :], bit[: -(2**j)])
    assert "5 in binary is 101" in page.printed


def test_eq_bit_is_a_clock(page):
    r"""$$ \beta_{i,j} = 1 \iff \sin\left(\frac{\pi}{2^j}\left(i + \tfrac{1}{2}\right)\right) < 0 . $$

    a bit is a clock that has only two positions.

    It is 0 in the half where the sine is positive, and 1 in the half where the sine is
    negative
    """
    for j in range(6):
        beta = COUNT // 2**j % 2
        assert np.array_equal(beta == 1, np.sin(np.pi / 2**j * (COUNT + 1 / 2)) < 0)


def test_a_bit_without_corners(page):
    """At 4 the bit jumps from 0 to 1, while the smooth wave is already halfway up. The
    smooth wave still tells you the bit, because it is above the middle exactly where the
    bit is 1.

    it is a sine, turned upside down
    """
    x, bit, wave = page.torch.place, page.torch.square, page.torch.wave
    assert np.allclose(np.interp([4, 8, 12], x, wave), 1 / 2)
    off = abs(wave - 1 / 2) > 1e-9
    assert np.array_equal(bit[off] == 1, wave[off] > 1 / 2)
    assert np.allclose(1 - 2 * wave, np.sin(np.pi * x / 4))
    stretches = np.floor(x).astype(int)
    assert np.array_equal(bit, stretches >> 2 & 1)


def test_without_the_half_a_hand_meets_the_border(page):
    r"""The $\frac{1}{2}$ reads the clock in the middle of the stretch of number $i$. It
    keeps the clock hand off the borders between the halves, where
    whole numbers of steps would sometimes land.
    """
    for j in range(6):
        assert np.isclose(np.sin(np.pi / 2**j * COUNT), 0).any()
        assert not np.isclose(np.sin(np.pi / 2**j * (COUNT + 1 / 2)), 0).any()


def test_each_clock_is_slower_by_one_factor(page):
    """Each bit is twice as slow as the one before. Each clock is slower than the one before
    by the factor $10000^{2/d}$, which is … for width $d = 32$.
    """
    omega = frequencies(32)
    assert np.allclose(omega[:-1] / omega[1:], 10000 ** (2 / 32))
    assert page.glued["ratio"] == 10000 ** (2 / 32)


# Four promises, proved


def test_the_promises_are_kept(page):
    r"""(a) $\mathbf{p}_i \neq \mathbf{p}_k$ if $i \neq k$.

    (b) $\lVert \mathbf{p}_i \rVert^2 = d/2$.

    (c) $\mathbf{p}_{i+\delta}^\top\,\mathbf{p}_i = \sum_{j=0}^{d/2-1}
    \cos(\delta\,\omega_j)$, whatever $i$ is.

    Two neighbors get the same score at position 7 and at position 1000

    Even the nearest row is more than 1 away from row 0. By (c), every other row has as much
    room, so no two rows are equal. All 5000 rows have the same length. Rows 7 apart have
    the same product everywhere, the one that (c) predicts.
    """
    P = sinusoidal_encoding(1000, 32)
    assert all_distances(P).min() > 1
    assert all_distances(sinusoidal_encoding(5000, 32)).min() > 1
    assert np.allclose((P**2).sum(1), 32 / 2)
    for delta in (0, 1, 7, 500):
        products = (P[delta:] * P[: len(P) - delta]).sum(1)
        assert np.allclose(products, np.cos(delta * frequencies(32)).sum())
    rows = sinusoidal_encoding(1002, 32)
    assert np.isclose(rows[7] @ rows[8], rows[1000] @ rows[1001])
    assert "distance of the row nearest to row 0: 1.1716" in page.printed
    assert "squared lengths: 16.0 to 16.0" in page.printed


def test_a_step_back_is_the_same_turn_everywhere(page):
    r"""To go one step back, a model had to flip one bit at position 7 and four bits at
    position 8.

    clock $j$ turns back by $k\,\omega_j$, whatever it showed before
    """
    assert ((7 ^ 6).bit_count(), (8 ^ 7).bit_count()) == (1, 4)
    P = sinusoidal_encoding(1001, 32)
    hands = P[:, 1::2] + 1j * P[:, ::2]
    for k in (1, 5):
        turn = np.exp(-1j * k * frequencies(32))
        for i in (7, 8, 1000):
            assert np.allclose(hands[i - k], hands[i] * turn)


def test_the_gram_matrix_is_toeplitz(page):
    """is constant along each diagonal. Such a matrix is called a *Toeplitz* matrix, and its
    first row already determines all of it.
    """
    assert np.allclose(GRAM[1:, 1:], GRAM[:-1, :-1])
    i = np.arange(60)
    assert np.allclose(GRAM, GRAM[0, abs(i[:, None] - i)])
    assert "change along diagonals: 0.000000 at most" in page.printed


def test_products_fall_on_the_whole_and_not_at_every_step(page):
    """fall on the whole, so near positions are mostly more alike than far ones. They don't fall at every step. Offset 5 has a larger product than offset 4, because the fastest
    clock has passed half a turn and is on its way back.

    The product falls from 16 to below 12 within four positions; from there it swings slowly
    between 5 and 12
    """
    products = GRAM[0]
    assert np.polyfit(np.arange(60), products, 1)[0] < 0
    pairs = [products[near] > products[far] for far in range(60) for near in range(far)]
    assert np.mean(pairs) > 2 / 3
    assert (np.diff(products[:5]) < 0).all()
    assert products[5] > products[4]
    assert np.cos(5) > np.cos(4)
    assert 3 < np.pi < 4
    assert products[0] == pytest.approx(16)
    assert products[4] < 12
    assert 5 < products[4:].min() < products[4:].max() < 12


# How far apart


def test_rows_of_bits_are_apart_by_a_root(page):
    r"""From 110 to 111 one bit changes, so the distance is 1. From 0111 to 1000 four bits
    change, and the distance is $\sqrt{4} = 2$.

    The bits move by 1 here and by 2 there. The tip of the clock hand moves by the chord of
    its angle, $2 \sin\frac{1}{2} = 0.96$, every time.
    """
    assert ((0b110 ^ 0b111).bit_count(), (0b0111 ^ 0b1000).bit_count()) == (1, 4)
    assert 4**0.5 == 2
    assert round(2 * np.sin(1 / 2), 2) == 0.96
    assert "from 6 to 7: the bits move by 1.00, the clock hand by 0.96" in page.printed
    assert "from 7 to 8: the bits move by 2.00, the clock hand by 0.96" in page.printed


def test_eq_distance(page):
    r"""$$ \lVert \mathbf{p}_i - \mathbf{p}_k \rVert^2 = d - 2\,\mathbf{p}_i^\top \mathbf{p}_k = 4 \sum_{j=0}^{d/2-1} \sin^2\left(\frac{(i - k)\,\omega_j}{2}\right) . $$

    The distance depends only on the offset, so the smallest distance among $n$ rows is
    found among the offsets $1, \ldots, n - 1$.

    At width 32, 10000 rows are as far apart as 60. At the widths 2 and 8, they come much
    closer to each other.
    """
    for d in (2, 8, 32):
        P, i = sinusoidal_encoding(60, d), np.arange(60)
        squared = length(P[:, None] - P) ** 2
        angles = (i[:, None] - i)[..., None] * frequencies(d)
        assert np.allclose(squared, d - 2 * P @ P.T)
        assert np.allclose(squared, 4 * (np.sin(angles / 2) ** 2).sum(-1))
        assert all_distances(P).min() == pytest.approx(length(P - P[0])[1:].min(), rel=1e-4)
        assert page.glued[f"d{d}_n60"] == pytest.approx(length(P - P[0])[1:].min())
    assert page.glued["d32_n10000"] == pytest.approx(page.glued["d32_n60"])
    for d in (2, 8):
        assert page.glued[f"d{d}_n10000"] < page.glued[f"d{d}_n60"] / 3


def test_binary_numbers_are_1_apart(page):
    """two different binary numbers have a distance of at least 1, and $d$ columns of bits
    name $2^d$ positions.
    """
    four_bits = (np.arange(2**4)[:, None] >> np.arange(4)) & 1
    assert all_distances(four_bits).min() == 1
    assert len(np.unique(four_bits, axis=0)) == 2**4


def test_fewer_columns_for_rows_that_differ(page):
    """One clock, two columns, gives 10000 different rows, while binary needs … columns. The
    price is distance: the two nearest rows are … apart.
    """
    near = length(sinusoidal_encoding(10000, 2) - sinusoidal_encoding(1, 2))[1:].min()
    assert page.glued["d2_n10000"] == pytest.approx(near)
    assert 0 < near < 0.001
    assert page.glued["bits"] == 14
    assert 2**13 < 10000 <= 2**14


def test_not_fewer_columns_for_rows_at_a_distance(page):
    r"""Eight columns of bits keep $2^8 = 256$ numbers at least 1 apart. Eight columns of
    the sinusoid don't manage that for 60 positions, where the nearest are … apart, and
    among 10000 positions they come as close as ….

    Write $\pm 1/\sqrt{2}$ for the bits, and the rows are as long as those of the encoding.
    All $2^d$ of them are then at least $\sqrt{2} \approx 1.41$ apart. The encoding of width
    32 keeps 10000 rows only … apart.
    """
    smallest = {
        d: length(sinusoidal_encoding(10000, d) - sinusoidal_encoding(1, d))[1:].min()
        for d in (8, 32)
    }
    assert page.glued["d8_n10000"] == pytest.approx(smallest[8])
    assert page.glued["d8_n10000"] < page.glued["d8_n60"] < 1
    eight_bits = (np.arange(2**8)[:, None] >> np.arange(8)) & 1
    assert all_distances(eight_bits).min() == 1
    signs = (1 - 2 * ((np.arange(16)[:, None] >> np.arange(4)) & 1)) / np.sqrt(2)
    assert np.allclose((signs**2).sum(1), 4 / 2)
    assert all_distances(signs).min() == pytest.approx(np.sqrt(2))
    assert round(np.sqrt(2), 2) == 1.41
    assert page.glued["d32_n10000"] == pytest.approx(smallest[32])
    assert page.glued["d32_n10000"] < np.sqrt(2)


def test_not_less_memory(page):
    """Eight float32 columns are … bits a row, and … bits would be enough to name 10000
    positions.
    """
    assert page.glued["float_bits"] == 8 * np.finfo(np.float32).bits == 256
    assert page.glued["bits"] < page.glued["float_bits"]


def test_the_nearest_row_is_a_neighbor(page):
    """each step moves the row by the same distance. At width 32 this is …, and of 10000
    rows the nearest to any row is a neighbor.
    """
    steps = length(np.diff(sinusoidal_encoding(10000, 32), axis=0))
    assert np.allclose(steps, page.glued["d32_n10000"])


# How loud should a position be?


def test_lengths_of_token_and_position(page):
    r"""Suppose that the entries of an embedding have mean 0 and variance $1/d$. Then its
    $d$ squares add up to about 1, so its length is near 1. The encoding has length
    $\sqrt{d/2}$.

    Without the factor, the position drowns the token. With it, the token is longer than the
    position by the factor $\sqrt{2}$
    """
    embeddings = page.torch.embeddings
    assert abs(embeddings.mean()) < 1e-3
    assert embeddings.var() * 512 == pytest.approx(1, abs=0.01)
    token, position = length(embeddings).mean(), length(sinusoidal_encoding(1000, 512))
    assert token == pytest.approx(1, abs=0.01)
    assert np.allclose(position, (512 / 2) ** 0.5)
    assert np.allclose(512**0.5 * token / position, 2**0.5, atol=0.01)
    assert "embeddings are 1.0 long on average" in page.printed
    assert "positions are 16.0 long on average" in page.printed


# Five design choices


def test_a_sine_does_not_tell_rising_from_falling(page):
    """The sine is the same on the way up and on the way down. A table of sines also loses
    the even steps: at width 32, its steps are between … and … long.
    """
    assert np.isclose(np.sin(1), np.sin(np.pi - 1))
    assert np.cos(1) > 0 > np.cos(np.pi - 1)
    steps = length(np.diff(sinusoidal_encoding(1000, 32)[:, ::2], axis=0))
    assert (
        page.glued["sines_short"] == steps.min() < page.glued["sines_long"] == steps.max()
    )


def test_half_a_turn_is_the_most(page):
    r"""Half a turn per position, which is $\pi$ radians, is the most that makes sense.

    A clock that turns by $2\pi - \omega$ shows the same cosines as one that turns by
    $\omega$, with the sines negated.

    A clock that turns by exactly a sixth of the circle repeats itself after six positions.
    At 1 radian it never shows the same twice
    """
    for omega in (0.3, 1, 3):
        slow, fast = COUNT * omega, COUNT * (2 * np.pi - omega)
        assert np.allclose(np.cos(slow), np.cos(fast))
        assert np.allclose(np.sin(slow), -np.sin(fast))
    sixth = 2 * np.pi / 6
    assert np.allclose(np.sin(COUNT * sixth), np.sin((COUNT + 6) * sixth))
    assert np.allclose(np.cos(COUNT * sixth), np.cos((COUNT + 6) * sixth))
    assert len(np.unique(sinusoidal_encoding(10000, 2).round(6), axis=0)) == 10000


def test_evenly_spaced_clocks_come_back(page):
    r"""Try 16 evenly spaced frequencies instead: $1, \frac{15}{16}, \ldots,
    \frac{1}{16}$. All of them are multiples of the slowest, so all clocks come back
    together when the slowest completes a turn.

    With evenly spaced frequencies, the rows come close to row 0 near the offset 100, and at
    201 they are almost back. Row … is only … away from row 0, much closer than row 1. With the same
    factor, the distance stays above 3 from the offset 10 on.
    """
    angles = NUMBERS * np.arange(1, 17) / 16
    rows = np.concatenate([np.sin(angles), np.cos(angles)], axis=1)
    far = length(rows[1:] - rows[0])
    assert page.glued["equal_where"] == far.argmin() + 1
    assert page.glued["equal_near"] == pytest.approx(far.min())
    assert far.min() < 1
    assert page.glued["equal_where"] == 201
    assert page.glued["equal_near"] < far[0] / 4
    assert far[97:104].min() < far[0] / 2
    assert length(TRIES["clocks"][10:] - TRIES["clocks"][0]).min() > 3
    assert np.allclose(np.arange(1, 17) / 16 / (1 / 16) % 1, 0)
    kept, drawn = page.torch.apart["evenly spaced"], page.torch.apart["the same factor"]
    assert np.allclose(kept, far[:210], atol=0.001)
    assert np.allclose(
        drawn,
        length(sinusoidal_encoding(211, 32) - sinusoidal_encoding(1, 32))[1:],
        atol=0.001,
    )


def test_how_many_clocks_are_slow(page):
    """what other bases would do at width 32, where there are 16 clocks

    | base | clocks that need more than 2000 positions for a turn |

    Such a clock makes less than half a turn in a text of 1000 tokens, so its hand only
    sinks and never rises again.

    With the base 100 no clock can say that for such a text. With a million there are many,
    but most of them hardly move.

    a larger base suits longer texts, but it leaves fewer fast clocks
    """
    for base in (100, 10000, 1000000):
        turns = 2 * np.pi / frequencies(32, base=float(base))
        assert page.glued[f"slow_{base}"] == (turns > 2000).sum()
    assert page.glued["slow_100"] == 0 < page.glued["slow_10000"]
    assert page.glued["slow_10000"] < page.glued["slow_1000000"]
    assert (np.diff(np.cos(np.arange(1000) * 2 * np.pi / 2000)) < 0).all()
    assert len(frequencies(32)) == 16
    assert (turns > 20000).sum() > (turns > 2000).sum() / 2
    fast = [(frequencies(32, base=b) > 0.1).sum() for b in (100.0, 10000.0, 1e6)]
    assert fast[0] > fast[1] > fast[2]


def test_word_and_position_are_nearly_at_right_angles(page):
    """At width 512 the cosine between a word drawn at random and its position is … in size
    on average, nearly a right angle
    """
    P = sinusoidal_encoding(5000, 512)
    cosine = (WORDS * P).sum(1) / length(WORDS) / length(P)
    assert page.glued["cosine"] == pytest.approx(abs(cosine).mean())
    assert np.degrees(np.arccos(page.glued["cosine"])) > 85


# Play, costs and mistakes


def test_turns_of_the_explorer(page):
    """At position 5, 000101 in binary, the four clocks of width 8 have made …, …, … and …
    turns. At position 63, 111111 in binary, they have made …, …, … and ….

    With the base 10000, each of the four is ten times slower than the one before.

    The first clock keeps its speed, and all others become faster.
    """
    assert (5, 63) == (0b000101, 0b111111)
    assert frequencies(8, base=10.0)[0] == frequencies(8)[0] == 1
    assert (frequencies(8, base=10.0)[1:] > frequencies(8)[1:]).all()
    assert np.allclose(frequencies(8), [1, 1 / 10, 1 / 100, 1 / 1000])
    for i in (5, 63):
        glued = [page.glued[f"turn_{i}_{j}"] for j in range(4)]
        assert np.allclose(glued, i * frequencies(8) / (2 * np.pi))


def test_a_token_without_positions_gets_row_0(page):
    """A new token that is passed without positions gets row 0, and there is no error."""
    assert np.allclose(JaxEncoding(32)(jnp.zeros((1, 1, 32))), sinusoidal_encoding(1, 32))


def test_bfloat16_skips_integers(page):
    """from $2^8$ to $2^9$ it holds only every second integer, then every fourth, and so on.
    Of 4096 positions … are different in bfloat16. The first that is read as the one before
    is $2^8 + 1 = 257$.
    """
    kept = set(torch.arange(4097).bfloat16().int().tolist())
    for start, gap in ((0, 1), (256, 2), (512, 4), (1024, 8)):
        stop = max(2 * start, 256)
        assert kept & set(range(start, stop)) == set(range(start, stop, gap))
    casts = (
        torch.arange(4096).bfloat16().float().numpy(),
        np.asarray(jnp.arange(4096).astype(jnp.bfloat16).astype(float)),
    )
    for cast in casts:
        assert page.glued["kept"] == len(np.unique(cast)) == 769
        assert (cast[1:] == cast[:-1]).argmax() + 1 == 2**8 + 1


def test_most_tokens_share_a_row_in_bfloat16(page):
    """most tokens beyond $2^8 = 256$ share their row with a neighbor"""
    for n in (512, 4096):
        read = torch.arange(n + 1).bfloat16().int().numpy()
        shared = (read[257:-1] == read[256:-2]) | (read[257:-1] == read[258:])
        assert shared.mean() > 1 / 2


def test_angles_in_float32(page):
    """in float32, errors up to … below position 5000, where rounding at the end would cost
    less than a thousandth of that
    """
    P = sinusoidal_encoding(5000, 512)
    rounded = np.float32(10000) ** (-np.arange(0, 512, 2, dtype="f4") / np.float32(512))
    rough = np.sin(np.arange(5000, dtype="f4")[:, None] * rounded)
    assert page.glued["rough"] == abs(rough - P[:, ::2]).max()
    assert page.glued["rough"] > 1000 * abs(P.astype(np.float32) - P).max()


def test_words_without_a_scale(page):
    r"""with embeddings of length 1, drawn with variance $1/d$

    at width 512 the position is $\sqrt{256} = 16$ times as long as the word

    PyTorch's nn.Embedding starts at length $\sqrt{d}$ and needs no factor.
    """
    assert abs(length(WORDS).mean() - 1) < 0.01
    assert length(sinusoidal_encoding(1, 512))[0] / length(WORDS).mean() == pytest.approx(
        16, abs=0.1
    )
    drawn = torch.nn.Embedding(1000, 512).weight.norm(dim=1).mean()
    assert abs(drawn / 512**0.5 - 1) < 0.01


# Exercises


def test_twice_the_same_word(page):
    """Let the be the token $(0.5, -0.2)$. With one clock of frequency 1, what does the next
    layer receive at the positions 0 and 3?

    One word gives two different sums
    """
    assert ["the", "dog", "bites", "the", "man"].index("the", 1) == 3
    first, second = np.array([0.5, -0.2]) + sinusoidal_encoding(4, 2)[[0, 3]]
    assert not np.allclose(first, second)


def test_a_turn_in_1000_positions(page):
    r"""So $2\pi\,b^{30/32} = 1000$ and $b = (1000 / 2\pi)^{32/30}$"""
    b = (1000 / (2 * np.pi)) ** (32 / 30)
    assert 2 * np.pi * b ** (30 / 32) == pytest.approx(1000)
    assert 2 * np.pi / frequencies(32, base=b)[15] == pytest.approx(1000)


def test_other_tables(page):
    """The even columns, then the odd ones.

    That changes no length, no product and no equality.
    """
    assert "(a) equal: True" in page.printed
    assert "(b) largest change of a product: 0.0" in page.printed


def test_ten_times_as_far_is_a_quarter_less(page):
    """So ten times as far lowers the mean by the same amount at any distance, for $b =
    10000$ by a quarter
    """
    rows = sinusoidal_encoding(np.array([0, 10, 100, 1000]), 4096)
    assert np.allclose(np.diff(rows @ rows[0] / 2048)[1:], -1 / 4, atol=0.01)


def test_carry_over(page):
    r"""11 is 1011 and 12 is 1100. The three lowest bits change, so the distance is
    $\sqrt{3}$.
    """
    assert (f"{11:b}", f"{12:b}") == ("1011", "1100")
    assert 11 ^ 12 == 0b111
    assert "3 bits change, distance 1.73" in page.printed


def test_clocks_that_halve(page):
    """The factor is $b^{2/d} = 2$, so $b = 2^{16} = 65536$."""
    assert 2**16 == 65536
    assert np.isclose(65536 ** (2 / 32), 2)
    omega = frequencies(32, base=65536.0)
    assert np.allclose(omega[:-1] / omega[1:], 2)


def test_small_steps(page):
    r"""The frequencies are 1, 0.1, 0.01 and 0.001. The first clock gives
    $4\sin^2\frac{1}{2} < 0.92$

    together they give less than $0.01 + 0.0001 + 0.000001 < 0.02$. So the squared distance is below
    0.94.
    """
    assert np.allclose(frequencies(8), [1, 0.1, 0.01, 0.001])
    assert 4 * np.sin(1 / 2) ** 2 < 0.92
    assert 0.1**2 + 0.01**2 + 0.001**2 < 0.02
    here, there = sinusoidal_encoding(2, 8)
    assert ((there - here) ** 2).sum() < 0.92 + 0.02 < 1


def test_half_precision(page):
    """It keeps all 2049 from 0 to 2048. Beyond, it keeps every second one, which makes 1023
    from 2050 to 4094. Finally, 4095 is rounded to 4096, which is a new value. The sum is
    3073.
    """
    kept = np.unique(np.arange(4096).astype(np.float16))
    beyond = kept[(kept > 2048) & (kept < 4096)].astype(int)
    assert (kept <= 2048).sum() == 2049
    assert beyond.tolist() == list(range(2050, 4095, 2))
    assert len(beyond) == 1023
    assert np.float16(4095) == 4096
    assert len(kept) == 2049 + 1023 + 1 == 3073
