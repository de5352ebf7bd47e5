"""Checks of numbers, choices and sources of randomness, and the names of dtypes."""

import math
import operator
from numbers import Real

TOO_LARGE = 2**63  # no framework has arrays of so many entries, or positions so far away


def dtype(array):
    """The bare name of an array's dtype: `float32` for `torch.float32` as for `<dtype: 'float32'>`."""
    return str(array.dtype).strip("'>_").replace("'", ".").rpartition(".")[2]


def ends(value):
    """The least and the largest of some integers, also of a dtype that PyTorch has no minimum for."""
    if hasattr(value, "addressable_shards"):  # JAX would trace it where it traces others
        value = value.__array__()
    if "uint" in dtype(value):
        known = value.reshape(-1).tolist()
        return min(known), max(known)
    return int(value.min()), int(value.max())


def is_symbolic(value):
    """Whether `value` is a size that a compiler leaves open: PyTorch's SymInt, or one of JAX's export."""
    named = hasattr(value, "__sym_float__") or hasattr(value, "dimension_as_value")
    return named and not hasattr(value, "shape")  # what JAX traces has the second, too


def is_index(value):
    """Whether `value` is an integer: a Python or NumPy one, or an integer scalar of a framework."""
    if isinstance(
        value, int
    ):  # in a program that PyTorch compiles, a size that is open too
        return not isinstance(value, bool)
    if is_symbolic(value):
        return True
    is_array = hasattr(value, "dtype") and hasattr(value, "shape")
    if is_array and (dtype(value) == "bool" or tuple(value.shape) != ()):
        return False  # PyTorch would take an array of one integer for that integer
    try:
        operator.index(value)
    except (TypeError, AttributeError):  # TensorFlow raises the second
        return False
    return True


def integer(name, value, *, least=0, even=False):
    """Return `value` as an int that is at least `least` (0 or 1), and even if asked."""
    right_kind = is_index(value)
    if right_kind and not isinstance(value, int):
        if is_symbolic(value):
            return value
        # before it is compared, which PyTorch cannot for all dtypes
        value = operator.index(value)
    if right_kind and least <= value < TOO_LARGE and not (even and value % 2):
        return value
    kind = (
        "non-negative integer"
        if least == 0
        else "positive even integer"
        if even
        else "positive integer"
    )
    raise (ValueError if right_kind else TypeError)(
        f"{name} must be a {kind}{below(value, right_kind)}, got {value!r}"
    )


def sizes(**named):
    """Return positive integers, in their order."""
    return [integer(name, value, least=1) for name, value in named.items()]


def below(value, right_kind=True):
    """What an expected integer is told to be as well where the given one is too large."""
    return " below 2**63" if right_kind and value >= TOO_LARGE else ""


