"""Which scheme to use, and which one real models have."""

import json
from contextlib import suppress

import jax
import numpy as np
import pytest
import torch

from posattn import jax as column
from posattn import reference
from posattn import torch as torch_column
from posattn.reference import alibi_slopes, attention_weights, frequencies
from posattn.schemes import PROPERTIES, SCHEMES
from tests.pages.reading import DOCS
from tests.records import PLANS, RECORDS, ROTARY, SCALINGS, ropes

OTHERS = json.loads((DOCS / "_records" / "models.json").read_text("utf-8"))


def weights_of(slope, n=8192):
    """The weights of the keys, the nearest first, if all products are equal."""
    bias = -slope * np.arange(float(n))[None]
    return attention_weights(np.zeros((1, 1)), np.zeros((n, 1)), bias=bias)[0]


def nearest(slope, n=8192):
    """How many of the nearest keys have half of the weight."""
    return (weights_of(slope, n).cumsum() < 0.5).sum() + 1


def test_families_are_counted_where_the_tables_have_them(page):
    """say what … models use"""
    assert page.glued["families"] == len(PLANS) + len(OTHERS)


def builds(family, index):
    """Whether one call builds the attention of a layer."""
    for layer in (torch_column.MultiHeadAttention, torch_column.LatentAttention):
        with suppress(ValueError), torch.device("meta"):
            layer.from_config(RECORDS[family], layer=index)
            return True
    return False


def test_one_call_builds_the_attention_of_most_models(page):
    """and for most of those in the first table, one call builds the attention of a layer.

    For most models, one call builds the attention of a layer from it
    """
    built = [f for f in PLANS if any(builds(f, layer.index) for layer in PLANS[f].layers)]
    assert len(PLANS) / 2 < len(built) < len(PLANS)


def test_most_models_turn_queries_and_keys(page):
    """It has nothing to learn, its keys can be cached, and because it is done before the scores are
    computed, it works with every fused kernel. Most of the models below use it too

    Nearly all newer models rotate queries and keys, but they agree neither on the layout nor on the
    base.
    """
    assert len(ROTARY) > 2 * (len(PLANS) - len(ROTARY))
    assert PROPERTIES["cache"](SCHEMES["rotary"])
    assert SCHEMES["rotary"](6).place != "scores"
    found = [rope for family in ROTARY for rope in ropes(family)]
    assert {rope.layout for rope in found} == {"half", "interleaved"}
    assert len({rope.base for rope in found}) > 5


def test_rotary_models_are_counted(page):
    """Of the … rotary models below, … use halves and … neighbors.

    Of these models, … have 10000 in every layer that rotates, and the largest base in the table is ….

    Start with all of it, as most models do. Only … of them rotate less than that
    """
    layouts = [{rope.layout for rope in ropes(family)} for family in ROTARY]
    assert page.glued["rotary_models"] == len(ROTARY)
    assert page.glued["halves"] == layouts.count({"half"})
    assert page.glued["neighbors"] == layouts.count({"interleaved"})
    assert page.glued["halves"] + page.glued["neighbors"] == len(ROTARY)
    bases = [{rope.base for rope in ropes(family)} for family in ROTARY]
    assert page.glued["plain_base"] == bases.count({1e4})
    assert page.glued["largest_base"] == max(base for each in bases for base in each)
    partly = [f for f in ROTARY if " of " in str(PLANS[f]) and "entries" in str(PLANS[f])]
    assert page.glued["partly"] == len(partly) < len(ROTARY) / 2


def test_one_layout_becomes_the_other_by_a_permutation(page):
    """reordering the columns of the query and key projections turns one layout into the other."""
    rng = np.random.default_rng(0)
    x, (W_q, W_k) = rng.normal(size=(5, 16)), rng.normal(size=(2, 16, 8))
    order = [0, 2, 4, 6, 1, 3, 5, 7]  # a pair of neighbors becomes a pair across halves

    def scores(W_q, W_k, layout):
        q, k = (reference.rotate(x @ W, layout=layout) for W in (W_q, W_k))
        return q @ k.T

    neighbors = scores(W_q, W_k, "interleaved")
    assert np.allclose(scores(W_q[:, order], W_k[:, order], "half"), neighbors)
    assert not np.allclose(scores(W_q, W_k, "half"), neighbors)


