"""Failures that an adopter knows of, by case, in a file of their own."""

import difflib
from pathlib import Path

from posattn.conformance.vectors import UsageError, names, own_name

__all__ = ["belongs", "expected"]


def expected(path, vectors):
    """The names of the cases of a scheme that a file expects to fail.

    Each line names a case, as `rotary: positions 0 to 4`; `#` begins a comment. Lines of other schemes
    are passed over, so one file serves all checks.

    Raises:
        UsageError: if the file cannot be read, or a line names no scheme, or no case of this one.
    """
    if path is None:
        return frozenset()
    try:
        lines = Path(path).read_text("utf-8").splitlines()
    except (OSError, TypeError, UnicodeDecodeError) as error:
        raise UsageError(f"expected_failures cannot be read: {error}") from None
    found, cases = set(), [case["name"] for case in vectors["cases"]]
    for number, line in enumerate(lines, 1):
        scheme, _, name = (part.strip() for part in line.partition("#")[0].partition(":"))
        if not scheme:
            continue
        scheme = own_name(scheme)
        ours = scheme == vectors["scheme"]
        other = scheme in names() or scheme.startswith("layer ")
        if not (ours or other) or (ours and name not in cases):
            wanted, got = ("a case", name) if ours else ("a scheme", scheme)
            close = difflib.get_close_matches(got, cases if ours else names(), 1)
            near = f"; did you mean {close[0]!r}?" if close else ""
            raise UsageError(
                f"{path}, line {number}: {wanted} is expected, got {got!r}{near}"
            )
        found |= {name} if ours else set()
    return frozenset(found)


def belongs(part, name):
    """Whether a part of a report tells of a case: it is the case, or the gradient of something in it."""
    return part == name or part.startswith(f"{name}: gradient of ")
