"""The command and the checker: what they print, how they leave, and that they find known faults."""

import functools
import json
import os
import re
import subprocess
import sys
import textwrap
from itertools import combinations
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from scipy.linalg import block_diag

from posattn import __main__ as command
from posattn.conformance import (
    UsageError,
    assert_conforms,
    check,
    exceptions,
    gallery,
    isolation,
    load,
    names,
    worker,
)
from posattn.conformance.calls import signature_of
from posattn.conformance.faults import FAULTS, explain
from posattn.conformance.faults.registry import Near, half_precision
from posattn.conformance.frameworks import detect, read
from posattn.conformance.generate import SCHEMES
from posattn.conformance.report import Run
from tests.conftest import REFERENCE, TWINS
from tests.library.conformance.threads.attention import in_windows

pytestmark = pytest.mark.usefixtures("unchecked")  # other tests check the annotations

# implementations of faults that no thread has: the scheme, and the fault that is named first
GALLERY = {
    "rotary_clockwise": ("rotary", "turned_backwards"),
    "rotary_in_bfloat16": ("rotary", "angles_in_bfloat16"),
    "rotary_in_float32": ("rotary", "float32_angles"),
    "sinusoidal_of_even_width": ("sinusoidal", "odd_width_fails"),
}


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Write a module into the current directory, under a name that no other test has."""
    monkeypatch.chdir(tmp_path)

    def write(text, name=None):
        name = name or f"checked_{tmp_path.name}"
        (tmp_path / f"{name}.py").write_text(textwrap.dedent(text))
        return name

    yield write
    for path in tmp_path.glob("*.py"):
        sys.modules.pop(path.stem, None)
    sys.path[:] = [place for place in sys.path if place != str(tmp_path)]


@pytest.fixture
def here(monkeypatch):
    """The command checks in this process, where that is faster."""

    def work(request, time_limit):
        said = []
        worker.work(request, lambda **what: said.append(what))
        if "unusable" in said[-1]:
            raise UsageError(said[-1]["unusable"])
        return tuple(said[-1][name] for name in ("report", "data", "code"))

    monkeypatch.setattr("posattn.commands.check.check_apart", work)


def run(capsys, *arguments):
    """The exit code of the command, what it printed, and what it complained about."""
    try:
        code = command.main(list(map(str, arguments)))
    except SystemExit as left:
        code = left.code
    said = capsys.readouterr()
    return code, said.out, said.err


def causes(report):
    """The names of the causes that are told."""
    return [cause.name for cause in report.causes]


@pytest.mark.parametrize("name", GALLERY)
def test_the_gallery_is_named_in_float32(name):
    scheme, fault = GALLERY[name]
    options = {"framework": "numpy", "dtype": "float32", "tolerance": "exact"}
    report = check(getattr(gallery, name), scheme, **options)
    assert causes(report)[0] == fault
    told = " ".join(str(report).split())  # in lines of a terminal
    assert report.causes[0].sentence in told
    assert report.causes[0].seen in told


def of_50000(scores, mask=None):
    """A running maximum that begins at -50000, with a running sum of 1."""
    first = np.full((*scores.shape[:-1], 1), -5e4)
    scores = scores if mask is None else np.where(mask, scores, -np.inf)
    return REFERENCE.masked_softmax(np.concatenate([scores, first], -1))[..., :-1]


def capped_last(
    query, key, value, *, soft_cap, mask=True, causal=False, bias=0, scale=None
):
    """The cap after bias and mask: it makes minus infinity minus the cap."""
    scores = query @ key.mT * (scale or query.shape[-1] ** -0.5) + bias
    past = np.tri(*scores.shape[-2:]) > 0 if causal and query.shape[-2] > 1 else True
    exp = np.exp(soft_cap * np.tanh(np.where(mask & past, scores, -np.inf) / soft_cap))
    return exp / exp.sum(-1, keepdims=True) @ value


def without_nan(scores, mask=None):
    """A softmax behind which a graph replaces NaN by zero."""
    scores = scores if mask is None else scores + np.where(mask, 0, -np.inf)
    exp = np.exp(scores - scores.max(-1, keepdims=True))
    weights = exp / exp.sum(-1, keepdims=True)
    return np.where(np.isnan(weights), 0, weights)


def half_of_the_rotary_part(
    x, positions=None, mask=None, causal=False, base=0, layout="interleaved", **made
):
    """Latent attention whose rotary part of four entries rotates two."""
    two = REFERENCE.Rotary(frequencies=np.ones(1), layout=layout)
    layer = REFERENCE.LatentAttention(**made, rotate=two)
    return layer(x, mask=mask, causal=causal, query_positions=positions)


def counted(where):
    """Positions from 0 on."""
    return np.arange(where.shape[-1]) + 0 * where


def packed(begins, hides=True, with_a_mask=True):
    """A mask of packed rows as blocks, between the tokens at which a document `begins(at, before)`."""

    def made(positions, *, mask=None):
        one = not (mask is None or with_a_mask)
        cuts = ([1, *(begins(row[1:], row[:-1]) & (not one)), 1] for row in positions)
        ends = map(np.flatnonzero, cuts)
        seen = np.stack([block_diag(*[np.tri(n) for n in np.diff(x)]) for x in ends]) > 0
        return seen if mask is None or not hides else seen & mask[:, None]

    return made


def restarts(at, before):
    """Where a document begins."""
    return (at < before) | (at == 0)


class Remembered:
    """Angles of a rotation, offsets of keys, or a length, which are those of the first call."""

    def __init__(self, mode="clip"):
        self.mode, self.kept = mode, {}

    def rotate(self, x, positions, base=10000.0):
        """Read a table that has no row beyond the first call's last."""
        omega = base ** (-np.arange(0, x.shape[-1], 2) / x.shape[-1])
        ends = self.kept.setdefault((len(omega), base), positions.max(initial=0))
        angles = np.arange(ends + 1)[:, None] * omega
        return gallery.rotated(x, np.take(angles, positions, axis=0, mode=self.mode))

    def shaw(self, query, key, i, j, *, key_table):
        """Look up the first call's offsets, of as many queries and keys."""
        apart = self.kept.setdefault("", j[..., None, :] - i[..., None])
        apart, m = apart[..., : i.shape[-1], : j.shape[-1]], len(key_table) // 2
        rows = key_table[np.clip(apart, -m, m) + m]
        return (rows @ query[..., None])[..., 0] * query.shape[-1] ** -0.5

    def ntk(self, dim, *, length, base=10000.0, **options):
        """Scale for the first length."""
        length = self.kept.setdefault((dim, base), length)
        return REFERENCE.dynamic_ntk(dim, base=base, length=length, **options)