def test_pairs_that_do_not_complete_a_turn(page):
    r"""Its slowest pair rotates by $10000^{-126/128}$ radians per token, so a turn takes
    $2\pi \cdot 10000^{126/128} \approx 54{,}400$ tokens. In a text of 8192 tokens that pair makes
    only 0.15 of a turn, while in one of 131072 tokens it goes around more than twice.

    At 8192 tokens base 10000 still leaves 14 such pairs, but at 131072 it leaves none, and base
    500000 leaves 15.
    """
    turn = 2 * np.pi / frequencies(128)[-1]
    assert np.isclose(turn, 2 * np.pi * 10000 ** (126 / 128))
    assert round(turn, -2) == 54400
    assert round(8192 / turn, 2) == 0.15
    assert 2 < 131072 / turn < 3
    for base, short, long in ((10000, 14, 0), (500000, 29, 15)):
        turns = frequencies(128, base=base) / (2 * np.pi)
        assert [(n * turns < 1).sum() for n in (8192, 131072)] == [short, long]
        line = f"base {base:8}: {short:2} pairs at 8192 tokens, {long:2} at 131072\n"
        assert line in page.printed
    angle = np.arange(8192) * frequencies(128)[-1]
    assert len({*angle.round(9)}) == 8192
    assert angle.max() < 2 * np.pi


def of_seeds(task, scheme, field):
    """What the record of the trained decoders has in a field, for each seed."""
    path = DOCS / "_records" / "studies" / f"{task}.json"
    cells = json.loads(path.read_text("utf-8"))["cells"]
    return [cells[f"{scheme}, seed {seed}"][field] for seed in range(5)]


def loss_of(scheme, times):
    """The loss at the end of a text so many times as long as in training."""
    end = {1: slice(2, 4), 2: slice(6, 8), 4: slice(12, 16)}[times]
    return np.array(of_seeds("topics", scheme, "by_position"))[:, end].mean()


def answers_of(scheme, times):
    """The share of right answers in stories so many times as long."""
    return np.mean([right[str(times)] for right in of_seeds("stories", scheme, "right")])


def test_half_rotary_holds_out_longer(page):
    """the loss at twice the length rose to … when all of each head was rotated, and only to … with
    half of it.
    """
    assert np.isclose(page.glued["loss_rotary_2"], loss_of("rotary", 2))
    assert np.isclose(page.glued["loss_half_2"], loss_of("partial_rotary", 2))
    assert page.glued["loss_half_2"] < page.glued["loss_rotary_2"] - 0.5


def test_a_flat_loss_and_fewer_right_answers(page):
    """Rotary's loss almost triples, while that of ALiBi and KERPLE, a bias that grows only with the
    logarithm of the distance, stays where it was. But the right answers fall under all three.
    """
    assert 2.6 < loss_of("rotary", 4) / loss_of("rotary", 1) < 3
    schemes = {"rotary": "rotary", "ALiBi": "alibi", "KERPLE": "kerple"}
    assert list(page.torch.measured) == list(schemes)
    for label, name in schemes.items():
        assert answers_of(name, 4) < 0.7 * answers_of(name, 1)
        loss, answers = page.torch.measured[label]
        for times in (1, 4):
            assert np.isclose(loss[str(times)], loss_of(name, times))
            assert np.isclose(answers[str(times)], answers_of(name, times))
    for name in ("alibi", "kerple"):
        assert abs(loss_of(name, 4) - loss_of(name, 1)) < 0.03


def test_luck_decides_how_far_alibi_looks(page):
    """When we asked our five ALiBi decoders about the first facts of a long story

    three found about half of them, and two found next to none
    """
    first = sorted(depth[0] for depth in of_seeds("stories", "alibi", "depth"))
    assert max(first[:2]) < 0.03
    assert all(0.45 < found < 0.55 for found in first[2:])


