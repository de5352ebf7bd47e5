"""Use it in a model."""

import itertools
import re
import subprocess
import sys
import types
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from torch.utils.checkpoint import checkpoint

from posattn import jax as jax_column
from posattn import reference
from posattn import torch as torch_column
from posattn.torch import flex, transformers
from tests.library import test_works_with as works_with
from tests.nightly.benchmarks import records

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
    r"""dog sees itself: $6$.

    bites sees two words: $(1 \cdot 6 + 2 \cdot 3) / 3 = 4$.

    man sees all three: $(1 \cdot 6 + 2 \cdot 3 + 1 \cdot 8) / 4 = 5$.

    When man arrives, the 4 of bites is still right. To get the 5, add 8 to the sum on top and 1 to
    the sum below.
    """
    at_once = np.tril(np.tile(E, (3, 1))) @ VALUES / E.cumsum()
    assert np.allclose(at_once, [6, 4, 5])
    top, bottom = page.torch.top, page.torch.bottom
    assert np.allclose(top / bottom, at_once)
    assert (top[2] - top[1], bottom[2] - bottom[1]) == (8, 1)
    assert "all at once: [6. 4. 5.]\n" in page.printed
    assert "is [6. 4. 5.]\n" in page.printed


def test_a_step_equals_the_library_and_the_whole(page):
    """A step gets the new tokens x and everything kept so far, K and V. The new tokens continue at
    position len(K), because that many tokens came before them.

    compares both with a single call on the whole text
    """
    for start, stop in ((0, 3), (3, 4), (4, 5)):
        line = f"tokens {start} to {stop}: from library and whole 0.000000 at most\n"
        assert page.printed.count(line) == 2


def test_eq_causal_row(page):
    r"""$$ \mathbf{y}_i = \sum_{j \le i} \alpha_{ij}\,\mathbf{v}_j, \quad \alpha_{ij} = \frac{\exp s_{ij}}{\sum_{l \le i} \exp s_{il}} . $$

    In causal attention, a row never depends on what comes later.
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
    """Stack causal layers of this kind, each with its own cache, and let everything between them work
    on each token separately. Then every token gets the same output, however the text is cut into
    calls.

    Rotary meets the condition, and so do ALiBi, T5's buckets and every other bias that depends on the
    offset.
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
    """First, three texts of the same length: a prompt of six tokens, then one step.

    give each padding token a negative position.

    The second text gets the same outputs as it would without padding, and the next call continues each
    text where it ended: the first at position 3, the second at position 2.

    And each text must count its positions from 0.
    """
    for line in (
        "prompt and step differ from the whole",
        "a padded text changes",
        "a packed text changes",
    ):
        found = [text for text in page.printed.splitlines() if text.startswith(line)]
        assert [text.split()[-1] for text in found] == ["0.000000"] * 2
    assert page.printed.count("the next tokens go to positions [3, 2]\n") == 2


def test_padding_on_either_side(page):
    """If the layer doesn't know which tokens are padding, real tokens attend to them.

    Padding may be on the left or on the right.

    The row of a padding token comes out as zeros here, and it should be ignored.
    """
    text = RNG.normal(size=(4, 8)).astype("float32")
    weights = RNG.normal(size=(4, 8, 8)).astype("float32") / 3
    in_jax = jax_column.MultiHeadAttention(
        *map(jnp.array, weights), num_heads=2, rotate=jax_column.Rotary()
    )
    in_torch = torch_column.MultiHeadAttention(8, 2, rotate=torch_column.Rotary())
    in_torch.requires_grad_(False)
    for name, w in zip(("query", "key", "value", "output"), weights, strict=True):
        in_torch.get_submodule(name).weight.copy_(torch.from_numpy(w.T.copy()))
    for column, layer, array in (
        (torch_column, in_torch, torch.tensor),
        (jax_column, in_jax, jnp.array),
    ):
        for positions in ([-1, 0, 1, -1], [-1, -1, 0, 1], [0, 1, -1, -1]):
            real = np.array(positions) >= 0
            cache = column.KVCache.init((), 2, 9, 4)
            y, _ = layer(array(text), cache=cache, query_positions=array(positions))
            alone = np.asarray(layer(array(text[real]), causal=True))
            y = np.asarray(y)
            assert np.allclose(y[real], alone, atol=1e-6)
            assert (y[~real] == 0).all()
        unmarked = np.asarray(layer(array(text), causal=True))
        alone = np.asarray(layer(array(text[1:]), causal=True))
        assert abs(unmarked[1:] - alone).max() > 0.01


