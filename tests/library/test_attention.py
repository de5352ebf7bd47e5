"""Scaled dot-product attention."""

from dataclasses import replace

import hypothesis.strategies as st
import jax
import numpy as np
import pytest
import torch
from hypothesis import given

from posattn.torch.attention.random import _GAMMA, _mix, uniform
from tests.conftest import (
    BOUND,
    REFERENCE,
    TWINS,
    assert_close,
    assert_twin_agrees,
    draw,
    error,
)

WIDTH, VALUE_WIDTH = 4, 3


def mask(seed, *shape):
    """A drawn mask in which the first row, where there are several, may attend to nothing."""
    drawn = np.random.default_rng(seed).random(shape) < 0.6
    if shape[-2] > 1:
        drawn[..., 0, :] = False
    return drawn


def nearness(query_positions, key_positions):
    """A bias that is a function of positions, in any column."""
    return -0.25 * abs(key_positions - query_positions[:, None])


ALL_KEYS, NO_KEY = np.ones((4, 5), bool), np.zeros((4, 5), bool)

# batch axes, n_q, n_k, options; arrays among the options are handed over as arrays of the column
CASES = {
    "plain": ((2,), 4, 5, {}),
    "no batch axis": ((), 4, 5, {}),
    "two batch axes": ((2, 3), 4, 5, {}),
    "three batch axes": ((2, 1, 2), 4, 5, {"mask": mask(0, 4, 5)}),
    "scale": ((2,), 4, 5, {"scale": -0.75}),
    "scale zero": ((2,), 4, 5, {"scale": 0.0}),
    "mask of all": ((2,), 4, 5, {"mask": ALL_KEYS}),
    "mask of none": ((2,), 4, 5, {"mask": NO_KEY}),
    "mask (n_q, n_k)": ((2,), 4, 5, {"mask": mask(1, 4, 5)}),
    "mask (1, n_k)": ((2,), 4, 5, {"mask": mask(2, 1, 5)}),
    "mask (batch, 1, n_k)": ((2,), 4, 5, {"mask": mask(3, 2, 1, 5)}),
    "mask (1, n_q, n_k)": ((2,), 4, 5, {"mask": mask(4, 1, 4, 5)}),
    "mask (batch, n_q, n_k)": ((2,), 4, 5, {"mask": mask(5, 2, 4, 5)}),
    "mask (batch, 1, 1, n_k)": ((2, 3), 4, 5, {"mask": mask(6, 2, 1, 1, 5)}),
    "causal n_q < n_k": ((2,), 3, 5, {"causal": True}),
    "causal n_q = n_k": ((2,), 4, 4, {"causal": True}),
    "causal n_q > n_k": ((2,), 5, 3, {"causal": True}),
    "causal n_q = n_k without batch": ((), 4, 4, {"causal": True, "scale": 0.5}),
    "causal, scale below zero": ((2,), 4, 4, {"causal": True, "scale": -0.75}),
    "causal, scale zero": ((2,), 4, 4, {"causal": True, "scale": 0.0}),
    "causal n_q = n_k, three batch axes": ((2, 1, 2), 4, 4, {"causal": True}),
    "decoding": ((2,), 1, 5, {"causal": True}),
    "no queries": ((2,), 0, 5, {}),
    "no queries, causal": ((2,), 0, 5, {"causal": True}),
    "no keys": ((2,), 4, 0, {}),
    "no keys, causal": ((2,), 4, 0, {"causal": True}),
    "no keys, masked": ((2,), 4, 0, {"mask": np.zeros((4, 0), bool)}),
    "nothing at all": ((2,), 0, 0, {"causal": True}),
    "empty batch": ((0,), 4, 5, {"mask": ALL_KEYS}),
    "bias (n_q, n_k)": ((2,), 4, 5, {"bias": draw(7, 4, 5)}),
    "bias (batch, 1, n_k)": ((2,), 4, 5, {"bias": draw(8, 2, 1, 5)}),
    "bias function": ((2,), 3, 5, {"bias": nearness}),
    "bias of minus infinity": ((2,), 4, 5, {"bias": np.where(mask(9, 4, 5), 0.5, -np.inf)}),
    "bias function and causal": ((2, 3), 3, 5, {"bias": nearness, "causal": True}),
    "all combined": (
        (2, 3), 4, 5, {"mask": mask(10, 3, 4, 5), "causal": True, "bias": draw(11, 2, 1, 4, 5), "scale": 0.3}
    ),
}  # fmt: skip


