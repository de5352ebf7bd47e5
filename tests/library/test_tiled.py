"""Attention in tiles is attention: values, gradients, what nobody may see, and the memory it takes."""

import math

import numpy as np
import pytest
import torch
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

import posattn.jax as theirs
import posattn.torch as ours
from posattn.schemes import SCHEMES as SCHEMES_OF_ALL
from posattn.torch.attention import query_tiles, tiled
from tests.conftest import BOUND, TWINS, assert_twin_agrees, draw, error

HEADS, KV_HEADS, WIDTH = 4, 2, 3
SIZES = {
    "alike": (7, 7),
    "decoding": (4, 9),
    "more queries": (9, 5),
    "no keys": (5, 0),
}
SMALL = {(tiled, "SMALL"): 0, (query_tiles, "ROWS"): 3, (query_tiles, "FEW"): 100}


@pytest.fixture
def small(monkeypatch):
    """Tiles so small that short sequences have several."""
    for (module, name), size in SMALL.items():
        monkeypatch.setattr(module, name, size)


def alibi(column, *_):
    return column.ALiBi(HEADS)


def t5(column, table):
    return column.with_parameters("T5Bias", {"table": table}, HEADS, max_distance=12)


def shaw(column, key_table, value_table):
    named = {"key_table": key_table, "value_table": value_table}
    return column.with_parameters("ShawRelative", named, 2, WIDTH)


def cope(column, table):
    return column.with_parameters("CoPE", {"table": table}, 4, WIDTH)


def stick(column, *_):
    return column.StickBreaking()


def forgetting(column, gates):
    return column.tiled_forgetting_bias(-gates * gates)


def several(column, table, key_table, value_table):
    return [alibi(column), t5(column, table), None, shaw(column, key_table, value_table)]


FLOATS = TWINS[2]  # PyTorch in float32
TABLES = draw(300, 5, WIDTH), draw(301, 5, WIDTH)
SCHEMES = {
    "none": (lambda column: None, ()),
    "ALiBi": (alibi, ()),  # known by its distances
    "T5": (t5, (draw(302, 32, HEADS),)),  # and that learns
    "Shaw": (shaw, TABLES),
    "CoPE": (cope, (draw(303, 4, WIDTH),)),
    "stick-breaking": (stick, ()),
    "FoX": (forgetting, (draw(304, HEADS, 128),)),
    "several": (several, (draw(302, 32, HEADS), *TABLES)),
}


def inputs(n_q, n_k):
    return (
        draw(1, 2, HEADS, n_q, WIDTH),
        draw(2, 2, KV_HEADS, n_k, WIDTH),
        draw(3, 2, KV_HEADS, n_k, WIDTH),
    )


def mask_of(n_q, n_k):
    """Random, different in each head; the first query sees nothing and nobody the last key but one."""
    mask = np.random.default_rng(4).random((2, HEADS, n_q, n_k)) < 0.7
    mask[..., 0, :] = False
    mask[..., max(n_k - 2, 0) : n_k - 1] = False
    return mask


def near(query_positions, key_positions):
    """Every second key near the query."""
    offsets = key_positions[..., None, :] - query_positions[..., :, None]
    return (abs(offsets) < 4) & (offsets % 2 == 0)


PLACES = np.array([0, 1, 5, 6, 7, 20, 3])  # where tokens may stand

# scheme, sizes, options, where "drawn" and "window" are masks
CASES = [
    ("none", "more queries", {"causal": True, "mask": "drawn"}),
    ("none", "no keys", {}),
    ("none", "decoding", {"causal": True, "mask": "window"}),
    ("ALiBi", "alike", {}),
    ("ALiBi", "decoding", {"causal": True}),
    ("ALiBi", "more queries", {"mask": "drawn"}),
    ("ALiBi", "alike", {"mask": "window"}),
    ("ALiBi", "alike", {"places": PLACES}),
    ("T5", "alike", {"causal": True}),
    ("T5", "more queries", {}),
    ("T5", "decoding", {"causal": True, "mask": "drawn"}),
    ("T5", "more queries", {"mask": "window"}),
    ("T5", "alike", {"mask": "window", "places": PLACES}),
    ("Shaw", "decoding", {"causal": True}),
    ("Shaw", "more queries", {"mask": near}),
    ("CoPE", "alike", {"causal": True, "mask": "drawn"}),
    ("stick-breaking", "more queries", {"causal": True}),
    ("stick-breaking", "alike", {"causal": True, "mask": near}),
    ("FoX", "alike", {"causal": True}),
    ("several", "decoding", {"causal": True, "mask": "drawn"}),
]


