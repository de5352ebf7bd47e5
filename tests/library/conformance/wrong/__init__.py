"""Functions that are subtly wrong, which must fail."""

from tests.library.conformance.wrong import attention, biases

__all__ = ["attention", "biases"]
