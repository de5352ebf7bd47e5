"""Which keys are read: choices by score, and attention to what is chosen."""

import jax
import numpy as np
import pytest
import torch

import posattn.jax
import posattn.torch
from posattn.jax.attention import gathered as jax_gathered
from posattn.torch.attention import gathered
from tests.conftest import (
    BOUND,
    REFERENCE,
    TWINS,
    assert_close,
    assert_twin_agrees,
    draw,
    error,
)

N_Q, N_K = 9, 23  # not a multiple of any size of a group here
PADDED = np.arange(N_K) >= np.array([[3], [0], [21]])
SCORES = draw(310, 3, N_Q, N_K)
TIED = np.where(np.abs(SCORES) < 1, 0.0, SCORES)
TIED[TIED == 0] *= np.where(np.arange((TIED == 0).sum()) % 2, -1, 1)  # zeros of both signs


def best(scores, allowed, count):
    """The allowed keys with the highest scores, earlier ones before equal later ones."""
    ranked = sorted(allowed, key=lambda j: (-scores[j], j))
    return sorted(ranked[:count])


def visible(mask, i, causal, n_q=N_Q):
    """The tokens that query `i` sees."""
    end = i + N_K - n_q + 1 if causal else N_K
    return [j for j in range(max(end, 0)) if mask[j]]


def listed(row):
    """The keys of a row, which must stand in front of all -1."""
    count = int((row >= 0).sum())
    assert (row[count:] == -1).all()
    return row[:count].tolist()


@pytest.mark.parametrize("count", [0, 1, 5, 40])
@pytest.mark.parametrize("causal", [False, True])
def test_the_best_keys_are_selected_and_of_equal_ones_the_earlier(column, count, causal):
    assert (np.sum(TIED == 0, axis=-1) > 5).all()
    mask = column.array(PADDED[:, None])
    got = column.select_keys(column.array(TIED), count, mask=mask, causal=causal)
    got = column.numpy(got)
    assert got.shape == (3, N_Q, min(count, N_K))
    for b, i in np.ndindex(3, N_Q):
        assert listed(got[b, i]) == best(TIED[b, i], visible(PADDED[b], i, causal), count)


def test_what_is_hidden_may_be_nan_and_minus_infinity_is_hidden(column):
    scores = np.array([[1.0, np.nan, -np.inf, 0.0]])
    mask = np.array([[True, False, True, True]])
    got = column.select_keys(column.array(scores), 3, mask=column.array(mask))
    assert column.numpy(got).tolist() == [[0, 3, -1]]


