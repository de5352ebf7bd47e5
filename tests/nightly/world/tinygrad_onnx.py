"""tinygrad's runner of ONNX models: the operators `Attention` and `RotaryEmbedding`."""

import os

os.environ["DEV"] = "PYTHON"  # the device that needs no compiler
from tinygrad import Tensor
from tinygrad.nn.onnx import OnnxRunner

from tests.nightly.world import graphs
from tests.nightly.world.graphs import *  # noqa: F403

INSTALL = ["numpy==2.4.6", "onnx==1.23.2", "tinygrad==0.14.0"]


def _run(model, inputs):
    runner = OnnxRunner(Tensor(list(model), dtype="uint8"))
    return runner({name: Tensor(x) for name, x in inputs.items()})["y"].numpy()


graphs.run = _run
