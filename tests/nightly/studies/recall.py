"""What a state of fixed size recalls: facts are told twice, the later one holds, and all are asked for."""

import ast
import hashlib
import inspect
import json

import joblib
import numpy as np
import torch
from torch import nn
from torch.nn.functional import normalize, scaled_dot_product_attention, softplus

from tests.nightly.studies import records, torch_training
from tests.nightly.studies.settings import Settings

NAMES, WIDTH, VALUE_WIDTH = 32, 32, 16
SETTINGS = Settings(steps=2000)
MOST = 16  # names in training
ASKED_ABOUT = 1, 2, 4, 8, 12, 16  # names in a test
TEXTS = 256  # tests of each
STATES = {f"{rows} rows": (rows,) * 4 for rows in (2, 4, 8, 16)}
MODELS = STATES | {"4 rows, one full": (4, 4, 4, 0), "mask alone": (0,) * 4}
SEEDS = 0, 1
FILE = records.FOLDER / "recall.json"


def told(rng, size, names):
    """Facts, then questions: who and whom, `(size, 3 names + 1, 2)`, and the answers, one place later.

    Each name has two facts, of which the later one is asked for. In a question, whom is nobody.
    """
    drawn = np.argsort(rng.random((size, NAMES)))[:, :names]
    order = np.argsort(rng.random((size, 2 * names)))
    who = np.take_along_axis(np.tile(drawn, 2), order, 1)
    whom = rng.integers(NAMES, size=who.shape)
    asked = np.take_along_axis(drawn, np.argsort(rng.random(drawn.shape)), 1)
    last = 2 * names - 1 - np.argmax(who[:, None, ::-1] == asked[..., None], axis=2)
    pairs, answers = (
        np.zeros((size, 3 * names + 1, 2), int),
        np.full((size, 3 * names + 1), -1),
    )
    pairs[:, : 2 * names] = np.stack([who, whom], -1)
    pairs[:, 2 * names : -1] = np.stack([asked, np.full_like(asked, NAMES)], -1)
    answers[:, 2 * names + 1 :] = np.take_along_axis(whom, last, 1)
    return pairs, answers


def batches(seed):
    """What a seed is trained on: from 1 to 16 names."""
    rng = np.random.default_rng([seed, 2])
    for _ in range(SETTINGS.steps):
        yield told(rng, SETTINGS.batch, int(rng.integers(1, MOST, endpoint=True)))


def delta(query, key, value, log_gates, beta):
    """The gated delta rule, all tokens at once: what each writes solves a triangular system."""
    since = log_gates.cumsum(-1)
    fade = (since[..., None] - since[..., None, :]).tril().exp().tril()
    system = (key @ key.mT * fade * beta[..., None]).tril(-1) + torch.eye(key.shape[-2])
    written = torch.linalg.solve_triangular(
        system, beta[..., None] * value, upper=False, unitriangular=True
    )
    return (query @ key.mT * fade) @ written


class Mixer(nn.Module):
    """A head with a state of so many rows, or with none a full head that knows no positions."""

    def __init__(self, rows):
        super().__init__()
        self.sizes = [rows or VALUE_WIDTH] * 2 + [VALUE_WIDTH, 2]
        self.project = nn.Linear(WIDTH, sum(self.sizes))
        self.output = nn.Linear(VALUE_WIDTH, WIDTH, bias=False)
        self.rows = rows

    def forward(self, x):
        """What the head adds to the stream."""
        query, key, value, gates = self.project(x).split(self.sizes, -1)
        if not self.rows:
            return self.output(
                scaled_dot_product_attention(query, key, value, is_causal=True)
            )
        query, key = normalize(query, dim=-1), normalize(key, dim=-1)
        log_gates, beta = -softplus(gates[..., 0] - 4), gates[..., 1].sigmoid()
        return self.output(delta(query, key, value, log_gates, beta))


class Reader(nn.Module):
    """Blocks of a head and a small network each, which read a fact as one token."""

    def __init__(self, layers):
        super().__init__()
        self.who, self.whom = nn.Embedding(NAMES, WIDTH), nn.Embedding(NAMES + 1, WIDTH)
        parts = [
            nn.Sequential(nn.RMSNorm(WIDTH), part)
            for rows in layers
            for part in (
                Mixer(rows),
                nn.Sequential(nn.Linear(WIDTH, 64), nn.SiLU(), nn.Linear(64, WIDTH)),
            )
        ]
        self.parts = nn.ModuleList(parts)
        self.head = nn.Sequential(nn.RMSNorm(WIDTH), nn.Linear(WIDTH, NAMES))

    def forward(self, pairs):
        """The logits of an answer at each token."""
        x = self.who(pairs[..., 0]) + self.whom(pairs[..., 1])
        for part in self.parts:
            x = x + part(x)
        return self.head(x)


def run(name, seed):
    """Train a model, and return the share of right answers by the number of names."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    reader = Reader(MODELS[name])
    torch_training.train(reader, batches(seed), SETTINGS)
    rng, right = np.random.default_rng(10**6), []
    for names in ASKED_ABOUT:
        pairs, answers = told(rng, TEXTS, names)
        found = torch_training.logits_of(reader)(pairs).argmax(-1) == answers[:, 1:]
        right.append(round(float(found[answers[:, 1:] >= 0].mean()), 4))
    return f"{name}, seed {seed}", right


def fingerprint():
    """Changes with the code that trains and measures."""
    made_of = [getattr(torch_training, name) for name in ("train", "rate", "loss_of")]
    made_of += [told, batches, delta, Mixer, Reader, run]
    said = [ast.unparse(ast.parse(inspect.getsource(part))) for part in made_of]
    said.append(
        repr((SETTINGS, NAMES, WIDTH, VALUE_WIDTH, MOST, ASKED_ABOUT, TEXTS, MODELS))
    )
    return hashlib.sha256("\0".join(said).encode()).hexdigest()[:16]


def save(jobs):
    """Train all, `jobs` at a time, and write the record as each one ends."""
    cases = [joblib.delayed(run)(name, seed) for seed in SEEDS for name in MODELS]
    record = {"made_from": fingerprint(), "names": ASKED_ABOUT}
    for name, right in joblib.Parallel(n_jobs=jobs, return_as="generator")(cases):
        record[name] = right
        lines = (f" {json.dumps(key)}: {json.dumps(each)}" for key, each in record.items())
        FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n", "utf-8")
