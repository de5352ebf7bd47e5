"""How exact the library is."""

import json
import re
from decimal import Context, Decimal, localcontext
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from posattn.reference import sinusoidal_encoding, t5_bucket
from posattn.torch import ALiBi, alibi_slopes, rotate, xpos_query
from tests.pages.reading import DOCS

DIGITS = {"float64": 53, "float32": 24, "float16": 11, "bfloat16": 8}
THREE = Context(prec=3)  # decimal digits
MILLION = 1_000_000
PLAIN = 10000.0 ** (-np.arange(0, 64, 2) / 64)  # what one would write in float64
USUAL = torch.tensor([float(MILLION)]) * (1 / 10000 ** (torch.arange(0, 64, 2) / 64))
PAIR = np.float32(10000 ** (-2 / 64))  # the second one
LENGTHS = 2**10, 2**15, 2**20
HALF, FRAMEWORKS = ("bfloat16", "float16"), ("PyTorch", "JAX")
RECORD = json.loads((DOCS / "_records" / "numerics.json").read_text("utf-8"))["cases"]
ERRORS = {  # by name; then by length, dtype and column: ours, and theirs if there are any
    name: {
        (int(n), kind, who): errors
        for n, at in case["errors"].items()
        for kind, found in at.items()
        for who, errors in found.items()
    }
    for name, case in RECORD.items()
}


def test_does_a_logit_change(page):
    """The scores themselves have a standard deviation of about 1.

    Position 4096 by itself would look too good: it is a power of two, so its products with the
    frequencies need no rounding.

    The error from bfloat16 stays the same at every position

    The error from the angles grows roughly in proportion to the position

    only eight of the 32 pairs rotate by more than a tenth of a radian per token

    Up to position 32,768, the error that they add is more than ten times smaller than the one from
    bfloat16, which changes every attention score a little anyway.

    At a million tokens they do. There the angles are the larger error of the two

    A test that compares two ports to six digits fails at position 4096 already
    """
    found = re.findall(
        r"last position ([\d,]+), .*:\n"
        r" *float32 angles +([\d.]+)\n"
        r" *bfloat16 rounding +([\d.]+)",
        page.printed,
    )
    assert [row[0] for row in found] == ["4,096", "32,768", "1,000,000"]
    near, middle, far = ((float(angles), float(dtype)) for _, angles, dtype in found)
    assert 1e-6 < near[0] < middle[0]
    assert near[0] < near[1] / 10
    assert middle[0] < middle[1] / 10
    assert far[0] > far[1]
    assert max(near[1], middle[1], far[1]) < 1.05 * min(near[1], middle[1], far[1])
    for nearer, farther, times in ((near, middle, 8), (middle, far, 1e6 / 2**15)):
        assert times / 2 < farther[0] / nearer[0] < times * 2
    assert ((PLAIN > 0.1).sum(), PLAIN.size) == (8, 32)
    omega32 = PLAIN.astype(np.float32)
    for position, exact in ((4096, True), (32_768, True), (4095, False), (4000, False)):
        products = np.float32(position) * omega32
        assert (products == position * omega32.astype(float)).all() == exact
    generator = np.random.default_rng(1)
    query, key = generator.normal(size=(2, 1000, 64))
    plain = np.einsum("nd,nd->n", query, key) / 8
    assert abs(plain.std() - 1) < 0.1
    q, k = (torch.from_numpy(x).bfloat16().double().numpy() for x in (query, key))
    assert (np.einsum("nd,nd->n", q, k) / 8 != plain).all()


