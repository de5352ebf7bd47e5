"""The cells of the study: a task, a scheme and a seed each, trained and measured on its own."""

import ast
import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from tests.nightly.studies import (
    extending,
    language,
    schemes,
    settings,
    topics,
    torch_training,
)

TASKS = {"stories": language, "topics": topics}
TRAINED = {"stories": settings.STORIES, "topics": settings.TOPICS}
SCHEMES = (
    "none",
    "learned",
    "sinusoidal",
    "rotary",
    "partial_rotary",
    "alibi",
    "t5",
    "kerple",
)
DEEP = ("rotary", "rotary_in_some")  # with four layers
LAYERS = 2
CURVE = 50  # steps whose losses are averaged
MADE_OF = (
    "cells",
    "extending",
    "language",
    "schemes",
    "settings",
    "topics",
    "torch_training",
)


@dataclass(frozen=True)
class Cell:
    """A decoder to train; `name` is its key in the record."""

    task: str
    scheme: str
    seed: int
    layers: int = LAYERS

    @property
    def name(self):
        """The key in the record."""
        deep = "" if self.layers == LAYERS else f", {self.layers} layers"
        return f"{self.scheme}{deep}, seed {self.seed}"


def cells():
    """All cells: a seed of each scheme before the next seed of any, and what takes longest last."""
    found = [
        Cell(task, scheme, seed)
        for seed in settings.SEEDS
        for scheme in SCHEMES
        for task in TASKS
    ]
    found += [Cell("topics", scheme, seed, 4) for seed in settings.SEEDS for scheme in DEEP]
    return found + [Cell("stories", "cope", seed) for seed in settings.SEEDS]


def run(cell):
    """Train a cell in one thread and measure it; return its entry in the record and the decoder."""
    torch.set_num_threads(1)
    task, trained = TASKS[cell.task], TRAINED[cell.task]
    scheme = getattr(schemes, cell.scheme)
    decoder = torch_training.fresh(scheme, len(task.VOCABULARY), cell.layers, cell.seed)
    losses = torch_training.train(decoder, task.batches(cell.seed, trained), trained)
    entry = {"curve": losses.reshape(-1, CURVE).mean(axis=1).tolist()}
    entry |= task.measure(torch_training.logits_of(decoder))
    if cell.scheme == "rotary" and cell.layers == LAYERS:
        entry["extended"] = extending.extended(decoder, task, cell.seed)
    return rounded(entry), decoder


def rounded(tree):
    """The same with four digits after the point."""
    if isinstance(tree, dict):
        return {str(key): rounded(value) for key, value in tree.items()}
    if isinstance(tree, list):
        return [rounded(value) for value in tree]
    return round(float(np.float64(tree)), 4)


def fingerprint(task):
    """Changes with the code that trains and measures, and with the text; docstrings count for nothing."""
    said = []
    for name in MADE_OF:
        tree = ast.parse(Path(__file__).with_name(f"{name}.py").read_text("utf-8"))
        for node in ast.walk(tree):
            body = getattr(node, "body", None)
            if isinstance(body, list) and body and is_text(body[0]):
                body[0] = ast.Pass()
        said.append(ast.unparse(tree))
    code = hashlib.sha256("\0".join(said).encode()).hexdigest()[:16]
    return f"{code} {topics.HASH[:16]}" if task == "topics" else code


def is_text(node):
    """Whether a statement is a docstring."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
