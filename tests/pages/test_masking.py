"""Masking."""

from itertools import combinations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from posattn import jax as jax_column
from posattn.reference import (
    MultiHeadAttention,
    causal_mask,
    length_mask,
    masked_softmax,
    scaled_dot_product_attention,
    window_mask,
)
from posattn.torch import scaled_dot_product_attention as attend

PLACES = np.arange(8)
BY_HAND = np.array([[0, np.log(2), np.log(5)]])  # dog, bites, man
N, WINDOW = 12, 4  # of the page's windows
SOME = np.random.default_rng(1).random((5, 7)) < 0.5
SOME[0] = False  # a row that sees nothing
SCORES = np.random.default_rng(2).normal(size=(5, 7))
Q, K, V = torch.from_numpy(np.random.default_rng(0).normal(size=(3, 1, 5, 4)))


def windows(page):
    """Four masks that are called a window of 4."""
    return [
        window_mask(N, N, WINDOW),
        page.torch.longformer,
        page.torch.paper,
        page.torch.cache,
    ]


def counts(page):
    """How many keys the query in the middle sees through each of them."""
    return [mask[6].sum() for mask in windows(page)]


def test_words(page):
    """Dog bites man has three words and the dog bites the man has five"""
    three, five = "dog bites man", "the dog bites the man"
    assert (three.count(" ") + 1, five.count(" ") + 1) == (3, 5)


def test_five_masks_are_drawn(page):
    """Five masks of eight queries and eight keys."""
    assert [mask.shape for mask in page.torch.drawn] == [(8, 8)] * 5


def test_padding_is_hidden_from_all_rows(page):
    """The first mask hides padding. It hides the same 3 keys of 8 from every row."""
    padding = page.torch.drawn[0]
    assert (padding == padding[0]).all()
    assert (~padding[0]).sum() == 3
    assert not padding[:, 5:].any()


def test_a_triangle_and_a_band(page):
    """No query sees a key after its own place, so the triangle grows by one key per row.

    It is a band: the query's own place and two on either side.
    """
    _, causal, window, *_ = page.torch.drawn
    assert np.array_equal(causal.sum(1), np.arange(1, 9))
    assert np.array_equal(causal, np.tri(8))
    assert np.array_equal(window, abs(PLACES - PLACES[:, None]) <= 2)


def test_masks_combine(page):
    """A key that must pass every rule needs &. An exception needs |, such as the global key 0 of the
    last panel, which every later query may see.
    """
    _, causal, window, both, with_global = page.torch.drawn
    assert np.array_equal(both, np.minimum(causal, window))
    assert with_global[:, 0].all()
    assert np.array_equal(with_global[:, 1:], both[:, 1:])


def test_scores_by_hand(page):
    r"""let the query of bites have the scores $0$, $\ln 2$ and $\ln 5$. Their exponentials are 1, 2
    and 5, so the weights are $\tfrac18$, $\tfrac28$ and $\tfrac58$.
    """
    assert np.allclose(np.exp(BY_HAND), [[1, 2, 5]])
    assert np.allclose(masked_softmax(BY_HAND), [[1 / 8, 2 / 8, 5 / 8]])


def test_man_is_hidden(page):
    r"""The exponentials 1 and 2 are left, so the weights are $\tfrac13$, $\tfrac23$ and $0$."""
    mask = np.array([[True, True, False]])
    assert np.allclose(masked_softmax(BY_HAND, mask), [[1 / 3, 2 / 3, 0]])
    assert "man hidden: [0.333 0.667 0.   ]\n" in page.printed


def test_finished_weights_times_zero(page):
    r"""because then you would get $\tfrac18$, $\tfrac28$ and $0$, which do not sum to 1."""
    hidden = masked_softmax(BY_HAND) * [1, 1, 0]
    assert np.allclose(hidden, [[1 / 8, 2 / 8, 0]])
    assert hidden.sum() < 0.9


