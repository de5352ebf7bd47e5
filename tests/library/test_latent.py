"""Multi-head latent attention: one narrow vector per token, and decoding from it."""

import dataclasses
import math
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import posattn.jax
import posattn.torch
from posattn.torch import LatentAttention, Rotary
from tests.conftest import BOUND, COLUMNS, REFERENCE, assert_close, assert_twin_agrees, draw
from tests.conftest import error as off_by
from tests.library.test_torch_models import alone

DIM, HEADS, N = 6, 2, 7
SIZES = {"kv_rank": 5, "content_dim": 4, "rotary_dim": 2, "value_dim": 3}
SHAPES = {
    "query_weight": (DIM, HEADS * 6),
    "kv_down_weight": (DIM, 7),
    "kv_norm_weight": (5,),
    "key_weight": (5, HEADS * 4),
    "value_weight": (5, HEADS * 3),
    "output_weight": (HEADS * 3, DIM),
}
LOW_RANK = SHAPES | {
    "query_weight": (3, HEADS * 6),
    "query_down_weight": (DIM, 3),
    "query_norm_weight": (3,),
}


def weights_of(shapes):
    """Norms are near 1, and what comes after them is small."""
    drawn = {name: draw(60 + i, *shape) for i, (name, shape) in enumerate(shapes.items())}
    return {
        name: 1 + w / 8 if "norm" in name else w / (1 if "down" in name else 8)
        for name, w in drawn.items()
    }


def layer_of(column, weights, **options):
    """A layer from its weights by name, `(inputs, outputs)`."""
    if column.name != "torch":
        return column.LatentAttention(**weights, num_heads=HEADS, **options)
    rank = weights["query_norm_weight"].shape[0] if "query_norm_weight" in weights else None
    sizes = SIZES | {"query_rank": rank}
    layer = column.LatentAttention(DIM, HEADS, **sizes, **options)
    layer.to(getattr(torch, column.dtype))
    named = {
        f"{n.removesuffix('_weight')}.weight": w.mT if w.ndim > 1 else w
        for n, w in weights.items()
    }

    class Bound:
        def __call__(self, *inputs, **options):
            return torch.func.functional_call(layer, named, inputs, options)

        def attention_weights(self, *inputs, **options):
            layer.load_state_dict(named)
            return layer.attention_weights(*inputs, **options).detach()

        init_cache = staticmethod(layer.init_cache)

    return Bound()


def made(column, shapes=LOW_RANK, **options):
    options = {"rotate": column.Rotary()} | options
    return layer_of(
        column, {n: column.array(w) for n, w in weights_of(shapes).items()}, **options
    )


X = draw(70, 2, N, DIM)
SEEN = np.ones((2, 1, N), bool)
SEEN[0, 0, :3] = False
PACKED = np.array([0, 1, 2, 0, 1, 2, 3])
CASES = {
    "plain": (SHAPES, {}),
    "queries of low rank": (LOW_RANK, {}),
    "causal": (LOW_RANK, {"causal": True}),
    "padding": (LOW_RANK, {"mask": SEEN, "causal": True}),
    "a mask for each head": (SHAPES, {"mask": np.tri(N, dtype=bool)[None, None].repeat(HEADS, 1)}),
    "positions": (SHAPES, {"query_positions": PACKED}),
    "positions per example": (LOW_RANK, {"query_positions": np.array([PACKED, 5 + PACKED])}),
}  # fmt: skip


def given(column, options):
    return {n: x if n == "causal" else column.array(x) for n, x in options.items()}


