"""The command and the checker: what they print, how they leave, and that they find known faults."""

import asyncio
import functools
import inspect
import json
import os
import re
import runpy
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.special import softmax

from posattn import __main__ as command
from posattn.conformance import (
    UsageError,
    assert_conforms,
    check,
    exceptions,
    gallery,
    generate,
    isolation,
    load,
    names,
    worker,
)
from posattn.conformance.calls import signature_of
from posattn.conformance.faults import FAULTS, angles, bias, explain
from posattn.conformance.faults.registry import Near, half_precision
from posattn.conformance.frameworks import read
from posattn.conformance.generate import SCHEMES
from posattn.conformance.report import Run, wrapped
from tests.conftest import REFERENCE, TWINS
from tests.library.faults import deviations, nan_gradients

pytestmark = pytest.mark.usefixtures("unchecked")  # other tests check the annotations

# the implementation of a fault, the scheme that it should be, and the fault that is named first
GALLERY = {
    "alibi_by_the_formula": ("alibi_slopes", "slopes_for_powers_of_two"),
    "attention_from_the_start": ("attention", "causal_from_the_start"),
    "attention_of_nan": ("attention", "empty_rows_are_nan"),
    "attention_of_the_hidden": ("attention", "mask_inverted"),
    "attention_of_the_mean": ("attention", "empty_rows_are_the_mean"),
    "cache_by_half_the_width": ("rotary", "CacheOfHalfTheWidth"),
    "cache_by_length": ("rotary", "CacheWithoutOffset"),
    "cache_by_width": ("rotary", "CacheWithoutBase"),
    "encoding_along_the_batch": ("positional_encoding", "wrong_axis"),
    "ntk_of_the_longest": ("dynamic_ntk", "NeverReset"),
    "rotary_back_in_halves": ("rotary", "pairs_come_back_in_the_other_layout"),
    "rotary_by_halves": ("rotary", "other_layout"),
    "rotary_clockwise": ("rotary", "turned_backwards"),
    "rotary_from_zero": ("rotary", "positions_ignored"),
    "rotary_in_bfloat16": ("rotary", "angles_in_bfloat16"),
    "rotary_in_float16": ("rotary", "angles_in_float16"),
    "rotary_in_float32": ("rotary", "float32_angles"),
    "rotary_of_eight_heads": ("rotary", "frequencies_of_8_heads"),
    "rotary_of_mixed_layouts": ("rotary", "layouts_mixed_the_other_way"),
    "rotary_of_the_model": ("rotary", "frequencies_of_width_512"),
    "rotary_with_slow_frequencies": ("rotary", "exponent_of_the_pair"),
    "scores_of_mixed_layouts": ("rotary_scores", "layouts_differ"),
    "sinusoidal_in_halves": ("sinusoidal", "all_sines_first"),
    "sinusoidal_of_even_width": ("sinusoidal", "odd_width_fails"),
    "t5_in_float32": ("t5_bucket", "logarithm_in_float32"),
    "t5_of_the_query": ("t5_bucket", "past_and_future_exchanged"),
    "t5_rounded": ("t5_bucket", "logarithm_rounded"),
}
ROPE = """
    import {framework}

    def rope(x, positions, base=10000.0):
        half = x.shape[-1] // 2
        frequencies = base ** (-{arange}(half) / half)
        angles = positions[..., None] * frequencies
        cos, sin = {module}.cos(angles), {module}.sin(angles)
        a, b = x[..., :half], x[..., half:]
        return {concatenate}([a * cos - b * sin, a * sin + b * cos], -1)
"""
DIALECTS = {
    "numpy": ("numpy", "numpy.arange", "numpy.concatenate"),
    "torch": ("torch", "torch.arange", "torch.cat"),
    "jax": ("jax.numpy", "jax.numpy.arange", "jax.numpy.concatenate"),
}
named_in_gallery = pytest.mark.parametrize("name", GALLERY)


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


def run(capsys, *arguments):
    """The exit code of the command, what it printed, and what it complained about."""
    try:
        code = command.main(list(map(str, arguments)))
    except SystemExit as left:
        code = left.code
    said = capsys.readouterr()
    return code, said.out, said.err


def fresh(name):
    """An entry of the gallery before its first call."""
    entry = getattr(gallery, name)
    return entry if hasattr(entry, "__code__") else type(entry)()


@named_in_gallery
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_checker_names_the_fault(name, dtype):
    scheme, fault = GALLERY[name]
    report = check(fresh(name), scheme, framework="numpy", dtype=dtype)
    assert report.causes[0].name == fault
    told = " ".join(str(report).split())  # in lines of a terminal
    assert report.causes[0].sentence in told
    assert report.causes[0].seen in told


