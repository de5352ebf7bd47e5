"""Tables of numbers that a scheme makes where it is used, and once for each device."""

from functools import lru_cache

import torch

from posattn.torch.attention.masks import transformed

__all__ = []


def table(make, *numbers, **options):
    """`make(*numbers, **options)`, a tensor that nobody changes: kept for the next call.

    A traced or transformed call makes its own, which is no plain array of numbers.
    """
    if _is_watched():
        return make(*numbers, **options)
    return _kept(make, *numbers, **options)


@lru_cache(maxsize=256)
def _kept(make, *numbers, **options):
    with torch.inference_mode(False):  # what is made in that mode cannot be trained with
        return make(*numbers, **options)


def _is_watched():
    """Whether a compiler, a transformation of `torch.func` or a mode (of fake tensors, say) looks on."""
    # private: no public name of torch 2.13 tells whether a mode runs
    return (
        torch.compiler.is_compiling()
        or transformed()
        or torch._C._len_torch_dispatch_stack() > 0
    )


def doubles(numbers, *, device=None):
    """Python numbers as a tensor of float64, made on the device."""
    return torch.tensor(numbers, dtype=torch.float64, device=device)
