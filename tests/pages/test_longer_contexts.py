"""Longer contexts than those of training."""

import inspect
import json
import re

import numpy as np
import pytest

from posattn import reference
from posattn.reference import frequencies, rotate
from tests.pages.reading import DOCS

L, N, S = 8192, 32768, 4.0
OMEGA = frequencies(128)
PAIRS = np.arange(64)
UNFINISHED = OMEGA * L / (2 * np.pi) < 1


def ways():
    """The frequencies of each method for a text four times as long as those of training."""
    return {
        "position interpolation": reference.position_interpolation(128, factor=S),
        "NTK-aware": reference.ntk_aware(128, factor=S),
        "dynamic NTK, factor 4": reference.dynamic_ntk(
            128, factor=S, length=N, trained_length=L
        ),
        "YaRN": reference.yarn(128, factor=S, trained_length=L)[0],
        "llama3": reference.llama3(128, base=1e4, factor=S, trained_length=L),
        "base 500000": frequencies(128, base=5e5),
    }


def new_angles(slowed):
    """How many pairs reach an angle that training did not show."""
    return (UNFINISHED & (N * slowed > L * OMEGA * (1 + 1e-9))).sum()


def test_eq_frequency_of_a_pair(page):
    r"""$$ \omega_j = b^{-2j/d}, \qquad j = 0, \ldots, d/2 - 1. $$

    It has 64 pairs.
    """
    assert np.allclose(OMEGA, 10000.0 ** (-2 * PAIRS / 128))
    assert OMEGA.size == 64


def test_how_far_the_question_is(page):
    """The query of that question has to find a key more than 32,000 tokens back, and in training no
    query ever looked back further than 8191.

    Whether the model then finds the dog 32,000 tokens back
    """
    sentence = ["the", "dog", "bites", "the", "man"]
    question = 100  # more tokens than it needs
    assert N - question - len(sentence) > 32000
    assert L - 1 == 8191


def test_three_pairs_in_training_and_after(page):
    """In all of training it never rotated by more than 54 degrees.

    By the end of our document it has rotated by 217 degrees, to the other side of the circle.

    Pair 0 goes around more than a thousand times in training.

    Pair 45 makes two full turns in training, so it has met every angle too.
    """
    assert "pair 63: 54 degrees in training, 217 in the document\n" in page.printed
    turns = L * OMEGA / (2 * np.pi)
    assert turns[0] > 1000
    assert 2 < turns[45] < 2.01
    assert np.allclose(np.degrees([L * OMEGA[63], N * OMEGA[63]]), [54.2, 216.8], atol=0.05)


def test_the_cosine_of_the_slowest_pair(page):
    """In training that cosine stayed above 0.58.

    In the document it sinks to $-1$ when the key is 27205 tokens back, because the pair has then
    rotated by 180 degrees. At the far end it has come back up, but only to $-0.80$.
    """
    cosine = np.cos(np.arange(N + 1) * OMEGA[63])
    assert cosine.argmin() == 27205 < N
    assert cosine.min() == pytest.approx(-1)
    assert np.degrees(27205 * OMEGA[63]) == pytest.approx(180, abs=0.005)
    assert "pair 63: 180 degrees after 27205 tokens\n" in page.printed
    assert np.cos(np.arange(L + 1) * OMEGA[63]).min() > 0.58
    end = np.cos(N * OMEGA[63])
    assert round(end, 2) == -0.80
    # a reference with both vectors equal in the last pair and zero elsewhere
    x = np.zeros((1, 128))
    x[0, 126] = 1
    query, key = reference.rotate(x, np.array([N])), reference.rotate(x, np.array([0]))
    assert (query @ key.T).item() == pytest.approx(end)


def test_why_rope_fails(page):
    """its slow pairs never complete a circle within the trained length, so a longer text rotates them
    to angles the model has never seen, where even a perfect match can score like a mismatch.
    """
    for pair in np.flatnonzero(UNFINISHED):
        assert L * OMEGA[pair] < 2 * np.pi
        assert N * OMEGA[pair] > L * OMEGA[pair]
    x = np.zeros((1, 128))
    x[0, 126] = 1  # a perfect match in the slowest pair
    scores = [
        (reference.rotate(x, np.array([n])) @ reference.rotate(x, np.array([0])).T).item()
        for n in (0, L - 1, 27205)
    ]
    assert scores == pytest.approx([1, 0.585, -1], abs=0.001)


def test_pairs_that_finish_a_turn(page):
    """In 8192 tokens, pairs 0 to 49 complete at least one turn.

    The other … pairs do not

    They count entries, two per pair, so pair 50 is their 100.

    The lower one, for 8192 tokens, starts above a thousand turns and crosses the line of one turn at
    pair 50. The upper one, for 32768 tokens, crosses it at pair 60.
    """
    assert UNFINISHED.tolist() == [j >= 50 for j in range(64)]
    assert page.glued["unfinished"] == 14
    critical = 2 * np.ceil(128 / 2 * np.log(L / (2 * np.pi)) / np.log(1e4))
    assert critical == 2 * (64 - 14) == 100
    shown = page.torch.all_turns
    assert shown["in 8192 tokens"][0] > 1000
    first = [(shown[f"in {n} tokens"] < 1).argmax() for n in (L, N)]
    assert first == [50, 60]


