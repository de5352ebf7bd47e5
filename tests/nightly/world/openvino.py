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
