"""Questions people ask."""

import contextlib
import io
import re

import jax
import numpy as np
import pytest
import torch
from jax import numpy as jnp
from torch.nn.attention.bias import causal_lower_right

from posattn import reference
from posattn.configs import plan
from posattn.reference import frequencies, rotate, yarn
from posattn.torch import flex
from posattn.torch import rotate as torch_rotate
from tests.nightly.studies import extending, records, schemes, settings, topics
from tests.records import PLANS, RECORDS, ropes

Q, K = np.random.default_rng(7).normal(size=(2, 12, 16))


def said(page, beginning):
    """The numbers after the words with which a printed line begins."""
    (line,) = {row for row in page.printed.splitlines() if row.startswith(beginning)}
    return [float(n) for n in re.findall(r"-?\d+(?:\.\d+)?", line.removeprefix(beginning))]


def test_seventeen_questions_each_with_an_answer_in_bold_and_its_threads(page):
    """People ask these seventeen questions

    Each answer can be read on its own: first the answer in bold, then the reason, and a few lines of
    code that show it. At the end of each you find the chapter that explains it properly, and the threads
    where it was asked.
    """
    _, *answers = re.split(
        r"^### (?=.*\?$)", page.text.partition("## Exercises")[0], flags=re.M
    )
    assert len(answers) == 17
    for answer in answers:
        _, _, rest = answer.partition("\n\n")
        assert rest.startswith("**")
        *_, last = re.findall(r"^\*Read on:\*(.*?)^\*Asked in:\*(.*)", answer, re.M | re.S)
        assert re.search(r"\{(doc|ref)\}`", last[0])
        assert "https://" in last[1]
        assert (
            answer.index("**") < answer.index("```{code-cell}") < answer.index("*Read on:*")
        )


def test_every_group_is_named_at_the_top_and_has_questions(page):
    """RoPE in a checkpoint"""
    top, *groups = re.split(
        r"^\((sec_questions-\w+)\)=\n## (.*)$",
        page.text.partition("## Exercises")[0],
        flags=re.M,
    )
    labels, titles, texts = groups[::3], groups[1::3], groups[2::3]
    assert len(labels) == 4
    for label, title, text in zip(labels, titles, texts, strict=True):
        assert f"- {{ref}}`{title} <{label}>`: " in top
        assert re.search(r"^### .*\?$", text, re.M)


def test_every_answer_runs_by_itself(page):
    """Each answer can be read on its own"""
    cells = [
        cell
        for cell in page.cells
        if cell.visible and not page.text.partition(cell.code)[0].count("## Exercises")
    ]
    assert len(cells) >= 17
    for cell in cells:
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(cell.code, {"__name__": "__main__"})
        assert out.getvalue() == cell.printed


def test_the_two_layouts(page):
    """The RoPE paper pairs neighbors, entries 0 and 1, then 2 and 3, and so on. The Llama of Transformers
    pairs entry $c$ with entry $c + d/2$

    With the same weights, the worst error is several times a typical score, and with converted weights it
    is 0.

    because a single token can attend only to itself, whatever the rotation
    """
    for layout, partner in (("interleaved", 1), ("half", 4)):
        rotated = rotate(np.eye(8)[:1], np.array([1]), layout=layout)[0]
        assert np.flatnonzero(rotated).tolist() == [0, partner]
    assert {rope.layout for rope in ropes("Llama 3")} == {"half"}
    (typical,) = said(page, "a typical score:")
    assert said(page, "error with the same weights:")[0] > 3 * typical
    assert said(page, "error with converted weights:") == [0]
    for layout in ("interleaved", "half"):
        rotated = rotate(Q[:1], layout=layout), rotate(K[:1], layout=layout)
        assert reference.attention_weights(*rotated) == 1


