"""The keys of a configuration: each is read by name and kind, and none that matters is left unread."""

import difflib
import math
import re
import reprlib
from numbers import Real

from posattn.configs.defaults import VOCABULARY

REQUIRED = object()  # for a key that the file or the default of the class must have
OPTIONAL = object()  # the same, but None where the class has no such key
SAME = object()  # for a key where null says what absence says

MATTERS = re.compile(
    r"rope|rotary|rotate|head|window|attention|attn|position|softcap|logit_soft|sink|chunk"
    r"|qk_|_qk|q_norm|k_norm|kv_|_kv|lora_rank|alibi|bias|theta|layer_types|mrope|nope"
)
HARMLESS = re.compile(
    r"dropout|_pdrop|attn_drop|initializer|init_std|_impl|_kernel|return_|output_|quant"
    r"|classifier|lm_head|num_head_tokens|score_bias|mlp|ffn|feed_forward|expert|router"
    r"|mamba|routing|use_cache|flash|sdpa|_config$|^_|token_id|pruned_heads|gradient|aux_|is_decoder"
    r"|add_cross_attention|cross_attention_hidden_size|head_bias|layer_norm_bias|norm_bias"
    r"|max_position_embeddings|^chunk_size$|conv_bias|norm_eps|block_size"
)
NEAR = 0.85  # how alike two keys are of which one is taken for the other misspelt

SHORT = reprlib.Repr()
SHORT.maxstring = SHORT.maxother = 60
SHORT.maxdict = 8


def shown(value):
    """A value as Python writes it, cut where it is long."""
    if isinstance(value, int) and abs(value) >= 2**128:
        return "a whole number of more than 128 bits"
    return SHORT.repr(value)


def slipped(key, name):
    """Whether two names differ by one letter: one more, one less, another, or two exchanged."""
    pairs = enumerate(zip(key, name, strict=False))
    same = next((i for i, (a, b) in pairs if a != b), min(len(key), len(name)))
    a, b = key[same:], name[same:]
    exchanged = a[1::-1] == b[:2] and a[2:] == b[2:] and len(a) > 1
    return exchanged or a[1:] == b[1:] or a[1:] == b or a == b[1:]


