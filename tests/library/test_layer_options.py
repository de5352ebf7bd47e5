"""What a layer is told once: a mask that always holds, sinks, a cap, a gate, coordinates, and its cache."""

from dataclasses import replace
from functools import partial

import jax
import numpy as np
import pytest
import torch

from tests.conftest import COLUMNS, assert_close, draw
from tests.library.test_multi_head import layer_of
from tests.library.test_sinks import small  # noqa: F401  (a fixture)

DIM, HEADS, N = 8, 2, 7
WEIGHTS = [draw(30 + i, DIM, DIM) for i in range(4)]
X = draw(50, 2, N, DIM)


def near(query_positions, key_positions):
    """A mask that is a function, and no value of the library's."""
    offsets = key_positions[..., None, :] - query_positions[..., :, None]
    return abs(offsets) < 3


MASKS = {
    "window": lambda column: column.Window(3),
    "chunk": lambda column: column.Chunk(3),
    "function": lambda column: near,
}
CALLS = {
    "none": lambda column: None,
    "array": lambda column: column.array(np.tri(N, N, 1, dtype=bool)[None, ::-1, ::-1].copy()),
    "by head": lambda column: column.array(draw(3, 2, HEADS, N, N) > -1),
    "function": lambda column: column.Window(5),
}  # fmt: skip
on_masks = pytest.mark.parametrize("own", MASKS.values(), ids=MASKS)


def turn(x, positions):
    return x * (1 + positions[..., None] % 3) / 2


def dense(column, mask):
    """The mask of a call as an array of pairs, which one has for each head."""
    if mask is None or not callable(mask):
        return mask
    where = column.array(np.arange(N))
    return mask(where, where)[None]