def test_two_meanings_of_a_factor(page):
    """Take a head dimension of 512 and a factor of 0.25, so that 128 entries rotate either way.

    The partner is entry 64 in one case and 256 in the other. The frequencies differ too, from pair 1 on,
    because a smaller head runs through the same range of frequencies in fewer steps.
    """
    for speeds in (page.torch.first_part, page.torch.part_of_pairs):
        assert (speeds > 0).sum() == 64 == 0.25 * 512 / 2
        assert speeds[0] == 1
    lines = page.printed
    for name, partner in (("first part", 64), ("proportional", 256)):
        assert f"{name}\n  entry 0 is paired with entry {partner}\n" in lines
    assert page.torch.first_part[1] < page.torch.part_of_pairs[1]
    small, large = frequencies(128, base=1e6), frequencies(512, base=1e6)
    assert np.allclose(page.torch.first_part, small)
    assert np.allclose(large[::4], small)


def test_who_has_which_meaning(page):
    """Most models with this field, such as Phi-2 and Qwen3-Next, cut off the first part of a head

    Gemma 4 forms pairs across the whole head, with the frequencies of the whole head. It rotates only
    the fast pairs, and the others get frequency 0.
    """
    for family in ("Phi-2", "Qwen3-Next"):
        (rope,) = ropes(family)
        assert (
            0 < len(rope.frequencies) * 2 < max(la.head_dim for la in PLANS[family].layers)
        )
    still = [rope for rope in ropes("Gemma 4") if 0 in rope.frequencies]
    assert len(still) == 1
    assert len(still[0].frequencies) == 256
    moving = [speed > 0 for speed in still[0].frequencies]
    assert moving == sorted(moving, reverse=True)


def test_norm_and_rotation(page):
    """A rotation doesn't change the length, so you may divide before or after.

    Scale first, and you get $(1, 2)$ and then $(-2, 1)$. Rotate first, and you get $(-1, 1)$ and then
    $(-1, 2)$. The two agree only if both entries of a pair have the same scale.

    The thread says the same of a norm with a scale, which the second line of the output contradicts.

    Without a scale the orders agree. With one, some entry differs by 0.25.
    """
    quarter, pair, scales = np.array([[0, -1], [1, 0]]), np.ones(2), np.array([1, 2])
    assert (quarter @ (scales * pair)).tolist() == [-2, 1]
    assert (scales * (quarter @ pair)).tolist() == [-1, 2]
    assert np.allclose((rotate(Q) ** 2).sum(-1), (Q**2).sum(-1))
    scale = np.arange(1.0, 9).repeat(2)
    assert np.allclose(rotate(scale * Q), scale * rotate(Q))
    assert not np.allclose(rotate(np.arange(16) * Q), np.arange(16) * rotate(Q))
    assert said(page, "no scale:") == [0]
    assert said(page, "learned scale: the orders differ by") == [0.25]


def test_norm_first_is_usual(page):
    """Most models normalize first.

    act before the rotation
    """
    norms = [plan.layers[0].query_norm for plan in PLANS.values()]
    after = [norm.after for norm in norms if norm is not None]
    assert after.count(False) > len(after) / 2
    layer = reference.MultiHeadAttention.init(
        np.random.default_rng(0), 16, 1, rotate=reference.Rotary(), query_norm=np.sign
    )
    weights = layer.attention_weights(Q)
    q, k = Q @ layer.query_weight, Q @ layer.key_weight
    assert np.allclose(weights, reference.attention_weights(rotate(np.sign(q)), rotate(k)))


