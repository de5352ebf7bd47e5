"""Use it in a model."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from posattn import jax as jax_column
from posattn import reference
from posattn import torch as torch_column

RNG = np.random.default_rng(0)
E, VALUES = np.array([1.0, 2.0, 1.0]), np.array([6.0, 3.0, 8.0])


def room(heads, n, window=None):
    """The bytes of a cache of 32 layers with heads of width 128 and two bytes for a number."""
    cache = torch_column.KVCache.init(
        (), heads, n, 128, window=window, dtype=torch.bfloat16, device="meta"
    )
    kept = cache.key[..., 1:, :], cache.value[..., 1:, :]  # the first slot takes padding
    return 32 * sum(x.element_size() * x.numel() for x in kept)


def test_by_hand(page):
    r"""The outputs are $6$, then $(1 \cdot 6 + 2 \cdot 3) / 3 = 4$, then
    $(1 \cdot 6 + 2 \cdot 3 + 1 \cdot 8) / 4 = 5$.

    the 4 of bites stays as it was, and the 5 takes just one new pair: 1 and 8
    """
    at_once = np.tril(np.tile(E, (3, 1))) @ VALUES / E.cumsum()
    assert np.allclose(at_once, [6, 4, 5])
    top, bottom = page.torch.top, page.torch.bottom
    assert np.allclose(top / bottom, at_once)
    assert (bottom[2] - bottom[1], (top[2] - top[1]) / (bottom[2] - bottom[1])) == (1, 8)
    assert "all at once: [6. 4. 5.]\n" in page.printed
    assert "is [6. 4. 5.]\n" in page.printed


def test_a_step_equals_the_library_and_the_whole(page):
    """A step takes new tokens, which will stand at the positions p, and the keys and values so far"""
    for start, stop in ((0, 3), (3, 4), (4, 5)):
        line = f"tokens {start} to {stop}: from library and whole 0.000000 at most\n"
        assert page.printed.count(line) == 2


def test_eq_causal_row(page):
    r"""$$ \mathbf{y}_i = \sum_{j \le i} \alpha_{ij}\,\mathbf{v}_j, \quad \alpha_{ij} = \frac{\exp s_{ij}}{\sum_{l \le i} \exp s_{il}} . $$

    A causal row never depends on what comes later
    """
    q, k, v = RNG.normal(size=(3, 7, 4))
    s = q @ k.T / 2
    alpha = [
        [np.exp(s[i, j]) / sum(np.exp(s[i, : i + 1])) for j in range(i + 1)]
        for i in range(7)
    ]
    rows = [sum(alpha[i][j] * v[j] for j in range(i + 1)) for i in range(7)]
    y = reference.scaled_dot_product_attention(q, k, v, causal=True)
    assert np.allclose(rows, y)
    for n in range(1, 7):
        before = reference.scaled_dot_product_attention(q[:n], k[:n], v[:n], causal=True)
        assert np.allclose(before, y[:n])


def test_prompt_and_steps_are_the_whole(page):
    """Then a stack of causal layers with caches, whose other parts act on each token by itself, gives
    every token the same output however the text is cut into calls.

    Rotary, ALiBi, T5's buckets and every other bias on offsets keep to the condition
    """
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


def test_prompt_padding_and_packing(page):
    """Then come two prompts of different lengths in one batch: a negative position marks padding

    the cell compares the second with itself alone
    """
    for line in (
        "prompt and step differ from the whole",
        "a padded text changes",
        "a packed",
    ):
        found = [text for text in page.printed.splitlines() if text.startswith(line)]
        assert [text.split()[-1] for text in found] == ["0.000000"] * 2


def test_a_packed_text_needs_no_positions_with_these(page):
    """Rotary and ALiBi see offsets alone, so the packed text would come out right without
    query_positions; an absolute scheme needs them.
    """
    texts = RNG.normal(size=(7, 8))
    apart = np.arange(7) // 4 == np.arange(7)[:, None] // 4
    for scheme in ({"rotate": reference.Rotary()}, {"bias": reference.ALiBi(2)}):
        layer = reference.MultiHeadAttention.init(RNG, 8, 2, **scheme)
        packed = layer(texts, causal=True, mask=apart)[4:]
        assert np.allclose(packed, layer(texts[4:], causal=True))
    layer = reference.MultiHeadAttention.init(RNG, 8, 2)
    encoded = [x + reference.sinusoidal_encoding(len(x), 8) for x in (texts, texts[4:])]
    packed = layer(encoded[0], causal=True, mask=apart)[4:]
    assert not np.allclose(packed, layer(encoded[1], causal=True), atol=0.01)


def test_a_checkpoint_of_pytorch(page):
    """in the names of torch.nn.MultiheadAttention, which stacks three projections, each (d_out, d_in),
    in one matrix, and compares with the framework's own attention
    """
    assert torch.nn.MultiheadAttention(64, 8).in_proj_weight.shape == (3 * 64, 64)
    assert page.printed.count("the framework's attention differs by 0.000000\n") == 2
    assert page.printed.count("padding changes outputs by 0.000000\n") == 2


def test_no_table_is_saved(page):
    """keeps what was learned, that of a plugged-in bias too, and no tables"""
    layer = torch_column.MultiHeadAttention(8, 2, rotate=torch_column.Rotary())
    assert len(layer.state_dict()) == 4
    learned = torch_column.MultiHeadAttention(8, 2, bias=torch_column.T5Bias(2))
    assert len(learned.state_dict()) == 5


def test_how_often_a_text_is_read_without_a_cache(page):
    """Without a cache a text of 1000 tokens, written one by one, is read … times over"""
    assert (
        page.glued["again"] == sum(n / 1000 for n in range(1, 1001)) == pytest.approx(500.5)
    )


def test_eq_cache_size(page):
    r"""$$ 2 \cdot L \cdot G \cdot d_h \cdot n . $$

    With 32 layers, heads of width 128, 8192 tokens and two bytes for a number, this is … GiB if all
    32 heads have keys of their own, … GiB with 8 heads of keys, and … GiB with these and a window of
    4096 tokens, however long the text becomes.
    """
    L, d_h, n = 32, 128, 8192
    for G in (8, 32):
        assert room(G, n) == 2 * (2 * L * G * d_h * n)
    grouped = room(8, n)
    sizes = {"all": 4 * grouped, "grouped": grouped, "windowed": grouped / 2}
    assert room(8, 10**6, window=4096) == sizes["windowed"]
    for name, size in sizes.items():
        assert page.glued[f"room_{name}"] == size / 2**30


def test_one_cache_two_continuations_in_pytorch(page):
    """the second word is read as if the first stood before it, since both calls write into one
    memory
    """
    layer = torch_column.MultiHeadAttention(8, 2).requires_grad_(False)
    first, second = torch.randn(2, 1, 8, generator=torch.Generator().manual_seed(0))
    _, shared = layer(first, cache=torch_column.KVCache.init((), 2, 9, 4))
    _, other = (layer(word, cache=shared)[0] for word in (first, second))
    assert shared.next_positions(1).item() == 3
    whole = layer(torch.cat([first, first, second]), causal=True)
    assert torch.allclose(other, whole[2:], atol=1e-6)


def test_one_cache_two_continuations_in_jax(page):
    """In JAX nothing is shared, except what donate_argnums gives away.

    layer(x, cache=cache) returns outputs and the next cache; positions count on by themselves
    """
    layer = jax_column.MultiHeadAttention.init(jax.random.key(0), 8, 2)
    first, second = jnp.float32(RNG.normal(size=(2, 1, 8)))
    _, shared = layer(first, cache=jax_column.KVCache.init((), 2, 9, 4))
    _, other = (layer(word, cache=shared)[0] for word in (first, second))
    whole = layer(jnp.concatenate([first, second]), causal=True)
    assert np.allclose(other, whole[1:], atol=1e-6)
    _, after = layer(second, cache=shared)
    assert (shared.next_positions(1).item(), after.next_positions(1).item()) == (1, 2)


def test_how_often_read(page):
    r"""so there are $n$ calls: $m + (m + 1) + \ldots + (m + n - 1) = nm + n(n-1)/2$ without,
    $m + n - 1$ with
    """
    for m, n in ((100, 50), (3, 7)):
        lengths = [m + written for written in range(n)]
        assert sum(lengths) == n * m + n * (n - 1) // 2
        assert m + sum(1 for _ in lengths[1:]) == m + n - 1


def test_not_causal(page):
    """All rows, since each has a new key to attend to; with it none"""
    layer, texts = reference.MultiHeadAttention.init(RNG, 8, 2), RNG.normal(size=(7, 8))
    changes = [
        abs(layer(texts[:6], causal=causal) - layer(texts, causal=causal)[:6]).max(axis=1)
        for causal in (False, True)
    ]
    assert (changes[0] > 1e-9).all()
    assert (changes[1] < 1e-9).all()
    assert "causal False: rows that change: 4 of 4\n" in page.printed
    assert "causal True : rows that change: 0 of 4\n" in page.printed


def test_a_rolling_buffer(page):
    r"""position 7 takes the slot of position 4, which no later query sees: slot $7 \bmod 3 = 1$"""
    positions = page.torch.cache.positions
    assert sorted(positions) == [5, 6, 7]
    assert positions[7 % 3] == 7
    assert np.allclose(page.torch.y, page.torch.whole[7:])


def test_frequencies_that_change(page):
    """A key turned at the old frequencies meets a query turned at the new ones, and their score no
    longer sees the offset alone.

    a key 80 places before it
    """
    there, before = 90, 10
    assert there - before == 80
    x = RNG.normal(size=(1, 8))
    scores = {
        base: [
            (
                reference.rotate(x, np.array([start + there]), base=20000.0)
                @ reference.rotate(x, np.array([start + before]), base=base).T
            ).item()
            for start in (0, 1000)
        ]
        for base in (20000.0, 10000.0)
    }
    assert np.isclose(*scores[20000.0])
    assert abs(np.subtract(*scores[10000.0])) > 0.1
    lines = [line for line in page.printed.splitlines() if line.startswith("key turned")]
    here, there = zip(*((line.split()[5], line.split()[-1]) for line in lines), strict=True)
    assert here[0].rstrip(",") == there[0]
    assert here[1].rstrip(",") != there[1]