def test_eq_masked_softmax(page):
    r"""$$ \alpha_{ij} = \frac{m_{ij} \exp(s_{ij})}{\sum_l m_{il} \exp(s_{il})}, \qquad \text{where } 0/0 = 0. $$"""
    top = SOME * np.exp(SCORES)
    bottom = top.sum(1, keepdims=True)
    shares = np.divide(top, bottom, out=np.zeros_like(top), where=bottom > 0)
    assert not shares[0].any()
    assert np.allclose(masked_softmax(SCORES, SOME), shares)


def test_a_row_without_keys_from_scratch(page):
    r"""Its largest score is then $-\infty$, and $-\infty - (-\infty)$ is NaN. So we put a finite number
    there, $-10^{30}$ in the code. The sum of such a row is 0, and we divide by 1 instead.
    """
    assert np.isnan(-np.inf - -np.inf)
    nothing = np.zeros((1, 3), bool)
    assert not page.torch.softmax_torch(torch.zeros(1, 3), torch.tensor(nothing)).any()
    assert not page.jax.softmax_jax(jnp.zeros((1, 3)), jnp.asarray(nothing)).any()


def test_four_windows_differ(page):
    """ "A window of 4" means four different things in print"""
    assert not any(np.array_equal(a, b) for a, b in combinations(windows(page), 2))


def test_three_arguments(page):
    """But it takes a different argument each time: 3, 5 and 4 for what all of them call 4."""
    _, *theirs = windows(page)
    for mask, w in zip(theirs, (3, 5, 4), strict=True):
        ours = window_mask(N, N, w)
        assert np.array_equal(mask, ours if mask[0, 1] else ours & causal_mask(N))


def test_shapes_of_masks(page):
    """A length mask has a 1 where the queries go, because it is the same for all of them. The scores of
    several heads have one more axis, in front of the queries. The layer adds it to your mask, but
    scaled_dot_product_attention does not, so there you write mask[:, None].
    """
    real = length_mask(np.array([3, 5]), 5)
    mask = real & causal_mask(5)
    assert (real.shape, mask.shape) == ((2, 1, 5), (2, 5, 5))
    for line in (
        "length mask: (2, 1, 5) = batch, 1, keys\n",
        "causal mask: (5, 5) = queries, keys\n",
        "both:        (2, 5, 5) = batch, queries, keys\n",
        "for heads:   (2, 1, 5, 5) = batch, 1, queries, keys\n",
    ):
        assert line in page.printed
    draw = np.random.default_rng(0)
    heads = draw.normal(size=(2, 4, 5, 2))
    with pytest.raises(ValueError, match="mask must have a shape"):
        scaled_dot_product_attention(heads, heads, heads, mask=mask)
    y = scaled_dot_product_attention(heads, heads, heads, mask=mask[:, None])
    one = scaled_dot_product_attention(heads[0, 3], heads[0, 3], heads[0, 3], mask=mask[0])
    assert np.allclose(y[0, 3], one)
    layer = MultiHeadAttention.init(draw, 8, 4)
    x = draw.normal(size=(2, 5, 8))
    assert np.allclose(layer(x, mask=mask), layer(x, mask=real, causal=True))


def test_a_single_new_query(page):
    """A single new query after four old tokens, for example, has $i = 0$ and five keys, and it stands at
    position $0 + 5 - 1 = 4$.
    """
    assert np.flatnonzero(window_mask(1, 5, 1)[0]).tolist() == [0 + 5 - 1] == [4]


def test_our_window(page):
    """| here, window_mask with $w$ | $i - w + 1$ to $i + w - 1$ | $2w - 1$ | 7 |"""
    for w in range(1, 9):
        seen = np.flatnonzero(window_mask(21, 21, w)[10])
        assert np.array_equal(seen, np.arange(10 - w + 1, 10 + w - 1 + 1))
        assert len(seen) == 2 * w - 1
    assert counts(page)[0] == 7


def test_the_window_of_longformer(page):
    """$w$ | $i - w/2$ to $i + w/2$ | $w + 1$ | 5 |"""
    assert np.flatnonzero(page.torch.longformer[6]).tolist() == [4, 5, 6, 7, 8]
    assert counts(page)[1] == WINDOW + 1
    assert "Longformer      5 keys, entries that differ from ours: 0\n" in page.printed