def test_angles_in_bfloat16(page):
    """A bfloat16 number has 8 significant bits. Rounding a cosine to it costs at most about 0.002,
    whatever the position.

    The frequency of pair 1 changes only in the third decimal, and yet its angle is off by 5.0 radians,
    most of a full turn. A cosine lies between $-1$ and 1, so an error of 1.679 makes it meaningless.

    8 bits hold every integer up to 256, and 257 is rounded back to 256

    rotate of this library computes angles in float64 and raises an error for half-precision positions.
    """
    assert torch.finfo(torch.bfloat16).eps == 2.0**-7
    assert said(page, "cosines in bfloat16:     off by") == [0.002]
    assert said(page, "frequencies in bfloat16: off by") == [1.679]
    assert said(page, "frequency of pair 1:") == [0.8660, 16, 0.8672]
    assert said(page, "its angle at 4095: off by") == [5.0]
    assert np.pi < 5.0 < 2 * np.pi
    integers = torch.arange(258)
    assert torch.equal(integers.bfloat16().int()[:257], integers[:257])
    assert integers.bfloat16()[257] == 256
    x = torch.from_numpy(Q)
    with pytest.raises(TypeError):
        torch_rotate(x, torch.arange(12).bfloat16())
    far = 100_000 + np.arange(12)
    assert np.allclose(torch_rotate(x, torch.from_numpy(far)).numpy(), rotate(Q, far))


def test_moving_a_key(page):
    """because rotations add up: rotate by 5 and then by $-3$, and you are at 2.

    The moved key is exact. After the change of frequencies, the cosine between the cached key and the right
    one is only 0.13, so they are almost at right angles.
    """
    one = np.ones(12)
    assert np.allclose(rotate(rotate(Q, 5 * one), -3 * one), rotate(Q, 2 * one))
    assert said(page, "moved from 5000 to 2000: off by") == [0]
    assert said(page, "cached key and right key, after the change: cosine") == [0.13]


def losses(scheme, times, *path):
    """The mean loss at the end of a text of once or 4 times the length, over five seeds."""
    end = {"1": slice(2, 4), "4": slice(12, 16)}[times]
    cells = records.load("topics")["cells"]
    found = []
    for seed in settings.SEEDS:
        entry = cells[f"{scheme}, seed {seed}"]
        for key in path:
            entry = entry[key]
        found.append(np.mean(entry["by_position"][end]))
    return np.array(found)


def test_beyond_the_trained_length(page):
    """So 14 of the 64 pairs meet new angles. Where query and key match in the slowest pair, it adds the
    cosine of its angle to the score, and in training that was never below 0.58. At the far end of the long
    text it is $-0.80$

    Interpolation restores the 54 degrees, and slows the fastest pair from 57 degrees per token to 14.
    """
    assert said(page, "pairs that complete no turn in training:") == [14]
    assert said(page, "slowest pair, trained:") == said(page, "slowest pair, interpolated:")
    assert said(page, "slowest pair, trained:") == [54, 0.58]
    assert np.cos(np.arange(8192) * frequencies(128)[-1]).min() > 0.58
    assert said(page, "slowest pair, beyond:") == [217, -0.80]
    assert said(page, "fastest pair:") == [57, 14]
    key = np.eye(1, 128, 126)
    far = rotate(key, np.array([32768])) @ rotate(key, np.array([0])).T
    assert far.round(2) == -0.80


def test_what_interpolation_costs(page):
    """We trained small decoders on texts of 64 letters, five seeds each. With RoPE their loss per
    letter, in nats, is
    … at the end of the trained length and … at four times that length. Interpolation by itself gives …
    there, and … even at the trained length

    After 200 steps of training on long texts it comes down to …. YaRN leaves the fastest pair
    alone and slows the others more the slower they are, up to the whole factor. Without any training it
    has … at four times the length and … at the trained one.
    """
    assert (topics.LENGTH, settings.TUNED.steps, len(settings.SEEDS)) == (64, 200, 5)
    assert extending.FACTOR == 4
    squeezed = ("extended", "position interpolation")
    here = {
        "loss rotary 1": losses("rotary", "1"),
        "loss rotary 4": losses("rotary", "4"),
        "loss interpolated 1": losses("rotary", "1", *squeezed, "before"),
        "loss interpolated 4": losses("rotary", "4", *squeezed, "before"),
        "loss interpolated, trained 4": losses("rotary", "4", *squeezed, "after"),
        "loss YaRN 1": losses("rotary", "1", "extended", "YaRN", "before"),
        "loss YaRN 4": losses("rotary", "4", "extended", "YaRN", "before"),
    }
    for name, numbers in here.items():
        assert page.glued[name] == pytest.approx(numbers.mean())
    assert (here["loss rotary 4"] > here["loss rotary 1"] + 2).all()
    assert (here["loss interpolated 1"] > here["loss rotary 1"] + 1).all()
    assert (here["loss interpolated, trained 4"] < here["loss interpolated 4"] - 1).all()
    assert (here["loss YaRN 4"] < here["loss interpolated 4"] - 1).all()
    plain = frequencies(schemes.HEAD_WIDTH)
    slower, _ = yarn(schemes.HEAD_WIDTH, factor=4.0, trained_length=topics.LENGTH)
    by = plain / slower
    assert by[0] == 1
    assert (np.diff(by) >= -1e-12).all()
    assert by[1] > 1.3
    assert by[-1] == pytest.approx(4)


