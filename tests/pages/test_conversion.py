"""From torch to an engine: the small models, and what the page counts of their record."""

import json
from pathlib import Path

import pytest

from posattn.configs.shrunk import shrunk

RECORDS = Path(__file__).parents[2] / "docs" / "_records"


@pytest.mark.parametrize("name", ["mistral-0.1", "gemma-2-27b"])
def test_a_window_of_a_small_model_is_48_tokens(name):
    config = json.loads((RECORDS / "configs" / f"{name}.json").read_text("utf-8"))
    assert shrunk(config, 1024)["sliding_window"] == 48


def test_the_control_is_right_for_every_model(page):
    lines = json.loads((RECORDS / "twins.json").read_text("utf-8"))
    control = [line for line in lines if line["engine"] == "transformers"]
    assert all(line["verdict"].startswith("It equals the model,") for line in control)
    assert page.glued["wrong"] + page.glued["right"] == page.glued["compared"] > 0
