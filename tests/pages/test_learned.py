"""Learned positional encoding."""

import math
from itertools import pairwise

import jax.numpy as jnp
import numpy as np
import pytest
import torch

from posattn import reference
from posattn.reference import sinusoidal_encoding
from posattn.torch import LearnedPositionalEncoding, PositionalEncoding

N, D = 512, 32
DRAWN = np.random.default_rng(0).normal(0, 0.02, (N, D))
SINUSOID = sinusoidal_encoding(N, D)


def best_shift(table):
    """The matrix that takes each row nearest to the next one, for columns, as in the
    equation.
    """
    return np.linalg.lstsq(table[:-1], table[1:])[0].T


def missed(table, A):
    """What that matrix misses, row by row as the equation has it, before the root."""
    above = sum(((A @ t - after) ** 2).sum() for t, after in pairwise(table))
    return above / sum((after**2).sum() for after in table[1:])


def stretched(table, n):
    """A table whose columns are interpolated at n places."""
    places = np.linspace(0, len(table) - 1, n)
    columns = [np.interp(places, range(len(table)), column) for column in table.T]
    return np.stack(columns, axis=1)


def test_a_table_learns_where_it_is_read(page):
    """the queries 1 to 4 look one place back with nearly all their weight

    The queries 5 to 7 look everywhere. Their rows were never read, so they never learned
    the rule.

    a table must learn it place by place

    Where the table was trained, the weights one place back are near 1. Where it was not,
    they are about an eighth, which is pure chance among eight keys.
    """
    trained = page.torch.trained
    assert trained.diagonal(-1)[:4].min() > 0.99
    assert abs(trained[5:] - 1 / 8).max() < 0.03
    assert abs(page.torch.drawn - 1 / 8).max() < 0.03


def test_a_look_up_and_a_sum(page):
    """The next layer receives $(1.1, 0.0)$, $(0.0, 1.2)$ and $(0.9, 1.1)$."""
    tokens = np.array([*page.torch.tokens.values()], float)
    layer = reference.LearnedPositionalEncoding(page.torch.table)
    assert np.allclose(layer(tokens), [[1.1, 0], [0, 1.2], [0.9, 1.1]])


def test_which_rows_learn(page):
    """Row 0 is read twice, row 1 twice, and row 2 once, so row 0 receives two
    gradients, one from each text, and they add up. If the table has a row 3, nobody reads
    it, and it receives none.

    The sum runs over all texts of the batch, and it is zero for a position that no token
    has.
    """
    assert np.bincount([0, 1, 2, 0, 1]).tolist() == [2, 2, 1]
    layer = LearnedPositionalEncoding(4, 2)
    three_words, two_words = layer(torch.zeros(2, 3, 2))
    (three_words.sum() + two_words[:2].sum()).backward()
    assert layer.table.grad[:, 0].tolist() == [2, 2, 1, 0]


def test_eq_learned_encoding(page):
    r"""$$ \mathbf{y}_i = \mathbf{x}_i + \mathbf{t}_i, \quad i = 0, \ldots, n - 1, \quad n \leq n_{\max}. $$"""
    layer, x = LearnedPositionalEncoding(6, 2), torch.randn(3, 4, 2)
    y = layer(x)
    for i in range(4):
        assert torch.allclose(y[:, i], x[:, i] + layer.table[i])


def test_eq_table_gradient(page):
    r"""$$ \frac{\partial L}{\partial \mathbf{t}_i} = \sum_{\text{tokens at position } i} \frac{\partial L}{\partial \mathbf{y}}, $$"""
    layer, slope = LearnedPositionalEncoding(6, 2), torch.randn(3, 4, 2)
    (layer(torch.randn(3, 4, 2)) * slope).sum().backward()
    for i in range(6):
        want = slope[:, i].sum(0) if i < 4 else torch.zeros(2)
        assert torch.allclose(layer.table.grad[i], want)


def test_rows_begin_short(page):
    r"""with mean 0 and standard deviation 0.02. A row is then about $0.02\sqrt{d}$ long"""
    for d in (64, 768):
        rows = reference.LearnedPositionalEncoding.init(
            np.random.default_rng(0), 512, d
        ).table
        assert abs(np.linalg.norm(rows, axis=1).mean() / (0.02 * d**0.5) - 1) < 0.02