def test_yarn_in_a_configuration(page):
    """The slowest pair is slowed by the whole factor and the fastest not at all.

        Then every pair seems to have gone around more often than it did, and too few pairs are slowed.
    The lengths and the factor must agree, because some versions of Transformers ignored the factor and
        divided the two lengths.

        YaRN multiplies rotated queries and keys by $0.1 \\ln 4 + 1$

        Llama 3.1, for example, comes with its own.
    """
    assert page.torch.slowing[0] == pytest.approx(1)
    assert page.torch.slowing[-1] == pytest.approx(4)
    assert page.torch.config["rope_scaling"]["factor"] == 4
    slow, factor = reference.yarn(128, base=1e6, factor=4.0, trained_length=32768)
    assert np.allclose(page.torch.rope.frequencies, slow)
    assert page.torch.rope.attention_factor == pytest.approx(factor)
    assert factor == pytest.approx(0.1 * np.log(4) + 1)
    ours = {"frequencies": slow, "attention_factor": factor}
    assert np.allclose(
        rotate(np.eye(128), **ours), factor * rotate(np.eye(128), frequencies=slow)
    )
    extended, _ = reference.yarn(128, base=1e6, factor=4.0, trained_length=131072)
    plain = frequencies(128, base=1e6)
    assert (extended < 0.999 * plain).sum() < (slow < 0.999 * plain).sum()
    assert RECORDS["Llama 3.1"]["rope_scaling"]["rope_type"] == "llama3"


def test_the_base_of_llama_2(page):
    """Llama 2 has base 10000 and a context of 4096 tokens, more than twice what the first line allows.

    nearly every pair then rotates at a different speed than in training

    A larger base slows every pair but the first
    """
    (first,) = said(page, "base   10000: similar key wins up to")[:1]
    assert 2 * first < 4096
    assert (frequencies(128, base=5e5)[1:] < 0.99 * frequencies(128)[1:]).all()
    assert frequencies(128, base=5e5)[0] == frequencies(128)[0]


def test_similar_and_random_keys(page):
    """Averaged over random vectors, the random key scores 0, and the similar one scores in proportion to
    the sum of the cosines of all pairs
    """
    rng = np.random.default_rng(0)
    q, other = rng.normal(size=(2, 20000, 128))
    at = np.array([1000])
    rotated = rotate(q[:, None], at)
    similar = (rotated * q[:, None]).sum(-1).mean()
    expected = 2 * np.cos(1000 * frequencies(128)).sum()
    assert similar == pytest.approx(expected, rel=0.02)
    assert abs((rotated * other[:, None]).sum(-1).mean()) < 0.05 * expected


