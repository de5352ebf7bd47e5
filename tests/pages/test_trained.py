"""Nine schemes, trained: what is claimed of them is in the record, with its intervals."""

import functools
import re

import numpy as np
import pytest
import torch

from posattn.reference import alibi_slopes, frequencies, t5_bucket
from posattn.stories import CHECKPOINT, NOUNS, WORDS, encode, story
from posattn.torch import ALiBi, Decoder, Rotary, T5Bias
from tests.nightly.studies import (
    cells,
    checkpoints,
    extending,
    language,
    records,
    schemes,
    settings,
    topics,
    torch_training,
)
from tests.nightly.studies.schemes import HEADS, WIDTH

ENDS = {"1": slice(2, 4), "2": slice(6, 8), "4": slice(12, 16), "8": slice(24, 32)}


def bounds(numbers):
    """The ends of an interval."""
    mean, reach = records.interval(numbers)
    return mean - reach, mean + reach


def right(scheme, times):
    """The share of right answers of each seed."""
    return of_each_seed("stories", scheme, "right", times)


def of_each_seed(task, scheme, *path):
    """What stands at a place of the record, for each seed."""
    found = []
    for seed in settings.SEEDS:
        entry = records.load(task)["cells"][f"{scheme}, seed {seed}"]
        for key in path:
            entry = entry[key]
        found.append(entry)
    return np.array(found)


def by_position(scheme, *path):
    """The loss by position, of each seed."""
    return of_each_seed("topics", scheme, *path, "by_position")


def losses(scheme, times, *path):
    """The mean loss at the end of a text of that length, of each seed."""
    return by_position(scheme, *path)[:, ENDS[times]].mean(axis=1)


def above(one, other):
    """Whether one interval lies above another."""
    return bounds(one)[0] > bounds(other)[1]


def overlap(one, other):
    """Whether two intervals overlap."""
    return not above(one, other) and not above(other, one)


def test_all_cells_are_there():
    """runs in PyTorch and these ten in JAX are in `docs/_records/studies`"""
    for cell in cells.cells():
        assert cell.name in records.load(cell.task)["cells"]
    assert len(records.load("stories-jax")["cells"]) == 10


def test_jax_trains_alike():
    """which is within the intervals above."""
    again = records.load("stories-jax")["cells"]
    for scheme in ("rotary", "alibi"):
        mean = np.mean([again[f"{scheme}, seed {s}"]["right"]["1"] for s in settings.SEEDS])
        low, high = bounds(right(scheme, "1"))
        assert low < mean < high


def test_settings():
    """All decoders have two layers of width 64 with four heads. They are trained by AdamW at a rate of 0.003
    with batches of 32, for 4000 steps on stories and 1500 on help pages.
    """
    assert (cells.LAYERS, WIDTH, HEADS) == (2, 64, 4)
    assert {each.rate for each in cells.TRAINED.values()} == {0.003}
    assert {each.batch for each in cells.TRAINED.values()} == {32}
    assert (settings.STORIES.steps, settings.TOPICS.steps) == (4000, 1500)


def test_where_losses_are_read():
    """At the end of the trained length, over letters 32 to 64, the loss is

    each averaged over the last letters of a text of that length, such as 96 to 128 for twice the length:
    """
    assert topics.LENGTH == 64
    places = np.arange(512).reshape(-1, topics.BLOCK)
    read_at = {"1": (32, 64), "2": (96, 128), "4": (192, 256), "8": (384, 512)}
    for times, (first, last) in read_at.items():
        read = places[ENDS[times]].ravel()
        assert (read[0], read[-1] + 1) == (first, last)


def test_sizes():
    """These decoders have two layers and 100,000 weights, and their long text has 512 letters.

    each with a factor of 4, first without further training, then after 200 steps on texts four times as long.

    A head here has width 16 and base 10000, and the decoder was trained on 64 letters.

    The second text is the story of this book, made into a language of 22 words.

    In training a story has 2 to 4 facts and then 3 questions

    and of 8, 16 and 32, with 3, 6, 12 and 24 questions
    """
    assert len(WORDS) == 22
    made = torch_training.fresh(schemes.rotary, len(topics.VOCABULARY), 2, 0)
    assert round(sum(each.numel() for each in made.parameters()), -4) == 100_000
    assert topics.LENGTH * settings.TIMES[-1] == 512
    assert (extending.FACTOR, settings.TUNED.steps) == (4, 200)
    assert (language.FACTS, language.QUESTIONS) == (4, 3)
    assert [language.QUESTIONS * times for times in settings.TIMES] == [3, 6, 12, 24]
    assert schemes.HEAD_WIDTH == 16
    assert Rotary().base == 10000


