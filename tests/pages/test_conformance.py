"""Check your own implementation."""

import jax.numpy as jnp
import numpy as np

import posattn.jax
from posattn import reference
from posattn.conformance import check, gallery, load
from posattn.conformance.faults import FAULTS
from posattn.conformance.planned import planned
from posattn.reference import rotate
from tests.library.conformance import right, wrong
from tests.library.conformance.examples import RIGHT, WRONG
from tests.library.conformance.threads import THREADS
from tests.pages.reading import DOCS

FAMILIES = right, wrong  # which fill the lists
CASES = load("rotary")["cases"]


def names(runs):
    """The names of their cases."""
    return [run.case["name"] for run in runs]


def passed(report):
    """The names of the cases that pass."""
    return names(run for run in report.runs if not run.failed)


def test_position_2049(page):
    """what does it do at position 2049, the first that float16 cannot hold

    Those are the first whole numbers that the two formats cannot hold
    """
    whole = [int(np.float16(n)) == n for n in range(2050)]
    assert whole == [True] * 2049 + [False]
    whole = [int(jnp.bfloat16(n)) == n for n in range(258)]
    assert whole == [True] * 257 + [False]


def test_the_known_faults(page):
    """These are small programs that are wrong on purpose, … of them over all schemes.

    Of the … faults that the checker knows, … were seen in public.

    Three kinds come back again and again: a cache whose key leaves something out, two layouts mixed,
    and angles in low precision.
    """
    seen = {fault.sentence.split(":")[0] for fault in FAULTS if fault.seen}
    often = {
        kind
        for kind in seen
        if len({f.sentence for f in FAULTS if f.seen and f.sentence.startswith(f"{kind}:")})
        >= 3
    }
    assert often == {"A stale cache", "Layouts are mixed", "Low-precision angles"}
    assert page.glued["faults"] == len({fault.sentence for fault in FAULTS})
    assert page.glued["seen"] == len({fault.sentence for fault in FAULTS if fault.seen})
    assert 0 < page.glued["seen"] < page.glued["faults"]


def test_the_smallest_query(page):
    r"""Take the smallest query there is, $(1, 0)$ at position 1.

    Its only pair rotates by 1 radian, so the expected output is $(\cos 1, \sin 1) = (0.54, 0.84)$.

    A function that rotates the other way returns $(0.54, -0.84)$. The first number agrees, because the
    cosine is the same in both directions, while the second is off by 1.68.

    so a function that pairs the wrong entries still returns $(0.54, 0.84)$
    """
    query, position = np.array([[1.0, 0.0]]), np.array([1])
    right = rotate(query, position)[0]
    wrong = gallery.rotary_clockwise(query, position)[0]
    assert np.allclose(right, [np.cos(1), np.sin(1)])
    assert np.allclose(right, [0.54, 0.84], atol=0.005)
    assert np.allclose(wrong, [0.54, -0.84], atol=0.005)
    assert np.isclose(right[1] - wrong[1], 1.68, atol=0.005)
    assert "off by 1.68\n" in page.printed
    assert np.allclose(gallery.rotary_by_halves(query, position)[0], right)


def test_the_wrong_way_still_sees_only_the_offset(page):
    """Rotate every pair the wrong way, for example, and a score still depends only on the offset between
    query and key
    """
    query, key = np.random.default_rng(0).normal(size=(2, 1, 8))

    def score(m, n):
        q, k = (
            gallery.rotary_clockwise(x, np.array([at])) for x, at in ((query, m), (key, n))
        )
        return (q @ k.T).item()

    assert np.isclose(score(5, 2), score(105, 102))
    other = (rotate(query, np.array([2])) @ rotate(key, np.array([5])).T).item()
    assert np.isclose(score(5, 2), other)


def test_the_vectors_of_rotary(page):
    """So the vectors of rotary also have wider heads, two bases, padded batches, decoding steps and
    positions up to $2^{20}$.
    """
    assert max(case["arguments"][0].shape[-1] for case in CASES) > 2
    assert len({case["keywords"].get("base", 10000.0) for case in CASES}) == 2
    every = " ".join(case["name"] for case in CASES)
    assert all(kind in every for kind in ("left padding", "decoding", "up to 2**20"))