def test_a_small_case_by_hand(column):
    """Both latent vectors have root mean square 1, and half a logarithm of 3 gives weights 3/4 and 1/4."""
    half = math.log(3) / 2
    weights = {
        "query_weight": [[1.0, half, 0.0], [0.0, 0.0, 0.0]],
        "kv_down_weight": [[1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 1.0, 0.0]],
        "kv_norm_weight": [1.0, 1.0],
        "key_weight": [[1.0], [0.0]],
        "value_weight": [[0.0], [1.0]],
        "output_weight": [[1.0, 2.0]],
    }
    named = {name: column.array(np.array(value)) for name, value in weights.items()}
    x = column.array(np.array([[1.0, 1.0], [1.0, -1.0]]))

    def layer(**options):
        if column.name != "torch":
            return column.LatentAttention(**named, scale=1.0, eps=1e-30, **options)
        sizes = {"kv_rank": 2, "content_dim": 1, "rotary_dim": 2, "dtype": torch.float64}
        made = column.LatentAttention(2, 1, **sizes, scale=1.0, eps=1e-30, **options)
        made.load_state_dict(
            {
                n.replace("_weight", ".weight"): w if w.ndim == 1 else w.T
                for n, w in named.items()
            }
        )
        return made.requires_grad_(False)

    assert_close(column, layer()(x), np.array([[0.5, 1.0]] * 2))
    assert_close(column, layer()(x, causal=True), np.array([[1.0, 2.0], [0.5, 1.0]]))
    assert_close(column, layer().attention_weights(x), np.array([[[0.75, 0.25]] * 2]))
    turn = column.Rotary(frequencies=[math.pi])  # the second key turns onto the first
    assert_close(column, layer(rotate=turn)(x), np.zeros((2, 2)))


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_layers_and_their_gradients_agree_with_the_reference(twin, case):
    shapes, options = case
    weights = weights_of(shapes)

    def run(column, x, *arrays):
        named = dict(zip(weights, arrays, strict=True))
        layer = layer_of(column, named, rotate=column.Rotary(base=50.0))
        return layer(x, **given(column, options))

    assert_twin_agrees(twin, run, X, *weights.values())


def test_it_is_attention_of_the_keys_and_values_that_the_latent_vectors_make(column):
    w, eps = weights_of(SHAPES), 0.1
    latent, shared = np.split(X @ w["kv_down_weight"], [5], axis=-1)
    mean = np.mean(latent**2, axis=-1, keepdims=True)
    latent = w["kv_norm_weight"] * latent / np.sqrt(mean + eps)
    q, k, v = (
        REFERENCE.split_heads(x, HEADS)
        for x in (
            X @ w["query_weight"],
            latent @ w["key_weight"],
            latent @ w["value_weight"],
        )
    )
    q = np.concatenate([q[..., :4], REFERENCE.rotate(q[..., 4:], layout="half")], axis=-1)
    shared = REFERENCE.rotate(shared, layout="half")
    k = np.concatenate([k, np.stack([shared] * HEADS, axis=1)], axis=-1)
    want = REFERENCE.scaled_dot_product_attention(q, k, v, causal=True, scale=0.3)
    layer = made(column, SHAPES, rotate=column.Rotary(layout="half"), scale=0.3, eps=eps)
    got = layer(column.array(X), causal=True)
    assert_close(column, got, REFERENCE.merge_heads(want) @ w["output_weight"])


def test_the_scale_is_that_of_the_whole_width(column):
    default, told = made(column), made(column, scale=6**-0.5)
    x = column.array(X)
    assert_close(column, default(x), column.numpy(told(x)))


def test_the_weights_are_those_that_the_call_mixes_values_with(column):
    w = weights_of(SHAPES)
    layer = made(column, SHAPES)
    options = given(column, {"mask": SEEN, "causal": True, "query_positions": PACKED})
    weights = column.numpy(layer.attention_weights(column.array(X), **options))
    assert np.all(weights[0, :, :3] == 0)
    assert np.allclose(weights[0, :, 3:].sum(-1), 1)
    latent = (X @ w["kv_down_weight"])[..., :5]
    latent = (
        w["kv_norm_weight"] * latent / np.sqrt(np.mean(latent**2, -1, keepdims=True) + 1e-6)
    )
    values = REFERENCE.split_heads(latent @ w["value_weight"], HEADS)
    want = REFERENCE.merge_heads(weights @ values) @ w["output_weight"]
    assert_close(column, layer(column.array(X), **options), want)


def steps(layer, x, sizes, cache, **options):
    """Feed a sequence in parts."""
    outs, start = [], 0
    for size in sizes:
        part = x[:, start : start + size]
        of_part = {n: p[..., start : start + size] for n, p in options.items()}
        out, cache = layer(part, cache=cache, **of_part)
        outs.append(out)
        start += size
    return outs, cache


