"""What a layer is told once: a mask that always holds, sinks, a cap, a gate, coordinates, and its cache."""

import numpy as np
import pytest
import torch

from tests.conftest import assert_close, draw
from tests.library.test_multi_head import layer_of
from tests.library.test_sinks import small  # noqa: F401  (a fixture)

DIM, HEADS, N = 8, 2, 7
WEIGHTS = [draw(30 + i, DIM, DIM) for i in range(4)]
X = draw(50, 2, N, DIM)


def near(query_positions, key_positions):
    """A mask that is a function, and no value of the library's."""
    offsets = key_positions[..., None, :] - query_positions[..., :, None]
    return abs(offsets) < 3


def turn(x, positions):
    return x * (1 + positions[..., None] % 3) / 2


def decoded(column, layer, cache, x, **options):
    """The rows that a layer returns part by part."""
    rows = []
    for part in (slice(0, 4), slice(4, 5), slice(5, 7)):
        of_part = {n: value[..., part] for n, value in options.items()}
        out, cache = layer(x[:, part], cache=cache, **of_part)
        rows.append(column.numpy(out))
    return np.concatenate(rows, axis=1)


# A mask of the layer

OF_A_CALL = {
    "array": lambda column: column.array(np.tri(N, N, 1, dtype=bool)[None, ::-1, ::-1].copy()),
    "by head": lambda column: column.array(draw(3, 2, HEADS, N, N) > -1),
    "function": lambda column: column.Window(5),
}  # fmt: skip


@pytest.mark.parametrize("given", OF_A_CALL.values(), ids=OF_A_CALL)
def test_masks_of_layer_and_call_hold_together(column, given):
    given, x, where = given(column), column.array(X), np.arange(N)
    both = near(where, where)[None]
    other = column.numpy(given(*[column.array(where)] * 2) if callable(given) else given)
    both = column.array((both[:, None] if other.ndim == 4 else both) & other)
    plain = layer_of(column, WEIGHTS, HEADS)
    masked = layer_of(column, WEIGHTS, HEADS, mask=near)
    for name in ("__call__", "attention_weights"):
        want = getattr(plain, name)(x, mask=both, causal=True)
        got = getattr(masked, name)(x, mask=given, causal=True)
        assert_close(column, got, column.numpy(want))


MASKS = {
    "window": lambda column: column.Window(3),
    "chunk": lambda column: column.Chunk(3),
    "function": lambda column: near,
}


@pytest.mark.parametrize("own", MASKS.values(), ids=MASKS)
def test_its_own_cache_gives_the_rows_of_the_whole(column, own):
    """The second row begins two tokens later."""
    layer = layer_of(column, WEIGHTS, HEADS, rotate=turn, mask=own(column))
    x, where = column.array(X), np.array([np.arange(N), np.arange(N) - 2])
    at, kept = column.array(where), where >= 0
    options = {"query_positions": at, "key_positions": at, "causal": True}
    want = column.numpy(layer(x, mask=column.array(kept[:, None, :]), **options))
    got = decoded(column, layer, layer.init_cache((2,), N), x, query_positions=at)
    assert_close(column, column.array(got[kept]), want[kept])


@pytest.mark.parametrize(
    ("mask", "window"), [(None, None), ("Window", 5), ("Chunk", 5), (near, None)]
)
def test_a_layers_cache_is_bounded_by_its_mask(column, mask, window):
    mask = getattr(column, mask)(5) if isinstance(mask, str) else mask
    weights = [draw(1, DIM, 12), draw(2, 6, 6), draw(3, 6, 6), draw(4, 12, DIM)]
    layer = layer_of(column, weights, 4, num_kv_heads=2, mask=mask)
    cache = layer.init_cache((3,), 9, rotated=False)
    slots = (window or 9) + (column.name == "torch")  # a slot for padding
    assert tuple(cache.key.shape) == tuple(cache.value.shape) == (3, 2, slots, 3)
    assert cache.window == window
    assert not cache.rotated
    assert str(cache.key.dtype).removeprefix("torch.") == column.dtype


