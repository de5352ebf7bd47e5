"""torch.onnx: its operators in eager mode, and what an exported file computes in onnxruntime."""

import tempfile

import numpy as np
import onnxruntime
import torch
from torch.nn.functional import scaled_dot_product_attention as sdpa

INSTALL = [
    "numpy==2.4.6 onnx==1.23.2 onnxscript==0.7.2 onnxruntime==1.32.0",
    "torch==2.13.0",
]


class _Operator(torch.nn.Module):
    """ONNX's operator `Attention` as a layer."""

    def __init__(self, **options):
        super().__init__()
        self.options = options

    def forward(self, *arrays):
        given = dict(zip(("Q", "K", "V", "past_key", "past_value"), arrays, strict=False))
        return torch.onnx.ops.attention(**given, **self.options)[:3]


def _exported(layer, *arrays, opset=23):
    """What onnxruntime computes from the file that `torch.onnx.export` writes."""
    path = f"{tempfile.mkdtemp()}/layer.onnx"
    options = {"dynamo": True, "opset_version": opset, "verbose": False}
    torch.onnx.export(layer, arrays, path, **options)
    session = onnxruntime.InferenceSession(path)
    inputs = {
        x.name: array.numpy() for x, array in zip(session.get_inputs(), arrays, strict=True)
    }
    return torch.from_numpy(session.run(None, inputs)[0])


def cap_after_mask():
    """`torch.onnx.ops.attention` caps scores after the mask, so hidden keys are seen; its export does not."""
    torch.manual_seed(0)
    heads = torch.randn(3, 1, 1, 4, 16).unbind()
    layer = _Operator(is_causal=True, softcap=2.0)
    for name, out in (("eager", layer(*heads)[0]), ("exported", _exported(layer, *heads))):
        off = (out - heads[2])[0, 0, 0].abs().max()
        print(f"{name}: the first token, which sees itself, is off its value by {off:.2f}")


def past():
    """After 3 cached tokens, `is_causal` in `torch.onnx.ops.attention` lets 2 new ones see 1 and 2 keys."""
    zeros, values = torch.zeros(1, 1, 5, 1), torch.arange(1.0, 6).reshape(1, 1, 5, 1)
    layer, new = _Operator(is_causal=True), zeros[:, :, 3:]
    arrays = new, new, values[:, :, 3:], zeros[:, :, :3], values[:, :, :3]
    for name, out in (
        ("eager", layer(*arrays)[0]),
        ("exported", _exported(layer, *arrays)),
    ):
        print(f"{name}: keys seen", *(2 * out.flatten() - 1).round().int().tolist())


def hidden_row():
    """A row that may see nothing changes with `opset_version`; PyTorch itself gives zeros."""

    class Layer(torch.nn.Module):
        def forward(self, query, key, value, mask):
            return sdpa(query, key, value, mask)

    values = torch.tensor([1.0, 3.0]).reshape(1, 1, 2, 1)
    seen = torch.tensor([[True, False], [False, False]])
    masks = {"Boolean": seen, "-inf": torch.zeros(2, 2).masked_fill(~seen, -np.inf)}
    for kind, mask in masks.items():
        arrays = torch.ones(1, 1, 2, 1), torch.ones(1, 1, 2, 1), values, mask
        found = {opset: _exported(Layer(), *arrays, opset=opset) for opset in (20, 23)}
        row = {opset: out.flatten()[1].item() for opset, out in found.items()}
        print(f"{kind}: PyTorch {Layer()(*arrays).flatten()[1].item()}, opset {row}")
