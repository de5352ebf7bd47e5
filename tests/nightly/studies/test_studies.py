"""The study goes on where it ended, and says when it is stale."""

from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
import torch

from tests.nightly.studies import __main__ as command
from tests.nightly.studies import cells, records, schemes, torch_training

CELLS = [cells.Cell("stories", "none", 0), cells.Cell("topics", "alibi", 1)]


@pytest.fixture
def short(monkeypatch):
    """A study of fifty steps."""
    steps = {name: replace(each, steps=50) for name, each in cells.TRAINED.items()}
    monkeypatch.setattr(cells, "TRAINED", steps)
    monkeypatch.setattr(cells.language, "HELD_OUT", 4)
    monkeypatch.setattr(cells.topics, "HELD_OUT", 4)
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize("task", cells.TASKS)
def test_the_record_is_of_the_code_as_it_is(task):
    code, *text = records.load(task)["made_from"].split()
    now, *here = cells.fingerprint(task).split()
    assert code == now, "train again: nox -s record -- study"
    if text != here:
        pytest.skip("this Python's documentation is another")


def test_a_study_goes_on_where_it_ended(short, tmp_path, monkeypatch):
    command.study(CELLS[:1], tmp_path, jobs=1)
    assert command.missing(CELLS, tmp_path) == CELLS[1:]
    first = records.load("stories", tmp_path)["cells"]
    command.study(CELLS, tmp_path, jobs=1)
    assert records.load("stories", tmp_path)["cells"] == first
    assert not command.missing(CELLS, tmp_path)
    monkeypatch.setattr(cells, "fingerprint", lambda task: "changed")
    assert command.missing(CELLS, tmp_path) == CELLS
    records.save("stories", "changed", "other", {"right": 1}, tmp_path)
    assert records.load("stories", tmp_path)["cells"] == {"other": {"right": 1}}


def trained(task, scheme, seed, steps=50):
    """The losses of the first steps in PyTorch."""
    module, every = cells.TASKS[task], cells.TRAINED[task]
    made = torch_training.fresh(getattr(schemes, scheme), len(module.VOCABULARY), 2, seed)
    return torch_training.train(made, islice(module.batches(seed, every), steps), every)


@pytest.mark.parametrize("task", cells.TASKS)
def test_training_begins_as_recorded(task):
    recorded = records.load(task)["cells"]["none, seed 0"]["curve"]
    losses = trained(task, "none", 0, 2 * cells.CURVE)
    now = losses.reshape(2, -1).mean(axis=1)
    np.testing.assert_allclose(now, recorded[:2], atol=2e-3)