def test_every_entry_of_the_gallery_is_checked():
    helpers = {"angles", "rotated", "to_bfloat16", "bucket", "attend", "softmax_of"}
    entries = {name for name, thing in vars(gallery).items() if callable(thing)}
    entries = {name for name in entries if name.islower() and name != "softmax_or_zero"}
    assert entries - helpers == set(GALLERY)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("function", "scheme", "framework"),
    [
        (nan_gradients.softmax_in_torch, "masked_softmax", None),
        (nan_gradients.softmax_in_jax, "masked_softmax", "jax"),
        (nan_gradients.with_jit, "masked_softmax", "jax"),
        (nan_gradients.attention_in_torch, "attention", "torch"),
    ],
)
def test_gradients_are_checked_and_named(function, scheme, framework):
    framework = framework or "torch"
    report = check(function, scheme, framework=framework, gradients=True)
    assert "slopes" in report.causes[-1].name or "gradients" in report.causes[-1].name
    assert "pytorch/pytorch #41508" in report.causes[-1].seen
    values = check(function, scheme, framework=framework)
    assert len(values.failures) < len(report.failures)


def test_gradients_of_wrong_values_are_not_checked():
    def doubled(scores, mask=None):
        return 2 * nan_gradients.softmax_in_torch(scores, mask)

    report = check(doubled, "masked_softmax", framework="torch", gradients=True)
    assert len(report.runs) == len(load("masked_softmax")["cases"])


def test_gradients_that_cannot_be_computed_are_failures():
    def detached(scores, mask=None):
        def refuse(_):
            raise RuntimeError("no gradients here")

        made = REFERENCE.masked_softmax(scores.detach().numpy(), mask)
        return torch.from_numpy(made) if not scores.requires_grad else refuse(made)

    torch_softmax = functools.partial(detached)
    with pytest.raises(
        UsageError, match="framework must be jax or torch to check gradients"
    ):
        check(REFERENCE.masked_softmax, "masked_softmax", framework="numpy", gradients=True)
    options = {"framework": "torch", "dtype": "float64", "only": "no mask"}
    report = check(torch_softmax, "masked_softmax", gradients=True, **options)
    assert [run.case["name"] for run in report.failures] == ["no mask: gradient of scores"]
    assert "no known fault explains this" in str(report)


def threads(seen):
    """Where a fault was seen: each thread with its repository, which is written once for several."""
    found = []
    for place in filter(None, seen.split(", ")):
        found.append(f"{found[-1].split(' ')[0]} {place}" if place[0] == "#" else place)
    return found


def test_a_fault_was_seen_where_it_says():
    """Every thread was read: its title, and the faults that it shows."""
    read = json.loads(Path("tests/library/faults/threads.json").read_text("utf-8"))
    said = {thread: set() for fault in FAULTS for thread in threads(fault.seen)}
    for fault in FAULTS:
        for thread in threads(fault.seen):
            said[thread].add(fault.name)
    assert said == {thread: set(entry["faults"]) for thread, entry in read.items()}


@named_in_gallery
def test_an_entry_of_the_gallery_has_the_defaults_of_its_scheme(name):
    """A fault is in what an entry computes, and not in what it takes when nothing is given."""
    scheme, _ = GALLERY[name]
    right = inspect.signature(SCHEMES[scheme].function).parameters
    for own, parameter in inspect.signature(fresh(name)).parameters.items():
        if own in right and inspect.Parameter.empty not in (
            parameter.default,
            right[own].default,
        ):
            assert parameter.default == right[own].default, own


@named_in_gallery
def test_the_gallery_names_the_threads_of_its_fault(name):
    named = set(re.findall(r"[\w-]+/[\w-]+(?= #\d)|#\d+", getattr(gallery, name).__doc__))
    seen = [fault.seen for fault in FAULTS if fault.name == GALLERY[name][1]]
    assert named <= set(re.findall(r"[\w/-]+/[\w-]+|#\d+", seen[0]))


def test_float32_falls_short_where_a_logarithm_is_an_integer():
    (fault,) = [
        f for f in FAULTS if (f.name, *f.schemes) == ("logarithm_in_float32", "t5_bucket")
    ]
    _, slack = fault.start()(np.arange(-200, 200))
    assert np.flatnonzero(slack).tolist() == [72, 136, 168, 184, 216, 232, 264, 328]


def test_a_long_note_goes_on_below_itself():
    first, *others = wrapped("a half-precision note " * 9).splitlines()
    assert first.startswith("a half-precision")
    assert others
    assert all(re.match("  [a-z]", line) for line in others)


