"""Tables of families as files of data: what differs by names and numbers only is no code."""

import json
from pathlib import Path

__all__ = ["data"]


def data(name):
    """What a file of this folder holds.

    Args:
        name: of the file.

    Returns:
        What its JSON says.
    """
    return json.loads(Path(__file__).with_name(name).read_text("utf-8"))