def test_what_a_match_at_512_tokens_has_to_make_up_for(page):
    """At 512 tokens that takes a score higher by $512/256 = 2$ in the flattest head, which is within
    reach, and by $512/2 = 256$ in the steepest, which isn't.
    """
    slopes = alibi_slopes(8)
    assert [512 * slopes.min(), 512 * slopes.max()] == [2, 256]


def test_weights_of_alibi_fall_by_the_exponential(page):
    r"""In a head with slope $\frac{1}{2}$, a key that is 10 tokens back loses 5 from its score, so it has
    $e^{-5}$ times the weight of the nearest key, which is less than 1%. With a slope $\lambda$ and a
    distance $\delta$ the factor is $e^{-\lambda\delta}$. The keys beyond $\delta$ tokens are the same falling
    series as the whole, only that each weight is smaller by this factor, so their share of the total
    is $e^{-\lambda\delta}$ too. That is one half at $\delta = \ln 2 / \lambda$.
    """
    assert weights_of(1 / 2)[10] / weights_of(1 / 2)[0] < 0.01
    for slope in alibi_slopes(8):
        weights = weights_of(slope)
        assert np.isclose(weights[10] / weights[0], np.exp(-slope * 10))
        assert np.isclose(weights[10:].sum(), np.exp(-slope * 10))
        assert 0 < nearest(slope) - np.log(2) / slope < 1


def test_half_of_the_weight_with_a_pencil(page):
    r"""The slope $\frac{1}{2}$ gives $0.69 / 0.5 = 1.4$ tokens. The slope $\frac{1}{256}$, the
    flattest of eight heads, gives 177.
    """
    assert round(0.69 / 0.5, 1) == 1.4
    assert round(np.log(2), 2) == 0.69
    assert round(np.log(2) * 256) == 177
    assert alibi_slopes(8)[[0, -1]].tolist() == [1 / 2, 1 / 256]


def test_the_figure_shows_how_near_alibi_looks(page):
    """The flattest head spends half of its weight on the nearest 178 tokens, however long the text is.

    The one of the slope 1/2 comes close to 1 within ten tokens, that of 1/16 within a hundred, that of
    1/256 after more than a thousand.

    crosses one half at the number that the cell printed: 2, 12 and 178. By 1024 tokens even the
    flattest head has spent 98% of its weight.
    """
    assert [nearest(slope) for slope in (1 / 2, 1 / 16, 1 / 256)] == [2, 12, 178]
    assert round(weights_of(1 / 256)[:1024].sum(), 2) == 0.98
    assert {nearest(1 / 256, n) for n in (4096, 8192, 2**17)} == {178}
    shares, tokens = page.torch.shares, page.torch.tokens
    assert list(shares) == ["slope 1/2", "slope 1/16", "slope 1/256"]
    assert (tokens[0], tokens[-1]) == (1, 8192)
    for label, (before, after) in zip(
        shares, [(1, 10), (10, 100), (1000, 8192)], strict=True
    ):
        slope = 1 / int(label.partition("/")[2])
        assert np.allclose(shares[label], weights_of(slope).cumsum()[tokens - 1])
        whole = weights_of(slope).cumsum() > 0.99
        assert before < whole.argmax() + 1 <= after


def test_some_models_slow_pairs_down(page):
    """Of the rotary models below, … are scaled in such a way. Another … have a base above 10000, which
    slows pairs down from the start.
    """
    slowed = [f for f in ROTARY if any(rope.method in SCALINGS for rope in ropes(f))]
    large = [f for f in ROTARY if any(rope.base > 10000 for rope in ropes(f))]
    assert page.glued["slowed"] == len(slowed) > 0
    assert page.glued["large"] == len({*large} - {*slowed}) > 0
    assert (frequencies(64, base=1e6) <= frequencies(64)).all()


def test_where_a_table_ends(page):
    """A learned table of 512 rows has nothing for token 513, but a sine or a slope has a value at any
    position.
    """
    table = reference.LearnedPositionalEncoding.init(np.random.default_rng(0), 512, 8)
    assert table(np.zeros((512, 8))).shape == (512, 8)
    with pytest.raises(ValueError, match="512"):
        table(np.zeros((513, 8)))
    assert np.isfinite(reference.sinusoidal_encoding(513, 8)).all()
    assert not PROPERTIES["far"](SCHEMES["learned"])
    assert sum(PROPERTIES["far"](make) for make in SCHEMES.values()) > len(SCHEMES) / 2