def joined(column, outs):
    return np.concatenate([column.numpy(out) for out in outs], axis=1)


def room(column, layer, batch=(2,), slots=9):
    dtype = {} if column.name == "reference" else {"dtype": getattr(torch, column.dtype)}
    return layer.init_cache(batch, slots, **dtype if column.name == "torch" else {})


@pytest.mark.parametrize("sizes", [[1] * N, [N], [3, 4], [2, 1, 4], [N - 1, 1]])
@pytest.mark.parametrize("shapes", [SHAPES, LOW_RANK], ids=["full rank", "low rank"])
def test_parts_and_steps_repeat_the_whole(column, sizes, shapes):
    """Up to 11 queries, keys and values are left unmade with these widths."""
    layer = made(column, shapes)
    whole = column.numpy(layer(column.array(X), causal=True))
    outs, cache = steps(layer, column.array(X), sizes, room(column, layer))
    assert_close(column, outs[0], whole[:, : sizes[0]])
    assert np.allclose(joined(column, outs), whole, atol=1e-12)
    assert np.all(column.numpy(cache.next_positions(1)) == N)


def test_many_queries_make_keys_and_values_and_few_do_not(column):
    """With 5, 4 and 3 entries one query adds 3 products and makes none of 35: 11 are few and 12 are many."""
    x = draw(71, 1, 12, DIM)
    layer = made(column)
    whole = column.numpy(layer(column.array(x), causal=True))
    for n in (11, 12):
        out, _ = layer(column.array(x[:, :n]), cache=room(column, layer, (1,), 14))
        assert_close(column, out, whole[:, :n])


def test_left_padding_changes_nothing(column):
    """Negative positions mark padding, which a cache does not keep."""
    layer = made(column)
    pads = np.array([[-1, -1, 0, 1, 2, 3, 4], np.arange(N)])
    outs, cache = steps(
        layer,
        column.array(X),
        [4, 1, 2],
        room(column, layer),
        query_positions=column.array(pads),
    )
    got = joined(column, outs)
    alone = column.numpy(layer(column.array(X[:1, 2:]), causal=True))
    assert np.allclose(got[0, 2:], alone[0], atol=1e-12)
    assert np.all(got[0, :2] == 0)  # it may attend to nothing
    whole = column.numpy(layer(column.array(X[1:]), causal=True))
    assert np.allclose(got[1], whole[0], atol=1e-12)
    assert np.array_equal(column.numpy(cache.next_positions(1)), [[5], [7]])


def test_a_mask_of_a_call_holds_on_top_of_the_cache(column):
    layer = made(column)
    want = layer(column.array(X), causal=True, mask=column.Window(3))
    cache = room(column, layer)
    outs = []
    for i in range(N):
        out, cache = layer(
            column.array(X[:, i : i + 1]), cache=cache, mask=column.Window(3)
        )
        outs.append(out)
    assert np.allclose(joined(column, outs), column.numpy(want), atol=1e-12)


@pytest.mark.parametrize("of_heads", [True, False])
def test_an_array_may_hide_slots_of_the_cache(column, of_heads):
    """Position 1 from the first head, or from all of them."""
    layer = made(column)
    seen = np.ones((2, HEADS, N, N) if of_heads else (2, N, N), bool)
    seen[(slice(None), 0) if of_heads else ()][..., 2:, 1] = False
    want = column.numpy(layer(column.array(X), causal=True, mask=column.array(seen)))
    cache, outs = room(column, layer), []
    slots = cache.positions.shape[-1]
    for start, stop in [(0, 2), (2, 3), (3, 5), (5, N)]:
        mask = np.ones((*seen.shape[:-2], stop - start, slots), bool)
        mask[..., :N] = seen[..., start:stop, :]
        out, cache = layer(
            column.array(X[:, start:stop]), cache=cache, mask=column.array(mask)
        )
        outs.append(out)
    assert np.allclose(joined(column, outs), want, atol=1e-12)


