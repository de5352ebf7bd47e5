"""Run attention of the PyTorch column and write what went in and came out, for the ports to repeat.

`python tests/nightly/ports/carry.py FILE` writes JSON in the form of the conformance vectors.
"""

import json
import sys
from pathlib import Path

import numpy as np
import torch

from posattn.conformance.generate import encode
from posattn.torch import MultiHeadAttention, length_mask

RNG = np.random.default_rng(3)
LAYERS = [
    ("self-attention", {}, (4, 4), {}),
    ("offsets in the projections", {"use_bias": True}, (4, 4), {}),
    ("one length per example, one of them 0", {}, (4, 4), {"mask": "lengths"}),
    ("one length per query", {"use_bias": True}, (4, 4), {"mask": "lengths per query"}),
    ("decoding", {}, (2, 5), {"causal": True}),
    (
        "decoding with lengths",
        {"use_bias": True},
        (2, 5),
        {"mask": "lengths", "causal": True},
    ),
]


def masks(kind, n_q, n_k):
    """The mask of a kind, for two examples."""
    lengths = [n_k - 1, 0] if kind == "lengths" else [[1] * (n_q - 1) + [n_k], [0] * n_q]
    return length_mask(torch.tensor(lengths), n_k)


def attention(name, options, sizes, call, dim=6, num_heads=3):
    """One layer, its weights, one call and the gradients of everything."""
    n_q, n_k = sizes
    layer = MultiHeadAttention(
        dim, num_heads, dtype=torch.float64, rng=torch.Generator().manual_seed(0), **options
    )
    for parameter in layer.parameters():
        parameter.data = torch.from_numpy(RNG.normal(size=parameter.shape))
    inputs = [
        torch.from_numpy(RNG.normal(size=(2, n, dim))).requires_grad_()
        for n in (n_q, n_k, n_k)
    ]
    call = {k: masks(v, n_q, n_k) if k == "mask" else v for k, v in call.items()}
    out = layer(*inputs, **call)
    cotangent = torch.from_numpy(RNG.normal(size=out.shape))
    named = dict(layer.named_parameters())
    slopes = torch.autograd.grad(out, [*inputs, *named.values()], cotangent)
    return {
        "name": name,
        "arguments": [dim, num_heads],
        "keywords": options,
        "state": {key: value.detach().numpy() for key, value in named.items()},
        "inputs": [x.detach().numpy() for x in inputs],
        "call": {k: v.numpy() if k == "mask" else v for k, v in call.items()},
        "expected": out.detach().numpy(),
        "cotangent": cotangent.numpy(),
        "gradients": [x.numpy() for x in slopes],
    }


def main(target):
    """Write all layers."""
    carried = [attention(*layer) for layer in LAYERS]
    Path(target).write_text(json.dumps(carried, default=encode), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