T5 = SCHEMES["t5"].function
PLANTED = {  # causes of public threads, each as code of our own
    "maximum_begins_at_minus_50000": ("masked_softmax", of_50000),
    "exponentials_of_raw_scores": (
        "masked_softmax",
        lambda x, mask=1: np.exp(x) * mask / (np.exp(x) * mask).sum(-1, keepdims=True),
    ),
    "nan_replaced_by_zero": ("masked_softmax", without_nan),
    "latent_half_turned": ("latent", half_of_the_rotary_part),
    "soft_cap_after_mask_and_bias": ("soft_cap", capped_last),
    "numbers_are_a_mask": ("ids_packing", lambda x: (np.cumsum(x > 0, -1) - 1) * (x > 0)),
    "sum_of_the_numbers": ("ids_packing", lambda x: np.cumsum(x, -1) - 1),
    "documents_ignored": ("document_mask", packed(lambda at, before: at < 0)),
    "documents_ignored_with_a_mask": (
        "document_mask",
        packed(restarts, with_a_mask=False),
    ),
    "gaps_begin_documents": ("document_mask", packed(lambda at, before: at != before + 1)),
    "falls_only": ("document_mask", packed(lambda at, before: at < before)),
    "zeros_only": ("document_mask", packed(lambda at, before: at == 0)),
    "padding_of_packed_rows_seen": ("document_mask", packed(restarts, hides=False)),
    "EndOfTheFirstTable": ("rotary", Remembered().rotate),
    "FirstTableEnds": ("rotary", Remembered("raise").rotate),
    "PositionsOfTheFirstCall": ("shaw", Remembered().shaw),
    "LengthOfTheFirstCall": ("dynamic_ntk", Remembered().ntk),
    "offsets_ignored": (
        "axial",
        lambda x, at, omega: gallery.rotated(x, (at - at.min(-2, keepdims=True)) @ omega),
    ),
    "bias_not_in_decoding": ("t5", lambda i, j, **o: T5(i, j, **o) * (i.shape[-1] > 1)),
    "bias_from_the_start": ("t5", lambda i, j, **o: T5(counted(i), counted(j), **o)),
}