def test_a_key_in_the_cache_keeps_its_frequencies(page):
    """Suppose the frequencies change at token 8193. The new query is rotated with the new ones, but the
    8192 keys in the cache still have the old ones, so the angle between them is no longer the
    frequency times the offset, and their scores are wrong.
    """
    q, k = np.random.default_rng(0).normal(size=(2, 1, 64))
    before, now = (
        reference.dynamic_ntk(64, factor=4.0, length=length, trained_length=8192)
        for length in (8192, 8193)
    )
    assert np.allclose(before, frequencies(64))
    assert not np.allclose(before, now, rtol=1e-9, atol=0)
    query = reference.rotate(q, np.array([8192]), frequencies=now)
    right = query @ reference.rotate(k, np.array([100]), frequencies=now).T
    stale = query @ reference.rotate(k, np.array([100]), frequencies=before).T
    assert not np.isclose(right, stale, rtol=1e-9, atol=0)


def test_pairs_for_rows_and_columns(page):
    """A head of 64 entries has 32 pairs: 16 rotate with the row of the patch, and 16 with its column.
    A score then depends on how many rows and how many columns lie between two patches
    """
    q, k = np.random.default_rng(0).normal(size=(2, 1, 64))
    scores = []
    frequencies_2d = reference.axial_frequencies(64, 2)
    for row, column_ in ((0, 0), (5, 9)):  # a step of 2 rows and 3 columns
        at = np.array([[[row, column_]], [[row + 2, column_ + 3]]])
        turned = [
            reference.rotate_axes(vector, place, frequencies=frequencies_2d)
            for vector, place in zip((q, k), at, strict=True)
        ]
        scores.append((turned[0] @ turned[1].T).item())
    assert np.isclose(*scores)
    turns = reference.axial_frequencies(64, 2)
    rows, columns = np.abs(turns) > 0
    assert (rows.sum(), columns.sum(), (rows & columns).sum()) == (16, 16, 0)


def test_three_schemes_are_stale_in_a_cache(page):
    """We run the check named cache on all of them, and three fail:

    Dynamic NTK and LongRoPE change their frequencies as the text grows, and randomized positions are
    drawn anew in every call.
    """
    assert page.torch.stale == ["randomized", "dynamic NTK", "LongRoPE"]


def test_a_window_of_swin_has_a_table_of_its_own_size(page):
    r"""In a window of side 7 two patches are at most 6 apart either way, so the table has
    $13 \cdot 13$ numbers for each head, and a window of side 12 needs a new table.
    """
    rng = np.random.default_rng(0)
    sizes = [reference.SwinBias.init(rng, 3, side, side).table.size for side in (7, 12)]
    assert sizes == [3 * 13**2, 3 * 23**2]


def test_a_bias_as_an_array_fills_the_memory(page):
    """The array takes 4 GiB for one layer, before the first score is computed, and since it grows with
    the square of the length, twice the length would take 16.

    The two schemes in the list don't fit our kernels
    """
    assert 32 * 8192**2 * 2 == 4 * 2**30
    assert 32 * (2 * 8192) ** 2 * 2 == 16 * 2**30
    assert page.torch.whole == ["CoPE", "stick-breaking"]


def test_stick_breaking_in_tiles_from_the_query_backwards(page):
    """you can read the tiles in order, from the query backwards, and carry a running sum from one to
    the next.
    """
    rng = np.random.default_rng(0)
    query, keys = rng.normal(size=(1, 1, 4)), rng.normal(size=(1, 13, 4))
    bias = reference.StickBreaking().scores(query, keys, np.array([12]), np.arange(13))
    whole = attention_weights(query, keys, bias=bias)[0, 0]
    scores = (query[0] @ keys[0].T)[0] / 2
    for order in ([8, 4, 0], [0, 8, 4]):
        rest, weights = 0.0, np.empty(12)  # rest: logarithm of what is left of the stick
        for start in order:
            tile = scores[start : start + 4][::-1]  # the nearest key first
            left = -np.log1p(np.exp(tile)).cumsum()
            weights[start : start + 4] = np.exp(tile + rest + left)[::-1]
            rest += left[-1]
        assert np.allclose(weights, whole[:12]) == (order == [8, 4, 0])


