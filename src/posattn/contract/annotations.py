"""What the annotations of a column say, checked on every call: whose arrays, and what is a switch."""

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from posattn.contract.arrays import Attention, Rotation, array, floating, integer_array
from posattn.contract.numbers import dtype, rng

SWITCHES = ("bool", "bool_")  # NumPy's, under both of its names


NO_ATTENTION_MASK = (
    "attention_mask is unknown here: give mask, bool, of shape (*batch, n_q, n_k), where True means may "
    "attend, or negative positions for padding"
)


class _Column(NamedTuple):
    """What the checks of a column need to know of its framework."""

    kinds: tuple
    framework: str
    is_floating: Any
    source: str
    is_source: Any


def validate(kinds, framework, is_floating=None, *, source, is_source):
    """A decorator for what is public in a column: it checks arguments and arrays of a layer first.

    Args:
        kinds: the classes of arrays that the framework computes with.
        framework: what such an array is called.
        is_floating: whether what is given as `dtype` is one of floating-point numbers.
        source: what the numbers of `rng` are drawn from.
        is_source: whether what is given as `rng` is such a source.
    """
    column = _Column(kinds, framework, is_floating, source, is_source)

    def validated(thing):
        return (
            _with_methods(thing, column)
            if inspect.isclass(thing)
            else _guarded(thing, column)
        )

    return validated


def _with_methods(layer, column):
    """A class whose public methods, and the call, look at their arguments and at its arrays."""
    annotations = getattr(layer, "__annotations__", {})
    fields = {n: _field(n, a, column) for n, a in annotations.items()}
    fields = {n: check for n, check in fields.items() if check is not None}
    for method, function in list(vars(layer).items()):
        if isinstance(function, classmethod):
            setattr(layer, method, classmethod(_guarded(function.__func__, column)))
        elif method == "__init__":
            tree = hasattr(layer, "__dataclass_fields__")  # JAX makes trees of anything
            if not tree or "dtype" in annotations:
                setattr(layer, method, _guarded(function, column))
        elif inspect.isfunction(function) and (method == "__call__" or method[0] != "_"):
            setattr(layer, method, _guarded(function, column, fields))
    return layer


def _guarded(function, column, fields=None):
    """The function, which looks at its arguments first, and at the fields of its layer."""
    parameters = inspect.signature(function).parameters
    annotations = {name: p.annotation for name, p in parameters.items()}
    checks = _checks(annotations, column)
    in_order = [checks.get(name) for name in parameters]
    if not checks and not fields:
        return function

    @functools.wraps(function)
    def checked(*arguments, **named):
        for check, value in zip(in_order, arguments):
            if check is not None:
                check(value)
        for name, value in named.items():
            if name in checks:
                checks[name](value)
            elif name == "attention_mask" and name not in parameters:
                raise TypeError(NO_ATTENTION_MASK)
        if fields:
            for name, check in fields.items():
                check(getattr(arguments[0], name))
        return function(*arguments, **named)

    return checked


def _checks(annotations, column):
    """A check for each annotated name whose annotation says whose array it is, or that it is a switch."""
    made = {}
    for name, annotation in annotations.items():
        allowed = _alternatives(annotation)
        arrays = [kind for kind in allowed if hasattr(kind, "array_type")]
        parts = [
            p
            for kind in allowed
            for part in getattr(kind, "__args__", ())
            for p in _alternatives(part)
        ]
        given = [kind for kind in allowed if kind is not type(None)]
        classes = tuple(given) if all(map(_tells, given)) else ()
        if classes:
            optional = type(None) in allowed
            made[name] = _check(_instance, name, classes, optional)
        elif name == "dtype" and column.is_floating is not None:
            made[name] = _check(_floating, column.is_floating)
        elif name == "rng" and len(given) == 1:  # others take seeds, too
            made[name] = _check(_source, column, type(None) in allowed)
        elif bool in allowed:
            made[name] = _check(_switch, name, type(None) in allowed)
        elif arrays or any(hasattr(part, "array_type") for part in parts):
            several = [kind for kind in [*arrays, *parts] if hasattr(kind, "array_type")]
            real = all(
                isinstance(kind.dtypes, tuple) and "complex128" not in kind.dtypes
                for kind in several
            )
            required = len(arrays) == len(allowed)
            made[name] = _check(_own, name, column, required, real, int in allowed)
        # a dtype of JAX may be a class
        if name != "dtype" and any(map(_is_callable, [*allowed, *parts])):
            single = [kind for kind in given if not _is_sequence(kind)]
            function = bool(single) and all(map(_is_function, single))
            listed = not function or len(single) < len(given)
            instance = _check(_made, name, function, listed)
            made[name] = _both(made[name], instance) if name in made else instance
    return made


def _check(function, *known):
    """A function of the value only; TorchDynamo does not know `functools.partial` everywhere."""

    def check(value):
        function(*known, value)

    return check


def _both(first, second):
    """One check after another."""

    def check(value):
        first(value)
        second(value)

    return check


