"""PyTorch, `scaled_dot_product_attention`: the function that most models of transformers call."""

import torch
from torch.nn.functional import scaled_dot_product_attention as sdpa

INSTALL = ["numpy==2.4.6", "torch==2.13.0"]


def _tensors(*arrays):
    return map(torch.from_numpy, arrays)


def causal(last, key, value):
    return sdpa(*_tensors(last, key, value), is_causal=True)


def empty_row(query, key, value, empty):
    return sdpa(*_tensors(query, key, value), attn_mask=torch.from_numpy(empty))


def true(query, key, value, mask):
    return sdpa(*_tensors(query, key, value), attn_mask=torch.from_numpy(mask))


def scale(query, key, value):
    return sdpa(*_tensors(query, key, value))