def test_a_packed_text_needs_no_positions_with_these(page):
    """Rotary and ALiBi see only offsets, so with them a packed text comes out right even without
    query_positions. An absolute scheme needs them.
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
    """Take torch.nn.MultiheadAttention. It stacks the projections of queries, keys and values in one
    matrix, and each of them has the shape (d_out, d_in).
    """
    assert torch.nn.MultiheadAttention(64, 8).in_proj_weight.shape == (3 * 64, 64)
    assert page.printed.count("the framework's attention differs by 0.000000\n") == 2
    assert page.printed.count("padding changes outputs by 0.000000\n") == 2


def test_a_transposed_matrix_fits(page):
    """a transposed matrix fits just as well, no error is raised, and only the outputs are wrong.

    Our PyTorch layer stores matrices the same way, while our JAX layer wants (d_in, d_out)
    """
    x = RNG.normal(size=(5, 8)).astype("float32")
    stored = RNG.normal(size=(4, 8, 8)).astype("float32")  # (d_out, d_in)
    query, key, value, output = stored
    theirs = torch.nn.MultiheadAttention(8, 2, bias=False)
    state = {
        "in_proj_weight": torch.from_numpy(np.concatenate([query, key, value])),
        "out_proj.weight": torch.from_numpy(output),
    }
    theirs.load_state_dict(state)
    in_torch = torch.from_numpy(x)
    want = theirs(in_torch, in_torch, in_torch)[0].detach().numpy()
    for first, right in ((query.T, True), (query, False)):
        layer = jax_column.MultiHeadAttention(
            *map(jnp.array, (first, key.T, value.T, output.T)), num_heads=2
        )
        assert np.allclose(layer(jnp.array(x)), want, atol=1e-3) == right
        layer = torch_column.MultiHeadAttention(8, 2)
        names, weights = ("query", "key", "value", "output"), (first.T, key, value, output)
        for name, w in zip(names, weights, strict=True):
            layer.get_submodule(name).weight.data = torch.from_numpy(w.copy())
        got = layer(in_torch).detach().numpy()
        assert np.allclose(got, want, atol=1e-3) == right


def test_no_table_is_saved(page):
    """The state holds everything that was learned, including the parameters of a bias you plugged in.
    Tables of angles are not in it, so a file saved at one length can't clash with another.
    """
    layer = torch_column.MultiHeadAttention(8, 2, rotate=torch_column.Rotary())
    assert len(layer.state_dict()) == 4
    learned = torch_column.MultiHeadAttention(8, 2, bias=torch_column.T5Bias(2))
    assert len(learned.state_dict()) == 5


def block(page, word):
    """The lines of the page that no cell runs and that name a word."""
    found = re.findall(
        r"^```\{code-block\} python\n(.*?)^```", page.text, re.DOTALL | re.MULTILINE
    )
    (code,) = [lines for lines in found if word in lines]
    return code


def test_its_lines_save_a_layer(page, tmp_path):
    """In PyTorch, save the state and not the layer."""
    layer, saved = (torch_column.MultiHeadAttention(8, 2) for _ in range(2))
    x = torch.ones(3, 8)
    before = layer(x)
    names = {"torch": torch, "layer": layer, "path": tmp_path / "layer"}
    exec(block(page, "torch.save"), names)
    saved.load_state_dict(torch.load(names["path"]))
    assert saved(x).equal(before)
    assert layer(x).equal(before)


def test_half_precision(page):
    """If it has float32 weights and gets bfloat16 activations, it raises an error, in both frameworks.
    PyTorch's own nn.Linear raises one too

    in bfloat16, $1 + 0.001$ is still 1.

    Because the cast is part of what is differentiated, gradients arrive in float32:
    """
    assert (torch.tensor(1.0, dtype=torch.bfloat16) + 0.001).item() == 1
    text = "query must have the dtype of the weights, float32, got bfloat16"
    layer, half = torch_column.MultiHeadAttention(8, 2), torch.ones(3, 8).bfloat16()
    with pytest.raises(TypeError, match=text):
        layer(half)
    with pytest.raises(RuntimeError, match="must have the same dtype"):
        torch.nn.Linear(8, 8)(half)
    with torch.autocast("cpu", torch.bfloat16):
        assert layer(torch.ones(3, 8)).dtype == torch.bfloat16
    layer = jax_column.MultiHeadAttention.init(jax.random.key(0), 8, 2)
    x = jnp.float32(RNG.normal(size=(3, 8)))
    with pytest.raises(TypeError, match=text):
        layer(x.astype("bfloat16"))
    names = {"jax": jax, "layer": layer, "x": x}
    exec(block(page, "astype(float)"), names)
    leaves = jax.tree.leaves(names["gradients"])
    assert len(leaves) == 4
    assert all(leaf.dtype == "float32" and leaf.any() for leaf in leaves)


def test_the_table_is_what_was_tested(page):
    """Each row of this table is a test. It runs a layer with each of Rotary, ALiBi, T5Bias, FIRE,
    StickBreaking, CoPE and sinks, and all of them work.
    """
    part = page.text.partition("## What works with what")[2].partition("## Summary")[0]
    assert re.findall(r"^\| `(.*?)` \| .* \|$", part, re.MULTILINE) == [*works_with.TOOLS]
    assert works_with.FAILS == {}
    schemes = works_with.SCHEMES
    named = ", ".join(f"`{name}`" for name in schemes[:-1])
    assert f"with each of {named} and {schemes[-1]}, and all of them work." in part


COUNTED = """
import functools, torch
from posattn.torch import KVCache, MultiHeadAttention, Rotary

