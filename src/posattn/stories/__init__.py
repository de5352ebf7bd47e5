"""The language of the running example, and a small decoder that has learned it.

A story tells facts of who bites, sees, hears or likes whom, and asks about them:
"the dog bites the man . the fox sees the king . who bites the man ? dog ."
Its words say nothing without their order, since whoever bites in one story is bitten in the next.
"""

from pathlib import Path

import numpy as np

from posattn import contract

__all__ = ["CHECKPOINT", "WORDS", "decode", "encode", "story"]

NOUNS = ("dog", "man", "fox", "king", "cat", "bird", "boy", "wolf")
VERBS = {"bites": "bite", "sees": "see", "hears": "hear", "likes": "like"}
WORDS = ("the", ".", "?", "who", "whom", "does", *NOUNS, *VERBS, *VERBS.values())
MOST = len(NOUNS) * len(VERBS)  # facts in a story
CHECKPOINT = Path(__file__).parent


def story(rng, num_facts, num_questions):
    """Draw a story: facts, then questions about them with their answers.

    No two facts share verb and object, or subject and verb, so that every question has one answer.
    A question asks for the subject of a fact or for its object, and no half of a fact is asked for twice.

    Args:
        rng: a NumPy generator.
        num_facts: from 1 to 32: each of the 8 nouns does each of 4 things once at most, and to somebody else.
        num_questions: from 0 to twice the number of facts.

    Returns:
        The words, the places of the answers among them, and the numbers of the facts that these are about.

    Raises:
        TypeError: if an argument is not of its kind.
        ValueError: if a number is too small or too large.

    Examples:
        >>> words, places, facts = story(np.random.default_rng(5), 2, 1)
        >>> print(" ".join(words))
        the cat bites the man . the fox hears the boy . whom does the cat bite ? man .
        >>> [words[place] for place in places]
        ['man']
    """
    contract.rng(rng, isinstance(rng, np.random.Generator), "NumPy generator")
    num_facts = contract.integer("num_facts", num_facts, least=1)
    if num_facts > MOST:
        raise ValueError(f"num_facts must be at most {MOST}, got {num_facts}")
    num_questions = contract.integer("num_questions", num_questions)
    if num_questions > 2 * num_facts:
        raise ValueError(
            f"num_questions must be at most 2 * num_facts = {2 * num_facts}, got {num_questions}"
        )
    told = facts(rng)[:num_facts]
    words, places = [], []
    for who, verb, whom in told:
        words += ["the", who, verb, "the", whom, "."]
    halves = rng.permutation(2 * num_facts)[:num_questions]
    for half in halves:
        who, verb, whom = told[half // 2]
        if half % 2:
            words += ["who", verb, "the", whom, "?", who, "."]
        else:
            words += ["whom", "does", "the", who, VERBS[verb], "?", whom, "."]
        places.append(len(words) - 2)
    return words, places, [int(half) // 2 for half in halves]


def facts(rng):
    """All that may happen, in some order: for each verb, somebody does it to each noun."""
    found = []
    for verb in VERBS:
        objects = rng.permutation(NOUNS)
        while any(objects == NOUNS):  # nobody does anything to themselves
            objects = rng.permutation(NOUNS)
        found += [(who, verb, str(whom)) for who, whom in zip(NOUNS, objects, strict=True)]
    return [found[index] for index in rng.permutation(len(found))]


def encode(words):
    """The numbers of words.

    Args:
        words: a text with spaces between its words and signs, or a sequence of words.

    Returns:
        Integers, `(n,)`.

    Raises:
        ValueError: if a word is not in `WORDS`.

    Examples:
        >>> encode("the dog bites the man .")
        array([ 0,  6, 14,  0,  7,  1])
    """
    words = words.split() if isinstance(words, str) else list(words)
    for word in words:
        if word not in WORDS:
            known = ", ".join(WORDS)
            raise ValueError(f"words must be among these, got {word!r}: {known}")
    return np.array([WORDS.index(word) for word in words], int)


def decode(tokens):
    """The words of numbers: the other way of `encode`.

    Args:
        tokens: integers, `(n,)`, from 0 to 21.

    Returns:
        The words, with spaces between them.

    Raises:
        ValueError: if a number is that of no word.

    Examples:
        >>> decode([0, 6, 14, 0, 7, 1])
        'the dog bites the man .'
    """
    for token in tokens:
        if not 0 <= token < len(WORDS):
            raise ValueError(f"tokens must be from 0 to {len(WORDS) - 1}, got {token}")
    return " ".join(WORDS[token] for token in tokens)
