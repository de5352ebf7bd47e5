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
    """After 16 tokens the output is off by 18%, and a quick test may not notice. After 256 tokens it is
    off by 54%.
    """
    assert " 16 tokens: the output is off by 18%\n" in page.printed
    assert "256 tokens: the output is off by 54%\n" in page.printed


def test_the_yardstick(page):
    """A layer that attends at random, with queries and keys that have nothing to do with the right ones, is
    off by 103% in the setting that we'll use below.

    That is the 103% from above.
    """
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

    In a local layer it sees 1024 positions, its own among them. In a full layer it sees everything up to
    itself.

    Local layers have the base 10000, and full layers have 1000000. Both form their pairs by halves

    Only the full layers are slowed down by 8.

    Queries and keys are normalized before their product. No key of the file mentions these norms.

    16 heads of queries share 8 heads of keys and values.
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

    A full layer sees 128 times as far, so with the same base its line would lie 128 times as high. But its
    base is larger and its pairs are slowed down by 8, so both lines cross one turn at nearly the same pair.
    In a local layer … pairs complete a turn, and in a full layer … do.

    Both cross the flat line of one turn near pair 71.

    With the base of the full layers, only … pairs of a local layer would complete a turn.

    In a text of 131072 tokens, the caches of all 48 layers hold … of the keys that 48 full layers would
    hold.
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
    """| layers that don't turn | no_rope_layers, or a pattern | SmolLM3, Llama 4, Cohere 2 |

    | 1 added to a norm's weight | nowhere | Gemma, Qwen3-Next |

    | gate on the output | attn_output_gate, or nowhere | Qwen3.5, Qwen3-Next |

    | which entries form a pair | usually nowhere, sometimes rope_interleave | |

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
    """Half of what attention needs has a key in the file. The other half has none."""
    table = page.text.partition("| what | where it is written |")[2].partition("```")[0]
    places = [row.split("|")[2] for row in table.splitlines()[2:]]
    assert 2 * sum("nowhere" in place for place in places) == len(places)


def test_a_head_by_hand(page):
    """Here is a head with all of it: a scale, a soft cap, a window and a sink."""
    assert "difference from the library: 0.000000\n" in page.printed


def test_wrong_rotations(page):
    """A wrong rotation takes the output about halfway to attending at random."""
    for name in (
        "base of the other kind of layer",
        "scaling left out",
        "the other meaning of a quarter",
        "a layer without positions, turned",
    ):
        assert 0.45 < percent(page, name) / percent(page, "attending at random") < 0.6


def test_the_factor_that_yarn_implies(page):
    """gpt-oss scales by 32 with YaRN. YaRN also multiplies rotated queries and keys by an attention factor,
    which the file doesn't mention. It follows from the 32 ({ref}`sec_attention-factor`).
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
    """Every fourth layer of SmolLM3 gets no positions at all. The key is called no_rope_layers, and it is a
    trap: a 1 in this list marks a layer that does turn.
    """
    turned = [layer.rope is not None for layer in plan(record("smollm3")).layers]
    assert turned == [(place + 1) % 4 != 0 for place in range(36)]
    found = plan(page.torch.smollm3).layers
    listed = page.torch.smollm3["no_rope_layers"]
    assert [layer.rope is not None for layer in found] == [bool(one) for one in listed]


def test_a_weight_and_its_one(page):
    """A stored 0.3 means 1.3. Take the entry 2.0 of a normalized query: the layer should make it 2.6, and a
    loader that multiplies by what is in the file makes it 0.6. Files for llama.cpp already contain the
    sum, so there one can also add the 1 twice, which gives 4.6.

    Without the 1, scores nearly vanish, and the head averages everything it sees. With a second 1 they are
    about four times as large, and often a single word gets nearly half of the weight. That is further from the
    right output than attending at random.
    """
    assert np.allclose(2.0 * np.array([1 + 0.3, 0.3, 2 + 0.3]), [2.6, 0.6, 4.6])
    found = page.torch
    sizes, largest = [], []
    for one in (0, 1, 2):
        turned_q = found.turn(found.unit_q * (one + found.stored_q))
        turned_k = found.turn(found.unit_k * (one + found.stored_k))
        sizes.append((turned_q @ turned_k.T / 8).std())
        largest.append(
            np.median(attention_weights(turned_q, turned_k, causal=True).max(axis=1))
        )
    assert sizes[0] < 0.15
    assert 3 < sizes[2] / sizes[1] < 5
    assert 0.4 < largest[2] < 0.55
    assert percent(page, "1 added twice") > percent(page, "attending at random")