graphs = []
count = lambda graph, inputs: graphs.append(graph) or graph
torch.compile = functools.partial(torch.compile, backend=count)
torch.manual_seed(0)
layer = MultiHeadAttention(8, 2, rotate=Rotary()).requires_grad_(False)
tokens = torch.randn(6, 1, 8)
cache = KVCache.init((), 2, 9, 4)
{lines}
steps = len(graphs)
whole = layer(tokens[:, 0], causal=True)
step(tokens[:3, 0], cache=KVCache.init((), 2, 9, 4))
print(steps, len(graphs), torch.allclose(y, whole[5:], atol=1e-6))
"""


def test_one_program_serves_every_step_in_pytorch(page):
    """Here it's a number in a tensor, and one program serves every step.

    A prompt is longer than a step, so it gets its own compiled program.
    """
    # a process of its own: under the tests' checks of annotations nothing compiles
    program = COUNTED.format(lines=block(page, "torch.compile"))
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "1 2 True\n"


FLEX = """
import warnings
import torch
from posattn.torch import scaled_dot_product_attention

warnings.filterwarnings("ignore", "flex_attention called without torch.compile")
torch.manual_seed(0)
torch.set_grad_enabled(False)
x = torch.randn(2, 150, 64)
{layer}
layer.attention = None
print(torch.allclose(y, layer(x, causal=True, mask=Window(100)), atol=1e-6))
query, key, value = torch.randn(3, 2, 8, 150, 8)
{functions}
options = {{"bias": ALiBi(8), "mask": Window(100)}}
print(torch.allclose(y, scaled_dot_product_attention(query, key, value, **options), atol=1e-6))
"""


def test_schemes_in_flexattention(page):
    """A layer uses it if you pass it as attention. Schemes and masks are written as before:

    If you call FlexAttention yourself, two functions translate a bias and a mask for it:
    """
    # a process of its own: the compiler cannot read what is checked for annotations
    program = FLEX.format(
        layer=block(page, "attention=flex.attention"),
        functions=block(page, "create_block_mask"),
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "True\nTrue\n"


def test_the_limits_of_flexattention(page):
    """A scheme that reads queries and keys, such as CoPE, raises an error, because FlexAttention
    hands your function a score and its indices, and no vectors.

    So does training on the CPU, where FlexAttention has no gradients. And a layer that rotates must be
    told query_positions
    """
    with pytest.raises(TypeError, match="got CoPE, which reads queries and keys"):
        flex.score_mod(torch_column.CoPE(4, 8))
    layer = torch_column.MultiHeadAttention(8, 2, attention=flex.attention)
    with pytest.raises(ValueError, match="must need no gradients on the CPU"):
        layer(torch.ones(1, 3, 8))
    layer.rotate = torch_column.Rotary()
    with pytest.raises(ValueError, match="query_positions must be given"):
        layer(torch.ones(1, 3, 8))


def test_a_row_of_distances(page):
    """With length=n, the bias is computed once for each distance and then looked up.

    Without it, FlexAttention asks the bias about every pair, and that doesn't compile.
    """
    asked = []

    class Counted(torch_column.ALiBi):
        def __call__(self, query_positions, key_positions):
            asked.append((len(query_positions), len(key_positions)))
            return super().__call__(query_positions, key_positions)

    score, b, h = torch.tensor(0.0), 0, 1
    for length, calls in ((5, [(1, 9)]), (None, [(1, 1)] * 25)):
        change = flex.score_mod(Counted(2), length=length)
        for i, j in itertools.product(range(5), repeat=2):
            got = change(score, b, h, torch.tensor(i), torch.tensor(j))
            assert got == -abs(i - j) / 256
        assert asked == calls
        asked.clear()
    query = torch.ones(1, 2, 5, 8)
    uneven = torch_column.FIRE(2).requires_grad_(False)
    with pytest.raises(ValueError, match="where FlexAttention is compiled"):
        flex.attention(query, query, query, bias=uneven, compiled=True)


def test_flexattention_is_slower_on_a_cpu(page):
    """On the CPU it isn't"""
    recorded = [m["cases"] for m in records.machines() if m["device"] == "cpu"]
    ratios = [
        case["ratio"]["FlexAttention"][1]
        for cases in recorded
        for case in cases.values()
        if "FlexAttention" in case.get("ratio", {})
    ]
    assert ratios
    assert max(ratios) < 1