@pytest.mark.parametrize("column", [c for c in COLUMNS if c.name != "reference"], ids=str)
def test_steps_repeat_the_whole_in_single_precision(column):
    """With the ranks and widths of DeepSeek V3 halved, and 4 heads."""
    sizes = {"query_rank": 768, "kv_rank": 256, "content_dim": 64, "rotary_dim": 32}
    x = np.random.default_rng(0).normal(size=(1, 12, 128)).astype(np.float32)
    turn = {"rotate": column.Rotary(base=50.0)}
    if column.name == "torch":
        rng = torch.Generator().manual_seed(0)
        layer = column.LatentAttention(
            128, 4, **sizes, **turn, dtype=torch.float32, rng=rng
        )
        layer.requires_grad_(False)
        x = torch.tensor(x)
    else:
        layer = column.LatentAttention.init(
            column.rng(), 128, 4, **sizes, **turn, dtype="float32"
        )
        x = jnp.asarray(x)
    whole = np.asarray(layer(x, causal=True))
    cache, got = layer.init_cache((1,), 12), []
    for i in range(12):
        out, cache = layer(x[:, i : i + 1], cache=cache)
        got.append(np.asarray(out))
    got = np.concatenate(got, axis=1)
    assert np.abs(got - whole).max() <= 1e-5 * np.abs(whole).max()


def test_deepseek_v3_keeps_576_numbers_of_a_token(column):
    """Heads would have 128 keys of 192 numbers and as many values of 128."""
    cache = column.LatentCache.init((1,), 4, 512 + 64)
    size = {"reference": 8, "torch": 4, "jax": 8}[column.name]
    assert cache.bytes_per_token == 576 * size
    half = {"torch": torch.bfloat16, "jax": jnp.bfloat16}.get(column.name)
    if half is not None:
        cache = column.LatentCache.init((1,), 4, 576, dtype=half)
        assert cache.bytes_per_token == 1152
        assert 128 * (192 + 128) * 2 / cache.bytes_per_token > 71


def test_drawn_weights_lie_within_their_bounds_and_norms_begin_at_1(column):
    sizes = {"query_rank": 3, **SIZES}
    if column.name == "torch":
        layer = column.LatentAttention(DIM, HEADS, **sizes, rng=column.rng())
        drawn = {
            n.replace(".", "_"): w.detach().numpy().T for n, w in layer.named_parameters()
        }
    else:
        layer = column.LatentAttention.init(column.rng(), DIM, HEADS, **sizes)
        drawn = {n: np.asarray(getattr(layer, n)) for n in LOW_RANK}
    assert {n: w.shape for n, w in drawn.items()} == LOW_RANK
    for name, w in drawn.items():
        if "norm" in name:
            assert np.all(w == 1)
        else:
            bound = math.sqrt(6 / sum(w.shape))
            assert bound / 2 < np.abs(w).max() <= bound


def test_a_value_is_as_wide_as_a_key_without_rotation_if_not_told(column):
    sizes = {n: s for n, s in SIZES.items() if n != "value_dim"}
    if column.name == "torch":
        assert column.LatentAttention(DIM, HEADS, **sizes).value.out_features == HEADS * 4
    else:
        layer = column.LatentAttention.init(column.rng(), DIM, HEADS, **sizes)
        assert layer.value_weight.shape == (5, HEADS * 4)


def make(column, **wrong):
    sizes = {"dim": DIM, "num_heads": HEADS, "query_rank": 3, **SIZES} | wrong
    if column.name == "torch":
        return column.LatentAttention(**sizes)
    return column.LatentAttention.init(column.rng(), **sizes)


