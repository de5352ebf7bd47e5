"""Which libraries are asked, and what they made of our vectors, as it was recorded.

Engines that read ONNX are asked with our bundle, `nox -s record -- bundle`.
"""

import hashlib
import json

from posattn.conformance.vectors import FOLDER as VECTORS
from tests.nightly.recording import RECORDS

FOLDER = RECORDS / "conformance"
# each with the row of the world that installs it and shows what it does
LIBRARIES = {
    "diffusers": "diffusers",
    "equinox": "equinox",
    "flax": "flax_nnx",
    "jax": "jax_nn",
    "keras-hub": "keras_tensorflow",
    "mlx": "mlx",
    "mlx-lm": "mlx_lm",
    "rotary-embedding-torch": "rotary_embedding_torch",
    "timm": "timm",
    "torch": "torch_sdpa",
    "transformers": "transformers_rope",
    "xllamacpp": "xllamacpp",
    "x-transformers": "x_transformers",
}


def read():
    """The records, by library."""
    paths = sorted(FOLDER.glob("*.json"))
    return {path.stem: json.loads(path.read_text("utf-8")) for path in paths}


def fingerprint(scheme):
    """Eight digits that change with the vectors of a scheme."""
    return hashlib.sha256((VECTORS / f"{scheme}.json").read_bytes()).hexdigest()[:8]
