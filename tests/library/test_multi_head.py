"""Multi-head attention."""

from dataclasses import dataclass

import jax
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import (
    BOUND,
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


def schemes(column):
    return {"rotate": turn, "bias": nearness(column)}


SEEN = np.array([[[1, 1, 1, 0, 0]], [[0, 0, 0, 0, 0]]], bool)
PACKED = np.array([0, 1, 2, 0, 1])

# n_q, n_k, weights, whether positions matter, options of the call
CASES = {
    "plain": (3, 5, WEIGHTS, False, {}),
    "offsets": (3, 5, WEIGHTS + OFFSETS, False, {}),
    "causal": (5, 5, WEIGHTS, False, {"causal": True}),
    "padding": (3, 5, WEIGHTS + OFFSETS, False, {"mask": SEEN}),
    "one mask for all": (3, 5, WEIGHTS, False, {"mask": np.tri(3, 5, 1, dtype=bool)}),
    "positions by default": (3, 5, WEIGHTS, True, {"causal": True}),
    "shared positions": (3, 5, WEIGHTS, True, {"key_positions": PACKED}),
    "positions per example": (3, 5, WEIGHTS, True, {"key_positions": np.array([PACKED, 7 + PACKED])}),
    "all combined": (
        3, 5, WEIGHTS + OFFSETS, True, {"key_positions": PACKED + 3, "causal": True, "mask": SEEN}
    ),
    "no queries": (0, 5, WEIGHTS, True, {}),
    "no keys": (3, 0, WEIGHTS + OFFSETS, False, {}),
}  # fmt: skip
every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


def inputs(n_q, n_k):
    return [draw(50, BATCH, n_q, DIM), draw(51, BATCH, n_k, DIM), draw(52, BATCH, n_k, DIM)]


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
    layer = column.multi_head(weights, HEADS, **(schemes(column) if positional else {}))
    return layer(
        *arrays,
        **{name: column.array(x) if name != "causal" else x for name, x in options.items()},
    )


@pytest.fixture
def scheming_layer(column):
    """A layer with both callables."""
    return column.multi_head([column.array(w) for w in WEIGHTS], HEADS, **schemes(column))


@every_case
def test_heads_are_attentions_of_columns(column, case):
    n_q, n_k, weights, positional, options = case
    query, key, value = inputs(n_q, n_k)
    got = call(
        column,
        case,
        [column.array(w) for w in weights],
        map(column.array, (query, key, value)),
    )
    offsets = weights[4:] or [0.0] * 4
    q, k, v = (
        x @ w + o for x, w, o in zip((query, key, value), weights, offsets, strict=False)
    )
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


@every_case
def test_layers_and_their_gradients_agree_with_the_reference(twin, case):
    n_q, n_k, weights, *_ = case

    def layer(column, *arrays):
        return call(column, case, arrays[3:], arrays[:3])

    assert_twin_agrees(twin, layer, *inputs(n_q, n_k), *(w / 4 for w in weights))


def test_an_example_that_may_attend_to_nothing_gets_the_last_offset(column):
    out = call(column, CASES["padding"], [column.array(w) for w in WEIGHTS + OFFSETS],
               map(column.array, inputs(3, 5)))  # fmt: skip
    assert np.array_equal(column.numpy(out)[1], np.broadcast_to(OFFSETS[3], (3, DIM)))


@pytest.mark.parametrize("use_bias", [False, True])
@pytest.mark.parametrize("hide", ["nothing", "future", "padding"])
def test_pytorchs_own_layer_agrees(column, use_bias, hide):
    theirs = torch.nn.MultiheadAttention(
        DIM, HEADS, bias=use_bias, batch_first=True, dtype=torch.float64
    )
    weights = WEIGHTS + OFFSETS if use_bias else WEIGHTS
    state = {
        "in_proj_weight": np.concatenate([w.T for w in weights[:3]]),
        "out_proj.weight": weights[3].T,
    } | (
        {"in_proj_bias": np.concatenate(weights[4:7]), "out_proj.bias": weights[7]}
        if use_bias
        else {}
    )
    theirs.load_state_dict({name: torch.tensor(w) for name, w in state.items()})
    seen = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], bool)
    future = torch.tensor(~np.tri(5, dtype=bool))
    their_options = {
        "future": {"attn_mask": future},
        "padding": {"key_padding_mask": torch.tensor(~seen)},
    }
    want, _ = theirs(
        *map(torch.tensor, inputs(5, 5)), need_weights=False, **their_options.get(hide, {})
    )
    layer = column.multi_head([column.array(w) for w in weights], HEADS)
    our_options = {
        "future": {"causal": True},
        "padding": {"mask": column.array(seen[:, None, :])},
    }
    assert_close(
        column,
        layer(*map(column.array, inputs(5, 5)), **our_options.get(hide, {})),
        want.detach().numpy(),
    )