def test_what_a_report_says(page):
    """The first line says what was checked, in which framework and dtype, how many cases failed, and how
    many were skipped.

    Each line of the table is a failing case, with the place of the largest error in the output, its
    size, the value expected there, and the value that came.

    In the first line, 2.21931 was expected and -1.51309 came, so the error is 3.7. Its place,
    [1, 4, 3], is entry 3 of token 4 in example 1, all counted from 0.

    Below the table is the likely cause, and where others met it.

    The last lines list what was skipped because our function has no parameter for it.

    only="base" chooses the cases with this word in their names
    """
    report = check(page.torch.my_rope, "rotary", only="base", framework="numpy")
    lines = str(report).split("\n")
    assert lines[0] == "my_rope as rotary, numpy float64: 2 of 2 cases fail, 6 skipped"
    assert all("base" in name for name in names(report.runs))
    assert lines[2].split() == ["failing", "case", "at", "error", "expected", "got"]
    assert "likely cause (2 of 2" in str(report)
    assert "seen in" in str(report)
    assert "skipped, since my_rope has no parameter layout" in str(report)
    assert str(report) in page.printed
    run = report.failures[0]
    example, token, entry = 1, 4, 3
    error = abs(np.asarray(run.got) - run.case["expected"])
    assert error[example, token, entry] == error.max()
    assert "[1, 4, 3]" in lines[3]
    assert np.isclose(run.case["expected"][1, 4, 3], 2.21931, atol=5e-6)
    assert np.isclose(run.got[1, 4, 3], -1.51309, atol=5e-6)
    assert np.isclose(2.21931 + 1.51309, 3.7, atol=0.05)


def test_the_pairs_of_somebodys_function(page):
    """The function pairs entry $c$ with entry $c + d/2$, while the paper

    Given settings, it runs only the cases with that keyword, and your function need not take the
    keyword itself.

    All 17 cases that could be run pass. The other 26 were skipped: our function requires positions, and
    it has no parameters for a partial rotation, an attention factor or given frequencies.

    If your model rotates only part of each head, the 17 cases skipped for want of rotary_dim are the
    ones you need

    The same function is wrong for one checkpoint and right for another
    """
    my_rope = page.torch.my_rope
    report = check(my_rope, "rotary", only="base", framework="numpy")
    assert report.causes[0].name == "other_layout"
    meant = check(my_rope, "rotary", settings={"layout": "half"}, framework="numpy")
    assert not meant.failures
    assert all("layout half" in name for name in names(meant.runs))
    assert str(meant) in page.printed
    assert len(meant.runs) == 17
    assert len(meant.skipped) == 26
    assert sum("rotary_dim" in reason for reason in meant.skipped.values()) == 17
    reasons = {reason.split()[-1].strip("'") for reason in meant.skipped.values()}
    assert reasons == {"positions", "rotary_dim", "frequencies", "attention_factor"}


def test_the_dtype_of_all_data(page):
    """The argument dtype sets the dtype of all data, which is float64 in NumPy and float32 elsewhere,
    unless you say otherwise. Positions and frequencies are never rounded to it
    """
    given = []

    def noting(*arguments):
        given.append(arguments)
        return rotate(*arguments)

    check(noting, "rotary", framework="numpy", dtype="float16")
    assert {x.dtype for x, *_ in given} == {np.dtype("float16")}
    others = {str(other.dtype) for _, *rest in given for other in rest}
    assert others == {"int64", "float64"}
    assert "numpy float64" in str(check(rotate, "rotary", only="no tokens"))
    assert "jax float32" in str(check(posattn.jax.rotate, "rotary", only="no tokens"))


