"""Functions in the style of released code, which must pass."""

from tests.library.conformance.right import attention, biases, frequencies, masks, rotations

__all__ = ["attention", "biases", "frequencies", "masks", "rotations"]
