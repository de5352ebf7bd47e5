"""The decoder: what it computes in every column, step by step, with padding, and in training."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from posattn import jax as jax_column
from posattn import reference
from posattn import torch as torch_column
from tests.conftest import (
    BOUND,
    COLUMNS,
    REFERENCE,
    assert_close,
    assert_twin_agrees,
    draw,
    error,
)

VOCABULARY, DIM, LAYERS, HEADS = 11, 8, 2, 4
SIZES = VOCABULARY, DIM, LAYERS, HEADS
TOKENS = np.random.default_rng(7).integers(0, VOCABULARY, (2, 6))


def alternating(column):
    return lambda index: {"mask": column.Window(3)} if index else None


CASES = {
    "plain": lambda c: {},
    "rotary, grouped": lambda c: {"rotate": c.Rotary(), "num_kv_heads": 2, "head_dim": 4},
    "ALiBi, not gated": lambda c: {"bias": c.ALiBi(HEADS), "gated": False},
    "GPT-2": lambda c: {
        "gated": False,
        "norm": "layer",
        "use_bias": True,
        "encoding": learned(c),
    },
    "sinusoids, untied": lambda c: {"encoding": c.PositionalEncoding(DIM), "tied": False},
    "windows": lambda c: {"rotate": c.Rotary(), "layer_options": alternating(c)},
}
every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)
in_frameworks = pytest.mark.parametrize("column", COLUMNS[1:], ids=str, indirect=True)


HOLD_ARRAYS = {
    *("Decoder", "Block", "FeedForward", "Norm"),
    *("MultiHeadAttention", "LearnedPositionalEncoding"),
    *("DeltaAttention", "LatentAttention"),
}


def few(*names):
    return pytest.mark.parametrize("case", [CASES[name] for name in names], ids=names)


def learned(column):
    table = draw(5, 9, DIM)
    if column.name != "torch":
        return column.LearnedPositionalEncoding(column.array(table))
    encoding = column.LearnedPositionalEncoding(
        *table.shape, dtype=column.array(table).dtype
    )
    encoding.load_state_dict({"table": torch.tensor(table)})
    return encoding


def others(column):
    """A layer that keeps a state, and one of latent vectors."""
    sizes = {"kv_rank": 4, "content_dim": 2, "rotary_dim": 2, "rotate": column.Rotary()}
    kinds = (
        (column.DeltaAttention, {"key_dim": 2, "num_key_heads": 2}),
        (
            column.LatentAttention,
            sizes,
        ),
    )
    if column.name == "torch":
        more = {"dtype": getattr(torch, column.dtype)}
        layers = [kind(DIM, HEADS, **options, **more) for kind, options in kinds]
    else:
        rng = column.rng()
        layers = [kind.init(rng, DIM, HEADS, **options) for kind, options in kinds]
    return {"layer_options": layers.__getitem__}


def source(case):
    """The reference's decoder, with norms and offsets that are not 1 and 0."""
    made = reference.Decoder.init(np.random.default_rng(0), *SIZES, **case(REFERENCE))
    seeds = iter(range(100, 200))

    def moved(part):
        if isinstance(part, np.ndarray):
            return part + draw(next(seeds), *part.shape) / 4
        return part

    return mapped(moved, made)


def mapped(change, part):
    """The same tree of layers with other arrays."""
    if isinstance(part, tuple) and all(map(dataclasses.is_dataclass, part)):
        return tuple(mapped(change, each) for each in part)
    if type(part).__name__ in HOLD_ARRAYS:
        held = {f.name: getattr(part, f.name) for f in dataclasses.fields(part) if f.init}
        return dataclasses.replace(
            part, **{name: mapped(change, value) for name, value in held.items()}
        )
    return change(part)


def decoder_of(column, case):
    """A decoder with the numbers of the reference's."""
    numbers = source(case)
    if column.name == "reference":
        return numbers
    if column.name == "jax":
        made = column.Decoder.init(column.rng(), *SIZES, **case(column), dtype=column.dtype)
        arrays = iter(arrays_of(numbers))
        return mapped(
            lambda part: (
                column.array(next(arrays)) if isinstance(part, jax.Array) else part
            ),
            made,
        )
    made = column.Decoder(*SIZES, **case(column), dtype=getattr(torch, column.dtype))
    made.load_state_dict(
        {name: torch.tensor(x) for name, x in state_of(numbers).items()}, strict=True
    )
    return made


