"""Multi-head attention."""

from dataclasses import dataclass

import jax
import numpy as np
import pytest
import torch

from tests.conftest import (
    COLUMNS,
    PROJECTIONS,
    REFERENCE,
    assert_close,
    assert_twin_agrees,
    draw,
    error,
)

DIM, HEADS, BATCH = 4, 2, 2
WEIGHTS = [draw(30 + i, DIM, DIM) for i in range(4)]
OFFSETS = [draw(40 + i, DIM) for i in range(4)]
PACKED = np.array([0, 1, 2, 0, 1])
SEEN = np.array([[[1, 1, 1, 0, 0]], [[0, 0, 0, 0, 0]]], bool)
in_frameworks = pytest.mark.parametrize("column", COLUMNS[1:], ids=str, indirect=True)


def turn(x, positions):
    """A rotation in miniature: what it does to a token depends on the token's position."""
    return x * (1 + positions[..., None] % 3) / 2


def nearness(column):
    """A bias per head that is a function of positions, with or without batch axes."""
    slopes = column.array(np.array([0.25, 0.5])[:, None, None])
    return lambda query_positions, key_positions: (
        -slopes
        * abs(key_positions[..., None, :] - query_positions[..., :, None])[..., None, :, :]
    )


# n_q, n_k, weights, whether positions matter, options of the call
CASES = {
    "nothing asked for": (3, 5, WEIGHTS, False, {}),
    "positions by default": (3, 5, WEIGHTS, True, {"causal": True}),
    "all combined": (
        3, 5, WEIGHTS + OFFSETS, True,
        {"key_positions": np.array([PACKED + 3, 7 - PACKED]), "causal": True, "mask": SEEN},
    ),
    "no keys": (3, 0, WEIGHTS + OFFSETS, False, {}),
}  # fmt: skip


def inputs(n_q, n_k):
    return [draw(50, BATCH, n_q, DIM), draw(51, BATCH, n_k, DIM), draw(52, BATCH, n_k, DIM)]


def plain(column, **options):
    return column.multi_head([column.array(w) for w in WEIGHTS], HEADS, **options)


