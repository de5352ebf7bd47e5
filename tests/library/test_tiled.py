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
from posattn.torch.attention import fused, query_tiles, tiled
from posattn.torch.attention.call import checked
from tests.conftest import BOUND, REFERENCE, TWINS, assert_twin_agrees, draw, error

HEADS, KV_HEADS, WIDTH = 4, 2, 3
SIZES = {
    "alike": (7, 7),
    "decoding": (4, 9),
    "more queries": (9, 5),
    "no keys": (5, 0),
}
SMALL = {(tiled, "SMALL"): 0, (blocks, "ROWS"): 3}


@pytest.fixture
def small(monkeypatch):
    """Tiles so small that short sequences have several."""
    for (module, name), size in SMALL.items():
        monkeypatch.setattr(module, name, size)


def alibi(column, *_):
    return column.ALiBi(HEADS)


def sandwich(column, *_):
    options = {} if column is REFERENCE else {"dtype": getattr(torch, column.dtype)}
    return column.sandwich_bias(HEADS, dim=4, **options)


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


FLOATS = next(twin for twin in TWINS if str(twin) == "torch-float32")
TABLES = draw(300, 5, WIDTH), draw(301, 5, WIDTH)
SCHEMES = {
    "none": (lambda column: None, ()),
    "ALiBi": (alibi, ()),
    "Sandwich": (sandwich, ()),
    "T5": (t5, (draw(302, 32, HEADS),)),
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


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_tiles_agree_with_the_reference(torch_column, small, scheme, sizes, causal, masked):
    build, parameters = SCHEMES[scheme]
    mask = mask_of(*SIZES[sizes]) if masked else None

    def attention(column, query, key, value, *parameters):
        return column.scaled_dot_product_attention(
            query,
            key,
            value,
            mask=None if mask is None else column.array(mask),
            causal=causal,
            bias=build(column, *parameters),
        )

    assert_twin_agrees(torch_column, attention, *inputs(*SIZES[sizes]), *parameters)


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


@pytest.mark.parametrize("scheme", SCHEMES)
def test_memory_grows_with_the_length(monkeypatch, unchecked, scheme):
    """Forward and backward, each doubling of the length doubles the largest array."""
    monkeypatch.setattr(tiled, "SMALL", 0)
    monkeypatch.setattr(blocks, "ROWS", 8)
    build, parameters = SCHEMES[scheme]
    entries = []
    for n in (64, 128):
        arrays, extra = (
            long_inputs(n),
            [torch.tensor(p).float().requires_grad_() for p in parameters],
        )
        with Largest() as largest:
            bias = build(FLOATS, *extra)
            out = ours.scaled_dot_product_attention(*arrays, causal=True, bias=bias)
            out.sum().backward()
        entries.append(largest.entries)
    assert entries[1] <= 2 * entries[0] <= 2 * 64 * 64 * HEADS / 4


def test_what_a_bias_learns_through_needs_no_graph_of_all_blocks(
    monkeypatch, small, unchecked
):
    monkeypatch.setattr(blocks, "checkpoint", None)
    gates = torch.tensor(draw(304, HEADS, 20), requires_grad=True)
    arrays = long_inputs(20)
    bias = ours.tiled_forgetting_bias(-(gates**2).float())
    ours.scaled_dot_product_attention(*arrays, causal=True, bias=bias).sum().backward()
    assert gates.grad.abs().max() > 0


@pytest.mark.slow
def test_blocks_are_compiled_for_one_length_after_another(small, unchecked):
    torch.compiler.reset()
    fire = ours.FIRE(HEADS, rng=torch.Generator().manual_seed(0))

    def attend(query, key, value):
        return ours.scaled_dot_product_attention(query, key, value, causal=True, bias=fire)

    compiled = torch.compile(attend, fullgraph=True, backend="aot_eager")
    for n in (10, 13, 14):
        arrays = long_inputs(n)
        got, want = (f(*arrays).detach().numpy() for f in (compiled, attend))
        assert error(got, want) <= BOUND["float32"]


def test_dropout_in_tiles_drops_the_same_weights(small, unchecked):
    query, key, value = long_inputs(10)
    # a window, which tiles cut out
    mask = torch.ones(10, 10, dtype=torch.bool).tril().triu(-4)
    options = {"mask": mask, "dropout_rate": 0.5, "rng": 3}
    got = ours.scaled_dot_product_attention(query, key, value, **options)
    tiled.SMALL = 1000
    want = ours.scaled_dot_product_attention(query, key, value, **options)
    assert torch.allclose(got, want, atol=1e-6)
    assert not torch.allclose(
        got, ours.scaled_dot_product_attention(query, key, value, mask=mask)
    )
    for one, other in zip(
        *(torch.autograd.grad(x.sum(), (query, key, value)) for x in (got, want)),
        strict=True,
    ):
        assert torch.allclose(one, other, atol=1e-5)


@pytest.mark.parametrize("bias", [None, ours.ALiBi(HEADS), ours.StickBreaking()])
@pytest.mark.parametrize("causal", [False, True])
def test_tiles_hide_what_is_not_a_number(small, unchecked, bias, causal):
    query, key, value = long_inputs(9)
    mask = torch.rand(9, 9, generator=torch.Generator().manual_seed(0)) < 0.8
    mask[:, 5], mask[0] = False, False
    with torch.no_grad():
        key[..., 5, :] = value[..., 5, :] = math.nan
    out = ours.scaled_dot_product_attention(
        query, key, value, mask=mask, causal=causal, bias=bias
    )
    out.sum().backward()
    assert (out[..., 0, :] == 0).all()
    assert (query.grad[..., 0, :] == 0).all()
    for x in (out, query.grad, key.grad, value.grad):
        assert x.isfinite().all()


@pytest.fixture
def widths(monkeypatch, unchecked):
    """How many keys each block of eight queries is given."""
    monkeypatch.setattr(tiled, "SMALL", 0)
    monkeypatch.setattr(blocks, "ROWS", 8)
    found, run = [], functional.scaled_dot_product_attention

    def count(query, key, *arguments, **options):
        found.append(key.shape[-2])
        return run(query, key, *arguments, **options)

    monkeypatch.setattr(functional, "scaled_dot_product_attention", count)
    return found


def test_tiles_skip_what_a_window_hides(widths):
    """A narrow window computes scores near the diagonal alone."""
    arrays, mask = long_inputs(64, grad=False), ours.window_mask(64, 64, 4)
    for causal in (False, True):
        got = ours.scaled_dot_product_attention(*arrays, mask=mask, causal=causal)
        want = ours.attention_weights(*arrays[:2], mask=mask, causal=causal) @ arrays[2]
        assert torch.allclose(got, want, atol=1e-6)
    assert max(widths) <= 8 + 2 * 4


def near(query_positions, key_positions):
    """Every second key near the query."""
    offsets = key_positions[..., None, :] - query_positions[..., :, None]
    return (abs(offsets) < 4) & (offsets % 2 == 0)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("sizes", ["alike", "decoding", "more queries"])
@pytest.mark.parametrize("scheme", ["none", "ALiBi", "T5", "Shaw", "stick-breaking"])
@pytest.mark.parametrize("mask", ["window", "function"])
def test_masks_that_are_functions_agree(torch_column, small, mask, scheme, sizes, causal):
    build, parameters = SCHEMES[scheme]

    def attention(column, query, key, value, *parameters):
        return column.scaled_dot_product_attention(
            query,
            key,
            value,
            mask=column.Window(2) if mask == "window" else near,
            causal=causal,
            bias=build(column, *parameters),
        )

    assert_twin_agrees(torch_column, attention, *inputs(*SIZES[sizes]), *parameters)


@pytest.mark.parametrize("scheme", ["none", "ALiBi", "T5"])
@pytest.mark.parametrize("mask", [None, "window"])
def test_tokens_may_stand_anywhere(torch_column, small, mask, scheme):
    """What depends on distances alone then has others in each row."""
    build, parameters = SCHEMES[scheme]
    places = np.array([0, 1, 5, 6, 7, 20, 3])

    def attention(column, query, key, value, *parameters):
        return column.scaled_dot_product_attention(
            query,
            key,
            value,
            mask=column.Window(3) if mask else None,
            bias=build(column, *parameters),
            query_positions=column.positions(places),
            key_positions=column.positions(places),
        )

    assert_twin_agrees(torch_column, attention, *inputs(7, 7), *parameters)


@pytest.mark.parametrize("scheme", ["none", "ALiBi", "T5", "Shaw"])
def test_a_mask_that_is_a_function_is_never_whole(monkeypatch, unchecked, scheme):
    """Memory for a window does not grow with the square of the length, and NaN outside it reaches nothing."""
    monkeypatch.setattr(tiled, "SMALL", 0)
    monkeypatch.setattr(blocks, "ROWS", 8)
    build, parameters = SCHEMES[scheme]
    parameters = [torch.tensor(p).float().requires_grad_() for p in parameters]
    for mask in (ours.Window(4), near):
        entries = []
        for n in (64, 128):
            arrays = long_inputs(n)
            with Largest() as largest:
                out = ours.scaled_dot_product_attention(
                    *arrays, mask=mask, bias=build(FLOATS, *parameters)
                )
                out.sum().backward()
            entries.append(largest.entries)
        assert entries[1] <= 2 * entries[0] <= 2 * 64 * 64 * HEADS / 4


DOCUMENTS = torch.tensor([0, 1, 2, 3]).repeat_interleave(torch.tensor([10, 25, 16, 13]))


def same_document(query_positions, key_positions):
    """A mask for documents that are packed into one sequence."""
    query, key = DOCUMENTS[query_positions], DOCUMENTS[key_positions]
    return query[..., :, None] == key[..., None, :]


@pytest.mark.parametrize("causal", [False, True])
def test_keys_of_other_documents_are_skipped(widths, causal):
    """Eight queries see the keys of their own documents: of two of them at most, here."""
    arrays = long_inputs(64, grad=False)
    options = {"mask": same_document, "causal": causal}
    with torch.no_grad():
        got = ours.scaled_dot_product_attention(*arrays, **options)
    assert max(widths) <= 10 + 25 + 6
    assert sum(widths) <= (8 * 35 if not causal else 8 * 24)
    want = ours.attention_weights(*arrays[:2], **options) @ arrays[2]
    assert torch.allclose(got, want, atol=1e-6)


def test_keys_that_are_known_to_be_finite_stay_as_they_are(small, unchecked):
    arrays = long_inputs(9, grad=False)
    call = checked(*arrays, mask=ours.Window(3), causal=True, finite=True, scale=0.5)
    block_call, _ = query_tiles._seen_only(call)
    assert block_call is call
    want = ours.scaled_dot_product_attention(
        *arrays, mask=ours.Window(3), causal=True, scale=0.5
    )
    assert torch.allclose(query_tiles.attend(call, fused.attend), want, atol=1e-6)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("few", [2**21, 2**9])
@pytest.mark.parametrize("bias", [None, ours.T5Bias(HEADS), ours.StickBreaking()])
@pytest.mark.parametrize("n_q", [5, 64, 70])
def test_documents_have_the_gradients_of_the_whole(
    monkeypatch, small, unchecked, n_q, bias, few, causal
):
    """Also with fewer or more queries than keys, and in parts of a block where a bias needs them."""
    monkeypatch.setattr(blocks, "FEW", few)
    query, (key, value) = long_inputs(n_q)[0], long_inputs(64)[1:]
    where = {
        "query_positions": torch.arange(64 - n_q, 64).abs(),
        "key_positions": torch.arange(64),
    }
    options = {"mask": same_document, "causal": causal, "bias": bias, **where}
    found = []
    for size in (0, 2**30):
        monkeypatch.setattr(tiled, "SMALL", size)
        out = ours.scaled_dot_product_attention(query, key, value, **options)
        found.append([out, *torch.autograd.grad((out**2).sum(), (query, key, value))])
    for got, want in zip(*found, strict=True):
        assert error(got.detach().numpy(), want.detach().numpy()) < 1e-5


@pytest.mark.parametrize("bias", [None, ours.ALiBi(HEADS)])
def test_what_a_window_never_shows_reaches_nothing(small, unchecked, bias):
    query, (key, value) = long_inputs(5)[0], long_inputs(20)[1:]
    with torch.no_grad():
        key[..., :10, :] = value[..., :10, :] = math.nan
    out = ours.scaled_dot_product_attention(
        query, key, value, mask=ours.Window(4), bias=bias
    )
    out.sum().backward()
    for x in (out, query.grad, key.grad, value.grad):
        assert x.isfinite().all()


def test_a_window_that_is_a_function_computes_what_it_shows(widths):
    for causal, widest in [(False, 8 + 2 * 3), (True, 8 + 3)]:
        widths.clear()
        for mask in (ours.Window(4), lambda q, k: ours.Window(4)(q, k)):
            arrays = long_inputs(64, grad=False)
            ours.scaled_dot_product_attention(*arrays, mask=mask, causal=causal)
        assert max(widths) == widest


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_far_keys_that_are_left_out_are_lost_in_rounding(unchecked, dtype):
    """ALiBi's steepest slope, long enough for scores of minus a thousand."""
    n = 3000
    arrays = [x.to(getattr(torch, dtype)) for x in long_inputs(n, grad=False)]
    got = ours.scaled_dot_product_attention(*arrays, causal=True, bias=ours.ALiBi(HEADS))
    want = REFERENCE.scaled_dot_product_attention(
        *(x.double().numpy() for x in arrays), causal=True, bias=REFERENCE.ALiBi(HEADS)
    )
    assert error(got.double().numpy(), want) <= BOUND[dtype]


def test_a_query_far_from_all_keys_still_sees_them(unchecked):
    """With more queries than keys, the first ones stand before all keys, and see none of their own place."""
    query, key = (long_inputs(n, torch.float64, grad=False)[0] for n in (3000, 400))
    bias = ours.ALiBi(HEADS)
    got = ours.scaled_dot_product_attention(query, key, key, bias=bias)
    where = torch.arange(400 - 3000, 400), torch.arange(400)
    want = ours.attention_weights(query, key, bias=bias(*where)) @ key
    assert error(got.numpy(), want.numpy()) <= BOUND["float64"]


@pytest.mark.parametrize(
    "bias",
    [torch.zeros(HEADS, 12, 12), torch.zeros(HEADS, 1, 12), ours.ALiBi(3), lambda *_: torch.zeros(3, 1, 1)],
    ids=["array", "row", "distances", "function"],
)  # fmt: skip
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
    def loss(*leaves):
        return ours.scaled_dot_product_attention(*leaves[:3], causal=True, bias=fire)

    leaves = *long_inputs(10), *fire.parameters()
    assert in_blocks(monkeypatch, loss, *leaves) == "_BlocksBackward"


def test_blocks_compute_with_the_parameters_that_a_call_was_lent(small, monkeypatch, fire):
    def loss(query, c):
        lent = {"layer.c": c}
        return torch.func.functional_call(Lent(fire), lent, (query, key, value))

    class Lent(torch.nn.Module):
        def __init__(self, layer):
            super().__init__()
            self.layer = layer

        def forward(self, *arrays):
            return ours.scaled_dot_product_attention(*arrays, bias=self.layer)

    query, key, value = long_inputs(10)
    c = torch.tensor([0.7], requires_grad=True)
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


@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize("masked", [False, True])
def test_functional_transformations_run_in_tiles(small, unchecked, masked):
    query, key, value = long_inputs(10, grad=False)
    bias = ours.T5Bias(HEADS, rng=torch.Generator().manual_seed(0))

    def loss(query, table):
        return torch.func.functional_call(
            Loss(bias), {"bias.table": table}, (query, key, value)
        )

    class Loss(torch.nn.Module):
        def __init__(self, bias):
            super().__init__()
            self.bias = bias

        def forward(self, *arrays):
            mask = torch.ones(10, 10, dtype=torch.bool).tril() if masked else None
            return ours.scaled_dot_product_attention(
                *arrays, mask=mask, bias=self.bias
            ).sum()

    table = bias.table.detach()
    got = torch.func.grad(loss, argnums=(0, 1))(query, table)
    leaves = query.clone().requires_grad_(), table.clone().requires_grad_()
    want = torch.autograd.grad(loss(*leaves), leaves)
    for one, other in zip(got, want, strict=True):
        assert torch.allclose(one, other, atol=1e-6)
    each = torch.func.vmap(
        lambda x: ours.scaled_dot_product_attention(
            x, x, x, causal=True, bias=ours.ALiBi(HEADS)
        )
    )
    assert torch.allclose(
        each(query)[0],
        ours.scaled_dot_product_attention(
            *[query[0]] * 3, causal=True, bias=ours.ALiBi(HEADS)
        ),
        atol=1e-6,
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "bias", [None, ours.ALiBi(HEADS), ours.T5Bias(HEADS), ours.StickBreaking()]
)
def test_tiles_compile_to_one_graph(small, unchecked, bias):
    torch.compiler.reset()
    arrays, mask = long_inputs(10), torch.ones(10, 10, dtype=torch.bool).triu(-2)
    run = torch.compile(
        ours.scaled_dot_product_attention,
        fullgraph=True,
        backend="aot_eager",
        dynamic=False,
    )
    for options in ({}, {"mask": mask}, {"mask": ours.Window(3)}):
        got = run(*arrays, causal=True, bias=bias, **options)
        want = ours.scaled_dot_product_attention(*arrays, causal=True, bias=bias, **options)
        assert torch.allclose(got, want, atol=1e-6)
        for one, other in zip(
            *(torch.autograd.grad(x.sum(), arrays) for x in (got, want)), strict=True
        ):
            assert torch.allclose(one, other, atol=1e-5)