def test_the_second_pair_suffers_most(page):
    """take a token at position 1,000,000 and look at its second pair, whose angle suffers most

    The two angles agree to seven digits, but the cosines already differ in the second.

    The float32 cosine is off by …, which is … times the distance from this cosine to the next float32
    number.
    """
    off = np.abs(USUAL.double().numpy() - MILLION * PLAIN)
    assert off.argmax() == 1
    assert off[1] / USUAL[1] < 1e-7
    right = float(np.cos(MILLION * 10000.0 ** (-2 / 64)))
    rough = float(USUAL[1].cos())
    assert page.glued["cosine_off"] == pytest.approx(abs(rough - right))
    unit = np.spacing(np.float32(abs(right)))
    assert page.glued["cosine_units"] == pytest.approx(abs(rough - right) / unit)
    assert f"cosine: {rough:.4f} in float32, {right:.4f} in float64\n" in page.printed
    assert page.printed.count(f"cosine by the library: {right:.4f}\n") == 2
    assert f"{rough:.1f}" == f"{right:.1f}"
    assert f"{rough:.2f}" != f"{right:.2f}"


def test_float32_counts_in_sixteenths(page):
    r"""The angle 749,894.2093 lies between $2^{19}$ and $2^{20}$, where float32 counts in sixteenths,
    since its unit is $2^{19 - 24 + 1} = 1/16$. Its neighbors there are 749,894.1875 and 749,894.25.
    Float32 chose the nearer one, which is only a third of a unit away, but a third of a sixteenth is
    $0.02$ radians.
    """
    angle = MILLION * 10000.0 ** (-2 / 64)
    assert f"{angle:.4f}" == "749894.2093"
    assert 2**19 < angle < 2**20
    assert np.spacing(np.float32(angle)) == 2.0 ** (19 - 24 + 1) == 1 / 16
    nearest = np.float32(angle)
    assert nearest == float(USUAL[1]) == 749894.1875
    assert np.nextafter(nearest, np.float32(np.inf)) == 749894.25
    assert (angle - float(nearest)) * 16 == pytest.approx(1 / 3, abs=0.02)
    assert f"{1 / 3 / 16:.2f}" == "0.02"


def test_each_operation_is_accurate(page):
    """And yet every single operation was accurate to about one unit in its last place."""
    power = 10000 ** (torch.arange(0, 64, 2) / 64)
    for found, right in (
        (power[1], 10000 ** (2 / 64)),
        (1 / power[1], 1 / power[1].double()),
        (MILLION * (1 / power[1]), MILLION * (1 / power[1]).double()),
        (USUAL[1].cos(), USUAL[1].double().cos()),
    ):
        assert abs(float(found) - float(right)) <= np.spacing(np.float32(abs(float(right))))


def test_neighbors_with_three_digits(page):
    """Then $562$ and $563$ are neighbors, with nothing in between, and so are $0.0180$ and $0.0181$.

    Rounding $562.34$ gives $562$, which is off by $0.34$ units. Rounding $0.018034$ gives $0.0180$,
    which is off by $0.34$ units as well, although its error is ten thousand times smaller.
    """
    with localcontext(THREE):
        assert Decimal(562).next_plus() == 563
        assert Decimal("0.0180").next_plus() == Decimal("0.0181")
        assert +Decimal("562.34") == 562
        assert +Decimal("0.018034") == Decimal("0.0180")
    large, small = Decimal("562.34") - 562, Decimal("0.018034") - Decimal("0.0180")
    assert large == Decimal("0.34")
    assert small / Decimal("0.0001") == Decimal("0.34")
    assert large / small == 10_000


def test_rounding_costs_half_a_unit(page):
    """A single rounding to the nearest number is never off by more than half a unit.

    Rounding once costs up to half a unit in the last place, whatever the size of the number.
    """
    wide = np.geomspace(1e-30, 1e30, 9999)
    single = wide.astype(np.float32)
    halves = np.abs(wide - single) / np.spacing(single)
    assert 0.49 < halves[:5000].max() <= 0.5
    assert 0.49 < halves[5000:].max() <= 0.5