def test_eq_slowing(page):
    r"""$$ \lambda_j = \frac{\omega_j}{\omega'_j}. $$

    With $\lambda_j = s = n/L$ it ends exactly where training ended.

    If pair 63 rotates four times more slowly, it covers in 32768 tokens exactly the 54 degrees it
    knows.

    So an unfinished pair needs a $\lambda_j$ of at least $s$
    """
    assert N / L == S
    assert np.allclose(N * OMEGA / S, L * OMEGA)
    assert np.isclose(N * OMEGA[63] / S, L * OMEGA[63])
    assert (N * OMEGA / (0.99 * S) > L * OMEGA)[UNFINISHED].all()


def test_the_picture_of_slowing(page):
    """Position interpolation is flat at 4. NTK-aware climbs steadily from 1 to 4, dynamic NTK from 1
    to 13, the base 500000 from 1 to 47. YaRN stays at 1 until pair 25 and reaches 4 at pair 50.
    llama3 stays at 1 until about pair 40 and reaches 4 at pair 50.

    Position interpolation slows every pair by 4.

    YaRN and llama3 leave fast pairs alone and slow the unfinished ones by 4.

    It runs along the bottom, where nothing is slowed, up to pair 25.

    NTK-aware scaling is a straight line between the two extremes.

    The two steep lines slow the last pairs by far more than 4
    """
    assert np.allclose(np.diff(np.log(OMEGA / ways()["NTK-aware"]), 2), 0)
    shown = page.torch.slowing
    for name, slowed in ways().items():
        assert np.allclose(shown[name.partition(",")[0]], OMEGA / slowed)
    assert np.allclose(shown["position interpolation"], 4)
    for name, last in (("NTK-aware", 4), ("dynamic NTK", 13), ("base 500000", 47)):
        assert (np.diff(shown[name]) > 0).all()
        assert shown[name][0] == pytest.approx(1)
        assert shown[name][-1] == pytest.approx(last, abs=0.05)
    for name, stays in (("YaRN", 25), ("llama3", 40)):
        assert np.allclose(shown[name][: stays + 1], 1, atol=0.001)
        assert shown[name][stays + 1] > 1
        assert np.allclose(shown[name][50:], 4)
        assert np.allclose(shown[name][UNFINISHED], 4)


def test_eq_position_interpolation(page):
    r"""$$ \omega'_j = \frac{\omega_j}{s} $$

    The fastest pair now rotates by 0.25 radians per token.

    position 32768 becomes position 8192

    pair 63 ends at 54 degrees, as far as it ever got in training.
    """
    assert "pair 63: 54 degrees at the end\n" in page.printed
    assert np.allclose(ways()["position interpolation"], OMEGA / S)
    assert page.torch.interpolated[0] == 0.25
    assert N / S == L


def test_what_interpolation_does_to_a_head_that_looks_at_the_previous_token(page):
    r"""the pair adds $\cos(k\,\omega_0 - 1)$ to the score of the token $k$ steps back.

    As trained, the previous token gets 1.00 and its two neighbors 0.54. After the slowing, one radian
    back is four tokens back, so the head looks at the wrong token. It also looks less sharply, because
    the two neighbors of its target now get 0.97.

    two adjacent tokens are 0.25 radians apart in the fastest pair, and closer in every other.

    it slows the fast pairs along with the slow ones, so neighboring tokens come $s$ times closer in
    angle, in short texts as well as long ones
    """
    slowed = ways()["position interpolation"]
    assert np.allclose(OMEGA / slowed, S)
    assert slowed[0] == 0.25
    assert (slowed[1:] < 0.25).all()
    # a reference: the key points along pair 0, and the query is set one radian apart from it
    key, query = np.zeros((2, 1, 128))
    key[0, 0] = 1
    query[0, :2] = np.cos(1), -np.sin(1)
    for speeds, peak, beside in ((OMEGA, 1, 0.54), (slowed, 4, 0.97)):
        scores = [
            (
                reference.rotate(query, np.array([6]), frequencies=speeds)
                @ reference.rotate(key, np.array([6 - k]), frequencies=speeds).T
            ).item()
            for k in range(7)
        ]
        assert np.allclose(scores, np.cos(np.arange(7) * speeds[0] - 1))
        assert np.argmax(scores) == peak
        assert scores[peak] == pytest.approx(1)
        for k in (peak - 1, peak + 1):
            assert round(scores[k], 2) == beside
        row = " ".join(f"{score:5.2f}" for score in scores)
        assert f"{speeds[0]:.2f} radians per token {row}\n" in page.printed


def test_fifty_times_as_many_steps(page):
    """had hardly moved after 50 times as many steps."""
    assert 10_000 / 200 == 50