def attention_of(scheme, sizes, options):
    """Attention as a function of a column and of arrays, and the arrays."""
    build, parameters = SCHEMES[scheme]

    def attention(column, query, key, value, *parameters):
        given = dict(options)
        if given.get("mask") == "drawn":
            given["mask"] = column.array(mask_of(*SIZES[sizes]))
        elif given.get("mask") == "window":
            given["mask"] = column.Window(2)
        if "places" in given:
            places = column.positions(given.pop("places"))
            given |= {"query_positions": places, "key_positions": places}
        return column.scaled_dot_product_attention(
            query, key, value, bias=build(column, *parameters), **given
        )

    return attention, (*inputs(*SIZES[sizes]), *parameters)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]}, {case[1]}")
def test_tiles_agree_with_the_reference(torch_column, small, case):
    attention, arrays = attention_of(*case)
    assert_twin_agrees(torch_column, attention, *arrays)


@pytest.mark.parametrize("scheme", ["T5", "Shaw"])
def test_tiles_of_half_precision_lose_what_rounding_loses(small, scheme):
    attention, arrays = attention_of(scheme, "alike", {"causal": True})
    arrays = [x / 2 for x in arrays]
    assert_twin_agrees(TWINS[4], attention, *arrays)


def test_gradients_of_half_precision_are_summed_in_float32(small, unchecked):
    """Each of 600 queries, a block by itself, pulls at each value with 1/600."""
    query = torch.zeros(1, 1, 600, 2).bfloat16()
    value = torch.ones_like(query).requires_grad_()
    out = ours.scaled_dot_product_attention(
        query, query, value, bias=lambda _, key: torch.zeros(1, 1, len(key))
    )
    (pull,) = torch.autograd.grad(out.sum(), value)
    assert (pull - 1).abs().max() < 2**-7


class Largest(TorchDispatchMode):
    """Remember the size of the largest array that any operation makes."""

    entries = 0

    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        made = function(*arguments, **(options or {}))
        for x in made if isinstance(made, tuple | list) else [made]:
            if isinstance(x, torch.Tensor) and x.untyped_storage().nbytes() > 0:
                stored = x.untyped_storage().nbytes() // x.element_size()
                self.entries = max(self.entries, min(x.numel(), stored))
        return made


def long_inputs(n, dtype=torch.float32, grad=True):
    return [
        torch.tensor(draw(seed, 1, HEADS, n, WIDTH), dtype=dtype, requires_grad=grad)
        for seed in (5, 6, 7)
    ]


@pytest.mark.parametrize(
    ("scheme", "mask"),
    [
        *[("ALiBi", None), ("T5", None), ("CoPE", None), ("FoX", None), ("several", None)],
        *[("none", near), ("T5", ours.Window(4))],
    ],
)
def test_memory_grows_with_the_length(monkeypatch, unchecked, scheme, mask):
    """Forward and backward, each doubling of the length doubles the largest array."""
    monkeypatch.setattr(tiled, "SMALL", 0)
    monkeypatch.setattr(query_tiles, "ROWS", 8)
    build, parameters = SCHEMES[scheme]
    entries = []
    for n in (64, 128):
        arrays = long_inputs(n)
        extra = [torch.tensor(p).float().requires_grad_() for p in parameters]
        with Largest() as largest:
            out = ours.scaled_dot_product_attention(
                *arrays, causal=mask is None, mask=mask, bias=build(FLOATS, *extra)
            )
            out.sum().backward()
        entries.append(largest.entries)
    assert entries[1] <= 2 * entries[0] <= 2 * 64 * 64 * HEADS / 4


def test_dropout_in_tiles_drops_the_same_weights(small, unchecked, monkeypatch):
    arrays = long_inputs(10)
    # a window, which tiles cut out
    mask = torch.ones(10, 10, dtype=torch.bool).tril().triu(-4)
    options = {"mask": mask, "dropout_rate": 0.5, "rng": 3}
    found = []
    for size in (0, 1000):
        monkeypatch.setattr(tiled, "SMALL", size)
        out = ours.scaled_dot_product_attention(*arrays, **options)
        found.append([out, *torch.autograd.grad(out.sum(), arrays)])
    for got, want in zip(*found, strict=True):
        assert torch.allclose(got, want, atol=1e-5)


DRAWN = torch.rand(9, 9, generator=torch.Generator().manual_seed(0)) < 0.8
DRAWN[:, 5], DRAWN[0] = False, False


def not_five(query_positions, key_positions):
    """What shows the first query nothing, and nobody the sixth key."""
    return (query_positions > 0)[..., :, None] & (key_positions != 5)[..., None, :]


