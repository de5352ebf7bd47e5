"""The study goes on where it ended, says when it is stale, and is the same in both frameworks."""

from dataclasses import replace
from itertools import islice

import jaxtyping
import numpy as np
import pytest
import torch

from tests.nightly.studies import (
    __main__ as command,
)
from tests.nightly.studies import (
    cells,
    extending,
    jax_training,
    records,
    schemes,
    settings,
    together,
    topics,
    torch_training,
)

CELLS = [cells.Cell("stories", "none", 0), cells.Cell("topics", "alibi", 1)]


@pytest.fixture(autouse=True)
def unchecked():
    """Arrays with an axis for the seeds in front have not the shapes that signatures name."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture
def short(monkeypatch):
    """A study of fifty steps."""
    steps = {name: replace(each, steps=50) for name, each in cells.TRAINED.items()}
    monkeypatch.setattr(cells, "TRAINED", steps)
    monkeypatch.setattr(together, "TRAINED", steps)
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


@pytest.mark.parametrize("scheme", ["rotary", "alibi"])
def test_both_frameworks_find_the_same_within_their_intervals(scheme):
    found = {}
    for framework in ("", "-jax"):
        record = records.load(f"stories{framework}")
        assert record["made_from"] == cells.fingerprint("stories")
        known = [record["cells"][f"{scheme}, seed {seed}"] for seed in settings.SEEDS]
        shares = [[cell["right"][str(times)] for times in settings.TIMES] for cell in known]
        found[framework] = records.interval(shares)
    (mean, reach), (other, _) = found.values()
    assert np.all(np.abs(mean - other) < reach)


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


def test_seeds_trained_together_find_what_each_finds_alone(short):
    entries = together.run("stories", "alibi", [3, 4])
    for seed, entry in zip([3, 4], entries, strict=True):
        alone, _ = cells.run(cells.Cell("stories", "alibi", seed))
        assert entry.keys() == alone.keys()
        np.testing.assert_allclose(entry["curve"], alone["curve"], atol=2e-4)
        np.testing.assert_allclose(entry["loss"]["8"], alone["loss"]["8"], atol=2e-3)


def trained(task, scheme, seed, steps=50):
    """The losses of the first steps in PyTorch."""
    module, every = cells.TASKS[task], cells.TRAINED[task]
    made = torch_training.fresh(getattr(schemes, scheme), len(module.VOCABULARY), 2, seed)
    return torch_training.train(made, islice(module.batches(seed, every), steps), every)


@pytest.mark.parametrize("scheme", [*cells.SCHEMES, "cope"])
@pytest.mark.parametrize("task", cells.TASKS)
def test_frameworks_agree_from_the_same_numbers(task, scheme):
    module, every = cells.TASKS[task], cells.TRAINED[task]
    steps = 5
    made = jax_training.fresh(getattr(schemes, scheme), len(module.VOCABULARY), 2, [0])
    batches = [islice(module.batches(0, every), steps)]
    _, (losses,) = jax_training.train(made, batches, every)
    np.testing.assert_allclose(losses, trained(task, scheme, 0, steps), atol=1e-5)


@pytest.mark.parametrize("task", cells.TASKS)
def test_training_begins_as_recorded(task):
    recorded = records.load(task)["cells"]["none, seed 0"]["curve"]
    losses = trained(task, "none", 0, 2 * cells.CURVE)
    now = losses.reshape(2, -1).mean(axis=1)
    np.testing.assert_allclose(now, recorded[:2], atol=2e-3)


def test_methods_of_longer_contexts_leave_the_weights_alone(monkeypatch):
    monkeypatch.setattr(extending, "TUNED", replace(settings.TUNED, steps=2))
    decoder = torch_training.fresh(schemes.rotary, len(topics.VOCABULARY), 2, 0)
    seen = []

    class Task:
        LENGTH = topics.LENGTH
        batches = staticmethod(topics.batches)

        @staticmethod
        def measure(logits):
            seen.append(logits(topics.TEST[None, :200]))

    before = {name: each.clone() for name, each in decoder.state_dict().items()}
    found = extending.extended(decoder, Task, 0)
    assert list(found) == list(extending.methods(64))
    assert len(seen) == 10
    assert all((before[name] == each).all() for name, each in decoder.state_dict().items())
    untouched, tuned, interpolated = seen[0], seen[1], seen[2]
    assert np.abs(untouched - tuned).max() > 1e-3
    assert (
        np.abs(untouched[:, 0] - interpolated[:, 0]).max() < 1e-5
    )  # at the first position
    assert np.abs(untouched - interpolated).max() > 1e-3


def test_intervals_are_those_of_student():
    mean, reach = records.interval([[1.0], [2.0], [3.0]])
    assert mean == 2
    assert reach == pytest.approx(4.302652729911275 / 3**0.5)