def test_eq_ntk_aware(page):
    r"""$$ \omega'_j = (b')^{-2j/d}, \qquad b' = b\,s^{d/(d-2)}, \qquad \text{so that} \quad
    \lambda_j = s^{j/(d/2 - 1)}. $$

    so that the fastest keeps its speed and the slowest is slowed by exactly $s$

    The base goes from 10000 to about 40890. Pair 0 keeps its speed, pair 45 is slowed by 2.69, and
    only the last pair by the full 4.
    """
    assert round(page.torch.b * S ** (128 / 126)) == 40890
    assert round((OMEGA / ways()["NTK-aware"])[45], 2) == 2.69
    larger = 1e4 * S ** (128 / 126)
    assert np.allclose(ways()["NTK-aware"], larger ** (-2 * PAIRS / 128))
    assert np.allclose(OMEGA / ways()["NTK-aware"], S ** (PAIRS / 63))
    assert (OMEGA / ways()["NTK-aware"])[[0, -1]] == pytest.approx([1, S])


def test_what_ntk_aware_scaling_leaves(page):
    """But look at the pairs from 50 to 62. They had not finished a turn, and all of them are slowed
    by less than 4.
    """
    slowing = OMEGA / ways()["NTK-aware"]
    assert UNFINISHED[50:63].all()
    assert (slowing[50:63] < 4).all()
    assert new_angles(ways()["NTK-aware"]) == 13


def test_eq_dynamic_ntk(page):
    r"""$$ b' = b \left( 1 + s \left( \frac{\max(n, L)}{L} - 1 \right) \right)^{d/(d-2)} $$

    At 32768 tokens the slowest pair is slowed by 13, not by 4.

    the bracket is $1 + 4 \cdot (4 - 1) = 13$.

    Up to 8192 tokens nothing changes.

    With factor 1 you would get exactly the NTK-aware base for the length at hand

    Pair 50, the fastest of the unfinished ones, is slowed by $13^{50/63} = 7.7$, where NTK-aware
    scaling left it at $4^{50/63} = 3.0$ and it needs 4. So under dynamic NTK none of the unfinished
    pairs reaches a new angle in this document.
    """
    for n in (100, L, 2 * L, N):
        larger = 1e4 * (1 + S * (max(n, L) / L - 1)) ** (128 / 126)
        made = reference.dynamic_ntk(128, factor=S, length=n, trained_length=L)
        assert np.allclose(made, larger ** (-2 * PAIRS / 128))
        assert np.allclose(made, OMEGA) == (n <= L)
    assert np.isclose((OMEGA / made)[-1], 13)
    assert UNFINISHED.argmax() == 50
    assert (OMEGA / made)[50] == pytest.approx(13 ** (50 / 63))
    assert (OMEGA / ways()["NTK-aware"])[50] == pytest.approx(4 ** (50 / 63))
    assert (round(13 ** (50 / 63), 1), round(4 ** (50 / 63), 1)) == (7.7, 3.0)
    assert new_angles(made) == 0
    plain = reference.dynamic_ntk(128, factor=1.0, length=N, trained_length=L)
    assert np.allclose(plain, reference.ntk_aware(128, factor=N / L))


def test_eq_pair_with_turns(page):
    r"""$$ j(\beta) = \frac{d}{2 \ln b} \ln \frac{L}{2\pi\beta}. $$

    Here $j(32) = 25.8$ and $j(1) = 49.8$. YaRN rounds both outwards, to 25 and 50.

    the blend runs from $j_f = \lfloor j(32) \rfloor$ to $j_s = \lceil j(1) \rceil$

    So pairs 0 to 25 keep their speed, the 14 unfinished pairs from 50 on are slowed by 4, and the
    pairs in between are blended.
    """
    for beta, about in ((1, 49.8), (4, 40.2), (32, 25.8)):
        j = 128 / (2 * np.log(1e4)) * np.log(L / (2 * np.pi * beta))
        assert round(j, 1) == about
        assert L * 1e4 ** (-2 * j / 128) / (2 * np.pi) == pytest.approx(beta)
    assert "pairs up to 25 stay\npairs from 50 on are slowed by 4\n" in page.printed


def test_eq_yarn(page):
    r"""$$ \omega'_j = \gamma_j \frac{\omega_j}{s} + (1 - \gamma_j)\,\omega_j, \qquad
    \gamma_j = \operatorname{clip}\Bigl(\frac{j - j_f}{j_s - j_f}, 0, 1\Bigr). $$
    """
    gamma = np.clip((PAIRS - 25) / (50 - 25), 0, 1)
    assert np.allclose(ways()["YaRN"], gamma * OMEGA / S + (1 - gamma) * OMEGA)