def test_eq_unit_last_place(page):
    r"""$$ u(s) = 2^{e - t + 1} . $$

    A dtype has $t$ binary digits: $53$ in float64, $24$ in float32, $11$ in float16 and $8$ in
    bfloat16. From one power of two to the next, for $2^e \leq s < 2^{e+1}$, its unit is
    """
    for s in (562.34, 0.018034, 1.0, 0.999, 3e-5):
        for kind, dtype in (("float64", np.float64), ("float32", np.float32)):
            e, t = np.floor(np.log2(dtype(s))), DIGITS[kind]
            assert np.spacing(dtype(s)) == 2.0 ** (e - t + 1)
    for s in (562.34, 0.018034, 1.0, 0.999):  # and not what float16 holds with fewer digits
        e, t = np.floor(np.log2(np.float16(s))), DIGITS["float16"]
        assert np.spacing(np.float16(s)) == 2.0 ** (e - t + 1)
    for kind, t in DIGITS.items():
        assert torch.finfo(getattr(torch, kind)).eps == 2.0 ** (1 - t)


def test_neighbors_in_half_precision(page):
    r"""Near 562, float16 counts in halves, and bfloat16 counts in fours: it has 560 and 564, and
    nothing between them.

    Just below $2^{12}$ its unit is $2^{11 - 8 + 1} = 16$, so 4095 has to become either 4080 or 4096.

    For numbers of the same size, one unit of bfloat16 is $2^{24 - 8} = 65{,}536$ units of float32.
    """
    assert "float16: unit 0.5, next number after 562 is 0.5 away\n" in page.printed
    assert "bfloat16: unit 4\n" in page.printed
    between = torch.linspace(560, 564, 101).bfloat16().unique()
    assert between.tolist() == [560, 564]
    below = torch.linspace(4080, 4096, 101).bfloat16().unique()
    assert below.tolist() == [4080, 4096]
    assert torch.finfo(torch.bfloat16).eps / torch.finfo(torch.float32).eps == 65536


def test_which_size(page):
    """For most biases, it is the size of the exact value itself, $s = |y^*|$.

    So where numbers cancel (rotation, sines, attention, FIRE), we measure by the largest exact value in
    the same row.

    We do the same for the weights of a softmax

    It is measured by the size of each number, except that FIRE is measured by the size of its row.
    """
    by_number = {name for name, case in RECORD.items() if case["unit"] == "number"}
    assert by_number == {"ALiBi", "T5Bias", "KerpleLog", "KerplePower"}


def test_what_cancels(page):
    """One of its entries may be $0.54340 - 0.54160 = 0.00180$. With three digits, the best you can get is
    $0.543 - 0.542 = 0.001$. That is off by … units of the small result, although each term is off by
    less than half of its own unit.

    a score adds this entry to others that are hundreds of times larger

    Here that is $0.543$ or larger, and the error is … units.
    """
    terms = Decimal("0.54340"), Decimal("0.54160")
    with localcontext(THREE):
        rounded = [+term for term in terms]
        unit = Decimal("0.00180").next_plus() - Decimal("0.00180")
    assert rounded == [Decimal("0.543"), Decimal("0.542")]
    right, result = terms[0] - terms[1], rounded[0] - rounded[1]
    assert (right, result) == (Decimal("0.00180"), Decimal("0.001"))
    assert abs(terms[0] - rounded[0]) == abs(terms[1] - rounded[1]) < Decimal("0.0005")
    assert right < rounded[1] / 200
    assert unit == Decimal("0.00001")
    assert page.glued["cancelled"] == pytest.approx(float((right - result) / unit))
    assert page.glued["in_row"] == pytest.approx(float((right - result) / Decimal("0.001")))


def test_whole_turns_are_thrown_away(page):
    """The frequency becomes $0.562$ and the angle becomes $562$. It should be $562.34$, so it is off by
    $0.34$ radians, or … degrees.

    because a sine ignores whole turns, and there are … of them in it

    It costs more if the leading digits are thrown away afterwards, which is what a sine does to a large
    angle.
    """
    with localcontext(THREE):
        assert +Decimal("0.56234") == Decimal("0.562")
        assert 1000 * Decimal("0.562") == 562
        assert Decimal(562).next_plus() == 563  # no digit after the point
    assert 1000 * Decimal("0.56234") - 562 == Decimal("0.34")
    assert page.glued["toy_degrees"] == pytest.approx(0.34 / np.pi * 180)
    turns = page.glued["toy_turns"]
    assert turns == int(turns)
    assert 0 <= 562.34 - turns * 2 * np.pi < 2 * np.pi


