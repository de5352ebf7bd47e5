"""The lines of code for real models, without the models: `nox -s oracles` compares them with transformers."""

import json
from functools import partial
from pathlib import Path

import pytest
import torch

import posattn.torch

MODELS = json.loads(
    (Path(__file__).parents[2] / "docs" / "_records" / "models.json").read_text()
)
NAMES = {name: getattr(posattn.torch, name) for name in posattn.torch.__all__}


def evaluated(row):
    return eval(row["code"], {"partial": partial, **NAMES})


@pytest.mark.parametrize("row", MODELS["rotary"], ids=lambda row: row["family"])
def test_a_line_turns_as_many_entries_as_the_row_says(row):
    x = torch.linspace(1, 2, row["head"], dtype=torch.float64).repeat(2, 1)
    axes = row.get("axes")
    where = torch.tensor([0, 1]) if axes is None else torch.tensor([[0] * axes, [1] * axes])
    start, moved = evaluated(row)(x, where)
    assert int(((moved - start).abs() > 1e-12).sum()) == row["turns"]


@pytest.mark.parametrize("row", MODELS["others"], ids=lambda row: row["family"])
def test_every_other_line_runs(row):
    assert (evaluated(row) is None) == (row["family"] == "Jamba")


def test_there_are_more_than_thirty_families():
    rows = MODELS["rotary"] + MODELS["others"]
    assert len({row["family"].split(",")[0] for row in rows}) > 30
