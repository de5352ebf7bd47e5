"""The cache of keys and values: prefill, then steps, equal the whole sequence."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from posattn import contract
from tests.conftest import assert_close, draw, error

DIM, HEADS, N = 8, 4, 7
NAMES = ["key", "value", "positions"]
LAYERS = {
    "rotary": lambda c: {"rotate": c.Rotary()},
    "rotary, unturned": lambda c: {"rotate": c.Rotary(base=50.0, layout="half")},
    "ALiBi": lambda c: {"bias": c.ALiBi(HEADS)},
    "both": lambda c: {"rotate": c.Rotary(), "bias": c.ALiBi(HEADS)},
    "nothing": lambda c: {},
}


def weights(groups):
    """A layer whose heads of keys and values are fewer."""
    narrow = DIM // HEADS * groups
    shapes = (DIM, DIM), (DIM, narrow), (DIM, narrow), (DIM, DIM)
    return [draw(900 + i, *shape) / 4 for i, shape in enumerate(shapes)]


def make(column, scheme="rotary", groups=2, **options):
    options = LAYERS[scheme](column) | options
    return column.multi_head(
        [column.array(w) for w in weights(groups)], HEADS, num_kv_heads=groups, **options
    )


def room(column, batch=(2,), groups=2, max_len=10, **options):
    if column.name != "reference":
        dtype = column.dtype
        options["dtype"] = getattr(torch, dtype) if column.name == "torch" else dtype
    return column.KVCache.init(batch, groups, max_len, DIM // HEADS, **options)


def decode(layer, cache, x, sizes, **options):
    """The outputs of chunks of these sizes, one after the other."""
    outs, start = [], 0
    for size in sizes:
        out, cache = layer(x[..., start : start + size, :], cache=cache, **options)
        outs.append(out)
        start += size
    return outs, cache


def joined(column, outs):
    return np.concatenate([column.numpy(out) for out in outs], axis=-2)


SIZES = [(7,), (4, 1, 1, 1), (1,) * 7, (2, 3, 0, 2)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scheme", "groups", "sizes"),
    [
        *((scheme, 2, sizes) for scheme in LAYERS for sizes in SIZES),
        *(("both", groups, SIZES[1]) for groups in (1, 4)),
    ],
    ids=str,
)
def test_prefill_and_steps_equal_the_whole_sequence(column, scheme, groups, sizes):
    layer, x = make(column, scheme, groups), column.array(draw(910, 2, N, DIM))
    cache = room(column, groups=groups, rotated=scheme != "rotary, unturned")
    outs, cache = decode(layer, cache, x, sizes)
    whole = column.numpy(layer(x, causal=True))
    assert error(joined(column, outs), whole) <= 1e-12
    assert np.array_equal(column.numpy(cache.next_positions(2)), [[7, 8]] * 2)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("window", "groups", "sizes"),
    [*((3, 2, sizes) for sizes in SIZES), *((w, 1, SIZES[1]) for w in (1, 3, 7, 20))],
    ids=str,
)
def test_a_window_holds_the_last_tokens(column, window, groups, sizes):
    layer, x = make(column, groups=groups), column.array(draw(911, 2, N, DIM))
    cache = room(column, groups=groups, window=window)
    outs, cache = decode(layer, cache, x, sizes)
    seen = np.abs(np.arange(N)[:, None] - np.arange(N)) < window
    whole = layer(x, mask=column.array(seen), causal=True)
    assert error(joined(column, outs), column.numpy(whole)) <= 1e-12
    slots = column.numpy(cache.positions).shape[-1] - (column.name == "torch")
    assert slots == min(10, window)


@pytest.mark.slow
@pytest.mark.parametrize("window", [None, 3])
@pytest.mark.parametrize("left", [True, False], ids=["left", "right"])
@given(st.lists(st.integers(0, 4), min_size=2, max_size=2))
def test_padding_changes_nothing(column, window, left, lengths):
    """Prompts of different lengths in one batch, then two steps of each."""
    layer, n = make(column), 4
    prompts, later = draw(912, 2, n, DIM), draw(913, 2, 2, DIM)
    where = np.stack([
        np.arange(n) - (n - m) if left else np.where(np.arange(n) < m, np.arange(n), -1)
        for m in lengths
    ])  # fmt: skip
    x = np.full((2, n, DIM), 5.0)
    for row, m in enumerate(lengths):
        x[row, where[row] >= 0] = prompts[row, :m]
    cache = room(column, window=window)
    first, cache = layer(
        column.array(x), cache=cache, query_positions=column.positions(where)
    )
    rest, cache = decode(layer, cache, column.array(later), (1, 1))
    for row, m in enumerate(lengths):
        alone = np.concatenate([prompts[row, :m], later[row]])
        seen = np.abs(np.arange(m + 2)[:, None] - np.arange(m + 2)) < (window or 99)
        want = column.numpy(
            layer(column.array(alone), mask=column.array(seen), causal=True)
        )
        got = column.numpy(first)[row, where[row] >= 0]
        assert error(got, want[:m]) <= 1e-12
        assert error(joined(column, rest)[row], want[m:]) <= 1e-12


@pytest.mark.slow
def test_a_mask_of_the_call_hides_slots_as_well(column):
    layer, x = make(column), column.array(draw(914, N, DIM))
    _, cache = decode(layer, room(column, batch=()), x, (6,))
    slots = column.numpy(cache.positions).shape[-1]
    seen = np.ones((1, slots), bool)
    seen[0, 2] = False
    out, _ = layer(x[6:], mask=column.array(seen), cache=cache)
    want = layer(x[6:], x, mask=column.array(np.arange(N)[None] != 2))
    assert_close(column, out, column.numpy(want))


@pytest.mark.parametrize("window", [None, 3])
def test_nan_in_padding_reaches_nothing(column, window):
    layer, x = make(column), draw(915, 2, N, DIM)
    padded = np.concatenate([np.full((2, 2, DIM), np.nan), x], axis=1)
    where = column.positions(np.arange(-2, 5))
    first, cache = layer(
        column.array(padded[:, :7]),
        cache=room(column, window=window),
        query_positions=where,
    )
    last, _ = layer(column.array(padded[:, 7:]), cache=cache)
    outs = [first[:, 2:], last]
    seen = np.abs(np.arange(N)[:, None] - np.arange(N)) < (window or 99)
    want = layer(column.array(x), mask=column.array(seen), causal=True)
    assert error(joined(column, outs), column.numpy(want)) <= 1e-12


def test_a_cache_refuses_positions_that_are_not_one_per_token(column, unchecked):
    key = column.array(draw(916, 2, 2, 3, DIM // HEADS))
    with pytest.raises(
        ValueError, match=r"query_positions must have shape \(3,\) or \(2, 3\)"
    ):
        room(column).append(key, key, column.positions(np.arange(2)))


def test_no_bias_is_no_fault():
    assert contract.bias(None, (2, 2)) is None  # as the ports ask


def test_torch_attends_only_to_slots_that_were_reached(torch_column):
    """Where positions can be read; and without a mask if there is nothing to hide."""
    calls = []

    def spy(query, key, value, **options):
        calls.append((key.shape[-2], options["mask"] is None))
        return torch_column.scaled_dot_product_attention(query, key, value, **options)

    layer = torch_column.MultiHeadAttention(8, 2, attention=spy)
    x, cache = torch.randn(2, 5, 8), layer.init_cache((2,), 50)
    outs = []
    for part in x.split([3, 1, 1], dim=1):
        out, cache = layer(part, cache=cache)
        outs.append(out)
    assert (torch.cat(outs, 1) - layer(x, causal=True)).abs().max() < 1e-6
    assert calls[:3] == [(3, False), (4, True), (5, True)]
    layer(x[:, :1], cache=cache, query_positions=torch.tensor([[5], [4]]))
    assert calls[4] == (6, False)  # one example stands behind the other
    empty = layer.init_cache((2,), 50)
    layer(x[:, :1], cache=empty, query_positions=torch.tensor([[-1], [-1]]))
    assert calls[5] == (1, False)  # nothing but padding
    every = torch.ones(51, dtype=torch.bool)
    layer(x[:, :1], cache=cache, mask=every[None])
    assert calls[6] == (51, False)  # a mask of all slots


def test_torch_wraps_around_with_one_token(torch_column):
    layer = torch_column.MultiHeadAttention(8, 2, mask=torch_column.Window(3))
    x, cache, outs = torch.randn(1, 8, 8), layer.init_cache((1,), 50), []
    for token in x.split(1, dim=1):
        out, cache = layer(token, cache=cache)
        outs.append(out)
    assert cache.positions.tolist() == [[6, 7, 5, 2**31 - 1]]
    assert (torch.cat(outs, 1) - layer(x, causal=True)).abs().max() < 1e-6


def test_a_cache_is_a_tree_of_tensors_in_pytorch(torch_column):
    cache = room(torch_column, window=3, rotated=False)
    leaves, spec = torch.utils._pytree.tree_flatten(cache)
    assert [
        leaf is getattr(cache, name) for leaf, name in zip(leaves, NAMES, strict=True)
    ] == [True] * 3
    again = torch.utils._pytree.tree_unflatten(leaves, spec)
    assert (again.window, again.rotated) == (3, False)
    named, _ = torch.utils._pytree.tree_flatten_with_path(cache)
    assert [path[0].name for path, _ in named] == NAMES