def test_errors_of_angles_double_with_the_position(page):
    r"""In general, each rounding puts an angle $p\,\omega$ with $t$ binary digits off by up to half a
    unit. That is up to about $p\,\omega\,2^{-t}$ radians each time, and it doubles when the position
    does.

    With $t$ binary digits, the error of an angle is about $p\,\omega\,2^{-t}$
    """
    worst = []
    for k in (18, 19):
        p = np.arange(2**k, 2 ** (k + 1), dtype=np.float32)
        lost = np.abs((p * PAIR).astype(float) - p.astype(float) * float(PAIR))
        assert (lost <= p * float(PAIR) * 2.0**-24).all()
        worst.append(lost.max())
    assert 1.9 < worst[1] / worst[0] < 2.1
    frequency = [abs(p * float(PAIR) - p * 10000 ** (-2 / 64)) for p in (2**19, 2**20)]
    assert 1.9 < frequency[1] / frequency[0] < 2.1


def test_what_is_lost_at_a_million(page):
    """At position 1,000,000 it comes to … radians in float32 and … in float64.

    which is position … for the fastest pair
    """
    assert page.glued["lost32"] == MILLION * 2.0 ** -DIGITS["float32"]
    assert page.glued["lost64"] == MILLION * 2.0 ** -DIGITS["float64"]
    assert page.glued["far"] == 2**28


def test_eq_far_enough(page):
    r"""$$ p\,\omega \leq 2^{53} \cdot 2^{-25} = 2^{28} , $$

    Sines in float32 are rounded by up to $2^{-25}$ anyway
    """
    assert 2**53 * 2**-25 == 2**28
    assert np.spacing(np.float32(0.75)) / 2 == 2**-25

    def lost(p, omega=0.7):
        return abs(Fraction(float(p) * omega) - p * Fraction(omega))

    within = max(map(lost, range(2**28 - 64, 2**28)))
    beyond = max(map(lost, range(2**32, 2**32 + 64)))
    assert within <= 2**-26 < beyond


def test_jax_has_no_float64(page):
    """JAX has no float64 unless you switch it on."""
    assert jnp.asarray(1.0).dtype == jnp.float32
    with jax.enable_x64(True):
        assert jnp.asarray(1.0).dtype == jnp.float64


def test_whole_turns_of_integers_vanish(page):
    """There the library uses integers and divides a full turn into $2^{64}$ steps. The position times the
    steps of its frequency is a product of integers, in which whole turns overflow and vanish
    """
    assert page.torch.turn == 2**64
    left = page.torch.left / page.torch.turn * 2 * np.pi
    assert abs(left - MILLION * 10000 ** (-2 / 64) % (2 * np.pi)) < 1e-9
    assert (
        f"cosine from integers: {np.cos(MILLION * 10000 ** (-2 / 64)):.4f}\n"
        in page.printed
    )


def test_three_lengths_were_measured(page):
    """Each table below shows the largest error in units up to each of two or three lengths"""
    assert {len(case["errors"]) for case in RECORD.values()} == {2, 3}


def test_rotation_in_half_precision_and_float32(page):
    """In half precision, half a unit is the best possible error, because the exact number has to be
    rounded, and the library reaches it at every length.

    In float32 we lose a few units at every length

    In bfloat16 and float16, rotated queries and keys are off by half a unit in the last place (to two
    digits), at all the positions up to a million that we measured.

    angles in float64 or in integers still give half a unit in bfloat16, at any position up to a million
    """
    half, single = (
        [errors[0] for (_, kind, _), errors in ERRORS["rotate"].items() if kind in kinds]
        for kinds in (HALF, ["float32"])
    )
    assert {*half} == {0.5}
    assert 1 < min(single) <= max(single) < 4


