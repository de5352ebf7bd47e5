"""The columns of the library, and what carries numbers into them and out of them."""

import contextlib
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import torch

import posattn.jax
import posattn.reference
import posattn.torch

DTYPES = {
    "float64": np.dtype("float64"),
    "float32": np.dtype("float32"),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "float16": np.dtype("float16"),
}


@dataclass(frozen=True)
class Column:
    """A framework at one dtype."""

    name: str
    dtype: str
    library: Any
    numbers: Any

    def mode(self):
        """What float64 needs in JAX."""
        return jax.enable_x64(self.dtype == "float64")

    def array(self, x):
        """An array of the framework, with the numbers of one of NumPy."""
        if self.name == "NumPy":
            return x
        if self.name == "JAX":
            return jnp.asarray(x)
        if x.dtype.kind in "iu":
            return torch.from_numpy(x)
        return self.cast(torch.from_numpy(x.astype(np.float64)))

    def cast(self, x, dtype=None):
        """An array of the framework in another dtype, the column's if not given."""
        dtype = getattr(self.numbers, dtype or self.dtype)
        return x.to(dtype) if self.numbers is torch else x.astype(dtype)

    def option(self):
        """The keyword for the dtype of a result, which NumPy has not."""
        return {} if self.name == "NumPy" else {"dtype": getattr(self.numbers, self.dtype)}

    def layer(self, name, parameters, *sizes, **options):
        """A layer of the library that has these parameters."""
        made = getattr(self.library, name)
        if self.name != "PyTorch":
            return made(**parameters, **options)
        layer = made(*sizes, **options, **self.option())
        for key, value in parameters.items():
            parameter = getattr(layer, key)
            parameter.data = value.reshape(parameter.shape)  # a number may have an axis
        return layer


def plain(x):
    """A result as float64 numbers, which all dtypes are."""
    if isinstance(x, torch.Tensor):
        return x.detach().double().numpy()
    return np.asarray(x).astype(np.float64)


COLUMNS = (
    Column("NumPy", "float64", posattn.reference, np),
    *(Column("PyTorch", dtype, posattn.torch, torch) for dtype in DTYPES),
    *(Column("JAX", dtype, posattn.jax, jnp) for dtype in DTYPES),
)


def quiet():
    """No gradients in PyTorch, and no word of NumPy on what overflows."""
    stack = contextlib.ExitStack()
    stack.enter_context(torch.no_grad())
    stack.enter_context(np.errstate(all="ignore"))
    return stack
