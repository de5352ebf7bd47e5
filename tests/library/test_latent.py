"""Multi-head latent attention: one narrow vector per token, and decoding from it."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import posattn.jax
import posattn.torch
from tests.conftest import BOUND, COLUMNS, REFERENCE, assert_close, draw
from tests.conftest import error as off_by

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
FULL = LOW_RANK | {  # as A.X-K2's, Hy4's and Mistral Large 4's
    "query_weight": (6, HEADS * 6),
    "gate_weight": (6, HEADS * 3),
    "sinks": (HEADS,),
    "temperature": (2, HEADS),
}
X = draw(70, 2, N, DIM)
SEEN = np.ones((2, 1, N), bool)
SEEN[0, 0, :3] = False
MORE = "gate", "sinks", "temperature"
in_frameworks = pytest.mark.parametrize("column", COLUMNS[1:], ids=str, indirect=True)


def weights_of(shapes):
    """Norms are near 1, and what comes after them is small."""
    drawn = {name: draw(60 + i, *shape) for i, (name, shape) in enumerate(shapes.items())}
    return {
        name: 1 + w / 8 if "norm" in name else w / (1 if "down" in name else 8)
        for name, w in drawn.items()
    }


def layer_of(column, weights, **options):
    """A layer from its weights by name, `(inputs, outputs)`."""
    more = {name: f"{name}_weight" in weights or name in weights for name in MORE}
    options |= {"raw": more["gate"]}
    if column.name != "torch":
        return column.LatentAttention(**weights, num_heads=HEADS, **options)
    rank = weights["query_norm_weight"].shape[0] if "query_norm_weight" in weights else None
    sizes = SIZES | {"query_rank": rank}
    options |= more | {"dtype": torch.float64}
    layer = column.LatentAttention(DIM, HEADS, **sizes, **options)
    named = {
        n.replace("_weight", ".weight"): w.mT if w.ndim > 1 and n not in MORE else w
        for n, w in weights.items()
    }
    layer.load_state_dict(named)
    return layer.requires_grad_(False)


def made(column, shapes=LOW_RANK, **options):
    options = {"rotate": column.Rotary()} | options
    return layer_of(
        column, {n: column.array(w) for n, w in weights_of(shapes).items()}, **options
    )


def test_a_small_case_by_hand(column):
    """Latent vectors have root mean square 1; half a logarithm of 3 gives weights 3/4 and 1/4."""
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
    turn = column.Rotary(frequencies=[math.pi])  # rotates the second key onto the first
    assert_close(column, layer(rotate=turn)(x), np.zeros((2, 2)))


@pytest.mark.parametrize(("scale", "shapes"), [(None, SHAPES), (0.3, SHAPES), (0.3, FULL)])
def test_it_is_attention_of_made_keys_and_values(column, scale, shapes):
    w, eps, more = weights_of(shapes), 0.1, shapes is FULL
    latent, shared = np.split(X @ w["kv_down_weight"], [5], axis=-1)
    mean = np.mean(latent**2, axis=-1, keepdims=True)
    latent = w["kv_norm_weight"] * latent / np.sqrt(mean + eps)
    source = X
    if more:
        raw = X @ w["query_down_weight"]
        mean = np.mean(raw**2, axis=-1, keepdims=True)
        source = w["query_norm_weight"] * raw / np.sqrt(mean + eps)
        source = np.concatenate([source, raw], axis=-1)
    q, k, v = (
        REFERENCE.split_heads(x @ w[f"{name}_weight"], HEADS)
        for x, name in ((source, "query"), (latent, "key"), (latent, "value"))
    )
    q = np.concatenate([q[..., :4], REFERENCE.rotate(q[..., 4:], layout="half")], axis=-1)
    shared = REFERENCE.rotate(shared, layout="half")
    k = np.concatenate([k, np.stack([shared] * HEADS, axis=1)], axis=-1)
    factor = 6**-0.5 if scale is None else scale
    if more:
        a, b = w["temperature"][..., None]
        q = q * (a * np.log(np.arange(N) + 1) + b)[..., None]
    options = {"causal": True, "scale": factor, "sinks": w.get("sinks")}
    weights = REFERENCE.attention_weights(q, k, **options)
    rotate = column.Rotary(layout="half")
    layer, x = made(column, shapes, rotate=rotate, scale=scale, eps=eps), column.array(X)
    assert_close(column, layer.attention_weights(x, causal=True), weights)
    want = REFERENCE.merge_heads(weights @ v)
    want = want / (1 + np.exp(-source @ w["gate_weight"])) if more else want
    want = want @ w["output_weight"]
    assert_close(column, layer(x, causal=True), want)


# Decoding


def room(column, layer, batch=(2,), slots=9):
    dtype = {"dtype": torch.float64} if column.name == "torch" else {}
    return layer.init_cache(batch, slots, **dtype)


def steps(column, layer, x, sizes, **options):
    """Feed a sequence in parts: all outputs, and the last cache."""
    outs, start, cache = [], 0, room(column, layer)
    for size in sizes:
        part = slice(start, start + size)
        of_part = {n: p[..., part] for n, p in options.items()}
        out, cache = layer(column.array(x[:, part]), cache=cache, **of_part)
        outs.append(column.numpy(out))
        start += size
    return np.concatenate(outs, axis=1), cache


@pytest.mark.parametrize("shapes", [LOW_RANK, FULL])
def test_parts_and_steps_repeat_the_whole(column, shapes):
    layer = made(column, shapes)
    whole = column.numpy(layer(column.array(X), causal=True))
    got, cache = steps(column, layer, X, [2, 1, 4])
    assert np.allclose(got, whole, atol=1e-12)
    assert np.all(column.numpy(cache.next_positions(1)) == N)


def test_a_layer_reads_the_vectors_of_another(column):
    """In a call and beside a cache; with the weights of the other, it computes the same."""
    w = {name: column.array(x) for name, x in weights_of(LOW_RANK).items()}
    layer, gone = (
        layer_of(column, w, rotate=column.Rotary()),
        ("kv_down_weight", "kv_norm_weight"),
    )
    rest, options = w | dict.fromkeys(gone), {"rotate": column.Rotary()}
    if column.name == "torch":
        rest, options["lent"] = {n: x for n, x in w.items() if n not in gone}, True
    other, x = layer_of(column, rest, **options), column.array(X)
    want, latent = layer(x, causal=True, return_latent=True)
    assert_close(column, other(x, causal=True, latent=latent), column.numpy(want))
    want = column.numpy(layer.attention_weights(x, causal=True))
    assert_close(column, other.attention_weights(x, causal=True, latent=latent), want)
    caches = [room(column, each) for each in (layer, other)]
    for start, stop in [(0, 3), (3, 4), (4, N)]:
        part = column.array(X[:, start:stop])
        want, caches[0], kept = layer(part, cache=caches[0], return_latent=True)
        out, caches[1] = other(part, cache=caches[1], latent=kept)
        assert_close(column, out, column.numpy(want))
    assert caches[1].bytes_per_token == 0
    for wrong, given, text in (
        (other, None, "given: what another"),
        (layer, latent, "None"),
    ):
        with pytest.raises(ValueError, match=f"latent must be {text}"):
            wrong(x, latent=given)


def test_few_queries_make_no_keys(column, monkeypatch):
    """With 5, 4 and 3 entries a query adds 3 products and saves 35: 11 are few, 12 are many."""
    kind, made_for = column.LatentAttention, []
    make = kind._keys_and_values
    monkeypatch.setattr(
        kind, "_keys_and_values", lambda *args: made_for.append(args) or make(*args)
    )
    x, layer = draw(71, 1, 12, DIM), made(column)
    whole = column.numpy(layer(column.array(x), causal=True))
    for n in (11, 12):
        made_for.clear()
        out, _ = layer(column.array(x[:, :n]), cache=room(column, layer, (1,), 14))
        assert_close(column, out, whole[:, :n])
        assert len(made_for) == (n == 12)


@pytest.mark.parametrize("pad", [7.0, np.nan])
def test_left_padding_changes_nothing(column, pad):
    """Negative positions mark padding, which a cache does not keep, not even a NaN."""
    layer = made(column)
    where = column.array(np.array([[-1, -1, 0, 1, 2, 3, 4], np.arange(N)]))
    x = X.copy()
    x[0, :2] = pad
    got, cache = steps(column, layer, x, [4, 1, 2], query_positions=where)
    alone = column.numpy(layer(column.array(X[:1, 2:]), causal=True))
    assert np.allclose(got[0, 2:], alone[0], atol=1e-12)
    assert np.isnan(pad) or np.all(got[0, :2] == 0)  # it may attend to nothing
    whole = column.numpy(layer(column.array(X[1:]), causal=True))
    assert np.allclose(got[1], whole[0], atol=1e-12)
    assert np.array_equal(column.numpy(cache.next_positions(1)), [[5], [7]])
    assert np.isfinite(column.numpy(cache.latent)).all()


@pytest.mark.parametrize("n", [3, 12])
def test_nan_in_a_hidden_cached_token_is_lost(column, n):
    """Whether keys are made or not; also where a function of positions hides it."""
    layer, x = made(column), draw(71, 1, 13, DIM)
    bad = np.concatenate([np.full((1, 1, DIM), np.nan), x[:, 1:]], axis=1)

    def last(x, mask):
        cache = room(column, layer, (1,), 14)
        _, cache = layer(column.array(x[:, :1]), cache=cache)
        return layer(column.array(x[:, 1 : n + 1]), cache=cache, mask=mask)[0]

    slots = room(column, layer, (1,), 14).positions.shape[-1]
    seen = np.arange(slots) > 0

    def after_the_first(query_positions, key_positions):
        return (key_positions[..., None, :] > 0) & (query_positions[..., None] > 0)

    for mask in (column.array(np.tile(seen, (1, n, 1))), after_the_first):
        want = column.numpy(last(x, mask))
        assert np.isfinite(want).all()
        assert_close(column, last(bad, mask), want)


def test_a_mask_function_holds_beside_the_cache(column):
    layer, outs = made(column), []
    want = layer(column.array(X), causal=True, mask=column.Window(3))
    cache = room(column, layer)
    for i in range(N):
        x = column.array(X[:, i : i + 1])
        out, cache = layer(x, cache=cache, mask=column.Window(3))
        outs.append(column.numpy(out))
    assert np.allclose(np.concatenate(outs, 1), column.numpy(want), atol=1e-12)


def test_an_array_hides_slots_from_one_head(column):
    layer, outs = made(column), []
    seen = np.ones((2, HEADS, N, N), bool)
    seen[:, 0, 2:, 1] = False
    want = column.numpy(layer(column.array(X), causal=True, mask=column.array(seen)))
    cache = room(column, layer)
    for start, stop in [(0, 2), (2, 3), (3, N)]:
        mask = np.ones((2, HEADS, stop - start, cache.positions.shape[-1]), bool)
        mask[..., :N] = seen[..., start:stop, :]
        x = column.array(X[:, start:stop])
        out, cache = layer(x, cache=cache, mask=column.array(mask))
        outs.append(column.numpy(out))
    assert np.allclose(np.concatenate(outs, 1), want, atol=1e-12)


def test_deepseek_v3_keeps_576_numbers_of_a_token(column):
    half = {"torch": torch.bfloat16, "jax": jnp.bfloat16}.get(column.name)
    options = {} if half is None else {"dtype": half}
    cache = column.LatentCache.init((1,), 4, 512 + 64, **options)
    assert cache.bytes_per_token == (576 * 8 if half is None else 1152)


# Sizes and weights


def make(column, **wrong):
    sizes = {"dim": DIM, "num_heads": HEADS, "query_rank": 3, **SIZES} | wrong
    if column.name == "torch":
        return column.LatentAttention(**sizes, rng=column.rng())
    return column.LatentAttention.init(column.rng(), **sizes)


def test_drawn_weights_lie_within_their_bounds(column):
    """Norms begin at 1, and a value is as wide as a key without rotation if not told."""
    for told, width in ((3, 3), (None, 4)):
        layer = make(column, value_dim=told)
        if column.name == "torch":
            drawn = {
                n.replace(".", "_"): w.detach().numpy().T
                for n, w in layer.named_parameters()
            }
        else:
            drawn = {n: np.asarray(getattr(layer, n)) for n in LOW_RANK}
        shapes = {"value_weight": (5, HEADS * width), "output_weight": (HEADS * width, DIM)}
        assert {n: w.shape for n, w in drawn.items()} == LOW_RANK | shapes
        for name, w in drawn.items():
            bound = math.sqrt(6 / sum(w.shape))
            assert (
                np.all(w == 1) if "norm" in name else bound / 2 < np.abs(w).max() <= bound
            )


@pytest.mark.usefixtures("unchecked")
def test_wrong_input_is_refused(column):
    layer, where = made(column), column.array(np.arange(N))
    for slots, batch, text in [
        (6, (2,), "cache must have room for all tokens, max_len = 6, got 7 tokens"),
        (9, (3,), r"x must have the batch axes \(3,\) of the cache, got \(2,\)"),
    ]:
        cache = room(column, layer, batch, slots)
        with pytest.raises(ValueError, match=text):
            layer(column.array(X), cache=cache, query_positions=where)
    with pytest.raises(ValueError, match=r"x must have shape \(\*batch, n, 6\), got"):
        layer(column.array(X[..., :4]))


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("column", [COLUMNS[0], COLUMNS[2]], ids=str, indirect=True)
def test_weights_that_do_not_belong_together_are_refused(column):
    """PyTorch's modules belong together."""
    wrong = dataclasses.replace(made(column), output_weight=column.array(draw(1, 5, DIM)))
    with pytest.raises(
        ValueError, match=r"output_weight must have shape \(6, 6\), got \(5, 6\)"
    ):
        wrong(column.array(X))


