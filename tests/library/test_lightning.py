"""The lightning indexer: a part of latent attention that selects the keys of each token."""

from dataclasses import replace
from itertools import pairwise

import jax.numpy as jnp
import numpy as np
import pytest
import torch

import posattn.jax
import posattn.torch
from posattn import configs
from tests.conftest import BOUND, REFERENCE, assert_close, draw, error

DIM, RANK, HEADS, WIDTH, N, COUNT = 6, 5, 16, 4, 11, 4
SHAPES = {
    "query_weight": (RANK, HEADS * WIDTH),
    "key_weight": (DIM, WIDTH),
    "key_norm_weight": (WIDTH,),
    "key_norm_bias": (WIDTH,),
    "head_weight": (DIM, HEADS),
}
WEIGHTS = {name: draw(400 + i, *shape) for i, (name, shape) in enumerate(SHAPES.items())}
LATENT = {"query_rank": RANK, "kv_rank": 6, "content_dim": 4, "rotary_dim": 4}
X, NARROW = draw(410, 2, N, DIM), draw(411, 2, N, RANK)
PADDED = np.array([[-1, -1, -1, *range(N - 3)], [*range(N)]])


def made(column, **changed):
    """An indexer from its weights."""
    options = {"count": COUNT, "rotate": column.Rotary(layout="half", frequencies=[0.5])}
    options |= changed
    weights = {name: column.array(x) for name, x in WEIGHTS.items()}
    if column.name != "torch":
        return column.LightningIndexer(**weights, **options)
    indexer = column.LightningIndexer(
        DIM, HEADS, WIDTH, query_rank=RANK, **options, dtype=torch.float64
    )
    named = {"key_norm.bias": weights.pop("key_norm_bias")}
    named |= {
        n.replace("_weight", ".weight"): w.mT if w.ndim > 1 else w
        for n, w in weights.items()
    }
    indexer.load_state_dict(named)
    return indexer


def layer_of(column, indexer):
    """A layer of the column that has the weights that the reference draws."""
    drawn = REFERENCE.LatentAttention.init(np.random.default_rng(0), DIM, 2, **LATENT)
    rotate = column.Rotary()
    if column is REFERENCE:
        return replace(drawn, rotate=rotate, indexer=indexer)
    names = [n for n, w in vars(drawn).items() if n.endswith("_weight") and w is not None]
    weights = {name: column.array(getattr(drawn, name)) for name in names}
    options = {"rotate": rotate, "indexer": indexer}
    if column.name == "jax":
        return column.LatentAttention(**weights, num_heads=2, **options)
    layer = column.LatentAttention(DIM, 2, **LATENT, **options, dtype=torch.float64)
    weights = {n[:-7]: w.mT if w.ndim > 1 else w for n, w in weights.items()}
    own = {f"{name}.weight": w for name, w in weights.items()}
    layer.load_state_dict(own, strict=indexer is None)
    return layer.requires_grad_(False)


def turned(x, position):
    """The first two entries as a pair, rotated by half the position."""
    cos, sin = np.cos(position / 2), np.sin(position / 2)
    return np.array([cos * x[0] - sin * x[1], sin * x[0] + cos * x[1], *x[2:]])


def chosen_by_hand(x, narrow, positions):
    """The keys of each token, one pair at a time."""
    keys = []
    for token, position in zip(x, positions, strict=True):
        key = token @ WEIGHTS["key_weight"]
        key = (key - key.mean()) / np.sqrt(key.var() + 1e-6)
        key = key * WEIGHTS["key_norm_weight"] + WEIGHTS["key_norm_bias"]
        keys.append(turned(key, position))
    rows = []
    for i, position in enumerate(positions):
        queries = (narrow[i] @ WEIGHTS["query_weight"]).reshape(HEADS, WIDTH)
        weights = x[i] @ WEIGHTS["head_weight"]
        scores = {
            j: sum(
                w * max(turned(q, position) @ keys[j], 0)
                for q, w in zip(queries, weights, strict=True)
            )
            for j in range(i + 1)
            if positions[j] >= 0
        }
        rows.append(sorted(sorted(scores, key=lambda j, s=scores: -s[j])[:COUNT]))
    return rows


