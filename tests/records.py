"""The recorded configurations of released models, by family, their plans, and a few defaults of classes."""

import json
from pathlib import Path

from posattn.configs import plan

FOLDER = Path(__file__).parents[1] / "docs" / "_records" / "configs"
FILES = {
    path.stem: json.loads(path.read_text("utf-8")) for path in sorted(FOLDER.glob("*.json"))
}
CLASSES = json.loads(
    (Path(__file__).parent / "library" / "classes.json").read_text("utf-8")
)
RECORDS = {record["_family"]: record for record in FILES.values()}
PLANS = {family: plan(record) for family, record in RECORDS.items()}
SCALINGS = ("linear", "yarn", "longrope", "llama3")


def stored(name):
    """A copy of a recorded configuration, or of what a class fills in, by the name of its file."""
    return json.loads(json.dumps(FILES.get(name) or CLASSES[name]))


def ropes(family):
    """The rotations of a model, one for each kind of layer that turns."""
    return {layer.rope for layer in PLANS[family].layers if layer.rope is not None}


ROTARY = [family for family in PLANS if ropes(family)]
