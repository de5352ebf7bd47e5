"""When heads form: `python -m tests.nightly.studies.heads` trains a rotary decoder and looks on the way."""

import ast
import hashlib
import inspect
import json
import textwrap

import numpy as np
import torch

from posattn.stories import WORDS, encode, story
from posattn.torch import induction_score, previous_token_score
from tests.nightly.studies import language, records, schemes, settings, torch_training

SEED, EVERY, LOOKED_AT, REPEATED = 1, 100, 64, 24  # the seed of the decoder that pages show
FILE = records.FOLDER / "heads.json"


def told():
    """Stories to look at, `(size, n)`; for each question its story, its `?`, and where its fact begins."""
    rng = np.random.default_rng(10**7)
    tokens, asked = np.zeros((LOOKED_AT, language.LENGTH), int), []
    for row in range(LOOKED_AT):
        words, places, facts = story(rng, language.FACTS, language.QUESTIONS)
        tokens[row, : len(words)] = encode(words)
        asked += [
            (row, place - 1, 6 * fact) for place, fact in zip(places, facts, strict=True)
        ]
    return tokens, np.array(asked)


def repeated():
    """Random words, twice: nothing but the first half says how the second goes on."""
    half = np.random.default_rng(10**7).integers(len(WORDS), size=(LOOKED_AT, REPEATED))
    return np.concatenate([half, half], axis=1)


@torch.inference_mode()
def look(decoder):
    """The scores of all heads, layer by layer, and the share of right answers."""
    tokens, asked = told()
    row, mark, begin = asked.T
    answer = np.where(tokens[row, begin + 1] == tokens[row, mark + 1], begin + 1, begin + 4)
    period = begin + 5
    weights = decoder.attention_weights(torch.from_numpy(tokens))
    twice = decoder.attention_weights(torch.from_numpy(repeated()))
    scores = decoder(torch.from_numpy(tokens))[row, mark]
    return {
        "answer": [layer[row, :, mark, answer].mean(0).tolist() for layer in weights],
        "period": [layer[row, :, mark, period].mean(0).tolist() for layer in weights],
        "nouns": [
            (layer[row, :, period, begin + 1] + layer[row, :, period, begin + 4])
            .mean(0)
            .tolist()
            for layer in weights
        ],
        "previous": [previous_token_score(layer).mean(0).tolist() for layer in weights],
        "induction": [induction_score(layer, REPEATED).mean(0).tolist() for layer in twice],
        "right": (scores.argmax(-1).numpy() == tokens[row, mark + 1]).mean(),
    }


def watched():
    """Train as the study does; return what was seen on the way, the losses, and the decoder."""
    torch.set_num_threads(1)
    decoder = torch_training.fresh(schemes.rotary, len(WORDS), 2, SEED)
    seen = []

    def watch(step):
        if step % EVERY == 0:
            seen.append(look(decoder))

    batches = language.batches(SEED, settings.STORIES)
    losses = torch_training.train(decoder, batches, settings.STORIES, watch)
    return [*seen, look(decoder)], losses, decoder


def fingerprint():
    """Changes with the code that trains and looks."""
    made_of = (
        torch_training.fresh,
        torch_training.train,
        torch_training.rate,
        torch_training.loss_of,
        language.batches,
        schemes.rotary,
        story,
        told,
        repeated,
        look,
    )
    said = [
        ast.unparse(ast.parse(textwrap.dedent(inspect.getsource(part)))) for part in made_of
    ]
    said += [repr(settings.STORIES), repr((SEED, EVERY, LOOKED_AT, REPEATED))]
    return hashlib.sha256("\0".join(said).encode()).hexdigest()[:16]


def save(seen, losses):
    """Write what was seen, in steps of a thousandth."""
    entry = {name: np.round([each[name] for each in seen], 3).tolist() for name in seen[0]}
    entry["loss"] = np.round(losses.reshape(-1, EVERY).mean(axis=1), 4).tolist()
    lines = [f" {json.dumps(name)}: {json.dumps(values)}" for name, values in entry.items()]
    head = f' "made_from": {json.dumps(fingerprint())},\n "every": {EVERY}'
    FILE.parent.mkdir(parents=True, exist_ok=True)
    FILE.write_text("{\n" + ",\n".join([head, *lines]) + "\n}\n", "utf-8")


if __name__ == "__main__":
    save(*watched()[:2])