def inputs(batch, n_q, n_k, value_width=VALUE_WIDTH):
    return (
        draw(20, *batch, n_q, WIDTH),
        draw(21, *batch, n_k, WIDTH),
        draw(22, *batch, n_k, value_width),
    )


def given_to(column, options):
    return {
        name: column.array(x) if isinstance(x, np.ndarray) else x
        for name, x in options.items()
    }


def visible(batch, n_q, n_k, options):
    """Which keys each query may attend to, spelled out."""
    seen = np.broadcast_to(options.get("mask", True), (*batch, n_q, n_k))
    if isinstance(options.get("bias"), np.ndarray):
        seen = seen & np.isfinite(options["bias"])
    return seen & np.tri(n_q, n_k, n_k - n_q, dtype=bool) if options.get("causal") else seen


HIDING = {
    name: case for name, case in CASES.items() if not visible(*case).any(axis=-1).all()
}
every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)
hiding_case = pytest.mark.parametrize("case", HIDING.values(), ids=HIDING)


@every_case
def test_attention_is_its_formula(column, case):
    batch, n_q, n_k, options = case
    query, key, value = inputs(batch, n_q, n_k)
    bias = options.get("bias", 0.0)
    bias = nearness(np.arange(n_k - n_q, n_k), np.arange(n_k)) if callable(bias) else bias
    scores = (
        options.get("scale", WIDTH**-0.5) * np.einsum("...id,...jd->...ij", query, key)
        + bias
    )
    exp = np.where(visible(*case), np.exp(scores), 0)
    total = exp.sum(-1, keepdims=True)
    weights = np.divide(exp, total, out=np.zeros_like(exp), where=total > 0)
    options = given_to(column, options)
    query, key, given_value = map(column.array, (query, key, value))
    assert_close(column, column.attention_weights(query, key, **options), weights)
    out = column.scaled_dot_product_attention(query, key, given_value, **options)
    assert_close(column, out, np.einsum("...ij,...jd->...id", weights, value))


@every_case
def test_attention_and_its_gradients_agree_with_the_reference(twin, case):
    *sizes, options = case
    learned = [options["bias"]] if isinstance(options.get("bias"), np.ndarray) else []

    def attention(column, query, key, value, *bias):
        given_options = given_to(column, options)
        given_options |= {"bias": bias[0]} if bias else {}
        return column.scaled_dot_product_attention(query, key, value, **given_options)

    assert_twin_agrees(twin, attention, *inputs(*sizes), *learned)


@every_case
def test_weights_and_their_gradients_agree_with_the_reference(twin, case):
    *sizes, options = case
    query, key, _ = inputs(*sizes)

    def weights(column, query, key):
        return column.attention_weights(query, key, **given_to(column, options))

    assert_twin_agrees(twin, weights, query, key)


@pytest.mark.parametrize("given_mask", [None, mask(12, 4, 5), mask(13, 2, 1, 5)])
def test_masked_softmax_and_its_gradients_agree_with_the_reference(twin, given_mask):
    def softmax(column, scores):
        return column.masked_softmax(
            scores, None if given_mask is None else column.array(given_mask)
        )

    assert_twin_agrees(twin, softmax, draw(23, 2, 4, 5))


def test_softmax_survives_huge_scores(twin):
    scores = twin.array([[3e38, 3e38, -3e38], [-3e38, -3e38, -3e38]])
    assert_close(
        twin, twin.masked_softmax(scores), np.array([[0.5, 0.5, 0], [1 / 3, 1 / 3, 1 / 3]])
    )


@pytest.mark.parametrize("twin", TWINS[:2], ids=lambda twin: twin.name)
def test_softmax_of_a_long_row_in_float16_is_rounded_once(twin):
    twin = replace(twin, dtype="float16")
    scores = np.zeros((1, 2**17))  # the sum of their exponentials is beyond float16
    scores[0, 0] = 11
    weights = twin.numpy(twin.masked_softmax(twin.array(scores)))
    want = np.exp(scores) / np.exp(scores).sum()
    unit = 2.0**-12  # of numbers from 1/4 to 1/2
    assert np.abs(weights - want).max() < 0.51 * unit


