"""Needles in a long text: secret numbers hidden between its words, each asked for at the end."""

import random

import torch

CITIES = "Athens Berlin Boston Cairo Delhi Lima London Moscow Oslo Paris Prague Rome"
NEEDLES = 10  # in a text, each in the middle of a tenth
HIDDEN, ASKED = " The secret number of {} is {}.", "\nThe secret number of {} is"


def hide(encode, tokens, seed):
    """The text, which stays as long as it was, and the questions and answers, as tokens."""
    chosen = random.Random(seed)
    cities = chosen.sample(CITIES.split(), NEEDLES)
    numbers = [chosen.randrange(1000, 10000) for _ in cities]
    needles = [encode(HIDDEN.format(*each)) for each in zip(cities, numbers, strict=True)]
    kept = tokens[: len(tokens) - sum(map(len, needles))]
    text, last = [], 0
    for place, needle in enumerate(needles):
        at = (2 * place + 1) * len(kept) // (2 * NEEDLES)
        text, last = text + kept[last:at] + needle, at
    asked = [encode(ASKED.format(city)) for city in cities]
    return text + kept[last:], asked, [encode(f" {number}") for number in numbers]


@torch.inference_mode()
def found(decoder, encode, tokens):
    """Whether each needle of each text is found, `(texts, needles)`: every digit is the likeliest."""
    hits = []
    for seed, row in enumerate(tokens.tolist()):
        text, asked, answers = hide(encode, row, seed)
        cache = decoder.init_cache((1,), len(text) + 32)
        _, cache = decoder._stream(torch.tensor([text]), None, None, cache)
        read = cache[0].positions.clone()
        hits.append([])
        for question, answer in zip(asked, answers, strict=True):
            for layer in cache:  # forget the last question
                layer.positions.copy_(read)
            logits, _ = decoder(torch.tensor([question + answer]), cache=cache)
            likeliest = logits[0, len(question) - 1 : -1].argmax(-1).tolist()
            hits[-1].append(int(likeliest == answer))
    return hits
