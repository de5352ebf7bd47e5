"""The part of the standard library that a plan needs, small; `__init__.py` gives it its names in Brython."""

import python_re
from browser import self as worker


class Missing:
    """No default."""


class Field:
    """A field of a dataclass."""

    def __init__(self, default=Missing, compare=True):
        self.default, self.compare = default, compare


field = Field


def dataclass(cls=None, frozen=True):
    """Give a class the methods of its fields."""
    if cls is None:
        return dataclass
    known = {}
    for name in cls.__annotations__:
        given = cls.__dict__.get(name, Missing)
        known[name] = given if isinstance(given, Field) else Field(given)

    def start(self, *given, **named):
        values = dict(zip(known, given, strict=False)) | named
        for name, one in known.items():
            value = values.pop(name, one.default)
            if value is Missing:
                raise TypeError(f"{name} is missing")
            setattr(self, name, value)
        if values:
            raise TypeError(f"{', '.join(values)} is unknown")

    def key(self):
        return tuple([getattr(self, name) for name, one in known.items() if one.compare])

    def equal(self, other):
        return type(self) is type(other) and key(self) == key(other)

    cls.__init__, cls.__eq__, cls.__hash__ = start, equal, lambda self: hash(key(self))
    for name, one in known.items():
        one.name = name
    cls.known = known
    return cls


def fields(cls):
    """The fields of a dataclass."""
    return [*cls.known.values()]


def replace(value, **changes):
    """A copy with some fields changed."""
    return type(value)(**({name: getattr(value, name) for name in value.known} | changes))


def astuple(value):
    """What the fields hold."""
    return tuple([getattr(value, name) for name in value.known])


def namedtuple(name, names):
    """A tuple whose entries have names."""
    names = names.replace(",", " ").split()

    class Named(tuple):
        def __new__(cls, *values):
            return tuple.__new__(cls, values)

        def _make(values):
            return Named(*values)

    for at, one in enumerate(names):
        setattr(Named, one, property(lambda self, at=at: self[at]))
    return Named


class partial:
    """A function with some arguments given."""

    def __init__(self, function, *given, **named):
        self.function, self.given, self.named = function, given, named

    def __call__(self, *given, **named):
        """Call it with the rest."""
        return self.function(*self.given, *given, **(self.named | named))


class compile:
    """A pattern that knows its text."""

    def __init__(self, pattern, flags=0):
        self.pattern, self.made = pattern, python_re.compile(pattern, flags)

    def __getattr__(self, name):
        return getattr(self.made, name)


class Path(str):
    """The name of a file that the worker holds."""

    def with_name(self, name):
        """A table of the library."""
        return Path(name)

    def read_text(self, encoding=None):
        """What the file holds."""
        return worker.files[str(self)]

    def is_dir(self):
        """Whether it is a folder."""
        return False


def pairwise(values):
    """Each value with the next."""
    values = [*values]
    return [(values[at], values[at + 1]) for at in range(len(values) - 1)]


def islice(values, count):
    """The first values."""
    return [value for _, value in zip(range(count), values, strict=False)]


def nlargest(count, values):
    """The largest values."""
    return sorted(values, reverse=True)[:count]


def nothing(*given):
    """Do nothing, and say no."""
    return False


Real, Mapping = (int, float), dict
VERBOSE, MULTILINE, DOTALL = 64, 8, 16
PathLike = NamedTuple = type("Unused", (), {})
GenericAlias = Any = get_ident = can_colorize = get_theme = warn = is_gguf = config_of = (
    nothing
)
