"""From config.json to a layer."""

import json

import numpy as np
import pytest
import torch

from posattn.configs import plan
from posattn.jax import MultiHeadAttention as JaxLayer
from posattn.reference import (
    Window,
    attention_weights,
    llama3,
    rotate,
    scaled_dot_product_attention,
    yarn,
)
from posattn.torch import MultiHeadAttention as TorchLayer
from posattn.torch import Rotary, rope_from_config
from tests.pages.reading import DOCS

RECORDS = DOCS / "_records" / "configs"
RNG = np.random.default_rng(7)


def record(name):
    """What a real configuration says of the text model."""
    found = json.loads((RECORDS / f"{name}.json").read_text("utf-8"))
    return found.get("text_config", found)


def percent(page, name):
    """How far a mistake of the sorted list moves the output, in percent as printed."""
    (line,) = {line for line in page.printed.splitlines() if line.startswith(name + "  ")}
    return int(line.split()[-1].rstrip("%"))


def off(wrong, right):
    """The relative error."""
    return np.linalg.norm(wrong - right) / np.linalg.norm(right)


def test_one_key_read_wrongly(page):
    """After 16 tokens the output is off by 18%, which a quick test may not notice, and after 256 tokens it
    is off by 54%.

    Measured this way, the wrong base has done about half as much damage as throwing the queries and keys
    away.
    """
    assert " 16 tokens: the output is off by 18%\n" in page.printed
    assert "256 tokens: the output is off by 54%\n" in page.printed
    assert "256 tokens, unrelated queries and keys: off by 104%\n" in page.printed
    assert 0.5 < 54 / 104 < 0.55


def test_why_the_error_grows(page):
    r"""It should be rotated by $500000^{-16/64} = 0.038$ radians per token, and with base 10000 it is
    rotated by $10000^{-16/64} = 0.1$. Between neighbors this is a difference of $0.1 - 0.038 = 0.062$
    radians, too little to matter. At offset 50 it is $50 \cdot 0.062 = 3.1$ radians, half a turn, so
    whatever this pair should have added to the score is now subtracted from it.
    """
    right, wrong = (Rotary(layout="half", base=base) for base in (5e5, 1e4))
    speeds = [5e5 ** (-16 / 64), 1e4 ** (-16 / 64)]
    assert np.allclose(speeds, [0.038, 0.1], atol=5e-4)
    pair = torch.zeros(1, 128)
    pair[0, [16, 80]] = 1.0  # pair 16 of a head of dimension 128
    scores = {}
    for offset in (1, 50):
        scores[offset] = [
            (pair @ rope(pair, torch.tensor([offset])).T).item() for rope in (right, wrong)
        ]
    assert np.isclose(*scores[1], rtol=0.01)
    assert np.isclose(scores[50][0], -scores[50][1], rtol=0.1)


def test_the_yardstick(page):
    r"""So a head that attends at random is off by 103%, about as much as the layer at the beginning. Two
    outputs of equal length at a right angle would be $\sqrt{2}$ apart, or 141%, but these two average the
    same values, so they still agree in part.
    """
    plain, unrelated = page.torch.plain, page.torch.unrelated
    lengths = np.linalg.norm(plain), np.linalg.norm(unrelated)
    assert 0.3 < (plain * unrelated).sum() / np.prod(lengths) < 0.6
    assert round(100 * np.sqrt(2)) == 141
    assert "attending at random: 103%\n" in page.printed
    assert percent(page, "attending at random") == 103


def test_the_configuration_is_the_recorded_one(page):
    """This is the configuration of Gemma 3 with 12 billion parameters {cite:p}`gemma2025gemma3`, or rather
    the part of it that attention reads.
    """
    known = record("gemma-3")
    same = {"rope_scaling": page.torch.gemma3["rope_scaling"]}
    assert known.pop("rope_scaling") == same["rope_scaling"]
    assert known | same == page.torch.gemma3