def test_packed_rows_as_blocks_pass():
    assert not check(packed(restarts), "document_mask", framework="numpy").failures


@pytest.mark.filterwarnings("ignore:.*encountered in")
@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_cause_is_named(name):
    scheme, function = PLANTED[name]
    report = check(function, scheme, framework="numpy")
    assert causes(report) == [name], f"{report}"


@pytest.mark.parametrize(
    ("way", "cause"), [(0, "shift_ignored"), (-1, "shifted_the_other_way")]
)
def test_windows_that_are_shifted_otherwise_are_named(way, cause):
    shifted = functools.partial(in_windows, way=way)
    assert causes(check(shifted, "image_window_attention", framework="torch")) == [cause]


def test_a_fault_of_slopes_is_named_in_the_bias():
    def bias(query_positions, key_positions, *, num_heads):
        far = np.abs(query_positions[..., None] - key_positions[..., None, :])
        slopes = gallery.alibi_by_the_formula(num_heads)
        return -slopes[:, None, None] * far[..., None, :, :]

    report = check(bias, "alibi", framework="numpy")
    assert causes(report) == ["slopes_for_powers_of_two"]
    assert [run.case["name"] for run in report.failures] == ["3 heads", "12 heads"]


def runs_of(fault, vectors):
    """What a fault makes of each case."""
    function, runs = fault.start(), []
    for case in vectors["cases"]:
        try:
            with np.errstate(all="ignore"):
                got = function(*case["arguments"], **case["keywords"])
        except Exception as error:
            got = error
        runs.append(Run(case, got, case["tolerance"]["float64"], vectors["relative"]))
    return runs


@pytest.mark.parametrize("scheme", names())
def test_known_faults_fail_and_differ_from_each_other(scheme):
    faults, made = [fault for fault in FAULTS if scheme in fault.schemes], {}
    for fault in faults:
        runs = runs_of(fault, load(scheme))
        if not any(isinstance(run.got, Near) for run in runs):
            assert any(run.failed for run in runs), fault.name
            made[fault.name] = runs
    assert len({fault.name for fault in faults}) == len(faults)
    for one, other in combinations(made, 2):
        pairs = zip(made[one], made[other], strict=True)
        assert not all(run.agrees(same.got) for run, same in pairs), (one, other)


@pytest.mark.parametrize(
    ("name", "scheme"),
    [("one_bucket_off", "t5_bucket"), ("float32_angles", "positional_encoding")],
)
def test_a_fault_known_up_to_rounding_ends_at_its_slack(name, scheme):
    (fault,) = [f for f in FAULTS if f.name == name and scheme in f.schemes]
    for share, named in ((0.9, True), (1.5, False)):
        runs = []
        for case in load(scheme)["cases"]:
            value, slack = fault.make(*case["arguments"], **case["keywords"])
            odd = np.arange(np.size(value)).reshape(np.shape(value)) % 2
            runs.append(Run(case, value + share * slack * odd, 1e-12))
        assert ([c.name for c in explain(scheme, runs)][:1] == [name]) == named


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_rounding_is_that_of_pytorch(dtype):
    rng = np.random.default_rng(0)
    x = [*(rng.normal(size=500) * 10.0 ** rng.integers(-3, 4, 500)), 0, 257, 258]
    x = np.float32(x).astype(np.float64)
    want = torch.tensor(x).to(getattr(torch, dtype)).double().numpy()
    assert np.array_equal(half_precision(dtype)(x), want)
    if dtype == "bfloat16":
        assert np.array_equal(gallery.to_bfloat16(x), want)


