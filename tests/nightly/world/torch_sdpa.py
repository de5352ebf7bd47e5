"""PyTorch, `scaled_dot_product_attention`: the function that most models of transformers call."""

import warnings

import numpy as np
import torch
from torch.nn.functional import scaled_dot_product_attention as sdpa

INSTALL = ["numpy==2.4.6", "torch==2.13.0"]


def _tensors(*arrays):
    return map(torch.from_numpy, arrays)


PROBES = {
    "causal": lambda last, key, value: sdpa(*_tensors(last, key, value), is_causal=True),
    "scale": lambda query, key, value: sdpa(*_tensors(query, key, value)),
}


def empty_row(query, key, value, empty):
    return sdpa(*_tensors(query, key, value), attn_mask=torch.from_numpy(empty))


def true(query, key, value, mask):
    return sdpa(*_tensors(query, key, value), attn_mask=torch.from_numpy(mask))


def packed(query, key, value, documents):
    """Each document is a part of a nested tensor."""
    lengths = np.bincount(documents[0]).tolist()
    parts = [
        torch.from_numpy(x[0]).transpose(0, 1).split(lengths) for x in (query, key, value)
    ]
    alone = [sdpa(*(x.transpose(0, 1) for x in part)) for part in zip(*parts, strict=True)]
    nested = (torch.nested.nested_tensor(list(x), layout=torch.jagged) for x in parts)
    out = sdpa(*(x.transpose(1, 2) for x in nested)).transpose(1, 2).unbind()
    return torch.cat(alone, 1), torch.cat(out).transpose(0, 1)


def lower_right():
    """The mask `causal_lower_right` of `torch.nn.attention.bias` aligns the last query with the last key."""
    from torch.nn.attention.bias import causal_lower_right

    query, values = torch.zeros(1, 2, 1), torch.tensor([[[1.0], [3.0], [5.0]]])
    print("is_causal=True", sdpa(query, values, values, is_causal=True).flatten().tolist())
    mask = causal_lower_right(2, 3)
    print("causal_lower_right", sdpa(query, values, values, mask).flatten().tolist())


def added_mask():
    """A number added to all scores of a row changes nothing, until it is so large that it swallows them."""
    query = values = torch.tensor([[[1.0], [3.0]]])
    for number in (0.0, -10000.0, torch.finfo().min, -torch.inf):
        mask = torch.full((2, 2), number)
        out = sdpa(query, values, values, mask).flatten().tolist()
        print(f"{number:.4g}:", *(f"{x:.2f}" for x in out))


def stores_all_weights():
    """Where no fused kernel can run, `scaled_dot_product_attention` takes one that stores all weights."""
    from torch.profiler import profile

    query = torch.ones(1, 2, 6, 16)
    for dropout in (0.0, 0.1):
        with profile() as seen:
            sdpa(query, query, query, dropout_p=dropout)
        names = {event.key for event in seen.key_averages()}
        print(f"dropout_p={dropout}:", *sorted(x for x in names if "_scaled_dot" in x))


def no_kernel():
    """Where only fused kernels are allowed and none can run, there is an error, and warnings say why."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    query = torch.ones(1, 2, 6, 16)
    with warnings.catch_warnings(record=True) as said:
        try:
            with sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION]):
                sdpa(query, query, query, dropout_p=0.1)
        except RuntimeError as error:
            print(error, *(str(x.message).partition(" (T")[0] for x in said), sep="\n")