@hiding_case
def test_rows_with_nothing_to_attend_to_are_zero_with_zero_gradients(twin, case):
    *sizes, options = case
    seen = visible(*case)

    def attention(*arrays):
        return twin.scaled_dot_product_attention(*arrays, **given_to(twin, options))

    out, (d_query, d_key, d_value) = twin.value_and_gradients(attention, inputs(*sizes))
    nothing, unseen = ~seen.any(axis=-1), ~seen.any(axis=-2)
    assert not out[nothing].any()
    assert not d_query[nothing].any()
    assert not d_key[unseen].any()
    assert not d_value[unseen].any()
    assert all(np.isfinite(x).all() for x in (out, d_query, d_key, d_value))


@pytest.mark.parametrize("rate", [0.0, 0.5])
@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("causal", [False, True])
def test_keys_that_nobody_may_attend_to_have_no_influence(column, poison, causal, rate):
    query, key, value = inputs((2,), 4, 5)
    hidden = np.array([False, True, False, False, True])
    drop = {"dropout_rate": rate}

    def attention(query, key, value):
        seen = column.array(np.broadcast_to(~hidden, (4, 5)))
        return column.scaled_dot_product_attention(
            query, key, value, mask=seen, causal=causal, rng=column.rng(), **drop
        )

    clean = column.numpy(attention(*map(column.array, (query, key, value))))
    key[:, hidden], value[:, hidden] = poison, poison
    assert np.array_equal(
        column.numpy(attention(*map(column.array, (query, key, value)))), clean
    )
    if column is not REFERENCE:
        _, gradients = column.value_and_gradients(attention, (query, key, value))
        assert all(np.isfinite(gradient).all() for gradient in gradients)


def test_hidden_keys_may_as_well_be_absent(column):
    query, key, value = inputs((2,), 4, 5)
    hidden = np.array([False, True, False, False, True])
    poisoned_key, poisoned_value = (
        np.where(hidden[:, None], np.nan, x) for x in (key, value)
    )
    seen = column.array(np.broadcast_to(~hidden, (4, 5)))
    got = column.scaled_dot_product_attention(
        *map(column.array, (query, poisoned_key, poisoned_value)), mask=seen
    )
    want = column.scaled_dot_product_attention(
        *map(column.array, (query, key[:, ~hidden], value[:, ~hidden]))
    )
    assert_close(column, got, column.numpy(want))


FRAMEWORK_CASES = [
    "plain",
    "two batch axes",
    "mask (batch, n_q, n_k)",
    "bias (n_q, n_k)",
    "causal n_q = n_k",
]


@pytest.mark.parametrize("name", FRAMEWORK_CASES)
def test_the_frameworks_own_attentions_agree(column, name):
    *sizes, options = CASES[name]
    # JAX wants equal widths
    arrays, seen = (inputs(*sizes, value_width=WIDTH), visible(*sizes, options))
    busy = seen.any(axis=-1)
    got = column.numpy(
        column.scaled_dot_product_attention(
            *map(column.array, arrays), **given_to(column, options)
        )
    )
    additive = np.where(seen, options.get("bias", 0.0), -np.inf)
    theirs = torch.nn.functional.scaled_dot_product_attention(
        *map(torch.tensor, arrays), torch.tensor(additive)
    ).numpy()
    assert error(got[busy], theirs[busy]) <= BOUND["float64"]
    with jax.enable_x64(True):
        # JAX wants exactly (batch, token, head, width); a mask there is (batch, head, n_q, n_k)
        flat = [x.reshape(-1, 1, *x.shape[-2:]).swapaxes(1, 2) for x in arrays]
        theirs = jax.nn.dot_product_attention(
            *flat,
            bias=np.broadcast_to(options.get("bias", 0.0), seen.shape).reshape(
                -1, 1, *seen.shape[-2:]
            ),
            mask=seen.reshape(-1, 1, *seen.shape[-2:]),
        )
        theirs = np.asarray(theirs).reshape(got.shape)
    # its scores are float32 whatever comes in
    assert error(got[busy], theirs[busy]) <= BOUND["float32"]


@pytest.mark.slow
@given(st.integers(0, 5))
def test_decoding_repeats_the_last_rows_of_the_whole(column, n_q):
    n = 5
    query, key, value = map(column.array, inputs((2,), n, n))
    whole = column.scaled_dot_product_attention(
        query, key, value, causal=True, bias=nearness
    )
    last = column.scaled_dot_product_attention(
        query[:, n - n_q :], key, value, causal=True, bias=nearness
    )
    assert_close(column, last, column.numpy(whole)[:, n - n_q :])