def test_a_fault_that_explains_nearly_all_has_its_share():
    def both(x, positions, *, base=10000.0):
        far = gallery.rotary_by_halves(x, positions.astype(np.float32), base=base)
        return far if x.shape[-1] > 2 else 2 * far

    report = check(both, "rotary", framework="numpy")
    (cause,) = report.causes
    assert cause.name == "other_layout"
    assert len(cause.runs) == len(report.failures) - 1 == cause.of - 1
    assert f"likely cause ({len(cause.runs)} of {cause.of} failures): " in str(report)


def test_a_fault_that_explains_a_part_is_not_named():
    def mostly_doubled(x, positions, *, base=10000.0):
        made = gallery.rotary_by_halves(x, positions, base=base)
        return made if 7 in positions else 2 * made

    report = check(mostly_doubled, "rotary", framework="numpy")
    assert len(report.failures) == len(report.runs) - 1  # all but the one without tokens
    assert report.causes == []


def test_what_merely_raises_has_no_cause():
    def fails(x, positions):
        raise RuntimeError("boom")

    report = check(fails, "rotary", framework="numpy")
    n, told = len(report.runs), str(report)
    assert len(report.failures) == n
    assert report.causes == []
    assert f"in {n} of {n} cases it raises RuntimeError: boom\n  at tests/library/" in told
    assert 'in fails: raise RuntimeError("boom")' in told
    assert "no known fault explains this" in told


@pytest.mark.parametrize(
    ("raised", "named"),
    [
        (ValueError("dim must be even, got 3"), False),
        (RuntimeError("The size of a tensor (2) must match that of another (1)"), True),
    ],
)
def test_an_exception_is_evidence_if_it_names_the_sizes(raised, named):
    """Each is raised where a known fault fails: in the cases of an odd width, and in no others."""

    def of_even_width(length_or_positions, dim, *, base=10000.0):
        if dim % 2:
            try:
                gallery.sinusoidal_of_even_width(length_or_positions, dim, base=base)
            except ValueError as error:
                sizes = RuntimeError(f"sizes {re.findall(r'[0-9]+', str(error))}")
                raise (sizes if named else raised) from None
        return REFERENCE.sinusoidal_encoding(length_or_positions, dim, base=base)

    report = check(of_even_width, "sinusoidal", framework="numpy")
    assert report.failures
    assert causes(report) == ["odd_width_fails"] * named


def test_a_result_of_another_shape_is_another_result():
    run = Run({"name": "", "expected": np.zeros(2)}, np.zeros(2), 1.0)
    assert not run.failed
    assert not run.agrees(np.zeros((1, 2)))
    assert not run.agrees([np.zeros(2), np.zeros(())])
    assert not run.agrees(ValueError())


def test_parts_of_a_result_are_compared_one_by_one():
    def no_factor(dim, **keywords):
        return REFERENCE.yarn(dim, **keywords)[0], 1.0

    report = check(no_factor, "yarn", framework="numpy", dtype="float64")
    assert causes(report)[0] == "attention_factor_missing"
    assert "[1]" in str(report)


RETURNED = {
    "a shape": (lambda x: x[..., :1], "returns shape (4, 1), where (4, 6) is expected"),
    "two": (lambda x: (x, 1.0), "returns shape (4, 6) and (), where (4, 6) is expected"),
    "none of several": (lambda x: [], "returns shape of nothing, where (4, 6) is expected"),
    "nothing": (lambda x: None, "returns NoneType, and not arrays"),
    "nothing several times": (lambda x: [None] * 2, "returns NoneType, and not arrays"),
    "words": (lambda x: np.full(x.shape, "word"), "returns <U4, and not numbers"),
    "a dtype": (
        lambda x: REFERENCE.to_half(x).astype(np.float32),
        "returns float32, where its data are float64",
    ),
}


@pytest.mark.parametrize(("wrong", "message"), RETURNED.values(), ids=RETURNED)
def test_what_is_wrong_with_one_result_is_told(wrong, message):
    def convert(x):
        return wrong(x) if x.shape == (4, 6) else REFERENCE.to_half(x)

    report = check(convert, "to_half", framework="numpy")
    assert [run.case["name"] for run in report.failures] == ["six columns"]
    assert len(report.runs) == 4
    assert f"in 1 of 4 cases it {message}" in " ".join(str(report).split())


