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
    names = [name for name in vars(drawn) if name.endswith("_weight")]
    weights = {name: column.array(getattr(drawn, name)) for name in names}
    if column.name == "jax":
        return column.LatentAttention(
            **weights, num_heads=2, rotate=rotate, indexer=indexer
        )
    layer = column.LatentAttention(DIM, 2, **LATENT, rotate=rotate, dtype=torch.float64)
    layer.load_state_dict(
        {f"{n[:-7]}.weight": w.mT if w.ndim > 1 else w for n, w in weights.items()}
    )
    layer.indexer = indexer
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
    apart = np.abs(column.numpy(plain(x, causal=True)) - reference(X, causal=True)).max(
        (0, 2)
    )
    assert (apart[:COUNT] < 1e-12).all()
    assert (apart[COUNT:] > 1e-3).all()


@pytest.mark.parametrize("cuts", [(0, N), (0, 6, 8, 9, N)], ids=len)
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
        out, cache = layer(
            column.array(X[:, start:stop]), cache=cache, query_positions=where
        )
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
    assert error(column.numpy(out), column.numpy(layer(x, causal=True))) == 0
    weights = column.numpy(shared.attention_weights(x, causal=True, select=select))
    places = column.numpy(select)
    for b, i in np.ndindex(2, N):
        assert set(np.nonzero(weights[b, 0, i])[0]) == set(places[b, i]) - {-1}
    whole = column.numpy(shared(x, causal=True, select=select))
    dtype = {} if column is REFERENCE else {"dtype": x.dtype}
    caches = [part.init_cache((2,), N, **dtype) for part in (layer, shared)]
    for part in (slice(0, 7), slice(7, 8), slice(8, N)):
        *_, caches[0], some = layer(x[:, part], cache=caches[0], return_select=True)
        out, caches[1] = shared(x[:, part], cache=caches[1], select=some)
        assert error(column.numpy(out), whole[:, part]) <= BOUND["float64"]
    with pytest.raises(ValueError, match="select must be given to a layer with shared"):
        shared(x, causal=True)
    with pytest.raises(ValueError, match="select must be None in a layer without shared"):
        layer(x, causal=True, select=select)


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
    layer = kind.from_config(
        SMALL | {"model_type": family},
        1,
        weights={name: own(np.float32(x)) for name, x in arrays.items()},
    )
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
        (
            "deepseek_v32",
            "an indexer of 16 heads of 4 that rotates halves, rotary base 10000, neighbors",
        ),
        ("glm_moe_dsa", "an indexer of 16 heads of 4, rotary base 10000, neighbors"),
        (
            "axk2",
            "16 heads of 4 that rotates halves, rotary base 10000, neighbors; gated output",
        ),
        (
            "hy_v4",
            "16 heads of 4 that rotates halves of its last entries, rotary base 10000, halves",
        ),
    ],
)
def test_a_plan_names_the_layout_of_an_indexer_where_it_is_another(family, words):
    plan = configs.plan(SMALL | {"model_type": family, "num_hidden_layers": 6})
    assert words in str(plan.layers[0])
    shared = [layer.index for layer in plan.layers if layer.indexer.shared]
    assert shared == ([2, 3, 4] if family == "hy_v4" else [])
    if family in ("axk2", "hy_v4"):
        with pytest.raises(ValueError, match="does not build"):
            posattn.torch.LatentAttention.from_config(plan, 0)
