"""The planter of faults: what it changes, who is asked about it, and that the answer is true."""

import json
import subprocess
import sys
from pathlib import Path

import coverage
import pytest

from tests.mutants.changes import changes
from tests.mutants.court import Court
from tests.mutants.evidence import Evidence

# A line of code, and what may stand in its place.
CHANGED = {
    "a < b": {"((a) <= (b))"},
    "a not in b": {"((a) in (b))"},
    "(a + b) * c": {"((a + b) / (c))", "((a) - (b))"},
    "a ** b": {"((a) * (b))"},
    "a and b and c": {"((a) or (b) or (c))"},
    "not a": {"(a)"},
    "-a": {"(a)"},
    "True": {"False"},
    "3": {"4"},
    "0.5": {"2.0"},
    "'wide'": {"'~wide'"},
    "b if a else c": {"(not a)"},
    "[b for b in a if a()]": {"(not a())"},
    "a(b, c=d)": {"a(b)"},
    "a(**b, c=d)": {"a(**b)"},
    "a(help='said')": {"a()"},
    "a(b, strict=True)": {"False"},
    "a.float()": {"(a)"},
    "a.astype(b)": {"(a)"},
    "a.cos(b)": {"(a).sin"},
    "min(a)": {"max"},
    "f'{a - b} tokens'": set(),
    "lambda a: None": set(),
}
MODULE = '''"""Halves."""


def half(x: int = 4) -> float:
    """Half of it."""
    if x > 100:
        raise ValueError("large")
    while x < 0:
        x = x + 1
    return x / 2
'''
TESTS = """from halves import half


def test_a_half():
    assert half(6) == 3


def test_a_negative_number_is_none():
    assert half(-2) == 0


def test_of_nothing():
    half()
"""
FAILING = """from halves import half


def test_of_more():
    half(1000)
"""


@pytest.mark.parametrize("code", CHANGED)
def test_a_line_is_changed_in_one_place(code):
    source = f"def f(a, b, c, d):\n    return {code}\n".encode()
    found = list(changes("f.py", source))
    assert {change.now for change in found} == CHANGED[code]
    for change in found:
        compile(change.made(source), "f.py", "exec")
        assert change.made(source) != source


def test_a_statement_may_be_left_out_and_its_sign_turned():
    source = b"def f(a):\n    a.sort(1)\n    a += b\n"
    assert {(c.line, c.now) for c in changes("f.py", source)} >= {
        (2, "pass"),
        (3, "a -= (b)"),
    }


