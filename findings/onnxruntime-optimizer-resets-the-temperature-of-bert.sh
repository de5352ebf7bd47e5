#!/usr/bin/env bash
# Versions: onnxruntime 1.32.0, onnx 1.23.2, torch 2.13.0 (CPU).
# Expected: onnxruntime's optimizer for transformers fuses an attention into one node that
#   computes the same, with the node's attribute `scale` if need be, or leaves it alone.
# Seen: an encoder that divides its scores by d, by 1 or by 1/2 instead of sqrt(d) is fused all
#   the same, and its output is that of the model with sqrt(d), to 1e-5. The unfused file is
#   right. No warning; the statistics report success.
# Why: FusionAttention.fuse (onnxruntime/transformers/fusion_attention.py) matches the Div
#   between MatMul and Softmax and never reads its constant. create_attention_node has an
#   argument `scale`, which this path does not pass; without it the kernel takes 1/sqrt(d).
# Who meets it: whoever speeds up an encoder of his own with optimize_model (bert is the default
#   type): muP's 1/d, an unscaled attention as in T5, a tuned or distilled temperature.
set -euo pipefail
here=$(mktemp -d)
trap 'rm -rf "$here"' EXIT
python3 -m venv "$here/venv"
"$here/venv/bin/pip" install --quiet torch==2.13.0
"$here/venv/bin/pip" install --quiet numpy==2.4.6 onnx==1.23.2 onnxruntime==1.32.0 sympy==1.14.0
cd "$here"
"$here/venv/bin/python" -W ignore - <<'PY'
import numpy as np
import onnxruntime
import torch
from onnxruntime.transformers.optimizer import optimize_model
from torch import nn

WIDTH, HEADS, HEAD = 32, 4, 8


class Encoder(nn.Module):
    """One layer of BERT whose scores are divided by a number of one's own."""

    def __init__(self, divisor):
        super().__init__()
        self.divisor = divisor
        self.q, self.k, self.v, self.o, self.f = (nn.Linear(WIDTH, WIDTH) for _ in range(5))
        self.a, self.b, self.c = (nn.LayerNorm(WIDTH) for _ in range(3))

    def forward(self, x, mask):
        x = self.a(x)
        q, k, v = (p(x).view(*x.shape[:2], HEADS, HEAD).transpose(1, 2) for p in (self.q, self.k, self.v))
        hidden = (1.0 - mask[:, None, None, :].float()) * -10000.0
        weights = (q @ k.transpose(2, 3) / self.divisor + hidden).softmax(-1)
        x = self.b(x + self.o((weights @ v).transpose(1, 2).reshape(x.shape)))
        return self.c(x + self.f(x))


x, mask = torch.randn(2, 6, WIDTH), torch.ones(2, 6, dtype=torch.int64)
axes = {name: {0: "batch", 1: "tokens"} for name in ("x", "mask")}
for divisor in (HEAD**0.5, float(HEAD), 1.0, 0.5):
    torch.manual_seed(0)
    own, usual = Encoder(divisor).eval(), Encoder(HEAD**0.5).eval()
    usual.load_state_dict(own.state_dict())
    torch.onnx.export(own, (x, mask), "plain.onnx", input_names=["x", "mask"],
                      dynamic_axes=axes, opset_version=17, dynamo=False)
    fused = optimize_model("plain.onnx", num_heads=HEADS, hidden_size=WIDTH, opt_level=0)
    assert fused.get_fused_operator_statistics()["Attention"] == 1
    fused.save_model_to_file("fused.onnx")
    feed = {"x": x.numpy(), "mask": mask.numpy()}
    run = lambda file: onnxruntime.InferenceSession(file).run(None, feed)[0]
    off = lambda out, model: np.abs(out - model(x, mask).detach().numpy()).max()
    plain, after = run("plain.onnx"), run("fused.onnx")
    print(f"divided by {divisor:.2f}: off by {off(plain, own):.0e}, fused {off(after, own):.0e}; "
          f"fused from the model with sqrt(d) {off(after, usual):.0e}")
    assert off(plain, own) < 1e-5 and off(after, usual) < 1e-5
    assert divisor == HEAD**0.5 or off(after, own) > 0.02
PY
