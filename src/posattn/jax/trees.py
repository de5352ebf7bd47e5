"""Layers as trees, told apart by class, and what is plugged into them: equal if made equal."""

import inspect
from collections.abc import Hashable
from dataclasses import fields
from functools import cached_property, partial
from importlib import import_module
from operator import attrgetter
from types import MethodType

import jax
import numpy as np
from jax import Array
from jax.tree_util import (
    GetAttrKey,
    Partial,
    all_leaves,
    register_pytree_with_keys,
    register_static,
)

from posattn import contract

__all__ = []


def register(cls):
    """Make a pytree of a dataclass: fields marked static are part of its structure, the others its children.

    As `jax.tree_util.register_dataclass`, under which two classes with fields alike are equal structures
    (jax 0.10.2), so that a compiled function may, if their hashes collide, run the one for the other.
    """
    static = tuple(f.name for f in fields(cls) if f.metadata.get("static"))
    children = tuple(f.name for f in fields(cls) if f.name not in static)

    def values(names, tree):
        return tuple(getattr(tree, name) for name in names)

    register_pytree_with_keys(
        cls,
        lambda tree: (
            tuple((GetAttrKey(name), getattr(tree, name)) for name in children),
            values(static, tree),
        ),
        lambda meta, data: cls(
            **dict(zip((*static, *children), (*meta, *data), strict=True))
        ),
        lambda tree: (values(children, tree), values(static, tree)),
    )
    return cls


@register_static
class Constant:
    """A callable without parameters: a pytree without leaves, equal to another by value."""

    def __init__(self, function):
        self.function = function

    def __call__(self, *arguments, **options):
        return self.function(*arguments, **options)

    def __getattr__(self, name):
        if name in (
            "scores",
            "values",
            "needs_all_keys",
        ):  # of a bias that depends on content
            return getattr(self.function, name)
        raise AttributeError(name)

    @cached_property
    def _key(self):
        return _value(self.function)

    def __eq__(self, other):
        return self is other or (isinstance(other, Constant) and self._key == other._key)

    def __hash__(self):
        return hash(self._key)

    def __deepcopy__(self, _):
        return self

    def __reduce__(self):
        """Go by name if the function is jitted, which JAX does not pickle."""
        name = self.function.__module__, getattr(self.function, "__qualname__", None)
        if hasattr(self.function, "__wrapped__") and _imported(*name) == self:
            return _imported, name
        return Constant, (self.function,)

    def __repr__(self):
        return repr(self.function)


def _imported(module, name):
    """The constant whose function has this name."""
    return Constant(attrgetter(name)(import_module(module)))


def as_pytree(plugged):
    """Make a tree of a callable, or of a list or tuple of them, that JAX would take for a leaf."""
    if isinstance(plugged, list | tuple):
        return type(plugged)(map(as_pytree, plugged))
    if not (all_leaves([plugged]) and (callable(plugged) or hasattr(plugged, "scores"))):
        return plugged
    if isinstance(plugged, MethodType) and not all_leaves([plugged.__self__]):
        return Partial(plugged.__func__, plugged.__self__)
    contract.reachable(plugged, _hides(plugged))
    return Constant(plugged)


def _hides(x):
    """Whether arrays are inside `x`, other than as the given arguments of a function."""
    x = inspect.unwrap(x) if callable(x) else x
    if isinstance(x, Array | np.ndarray):
        return False
    if isinstance(x, list | tuple):
        return any(map(_hides, x))
    if isinstance(x, partial):
        return any(map(_hides, (x.func, *x.args, *x.keywords.values())))
    if isinstance(x, MethodType):
        return _hides(x.__self__)
    inside = getattr(x, "__dict__", None) if all_leaves([x]) else x
    return any(isinstance(leaf, Array) for leaf in jax.tree.leaves(inside))


def _value(x):
    """What equal things have in common, hashable."""
    if isinstance(x, Array | np.ndarray) and not isinstance(x, jax.core.Tracer):
        known = np.asarray(x)
        return known.dtype.name, known.shape, known.tobytes()
    if isinstance(x, partial):
        return partial, _value(x.func), _value(x.args), _value(x.keywords)
    if isinstance(x, list | tuple):
        return type(x), *map(_value, x)
    if isinstance(x, dict):
        return dict, frozenset((name, _value(given)) for name, given in x.items())
    return type(x), x if isinstance(x, Hashable) else id(x)