def test_the_plan_as_it_is_read(page):
    """Five layers in six are local, and every sixth one is full: 5, 11, 17 and so on.

    In a local layer it sees 1024 positions, including its own. In a full layer it sees everything up to
    itself.

    Local layers have base 10000, and full layers have base 1000000. Both pair each entry in the first half
    of a head with one in the second half

    Only the full layers are slowed down by 8.

    Queries and keys are normalized before their product. No key of the file mentions these norms.

    16 query heads share 8 key-value heads.
    """
    layers = plan(page.torch.gemma3).layers
    full = [layer for layer in layers if layer.kind == "full"]
    local = [layer for layer in layers if layer.kind == "sliding"]
    assert [layer.index for layer in full] == list(range(5, 48, 6))
    assert len(local) + len(full) == 48
    for layer in local:
        assert (layer.window, layer.rope.base, layer.rope.method) == (
            1024,
            10000,
            "default",
        )
    for layer in full:
        assert (layer.window, layer.rope.base) == (None, 1000000)
        assert dict(layer.rope.numbers) == {"factor": 8.0}
    for layer in layers:
        assert layer.rope.layout == "half"
        assert not layer.query_norm.after
        assert (layer.num_heads, layer.num_kv_heads) == (16, 8)
    assert not [key for key in page.torch.gemma3 if "q_norm" in key or "qk" in key]
    seen = scaled_dot_product_attention(
        np.zeros((6, 1)), np.zeros((6, 1)), np.ones((6, 1)), causal=True, mask=Window(3)
    )
    assert np.allclose(seen, 1)
    weights = attention_weights(
        np.zeros((6, 1)), np.zeros((6, 1)), causal=True, mask=Window(3)
    )
    assert (weights[5] > 0).sum() == 3


def test_bases_suit_what_layers_see(page):
    """A local layer can see 1024 tokens, and a full one 131072.

    A full layer sees 128 times as far, so with the same base its line would be 128 times as high. But its
    base is larger and its pairs are slowed down by 8, so both lines drop below one turn at nearly the same
    pair. In a local layer … pairs complete a turn, and in a full layer … do.

    Both cross the flat line of one turn near pair 71.

    With the base of the full layers, only … pairs of a local layer would complete a turn.

    In a context of 131072 tokens, the KV caches of all 48 layers hold … of the keys that 48 full layers
    would hold.
    """
    layers = plan(page.torch.gemma3).layers
    counts = []
    for layer, seen in ((layers[0], 1024), (layers[5], 131072)):
        counts.append(sum(seen * w > 2 * np.pi for w in layer.rope.frequencies))
    assert counts == [page.glued["turned_local"], page.glued["turned_full"]] == [71, 73]
    swapped = sum(1024 * 1e6 ** (-j / 128) > 2 * np.pi for j in range(128))
    assert page.glued["turned_swapped"] == swapped == 48
    assert 131072 / 1024 == 128
    turns = page.torch.in_sight
    assert set(turns["one turn"]) == {1}
    assert [abs((turns[name] > 1).sum() - 71) < 3 for name in ("local", "full")] == [
        True
    ] * 2
    assert np.isclose(turns["full"][0] / turns["local"][0], 128 / 8)
    kept = sum(min(layer.window or 131072, 131072) for layer in layers)
    assert np.isclose(page.glued["kept"], kept / 48 / 131072)


@pytest.mark.parametrize(
    ("name", "has", "key"),
    [
        ("llama-3.1", lambda layer: layer.rope.method == "llama3", "rope_scaling"),
        ("gpt-oss", lambda layer: layer.rope.method == "yarn", "rope_scaling"),
        ("gpt-neox", lambda layer: layer.rope.rotary_dim < layer.head_dim, "rotary_pct"),
        (
            "phi-4-mini",
            lambda layer: layer.rope.rotary_dim < layer.head_dim,
            "partial_rotary_factor",
        ),
        ("gemma-2", lambda layer: layer.soft_cap == 50, "attn_logit_softcapping"),
        ("gemma-2", lambda layer: layer.kind == "sliding", "sliding_window"),
        ("mistral-0.1", lambda layer: layer.kind == "sliding", "sliding_window"),
        ("gpt-oss", lambda layer: layer.kind == "sliding", "sliding_window"),
        ("gpt-oss", lambda layer: layer.rope.attention_factor > 1.3, None),
        ("qwen3", lambda layer: layer.query_norm is not None, None),
        ("gemma-3", lambda layer: layer.query_norm.plus_one, None),
        ("olmo-2", lambda layer: layer.query_norm.axes == "width", None),
        ("gpt-oss", lambda layer: layer.sinks, None),
        ("deepseek-v4-flash", lambda layer: layer.sinks, None),
    ],
)
def test_where_it_is_written(page, name, has, key):
    """Half of what attention needs has a key in the file.

    | what | where it is written | who has it |
    """
    config = record(name)
    assert has(plan(config).layers[0])
    if key is None:
        words = ("attention_factor", "norm_w", "q_norm", "qk_norm", "plus", "sinks")
        text = json.dumps(config)
        assert not [word for word in words if word in text]
    else:
        assert config[key] is not None


