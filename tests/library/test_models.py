"""The lines of code for the models that no plan covers; `nox -s oracles` compares them with transformers."""

import json
from functools import partial
from pathlib import Path

import pytest
import torch

import posattn.torch

ROWS = json.loads(
    (Path(__file__).parents[2] / "docs" / "_records" / "models.json").read_text("utf-8")
)
NAMES = {name: getattr(posattn.torch, name) for name in posattn.torch.__all__}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["family"])
def test_every_line_runs(row):
    made = eval(row["code"], {"partial": partial, **NAMES})
    if row["family"] == "DINOv3":
        x = torch.linspace(1, 2, 64, dtype=torch.float64).repeat(2, 1)
        start, moved = made(x, torch.tensor([[0, 0], [1, 1]]))
        assert int(((moved - start).abs() > 1e-12).sum()) == 64
