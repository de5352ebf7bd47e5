"""Tables of families as files of data: what differs by names and numbers only is no code."""

import json
from pathlib import Path


def data(name):
    """What the JSON of a file of this folder holds."""
    return json.loads(Path(__file__).with_name(name).read_text("utf-8"))