def test_eq_conformance(page):
    r"""$$
    \epsilon = \frac{\max_a |\hat y_a - y_a|}{\max(1, \max_a |y_a|)}
    $$

    The case passes if this is at most the tolerance of the dtype.

    Both agree on 1.32, and that is far above every tolerance, so no rounding can explain it.
    """
    assert np.isclose(page.torch.epsilon, 1.32, atol=0.005)
    assert max(page.torch.case["tolerance"].values()) < 1.32 / 40
    wrong = gallery.rotary_in_float32
    runs = check(wrong, "rotary", framework="numpy", dtype="float32").runs
    verdicts = set()
    for run in runs:
        y_hat, y = np.float64(run.got), run.case["expected"]
        if y.size:
            epsilon = max(abs(y_hat - y).flat) / max(1, max(abs(y).flat))
            assert np.isclose(epsilon, run.gap(run.got, y).max(), rtol=1e-6, atol=0)
            assert run.wrong == (epsilon > run.case["tolerance"]["float32"])
            verdicts.add(run.wrong)
    assert verdicts == {True, False}
    assert np.isclose(page.torch.epsilon, page.torch.by_checker)


def test_the_attention_of_a_model(page):
    """Whoever wrote it forgot that Llama 3 uses base 500000, and left the default.

    All seven cases fail, but by very different amounts: the error is 0.055 for one decoded token and 1.6
    at far positions. The first pair rotates by 1 radian per position whatever the base, and the others
    are slow, so their angles drift apart only as the offset between query and key grows.

    The known faults are now other ways to read the same configuration, such as another base, a window
    that is one too large, or a scaling left out

    The checker also knows slips that no configuration can prevent: a causal mask or positions that count from 0
    in every call, scores without their scale, and key heads that go to the wrong queries.
    """
    mine, vectors = page.torch.my_attention, planned(page.torch.config, layer=1)

    def right(*given):
        return mine(*given, base=500000.0)

    assert not check(right, vectors, framework="numpy").failures
    wrong = check(mine, vectors, framework="numpy")
    assert wrong.causes[0].sentence == "The base is 10000: the configuration says 500000."
    assert str(wrong) in page.printed
    assert len(wrong.failures) == len(wrong.runs) == 7
    slips = {
        "mask_from_the_top_left",
        "queries_from_0",
        "positions_from_0",
    }
    known = {fault.name for fault in vectors["faults"]}
    assert slips | {"scores_unscaled", "key_heads_tiled"} <= known
    errors = {
        run.case["name"]: abs(run.got - run.case["expected"]).max()
        for run in wrong.failures
    }
    assert np.isclose(errors["decoding: one token"], 0.055, atol=5e-4)
    assert np.isclose(errors["far positions"], 1.6, atol=0.05)
    assert min(errors.values()) == errors["decoding: one token"]
    assert max(errors.values()) == errors["far positions"]
    speeds = [base ** (-np.arange(0, 8, 2) / 8) for base in (10000.0, 500000.0)]
    assert speeds[0][0] == speeds[1][0] == 1
    assert max(speeds[0][1], speeds[1][1]) < 0.11


def test_units_in_the_last_place(page):
    """Below float64, they are whole numbers of units in the last place, where a unit is the distance from
    1 to the next number of the dtype. Each rounding costs at most half a unit. In float32 a result may
    be off by 96 units, which is room for 192 roundings that all go the same way. In float16 and bfloat16
    it may be off by 4
    """
    for dtype, units in (("float32", 96), ("float16", 4)):
        assert page.torch.case["tolerance"][dtype] == units * np.spacing(np.ones((), dtype))
    assert page.torch.case["tolerance"]["bfloat16"] == 4 * 2.0**-7
    assert 96 / 0.5 == 192


def test_angles_in_float32_are_allowed(page):
    """pass tolerance="float32-angles", and the tolerance grows by $2^{-23}$ per position.

    Either way, everything else is still found:

    With the wider tolerance float32 angles pass everywhere, while float16 angles still fail 15 of the 17
    cases.
    """
    options = {"framework": "numpy", "tolerance": "float32-angles"}
    single = check(gallery.rotary_in_float32, "rotary", **options)
    assert not single.failures
    (far,) = [run for run in single.runs if "large" in run.case["name"]]
    plain = next(c for c in load("rotary")["cases"] if c["name"] == far.case["name"])
    grown = far.case["tolerance"]["float64"] - plain["tolerance"]["float64"]
    assert np.isclose(grown, 2.0**-23 * plain["arguments"][1].max())
    for rotary in (gallery.rotary_in_float16, gallery.rotary_in_bfloat16):
        assert check(rotary, "rotary", **options).failures
    half = check(gallery.rotary_in_float16, "rotary", **options)
    assert (len(half.failures), len(half.runs)) == (15, 17)