@given(st.integers(0, 3))
def test_causal_attention_ignores_the_future(column, now):
    query, key, value = inputs((), 5, 5)
    before = column.scaled_dot_product_attention(
        *map(column.array, (query, key, value)), causal=True
    )
    for x in (query, key, value):
        x[now + 1 :] += draw(26, *x[now + 1 :].shape) + 1
    after = column.scaled_dot_product_attention(
        *map(column.array, (query, key, value)), causal=True
    )
    before, after = column.numpy(before), column.numpy(after)
    assert error(after[: now + 1], before[: now + 1]) <= BOUND["float64"]
    assert error(after[now + 1 :], before[now + 1 :]) > 1e-3


@given(st.permutations(range(5)))
def test_without_a_mask_self_attention_is_permutation_equivariant(column, order):
    x = draw(27, 5, WIDTH)
    straight = column.scaled_dot_product_attention(*[column.array(x)] * 3)
    shuffled = column.scaled_dot_product_attention(*[column.array(x[order])] * 3)
    assert_close(column, shuffled, column.numpy(straight)[order])


@pytest.mark.parametrize(("n_q", "n_k"), [(4, 5), (5, 3), (1, 4)])
@given(st.integers(0, 99), st.booleans())
def test_rows_of_weights_sum_to_one_or_zero(column, n_q, n_k, seed, causal):
    query, key, _ = inputs((2,), n_q, n_k)
    drawn = mask(seed, 2, n_q, n_k)
    weights = column.attention_weights(
        column.array(query), column.array(key), mask=column.array(drawn), causal=causal
    )
    busy = visible((2,), n_q, n_k, {"mask": drawn, "causal": causal}).any(axis=-1)
    assert error(column.numpy(weights).sum(axis=-1), busy.astype(float)) <= BOUND["float64"]
    assert (column.numpy(weights) >= 0).all()


@given(st.floats(-100, 100))
def test_a_constant_bias_changes_nothing(column, constant):
    query, key, _ = inputs((2,), 4, 5)
    query, key = column.array(query), column.array(key)
    biased = column.attention_weights(
        query, key, bias=column.array(np.full((4, 5), constant))
    )
    assert_close(column, biased, column.numpy(column.attention_weights(query, key)))


def test_packed_sequences_do_not_see_each_other(column):
    query, key, value = inputs((), 7, 7)
    owner = np.array([0, 0, 0, 1, 1, 1, 1])
    packed = column.scaled_dot_product_attention(
        *map(column.array, (query, key, value)),
        mask=column.array(owner[:, None] == owner),
        causal=True,
    )
    for part in (slice(0, 3), slice(3, 7)):
        alone = column.scaled_dot_product_attention(
            *(column.array(x[part]) for x in (query, key, value)), causal=True
        )
        assert_close(column, packed[part], column.numpy(alone))


def test_without_rng_nothing_is_dropped(column):
    arrays = [column.array(x) for x in inputs((2,), 4, 5)]
    kept = column.scaled_dot_product_attention(*arrays, dropout_rate=0.5)
    assert_close(column, kept, column.numpy(column.scaled_dot_product_attention(*arrays)))
    assert np.array_equal(
        column.numpy(column.dropout(arrays[0], 0.5)), column.numpy(arrays[0])
    )


def test_a_rate_of_zero_drops_nothing(column):
    arrays = [column.array(x) for x in inputs((2,), 4, 5)]
    kept = column.scaled_dot_product_attention(*arrays, dropout_rate=0.0, rng=column.rng())
    assert_close(column, kept, column.numpy(column.scaled_dot_product_attention(*arrays)))


def test_torch_draws_what_splitmix64_draws():
    """The first five numbers from the seed 1234567, as its test vectors publish them."""
    drawn = _mix(1234567 + torch.arange(1, 6) * _GAMMA)
    assert [number % 2**64 for number in drawn.tolist()] == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]
    drawn = _mix(_mix(torch.tensor(7 + 1)) + torch.arange(6) * _GAMMA)
    whole = torch.tensor(
        [(number % 2**64 >> 11) / 2**53 for number in drawn.tolist()], dtype=torch.float64
    )
    whole = whole.reshape(2, 3)
    assert torch.equal(uniform(7, (2, 3), None), whole)
    assert torch.equal(uniform(7, (1, 2), None, (1, 1, 2, 3)), whole[1:, 1:])