def arrays_of(numbers):
    found = []

    def keep(part):
        if isinstance(part, np.ndarray):
            found.append(part)
        return part

    mapped(keep, numbers)
    return found


def state_of(numbers):
    """The reference's arrays under PyTorch's names."""
    found = {"embedding.weight": numbers.embedding}
    if numbers.head is not None:
        found["head.weight"] = numbers.head.T
    if isinstance(numbers.encoding, reference.LearnedPositionalEncoding):
        found["encoding.table"] = numbers.encoding.table
    parts = {"norm": numbers.norm}
    for index, block in enumerate(numbers.blocks):
        for name in ("attention", "feed_forward", "attention_norm", "feed_forward_norm"):
            parts[f"blocks.{index}.{name}"] = getattr(block, name)
    for name, part in parts.items():
        for field in dataclasses.fields(part):
            value = getattr(part, field.name)
            if isinstance(value, np.ndarray):
                role = field.name.replace("_weight", ".weight").replace("_bias", ".bias")
                vector = value.ndim == 1 and hasattr(part, "taps")  # not of another module
                role, value = (
                    (field.name, value.T) if vector or role == "taps" else (role, value)
                )
                found[f"{name}.{role}"] = value.T
    return found


def given(column, x):
    return column.positions(np.asarray(x))


@every_case
def test_it_is_embedding_blocks_norm_and_head(case):
    """The definition, written once more with the layer and NumPy."""
    decoder = source(case)
    x = decoder.embedding[TOKENS]
    x = x if decoder.encoding is None else decoder.encoding(x)
    for block in decoder.blocks:
        x = x + block.attention(normed(block.attention_norm, x), causal=True)
        x = x + fed(block.feed_forward, normed(block.feed_forward_norm, x))
    head = decoder.embedding.T if decoder.head is None else decoder.head
    want = normed(decoder.norm, x) @ head
    assert error(decoder(TOKENS), want) <= 1e-13


def normed(norm, x):
    if norm.bias is None:
        return norm.weight * x / np.sqrt(np.mean(x**2, -1, keepdims=True) + 1e-6)
    centered = x - np.mean(x, -1, keepdims=True)
    spread = np.sqrt(np.var(x, -1, keepdims=True) + 1e-6)
    return norm.weight * centered / spread + norm.bias


def fed(network, x):
    up = x @ network.up_weight + (0 if network.up_bias is None else network.up_bias)
    if network.gate_weight is not None:
        gate = x @ network.gate_weight
        hidden = up * gate / (1 + np.exp(-gate))
    else:
        hidden = torch.nn.functional.gelu(torch.tensor(up), approximate="tanh").numpy()
    return hidden @ network.down_weight + (
        0 if network.down_bias is None else network.down_bias
    )


@in_frameworks
@few("rotary, grouped", "GPT-2", "sinusoids, untied", "windows")
def test_columns_agree(column, case):
    decoder = decoder_of(column, case)
    tokens = given(column, TOKENS)
    assert_close(column, decoder(tokens), source(case)(TOKENS))
    found = decoder.attention_weights(tokens)
    assert len(found) == LAYERS
    for got, want in zip(found, source(case).attention_weights(TOKENS), strict=True):
        assert got.shape == (2, HEADS, 6, 6)
        assert_close(column, got, want)


@in_frameworks
def test_layers_of_other_kinds_agree(column):
    decoder, want = decoder_of(column, others), source(others)
    positions = np.array([[-2, -1, 0, 1, 2, 3], [0, 1, 2, 3, 4, 5]])
    for named in ({}, {"documents": [0, 0, 1, 1, 1, 2]}, {"positions": positions}):
        got = decoder(
            given(column, TOKENS), **{k: given(column, x) for k, x in named.items()}
        )
        there = np.asarray(named.get("positions", 0 * positions)) >= 0
        named = {name: np.asarray(x) for name, x in named.items()}
        assert_close(column, got[there], want(TOKENS, **named)[there])
    cache, parts = want.init_cache((2,), 6), []
    for part in np.split(TOKENS, [3, 4], axis=1):
        found, cache = want(part, cache=cache)
        parts.append(found)
    assert error(np.concatenate(parts, 1), want(TOKENS)) <= 1e-12
    assert want.attention_weights(TOKENS)[0] is None