def test_an_indexer_selects_the_keys_that_its_formula_selects(column):
    indexer = made(column)
    positions = np.arange(3, N + 3)
    where = column.positions(positions)
    x, narrow = column.array(X), column.array(NARROW)
    got = column.numpy(indexer(x, narrow, indexer.keys(x, where), where, causal=True))
    for b in range(2):
        want = chosen_by_hand(X[b], NARROW[b], positions)
        assert [[j for j in row if j >= 0] for row in got[b].tolist()] == want


def test_a_layer_reads_what_its_indexer_selects(column):
    layer = layer_of(column, made(column))
    x = column.array(X)
    weights = column.numpy(layer.attention_weights(x, causal=True))
    assert ((weights > 0).sum(-1) == np.minimum(np.arange(N) + 1, COUNT)).all()
    reference = layer_of(REFERENCE, made(REFERENCE))
    assert error(weights, reference.attention_weights(X, causal=True)) <= BOUND["float64"]
    assert_close(column, layer(x, causal=True), reference(X, causal=True))
    plain = layer_of(column, None)
    apart = column.numpy(plain(x, causal=True)) - reference(X, causal=True)
    apart = np.abs(apart).max((0, 2))
    assert (apart[:COUNT] < 1e-12).all()
    assert (apart[COUNT:] > 1e-3).all()


@pytest.mark.parametrize("cuts", [(0, N), (0, 6, 6, 8, 9, N)], ids=len)
def test_chunks_and_steps_behind_padding_are_the_prompt(column, cuts):
    layer = layer_of(column, made(column))
    alone = column.numpy(layer(column.array(X[:1, 3:]), causal=True))
    whole = column.numpy(layer(column.array(X), causal=True))
    dtype = {} if column is REFERENCE else {"dtype": column.array(X).dtype}
    cache = layer.init_cache((2,), N, **dtype)
    assert cache.bytes_per_token == 8 * (6 + 4 + WIDTH)
    outs = []
    for start, stop in pairwise(cuts):
        where = column.positions(PADDED[:, start:stop])
        part = column.array(X[:, start:stop])
        out, cache = layer(part, cache=cache, query_positions=where)
        outs.append(column.numpy(out))
    got = np.concatenate(outs, axis=1)
    assert error(got[0, 3:], alone[0]) <= BOUND["float64"]
    assert error(got[1], whole[1]) <= BOUND["float64"]


def test_a_layer_that_shares_reads_what_the_one_before_has_selected(column):
    layer, shared = layer_of(column, made(column)), layer_of(column, None)
    if column.name == "torch":
        shared.shared = True
    else:
        shared = replace(shared, shared=True)
    x = column.array(X)
    out, select = layer(x, causal=True, return_select=True)
    own = column.numpy(out), column.numpy(layer.attention_weights(x, causal=True))
    whole = column.numpy(shared(x, causal=True, select=select))
    weights = shared.attention_weights(x, causal=True, select=select)
    assert error(whole, own[0]) == error(column.numpy(weights), own[1]) == 0
    dtype = {} if column is REFERENCE else {"dtype": x.dtype}
    caches = [part.init_cache((2,), N, **dtype) for part in (layer, shared)]
    for part in (slice(0, 7), slice(7, 8), slice(8, N)):
        *_, caches[0], some = layer(x[:, part], cache=caches[0], return_select=True)
        out, caches[1] = shared(x[:, part], cache=caches[1], select=some)
        assert error(column.numpy(out), whole[:, part]) <= BOUND["float64"]
    with pytest.raises(ValueError, match="select must be given"):
        shared(x, causal=True)
    with pytest.raises(ValueError, match="select must be None where shared is False"):
        layer(x, causal=True, select=select)