def test_dropout_repeats_with_its_rng(column):
    arrays = [column.array(x) for x in inputs((2,), 4, 5)]
    first, second, other = (
        column.numpy(
            column.scaled_dot_product_attention(
                *arrays, causal=True, dropout_rate=0.5, rng=column.rng(seed)
            )
        )
        for seed in (0, 0, 1)
    )
    assert np.array_equal(first, second)
    assert not np.array_equal(first, other)


def test_dropout_thins_out_the_weights_and_scales_the_rest(column):
    query, key = (column.array(x) for x in inputs((), 4, 4)[:2])
    thinned = column.scaled_dot_product_attention(
        query,
        key,
        column.array(np.eye(4)),
        causal=True,
        dropout_rate=0.25,
        rng=column.rng(),
    )
    thinned = column.numpy(thinned)
    weights = column.numpy(column.attention_weights(query, key, causal=True))
    kept = thinned != 0
    assert 0 < kept.sum() < np.tri(4).sum()
    assert error(thinned, np.where(kept, weights / 0.75, 0)) <= BOUND["float64"]


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_dropout_keeps_the_mean(twin, rate):
    ones = twin.array(np.ones(100_000))
    dropped = twin.numpy(twin.dropout(ones, rate, twin.rng()))
    scale = 1 / (1 - rate)
    assert error(np.unique(dropped), np.array([0, scale])) <= {"bfloat16": 2**-8}.get(
        twin.dtype, 1e-7
    )
    share, deviation = (dropped > 0).mean(), (rate * (1 - rate) / 100_000) ** 0.5
    assert abs(share - (1 - rate)) < 5 * deviation


def test_the_reference_drops_with_its_rate():
    dropped = REFERENCE.dropout(np.ones(100_000), 0.25, REFERENCE.rng())
    assert set(np.unique(dropped)) == {0, 1 / 0.75}
    assert abs((dropped > 0).mean() - 0.75) < 0.01


def test_torch_leaves_the_global_generator_alone(torch_column):
    before = torch.get_rng_state()
    arrays = [torch_column.array(x) for x in inputs((2,), 4, 5)]
    torch_column.scaled_dot_product_attention(
        *arrays, dropout_rate=0.5, rng=torch_column.rng()
    )
    layer = torch_column.MultiHeadAttention(
        4, 2, dtype=torch.float64, rng=torch_column.rng()
    )
    layer(arrays[0], arrays[1], arrays[1])
    torch_column.LearnedPositionalEncoding(4, 4, rng=torch_column.rng())
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize(
    "name", ["causal n_q = n_k", "decoding", "all combined", "bias function"]
)
def test_torch_compiles_attention_in_one_graph(torch_column, unchecked, name, backend):
    *sizes, options = CASES[name]
    arrays, options = (
        [torch_column.array(x) for x in inputs(*sizes)],
        given_to(torch_column, options),
    )
    torch.compiler.reset()
    compiled = torch.compile(
        torch_column.scaled_dot_product_attention, fullgraph=True, backend=backend
    )
    want = torch_column.scaled_dot_product_attention(*arrays, **options)
    assert_close(torch_column, compiled(*arrays, **options), want.numpy())


@pytest.mark.slow
@pytest.mark.parametrize("dynamic", [None, True])
def test_torch_compiles_once_for_many_lengths_and_scales(torch_column, unchecked, dynamic):
    torch.compiler.reset()
    compiled = torch.compile(
        torch_column.scaled_dot_product_attention,
        fullgraph=True,
        backend="eager",
        dynamic=dynamic,
    )
    for n_q, n_k, scale in (
        (4, 4, 0.5),
        (5, 5, 0.5),
        (3, 6, 0.7),
        (7, 7, -0.1),
        (1, 9, 2.0),
    ):
        arrays = [torch_column.array(x) for x in inputs((2,), n_q, n_k)]
        want = torch_column.scaled_dot_product_attention(*arrays, causal=True, scale=scale)
        assert_close(
            torch_column, compiled(*arrays, causal=True, scale=scale), want.numpy()
        )


@pytest.mark.slow
def test_jax_traces_and_batches_attention(jax_single):
    arrays = [jax_single.array(x) for x in inputs((3,), 4, 4)]

    def attention(query, key, value):
        return jax_single.scaled_dot_product_attention(query, key, value, causal=True)

    want = np.asarray(attention(*arrays))
    assert_close(jax_single, jax.jit(attention)(*arrays), want)
    assert_close(jax_single, jax.vmap(attention)(*arrays), want)
