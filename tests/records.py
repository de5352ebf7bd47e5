"""The recorded configurations of models, by family, and their plans."""

import json
from pathlib import Path

from posattn.configs import plan

FOLDER = Path(__file__).parents[1] / "docs" / "_records" / "configs"
RECORDS = {
    record["_family"]: record
    for record in (
        json.loads(path.read_text("utf-8")) for path in sorted(FOLDER.glob("*.json"))
    )
}
PLANS = {family: plan(record) for family, record in RECORDS.items()}
SCALINGS = ("linear", "yarn", "longrope", "llama3")


def ropes(family):
    """The rotations of a model, one for each kind of layer that turns."""
    return {layer.rope for layer in PLANS[family].layers if layer.rope is not None}


ROTARY = [family for family in PLANS if ropes(family)]