def test_any_function_may_be_a_models_attention(page, monkeypatch):
    """One call registers ours, and then any model can ask for it:

    With register("mine", attention=function), the models run a function of yours, which is a quick way to
    look at every score of a model that you didn't write.
    """
    assert 'register()\nmodel.set_attn_implementation("posattn")' in block(
        page, "register()"
    )
    query, key, value = torch.randn(3, 1, 2, 4, 8)
    seen = []

    def watched(*arrays, **options):
        seen.append(torch_column.attention_weights(*arrays[:2], **options))
        return torch_column.scaled_dot_product_attention(*arrays, **options)

    out, _ = transformers.forward(watched)(torch.nn.Module(), query, key, value, None)
    want = torch_column.scaled_dot_product_attention(query, key, value, causal=True)
    assert out.equal(want.transpose(1, 2))
    assert torch.allclose(seen[0] @ value, want, atol=1e-6)


def test_one_program_serves_every_step_in_jax(page):
    """And in JAX, where donate_argnums=1 lets each step overwrite the old cache and so spares a copy:

    A prompt is longer than a step, so it gets its own compiled program.
    """
    layer = jax_column.MultiHeadAttention.init(
        jax.random.key(0), 8, 2, rotate=jax_column.Rotary()
    )
    tokens = jnp.float32(RNG.normal(size=(6, 1, 8)))
    traced = []

    def counted(token, cache):
        traced.append(token.shape)
        return layer(token, cache=cache)

    names = {
        "jax": jax,
        "layer": counted,
        "tokens": tokens,
        "cache": jax_column.KVCache.init((), 2, 9, 4),
    }
    first = names["cache"]
    exec(block(page, "donate_argnums"), names)
    assert traced == [(1, 8)]
    assert all(leaf.is_deleted() for leaf in jax.tree.leaves(first))
    whole = layer(tokens[:, 0], causal=True)
    assert np.allclose(names["y"], whole[5:], atol=1e-6)
    names["step"](tokens[:2, 0], jax_column.KVCache.init((), 2, 9, 4))
    assert traced == [(1, 8), (2, 8)]


