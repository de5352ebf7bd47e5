"""Functions that are subtly wrong, which must fail."""

from tests.library.conformance.wrong import attention, biases, frequencies, masks, rotations

__all__ = ["attention", "biases", "frequencies", "masks", "rotations"]