@pytest.mark.parametrize(
    ("wrong", "kind", "text"),
    [
        ({"dim": 0}, ValueError, "dim must be a positive integer, got 0"),
        ({"num_heads": "2"}, TypeError, "num_heads must be a positive integer, got '2'"),
        ({"query_rank": 0}, ValueError, "query_rank must be a positive integer, got 0"),
        ({"kv_rank": 2.0}, TypeError, r"kv_rank must be a positive integer, got 2\.0"),
        ({"content_dim": -1}, ValueError, "content_dim must be a positive integer, got -1"),
        (
            {"rotary_dim": 3},
            ValueError,
            "rotary_dim must be a positive even integer, got 3",
        ),
        ({"value_dim": 0}, ValueError, "value_dim must be a positive integer, got 0"),
        ({"scale": math.nan}, ValueError, "scale must be a finite number, got nan"),
        ({"eps": 0}, ValueError, "eps must be a positive finite number, got 0"),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_wrong_sizes_are_refused(column, wrong, kind, text):
    with pytest.raises(kind, match=f"^{text}$"):
        make(column, **wrong)


@pytest.mark.usefixtures("unchecked")
def test_wrong_input_is_refused(column):
    layer, array = make(column), column.array
    for x, kind, text in [
        (
            array(X[..., :4]),
            ValueError,
            r"x must have shape \(\*batch, n, 6\), got \(2, 7, 4\)",
        ),
        (array(X[0, 0]), ValueError, r"x must have shape \(\*batch, n, 6\), got \(6,\)"),
        (X.tolist(), TypeError, "x must be an array, got list"),
    ]:
        with pytest.raises(kind, match=text):
            layer(x)
        with pytest.raises(kind, match=text):
            layer.attention_weights(x)
    with pytest.raises(
        ValueError, match=r"x must have shape \(\*batch, n, 6\), got \(6,\)"
    ):
        layer(array(X[0, 0]), cache=room(column, layer, (), 3))
    if column.name == "torch":
        layer.double()
    with pytest.raises(
        ValueError, match=r"query_positions must have shape \(7,\) or \(2, 7\), got \(2,\)"
    ):
        layer(array(X), query_positions=array(np.arange(2)))
    with pytest.raises(ValueError, match="mask must have a shape that broadcasts to"):
        layer(array(X), mask=array(np.ones((N, 3), bool)))
    for slots, text in [
        (6, "query_positions must be less than max_len = 6 of the cache, got 6"),
        (9, r"latent must have shape \(3, n, 7\), got \(2, 7, 7\)"),
    ]:
        batch = (2,) if slots == 6 else (3,)
        cache, where = room(column, layer, batch, slots), array(np.arange(N))
        with pytest.raises(ValueError, match=text):
            layer(array(X), cache=cache, query_positions=where)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("name", "shape", "text"),
    [
        ("kv_down_weight", (DIM, 5), "kv_down_weight must have more than 5 columns"),
        (
            "key_weight",
            (4, 8),
            r"key_weight must have shape \(5, h \* content_dim\), got \(4, 8\)",
        ),
        ("key_weight", (5, 7), "num_heads must divide the 7 columns of key_weight, got 2"),
        (
            "value_weight",
            (4, 6),
            r"value_weight must have shape \(5, h \* value_dim\), got \(4, 6\)",
        ),
        (
            "output_weight",
            (5, DIM),
            r"output_weight must have shape \(6, 6\), got \(5, 6\)",
        ),
        (
            "query_down_weight",
            (5, 3),
            r"query_down_weight must have shape \(6, query_rank\), got \(5, 3\)",
        ),
        (
            "query_norm_weight",
            (2,),
            r"query_norm_weight must have shape \(3,?\), got \(2,\)",
        ),
        ("query_norm_weight", None, "query_norm_weight must be an array, got NoneType"),
        ("query_weight", (3, 11), r"query_weight must have shape \(3, 12\), got \(3, 11\)"),
    ],
)
def test_weights_that_do_not_belong_together_are_refused(column, name, shape, text):
    if column.name == "torch":
        return  # its modules belong together
    layer = made(column)
    wrong = None if shape is None else column.array(draw(1, *shape))
    with pytest.raises((ValueError, TypeError), match=text):
        dataclasses.replace(layer, **{name: wrong})(column.array(X))


# PyTorch


@pytest.fixture
def torch_layer(torch_column):
    rng = torch_column.rng()
    options = {"rotate": posattn.torch.Rotary(), "rng": rng, "query_rank": 3}
    return posattn.torch.LatentAttention(DIM, HEADS, **SIZES, **options)


def single(x):
    return torch.tensor(x, dtype=torch.float32)


def test_a_torch_layer_shows_its_sizes():
    layer = posattn.torch.LatentAttention(DIM, HEADS, **SIZES, scale=0.5)
    said = "num_heads=2, content_dim=4, rotary_dim=2, value_dim=3, scale=0.5"
    assert layer.extra_repr() == said


@pytest.mark.usefixtures("unchecked")
def test_a_torch_layer_is_saved_and_drawn_again(torch_layer):
    again = pickle.loads(pickle.dumps(torch_layer))
    x = single(X)
    assert torch.equal(again(x), torch_layer(x))
    torch_layer.kv_norm.weight.data.fill_(3)
    torch_layer.reset_parameters(torch.Generator().manual_seed(0))
    assert torch.equal(again(x), torch_layer(x))
    with pytest.raises(TypeError, match=r"rng must be a torch\.Generator, got int"):
        torch_layer.reset_parameters(0)
    with pytest.raises(
        TypeError, match="x must have the dtype of the weights, float32, got float64"
    ):
        torch_layer(torch.tensor(X))


class Stretch(torch.nn.Module):
    """A learned function of positions."""

    def __init__(self):
        super().__init__()
        self.rate = torch.nn.Parameter(torch.tensor(0.5))

    def forward(self, x, positions):
        """Stretch tokens by their position."""
        return x * (1 + self.rate * positions[..., None])


def test_a_rotation_may_learn_and_is_not_drawn_again():
    layer = posattn.torch.LatentAttention(DIM, HEADS, **SIZES, rotate=Stretch())
    layer(single(X)).sum().backward()
    assert layer.rotate.rate.grad != 0
    layer.reset_parameters()
    assert layer.rotate.rate == 0.5
    assert "rotate=" not in layer.extra_repr()


def test_autocast_makes_latent_vectors_of_its_dtype(torch_layer):
    x = single(X)
    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        cache = torch_layer.init_cache((2,), 9)
        out, cache = torch_layer(x, cache=cache)
        whole = torch_layer(x, causal=True)
    assert cache.latent.dtype == out.dtype == torch.bfloat16
    exact = torch_layer(x, causal=True).detach().numpy()
    for got in (out, whole):
        assert off_by(got.float().numpy(), exact) <= BOUND["bfloat16"]


@alone
def test_a_step_compiles_to_one_graph_and_beyond_the_end_is_nan():
    torch.manual_seed(0)
    sizes = {
        "query_rank": 3,
        "kv_rank": 5,
        "content_dim": 4,
        "rotary_dim": 2,
        "value_dim": 3,
    }
    layer = LatentAttention(6, 2, **sizes, rotate=Rotary()).requires_grad_(False)
    x = torch.randn(2, 7, 6)
    whole = layer(x, causal=True)
    step = torch.compile(layer, fullgraph=True, backend="aot_eager")
    assert torch.allclose(step(x, causal=True), whole, atol=1e-6)
    _, cache = layer(x[:, :4], cache=layer.init_cache((2,), 6))
    for i in (4, 5):
        out, cache = step(x[:, i : i + 1], cache=cache)
        assert torch.allclose(out[:, 0], whole[:, i], atol=1e-6)
    out, _ = step(x[:, 6:], cache=cache, query_positions=torch.tensor([[6], [-1]]))
    assert out[0].isnan().all()
    assert out[1].eq(0).all()


@alone
def test_a_layer_is_exported_for_all_lengths_and_a_step_of_decoding():
    torch.manual_seed(0)
    sizes = {"kv_rank": 5, "content_dim": 4, "rotary_dim": 2}
    layer = LatentAttention(6, 2, **sizes, rotate=Rotary())
    x, n = torch.randn(2, 7, 6), torch.export.Dim("n", min=2, max=64)
    shapes = {"x": {1: n}, "causal": None}
    example, options = torch.randn(2, 4, 6), {"causal": True}
    program = torch.export.export(layer, (example,), options, dynamic_shapes=shapes)
    assert torch.allclose(
        program.module()(x, causal=True), layer(x, causal=True), atol=1e-6
    )


# JAX


@pytest.fixture
def jax_layer(jax_single):
    options = {"rotate": posattn.jax.Rotary(), "query_rank": 3}
    return posattn.jax.LatentAttention.init(
        jax_single.rng(), DIM, HEADS, **SIZES, **options
    )


def test_one_compilation_serves_all_steps_and_beyond_the_end_is_nan(jax_layer):
    whole = jax_layer(jnp.asarray(X, jnp.float32), causal=True)
    x = jnp.asarray(X, jnp.float32)
    traces = []
    step = jax.jit(lambda layer, x, cache: traces.append(1) or layer(x, cache=cache))
    cache = jax_layer.init_cache((2,), N - 1)
    for i in range(N):
        out, cache = step(jax_layer, x[:, i : i + 1], cache)
        if i < N - 1:
            assert jnp.allclose(out[:, 0], whole[:, i], atol=1e-6)
    assert jnp.isnan(out).all()
    assert len(traces) == 1


def test_a_scan_decodes(jax_layer):
    x = jnp.asarray(X, jnp.float32)

    def step(cache, token):
        out, cache = jax_layer(token[:, None], cache=cache)
        return cache, out[:, 0]

    _, outs = jax.lax.scan(step, jax_layer.init_cache((2,), N), jnp.moveaxis(x, 1, 0))
    whole = jax_layer(x, causal=True)
    assert jnp.allclose(jnp.moveaxis(outs, 0, 1), whole, atol=1e-6)


@pytest.mark.usefixtures("unchecked")
def test_a_jax_layer_is_a_tree_and_is_trained(jax_layer):
    x = jnp.asarray(X, jnp.float32)
    loss = jax.jit(jax.grad(lambda layer: jnp.sum(layer(x, causal=True) ** 2)))
    found = loss(jax_layer)
    assert all(jnp.any(g != 0) for g in jax.tree.leaves(found))
    assert len(jax.tree.leaves(jax_layer)) == len(LOW_RANK)
    with pytest.raises(
        TypeError, match="x must have the dtype of the weights, float32, got float16"
    ):
        jax_layer(x.astype(jnp.float16))


def test_half_precision_stays_half_and_its_norm_is_rounded_once(jax_layer):
    half = jax.tree.map(lambda w: w.astype(jnp.bfloat16), jax_layer)
    x = jnp.asarray(X, jnp.bfloat16)
    out, cache = half(x, cache=half.init_cache((2,), N))
    assert out.dtype == cache.latent.dtype == jnp.bfloat16
    exact = np.asarray(jax_layer(jnp.asarray(X, jnp.float32), causal=True))
    assert off_by(np.asarray(out, np.float32), exact) <= 2 * BOUND["bfloat16"]


# a layer from a configuration

DEEPSEEK = {
    "model_type": "deepseek_v3",
    "hidden_size": DIM,
    "num_hidden_layers": 2,
    "num_attention_heads": HEADS,
    "num_key_value_heads": HEADS,
    "q_lora_rank": 3,
    "kv_lora_rank": 5,
    "qk_nope_head_dim": 4,
    "qk_rope_head_dim": 2,
    "v_head_dim": 3,
    "rope_theta": 100.0,
    "max_position_embeddings": 64,
}
PLACE = "model.layers.1.self_attn."
NAMES = {
    "query_down_weight": "q_a_proj",
    "query_norm_weight": "q_a_layernorm",
    "query_weight": "q_b_proj",
    "kv_down_weight": "kv_a_proj_with_mqa",
    "kv_norm_weight": "kv_a_layernorm",
    "output_weight": "o_proj",
}


def state_of(column, shapes=LOW_RANK):
    """Weights as a checkpoint has them: keys and values of a head in one piece."""
    w = weights_of(shapes)
    names = NAMES | ({} if "query_down_weight" in shapes else {"query_weight": "q_proj"})
    state = {f"{PLACE}{names[n]}.weight": x.T for n, x in w.items() if n in names}
    each = [
        x for pair in zip(*(np.split(w[f"{n}_weight"], HEADS, axis=1) for n in ("key", "value")), strict=True)
        for x in pair
    ]  # fmt: skip
    state[f"{PLACE}kv_b_proj.weight"] = np.concatenate(each, axis=1).T
    state["model.layers.0.self_attn.o_proj.weight"] = np.zeros((1, 1))
    make = torch.tensor if column.name == "torch" else np.asarray
    return {name: make(np.ascontiguousarray(x)) for name, x in state.items()}


@pytest.fixture(params=COLUMNS[1:], ids=lambda column: column.name)
def built(request):
    """The columns that build layers from configurations, in float64."""
    with request.param.mode():
        yield request.param


def from_config(column, config, **options):
    dtype = {"torch": torch.float64, "jax": "float64"}[column.name]
    return column.LatentAttention.from_config(config, 1, dtype=dtype, **options)


@pytest.mark.parametrize("shapes", [SHAPES, LOW_RANK], ids=["full rank", "low rank"])
def test_a_layer_of_deepseek_has_its_weights_and_its_rotation(built, shapes):
    rank = None if shapes is SHAPES else 3
    layer = from_config(
        built, DEEPSEEK | {"q_lora_rank": rank}, weights=state_of(built, shapes)
    )
    want = made(REFERENCE, shapes, rotate=REFERENCE.Rotary(base=100.0))(X, causal=True)
    assert_close(built, layer(built.array(X), causal=True), want)


def test_weights_are_drawn_where_none_are_given(built):
    layers = [from_config(built, DEEPSEEK, rng=built.rng(n)) for n in (0, 0, 1)]
    same, again, other = (built.numpy(layer(built.array(X))) for layer in layers)
    assert np.array_equal(same, again)
    assert not np.allclose(same, other)
    drawn = from_config(built, DEEPSEEK)(built.array(X))
    assert drawn.shape == X.shape


def test_yarn_goes_into_the_frequencies_and_its_sharpening_into_the_scale(built):
    yarn = {"type": "yarn", "factor": 40, "original_max_position_embeddings": 32}
    scaled = {"rope_scaling": yarn | {"mscale": 1.0, "mscale_all_dim": 1.0}}
    layer = from_config(built, DEEPSEEK | scaled)
    assert layer.scale == pytest.approx((0.1 * math.log(40) + 1) ** 2 / math.sqrt(6))


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"attention_bias": True}, r"layer 1 has use_bias = \(True, True, True\), which LatentAttention"),
        (
            {"model_type": "deepseek_v32", "index_topk": 4, "index_n_heads": 2, "index_head_dim": 4},
            "layer 1 has selected = 4, which LatentAttention does not build",
        ),
    ],
)  # fmt: skip
def test_what_the_layer_lacks_is_refused(built, changes, text):
    with pytest.raises(ValueError, match=text):
        from_config(built, DEEPSEEK | changes)


def test_a_layer_with_heads_of_its_own_is_refused(built):
    llama = {
        "model_type": "llama",
        "hidden_size": 8,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
    }
    with pytest.raises(
        ValueError, match="layer 1 must have a latent vector of keys and values"
    ):
        from_config(built, llama | {"rope_theta": 1e4})


@pytest.mark.parametrize(
    ("name", "change", "text"),
    [
        (
            "kv_b_proj",
            None,
            f"weights lack '{PLACE}kv_b_proj.weight', the layer's key and value",
        ),
        (
            "o_proj",
            lambda w: w[:2],
            rf"'{PLACE}o_proj.weight' must have shape \(6, 6\), got \(2, 6\)",
        ),
        (
            "q_proj",
            lambda w: w,
            f"weights have '{PLACE}q_proj.weight', which a layer of 'deepseek_v3'",
        ),
    ],
)
def test_weights_that_are_missing_wrong_or_left_over_are_named(built, name, change, text):
    state, place = state_of(built), f"{PLACE}{name}.weight"
    if change is None:
        del state[place]
    else:
        state[place] = change(state.get(place, state[f"{PLACE}o_proj.weight"]))
    with pytest.raises(ValueError, match=text):
        from_config(built, DEEPSEEK, weights=state)