def test_dropout_that_can_be_repeated(page):
    """It acts only where a call gets rng=, so a model that writes just leaves it out.

    In PyTorch you can pass a torch.Generator too, but each call advances it, so a second pass would drop
    other weights. Under torch.utils.checkpoint the layer therefore raises an error for one.
    """
    assert page.printed.count("the same seed drops the same weights: True\n") == 2
    assert page.printed.count("another seed drops others: True\n") == 2
    layer = torch_column.MultiHeadAttention(8, 2, dropout_rate=0.5).eval()
    x = torch.from_numpy(RNG.normal(size=(5, 8))).float().requires_grad_()
    assert layer(x).equal(layer(x))
    generator = torch.Generator().manual_seed(0)
    assert not layer(x, rng=generator).equal(layer(x, rng=generator))
    for rng in (7, generator):
        y = checkpoint(partial(layer, rng=rng), x, use_reentrant=False)
        if rng is generator:
            with pytest.raises(ValueError, match="rng must be a seed"):
                y.sum().backward()
        else:
            y.sum().backward()


def test_how_often_a_text_is_read_without_a_cache(page):
    """A text of 1000 tokens, written token by token, makes the model run on every length from 1 to
    1000. On average it processes … tokens to add a single one.
    """
    assert (
        page.glued["again"] == sum(n / 1000 for n in range(1, 1001)) == pytest.approx(500.5)
    )


def test_eq_cache_size(page):
    r"""$$ 2 \cdot L \cdot G \cdot d_h \cdot n $$

    Take 32 layers, head dimension 128, and two bytes per number. If all 32 query heads have their own
    keys and values, every single token takes … KiB, and a text of 8192 tokens takes … GiB.

    sixteen texts of this length already take $16 \cdot 4 = 64$ GiB.

    with 8 of them the same text takes … GiB. Add a window of 4096 tokens, and the cache stays at … GiB
    however long the text becomes.
    """
    L, d_h, n = 32, 128, 8192
    for G in (8, 32):
        assert room(G, n) == 2 * (2 * L * G * d_h * n)
    grouped = room(8, n)
    sizes = {"all": 4 * grouped, "grouped": grouped, "windowed": grouped / 2}
    assert room(8, 10**6, window=4096) == sizes["windowed"]
    for name, size in sizes.items():
        assert page.glued[f"room_{name}"] == size / 2**30
    assert 16 * page.glued["room_all"] == 64
    assert page.glued["room_token"] == room(32, 1) / 2**10 == 512


def test_one_cache_two_continuations_in_pytorch(page):
    """the second word is read as if the first came before it, because both calls write into the same
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

    layer(x, cache=cache) returns the outputs and the next cache. The cache keeps track of
    positions
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
    r"""Without a cache they process $m + (m + 1) + \ldots + (m + n - 1) = nm + n(n-1)/2$ tokens.

    With a cache, every token is processed once, except the last one written, which nobody reads:
    $m + n - 1$.
    """
    for m, n in ((100, 50), (3, 7)):
        lengths = [m + written for written in range(n)]
        assert sum(lengths) == n * m + n * (n - 1) // 2
        assert m + sum(1 for _ in lengths[1:]) == m + n - 1


def test_not_causal(page):
    """Without it all rows change, because each has a new key to attend to. With it none does"""
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
    r"""Position 7 overwrites position 4, which no later query can see, so it goes into slot
    $7 \bmod 3 = 1$.
    """
    positions = page.torch.cache.positions
    assert sorted(positions) == [5, 6, 7]
    assert positions[7 % 3] == 7
    assert np.allclose(page.torch.y, page.torch.whole[7:])


def test_frequencies_that_change(page):
    """Their score would then depend on where they are, and no longer only on the offset.

    a key 80 positions before it

    With equal bases the two scores agree, and with different ones they don't.
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
    lines = [line for line in page.printed.splitlines() if line.startswith("key rotated")]
    here, there = zip(*((line.split()[5], line.split()[-1]) for line in lines), strict=True)
    assert here[0].rstrip(",") == there[0]
    assert here[1].rstrip(",") != there[1]


def read(words, sentence):
    """The numbers of the words of a sentence."""
    return [words.index(word) for word in sentence.split()]


