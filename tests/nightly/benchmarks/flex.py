"""FlexAttention with our schemes beside our own function: run this where you have to choose.

No accelerator was at hand when it was written, so the book has no numbers of it, and it runs only if it is
named: `nox -s record -- bench flex`.
"""

from functools import partial

import numpy as np
import torch

from posattn import reference
from posattn.torch import ALiBi, T5Bias, Window, scaled_dot_product_attention
from posattn.torch.flex import attention as flex_attention
from tests.nightly.benchmarks import machine
from tests.nightly.benchmarks.attention import BUCKETS, FAR, GRADIENT, STEP, drawn, table
from tests.nightly.benchmarks.measuring import Case, Contender, error, plain, rows

ON_CPU = ((1, 4, 2048, 64),)
ON_GPU = ((1, 16, 8192, 128), (1, 16, 32768, 128))
BOUNDS = {"float32": 1e-5, "bfloat16": 2e-2}
WIDTH, DOCUMENT = 1024, 500  # tokens of a window, and of each text in a row of several
KINDS = ("no position", "window", "documents", "ALiBi", "T5")


def same_document(query_positions, key_positions):
    """Whether two tokens are of the same text."""
    query, key = query_positions // DOCUMENT, key_positions // DOCUMENT
    return query[..., :, None] == key[..., None, :]


def options(kind, heads, device):
    """What both functions are given."""
    if kind == "T5":
        bias = T5Bias(heads, **BUCKETS, device=device).requires_grad_(False)
        bias.table.data = torch.tensor(table(heads), device=device)
        return {"bias": bias}
    return {
        "no position": {},
        "window": {"mask": Window(WIDTH)},
        "documents": {"mask": same_document},
        "ALiBi": {"bias": ALiBi(heads)},
    }[kind]


def exact(kind, query, key, value):
    """Some rows of the right result, in float64 or of a complex one."""
    where, at, heads = rows(key.shape[-2]), np.arange(key.shape[-2]), key.shape[-3]
    bias = {
        "ALiBi": reference.ALiBi(heads),
        "T5": reference.T5Bias(table(heads).astype(float), **FAR),
    }.get(kind)
    mask = at <= where[:, None]
    if kind == "window":
        mask &= where[:, None] - at < WIDTH
    if kind == "documents":
        mask &= same_document(where, at)
    return reference.scaled_dot_product_attention(
        query[..., where, :], key, value, mask=mask, bias=bias, query_positions=where
    )


def forward(kind, arrays, got):
    """The error of some rows of an output."""
    query, key, value = map(plain, arrays)
    return error(got[..., rows(key.shape[-2]), :], exact(kind, query, key, value))


def backward(kind, arrays, cotangent, got):
    """The error of gradients along a direction, relative to their length."""
    arrays, cotangent = [plain(x) for x in arrays], plain(cotangent)
    directions = np.random.default_rng(2).normal(size=(3, *cotangent.shape))
    moved = [x + 1j * STEP * d for x, d in zip(arrays, directions, strict=True)]
    change = exact(kind, *moved).imag / STEP
    want = (change * cotangent[..., rows(cotangent.shape[-2]), :]).sum()
    got = np.stack([plain(x) for x in got])
    return float(abs((got * directions).sum() - want) / np.linalg.norm(got))


def beside(kind, shape, dtype, slopes):
    """Ours and FlexAttention."""
    device = machine.device()
    *arrays, cotangent = (
        torch.tensor(x, device=device).to(getattr(torch, dtype)) for x in drawn(shape)
    )
    given = options(kind, shape[-3], device) | {"causal": True}
    check = partial(forward, kind, arrays)
    if slopes:
        check = partial(backward, kind, arrays, cotangent)

    def entered(attend):
        def call():
            if not slopes:
                with torch.no_grad():
                    return attend(*arrays, **given)
            leaves = [x.detach().requires_grad_() for x in arrays]
            return torch.autograd.grad(attend(*leaves, **given), leaves, cotangent)

        return Contender(call, check)

    return {
        "ours": entered(scaled_dot_product_attention),
        "FlexAttention": entered(partial(flex_attention, compiled=True)),
    }


def cases():
    """What this machine can measure: gradients only where FlexAttention has them."""
    gpu = machine.device() == "cuda"
    dtype = "bfloat16" if gpu else "float32"
    found = []
    for shape in ON_GPU if gpu else ON_CPU:
        for kind in KINDS:
            for slopes in (False, True)[: 1 + gpu]:
                title = kind + (", with gradients" if slopes else "") + f", n = {shape[-2]}"
                bound = BOUNDS[dtype] if not slopes or gpu else GRADIENT
                setting = f"causal, {shape}, {dtype}"
                make = partial(beside, kind, shape, dtype, slopes)
                found.append(Case("flex", title, setting, CODE, make, bound))
    return found


CODE = (
    "posattn.torch.attention.attention",
    "posattn.torch.flex",
    "posattn.torch.position.alibi",
    "posattn.torch.position.t5",
)