def test_eq_yarn_by_hand(page):
    r"""It is 20 steps into a ramp of 25, so $\gamma = 20 / 25 = 0.8$:

    $$ \omega'_{45} = 0.8 \cdot \frac{\omega_{45}}{4} + 0.2 \cdot \omega_{45} = 0.4\,\omega_{45},
    \qquad \lambda_{45} = \frac{1}{0.4} = 2.5. $$
    """
    assert (45 - 25, 50 - 25, 20 / 25) == (20, 25, 0.8)
    assert (OMEGA / ways()["YaRN"])[45] == pytest.approx(2.5)
    assert 1 / 2.5 == 0.4


def test_eq_llama3(page):
    r"""$$ \omega'_j = (1 - \gamma_j) \frac{\omega_j}{s} + \gamma_j\,\omega_j, \qquad
    \gamma_j = \operatorname{clip}\Bigl(\frac{r_j - 1}{4 - 1}, 0, 1\Bigr), \qquad
    r_j = \frac{L\,\omega_j}{2\pi}. $$

    a pair with at least 4 turns stays, and a pair with at most 1 is slowed by $s$

    so more of the middle pairs keep their speed.

    so $\gamma$ is $(2.01 - 1) / 3$, the 0.336 of the output. Its slowing is
    $1 / (0.336 + (1 - 0.336) / 4) = 1.99$, where YaRN had 2.50.
    """
    assert (
        "pair 45 makes 2.01 turns, gamma 0.336\npair 45 is slowed by 1.99\n" in page.printed
    )
    assert round(1 / (0.336 + (1 - 0.336) / 4), 2) == 1.99
    r = L * OMEGA / (2 * np.pi)
    gamma = np.clip((r - 1) / 3, 0, 1)
    assert np.allclose(ways()["llama3"], (1 - gamma) * OMEGA / S + gamma * OMEGA)
    assert np.allclose(ways()["llama3"][r >= 4], OMEGA[r >= 4])
    assert np.allclose(ways()["llama3"][r <= 1], OMEGA[r <= 1] / S)
    kept = [np.isclose(OMEGA, ways()[name]).sum() for name in ("llama3", "YaRN")]
    assert kept[0] > kept[1]


def test_the_pairs_of_llama_3_1(page):
    """Llama 3.1 itself has base 500000 and factor 8, and then … of its 64 pairs stay, … are blended
    and … are slowed in full.
    """
    slowing = frequencies(128, base=5e5) / reference.llama3(128)
    blended = (slowing > 1 + 1e-9) & (slowing < 8 - 1e-9)
    counts = [page.glued[name] for name in ("stay", "blend", "full")]
    assert counts == [29, 6, 29]
    assert blended.sum() == 6


def test_eq_longrope(page):
    r"""$$ \omega'_j = \frac{\omega_j}{\lambda_j}, \qquad \lambda = \begin{cases} \text{short list}
    & n \le L \\ \text{long list} & n > L. \end{cases} $$

    the short list is for $n \le L$, as in eq_longrope.
    """
    short, long = np.full(64, 1.5), np.linspace(1, 5, 64)
    options = {"short_factors": short, "long_factors": long, "trained_length": L}
    for n, factors in ((L - 1, short), (L, short), (L + 1, long)):
        made, _ = reference.longrope(128, **options, length=n, factor=S)
        assert np.allclose(made, OMEGA / factors)


def test_eq_longrope_factor(page):
    r"""$$ c = \sqrt{1 + \frac{\ln s}{\ln L}}, $$

    which is the 1.1902 of the output.

    it applies to short texts as well as long ones
    """
    options = {"short_factors": np.ones(48), "long_factors": np.ones(48), "factor": 32.0}
    for n in (100, N):
        _, c = reference.longrope(96, **options, length=n, trained_length=4096)
        assert c == pytest.approx(np.sqrt(1 + np.log(32) / np.log(4096)))
    assert round(c, 4) == 1.1902
    assert f"\nattention factor {c:.4f}\n" in page.printed