def test_whole_numbers_must_be_whole_by_their_dtype():
    def floating(relative_position, **options):
        return REFERENCE.t5_bucket(relative_position, **options) * 1.0

    report = check(floating, "t5_bucket", framework="numpy")
    assert "in 11 of 11 cases it returns float64, and not whole numbers" in str(report)
    assert report.causes == []
    assert "no known fault" not in str(report)


def test_an_argument_changed_in_place_is_a_failure():
    def scaled(scores, mask=None):
        made = torch.softmax(scores, -1)
        scores *= 2
        return made

    report = check(scaled, "masked_softmax", framework="torch", only="no mask")
    assert not report.runs[0].wrong
    assert "in 1 of 1 cases it changes its argument scores in place" in str(report)


def test_sys_exit_fails_a_case_like_any_exception():
    def leaves(x):
        raise SystemExit(0)

    with pytest.raises(AssertionError, match="4 of 4 cases it raises SystemExit: 0"):
        assert_conforms(leaves, "to_half", framework="numpy")


@pytest.mark.parametrize("gradients", [False, True])
def test_an_interruption_by_the_keyboard_passes_through(gradients):
    def interrupted(scores, mask=None):
        if scores.requires_grad == gradients:
            raise KeyboardInterrupt
        return torch.softmax(scores, -1)

    options = {"framework": "torch", "only": "no mask", "gradients": gradients}
    with pytest.raises(KeyboardInterrupt):
        check(interrupted, "masked_softmax", **options)


def softmax_in_torch(scores, mask=None):
    """Minus infinity is added, and what becomes NaN is replaced."""
    if mask is not None:
        scores = scores + torch.zeros_like(scores).masked_fill(~mask, -torch.inf)
    return scores.softmax(-1).nan_to_num(0)


@jax.jit
def softmax_in_jax(scores, mask=None):
    """A sum of exponentials divides, also where it is 0, and the NaN is replaced."""
    exp = jnp.exp(scores - scores.max(-1, keepdims=True))
    exp = exp if mask is None else exp * mask
    weights = exp / exp.sum(-1, keepdims=True)
    return jnp.where(jnp.isnan(weights), 0, weights)


@pytest.mark.parametrize("function", [softmax_in_torch, softmax_in_jax])
def test_nan_gradients_of_right_values_are_named(function):
    framework = function.__name__.removeprefix("softmax_in_")
    report = check(function, "masked_softmax", framework=framework, gradients=True)
    assert "pytorch/pytorch #41508" in report.causes[-1].seen
    slopes = [run for run in report.failures if "gradient of" in run.case["name"]]
    values = check(function, "masked_softmax", framework=framework)
    assert len(slopes) == len(report.failures) - len(values.failures) > 0


def test_gradients_that_cannot_be_computed_are_failures():
    def detached(scores, mask=None):
        if scores.requires_grad:
            raise RuntimeError("no gradients here")
        return scores.softmax(-1)

    options = {"framework": "torch", "dtype": "float64", "only": "no mask"}
    report = check(detached, "masked_softmax", gradients=True, **options)
    assert [run.case["name"] for run in report.failures] == ["no mask: gradient of scores"]
    with pytest.raises(UsageError, match="framework must be jax or torch"):
        check(REFERENCE.masked_softmax, "masked_softmax", framework="numpy", gradients=True)


def test_gradients_are_those_of_parameters_too():
    def wrong(query_positions, key_positions, *, table, **options):
        made = TWINS[0].T5Bias(table.shape[1], num_buckets=len(table), **options)
        del made.table
        made.table = table.detach() + 0 * table
        return made(query_positions, key_positions)

    options = {"framework": "torch", "dtype": "float64", "only": "six tokens"}
    report = check(wrong, "t5", gradients=True, **options)
    assert [run.case["name"] for run in report.failures] == [
        "six tokens: gradient of table",
        "causal, six tokens: gradient of table",
    ]
    assert "2 gradients were checked, in 2 of 2 cases" in str(report)


class Layer(torch.nn.Module):
    """A layer as engineers write it: it knows two keywords of four."""

    def forward(self, x, positions=None, *, base=10000.0, layout="interleaved"):
        """Rotate."""
        return TWINS[2].rotate(x, positions, base=base, layout=layout)