def exact(fault, scheme):
    """Whether a fault returns numbers that can be compared."""
    made = fault.start()
    for case in load(scheme)["cases"]:
        try:
            with np.errstate(all="ignore"):
                value = made(*case["arguments"], **case["keywords"])
        except Exception:
            continue
        if isinstance(value, Near):
            return False
    return True


@pytest.mark.slow
@pytest.mark.parametrize("scheme", names())
def test_every_fault_of_a_scheme_is_found_and_named(scheme):
    """A fault is checked like a function of somebody's, and is the first to be named."""
    faults = [fault for fault in FAULTS if scheme in fault.schemes]
    assert len({fault.name for fault in faults}) == len(faults)
    for fault in faults:
        assert len(fault.sentence) <= 110
        if exact(fault, scheme):
            with np.errstate(all="ignore"):
                report = check(fault.start(), scheme, framework="numpy", dtype="float64")
            assert report.causes[0].name == fault.name


@pytest.mark.parametrize("scheme", names())
def test_a_fault_is_as_wrong_as_it_was(scheme):
    """If it should not be: `python -m tests.library.faults.deviations`, and read the difference."""
    noted = json.loads(deviations.NOTED.read_text("utf-8"))
    assert deviations.deviations(scheme) == noted[scheme]
    assert set(noted) == set(names())


@pytest.mark.parametrize(
    ("fault", "scheme"),
    [
        (bias.one_bucket_off, "t5_bucket"),
        (bias.logarithm_in_float32, "t5"),
        (angles.angles_in_float32, "sinusoidal"),
        (angles.float32_angles, "positional_encoding"),
        (angles.float32_angles, "xpos_key"),
    ],
    ids=lambda x: getattr(x, "__name__", x),
)
def test_a_fault_known_up_to_rounding_is_named_within_its_slack_only(fault, scheme):
    entered = next(f for f in FAULTS if f.name == fault.__name__ and scheme in f.schemes)
    for share, named in ((0.9, True), (1.5, False)):
        runs = []
        for case in load(scheme)["cases"]:
            value, slack = entered.make(*case["arguments"], **case["keywords"])
            scale = 1 + np.arange(np.size(value)).reshape(np.shape(value)) % 2
            runs.append(Run(case, value + share * slack * (scale - 1), 1e-12))
        causes = [cause.name for cause in explain(scheme, runs)]
        assert (causes[:1] == [entered.name]) == named, causes


def test_what_has_another_shape_is_something_else():
    run = Run({"name": "", "expected": np.zeros(2)}, np.zeros(2), 1.0)
    assert not run.failed
    assert not run.agrees(np.zeros((1, 2)))
    assert not run.agrees([np.zeros(2), np.zeros(())])
    assert not run.agrees(ValueError())


def test_a_fault_that_explains_nearly_all_is_named_with_its_share():
    def both(x, positions, *, base=10000.0):
        where = positions.astype(np.float32)
        far = gallery.rotary_by_halves(x, where, base=base)
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
    assert (
        len(report.failures) == len(report.runs) - 1 > 10
    )  # all but the one without tokens
    assert report.causes == []


@pytest.mark.parametrize(
    ("raised", "named"),
    [
        (RuntimeError("boom"), False),
        (ValueError("dim must be even, got 3"), False),
        (RuntimeError("The size of a tensor (2) must match that of another (1)"), True),
    ],
)
def test_an_exception_is_evidence_only_if_it_names_the_same_sizes(raised, named):
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
    assert [cause.name for cause in report.causes] == ["odd_width_fails"] * named


@pytest.mark.parametrize("left", [SystemExit(0), GeneratorExit(), asyncio.CancelledError()])
def test_what_is_no_exception_proper_fails_a_case_all_the_same(left):
    def leaves(x):
        raise left

    with pytest.raises(AssertionError, match=f"raises {type(left).__name__}"):
        assert_conforms(leaves, "to_half", framework="numpy")


@pytest.mark.parametrize("gradients", [False, True])
def test_an_interruption_by_the_keyboard_is_none_of_the_checker(gradients):
    def interrupted(scores, mask=None):
        if scores.requires_grad == gradients:
            raise KeyboardInterrupt
        return torch.softmax(scores, -1)

    options = {"framework": "torch", "only": "no mask", "gradients": gradients}
    with pytest.raises(KeyboardInterrupt):
        check(interrupted, "masked_softmax", **options)


