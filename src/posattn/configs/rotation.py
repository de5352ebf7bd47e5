"""From the rope parameters of a configuration to frequencies, by every method that transformers has."""

import math
from functools import partial

from posattn.configs.keys import Keys, shown
from posattn.configs.layers import Rope

TRAINED = "original_max_position_embeddings"
ENDS = ("beta_fast", "beta_slow", "mscale", "mscale_all_dim", "truncate")
METHODS = {  # what each must say, and what it may
    "default": ((), ()),
    **dict.fromkeys(("linear", "dynamic", "ntk"), (("factor",), ())),
    "yarn": (("factor", TRAINED), ("attention_factor", *ENDS)),
    "longrope": (("short_factor", "long_factor", TRAINED), ("factor", "attention_factor")),
    "llama3": (("factor", "low_freq_factor", "high_freq_factor", TRAINED), ()),
    "proportional": ((), ("factor",)),
}
OTHER_NAMES = {"su": "longrope", "mrope": "default", "axial": "default"}
OTHER_NAMES |= {"telechat3-yarn": "yarn"}
OUTSIDE = ("rope_theta", "partial_rotary_factor")  # of the dictionary, in the older form
SHAPE = ("partial_rotary_factor", "mrope_section", "mrope_interleaved")
NARROW = 1e-6  # a blend so narrow that no pair lies inside
NOTED = ("finetuned", TRAINED)  # what changes nothing where a method doesn't read it