def test_errors_of_the_popular_code_grow(page):
    """The errors of the usual code grow in proportion to the position in float32. In bfloat16 they stay
    hidden for tens of thousands of positions

    At the last length, … units of float32 are about … units of bfloat16, and the measured error there
    is ….

    Sines and products in bfloat16 cost nearly one unit more
    """
    single = [ERRORS["rotate"][n, "float32", "JAX"][1] for n in LENGTHS]
    half = [ERRORS["rotate"][n, "bfloat16", "JAX"][1] for n in LENGTHS]
    assert 16 < single[1] / single[0] < 64
    assert 16 < single[2] / single[1] < 64
    assert half[1] < 2 < 8 < half[2]
    assert 0.75 < half[0] - 0.5 < 1
    assert page.glued["usual32"] == pytest.approx(single[2], rel=0.01)
    assert page.glued["usual16"] == half[2]
    assert page.glued["expected16"] == single[2] / 2**16
    assert abs(page.glued["expected16"] / half[2] - 1) < 0.1


def test_sinusoids_show_the_error_of_the_angles(page):
    """In half precision ours are off by half a unit at every length, while those from float32 angles
    lose about as many units at the last length as a rotation does.
    """
    for n in LENGTHS:
        for kind in HALF:
            assert ERRORS["sinusoidal_encoding"][n, kind, "PyTorch"][0] == 0.5
    for kind in ("float32", *HALF):
        theirs = ERRORS["sinusoidal_encoding"][2**20, kind, "PyTorch"][1]
        assert abs(theirs / ERRORS["rotate"][2**20, kind, "PyTorch"][1] - 1) < 0.1


def test_in_float64_we_are_no_better_than_others(page):
    """In float64 we are no better than others.

    so nearly a million units are lost at position 1,000,000, and about ten decimal digits are left
    """
    whole = ERRORS["rotate"][2**20, "float64", "NumPy"][0]
    assert 750_000 < whole < 1e6
    assert round(-np.log10(whole * 2.0**-52.5)) == 10
    with localcontext(Context(prec=50)):
        tau = Decimal("6.2831853071795864769252867665590057683943388")
        angles = [
            float(MILLION * Decimal(10000) ** (-Decimal(j) / 32) % tau) for j in range(32)
        ]
    usual = np.abs(np.cos(MILLION * PLAIN) - np.cos(angles)).max()
    encoded = sinusoidal_encoding(np.array([MILLION]), 64)[0, 1::2]
    assert 1e-11 < usual / 2 < np.abs(encoded - np.cos(angles)).max() < 2 * usual


def test_rules_of_scaling_change_nothing(page):
    """Scaling the frequencies changes none of this, because the scaled ones are computed in float64 as
    well. Rotating by several coordinates doesn't change it either.
    """
    for name in (
        "rotate, YaRN",
        "rotate, Llama 3",
        "rotate, NTK-aware",
        "rotate_axes, M-RoPE",
    ):
        for at, (ours, *_) in ERRORS[name].items():
            assert 0.5 < ours / ERRORS["rotate"][at][0] < 2
            assert at[1] not in HALF or ours == 0.5


def test_xpos_fades(page):
    """its entries also shrink as the position grows. Far beyond these lengths they shrink to zero"""
    places = torch.tensor([0, 2**10, 2**15, 2**20, 2**23])
    sizes = xpos_query(torch.ones(5, 64), places).norm(dim=-1)
    assert (sizes.diff() < 0).all()
    assert sizes[2] > 0 == sizes[4]


def test_alibi_is_exact_until_it_overflows(page):
    """ALiBi's slopes are powers of two here, so a product with a distance is exact as long as the
    dtype can hold it.

    An overflow is an exact number that is too large for float16. It becomes minus infinity, and a key
    that far away gets the weight zero.
    """
    assert np.array_equal(alibi_slopes(8).double().numpy(), 0.5 ** np.arange(1, 9))
    exact = [e for (_, kind, _), e in ERRORS["ALiBi"].items() if kind not in HALF]
    assert exact
    assert all(errors == [0] for errors in exact)
    overflows = {at[:2] for name in ERRORS for at, e in ERRORS[name].items() if None in e}
    assert overflows == {(2**20, "float16")}
    ends = torch.tensor([0, 2**20 - 1])
    penalty = ALiBi(8, dtype=torch.float16)(ends[1:], ends)[0, 0]
    assert penalty[0] == -torch.inf
    assert torch.softmax(penalty, -1)[0] == 0