RETURNED = {
    "a shape": (lambda x: x[..., :1], "returns shape (4, 1), where (4, 6) is expected"),
    "several": (
        lambda x: (x, 1.0),
        "returns shape (4, 6) and (), where (4, 6) is expected",
    ),
    "none of several": (lambda x: [], "returns shape of nothing, where (4, 6) is expected"),
    "nothing": (lambda x: None, "returns NoneType, and not arrays"),
    "words": (lambda x: np.full(x.shape, "word"), "returns <U4, and not numbers"),
    "a dtype": (
        lambda x: REFERENCE.to_half(x).astype(np.float32),
        "returns float32, where its data are float64",
    ),
}


@pytest.mark.parametrize(("wrong", "message"), RETURNED.values(), ids=RETURNED)
def test_what_is_wrong_with_one_result_is_told_and_the_others_are_checked(wrong, message):
    def convert(x):
        return wrong(x) if x.shape == (4, 6) else REFERENCE.to_half(x)

    report = check(convert, "to_half", framework="numpy")
    assert [run.case["name"] for run in report.failures] == ["six columns"]
    assert len(report.runs) == 4
    told = str(report)
    assert re.search(f"six columns +{re.escape(message)}\n", told)
    assert f"in 1 of 4 cases it {message}" in " ".join(told.split())


def test_numbers_that_are_whole_must_be_so_by_their_dtype():
    def floating(relative_position, **options):
        return REFERENCE.t5_bucket(relative_position, **options) * 1.0

    report = check(floating, "t5_bucket", framework="numpy")
    assert "in 11 of 11 cases it returns float64, and not whole numbers" in str(report)
    assert report.causes == []
    assert "no known fault" not in str(report)


@pytest.mark.parametrize("framework", ["numpy", "torch"])
def test_an_argument_that_is_changed_in_place_is_a_failure(framework):
    def scaled(scores, mask=None):
        made = scores / 1
        scores *= 2
        return torch.softmax(made, -1) if framework == "torch" else softmax(made, -1)

    report = check(scaled, "masked_softmax", framework=framework, only="no mask")
    assert not report.runs[0].wrong
    assert "in 1 of 1 cases it changes its argument scores in place" in str(report)


class Layer(torch.nn.Module):
    """A layer as engineers write it: it knows two keywords of four."""

    def forward(self, x, positions=None, *, base=10000.0, layout="interleaved"):
        """Rotate."""
        return TWINS[2].rotate(x, positions, base=base, layout=layout)


@pytest.mark.parametrize(
    "layer",
    [Layer(), functools.partial(Layer(), base=10000.0)],
    ids=["layer", "partial"],
)
def test_a_layer_is_given_the_keywords_that_it_knows(layer):
    report = check(layer, "rotary", framework="torch", only="0 to 4")
    assert len(report.runs) == 2
    assert not report.failures
    with pytest.raises(UsageError, match="since Layer has no parameter attention_factor"):
        check(layer, "rotary", framework="torch", only="factor")


def test_a_compiled_layer_has_the_signature_of_the_layer():
    compiled = torch.compile(Layer(), backend="eager")
    assert list(signature_of(compiled).parameters) == ["x", "positions", "base", "layout"]


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


def test_a_scheme_without_data_says_that_it_has_no_gradients():
    slopes = REFERENCE.alibi_slopes
    report = check(slopes, "alibi_slopes", framework="numpy", gradients=True)
    assert "no gradients: alibi_slopes has no data that they could be of" in str(report)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ValueError(), "ValueError"),
        (ValueError("one\ntwo"), "ValueError: one"),
        (ValueError("\ud800"), "ValueError: \\ud800"),
        (type("Hostile", (Exception,), {"__str__": lambda self: 1 / 0})(), "Hostile"),
    ],
)
def test_an_exception_is_told_whatever_its_message_is(error, told):
    assert exceptions.said(error) == told
    assert exceptions.where(error) == ""