def _field(name, annotation, column):
    """A check of an array of a layer, which anybody may have replaced, or None for another field."""
    allowed = _alternatives(annotation)
    arrays = [kind for kind in allowed if kind is not type(None)]
    if arrays == [bool]:
        return _check(_switch, name, False)
    if not arrays or not all(hasattr(kind, "array_type") for kind in arrays):
        return None
    real = all("complex128" not in kind.dtypes for kind in arrays)
    check = floating if "float64" in arrays[0].dtypes else integer_array
    axes = ["num_heads" if axis == "h" else axis for axis in arrays[0].dim_str.split()]
    several = any(axis[0] == "*" for axis in axes)
    named = len(axes) - several
    known = all(axis.isdecimal() for axis in axes)
    lax = several and axes[-1] == "width"  # who reads another layer's vectors keeps none

    def checked(value):
        if value is None and type(None) in allowed:
            return
        _own(name, column, True, real, False, value)
        check(name, value)
        rank = len(value.shape)
        fits = rank == len(axes) or (several and rank >= named)
        if not fits or (known and list(map(str, value.shape)) != axes):
            raise ValueError(
                f"{name} must have shape ({', '.join(axes)}), got {tuple(value.shape)}"
            )
        if named and 0 in value.shape[-named : rank - lax]:
            raise ValueError(f"{name} must not be empty, got shape {tuple(value.shape)}")

    return checked


def _alternatives(annotation):
    """What a union allows, or just the annotation; that of an array has no alternatives."""
    if hasattr(annotation, "array_type") or type(annotation).__name__ not in (
        "UnionType",
        "_UnionGenericAlias",
        "Union",
    ):
        return [annotation]
    return [kind for part in annotation.__args__ for kind in _alternatives(part)]


def _switch(name, optional, value):
    """Reject what is neither True nor False."""
    if not (
        isinstance(value, bool)
        or type(value).__name__ in SWITCHES
        or (optional and value is None)
    ):
        expected = "True, False or None" if optional else "True or False"
        raise TypeError(f"{name} must be {expected}, got {value!r}")


def _tells(kind):
    """Whether an annotated class is one that an argument must be an instance of: a layer."""
    told = "__dataclass_fields__", "extra_repr"  # of a dataclass, of a module of PyTorch
    return inspect.isclass(kind) and any(hasattr(kind, name) for name in told)


def _is_callable(kind):
    """Whether an annotation is of something that is called, or of its class."""
    origin = getattr(kind, "__origin__", None)
    return origin is Callable or getattr(kind, "_is_protocol", False)


def _is_sequence(kind):
    """Whether an annotation is of several things."""
    return getattr(kind, "__origin__", None) is Sequence


def _is_function(kind):
    """Whether an annotation is of a function for which no scheme has another text."""
    return getattr(kind, "__origin__", None) is Callable or kind in (Attention, Rotation)


def _made(name, function, listed, value):
    """Reject a class where an instance is called, and what cannot be called, also in a list."""
    if inspect.isclass(value):
        raise TypeError(
            f"{name} must be an instance, made by {value.__name__}(...), got the class itself"
        )
    if listed and isinstance(value, (list, tuple)):
        for part in value:
            _made(name, function, not function, part)
    elif function and not (value is None or callable(value)):
        raise TypeError(f"{name} must be a function, got {type(value).__name__}")


def _floating(is_floating, value):
    """Reject what is no dtype of floating-point numbers."""
    try:
        fits = value is None or is_floating(value)
    except (TypeError, ValueError):
        fits = False
    if not fits:
        raise TypeError(f"dtype must be a floating dtype or None, got {value!r}")


def _source(column, optional, value):
    """Reject what a column cannot draw from."""
    rng(value, (optional and value is None) or column.is_source(value), column.source)


def _instance(name, kinds, optional, value):
    """Reject what is no instance of an annotated class."""
    if not (isinstance(value, kinds) or (optional and value is None)):
        expected = " or ".join([*map(_place, kinds), *["None"] * optional])
        got = _place(type(value)) if _tells(type(value)) else repr(value)
        raise TypeError(f"{name} must be a {expected}, got {got}")


def _place(kind):
    """The name of a class, after that of the column that has it."""
    return ".".join([*kind.__module__.split(".")[:2], kind.__name__])


def _own(name, column, required, real, number, value):
    """Reject arrays of others, complex numbers, and what is no array where nothing else will do."""
    if isinstance(value, column.kinds):
        kind = getattr(value.dtype, "kind", "")
        if real and (kind == "c" or getattr(value.dtype, "is_complex", False)):
            raise TypeError(f"{name} must hold real numbers, got {dtype(value)}")
        if (kind and kind in "OSUMm") or getattr(value.dtype, "names", None):
            raise TypeError(f"{name} must hold numbers, got {dtype(value)}")
    elif isinstance(value, (list, tuple)) and not required:
        for part in value:
            _own(name, column, False, real, number, part)
    elif hasattr(value, "shape") and hasattr(value, "dtype"):
        if number and tuple(value.shape) == ():
            return
        kind = type(value)
        raise TypeError(
            f"{name} must be a {column.framework}, got {kind.__module__}.{kind.__qualname__}"
        )
    elif required:
        array(name, value)
