"""What this column refuses, in one decorator: arrays of others, and switches that are none."""

from torch import Generator, Tensor, dtype

from posattn import contract

__all__ = []

validated = contract.validate(
    (Tensor,),
    "torch.Tensor",
    lambda given: isinstance(given, dtype) and given.is_floating_point,
    source="torch.Generator",
    is_source=lambda given: isinstance(given, Generator),
)
