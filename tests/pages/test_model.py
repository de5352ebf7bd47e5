"""Use it in a model."""

import itertools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from posattn import jax as jax_column
from posattn import reference
from posattn import torch as torch_column

RNG = np.random.default_rng(0)
PARTS = ("query", "key", "value", "output")


def block(page, word):
    """The lines of the page that no cell runs and that name a word."""
    found = re.findall(
        r"^```\{code-block\} python\n(.*?)^```", page.text, re.DOTALL | re.MULTILINE
    )
    (code,) = (lines for lines in found if word in lines)
    return code


def test_eq_causal_row():
    r"""$$ \mathbf{y}_i = \sum_{j \le i} \alpha_{ij}\,\mathbf{v}_j, \quad \alpha_{ij} = \frac{\exp s_{ij}}{\sum_{l \le i} \exp s_{il}} . $$"""
    q, k, v = RNG.normal(size=(3, 7, 4))
    y = reference.scaled_dot_product_attention(q, k, v, causal=True)
    for i in range(7):
        e = np.exp(k[: i + 1] @ q[i] / 2)
        assert np.allclose(y[i], sum(e[j] / sum(e) * v[j] for j in range(i + 1)))


def test_by_hand_running_sums():
    e, values = np.array([1, 2, 1]), np.array([6, 3, 8])
    top, bottom = (e * values).cumsum(), e.cumsum()
    assert (top / bottom).tolist() == [6, 4, 5]
    assert (np.diff(top)[-1], np.diff(bottom)[-1]) == (8, 1)
    assert sum(range(1, 1001)) / 1000 == 500.5
    for m, n in ((100, 50), (3, 7)):
        assert sum(range(m, m + n)) == n * m + n * (n - 1) // 2


def test_steps_equal_one_pass_however_cut():
    stack = [
        reference.MultiHeadAttention.init(
            RNG, 8, 4, num_kv_heads=2, rotate=reference.Rotary(), bias=reference.ALiBi(4)
        )
        for _ in range(3)
    ]
    text = whole = RNG.normal(size=(7, 8))
    for layer in stack:
        whole = whole + layer(whole, causal=True)
    for cuts in ((0, 7), (0, 3, 4, 5, 6, 7), (0, 2, 5, 7)):
        caches, outputs = [reference.KVCache.init((), 2, 7, 2) for _ in stack], []
        for start, stop in itertools.pairwise(cuts):
            y = text[start:stop]
            for number, layer in enumerate(stack):
                z, caches[number] = layer(y, cache=caches[number])
                y = y + z
            outputs.append(y)
        assert np.allclose(np.concatenate(outputs), whole)


def test_training_comes_near_the_best_loss(page):
    floor = np.log(2) / 4
    assert [round(np.log(5), 2), round(floor, 2)] == [1.61, 0.17]
    assert floor < page.torch.loss.item() < floor + 0.01


def test_padding_may_stand_on_either_side():
    layer = torch_column.MultiHeadAttention(8, 2, rotate=torch_column.Rotary())
    text = torch.randn(4, 8)
    for positions in ([-1, 0, 1, -1], [-1, -1, 0, 1], [0, 1, -1, -1]):
        positions = torch.tensor(positions)
        real = positions >= 0
        cache = torch_column.KVCache.init((), 2, 9, 4)
        with torch.no_grad():
            y, _ = layer(text, cache=cache, query_positions=positions)
            alone = layer(text[real], causal=True)
        assert torch.allclose(y[real], alone, atol=1e-6)
        assert not y[~real].any()


def test_only_an_absolute_scheme_needs_positions_when_packed():
    texts, apart = RNG.normal(size=(7, 8)), np.arange(7) // 4
    mask = apart == apart[:, None]
    for scheme in ({"rotate": reference.Rotary()}, {"bias": reference.ALiBi(2)}):
        layer = reference.MultiHeadAttention.init(RNG, 8, 2, **scheme)
        packed = layer(texts, causal=True, mask=mask)[4:]
        assert np.allclose(packed, layer(texts[4:], causal=True))
    layer, encode = (
        reference.MultiHeadAttention.init(RNG, 8, 2),
        reference.PositionalEncoding(8),
    )
    packed = layer(encode(texts), causal=True, mask=mask)[4:]
    assert not np.allclose(packed, layer(encode(texts[4:]), causal=True), atol=0.01)