def test_who_else_has_it(page):
    """| layers without rotation | no_rope_layers, or a pattern | SmolLM3, Llama 4, Cohere 2 |

    | 1 added to a norm's weight | nowhere | Gemma, Qwen3-Next |

    | gate on the output | attn_output_gate, or nowhere | Qwen3.5, Qwen3-Next |

    | which entries form a pair | usually nowhere, sometimes rope_interleave | every rotary model |

    | norms of queries and keys | usually nowhere, sometimes use_qk_norm | Qwen3, Gemma 3, OLMo 2 |
    """
    for written, layout in ((True, "interleaved"), (False, "half")):
        config = record("deepseek-v3") | {"rope_interleave": written}
        assert plan(config).layers[0].rope.layout == layout
        normed = plan(record("command-r") | {"use_qk_norm": written}).layers[0]
        assert (normed.query_norm is not None) == written
    for name in ("smollm3", "llama-4-scout", "cohere-2"):
        assert {layer.rope is None for layer in plan(record(name)).layers} == {True, False}
    for name in ("qwen3.5", "qwen3-next"):
        layer = plan(record(name)).layers[3]
        assert layer.gate
        assert layer.query_norm.plus_one
    assert record("qwen3.5")["attn_output_gate"]
    assert "gate" not in json.dumps(record("qwen3-next"))


def test_half_of_it_has_a_key(page):
    """Half of what attention needs has a key in the file. The other half has none: it comes with the name of
    the family, and you have to know it or read the family's code.
    """
    table = page.text.partition("| what | where it is written |")[2].partition("```")[0]
    places = [row.split("|")[2] for row in table.splitlines()[2:]]
    assert 2 * sum("nowhere" in place for place in places) == len(places)


def test_a_head_by_hand(page):
    """Four of these facts change what happens between the scores and the output, and a head with all four
    takes only a few lines.
    """
    assert "difference from the library: 0.000000\n" in page.printed


def test_wrong_rotations(page):
    """A wrong rotation takes the output half to three quarters of the way to attending at random."""
    for name in (
        "base of the other kind of layer",
        "scaling left out",
        "the other meaning of a quarter",
        "a layer without positions, rotated",
    ):
        assert 0.45 < percent(page, name) / percent(page, "attending at random") < 0.6
    layout = percent(page, "the other layout of pairs")
    assert 0.6 < layout / percent(page, "attending at random") < 0.76


