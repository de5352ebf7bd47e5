"""Play the steps of a case on somebody's own cache, and note what each call to `attend` returns."""

from posattn.conformance.adapters import keywords, named
from posattn.conformance.calls import Skip, name_of, signature_of

__all__ = ["HOW", "played"]

HOW = {}  # how what has steps is called
HOW["cache"] = '''\
class Cache:  # the options that yours has; cases with the others are skipped, as are methods
    def __init__(self, *, window=None, keep=0, rotate=False, left_padding=None, max_length=32): ...

    def attend(self, query, key, value, positions):
        """Keep the tokens, and attend from each: (b, h, n, d), positions (b, n), of padding -1."""

    def trim(self, n): ...  # forget the newest n tokens
    def reorder(self, rows): ...  # row i goes on with what row rows[i] has
    def shift(self, n): ...  # forget the first n tokens after `keep`, and move later ones down by n

A query sees its last `window` tokens, itself among them, and the first `keep`; `rotate`: the cache rotates
queries and keys by their positions; `left_padding`: so many tokens of each row are padding.
Raise NotImplementedError for what yours cannot do, such as a trim after its ring has wrapped.'''
HOW["state"] = '''\
class State:  # methods that yours lacks are skipped
    def __init__(self, *, left_padding=None): ...

    def attend(self, query, key, value, log_gates, beta, positions):
        """Pass tokens through, (b, h, n, d) and (b, h, n), positions (b, n), of padding -1."""

    def trim(self, n): ...  # forget the newest n tokens
    def reorder(self, rows): ...  # row i goes on with what row rows[i] has

`left_padding`: so many tokens of each row are padding. Raise NotImplementedError for what yours cannot do.'''


def played(make):
    """A function of the steps of a case, and of the options of a cache; `make` makes one, or is it."""
    if "steps" in signature_of(make).parameters:
        return make

    def play(steps, **options):
        """The results of all calls to `attend`; those of rows with padding are apart."""
        cache, results = make(**options), []
        for step in steps:
            do, *given = step.values()
            method = getattr(cache, do, None)
            if method is None:
                raise Skip(f"{name_of(make)} has no {do}")
            try:
                made = method(*given)
            except NotImplementedError:
                raise Skip(f"{name_of(make)} cannot {do} here") from None
            if do == "attend":
                results += real(made, given[-1])
        return results

    return named(play, make, keywords(make, after=0))


def real(made, positions):
    """A result without its padding: as it is, or row by row."""
    padding = [sum(p < 0 for p in row) for row in positions.tolist()]
    if not any(padding):
        return [made]
    return [made[row, :, n:] for row, n in enumerate(padding)]