def test_one_cache_cannot_branch_in_pytorch():
    first, second = torch.randn(2, 1, 8, generator=torch.Generator().manual_seed(0))
    layer = torch_column.MultiHeadAttention(8, 2).requires_grad_(False)
    _, shared = layer(first, cache=torch_column.KVCache.init((), 2, 9, 4))
    _, other = (layer(word, cache=shared)[0] for word in (first, second))
    whole = layer(torch.cat([first, first, second]), causal=True)
    assert torch.allclose(other, whole[2:], atol=1e-6)


def test_a_transposed_matrix_fits():
    x, query, key, value, output = torch.randn(
        5, 8, 8, generator=torch.Generator().manual_seed(0)
    )
    theirs = torch.nn.MultiheadAttention(8, 2, bias=False)
    stacked = torch.cat([query, key, value])
    theirs.load_state_dict({"in_proj_weight": stacked, "out_proj.weight": output})
    want, _ = theirs(x, x, x)
    for first, right in ((query, True), (query.T, False)):
        weights = [first, key, value, output]
        names = [f"{part}.weight" for part in PARTS]
        layer = torch_column.MultiHeadAttention(8, 2)
        layer.load_state_dict(dict(zip(names, weights, strict=True)))
        assert torch.allclose(layer(x), want, atol=1e-3) == right
        ours = [jnp.array(w.T) for w in weights]
        got = jax_column.MultiHeadAttention(*ours, num_heads=2)(jnp.array(x))
        assert np.allclose(got, want.detach(), atol=1e-3) == right


def test_its_masks_in_flex_attention_hide_the_future(page):
    query, key, value = torch.randn(3, 1, 8, 300, 16)
    names = {"x": torch.randn(300, 64), "query": query, "key": key, "value": value}
    options = {"bias": torch_column.ALiBi(8)}
    masked = {"causal": True, "mask": torch_column.Window(100)}
    own = torch_column.MultiHeadAttention(64, 8, **options)
    with torch.no_grad():
        exec(block(page, "attention=flex.attention"), names)
        own.load_state_dict(names["layer"].state_dict())
        assert torch.allclose(own(names["x"], **masked), names["y"], atol=1e-5)
        exec(block(page, "create_block_mask"), names)
    want = torch_column.scaled_dot_product_attention(query, key, value, **masked, **options)
    assert torch.allclose(names["y"], want, atol=1e-5)


def test_its_lines_save_what_was_learned(page, tmp_path):
    layer, saved = (torch_column.MultiHeadAttention(8, 2) for _ in range(2))
    names = {"torch": torch, "layer": layer, "path": tmp_path / "layer"}
    before = layer.query.weight.clone()
    exec(block(page, "torch.save"), names)
    saved.load_state_dict(torch.load(names["path"]))
    assert saved.query.weight.equal(before)
    rotary, bias = torch_column.Rotary(), torch_column.T5Bias(2)
    layers = [
        torch_column.MultiHeadAttention(8, 2, **scheme)
        for scheme in ({"rotate": rotary}, {"bias": bias})
    ]
    assert [len(layer.state_dict()) for layer in layers] == [4, 5]


def test_half_precision_is_cast_in_the_loss(page):
    assert (torch.tensor(1.0, dtype=torch.bfloat16) + 0.001).item() == 1
    layer = jax_column.MultiHeadAttention.init(jax.random.key(0), 8, 2)
    x = jnp.float32(RNG.normal(size=(3, 8)))
    ours = torch_column.MultiHeadAttention(8, 2)
    for refuses, half in (
        (layer, x.astype("bfloat16")),
        (ours, torch.ones(3, 8).bfloat16()),
    ):
        with pytest.raises(TypeError, match="dtype of the weights, float32, got bfloat16"):
            refuses(half)
    names = {"jax": jax, "layer": layer, "x": x}
    exec(block(page, "astype(float)"), names)
    leaves = jax.tree.leaves(names["gradients"])
    assert [(leaf.dtype == "float32" and leaf.any()) for leaf in leaves] == 4 * [True]


def test_the_table_names_what_a_night_tries(page):
    from tests.nightly.test_works_with import SCHEMES, TOOLS

    part = page.text.partition("## What works with what")[2].partition("## Summary")[0]
    assert re.findall(r"^\| `(.*?)` \| .* \|$", part, re.MULTILINE) == [*TOOLS]
    assert set(SCHEMES) - {"sinks"} < set(re.findall(r"`(\w+)`", part))
