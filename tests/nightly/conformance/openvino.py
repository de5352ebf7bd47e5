"""OpenVINO: graphs of one ONNX operator, and PyTorch's attention, converted."""

import numpy as np
import torch
from onnx.parser import parse_model
from openvino import Core, convert_model

from tests.nightly.conformance.adapting import NAN_LEAKS, against, because
from tests.nightly.conformance.graphs import CORNER, OURS, adapters, graph


@because(
    "NaN", whose="library", why="NaN in the output of an ONNX `Attention` becomes zero"
)
def zero():
    head = '<ir_version: 11, opset_import: ["": 23]> g '
    given = "(float[1,1,1,1] q, float[1,1,2,1] kv, bool[1,2] mask) => (float[1,1,1,1] y) "
    model = parse_model(head + given + "{ y = Attention (q, kv, kv, mask) }")
    values = np.array([1, np.nan], "f4").reshape(1, 1, 2, 1)
    inputs = {"q": values[:, :, :1], "kv": values, "mask": np.array([[True, True]])}
    read = Core().read_model(model.SerializeToString())
    print(Core().compile_model(read, "CPU")(inputs)[0], "for nan")


@CORNER
def corner():
    head = '<ir_version: 11, opset_import: ["": 23]> g '
    given = "(float[1,1,2,1] q, float[1,1,1,1] kv) => (float[1,1,2,1] y) "
    model = parse_model(head + given + "{ y = Attention <is_causal = 1> (q, kv, kv) }")
    inputs = {"q": np.zeros((1, 1, 2, 1), "f4"), "kv": np.ones((1, 1, 1, 1), "f4")}
    read = Core().read_model(model.SerializeToString())
    print(Core().compile_model(read, "CPU")(inputs)[0].flatten(), "for 0, 1")


@because(
    "", whose="library", why="`left_window_size` of opset 25 is ignored without a word"
)
def no_window():
    head = '<ir_version: 11, opset_import: ["": 25]> g '
    given = "(float[1,1,2,1] q, float[1,1,2,1] kv) => (float[1,1,2,1] y) "
    node = "Attention <is_causal = 1, left_window_size = 0> (q, kv, kv)"
    model = parse_model(f"{head}{given}{{ y = {node} }}").SerializeToString()
    inputs = {"q": np.zeros((1, 1, 2, 1), "f4")}
    inputs["kv"] = np.array([0, 1], "f4").reshape(1, 1, 2, 1)
    read = Core().read_model(model)
    print(Core().compile_model(read, "CPU")(inputs)[0].flatten(), "for 0, 1")


@because("one of them 0", "one length per query", whose="convention",
         why="converted, a query that may attend to nothing gets NaN; we ask for zero")  # fmt: skip
def empty():
    class Attend(torch.nn.Module):
        def forward(self, x, mask):
            return torch.nn.functional.scaled_dot_product_attention(x, x, x, mask)

    given = torch.ones(1, 1, 1), torch.tensor([[False]])
    model = convert_model(Attend(), example_input=given)
    print(Core().compile_model(model, "CPU")([x.numpy() for x in given])[0], "for 0")


@NAN_LEAKS
def nan():
    class Attend(torch.nn.Module):
        def forward(self, q, kv, mask):
            return torch.nn.functional.scaled_dot_product_attention(q, kv, kv, mask)

    values = torch.tensor([[[1.0], [torch.nan]]])
    given = values[:, :1], values, torch.tensor([[True, False]])
    model = convert_model(Attend(), example_input=given)
    print(Core().compile_model(model, "CPU")([x.numpy() for x in given])[0], "for 1")


@because("queries at the end", "decoding one token", "more queries than keys", whose="convention",
         why="as in PyTorch, `is_causal` aligns the first query with the first key")  # fmt: skip
def first():
    class Attend(torch.nn.Module):
        def forward(self, q, kv):
            attend = torch.nn.functional.scaled_dot_product_attention
            return attend(q, kv, kv, is_causal=True)

    given = torch.zeros(1, 1, 1), torch.tensor([[[0.0], [1.0]]])
    model = convert_model(Attend(), example_input=given)
    print(Core().compile_model(model, "CPU")([x.numpy() for x in given])[0], "for 0.5")


CORE = Core()
CORE.set_property("CPU", {"INFERENCE_PRECISION_HINT": "f32"})  # and not bfloat16


def run(operator, inputs, outputs=("out",), **attributes):
    """The first output of a graph that has only this operator."""
    model, given = graph(operator, inputs, outputs, **attributes)
    return CORE.compile_model(CORE.read_model(model.SerializeToString()), "CPU")(given)[0]


ONE = adapters(run)
halves = against("rotary", layout="half", **OURS)(ONE.halves)
neighbors = against("rotary", layout="interleaved", **OURS)(ONE.neighbors)
masked = against("attention", zero, **OURS)(ONE.masked)
is_causal = against("attention", corner, causal=True, **OURS)(ONE.is_causal)
windowed = against("window_attention", no_window, **OURS)(ONE.windowed)
capped = against("soft_cap", **OURS)(ONE.capped)


class Attend(torch.nn.Module):
    """PyTorch's attention, with what stays the same."""

    def __init__(self, **options):
        super().__init__()
        self.options = options

    def forward(self, query, key, value, mask=None):
        """Attend."""
        attend = torch.nn.functional.scaled_dot_product_attention
        return attend(query, key, value, mask, **self.options)


def converted(query, key, value, mask=None, **options):
    """What OpenVINO computes of a module."""
    given = [x for x in (query, key, value, mask) if x is not None]
    example = tuple(map(torch.tensor, given))
    model = convert_model(Attend(**options).eval(), example_input=example)
    return CORE.compile_model(model, "CPU")(given)[0]


@against("attention", empty, nan, **OURS)
def converted_masked(query, key, value, *, mask=None, bias=None, scale=None):
    """PyTorch's attention with `attn_mask`, converted."""
    if bias is not None:
        mask = np.where(True if mask is None else mask, bias, np.float32(-np.inf))
    return converted(query, key, value, mask, scale=scale)


@against("attention", first, causal=True, **OURS)
def converted_causal(query, key, value, *, scale=None):
    """PyTorch's attention with `is_causal`, converted."""
    return converted(query, key, value, scale=scale, is_causal=True)
