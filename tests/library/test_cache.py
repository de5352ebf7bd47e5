"""The cache of keys and values: prefill, then steps, equal the whole sequence."""

import copy

import jax
import numpy as np
import pytest
import torch

from tests.conftest import assert_close, draw, error

DIM, HEADS, N = 8, 4, 7
NAMES = ["key", "value", "positions"]


def make(column, groups=2, **options):
    """A layer whose heads of keys and values may be fewer."""
    narrow = DIM // HEADS * groups
    shapes = (DIM, DIM), (DIM, narrow), (DIM, narrow), (DIM, DIM)
    weights = [column.array(draw(900 + i, *shape) / 4) for i, shape in enumerate(shapes)]
    options = {"rotate": column.Rotary(base=50.0, layout="half")} | options
    return column.multi_head(weights, HEADS, num_kv_heads=groups, **options)


def room(column, batch=(2,), groups=2, max_len=10, **options):
    if column.name != "reference":
        dtype = column.dtype
        options["dtype"] = getattr(torch, dtype) if column.name == "torch" else dtype
    return column.KVCache.init(batch, groups, max_len, DIM // HEADS, **options)


def decode(column, layer, cache, x, sizes):
    """The outputs of chunks of these sizes, one after the other."""
    outs, start = [], 0
    for size in sizes:
        out, cache = layer(x[..., start : start + size, :], cache=cache)
        outs.append(column.numpy(out))
        start += size
    return np.concatenate(outs, axis=-2), cache


def test_rejected_drafts_leave_no_trace(column):
    layer, x = make(column), column.array(draw(911, 2, N, DIM))
    drafts = column.array(draw(912, 2, 3, DIM))
    for options in ({}, {"rotated": False}, {"window": 8}):
        _, cache = decode(column, layer, room(column, **options), x[:, :4], (3, 1))
        _, cache = layer(drafts, cache=cache)
        some = cache.trim(column.array(np.array([3, 1])))
        assert column.numpy(some.next_positions(1)).tolist() == [[4], [6]]
        got, _ = decode(
            column, layer, some.trim(column.array(np.array([0, 2]))), x[:, 4:], (1, 2)
        )
        want = column.numpy(layer(x, causal=True))[:, 4:]
        assert error(got, want) <= 1e-12


def test_trim_refuses_what_is_gone(column, monkeypatch):
    layer, x = make(column), column.array(draw(911, 2, N, DIM))
    _, cache = layer(x, cache=room(column))
    for n in (8, -1):
        with pytest.raises(ValueError, match=r"^n must"):
            cache.trim(n)
    _, ring = layer(x, cache=room(column, window=6))
    with pytest.raises(ValueError, match="window of 6 has wrapped"):
        ring.trim(1)
    monkeypatch.setattr("posattn.torch.attention.cache.readable", lambda x: False)
    kept = ring.trim(0)
    assert kept.window == 6
    assert np.isfinite(column.numpy(kept.value)).all()


@pytest.mark.parametrize(
    ("options", "groups", "sizes"),
    [
        ({}, 2, (4, 1, 1, 1)),
        ({"rotated": False}, 2, (2, 3, 0, 2)),
        ({"window": 3}, 2, (2, 3, 0, 2)),
        ({"window": 2}, 4, (2, 1, 1, 1, 1, 1)),
        ({"window": 20}, 1, (4, 1, 1, 1)),
    ],
    ids=str,
)
def test_prefill_and_steps_equal_the_whole_sequence(column, options, groups, sizes):
    layer = make(column, groups, bias=column.ALiBi(HEADS))
    x = column.array(draw(910, 2, N, DIM))
    got, cache = decode(column, layer, room(column, groups=groups, **options), x, sizes)
    window = options.get("window", 99)
    seen = np.abs(np.arange(N)[:, None] - np.arange(N)) < window
    whole = layer(x, mask=column.array(seen), causal=True)
    assert error(got, column.numpy(whole)) <= 1e-12
    assert np.array_equal(column.numpy(cache.next_positions(2)), [[7, 8]] * 2)
    slots = column.numpy(cache.positions).shape[-1] - (column.name == "torch")
    assert slots == min(10, window)


@pytest.mark.parametrize(
    ("window", "left", "lengths"),
    [(None, True, (4, 2)), (3, False, (1, 4)), (3, True, (0, 4))],
)
def test_padding_changes_nothing(column, window, left, lengths):
    """Prompts of different lengths in one batch, then two steps of each."""
    layer, n = make(column), 4
    prompts, later = draw(912, 2, n, DIM), draw(913, 2, 2, DIM)
    places = np.arange(n)
    where = np.stack([
        places - (n - m) if left else np.where(places < m, places, -1) for m in lengths
    ])  # fmt: skip
    x = np.full((2, n, DIM), np.nan)
    for row, m in enumerate(lengths):
        x[row, where[row] >= 0] = prompts[row, :m]
    cache = room(column, window=window)
    first, cache = layer(
        column.array(x), cache=cache, query_positions=column.positions(where)
    )
    rest, cache = decode(column, layer, cache, column.array(later), (1, 1))
    for row, m in enumerate(lengths):
        alone = column.array(np.concatenate([prompts[row, :m], later[row]]))
        seen = np.abs(np.arange(m + 2)[:, None] - np.arange(m + 2)) < (window or 99)
        want = column.numpy(layer(alone, mask=column.array(seen), causal=True))
        got = column.numpy(first)[row, where[row] >= 0]
        assert error(got, want[:m]) <= 1e-12
        assert error(rest[row], want[m:]) <= 1e-12


def test_a_mask_of_the_call_hides_slots_as_well(column):
    layer, x = make(column), column.array(draw(914, N, DIM))
    _, cache = decode(column, layer, room(column, batch=()), x, (6,))
    seen = np.arange(column.numpy(cache.positions).shape[-1])[None] != 2
    out, _ = layer(x[6:], mask=column.array(seen), cache=cache)
    want = layer(x[6:], x, mask=column.array(np.arange(N)[None] != 2))
    assert_close(column, out, column.numpy(want))


ODD = [[0, 1, 1, 1, 2, 3, 3], [5, 3, 4, 0, 0, 9, 2]], [[0, 1, 2, 20, 21, 21, 40]] * 2


@pytest.mark.parametrize(
    "where", [*ODD, [[-1, -1, 4, 4, 2, 2, 9], [7, 7, 0, 19, -1, 3, 3]]]
)
@pytest.mark.parametrize("sizes", [(4, 1, 1, 1), (1, 0, 3, 3)])
@pytest.mark.parametrize("given", ["at hand", "on a device"])
def test_positions_may_repeat_fall_and_leave_gaps(column, where, sizes, given, monkeypatch):
    """A tree of drafts, text beside an image: each token sees those that came before, as in one pass."""
    where = np.array(where)
    if column.name == "torch" and given == "on a device":
        monkeypatch.setattr("posattn.torch.attention.cache.readable", lambda x: False)
    for options, kept in (({}, {}), ({"mask": column.Window(3)}, {}), ({}, {"window": 12})):
        layer = make(column, bias=column.ALiBi(HEADS), **options)
        call = jax.jit(layer) if (column.name, given) == ("jax", "on a device") else layer
        x, cache, outs, start = draw(910, 2, N, DIM), room(column, **kept), [], 0
        for size in sizes:
            part = slice(start, start := start + size)
            at = column.positions(where[:, part])
            out, cache = call(column.array(x[:, part]), cache=cache, query_positions=at)
            outs.append(column.numpy(out))
        real = where >= 0
        options = {"query_positions": column.positions(where), "causal": True}
        seen = abs(where[..., None] - where[:, None]) < kept.get("window", 99)
        seen &= real[:, None]
        whole = column.numpy(layer(column.array(x), mask=column.array(seen), **options))
        got = np.concatenate(outs, axis=1)
        assert error(got[real], whole[real]) <= 1e-12


@pytest.mark.parametrize("where", [[2], [3, 3], [1, 2]])
def test_a_ring_refuses_positions_that_do_not_rise(column, where, monkeypatch):
    """What it would let go of is still to be seen; where it cannot raise, the answer is NaN."""
    layer, x = make(column), column.array(draw(910, 2, N, DIM))
    _, cache = layer(x[:, :3], cache=room(column, window=4))
    at = {"query_positions": column.positions(np.array(where))}
    with pytest.raises(ValueError, match=r"must rise from token to token .* window of 4"):
        layer(x[:, : len(where)], cache=cache, **at)
    monkeypatch.setattr("posattn.torch.attention.cache.readable", lambda x: False)
    if column.name != "reference":
        call = jax.jit(layer) if column.name == "jax" else layer
        out, _ = call(x[:, : len(where)], cache=cache, **at)
        assert np.isnan(column.numpy(out)[:, len(where) // 2]).all()


def test_torch_attends_only_to_slots_that_were_reached(torch_column):
    """Where positions can be read; and without a mask if there is nothing to hide."""
    calls = []

    def spy(query, key, value, **options):
        calls.append((key.shape[-2], options["mask"] is None, options["causal"]))
        return torch_column.scaled_dot_product_attention(query, key, value, **options)

    layer = torch_column.MultiHeadAttention(8, 2, attention=spy)
    x, cache = torch.randn(2, 5, 8), layer.init_cache((2,), 50)
    for part in x.split([3, 1, 1], dim=1):
        _, cache = layer(part, cache=cache)
    assert calls == [(3, True, True), (4, True, False), (5, True, False)]
    layer(x[:, :1], cache=cache, query_positions=torch.tensor([[5], [4]]))
    assert calls[3] == (6, True, False)  # the last token of each, wherever it stands
    empty = layer.init_cache((2,), 50)
    layer(x[:, :1], cache=empty, query_positions=torch.tensor([[-1], [-1]]))
    assert calls[4] == (1, False, False)  # nothing but padding
    layer(x[:, :1], cache=cache, query_positions=torch.tensor([[6], [-1]]))
    assert calls[5] == (7, False, False)  # one example has a token more than the other
    every = torch.ones(51, dtype=torch.bool)
    layer(x[:, :1], cache=cache, mask=every[None])
    assert calls[6] == (51, False, False)  # a mask of all slots


def test_append_writes_and_a_copy_keeps_what_was(torch_column):
    cache, token = room(torch_column, ()), torch_column.array(draw(940, 2, 1, 2))
    earlier = copy.deepcopy(cache)
    after, _ = cache.append(token, token, torch.tensor([0]))
    assert after is cache
    assert cache.next_positions(1).tolist() == [1]
    assert earlier.next_positions(1).tolist() == [0]


def test_a_cache_is_a_tree_of_tensors_in_pytorch(torch_column):
    cache = room(torch_column, window=3, rotated=False)
    named, spec = torch.utils._pytree.tree_flatten_with_path(cache)
    assert [path[0].name for path, _ in named] == NAMES
    leaves = [leaf for _, leaf in named]
    assert all(leaf is getattr(cache, n) for leaf, n in zip(leaves, NAMES, strict=True))
    again = torch.utils._pytree.tree_unflatten(leaves, spec)
    assert (again.window, again.rotated) == (3, False)