def test_the_lists_of_phi_4_mini(page):
    """Here are the two lists of Phi-4-mini, rounded to two decimals. Its config.json gives 4096 tokens
    as the original length and 131072 as the new one, so here $L = 4096$ and the factor is 32, in place of
    our L and s. Of each head 96 entries rotate, which makes 48 pairs.

    The fastest pair is not slowed at all. From there the slowing grows by the same ratio from pair to
    pair, as in NTK-aware scaling, until pair 31 has reached the factor 32. All later pairs are slowed by
    at least that much, as in YaRN, and they include every pair that makes less than one turn in training,
    so no pair meets a new angle. The search did not leave fast pairs alone, though: pair 16 makes 30.26
    turns in training and is slowed by 5.98, where YaRN would slow it by 1.05. And the full slowing starts
    earlier, at a pair that makes 1.70 turns

    The short list holds only ones. A text of up to 4096 tokens gets the angles of training

    Phi-4-mini's file has none, and it has the older key type and the original length at the top level.
    """
    path = DOCS / "_records" / "configs" / "phi-4-mini.json"
    config = json.loads(path.read_text("utf-8"))
    lengths = config["original_max_position_embeddings"], config["max_position_embeddings"]
    assert lengths == (4096, 131072)
    assert lengths[1] / lengths[0] == 32
    head = config["hidden_size"] // config["num_attention_heads"]
    assert head * config["partial_rotary_factor"] == 96 == 2 * 48
    lists = config["rope_scaling"]
    assert "factor" not in lists
    assert lists["type"] == "longrope"
    long = np.array(lists["long_factor"])
    assert lists["short_factor"] == [1] * 48 == page.torch.short_list.tolist()
    assert long.round(2).tolist() == page.torch.long_list.tolist()
    assert long[0] == 1
    assert np.allclose(np.diff(np.log(long[:32])), np.log(long[1]), atol=1e-4)
    assert long[30] < 32 < long[31] < 32.05
    assert (long[32:] > long[31]).all()
    omega = frequencies(96)
    slower, _ = reference.yarn(96, factor=32.0, trained_length=4096)
    assert round((omega / slower)[16], 2) == 1.05
    assert np.allclose((omega / slower)[34:], 32)
    assert np.round(4096 * omega / (2 * np.pi), 2)[[16, 31]].tolist() == [30.26, 1.7]
    unfinished = 4096 * omega < 2 * np.pi
    assert unfinished.argmax() == 34
    assert (131072 * omega / long <= 4096 * omega)[unfinished].all()
    made, _ = reference.longrope(
        96,
        short_factors=lists["short_factor"],
        long_factors=long,
        length=4096,
        trained_length=4096,
        factor=32.0,
    )
    assert np.allclose(made, omega)


def test_a_larger_base(page):
    """With base 500000 instead of 10000, pair 63 is $50^{126/128} = 47$ times slower, and pair 0 doesn't
    notice.
    """
    slowing = OMEGA / frequencies(128, base=5e5)
    assert round(slowing[63]) == 47
    assert slowing[0] == 1


def test_three_pairs_seven_ways(page):
    """Without any repair, 14 pairs meet new angles. NTK-aware scaling saves one of them, the very
    last. Under every other method, none of the 14 meets a new angle.

    Only position interpolation touches it, and that is its price.
    """
    assert new_angles(OMEGA) == 14
    for name, slowed in ways().items():
        fast, middle, slow = (OMEGA / slowed)[[0, 45, 63]]
        new = new_angles(slowed)
        assert new == (13 if name == "NTK-aware" else 0)
        assert (fast > 1 + 1e-9) == (name == "position interpolation")
        short = name.partition(",")[0].removeprefix("position ")
        row = f"{short:14} {fast:5.2f} {middle:5.2f} {slow:5.2f}  {new:3}\n"
        assert row in page.printed


def test_the_zoomed_picture(page):
    """YaRN lies exactly on it, and NTK-aware scaling comes down to it only at the last pair.

    The line without scaling is highest and ends at 0.6 turns. The line of training is lowest and
    ends at 0.15. NTK-aware begins at the upper line and meets the lower at pair 63. YaRN meets it at
    pair 50, where it crosses one turn.
    """
    shown = page.torch.late_turns
    training = shown["in training"]
    assert np.allclose(shown["YaRN"][50 - 32 :], training[50 - 32 :])
    assert not np.isclose(shown["YaRN"][49 - 32], training[49 - 32])
    assert np.isclose(shown["NTK-aware"][-1], training[-1])
    assert (shown["NTK-aware"][:-1] > 1.01 * training[:-1]).all()
    assert np.allclose([shown["no scaling"][-1], training[-1]], [0.6, 0.15], atol=0.003)
    assert training[49 - 32] > 1 > training[50 - 32]


def test_eq_entropy_of_weights(page):
    r"""$$ H \approx \ln n - \frac{\sigma^2}{2}. $$

    With $n$ equal scores that is simply $n$, and $H = \ln n$.

    So the entropy grows with the logarithm of the length, and a larger $\sigma$ pulls it down again.
    """
    rng = np.random.default_rng(1)
    for n in (8192, 32768):
        for sigma in (0.0, 0.5, 1.0):
            scores = rng.normal(scale=sigma, size=(20, n))
            weights = np.exp(scores)
            weights /= weights.sum(-1, keepdims=True)
            entropy = -(weights * np.log(weights)).sum(-1).mean()
            assert entropy == pytest.approx(np.log(n) - sigma**2 / 2, abs=0.02)


def test_where_the_entropy_comes_from(page):
    r"""The entropy is the weighted mean of $-\ln(\text{weight})$, so it is $\ln Z$ minus the weighted
    mean of $x$. For normal scores $Z$ is about $n\,e^{\sigma^2/2}$. Weighting by $e^x$ favors large
    scores, and moves their mean from 0 to $\sigma^2$.

    The formula promises $\ln 8192 - 2^2/2 = 7.01$ for the first line, and the cell measures 7.04.
    """
    sigma, n = 1.5, 1_000_000
    x = np.random.default_rng(2).normal(scale=sigma, size=n)
    total = np.exp(x).sum()
    weights = np.exp(x) / total
    assert total == pytest.approx(n * np.exp(sigma**2 / 2), rel=0.02)
    assert weights @ x == pytest.approx(sigma**2, abs=0.1)
    assert -(weights @ np.log(weights)) == pytest.approx(np.log(total) - weights @ x)
    assert round(np.log(8192) - 2**2 / 2, 2) == 7.01
    assert "8192 keys        entropy 7.04," in page.printed