@in_frameworks
def test_gradients_of_embedding_and_head_agree(column):
    case = CASES["rotary, grouped"]

    def logits(column, embedding):
        decoder = decoder_of(column, case)
        tokens = given(column, TOKENS)
        if column.name == "torch":
            state = {"embedding.weight": embedding}
            return torch.func.functional_call(decoder, state, (tokens,))
        return dataclasses.replace(decoder, embedding=embedding)(tokens)

    assert_twin_agrees(column, logits, source(case).embedding)


@few("GPT-2", "windows")
def test_steps_with_a_cache_are_the_whole(column, case):
    decoder, tokens = decoder_of(column, case), given(column, TOKENS)
    whole = column.numpy(decoder(tokens))
    cache, parts = decoder.init_cache((2,), 8), []
    for start, end in [(0, 3), (3, 4), (4, 6)]:
        logits, cache = decoder(tokens[:, start:end], cache=cache)
        parts.append(column.numpy(logits))
    assert error(np.concatenate(parts, axis=1), whole) <= 1e-12


def padded_by_two():
    positions = np.broadcast_to(np.arange(-2, 6), (2, 8))
    return np.pad(TOKENS, [(0, 0), (2, 0)]), positions


def test_left_padding_with_positions_changes_nothing(column):
    decoder = decoder_of(column, CASES["GPT-2"])
    tokens, positions = (given(column, x) for x in padded_by_two())
    want = column.numpy(decoder(given(column, TOKENS)))
    got = decoder(tokens, positions=positions)
    assert error(column.numpy(got)[:, 2:], want) <= 1e-12
    cache = decoder.init_cache((2,), 8)
    got, _ = decoder(tokens, positions=positions, cache=cache)
    assert error(column.numpy(got)[:, 2:], want) <= 1e-12


@few("windows")
def test_generated_tokens_are_the_likeliest(column, case):
    decoder = decoder_of(column, case)
    text = column.numpy(decoder.generate(given(column, TOKENS[:, :4]), 3))
    assert np.array_equal(text[:, :4], TOKENS[:, :4])
    for n in (4, 5, 6):
        logits = column.numpy(decoder(given(column, text[:, :n])))
        assert np.array_equal(text[:, n], logits[:, -1].argmax(-1))


def test_texts_of_different_lengths_go_on(column):
    decoder = decoder_of(column, CASES["GPT-2"])
    positions = given(column, [np.arange(-3, 3), np.arange(6)])
    text = column.numpy(decoder.generate(given(column, TOKENS), 2, positions=positions))
    alone = column.numpy(decoder.generate(given(column, TOKENS[0, 3:]), 2))
    assert np.array_equal(text[0, 3:], alone)


def test_tokens_are_drawn_from_the_softmax(column):
    decoder = decoder_of(column, CASES["plain"])
    many = given(column, np.broadcast_to(TOKENS[0, :2], (2000, 2)))
    drawn = decoder.generate(many, 1, temperature=2.0, rng=column.rng(3))
    counts = np.bincount(column.numpy(drawn)[:, 2], minlength=VOCABULARY) / 2000
    logits = column.numpy(decoder(many[0]))[-1] / 2
    wanted = np.exp(logits) / np.exp(logits).sum()
    assert np.abs(counts - wanted).max() < 0.04
    again = decoder.generate(many, 1, temperature=2.0, rng=column.rng(3))
    assert np.array_equal(column.numpy(drawn), column.numpy(again))
    other = decoder.generate(many, 2, temperature=2.0, rng=column.rng(4))
    assert (column.numpy(other)[:, 2] != column.numpy(drawn)[:, 2]).any()
    assert (column.numpy(other)[:, 2] == column.numpy(other)[:, 3]).mean() < 0.2  # 1 in 11


