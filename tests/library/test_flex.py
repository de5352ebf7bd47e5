"""Our schemes in FlexAttention: the same outputs as ours, gradients, decoding, and what is refused."""

import functools
import itertools
import math

import pytest
import torch
from torch.nn.attention import flex_attention as pytorch

import posattn.torch as ours
from posattn.torch import flex
from posattn.torch.attention import block_masks

pytestmark = [
    pytest.mark.usefixtures("unchecked"),
]

BATCH, HEADS, KV_HEADS, N, WIDTH = 2, 4, 2, 24, 16


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
    "T5": ours.T5Bias(HEADS, max_distance=30, rng=rng()),
    "FIRE": ours.FIRE(HEADS, hidden_dim=4, rng=rng()),
    "TUPE": ours.TUPEBias(N, HEADS * WIDTH, HEADS, rng=rng()),
    "FoX": ours.tiled_forgetting_bias(-drawn(7, BATCH, HEADS, N).square()),
    "a function": uneven,
    "several": [ours.ALiBi(HEADS), None, drawn(9, N, N), uneven],
}
LENGTHS = ours.length_mask(torch.tensor([N - 3, 0]), N)[:, None]
MASKS = {
    "window": (ours.Window(5), False),
    "causal window": (ours.Window(5), True),
    "packed": (packed, True),
    "lengths": (LENGTHS, False),
    "nothing": (lambda q, k: q[..., :, None] > k[..., None, :] + 2 * N, False),
}


def same(options, arrays=None, attend=flex.attention):
    """Whether FlexAttention gives what our own function does."""
    arrays = heads() if arrays is None else arrays
    with torch.no_grad():
        want = ours.scaled_dot_product_attention(*arrays, **options)
        got = attend(*arrays, **options)
    torch.testing.assert_close(got, want, rtol=0, atol=2e-6)
    return got


@pytest.mark.parametrize("name", BIASES)
def test_a_bias_adds_what_it_adds_to_ours(name):
    same({"bias": BIASES[name], "causal": True})


@pytest.mark.parametrize("name", MASKS)
def test_a_mask_hides_what_it_hides_from_ours(name):
    mask, causal = MASKS[name]
    got = same({"mask": mask, "causal": causal})
    assert got.any() != (name == "nothing")


@pytest.mark.parametrize("shape", [(4, N), (N, 7)])
def test_queries_stand_at_the_end_of_grouped_keys(shape):
    options = {"bias": BIASES["T5"], "mask": ours.Window(9), "causal": True, "scale": 0.5}
    same(options, heads(*shape, kv_heads=KV_HEADS))


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
        {"bias": ours.ALiBi(HEADS), "query_positions": torch.arange(5.0) / 2},
    ],
    ids=["distances", "pairs and a cap", "an array", "between whole numbers"],
)
def test_a_pair_by_itself_is_asked_for_the_right_numbers(options, monkeypatch):
    monkeypatch.setattr(flex, "step_by_step", in_loops)
    same(options, heads(5, 5, kv_heads=KV_HEADS))


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


def test_any_number_of_batch_axes():
    batch = (2, 3)
    gates = ours.tiled_forgetting_bias(-drawn(7, *batch, HEADS, N).square())
    seen = drawn(5, *batch, 1, N, N) > 0
    same({"bias": [gates, drawn(8, 3, 1, N, N)], "mask": seen}, heads(batch=batch))
    query, key, value = (x[0, 0] for x in heads())
    same({"causal": True, "bias": drawn(8, N, N)}, (query, key, value))


@pytest.mark.parametrize("bias", ["T5", "a function"])
def test_tokens_stand_where_they_are_said_to(bias):
    one = torch.arange(100, 100 + N)
    each = torch.stack([one, one.flip(0)])
    options = {"bias": BIASES[bias], "mask": ours.Window(5)}
    same(options | {"query_positions": one, "key_positions": one + 3})
    same(options | {"query_positions": each, "key_positions": one})


def test_a_row_of_distances_gives_what_each_pair_does():
    where = {
        "query_positions": torch.arange(N, dtype=torch.uint8) + 30,
        "key_positions": torch.arange(N, dtype=torch.uint8) + 40,
    }
    longer = functools.partial(flex.attention, length=40)
    same({"bias": BIASES["T5"], **where}, attend=longer)


def test_a_distance_beyond_the_row_is_not_guessed():
    where = {"query_positions": torch.arange(N) + 100, "key_positions": torch.arange(N)}
    with torch.no_grad():
        got = flex.attention(*heads(), bias=BIASES["T5"], length=101, **where)
    assert not got[..., 0, :].isnan().all()
    assert got[..., -1, :].isnan().all()


def test_what_is_hidden_may_hold_anything():
    query, key, value = heads()
    want = same({"mask": LENGTHS}, (query, key, value))
    key[0, :, -3:], value[0, :, -3:], value[1] = math.nan, math.inf, math.nan
    assert same({"mask": LENGTHS}, (query, key, value)).equal(want)


@pytest.mark.parametrize(("n_q", "n_k"), [(0, 4), (4, 0)])
def test_of_nothing_comes_nothing(n_q, n_k):
    assert same({"causal": True, "bias": ours.ALiBi(HEADS)}, heads(n_q, n_k)).sum() == 0


@pytest.mark.parametrize("sinks", [None, torch.tensor([0.5, -1.0, -math.inf, 2.0])])
def test_sinks_and_a_soft_cap(sinks):
    options = {"sinks": sinks, "soft_cap": 0.5, "bias": ours.ALiBi(HEADS)}
    same(options | {"causal": True}, heads(kv_heads=KV_HEADS))
    same({"sinks": sinks, "mask": LENGTHS})


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
        {"bias": BIASES["T5"], "mask": LENGTHS, "sinks": torch.ones(HEADS)},
        {"bias": BIASES["T5"], "mask": MASKS["nothing"][0], "sinks": torch.ones(HEADS)},
        {
            "bias": BIASES["T5"],
            "length": 2 * N,
            "query_positions": torch.arange(N - 3, 2 * N - 3),
        },
    ],
    ids=["T5", "sinks", "only sinks seen", "positions"],
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
    ("options", "text"),
    [
        ({"bias": ours.StickBreaking()}, "^bias must .* got StickBreaking, which reads"),
        ({"dropout_rate": 0.5, "rng": 7}, "^dropout_rate must be 0 with FlexAttention"),
        ({"bias": ours.ALiBi(3)}, "^bias must have a shape"),
        (
            {"bias": BIASES["FIRE"], "compiled": True},
            "^bias must be an array or depend only",
        ),
        ({"mask": lambda q, k: q}, "^mask must be"),
    ],
)
def test_what_it_cannot_do_is_refused(options, text):
    with torch.no_grad(), pytest.raises((TypeError, ValueError), match=text):
        flex.attention(*heads(), **options)


def test_what_learns_must_be_read_by_distance(monkeypatch):
    with pytest.raises(ValueError, match="must need no gradients on the CPU"):
        flex.attention(*heads(), bias=BIASES["T5"])
    monkeypatch.setattr(flex, "trains", lambda device: True)
    with pytest.raises(ValueError, match=r"or the bias learns, got FIRE\("):
        flex.attention(*heads(), bias=BIASES["FIRE"])


def test_what_makes_the_functions_is_checked():
    with pytest.raises(TypeError, match="got CoPE, which reads queries and keys"):
        flex.score_mod(ours.CoPE(4, WIDTH))
    with pytest.raises(ValueError, match="query_offset must be 0 where query_positions"):
        flex.mask_mod(ours.Window(3), query_offset=2, query_positions=torch.arange(3))
