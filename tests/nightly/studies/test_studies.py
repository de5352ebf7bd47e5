"""The study says when it is stale, and trains as it did."""

from itertools import islice

import numpy as np
import pytest

from tests.nightly.studies import __main__ as command
from tests.nightly.studies import cells, records, schemes, torch_training

CELL = cells.Cell("stories", "none", 0)


@pytest.mark.parametrize("task", cells.TASKS)
def test_the_record_is_of_the_code_as_it_is(task):
    code, *text = records.load(task)["made_from"].split()
    now, *here = cells.fingerprint(task).split()
    assert code == now, "train again: nox -s record -- study"
    if text != here:
        pytest.skip("this Python's documentation is another")


def test_a_record_is_of_one_code(tmp_path, monkeypatch):
    now = cells.fingerprint("stories")
    records.save("stories", now, CELL.name, {"right": 0}, tmp_path)
    assert command.is_recorded(CELL, tmp_path)
    monkeypatch.setattr(cells, "fingerprint", lambda task: "changed")
    assert not command.is_recorded(CELL, tmp_path)
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