def test_the_window_of_mistrals_text(page):
    """the paper, $W$ | $i - W$ to $i$ | $W + 1$ | 5 |"""
    assert np.flatnonzero(page.torch.paper[6]).tolist() == [2, 3, 4, 5, 6]
    assert counts(page)[2] == WINDOW + 1
    assert "Mistral's paper 5 keys, entries that differ from ours: 0\n" in page.printed


def test_the_window_of_mistrals_cache(page):
    """| Mistral 7B, a cache with $W$ places; here, with & causal_mask | $i - W + 1$ to $i$ | $W$ | 4 |

    decodes from a cache that holds one key less
    """
    assert np.flatnonzero(page.torch.cache[6]).tolist() == [3, 4, 5, 6]
    assert counts(page)[3] == WINDOW == counts(page)[2] - 1
    assert "Mistral's cache 4 keys, entries that differ from ours: 0\n" in page.printed


def test_windows_are_cut_at_the_ends(page):
    """The numbers in the table hold away from both ends."""
    for mask in windows(page):
        assert mask[[0, -1]].sum(1).min() < mask[6].sum()


def test_a_row_that_sees_nothing(page):
    """This library returns zeros there, with zero gradients, so a query that finds nothing adds nothing to
    the model.

    Output and gradients of the empty rows are all exactly 0.
    """
    line = "no keys: largest number in output and gradients 0.0\n"
    assert page.printed.count(line) == 2


def test_nan_in_the_padding(page):
    r"""A weight of zero does not stop it, since $0 \cdot \mathrm{NaN} = \mathrm{NaN}$.

    the library zeroes every key and value that no query may attend to. The frameworks' own functions
    do not.

    one padded place is enough to spoil every number that the framework returns
    """
    assert np.isnan(0 * np.nan)
    assert page.printed.count("NaN in the padding: the library returns 0 of 20 as NaN") == 2
    assert page.printed.count("NaN in the padding: the framework returns 20 of 20") == 2


def test_nan_where_one_query_may_attend(page):
    """A key that even one query may attend to is kept as it is, and its NaN may reach the other
    rows.
    """
    one = torch.ones(5, 5, dtype=torch.bool)
    one[1:, 4] = False
    spoilt = V.clone()
    spoilt[:, 4] = torch.nan
    assert attend(Q, spoilt, spoilt, mask=one)[0, 1:].isnan().any()
    one[0, 4] = False
    assert not attend(Q, spoilt, spoilt, mask=one).isnan().any()


def test_what_frameworks_return(page):
    """| torch.nn.functional.scaled_dot_product_attention | … |

    | torch.nn.MultiheadAttention, need_weights=False | … |

    | torch.nn.MultiheadAttention, weights returned | … |

    | jax.nn.dot_product_attention | … |

    | jax.nn.softmax(..., where=mask), times the values | … |

    torch.nn.MultiheadAttention returns one of two things, depending on whether you ask for its
    weights.

    the frameworks disagree with each other, and one layer even disagrees with itself

    If your model gives NaN only while you look at its weights

    This is what five calls returned when this page was built, for 5 queries, 5 keys and nothing
    allowed
    """
    q, k, v = (x.float() for x in (Q, K, V))
    nothing = torch.zeros(5, 5, dtype=torch.bool)
    layer = torch.nn.MultiheadAttention(4, 1, bias=False, batch_first=True)
    never = jnp.zeros((1, 1, 5, 5), bool)
    heads = [jnp.asarray(x.numpy())[:, :, None] for x in (q, k, v)]
    answers = [
        torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=nothing),
        layer(q, k, v, attn_mask=~nothing, need_weights=False)[0].detach(),
        layer(q, k, v, attn_mask=~nothing, need_weights=True)[0].detach(),
        jax.nn.dot_product_attention(*heads, mask=never)[:, :, 0],
        jax.nn.softmax(jnp.zeros((5, 5)), where=never[0, 0]) @ v.numpy(),
    ]
    mean = v.mean(1, keepdim=True).numpy()
    kinds = {"zeros": 0 * mean, "NaN": np.nan * mean, "the mean of all values": mean}
    said = [page.glued[f"masked_row_{number}"] for number in range(5)]
    for answer, kind in zip(answers, said, strict=True):
        assert np.allclose(answer, kinds[kind], atol=1e-6, equal_nan=True)
    assert said[1] != said[2] == "NaN"
    assert said[0] != said[3]


