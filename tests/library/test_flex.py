"""Our schemes in FlexAttention: the same outputs as ours, gradients, decoding, and what is refused."""

import functools
import itertools
import math
import subprocess
import sys

import pytest
import torch
from torch.nn.attention import flex_attention as pytorch

import posattn.torch as ours
from posattn.torch import flex
from posattn.torch.attention import block_masks
from posattn.torch.attention.call import checked

pytestmark = [
    pytest.mark.slow,  # PyTorch's compiler reads what acts on the scores, and no checks of annotations
    pytest.mark.usefixtures("unchecked"),
]

BATCH, HEADS, KV_HEADS, N, WIDTH = 2, 4, 2, 24, 16
SIDE = 5  # of an image whose cells are the tokens, and one more


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


def drawn(seed, *shape):
    return torch.randn(*shape, generator=rng(seed))


def heads(n_q=N, n_k=N, *, batch=(BATCH,), kv_heads=HEADS):
    """Queries, keys and values."""
    return (
        drawn(1, *batch, HEADS, n_q, WIDTH),
        drawn(2, *batch, kv_heads, n_k, WIDTH),
        drawn(3, *batch, kv_heads, n_k, WIDTH),
    )


DOCUMENTS = torch.tensor([0] * 10 + [1] * (N - 10))


def packed(query_positions, key_positions):
    """Whether two tokens are of the same document."""
    query, key = DOCUMENTS[query_positions], DOCUMENTS[key_positions]
    return query[..., :, None] == key[..., None, :]


def uneven(query_positions, key_positions):
    """A bias that is no function of the distance."""
    at = query_positions[..., :, None] * key_positions[..., None, :]
    return torch.stack([-at / (100.0 * (h + 1)) for h in range(HEADS)], -3)


BIASES = {
    "ALiBi": ours.ALiBi(HEADS),
    "T5": ours.T5Bias(HEADS, max_distance=30, rng=rng()),
    "KERPLE, logarithm": ours.KerpleLog(HEADS, rng=rng()),
    "KERPLE, power": ours.KerplePower(HEADS, rng=rng()),
    "Sandwich": ours.sandwich_bias(HEADS, dim=8),
    "FIRE": ours.FIRE(HEADS, hidden_dim=4, rng=rng()),
    "Swin": ours.SwinBias(HEADS, SIDE, SIDE, rng=rng()),
    "Swin V2": ours.SwinV2Bias(HEADS, SIDE, SIDE, hidden_dim=4, rng=rng()),
    "TUPE": ours.TUPEBias(N, HEADS * WIDTH, HEADS, rng=rng()),
    "FoX": ours.tiled_forgetting_bias(-drawn(7, BATCH, HEADS, N).square()),
    "a function": uneven,
    "an array": drawn(8, BATCH, 1, N, N),
    "several": [ours.ALiBi(HEADS), None, drawn(9, N, N), uneven],
}
MASKS = {
    "none": None,
    "window": ours.Window(5),
    "chunk": ours.Chunk(7),
    "packed": packed,
    "lengths": ours.length_mask(torch.tensor([N - 3, 0]), N)[:, None],
    "nothing": lambda q, k: q[..., :, None] > k[..., None, :] + 2 * N,
}


def same(options, arrays=None):
    """Whether FlexAttention gives what our own function does."""
    arrays = heads() if arrays is None else arrays
    with torch.no_grad():
        want = ours.scaled_dot_product_attention(*arrays, **options)
        got = flex.attention(*arrays, **options)
    torch.testing.assert_close(got, want, rtol=0, atol=2e-6)
    return got


@pytest.mark.parametrize("name", BIASES)
def test_a_bias_adds_what_it_adds_to_ours(name):
    same({"bias": BIASES[name], "causal": True})


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", MASKS)
def test_a_mask_hides_what_it_hides_from_ours(name, causal):
    got = same({"mask": MASKS[name], "causal": causal})
    if name == "nothing":
        assert not got.any()