POOLED = {  # the weights of an indexer of two heads, and of four heads of attention with two of keys
    "query_weight": draw(420, DIM, 2 * WIDTH),
    "key_weight": draw(421, DIM, WIDTH),
    "query_norm_weight": draw(422, WIDTH),
    "key_norm_weight": draw(423, WIDTH),
}
GATED = POOLED | {  # as GLM-5-Next's, with what Mistral Large 4's has
    "key_weight": draw(430, DIM, 2 * WIDTH),
    "key_norm_bias": draw(431, WIDTH),
    "head_weight": draw(432, DIM, 2),
    "places": 4 * draw(433, 3, WIDTH),
    "input_norm_weight": draw(434, DIM),
    "input_norm_bias": draw(435, DIM),
    "temperature": draw(436, 2, 2),
}
del GATED["query_norm_weight"]
KINDS = pytest.mark.parametrize("pooled", ["max", "mean", "gated"])
ROLES = "query", "key", "value", "output"
GROUPED = [draw(424 + i, *s) for i, s in enumerate([(6, 16), (6, 8), (6, 8), (16, 6)])]


def grouped(column, pooled):
    """A layer whose indexer picks two blocks of three keys."""
    rotate = column.Rotary(layout="half", frequencies=[0.5])
    options = {"count": 2 - (pooled == "gated"), "size": 3}
    options |= {"pooled": pooled, "rotate": rotate}
    gated = pooled == "gated"
    given = GATED if gated else POOLED
    weights = {name: column.array(x) for name, x in given.items()}
    matrices = dict(zip(ROLES, map(column.array, GROUPED), strict=True))
    sizes = {"num_kv_heads": 2, "rotate": rotate}
    if column.name != "torch":
        weights = {"key_norm_bias": None, "head_weight": None} | weights
        indexer = column.LightningIndexer(**weights, **options)
        named = {f"{role}_weight": w for role, w in matrices.items()}
        return column.MultiHeadAttention(**named, num_heads=4, **sizes, indexer=indexer)
    options |= {"input_norm": gated, "temperature": gated}
    indexer = column.LightningIndexer(DIM, 2, WIDTH, **options)
    layer = column.MultiHeadAttention(DIM, 4, head_dim=4, **sizes, indexer=indexer)
    named = {f"{role}.weight": w.mT for role, w in matrices.items()}
    for name, w in weights.items():
        turned = w.ndim > 1 and name.endswith("_weight")
        role = name.replace("_weight", ".weight").replace("_bias", ".bias")
        named[f"indexer.{role}"] = w.mT if turned else w
    layer.double().load_state_dict(named)
    return layer.requires_grad_(False)


def blocks_by_hand(x, pooled):
    """The keys of each head of keys and query of one text, one block at a time."""

    def normed(v, name):
        return v / np.sqrt((v * v).mean() + 1e-6) * POOLED[name]

    def centered(v, name):
        v = (v - v.mean()) / np.sqrt(v.var() + 1e-6)
        return v * GATED[f"{name}_weight"] + GATED[f"{name}_bias"]

    def by_gates(block, i):
        gates = x[block] @ GATED["key_weight"][:, WIDTH:] + GATED["places"]
        key = [x[j] @ GATED["key_weight"][:, :WIDTH] for j in block]
        key = [turned(centered(k, "key_norm"), j) for k, j in zip(key, block, strict=True)]
        key = (np.exp(gates) * key).sum(0) / np.exp(gates).sum(0)
        query = (centered(x[i], "input_norm") @ GATED["query_weight"]).reshape(2, WIDTH)
        a, b = GATED["temperature"]
        growth = a * np.log(i + 1) + b
        products = [max(turned(q, i) @ key, 0) for q in growth[:, None] * query]
        return x[i] @ GATED["head_weight"] @ products

    keys, found = x @ POOLED["key_weight"], np.zeros((2, len(x), len(x)), bool)
    for h, i in np.ndindex(2, len(x)):
        queries = (x[i] @ POOLED["query_weight"]).reshape(2, WIDTH)
        queries = [turned(normed(q, "query_norm_weight"), i) for q in queries]
        blocks = [range(b, min(b + 3, i + 1)) for b in range(0, i + 1, 3)]
        own = blocks.pop() if pooled == "max" or len(blocks[-1]) < 3 else ()
        if pooled == "max":
            key = [turned(normed(k, "key_norm_weight"), j) for j, k in enumerate(keys)]
            scores = [max(queries[h] @ key[j] for j in block) for block in blocks]
        elif pooled == "gated":
            scores = [by_gates(block, i) for block in blocks]
        else:
            means = [normed(keys[b].mean(0), "key_norm_weight") for b in blocks]
            means = [turned(k, b[0]) for k, b in zip(means, blocks, strict=True)]
            scores = [sum(max(q @ k, 0) for q in queries) for k in means]
        order = sorted(range(len(blocks)), key=lambda b, s=scores: -s[b])
        best = [blocks[b] for b in order[: 2 if pooled == "mean" else 1]]
        found[h, i, [j for block in (*best, own) for j in block]] = True
    return found