def test_logarithms_and_powers_are_rounded_once(page):
    """KERPLE and FIRE use logarithms and powers, computed in float32 at least. FIRE loses the most units
    in float32

    While the length grows a thousandfold, its error grows by less than a factor of two, and in half
    precision it is at most half a unit.
    """
    names = "ALiBi", "T5Bias", "KerpleLog", "KerplePower", "FIRE"
    for name in names[2:]:
        half = [e for (_, kind, _), e in ERRORS[name].items() if kind in HALF]
        assert half
        assert all(errors == [0.5] for errors in half)
    for name in names:
        ours = {at: e[0] for at, e in ERRORS[name].items() if e[0] is not None}
        assert max(e for at, e in ours.items() if at[1] in HALF) <= 0.5
        for (n, kind, who), error in ours.items():
            if kind not in HALF:
                assert error <= 2 * ours[2**10, kind, who]
            if kind == "float32" and name != "FIRE":
                assert error < ERRORS["FIRE"][n, kind, who][0] / 2


def test_buckets_are_never_wrong(page):
    """T5's bias is a number from a table, so it is either exact or the number of another bucket.

    The other code takes a logarithm in float32, and with the usual number of buckets that is never
    wrong either.
    """
    assert all({*errors} == {0} for errors in ERRORS["T5Bias"].values())
    distance = torch.arange(2**20)
    by_log = 16 + (torch.log(distance.float() / 16) / np.log(8) * 16).clamp(0, 15).int()
    by_log = torch.where(distance < 16, distance, by_log).numpy()
    assert np.array_equal(by_log, t5_bucket(-np.arange(2**20), bidirectional=False))


def test_softmax_of_torch_loses_digits(page):
    """torch.softmax in float32 loses digits as the length grows, like a sum that adds one number after
    another. Ours uses sum, which adds up parts first.

    Even torch.softmax loses hundreds of units in float32 when a row is long.

    The … units that it loses at the last length look bad, but they are only … units of bfloat16.
    """
    ours, theirs = zip(
        *(ERRORS["masked_softmax"][n, "float32", "PyTorch"] for n in LENGTHS), strict=True
    )
    assert theirs[2] > 10 * theirs[1] > 100 * theirs[0]
    assert theirs[2] == page.glued["softmax_units"] > 200
    assert page.glued["softmax_bfloat16"] == theirs[2] / 2**16 < 0.1
    assert max(ours) < 2
    numbers = np.random.default_rng(0).random(2**20, dtype=np.float32)
    one_by_one, parts = np.cumsum(numbers)[-1], torch.tensor(numbers).sum().item()
    right = numbers.sum(dtype=float)
    assert abs(one_by_one - right) > 10 * abs(parts - right)


def test_errors_of_attention_grow_with_the_keys(page):
    """In attention, errors grow with the number of keys for two reasons: more products are added up, and
    their mean, by which we measure, gets smaller.

    In PyTorch both columns are the same kernel.
    """
    attended = ERRORS["scaled_dot_product_attention"]
    for who in FRAMEWORKS:
        assert attended[2**20, "float32", who][0] > attended[2**10, "float32", who][0]
    values = np.random.default_rng(0).normal(size=(2**20, 32))
    assert (np.diff([np.abs(values[:n].mean(0)).max() for n in LENGTHS]) < 0).all()
    same = [errors for (_, _, who), errors in attended.items() if who == "PyTorch"]
    assert same
    assert all(ours == theirs for ours, theirs in same)


def test_attention_of_jax_has_its_softmax_in_float32(page):
    """JAX's own attention computes its softmax in float32 even if all its inputs are float64."""
    with jax.enable_x64(True):
        read = jax.make_jaxpr(jax.nn.dot_product_attention)(*[jnp.zeros((1, 2, 1, 4))] * 3)
    assert "f64[1,2,1,4]" in str(read)
    assert ":f32[" in str(read)
    attended = ERRORS["scaled_dot_product_attention"]
    assert all(attended[n, "float64", "JAX"][1] > 2**28 for n in LENGTHS)