def test_decoding_equals_prefilling(page):
    """We align queries to the end, so causal=True is right for both, but the frameworks' own flag aligns
    queries to the start.

    A single new query then counts as the first token, sees only the first key, and returns the first
    value. The last line of the cell shows it.

    the framework's last output is the first value, so its query saw one key of five

    the first value for every query, as printed above
    """
    for line in (
        "one by one and all at once differ by 0.000000\n",
        "the framework's last output and the first value differ by 0.000000\n",
    ):
        assert page.printed.count(line) == 2


def test_a_length_mask_says_nothing_about_order(page):
    """And a length mask says nothing about order."""
    four = (torch.arange(5) < 4)[None]
    order = [2, 0, 3, 1, 4]
    shuffled = attend(Q, K[:, order], V[:, order], mask=four)
    assert torch.allclose(attend(Q, K, V, mask=four), shuffled)
    assert not torch.allclose(attend(Q, K, V, mask=four), attend(Q, K, V))


LOSSES = np.array([1, 1, 1, 0, 0, 3, 3, 3, 3, 3.0])  # of the small batch; 0 for padding
REAL = np.array([1, 1, 1, 0, 0, 1, 1, 1, 1, 1])


def test_eq_masked_loss(page):
    r"""$$ L = \frac{\sum_i m_i\, \ell_i}{\sum_i m_i} . $$

    It is the number of real targets, not the number of positions.

    the 8 real targets: $(3 \cdot 1 + 5 \cdot 3)/8$ | 2.25

    In code, the usual way is an ignore index: a target that isn't a token, which tells the loss to
    skip the position.

    PyTorch's is $-100$ unless you choose another.
    """
    assert (REAL * LOSSES).sum() / REAL.sum() == 18 / 8 == 2.25
    rng = np.random.default_rng(5)
    logits = torch.from_numpy(rng.normal(size=(6, 4)))
    targets = torch.tensor([1, -100, 3, 0, -100, 2])
    m = (targets != -100).numpy()
    log_p = torch.log_softmax(logits, -1).numpy()
    losses = -log_p[np.arange(6), np.where(m, targets, 0)]
    L = (m * losses).sum() / m.sum()
    assert np.isclose(torch.nn.functional.cross_entropy(logits, targets), L)


def test_the_loss_of_a_small_batch(page):
    r"""padding set to 0, divided by all 10 positions: $(3 \cdot 1 + 5 \cdot 3)/10$ | 1.80

    each sentence by itself, then the two means: $(1 + 3)/2$ | 2.00

    You would get the same 1.80 by counting padding as targets, once the model has learned that
    padding follows padding and its loss there is 0.

    The third row counts a token of the short sentence for more than a token of the long one.
    """
    assert LOSSES.mean() == 1.8
    means = LOSSES[:5].sum() / 3, LOSSES[5:].mean()
    assert np.mean(means) == 2
    assert 1 / 3 / 2 > 1 / 5 / 2  # the share of a token in the mean of means


def test_more_padding_looks_better(page):
    """the more of it in a batch, the better the loss and the smaller the gradient"""
    targets = torch.tensor([1, 3, 2])
    seen = []
    for padding in (0, 2, 5):
        logits = torch.zeros(3 + padding, 4, requires_grad=True)
        losses = torch.nn.functional.cross_entropy(logits[:3], targets, reduction="none")
        loss = losses.sum() / len(logits)
        loss.backward()
        seen.append((loss.item(), logits.grad.norm().item()))
    assert seen == sorted(seen, reverse=True)
    assert seen[0][1] > seen[1][1] > seen[2][1]