def _float(value):
    """The number as a float, infinite if it is beyond them."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _number(name, value, expected, accepts):
    right_kind = isinstance(value, Real) and not isinstance(value, bool)
    if right_kind:
        number = _float(value)
        if accepts(number):
            return number
    raise (ValueError if right_kind else TypeError)(
        f"{name} must be {expected}, got {value!r}"
    )


def base(value):
    """Return the base of a geometric sequence of frequencies."""
    return _number("base", value, "a positive finite number", lambda v: 0 < v < math.inf)


def larger_base(value, stretch, exponent, given):
    """Return a base times a power of what follows from the factor that was given."""
    try:
        product = base(value) * stretch**exponent
    except OverflowError:
        product = math.inf
    if product == math.inf:
        raise ValueError(f"factor must leave the base finite, got {given!r}")
    return product


def scale(value):
    """Return the factor on the scores."""
    return _number("scale", value, "a finite number", lambda v: -math.inf < v < math.inf)


def soft_cap(value):
    """Return the bound on the scores, or None."""
    return None if value is None else positive("soft_cap", value)


def offset(value):
    """Return a number of positions."""
    return _number("offset", value, "a finite number", lambda v: -math.inf < v < math.inf)


def dropout_rate(value):
    """Return the probability of dropping an entry."""
    return _number("dropout_rate", value, "a number in [0, 1)", lambda v: 0 <= v < 1)


def rng(value, accepted, kind):
    """Reject a source of randomness that this column cannot draw from."""
    if not accepted:
        raise TypeError(f"rng must be a {kind}, got {type(value).__name__}")
    if isinstance(value, int) and not -TOO_LARGE <= value < TOO_LARGE:
        raise ValueError(f"rng must be a seed of 64 bits, got {value!r}")


def finite(name, value):
    """Return a finite number."""
    return _number(name, value, "a finite number", lambda v: -math.inf < v < math.inf)


def positive(name, value):
    """Return a positive finite number."""
    return _number(name, value, "a positive finite number", lambda v: 0 < v < math.inf)


def above(name, value, bound, of=""):
    """Return a finite number above `bound`, which `of` names."""
    return _number(
        name, value, f"a finite number above {of}{bound}", lambda v: bound < v < math.inf
    )


def factor(value):
    """Return how many times longer a context becomes."""
    return _number(
        "factor", value, "a finite number of at least 1", lambda v: 1 <= v < math.inf
    )


def factors(name, values, m):
    """Return `m` divisors of frequencies as Python numbers."""
    expected = f"{name} must hold {m} positive finite numbers"
    try:
        numbers = [_float(v) for v in values]
    except (TypeError, ValueError):
        raise TypeError(f"{expected}, got {values!r}") from None
    if len(numbers) != m:
        raise ValueError(f"{expected}, got {len(numbers)}")
    for got in numbers:
        if not 0 < got < math.inf:
            raise ValueError(f"{expected}, got {got!r}")
    return numbers


def layout(value):
    """Reject what is no arrangement of pairs."""
    if not isinstance(value, str) or value not in ("interleaved", "half"):
        raise (ValueError if isinstance(value, str) else TypeError)(
            f"layout must be 'interleaved' or 'half', got {value!r}"
        )


def multiple(name, value, of):
    """Return `value`, which must be a positive multiple of `of`."""
    right_kind = is_index(value)
    number = operator.index(value) if right_kind else 0
    if 0 < number < TOO_LARGE and number % of == 0:
        return number
    raise (ValueError if right_kind else TypeError)(
        f"{name} must be a positive multiple of {of}{below(number)}, got {value!r}"
    )


def rotary(*, rotary_dim, base, layout, frequencies, attention_factor):
    """Return the options of a rotation as Python numbers, by name."""
    checked = {"base": _base(base), "layout": layout}
    _layout(layout)
    checked["attention_factor"] = positive("attention_factor", attention_factor)
    if rotary_dim is not None:
        rotary_dim = integer("rotary_dim", rotary_dim, least=1, even=True)
    if frequencies is not None:
        frequencies = _floats("frequencies", frequencies)
        rotary_dim = 2 * len(frequencies) if rotary_dim is None else rotary_dim
        if rotary_dim != 2 * len(frequencies):
            raise ValueError(
                f"frequencies must hold {rotary_dim // 2} numbers, half of rotary_dim, "
                f"got {len(frequencies)}"
            )
    return checked | {"rotary_dim": rotary_dim, "frequencies": frequencies}


def rotary_axes(*, frequencies, layout, attention_factor):
    """Return the options of a rotation by several coordinates as Python numbers, by name."""
    _layout(layout)
    factor = positive("attention_factor", attention_factor)
    expected = "frequencies must be a row of numbers for each axis, or a float32 or float64 array (c, m)"
    try:
        rows = frequencies.tolist() if hasattr(frequencies, "tolist") else list(frequencies)
        if _is_half(frequencies) or isinstance(frequencies, str):
            raise TypeError
        rows = tuple(_floats("frequencies", row) for row in rows)
    except TypeError:
        raise TypeError(f"{expected}, got {frequencies!r}") from None
    lengths = [len(row) for row in rows]
    if len(set(lengths)) != 1:
        raise ValueError(f"{expected}, got rows of {lengths} numbers")
    return {"frequencies": rows, "layout": layout, "attention_factor": factor}


def _floats(name, given):
    """Numbers, or an array of them of at least 32-bit precision, as a tuple of Python numbers."""
    try:
        if _is_half(given) or isinstance(given, str):
            raise TypeError
        numbers = tuple(map(_float, given.tolist() if hasattr(given, "tolist") else given))
    except (TypeError, ValueError):
        raise TypeError(
            f"{name} must be numbers, or a float32 or float64 array (m), got {given!r}"
        ) from None
    for got in numbers:
        if not -math.inf < got < math.inf:
            raise ValueError(f"{name} must be finite, got {got!r}")
    return numbers


def _is_half(given):
    """Whether it is an array of numbers of two bytes."""
    return hasattr(given, "dtype") and dtype(given) in ("float16", "bfloat16")


_base, _layout = base, layout  # under the names of the options they would be hidden


def at_least(name, value, bound, of=""):
    """Return a finite number that is not below `bound`, which `of` names."""
    expected = f"a finite number of at least {of}{bound}"
    return _number(name, value, expected, lambda v: bound <= v < math.inf)


def sharpening(name, value):
    """Return a weight of the logarithm in YaRN's attention factor, or None."""
    return None if value is None else at_least(name, value, 0)
