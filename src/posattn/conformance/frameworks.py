"""Arrays of five frameworks, made and read by name, so that only the one in use is imported."""

import importlib
import inspect
import sys
import warnings

import numpy as np

from posattn.conformance.calls import inner
from posattn.conformance.vectors import UsageError

__all__ = ["MAKERS", "detect", "differentiate", "make", "read"]

# where the function stands that makes an array from a NumPy array, and its dtypes
MAKERS = {
    "jax": ("jax.numpy", "array"),
    "mlx": ("mlx.core", "array"),
    "numpy": ("numpy", "array"),
    "tensorflow": ("tensorflow", "constant"),
    "torch": ("torch", "tensor"),
}
DTYPES = ("float64", "float32", "float16", "bfloat16")


def detect(function):
    """The framework that the module of `function` imports, or else the one that is loaded."""
    module = sys.modules.get(getattr(inner(function), "__module__", None))
    origins = (
        value.__name__ if inspect.ismodule(value) else getattr(value, "__module__", None)
        for value in (vars(module).values() if module else ())
    )
    used = {str(origin).partition(".")[0] for origin in origins} & set(MAKERS)
    used = used - {"numpy"} or used or set(MAKERS) & set(sys.modules) - {"numpy"}
    if len(used) > 1:
        raise UsageError(f"framework must be one of {', '.join(sorted(used))}, got None")
    return used.pop() if used else "numpy"


def make(framework, array, dtype=None):
    """An array of the framework; `dtype` is a name, or None for the nearest to NumPy's."""
    if framework not in MAKERS:
        raise UsageError(f"framework must be one of {', '.join(MAKERS)}, got {framework!r}")
    home, maker = MAKERS[framework]
    try:
        home = importlib.import_module(home)
    except ImportError as error:
        raise UsageError(
            f"framework must be an installed one, got {framework}: {error}"
        ) from None
    if dtype is not None and not (dtype in DTYPES and hasattr(home, dtype)):
        has = ", ".join(name for name in DTYPES if hasattr(home, name))
        raise UsageError(f"dtype must be one that {framework} has, {has}, got {dtype!r}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # JAX says that it is in its 32-bit mode
        return getattr(home, maker)(array, dtype=dtype and getattr(home, dtype))


def differentiable(framework):
    """Refuse a framework whose gradients are not known here."""
    if framework not in ("jax", "torch"):
        raise UsageError(
            f"framework must be jax or torch to check gradients, got {framework}"
        )


def differentiate(framework, function, arguments, cotangent):
    """The gradients of the product of `function(*arguments)` with `cotangent`."""
    if framework == "torch":
        leaves = [x.detach().requires_grad_() for x in arguments]
        grad = importlib.import_module("torch.autograd").grad
        return grad(function(*leaves), leaves, cotangent, materialize_grads=True)
    _, pull_back = importlib.import_module("jax").vjp(function, *arguments)
    return pull_back(cotangent)


def read(value):
    """A NumPy array of float64, whatever the framework and the dtype of `value`."""
    plain = (
        value if hasattr(value, "tolist") or not hasattr(value, "numpy") else value.numpy()
    )
    shape = getattr(plain, "shape", None)
    array = np.asarray(plain.tolist() if shape is not None else plain, np.float64)
    return array if shape is None else array.reshape(tuple(shape))