@on_masks
@pytest.mark.parametrize("given", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("causal", [False, True])
def test_a_mask_of_the_layer_holds_together_with_that_of_a_call(column, own, given, causal):
    own, given = own(column), given(column)
    weights = [column.array(w) for w in WEIGHTS]
    plain = layer_of(column, WEIGHTS, HEADS)
    masked = layer_of(column, WEIGHTS, HEADS, mask=own)
    both = dense(column, own)
    if given is not None:
        other = dense(column, given)
        both = (both[:, None] if other.ndim == 4 else both) & other
    x = column.array(X)
    assert len(weights) == 4
    want = plain(x, mask=both, causal=causal)
    assert_close(column, masked(x, mask=given, causal=causal), column.numpy(want))
    want = plain.attention_weights(x, mask=both, causal=causal)
    got = masked.attention_weights(x, mask=given, causal=causal)
    assert_close(column, got, column.numpy(want))


@on_masks
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("room", [0, 4])
def test_its_own_cache_gives_a_masked_layer_the_rows_of_the_whole(
    column, own, padded, room
):
    layer = layer_of(column, WEIGHTS, HEADS, rotate=turn, mask=own(column))
    x, where = column.array(X), np.arange(N)
    mask = {}
    if padded:  # the second row begins two tokens later
        where = np.array([where, where - 2])
        mask = {"mask": column.array((where >= 0)[:, None, :])}
    at = column.array(where)
    want = column.numpy(layer(x, causal=True, query_positions=at, key_positions=at, **mask))
    cache = layer.init_cache((2,), N + room)
    rows = []
    for part in (slice(0, 4), slice(4, 5), slice(5, 7)):
        out, cache = layer(x[:, part], cache=cache, query_positions=at[..., part])
        rows.append(column.numpy(out))
    got = np.concatenate(rows, axis=1)
    kept = np.broadcast_to(where, (2, N)) >= 0
    assert_close(column, column.array(got[kept]), want[kept])


@pytest.mark.parametrize(
    ("mask", "window"),
    [(None, None), ("Window", 5), ("Chunk", 5), (near, None)],
    ids=["none", "window", "chunk", "function"],
)
def test_a_cache_of_the_layer_has_its_sizes_and_is_bounded_by_its_mask(
    column, mask, window
):
    mask = getattr(column, mask)(5) if isinstance(mask, str) else mask
    weights = [draw(1, DIM, 12), draw(2, 6, 6), draw(3, 6, 6), draw(4, 12, DIM)]
    layer = layer_of(column, weights, 4, num_kv_heads=2, mask=mask)
    cache = layer.init_cache((3,), 9, rotated=False)
    extra = column.name == "torch"  # a slot for padding
    slots = (window or 9) + extra
    assert tuple(cache.key.shape) == tuple(cache.value.shape) == (3, 2, slots, 3)
    assert cache.window == window
    assert not cache.rotated
    assert str(cache.key.dtype).removeprefix("torch.") == column.dtype


def test_a_window_that_the_cache_has_too_hides_nothing_more(column):
    """A cache with a narrower window than that of the layer decides."""
    layer = layer_of(column, WEIGHTS, HEADS, mask=column.Window(6))
    narrow = layer_of(column, WEIGHTS, HEADS, mask=column.Window(2))
    x = column.array(X)
    cache = narrow.init_cache((2,), N)
    got, _ = layer(x, cache=cache)
    assert_close(column, got, column.numpy(narrow(x, causal=True)))


@on_masks
def test_an_attention_of_its_own_gets_the_mask_of_the_layer(column, own):
    x, own = column.array(X), own(column)
    attend = partial(column.scaled_dot_product_attention, causal=False)
    with_own = layer_of(column, WEIGHTS, HEADS, mask=own, attention=attend)
    plain = layer_of(column, WEIGHTS, HEADS, mask=own)
    for mask in (None, column.Window(4), column.array(np.tri(N, dtype=bool)[None])):
        want = column.numpy(plain(x, mask=mask))
        assert_close(column, with_own(x, mask=mask), want)


def test_two_masks_that_are_functions_stay_one(column):
    """Nobody makes an array of pairs where a function of positions will do."""
    seen = []

    def attend(query, key, value, *, mask, **options):
        seen.append(mask)
        return column.scaled_dot_product_attention(query, key, value, mask=mask, **options)

    layer = layer_of(column, WEIGHTS, HEADS, mask=column.Window(3), attention=attend)
    layer(column.array(X), mask=column.Chunk(4))
    (mask,) = seen
    assert callable(mask)
    where = column.array(np.arange(N))
    want = column.numpy(column.Window(3)(where, where) & column.Chunk(4)(where, where))
    assert np.array_equal(column.numpy(mask(where, where)), want)


PLACES = np.stack([np.arange(N) // 3, np.arange(N) % 3], -1)


def turn_by_rows(x, places):
    """A rotation in miniature by two coordinates of each token."""
    return x * (1 + places[..., 0] + 2 * places[..., 1])[..., None] / 4


@pytest.mark.parametrize(
    "places", [PLACES, np.stack([PLACES, PLACES[::-1]])], ids=["one", "each"]
)
def test_coordinates_turn_and_positions_mask(column, places):
    x, at = column.array(X), column.array(places)
    layer = layer_of(column, WEIGHTS, HEADS, rotate=turn_by_rows, mask=column.Window(3))
    by_hand = layer_of(
        column,
        WEIGHTS,
        HEADS,
        rotate=lambda h, _: turn_by_rows(h, at[..., None, :, :]),
        mask=column.Window(3),
    )
    where = column.array(np.arange(N) + 2)
    options = {"causal": True, "query_positions": where}
    want = column.numpy(by_hand(x, **options))
    assert_close(column, layer(x, coordinates=at, **options), want)
    got = layer.attention_weights(x, coordinates=at, **options)
    assert_close(column, got, column.numpy(by_hand.attention_weights(x, **options)))
    cache, rows = layer.init_cache((2,), N), []
    for part in (slice(0, 4), slice(4, 5), slice(5, 7)):
        out, cache = layer(x[:, part], coordinates=at[..., part, :], cache=cache)
        rows.append(column.numpy(out))
    assert_close(column, column.array(np.concatenate(rows, axis=1)), want)


def test_weights_on_request_take_coordinates_of_their_own_sequence_only(column):
    layer, x = layer_of(column, WEIGHTS, HEADS, rotate=turn_by_rows), column.array(X)
    with pytest.raises(ValueError, match="coordinates must be None where key is given"):
        layer.attention_weights(x, x, coordinates=column.array(PLACES))


def test_coordinates_mean_nothing_to_a_layer_that_does_not_turn(column):
    x = column.array(X)
    layer = layer_of(column, WEIGHTS, HEADS)
    want = column.numpy(layer(x))
    assert_close(column, layer(x, coordinates=column.array(PLACES)), want)


def test_a_cache_has_the_dtype_that_a_call_makes(torch_column):
    layer = torch_column.MultiHeadAttention(DIM, HEADS, dtype=torch.float32)
    x = torch.ones(2, 3, DIM)
    assert layer.init_cache((2,), 4).key.dtype == torch.float32
    assert layer.init_cache((2,), 4, dtype=torch.float64).key.dtype == torch.float64
    with torch.autocast("cpu", torch.bfloat16):
        cache = layer.init_cache((2,), 4)
        assert cache.key.dtype == torch.bfloat16
        assert layer(x, cache=cache)[0].shape == x.shape
    half = torch_column.MultiHeadAttention(DIM, HEADS, dtype=torch.bfloat16)
    assert half(x.bfloat16(), cache=half.init_cache((2,), 4))[0].dtype == torch.bfloat16
    layer.to("meta")
    assert layer.init_cache((2,), 4).key.device.type == "meta"
    assert layer.init_cache((2,), 4, device="cpu").key.device.type == "cpu"


def test_a_projection_without_weights_of_numbers_leaves_the_dtype_to_torch(torch_column):
    """A quantized layer has a method called `weight`."""

    class Quantized(torch.nn.Module):
        def weight(self):
            return None

    layer = torch_column.MultiHeadAttention(DIM, HEADS)
    layer.key = Quantized()
    cache = layer.init_cache((), 4)
    assert cache.key.dtype == torch.get_default_dtype()
    assert cache.key.device.type == "cpu"


def test_torch_layers_print_their_mask(torch_column):
    layer = torch_column.MultiHeadAttention(4, 2, mask=torch_column.Window(3))
    assert "mask=Window(window=3)" in repr(layer)


GATE, GATE_OFFSET = draw(34, DIM, DIM), draw(35, DIM)


def gated_layer(column, offset=False, **options):
    """A layer whose gate has these weights."""
    if column.name != "torch":
        more = {"gate_bias": column.array(GATE_OFFSET)} if offset else {}
        return layer_of(
            column, WEIGHTS, HEADS, gate_weight=column.array(GATE), **more, **options
        )
    dtype = getattr(torch, column.dtype)
    made = column.MultiHeadAttention(
        DIM, HEADS, gate=True, use_bias=offset, dtype=dtype, **options
    )
    named = zip(("query", "key", "value", "output", "gate"), [*WEIGHTS, GATE], strict=True)
    state = {f"{role}.weight": torch.tensor(w.T) for role, w in named}
    state |= {"gate.bias": torch.tensor(GATE_OFFSET)} if offset else {}
    made.load_state_dict(state, strict=not offset)
    return made.requires_grad_(False)


@pytest.mark.parametrize("offset", [False, True])
@pytest.mark.parametrize("crossed", [False, True])
def test_a_gate_opens_each_entry_of_the_heads_for_the_query(column, offset, crossed):
    opened = 1 / (1 + np.exp(-(X @ GATE + offset * GATE_OFFSET)))
    other = column.array(draw(51, 2, 4, DIM)) if crossed else None
    x = column.array(X)
    plain = layer_of(column, [*WEIGHTS[:3], np.eye(DIM)], HEADS)
    want = (column.numpy(plain(x, other)) * opened) @ WEIGHTS[3]
    layer = gated_layer(column, offset)
    assert_close(column, layer(x, other), want)
    assert_close(
        column,
        layer.attention_weights(x, other),
        column.numpy(plain.attention_weights(x, other)),
    )


def test_a_gated_layer_decodes_the_rows_of_the_whole(column):
    layer = gated_layer(column, rotate=turn, mask=column.Window(3))
    x = column.array(X)
    want = column.numpy(layer(x, causal=True))
    cache, rows = layer.init_cache((2,), N), []
    for part in (slice(0, 4), slice(4, 5), slice(5, 7)):
        out, cache = layer(x[:, part], cache=cache)
        rows.append(column.numpy(out))
    assert_close(column, column.array(np.concatenate(rows, axis=1)), want)


@pytest.mark.parametrize("offset", [False, True])
def test_a_gate_is_projected_as_wide_as_the_heads(column, offset):
    sizes = {"num_kv_heads": 1, "head_dim": 3, "kv_dim": 5, "use_bias": offset}
    if column.name == "torch":
        layer = column.MultiHeadAttention(DIM, HEADS, gate=True, **sizes)
        weight, bias = layer.gate.weight.mT, layer.gate.bias
    else:
        layer = column.MultiHeadAttention.init(column.rng(), DIM, HEADS, gate=True, **sizes)
        weight, bias = layer.gate_weight, layer.gate_bias
    assert tuple(weight.shape) == (DIM, 6)
    assert abs(weight).max() > 0
    assert (bias is not None) == offset
    assert not offset or not bias.any()


def test_torch_layers_show_their_gate_among_the_projections(torch_column):
    layer = torch_column.MultiHeadAttention(DIM, HEADS, gate=True)
    assert "(gate): Linear(in_features=8, out_features=8, bias=False)" in repr(layer)
    assert "gate" not in repr(torch_column.MultiHeadAttention(DIM, HEADS))
    assert "gate.weight" in layer.state_dict()


def test_a_gate_under_autocast_and_in_bfloat16(torch_column):
    layer = torch_column.MultiHeadAttention(DIM, HEADS, gate=True, dtype=torch.float32)
    x = torch.ones(2, 3, DIM)
    with torch.autocast("cpu", torch.bfloat16):
        assert layer(x).dtype == torch.bfloat16
    assert layer.bfloat16()(x.bfloat16()).dtype == torch.bfloat16


def test_a_gate_of_a_jax_layer_is_trained(jax_single):
    layer = gated_layer(jax_single, offset=True)
    x = jax_single.array(X)
    grads = jax.jit(jax.grad(lambda layer: layer(x, causal=True).sum()))(layer)
    assert abs(grads.gate_weight).max() > 0
    assert abs(grads.gate_bias).max() > 0
    assert jax.tree.structure(layer) != jax.tree.structure(replace(layer, gate_bias=None))


SINKS = np.array([0.5, -1.0])


def weighing_layer(column, sinks=SINKS, soft_cap=None, **options):
    """A layer with sinks, a cap, or both."""
    options["soft_cap"] = soft_cap
    if column.name != "torch":
        sinks = None if sinks is None else column.array(sinks)
        return layer_of(column, WEIGHTS, HEADS, sinks=sinks, **options)
    dtype = getattr(torch, column.dtype)
    made = column.MultiHeadAttention(
        DIM, HEADS, sinks=sinks is not None, dtype=dtype, **options
    )
    named = zip(("query", "key", "value", "output"), WEIGHTS, strict=True)
    state = {f"{role}.weight": torch.tensor(w.T) for role, w in named}
    state |= {} if sinks is None else {"sinks": torch.tensor(sinks)}
    made.load_state_dict(state)
    return made.requires_grad_(False)


def weights_by_hand(sinks, soft_cap, causal=True, x=X):
    """A softmax to whose sum a sink belongs, of scores between a cap and its negative."""
    q, k = ((x @ w).reshape(*x.shape[:2], HEADS, -1).swapaxes(1, 2) for w in WEIGHTS[:2])
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(DIM / HEADS)
    scores = scores if soft_cap is None else soft_cap * np.tanh(scores / soft_cap)
    exp = np.exp(scores) * (np.tri(x.shape[1]) if causal else 1)
    own = 0 if sinks is None else np.exp(sinks)[:, None, None]
    return exp / (exp.sum(-1, keepdims=True) + own)


on_weighing = pytest.mark.parametrize(
    ("sinks", "soft_cap"), [(SINKS, None), (None, 2.0), (SINKS, 2.0)]
)


@on_weighing
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("tiles", [False, True])
def test_sinks_and_a_cap_change_the_weights_of_a_layer(
    column, request, sinks, soft_cap, causal, tiles
):
    if tiles:
        request.getfixturevalue("small")
    layer, x = weighing_layer(column, sinks, soft_cap), column.array(X)
    weights = weights_by_hand(sinks, soft_cap, causal)
    assert_close(column, layer.attention_weights(x, causal=causal), weights)
    v = (X @ WEIGHTS[2]).reshape(2, N, HEADS, -1).swapaxes(1, 2)
    heads = (weights @ v).swapaxes(1, 2).reshape(2, N, DIM)
    assert_close(column, layer(x, causal=causal), heads @ WEIGHTS[3])


@on_weighing
@pytest.mark.parametrize("rotated", [False, True])
def test_a_layer_with_sinks_or_a_cap_decodes_the_rows_of_the_whole(
    column, sinks, soft_cap, rotated
):
    options = {"rotate": turn, "mask": column.Window(3)}
    layer, x = weighing_layer(column, sinks, soft_cap, **options), column.array(X)
    want = column.numpy(layer(x, causal=True))
    cache, rows = layer.init_cache((2,), N, rotated=rotated), []
    for part in (slice(0, 4), slice(4, 5), slice(5, 7)):
        out, cache = layer(x[:, part], cache=cache)
        rows.append(column.numpy(out))
    assert_close(column, column.array(np.concatenate(rows, axis=1)), want)


def test_sinks_begin_at_zero_and_there_are_none_unless_asked_for(column):
    def made(**options):
        if column.name == "torch":
            return column.MultiHeadAttention(DIM, HEADS, **options)
        return column.MultiHeadAttention.init(column.rng(), DIM, HEADS, **options)

    layer = made(sinks=True, soft_cap=3)
    assert tuple(layer.sinks.shape) == (HEADS,)
    assert not layer.sinks.any()
    assert layer.soft_cap == 3
    assert made().sinks is None
    assert made().soft_cap is None


def test_an_attention_of_its_own_is_told_of_sinks_and_a_cap_where_there_are_some(column):
    told = []

    def attend(query, key, value, **options):
        told.append({"sinks", "soft_cap"} & set(options))
        return column.scaled_dot_product_attention(query, key, value, **options)

    x = column.array(X)
    for sinks, soft_cap in ((None, None), (SINKS, None), (SINKS, 2.0)):
        layer = weighing_layer(column, sinks, soft_cap, attention=attend)
        own = weighing_layer(column, sinks, soft_cap)
        assert_close(column, layer(x, causal=True), column.numpy(own(x, causal=True)))
    assert told == [set(), {"sinks"}, {"sinks", "soft_cap"}]


def test_torch_layers_save_and_show_their_sinks(torch_column):
    layer = torch_column.MultiHeadAttention(DIM, HEADS, sinks=True, soft_cap=30.0)
    assert "sinks=True" in repr(layer)
    assert "soft_cap=30.0" in repr(layer)
    assert "sinks" in layer.state_dict()
    plain = repr(torch_column.MultiHeadAttention(DIM, HEADS))
    assert "sinks" not in plain
    assert "soft_cap" not in plain


@pytest.mark.parametrize("soft_cap", [None, 2.0])
def test_sinks_keep_their_digits_under_autocast_and_not_in_bfloat16(torch_column, soft_cap):
    """A sink takes part in float32; what the layer returns has the dtype of its projections."""
    layer = weighing_layer(torch_column, SINKS + 1e-3, soft_cap).float()
    x = torch.tensor(X, dtype=torch.float32)
    want = layer(x, causal=True)
    with torch.autocast("cpu", torch.bfloat16):
        got = layer(x, causal=True)
        assert layer.attention_weights(x).dtype == torch.bfloat16
        cache = layer.init_cache((2,), N)
        assert layer(x, cache=cache)[0].dtype == torch.bfloat16
    assert layer.sinks.dtype == torch.float32
    assert got.dtype == torch.bfloat16
    assert (got - want).abs().max() < 0.05 * want.abs().max()
    half = layer.bfloat16()(x.bfloat16(), causal=True)
    assert half.dtype == layer.sinks.dtype == torch.bfloat16
    assert (half - want).abs().max() < 0.05 * want.abs().max()


@pytest.mark.parametrize("column", COLUMNS[1:], ids=str, indirect=True)
@pytest.mark.parametrize("soft_cap", [None, 2.0])
def test_sinks_of_a_layer_are_trained(column, soft_cap):
    """Their derivative is that of the weights, which a step along it changes as much as it says."""
    x, step = column.array(X), 1e-2

    def total(sinks):
        layer = weighing_layer(column, None, soft_cap)
        if column.name == "torch":
            layer.sinks = torch.nn.Parameter(sinks)
            return layer(x, causal=True).sum(), layer.sinks
        return replace(layer, sinks=sinks)(x, causal=True).sum()

    if column.name == "torch":
        value, sinks = total(column.array(SINKS))
        (slopes,) = torch.autograd.grad(value, sinks)
        slopes = slopes.double().numpy()
    else:
        slopes = np.asarray(jax.grad(total)(column.array(SINKS)), float)
    v = (X @ WEIGHTS[2]).reshape(2, N, HEADS, -1).swapaxes(1, 2)

    def by_hand(sinks):
        heads = (weights_by_hand(sinks, soft_cap) @ v).swapaxes(1, 2).reshape(2, N, DIM)
        return (heads @ WEIGHTS[3]).sum()

    moves = step * np.eye(HEADS)
    want = [(by_hand(SINKS + m) - by_hand(SINKS - m)) / (2 * step) for m in moves]
    assert np.allclose(slopes, want, rtol=1e-3, atol=1e-3)