def test_far_keys_cost_no_digits(page):
    """whose steepest slope is $1/2$

    From the first length to the last, where the lowest bias is $-65535/2$, our error in float32 grows
    by less than a half. Distant keys cost no digits, because their weight is zero
    """
    read = ERRORS["scaled_dot_product_attention, causal, ALiBi"]
    first, *_, last = sorted({n for n, _, _ in read})
    assert last == 2**16
    for who in FRAMEWORKS:
        assert read[last, "float32", who][0] < 1.5 * read[first, "float32", who][0]
    slope = alibi_slopes(8)[0].item()
    assert slope == 1 / 2
    assert -slope * (last - 1) == -65535 / 2
    assert np.exp(-slope * (last - 1)) == 0


def test_positions_are_integers(page):
    """bfloat16 holds no odd number above $2^8$, so the library refuses positions in such a dtype."""
    odd = torch.arange(1, 2**12, 2)
    assert torch.equal(odd[odd.bfloat16().long() == odd], torch.arange(1, 2**8, 2))
    with pytest.raises(TypeError):
        rotate(torch.zeros(4, 64), torch.arange(4, dtype=torch.bfloat16))


def test_two_positions_are_one_in_bfloat16(page):
    """In bfloat16 the positions 4095 and 4096 are the same number"""
    assert len(torch.tensor([4095, 4096]).bfloat16().unique()) == 1
    assert len(torch.tensor([4095, 4096]).float().unique()) == 2


def test_a_buffer_is_cast_along(page):
    """Casting the frequencies first, as model.bfloat16() does with a buffer, loses digits that no later
    step can bring back.
    """
    model = torch.nn.Module()
    model.register_buffer("frequencies", torch.tensor(PLAIN))
    cast = model.bfloat16().frequencies
    assert cast.dtype == torch.bfloat16
    assert np.abs(cast.double().numpy() / PLAIN - 1).max() > 0.001


def test_two_right_programs_differ_by_a_unit(page):
    """Two correct programs can differ by that much."""
    assert abs((0.1 + 0.2 + 0.3) - (0.1 + (0.2 + 0.3))) == np.spacing(0.6)


def test_a_checkpoint_has_seen_the_errors_of_its_training(page):
    """If it was trained on short texts with the usual code, it has met angle errors far below a
    unit of bfloat16
    """
    assert 4096 * 2.0**-24 < 2.0**-8 / 10


def test_a_tenth_of_a_radian(page):
    r"""Half a unit is $2^{e - 24}$ for an angle from $2^e$ up to $2^{e+1}$. The first such power of
    two above a tenth is $2^{-3}$, so $e = 21$.

    The first error is below a tenth of a radian and the second is above, so the answer is just past
    position $2^{21}$.
    """
    assert 2.0 ** (20 - 24) < 0.1 < 2.0 ** (21 - 24) == 2**-3
    offs = [
        float(line.rpartition(" ")[2])
        for line in page.printed.splitlines()
        if line.startswith("position ")
    ]
    assert offs[0] < 0.1 < offs[1]


def test_whole_positions(page):
    r"""Why is the first pair, $\omega = 1$, always right in float32 below position $2^{24}$, and the
    second not?

    All integers up to $2^{24}$ are float32 numbers, so the angle $p \cdot 1$ is not rounded. The
    frequency of the second pair is rounded, and so is its product with $p$.

    With the first frequency no product is rounded, and with the second nearly all of them are.
    """
    assert np.array_equal(np.arange(2**24 + 1, dtype=np.float32), np.arange(2**24 + 1))
    assert float(np.float32(2**24 + 1)) != 2**24 + 1
    assert float(PAIR) != 10000 ** (-2 / 64)
    assert "frequency 1.000: 0% of the products are rounded\n" in page.printed
    p = np.arange(2**20, dtype=np.float32)
    assert (p * PAIR != p.astype(float) * float(PAIR)).mean() > 0.9