def test_norm_and_rotation(page):
    """Gemma 3, Qwen3 and OLMo 2 normalize first, and HunYuan's dense models rotate first. A learned weight
    and a rotation don't commute, because the weight stretches the two entries of a pair differently

    Llama 4 Scout rotates first too, but its norm has no weight, so there the order makes no difference.

    OLMo 2 normalizes all heads of a token together, and most others normalize each head by itself. The
    plan knows which, and the checkpoint shows it too: there is one number for each entry of a head, or
    one for each entry of all heads.
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
    assert percent(page, "norm after the rotation") > 20
    x, weight = RNG.normal(size=(5, 8)), 1 + RNG.uniform(size=8)
    assert not np.allclose(rotate(weight * x), weight * rotate(x))
    size = np.sqrt((x**2).mean(axis=-1, keepdims=True))
    late_size = np.sqrt((rotate(x) ** 2).mean(axis=-1, keepdims=True))
    assert np.allclose(rotate(x / size), rotate(x) / late_size)


def test_the_scale(page):
    r"""In Gemma 3 with 27 billion parameters it's 168, and the width is 128. We keep the ratio: $64 \cdot
    168 / 128 = 84$.
    """
    assert 64 * 168 / 128 == 84
    assert percent(page, "query_pre_attn_scalar ignored") == 12


def test_the_soft_cap_by_hand(page):
    r"""a score $s$ becomes $c \tanh(s / c)$ with the cap $c = 50$. A score of 5 stays 4.98. A score of 40
    becomes 33.2, and one of 80 becomes 46.1. Before, they were 40 apart, and now they are 12.9 apart.

    With scores below 5 you'd never see it. With scores up to 78 the output of this one
    head is off by 12%.
    """
    few, some, many = 50 * np.tanh(np.array([5, 40, 80]) / 50)
    assert (round(few, 2), round(some, 1), round(many, 1)) == (4.98, 33.2, 46.1)
    assert round(many - some, 1) == 12.9
    assert "largest score  4.9: off by 0.1%\n" in page.printed
    assert "largest score 78.1: off by 12.5%\n" in page.printed


def test_the_window(page):
    """In configurations, a window counts the query's own position.

    The error of one position is small, and it is there in every local layer, for every token after the
    first 64.
    """
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
    add a sink of $\ln 3$. Its exponential is 3, the sum is 6, and each key gets 1/6. The output is the
    same vector, at half the length.

    So the weights of the real keys sum to less than 1

    If you leave the sink out, the output is twice as long as it should be.
    """
    zeros = np.zeros((3, 1))
    assert np.allclose(attention_weights(zeros, zeros), 1 / 3)
    assert np.allclose(attention_weights(zeros, zeros, sinks=np.array(np.log(3))), 1 / 6)


def test_eq_sink_error(page):
    r"""$$ \frac{|\text{wrong} - \text{right}|}{|\text{right}|} = \frac{e^a}{\sum_j e^{s_j}}. $$"""
    q, k, v = RNG.normal(size=(3, 9, 4))
    for sink in (-1.0, 0.5, 3.0):
        right = scaled_dot_product_attention(q, k, v, sinks=np.array(sink))
        wrong = scaled_dot_product_attention(q, k, v)
        by_row = np.linalg.norm(wrong - right, axis=1) / np.linalg.norm(right, axis=1)
        assert np.allclose(by_row, np.exp(sink) / np.exp(q @ k.T / 2).sum(axis=1))


def test_errors_of_a_sink_with_a_window(page):
    """The first tokens suffer most. And with a window, the error stops falling after 128 tokens, however
    long the text is.
    """
    for a in (2, 4):
        full, window = (
            page.torch.curves[f"sink {a}, {name}"] for name in ("full", "window")
        )
        n = np.arange(1, 1025)
        assert full.argmax() == window.argmax() == 0
        assert np.allclose(full, np.exp(a) / n)
        assert np.allclose(window, np.exp(a) / np.minimum(n, 128))


def test_the_smaller_groups(page):
    """A wrong scale, a missing cap or a window one too large costs about a tenth here."""
    for name in (
        "query_pre_attn_scalar ignored",
        "soft cap left out",
        "window one too large",
    ):
        assert 8 <= percent(page, name) <= 13


def test_three_lines(page):
    """The scale comes from query_pre_attn_scalar, which is 12 here and not the width 8, and the 1 has been
    added to the norm's weight.
    """
    assert page.printed.count("scale: 0.289, while the width would give 0.354\n") == 2
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


def test_fused_matrices(page):
    """The first two have the same shape. If you cut GPT-NeoX's matrix in three as if it were Phi-3's, every shape fits, and half of what you
    call a query is a key.

    Take two heads, and write q0 for the rows that make the query of head 0:

    | Phi-3, qkv_proj | q0 q1 k0 k1 v0 v1 |

    | GPT-NeoX, query_key_value | q0 k0 v0 q1 k1 v1 |

    | GPT-2, c_attn | as Phi-3, and the matrix is transposed |
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
    its bias from 16 learned profiles over the distance. Its keys and values also pass through a
    convolution. Here too, the plan says what the layer does, and from_config names the part.
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
    """Layer 4 is local and has the base 10000, and layer 5 is full and has the base 1000000. For a layer
    without positions the function returns None.
    """
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
    """So the plan never fills in a number that changes attention.

    An unknown model_type is refused too, and so is a rope_type that doesn't exist. The same goes for a key
    that looks as if it changed attention, if this family doesn't read it.
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
    r"""so $a = \ln 128 = 4.85$. The first token sees only itself, and its output shrinks to $1/129$ of its
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
    r"""The cap turns $-\infty$ into $-5$, which is a score like any other.

    Its weight is small if the cap is large, and then nobody notices.
    """
    assert "cap 50: the first token gives 0.00% to the future\n" in page.printed
    assert 5 * np.tanh(-np.inf / 5) == -5
    assert "cap  5: the first token gives 58.75% to the future\n" in page.printed


def test_a_whole_model(page):
    """In 28 of 64 places the wrong base picks another word, and the two texts part after the first new word.

    Still, one key has changed nearly half of the choices.
    """
    assert page.printed.count("another next word in 28 of 64 places\n") == 2
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
