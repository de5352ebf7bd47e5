"""Every option counts: who loses one, beside another or after the first call, fails a case."""

from itertools import permutations

import numpy as np
import pytest

from posattn.conformance import load, names
from posattn.conformance.generate import SCHEMES
from posattn.conformance.report import Run
from posattn.conformance.runner import defaults_of

pytestmark = pytest.mark.usefixtures("unchecked")  # other tests check the annotations

ELSEWHERE = {
    "query_positions",
    "key_positions",
    "sinks",
    "soft_cap",
    "select",
}  # of all attention
UNSEEN = {
    "attention": ELSEWHERE,
    "cache": {"max_length"},
    "inverse_rotation": {"frequencies"},
    "mrope_frequencies": {"interleaved"},
    "shaw": {"value_table"},
    "sinks": ELSEWHERE - {"sinks"},
    "soft_cap": ELSEWHERE - {"soft_cap"},
}
REPLACED = {"rotary": [{"frequencies", "base"}, {"frequencies", "rotary_dim"}]}
SAME = {("swin", "first example"), ("swin_v2", "first example")}  # one row of positions
SAME |= {("latent", "decoding at 0")}  # a token that attends to itself only
SAME |= {("document_mask", "decoding at 0")}  # its queries are its keys
every_scheme = pytest.mark.parametrize("scheme", names())


def passes(function, vectors):
    """Whether a function ends as it should in every case, in the order of the cases."""
    for case in vectors["cases"]:
        try:
            with np.errstate(all="ignore"):
                got = function(*case["arguments"], **case["keywords"])
        except Exception:
            return False
        bound = case["tolerance"].get("float32", case["tolerance"]["float64"])
        if Run(case, got, bound, vectors["relative"]).failed:
            return False
    return True


@every_scheme
def test_an_option_is_neither_lost_nor_kept(scheme):
    vectors, definition = load(scheme), SCHEMES[scheme].function
    given = {name for case in vectors["cases"] for name in case["keywords"]}
    defaults = defaults_of(vectors)
    assert {*defaults} - given == UNSEEN.get(scheme, set())  # those of another scheme
    given -= {"left_padding"}  # which positions say too
    options = {name: x for name, x in defaults.items() if name in given}
    for name, default in options.items():
        kept = {}

        def loses(*arguments, name=name, default=default, **keywords):
            return definition(*arguments, **{**keywords, name: default})

        def keeps(*arguments, name=name, default=default, kept=kept, **keywords):
            value = kept.setdefault(name, keywords.get(name, default))
            return definition(*arguments, **{**keywords, name: value})

        assert not passes(loses, vectors), name
        if (scheme, name) != ("shaw_values", "value_table"):  # a parameter
            assert not passes(keeps, vectors), name
    for (name, default), (other, _) in permutations(options.items(), 2):

        def loses(*arguments, name=name, default=default, other=other, **keywords):
            lost = {name: default} if other in keywords else {}
            return definition(*arguments, **{**keywords, **lost})

        if {name, other} not in REPLACED.get(scheme, []):
            assert not passes(loses, vectors), (name, other)


def at_wrong_places(where, wrong):
    """Positions as somebody takes them who does not look at all of them."""
    if wrong == "first example":
        return np.broadcast_to(where[(slice(1),) * (where.ndim - 1)], where.shape)
    if wrong == "decoding at 0":
        return where * (where.shape[-1] != 1)
    return where[..., :1] + np.arange(where.shape[-1])


@every_scheme
@pytest.mark.parametrize("wrong", ["first example", "decoding at 0", "counted on"])
def test_positions_count_in_each_example_and_token(scheme, wrong):
    vectors, definition = load(scheme), SCHEMES[scheme].function
    known = [p["name"] for p in vectors["parameters"] if not p["keyword"]]
    for name in {"positions", "query_positions"} & {*known}:
        k = known.index(name)

        def moved(*arguments, k=k, **keywords):
            given = [*arguments]
            if k < len(given):
                given[k] = at_wrong_places(given[k], wrong)
            return definition(*given, **keywords)

        assert passes(moved, vectors) == ((scheme, wrong) in SAME), name