def test_the_checker_is_checked(page):
    """For each public thread we know, we wrote a function that does what the thread describes, and ran
    the checker on it.

    We also wrote more than fifty correct functions in the style of released code, and more than eighty
    that are subtly wrong. The correct ones must pass, the wrong ones must fail

    A wrong layout fails nearly every case, while some faults fail a single one
    """
    layout = check(gallery.rotary_by_halves, "rotary", framework="numpy")
    assert len(layout.failures) == len(layout.runs) - 2
    table = (DOCS / "_records/conformance/threads.txt").read_text(encoding="utf-8")
    assert "15 of 17 cases fail. The other layout" in table
    assert "| 1 of 17 cases fail." in table
    assert len({example.make for example in RIGHT}) > 50
    assert len({example.make for example in WRONG}) > 80
    assert len({thread.name for thread in THREADS}) > 40


def test_an_adapter_that_is_made(page):
    """Our arrays have no axis for the heads, which is what head_axis=None says.

    The same 17 cases pass.
    """
    assert page.torch.rope.__name__ == "apply_rotary_pos_emb"
    half = {"settings": {"layout": "half"}, "framework": "numpy"}
    report = check(page.torch.rope, "rotary", **half)
    assert not report.failures
    assert len(report.runs) == 17


def test_coarse_angles(page):
    """In float32 the error rises with the position, though not at every step, from less than a
    millionth to more than a ten-thousandth. In float16 it jumps to about 1 at position 2049, in
    bfloat16 at 257.

    float32 is off by … at position ….

    the larger an angle is, the coarser its steps are. At that position the second pair's angle is …
    radians, where neighboring float32 numbers are … apart.
    """
    exact = page.torch.positions[-1] * 10000.0 ** (-2 / 8)
    assert np.isclose(page.glued["second_angle"], exact, rtol=1e-6)
    assert page.glued["step"] == np.spacing(np.float32(exact))
    errors, positions = page.torch.errors, page.torch.positions
    for name, curve in errors.items():
        coarse = getattr(gallery, f"rotary_in_{name}")(np.ones((15, 8)), positions)
        exact = rotate(np.ones((15, 8)), positions)
        assert np.array_equal(curve, abs(coarse - exact).max(-1))
    assert errors["float32"][0] < 1e-6
    assert 1e-4 < errors["float32"][-1] < 0.001
    assert (np.diff(errors["float32"]) < 0).any()
    assert errors["float16"].max() > 0.9
    assert page.glued["single_error"] == errors["float32"][-1]
    assert page.glued["far"] == positions[-1]


def test_from_where_halves_are_far_off(page):
    """Among the positions drawn, float16 is off by more than a tenth from position … on, and bfloat16
    from … on.
    """
    assert page.glued["half_position"] == 2049
    assert page.glued["bfloat_position"] == 257
    positions, errors = page.torch.positions, page.torch.errors
    for name, first in (("float16", 2049), ("bfloat16", 257)):
        assert np.array_equal(errors[name] > 0.1, positions >= first)


def test_the_vectors_have_such_positions(page):
    """The vectors include such positions, and positions up to $2^{20}$."""
    reach = [case["arguments"][1] for case in CASES if len(case["arguments"]) > 1]
    largest = [positions.max(initial=0) for positions in reach]
    assert max(largest) == 2**20
    small = [
        positions for positions, most in zip(reach, largest, strict=True) if most < 60000
    ]
    assert any((positions.astype(np.float16) != positions).any() for positions in small)