def layer_of(column, weights, num_heads, **options):
    """A layer with all its methods, from 4 matrices for `x @ weight`."""
    if column.name != "torch":
        return column.multi_head([column.array(w) for w in weights], num_heads, **options)
    sizes = {"head_dim": weights[0].shape[1] // num_heads, "kv_dim": len(weights[1])}
    dtype = getattr(torch, column.dtype)
    layer = column.MultiHeadAttention(
        len(weights[0]), num_heads, **sizes, **options, dtype=dtype
    )
    named = zip(PROJECTIONS, weights, strict=True)
    layer.load_state_dict({f"{role}.weight": torch.tensor(w.T) for role, w in named})
    return layer.requires_grad_(False)


def call(column, case, weights, arrays):
    _, _, _, positional, options = case
    schemes = {"rotate": turn, "bias": nearness(column)} if positional else {}
    options = {n: x if n == "causal" else column.array(x) for n, x in options.items()}
    return column.multi_head(weights, HEADS, **schemes)(*arrays, **options)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_heads_are_attentions_of_columns(column, case):
    n_q, n_k, weights, positional, options = case
    arrays = inputs(n_q, n_k)
    given = [[column.array(x) for x in xs] for xs in (weights, arrays)]
    got = call(column, case, *given)
    offsets = weights[4:] or [0.0] * 4
    q, k, v = (x @ w + o for x, w, o in zip(arrays, weights, offsets, strict=False))
    positions = np.broadcast_to(options.get("key_positions", np.arange(n_k)), (BATCH, n_k))
    mask = np.broadcast_to(options.get("mask", True), (BATCH, n_q, n_k))
    mask = mask & np.tri(n_q, n_k, n_k - n_q, dtype=bool) if options.get("causal") else mask
    heads = []
    for h in range(HEADS):
        columns, bias = slice(2 * h, 2 * h + 2), np.zeros((BATCH, n_q, n_k))
        q_h, k_h = q[..., columns], k[..., columns]
        if positional:
            q_h, k_h = turn(q_h, positions[:, n_k - n_q :]), turn(k_h, positions)
            bias = nearness(REFERENCE)(positions[:, n_k - n_q :], positions)[:, h]
        heads.append(
            REFERENCE.scaled_dot_product_attention(
                q_h, k_h, v[..., columns], mask=mask, bias=bias
            )
        )
    assert_close(column, got, np.concatenate(heads, axis=-1) @ weights[3] + offsets[3])


def test_gradients_agree_with_the_reference(twin):
    case = CASES["all combined"]

    def layer(column, *arrays):
        return call(column, case, arrays[3:], arrays[:3])

    assert_twin_agrees(twin, layer, *inputs(3, 5), *(w / 4 for w in case[2]))


def test_a_causal_mask_alone_tells_the_position(column):
    """One head that averages what it sees: a token that begins the sequence, and six others."""
    mute, pass_on = column.array(np.zeros((1, 1))), column.array(np.ones((1, 1)))
    layer = column.multi_head([mute, mute, pass_on, pass_on], 1)
    first = column.array(np.eye(7)[:, :1])
    out = layer(first, first, first, causal=True)
    assert_close(column, out[:, 0], 1 / np.arange(1, 8))


def test_positions_of_queries_alone_serve_their_keys(column):
    layer = plain(column, rotate=turn, bias=nearness(column))
    x, where = column.array(draw(979, 5, DIM)), column.array(PACKED)
    want = column.numpy(layer(x, key_positions=where))
    assert_close(column, layer(x, query_positions=where), want)
    far = column.array(np.arange(3) + 7)
    memory_first = layer(x[:3], x, query_positions=far)
    both = layer(x[:3], x, query_positions=far, key_positions=column.array(np.arange(5)))
    assert_close(column, memory_first, column.numpy(both))


def test_dropout_of_weights_follows_rng(column):
    layer = layer_of(column, WEIGHTS, HEADS, dropout_rate=0.5)
    if column.name == "torch":
        layer.eval()
    arrays = [column.array(x) for x in inputs(3, 5)]
    none, again, first, second, other = (
        column.numpy(layer(*arrays, rng=rng))
        for rng in (None, None, column.rng(0), column.rng(0), column.rng(1))
    )
    assert np.array_equal(none, again)
    assert np.array_equal(first, second)
    assert error(none, first) > 1e-3
    assert error(first, other) > 1e-3


def fresh(column, *sizes, **options):
    """A drawn layer, and its matrices and offsets, `(d_in, d_out)` as in the reference."""
    if column.name == "torch":
        layer = column.MultiHeadAttention(*sizes, **options, rng=column.rng())
        parts = [getattr(layer, role) for role in PROJECTIONS]
        return layer, [p.weight.detach().mT for p in parts], [p.bias for p in parts]
    layer = column.MultiHeadAttention.init(column.rng(), *sizes, **options)
    kinds = [[getattr(layer, f"{r}_{k}") for r in PROJECTIONS] for k in ("weight", "bias")]
    return layer, *kinds


def test_fresh_weights_are_uniform_within_glorots_bounds(column):
    layer, weights, offsets = fresh(column, 64, 4, use_bias=True, dropout_rate=0.5)
    bound = (3 / 64) ** 0.5
    for weight in map(np.asarray, weights):
        assert weight.shape == (64, 64)
        assert 0.99 * bound < np.abs(weight).max() <= bound * (1 + 1e-7)
        assert abs(weight.std() / bound - 3**-0.5) < 0.02
    assert not np.array_equal(weights[0], weights[1])
    assert not any(offset.any() for offset in offsets)
    assert (layer.num_heads, layer.dropout_rate) == (4, 0.5)
    again = fresh(column, 64, 4, use_bias=True)[1]
    assert np.array_equal(weights[3], again[3])


def test_fresh_layers_have_the_sizes_asked_for(column):
    sizes = {"num_kv_heads": 1, "head_dim": 5, "kv_dim": 7}
    options = {"use_bias": True, "use_output_bias": False}
    _, weights, offsets = fresh(column, 6, 3, **sizes, **options)
    assert [tuple(w.shape) for w in weights] == [(6, 15), (7, 5), (7, 5), (15, 6)]
    assert [offset is None for offset in offsets] == [False, False, False, True]


# A bias that depends on content, rotations that differ, a factor, and a bias for one call.


def ahead(query_positions, key_positions):
    return (key_positions[..., None, :] - query_positions[..., None])[..., None, :, :]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Whisper:
    """A content-dependent bias in miniature, written in operators that all frameworks know."""

    strength: object  # (h, 1, 1)
    vector: object  # (d_h)

    def scores(self, query, key, query_positions, key_positions):  # noqa: D102
        alike = query[..., :1] * key[..., None, :, 1]
        return self.strength * alike * ahead(query_positions, key_positions)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Echo(Whisper):
    """One that changes values, too."""

    def values(self, weights, query_positions, key_positions):  # noqa: D102
        far = (weights * ahead(query_positions, key_positions)).sum(-1)
        return far[..., None] * self.vector


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Hush(Whisper):
    """One that takes the vector away from each value."""

    def values(self, weights, query_positions, key_positions):  # noqa: D102
        return -weights.sum(-1)[..., None] * self.vector


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Choir(Whisper):
    """One in which every score hears all keys."""

    def scores(self, query, key, query_positions, key_positions):  # noqa: D102
        together = query[..., :1] * key[..., 1].sum(-1)[..., None, None]
        return self.strength * together * ahead(query_positions, key_positions)


STRENGTH, VECTOR = draw(62, HEADS, 1, 1) / 4, draw(63, DIM // HEADS) / 4


def echo(column, strength=STRENGTH, vector=VECTOR, kind=Echo):
    return kind(column.array(strength), column.array(vector))


def naive_echo(query, key, value, seen, positions, scale, bias):
    """The layer with an Echo, head by head and pair by pair, for one example."""
    heads = np.zeros((len(query), DIM))
    for h in range(HEADS):
        part = slice(2 * h, 2 * h + 2)
        q, k, v = (
            (x @ w)[:, part] for x, w in zip((query, key, value), WEIGHTS, strict=False)
        )
        for i in range(len(query)):
            keys = np.flatnonzero(seen[i])
            offsets = positions[keys] - positions[len(key) - len(query) + i]
            scores = [
                scale * q[i] @ k[j]
                + STRENGTH[h, 0, 0] * q[i, 0] * k[j, 1] * o
                + bias[h, i, j]
                for j, o in zip(keys, offsets, strict=True)
            ]
            total = sum(map(np.exp, scores))
            for score, j, o in zip(scores, keys, offsets, strict=True):
                heads[i, part] += np.exp(score) / total * (v[j] + o * VECTOR)
    return heads @ WEIGHTS[3]


@pytest.mark.parametrize("scale", [None, 0.25, 0])
def test_a_content_bias_adds_to_scores_and_values(column, scale):
    """The second example sees nothing, and gets zeros."""
    arrays, extra = [x / 4 for x in inputs(3, 5)], draw(65, HEADS, 3, 5)
    got = plain(column, bias=echo(column), scale=scale)(
        *map(column.array, arrays),
        causal=True,
        mask=column.array(SEEN),
        key_positions=column.array(PACKED + 3),
        bias=column.array(extra),
    )
    seen = SEEN & np.tri(3, 5, 2, dtype=bool)
    factor = 2**-0.5 if scale is None else scale
    want = [
        naive_echo(*(x[b] for x in arrays), seen[b], PACKED, factor, extra)
        for b in range(BATCH)
    ]
    assert_close(column, got, np.array(want))


@in_frameworks
def test_gradients_of_a_content_bias_agree(column):
    def layer(column, query, key, value, strength, vector, *weights):
        bias = Echo(strength, vector)
        options = {"mask": column.array(SEEN), "causal": True}
        return column.multi_head(weights, HEADS, bias=bias)(query, key, value, **options)

    arrays = [x / 4 for x in (*inputs(3, 5), 4 * STRENGTH, 4 * VECTOR, *WEIGHTS)]
    assert_twin_agrees(column, layer, *arrays)


@pytest.mark.parametrize("kind", [Echo, Choir])
def test_a_content_bias_reads_no_hidden_key(column, kind):
    layer = plain(column, bias=echo(column, kind=kind))
    query, key, value = inputs(3, 5)
    outs = []
    for filler in (0.0, np.nan, np.inf):
        key[:, 3:], value[:, 3:] = filler, filler
        arrays = map(column.array, (query, key, value))
        with np.errstate(invalid="ignore"):  # infinities meet in the projections
            outs.append(column.numpy(layer(*arrays, mask=column.array(SEEN[:1]))))
    assert np.isfinite(outs[0]).all()
    assert np.array_equal(outs[0], outs[1])
    assert np.array_equal(outs[0], outs[2])


def test_dropout_drops_weights_of_values_and_offsets(column):
    weights = [column.array(w) for w in (*WEIGHTS[:2], np.eye(DIM), np.eye(DIM))]
    arrays = [*inputs(3, 5)[:2], np.tile(VECTOR, (BATCH, 5, HEADS))]

    def attend(kind, vector, rng):
        bias = echo(column, vector=vector, kind=kind)
        layer = column.multi_head(weights, HEADS, bias=bias, dropout_rate=0.5)
        return column.numpy(layer(*map(column.array, arrays), rng=rng))

    none = attend(Hush, 0 * VECTOR, None)
    dropped = attend(Hush, 0 * VECTOR, column.rng(3))
    assert error(dropped, none) > 0.1
    assert error(attend(Whisper, VECTOR, column.rng(3)), dropped) < 1e-14
    assert np.abs(attend(Hush, VECTOR, column.rng(3))).max() < 1e-14


def test_weights_on_request_take_all_options(column):
    """Among them two rotations, one for queries and one for keys."""

    def double(x, positions):
        return 2 * turn(x, positions) + 1

    (x, y, value), mask, extra = (
        inputs(3, 5),
        draw(68, BATCH, HEADS, 3, 5) > 0,
        draw(69, 3, 5),
    )
    where = np.array([2, 4, 9]), np.array([0, 1, 4, 3, 9])
    scheme = {"rotate": (turn, double), "bias": nearness(column), "scale": 0.3}
    layer = layer_of(column, WEIGHTS, HEADS, **scheme)
    options = {
        "mask": column.array(mask),
        "causal": True,
        "bias": column.array(extra),
        "query_positions": column.positions(where[0]),
        "key_positions": column.positions(where[1]),
    }
    q, k, v = (
        REFERENCE.split_heads(x @ w, HEADS)
        for x, w in zip((x, y, value), WEIGHTS, strict=False)
    )
    want = REFERENCE.attention_weights(
        turn(q, where[0]),
        double(k, where[1]),
        mask=mask,
        causal=True,
        bias=nearness(REFERENCE)(*where) + extra,
        scale=0.3,
    )
    got = layer.attention_weights(*map(column.array, (x, y)), **options)
    assert_close(column, got, want)
    out = layer(*map(column.array, (x, y, value)), **options)
    assert_close(column, out, REFERENCE.merge_heads(want @ v) @ WEIGHTS[3])


# Grouped heads, masks per head, a memory of another width, weights on request.

GROUPED = [
    draw(970, 6, 12) / 4,
    draw(971, 5, 6) / 4,
    draw(972, 5, 6) / 4,
    draw(973, 12, 6) / 4,
]
PER_HEAD = np.array([np.tri(3, 4, 1), np.ones((3, 4)), np.eye(3, 4), np.tri(3, 4, 0)], bool)


def grouped(column, **options):
    """A layer of 4 heads of width 3 for queries and 2 for keys, whose memory has width 5."""
    return layer_of(column, GROUPED, 4, num_kv_heads=2, **options)


def memory(column):
    return column.array(draw(974, 2, 3, 6)), column.array(draw(975, 2, 4, 5))


def test_heads_share_keys_and_masks_differ_by_head(column):
    x, y = draw(974, 2, 3, 6), draw(975, 2, 4, 5)
    bias, heads, weights = draw(976, 4, 3, 4), [], []
    for h in range(4):
        own, shared = slice(3 * h, 3 * h + 3), slice(3 * (h // 2), 3 * (h // 2) + 3)
        parts = zip((x, y, y), GROUPED, (own, shared, shared), strict=False)
        q, k, v = ((z @ w)[..., part] for z, w, part in parts)
        exp = np.exp(q @ k.mT / 3**0.5 + bias[h]) * PER_HEAD[h]
        weights.append(exp / exp.sum(-1, keepdims=True))
        heads.append(weights[-1] @ v)
    layer, arrays = grouped(column), [column.array(x), column.array(y)]
    options = {"mask": column.array(PER_HEAD[None]), "bias": column.array(bias)}
    assert_close(column, layer.attention_weights(*arrays, **options), np.stack(weights, 1))
    want = np.concatenate(heads, axis=-1) @ GROUPED[3]
    assert_close(column, layer(*arrays, **options), want)


def test_a_content_bias_gets_each_heads_shared_key(column):
    x, y = memory(column)
    strength = draw(977, 4, 1, 1) / 4
    scheme = echo(column, strength, draw(978, 3) / 4, kind=Whisper)
    whole = [
        np.repeat(w.reshape(5, 2, 3), 2, axis=1).reshape(5, 12) if w.shape == (5, 6) else w
        for w in GROUPED
    ]
    same = layer_of(column, whole, 4, bias=scheme)
    assert_close(column, grouped(column, bias=scheme)(x, y), column.numpy(same(x, y)))


def test_nan_that_no_head_attends_to_is_lost(column):
    x, y = memory(column)
    hidden = np.array(PER_HEAD)
    hidden[..., 3] = False
    bad = column.numpy(y).copy()
    bad[:, 3] = np.nan
    layer, mask = grouped(column), column.array(hidden[None])
    want = column.numpy(layer(x, y, mask=mask))
    assert_close(column, layer(x, column.array(bad), mask=mask), want)


def test_norms_act_on_heads_before_they_rotate(column):
    def norm(x):
        return x / (x * x).sum(-1, keepdims=True) ** 0.5

    def rotated(x, positions):
        return turn(norm(x), positions) + positions[..., None]

    x, y = memory(column)
    layer = grouped(
        column,
        rotate=lambda x, p: turn(x, p) + p[..., None],
        query_norm=norm,
        key_norm=norm,
    )
    composed = grouped(column, rotate=(rotated, rotated))
    assert_close(column, layer(x, y), column.numpy(composed(x, y)))


def test_a_list_of_biases_adds_up(column):
    x, y = memory(column)
    first, second = draw(980, 4, 3, 4), draw(981, 3, 4)
    parts = [column.array(first), lambda q, k: column.array(second), None]
    layer = grouped(column)
    want = column.numpy(layer(x, y, bias=column.array(first + second)))
    assert_close(column, layer(x, y, bias=parts), want)


# An attention of its own.


def test_an_attention_of_its_own_gets_the_options(column):
    """It is called as the library's own is, without dropout where nothing may be drawn."""
    asked = {}

    def attend(*arrays, **options):
        asked.update(options)
        return column.scaled_dot_product_attention(*arrays, **options)

    queries, keys = (column.array(draw(seed, 2, n, DIM)) for seed, n in [(1, 3), (2, 5)])
    own, none = (
        plain(column, bias=nearness(column), dropout_rate=0.5, attention=attention)
        for attention in (attend, None)
    )
    assert_close(column, own(queries, keys, keys), column.numpy(none(queries, keys, keys)))
    given = {"mask", "causal", "bias", "query_positions", "key_positions", "scale"}
    assert set(asked) == given
    drawn = {"rng": column.rng(3)}
    thinned = column.numpy(own(queries, keys, keys, **drawn))
    assert asked["dropout_rate"] == 0.5
    assert asked["rng"] is drawn["rng"]
    drawn = {"rng": column.rng(3)}
    assert np.array_equal(thinned, column.numpy(none(queries, keys, keys, **drawn)))


def test_an_attention_of_its_own_reads_a_cache(column):
    x, outs = column.array(draw(1, 2, 5, DIM)), []
    for attention in (column.scaled_dot_product_attention, None):
        layer = plain(column, attention=attention)
        options = {"dtype": x.dtype} if column is not REFERENCE else {}
        cache = column.KVCache.init((2,), HEADS, 8, DIM // HEADS, **options)
        outs.append(layer(x, cache=cache, mask=column.Window(3))[0])
    assert_close(column, outs[0], column.numpy(outs[1]))