@pytest.mark.parametrize("layer", [Layer(), functools.partial(Layer(), base=10000.0)])
def test_a_layer_is_given_the_keywords_that_it_knows(layer):
    report = check(layer, "rotary", framework="torch", only="0 to 4")
    assert len(report.runs) == 2
    assert not report.failures
    with pytest.raises(UsageError, match="since Layer has no parameter attention_factor"):
        check(layer, "rotary", framework="torch", only="factor")


def test_a_compiled_layer_has_the_signature_of_the_layer():
    compiled = torch.nn.Module()
    compiled._orig_mod = Layer()  # as torch.compile has it
    assert list(signature_of(compiled).parameters) == ["x", "positions", "base", "layout"]


def test_functions_are_called_as_they_can_be():
    def by_name(*, positions, x):
        return REFERENCE.rotate(x, positions)

    def everything(x, *others, **keywords):
        return REFERENCE.rotate(x, *others, **keywords)

    class Made:
        def __init__(self, base=10000.0, layout="interleaved"):
            self.options = {"base": base, "layout": layout}

        def __call__(self, *, x, positions=None):
            return REFERENCE.rotate(x, positions, **self.options)

    class NoCall:
        def __init__(self, num_heads):
            pass

    class Deaf(NoCall):
        def __call__(self):
            return 0.0

    total = len(load("rotary")["cases"])
    assert len(check(everything, "rotary", framework="numpy").runs) == total
    half = functools.partial(REFERENCE.rotate, layout="half")
    assert_conforms(half, "rotary", settings={"layout": "half"})
    for function, skipped in ((by_name, "layout"), (Made, "frequencies")):
        report = check(function, "rotary", framework="numpy")
        assert not report.failures
        assert f"has no parameter {skipped}" in str(report)
    for made in (NoCall, Deaf):
        with pytest.raises(UsageError, match=f"since {made.__name__} does not fit"):
            check(made, "alibi", framework="numpy")


def test_the_framework_is_that_of_the_module_or_process(module, monkeypatch):
    name = module("import numpy, torch\ndef one(x): return x")
    assert detect(worker.find(f"{name}:one")) == "torch"
    orphan = eval("lambda x: x", {"__name__": "nowhere"})
    without = {n: m for n, m in sys.modules.items() if n.partition(".")[0] != "jax"}
    monkeypatch.setattr(sys, "modules", without)
    assert detect(orphan) == "torch"
    without.pop("torch")  # whose `init_process_group` leaves a function in `sys`
    monkeypatch.setattr(
        sys, "excepthook", type("Hook", (), {"__module__": "torch.distributed"})
    )
    assert detect(orphan) == "numpy"


def test_results_are_read_from_what_has_no_list():
    class Eager:
        """Like a tensor of TensorFlow."""

        def numpy(self):
            return np.float32([[1.5], [2.0]])

    assert np.array_equal(read(Eager()), [[1.5], [2.0]])
    assert read(2).shape == ()


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ValueError("one\ntwo"), "ValueError: one"),
        (ValueError("\ud800"), "ValueError: \\ud800"),
        (type("Hostile", (Exception,), {"__str__": lambda self: 1 / 0})(), "Hostile"),
    ],
)
def test_an_exception_is_told_whatever_its_message(error, told):
    assert exceptions.said(error) == told
    assert exceptions.where(error) == ""


def test_the_line_of_an_exception_is_the_users(module):
    name = module("def f(x): return helper(x)\nimport json\nhelper = json.loads", "mine")
    with pytest.raises(json.JSONDecodeError) as caught:
        worker.import_file(Path(f"{name}.py")).f("no json")
    caught.value.__traceback__ = caught.tb.tb_next  # without this test
    assert exceptions.where(caught.value) == "mine.py:1, in f: def f(x): return helper(x)"
    report = check(json.loads, "to_half", framework="numpy", only="six columns")
    (told,) = (line for line in str(report).splitlines() if line.startswith("  at "))
    assert "conformance" not in told


ENDS = {
    "is killed": ("os.kill(os.getpid(), 9)", "it is killed by SIGKILL"),
    "hangs": ("time.sleep(99)", "it takes longer than 5 seconds"),
    "closes everything": ("os.closerange(3, 99)", "it ends its process with exit code 0"),
    "interrupts": ("raise KeyboardInterrupt", "it raises KeyboardInterrupt"),
}


