"""Nine schemes, trained: claims that a new record could break, with their intervals."""

import re
from itertools import combinations

import numpy as np
from scipy.stats import ttest_1samp

from posattn.reference import frequencies, t5_bucket
from posattn.stories import story
from posattn.torch import T5Bias
from tests.nightly.studies import (
    cells,
    extending,
    records,
    schemes,
    settings,
    topics,
    torch_training,
)

ENDS = {"1": slice(2, 4), "2": slice(6, 8), "4": slice(12, 16), "8": slice(24, 32)}
EVERY = (*cells.SCHEMES, "cope")
IGNORING = 3.26  # the loss of ignoring the text, which the first cell prints


def of_each_seed(task, scheme, *path):
    """What stands at a place of the record, for each seed."""
    found = []
    for seed in settings.SEEDS:
        entry = records.load(task)["cells"][f"{scheme}, seed {seed}"]
        for key in path:
            entry = entry[key]
        found.append(entry)
    return np.array(found)


def right(scheme, times="1"):
    """The share of right answers of each seed."""
    return of_each_seed("stories", scheme, "right", times)


def by_letter(scheme):
    """The mean loss at each letter."""
    blocks = of_each_seed("topics", scheme, "by_position").mean(axis=0)
    return blocks.repeat(topics.BLOCK)


def losses(scheme, times, *path):
    """The loss at the end of a text of that length, of each seed."""
    found = of_each_seed("topics", scheme, *path, "by_position")
    return found[:, ENDS[times]].mean(axis=1)


def repaired(method, when, times):
    """The same under a repair."""
    return losses("rotary", times, "extended", method, when)


def bounds(numbers):
    """The ends of an interval."""
    mean, reach = records.interval(numbers)
    return mean - reach, mean + reach


def above(one, other):
    """Whether one interval lies above another."""
    return bounds(one)[0] > bounds(other)[1]


def chance(better, worse, times="1"):
    """How often such a lead on stories would come by chance: a t-test of the differences, seed by seed."""
    return ttest_1samp(right(better, times) - right(worse, times), 0).pvalue


def test_looking_back_costs_the_same_in_every_python(page):
    said = np.array(re.findall(r"letters back: (\S+)", page.printed), float).round(1)
    assert said[[4, 1, 0]].tolist() == [1.4, 2.5, 3.3]


def test_settings_by_hand():
    made = torch_training.fresh(schemes.rotary, len(topics.VOCABULARY), 2, 0)
    assert abs(sum(each.numel() for each in made.parameters()) - 100_000) < 6000
    assert {(each.rate, each.batch) for each in cells.TRAINED.values()} == {(0.003, 32)}
    assert (settings.STORIES.steps, settings.TOPICS.steps) == (4000, 1500)
    assert (settings.TUNED.steps, settings.TUNED.batch, extending.FACTOR) == (200, 8, 4)


def test_distances_by_hand():
    assert np.arange(5, 48, 6)[[3, 7]].tolist() == [23, 47]


def test_two_schemes_keep_their_loss_at_any_length():
    for scheme in ("alibi", "kerple"):
        assert abs(losses(scheme, "8").mean() - losses(scheme, "1").mean()) < 0.05
    for scheme in ("learned", "sinusoidal", "rotary", "partial_rotary"):
        assert losses(scheme, "8").mean() > losses(scheme, "1").mean() + 2
    assert np.all(np.diff([losses("t5", times).mean() for times in ENDS]) > 0.2)


def test_the_mask_alone_learns_order_badly():
    for scheme in cells.SCHEMES[1:]:
        assert above(losses("none", "1"), losses(scheme, "1"))
    assert max(right("none")) < 0.5
    for scheme in EVERY[1:]:
        assert right("none", "8").mean() < right(scheme, "8").mean()


def test_seeds_of_two_schemes_share_their_texts():
    for task, trained in cells.TRAINED.items():
        first, again = (next(cells.TASKS[task].batches(3, trained)) for _ in range(2))
        assert all(map(np.array_equal, first, again))


def test_kerple_is_above_rotary_and_three_schemes_cannot_be_ranked():
    assert len(list(combinations(EVERY[1:], 2))) == 28
    assert 28 * chance("kerple", "rotary") < 0.05 < 27 * chance("alibi", "learned")
    for better, worse in combinations(("kerple", "alibi", "t5"), 2):
        assert chance(better, worse) > 0.05
        assert min(right(better)) > max(right("learned")) < min(right(worse))
    for times in "24":
        assert max(chance(each, "rotary", times) for each in ("alibi", "kerple")) < 0.05


