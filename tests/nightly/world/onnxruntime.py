"""ONNX Runtime, ONNX's own operators `Attention` and `RotaryEmbedding`."""

from onnxruntime import InferenceSession

from tests.nightly.world import graphs
from tests.nightly.world.graphs import *  # noqa: F403

INSTALL = ["numpy==2.4.6", "onnx==1.23.2", "onnxruntime==1.32.0"]
graphs.run = lambda model, inputs: InferenceSession(model).run(None, inputs)[0]


def lowest_float():
    """A mask row of lowest floats gives zeros up to opset 24 and the mean of the values from opset 25 on."""
    import numpy as np

    query, value = np.zeros((1, 1, 2, 1), "f4"), np.array([1, 3], "f4").reshape(1, 1, 2, 1)
    mask = np.full((2, 2), np.finfo("f4").min)
    for opset in 23, 24, 25:
        line, given = (
            "Attention (query, query, value, mask)",
            {"query": query, "value": value},
        )
        y = graphs._attend(line, opset=opset, **given, mask=mask)
        print(f"opset {opset}:", *y.ravel())
