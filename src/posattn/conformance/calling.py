"""Call a function that was not written for us: leave out what it does not know, or skip the case."""

import inspect

from posattn.conformance.vectors import UsageError

__all__ = ["Skip", "call", "choose", "name_of", "same", "signature_of"]


class Skip(Exception):
    """A case that the function has no parameters for."""


def name_of(function):
    """What the user calls the function."""
    inner = getattr(function, "func", function)  # of a functools.partial
    return getattr(inner, "__name__", type(inner).__name__)


def signature_of(function):
    """The signature of a callable."""
    if not callable(function):
        raise UsageError(f"function must be callable, got {type(function).__name__}")
    try:
        return inspect.signature(function)
    except ValueError:
        raise UsageError(
            f"{name_of(function)} must have a signature; wrap it in a function of Python"
        ) from None


def same(value, other):
    """Whether two plain values are equal; an array is equal to nothing."""
    return not hasattr(value, "shape") and value == other


def choose(function, defaults, keywords, settings):
    """The keywords that the function knows: the case's own, and the contract's defaults.

    One that it does not know is left out if it has its default, or if the user has set it.
    """
    taken = signature_of(function).parameters.values()
    known = {p.name for p in taken if p.kind is not p.POSITIONAL_ONLY}
    everything = any(p.kind is p.VAR_KEYWORD for p in taken)
    plain = {name: value for name, value in defaults.items() if value is not None}
    chosen = {**plain, **keywords}
    for name, value in list(chosen.items()):
        if not (everything or name in known):
            if name not in settings and not (name in plain and same(value, plain[name])):
                raise Skip(f"{name_of(function)} has no parameter {name}")
            del chosen[name]
    return chosen


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