def test_the_schemes_to_try_first_have_the_marks(page):
    """Use rotary, or any bias on the scores.

    which work with every kernel.

    if there is a longest text.

    Start with a scheme that has nothing to learn, such as rotary or ALiBi, or with T5's few numbers.
    """
    for name, make in SCHEMES.items():
        if make(6).place == "scores":
            assert PROPERTIES["cache"](make), name
    assert PROPERTIES["cache"](SCHEMES["rotary"])
    for name in ("rotary", "sinusoidal"):
        assert SCHEMES[name](6).place != "scores"
    for name in ("rotary", "learned"):
        assert PROPERTIES["side"](SCHEMES[name])
        assert PROPERTIES["future"](SCHEMES[name])
    for name in ("rotary", "ALiBi"):
        assert not PROPERTIES["learns"](SCHEMES[name])


def test_a_bias_of_the_distance_cannot_tell_who_bites(page):
    """From bites, both nouns are one word away. In man bites dog they still are, so bites gets the
    same output in both sentences and cannot know who bites.
    """
    words = np.random.default_rng(0).normal(size=(3, 4))  # dog, bites, man
    there = words[::-1]
    bias = -0.5 * abs(np.arange(3)[:, None] - np.arange(3)).astype(float)
    outputs = [attention_weights(x, x, bias=bias) @ x for x in (words, there)]
    assert np.allclose(outputs[0], outputs[1][::-1])
    assert np.allclose(outputs[0][1], outputs[1][1])


def test_the_two_lists_for_an_encoder(page):
    """The best-known name in the first list is ALiBi. Most of the others are biases on the distance
    too

    Two names, none and stick-breaking, are in both.
    """
    exceptions = {"none", "PoPE", "DAPE", "stick-breaking"}
    assert exceptions <= {*page.torch.alike}
    assert len(page.torch.alike) == 9
    assert "ALiBi" in page.torch.alike
    assert {*page.torch.alike} & {*page.torch.silent} == {"none", "stick-breaking"}


def test_what_must_be_learned_is_counted(page):
    """Here is the count for 512 tokens of width 512 and 8 heads.

    The learned table has 512 rows of 512 numbers. T5 has 32 buckets of offsets for each of 8 heads,
    and KERPLE two numbers for each head. Shaw has two vectors of width 64, one for keys and one for values, for
    each of the 33 offsets from $-16$ to 16
    """
    counted = {
        "learned table": 512 * 512,
        "T5": 32 * 8,
        "Shaw, up to 16": 2 * 33 * 64,
        "KERPLE": 2 * 8,
    }
    for name, number in counted.items():
        assert f"{name:15} {number:7} numbers\n" in page.printed


def test_practice_of_a_row_and_of_an_offset(page):
    """A text of 512 tokens uses each row of the table once, and the last row only if the text is that
    long. In T5's bias, the number for the token just before is used by 511 pairs of tokens in the
    same text.
    """
    made = reference.T5Bias.init(np.random.default_rng(0), 1)
    at = np.arange(512)
    bias = made(at, at)[0]
    assert (bias == bias[1, 0]).sum() == np.trace(np.ones((512, 512)), -1) == 511


def test_the_version_of_transformers_is_the_pinned_one(page):
    """compares what plan reads with the library transformers, version …."""
    constraints = (DOCS.parent / "constraints.txt").read_text("utf-8")
    assert f"\ntransformers=={page.glued['transformers']} ;" in constraints