def test_the_line_of_an_exception_is_the_users(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(
        "def f(x): return helper(x)\nimport json\nhelper = json.loads"
    )
    with pytest.raises(json.JSONDecodeError) as caught:
        worker.import_file(Path("mine.py")).f("no json")
    caught.value.__traceback__ = caught.tb.tb_next  # without this test
    assert exceptions.where(caught.value) == "mine.py:1, in f: def f(x): return helper(x)"
    with pytest.raises(json.JSONDecodeError) as caught:
        json.loads("no json")
    caught.value.__traceback__ = caught.tb.tb_next
    assert re.search("json/__init__.py:[0-9]+, in loads: ", exceptions.where(caught.value))


def test_an_exception_of_an_installed_function_is_not_told_by_a_line_of_the_checker():
    report = check(json.loads, "to_half", framework="numpy", only="six columns")
    (told,) = (line for line in str(report).splitlines() if line.startswith("  at "))
    assert "conformance" not in told


ENDS = {
    "leaves": ("os._exit(0)", "it ends its process with exit code 0"),
    "is killed": ("os.kill(os.getpid(), 9)", "it is killed by SIGKILL"),
    "hangs": ("time.sleep(99)", "it takes longer than 5 seconds"),
    "closes everything": ("os.closerange(3, 99)", "it ends its process with exit code 0"),
    "interrupts": ("raise KeyboardInterrupt", "it raises KeyboardInterrupt"),
}


@pytest.mark.slow
@pytest.mark.parametrize(("does", "message"), ENDS.values(), ids=ENDS)
def test_a_function_that_ends_the_check_fails_and_is_told(does, message, module, capsys):
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


@pytest.mark.slow
def test_a_function_that_writes_where_the_check_talks_is_checked_nevertheless(
    module, capsys
):
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


@pytest.mark.parametrize("value", ["(" * 5000, "-" * 5000 + "1"])
def test_a_value_that_python_cannot_parse_is_a_string(value):
    assert worker.setting(f"base={value}") == ("base", value)


def test_a_function_that_is_left_by_sys_exit_fails_that_case_alone(module, capsys):
    name = module("import sys\ndef convert(x): sys.exit(0)")
    code, out, _ = run(capsys, "check", f"{name}:convert", "--scheme", "to_half")
    assert code == 1
    assert "in 4 of 4 cases it raises SystemExit: 0\n" in out
    assert f"  at {name}.py:2, in convert: def convert(x): sys.exit(0)\n" in out


@pytest.mark.slow
@pytest.mark.parametrize(
    ("does", "message", "limit"),
    [
        ("time.sleep(99)", "it takes longer than 2 seconds", 2.0),
        ("os._exit(0)", "it ends its process with exit code 0", isolation.IMPORT_LIMIT),
    ],
    ids=["hangs", "ends"],
)
def test_a_module_that_hangs_or_ends_on_import_is_told(
    does, message, limit, module, capsys, monkeypatch
):
    monkeypatch.setattr(apart, "IMPORT_LIMIT", limit)
    name = module(f"import os, time\n{does}")
    code, out, err = run(capsys, "check", f"{name}:rope", "--scheme", "rotary")
    assert (code, out) == (2, "")
    assert err == f"posattn: {name} cannot be imported: {message}\n"


def test_what_the_worker_cannot_run_is_one_line_and_exit_code_2(module, capsys):
    code, out, err = run(capsys, "check", "lost:rope", "--scheme", "rotary")
    what = "lost cannot be imported: ModuleNotFoundError: No module named 'lost'"
    assert (code, out, err) == (2, "", f"posattn: {what}\n")


def test_an_interruption_during_an_import_is_one(module):
    name = module("raise KeyboardInterrupt")
    with pytest.raises(KeyboardInterrupt):
        worker.find(f"{name}:rope")


def test_the_line_of_a_module_that_fails_on_import_is_told(module):
    name = module("import json\njson.loads('no json')")
    message = f"cannot be imported: JSONDecodeError: .* \\(at {name}.py:2, in <module>: "
    with pytest.raises(UsageError, match=message):
        worker.find(f"{name}:rope")


def test_a_report_that_is_not_finished_is_told():
    last = {"case": None, "before": 3, "failed": 1}
    request = {"function": "mine:rope", "scheme": "rotary"}
    text, _, code = isolation.ended(request, last, "is killed by SIGKILL")
    assert code == 1
    assert text.endswith(
        "is killed by SIGKILL before the report; 1 of 3 cases before it fail"
    )


@pytest.mark.slow
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
    done = subprocess.run(
        [*command, "--scheme", "alibi_slopes", "--only", "12"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "slopes as alibi_slopes, numpy float64: all 1 pass\n"
    assert sorted(done.stderr.split()) == ["import", "python", "shell"]


def test_a_file_may_import_its_neighbors_and_hides_no_module(module, tmp_path, capsys):
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "slopes_of_mine.py").write_text("from posattn.reference import alibi_slopes")
    text = "import json\njson.dumps(1)\nfrom slopes_of_mine import alibi_slopes"
    (folder / "json.py").write_text(text)
    where = f"{folder / 'json.py'}:alibi_slopes"
    code, out, _ = run(capsys, "check", where, "--scheme", "alibi_slopes")
    assert (code, out) == (0, "alibi_slopes as alibi_slopes, numpy float64: all 11 pass\n")


def test_every_argument_of_the_command_says_what_it_is():
    whole = command.parser()
    (commands,) = (a for a in whole._actions if isinstance(a.choices, dict))
    assert [a.dest for a in commands._choices_actions if a.help] == [*commands.choices]
    for name, part in commands.choices.items():
        for action in part._actions:
            assert action.help, (name, action.dest)


def test_a_reader_that_leaves_early_ends_the_command_quietly(monkeypatch):
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "w", encoding="utf-8") as closed:
        monkeypatch.setattr(sys, "stdout", closed)
        assert command.main(["schemes"]) == 0


def test_the_worker_talks_where_its_output_was(module, monkeypatch, capfd):
    name = module("def convert(x): raise KeyboardInterrupt")
    request = {"function": f"{name}:convert", "scheme": "to_half", "set": [], "only": ""}
    request |= {"framework": "numpy"}
    monkeypatch.setattr(sys, "argv", ["worker", json.dumps(request)])
    place = os.dup(1)
    try:
        runpy.run_path(worker.__file__, run_name="__main__")
    finally:
        os.dup2(place, 1)
        os.close(place)
    first, last = capfd.readouterr().out.splitlines()
    assert json.loads(first) == {"case": "eight columns", "before": 0, "failed": 0}
    assert json.loads(last) == {"interrupted": True}


@pytest.mark.parametrize("request_of", [{}, {"set": ["base"]}], ids=["found", "unusable"])
def test_the_worker_says_what_it_does(request_of, module, monkeypatch):
    name = module("from posattn.reference import alibi_slopes")
    request = {"function": f"{name}:alibi_slopes", "scheme": "alibi_slopes", "set": []}
    request |= {"only": "12"}
    said = []
    worker.work({**request, **request_of}, lambda **what: said.append(what))
    if request_of:
        assert said == [{"unusable": "--set must be given as keyword=value, got 'base'"}]
    else:
        assert [event.get("case") for event in said] == ["12 heads", None, None]
        assert said[-1]["code"] == 0


@pytest.mark.parametrize(
    ("text", "value"), [("base=5", ("base", 5)), ("layout=half", ("layout", "half"))]
)
def test_a_setting_is_a_value_or_else_a_word(text, value):
    assert worker.setting(text) == value


def test_no_fault_is_named_for_what_merely_fails():
    def fails(x, positions):
        raise RuntimeError("boom")

    report = check(fails, "rotary", framework="numpy")
    assert len(report.failures) == len(report.runs)
    assert report.causes == []
    told = str(report)
    assert (
        f"in {len(report.runs)} of {len(report.runs)} cases it raises RuntimeError: boom\n"
        "  at tests/library/test_check.py:" in told
    )
    assert 'in fails: raise RuntimeError("boom")' in told
    assert "no known fault explains this" in told


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_rounding_is_that_of_pytorch(dtype):
    rng = np.random.default_rng(0)
    x = np.concatenate(
        [rng.normal(size=500) * 10.0 ** rng.integers(-3, 4, 500), [0, 257, 258]]
    )
    x = x.astype(np.float32).astype(np.float64)
    want = torch.tensor(x).to(getattr(torch, dtype)).double().numpy()
    assert np.array_equal(half_precision(dtype)(x), want)
    assert half_precision(dtype)(257).shape == ()
    if dtype == "bfloat16":
        assert np.array_equal(gallery.to_bfloat16(x), want)


@pytest.mark.slow
@pytest.mark.parametrize("framework", DIALECTS)
def test_the_command_detects_the_framework_and_names_the_fault(framework, module, capsys):
    home, arange, concatenate = DIALECTS[framework]
    dtype = "float64" if framework == "numpy" else "float32"
    text = ROPE.format(framework=home, module=home, arange=arange, concatenate=concatenate)
    name = module(text)
    code, out, err = run(capsys, "check", f"{name}:rope", "--scheme", "rotary")
    assert (code, err) == (1, "")
    assert f"rope as rotary, {framework} {dtype}: " in out
    assert "likely cause (" in out
    assert "The other layout" in out
    options = "--set", "layout=half", "--only", "half, positions 0 to 4"
    code, out, _ = run(capsys, "check", f"{name}.py:rope", "--scheme", "rotary", *options)
    left_out = (
        "rope has no parameter frequencies and attention_factor and rotary_dim: only cases"
    )
    assert code == 0
    assert out.startswith(f"rope as rotary, {framework} {dtype}: all 1 pass\n\n{left_out}")


@pytest.mark.slow
def test_numpy_beside_a_framework_does_not_count(module, capsys):
    name = module("import numpy, torch\ndef turn(x): return torch.flip(x, [0])")
    _, out, _ = run(capsys, "check", f"{name}:turn", "--scheme", "to_half")
    assert out.startswith("turn as to_half, torch float32: ")


@pytest.mark.slow
def test_the_command_runs_as_a_program(module):
    name = module("from posattn.reference import alibi_slopes")
    arguments = [sys.executable, "-m", "posattn", "check", f"{name}:alibi_slopes"]
    done = subprocess.run(
        [*arguments, "--scheme", "alibi_slopes"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "alibi_slopes as alibi_slopes, numpy float64: all 11 pass\n"


def test_the_modules_run_as_programs(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["posattn", "schemes", "to_half"])
    with pytest.raises(SystemExit) as left:
        runpy.run_path(command.__file__, run_name="__main__")
    assert left.value.code == 0
    monkeypatch.setattr("posattn.conformance.vectors.FOLDER", tmp_path)
    few = {"llama3": SCHEMES["llama3"]}
    monkeypatch.setattr("posattn.reference.position.collect", lambda name: few)
    for family in ("attention", "latent", "masks"):
        monkeypatch.setattr(f"posattn.conformance.cases.{family}.CASES", {})
    runpy.run_path(generate.__file__, run_name="__main__")
    assert (tmp_path / "llama3.json").is_file()


def test_the_current_directory_is_searched_once(module):
    name = module("def one(x): return x")
    paths = list(sys.path)
    worker.import_module(name)
    assert [*sys.path[1:]] == paths
    worker.import_module(name)
    assert [*sys.path[1:]] == paths


USAGE = {
    "rotary": ("", "check: one of the arguments --scheme --config is required"),
    "no place": (
        "rope --scheme rotary",
        "function must be given as module:function, got 'rope'",
    ),
    "no module": (
        "lost:rope --scheme rotary",
        "lost cannot be imported: ModuleNotFoundError: No module named 'lost'",
    ),
    "no file": (
        "lost.py:rope --scheme rotary",
        "lost.py cannot be imported: FileNotFoundError: ",
    ),
    "leaves": ("leaves:rope --scheme rotary", "leaves cannot be imported: SystemExit: 3"),
    "no function": ("mine:lost --scheme rotary", "mine has no function 'lost'"),
    "misspelled": (
        "mine:feww --scheme to_half",
        "mine has no function 'feww'; did you mean few?",
    ),
    "no callable": ("mine:number --scheme rotary", "function must be callable, got int"),
    "no signature": (
        "mine:builtin --scheme alibi_slopes",
        "max must have a signature; wrap it in a function of Python",
    ),
    "no scheme": (
        "mine:rope --scheme lost",
        "scheme must be one of `python -m posattn schemes`",
    ),
    "no framework": (
        "mine:rope --scheme rotary --framework theano",
        "framework must be one of jax, mlx, numpy, tensorflow, torch, got 'theano'",
    ),
    "not installed": (
        "mine:rope --scheme rotary --framework mlx",
        "framework must be an installed one, got mlx: ",
    ),
    "two frameworks": (
        "both:rope --scheme rotary",
        "framework must be one of jax, torch, got None",
    ),
    "no dtype": (
        "mine:rope --scheme rotary --dtype bfloat16",
        "dtype must be one that numpy has, float64, float32, float16, got 'bfloat16'",
    ),
    "a dtype of no numbers": (
        "mine:rope --scheme rotary --dtype array",
        "dtype must be one that numpy has, float64, float32, float16, got 'array'",
    ),
    "no time": (
        "mine:rope --scheme rotary --time-limit 0",
        "argument --time-limit: invalid seconds value: '0'",
    ),
    "no keyword": (
        "mine:rope --scheme rotary --set lay=half",
        "settings must name one of frequencies, base, layout, attention_factor, rotary_dim, "
        "got 'lay'",
    ),
    "no value": (
        "mine:rope --scheme rotary --set base=1",
        "base must be one of 10000.0, 500.0, got 1",
    ),
    "no equals": (
        "mine:rope --scheme rotary --set base",
        "--set must be given as keyword=value, got 'base'",
    ),
    "no case": (
        "mine:rope --scheme rotary --only lost",
        "only must be part of a case's name, got 'lost'",
    ),
    "no parameter": (
        "mine:rope --scheme yarn",
        "no case of yarn can be run, since rope has no parameter ",
    ),
    "too few": (
        "mine:few --scheme to_half",
        "no case of to_half can be run, since few does not fit: too many positional arguments",
    ),
    "no command": ("lost", "argument command: invalid choice: 'lost'"),
}


def in_this_process(request, time_limit):
    """Check as `check_apart` does, but here, where it is faster."""
    said = []
    worker.work(request, lambda **what: said.append(what))
    if "unusable" in said[-1]:
        raise UsageError(said[-1]["unusable"])
    return tuple(said[-1][name] for name in ("report", "data", "code"))


@pytest.mark.parametrize(("arguments", "message"), USAGE.values(), ids=USAGE)
def test_what_cannot_be_run_is_one_line_and_exit_code_2(
    arguments, message, module, capsys, monkeypatch
):
    monkeypatch.setattr("posattn.commands.check.check_apart", in_this_process)
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
    place = () if arguments in ("", "lost") else ("check",)
    code, out, err = run(
        capsys, *(place or ("check",) * (arguments == "")), *arguments.split()
    )
    assert code == 2
    assert out == ""
    assert err.startswith("posattn")
    assert message in err
    assert err.count("\n") == 1


def test_the_schemes_are_listed(capsys):
    code, out, _ = run(capsys, "schemes")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()] == names()
    code, out, _ = run(capsys, "schemes", "t5")
    assert code == 0
    assert (
        "function(query_positions, key_positions, *, table, max_distance=128, bidir" in out
    )
    assert "  boundaries of buckets\n" in out
    _, out, _ = run(capsys, "schemes", "to_half")
    assert "function(x)\n" in out
    assert run(capsys, "schemes", "lost")[0] == 2


def test_functions_are_called_as_they_can_be():
    def by_name(*, positions, x):
        return REFERENCE.rotate(x, positions)

    def everything(x, *others, **keywords):
        return REFERENCE.rotate(x, *others, **keywords)

    class Layer:
        def __init__(self, base=10000.0, layout="interleaved"):
            self.options = {"base": base, "layout": layout}

        def __call__(self, *, x, positions=None):
            return REFERENCE.rotate(x, positions, **self.options)

    class NoCall:
        def __init__(self, num_heads):
            pass

    total = len(load("rotary")["cases"])
    assert len(check(everything, "rotary", framework="numpy").runs) == total
    half = functools.partial(REFERENCE.rotate, layout="half")
    assert_conforms(half, "rotary", settings={"layout": "half"})
    for function, skipped in ((by_name, "layout"), (Layer, "frequencies")):
        report = check(function, "rotary", framework="numpy")
        assert not report.failures
        assert f"has no parameter {skipped}" in str(report)
    with pytest.raises(UsageError, match="NoCall does not fit"):
        check(NoCall, "alibi", framework="numpy")
    with pytest.raises(UsageError, match="float16 cannot hold the numbers"):
        check(REFERENCE.ALiBi, "alibi", dtype="float16", only="large")


def test_a_made_object_that_does_not_fit_is_skipped():
    class Deaf:
        def __init__(self, num_heads):
            pass

        def __call__(self):
            return 0.0

    with pytest.raises(
        UsageError, match="no case of alibi can be run, since Deaf does not fit"
    ):
        check(Deaf, "alibi", framework="numpy")


def test_the_framework_is_that_of_the_module_or_of_the_process(monkeypatch):
    plain = functools.partial(gallery.rotary_by_halves)
    assert "numpy float64" in check(plain, "rotary").title
    without = {
        name: m for name, m in sys.modules.items() if name.partition(".")[0] != "jax"
    }
    orphan = eval("lambda x, positions: x", {"__name__": "nowhere"})
    monkeypatch.setattr(sys, "modules", without)
    assert "torch float32" in check(orphan, "rotary", only="0 to 4").title
    without.pop("torch")
    assert "numpy float64" in check(orphan, "rotary", only="0 to 4").title


def test_results_of_several_parts_are_compared_part_by_part():
    def no_factor(dim, **keywords):
        return REFERENCE.yarn(dim, **keywords)[0], 1.0

    report = check(no_factor, "yarn", framework="numpy", dtype="float64")
    assert report.causes[0].name == "attention_factor_missing"
    assert "[1]" in str(report)
    tolerant = check(REFERENCE.yarn, "yarn", framework="numpy", dtype="float64")
    assert not tolerant.failures


def test_results_are_read_from_what_has_no_list():
    class Eager:
        """Like a tensor of TensorFlow."""

        def numpy(self):
            return np.float32([[1.5], [2.0]])

    assert np.array_equal(read(Eager()), [[1.5], [2.0]])
    assert read(2).shape == ()


def test_the_result_decides_the_tolerance_where_no_data_goes_in():
    def single(dim, **keywords):
        return REFERENCE.frequencies(dim, **keywords).astype(np.float32)

    assert_conforms(single, "frequencies", dtype="float64", framework="numpy")