def test_the_model_learns_two_sentences(page):
    r"""Let's give the model five words and two sentences to learn.

    Before training the loss is 2.07, which is worse than giving all five words the same probability,
    since that costs $\ln 5 = 1.61$.

    After 200 steps the loss is 0.18, and it can hardly get better.

    Of the four guesses in a sentence, the first is a coin toss, because the is followed by dog in one
    sentence and by man in the other. That guess costs $\ln 2$ on average.

    The other three words follow from the text so far and can cost next to nothing, so no model gets
    below $\ln 2 / 4 = 0.17$.

    The model gets both right, so it must have looked further back than the word the, and only attention
    can do that.
    """
    words, sentences = page.torch.words, page.torch.sentences.tolist()
    assert sentences == [
        read(words, "the dog bites the man"),
        read(words, "the man feeds the dog"),
    ]
    floor = np.log(2) / 4
    assert round(floor, 2) == 0.17
    assert len(words) == 5
    assert round(np.log(5), 2) == 1.61
    assert page.printed.count("loss after 0 steps: 2.07\n") == 2
    assert page.printed.count("loss after 200 steps: 0.18\n") == 2
    for final in (page.torch.loss.item(), float(page.jax.loss)):
        assert floor < final < floor + 0.01
    for line in (
        "it writes: the dog bites the man\n",
        "it writes: the man feeds the dog\n",
    ):
        assert page.printed.count(line) >= 2


def test_the_scores_of_the_model_do_not_change_when_words_follow(page):
    """the scores after bites don't change when more words follow, so the model can't peek at the
    answer
    """
    line = "two more words change the scores of the first three by 0.000000\n"
    assert page.printed.count(line) == 2


def test_the_models_of_both_frameworks_are_one(page):
    """Here is a complete model, with a single block."""
    tokens = page.torch.sentences
    start = (page.torch.first_up, page.torch.first_down)
    layer = torch_column.MultiHeadAttention(16, 2, rotate=torch_column.Rotary())
    for part, w in zip(
        ["query", "key", "value", "output"], page.torch.first_attention, strict=True
    ):
        layer.get_submodule(part).weight.data = torch.from_numpy(w.T.copy()).float()
    in_torch = page.torch.model_torch(
        torch.from_numpy(tokens),
        torch.from_numpy(page.torch.first_embedding).float(),
        layer,
        *(torch.from_numpy(w).float() for w in start),
    )
    in_jax = page.jax.model_jax(
        jnp.asarray(tokens),
        jnp.float32(page.torch.first_embedding),
        jax_column.MultiHeadAttention(
            *jnp.float32(page.torch.first_attention),
            num_heads=2,
            rotate=jax_column.Rotary(),
        ),
        *map(jnp.float32, start),
    )
    assert np.allclose(in_torch.detach().numpy(), in_jax, atol=1e-4)


def test_the_model_writes_the_same_with_a_cache(page):
    """The same words come out, and no token was processed twice

    To write three words after the dog, it ran on two words, then on three, then on four.
    """
    assert page.printed.count("it writes: the dog bites the man\n") == 4
    assert page.printed.count("it processed 4 tokens with a cache, 9 without\n") == 2


ROPE = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


def test_a_loader_keeps_the_scaling(page):
    """Llama 3.1 has the same base, and also slows its slow pairs down by a factor of 8.

    Even so, nearby tokens hardly notice, which is why a quick test on a short prompt passes. At a distance of
    10000 the score should be 0.35, and without the scaling it is 0.19.
    """
    config = page.torch.config
    assert config["rope_scaling"] | {"rope_theta": config["rope_theta"]} == ROPE
    for column, names in ((torch_column, page.torch), (jax_column, page.jax)):
        assert names.config == config
        assert np.allclose(names.right.frequencies, reference.llama3(128), rtol=1e-12)
        for key, name, other in (
            ("factor", "factor", 32.0),
            ("low_freq_factor", "low_frequency_factor", 2.0),
            ("high_freq_factor", "high_frequency_factor", 8.0),
            ("original_max_position_embeddings", "trained_length", 4096),
        ):
            scaling = config["rope_scaling"] | {key: other}
            rope = column.rope_from_config(config | {"rope_scaling": scaling})
            wanted = reference.llama3(128, **{name: other})
            assert np.allclose(rope.frequencies, wanted, rtol=1e-12)
    assert page.printed.count("the slowest turns 8 times too fast without it\n") == 2
    scores = {
        distance: [
            np.cos(distance * frequencies).mean()
            for frequencies in (
                reference.llama3(128),
                reference.frequencies(128, base=500000.0),
            )
        ]
        for distance in (10, 1000, 10000)
    }
    for distance, (right, lost) in scores.items():
        line = f"distance {distance:5}: score {right:.2f}, without the scaling {lost:.2f}\n"
        assert page.printed.count(line) == 2
    assert abs(np.subtract(*scores[10])) < 0.005
    assert np.allclose(scores[10000], (0.35, 0.19), atol=0.005)