def test_left_padding(page):
    """Hide it with a mask and count positions from the first real token, and the output is that of the
    text alone, up to rounding.
    In bfloat16 the rounding itself can be visible, so compare in float32, where a real mistake stays as
    large as it was.

    They don't matter for RoPE, as long as queries and keys shift by the same amount

    For RoPE the mask is enough. For the sinusoid it isn't: if the padding is counted, every real token is
    three positions too late, and some output is off by 1.15.
    """
    assert said(page, "RoPE without a mask:  off by")[0] > 0.5
    assert said(page, "RoPE with a mask:     off by") == [0]
    assert said(page, "sinusoid with a mask, padding counted: off by") == [1.15]
    assert said(page, "sinusoid with a mask, padding skipped: off by") == [0]
    assert (page.torch.in_slots - page.torch.from_text)[3:].tolist() == [3, 3, 3, 3]


def test_position_ids_from_the_mask(page):
    """In Transformers you skip the padding with position_ids = (attention_mask.cumsum(-1) - 1).clip(0).

    Without a cache, pass the mask as above.
    """
    attention_mask = torch.tensor([[0, 0, 0, 1, 1, 1, 1]])
    position_ids = (attention_mask.cumsum(-1) - 1).clip(0)
    assert position_ids[0].tolist() == page.torch.from_text.tolist()
    rng = np.random.default_rng(0)
    layer = reference.MultiHeadAttention.init(rng, 16, 2, rotate=reference.Rotary())
    x, where = rng.normal(size=(7, 16)), np.array([-1, -1, -1, 0, 1, 2, 3])
    alone = layer(x[3:], causal=True)
    padded = {"causal": True, "query_positions": where}
    assert abs(layer(x, **padded)[3:] - alone).max() > 0.5
    masked = layer(x, mask=(where >= 0)[None], **padded)
    assert np.allclose(masked[3:], alone)


def test_packing_takes_a_mask(page):
    """A softmax never gives a weight of zero to a key that it can see.

    With RoPE that mask is all you need

    With reset positions it still changes by 1.53, and with the mask not at all.
    """
    assert (reference.attention_weights(Q, K) > 0).all()
    assert said(page, "reset positions: second changes by") == [1.53]
    assert said(page, "mask: second changes by") == [0]
    layer = reference.MultiHeadAttention.init(
        np.random.default_rng(0), 16, 2, rotate=reference.Rotary()
    )
    same = np.arange(12)[:, None] // 6 == np.arange(12) // 6
    packed = layer(Q, causal=True, mask=same)
    assert np.allclose(packed[6:], layer(Q[6:], causal=True))


def test_true_hides_in_the_layers_of_pytorch(page):
    """The first output is the first value, so here True keeps. torch.nn.MultiheadAttention with the same
    mask returns the mean of the other two, 25, as the inverted mask does here.
    """
    layer = torch.nn.MultiheadAttention(1, 1, bias=False, batch_first=True, kdim=2, vdim=1)
    with torch.no_grad():
        for weight in layer.parameters():
            weight.fill_(1)
    keys, values = torch.ones(1, 3, 2), torch.tensor([[[10.0], [20.0], [30.0]]])
    mask = torch.tensor([[True, False, False]])
    out, _ = layer(torch.ones(1, 1, 1), keys, values, attn_mask=mask)
    assert out.item() == pytest.approx(25)
    assert said(page, "True at the first key only:") == [10]
    assert said(page, "the inverted mask:") == [25]
    encoder = torch.nn.TransformerEncoderLayer(4, 1, dropout=0.0, batch_first=True).eval()
    x = torch.randn(1, 3, 4, generator=torch.Generator().manual_seed(0))
    future = torch.ones(3, 3, dtype=torch.bool).triu(1)
    alone = encoder(x[:, :1])
    assert torch.allclose(encoder(x, src_mask=future)[:, :1], alone, atol=1e-5)
    assert not torch.allclose(encoder(x, src_mask=~future)[:, :1], alone, atol=1e-2)


