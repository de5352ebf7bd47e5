"""The table of schemes: what must come out, in words, and checks that can say no."""

import numpy as np
import pytest

from posattn import atlas, reference, schemes
from posattn.schemes import PROPERTIES, SCHEMES, Scheme

TABLE = {name: schemes.properties(name) for name in SCHEMES}


def holding(title):
    return {name for name in SCHEMES if TABLE[name][title]}


def without(*names):
    return set(SCHEMES) - set(names)


def test_decoding_with_cached_keys_equals_prefill_but_for_these():
    assert holding("cache") == without("randomized", "dynamic NTK", "LongRoPE")


def test_shifts_change_nothing_but_for_these():
    assert holding("shift") == without(
        *("sinusoidal", "learned", "randomized", "TUPE", "FIRE", "FoPE")
    )


def test_lengths_of_vectors_change_for_these_only():
    changed = without(*holding("norm"))
    stretched = {"xPos", "YaRN", "LongRoPE", "PoPE", "FoPE"}
    assert changed == {"sinusoidal", "learned", "randomized", *stretched}


def test_the_side_of_a_key_is_hidden_by_these():
    symmetric = {"ALiBi", "KERPLE, logarithmic", "KERPLE, power", "Sandwich", "FIRE"}
    untrained = {"PoPE", "DAPE"}  # angles of zero, and a network of a symmetric bias
    # a key alone with the query takes its sigmoid on either side
    of_two = {"stick-breaking"}
    assert without(*holding("side")) == {"none", *symmetric, *untrained, *of_two}


def test_tables_and_growing_factors_end():
    ending = without(*holding("far"))
    assert ending == {"learned", "TUPE", "Swin", "Swin V2", "xPos"}


def test_contextual_positions_need_all_keys_between():
    assert holding("tiles") == without("CoPE", "stick-breaking")


def test_some_say_nothing_about_the_future():
    assert without(*holding("future")) == {
        "none",
        "Music Transformer",
        "CoPE",
        "FoX",
        "stick-breaking",
    }


def test_parameters_are_counted_where_they_are():
    none = without(*holding("learns"))
    fixed = {"none", "sinusoidal", "ALiBi", "Sandwich", "rotary", "YaRN", "stick-breaking"}
    assert fixed <= none
    learned = {"learned", "Shaw", "T5", "FoX", "rotary, mixed", "PoPE", "DAPE", "Swin V2"}
    assert not none & learned


def test_what_ends_has_room_for_a_text_of_training():
    trained = schemes.SMALL.trained
    rows = {name: len(SCHEMES[name](trained).bias.key_table) for name in ("Shaw",)}
    assert rows == {"Shaw": 2 * (trained // 8) + 1}


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


@pytest.mark.parametrize("name", SCHEMES)
def test_a_scheme_acts_in_one_place(name):
    scheme = SCHEMES[name](6)
    acting = [scheme.encode, scheme.rotate, scheme.bias, scheme.gate]
    assert sum(part is not None for part in acting) == (name != "none")
    assert scheme.place in {"input", "query and key", "scores", "nowhere"}


@pytest.mark.parametrize("name", SCHEMES)
def test_multi_head_attention_takes_the_scheme(name):
    scheme, n = SCHEMES[name](8), 8
    layer = reference.MultiHeadAttention.init(
        np.random.default_rng(0),
        schemes.SMALL.dim,
        schemes.HEADS,
        rotate=scheme.rotate,
        bias=scheme.bias,
        scale=scheme.scale,
    )
    x, where = (
        np.random.default_rng(1).normal(size=(n, schemes.SMALL.dim)),
        scheme.positions(n),
    )
    x = x if scheme.encode is None else scheme.encode(x, where)
    added = None if scheme.gate is None else reference.forgetting_bias(scheme.gate(x))
    whole = layer(x, x, x, causal=True, key_positions=where, bias=added)
    assert np.isfinite(whole).all()
    for t in range(n):
        step = None if added is None else added[:, t : t + 1, : t + 1]
        last = layer(
            x[t : t + 1],
            x[: t + 1],
            x[: t + 1],
            causal=True,
            key_positions=where[: t + 1],
            bias=step,
        )
        assert np.allclose(last[0], whole[t], atol=1e-12)


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


# What the page on all schemes says of some of them.


def test_polar_heads_are_twice_as_wide_and_positive_before_they_turn():
    x, at = np.random.default_rng(0).normal(size=(2, 5, 8)), np.arange(5)
    for turn in SCHEMES["PoPE"](8).rotate:
        assert turn(x, at).shape == (2, 5, 16)
    assert (reference.polar_query(x, np.zeros(5))[..., :8] > 0).all()
    assert (reference.PolarKey.init(2, 8).phase == 0).all()


@pytest.mark.parametrize("side", [0, 2])
def test_a_stick_broken_for_two_keys_is_a_sigmoid(side):
    x = np.random.default_rng(0).normal(size=(3, 8))
    query, keys = x[None, :1], x[None, 1:]
    scores = query @ keys.mT / np.sqrt(8)
    where = np.array([1]), np.array([1, side])  # its own place, and one beside it
    weights = reference.masked_softmax(
        scores + reference.StickBreaking().scores(query, keys, *where)
    )
    assert np.isclose(weights[0, 0, 1], 1 / (1 + np.exp(-scores[0, 0, 1])))


@pytest.mark.parametrize("name", ["DeBERTa", "TUPE"])
def test_schemes_that_add_scores_up_divide_by_more(name):
    assert SCHEMES[name](8).scale < 8**-0.5


def test_scores_without_position_are_all_alike():
    scores = atlas.scores("none")
    assert scores.shape == (64, 64)
    assert np.ptp(scores) == 0


def test_most_schemes_that_act_later_draw_stripes():
    names = [name for place in ("query and key", "scores") for name in atlas.acting(place)]
    scores = map(atlas.scores, names)
    striped = [np.allclose(s[1:, 1:], s[:-1, :-1]) for s in scores]
    assert sum(striped) > len(striped) / 2


def test_dynamic_ntk_waits_for_the_trained_length():
    options = {"factor": 2.0, "trained_length": 8}
    found = [reference.dynamic_ntk(8, length=n, **options) for n in (7, 8, 9, 10)]
    plain = reference.frequencies(8)
    assert [np.allclose(one, plain) for one in found] == [True, True, False, False]
    assert not np.allclose(found[2], found[3])