class Keys:
    """A configuration whose keys are read one by one.

    Args:
        values: the keys and what they hold.
        family: the model type, which opens every error.
        length: for how long a text the configuration is read, or None.
        defaults: what the family's class sets where the configuration says nothing.
        notes: what is not read, in words: towers beside the text model, and what a class ignores.
    """

    def __init__(self, values, family, length=None, defaults=None, notes=()):
        self.values = values
        self.family = family
        self.length = length
        self.defaults = defaults or {}
        self.notes = notes
        self.asked = set()
        self.defaulted = {}

    def without(self, *names):
        """The same configuration with some keys taken out."""
        rest = {key: value for key, value in self.values.items() if key not in names}
        return self._with(rest)

    def changed(self, **values):
        """The same configuration with some values in place of its own."""
        return self._with(self.values | values)

    def _with(self, values):
        """Other values, of which what is asked counts as asked here."""
        other = Keys(values, self.family, self.length, self.defaults)
        other.asked, other.defaulted = self.asked, self.defaulted
        return other

    def error(self, text, kind=ValueError, do="correct it in the configuration"):
        """An error that says whose configuration is meant, and what to do."""
        return kind(f"{self.family}: {text}; {do}")

    def clash(self, **both):
        """The error for keys that say different things."""
        told = " and ".join(f"{name} = {shown(value)}" for name, value in both.items())
        return self.error(f"{told} contradict each other", do="keep the one that is meant")

    def find(self, names):
        """The name among several of one thing that the configuration has, or None."""
        self.asked.update(names)
        found = [name for name in names if name in self.values]
        said = [name for name in found if self.values[name] is not None]
        for other in said[1:]:
            if self.values[other] != self.values[said[0]]:
                raise self.clash(**{k: self.values[k] for k in (said[0], other)})
        return (said or found or [None])[0]

    def take(self, names, absent=REQUIRED, null=SAME, why=""):
        """The name under which the configuration has something, and what it holds."""
        name = self.find(names)
        if name is not None and self.values[name] is None and null is not SAME:
            return None, null
        if name is not None and self.values[name] is not None:
            return name, self.values[name]
        if absent not in (REQUIRED, OPTIONAL):
            return None, absent
        own = next((own for own in names if own in self.defaults), None)
        if name is None and own is not None and self.defaults[own] is not None:
            self.defaulted[own] = self.defaults[own]
            return own, self.defaults[own]
        if absent is OPTIONAL or (own is not None and null is not SAME):
            return None, None if null is SAME else null
        raise self.missing(*names, why=why)

    def missing(self, name, *others, why=""):
        """The error for a key that is not there, with the one that was perhaps meant."""
        rest = [key for key in self.values if key not in self.asked]
        either = [name, *others]
        near = [
            near for e in either for near in difflib.get_close_matches(e, rest, 1, NEAR)
        ]
        do = f"add {name} to the configuration"
        do = f"did you mean it by {near[0]}?" if near else do
        null = "null" if name in self.values else "missing"
        nor = ", and no default is known" * (null == "missing")
        return self.error(f"{' or '.join(either)} is {null}{why}{nor}", do=do)

    def count(self, *names, absent=REQUIRED, null=SAME, least=1, most=2**24):
        """A whole number."""
        name, value = self.take(names, absent, null)
        if name is None:
            return value
        return self.whole(name, value, least, most)

    def whole(self, name, value, least=1, most=2**24):
        """Reject what is no whole number in a range."""
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.error(
                f"{name} must be a whole number, got {shown(value)}", TypeError
            )
        if not least <= value <= most:
            raise self.error(
                f"{name} must be a whole number from {least} to {most}, got {shown(value)}"
            )
        return value

    def number(self, *names, absent=REQUIRED, null=SAME, above=0):
        """A finite number above a bound, as a float."""
        name, value = self.take(names, absent, null)
        if name is None:
            return value
        return self.finite(name, value, above)

    def finite(self, name, value, above=0):
        """Reject what is no finite number above a bound."""
        expected = f"{name} must be a finite number above {above}, got {shown(value)}"
        if isinstance(value, bool) or not isinstance(value, Real):
            raise self.error(expected, TypeError)
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if not above < number < math.inf:
            raise self.error(expected)
        return number

    def flag(self, *names, absent=REQUIRED):
        """True or False; what is absent counts as `absent` unless the family's class says otherwise."""
        otherwise = any(self.defaults.get(name) not in (None, absent) for name in names)
        name, value = self.take(names, REQUIRED if otherwise else absent)
        if name is not None and not isinstance(value, bool):
            raise self.error(f"{name} must be true or false, got {shown(value)}", TypeError)
        return value

    def choice(self, *names, among, absent=REQUIRED):
        """One of some words."""
        name, value = self.take(names, absent)
        if name is not None and (not isinstance(value, str) or value not in among):
            kind = ValueError if isinstance(value, str) else TypeError
            known = ", ".join(map(repr, among))
            raise self.error(f"{name} must be one of {known}, got {shown(value)}", kind)
        return value

    def sequence(self, *names, length=None, absent=REQUIRED, among=None):
        """A list, of a given length, whose entries are some of a few."""
        name, value = self.take(names, absent)
        if name is None:
            return value
        if not isinstance(value, (list, tuple)):
            raise self.error(f"{name} must be a list, got {shown(value)}", TypeError)
        if length is not None and len(value) != length:
            raise self.error(f"{name} must hold {length} entries, got {len(value)}")
        for place, one in enumerate(value if among is not None else ()):
            if one not in among:
                known = ", ".join(map(repr, among))
                raise self.error(f"{name}[{place}] must be one of {known}, got {one!r}")
        return list(value)

    def own(self, read, name, otherwise, *others, **options):
        """What a method such as `count` reads of a key that only some families' classes have."""
        return read(name, *others, **options) if name in self.defaults else otherwise

    def section(self, *names, absent=None):
        """A dictionary within the configuration."""
        name, value = self.take(names, absent)
        if name is not None and not isinstance(value, dict):
            raise self.error(f"{name} must be a dictionary, got {shown(value)}", TypeError)
        return value

    def only(self, name, *expected):
        """Reject a value of a key that may be absent and whose other values nobody wrote down here."""
        _, value = self.take([name], absent=None)
        if value is not None and (type(value), value) not in [
            (type(e), e) for e in expected
        ]:
            known = " or ".join(map(repr, [*expected, None]))
            raise self.error(f"{name} is known only as {known}, got {shown(value)}")

    def known(self, **values):
        """Reject keys that may be absent and otherwise have one value only."""
        for name, value in values.items():
            self.only(name, value)

    def ignore(self, *names):
        """Count keys as read that say nothing about this family's attention."""
        self.asked.update(names)

    def unread(self, matters=MATTERS):
        """The keys that look as if they changed attention and were not read; none may be misspelt."""
        found = {}
        for key, value in self.values.items():
            if key in self.asked or value is None or value is False or value in ([], {}):
                continue
            unused = [name for name in self.asked if name not in self.values]
            near = difflib.get_close_matches(key, unused, 1, NEAR)
            near += [
                name for name in self.asked if MATTERS.search(key) and slipped(key, name)
            ]
            if near and key not in VOCABULARY:
                raise self.error(
                    f"{key} = {shown(value)} is no key that this family's attention reads",
                    do=f"did you mean {near[0]}?",
                )
            if matters.search(key) and not HARMLESS.search(key):
                found[key] = value
        return found

    def finish(self):
        """Reject every key that was not read and looks as if it changed attention."""
        for key, value in self.unread().items():
            raise self.error(
                f"{key} = {shown(value)} is no key that this family's attention reads",
                do="remove it",
            )