def test_a_stale_cache(page):
    """Right at the first call, wrong at the second

    Run on its own, the case with positions 0 to 4 passes. Run after others, it fails, because it gets
    the frequencies of an earlier base.

    The first case has base 500 and heads of width 8, and its frequencies stay in the cache. So each later
    case of that width gets them, whatever its base, and the 11 that want base 10000 fail. The other cases
    pass, because they have base 500 too, another width or no tokens.
    """
    only = "positions 0 to 4"
    alone = check(gallery.CacheByWidth(), "rotary", framework="numpy", only=only)
    assert alone.runs
    assert not alone.failures
    row = check(gallery.CacheByWidth(), "rotary", framework="numpy")
    assert only in names(row.failures)
    assert row.causes[0].name == "CacheWithoutBase"
    assert CASES[0]["keywords"]["base"] == 500
    assert CASES[0]["arguments"][0].shape[-1] == 8
    stale = [
        run.case["name"]
        for run in row.runs
        if run.case["keywords"].get("base") != 500
        and run.case["arguments"][0].shape[-1] == 8
        and run.case["arguments"][0].size
    ]
    assert stale == names(row.failures)
    assert len(stale) == 11


def test_all_cases_run_in_one_order(page):
    """That's why all cases run in one process and in a fixed order, beginning with an unusual base."""
    assert CASES[0]["keywords"]["base"] != 10000
    ran = names(check(gallery.CacheByWidth(), "rotary", framework="numpy").runs)
    assert ran == [case["name"] for case in CASES if case["name"] in ran]
    assert ran[0] == CASES[0]["name"]


def test_nothing_at_all(page):
    """Only one, a sequence without tokens, where there is nothing to change."""
    report = check(page.torch.nothing, "rotary", framework="numpy")
    assert passed(report) == ["no tokens"]


def test_counting_from_0(page):
    """Such a function is right wherever the positions count from 0, as they do in a test on a whole
    sequence. It fails with left padding and in decoding, which such a test leaves out. So
    most of the vectors count from elsewhere.
    """
    report = check(gallery.rotary_from_zero, "rotary", framework="numpy")
    from_zero = []
    for run in report.runs:
        x, *positions = run.case["arguments"]
        if all((p == np.arange(x.shape[-2])).all() for p in positions):
            from_zero.append(run.case["name"])
    assert from_zero == passed(report)
    assert len(from_zero) < len(report.runs) / 2
    fail = names(report.failures)
    assert {"left padding: positions per example", "decoding: one token"} <= {*fail}


def test_layout_or_angles(page):
    """A wrong layout is wrong from position 1 on, in all cases except those with a single pair or
    without tokens. Angles in float32 go wrong only far from 0
    """
    layout, angles = (
        check(wrong, "rotary", framework="numpy", dtype="float32").runs
        for wrong in (gallery.rotary_by_halves, gallery.rotary_in_float32)
    )
    right = names(run for run in layout if not run.wrong)
    assert {*right} == {"a pair alone", "no tokens"}
    assert names(run for run in angles if run.wrong) == ["large positions, up to 2**20"]


def test_the_slopes_of_alibi(page):
    """every other slope for the next higher one: $2^{-4}, 2^{-8}, 2^{-2}$ for $H = 3$

    The powers of two hide it, because for them the first rule is the right one.

    For $H = 3$ the rule gives $2^{-8/3}$ for the first head, where it should be $2^{-4}$.
    """
    slopes = page.torch.slopes
    assert np.allclose(reference.alibi_slopes(3), [2**-4, 2**-8, 2**-2])
    assert np.isclose(slopes(3)[0], 2 ** (-8 / 3))
    runs = check(slopes, "alibi_slopes", framework="numpy").runs
    hides = {len(run.case["expected"]): not run.failed for run in runs}
    assert {*hides.values()} == {True, False}
    for heads, hidden in hides.items():
        assert hidden == (heads & (heads - 1) == 0)


