"""An induction head forms: a small decoder reads strings that repeat, and is watched as it learns."""

import ast
import hashlib
import inspect
import json
from copy import deepcopy

import joblib
import numpy as np
import torch
from torch.nn.functional import cross_entropy

from posattn.torch import induction_score, previous_token_score
from tests.nightly.studies import records, schemes, torch_training
from tests.nightly.studies.settings import Settings

LETTERS, LENGTH, SHORT, LONG = 26, 48, 8, 24  # of the alphabet, of a text, of its string
SETTINGS = Settings(steps=3000)
CASES = ("none", 3, 0), *(("rotary", 2, seed) for seed in range(3)), ("none", 2, 0)
EVERY, LOOKED_AT, PERIOD = 75, 64, 10  # steps, texts, and the string of each
SHADES = "0123456789abcdefghijklmnopqrstuvwxyz"  # of weights from 0 to 1
FILE = records.FOLDER / "induction.json"


def batches(seed):
    """Texts of 48 letters: 8 to 24 different ones, again and again; all is to be predicted."""
    rng = np.random.default_rng([seed, 1])
    for _ in range(SETTINGS.steps):
        tokens = np.empty((SETTINGS.batch, LENGTH), int)
        for row in tokens:
            length = rng.integers(SHORT, LONG, endpoint=True)
            row[:] = np.resize(rng.permutation(LETTERS)[:length], LENGTH)
        yield tokens, tokens


def repeated():
    """Ten different letters, twice, in each of 64 texts to look at."""
    rng = np.random.default_rng(10**7)
    half = np.stack([rng.permutation(LETTERS)[:PERIOD] for _ in range(LOOKED_AT)])
    return torch.from_numpy(np.concatenate([half, half], axis=1))


def loss_of(decoder):
    """The loss of what the first copy tells: the letters of the second but its first."""
    texts = repeated()
    logits = decoder(texts)[:, PERIOD:-1]
    return cross_entropy(logits.flatten(0, 1), texts[:, PERIOD + 1 :].flatten()).item()


@torch.inference_mode()
def look(decoder):
    """That loss, the scores of all heads, and their weights on the first text."""
    layers = decoder.attention_weights(repeated())
    return {
        "loss": loss_of(decoder),
        "previous": [previous_token_score(each).mean(0).tolist() for each in layers],
        "induction": [induction_score(each, PERIOD).mean(0).tolist() for each in layers],
        "maps": np.stack([each[0].numpy() for each in layers]),
    }


@torch.inference_mode()
def without(decoder, layer, head):
    """The loss without a head: it adds nothing."""
    changed, entries = deepcopy(decoder), slice(16 * head, 16 * head + 16)
    changed.blocks[layer].attention.output.weight[:, entries] = 0
    return loss_of(changed)


def packed(weights):
    """The lower triangle of a map as characters, row by row."""
    return "".join(SHADES[round(35 * each)] for each in weights[np.tri(2 * PERIOD) > 0])


def run(scheme, layers, seed):
    """Train, and return what was seen; of the first seed also two maps: who looks back, who continues."""
    torch.set_num_threads(1)
    decoder = torch_training.fresh(getattr(schemes, scheme), LETTERS, layers, seed)
    seen = []

    def watch(step):
        if step % EVERY == 0:
            seen.append(look(decoder))

    torch_training.train(decoder, batches(seed), SETTINGS, watch)
    seen.append(look(decoder))
    named = ("loss", "previous", "induction")
    entry = {name: np.round([each[name] for each in seen], 3).tolist() for name in named}
    lost = [[without(decoder, layer, each) for each in range(4)] for layer in range(layers)]
    entry["without"] = np.round(lost, 3).tolist()
    if seed == 0 and layers == 2:
        last = seen[-1]
        chosen = [np.argmax(last["previous"][0]), np.argmax(last["induction"][1])]
        entry["heads"] = list(map(int, chosen))  # one of each layer
        entry["maps"] = [
            [packed(each["maps"][layer, head]) for each in seen]
            for layer, head in enumerate(chosen)
        ]
    return f"{scheme}, {layers} layers, seed {seed}", entry


def fingerprint():
    """Changes with the code that trains and looks."""
    made_of = [
        getattr(torch_training, name) for name in ["fresh", "train", "rate", "loss_of"]
    ]
    made_of += [schemes.rotary, batches, repeated, loss_of, look, without, packed, run]
    said = [ast.unparse(ast.parse(inspect.getsource(part))) for part in made_of]
    said.append(repr((SETTINGS, LETTERS, LENGTH, SHORT, LONG, EVERY, LOOKED_AT, PERIOD)))
    return hashlib.sha256("\0".join(said).encode()).hexdigest()[:16]


def save(jobs):
    """Train all, `jobs` at a time, and write the record."""
    work = [joblib.delayed(run)(*case) for case in CASES]
    string = "".join(chr(ord("a") + each) for each in repeated()[0, :PERIOD].tolist())
    record = {"made_from": fingerprint(), "every": EVERY, "string": string}
    record |= dict(joblib.Parallel(n_jobs=jobs)(work))
    lines = (f" {json.dumps(name)}: {json.dumps(each)}" for name, each in record.items())
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n", "utf-8")