def test_eq_attention_factor(page):
    r"""$$ c = 0.1 \ln s + 1. $$

    It multiplies the rotated queries and the rotated keys, so every score is multiplied by $c^2$.
    For $s = 4$ that is $1.1386^2 \approx 1.30$.
    """
    slowed, c = reference.yarn(128, factor=S, trained_length=L)
    assert c == pytest.approx(0.1 * np.log(S) + 1)
    assert round(c, 4) == 1.1386
    assert round(c**2, 2) == 1.30
    x = np.random.default_rng(0).normal(size=(6, 128))
    plain = reference.rotate(x, frequencies=slowed)
    sharp = reference.rotate(x, frequencies=slowed, attention_factor=c)
    assert np.allclose(sharp @ sharp.T, c**2 * (plain @ plain.T))


def test_sharpening_brings_the_entropy_back(page):
    """With four times as many keys, the weights spread over about four times as many of them.
    Sharpening brings the entropy back close to where it was.
    """
    lines = [line for line in page.printed.splitlines() if " entropy " in line]
    entropy = [float(line.split(" entropy ")[1].split(",")[0]) for line in lines]
    keys = [float(line.split("like ")[1].split()[0]) for line in lines]
    assert len(lines) == 3
    assert 3.5 < keys[1] / keys[0] < 4.5
    assert abs(entropy[2] - entropy[0]) < 0.1 * (entropy[1] - entropy[0]) + 0.01


def test_deepseek_sharpens_in_the_scale(page):
    r"""In DeepSeek-V3 both are 1, so the quotient is 1

    the scores are multiplied by $(0.1 \ln s + 1)^2$
    """
    _, c = reference.yarn(
        64, factor=40.0, trained_length=4096, mscale=1.0, mscale_all_dim=1.0
    )
    assert c == 1


def test_what_the_configuration_says(page):
    r"""The example is the configuration for running Qwen3 on 131072 tokens

    a text of twice the trained length with factor 2 gives $1 + 2 \cdot (2 - 1)$ in eq_dynamic-ntk.

    Linear and llama3 slow the slowest pair by the full factor of 8. For dynamic it is 3 and not 2

    If there is no factor, it is the ratio of the two lengths.
    """
    for line in (
        "yarn, base 1000000, 128 entries are rotated\n",
        "linear: slowest pair slowed by 8.00\n",
        "dynamic: slowest pair slowed by 3.00\n",  # 1 + 2 (65536 / 32768 - 1)
        "yarn: slowest pair slowed by 4.00\n",
        "yarn: attention factor 1.1386\n",
        "llama3: slowest pair slowed by 8.00\n",
        f"longrope: attention factor {np.sqrt(1 + np.log(32) / np.log(4096)):.4f}\n",
    ):
        assert line in page.printed
    wanted, c = reference.yarn(128, base=1e6, factor=4.0, trained_length=32768)
    for names in (page.torch, page.jax):
        assert np.allclose(np.asarray(names.turn.keywords["frequencies"]), wanted)
        assert names.turn.keywords["attention_factor"] == pytest.approx(c)
        assert names.turn.keywords["layout"] == "half"


def test_the_layer_sees_the_offset(page):
    """The outputs agree, so the offset is all the layer sees, as before."""
    assert page.printed.count("shifted by 100000, outputs change by 0.000\n") == 2


def test_the_length_that_qwen3_gives(page):
    """Qwen3's config.json says 40960, which its card explains as room for a prompt of 8192 tokens and an
    output of 32768, and the length for YaRN is 32768

    With Qwen3's 40960 that makes $40960 / 32768 = 1.25$ where you asked for 4.
    """
    path = DOCS / "_records" / "configs" / "qwen3.json"
    config = json.loads(path.read_text("utf-8"))
    assert config["max_position_embeddings"] == 40960 == 8192 + 32768
    assert config["rope_scaling"] is None
    assert 40960 / 32768 == 1.25


def test_short_texts_pay(page):
    """Position interpolation, NTK-aware scaling, YaRN and llama3 have one set of frequencies for all
    lengths, so a pair that is slowed for long texts is slowed for short ones too. Dynamic NTK and
    LongRoPE are the exceptions, because they leave short texts the frequencies of training: LongRoPE has a
    second list for long texts, and dynamic NTK a new set for every length.
    """
    fixed = (
        reference.position_interpolation,
        reference.ntk_aware,
        reference.yarn,
        reference.llama3,
    )
    for method in fixed:
        assert "length" not in inspect.signature(method).parameters
    for method in (reference.dynamic_ntk, reference.longrope):
        assert "length" in inspect.signature(method).parameters
    for n, same in ((100, True), (L, True), (L + 1, False)):
        made = reference.dynamic_ntk(128, factor=S, length=n, trained_length=L)
        assert np.allclose(made, OMEGA, rtol=1e-9) == same
    one, other = (
        reference.dynamic_ntk(128, factor=S, length=n, trained_length=L)
        for n in (2 * L, 3 * L)
    )
    assert not np.allclose(one, other, rtol=1e-3)