def test_the_other_corner(page):
    """The framework returns the first value, 10, where the mean is 20.

    For one query and three keys, the framework's mask is $(1, 0, 0)$, and the right one is $(1, 1, 1)$.

    PyTorch has the other corner too, as torch.nn.attention.bias.causal_lower_right.
    """
    assert said(page, "is_causal=True:") == [10]
    assert said(page, "posattn, causal:") == [20]
    assert np.tri(1, 3).tolist() == [[1, 0, 0]]
    assert reference.causal_mask(1, 3).astype(int).tolist() == [[1, 1, 1]]
    corner = causal_lower_right(1, 3)
    values = torch.tensor([[[[10.0], [20.0], [30.0]]]])
    out = torch.nn.functional.scaled_dot_product_attention(
        torch.ones(1, 1, 1, 1), torch.ones(1, 1, 3, 1), values, attn_mask=corner
    )
    assert out.item() == pytest.approx(20)


def test_rows_that_see_nothing(page):
    r"""Because a softmax over nothing but minus infinity is $0/0$

    PyTorch's scaled_dot_product_attention now gives zeros, torch.nn.MultiheadAttention still gives NaN if
    you ask for the weights, and JAX gives the mean.

    Filling in a large negative number hides the NaN, and the row becomes the mean of all values, padding
    included.

    and $0 \cdot \mathrm{NaN}$ is NaN.
    """
    assert "softmax is NaN: True True True" in page.printed
    assert "masked_softmax: 0.0 0.0 0.0" in page.printed
    x, nothing = torch.ones(1, 5, 4), torch.zeros(5, 5, dtype=torch.bool)
    sdpa = torch.nn.functional.scaled_dot_product_attention
    assert (sdpa(x, x, x, attn_mask=nothing) == 0).all()
    layer = torch.nn.MultiheadAttention(4, 1, batch_first=True)
    assert layer(x, x, x, attn_mask=~nothing, need_weights=True)[0].isnan().all()
    values = jnp.arange(5.0)[None, :, None, None]
    ones = jnp.ones((1, 5, 1, 1))
    out = jax.nn.dot_product_attention(
        ones, ones, values, mask=jnp.zeros((1, 1, 5, 5), bool)
    )
    assert np.allclose(out, 2)
    assert np.allclose(reference.masked_softmax(np.full((1, 5), -1e9)), 1 / 5)
    assert np.isnan(0 * np.nan)


def test_whose_window(page):
    """In a config.json of Transformers it does, and in FlashAttention's window_size and in Mistral's paper
    it doesn't. There the same number gives W + 1 keys.

    The first rule gives 4 keys and the second 5, and the causal window of this library follows the first.

    so a window of W is window_size=(W - 1, 0)

    One key too many looks harmless, and texts no longer than the window never reveal it.
    """
    assert said(page, "W with itself:") == [4]
    assert said(page, "W to the left:") == [5]
    assert said(page, "window_mask & causal:") == [4]
    back = page.torch.back
    assert np.array_equal((back >= 0) & (back <= 4 - 1), page.torch.with_itself)
    small = RECORDS["Mistral 7B v0.1"] | {"sliding_window": 4}
    window = plan(small).layers[0].window
    seen = reference.window_mask(12, 12, window) & reference.causal_mask(12)
    assert np.array_equal(
        seen, page.torch.with_itself
    )  # `nox -s oracles` compares it with transformers
    short = (slice(4), slice(4))
    assert np.array_equal(page.torch.with_itself[short], page.torch.to_the_left[short])