def test_the_layout_of_pairs(page):
    """Gemma 3, Llama and Qwen3 pair entry $j$ of a head of dimension $d$ with entry $j + d/2$, while Command
    R pairs neighbors ({ref}`sec_pair-layout`).

    Every entry gets another partner, and nearly every one another speed, which makes this the worst of our
    wrong rotations.
    """
    names = {"gemma-3": "half", "llama-3.1": "half", "qwen3": "half"}
    for name, layout in (names | {"command-r": "interleaved"}).items():
        assert plan(record(name)).layers[0].rope.layout == layout
    j = np.arange(64)
    assert ((j + 32) % 64 != j ^ 1).all()
    assert (j % 32 == j // 2).sum() == 2
    assert percent(page, "the other layout of pairs") > percent(
        page, "a layer without positions, rotated"
    )


def test_two_meanings_of_a_quarter(page):
    """With a quarter of our 64 entries, both rotate 16 of them. The first meaning rotates entries 0 to 15 as
    if they were a head of their own, in which entry 0 is paired with entry 8. The second keeps the pairs of
    the whole head, where entry 0 is paired with entry 32, and rotates the 8 fastest of its 32 pairs.
    """
    one = np.zeros((1, 64))
    one[0, 0] = 1.0
    for speeds, partner in ((page.torch.first_speeds, 8), (page.torch.pair_speeds, 32)):
        moved = {"frequencies": speeds, "layout": "half"}
        everywhere = rotate(np.ones((1, 64)), np.array([1]), **moved)[0]
        assert (everywhere != 1).sum() == 16
        alone = rotate(one, np.array([1]), **moved)[0]
        assert np.flatnonzero(alone).tolist() == [0, partner]


def test_the_factor_that_yarn_implies(page):
    r"""gpt-oss extends its context by a factor of 32 with YaRN. Besides slowing pairs down, YaRN multiplies
    rotated queries and keys by an attention factor, and the file doesn't mention it. It follows from the 32,
    as $0.1 \ln 32 + 1 = 1.35$ ({ref}`sec_attention-factor`).

    The frequencies are right here, and only a factor of 1.35 is missing.
    """
    rope = plan(record("gpt-oss")).layers[0].rope
    speeds, factor = yarn(
        64, base=150000.0, factor=32.0, trained_length=4096, truncate=False
    )
    assert np.allclose(speeds, rope.frequencies)
    assert np.isclose(factor, rope.attention_factor)
    assert np.isclose(factor, 0.1 * np.log(32) + 1)
    assert "attention factor 1.35, so scores grow by 1.81\n" in page.printed


def test_layers_that_do_not_turn(page):
    """Every fourth layer of SmolLM3 gets no positions at all. The key for this is called no_rope_layers, and
    it is a trap: a 1 in this list marks a layer that is rotated.
    """
    rotated = [layer.rope is not None for layer in plan(record("smollm3")).layers]
    assert rotated == [(place + 1) % 4 != 0 for place in range(36)]
    found = plan(page.torch.smollm3).layers
    listed = page.torch.smollm3["no_rope_layers"]
    assert [layer.rope is not None for layer in found] == [bool(one) for one in listed]


def test_a_weight_and_its_one(page):
    """Gemma's checkpoints store the weight as its difference from 1, so that a stored 0.3 means 1.3. Suppose
    a normalized query has the entry 2.0. The layer should make it 2.6, and a loader that multiplies by the
    number in the file makes it 0.6. Files for llama.cpp already contain the sum, so there you can also add
    the 1 twice, which gives 4.6.

    Without the 1, both queries and keys shrink, so the scores nearly vanish and the head averages everything
    it sees. With a second 1, queries and keys are both about twice as large and the scores about four times
    as large, so that a single token often gets nearly half of the weight. That is further from the right
    output than attending at random, because an average of many random values is a short vector, while one
    that follows a single value is long.
    """
    assert np.allclose(2.0 * np.array([1 + 0.3, 0.3, 2 + 0.3]), [2.6, 0.6, 4.6])
    found = page.torch
    sizes, largest, lengths, heads = [], [], [], []
    for one in (0, 1, 2):
        turned_q = found.rope(found.unit_q * (one + found.stored_q))
        turned_k = found.rope(found.unit_k * (one + found.stored_k))
        sizes.append((turned_q @ turned_k.T / 8).std())
        largest.append(
            np.median(attention_weights(turned_q, turned_k, causal=True).max(axis=1))
        )
        heads.append(np.linalg.norm(turned_q))
        lengths.append(np.linalg.norm(found.attend(turned_q, turned_k, found.v)))
    assert 1.7 < heads[2] / heads[1] < 2.2
    assert lengths[0] < lengths[1] < lengths[2] / 2.5
    assert sizes[0] < 0.15
    assert 3 < sizes[2] / sizes[1] < 5
    assert 0.4 < largest[2] < 0.55
    assert percent(page, "1 added twice") > percent(page, "attending at random")


def test_norm_and_rotation(page):
    """Gemma 3, Qwen3 and OLMo 2 normalize first, and HunYuan's dense models rotate first. A learned weight
    and a rotation don't commute, because the weight stretches the two entries of a pair differently

    Llama 4 Scout rotates first too, but its norm has no weight, and a rotation doesn't change a vector's
    length, so there the order makes no difference.

    OLMo 2 normalizes all heads of a token together, while most others normalize each head by itself. The
    plan knows which, and you can see it in the checkpoint too: the norm has one weight for each entry of a
    single head, or one for each entry of all heads.
    """
    hunyuan = record("llama-3") | {"model_type": "hunyuan_v1_dense"}
    configs = {
        name: record(name) for name in ("gemma-3", "qwen3", "olmo-2", "llama-4-scout")
    }
    norms = {
        name: plan(config).layers[0].query_norm
        for name, config in (configs | {"hunyuan": hunyuan}).items()
    }
    late = {name for name, norm in norms.items() if norm.after}
    assert late == {"hunyuan", "llama-4-scout"}
    assert {name for name, norm in norms.items() if not norm.learned} == {"llama-4-scout"}
    assert plan(record("olmo-2")).layers[0].query_norm.axes == "width"
    assert plan(record("qwen3")).layers[0].query_norm.axes == "head"
    assert percent(page, "norm after the rotation") == 26
    x, weight = RNG.normal(size=(5, 8)), 1 + RNG.uniform(size=8)
    assert not np.allclose(rotate(weight * x), weight * rotate(x))
    size = np.sqrt((x**2).mean(axis=-1, keepdims=True))
    late_size = np.sqrt((rotate(x) ** 2).mean(axis=-1, keepdims=True))
    assert np.allclose(rotate(x / size), rotate(x) / late_size)


def test_the_scale(page):
    r"""In most sizes that number is the head dimension, but in Gemma 3 with 27 billion parameters it's 168,
    and the head dimension is 128. For our smaller head we keep the ratio: $64 \cdot 168 / 128 = 84$.

    The scores were too large by a factor of $\sqrt{168 / 128} = 1.15$, which moves the output by 12%.
    """
    assert 64 * 168 / 128 == 84
    assert percent(page, "query_pre_attn_scalar ignored") == 12


def test_the_soft_cap_by_hand(page):
    r"""a score $s$ becomes $c \tanh(s / c)$ with the cap $c = 50$. A score of 5 hardly changes, to 4.98,
    but a score of 40 becomes 33.2, and one of 80 becomes 46.1. Before, the last two were 40 apart, and now
    they are only 12.9 apart.

    With scores below 5 you'd never see it, and with scores up to 78 the output of this one head is off by
    12%.
    """
    few, some, many = 50 * np.tanh(np.array([5, 40, 80]) / 50)
    assert (round(few, 2), round(some, 1), round(many, 1)) == (4.98, 33.2, 46.1)
    assert round(many - some, 1) == 12.9
    assert "largest score  4.9: off by 0.1%\n" in page.printed
    assert "largest score 78.1: off by 12.5%\n" in page.printed


def test_the_window(page):
    """In configurations, a window counts the query's own position. With a window of 64, the query at
    position 100 sees positions 37 to 100. Some kernels ask instead for the number of positions to the left
    of the query, which is 63 here, so that passing them 64 makes the window one too large.

    The error of one position is small, 9%, but it occurs in every local layer, for every token after the
    first 64.
    """
    zeros = np.zeros((101, 1))
    sees = attention_weights(zeros, zeros, causal=True, mask=Window(64))[100] > 0
    assert np.flatnonzero(sees).tolist() == list(range(37, 101))
    assert percent(page, "window one too large") == 9
    torch_q = np.zeros((70, 1))
    for size, first in ((64, 64), (65, 65)):
        seen = (
            attention_weights(torch_q, torch_q, causal=True, mask=Window(size)) > 0
        ).sum(axis=1)
        assert seen.tolist() == [min(i + 1, size) for i in range(70)]
        assert first == size
    assert percent(page, "window one too large") < percent(page, "window left out")


def test_a_sink_by_hand(page):
    r"""Three keys have the score 0, so their exponentials are 1, 1 and 1, and each gets a weight of 1/3. Now
    add a sink of $\ln 3$, whose exponential is 3. The sum of the exponentials grows from 3 to 6, and each
    key gets 1/6. The output points in the same direction, but it is half as long.

    So the weights of the real keys sum to less than 1

    If you leave the sink out, the output is therefore twice as long as it should be.
    """
    zeros = np.zeros((3, 1))
    assert np.allclose(attention_weights(zeros, zeros), 1 / 3)
    assert np.allclose(attention_weights(zeros, zeros, sinks=np.array(np.log(3))), 1 / 6)


def test_eq_sink_error(page):
    r"""In general, with scores $s_j$ and a sink $a$, the right output divides by $\sum_j e^{s_j} + e^a$ and
    the wrong one by $\sum_j e^{s_j}$, with the same numerator. Their ratio is $1 + e^a / \sum_j e^{s_j}$, so
    the relative error is

    $$ \frac{|\text{wrong} - \text{right}|}{|\text{right}|} = \frac{e^a}{\sum_j e^{s_j}}. $$
    """
    q, k, v = RNG.normal(size=(3, 9, 4))
    for sink in (-1.0, 0.5, 3.0):
        right = scaled_dot_product_attention(q, k, v, sinks=np.array(sink))
        wrong = scaled_dot_product_attention(q, k, v)
        by_row = np.linalg.norm(wrong - right, axis=1) / np.linalg.norm(right, axis=1)
        assert np.allclose(by_row, np.exp(sink) / np.exp(q @ k.T / 2).sum(axis=1))


def test_errors_of_a_sink_with_a_window(page):
    """The first tokens suffer most, because they see the fewest keys. And with a window, the error stops
    falling after 128 tokens, however long the context is, because the query never sees more than 128 keys.
    """
    for a in (2, 4):
        full, window = (
            page.torch.curves[f"sink {a}, {name}"] for name in ("full", "window")
        )
        n = np.arange(1, 1025)
        assert full.argmax() == window.argmax() == 0
        assert np.allclose(full, np.exp(a) / n)
        assert np.allclose(window, np.exp(a) / np.minimum(n, 128))


def test_the_gate(page):
    """Qwen3-Next and Qwen3.5 multiply each entry of a head's output by a number between 0 and 1, the sigmoid
    of one more projection of the query token. Where that projection gives 0, the gate is 1/2.

    The gates are 1/2 on average, so without them the output is about twice as large as it should be, and the
    error about 100%.
    """
    gate = page.torch.gate
    assert abs(gate.mean() - 0.5) < 0.01
    assert 95 < percent(page, "gate left out") < 105
    size = np.linalg.norm(page.torch.plain) / np.linalg.norm(gate * page.torch.plain)
    assert 1.8 < size < 2.2
    for name in ("qwen3.5", "qwen3-next"):
        assert plan(record(name)).layers[3].gate
    layer = TorchLayer(16, num_heads=2, gate=True)
    layer.gate.weight.data.zero_()
    x = torch.randn(5, 16)
    gated = layer(x).detach()
    layer.gate = None
    assert torch.allclose(2 * gated, layer(x).detach(), atol=1e-6)


def test_the_costs_range(page):
    """In a loader that guesses, a mistake in either half raises no error, and in our head it cost anything
    from a tenth of the output to twice what attending at random costs.
    """
    costs = {
        line.rsplit(maxsplit=1)[0].strip() for line in page.printed.splitlines() if line
    }
    assert "1 added twice" in costs
    assert percent(page, "window one too large") == 9
    assert 2 < percent(page, "1 added twice") / percent(page, "attending at random") < 2.2


def test_the_smaller_groups(page):
    """A wrong scale, a missing cap or a window one too large costs about a tenth here."""
    for name in (
        "query_pre_attn_scalar ignored",
        "soft cap left out",
        "window one too large",
    ):
        assert 8 <= percent(page, name) <= 13


def test_three_lines(page):
    """The scale comes from query_pre_attn_scalar, which is 12 here, rather than from the head dimension 8,
    and the 1 has been added to the norm's weight.
    """
    said = "scale: 0.289, while the head dimension would give 0.354\n"
    assert page.printed.count(said) == 2
    assert np.isclose(12**-0.5, 0.2887, atol=1e-4)
    assert page.torch.small["query_pre_attn_scalar"] == 12
    for framework in (page.torch, page.jax):
        assert np.isclose(framework.loaded, framework.stored + 1)


def test_both_columns_build_the_same_layer(page):
    """Window, rotation and the order of norm and rotation follow the plan as well."""
    small, arrays = page.torch.small, page.torch.arrays
    x = RNG.normal(size=(10, 16)).astype(np.float32)
    ours = TorchLayer.from_config(small, layer=5, weights=page.torch.state)
    theirs = JaxLayer.from_config(small, layer=5, weights=arrays)
    outputs = (
        ours(torch.from_numpy(x), causal=True).detach().numpy(),
        theirs(x, causal=True),
    )
    assert np.allclose(*outputs, atol=1e-5)


def test_from_a_folder(page, tmp_path):
    """If folder holds its config.json and its safetensors files, the layer takes one line:

    layer = MultiHeadAttention.from_config(folder, layer=5, weights=folder)
    """
    numpy = pytest.importorskip("safetensors.numpy")
    arrays = {name: array.astype("float32") for name, array in page.torch.arrays.items()}
    numpy.save_file(arrays, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(page.torch.small), "utf-8")
    x = torch.randn(10, 16)
    ours = TorchLayer.from_config(tmp_path, layer=5, weights=tmp_path)
    same = TorchLayer.from_config(page.torch.small, layer=5, weights=page.torch.state)
    assert torch.equal(ours(x, causal=True), same(x, causal=True))
    theirs = JaxLayer.from_config(tmp_path, layer=5, weights=tmp_path)
    found = theirs(x.numpy(), causal=True)
    assert np.allclose(found, same(x, causal=True).detach().numpy(), atol=1e-5)


def test_fused_matrices(page):
    """The first two have the same shape. If you cut GPT-NeoX's matrix in three as if it were Phi-3's, every shape fits, and half of what you
    call a query is a key.

    Take a model with two heads, and write q0 for the rows that make the query of head 0:

    | Phi-3, qkv_proj | q0 q1 k0 k1 v0 v1 |

    | GPT-NeoX, query_key_value | q0 k0 v0 q1 k1 v1 |

    | GPT-2, c_attn | as Phi-3, and the matrix is transposed |

    Every shape was right, nothing was reported, and the output is off by 87%.
    """
    rows = torch.arange(48.0)[:, None].expand(48, 16).contiguous()
    names = {
        "neox": (
            page.torch.neox,
            "gpt_neox.layers.0.attention.query_key_value.weight",
            "gpt_neox.layers.0.attention.dense.weight",
        ),
        "phi3": (
            page.torch.phi3,
            "model.layers.0.self_attn.qkv_proj.weight",
            "model.layers.0.self_attn.o_proj.weight",
        ),
    }
    found = {}
    for name, (config, fused, output) in names.items():
        weights = {fused: rows, output: torch.zeros(16, 16)}
        layer = TorchLayer.from_config(config, weights=weights)
        found[name] = [
            getattr(layer, role).weight[:, 0].int().tolist()
            for role in ("query", "key", "value")
        ]
    q, k, v = (list(range(first, first + 16)) for first in (0, 16, 32))
    assert found["phi3"] == [q, k, v]
    q0, k0, v0, q1, k1, v1 = (list(range(8 * part, 8 * part + 8)) for part in range(6))
    assert found["neox"] == [q0 + q1, k0 + k1, v0 + v1]
    assert set(q) & set(found["neox"][1]) == set(k0)
    assert page.printed.count("cut in the wrong order: off by 87%\n") == 2


def test_missing_and_left_over(page):
    """The first error says which norm has no weight, and the second which bias has no use."""
    text = " ".join(page.printed.split())
    said = "weights lack 'model.layers.5.self_attn.k_norm.weight', the layer's key norm (weight)"
    assert text.count(said) == 2
    assert (
        text.count("weights have 'model.layers.5.self_attn.q_proj.bias', which a layer")
        == 2
    )


def test_no_sink_is_missed(page):
    """Only when we delete it by hand does the Llama load, and then its output is off by 88%."""
    text = " ".join(page.printed.split())
    assert (
        text.count(
            "weights have 'model.layers.5.self_attn.sinks', which a layer of 'llama'"
        )
        == 2
    )
    assert page.printed.count("without its sinks: off by 88%\n") == 2
    weights = {
        name: torch.from_numpy(array) for name, array in page.torch.oss_arrays.items()
    }
    layer = TorchLayer.from_config(page.torch.oss, layer=5, weights=weights)
    assert layer.sinks.tolist() == [0, 1, 2, 3]


def test_what_stays_outside(page):
    """The plan of Qwen3-Next calls such a layer "linear, no attention of pairs", and from_config raises an
    error for it. Every fourth layer is full attention, and that one is built.

    Of DeepSeek V3.2 it says "2048 of the keys chosen by an indexer", and MultiHeadAttention.from_config
    raises an error for it.
    """
    layers = plan(record("qwen3-next")).layers
    assert [layer.kind == "full" for layer in layers] == [
        i % 4 == 3 for i in range(len(layers))
    ]
    assert "linear, no attention of pairs" in str(layers[0])
    with pytest.raises(ValueError, match="must be an attention of pairs"):
        TorchLayer.from_config(record("qwen3-next"), layer=0)
    assert (
        TorchLayer.from_config(record("qwen3-next"), layer=3, device="meta").gate
        is not None
    )
    config = record("deepseek-v3.2")
    assert "2048 of the keys chosen by an indexer" in str(plan(config))
    for layer in (TorchLayer, JaxLayer):
        with pytest.raises(ValueError, match="MultiHeadAttention does not build"):
            layer.from_config(config)


def test_parts_that_stay_outside(page):
    """In the full layers of Gemma 4, keys and values come from one projection. In Inkling, each query mixes
    its bias from 16 learned profiles over the distance, and keys and values also pass through a convolution.
    Here too, the plan says what the layer does, and from_config names the part that it can't build.
    """
    for name, said, part in (
        ("gemma-4", ["one projection for keys and values"], "shares_values"),
        ("inkling", ["16 profiles over distances", "keys and values convolved"], "bias"),
    ):
        layers = plan(record(name)).layers
        full = next(layer for layer in layers if layer.kind == "full")
        assert all(words in str(full) for words in said)
        for column in (TorchLayer, JaxLayer):
            with pytest.raises(ValueError, match=f"layer {full.index} has {part} ="):
                column.from_config(record(name), layer=full.index)
    (local,) = {layer.shares_values for layer in plan(record("gemma-4")).layers[:5]}
    assert not local


def test_only_the_rotation(page):
    """Layer 4 is local and has base 10000, and layer 5 is full and has base 1000000. The fastest pair is the
    same in both, and the slowest one of layer 5 is so slow that four decimals don't show it. For a layer
    without positions the function returns None.
    """
    assert page.printed.count("radians per token: 1.0000, 0.0316, 0.0010, 0.0000\n") == 2
    for layer, base in ((4, 10000.0), (5, 1000000.0)):
        speeds = base ** (-np.arange(4) / 4)
        found = rope_from_config(page.torch.small, layer=layer)
        assert found == Rotary(layout="half", frequencies=speeds.tolist())
    assert rope_from_config(page.torch.smollm3, layer=3) is None


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({}, "rope_theta or rope_parameters is missing"),
        (
            {"rope_theta": 5e5, "rope_scaling": {"rope_type": "yarnn", "factor": 4.0}},
            "rope_type",
        ),
        ({"rope_theta": 5e5, "head_dims": 64}, "head_dims = 64 is no key"),
        ({"rope_theta": 5e5, "model_type": "lama"}, "model_type 'lama' is not known"),
    ],
)
def test_what_is_refused(page, changed, said):
    """So the plan never fills in a number that changes attention, and raises an error where one is missing or
    contradicts another.

    An unknown model_type is refused too, and so is a rope_type that doesn't exist. The same goes for a key
    that looks as if it changed attention but isn't read by this family, because it may be a misspelled one.
    """
    with pytest.raises(ValueError, match=said):
        plan(page.torch.llama | changed)