@KINDS
def test_heads_read_the_blocks_that_the_formula_selects(column, pooled):
    layer = grouped(column, pooled)
    x = column.array(X)
    weights = column.numpy(layer.attention_weights(x, causal=True))
    for b in range(2):
        want = blocks_by_hand(X[b], pooled).repeat(2, axis=0)
        assert ((weights[b] > 0) == want).all()
    reference = grouped(REFERENCE, pooled)
    assert_close(column, layer(x, causal=True), reference(X, causal=True))


@KINDS
def test_blocks_begin_with_each_text(column, pooled):
    layer, x = grouped(column, pooled), column.array(X)
    whole = column.numpy(layer(x, causal=True))
    seen = np.tri(N, dtype=bool) & (PADDED[:, None] >= 0)
    where = np.maximum(PADDED, 0)
    alone = column.numpy(layer(x[:1, 3:], causal=True))
    padded = layer(x, mask=column.array(seen), query_positions=column.positions(where))
    assert error(column.numpy(padded)[0, 3:], alone[0]) <= BOUND["float64"]
    place = np.array([*range(4), *range(N - 4)])
    packed = np.tri(N, dtype=bool) & ((np.arange(N) < 4)[:, None] == (np.arange(N) < 4))
    out = layer(x, mask=column.array(packed), query_positions=column.positions(place))
    apart = [layer(x[:, part], causal=True) for part in (slice(0, 4), slice(4, N))]
    apart = np.concatenate([column.numpy(part) for part in apart], axis=1)
    assert error(column.numpy(out), apart) <= BOUND["float64"]
    dtype = {} if column is REFERENCE else {"dtype": x.dtype}
    cache, outs = layer.init_cache((2,), N, **dtype), []
    for start, stop in ((0, 6), (6, 8), (6, 8), (8, 9), (9, 9), (9, N)):
        if start == 6 and len(outs) == 2:  # what was rejected comes again
            cache, outs = cache.trim(2), outs[:1]
        at = column.positions(PADDED[:, start:stop])
        out, cache = layer(x[:, start:stop], cache=cache, query_positions=at)
        outs.append(column.numpy(out))
    got = np.concatenate(outs, axis=1)
    assert error(got[1], whole[1]) <= BOUND["float64"]
    assert error(got[0, 3:], alone[0]) <= BOUND["float64"]
    with pytest.raises(ValueError, match="cache must be one that init_cache"):
        layer(x, cache=column.KVCache.init((2,), 2, N, 4, **dtype))


SMALL = {
    "model_type": "deepseek_v32",
    "hidden_size": DIM,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "q_lora_rank": RANK,
    "kv_lora_rank": 6,
    "qk_nope_head_dim": 4,
    "qk_rope_head_dim": 4,
    "v_head_dim": 4,
    "index_n_heads": HEADS,
    "index_head_dim": WIDTH,
    "index_topk": COUNT,
    "rope_theta": 10000.0,
    "attention_bias": False,
}
NAMES = {
    "indexer.wq_b.weight": "query_weight",
    "indexer.wk.weight": "key_weight",
    "indexer.k_norm.weight": "key_norm_weight",
    "indexer.k_norm.bias": "key_norm_bias",
    "indexer.weights_proj.weight": "head_weight",
    "q_a_proj.weight": "query_down_weight",
    "q_a_layernorm.weight": "query_norm_weight",
    "q_b_proj.weight": "query_weight",
    "kv_a_proj_with_mqa.weight": "kv_down_weight",
    "kv_a_layernorm.weight": "kv_norm_weight",
    "o_proj.weight": "output_weight",
}


