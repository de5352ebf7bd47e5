"""OpenVINO, from ONNX's operators `Attention` and `RotaryEmbedding`, on a CPU in float32."""

import openvino as ov

from tests.nightly.world import graphs
from tests.nightly.world.graphs import *  # noqa: F403

INSTALL = ["numpy==2.4.6", "onnx==1.23.2", "openvino==2026.4.1"]
FLOAT32 = {"INFERENCE_PRECISION_HINT": "f32"}


def _run(model, inputs):
    core = ov.Core()
    compiled = core.compile_model(core.read_model(model), "CPU", FLOAT32)
    return compiled(inputs)[0]


graphs.run = _run


def empty_row_of_its_own():
    """Its own operation, which a model from PyTorch gets, gives a row without visible keys NaN."""
    import numpy as np
    from openvino import opset13

    query, mask = np.ones((1, 1, 2, 1), "f4"), np.array([[True, False], [False, False]])
    heads = opset13.parameter(query.shape, np.float32)
    made = opset13.scaled_dot_product_attention(heads, heads, heads, opset13.constant(mask))
    compiled = ov.compile_model(ov.Model([made.output(0)], [heads], "sdpa"), "CPU", FLOAT32)
    print(*compiled([query])[0].ravel())
