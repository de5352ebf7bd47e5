"""ONNX's reference evaluator: the operators `Attention` and `RotaryEmbedding`."""

from onnx.reference import ReferenceEvaluator

from tests.nightly.world import graphs
from tests.nightly.world.graphs import *  # noqa: F403

INSTALL = ["numpy==2.4.6", "onnx==1.23.2"]
graphs.run = lambda model, inputs: ReferenceEvaluator(model).run(None, inputs)[0]


def padding_beside_causal():
    """A mask of shape (1, 1, 1, keys) beside `is_causal` lets every query see only the first key."""
    import numpy as np

    query, value = np.zeros((1, 1, 3, 1), "f4"), np.arange(1, 4, dtype="f4")
    given = {"query": query, "value": value.reshape(1, 1, 3, 1)}
    mask = {"mask": np.ones((1, 1, 1, 3), bool)}
    line = "Attention <is_causal = 1> (query, query, value"
    print("without a mask:", *graphs._attend(f"{line})", **given).ravel())
    print("with the mask: ", *graphs._attend(f"{line}, mask)", **given, **mask).ravel())