@pytest.mark.slow
@given(st.integers(0, 5))
def test_decoding_repeats_the_last_rows_of_prefill(column, scheming_layer, n_q):
    x = column.array(draw(53, BATCH, 5, DIM))
    whole = scheming_layer(x, x, x, causal=True)
    assert_close(
        column,
        scheming_layer(x[:, 5 - n_q :], x, x, causal=True),
        column.numpy(whole)[:, 5 - n_q :],
    )


@pytest.mark.slow
@given(st.integers(1, 4))
def test_left_padding_with_positions_changes_nothing(column, scheming_layer, pad):
    x = draw(54, BATCH, 5, DIM)
    alone = scheming_layer(*[column.array(x)] * 3, causal=True)
    padded = column.array(np.concatenate([np.full((BATCH, pad, DIM), 7.0), x], axis=1))
    seen = column.array((np.arange(pad + 5) >= pad)[None])
    positions = column.array(np.arange(-pad, 5))
    out = scheming_layer(
        padded, padded, padded, causal=True, mask=seen, key_positions=positions
    )
    assert_close(column, out[:, pad:], column.numpy(alone))


@pytest.mark.slow
def test_packed_sequences_with_positions_are_as_if_alone(column, scheming_layer):
    x, owner, positions = (
        draw(55, 5, DIM),
        np.array([0, 0, 0, 1, 1]),
        np.array([0, 1, 2, 0, 1]),
    )
    out = scheming_layer(
        *[column.array(x)] * 3,
        mask=column.array(owner[:, None] == owner),
        causal=True,
        key_positions=column.array(positions),
    )
    for part in (slice(0, 3), slice(3, 5)):
        alone = scheming_layer(*[column.array(x[part])] * 3, causal=True)
        assert_close(column, out[part], column.numpy(alone))


def test_positions_per_example_are_those_of_each_example(column, scheming_layer):
    x, positions = draw(56, BATCH, 5, DIM), np.array([PACKED, 9 - PACKED])
    both = scheming_layer(*[column.array(x)] * 3, key_positions=column.array(positions))
    for i in range(BATCH):
        one = scheming_layer(
            *[column.array(x[i])] * 3, key_positions=column.array(positions[i])
        )
        assert_close(column, both[i], column.numpy(one))


@given(st.permutations(range(5)))
def test_without_positions_the_layer_is_permutation_equivariant(column, order):
    layer = column.multi_head([column.array(w) for w in WEIGHTS], HEADS)
    x = draw(57, 5, DIM)
    straight, shuffled = (layer(*[column.array(y)] * 3) for y in (x, x[order]))
    assert_close(column, shuffled, column.numpy(straight)[order])


def test_dropout_of_weights_follows_rng(column):
    layer = column.multi_head([column.array(w) for w in WEIGHTS], HEADS, dropout_rate=0.5)
    if column.name == "torch":
        layer = column.MultiHeadAttention(DIM, HEADS, dropout_rate=0.5, dtype=torch.float64)
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


def matrices_of(column, use_bias):
    """The drawn parameters of a fresh layer, in the order of the reference."""
    if column.name == "torch":
        layer = column.MultiHeadAttention(
            64,
            4,
            use_bias=use_bias,
            dropout_rate=0.5,
            dtype=torch.float64,
            rng=column.rng(),
        )
        state = layer.state_dict()
        names = [f"{role}.weight" for role in PROJECTIONS] + [
            f"{role}.bias" for role in PROJECTIONS
        ]
        return layer, [state.get(name) for name in names]
    layer = column.MultiHeadAttention.init(
        column.rng(), 64, 4, use_bias=use_bias, dropout_rate=0.5
    )
    kinds = ("weight", "bias")
    return layer, [
        getattr(layer, f"{role}_{kind}") for kind in kinds for role in PROJECTIONS
    ]