def test_tables_jump_at_once_and_rotary_later():
    trained = topics.LENGTH
    for scheme in ("learned", "sinusoidal"):
        curve = by_letter(scheme)
        assert min(curve[65], curve[500]) > curve[trained - 1] + 1.5
    rotary, half = by_letter("rotary"), by_letter("partial_rotary")
    assert abs(rotary[65] - losses("rotary", "1").mean()) < 0.05
    assert max(rotary[: trained + 30]) < 1.6
    assert abs(np.argmax(rotary > 1.6) - 100) < topics.BLOCK
    assert min(rotary[208:]) > IGNORING
    assert max(half[:240]) < 1.6 < 1.8 < min(half[240:])
    assert 240 - trained > 150


def test_rotary_rises_steepest_at_half_a_period():
    known = {"rotary": (16, 96, 128), "partial_rotary": (8, 288, 320)}
    for scheme, (entries, first, last) in known.items():
        half_periods = np.pi / frequencies(entries)
        assert first < half_periods[half_periods > topics.LENGTH].min() < last
        rise = np.diff(by_letter(scheme)[:: topics.BLOCK])
        assert np.argmax(rise) * topics.BLOCK == first


def test_last_buckets_are_never_trained():
    bucket = t5_bucket(-np.arange(512), bidirectional=False)
    assert bucket[: topics.LENGTH].max() == 31 - 5
    assert len(T5Bias(4, bidirectional=False).table) == 32


def blind(facts, stories=1000):
    """The share of right answers of a reader who takes any fact with the noun asked for."""
    rng, shares = np.random.default_rng(7), []
    for _ in range(stories):
        words, _, [fact] = story(rng, facts, 1)
        told = np.reshape(words[: 6 * facts], (facts, 6))
        noun, answer = (4, 1) if words[6 * facts] == "who" else (1, 4)
        fits = told[told[:, noun] == told[fact, noun]]
        shares.append(np.mean(fits[:, answer] == told[fact, answer]))
    return np.mean(shares)


def test_kerple_falls_as_the_blind_reader_does(page):
    for times in (1, 4, 8):
        share = page.glued[f"blind {times}"]
        assert abs(share - blind(4 * times)) < 0.03
        low, high = bounds(right("kerple", str(times)))
        assert low < share < high
    for scheme in EVERY:
        assert np.all(np.diff([right(scheme, times).mean() for times in ENDS]) < 0)


def test_two_alibi_decoders_lose_early_facts():
    early, late = of_each_seed("stories", "alibi", "depth")[:, [0, 3]].T
    lost = early < 0.05
    assert np.flatnonzero(lost).tolist() == [2, 3]
    assert min(early[~lost]) > 0.38 < 0.4 < min(late)
    assert above(*of_each_seed("stories", "t5", "depth")[:, [0, 3]].T)


def test_slowing_one_pair_brings_late_facts_back(page):
    found = re.findall(r"^pair (\d) slowed .* (\d\.\d\d)$", page.printed, re.MULTILINE)
    assert len(found) == 2 * 8  # in PyTorch and in JAX
    for pair, share in found:
        assert float(share) > 0.65 if pair == "2" else float(share) < 0.3
    assert page.glued["late others"] < 0.3 < 0.8 < page.glued["late full"]


def test_two_repairs_hold_at_four_times_the_length():
    for best in ("YaRN", "llama3"):
        for method in ("none", "position interpolation", "NTK-aware"):
            assert above(repaired(method, "before", "4"), repaired(best, "before", "4"))
        assert above(repaired(best, "before", "1"), losses("rotary", "1"))
        for times in "12":
            cheap = repaired("NTK-aware", "before", times).mean()
            assert cheap < min(1.5, repaired(best, "before", times).mean())
    assert repaired("position interpolation", "before", "1").mean() > IGNORING


def test_after_a_little_training_repairs_are_alike():
    before, none = losses("rotary", "1").mean(), repaired("none", "after", "4")
    assert none.mean() < before + 0.1
    for method in ("NTK-aware", "YaRN", "llama3"):
        tuned = repaired(method, "after", "4")
        assert abs(tuned.mean() - before) < 0.02
        assert above(none, tuned)