def test_a_slow_pair(page):
    r"""Take a slow pair that would need 8192 tokens for a full turn without the scaling. Over 10 tokens it
    rotates by $10 \cdot 2\pi / 8192 = 0.008$ radians, or by 0.001 with the scaling, and the cosine of
    both is 1.00. Over 10000 tokens it rotates by $7.67$ radians, more than a full turn, where the scaled
    model rotates it by $0.96$. Now one cosine is $0.18$ and the other $0.57$.

    More than half of the pairs rotate too fast without the scaling, the slowest of them by a factor of
    8.
    """
    plain, scaled = reference.frequencies(128, base=500000.0), reference.llama3(128)
    slow = plain <= 2 * np.pi / 8192
    assert np.allclose(plain[slow] / scaled[slow], 8)
    assert (plain / scaled > 1.001).sum() > 64 / 2
    speed = 2 * np.pi / 8192
    for distance, digits, angles, cosines in (
        (10, 3, (0.008, 0.001), (1, 1)),
        (10000, 2, (7.67, 0.96), (0.18, 0.57)),
    ):
        found = np.array([distance * speed, distance * speed / 8])
        assert tuple(found.round(digits)) == angles
        assert tuple(np.cos(found).round(2)) == cosines
    assert 10000 * speed > 2 * np.pi


def test_a_loader_refuses_what_it_does_not_know(page):
    """So a loader should use every field of the configuration, and refuse what it doesn't know.

    rope_from_config reads all of them, and raises an error for a missing number or an unknown type.
    """
    for column in (torch_column, jax_column):
        for kind, said in (
            ("spiral", "got 'spiral'"),
            ("llama3", "low_freq_factor is missing"),
        ):
            scaling = {"rope_type": kind, "factor": 8.0}
            with pytest.raises(ValueError, match=said):
                column.rope_from_config(page.torch.config | {"rope_scaling": scaling})


def test_a_layer_is_loaded_from_the_weights_of_the_model(page):
    """Give it the weights of the whole model, and it picks those of the layer you ask for."""
    config = page.torch.config | {
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "num_hidden_layers": 2,
    }
    rows = {"q": 64, "k": 32, "v": 32, "o": 64}
    weights = {
        f"model.layers.{layer}.self_attn.{role}_proj.weight": RNG.normal(size=(n, 64)) / 8
        for layer in (0, 1)
        for role, n in rows.items()
    }
    theirs = types.SimpleNamespace(
        config=config, state_dict=lambda: {k: torch.tensor(w) for k, w in weights.items()}
    )
    names = {"theirs": theirs, "MultiHeadAttention": torch_column.MultiHeadAttention}
    exec(block(page, "theirs.config").replace("layer=0", "layer=1"), names)
    want = reference.MultiHeadAttention(
        *(weights[f"model.layers.1.self_attn.{role}_proj.weight"].T for role in rows),
        num_heads=4,
        num_kv_heads=2,
        rotate=reference.rope_from_config(config),
    )
    x = RNG.normal(size=(7, 64))
    got = names["layer"](torch.tensor(x).float(), causal=True).detach()
    assert np.allclose(got, want(x, causal=True), atol=1e-5)


def test_an_older_file(page):
    """Here the base is a field of its own, and the scaling is under rope_scaling, where older files call its
    type type. Newer files hold both in rope_parameters. rope_from_config reads all of them
    """
    older = page.torch.config
    scaling = dict(older["rope_scaling"])
    typed = {"type": scaling.pop("rope_type"), **scaling}
    newer = {k: v for k, v in older.items() if not k.startswith("rope")}
    newer["rope_parameters"] = ROPE
    kinds = older, older | {"rope_scaling": typed}, newer
    assert len({torch_column.rope_from_config(kind) for kind in kinds}) == 1
    del newer["rope_parameters"]
    with pytest.raises(ValueError, match="rope"):
        torch_column.rope_from_config(newer)