def test_what_is_ignored(page):
    """Keys that don't touch attention are ignored: a vocabulary or a dropout rate is none of the plan's
    business.
    """
    whole = page.torch.llama | {"rope_theta": 500000.0}
    more = {"vocab_size": 128256, "attention_dropout": 0.0, "hidden_act": "silu"}
    assert plan(whole | more) == plan(whole)


def test_exercise_llama(page):
    """29 pairs stay, 29 are slowed by 8, and 6 are blended."""
    plain = 500000.0 ** (-np.arange(64) / 64)
    slower = plain / llama3(128)
    assert np.isclose(slower, 1).sum() == np.isclose(slower, 8).sum() == 29
    assert 64 - 29 - 29 == 6
    assert record("llama-3.1")["rope_scaling"] == page.torch.scaling


def test_exercise_sink(page):
    r"""Without the sink the output must be too long by 100%, which by {eq}`eq_sink-error` means $e^a = 128$,
    so $a = \ln 128 = 4.85$. The first token sees only itself, and its output shrinks to $1/129$ of its
    length.
    """
    assert "sink 4.85: last token 0.50, first token 1/129\n" in page.printed


def test_exercise_fold(page):
    r"""Without a norm, multiply $\mathbf{W}_q$ by $\sqrt{d / s}$.

    what has to be stored is $\sqrt{d / s}\,(1 + w) - 1$.
    """
    lines = [line for line in page.printed.splitlines() if "times fold" in line]
    plain, lost, kept = (float(line.split()[-1]) for line in lines)
    assert plain == kept == 0
    assert lost > 0.1
    fold, w = np.sqrt(64 / 84), RNG.normal(size=64)
    assert np.allclose(1 + (fold * (1 + w) - 1), fold * (1 + w))