def test_eq_bound_on_base(page):
    r"""$$ \sum_{j=0}^{d/2-1} \cos(\delta\,\omega_j) \ge 0. $$

    Averaged over random vectors, the similar key has the higher score exactly when

    Base 10000 is good for less than 2000 tokens by this measure, and base 500000 for about 18,000.
    """
    for base, distance in ((1e4, 1706), (5e5, 18437), (6.4e5, 27684)):
        assert (
            f"base {base:7.0f}: similar wins up to {distance} tokens back\n" in page.printed
        )
        omega = frequencies(128, base=base)
        assert np.cos(distance * omega).sum() >= 0 > np.cos((distance + 1) * omega).sum()
    # the claim behind the sum: a similar key against a random one, with the mean 0.3 in every entry
    rng = np.random.default_rng(0)
    for distance in (1, 1000, 3000):
        q, other = 0.3 + rng.normal(size=(2, 20000, 128))
        similar = q + 0.1 * rng.normal(size=q.shape)
        turned = reference.rotate(q, np.full(len(q), distance))
        gain = (turned * (similar - other)).sum(-1)
        wanted = 2 * np.cos(distance * OMEGA).sum()
        assert gain.mean() == pytest.approx(wanted, abs=5 * gain.std() / len(q) ** 0.5)


def test_the_bound_falls_in_waves(page):
    """Base 84000 reaches 8192 tokens, and the larger base 100000 does not."""
    reached = {}
    for base in (84000, 100000):
        total = np.cos(np.outer(np.arange(1, 20001), frequencies(128, base=base))).sum(-1)
        reached[base] = (total < 0).argmax()
        line = f"base {base:7}: similar wins up to {reached[base]} tokens back\n"
        assert line in page.printed
    assert reached[100000] < L <= reached[84000]


def test_the_experiments_of_the_explorer(page):
    """At every factor above 1 all unfinished pairs have a dot except the very last

    The dots are gone, and the left end of the curve keeps its speed: pair 0 rotates by 1 radian per
    token at every factor.
    """
    for factor in (2.0, 4.0, 8.0, 16.0, 32.0):
        slowed = reference.ntk_aware(128, factor=factor)
        new = UNFINISHED & (factor * L * slowed > L * OMEGA * (1 + 1e-9))
        assert new[50:63].all()
        assert not new[63]
        slowed, _ = reference.yarn(128, factor=factor, trained_length=L)
        new = UNFINISHED & (factor * L * slowed > L * OMEGA * (1 + 1e-9))
        assert not new.any()
        assert slowed[0] == 1


def test_a_base_so_small_that_every_pair_completes_its_circle(page):
    """For width 128 and the 4096 tokens of Llama 2 that happens at bases up to …."""
    base = page.glued["small_base"]
    for factor, complete in ((0.999, True), (1.001, False)):
        turns = 4096 * frequencies(128, base=base * factor) / (2 * np.pi)
        assert (turns >= 1).all() == complete


def test_mistakes_have_these_sizes(page):
    r"""Scores of the same size that have nothing to do with the right ones would be off by about
    $\sqrt{2}$ of a score, which is 141%, and have a correlation of 0.
    The dropped scaling is most of the way there.

    Leaving the ends unrounded is milder, with a correlation of 0.78, but its scores are still off by
    66%.

    It changes the size of the scores and leaves their order alone. If you forget
    it, every score is too small by 23%, and if you apply it twice, every score is too large by 30%.

    That is nearly as far off as the dropped scaling, but more of the ranking survives.
    """
    found = re.findall(
        r"^(.+?) +(\d+)%(?: off, correlation (0\.\d\d))?$", page.printed, re.MULTILINE
    )
    shares = {name: int(share) / 100 for name, share, _ in found}
    left = {name: float(number) for name, _, number in found if number}
    assert set(left) == {"scaling dropped", "ends not rounded", "keys from before"}
    for name in ("scaling dropped", "keys from before"):
        assert shares[name] / 2**0.5 == pytest.approx(2 / 3, abs=0.06)
    assert shares["ends not rounded"] == 0.66
    assert left["ends not rounded"] == 0.78
    assert 0.2 < left["scaling dropped"] < left["keys from before"] < 0.6
    c = 0.1 * np.log(4) + 1
    assert shares["attention factor forgotten"] == round(1 - 1 / c**2, 2)
    assert shares["attention factor applied twice"] == round(c**2 - 1, 2)
    for name in ("attention factor forgotten", "attention factor applied twice"):
        assert 1 / 5 < shares[name] < 1 / 3
    assert shares["attention factor forgotten"] == 0.23
    assert shares["attention factor applied twice"] == 0.30
    unrelated = np.random.default_rng(0).normal(size=(2, 100_000))
    apart = abs(unrelated[0] - unrelated[1]).mean() / abs(unrelated).mean()
    assert apart == pytest.approx(2**0.5, rel=0.01)
    assert abs(np.corrcoef(*unrelated)[0, 1]) < 0.01
    assert round(2**0.5, 2) == 1.41