def rope(
    parameters,
    head_dim,
    *,
    max_position_embeddings=None,
    length=None,
    layout="half",
    family="rope",
):
    """Read how queries and keys rotate from what a configuration says of it.

    What transformers computes is right, also where its names differ from a paper's: `dynamic` counts from
    `max_position_embeddings` and ignores the original length, and a factor below 1 sharpens nothing.

    Args:
        parameters: a dictionary with `rope_type` (or `type`), `rope_theta` and the options of the method;
            None is the same as an absent key.
        head_dim: the width of a head.
        max_position_embeddings: of the configuration; `dynamic` needs it, and a method without `factor`.
        length: for how long a text; None is one within the trained length.
        layout: `"half"` or `"interleaved"`.
        family: opens the errors.

    Returns:
        A `Rope`.

    Raises:
        TypeError: if a value is not of its kind.
        ValueError: if a key is missing, unknown or out of range, or if two contradict each other.

    Examples:
        >>> slowed = rope({"rope_type": "linear", "rope_theta": 1e6, "factor": 8.0}, 4)
        >>> slowed.frequencies
        (0.125, 0.000125)
        >>> rope({"rope_type": "linear", "rope_theta": 1e6, "facto": 8.0}, 4)
        Traceback (most recent call last):
            ...
        ValueError: rope: factor is missing, and no default is known; did you mean it by facto?
    """
    keys = Keys(parameters, family)
    head_dim = keys.whole("head_dim", head_dim, most=2**16)
    said = keys.choice(
        "rope_type", "type", among=[*METHODS, *OTHER_NAMES], absent="default"
    )
    method = OTHER_NAMES.get(said, said)
    base = keys.number("rope_theta", above=1)
    share = keys.number("partial_rotary_factor", absent=1.0)
    if share > 1:
        raise keys.error(f"partial_rotary_factor must be at most 1, got {share!r}")
    dim = _turning(keys, method, head_dim, share)
    values = Options(keys, method, base, dim, max_position_embeddings, length)
    found, attention_factor = COMPUTED[method](values)
    if method == "proportional":
        found = [*found, *[0.0] * (head_dim // 2 - len(found))]
    sections, interleaved = _sections(keys, said, len(found))
    return Rope(
        base=base,
        frequencies=tuple(found),
        layout=layout,
        method=method,
        numbers=_numbers(keys, method),
        attention_factor=float(attention_factor),
        sections=sections,
        interleaved=interleaved,
    )


class Options:
    """What the methods compute from: checked numbers by their names in a configuration."""

    def __init__(self, keys, method, base, dim, max_position_embeddings, length):
        self.keys, self.base, self.dim = keys, base, dim
        self.max_position_embeddings = max_position_embeddings
        needed, optional = METHODS[method]
        for name in (*needed, *optional):
            reader = READERS.get(name, Keys.number)
            if name not in needed:
                setattr(self, name, reader(keys, name, absent=None))
            elif name == TRAINED and keys.values.get(name) is None:
                longest = f"max_position_embeddings = {max_position_embeddings}"
                why = f" (transformers takes {longest}, which may be the extended length)"
                raise keys.missing(name, why=why)
            elif name == "factor" and method == "yarn":  # null is the quotient of lengths
                self.factor = keys.number(name, null=None)
            else:
                setattr(self, name, reader(keys, name))
        keys.ignore(*NOTED, *SHAPE)
        self.length = None if length is None else keys.whole("length", length, most=2**62)
        for name, value in keys.values.items():
            if name not in keys.asked and value is not None:
                known = ", ".join([*needed, *optional]) or "no options"
                there = keys.values.get("rope_type") or keys.values.get("type")
                told = f"with rope_type {method!r}, which knows {known}"
                told = told if there else "without rope_type, and that is missing"
                raise keys.error(f"{name} = {shown(value)} has no meaning {told}")

    def plain(self, base=None):
        """The frequencies before any scaling."""
        base = self.base if base is None else base
        return [base ** (-j / self.dim) for j in range(0, self.dim, 2)]

    def stretch(self):
        """The factor, or the quotient of the lengths in its place."""
        if self.factor is not None:
            return self.factor
        trained = getattr(self, TRAINED)
        if self.max_position_embeddings is None:
            raise self.keys.missing("max_position_embeddings", why=", as is factor")
        return self.max_position_embeddings / trained


def _not_negative(keys, name, **options):
    name, value = keys.take([name], **options)
    return value if name is None or value == 0 else keys.finite(name, value)


def _factors(keys, name, **options):
    found = keys.sequence(name, **options)
    return [keys.finite(f"{name}[{k}]", value) for k, value in enumerate(found)]


READERS = {
    TRAINED: partial(Keys.count, most=2**62),
    "truncate": Keys.flag,
    **dict.fromkeys(("mscale", "mscale_all_dim"), _not_negative),
    **dict.fromkeys(("short_factor", "long_factor"), _factors),
}


def _turning(keys, method, head_dim, share):
    """How many entries the frequencies are of: the first part of a head, or all of it."""
    dim = head_dim if method == "proportional" else int(head_dim * share)
    if dim < 2 or dim % 2:
        raise keys.error(
            f"an even number of entries of a head must rotate, got {dim} "
            f"(head_dim = {head_dim}, partial_rotary_factor = {share:g})"
        )
    return dim


def _sections(keys, said, pairs):
    """How many pairs rotate with each axis, and whether they alternate."""
    sections = keys.sequence("mrope_section", absent=())
    interleaved = keys.flag("mrope_interleaved", absent=False)
    if said == "mrope" and not sections:
        raise keys.missing("mrope_section")
    sections = tuple(keys.whole("mrope_section", part, least=0) for part in sections)
    if sections and (len(sections) != 3 or sum(sections) != pairs):
        raise keys.error(
            f"mrope_section must hold three numbers whose sum is {pairs}, the pairs that "
            f"rotate, got {list(sections)}"
        )
    return sections, interleaved


def _numbers(keys, method):
    """The options of the method as they were given, in the order of METHODS."""
    given = ((name, keys.values.get(name)) for names in METHODS[method] for name in names)
    return tuple(
        (name, tuple(value) if isinstance(value, list) else value)
        for name, value in given
        if value is not None
    )


def slowed(found, factor):
    """Frequencies divided by a factor."""
    return [frequency / factor for frequency in found]


def _proportional(options):
    share = options.keys.values.get("partial_rotary_factor") or 1.0
    rotation = int(share * options.dim // 2)
    return slowed(options.plain()[:rotation], options.factor or 1.0), 1.0


def _ntk(options):
    """The base for the factor, whatever the length; transformers has it in older files only."""
    return options.plain(_larger(options, options.factor)), 1.0


def _dynamic(options):
    trained = options.max_position_embeddings
    if trained is None:
        raise options.keys.missing("max_position_embeddings")
    length = max(options.length or trained, trained)
    stretch = options.factor * length / trained - (options.factor - 1)
    return options.plain(_larger(options, stretch)), 1.0


def _larger(options, stretch):
    """The base times a power of the stretch, for which it must stay finite and above 1."""
    if options.dim == 2:
        return options.base
    try:
        base = options.base * stretch ** (options.dim / (options.dim - 2))
    except OverflowError:
        base = math.inf
    return options.keys.finite("the base that factor leads to", base, above=1)


def _yarn(options):
    trained, stretch = getattr(options, TRAINED), options.stretch()
    fast, slow = options.beta_fast or 32.0, options.beta_slow or 1.0
    if fast < slow:
        raise options.keys.error(
            f"beta_fast = {fast:g} must be at least beta_slow = {slow:g}"
        )
    fast = max(fast, slow * (1 + NARROW))  # equal ones leave one step between the pairs
    turns = trained / (2 * math.pi)
    if not slow < turns < fast * options.base ** (2 - 2 / options.dim):
        raise options.keys.error(
            f"{TRAINED} = {trained} leaves no pair between {slow:g} and {fast:g} turns"
        )

    first, last = (
        options.dim * (math.log(turns) - math.log(beta)) / (2 * math.log(options.base))
        for beta in (fast, slow)
    )
    if options.truncate is not False:
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, options.dim - 1)
    places = range(options.dim // 2)
    parts = [within((j - first) / max(last - first, 1e-3)) for j in places]
    both = (options.mscale, options.mscale_all_dim)
    over, under = (
        0.1 * (weight if all(both) else given) * math.log(max(stretch, 1)) + 1
        for weight, given in zip(both, (1, 0), strict=True)
    )
    blend = zip(parts, options.plain(), strict=True)
    found = [part * w / stretch + (1 - part) * w for part, w in blend]
    return found, options.attention_factor or over / under


def within(part):
    """The number, or 0 or 1 if it lies beyond."""
    return min(max(part, 0), 1)


def _longrope(options):
    trained, stretch = getattr(options, TRAINED), options.stretch()
    for name in ("short_factor", "long_factor"):
        if len(getattr(options, name)) != options.dim // 2:
            raise options.keys.error(
                f"{name} must hold {options.dim // 2} numbers, one for each pair that "
                f"rotates by partial_rotary_factor, got {len(getattr(options, name))}"
            )
    beyond = options.length is not None and options.length > trained
    slowing = options.long_factor if beyond else options.short_factor
    sharpening = options.attention_factor
    if sharpening is None and stretch <= 1:
        sharpening = 1.0
    elif sharpening is None:
        options.keys.whole(TRAINED, trained, least=2, most=2**62)
        sharpening = math.sqrt(1 + math.log(stretch) / math.log(trained))
    return [w / s for w, s in zip(options.plain(), slowing, strict=True)], sharpening


def _llama3(options):
    low, high = options.low_freq_factor, options.high_freq_factor
    if high < low:
        raise options.keys.error(
            f"high_freq_factor = {high:g} must be at least low_freq_factor = {low:g}"
        )

    plain, trained = options.plain(), getattr(options, TRAINED)
    turns = [trained * w / (2 * math.pi) for w in plain]
    stay = [1 if t >= high else within((t - low) / ((high - low) or 1)) for t in turns]
    blend = zip(stay, plain, strict=True)
    return [(1 - part) * w / options.factor + part * w for part, w in blend], 1.0


COMPUTED = {
    "default": lambda options: (options.plain(), 1.0),
    "linear": lambda options: (slowed(options.plain(), options.factor), 1.0),
    "dynamic": _dynamic,
    "ntk": _ntk,
    "yarn": _yarn,
    "longrope": _longrope,
    "llama3": _llama3,
    "proportional": _proportional,
}
