"""Call what was not written for us: leave out what it does not know, or skip the case."""

import functools
import inspect

from posattn.conformance.vectors import UsageError

__all__ = ["Skip", "arrays", "call", "choose", "inner", "left_out", "name_of", "same"]
__all__ += ["signature_of"]


class Skip(Exception):
    """A case that the function has no parameters for."""


def inner(function):
    """What a `functools.partial` calls, or the function itself."""
    return function.func if isinstance(function, functools.partial) else function


def name_of(function):
    """What the user calls the function."""
    return getattr(inner(function), "__name__", type(inner(function)).__name__)


def signature_of(function):
    """The signature of a callable; of a layer of PyTorch, which takes anything, that of its `forward`."""
    if not callable(function):
        near = "; give its class" * hasattr(function, "attend")
        raise UsageError(f"function must be callable, got {type(function).__name__}{near}")
    layer = inner(function)
    layer = getattr(layer, "_orig_mod", layer)  # of torch.compile
    forward = None if isinstance(layer, type) else getattr(layer, "forward", None)
    if callable(forward) and isinstance(function, functools.partial):
        forward = functools.partial(forward, *function.args, **function.keywords)
    try:
        return inspect.signature(forward if callable(forward) else function)
    except (TypeError, ValueError):
        raise UsageError(
            f"{name_of(function)} must have a signature; wrap it in a function of Python"
        ) from None


def arrays(given, name=""):
    """The arrays among arguments, with their names; those in a list of steps too, as `steps/0/key`."""
    if hasattr(given, "shape"):
        yield name, given
    elif isinstance(given, (dict, list)):
        pairs = given.items() if isinstance(given, dict) else enumerate(given)
        for key, value in pairs:
            yield from arrays(value, f"{name}/{key}" if name else str(key))


def same(value, other):
    """Whether two plain values are equal; an array is equal to nothing."""
    return not hasattr(value, "shape") and value == other


def known(function, names):
    """Those of the names that the function has a keyword for."""
    taken = signature_of(function).parameters.values()
    if any(p.kind is p.VAR_KEYWORD for p in taken):
        return set(names)
    return {p.name for p in taken if p.kind is not p.POSITIONAL_ONLY} & set(names)


def choose(function, defaults, keywords, settings):
    """The keywords that the function knows: the case's own, and the contract's defaults.

    One that it does not know is left out if it has its default, or if the user has set it.
    """
    plain = {name: value for name, value in defaults.items() if value is not None}
    chosen = {**plain, **keywords}
    taken = known(function, chosen)
    for name, value in chosen.items():
        default = name in plain and same(value, plain[name])
        if name not in taken and name not in settings and not default:
            raise Skip(f"{name_of(function)} has no parameter {name}")
    return {name: value for name, value in chosen.items() if name in taken}


def left_out(function, defaults, settings):
    """The keywords that the function does not know, and whose defaults it is taken to mean."""
    plain = [name for name in defaults if name not in settings]
    return [name for name in plain if name not in known(function, plain)]


def call(function, named, keywords, method=""):
    """Call by position, by name, or in two steps: with the keywords, then with the arguments.

    The second step calls `method` of what the first one makes, or what it makes itself.
    """
    signature, reason = signature_of(function), None
    for positional, by_name in ((tuple(named.values()), {}), ((), named)):
        try:
            signature.bind(*positional, **by_name, **keywords)
        except TypeError as error:
            reason = reason or f"{name_of(function)} does not fit: {error}"
        else:
            return function(*positional, **by_name, **keywords)
    try:
        signature.bind(**keywords)
    except TypeError:
        raise Skip(reason) from None
    made = function(**keywords)
    made = getattr(made, method, None) if method else made
    if not (keywords and callable(made)):
        raise Skip(reason)
    return call(made, named, {})