def test_a_text_that_has_ended_repeats_its_end(column):
    decoder, drawn = decoder_of(column, CASES["plain"]), {"temperature": 2.0}
    tokens = given(column, TOKENS[:, :3])
    free = column.numpy(decoder.generate(tokens, 6, **drawn, rng=column.rng(3)))
    for ends in ([int(free[0, 4])], [int(free[1, 3]), int(free[0, 5])]):
        want = free.copy()
        for row in want:
            first = next((i for i in range(3, 9) if row[i] in ends), 8)
            row[first:] = row[first]
        token = ends[0] if len(ends) == 1 else ends
        got = decoder.generate(tokens, 6, **drawn, eos_token_id=token, rng=column.rng(3))
        assert np.array_equal(column.numpy(got), want)
        assert (want != free).any()


def test_logits_are_capped_and_embeddings_scaled():
    """What models need that the constructor doesn't offer is there for `from_config`."""
    numbers = decoder_of(REFERENCE, CASES["plain"])
    norm = numbers.blocks[0].attention_norm
    options = {"logit_cap": 0.5, "embedding_scale": 3.0, "embedding_norm": norm}
    numbers = dataclasses.replace(numbers, **options)
    x = normed(norm, 3 * numbers.embedding[TOKENS])
    for block in numbers.blocks:
        x, _ = block(x)
    logits = normed(numbers.norm, x) @ numbers.embedding.T
    assert error(numbers(TOKENS), 0.5 * np.tanh(logits / 0.5)) <= 1e-13


@in_frameworks
def test_each_layer_learns_its_own_bias(column):
    if column.name == "torch":
        bias = column.T5Bias(HEADS, dtype=torch.float64)
        decoder = column.Decoder(*SIZES, bias=bias, dtype=torch.float64)
        assert len(list(decoder.parameters())) == len(set(decoder.parameters()))
    else:
        bias = column.T5Bias.init(column.rng(), HEADS)
        decoder = column.Decoder.init(column.rng(), *SIZES, bias=bias)
    tables = [block.attention.bias.table for block in decoder.blocks]
    assert tables[0] is not tables[1] or column.name == "jax"
    assert np.array_equal(column.numpy(tables[0]), column.numpy(tables[1]))


def make(column, *sizes, **options):
    sizes = sizes or SIZES
    if column.name == "torch":
        return column.Decoder(*sizes, **options, dtype=torch.float64, rng=column.rng())
    return column.Decoder.init(column.rng(), *sizes, **options)


@pytest.mark.parametrize(
    ("gated", "dim", "hidden"), [(True, 8, 21), (False, 8, 32), (True, 1, 2)]
)
def test_the_hidden_width_follows_from_the_width(column, gated, dim, hidden):
    decoder = make(column, 3, dim, 1, 1, gated=gated)
    network = decoder.blocks[0].feed_forward
    weight = network.up.weight.mT if column.name == "torch" else network.up_weight
    assert tuple(weight.shape) == (dim, hidden)


def one_layer(decoder, column, **options):
    return decoder.blocks[0].attention(column.array(draw(1, 2, 6, DIM)), **options)


BAD_CALLS = [
    (lambda d, c, t: d([1, 2]), "tokens must be an array, got list"),
    (lambda d, c, t: d(c.array(draw(1, 3))), "tokens must have an integer dtype, got float64"),
    (lambda d, c, t: d(given(c, 3)), "tokens must have shape (*batch, n), got ()"),
    (lambda d, c, t: d(t + 20), "tokens must lie between 0 and vocab_size - 1 = 10, got "),
    (lambda d, c, t: d(t - 20), "tokens must lie between 0 and vocab_size - 1 = 10, got "),
    (lambda d, c, t: d(t, positions=given(c, [0, 1])), "positions must have shape (6,) or (2, 6)"),
    (lambda d, c, t: d(t, mask=c.array(np.ones((3, 6), bool))), "mask must have a shape that"),
    (lambda d, c, t: d(t, cache=d.init_cache((2,), 6)[:1]), "cache must hold a cache for each of 2"),
    (lambda d, c, t: d(t, cache=d.init_cache(3, 6)), "tokens must have the batch axes (3,) of the"),
    (lambda d, c, t: one_layer(d, c, cache=d.init_cache(3, 6)[0]), "query must have the batch axes (3,) of"),
    (lambda d, c, t: d(t, attention_mask=t), "attention_mask is unknown here: give mask, bool, of shape"),
    (lambda d, c, t: one_layer(d, c, attention_mask=t), "attention_mask is unknown here: give mask, bool"),
    (lambda d, c, t: d.generate(t, 2, attention_mask=t), "attention_mask is unknown here: give mask, bool"),
    (lambda d, c, t: d.generate(t, 2, eos_token_id=11), "eos_token_id must lie between 0 and vocab_size - 1"),
    (lambda d, c, t: d.attention_weights(t + 20), "tokens must lie between 0 and vocab_size - 1"),
    (lambda d, c, t: d.generate(t, 0), "max_new_tokens must be a positive integer, got 0"),
    (lambda d, c, t: d.generate(t[:, :0], 2), "tokens must hold at least one to go on from"),
    (lambda d, c, t: d.generate(t, 2, temperature=-1.0), "temperature must be a finite number of at"),
    (lambda d, c, t: d.generate(t, 2, temperature=0.5), "rng must be given where temperature = 0.5"),
    (lambda d, c, t: d.generate(t, 2, temperature=0.5, rng="seed"), "rng must be a "),
]  # fmt: skip