def test_the_figure_says_who_falls():
    """Beyond it the loss of some schemes jumps, that of T5 climbs, and two go on as if nothing had happened."""
    for scheme in ("learned", "sinusoidal", "rotary", "partial_rotary"):
        assert np.mean(losses(scheme, "8")) > np.mean(losses(scheme, "1")) + 2
    for scheme in ("alibi", "kerple"):
        assert abs(np.mean(losses(scheme, "8")) - np.mean(losses(scheme, "1"))) < 0.05
    steps = [np.mean(losses("t5", times)) for times in ENDS]
    assert np.all(np.diff(steps) > 0.2)
    assert np.all(np.diff(steps) < 1)


def test_the_mask_alone_is_not_enough():
    """of the questions, and no seed does better than half.

    which we did not predict.

    Still, from letter 150 on it lies below both tables, rotary and T5. On stories that is no help: with 32
    facts it answers … of the questions, the fewest of all and fewer than a guess.

    The causal mask alone learns order badly here.
    """
    late = slice(-(-150 // topics.BLOCK), None)
    means = {
        scheme: np.mean(by_position(scheme), axis=0)[late]
        for scheme in ("none", "learned", "sinusoidal", "rotary", "t5")
    }
    for scheme, mean in means.items():
        assert scheme == "none" or np.all(mean > means["none"])
    assert max(right("none", "1")) < 0.5
    assert np.mean(right("none", "8")) < 1 / 8
    assert above(losses("none", "8"), losses("none", "1"))
    for scheme in (*cells.SCHEMES, "cope"):
        assert scheme == "none" or np.mean(right("none", "8")) < np.mean(right(scheme, "8"))
    for scheme in ("learned", "sinusoidal", "rotary", "alibi", "t5", "kerple"):
        assert above(losses("none", "1"), losses(scheme, "1"))


def test_within_the_trained_length():
    """KERPLE, rotary and half rotary are lowest

    and ALiBi and the learned table come last

    The intervals of all but the learned table and the mask alone overlap, so we can't rank these seven.

    That can't be the whole reason, since KERPLE's curve only falls too and does best.

    every decoder of KERPLE, ALiBi and T5 beats every one of the learned table.
    """
    for scheme in ("rotary", "partial_rotary", "sinusoidal", "t5", "kerple"):
        for last in ("learned", "alibi"):
            assert np.mean(losses(scheme, "1")) < np.mean(losses(last, "1"))
    for scheme in ("kerple", "alibi", "t5"):
        assert right(scheme, "1").min() > right("learned", "1").max()
    means = {scheme: np.mean(losses(scheme, "1")) for scheme in cells.SCHEMES}
    assert {*sorted(means, key=means.get)[:3]} == {"kerple", "rotary", "partial_rotary"}
    for scheme in ("learned", "sinusoidal", "alibi"):
        assert above(losses(scheme, "1"), losses("rotary", "1"))
        assert above(losses(scheme, "1"), losses("kerple", "1"))
    seven = {*cells.SCHEMES, "cope"} - {"learned", "none"}
    assert len(seven) == 7
    assert all(overlap(right(a, "1"), right(b, "1")) for a in seven for b in seven)


@pytest.mark.parametrize("scheme", ["alibi", "kerple"])
@pytest.mark.parametrize("times", ["2", "4"])
def test_two_schemes_answer_beyond_it(scheme, times):
    """At twice the length and at four times, ALiBi and KERPLE lead rotary."""
    assert above(right(scheme, times), right("rotary", times))
    assert np.mean(right(scheme, times)) < np.mean(right(scheme, "1"))


def test_half_rotary_holds_out_longer():
    """**Half rotary holds out longer.**

    Then it fails as well.
    """
    for times in ("2", "4"):
        assert above(losses("rotary", times), losses("partial_rotary", times))
    assert overlap(losses("rotary", "8"), losses("partial_rotary", "8"))


def test_position_in_some_layers():
    """**We found no difference.** (The intervals are wide, so a small one could hide in them.)"""
    for times in ENDS:
        assert overlap(
            losses("rotary, 4 layers", times), losses("rotary_in_some, 4 layers", times)
        )


def repaired(method, when, times):
    """The loss under a repair."""
    return losses("rotary", times, "extended", method, when)


def test_repairs_as_they_come():
    """NTK-aware scaling costs almost nothing at the trained length

    and holds for about twice the length, a little less than predicted, before it climbs. YaRN and llama3's rule hold for all four, at a price.

    which is worse than ignoring the text.

    Without training, YaRN and llama3's rule are the repairs that hold at four times the length.

    Up to twice the length and without training, NTK-aware scaling cost least here.
    """
    for method in ("none", "position interpolation", "NTK-aware"):
        for best in ("YaRN", "llama3"):
            assert above(repaired(method, "before", "4"), repaired(best, "before", "4"))
            assert above(repaired(best, "before", "1"), losses("rotary", "1"))
            for times in ("1", "2"):
                cheap = repaired("NTK-aware", "before", times)
                assert np.mean(cheap) < np.mean(repaired(best, "before", times))
    assert overlap(repaired("YaRN", "before", "1"), repaired("YaRN", "before", "2"))
    assert np.mean(repaired("NTK-aware", "before", "2")) < 1.5
    assert np.mean(repaired("NTK-aware", "before", "1")) < 1.5
    assert np.mean(repaired("position interpolation", "before", "1")) > 3.26


def test_repairs_after_tuning():
    """as good as at the trained length before. Without any repair, the same training reaches

    which is worse, but not by much.

    Position interpolation comes last

    At eight times the length all of them rise again

    With a little training, NTK-aware scaling, YaRN and llama3's rule come out alike up to four times the length, and no repair is only a little behind.

    and there no repair has the lowest mean, …, though its interval overlaps YaRN's.
    """
    before = losses("rotary", "1")
    none, last = (repaired(m, "after", "4") for m in ("none", "position interpolation"))
    for method in ("NTK-aware", "YaRN", "llama3"):
        tuned = repaired(method, "after", "4")
        assert abs(np.mean(tuned) - np.mean(before)) < 0.02
        assert above(none, tuned)
        assert above(last, tuned)
        assert np.mean(repaired(method, "after", "8")) > np.mean(tuned) + 0.5
        assert np.mean(repaired("none", "after", "8")) < np.mean(
            repaired(method, "after", "8")
        )
    assert overlap(repaired("none", "after", "8"), repaired("YaRN", "after", "8"))
    assert np.mean(none) < np.mean(before) + 0.1
    assert np.mean(last) > np.mean(none)


def test_right_answers_fall():
    """But right answers fall for every scheme, also for these two, whose loss on help pages stays flat."""
    for scheme in (*cells.SCHEMES, "cope"):
        means = [np.mean(right(scheme, times)) for times in ENDS]
        assert np.all(np.diff(means) < 0)


def depths(scheme, *path):
    """Right answers by the quarter of the story in which the fact stands, of each seed."""
    return of_each_seed("stories", scheme, *path, "depth")


def test_the_needle_is_one_fact_of_many():
    """Ours tells 16 facts and asks a single question about one of them

    a guess among the eight nouns is right about one time in eight.
    """
    asked = []

    def logits(tokens):
        asked.append(tokens)
        return np.zeros((*tokens[:, :-1].shape, len(WORDS)))

    language.by_depth(logits)
    (tokens,) = asked
    period, question = WORDS.index("."), WORDS.index("?")
    assert set((tokens == question).sum(axis=1)) == {1}
    assert set((tokens == period).sum(axis=1)) == {4 * language.FACTS + 1}  # of the answer
    assert (4 * language.FACTS, len(NOUNS)) == (16, 8)


@functools.cache
def blind(times, stories=1000):
    """How often a reader is right who takes any fact with the noun of the question in its role."""
    rng, shares = np.random.default_rng(7), []
    for _ in range(stories):
        words, _, [fact] = story(rng, language.FACTS * times, 1)
        told = [words[start : start + 5] for start in range(0, len(words) - 8, 6)]
        noun = 4 if words[6 * len(told)] == "who" else 1
        fits = [other for other in told if other[noun] == told[fact][noun]]
        answer = told[fact][5 - noun]
        shares.append(np.mean([other[5 - noun] == answer for other in fits]))
    return np.mean(shares)


def test_a_reader_who_is_blind_to_the_verb(page):
    """The last row of the table says how often this reader is right, and it falls just as the row of KERPLE
    does.

    The blind reader has

    in every quarter
    """
    printed = "".join(cell.printed for cell in page.cells)
    shown = re.search(r"^blind to the verb(.+)$", printed, re.MULTILINE)
    for times, share in zip(settings.TIMES, shown[1].split(), strict=True):
        assert abs(float(share) - blind(times)) < 0.03
        low, high = bounds(right("kerple", str(times)))
        assert low < blind(times) < high
        assert abs(np.mean(right("kerple", str(times))) - blind(times)) < 0.05


def test_who_reads_better():
    """Two T5 decoders answer

    In longer stories one ALiBi decoder keeps a small lead over it

    only one keeps a large one. It uses KERPLE
    """
    assert np.sum(right("t5", "1") > 0.98) == 2
    assert blind(1) < 0.92
    leads = {
        (scheme, seed): share - blind(4)
        for scheme in (*cells.SCHEMES, "cope")
        for seed, share in enumerate(right(scheme, "4"))
    }
    first, second, third = sorted(leads, key=leads.get, reverse=True)[:3]
    assert (first, second) == (("kerple", 1), ("alibi", 1))
    assert leads[first] > 0.3
    assert 0.03 < leads[second] < 0.1
    assert leads[third] < 0.03


def test_what_decoders_with_a_penalty_find():
    """Three of ALiBi's find about half of the facts, early or late, as the blind reader does, and distance
    costs two of them little and seed 4 somewhat more.

    an answer costs them 0.33 and 0.34 nats, and the other three between 0.17 and 0.43. In stories of 16
    facts it does, with 2.9 nats against 1.2 to 1.8. (Their right answers are the fewest of the five, 0.79 and
    0.80, but the next has 0.82, so that is hardly a warning.)

    fewer even than a guess, and we don't know what they answer in their place.

    Each of its decoders finds fewer early facts than late ones, and none of them loses as many as ALiBi's
    two. But seeds 0 and 3 find hardly more of the early ones than a guess would.

    Two of ALiBi's five decoders find almost no early fact in a long story, and nothing in their loss at the
    trained length shows it.
    """
    found = depths("alibi")
    lost = found[:, 0] < 0.05
    assert lost.sum() == 2
    assert np.all((found[~lost] > 0.38) & (found[~lost] < 0.72))
    assert np.all(np.flatnonzero(lost) == [2, 3])
    assert np.all(np.ptp(found[:2], axis=1) < 0.15)
    assert 0.25 < np.ptp(found[4]) < 0.35
    assert np.sort(right("alibi", "1"))[:3].round(2).tolist() == [0.79, 0.8, 0.82]
    assert {*np.argsort(right("alibi", "1"))[:2]} == {2, 3}
    costs = {times: of_each_seed("stories", "alibi", "loss", times) for times in "14"}
    assert costs["1"][lost].round(2).tolist() == [0.33, 0.34]
    others = costs["1"][~lost].round(2)
    assert (others.min(), others.max()) == (0.17, 0.43)
    assert costs["4"][lost].round(1).tolist() == [2.9, 2.9]
    others = costs["4"][~lost].round(1)
    assert (others.min(), others.max()) == (1.2, 1.8)
    early, late = depths("kerple")[:, 0], depths("kerple")[:, 3]
    assert np.all((early > 0.12) & (early < late))
    assert np.all(found[lost, 0] < 1 / 8)
    assert np.all(early > 1 / 8)
    assert {*np.flatnonzero(early < 0.25)} == {0, 3}


def test_t5_finds_the_first_facts():
    """T5 does the opposite.

    Rotary does little better than guessing, and it too finds the first facts most often, on average.
    """
    assert above(depths("t5")[:, 0], depths("t5")[:, 3])
    assert 6 * language.FACTS < language.LENGTH < 4 * 6 * language.FACTS
    assert np.all(depths("rotary").mean(0) < 0.25)
    assert np.argmax(depths("rotary").mean(0)) == 0


def test_no_repair_finds_more_than_seeds_differ():
    """On average a repair changes these answers by less than the repaired decoders differ among themselves,
    though one of them gains a good deal.

    gets something from YaRN even without training

    where the blind reader would find … of each.
    """
    plain = {
        when: depths("rotary", "extended", "none", when).mean(1)
        for when in ("before", "after")
    }
    for method in ("position interpolation", "NTK-aware", "YaRN", "llama3"):
        for when, numbers in plain.items():
            other = depths("rotary", "extended", method, when).mean(1)
            assert overlap(other, numbers)
            assert abs(other.mean() - numbers.mean()) < np.std(other, ddof=1)
    assert np.argmax(right("rotary", "1")) == 1
    plain = depths("rotary", "extended", "none", "before")[1]
    assert np.all(depths("rotary", "extended", "YaRN", "before")[1] > plain)
    assert (depths("rotary", "extended", "YaRN", "before")[1] - plain).mean() > 0.15
    best = depths("rotary", "extended", "YaRN", "after")[1]
    assert abs(best.mean() - blind(4)) < 0.06


def printed_lines(page, start):
    """The numbers of each line that the page prints and that begins so."""
    printed = "".join(cell.printed for cell in page.cells)
    lines = re.findall(rf"^{re.escape(start)}(.+)$", printed, re.MULTILINE)
    return [[float(number) for number in re.findall(r"\d+\.\d+", line)] for line in lines]


def scale(page):
    """What it costs to look so many letters back, from 0 on."""
    return [printed_lines(page, f"looking {back} letters back:")[0][0] for back in range(5)]


def test_the_scale(page):
    """Looking four letters back costs about 1.4 nats, seeing only the last letter costs 2.5, and ignoring the text altogether costs 3.26.

    Somewhere around letter 100 its predictions start to fall apart

    from letter 200 on they are worse than if it ignored the text

    On our scale that is better than looking one letter back and worse than looking two back, as predicted.

    On our scale all of them do about as well as looking three or four letters back.
    """
    costs = scale(page)
    assert np.allclose([costs[4], costs[1], costs[0]], [1.4, 2.5, 3.26], atol=0.02)
    rotary = by_position("rotary").mean(axis=0)
    assert np.all(rotary[-(-200 // topics.BLOCK) :] > costs[0])
    assert np.all(rotary[: 96 // topics.BLOCK] < 1.6)
    assert costs[2] < np.mean(losses("none", "1")) < costs[1]
    for scheme in cells.SCHEMES[1:]:
        assert costs[4] - 0.1 < np.mean(losses(scheme, "1")) < costs[3]


def test_the_example_is_never_trained_on():
    """on pages that it was never trained on, and lower is better."""
    assert "raise" in topics.NAMES[::8]
    assert len(topics.VOCABULARY) == 103


def test_seeds_go_down_stairs():
    """Each has a stretch where it hardly falls, and then a drop, and the drop doesn't come at the same time for
    all. Seed 2 drops between steps 1000 and 1500, and seeds 0 and 4 around step 2000.

    When training ends, seeds 1 and 3 are lowest, and they are the two that answer nearly everything.
    """
    curves = of_each_seed("stories", "t5", "curve")
    falls = curves[:, 6:-4] - curves[:, 10:]  # of 200 steps
    steepest = []
    for fall in falls:
        before = np.minimum.accumulate(fall)
        assert np.any((fall > 2 * before) & (fall > before + 0.012))
        steepest.append(np.argmax(fall - before))
    assert len(set(steepest)) > 3
    starts = 50 * (np.array(steepest) + 6)  # steps
    assert 1000 <= starts[2] <= 1300
    assert np.all((starts[[0, 4]] >= 1900) & (starts[[0, 4]] <= 2300))
    assert set(np.argsort(curves[:, -4:].mean(axis=1))[:2]) == {1, 3}
    assert set(np.flatnonzero(right("t5", "1") > 0.98)) == {1, 3}


def test_tables_jump_at_once():
    """What do they predict at letter 65, and at letter 500?

    A table adds its vector to the token itself, so at letter 65 the query is new

    Under rotary the query of letter 65 sees 64 keys at distances that it knows and only one at a new distance.

    Rotary has … there, about as before.

    and with it all its scores.
    """
    first = topics.LENGTH // topics.BLOCK
    for scheme in ("learned", "sinusoidal"):
        assert by_position(scheme).mean(0)[first] > np.mean(losses(scheme, "1")) + 1.5
    assert abs(by_position("rotary").mean(0)[first] - np.mean(losses("rotary", "1"))) < 0.05


def test_half_turns():
    """Rotary's first half turn beyond 64 comes at letter 99.

    so its first comes at 314.

    the steepest part of the rotary curve is between letters 96 and 128, and that of half rotary between 288 and 320. (Half rotary begins to rise before that, from letter 240 on, so half a turn is no wall.)
    """
    steepest = {"rotary": (16, 99, (96, 128)), "partial_rotary": (8, 314, (288, 320))}
    for scheme, (entries, turn, (first, last)) in steepest.items():
        half_turns = np.pi / frequencies(entries)
        assert round(half_turns[half_turns > topics.LENGTH].min()) == turn
        block = np.argmax(np.diff(by_position(scheme).mean(axis=0)))
        assert (block * topics.BLOCK, (block + 2) * topics.BLOCK) == (first, last)
        assert first < turn < last
    half = by_position("partial_rotary").mean(axis=0)
    start = 240 // topics.BLOCK
    assert max(half[:start]) < 1.6 < 1.8 < min(half[start:])


def test_buckets_that_nobody_trained(page):
    """T5's decoder has 32 buckets, and a text of 64 letters never reaches the last ones.

    The share grows with the text, and so does the loss

    because the last bucket holds everything from distance 113 on

    Train on texts that reach the last bucket
    """
    bucket = t5_bucket(-np.arange(512), bidirectional=False)
    assert np.flatnonzero(bucket == 31)[0] == 113
    last = bucket[: topics.LENGTH].max()
    assert (last, T5Bias(4, bidirectional=False).table.shape[0]) == (26, 32)
    shares = [(bucket[:length] > last).mean() for length in (64, 128, 256, 512)]
    assert np.all(np.diff(shares) > 0)
    assert np.all(np.diff([np.mean(losses("t5", times)) for times in ENDS]) > 0)
    start = T5Bias(4, bidirectional=False, rng=torch.Generator().manual_seed(0)).table
    assert start.abs().max() < 1


def test_what_is_new_to_alibi():
    """Two of the four heads attend as in training

    The other two do spread over new letters
    """
    shares = []
    for slope in alibi_slopes(HEADS):
        weights = np.exp(-slope * np.arange(512))
        shares.append(weights[topics.LENGTH :].sum() / weights.sum())
    assert np.all(np.array(shares[:2]) < 0.02)
    assert np.all(np.array(shares[2:]) > 0.3)


def test_the_blind_reader_hesitates():
    """With each of the four verbs, the king is the object of one fact at most

    In a story of 16, 15 of the 31 others are told

    and because two of them have the same answer one time in seven.)
    """
    rng, counts, same = np.random.default_rng(8), [], []
    for _ in range(500):
        words, _, [fact] = story(rng, 16, 1)
        told = [words[start : start + 5] for start in range(0, 96, 6)]
        noun = 4 if words[96] == "who" else 1
        fits = [other for other in told if other[noun] == told[fact][noun]]
        counts.append(len(fits))
        same += [o[5 - noun] == told[fact][5 - noun] for o in fits if o != told[fact]]
    assert set(counts) == {1, 2, 3, 4}
    assert abs(np.mean(same) - 1 / 7) < 0.03
    assert round(1 / 2.45, 2) == 0.41 < blind(4)
    assert abs(np.mean(counts) - (1 + 3 * 15 / 31)) < 0.12


def test_alibi_reads_with_its_flattest_head():
    """Seed 0, one of the three, is the decoder that {doc}`/heads` opens, and there it is the flattest head that reads the answer most."""
    assert checkpoints.SEEDS["alibi"] == 0
    assert depths("alibi")[0, 0] > 0.38
    decoder = Decoder.from_config(CHECKPOINT, weights=checkpoints.PLACES["alibi"])
    for block in decoder.requires_grad_(False).blocks:
        block.attention.rotate, block.attention.bias = None, ALiBi(HEADS)
    rng, read = np.random.default_rng(9), []
    while len(read) < 100:
        words, _, [fact] = story(rng, 4, 1)
        if words[24] == "who":
            tokens = torch.from_numpy(encode(words[:29]))
            weights = decoder.attention_weights(tokens)[1]
            read.append(weights[:, -1, 6 * fact + 1].numpy())
    assert np.argmax(np.mean(read, axis=0)) == HEADS - 1 == np.argmin(alibi_slopes(HEADS))


def test_late_facts_come_back(page):
    """The decoder finds the facts of the first three quarters about as often as the blind reader or more often

    With the old text hidden from the periods, the last quarter is back

    Hide it from all *other* words of the facts instead, and hardly anything changes.
    """
    [[*blind_to_verb]] = printed_lines(page, "blind to the verb 0")  # "0" begins the first
    plain, other = (
        printed_lines(page, name) for name in ("nothing hidden  ", "others see 24")
    )
    for shares in plain[:2]:
        assert np.all(np.array(shares[:3]) > np.array(blind_to_verb[:3]) - 0.08)
        assert shares[3] < 0.3
    for shares in printed_lines(page, "periods see 24   "):
        assert shares[3] > 0.8
    for shares, before in zip(other, plain, strict=False):
        assert np.allclose(shares, before, atol=0.04)
    assert page.glued["late periods"] > 0.8 > 0.3 > page.glued["late nothing"]


def test_one_pair_does_it(page):
    """One pair does it, and it is pair 2.

    The first two quarters pay for it, as they did under the mask.

    Slowing any other pair leaves the late facts lost, and slowing pair 0, the fastest, loses even more.

    In 23 tokens pair 1 completes its turn, so it knows every angle.

    At half speed it covers in 47 tokens what used to take it 23
    """
    last = {
        pair: [shares[3] for shares in printed_lines(page, f"pair {pair} slowed")]
        for pair in range(8)
    }
    assert {len(each) for each in last.values()} == {2}
    for pair, shares in last.items():
        assert (min(shares) > 0.65) if pair == 2 else (max(shares) < 0.3)
    assert max(last[0]) < min(min(last[pair]) for pair in range(1, 8))
    turns = 23 * frequencies(16) / (2 * np.pi)
    assert turns[1] > 1 > turns[2]
    for name in ("pair 2 slowed", "periods see 24   "):
        plain = printed_lines(page, "nothing hidden  ")[:2]  # before the exercises
        for shares, before in zip(printed_lines(page, name)[:2], plain, strict=True):
            assert np.all(np.array(shares[:2]) < np.array(before[:2]) - 0.05)
    assert 47 / 2 < 24


def test_which_distances_a_period_knows():
    """so the period of a fact has at most 23 tokens before it.

    In a story of 8 facts the last one has 47.
    """
    assert (6 * language.FACTS - 1, 6 * 2 * language.FACTS - 1) == (23, 47)


def test_collectors_read_the_wrong_fact(page):
    """The fifth period sees this word 29 tokens back and the first period 24 back

    But it doesn't even collect the nouns of that fact: … of its weight is on the first word of the text, *the*.

    the first four periods read their own facts, as in training

    With the fifth the first fact begins to take over.

    (The other collector, head 3, suffers less, and its eighth period still gives its own fact
    """
    fifth = 4 * 6 + 5
    assert (fifth - 0, fifth - 5) == (29, 24)
    assert np.degrees(29 * frequencies(16)[2]) < 180
    heads = page.torch.at_period[0]
    assert heads[0, 7, 0] > 0.9 > 0.05 > heads[0, 7, [1, 4]].sum()
    assert np.all(heads[0, 4, [0, 5]] > 0.1)
    assert heads[0, 4, [1, 4]].sum() < 0.02
    collectors = [head for head in range(HEADS) if heads[head, 0, [1, 4]].sum() > 0.7]
    assert collectors == [0, 3]
    assert heads[3, 7, 42:48].sum() > 0.5
    trained, slowed = page.torch.collected
    own = np.diagonal(trained)
    assert np.all(own[:4] > 0.85)
    assert trained[3, 0] < 0.1 < 0.3 < trained[4, 0]
    assert trained[7, 0] > 0.9
    assert own[7] < 0.05
    assert np.all(np.diagonal(slowed) > 0.65)


def test_all_of_it_in_one_table(page):
    """The mask alone is third by its loss and last by its answers. And KERPLE's mean, the best of all, is only
    the blind reader's.
    """
    schemes = [scheme for scheme in cells.SCHEMES if scheme != "cope"]
    by_loss = sorted(schemes, key=lambda scheme: np.mean(losses(scheme, "8")))
    assert by_loss[2] == "none"
    answers = {scheme: np.mean(right(scheme, "8")) for scheme in (*schemes, "cope")}
    assert min(answers, key=answers.get) == "none"
    assert max(answers, key=answers.get) == "kerple"
    assert abs(answers["kerple"] - page.glued["blind 8"]) < 0.005
    rows = page.text.partition("| What is new in a longer text |")[2].splitlines()[2:10]
    told = [re.search(r"loss ([^`]*) 8:", row)[1] for row in rows]
    assert told == [page.torch.names[scheme] for scheme in by_loss]


def test_what_the_table_of_repairs_predicts():
    """Pairs 0 to 2 complete a turn in 64 letters and need no repair. (In experiment 5 pair 2 did need one, but
    there no period looks back more than 23 tokens, which is not even half a turn.)

    both also slow pairs 1 and 2, which needed no repair.

    NTK-aware scaling slows it by 1.81, YaRN and llama3 by 4
    """
    speeds = frequencies(16)
    turns = topics.LENGTH * speeds / (2 * np.pi)
    assert np.all(turns[:3] > 1)
    assert turns[3] < 1
    assert 23 * speeds[2] < np.pi
    slowed = {
        name: speeds / frequencies_of(rotate)
        for name, rotate in extending.methods(topics.LENGTH).items()
        if name != "none"
    }
    assert round(slowed["NTK-aware"][3], 2) == 1.81
    for name in ("YaRN", "llama3"):
        assert np.allclose(slowed[name][3:], 4)
        assert np.all(slowed[name][1:3] > 1.2)
        assert np.isclose(slowed[name][0], 1)


def frequencies_of(rotate):
    """The frequencies of a rotation."""
    return np.asarray(rotate.frequencies, float)


def test_how_little_the_repairs_are_trained():
    """The 200 steps have batches of 8 texts with 256 letters"""
    tuned = settings.TUNED
    assert (tuned.steps, tuned.batch) == (200, 8)
    assert topics.LENGTH * extending.FACTOR == 256
    assert tuned.steps * tuned.batch * 256 == 409_600
    assert settings.TOPICS.steps * settings.TOPICS.batch * topics.LENGTH == 3_072_000


def test_both_faults_in_a_longer_story(page):
    """Repairing the periods brings some of the late facts back, repairing the question alone nearly none, and
    repairing both brings back almost all. (Only 29 of the 128 questions ask for late facts

    the question mark, which in training never looked back more than 45 tokens
    """
    names = (
        "nothing hidden  :",
        "question sees 36:",
        "periods see 24  :",
        "both            :",
    )
    found = [[shares[0] for shares in printed_lines(page, name)] for name in names]
    for nothing, question, periods, both in zip(*found, strict=True):
        assert max(nothing, question) < 0.2 < periods < 0.6 < 0.85 < both
    assert (page.torch.late.sum(), len(page.torch.late)) == (29, 128)
    rng, back = np.random.default_rng(4), 0
    for _ in range(200):
        words, _, _ = story(rng, language.FACTS, language.QUESTIONS)
        back = max(back, max(at for at, word in enumerate(words) if word == "?"))
    assert back == 45


def test_grace():
    """rotary about 30 letters and half rotary more than 150"""
    for scheme, grace in {"rotary": 30, "partial_rotary": 150}.items():
        mean = by_position(scheme).mean(axis=0)
        assert np.all(mean[: -(-(topics.LENGTH + grace) // topics.BLOCK)] < 1.6)
    assert by_position("rotary").mean(0)[7] > 2.5
