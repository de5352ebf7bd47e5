"""The lines of code for the models that no plan covers; `nox -s oracles` compares them with transformers."""

import json
from pathlib import Path

import pytest

import posattn.torch

ROWS = json.loads(
    (Path(__file__).parents[2] / "docs" / "_records" / "models.json").read_text("utf-8")
)
NAMES = {name: getattr(posattn.torch, name) for name in posattn.torch.__all__}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["family"])
def test_every_line_runs(row):
    assert callable(eval(row["code"], NAMES))
