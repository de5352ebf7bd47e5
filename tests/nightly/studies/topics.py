"""Real text: the topics of Python's own documentation, letter by letter."""

import hashlib
import json
from pydoc_data.topics import topics

import numpy as np

from tests.nightly.studies.language import scored
from tests.nightly.studies.settings import TIMES

LENGTH = 64  # characters in training
HELD_OUT = 128  # excerpts in the test
NAMES = sorted(topics)
HASH = hashlib.sha256(json.dumps(topics, sort_keys=True).encode()).hexdigest()
VOCABULARY = sorted(set("".join(topics.values())))
INDEX = {letter: index for index, letter in enumerate(VOCABULARY)}
BLOCK = 16  # positions whose losses are averaged


def text(names):
    """The topics of these names as numbers, one after the other."""
    return np.array([INDEX[letter] for name in names for letter in topics[name]])


TEST = text(NAMES[::8])  # every eighth topic is never trained on
TRAINING = text(sorted(set(NAMES) - set(NAMES[::8])))


def excerpts(rng, source, size, length):
    """As many pieces of a text, `(size, length)`."""
    starts = rng.integers(0, len(source) - length, size)
    return source[starts[:, None] + np.arange(length)]


def batches(seed, settings, times=1):
    """What a seed is trained on, twice: as tokens and as what is to be predicted."""
    rng = np.random.default_rng([seed, times])
    for _ in range(settings.steps):
        tokens = excerpts(rng, TRAINING, settings.batch, LENGTH * times + 1)
        yield tokens, tokens


def measure(logits):
    """The loss of the next letter by its position, in nats, up to eight times the trained length."""
    rng = np.random.default_rng(10**6)
    tokens = excerpts(rng, TEST, HELD_OUT, LENGTH * TIMES[-1] + 1)
    _, losses = scored(logits(tokens), tokens[:, 1:])
    by_position = losses.reshape(HELD_OUT, -1, BLOCK).mean(axis=(0, 2))
    return {"by_position": by_position.tolist()}