@pytest.mark.parametrize("column", ["torch", "jax"])
def test_the_loss_in_code(page, column):
    """The second line is three fifths of the first

    it trains the model to predict padding
    """
    names = getattr(page, column)
    right, too_small = float(names.right), float(names.too_small)
    assert too_small == pytest.approx(3 / 5 * right)
    logits = np.random.default_rng(0).normal(size=(5, 5))
    log_p = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    assert right == pytest.approx(-log_p[[0, 1, 2], [2, 3, 4]].mean(), rel=1e-5)
    counted = -log_p[np.arange(5), [2, 3, 4, 0, 0]].mean()
    assert float(names.padding_learned) == pytest.approx(counted, rel=1e-5)
    assert page.printed.count(f"over the 3 real targets:          {right:.3f}\n") == 2


def test_gradient_accumulation(page):
    """If each small batch divides by its own number of tokens, the result is a mean of means.

    The cure is to add up the sums, count the real targets of all the small batches, and divide once.

    The means are 1 and 3, and their average is 2. Adding up first gives $(3 + 15)/(3 + 5) = 2.25$,
    the loss of the whole batch.
    """
    logits = torch.from_numpy(np.random.default_rng(4).normal(size=(8, 5)))
    targets = torch.tensor([1, 2, 3, 0, 4, 4, 1, 2])
    loss = torch.nn.functional.cross_entropy
    parts = [(logits[:3], targets[:3]), (logits[3:], targets[3:])]
    whole = loss(logits, targets)
    assert not np.isclose(sum(loss(*part) for part in parts) / 2, whole)
    assert np.isclose(sum(loss(*part, reduction="sum") for part in parts) / 8, whole)
    assert "mean of the means: 2.0\n" in page.printed
    assert "sum over count:    2.25\n" in page.printed


def test_a_batch_without_targets(page):
    """PyTorch's cross_entropy then returns NaN, but its gradients are zero

    If you wrote the division yourself, the gradients are NaN too, and one step ruins the model. Skip
    such a batch, or divide by at least 1.
    """
    nothing = torch.full((3,), -100)
    logits = torch.zeros(3, 4, requires_grad=True)
    loss = torch.nn.functional.cross_entropy(logits, nothing)
    loss.backward()
    assert loss.isnan()
    assert not logits.grad.any()

    def own(logits, least):
        m = jnp.zeros(3)
        losses = -jax.nn.log_softmax(logits)[:, 0]
        return (losses * m).sum() / jnp.maximum(m.sum(), least)

    assert jnp.isnan(jax.grad(own)(jnp.zeros((3, 4)), 0)).all()
    assert not jax.grad(own)(jnp.zeros((3, 4)), 1).any()


def test_a_model_that_never_stops(page):
    """Every real end has been ignored along with the padding"""
    end = 4
    logits = torch.zeros(5, 5, requires_grad=True)
    targets = torch.tensor([2, 3, end, end, end])  # one real end, and padding
    torch.nn.functional.cross_entropy(logits, targets, ignore_index=end).backward()
    assert not logits.grad[2].any()
    assert logits.grad[:2].any()


def test_padding_has_queries_as_well(page):
    """But padding has queries as well, and each of them gets an output and a prediction, which no
    attention mask prevents.
    """
    four = (torch.arange(5) < 4)[None]
    assert (attend(Q, K, V, mask=four)[0, 4] != 0).all()


def test_no_flag_for_a_single_query(page):
    """no flag for a single query, or causal=True here"""
    plain = torch.nn.functional.scaled_dot_product_attention(Q[:, 4:], K, V)
    assert torch.allclose(plain, attend(Q, K, V, causal=True)[:, 4:])
    assert torch.allclose(plain, attend(Q[:, 4:], K, V, causal=True))


