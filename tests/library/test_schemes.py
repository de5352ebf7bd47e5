"""The table of schemes: what must come out, in words, and checks that can say no."""

import numpy as np
import pytest

from posattn import reference, schemes
from posattn.schemes import PROPERTIES, SCHEMES, Scheme

TABLE = {name: schemes.properties(name) for name in SCHEMES}


STRETCHED = {"xPos", "YaRN", "LongRoPE", "PoPE", "FoPE"}
SYMMETRIC = {"ALiBi", "KERPLE, logarithmic", "KERPLE, power", "Sandwich", "FIRE"}
LACKING = {  # the schemes without each property
    "cache": {"randomized", "dynamic NTK", "LongRoPE"},
    "shift": {"sinusoidal", "learned", "randomized", "TUPE", "FIRE", "FoPE"},
    "norm": {"sinusoidal", "learned", "randomized", *STRETCHED},
    # before training: angles of zero, and a network of a symmetric bias;
    # and of two keys, stick-breaking takes the sigmoid on either side
    "side": {"none", *SYMMETRIC, "PoPE", "DAPE", "stick-breaking"},
    "far": {"learned", "TUPE", "Swin", "Swin V2", "xPos"},
    "tiles": {"CoPE", "stick-breaking"},
    "future": {"none", "Music Transformer", "CoPE", "FoX", "stick-breaking"},
}


@pytest.mark.parametrize("title", LACKING)
def test_all_schemes_have_a_property_but_these(title):
    assert {name for name in SCHEMES if not TABLE[name][title]} == LACKING[title]


def test_parameters_are_counted_where_they_are():
    learning = {name for name in SCHEMES if TABLE[name]["learns"]}
    fixed = {"none", "sinusoidal", "ALiBi", "rotary", "YaRN", "stick-breaking"}
    assert not learning & fixed
    assert learning >= {"learned", "Shaw", "T5", "FoX", "rotary, mixed", "PoPE", "DAPE"}


@pytest.mark.parametrize("name", SCHEMES)
def test_a_scheme_acts_in_one_place(name):
    scheme = SCHEMES[name](6)
    acting = [scheme.encode, scheme.rotate, scheme.bias, scheme.gate]
    assert sum(part is not None for part in acting) == (name != "none")


class Spoiled:
    """A scheme that lacks everything: content decides at random, and remembers."""

    def __init__(self):
        self.calls = 0

    def scores(self, query, key, query_positions, key_positions):  # noqa: D102
        self.calls += 1
        if query_positions.max() > 1000:
            raise ValueError("too far")
        drawn = np.random.default_rng(self.calls).normal(
            size=(query.shape[-2], key.shape[-2])
        )
        return drawn[None] * (1 + np.sign(key_positions - query_positions[:, None]))


def test_every_check_can_say_no():
    spoiled = Scheme(bias=Spoiled(), encode=lambda x, p: 2 * x)
    no = {title for title, check in PROPERTIES.items() if not check(lambda n: spoiled)}
    assert no == set(PROPERTIES) - {"side", "future"}


@pytest.mark.parametrize("name", ["dynamic NTK", "LongRoPE"])
def test_what_extends_a_length_is_checked_within_it_and_beyond(name):
    within, beyond = (SCHEMES[name](n).rotate for n in schemes.LENGTHS)
    x, where = (
        np.random.default_rng(2).normal(size=(6, schemes.SMALL.head_dim)),
        np.arange(6),
    )
    length = np.linalg.norm(within(x, where)) / np.linalg.norm(x)
    assert np.allclose(within(x, where), length * reference.rotate(x))
    assert not np.allclose(beyond(x, where), length * reference.rotate(x), atol=0.1)


@pytest.mark.parametrize(
    "title", [title for title in PROPERTIES if title not in ("cache", "learns")]
)
def test_what_goes_wrong_only_beyond_the_length_of_training_is_noticed(title):
    """A scheme is rotary within its length, and spoils what is checked in a longer text."""
    spoiled = {
        "shift": Scheme(encode=lambda x, p: x + p[:, None]),
        "norm": Scheme(rotate=lambda x, p: 2 * x),
        "side": Scheme(),
        "far": Scheme(rotate=lambda x, p: x * (np.inf if p.max() > 100 else 1)),
        "future": Scheme(),
        "tiles": Scheme(bias=Spoiled()),
    }[title]
    assert PROPERTIES[title](lambda n: Scheme(rotate=reference.rotate))
    assert not PROPERTIES[title](
        lambda n: spoiled if n > 8 else Scheme(rotate=reference.rotate)
    )


def test_an_unknown_scheme_is_told_with_the_known_ones():
    with pytest.raises(ValueError, match=r"name must be one of none, .*, got 'rope'"):
        schemes.properties("rope")