def test_what_survives_of_the_right_order(page):
    """Part of the ranking survives, because the fast pairs are the same with and without the scaling.

    Stale keys near the start have hardly rotated in their slow pairs, whichever frequencies you use.
    """
    slowed, _ = reference.yarn(128, factor=S, trained_length=L)
    assert np.allclose(slowed[:26], OMEGA[:26])
    then, now = (
        reference.dynamic_ntk(128, factor=S, length=n, trained_length=L) for n in (L, 20200)
    )
    moved = 199 * abs(now - then)
    assert (moved[40:] < 0.7).all()
    assert (199 * then[40:] < 0.7).all()
    assert moved[1:25].max() > np.pi


def test_rounding_changes_frequencies_by_a_few_percent(page):
    """It changes only the … pairs of the blend, and none of them by more than a few percent.

    Over 20,000 tokens pair 28 rotates by about 330 radians, and an error of 2.2 percent makes 7
    radians, more than a full turn.
    """
    options = {"factor": S, "trained_length": L}
    rounded, _ = reference.yarn(128, **options)
    exact, _ = reference.yarn(128, **options, truncate=False)
    change = abs(rounded / exact - 1)
    assert 0.01 < change.max() < 0.1
    assert np.flatnonzero(change > 1e-9).tolist() == [*range(26, 50)]
    assert page.glued["blended_pairs"] == 50 - 26
    assert 20000 * exact[28] == pytest.approx(330, abs=1)
    assert round(change[28], 3) == 0.022
    assert 2 * np.pi < 20000 * exact[28] * change[28] < 7.5


def test_count_the_unfinished_pairs(page):
    """With the larger base more pairs are unfinished.

    even at four times the length the very slowest has moved by less than 5 degrees.
    """
    assert np.degrees(4 * 8192 * frequencies(128, base=5e5)[-1]) < 5
    assert "base  10000: 14 unfinished" in page.printed
    assert "base 500000: 29 unfinished" in page.printed


def test_a_factor_that_is_large_enough(page):
    r"""The first unfinished pair is 50. It must be slowed by 4, and eq_ntk-aware slows it by
    $s^{50/63}$. So $s = 4^{63/50}$.
    """
    assert UNFINISHED.argmax() == 50
    factor = 4 ** (63 / 50)
    assert factor ** (50 / 63) == pytest.approx(4)
    assert new_angles(reference.ntk_aware(128, factor=factor)) == 0
    assert new_angles(reference.ntk_aware(128, factor=factor - 0.1)) > 0


def test_positions_or_frequencies(page):
    r"""An angle is position times frequency, so $p \cdot (\omega_j / s) = (p / s) \cdot \omega_j$."""
    assert np.allclose(page.torch.by_frequency, page.torch.by_position)
    assert not np.allclose(page.torch.by_frequency, page.torch.x)


def test_the_bound_under_interpolation(page):
    r"""The sum depends on $\delta\,\omega_j$ only, so dividing all $\omega_j$ by $s$ multiplies the
    distance by $s$, up to rounding.
    """
    assert "factor 1: similar wins up to 1706 tokens back\n" in page.printed
    assert "factor 4: similar wins up to 6824 tokens back\n" in page.printed
    assert 1706 * 4 <= 6824 < 1707 * 4


def test_a_fixed_length_fits_the_cache(page):
    """with the length fixed, one pass and two parts agree"""
    assert np.allclose(np.concatenate(page.torch.parts), page.torch.whole)


def test_what_a_dropped_scaling_does_to_short_texts():
    """with YaRN, llama3 or LongRoPE, short texts that look fine or nearly so, and garbage somewhere beyond the
    original length. With `linear` every pair is too fast by the whole factor, so short texts are wrong as
    well.
    """
    q, k = np.random.default_rng(0).normal(size=(2, 200, 128))
    near = np.arange(200)

    def off(slowed):
        """How far the scores of a short text are off, in mean scores."""
        wrong, right = (
            rotate(q, near, frequencies=speeds) @ rotate(k, near, frequencies=speeds).T
            for speeds in (OMEGA, slowed)
        )
        return abs(wrong - right).mean() / abs(right).mean()

    linear = reference.position_interpolation(128, factor=S)
    assert np.allclose(OMEGA / linear, S)
    assert off(linear) > 0.9
    assert off(reference.yarn(128, factor=S, trained_length=L)[0]) < 0.3
    assert off(reference.llama3(128, base=1e4, factor=S, trained_length=L)) < 0.3