def test_order_from_the_mask_alone(page):
    r"""For *A B C* the outputs are $1, \frac{1}{2}, \frac{1}{3}$, and for *B A C* they are $0, \frac{1}{2},
    \frac{1}{3}$, with the same $\frac{1}{3}$ at C. In the second layer C takes the mean of those three,
    $\frac{1}{3}(1 + \frac{1}{2} + \frac{1}{3})$ in one text and $\frac{1}{3}(0 + \frac{1}{2} +
    \frac{1}{3})$ in the other.

    After one layer C has 0.33 in both texts, and after two it has 0.61 in one and 0.28 in the other

    In one layer, nothing: it sees the same three tokens either way.
    """
    for first, layers in (("A B C", (0.33, 0.61)), ("B A C", (0.33, 0.28))):
        for layer, value in enumerate(layers, 1):
            assert said(page, f"{first}, layer {layer}: at C") == [value]
    assert np.mean([1, 1 / 2, 1 / 3]) == pytest.approx(11 / 18)
    assert np.mean([0, 1 / 2, 1 / 3]) == pytest.approx(5 / 18)
    attend = reference.scaled_dot_product_attention
    x, y = Q[:3], Q[[1, 0, 2]]
    once = [attend(z, z, z, causal=True) for z in (x, y)]
    assert np.allclose(once[0][-1], once[1][-1])
    twice = [attend(z, z, z, causal=True) for z in once]
    assert not np.allclose(twice[0][-1], twice[1][-1], atol=1e-3)


def test_decoders_with_the_mask_alone(page):
    """at the end of the trained length, their loss per letter, in nats, is … with the mask alone and …
    with RoPE. On
    longer texts it is the other way around. At four times the length the mask alone has … and RoPE …

    SmolLM3 leaves RoPE out of every fourth layer.
    """
    for times in "14":
        mask, rope = losses("none", times), losses("rotary", times)
        assert page.glued[f"loss mask alone {times}"] == pytest.approx(mask.mean())
        assert page.glued[f"loss rotary {times}"] == pytest.approx(rope.mean())
        assert ((mask > rope) == (times == "1")).all()
    without = [layer.rope is None for layer in PLANS["SmolLM3"].layers]
    assert without == [number % 4 == 0 for number in range(1, len(without) + 1)]


def test_a_bias_as_a_function(page):
    """The 64 GiB contain nothing that isn't in those few bytes.

    and with attention=flex.attention PyTorch's FlexAttention runs it
    """
    from posattn.torch import ALiBi, MultiHeadAttention

    x = torch.from_numpy(Q).float()
    layer = MultiHeadAttention(16, 4, bias=ALiBi(4)).requires_grad_(False)
    fused = MultiHeadAttention(16, 4, bias=ALiBi(4), attention=flex.attention)
    fused.requires_grad_(False).load_state_dict(layer.state_dict())
    assert torch.allclose(fused(x, causal=True), layer(x, causal=True), atol=1e-5)


def test_patches_that_come_out_short(page):
    """DINOv2 has 37 by 37 patches at 518 pixels

    The resized table then has as many rows as the factor times the old size, rounded down

    The rotation accepts any size. It has no table, and the two equal scores show that it sees only how
    far apart two patches are.

    a product that should be a whole number may come out just below it
    """
    assert 37 * (39 / 37) < 39
    assert 37 * 14 == 518
    table = torch.zeros(1, 1, 37, 37)
    for n in (38, *page.torch.wrong):
        scaled = torch.nn.functional.interpolate(table, scale_factor=n / 37)
        sized = torch.nn.functional.interpolate(table, size=(n, n))
        assert sized.shape[-1] == n
        assert scaled.shape[-1] == n - (n in page.torch.wrong)
    here, there = (said(page, f"both moved by {n}: score") for n in (" 0", "50"))
    assert here == there


def test_one_token_too_many(page):
    """In a text of up to W tokens there are none, so both rules see everything. At 513 tokens there is one
    such pair, the last query with the first key.
    """
    assert said(page, "512 tokens:") == [0]
    assert said(page, "513 tokens:") == [1]
    assert np.argwhere(page.torch.differ & (page.torch.behind >= 0)).tolist() == [[512, 0]]


def test_packed_and_added(page):
    """the second one is at positions 4 to 7 when it should be at 0 to 3

    Such a model needs both, the mask and the reset.
    """
    assert said(page, "mask: off by")[0] > 0.5
    assert said(page, "mask and reset: off by") == [0]
