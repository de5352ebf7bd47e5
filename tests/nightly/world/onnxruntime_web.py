"""ONNX Runtime Web, WebAssembly under Node: the operators `Attention` and `RotaryEmbedding`."""

from tests.nightly.world import graphs
from tests.nightly.world.graphs import *  # noqa: F403
from tests.nightly.world.javascript import _in_node

INSTALL = ["numpy==2.4.6", "onnx==1.23.2", "npm onnxruntime-web@1.30.0"]
graphs.run = _in_node("onnxruntime-web")
