"""Stories and questions about them, in the language of the running example."""

import numpy as np

from posattn.stories import WORDS, encode, story
from tests.nightly.studies.settings import TIMES

FACTS, QUESTIONS = 4, 3  # of the longest story in training
LENGTH = 6 * FACTS + 8 * QUESTIONS
VOCABULARY = WORDS
HELD_OUT = 128  # stories in a test


def draw(rng, size, num_facts, num_questions):
    """Stories as numbers `(size, n)`, and the answers in them, `(size, n)`: -1 elsewhere."""
    length = 6 * num_facts + 8 * num_questions
    tokens, answers = np.full((2, size, length), -1)
    for row in range(size):
        words, places, _ = story(rng, num_facts, num_questions)
        tokens[row, : len(words)] = encode(words)
        answers[row, places] = tokens[row, places]
    return np.maximum(tokens, 0), answers


def batches(seed, settings, times=1):
    """What a seed is trained on, as tokens and as what is to be predicted: all of each story.

    The stories have 2 to 4 facts, or as many times that.
    """
    rng = np.random.default_rng([seed, times])
    for _ in range(settings.steps):
        tokens = np.full((settings.batch, times * LENGTH), -1)
        for row in tokens:
            told = rng.integers(2 * times, FACTS * times, endpoint=True)
            words, _, _ = story(rng, told, QUESTIONS * times)
            row[: len(words)] = encode(words)
        yield np.maximum(tokens, 0), tokens


def measure(logits):
    """How many answers are right, and the loss of an answer, at each length; and by depth.

    `logits` is a function of tokens `(size, n)` that returns `(size, n - 1, words)`.
    The depth is that of the fact in the longest story but one: 0 is the first of all.
    """
    right, loss = {}, {}
    for times in TIMES:
        rng = np.random.default_rng([10**6, times])
        tokens, answers = draw(rng, HELD_OUT, FACTS * times, QUESTIONS * times)
        scores, losses = scored(logits(tokens), answers[:, 1:])
        right[times], loss[times] = float(scores.mean()), float(losses.mean())
    return {"right": right, "loss": loss, "depth": by_depth(logits)}


def by_depth(logits, times=4):
    """One question after a story four times as long: how often its answer is right, by place of the fact."""
    rng = np.random.default_rng([10**6, 10])
    size, facts_told = 4 * HELD_OUT, FACTS * times
    length = 6 * facts_told + 8
    tokens, answers = np.full((2, size, length), -1)
    places = np.empty(size, int)
    for row in range(size):
        words, (place,), (places[row],) = story(rng, facts_told, 1)
        tokens[row, : len(words)] = encode(words)
        answers[row, place] = tokens[row, place]
    scores, _ = scored(logits(np.maximum(tokens, 0)), answers[:, 1:])
    quarters = places * 4 // facts_told
    return [float(scores[quarters == quarter].mean()) for quarter in range(4)]


def scored(logits, targets):
    """For each target that is not -1, whether it is the likeliest, and its loss."""
    rows = logits[targets >= 0].astype(float)
    wanted = targets[targets >= 0]
    peak = rows.max(axis=-1)
    chosen = rows[np.arange(len(rows)), wanted]
    losses = peak + np.log(np.exp(rows - peak[:, None]).sum(axis=-1)) - chosen
    return rows.argmax(axis=-1) == wanted, losses
