"""ONNX: its reference evaluator, with graphs of one operator."""

import numpy as np
from onnx.parser import parse_model
from onnx.reference import ReferenceEvaluator

from tests.nightly.conformance.adapting import NAN_LEAKS, against, because
from tests.nightly.conformance.graphs import CORNER, OURS, adapters, graph


@NAN_LEAKS
def nan():
    head = '<ir_version: 11, opset_import: ["": 23]> g '
    given = "(float[1,1,1,1] q, float[1,1,2,1] kv, bool[1,2] mask) => (float[1,1,1,1] y) "
    model = parse_model(head + given + "{ y = Attention (q, kv, kv, mask) }")
    values = np.array([1, np.nan], "f4").reshape(1, 1, 2, 1)
    inputs = {"q": values[:, :, :1], "kv": values, "mask": np.array([[True, False]])}
    print(ReferenceEvaluator(model).run(None, inputs), "for 1")


@CORNER
def corner():
    head = '<ir_version: 11, opset_import: ["": 23]> g '
    given = "(float[1,1,2,1] q, float[1,1,1,1] kv) => (float[1,1,2,1] y) "
    model = parse_model(head + given + "{ y = Attention <is_causal = 1> (q, kv, kv) }")
    inputs = {"q": np.zeros((1, 1, 2, 1), "f4"), "kv": np.ones((1, 1, 1, 1), "f4")}
    print(ReferenceEvaluator(model).run(None, inputs)[0].flatten(), "for 0, 1")


@because("(b, 1, 1, n)", whose="library",
         why="a mask of one row makes a triangle of one row, so each query sees one key")  # fmt: skip
def one_row():
    head = '<ir_version: 11, opset_import: ["": 23]> g '
    given = (
        "(float[1,1,2,1] q, float[1,1,2,1] kv, bool[1,1,1,2] mask) => (float[1,1,2,1] y) "
    )
    model = parse_model(
        head + given + "{ y = Attention <is_causal = 1> (q, kv, kv, mask) }"
    )
    inputs = {"q": np.zeros((1, 1, 2, 1), "f4"), "mask": np.ones((1, 1, 1, 2), bool)}
    inputs["kv"] = np.array([0, 1], "f4").reshape(1, 1, 2, 1)
    print(ReferenceEvaluator(model).run(None, inputs)[0].flatten(), "for 0, 0.5")


def run(operator, inputs, outputs=("out",), **attributes):
    """The first output of a graph that has only this operator."""
    model, given = graph(operator, inputs, outputs, **attributes)
    return np.asarray(ReferenceEvaluator(model).run(None, given)[0])


ONE = adapters(run)
halves = against("rotary", layout="half", **OURS)(ONE.halves)
neighbors = against("rotary", layout="interleaved", **OURS)(ONE.neighbors)
masked = against("attention", nan, **OURS)(ONE.masked)
is_causal = against("attention", corner, one_row, causal=True, **OURS)(ONE.is_causal)
windowed = against("window_attention", **OURS)(ONE.windowed)
capped = against("soft_cap", **OURS)(ONE.capped)
