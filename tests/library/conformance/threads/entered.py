"""The list of public threads, each with a function that does what its text says."""

from typing import NamedTuple

from tests.library.conformance.examples import Example

THREADS = []


class Thread(NamedTuple):
    """A public thread, re-created from its text.

    Args:
        name: the repository and the number.
        example: a function that is wrong as the thread says, and the cause that is named.
    """

    name: str
    example: Example

    def __str__(self):
        return self.name


def thread(*names, scheme, framework="numpy", cause="", **options):
    """Enter what one thread or several tell, and the cause that the report names, if it names one."""

    def enter(make):
        example = Example(make, scheme, framework, cause, options)
        THREADS.extend(Thread(name, example) for name in names)
        return make

    return enter