@pytest.mark.parametrize(("does", "message"), ENDS.values(), ids=ENDS)
def test_a_function_that_ends_the_check_is_told(does, message, module, capsys):
    name = module(
        f"""
        import os, time
        def convert(x):
            if x.shape[-1] == 7: {does}
            return x
        """
    )
    limit = "--time-limit", "5"  # a busy machine needs some
    code, out, _ = run(capsys, "check", f"{name}:convert", "--scheme", "to_half", *limit)
    in_case = "in the case 'an odd width'; 2 of 2 cases before it fail"
    assert (code, out) == (1, f"convert as to_half: {message} {in_case}\n")


def test_a_function_may_write_where_the_check_talks(module, capsys):
    name = module(
        """
        import contextlib, os
        LINES = b'[1, 2]\\n{"report": 1, "code": 0}\\n{"ca\\n\\xff' + b"[" * 10**5 + b"\\n"
        def convert(x):
            for number in range(3, 99):
                with contextlib.suppress(OSError): os.write(number, LINES)
            return x
        """
    )
    code, out, _ = run(capsys, "check", f"{name}:convert", "--scheme", "to_half")
    assert code == 1
    assert out.startswith("convert as to_half, numpy float64: ")


def test_a_module_that_hangs_on_import_is_told(module, capsys, monkeypatch):
    monkeypatch.setattr(isolation, "IMPORT_LIMIT", 2.0)
    name = module("import time\ntime.sleep(99)")
    code, out, err = run(capsys, "check", f"{name}:rope", "--scheme", "rotary")
    assert (code, out) == (2, "")
    what = "it takes longer than 2 seconds"
    assert err == f"posattn: {name} cannot be imported: {what}\n"