@pytest.mark.parametrize("shape", [(4, N), (1, N), (N, 7)])
def test_queries_stand_at_the_end_of_grouped_keys(shape):
    arrays = heads(*shape, kv_heads=KV_HEADS)
    same({"bias": BIASES["T5"], "mask": ours.Window(9), "causal": True}, arrays)
    same({"bias": BIASES["ALiBi"], "causal": True, "scale": 0.5}, arrays)


def test_long_masks_are_read_in_strips(monkeypatch):
    monkeypatch.setattr(block_masks, "STRIP", 128)
    n = 300  # three strips, the last of which is no whole block
    arrays = heads(n, n)
    text = torch.arange(n) // 90
    mask = lambda q, k: text[q][..., :, None] == text[k][..., None, :]  # noqa: E731
    same({"mask": mask, "causal": True}, arrays)
    same({"mask": ours.Window(20)}, arrays)


def in_loops(query, key, value, *, score_mod=None, block_mask=None, scale, enable_gqa):
    """What FlexAttention is by definition: each pair is asked about by itself."""
    key, value = (x.repeat_interleave(HEADS // x.shape[1], dim=1) for x in (key, value))
    scores = query @ key.mT * scale
    for indices in itertools.product(*map(range, scores.shape)):
        at = [torch.tensor(i) for i in indices]
        if score_mod is not None:
            scores[indices] = score_mod(scores[indices], *at)
        if block_mask is not None and not block_mask.mask_mod(*at):
            scores[indices] = -math.inf
    return scores.softmax(-1).nan_to_num() @ value


@pytest.mark.parametrize(
    "options",
    [
        {"bias": BIASES["T5"], "causal": True},
        {"bias": BIASES["FIRE"], "mask": ours.Window(2), "soft_cap": 0.5},
        {"bias": uneven, "mask": torch.eye(5, dtype=torch.bool), "causal": True},
        {"bias": BIASES["ALiBi"], "query_positions": torch.arange(5.0) / 2},
    ],
    ids=["distances", "pairs and a cap", "an array", "between whole numbers"],
)
def test_a_pair_by_itself_is_asked_for_the_right_numbers(options, monkeypatch):
    monkeypatch.setattr(flex, "step_by_step", in_loops)
    same(options, heads(5, 5, kv_heads=KV_HEADS))


def test_what_runs_it(monkeypatch):
    monkeypatch.setattr(torch, "compile", lambda function, dynamic: (function, dynamic))
    made = flex.compiled_flex.__wrapped__
    assert made("cuda") == (flex.flex_attention, None)
    assert made("cpu") == (flex.flex_attention, False)
    monkeypatch.setattr(flex, "compiled_flex", made)
    call = checked(*heads())
    assert flex.runner(call, compiled=True) == made("cpu")
    assert flex.runner(call, compiled=False) is flex.step_by_step
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    assert flex.runner(call, compiled=True) is flex.flex_attention


class Where(torch.nn.Module):
    """A bias that learns, and notes where it was asked for distances."""

    relative = True

    def __init__(self):
        super().__init__()
        self.slope = torch.nn.Parameter(torch.ones(1, device="meta"))

    def forward(self, query_positions, key_positions):
        """One number for each distance."""
        self.found = query_positions.device.type, key_positions.device.type
        return self.slope * key_positions[None, None, :]


def test_a_row_is_made_where_the_parameters_are_or_where_it_is_wanted():
    bias = Where()
    flex.score_mod(bias, length=3)
    assert bias.found == ("meta", "meta")
    flex.score_mod(ours.ALiBi(HEADS), length=3, device="cpu")


def test_blocks_in_which_nobody_attends_are_left_out():
    made, used = block_masks.known_block_mask(
        ours.Window(100), True, 1024, 1024, torch.device("cpu")
    )
    assert used is None
    dense = made.to_dense()[0, 0]
    assert dense.sum() == 8 + 7  # its own block of keys, and the one before
    again, _ = block_masks.known_block_mask(
        ours.Window(100), True, 1024, 1024, torch.device("cpu")
    )
    assert again is made


@pytest.mark.parametrize("batch", [(), (2, 3)])
def test_any_number_of_batch_axes(batch):
    arrays = heads(batch=batch)
    gates = ours.tiled_forgetting_bias(-drawn(7, *batch, HEADS, N).square())
    seen = drawn(5, *batch, 1, N, N) > 0
    same({"bias": [gates, drawn(8, *batch[1:], 1, N, N)], "mask": seen}, arrays)
    same({"mask": lambda q, k: seen[..., q, :][..., k]}, arrays)


def test_without_heads():
    query, key, value = (x[0, 0] for x in heads())
    same({"causal": True, "bias": drawn(8, N, N)}, (query, key, value))


@pytest.mark.parametrize("bias", ["T5", "FIRE", "a function"])
@pytest.mark.parametrize("mask", ["none", "window"])
def test_tokens_stand_where_they_are_said_to(bias, mask):
    one = torch.arange(100, 100 + N)
    each = torch.stack([one, one.flip(0)])
    options = {"bias": BIASES[bias], "mask": MASKS[mask]}
    same(options | {"query_positions": one, "key_positions": one + 3})
    same(options | {"query_positions": each, "key_positions": one})


@pytest.mark.parametrize("length", [None, 40])
def test_a_row_of_distances_gives_what_each_pair_does(length):
    where = {
        "query_positions": torch.arange(N, dtype=torch.uint8) + 30,
        "key_positions": torch.arange(N, dtype=torch.uint8) + 40,
    }
    with torch.no_grad():
        want = ours.scaled_dot_product_attention(*heads(), bias=BIASES["T5"], **where)
        got = flex.attention(*heads(), bias=BIASES["T5"], length=length, **where)
    torch.testing.assert_close(got, want, rtol=0, atol=2e-6)


def test_a_distance_beyond_the_row_is_not_guessed():
    where = {"query_positions": torch.arange(N) + 100, "key_positions": torch.arange(N)}
    with torch.no_grad():
        got = flex.attention(*heads(), bias=BIASES["T5"], length=101, **where)
    assert not got[..., 0, :].isnan().all()
    assert got[..., -1, :].isnan().all()


def test_what_is_hidden_may_hold_anything():
    query, key, value = heads()
    want = same({"mask": MASKS["lengths"]}, (query, key, value))
    key[0, :, -3:], value[0, :, -3:], value[1] = math.nan, math.inf, math.nan
    assert same({"mask": MASKS["lengths"]}, (query, key, value)).equal(want)


@pytest.mark.parametrize(("n_q", "n_k"), [(0, 4), (4, 0)])
def test_of_nothing_comes_nothing(n_q, n_k):
    assert same({"causal": True, "bias": ours.ALiBi(HEADS)}, heads(n_q, n_k)).sum() == 0


@pytest.mark.parametrize("sinks", [None, (0.5, -1.0, -math.inf, 2.0)])
@pytest.mark.parametrize("soft_cap", [None, 0.5])
def test_sinks_and_a_soft_cap(sinks, soft_cap):
    sinks = None if sinks is None else torch.tensor(sinks)
    options = {"sinks": sinks, "soft_cap": soft_cap}
    same(options | {"bias": ours.ALiBi(HEADS), "causal": True}, heads(kv_heads=KV_HEADS))
    same(options | {"mask": MASKS["lengths"]})


def test_half_precision_stays_half():
    arrays = [x.bfloat16() for x in heads()]
    with torch.no_grad():
        got = flex.attention(*arrays, bias=ours.ALiBi(HEADS), causal=True)
    want = ours.scaled_dot_product_attention(*heads(), bias=ours.ALiBi(HEADS), causal=True)
    assert got.dtype == torch.bfloat16
    torch.testing.assert_close(got.float(), want, rtol=0, atol=5e-2)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")
@pytest.mark.parametrize(
    "options",
    [
        {"bias": BIASES["T5"], "causal": True},
        {"bias": BIASES["KERPLE, logarithm"], "mask": ours.Window(9)},
        {"bias": BIASES["T5"], "mask": MASKS["nothing"]},
        {"bias": BIASES["T5"], "mask": MASKS["lengths"], "sinks": torch.ones(HEADS)},
        {"bias": BIASES["T5"], "mask": MASKS["nothing"], "sinks": torch.ones(HEADS)},
        {
            "bias": BIASES["T5"],
            "length": 2 * N,
            "query_positions": torch.arange(N - 3, 2 * N - 3),
        },
    ],
    ids=["T5", "KERPLE", "nothing seen", "sinks", "only sinks seen", "positions"],
)
def test_gradients_are_ours_where_pytorch_has_them(options, monkeypatch):
    """PyTorch refuses gradients on the CPU but could compute them, so the test lifts both refusals."""
    options = dict(options)
    monkeypatch.setattr(pytorch, "_validate_device", lambda *arrays: None)
    monkeypatch.setattr(flex, "trains", lambda device: True)
    arrays = [x.requires_grad_() for x in heads(kv_heads=KV_HEADS)]
    learned = list(options["bias"].parameters())
    found = []
    length = options.pop("length", None)
    longer = functools.partial(flex.attention, length=length)
    for attend in (ours.scaled_dot_product_attention, longer):
        out = attend(*arrays, **options).sin().sum()
        found.append(torch.autograd.grad(out, [*arrays, *learned], materialize_grads=True))
    for want, got in zip(*found, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-5, atol=2e-5)


def test_a_layer_uses_it_for_texts_and_steps():
    options = {"num_kv_heads": KV_HEADS, "rotate": ours.Rotary(), "bias": ours.ALiBi(HEADS)}
    layer = ours.MultiHeadAttention(64, HEADS, attention=flex.attention, **options)
    plain = ours.MultiHeadAttention(64, HEADS, **options)
    plain.load_state_dict(layer.requires_grad_(False).state_dict())
    x = drawn(4, BATCH, N, 64)
    want = plain(x, causal=True)
    got = layer(x, causal=True, query_positions=torch.arange(N))
    torch.testing.assert_close(got, want, rtol=0, atol=2e-6)

    cache, outs = layer.init_cache((BATCH,), 32), []
    for start, stop in [(0, N - 2), (N - 2, N - 1), (N - 1, N)]:
        out, cache = layer(x[:, start:stop], cache=cache)
        outs.append(out)
    torch.testing.assert_close(torch.cat(outs, 1), want, rtol=0, atol=2e-6)


COMPILED = f"""
import functools, torch
from posattn.torch import MultiHeadAttention, T5Bias, Window, flex

# without AVX-512, PyTorch 2.13's own kernel for CPUs errs where a length is no multiple of 16
N, part = ({N}, {N} - 1) if "AVX512" in torch.backends.cpu.get_cpu_capability() else (32, 16)
options = {{"causal": True, "mask": Window(9)}}
x, bias = torch.randn({BATCH}, N, 64), T5Bias({HEADS})
compiled = functools.partial(flex.attention, compiled=True)
plain, kernel, inside = (
    MultiHeadAttention(64, {HEADS}, num_kv_heads={KV_HEADS}, bias=bias, attention=attention)
    for attention in (None, compiled, flex.attention)
)
for layer in (kernel, inside):
    layer.load_state_dict(plain.state_dict())
with torch.no_grad():
    want = plain(x, **options)
    cache = kernel.init_cache(({BATCH},), 32)
    steps, cache = kernel(x[:, :part], cache=cache, mask=options["mask"])
    last, cache = kernel(x[:, part:], cache=cache, mask=options["mask"])
    # PyTorch's own backend for CPUs takes FlexAttention only of arrays that come from outside
    whole = torch.compile(
        lambda x: inside(x, **options), fullgraph=True, backend="aot_eager"
    )
    for got in (kernel(x, **options), torch.cat([steps, last], 1), whole(x)):
        torch.testing.assert_close(got, want, rtol=0, atol=2e-6)
"""


def test_compiled_it_gives_the_same_alone_with_a_cache_and_inside_of_a_model():
    """In a process of its own: there, nothing checks annotations, which the compiler cannot read."""
    run = subprocess.run([sys.executable, "-c", COMPILED], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@torch.no_grad()
def test_functions_of_their_own_for_who_calls_flexattention_itself():
    query, key, value = heads(3)  # the last three tokens
    offset = torch.tensor(N - 3)
    window = flex.mask_mod(ours.Window(5), query_offset=offset)
    bare = lambda b, h, q, k: window(b, h, q, k)  # noqa: E731, tests wrap what is defined
    block_mask = pytorch.create_block_mask(bare, 1, 1, 3, N, device="cpu")
    score_mod = flex.score_mod(BIASES["T5"], query_offset=offset, length=N)
    got = pytorch.flex_attention(
        query, key, value, score_mod=score_mod, block_mask=block_mask
    )
    options = {"bias": BIASES["T5"], "mask": ours.Window(5)}
    want = ours.scaled_dot_product_attention(query, key, value, **options)
    torch.testing.assert_close(got, want, rtol=0, atol=2e-6)


@pytest.mark.parametrize(
    ("options", "kind", "text"),
    [
        (
            {"bias": ours.StickBreaking()},
            TypeError,
            "bias must be a function of positions alone for FlexAttention, got StickBreaking, which reads",
        ),
        (
            {"dropout_rate": 0.5, "rng": 7},
            ValueError,
            "dropout_rate must be 0 with FlexAttention, which drops no weights, got 0.5",
        ),
        ({"bias": ours.ALiBi(3)}, ValueError, "bias"),
        ({"bias": torch.zeros(3, N, N)}, ValueError, "bias"),
        (
            {"bias": BIASES["FIRE"], "compiled": True},
            ValueError,
            r"bias must be an array or depend only on the distance where FlexAttention is compiled or the",
        ),
        ({"mask": lambda q, k: q}, TypeError, "mask"),
        ({"length": 0, "bias": ours.ALiBi(HEADS)}, ValueError, "length"),
    ],
)
def test_what_it_cannot_do_is_refused(options, kind, text):
    with torch.no_grad(), pytest.raises(kind, match=text):
        flex.attention(*heads(), **options)


def test_what_learns_must_be_read_by_distance(monkeypatch):
    monkeypatch.setattr(flex, "trains", lambda device: True)
    with pytest.raises(ValueError, match=r"or the bias learns, got FIRE\("):
        flex.attention(*heads(), bias=BIASES["FIRE"])


@pytest.mark.parametrize("which", ["query", "bias"])
def test_gradients_on_the_cpu_are_refused(which):
    query, key, value = heads()
    query.requires_grad_(which == "query")
    bias = BIASES["T5" if which == "bias" else "ALiBi"]
    with pytest.raises(ValueError, match="must need no gradients on the CPU"):
        flex.attention(query, key, value, bias=bias)


def test_what_makes_the_functions_is_checked():
    with pytest.raises(TypeError, match="got CoPE, which reads queries and keys"):
        flex.score_mod(ours.CoPE(4, WIDTH))
    with pytest.raises(ValueError, match="query_offset must be 0 where query_positions"):
        flex.mask_mod(ours.Window(3), query_offset=2, query_positions=torch.arange(3))
    with pytest.raises(TypeError, match="mask"):
        flex.mask_mod(torch.zeros(2, 2))
    with pytest.raises(TypeError, match="key_positions must hold integers"):
        flex.mask_mod(ours.Window(3), key_positions=torch.zeros(3, dtype=torch.bfloat16))
