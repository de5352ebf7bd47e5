"""xFormers, `memory_efficient_attention`: tokens before heads."""

import torch
from xformers.ops import memory_efficient_attention

INSTALL = ["numpy==2.4.6", "torch==2.13.0", "--no-deps xformers==0.0.35"]


def scale(query, key, value):
    rows = (torch.from_numpy(x).transpose(1, 2) for x in (query, key, value))
    return memory_efficient_attention(*rows).transpose(1, 2)
