"""The language of the running example: stories of who bites whom, and questions about them.

"the dog bites the man . the fox sees the king . who bites the man ? dog ."
"""

import numpy as np

from tests.studies.settings import TIMES

NOUNS = ["dog", "man", "fox", "king", "cat", "bird", "boy", "wolf"]
VERBS = {"bites": "bite", "sees": "see", "hears": "hear", "likes": "like"}
WORDS = ["the", ".", "?", "who", "whom", "does", *NOUNS, *VERBS, *VERBS.values()]
INDEX = {word: index for index, word in enumerate(WORDS)}
FACTS, QUESTIONS = 4, 3  # of the longest story in training
LENGTH = 6 * FACTS + 8 * QUESTIONS
HELD_OUT = 128  # stories in a test


def facts(rng, count):
    """Draw facts (subject, verb, object) of which no two share verb and object, or subject and verb.

    There are eight for each verb at most: nobody does anything to themselves.
    """
    pairs = []
    for verb in VERBS:
        objects = rng.permutation(NOUNS)
        while any(objects == NOUNS):
            objects = rng.permutation(NOUNS)
        pairs += [(who, verb, whom) for who, whom in zip(NOUNS, objects, strict=True)]
    return [pairs[index] for index in rng.permutation(len(pairs))[:count]]


def story(rng, num_facts, num_questions):
    """A story's words, the places of its answers, and which fact each is about.

    Each question asks for another half of a fact: "who bites the man ? dog ." or
    "whom does the dog bite ? man ."
    """
    told = facts(rng, num_facts)
    words, answers = [], []
    for who, verb, whom in told:
        words += ["the", who, verb, "the", whom, "."]
    asked = rng.permutation(2 * num_facts)[:num_questions]
    for index in asked:
        who, verb, whom = told[index // 2]
        if index % 2:
            words += ["who", verb, "the", whom, "?", who, "."]
        else:
            words += ["whom", "does", "the", who, VERBS[verb], "?", whom, "."]
        answers.append(len(words) - 2)
    return words, answers, asked // 2


def draw(rng, size, num_facts, num_questions):
    """Stories as numbers `(size, n)`, and the answers in them, `(size, n)`: -1 elsewhere."""
    length = 6 * num_facts + 8 * num_questions
    tokens, answers = np.full((2, size, length), -1)
    for row in range(size):
        words, places, _ = story(rng, num_facts, num_questions)
        tokens[row, : len(words)] = [INDEX[word] for word in words]
        answers[row, places] = tokens[row, places]
    return np.maximum(tokens, 0), answers


def batches(seed, settings, times=1):
    """What a seed is trained on: stories of 2 to 4 facts, or as many times that."""
    rng = np.random.default_rng([seed, times])
    length = times * LENGTH
    for _ in range(settings.steps):
        tokens, answers = np.full((2, settings.batch, length), -1)
        for row in range(settings.batch):
            told = rng.integers(2 * times, FACTS * times, endpoint=True)
            drawn = draw(rng, 1, told, QUESTIONS * times)
            for array, got in zip((tokens, answers), drawn, strict=True):
                array[row, : got.shape[1]] = got
        yield np.maximum(tokens, 0), answers


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
        tokens[row, : len(words)] = [INDEX[word] for word in words]
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