# PyTorch


class Stretch(torch.nn.Module):
    """A learned function of positions."""

    def __init__(self):
        super().__init__()
        self.rate = torch.nn.Parameter(torch.tensor(0.5))

    def forward(self, x, positions):
        """Stretch tokens by their position."""
        return x * (1 + self.rate * positions[..., None])


def test_a_rotation_learns_and_is_not_drawn_again(torch_column):
    layer = make(torch_column, rotate=Stretch())
    layer(torch.tensor(X).float()).sum().backward()
    assert layer.rotate.rate.grad != 0
    layer.reset_parameters()
    assert layer.rotate.rate == 0.5


def test_autocast_makes_latent_vectors_of_its_dtype(torch_column):
    layer, x = make(torch_column, rotate=posattn.torch.Rotary()), torch.tensor(X).float()
    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        out, cache = layer(x, cache=layer.init_cache((2,), 9))
    assert cache.latent.dtype == out.dtype == torch.bfloat16
    exact = layer(x, causal=True).detach().numpy()
    assert off_by(out.float().numpy(), exact) <= BOUND["bfloat16"]


def test_one_jitted_step_serves_all(jax_single):
    """Beyond the end, where nothing can be raised, it returns NaN."""
    layer = make(jax_single, rotate=posattn.jax.Rotary())
    x, traces = jnp.asarray(X, jnp.float32), []
    whole = layer(x, causal=True)
    step = jax.jit(lambda layer, x, cache: traces.append(1) or layer(x, cache=cache))
    cache = layer.init_cache((2,), N - 1)
    for i in range(N):
        out, cache = step(layer, x[:, i : i + 1], cache)
        if i < N - 1:
            assert jnp.allclose(out[:, 0], whole[:, i], atol=1e-6)
    assert jnp.isnan(out).all()
    assert len(traces) == 1