@pytest.mark.parametrize("use_bias", [False, True])
def test_fresh_weights_are_uniform_within_glorots_bounds(column, use_bias):
    layer, parameters = matrices_of(column, use_bias)
    bound = (3 / 64) ** 0.5
    for weight in map(column.numpy, parameters[:4]):
        assert weight.shape == (64, 64)
        assert 0.99 * bound < np.abs(weight).max() <= bound
        assert abs(weight.std() / bound - 3**-0.5) < 0.02
    assert not np.array_equal(column.numpy(parameters[0]), column.numpy(parameters[1]))
    for offset in parameters[4:]:
        assert (offset is None) == (not use_bias)
        assert not use_bias or (offset.shape == (64,) and not column.numpy(offset).any())
    assert (layer.num_heads, layer.dropout_rate) == (4, 0.5)


def test_fresh_weights_repeat_with_their_rng(column):
    first, second = (matrices_of(column, False)[1] for _ in range(2))
    assert np.array_equal(column.numpy(first[3]), column.numpy(second[3]))


@pytest.mark.slow
def test_jax_layers_are_pytrees(jax_single):
    layer = jax_single.MultiHeadAttention.init(
        jax_single.rng(),
        DIM,
        HEADS,
        use_bias=True,
        **schemes(jax_single),
    )
    assert len(jax.tree.leaves(layer)) == 8
    x = jax_single.array(draw(59, BATCH, 5, DIM))
    want = np.asarray(layer(x, x, x))
    assert_close(jax_single, jax.jit(lambda layer, x: layer(x, x, x))(layer, x), want)
    assert_close(jax_single, jax.vmap(lambda x: layer(x, x, x))(x), want)
    slope = jax.grad(lambda layer: layer(x, x, x).sum())(layer)
    assert jax.tree.structure(slope) == jax.tree.structure(layer)
    assert np.abs(slope.query_weight).max() > 0


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_torch_compiles_the_layer_in_one_graph(torch_column, unchecked, backend):
    torch.compiler.reset()
    layer = torch_column.MultiHeadAttention(
        DIM, HEADS, dtype=torch.float64, rng=torch_column.rng(), **schemes(torch_column)
    )
    x = torch_column.array(draw(60, BATCH, 5, DIM))
    want = layer(x, x, x, causal=True)
    got = torch.compile(layer, fullgraph=True, backend=backend)(x, x, x, causal=True)
    assert error(got.detach().numpy(), want.detach().numpy()) <= BOUND["float64"]