@pytest.mark.parametrize("size", [1, 2, 4, 30])
@pytest.mark.parametrize("causal", [False, True])
def test_whole_groups_are_selected_and_the_rest_is_always_read(column, size, causal):
    groups, count = N_K // size, 2
    scores = draw(311, 3, N_Q, groups)
    got = column.select_groups(
        column.array(scores), count, size, N_K, mask=column.array(PADDED), causal=causal
    )
    got = column.numpy(got)
    assert got.shape == (3, N_Q, min(count, groups) * size + size - 1)
    for b, i in np.ndindex(3, N_Q):
        seen = visible(PADDED[b], i, causal)
        chosen = best(scores[b, i], range(len(seen) // size), count)
        want = [t for g in chosen for t in seen[g * size : (g + 1) * size]]
        assert listed(got[b, i]) == want + seen[len(seen) // size * size :]


def test_a_group_is_seen_by_queries_that_see_all_of_it(column):
    got = column.numpy(column.group_mask(N_Q, N_K, 4, mask=column.array(PADDED)))
    for b, i in np.ndindex(3, N_Q):
        complete = len(visible(PADDED[b], i, True)) // 4
        assert got[b, i].tolist() == [g < complete for g in range(N_K // 4)]
    assert (column.numpy(column.group_mask(N_Q, N_K, 4)) == got[1]).all()


@pytest.mark.parametrize("size", [1, 4, 30])
@pytest.mark.parametrize("causal", [False, True])
def test_blocks_are_selected_by_their_best_key_and_the_own_one_always(column, size, causal):
    count = 2
    got = column.select_blocks(
        column.array(SCORES), count, size, mask=column.array(PADDED[:, None]), causal=causal
    )
    got = column.numpy(got)
    blocks = -(-N_K // size)
    assert got.shape == (3, N_Q, min(count, blocks) * size)
    for b, i in np.ndindex(3, N_Q):
        seen = set(visible(PADDED[b], i, causal))
        of = [sorted(seen & set(range(g * size, (g + 1) * size))) for g in range(blocks)]
        top = [max((SCORES[b, i, j] for j in keys), default=-np.inf) for keys in of]
        own = (i + N_K - N_Q) // size
        top[own] = np.inf
        chosen = best(top, [g for g in range(blocks) if top[g] > -np.inf], count)
        assert own in chosen
        assert listed(got[b, i]) == [j for g in chosen for j in of[g]]


QUERY, KEY = draw(320, 2, 4, N_Q, 4), draw(321, 2, 2, N_K, 4)
VALUE = draw(322, 2, 2, N_K, 3)
CHOICES = {
    "all heads alike": (2, N_Q, 6),
    "every example alike": (N_Q, 6),
    "heads of keys": (2, 2, N_Q, 6),
    "heads of queries": (1, 4, N_Q, 6),
    "nothing": (2, N_Q, 0),
}


def choice(shape):
    """Drawn keys, some twice, some of none, and a first row without any."""
    select = np.random.default_rng(323).integers(-2, N_K, size=shape).clip(-1)
    select[..., 0, :] = -1
    select[..., 1, 1:2] = select[..., 1, :1]
    return select


def as_mask(select):
    """The mask that says the same, `(2, 4, n_q, n_k)`."""
    chosen = (select[..., None] == np.arange(N_K)).any(-2)
    if select.ndim < 4:
        chosen = chosen[..., None, :, :]
    elif chosen.shape[1] == 2:
        chosen = chosen.repeat(2, axis=1)
    return np.broadcast_to(chosen, (2, 4, N_Q, N_K))


OPTIONS = {
    "plain": {},
    "causal": {"causal": True},
    "mask, sinks": {"mask": PADDED[:2, None, None], "sinks": draw(324, 4), "causal": True},
    "bias, cap": {"bias": draw(325, 4, N_Q, N_K), "soft_cap": 0.75},
}


def run(column, query, key, value, *rest, options=(), **select):
    given = {
        name: column.array(x) if isinstance(x, np.ndarray) else x
        for name, x in {**dict(options), **select}.items()
    }
    given |= {"sinks": rest[0]} if rest else {}
    return column.scaled_dot_product_attention(query, key, value, **given)


@pytest.mark.parametrize("shape", CHOICES.values(), ids=CHOICES)
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_attention_to_a_selection_is_that_of_its_mask(shape, options):
    select = choice(shape)
    mask = as_mask(select) & options.get("mask", True)
    got = run(REFERENCE, QUERY, KEY, VALUE, options=options, select=select)
    want = run(REFERENCE, QUERY, KEY, VALUE, options={**options, "mask": mask})
    assert np.array_equal(got, want)
    assert (got[:, :, 0] == 0).all()


@pytest.fixture
def always_gathered(monkeypatch):
    """Gather wherever a call can be gathered, in PyTorch and JAX, and say how often that was."""
    monkeypatch.setattr(gathered, "ROWS", 4)
    monkeypatch.setattr(gathered, "CACHED", 50)
    calls, attends = [], {module: module.attend for module in (gathered, jax_gathered)}
    for module, attend in attends.items():
        for name, value in (("FEWER", 0), ("LONG", 0), ("HELD", 50)):
            monkeypatch.setattr(module, name, value)
        monkeypatch.setattr(
            module, "attend", lambda call, held=attend: calls.append(call) or held(call)
        )
    return calls


ALL = [
    (twin, shape, options) for twin in TWINS[:2] for shape in CHOICES for options in OPTIONS
]
ALL += [(twin, "heads of keys", "mask, sinks") for twin in TWINS[2:]]


@pytest.mark.parametrize(("twin", "shape", "options"), ALL, ids=str)
def test_twins_and_their_gradients_agree(twin, shape, options, always_gathered):
    select, options = choice(CHOICES[shape]), OPTIONS[options]
    learned = [options["sinks"]] if "sinks" in options else []

    def attention(column, *arrays):
        return run(column, *arrays, options=options, select=select)

    with twin.mode():
        assert_twin_agrees(twin, attention, QUERY, KEY, VALUE, *learned)
    assert bool(always_gathered) == ("bias" not in options and select.shape[-1] > 0)


@pytest.mark.parametrize("where", ["dense", "gathered"])
def test_a_key_that_nobody_reads_may_be_nan(column, where, request):
    if where == "gathered":
        request.getfixturevalue("always_gathered")
    select = np.where(choice((2, N_Q, 6)) == 0, 1, choice((2, N_Q, 6)))
    key, value = KEY.copy(), VALUE.copy()
    key[:, :, 0] = value[:, :, 0] = np.nan
    got = run(column, *map(column.array, (QUERY, key, value)), select=select)
    want = run(REFERENCE, QUERY, KEY, VALUE, select=select)
    assert error(column.numpy(got), want) <= BOUND["float64"]
    if column is not REFERENCE:
        _, slopes = column.value_and_gradients(
            lambda *arrays: run(column, *arrays, select=select), (QUERY, key, value)
        )
        assert all(np.isfinite(slope).all() for slope in slopes)
        assert (slopes[1][:, :, 0] == 0).all()
        assert (slopes[0][:, :, 0] == 0).all()  # a query that reads nothing


def test_nothing_differs_until_there_are_more_keys_than_are_read(column):
    query, key, value = map(column.array, (QUERY, KEY, VALUE))
    scores = column.array(SCORES[:2])
    full = column.scaled_dot_product_attention(query, key, value, causal=True)
    differs = []
    for count in (N_K, N_K - 1):
        select = column.select_keys(scores, count, causal=True)
        got = column.scaled_dot_product_attention(
            query, key, value, causal=True, select=select
        )
        differs.append(abs(column.numpy(got) - column.numpy(full)).max((0, 1, 3)) > 1e-6)
    assert differs[0].tolist() == [False] * N_Q
    assert differs[1].tolist() == [False] * (N_Q - 1) + [True]


def test_weights_are_zero_beside_the_selection(column):
    select = choice((2, N_Q, 6))
    got = column.attention_weights(
        column.array(QUERY), column.array(KEY), select=column.array(select)
    )
    got = column.numpy(got)
    assert ((got > 0) == as_mask(select)).all()
    sums = np.where((select >= 0).any(-1), 1.0, 0.0)[:, None]
    assert np.allclose(got.sum(-1), np.broadcast_to(sums, (2, 4, N_Q)))


def test_many_keys_are_gathered_and_few_of_few_are_not(monkeypatch):
    seen = []
    monkeypatch.setattr(gathered, "attend", lambda call: seen.append(call) or call.query)
    for n_k, count in ((2**13, 2**11), (2**13, 2**11 + 1), (2**12, 1)):
        x = torch.zeros(1, 1, n_k, 2)
        select = torch.zeros(1, 1, count, dtype=torch.int64)
        posattn.torch.scaled_dot_product_attention(x[:, :, :1], x, x, select=select)
    assert len(seen) == 1


def test_a_traced_index_of_no_key_is_left_out():
    with jax.enable_x64(True):
        query, key, value = map(jax.numpy.asarray, (QUERY, KEY, VALUE))
        far = jax.numpy.asarray(choice((2, N_Q, 6)))
        attend = jax.jit(
            lambda s: posattn.jax.scaled_dot_product_attention(query, key, value, select=s)
        )
        got = attend(jax.numpy.where(far == -1, N_K + 5, far))
        assert np.allclose(got, attend(far), rtol=0, atol=0)


def test_a_layer_takes_a_selection_also_of_the_slots_of_a_cache(column):
    weights = [column.array(draw(330 + i, 8, 8)) for i in range(4)]
    x = column.array(draw(334, 2, N_K, 8))
    select = choice((2, N_K, 5))
    past = np.minimum(select, np.arange(N_K)[:, None])
    layer = column.multi_head(weights, 4)
    whole = layer(x, causal=True, select=column.array(past))
    mask = (past[..., None] == np.arange(N_K)).any(-2)
    assert_close(
        column, whole, column.numpy(layer(x, causal=True, mask=column.array(mask)))
    )
    dtype = {} if column is REFERENCE else {"dtype": x.dtype}
    cache = column.KVCache.init((2,), 4, N_K, 2, **dtype)
    _, cache = layer(x[:, :9], cache=cache)
    out, _ = layer(x[:, 9:], cache=cache, select=column.array(past[:, 9:]))
    assert_close(column, out, column.numpy(whole)[:, 9:])


@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_a_selection_is_mapped_over_examples():
    def attend(query, key, value, scores):
        select = posattn.torch.select_keys(scores, 4, causal=True)
        options = {"causal": True, "select": select}
        return posattn.torch.scaled_dot_product_attention(query, key, value, **options)

    arrays = [torch.tensor(x) for x in (QUERY, KEY, VALUE, SCORES[:2])]
    got = torch.func.vmap(attend)(*arrays)
    assert torch.allclose(got, attend(*arrays), rtol=0, atol=1e-12)
