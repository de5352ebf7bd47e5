"""Cheaper memory: the KV cache."""

from pathlib import Path

import numpy as np
import pytest
import torch

from posattn import configs, reference
from posattn.torch import LatentAttention, MultiHeadAttention

RECORDS = Path(__file__).parents[2] / "docs" / "_records" / "configs"
RNG = np.random.default_rng(0)
Q, C = RNG.normal(size=3), RNG.normal(size=(4, 5))  # a query, four latent vectors
W_K, W_V = RNG.normal(size=(2, 5, 3))


def plan(name):
    return configs.plan(RECORDS / f"{name}.json")


def test_eq_cache_size():
    r"""$$ 2 \cdot L \cdot G \cdot d_h \cdot n $$"""
    L, d_h, n = 32, 128, 8192
    for name, G in (("llama-2", 32), ("llama-3.1", 8)):
        assert plan(name).cache_bytes(n) == 2 * (2 * L * G * d_h * n)
    assert plan("mistral-0.1").cache_bytes(n) == plan("llama-3.1").cache_bytes(4096)


def test_bytes_are_those_of_the_cache_that_a_layer_makes():
    layers = {
        "deepseek-v3": 60,
        "deepseek-v3.2": 60,
        "gemma-3": 5,
        "gemma-2": 0,
        "gpt-oss": 0,
    }
    for name, layer in layers.items():
        model, half = plan(name), {"dtype": torch.float16, "device": "meta"}
        made_by = LatentAttention if model.layers[layer].latent else MultiHeadAttention
        cache = made_by.from_config(model, layer, **half).init_cache((), 2048)
        arrays = [cache.latent] if hasattr(cache, "latent") else [cache.key, cache.value]
        kept = sum(x[..., 1:, :].numel() for x in arrays)  # the first slot takes padding
        assert kept == model.layers[layer].cached(2048)


def test_no_cache_and_none_of_known_width():
    assert plan("bert").cache_bytes(512) == 0
    borrowing = [x for x in plan("gemma-4-e2b").layers if x.kv_layer is not None]
    assert {x.cached(9) for x in borrowing} == {0}
    with pytest.raises(ValueError, match="layer 2 keeps other keys"):
        plan("deepseek-v4-flash").cache_bytes(1)


def test_eq_absorb():
    r"""$$ \mathbf{q}^\top (\mathbf{W}^{(k)\top}\mathbf{c}_j) = (\mathbf{W}^{(k)} \mathbf{q})^\top \mathbf{c}_j . $$"""
    assert np.allclose([Q @ (W_K.T @ c) for c in C], [(W_K @ Q) @ c for c in C])


def test_eq_absorb_value():
    r"""$$ \sum_j \alpha_j (\mathbf{W}^{(v)\top}\mathbf{c}_j) = \mathbf{W}^{(v)\top} \sum_j \alpha_j \mathbf{c}_j . $$"""
    alpha = reference.masked_softmax(RNG.normal(size=(1, 4)))[0]
    assert np.allclose(sum(map(np.multiply, alpha, C @ W_V)), W_V.T @ (alpha @ C))


def test_eq_absorb_rotated():
    r"""$$ \mathbf{q}^\top \mathbf{R}_{j-i}\, \mathbf{W}^{(k)\top} \mathbf{c}_j = \left( \mathbf{W}^{(k)} \mathbf{R}_{i-j}\, \mathbf{q} \right)^\top \mathbf{c}_j . $$"""
    query, W, at = np.tile(Q[:2], (4, 1)), W_K[:, :2], np.arange(4)
    absorbed = reference.rotate(query, 3 - at) @ W.T
    scores = (query * reference.rotate(C @ W, at - 3)).sum(1)
    assert np.allclose(scores, (absorbed * C).sum(1))
    assert np.ptp(absorbed, axis=0).min() > 0.1  # no single query serves all keys


def test_eq_latent_score():
    r"""$$ s_{ij} = \frac{(\mathbf{W}^{(k)} \mathbf{q}_i)^\top \mathbf{c}_j + (\mathbf{R}_i\, \mathbf{q}'_i)^\top \mathbf{R}_j\, \mathbf{k}'_j}{\sqrt{d_c + d_r}} , $$"""
    sizes = {"kv_rank": 6, "content_dim": 4, "rotary_dim": 2}
    layer = reference.LatentAttention.init(RNG, 8, 1, **sizes, rotate=reference.Rotary())
    x, at = RNG.normal(size=(5, 8)), np.arange(5)
    c, key = np.split(x @ layer.kv_down_weight, [6], axis=1)
    query, short = np.split(x @ layer.query_weight, [4], axis=1)
    c = c / np.sqrt((c**2).mean(1, keepdims=True) + layer.eps)
    s = query @ layer.key_weight.T @ c.T
    s = (s + reference.rotate(short, at) @ reference.rotate(key, at).T) / np.sqrt(4 + 2)
    assert np.allclose(reference.masked_softmax(s), layer.attention_weights(x)[0])


def test_by_hand():
    token, layers = plan("llama-3.1").cache_bytes(1), plan("deepseek-v3").layers
    assert (round(2 * 8e9 / 2**30), 24 - 15, 9 * 2**30 // token) == (15, 9, 73728)
    assert (token / 2**10, 131072 * token / 2**30) == (128, 16)
    assert (len(layers), layers[0].head_dim, layers[0].cached(1)) == (61, 192, 512 + 64)
    assert plan("llama-3.1-70b").cache_bytes(1) == 320 * 2**10