def test_autocast_lets_torch_choose_the_dtype(torch_column):
    layer = torch_column.MultiHeadAttention(DIM, HEADS, rng=torch_column.rng())
    x = torch.tensor(draw(61, BATCH, 5, DIM), dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        out = layer(x.bfloat16(), x.bfloat16(), x.bfloat16())
    assert out.dtype == torch.bfloat16
    assert (
        error(out.detach().double().numpy(), layer(x, x, x).detach().double().numpy())
        < BOUND["bfloat16"]
    )


# A bias that depends on content, rotations that differ, a factor, and a bias for one call.


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


def ahead(query_positions, key_positions):
    return (key_positions[..., None, :] - query_positions[..., None])[..., None, :, :]


STRENGTH, VECTOR = draw(62, HEADS, 1, 1) / 4, draw(63, DIM // HEADS) / 4


def echo(column, strength=STRENGTH, vector=VECTOR, kind=Echo):
    return kind(column.array(strength), column.array(vector))


def heads_of(x, weight, h):
    return (x @ weight)[..., 2 * h : 2 * h + 2]


def naive_echo(query, key, value, seen, positions, *, values, scale=2**-0.5, bias=0.0):
    """The layer with an Echo, head by head and pair by pair, for one example."""
    bias = np.broadcast_to(bias, (HEADS, len(query), len(key)))
    heads = np.zeros((len(query), DIM))
    for h in range(HEADS):
        q, k, v = (
            heads_of(x, w, h) for x, w in zip((query, key, value), WEIGHTS, strict=False)
        )
        for i in range(len(query)):
            at = positions[len(key) - len(query) + i]
            exps = [
                np.exp(
                    scale * q[i] @ k[j]
                    + STRENGTH[h, 0, 0] * q[i, 0] * k[j, 1] * (positions[j] - at)
                    + bias[h, i, j]
                )
                for j in seen[i]
            ]
            for e, j in zip(exps, seen[i], strict=True):
                offset = (positions[j] - at) * VECTOR if values else 0
                heads[i, 2 * h : 2 * h + 2] += e / sum(exps) * (v[j] + offset)
    return heads @ WEIGHTS[3]


@pytest.mark.parametrize("kind", [Echo, Whisper])
@pytest.mark.parametrize("positions", [np.arange(5), PACKED + 3], ids=["default", "given"])
def test_a_content_bias_adds_to_scores_and_values(column, kind, positions):
    arrays = [x / 4 for x in inputs(3, 5)]
    layer = column.multi_head(
        [column.array(w) for w in WEIGHTS], HEADS, bias=echo(column, kind=kind)
    )
    where = {} if positions[0] == 0 else {"key_positions": column.array(positions)}
    got = layer(*map(column.array, arrays), causal=True, **where)
    seen = [range(3), range(4), range(5)]
    want = [
        naive_echo(*(x[b] for x in arrays), seen, positions, values=kind is Echo)
        for b in range(BATCH)
    ]
    assert_close(column, got, np.array(want))


def test_content_biases_and_their_gradients_agree_with_the_reference(twin):
    def layer(column, query, key, value, strength, vector, *weights):
        bias = Echo(strength, vector)
        options = {"mask": column.array(SEEN), "causal": True}
        return column.multi_head(weights, HEADS, bias=bias)(query, key, value, **options)

    arrays = [x / 4 for x in (*inputs(3, 5), 4 * STRENGTH, 4 * VECTOR, *WEIGHTS)]
    assert_twin_agrees(twin, layer, *arrays)


@pytest.mark.slow
@given(st.integers(0, 5))
def test_decoding_with_a_content_bias_repeats_the_last_rows_of_prefill(column, n_q):
    layer = column.multi_head([column.array(w) for w in WEIGHTS], HEADS, bias=echo(column))
    x = column.array(draw(64, BATCH, 5, DIM))
    whole = layer(x, x, x, causal=True)
    last = layer(x[:, 5 - n_q :], x, x, causal=True)
    assert_close(column, last, column.numpy(whole)[:, 5 - n_q :])


@pytest.mark.parametrize("kind", [Echo, Choir])
def test_a_content_bias_never_reads_keys_that_nobody_sees(column, kind):
    weights = [column.array(w) for w in WEIGHTS]
    layer = column.multi_head(weights, HEADS, bias=echo(column, kind=kind))
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


def test_queries_that_see_nothing_get_zeros_from_a_content_bias(column):
    layer = column.multi_head([column.array(w) for w in WEIGHTS], HEADS, bias=echo(column))
    out = layer(*map(column.array, inputs(3, 5)), mask=column.array(SEEN))
    assert column.numpy(out)[0].all()
    assert not column.numpy(out)[1].any()


def test_dropout_drops_the_same_weights_from_values_and_offsets(column):
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


def test_queries_and_keys_may_be_rotated_by_different_functions(column):
    def double(x, positions):
        return 2 * turn(x, positions) + 1

    arrays = [x / 4 for x in inputs(3, 5)]
    weights = [column.array(w) for w in WEIGHTS]
    layer = column.multi_head(weights, HEADS, rotate=(turn, double))
    q, k, v = (
        REFERENCE.split_heads(x @ w, HEADS) for x, w in zip(arrays, WEIGHTS, strict=False)
    )
    heads = REFERENCE.scaled_dot_product_attention(
        turn(q, np.arange(2, 5)), double(k, np.arange(5)), v
    )
    want = REFERENCE.merge_heads(heads) @ WEIGHTS[3]
    assert_close(column, layer(*map(column.array, arrays)), want)


@pytest.mark.parametrize("scale", [0.25, 0])
@pytest.mark.parametrize("kind", [None, Echo, Whisper])
def test_scale_replaces_the_factor_on_the_products_alone(column, scale, kind):
    bias = None if kind is None else echo(column, kind=kind)
    layer = column.multi_head(
        [column.array(w) for w in WEIGHTS], HEADS, bias=bias, scale=scale
    )
    arrays = [x[0] / 4 for x in inputs(3, 5)]
    got = layer(*map(column.array, arrays))
    everything = [range(5)] * 3
    if kind is None:
        q, k, v = (
            REFERENCE.split_heads(x @ w, HEADS)
            for x, w in zip(arrays, WEIGHTS, strict=False)
        )
        heads = REFERENCE.scaled_dot_product_attention(q, k, v, scale=float(scale))
        want = REFERENCE.merge_heads(heads) @ WEIGHTS[3]
    else:
        want = naive_echo(
            *arrays, everything, np.arange(5), values=kind is Echo, scale=float(scale)
        )
    assert_close(column, got, want)


@pytest.mark.parametrize("shape", [(3, 5), (1, 5), (HEADS, 3, 5), (BATCH, HEADS, 3, 5)])
@pytest.mark.parametrize("own", [None, "positions", "content"])
def test_a_call_may_bring_its_own_bias(column, shape, own):
    extra = draw(65, *shape)
    scheme = {None: lambda c: None, "positions": nearness, "content": echo}[own]
    arrays = [x / 4 for x in inputs(3, 5)]
    weights = [column.array(w) for w in WEIGHTS]
    layer = column.multi_head(weights, HEADS, bias=scheme(column))
    got = layer(*map(column.array, arrays), causal=True, bias=column.array(extra))
    q, k, v = (
        REFERENCE.split_heads(x @ w, HEADS) for x, w in zip(arrays, WEIGHTS, strict=False)
    )
    where = np.arange(2, 5), np.arange(5)
    bias = np.broadcast_to(extra, (BATCH, HEADS, 3, 5))
    if own == "positions":
        bias = bias + nearness(REFERENCE)(*where)
    if own == "content":
        bias = bias + echo(REFERENCE).scores(q, k, *where)
    weights = REFERENCE.attention_weights(q, k, causal=True, bias=bias)
    heads = weights @ v + (
        echo(REFERENCE).values(weights, *where) if own == "content" else 0
    )
    assert_close(column, got, REFERENCE.merge_heads(heads) @ WEIGHTS[3])


def test_weights_on_request_hear_of_all_that_a_call_may_say(column):
    (x, y, _), mask, extra = inputs(3, 5), draw(68, BATCH, HEADS, 3, 5) > 0, draw(69, 3, 5)
    where = np.array([2, 4, 9]), np.array([0, 1, 4, 3, 9])
    options = {"rotate": turn, "bias": nearness(column), "scale": 0.3}
    got = layer_of(column, WEIGHTS, HEADS, **options).attention_weights(
        *map(column.array, (x, y)),
        mask=column.array(mask),
        causal=True,
        bias=column.array(extra),
        query_positions=column.positions(where[0]),
        key_positions=column.positions(where[1]),
    )
    q, k = (
        turn(REFERENCE.split_heads(x @ w, HEADS), p)
        for x, w, p in zip((x, y), WEIGHTS, where, strict=False)
    )
    bias = nearness(REFERENCE)(*where) + extra
    want = REFERENCE.attention_weights(q, k, mask=mask, causal=True, bias=bias, scale=0.3)
    assert_close(column, got, want)


@pytest.mark.slow
def test_jax_layers_with_a_content_bias_are_pytrees(jax_single):
    layer = jax_single.MultiHeadAttention.init(
        jax_single.rng(), DIM, HEADS, rotate=(turn, turn), bias=echo(jax_single), scale=0.5
    )
    assert len(jax.tree.leaves(layer)) == 6
    x, extra = jax_single.array(draw(66, BATCH, 5, DIM)), jax_single.array(draw(67, 5, 5))
    want = np.asarray(layer(x, x, x, bias=extra))
    run = jax.jit(lambda layer, x, extra: layer(x, x, x, bias=extra))
    assert_close(jax_single, run(layer, x, extra), want)
    assert_close(jax_single, jax.vmap(lambda x: layer(x, x, x, bias=extra))(x), want)
    slope = jax.grad(lambda layer: (layer(x, x, x) ** 2).sum())(layer)
    assert np.abs(slope.bias.strength).max() > 0
    assert np.abs(slope.bias.vector).max() > 0


class Shift(torch.nn.Module):
    """A rotation with a parameter."""

    def __init__(self):
        super().__init__()
        self.by = torch.nn.Parameter(torch.ones(()))

    def forward(self, x, positions):  # noqa: D102
        return x + self.by * positions[..., None]


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_torch_compiles_a_content_bias_and_a_pair_in_one_graph(
    torch_column, unchecked, backend
):
    torch.compiler.reset()
    layer = torch_column.MultiHeadAttention(
        DIM,
        HEADS,
        rotate=torch.nn.ModuleList([Shift(), Shift()]),
        bias=echo(torch_column),
        scale=0.5,
        dtype=torch.float64,
        rng=torch_column.rng(),
    )
    assert sum(name.startswith("rotate.") for name in layer.state_dict()) == 2
    x, extra = (torch_column.array(draw(68, BATCH, 5, n)) for n in (DIM, 5))
    want = layer(x, x, x, causal=True, bias=extra[:, None])
    compiled = torch.compile(layer, fullgraph=True, backend=backend)
    got = compiled(x, x, x, causal=True, bias=extra[:, None])
    assert error(got.detach().numpy(), want.detach().numpy()) <= BOUND["float64"]


def averaging(column):
    """One head that attends to all it sees alike, and passes it on: no parameter knows of positions."""
    mute, pass_on = column.array(np.zeros((1, 1))), column.array(np.ones((1, 1)))
    return column.multi_head([mute, mute, pass_on, pass_on], 1)


def test_a_causal_mask_alone_tells_a_layer_how_many_tokens_came_before(column):
    # a token that begins the sequence, and six others
    first = column.array(np.eye(7)[:, :1])
    out = averaging(column)(first, first, first, causal=True)
    assert_close(column, out[:, 0], 1 / np.arange(1, 8))
    out = averaging(column)(first, first, first)
    assert_close(column, out[:, 0], np.full(7, 1 / 7))


def test_where_all_tokens_are_alike_a_causal_mask_tells_nothing(column):
    x = column.array(np.tile(draw(200, DIM), (5, 1)))
    layer = column.multi_head([column.array(w) for w in WEIGHTS + OFFSETS], HEADS)
    out = column.numpy(layer(x, x, x, causal=True))
    assert_close(column, layer(x, x, x, causal=True), np.tile(out[0], (5, 1)))


@given(st.permutations(range(4)).filter(lambda order: order != [0, 1, 2, 3]))
def test_the_order_of_the_past_is_hidden_from_one_causal_layer_but_not_from_two(
    column, order
):
    layer = column.multi_head([column.array(w / 2) for w in WEIGHTS], HEADS)
    x = draw(201, 5, DIM)
    straight, shuffled = (column.array(y) for y in (x, x[[*order, 4]]))
    once, twice = [], []
    for y in (straight, shuffled):
        z = layer(y, y, y, causal=True)
        once.append(column.numpy(z)[-1])
        twice.append(column.numpy(layer(z, z, z, causal=True))[-1])
    assert error(*once) <= BOUND["float64"]
    assert error(*twice) > 1e-6


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
    return column.multi_head(
        [column.array(w) for w in GROUPED], 4, num_kv_heads=2, **options
    )


def memory(column):
    return column.array(draw(974, 2, 3, 6)), column.array(draw(975, 2, 4, 5))


def naive_grouped(x, y, seen, bias):
    """Outputs and weights, head by head."""
    heads, weights = [], []
    for h in range(4):
        own, shared = slice(3 * h, 3 * h + 3), slice(3 * (h // 2), 3 * (h // 2) + 3)
        q, k, v = (
            (z @ w)[..., part]
            for z, w, part in zip((x, y, y), GROUPED, (own, shared, shared), strict=False)
        )
        scores = q @ k.mT / 3**0.5 + bias[h]
        scores = np.where(seen[h], scores, -np.inf)
        exp = np.exp(scores - scores.max(-1, keepdims=True))
        weights.append(exp / exp.sum(-1, keepdims=True))
        heads.append(weights[-1] @ v)
    return np.concatenate(heads, axis=-1) @ GROUPED[3], np.stack(weights, axis=1)


@pytest.mark.parametrize("per_head", [False, True])
def test_heads_may_share_keys_and_masks_may_differ_by_head(column, per_head):
    x, y = memory(column)
    seen = PER_HEAD if per_head else np.broadcast_to(PER_HEAD[0], PER_HEAD.shape)
    given = column.array(PER_HEAD[None] if per_head else PER_HEAD[0])
    bias = draw(976, 4, 3, 4)
    out = grouped(column)(x, y, mask=given, bias=column.array(bias))
    want, _ = naive_grouped(column.numpy(x), column.numpy(y), seen, bias)
    assert_close(column, out, want)


def test_weights_on_request_are_those_of_the_call(column):
    x, y = memory(column)
    layer = layer_of(column, GROUPED, 4, num_kv_heads=2)
    bias = draw(976, 4, 3, 4)
    got = layer.attention_weights(
        x, y, mask=column.array(PER_HEAD[None]), bias=column.array(bias)
    )
    _, want = naive_grouped(column.numpy(x), column.numpy(y), PER_HEAD, bias)
    assert_close(column, got, want)


def test_a_content_bias_is_given_each_head_the_key_that_serves_it(column):
    x, y = memory(column)
    strength = draw(977, 4, 1, 1) / 4
    scheme = echo(column, strength, draw(978, 3) / 4, kind=Whisper)
    out = grouped(column, bias=scheme)(x, y)
    whole = [
        np.repeat(w.reshape(5, 2, 3), 2, axis=1).reshape(5, 12) if w.shape == (5, 6) else w
        for w in GROUPED
    ]
    same = column.multi_head([column.array(w) for w in whole], 4, bias=scheme)
    assert_close(column, out, column.numpy(same(x, y)))


def test_nan_that_no_head_of_a_group_attends_to_reaches_nothing(column):
    x, y = memory(column)
    hidden = np.array(PER_HEAD)
    hidden[..., 3] = False
    bad = column.numpy(y).copy()
    bad[:, 3] = np.nan
    layer, mask = grouped(column), column.array(hidden[None])
    assert_close(
        column, layer(x, column.array(bad), mask=mask), column.numpy(layer(x, y, mask=mask))
    )


def test_norms_act_on_heads_before_they_turn(column):
    def norm(x):
        return x / (x * x).sum(-1, keepdims=True) ** 0.5

    def rotated(x, positions):
        return turn(norm(x), positions)

    x, y = memory(column)
    layer = grouped(column, rotate=turn, query_norm=norm, key_norm=norm)
    composed = grouped(column, rotate=(rotated, rotated))
    assert_close(column, layer(x, y), column.numpy(composed(x, y)))


def test_positions_of_queries_alone_are_those_of_their_own_keys(column, scheming_layer):
    x, where = column.array(draw(979, 5, DIM)), column.array(PACKED)
    want = column.numpy(scheming_layer(x, key_positions=where))
    assert_close(column, scheming_layer(x, query_positions=where), want)
    far = column.array(np.arange(3) + 7)
    memory_first = scheming_layer(x[:3], x, query_positions=far)
    both = scheming_layer(
        x[:3], x, query_positions=far, key_positions=column.array(np.arange(5))
    )
    assert_close(column, memory_first, column.numpy(both))


@pytest.mark.parametrize("kind", ["inputs", "heads"])
def test_a_list_of_biases_adds_up(column, kind):
    x, y = memory(column)
    first, second = draw(980, 4, 3, 4), draw(981, 3, 4)
    total = column.array(first + second)
    parts = [column.array(first), lambda q, k: column.array(second), None]
    layer = grouped(column)
    if kind == "inputs":
        assert_close(column, layer(x, y, bias=parts), column.numpy(layer(x, y, bias=total)))
        return
    heads = [column.array(draw(982 + i, 2, 4, n, 3)) for i, n in enumerate((3, 4, 4))]
    got = column.scaled_dot_product_attention(*heads, bias=parts)
    assert_close(
        column, got, column.numpy(column.scaled_dot_product_attention(*heads, bias=total))
    )


@pytest.mark.slow
def test_fresh_layers_have_the_sizes_asked_for(column):
    options = {"num_kv_heads": 1, "head_dim": 5, "kv_dim": 7, "use_bias": True}
    options["use_output_bias"] = False
    if column.name == "torch":
        layer = column.MultiHeadAttention(6, 3, **options)
        shapes = [tuple(getattr(layer, role).weight.shape)[::-1] for role in PROJECTIONS]
        offsets = [getattr(layer, role).bias is None for role in PROJECTIONS]
    else:
        layer = column.MultiHeadAttention.init(column.rng(), 6, 3, **options)
        shapes = [getattr(layer, f"{role}_weight").shape for role in PROJECTIONS]
        offsets = [getattr(layer, f"{role}_bias") is None for role in PROJECTIONS]
    assert shapes == [(6, 15), (7, 5), (7, 5), (15, 6)]
    assert offsets == [False, False, False, True]
    x, y = np.ones((2, 3, 6), np.float32), np.ones((2, 4, 7), np.float32)
    if column.name == "torch":
        x, y = torch.tensor(x), torch.tensor(y)
    elif column.name == "jax":
        x, y = (column.array(z) for z in (x, y))
    assert tuple(layer(x, y).shape) == (2, 3, 6)


def test_torch_layers_print_what_they_were_given(torch_column):
    from posattn.torch import ALiBi, PositionalEncoding, rotate

    shown = repr(
        torch_column.MultiHeadAttention(
            4, 2, scale=0.5, rotate=(rotate, None), bias=ALiBi(2)
        )
    )
    assert "num_heads=2, num_kv_heads=2, scale=0.5" in shown
    assert "rotate=(<function rotate" in shown
    assert "bias=ALiBi(2)" in shown
    mixed = torch_column.MultiHeadAttention(4, 2, bias=[ALiBi(2), torch_column.T5Bias(2)])
    assert "Given(ALiBi(2))" in repr(mixed)
    assert repr(PositionalEncoding(4)) == (
        "PositionalEncoding(4, dropout_rate=0.0, base=10000.0)"
    )


def test_an_attention_of_its_own_gets_what_the_layer_knows(column):
    """It is called as the library's own is, without dropout where nothing may be drawn."""
    asked = {}

    def attend(*arrays, **options):
        asked.update(options)
        return column.scaled_dot_product_attention(*arrays, **options)

    weights = [column.array(w) for w in WEIGHTS]
    queries, keys = (column.array(draw(seed, 2, n, DIM)) for seed, n in [(1, 3), (2, 5)])
    own, none = (
        column.multi_head(
            weights, HEADS, bias=nearness(column), dropout_rate=0.5, attention=attention
        )
        for attention in (attend, None)
    )
    assert_close(column, own(queries, keys, keys), column.numpy(none(queries, keys, keys)))
    assert set(asked) == {
        *("mask", "causal", "bias", "query_positions", "key_positions", "scale")
    }
    drawn = {"rng": column.rng(3)}
    thinned = column.numpy(own(queries, keys, keys, **drawn))
    assert asked["dropout_rate"] == 0.5
    assert asked["rng"] is drawn["rng"]
    drawn = {"rng": column.rng(3)}
    assert np.array_equal(thinned, column.numpy(none(queries, keys, keys, **drawn)))


def test_an_attention_of_its_own_is_told_where_tokens_stand(column):
    weights, x = [column.array(w) for w in WEIGHTS], column.array(draw(1, 2, 3, DIM))
    attend = column.scaled_dot_product_attention
    layer = column.multi_head(weights, HEADS, rotate=column.Rotary(), attention=attend)
    with pytest.raises(
        ValueError, match=r"^query_positions must be given where .*, got None$"
    ):
        layer(x)
    where = column.array(np.arange(3))
    own = column.multi_head(weights, HEADS, rotate=column.Rotary())
    assert_close(column, layer(x, query_positions=where), column.numpy(own(x)))


@pytest.mark.parametrize("masked", [False, True])
def test_an_attention_of_its_own_reads_a_cache(column, masked):
    weights, x = [column.array(w) for w in WEIGHTS], column.array(draw(1, 2, 5, DIM))
    attend, outs = column.scaled_dot_product_attention, []
    for attention in (attend, lambda *arrays, **options: attend(*arrays, **options), None):
        layer = column.multi_head(weights, HEADS, attention=attention)
        options = {"dtype": x.dtype} if column is not REFERENCE else {}
        cache = column.KVCache.init((2,), HEADS, 8, DIM // HEADS, **options)
        mask = {"mask": column.Window(3)} if masked else {}
        outs.append(column.numpy(layer(x, cache=cache, **mask)[0]))
    assert_close(column, column.array(outs[0]), outs[2])
    assert_close(column, column.array(outs[1]), outs[2])