@pytest.mark.parametrize("column", ["torch", "jax"])
@pytest.mark.parametrize(
    ("family", "layout"), [("deepseek_v32", "half"), ("glm_moe_dsa", "interleaved")]
)
def test_a_configuration_and_weights_make_the_layer(column, family, layout):
    rotate = REFERENCE.Rotary(layout=layout, frequencies=[1.0, 0.01])
    reference = layer_of(REFERENCE, made(REFERENCE, rotate=rotate))
    arrays = {}
    for name, own in NAMES.items():
        array = getattr(reference.indexer if name.startswith("indexer") else reference, own)
        arrays[f"model.layers.1.self_attn.{name}"] = array.T
    both = [w.T.reshape(2, 4, -1) for w in (reference.key_weight, reference.value_weight)]
    both = np.concatenate(both, axis=1).reshape(16, -1)
    arrays["model.layers.1.self_attn.kv_b_proj.weight"] = both
    own = {"torch": torch.tensor, "jax": jnp.asarray}[column]
    kind = {"torch": posattn.torch, "jax": posattn.jax}[column].LatentAttention
    weights = {name: own(np.float32(x)) for name, x in arrays.items()}
    layer = kind.from_config(SMALL | {"model_type": family}, 1, weights=weights)
    x = own(np.float32(X))
    got = layer(x, causal=True)
    got = got.detach().numpy() if column == "torch" else np.asarray(got)
    assert error(got, reference(X, causal=True)) <= 1e-5


def test_a_plan_says_which_layers_take_the_choice_of_another():
    config = SMALL | {"model_type": "glm_moe_dsa", "num_hidden_layers": 8}
    for told, shared in (
        ({}, ""),
        ({"index_topk_freq": 3}, "2356"),
        ({"index_topk_freq": 4, "index_skip_topk_offset": 3}, "3457"),
        ({"index_topk_pattern": "FSSFFFFS"}, "127"),
        ({"indexer_types": ["full"] + ["shared"] * 7}, "1234567"),
    ):
        plan = configs.plan(config | told)
        got = [str(layer.index) for layer in plan.layers if layer.indexer.shared]
        assert got == [*shared], told
        own = 8 - len(got)
        assert plan.cache_bytes(10, 1) == 10 * (8 * (6 + 4) + own * WIDTH)
    assert plan.describe(7).count("chosen by the indexer of layer 0") == 1
    with pytest.raises(ValueError, match="indexer_types must hold 'full' or 'shared'"):
        configs.plan(config | {"indexer_types": ["shared"] * 8})


@pytest.mark.parametrize(
    ("family", "words"),
    [
        ("deepseek_v32", "16 heads of 4 that rotates halves, rotary base 10000, neighbors"),
        ("glm_moe_dsa", "an indexer of 16 heads of 4, rotary base 10000, neighbors"),
        ("axk2", "4 that rotates halves, rotary base 10000, neighbors; gated output"),
        ("hy_v4", "4 that rotates halves of its last entries, rotary base 10000, halves"),
        ("mistral_large4_text", "whose queries have a norm and a temperature, rotary"),
    ],
)
def test_a_plan_names_the_layout_of_an_indexer_where_it_is_another(family, words):
    plan = configs.plan(SMALL | {"model_type": family, "num_hidden_layers": 6})
    assert words in str(plan.layers[0])
    shared = [layer.index for layer in plan.layers if layer.indexer.shared]
    assert shared == ([2, 3, 4] if family == "hy_v4" else [])
    layer = posattn.torch.LatentAttention.from_config(plan, 0)
    assert (layer.gate is not None) == (family in ("axk2", "hy_v4"))