@pytest.mark.usefixtures("unchecked")
def test_wrong_calls_are_refused(column):
    decoder, tokens = make(column), given(column, TOKENS)
    for call, text in BAD_CALLS:
        with pytest.raises((TypeError, ValueError)) as caught:
            call(decoder, column, tokens)
        assert str(caught.value).startswith(text)


def test_dropout_draws_for_each_layer(column):
    drawn = []

    def spy(*heads, rng=None, **options):
        drawn.append(str(rng))
        return column.scaled_dot_product_attention(*heads, rng=rng, **options)

    decoder = make(column, layer_options={"dropout_rate": 0.5, "attention": spy})
    tokens = given(column, TOKENS)
    seeds = [column.rng(1), column.rng(1), column.rng(2), None]
    if column.name == "torch":
        decoder.eval()
        seeds = [1, 1, 2, None]
    at = {"positions": given(column, np.arange(TOKENS.shape[-1]))}
    outs = (column.numpy(decoder(tokens, rng=rng, **at)) for rng in seeds)
    one, again, other, none = outs
    assert column.name == "reference" or len({*drawn}) == 5  # and None
    assert np.array_equal(one, again)
    assert (one != other).any()
    assert (one != none).any()


def test_jax_says_so_where_it_cannot_raise(jax_single):
    decoder = jax_single.Decoder.init(jax_single.rng(), *SIZES)
    out = jax.jit(decoder)(jnp.array([[1, 2, -1], [3, 11, 4], [5, 6, 7]]))
    assert np.array_equal(np.isnan(out).all((1, 2)), [True, True, False])


def test_torch_is_made_without_memory_and_filled_later():
    made = torch_column.Decoder(*SIZES, norm="layer", tied=False, device="meta")
    assert made(torch.zeros(2, 3, dtype=torch.int64, device="meta")).shape == (2, 3, 11)
    made.to_empty(device="cpu").reset_parameters(torch.Generator().manual_seed(0))
    rng = torch.Generator().manual_seed(0)
    fresh = torch_column.Decoder(*SIZES, norm="layer", tied=False, rng=rng)
    for name, want in fresh.state_dict().items():
        assert torch.equal(made.state_dict()[name], want), name


def test_half_precision_stays():
    dtype = "bfloat16"
    made = torch_column.Decoder(
        *SIZES, rotate=torch_column.Rotary(), dtype=getattr(torch, dtype)
    )
    assert made(torch.tensor(TOKENS)).dtype == getattr(torch, dtype)
    made = jax_column.Decoder.init(
        jax.random.key(0), *SIZES, rotate=jax_column.Rotary(), norm="layer", dtype=dtype
    )
    assert made(jnp.asarray(TOKENS)).dtype == dtype


def test_low_precision_is_near(twin):
    decoder = decoder_of(twin, CASES["rotary, grouped"])
    want = source(CASES["rotary, grouped"])(TOKENS)
    assert error(twin.numpy(decoder(given(twin, TOKENS))), want) <= 4 * BOUND[twin.dtype]