def test_the_buckets_of_t5(page):
    r"""In a decoder, distances $\delta$ up to 15 have a bucket each. A larger distance falls into bucket
    $16 + \lfloor 16 \ln(\delta/16) / \ln(128/16) \rfloor$, at most 31.
    """
    buckets = reference.t5_bucket(-np.arange(500), bidirectional=False)
    assert np.array_equal(buckets[:16], np.arange(16))
    delta = np.arange(16, 500)
    steps = np.floor(16 * np.log(delta / 16) / np.log(128 / 16) + 1e-9)
    assert np.array_equal(buckets[16:], np.minimum(31, 16 + steps))
    assert buckets.max() == 31


def test_rounded_buckets(page):
    r"""The cases that pass have only small distances, with a bucket each, or only very large ones, which
    all fall into the last bucket.

    At $\delta = 18$ the term in the floor is 0.91, so the bucket is 16, and rounding makes it 17.
    """
    quotient = 16 * np.log(18 / 16) / np.log(128 / 16)
    assert np.isclose(quotient, 0.91, atol=0.005)
    assert reference.t5_bucket(np.array([-18]), bidirectional=False) == 16
    assert gallery.t5_rounded(np.array([-18]), bidirectional=False) == 17
    runs = check(gallery.t5_rounded, "t5_bucket", framework="numpy").runs
    distances = [abs(run.case["arguments"][0]) for run in runs if not run.failed]
    kinds = {
        "small" if d.max() < 8 else "large" if d.min() >= 128 else "between"
        for d in distances
    }
    assert kinds == {"small", "large"}


def test_a_fault_without_a_name(page):
    """The report shows the failing case but names no cause, because no such fault is in its list.

    The angle grows by 1.01 per position where it should grow by 1

    the checker can't name a fault that isn't in its list (exercise 6)
    """
    hasty = page.torch.hasty
    report = check(hasty, "rotary", framework="numpy", only="positions 0 to 4")
    assert report.failures
    assert not report.causes
    rotated = hasty(np.array([[1.0, 0.0]] * 3), np.arange(3))
    assert np.allclose(np.arctan2(rotated[:, 1], rotated[:, 0]), 1.01 * np.arange(3))


def test_an_adapter_for_cos_and_sin(page):
    """The result is the same as for my_rope: 17 cases pass and 26 are skipped.

    The adapter takes base, so the cases with another base are run too.

    It has no frequencies or attention_factor, and the report says which cases that cost.
    """
    adapter = page.torch.adapter
    report = check(adapter, "rotary", settings={"layout": "half"}, framework="numpy")
    assert not report.failures
    assert (len(report.runs), len(report.skipped)) == (17, 26)
    assert "layout half, another base" in names(report.runs)
    assert "skipped, since adapter has no parameter frequencies" in str(report)
    assert "attention_factor" in str(report)
    assert str(report) in page.printed
    x, places = np.random.default_rng(0).normal(size=(2, 5, 8)), np.arange(3, 8)
    assert np.allclose(adapter(x, places), rotate(x, places, layout="half"))


def test_an_edited_table(page):
    """That is the right table for the interleaved layout, but rotate_half still pairs halves.

    The report names the mix: the entries are paired by halves, as we asked, but the angles are laid
    out for neighbors. The result is no longer a rotation, since it doesn't even keep the length of
    the vector.
    """
    edited = page.torch.edited_adapter
    report = check(edited, "rotary", settings={"layout": "half"}, framework="numpy")
    right = {run.case["name"] for run in report.runs} - set(names(report.failures))
    assert right == {"layout half, a pair alone", "layout half, no tokens"}
    assert "angles laid out as in the other layout" in " ".join(str(report).split())
    x, at = np.random.default_rng(0).normal(size=(1, 8)), np.array([3])
    assert not np.isclose(np.linalg.norm(edited(x, at)), np.linalg.norm(x))
    angles = np.repeat(3 * 10000.0 ** (-np.arange(0, 8, 2) / 8), 2)
    pairs = np.stack([-x[:, 1::2], x[:, ::2]], axis=-1).reshape(x.shape)
    assert np.allclose(x * np.cos(angles) + pairs * np.sin(angles), rotate(x, at))