def test_exercise_cap(page):
    r"""The cap turns $-\infty$ into $-5$, which is a score like any other, so the future becomes visible.

    With a cap of 50 the future's weight is too small to print, and nobody notices.
    """
    assert "cap 50: the first token gives 0.00% to the future\n" in page.printed
    assert 5 * np.tanh(-np.inf / 5) == -5
    assert "cap  5: the first token gives 58.75% to the future\n" in page.printed


def test_a_whole_model(page):
    """At 28 of 64 positions the wrong base predicts another token, so one key has changed nearly half of the
    choices. The changes grow more frequent along the prompt, from 4 of 16 in the first quarter to 12 of 16 in
    the last, as we'd expect from errors that grow with the offset. The two continuations agree on their
    first token and diverge after it.
    """
    assert page.printed.count("another next token at 28 of 64 positions\n") == 2
    assert page.printed.count("in each quarter: [4, 5, 7, 12]\n") == 2
    texts = [
        json.loads(line.partition(": ")[2])
        for line in page.printed.splitlines()
        if line.startswith("it writes: ") or line.startswith("it should not write: ")
    ]
    right, wrong, again, wrong_again = texts
    assert (right, wrong) == (again, wrong_again)
    assert right[0] == wrong[0]
    assert right[1] != wrong[1]
    weights = page.torch.decoder.attention_weights(page.torch.tokens)
    assert [tuple(w.shape) for w in weights] == [(1, 4, 64, 64)] * 4