def test_rows_that_were_not_read_stay(page):
    """no error on longer texts, but rows that learned nothing

    So a row that is never read learns nothing. With plain gradient descent it keeps the random
    numbers it was drawn with.

    The assertion at the end says that rows 5 to 7 have not changed at all.
    """
    start, weight = page.torch.start, page.torch.weight
    tables = (
        page.torch.train_torch(torch.from_numpy(start), torch.from_numpy(weight), n=5),
        page.jax.train_jax(jnp.asarray(start), jnp.asarray(weight), n=5),
    )
    for table in map(np.asarray, tables):
        assert np.array_equal(table[5:], start[5:])
        assert not np.array_equal(table[:5], start[:5])


def test_weight_decay_shrinks_rows_that_were_not_read(page):
    """AdamW has weight decay, which shrinks every row of the table a little in every step, read or
    not. A row that is never read then still holds its random direction, but it gets shorter and
    shorter.

    They are still as drawn, or shorter if the optimizer has weight decay.
    """
    for decay, factor in ((None, (1 - 1e-3 * 1e-2) ** 50), (0.0, 1.0)):
        layer = LearnedPositionalEncoding(8, 16)
        drawn = layer.table.detach().clone()
        options = {} if decay is None else {"weight_decay": decay}
        optimizer = torch.optim.AdamW(layer.parameters(), **options)
        for _ in range(50):
            optimizer.zero_grad()
            layer(torch.ones(5, 16)).square().sum().backward()
            optimizer.step()
        assert (layer.table.grad[5:] == 0).all()
        assert torch.allclose(layer.table[5:], factor * drawn[5:], rtol=1e-5)
        assert torch.equal(layer.table[5:], drawn[5:]) == (decay == 0.0)


def test_the_table_ends(page):
    """a longer text, a position beyond the end, and a position between two rows are errors

    longest sequence | no limit | $n_{\\max}$ |

    fractional positions | yes | no |
    """
    tables = {np.array: reference.LearnedPositionalEncoding(np.zeros((10, 4)))}
    tables[torch.tensor] = LearnedPositionalEncoding(10, 4)
    for make, layer in tables.items():
        for n, positions, named in ((11, None, "x"), (1, [10], "positions")):
            with pytest.raises(ValueError, match=f"^{named} "):
                layer(make([[0.0] * 4] * n), positions=positions and make(positions))
        with pytest.raises((TypeError, ValueError), match=r"^positions "):
            layer(make([[0.0] * 4]), positions=make([2.5]))
        layer(make([[0.0] * 4] * 10))
    assert np.isfinite(sinusoidal_encoding(np.array([2.5, 1e6]), 32)).all()


def test_eq_interpolated_table(page):
    r"""Position $i$ falls at the place $\frac{i\,(n_{\max} - 1)}{n' - 1} = k + f$, with a
    whole $k$ and $0 \leq f < 1$. Then interpolate between the rows on both sides:

    $$ \mathbf{t}'_i = (1 - f)\,\mathbf{t}_k + f\,\mathbf{t}_{k+1} , $$

    In NumPy this is one call of numpy.interp for each column
    """
    T = sinusoidal_encoding(8, 4)
    longer = stretched(T, 16)
    for i in range(16):
        k, f = divmod(i * 7 / 15, 1)
        k = int(k)
        mixed = T[7] if k == 7 else (1 - f) * T[k] + f * T[k + 1]
        assert np.allclose(longer[i], mixed)


def test_three_rows_for_five_tokens(page):
    """The new rows 0, 2 and 4 are the old ones, and the new row 1 lies halfway between the
    old rows 0 and 1.

    The second new row is $(0.05, 0.1)$, the mean of $(0.1, 0.0)$ and $(0.0, 0.2)$.
    """
    old, new = page.torch.table, page.torch.stretched
    assert np.allclose(new[::2], old)
    assert np.allclose(new[1], (old[0] + old[1]) / 2)
    assert np.allclose(new[1], [0.05, 0.1])