def test_the_digits_stay_when_the_lines_move():
    before, after = (
        {c.digits for c in changes("f.py", source)}
        for source in (MODULE.encode(), b'"""Halves."""\nimport os\n' + MODULE.encode())
    )
    assert before == after
    assert len(before) == 10


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A small project, what runs its lines, and a court for it."""
    root = tmp_path_factory.mktemp("project")
    (root / "src").mkdir()
    (root / "tests" / "mutants").mkdir(parents=True)
    (root / "src" / "halves.py").write_text(MODULE)
    (root / "tests" / "test_halves.py").write_text(TESTS)
    (root / "tests" / "test_more.py").write_text(FAILING)
    for file in Path(__file__).with_name("mutants").glob("*.py"):
        (root / "tests" / "mutants" / file.name).write_bytes(file.read_bytes())
    (root / ".nox").mkdir()
    files = [str(file.relative_to(root)) for file in root.rglob("*.py")]
    court = Court(root, root / "court", files)
    yield root, court
    court.close()


def verdict(project, was, limit=60, whole=False):
    """What becomes of the only change of this code."""
    root, court = project
    source = (root / "src" / "halves.py").read_bytes()
    (change,) = (c for c in changes("src/halves.py", source) if c.was == was)
    names = ("a_half", "a_negative_number_is_none", "of_nothing")
    tests = [f"tests/test_halves.py::test_{name}" for name in names]
    tests = ["tests/test_halves.py"] if whole else tests
    return court.judge(change, source, tests, limit)


@pytest.mark.slow
def test_a_change_is_noticed_by_the_first_test_that_fails(project):
    assert verdict(project, "x / 2") == "tests/test_halves.py::test_a_half"


@pytest.mark.slow
def test_a_file_may_be_asked_as_a_whole(project):
    assert verdict(project, "x < 0", whole=True).startswith("tests/test_halves.py::")


@pytest.mark.slow
def test_what_fails_unchanged_is_known(project):
    good, failing = "tests/test_halves.py::test_a_half", "tests/test_more.py"
    assert project[1].ask([good], 60) == ""
    assert project[1].ask([good, failing], 60) == "tests/test_more.py::test_of_more"


@pytest.mark.slow
def test_a_change_that_no_test_notices_is_told(project):
    assert verdict(project, "x > 100") == ""


@pytest.mark.slow
def test_a_test_without_end_is_ended(project):
    assert verdict(project, "x + 1", limit=10) == "time"


@pytest.mark.slow
def test_a_court_forgets_what_it_judged(project):
    assert verdict(project, "x > 100") == ""
    assert (project[1].copy / "src" / "halves.py").read_text() == MODULE


BOOKS = ["tests/test_books.py::test_again", "tests/test_books.py::test_book"]
OWN, OTHER = "tests/test_halves.py::test_negative", "tests/test_other.py::test_large"


@pytest.fixture
def noted(tmp_path):
    """A project with its files, and what a run of its suite has noted."""
    lines = coverage.CoverageData(str(tmp_path / "lines"))
    for context, ran in (
        (f"{OTHER}|run", {6, 7}),
        (f"{OWN}|run", {6, 8, 9, 10}),
        (f"{BOOKS[1]}|setup", {6, 8, 10}),
        ("tests/test_other.py::test_that_failed|run", {6, 8, 10}),
    ):
        lines.set_context(context)
        lines.add_lines({f"{tmp_path}/copy/src/halves.py": ran})
    lines.write()
    took = {OTHER: 1, BOOKS[0]: 2, BOOKS[1]: 3, OWN: 9}
    (tmp_path / "seconds.json").write_text(json.dumps(took))
    for name in {"src/halves.py", *(name.split("::")[0] for name in took)}:
        for place in (tmp_path, tmp_path / "copy"):
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            (place / name).write_text(MODULE)
    return tmp_path


def asked(noted, source=MODULE):
    """Who is asked about each piece of code."""
    known = Evidence(noted, noted)
    return {c.was: known.tests(c) for c in changes("src/halves.py", source.encode())}


def test_the_tests_of_a_line_are_those_that_ran_it(noted):
    of = asked(noted)
    assert of["x + 1"] == [OWN]
    assert of["x / 2"] == [OWN, *BOOKS]
    assert of["x > 100"] == [OWN, OTHER, *BOOKS]
    # a default, which runs when the file is imported
    assert of["4"] == [OWN, OTHER, *BOOKS]


def test_a_file_that_no_test_runs_is_asked_about_by_those_that_name_it(noted):
    (noted / "src" / "parts.py").write_text("SIZES = {1: 2}")
    (noted / "tests" / "test_other.py").write_text("from parts import SIZES")
    (noted / "copy" / "tests" / "test_other.py").write_text("from parts import SIZES")
    known = Evidence(noted, noted)
    (change, *_) = changes("src/parts.py", b"SIZES = {1: 2}")
    assert known.tests(change) == [OTHER]


def test_what_is_noted_of_small_books_is_asked_early(noted):
    said = "from tests.build.books import build"
    for place in (noted, noted / "copy"):
        (place / "docs" / "_ext").mkdir(parents=True)
        (place / "docs" / "_ext" / "pages.py").write_text("SIZE = 1")
        for name in ("noted", "pages", "quick"):
            (place / "tests" / f"test_{name}.py").write_text(said)
    took = {"tests/test_quick.py::test_a": 1, "tests/test_noted.py::test_a": 9}
    took["tests/test_pages.py::test_a"] = 99
    (noted / "seconds.json").write_text(json.dumps(took))
    known = Evidence(noted, noted)
    (change,) = changes("docs/_ext/pages.py", b"SIZE = 1")
    order = [name.split("::")[0] for name in known.tests(change)]
    assert order == [f"tests/test_{name}.py" for name in ("pages", "noted", "quick")]


def test_what_one_test_keeps_in_a_cache_others_may_look_at(noted):
    assert asked(noted)["x / 2"] == [OWN, *BOOKS]
    for place in (noted, noted / "copy"):
        for name in ("test_books.py", "test_other.py"):
            (place / "tests" / name).write_text("made = functools.cache(make)")
    assert asked(noted)["x / 2"] == [OWN, OTHER, *BOOKS]


def test_lines_that_moved_keep_their_tests_and_new_ones_have_those_above(noted):
    source = MODULE.replace("    while", "    print(x)\n\n\n    while").replace(
        '""".', '"""\n#\n.'
    )
    (noted / "src" / "halves.py").write_text(source)
    of = asked(noted, source)
    assert of["x + 1"] == [OWN]
    assert of["print(x)"] == [OTHER]


def test_a_test_file_that_has_changed_is_asked_about_everything(noted):
    (noted / "tests" / "test_other.py").write_text("new")
    (noted / "tests" / "test_new.py").write_text("new")
    assert asked(noted)["x + 1"] == [OWN, "tests/test_new.py", "tests/test_other.py"]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (["src/posattn/nothing.py"], "no such file"),
        (["/"], "is outside repository"),
        (["--since", "nothing", "src/posattn/atlas.py"], "bad revision 'nothing'"),
    ],
    ids=["no file", "no file of ours", "no commit"],
)
def test_what_cannot_be_changed_is_told_in_one_line(asked, said):
    done = subprocess.run(
        [sys.executable, "-m", "tests.mutants", *asked],
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert said in done.stderr