@pytest.mark.parametrize("mask", [DRAWN, not_five])
@pytest.mark.parametrize("bias", [None, ours.ALiBi(HEADS), ours.StickBreaking()])
def test_tiles_hide_what_is_not_a_number(small, unchecked, bias, mask):
    query, key, value = long_inputs(9)
    with torch.no_grad():
        key[..., 5, :] = value[..., 5, :] = math.nan
    out = ours.scaled_dot_product_attention(query, key, value, mask=mask, bias=bias)
    out.sum().backward()
    assert not out[..., 0, :].any()
    assert not query.grad[..., 0, :].any()
    for x in (out, query.grad, key.grad, value.grad):
        assert x.isfinite().all()


def test_what_a_window_never_shows_reaches_nothing(small, unchecked):
    query, (key, value) = long_inputs(5)[0], long_inputs(20)[1:]
    with torch.no_grad():
        key[..., :10, :] = value[..., :10, :] = math.nan
    for bias in (None, ours.ALiBi(HEADS)):
        out = ours.scaled_dot_product_attention(
            query, key, value, mask=ours.Window(4), bias=bias
        )
        for x in (out, *torch.autograd.grad(out.sum(), (query, key, value))):
            assert x.isfinite().all()


@pytest.fixture
def widths(monkeypatch, unchecked):
    """How many keys each block of eight queries is given."""
    monkeypatch.setattr(tiled, "SMALL", 0)
    monkeypatch.setattr(query_tiles, "ROWS", 8)
    found, run = [], functional.scaled_dot_product_attention

    def count(query, key, *arguments, **options):
        found.append(key.shape[-2])
        return run(query, key, *arguments, **options)

    monkeypatch.setattr(functional, "scaled_dot_product_attention", count)
    return found


WINDOW = ours.Window(4)
DOCUMENTS = torch.tensor([0, 1, 2, 3]).repeat_interleave(torch.tensor([10, 25, 16, 13]))


def same_document(query_positions, key_positions):
    """A mask for documents that are packed into one sequence."""
    query, key = DOCUMENTS[query_positions], DOCUMENTS[key_positions]
    return query[..., :, None] == key[..., None, :]


@pytest.mark.parametrize(
    ("mask", "causal", "widest"),
    [
        (WINDOW, False, 8 + 2 * 3),
        (WINDOW, True, 8 + 3),
        (ours.window_mask(64, 64, 4), True, 8 + 3),
        (lambda *where: WINDOW(*where), False, 8 + 2 * 3),
        (same_document, True, 10 + 24),  # of two documents at most
    ],
)
def test_tiles_skip_what_a_mask_hides(widths, mask, causal, widest):
    arrays = long_inputs(64, grad=False)
    ours.scaled_dot_product_attention(*arrays, mask=mask, causal=causal)
    assert max(widths) <= widest


@pytest.mark.parametrize("scale", [1.0, -1.0])
@pytest.mark.parametrize("learned", [False, True])
def test_a_far_key_whose_product_outweighs_its_bias_counts(
    small, unchecked, learned, scale
):
    """The bias of the first key is 75 below that of near ones, and its product 80 above theirs."""
    n, size = 310, 40**0.5
    key = torch.full((1, HEADS, n, 1), -size * scale)
    key[..., 0, :], key[..., 1, :] = size * scale, 0
    query, value = torch.full_like(key, size), torch.ones_like(key).cumsum(-2)
    query[..., :300, :] /= 8
    table = torch.zeros(32, HEADS, requires_grad=True)
    with torch.no_grad():
        table[15] = -75
    bias = t5(FLOATS, table) if learned else ours.ALiBi(HEADS)
    arrays = [x.requires_grad_() for x in (query, key, value)]
    out = ours.scaled_dot_product_attention(*arrays, causal=True, bias=bias, scale=scale)
    where = torch.arange(n)
    added = bias(where, where)
    want = ours.attention_weights(*arrays[:2], causal=True, bias=added, scale=scale)
    assert 0.8 < want[0, 0, 300, 0] < 0.99
    assert torch.allclose(out, want @ value, rtol=1e-4)
    (pull,) = torch.autograd.grad(out.sum(), value)
    assert torch.allclose(pull[..., 0], want.sum(-2), rtol=1e-4)


def test_a_query_far_from_all_keys_still_sees_them(small, unchecked):
    """With more queries than keys, the first ones stand before all keys, and see none of their own place."""
    query, key = (long_inputs(n, torch.float64, grad=False)[0] for n in (300, 40))
    bias = ours.ALiBi(HEADS)
    got = ours.scaled_dot_product_attention(query / 4, key / 4, key, bias=bias)
    where = torch.arange(40 - 300, 40), torch.arange(40)
    want = ours.attention_weights(query / 4, key / 4, bias=bias(*where)) @ key
    assert error(got.numpy(), want.numpy()) <= BOUND["float64"]