def test_pytorch_interpolates_in_two_dimensions(page):
    """In PyTorch, torch.nn.functional.interpolate does this with mode="bilinear" and
    align_corners=True, on a table of shape (1, d, 14, 14), and gives the same numbers.

    The vision transformers (ViT) of timm and of transformers use mode="bicubic" and
    align_corners=False, and timm also sets antialias=True. Their numbers differ from ours
    """
    rows, columns = np.meshgrid(range(14), range(14), indexing="ij")
    table = torch.tensor(np.stack([rows, columns])[None].astype(float))
    larger = torch.nn.functional.interpolate(
        table, size=(24, 24), mode="bilinear", align_corners=True
    )
    assert np.allclose(larger[0, 0], page.torch.rows_2d)
    assert np.allclose(larger[0, 1], page.torch.columns_2d)
    for antialias in (False, True):
        theirs = torch.nn.functional.interpolate(
            table, size=(24, 24), mode="bicubic", align_corners=False, antialias=antialias
        )
        assert abs(theirs - larger).max() > 0.05


def test_an_image_is_stretched_in_two_dimensions(page):
    r"""With patches of 16 pixels, an image of 224 by 224 pixels has $14 \cdot 14 = 196$ of
    them. Fine-tune on images of 384 by 384 pixels, and there are $24 \cdot 24 = 576$.

    Stretched in two dimensions, the last patch of the second row is still at the right
    edge, which is column 13. Stretched as one line, it believes that it is near the left
    edge, and there is no error.
    """
    assert (224 // 16) ** 2 == 14 * 14 == 196
    assert (384 // 16) ** 2 == 24 * 24 == 576
    two, one = page.torch.columns_2d, page.torch.columns_1d
    assert np.allclose(page.torch.rows_2d, np.linspace(0, 13, 24)[:, None])
    assert np.allclose(two, np.linspace(0, 13, 24))
    assert two[1, 23] == pytest.approx(13)
    assert one[1, 23] < 3


def test_197_rows_form_no_square(page):
    """because 197 rows form no square

    keep the row of the class token as it is, and interpolate the other 196
    """
    assert math.isqrt(197) ** 2 != 197
    assert math.isqrt(196) ** 2 == 196


def test_one_token_too_many(page):
    """Give GPT-2 a text of 1025 tokens

    The table has 1024 rows, for the positions 0 to 1023, and the last token asked for a row
    that does not exist.

    On a CPU it is IndexError: index out of range in self.
    """
    table = torch.nn.Embedding(1024, 4)
    table(torch.arange(1024))
    with pytest.raises(IndexError, match=r"^index out of range in self$"):
        table(torch.arange(1025))


def test_parameters_are_counted(page):
    r"""The table has $n_{\max}\,d$ parameters, and the sinusoid none.

    has 512 positions of width 768, which makes … parameters

    has a table of 1024 rows of width 768. That makes … parameters

    parameters | none | $n_{\max}\,d$ |
    """
    for model, rows in {"bert": 512, "gpt2": 1024}.items():
        assert page.glued[f"{model}_parameters"] == rows * 768
    assert not [*PositionalEncoding(32).parameters()]


def test_a_table_can_be_the_sinusoid(page):
    r"""Copy the rows of $\mathbf{P}$ into $\mathbf{T}$, and the two layers agree."""
    copied = reference.LearnedPositionalEncoding(sinusoidal_encoding(60, 32))
    x = np.ones((60, 32))
    assert np.array_equal(copied(x), reference.PositionalEncoding(32)(x))


def test_eq_shift_residual(page):
    r"""$$ r(\mathbf{T}) = \min_{\mathbf{A}} \left( \frac{\sum_{i} \lVert \mathbf{A}\,\mathbf{t}_i - \mathbf{t}_{i+1} \rVert^2}{\sum_{i} \lVert \mathbf{t}_{i+1} \rVert^2} \right)^{1/2}, \qquad i = 0, \ldots, n_{\max} - 2 . $$

    a table as it is drawn has $r =$ …. The sinusoid has 0, up to rounding.

    If one matrix takes every row exactly to the next, then $r = 0$. The worst case is $r =
    1$, where no matrix does better than $\mathbf{A} = \mathbf{0}$.

    shift is one matrix | yes, for even $d$ | not in general |
    """
    A = best_shift(DRAWN)
    nudge = 1e-3 * np.random.default_rng(0).normal(size=A.shape)
    assert missed(DRAWN, A + nudge) > missed(DRAWN, A)
    assert page.glued["random_residual"] == pytest.approx(missed(DRAWN, A) ** 0.5)
    assert page.glued["random_residual"] > 0.9
    assert missed(SINUSOID, best_shift(SINUSOID)) ** 0.5 < 1e-10
    odd = sinusoidal_encoding(512, 3)
    assert missed(odd, best_shift(odd)) ** 0.5 > 1e-4
    assert missed(DRAWN, np.zeros((D, D))) == 1


def test_chance_fits_some_directions(page):
    r"""because $d$ directions out of $n_{\max} - 1$ can be fitted by chance: $\sqrt{1
    - d/(n_{\max}-1)} \approx$ …
    """
    assert page.glued["expected_residual"] == np.sqrt(1 - D / (N - 1))
    assert abs(page.glued["random_residual"] - page.glued["expected_residual"]) < 0.005


def test_products_of_rows_depend_on_more_than_the_offset(page):
    """Nor does anything guarantee that products of rows depend only on the offset"""
    for table, toeplitz in ((DRAWN, False), (SINUSOID, True)):
        products = table @ table.T
        same = np.allclose(products[1:, 1:], products[:-1, :-1], atol=1e-6)
        assert same == toeplitz


def test_jax_clips_an_index(page):
    """the last row, and no error

    The fix: table.at[positions].get(mode="fill"), or check the length outside.
    """
    table, outside = jnp.arange(3.0), jnp.array([7])
    assert table[outside].tolist() == [2]
    assert jnp.isnan(table.at[outside].get(mode="fill")).all()


def test_embeddings_as_they_come_are_long(page):
    r"""rows drawn with standard deviation 1, about $\sqrt{768} \approx 28$ long, which
    drown the tokens. With 0.02 they are $0.02\,\sqrt{768} \approx 0.55$ long.
    """
    assert round(768**0.5) == 28
    assert round(0.02 * 768**0.5, 2) == 0.55
    drawn = torch.nn.Embedding(512, 768).weight.norm(dim=1).mean()
    assert abs(drawn / 768**0.5 - 1) < 0.01
    ours = reference.LearnedPositionalEncoding.init(
        np.random.default_rng(0), 512, 768
    ).table
    assert abs(np.linalg.norm(ours, axis=1).mean() / 0.55 - 1) < 0.03


def test_what_it_weighs(page):
    """The width cancels, and $1024 / 50257$ is about 2 percent."""
    assert round(100 * 1024 / 50257) == 2


def test_no_position_at_all(page):
    """The table of zeros is the identity. The layer stays equivariant for every table whose
    rows are all equal
    """
    X, order = np.random.default_rng(0).normal(size=(5, 4)), [3, 0, 4, 1, 2]
    assert np.array_equal(reference.LearnedPositionalEncoding(np.zeros((5, 4)))(X), X)
    equal = reference.LearnedPositionalEncoding(np.tile(X[0], (5, 1)))
    y, permuted = (
        reference.scaled_dot_product_attention(z, z, z) for z in (equal(X), equal(X[order]))
    )
    assert np.allclose(permuted, y[order])
    assert np.ptp(y, axis=0).min() > 0.01


def test_a_short_table(page):
    r"""Let all rows but the last be linearly independent, so $n_{\max} - 1 \leq d$. Show
    that $r(\mathbf{T}) = 0$.
    """
    short = np.random.default_rng(0).normal(size=(8, 16))
    assert missed(short, best_shift(short)) ** 0.5 < 1e-8


def test_stretching_halves_the_steps(page):
    """Stretching keeps the order of the places, but it also brings neighbors closer together than
    the model has ever seen them

    Only stretching keeps the order, with steps about half as long.
    """
    rows = stretched(SINUSOID, 1024)
    step = np.linalg.norm(np.diff(rows, axis=0), axis=1)
    known = np.linalg.norm(np.diff(SINUSOID, axis=0), axis=1)
    assert rows.shape == (1024, 32)
    assert (0.45 * known.max() < step).all()
    assert (step < 0.5 * known.min()).all()