@pytest.mark.parametrize("large", [-1e6, -1e9])
def test_a_large_negative_number(page, large):
    """nothing, as long as each row has a key left

    A row without keys becomes the mean of all values, padding included

    In float16, which ends at 65504, such a number doesn't exist. NumPy and JAX turn it into minus
    infinity, and a plain softmax of the row is NaN. PyTorch's masked_fill refuses: RuntimeError: value
    cannot be converted to type c10::Half without overflow.
    """
    right = masked_softmax(SCORES, SOME)
    replaced = masked_softmax(np.where(SOME, SCORES, large))
    added = masked_softmax(SCORES + np.where(SOME, 0, large))
    assert np.allclose(replaced[1:], right[1:])
    assert np.allclose(added[1:], right[1:])
    assert np.allclose(replaced[0], 1 / 7)
    with np.errstate(over="ignore", invalid="ignore"):
        half = np.float16(large)
        assert np.isneginf(half)
        assert np.isnan(half - half)
    assert np.finfo(np.float16).max == torch.finfo(torch.float16).max == 65504
    mask = jnp.array([True, False])
    assert jnp.isneginf(jnp.where(mask, jnp.zeros(2, jnp.float16), large)[1])
    refusal = "^value cannot be converted to type c10::Half without overflow$"
    with pytest.raises(RuntimeError, match=refusal):
        torch.zeros(2, dtype=torch.float16).masked_fill(torch.tensor([True, False]), large)


def test_a_large_number_that_is_added(page):
    """If the number was added, the row attends as if nothing were hidden, only less exactly. Near
    $10^6$ float32 has steps of $1/16$, and in a row of five the weights are off by up to ….
    """
    assert np.spacing(np.float32(1e6)) == 1 / 16
    query, key = (x[0].float().numpy() for x in (Q, K))
    row = (query @ key.T)[:1]
    assert row.shape == (1, 5)
    off = masked_softmax(row + np.float32(-1e6)) - masked_softmax(row)
    assert page.glued["coarse"] == pytest.approx(abs(off).max())
    assert 0 < page.glued["coarse"] < 0.05


def test_true_the_other_way_round(page):
    """The queries see exactly what they should not.

    In torch.nn.MultiheadAttention True hides.
    """
    mine = torch.eye(5, dtype=torch.bool)
    layer = torch.nn.MultiheadAttention(4, 1, batch_first=True)
    _, weights = layer(Q.float(), K.float(), V.float(), attn_mask=mine)
    assert torch.equal(weights[0] == 0, mine)


def test_masks_that_hide_nothing(page):
    """A batch of equal lengths needs no length mask, and one new token at a time needs no causal one."""
    assert length_mask(np.array([5, 5]), 5).all()
    assert jax_column.length_mask(jnp.array([5, 5]), 5).all()
    assert causal_mask(1, 5).all()


def test_two_documents_in_one(page):
    """A key must be of the same document and not in the future."""
    assert page.torch.packed.sum(1).tolist() == [1, 2, 3, 1, 2, 3, 4, 5]
    assert not page.torch.packed[3:, :3].any()


def test_padding_on_the_left(page):
    r"""The real keys are the last $\ell$, those with $j \ge n_k - \ell$"""
    assert page.torch.real.tolist() == [[0, 0, 0, 1, 1], [0, 1, 1, 1, 1]]
    assert length_mask(np.array([2]), 5)[0, 0].tolist() == [1, 1, 0, 0, 0]


def test_how_far_a_stack_sees(page):
    """The output depends on its own token and $L(w - 1)$ before it, which makes $1 + L(w - 1)$ in all."""
    for w, layers in [(4, 3), (2, 5), (5, 2)]:
        layer = (causal_mask(16) & window_mask(16, 16, w)).astype(int)
        seen = np.flatnonzero(np.linalg.matrix_power(layer, layers)[-1])
        assert len(seen) == 1 + layers * (w - 1)
        assert seen[0] == 15 - layers * (w - 1)
    assert "tokens seen by the last: 10\n" in page.printed


def test_an_empty_row(page):
    """A query in the padding, at least $w$ places after the last real key, has only padding in its
    window.
    """
    both = (PLACES < 3) & window_mask(8, 8, 3)
    assert np.flatnonzero(~both.any(1)).tolist() == [5, 6, 7]
    for other in (PLACES < 1, window_mask(8, 8, 1)):
        assert (causal_mask(8) & other).any(1).all()