def test_the_table_has_a_line_for_each_kind_of_layer_and_names_the_sources(page):
    """Layers that do the same share a row, and the second column says which layers they are.

    Halves and neighbors are the two layouts of pairs.

    64 of 256 entries means that only a part of each head is rotated.
    """
    shown = page.torch.model_table
    for family, plan in PLANS.items():
        lines = [line.split("  ", 1) for line in str(plan).splitlines()[1:]]
        first = f"| {family} | {lines[0][0]} | {lines[0][1].strip()} |"
        start = shown.index(first)
        for k, (layers, words) in enumerate(lines[1:], 1):
            assert shown[start + k] == f"|  | {layers} | {words.strip()} |"
        assert any(family in line for line in page.torch.told)
    assert any("halves, 64 of 256 entries" in line for line in shown)
    assert any("neighbors" in line for line in shown)


def test_the_call_builds_the_layer(page):
    """one call builds the attention of a layer from it, with the layer's weights"""
    small = {"model_type": "llama", "hidden_size": 8, "num_attention_heads": 2}
    small |= {"num_hidden_layers": 6, "rope_theta": 1e4}
    layer = torch_column.MultiHeadAttention.from_config(small, layer=5)
    assert layer.num_heads == 2


def test_gpt_oss_does_not_round(page):
    """gpt-oss does not round the two ends of YaRN's blend."""
    plain = [
        family
        for family in ROTARY
        for rope in ropes(family)
        if dict(rope.numbers).get("truncate") is False
    ]
    assert plain == ["gpt-oss"]


def test_deepseek_sharpens_its_scores(page):
    r"""DeepSeek-V3 multiplies its scores by the square of $0.1 \ln 40 + 1$, which is already part of the
    number in the table. In its heads the 64 entries that are rotated come last.
    """
    layer = PLANS["DeepSeek-V3"].layers[0]
    assert np.isclose(layer.scale, 192**-0.5 * (0.1 * np.log(40) + 1) ** 2)
    assert "scores times 0.135" in str(layer)
    assert (layer.rope.last, layer.rope.rotary_dim) == (True, 64)


def test_llama_4_has_chunks_and_blends_nothing(page):
    """a token sees only its own block of 8192

    The two limits of Scout's blend are equal, so nothing is blended.
    """
    numbers = dict(next(iter(ropes("Llama 4, Scout"))).numbers)
    assert numbers["low_freq_factor"] == numbers["high_freq_factor"]
    for family in ("Llama 4, Scout", "Llama 4, Maverick"):
        assert {layer.chunk for layer in PLANS[family].layers} == {8192, None}


def test_the_window_of_modernbert(page):
    """ModernBERT has a window that reaches 64 tokens to each side."""
    windows = {layer.window for layer in PLANS["ModernBERT"].layers}
    assert windows == {64 + 1, None}  # its own position among them


def test_what_learns_is_made_with_a_key_in_jax(page):
    """In JAX, write SwinBias.init(key, 3, 7, 7)"""
    assert column.SwinBias.init(jax.random.key(0), 3, 7, 7).table.size == 3 * 13**2


def test_layers_that_see_everything_may_have_no_positions(page):
    """Many let most of their layers look only through a window. Some of these,
    such as Cohere 2 and Llama 4, take the positions out of the layers that see everything.
    """
    most = [
        family
        for family, plan in PLANS.items()
        if sum(layer.kind in ("sliding", "chunked") for layer in plan.layers)
        > len(plan.layers) / 2
    ]
    hidden = [
        family
        for family in most
        if any(
            layer.kind == "full" and layer.rope is None for layer in PLANS[family].layers
        )
    ]
    assert len(most) > 5
    assert {"Cohere 2", "Llama 4, Maverick", "EXAONE 4"} <= {*hidden}
    for family in ("Cohere 2", "Llama 4, Maverick"):
        for layer in PLANS[family].layers:
            assert (layer.kind == "full") == (layer.rope is None)


def test_a_shift_changes_nothing(page):
    """To check it, the layer reads the same six tokens twice, once from position 0 and once from position
    100000.

    Their row says base 1000000, halves, scaled by 8 linearly, which is position interpolation. Their
    heads have 256 entries, so a layer of width 512 with two heads is a small copy of one.

    The outputs agree to four decimals, so the layer sees only offsets.
    """
    change = "largest change of an output: 0.0000\n"
    assert page.printed.count(change) == 2
    for names in (page.torch, page.jax):
        assert not np.allclose(names.near.tolist(), 0, atol=0.01)
    turned = reference.position_interpolation(256, base=1e6, factor=8.0)
    assert np.allclose(PLANS["Gemma 3"].layers[5].rope.frequencies, turned)
    assert "base 1000000, halves, scaled by 8 linearly" in str(PLANS["Gemma 3"])
    assert PLANS["Gemma 3"].layers[5].head_dim == 256