# A layer from a configuration

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
    keys, values = (np.split(w[f"{n}_weight"], HEADS, axis=1) for n in ("key", "value"))
    each = [x for pair in zip(keys, values, strict=True) for x in pair]
    state[f"{PLACE}kv_b_proj.weight"] = np.concatenate(each, axis=1).T
    state["model.layers.0.self_attn.o_proj.weight"] = np.zeros((1, 1))
    make = torch.tensor if column.name == "torch" else np.asarray
    return {name: make(np.ascontiguousarray(x)) for name, x in state.items()}


def from_config(column, config, **options):
    dtype = {"torch": torch.float64, "jax": "float64"}[column.name]
    return column.LatentAttention.from_config(config, 1, dtype=dtype, **options)


@in_frameworks
@pytest.mark.parametrize("shapes", [SHAPES, LOW_RANK], ids=["full rank", "low rank"])
def test_a_layer_of_deepseek_has_its_weights_and_rotation(column, shapes):
    config = DEEPSEEK | {"q_lora_rank": None if shapes is SHAPES else 3}
    layer = from_config(column, config, weights=state_of(column, shapes))
    want = made(REFERENCE, shapes, rotate=REFERENCE.Rotary(base=100.0))(X, causal=True)
    assert_close(column, layer(column.array(X), causal=True), want)


@in_frameworks
def test_yarn_sharpens_the_scale_by_the_published_factor(column):
    yarn = {"type": "yarn", "factor": 40, "original_max_position_embeddings": 32}
    scaled = {"rope_scaling": yarn | {"mscale": 1.0, "mscale_all_dim": 1.0}}
    layer = from_config(column, DEEPSEEK | scaled)
    assert layer.scale == pytest.approx((0.1 * math.log(40) + 1) ** 2 / math.sqrt(6))


@in_frameworks
def test_weights_missing_wrong_or_left_over_are_named(column):
    state = state_of(column)
    up, out, extra = (f"{PLACE}{n}.weight" for n in ("kv_b_proj", "o_proj", "q_proj"))
    for weights, text in [
        (
            {n: w for n, w in state.items() if n != up},
            f"weights lack '{up}', the layer's key",
        ),
        (state | {out: state[out][:2]}, rf"'{out}' must have shape \(6, 6\), got \(2, 6\)"),
        (
            state | {extra: state[out]},
            f"weights have '{extra}', which a layer of 'deepseek_v3'",
        ),
    ]:
        with pytest.raises(ValueError, match=text):
            from_config(column, DEEPSEEK, weights=weights)