@pytest.mark.parametrize(
    "bias",
    [torch.zeros(HEADS, 12, 12), ours.ALiBi(3), lambda *_: torch.zeros(3, 1, 1)],
    ids=["array", "distances", "function"],
)
def test_tiles_refuse_a_bias_that_does_not_fit(small, unchecked, bias):
    with pytest.raises(ValueError, match=r"^bias must"):
        ours.scaled_dot_product_attention(*long_inputs(10), bias=bias)


CONTENT = [
    name for name, make in SCHEMES_OF_ALL.items() if hasattr(make(16).bias, "scores")
]


@pytest.mark.parametrize("name", CONTENT)
def test_what_needs_all_keys_says_so(name):
    """A tile of the scores is a part of the whole, or the scheme says that it need not be."""
    bias = SCHEMES_OF_ALL[name](16).bias
    query, key, where = draw(8, 2, 9, 8), draw(9, 2, 9, 8), np.arange(9)
    rows, columns = slice(2, 7), slice(1, 4)
    whole = bias.scores(query, key, where, where)[:, rows, columns]
    tile = bias.scores(query[:, rows], key[:, columns], where[rows], where[columns])
    assert np.allclose(whole, tile) != bias.needs_all_keys
    for column in (ours, theirs):
        assert getattr(column, type(bias).__name__).needs_all_keys == bias.needs_all_keys


def in_blocks(monkeypatch, loss, *leaves):
    """A loss and its gradients, all queries at once and in blocks, and how the blocks were computed."""
    found = []
    for size in (10**6, 0):
        monkeypatch.setattr(tiled, "SMALL", size)
        out = loss(*leaves)
        found.append((out, *torch.autograd.grad(out.sum(), leaves)))
    for one, other in zip(*found, strict=True):
        assert torch.allclose(one, other, atol=1e-5)
    return type(found[1][0].grad_fn).__name__


@pytest.fixture
def fire():
    return ours.FIRE(HEADS, rng=torch.Generator().manual_seed(0))


def test_blocks_leave_nothing_in_the_graph(small, monkeypatch, fire):
    gates = torch.tensor(draw(304, HEADS, 10)).float().requires_grad_()

    def loss(*leaves):
        biases = [fire, ours.tiled_forgetting_bias(-(gates**2))]
        return ours.scaled_dot_product_attention(*leaves[:3], causal=True, bias=biases)

    leaves = *long_inputs(10), gates, *fire.parameters()
    assert in_blocks(monkeypatch, loss, *leaves) == "_BlocksBackward"


class Lent(torch.nn.Module):
    """Attention with a bias whose parameters may be lent for a call."""

    def __init__(self, bias):
        super().__init__()
        self.bias = bias

    def forward(self, *arrays):  # noqa: D102
        return ours.scaled_dot_product_attention(*arrays, bias=self.bias)


def test_blocks_compute_with_the_parameters_that_a_call_was_lent(small, monkeypatch, fire):
    query, key, value = long_inputs(10)
    c = torch.tensor([0.7], requires_grad=True)

    def loss(query, c):
        return torch.func.functional_call(Lent(fire), {"bias.c": c}, (query, key, value))

    assert in_blocks(monkeypatch, loss, query, c) == "_BlocksBackward"


def test_what_only_a_function_knows_learns_too(small, monkeypatch):
    factor = torch.tensor(0.3, requires_grad=True)

    def bias(query_positions, key_positions):
        return factor * (key_positions - query_positions[:, None])

    def loss(*leaves):
        return ours.scaled_dot_product_attention(*leaves[:3], bias=[bias, fifth])

    fifth = torch.zeros(HEADS, 10, 10)
    assert in_blocks(monkeypatch, loss, *long_inputs(10), factor) == "CatBackward0"


def test_blocks_are_computed_again_in_the_precision_of_the_call(small, fire):
    leaves, seen = long_inputs(10), []
    fire.register_forward_hook(lambda *_: seen.append(torch.is_autocast_enabled("cpu")))
    with torch.autocast("cpu", torch.bfloat16):
        out = ours.scaled_dot_product_attention(*leaves, bias=fire)
    forward = len(seen)
    torch.autograd.grad(out.sum(), leaves)
    assert len(seen) > forward
    assert all(seen)


@pytest.mark.parametrize("bias", [ours.T5Bias(HEADS), ours.ALiBi(HEADS)])
def test_functional_gradients_run_in_tiles(small, unchecked, bias):
    query, key, value = long_inputs(10, grad=False)

    def loss(query):
        options = {"mask": ours.Window(3), "bias": bias}
        return (ours.scaled_dot_product_attention(query, key, value, **options) ** 2).sum()

    leaf = query.clone().requires_grad_()
    (want,) = torch.autograd.grad(loss(leaf), leaf)
    assert torch.allclose(torch.func.grad(loss)(query), want, atol=1e-5)