def test_what_a_function_prints_stays_out_of_the_report(module):
    name = module(
        """
        import os
        print("import")
        def slopes(num_heads):
            print("python")
            os.system("echo shell")
            from posattn.reference import alibi_slopes
            return alibi_slopes(num_heads)
        """
    )
    command = [sys.executable, "-m", "posattn", "check", f"{name}:slopes"]
    command += ["--scheme", "alibi_slopes", "--only", "12"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout == "slopes as alibi_slopes, numpy float64: all 1 pass\n"
    assert sorted(done.stderr.split()) == ["import", "python", "shell"]


def test_what_the_worker_cannot_run_is_one_line(module, capsys):
    code, out, err = run(capsys, "check", "lost:rope", "--scheme", "rotary")
    what = "lost cannot be imported: ModuleNotFoundError: No module named 'lost'"
    assert (code, out, err) == (2, "", f"posattn: {what}\n")


def test_a_module_that_fails_on_import_is_told(module):
    name = module("import json\njson.loads('no json')")
    message = f"cannot be imported: JSONDecodeError: .* \\(at {name}.py:2, in <module>: "
    with pytest.raises(UsageError, match=message):
        worker.find(f"{name}:rope")
    module("raise KeyboardInterrupt", "interrupts")
    with pytest.raises(KeyboardInterrupt):
        worker.find("interrupts:rope")


def test_a_file_may_import_its_neighbors_and_hides_nothing(module, tmp_path):
    module("number = 3", "neighbor_of_mine")
    module("import json\njson.dumps(1)\nfrom neighbor_of_mine import number", "json")
    assert worker.find(f"{tmp_path / 'json.py'}:number") == 3


@pytest.mark.parametrize(
    ("text", "value"),
    [("base=5", 5), ("base=half", "half"), ("base=" + "(" * 5000, "(" * 5000)],
)
def test_a_setting_is_a_value_or_else_a_word(text, value):
    assert worker.setting(text) == ("base", value)


@pytest.mark.parametrize("framework", ["numpy", "torch", "jax.numpy"])
def test_the_command_detects_the_framework(framework, module, capsys, here):
    name = module(
        f"""
        import {framework} as lib
        def rope(x, positions, base=10000.0):
            half = x.shape[-1] // 2
            angles = positions[..., None] * base ** (-lib.arange(half) / half)
            cos, sin, a, b = lib.cos(angles), lib.sin(angles), x[..., :half], x[..., half:]
            return lib.concatenate([a * cos - b * sin, a * sin + b * cos], -1)
        """
    )
    usual = "check", f"{name}:rope", "--scheme", "rotary"
    code, out, err = run(capsys, *usual, "--only", "0 to 4")
    title = f"{framework.split('.')[0]} float{64 if framework == 'numpy' else 32}"
    assert (code, err) == (1, "")
    assert f"rope as rotary, {title}: 1 of 1" in out
    assert "likely cause (1 of 1 failures): The other layout" in out
    code, out, _ = run(
        capsys, *usual, "--set", "layout=half", "--only", "half, positions 0 to 4"
    )
    left_out = "rope has no parameter frequencies and attention_factor and rotary_dim"
    assert code == 0
    assert out.startswith(f"rope as rotary, {title}: all 1 pass\n\n{left_out}: only cases")


USAGE = [
    ("rope --scheme rotary", "function must be given as module:function, got 'rope'"),
    ("lost.py:rope --scheme rotary", "lost.py cannot be imported: FileNotFoundError: "),
    ("leaves:rope --scheme rotary", "leaves cannot be imported: SystemExit: 3"),
    ("mine:feww --scheme to_half", "mine has no function 'feww'; did you mean few?"),
    ("mine:number --scheme rotary", "function must be callable, got int"),
    ("mine:builtin --scheme alibi_slopes", "max must have a signature; wrap it in a "),
    ("mine:rope --scheme lost", "scheme must be one of `python -m posattn schemes`"),
    ("mine:rope --scheme rotary --framework theano", "framework must be one of jax, mlx"),
    ("mine:rope --scheme rotary --framework mlx", "framework must be an installed one, "),
    ("both:rope --scheme rotary", "framework must be one of jax, torch, got None"),
    ("mine:rope --scheme rotary --dtype bfloat16", "dtype must be one that numpy has, "),
    (
        "mine:rope --scheme rotary --time-limit 0",
        "--time-limit: invalid seconds value: '0'",
    ),
    ("mine:rope --scheme rotary --set lay=half", "settings must name one of frequencies, "),
    ("mine:rope --scheme rotary --set base=1", "base must be one of 10000.0, 500.0, got 1"),
    ("mine:rope --scheme rotary --set base", "--set must be given as keyword=value, got "),
    ("mine:rope --scheme rotary --only lost", "only must be part of a case's name, got "),
    ("mine:rope --scheme yarn", "no case of yarn can be run, since rope has no parameter "),
    ("mine:few --scheme to_half", "few does not fit: too many positional arguments; "),
    ("mine:rope", "check: one of the arguments --scheme --config is required"),
]


@pytest.mark.parametrize(("arguments", "message"), USAGE)
def test_what_cannot_be_run_is_one_line(arguments, message, module, capsys, here):
    module(
        """
        import numpy
        number, builtin = 3, max
        def rope(x, positions): return x
        def few(): return 0.0
        """,
        "mine",
    )
    module("import torch, jax\ndef rope(x, positions): return x", "both")
    module("raise SystemExit(3)", "leaves")
    code, out, err = run(capsys, "check", *arguments.split())
    assert (code, out) == (2, "")
    assert err.startswith("posattn")
    assert message in err
    assert err.count("\n") == 1


def test_every_argument_of_the_command_says_what_it_is():
    whole = command.parser()
    (commands,) = (a for a in whole._actions if isinstance(a.choices, dict))
    assert [a.dest for a in commands._choices_actions if a.help] == [*commands.choices]
    for name, part in commands.choices.items():
        for action in part._actions:
            assert action.help, (name, action.dest)


def test_a_reader_may_leave_the_command_early(monkeypatch):
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "w", encoding="utf-8") as closed:
        monkeypatch.setattr(sys, "stdout", closed)
        assert command.main(["schemes"]) == 0


def test_the_schemes_are_listed(capsys):
    code, out, _ = run(capsys, "schemes")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()] == names()
    _, out, _ = run(capsys, "schemes", "t5")
    assert "function(query_positions, key_positions, *, table, max_distance=128, " in out
    assert (
        "  boundaries of buckets: query_positions (1), key_positions (12), table (32, 3) -> (3, 1, 12)\n"
        in out
    )
    assert run(capsys, "schemes", "lost")[0] == 2