def test_two_mask_functions_reach_attention_as_one(column):
    seen = []

    def attend(query, key, value, *, mask, **options):
        seen.append(mask)
        return column.scaled_dot_product_attention(query, key, value, mask=mask, **options)

    layer = layer_of(column, WEIGHTS, HEADS, mask=column.Window(3), attention=attend)
    layer(column.array(X), mask=column.Chunk(4))
    where = np.arange(N)
    got = column.numpy(seen[0](*[column.array(where)] * 2))
    offsets = np.subtract.outer(where, where)
    assert np.array_equal(got, (abs(offsets) < 3) & np.equal.outer(where // 4, where // 4))


# Coordinates

PLACES = np.stack([np.arange(N) // 3, np.arange(N) % 3], -1)


def turn_by_rows(x, places):
    """A rotation in miniature by two coordinates of each token."""
    return x * (1 + places[..., 0] + 2 * places[..., 1])[..., None] / 4


def test_coordinates_rotate_and_positions_mask(column):
    x, at = column.array(X), column.array(np.stack([PLACES, PLACES[::-1]]))
    mask = column.Window(3)
    layer = layer_of(column, WEIGHTS, HEADS, rotate=turn_by_rows, mask=mask)
    by_hand = layer_of(
        column,
        WEIGHTS,
        HEADS,
        rotate=lambda h, _: turn_by_rows(h, at[..., None, :, :]),
        mask=mask,
    )
    options = {"causal": True, "query_positions": column.array(np.arange(N) + 2)}
    want = column.numpy(by_hand(x, **options))
    assert_close(column, layer(x, coordinates=at, **options), want)
    got = layer.attention_weights(x, coordinates=at, **options)
    assert_close(column, got, column.numpy(by_hand.attention_weights(x, **options)))
    cache, rows = layer.init_cache((2,), N), []
    for part in (slice(0, 4), slice(4, 7)):
        out, cache = layer(x[:, part], coordinates=at[..., part, :], cache=cache)
        rows.append(column.numpy(out))
    assert_close(column, column.array(np.concatenate(rows, axis=1)), want)
    with pytest.raises(ValueError, match="coordinates must be None where key is given"):
        layer.attention_weights(x, x, coordinates=at)


# A gate

GATE, GATE_OFFSET = draw(34, DIM, DIM), draw(35, DIM)


def gated_layer(column, **options):
    """A layer whose gate has these weights, and an offset."""
    if column.name != "torch":
        gate = {"gate_weight": column.array(GATE), "gate_bias": column.array(GATE_OFFSET)}
        return layer_of(column, WEIGHTS, HEADS, **gate, **options)
    made = column.MultiHeadAttention(
        DIM, HEADS, gate=True, use_bias=True, dtype=torch.float64, **options
    )
    named = zip(("query", "key", "value", "output", "gate"), [*WEIGHTS, GATE], strict=True)
    state = {f"{role}.weight": torch.tensor(w.T) for role, w in named}
    made.load_state_dict(state | {"gate.bias": torch.tensor(GATE_OFFSET)}, strict=False)
    return made.requires_grad_(False)


def test_a_gate_opens_entries_for_the_query(column):
    opened = 1 / (1 + np.exp(-(X @ GATE + GATE_OFFSET)))
    x, other = column.array(X), column.array(draw(51, 2, 4, DIM))
    plain = layer_of(column, [*WEIGHTS[:3], np.eye(DIM)], HEADS)
    want = (column.numpy(plain(x, other)) * opened) @ WEIGHTS[3]
    assert_close(column, gated_layer(column)(x, other), want)


def test_a_gate_is_as_wide_as_the_heads(column):
    sizes = {"num_kv_heads": 1, "head_dim": 3, "kv_dim": 5, "use_bias": True, "gate": True}
    if column.name == "torch":
        layer = column.MultiHeadAttention(DIM, HEADS, **sizes)
        weight, bias = layer.gate.weight.mT, layer.gate.bias
        assert "gate.weight" in layer.state_dict()
    else:
        layer = column.MultiHeadAttention.init(column.rng(), DIM, HEADS, **sizes)
        weight, bias = layer.gate_weight, layer.gate_bias
    assert tuple(weight.shape) == (DIM, 6)
    assert abs(weight).max() > 0
    assert not bias.any()


# Sinks and a cap

SINKS = np.array([0.5, -1.0])


def weighing_layer(column, sinks=SINKS, soft_cap=None, **options):
    """A layer with sinks, a cap, or both."""
    options["soft_cap"] = soft_cap
    if column.name != "torch":
        sinks = None if sinks is None else column.array(sinks)
        return layer_of(column, WEIGHTS, HEADS, sinks=sinks, **options)
    made = layer_of(column, WEIGHTS, HEADS, **options)
    if sinks is not None:
        made.sinks = torch.nn.Parameter(column.array(sinks), requires_grad=False)
    return made


def weights_by_hand(sinks, soft_cap):
    """A softmax to whose sum a sink belongs, of scores between a cap and its negative."""
    q, k = ((X @ w).reshape(2, N, HEADS, -1).swapaxes(1, 2) for w in WEIGHTS[:2])
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(DIM / HEADS)
    scores = scores if soft_cap is None else soft_cap * np.tanh(scores / soft_cap)
    exp = np.exp(scores) * np.tri(N)
    own = 0 if sinks is None else np.exp(sinks)[:, None, None]
    return exp / (exp.sum(-1, keepdims=True) + own)


def mixed(weights):
    v = (X @ WEIGHTS[2]).reshape(2, N, HEADS, -1).swapaxes(1, 2)
    return (weights @ v).swapaxes(1, 2).reshape(2, N, DIM) @ WEIGHTS[3]


@pytest.mark.parametrize(("sinks", "soft_cap"), [(SINKS, None), (None, 2.0), (SINKS, 2.0)])
@pytest.mark.parametrize("tiles", [False, True])
def test_sinks_and_a_cap_change_the_weights(column, request, sinks, soft_cap, tiles):
    if tiles:
        request.getfixturevalue("small")
    layer, x = weighing_layer(column, sinks, soft_cap), column.array(X)
    weights = weights_by_hand(sinks, soft_cap)
    assert_close(column, layer.attention_weights(x, causal=True), weights)
    assert_close(column, layer(x, causal=True), mixed(weights))


@pytest.mark.parametrize("rotated", [False, True])
def test_sinks_and_a_cap_decode_rows_of_the_whole(column, rotated):
    options = {"rotate": turn, "mask": column.Window(3)}
    layer, x = weighing_layer(column, SINKS, 2.0, **options), column.array(X)
    got = decoded(column, layer, layer.init_cache((2,), N, rotated=rotated), x)
    assert_close(column, column.array(got), column.numpy(layer(x, causal=True)))


def test_sinks_begin_at_zero_where_asked_for(column):
    def made(**options):
        if column.name == "torch":
            return column.MultiHeadAttention(DIM, HEADS, **options)
        return column.MultiHeadAttention.init(column.rng(), DIM, HEADS, **options)

    layer = made(sinks=True, soft_cap=3)
    assert tuple(layer.sinks.shape) == (HEADS,)
    assert not layer.sinks.any()
    assert layer.soft_cap == 3
    assert column.name != "torch" or "sinks" in layer.state_dict()
    assert made().sinks is made().soft_cap is None


def test_an_attention_of_its_own_hears_of_sinks(column):
    told, x = [], column.array(X)

    def attend(query, key, value, **options):
        told.append({"sinks", "soft_cap"} & set(options))
        return column.scaled_dot_product_attention(query, key, value, **options)

    for sinks, soft_cap in ((None, None), (SINKS, 2.0)):
        layer = weighing_layer(column, sinks, soft_cap, attention=attend)
        own = weighing_layer(column, sinks, soft_cap)
        assert_close(column, layer(x, causal=True), column.numpy(own(x, causal=True)))
    assert told == [set(), {"sinks", "soft_cap"}]


# PyTorch's dtypes


def test_sinks_keep_their_digits_under_autocast(torch_column):
    """A sink takes part in float32; what the layer returns has the dtype of its projections."""
    layer = weighing_layer(torch_column, SINKS + 1e-3, 2.0).float()
    x = torch.tensor(X, dtype=torch.float32)
    want = layer(x, causal=True)
    with torch.autocast("cpu", torch.bfloat16):
        got = layer(x, causal=True)
        assert layer(x, cache=layer.init_cache((2,), N))[0].dtype == torch.bfloat16
    assert layer.sinks.dtype == torch.float32
    half = layer.bfloat16()(x.bfloat16(), causal=True)
    for out in (got, half):
        assert out.dtype == torch.bfloat16
        assert (out - want).abs().max() < 0.05 * want.abs().max()
