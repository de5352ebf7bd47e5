"""The language of the running example, and the decoder that has learned it."""

import re
from collections import Counter
from importlib import import_module

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from posattn import stories

numbers = st.integers(1, stories.MOST).flatmap(
    lambda told: st.tuples(st.just(told), st.integers(0, 2 * told))
)


def read(words):
    """The facts of a story, and its questions with their answers."""
    text = " ".join(words)
    parts = [part.split() for part in text.split(" . ")]
    facts = [(part[1], part[2], part[4]) for part in parts if part[0] == "the"]
    asked = [
        part for part in (p.strip(" .").split() for p in text.split(" . ")) if "?" in part
    ]
    return facts, asked


@given(st.integers(0, 10**6), numbers)
def test_every_question_has_one_answer_in_the_story(seed, wanted):
    num_facts, num_questions = wanted
    drawn = stories.story(np.random.default_rng(seed), num_facts, num_questions)
    words, places, about = drawn
    facts, asked = read(words)
    assert len(facts) == num_facts
    assert len(asked) == len(places) == len(about) == num_questions
    assert all(who != whom for who, _, whom in facts)
    for question, place, index in zip(asked, places, about, strict=True):
        if question[0] == "who":
            verb, whom = question[1], question[3]
            answers = [who for who, *rest in facts if rest == [verb, whom]]
        else:
            who, stem = question[3], question[4]
            answers = [o for s, v, o in facts if s == who and stories.VERBS[v] == stem]
        assert answers == [question[-1]] == [words[place]]
        assert words[place] in facts[index]


def test_stories_differ_and_nothing_is_asked_twice():
    rng = np.random.default_rng(0)
    words, _, _ = stories.story(rng, 32, 64)
    _, asked = read(words)
    assert max(Counter(map(tuple, asked)).values()) == 1
    one, other = (stories.story(rng, 3, 2)[0] for _ in range(2))
    assert one != other


def test_numbers_are_words_and_back():
    text = " ".join(stories.WORDS)
    assert stories.decode(stories.encode(text)) == text
    assert stories.encode(["dog"]).tolist() == [stories.WORDS.index("dog")]


@pytest.mark.parametrize(
    ("call", "kind", "text"),
    [
        (
            lambda: stories.story(0, 1, 1),
            TypeError,
            "rng must be a NumPy generator, got int",
        ),
        (lambda: draw(0, 0), ValueError, "num_facts must be a positive integer, got 0"),
        (lambda: draw(33, 0), ValueError, "num_facts must be at most 32, got 33"),
        (
            lambda: draw(2, 5),
            ValueError,
            "num_questions must be at most 2 * num_facts = 4, got 5",
        ),
        (lambda: stories.encode("the cow ."), ValueError, "got 'cow': the, ., ?, who"),
        (lambda: stories.decode([22]), ValueError, "tokens must be from 0 to 21, got 22"),
    ],
)
def test_what_cannot_be_drawn_or_read_is_refused(call, kind, text):
    with pytest.raises(kind, match=re.escape(text)):
        call()


def draw(num_facts, num_questions):
    return stories.story(np.random.default_rng(0), num_facts, num_questions)


@pytest.mark.parametrize("name", ["torch", "jax"])
def test_the_decoder_answers_in_both_columns(name):
    """It was trained on stories of 2 to 4 facts."""
    column = import_module(f"posattn.{name}")
    decoder = column.Decoder.from_config(stories.CHECKPOINT, weights=stories.CHECKPOINT)
    rng = np.random.default_rng(1)
    drawn = [stories.story(rng, 3, 3)[:2] for _ in range(20)]
    tokens = np.zeros((20, max(len(words) for words, _ in drawn)), int)
    for row, (words, _) in enumerate(drawn):
        tokens[row, : len(words)] = stories.encode(
            words
        )  # causal: what follows is not read
    array = torch.from_numpy(tokens) if name == "torch" else tokens
    answers = np.asarray(decoder(array).tolist()).argmax(-1)
    right = [
        answers[row, place - 1] == tokens[row, place]
        for row, (_, places) in enumerate(drawn)
        for place in places
    ]
    assert np.mean(right) > 0.8