def test_the_default_of_a_class_is_not_that_of_the_checkpoint(page):
    """Qwen3Config says 10000, the checkpoint 1000000"""
    assert RECORDS["Qwen3"]["rope_theta"] == 1000000


def test_layers_of_one_model_differ(page):
    """the same rotation in every layer of Gemma 3, ModernBERT or Cohere 2

    Local and global layers differ.
    """
    for family in ("Gemma 3", "ModernBERT"):
        assert len(ropes(family)) == 2
    assert {layer.rope is None for layer in PLANS["Cohere 2"].layers} == {True, False}


def test_from_a_configuration_to_a_line(page):
    r"""A head has $2560/32 = 80$ entries, of which $0.4 \cdot 80 = 32$ are rotated. This is Phi-2."""
    assert (2560 / 32, 0.4 * 80) == (80, 32)
    layer = PLANS["Phi-2"].layers[0]
    assert (layer.head_dim, layer.rope.rotary_dim) == (80, 32)
    assert "entries that are rotated: 32\n" in page.printed


def test_how_far_alibi_looks(page):
    """Still about 177, or 178 whole tokens. The flattest slope is $2^{-8}$ for every number of heads that is a power of two.

    More heads don't make the flattest one any flatter: they add slopes at the steep end and in between,
    so none of them looks further.
    """
    steepest = [alibi_slopes(heads).max() for heads in (8, 16, 32)]
    assert steepest == sorted({*steepest})
    assert {alibi_slopes(2**power).min() for power in range(1, 8)} == {2**-8}
    ratios = [alibi_slopes(heads)[1] / alibi_slopes(heads)[0] for heads in (8, 16, 32)]
    assert ratios == sorted(ratios)
    assert ratios[0] < ratios[2] < 1
    assert "16 heads: flattest 1/256, half within 177\n" in page.printed


def test_two_bases_in_one_model(page):
    """Gemma 3 uses base 10000 in its local layers, whose window is 1024, and base 1000000 in its global
    layers. (The global ones are also slowed down by 8. Ignore that here.)

    The small base leaves 57 such pairs within the window, but none within the whole text. So the global
    layers need the large base to have any, and it leaves 35.
    """
    assert "base 10000: 57 in the window, 0 in the text\n" in page.printed
    assert "base 1000000: 80 in the window, 35 in the text\n" in page.printed
    local, everywhere = PLANS["Gemma 3"].layers[0], PLANS["Gemma 3"].layers[5]
    assert [local.window, local.rope.base, everywhere.rope.base] == [1024, 10000, 10**6]
    assert (everywhere.rope.method, dict(everywhere.rope.numbers)) == (
        "linear",
        {"factor": 8.0},
    )
    assert everywhere.rope.rotary_dim == 2 * 128
    turns = frequencies(256, base=1e4) / (2 * np.pi)
    assert (1024 * turns < 1).any()
    assert not (131072 * turns < 1).any()
    assert (131072 * frequencies(256, base=1e6) / (2 * np.pi) < 1).any()


def test_which_scheme(page):
    """The sinusoid and rotary are the plain schemes among those that remain. Most of the others are
    made for images, or to lengthen an existing model.
    """
    images = {"rotary, axial", "rotary, mixed", "M-RoPE"}
    longer = {
        "position interpolation",
        "NTK-aware",
        "dynamic NTK",
        "YaRN",
        "LongRoPE",
        "Llama 3",
    }
    fit = page.torch.fit
    assert {"sinusoidal", "rotary"} | images | longer <= {*fit}
    assert len(images | longer) > (len(fit) - 2) / 2
    assert not any(SCHEMES[name](6).place == "scores" for name in fit)
    assert all(PROPERTIES[mark](SCHEMES[name]) for name in fit for mark in ("side", "far"))
