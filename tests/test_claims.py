"""Each claim of a page has a check: the sentences, the list, its command, and the gate of the build."""

import shutil
import subprocess
import sys

import pytest

from tests.books import ROOT, build

SCRIPT = ROOT / "docs" / "_ext" / "claims.py"
PAGE = """---
file_format: mystnb
---
# Two titles

{} {{cite:p}}`key`

$$ a + b = c $$ (eq_sum)

:::{{prf:theorem}} Sum
:label: thm-sum
It holds.
:::

```{{code-cell}} python
---
mystnb:
  figure: {{name: fig-wave, caption: A wave.}}
---
assert len([1,
            2]) == 2
```
"""
OTHER = "# Other\n\n```{code-cell} python\nassert 7 * 6 == 42\n```\n"
CLAIM = "There are two words."
CHECKS = [
    "assert len([1, 2]) == 2",
    "other: assert 7 * 6 == 42",
    "tests/test_claims.py::test_a_check_is_found",
    "eq_sum",
    "thm-sum",
    "fig-wave",
    "@key",
    "reasoned",
    "defined",
]
NO_CHECKS = {
    "?": "nobody has said what checks the claim",
    "? assert len([1, 2]) == 2": "nobody has said what checks the claim",
    "assert len([1, 3]) == 2": "one has no code 'assert len([1, 3]) == 2'",
    "assert 7 * 6 == 42": "one has no code",
    "name: fig-wave": "one has no code",
    "assert": "one has no code",
    "tests/test_claims.py::test_nothing": "there is no test",
    "tests/test_nothing.py::test_a_check_is_found": "there is no test",
    "eq_difference": "one has no code",
    "@other": "one has no code",
}
SAID = {  # and whether it is a claim
    "Three words.": True,
    "It has 7 of them.": True,
    "It takes `7` and {doc}`two`.": False,
    "It grows.": True,
    "It is {glue:text}`x:.2f` long.": True,
    "Let $d_0$ be a width.": False,
    "Its weight is $\\tfrac12$.": True,
    "Thus $a = b$.": True,
    "| a | $b$ |": True,
    "| a | b |\n|---|---|\n| c | d |": False,
    "| 1 | 2 |\n|---|---|\n| c | d |": False,
    "Which two?": False,
    "**Why 7?**": False,
    ":::{admonition} Two\n:class: two\nNo.\n:::": True,
    ":::{admonition} Two\n:class: two\nYes.\n:::": False,
    "$$ a = 2 $$": False,
    "```{code-block}\nall two\n```": False,
    "```{revealjs-notes}\nSay all.\n```": True,
    '```{code-cell}\n---\nmystnb:\n  figure: {name: x, caption: "Two, or: all."}\n---\n```': True,
    '```{code-cell}\n---\nmystnb:\n  figure: {name: x, caption: "A wave."}\n---\n# 2\n```': False,
}


def command(folder, *pages):
    """Bring the lists of a book up to date."""
    return subprocess.run(
        [sys.executable, SCRIPT, *pages],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture
def run(tmp_path):
    """Bring the lists of a book up to date; return that of the first page, and what is left to do."""

    def run(page, listed=None):
        docs = tmp_path / "docs"
        docs.mkdir(exist_ok=True)
        (docs / "one.md").write_text(page)
        (docs / "other.md").write_text(OTHER)
        listed is None or (docs / "one.claims").write_text(listed)
        done = command(tmp_path, "docs/one.md")
        assert done.returncode == (1 if done.stderr else 0)
        return (docs / "one.claims").read_text(), done.stderr

    return run


def checked(listed, *checks):
    """A list, with these checks in the place of those that are missing."""
    for check in checks:
        listed = listed.replace("    ?\n", f"    {check}\n", 1)
    return listed


@pytest.fixture(scope="module")
def with_claims(tmp_path_factory):
    """Which of the pages that say something have a list, made by one call."""
    docs = tmp_path_factory.mktemp("said") / "docs"
    docs.mkdir()
    for number, said in enumerate(SAID):
        (docs / f"{number}.md").write_text(said)
    command(docs.parent)
    return {said for n, said in enumerate(SAID) if (docs / f"{n}.claims").is_file()}


@pytest.mark.parametrize("said", SAID)
def test_a_claim_counts_compares_or_orders(with_claims, said):
    assert (said in with_claims) == SAID[said]


def test_each_sentence_of_a_line_is_a_claim_of_its_own(run):
    listed, _ = run("- All $a. B$ (no `1. Two`) are. None is. (Two.) Yes.\n1. Three.")
    starts = [line.split(" ", 1)[1] for line in listed.splitlines()[::2]]
    assert starts == ["All $a. B$ (no `1. Two`) are.", "None is.", "(Two.)", "Three."]


@pytest.mark.slow
@pytest.mark.parametrize("check", CHECKS)
def test_a_check_is_found(run, check):
    page = PAGE.format(CLAIM)
    listed = checked(run(page)[0], check)
    assert run(page, listed) == (listed, "")


@pytest.mark.slow
@pytest.mark.parametrize("check", NO_CHECKS)
def test_a_check_that_is_not_there_is_a_fault(run, check):
    page = PAGE.format(CLAIM)
    listed, left = run(page, checked(run(page)[0], check))
    assert check in listed
    assert left.startswith(f"docs/one.claims: {NO_CHECKS[check]}")
    assert left.rstrip().endswith(f": {CLAIM}")


@pytest.mark.slow
def test_each_of_several_checks_is_asked_for(run):
    page = PAGE.format(CLAIM)
    _, left = run(page, checked(run(page)[0], "reasoned\n    eq_none"))
    assert "eq_none" in left


@pytest.mark.slow
def test_a_sentence_that_changed_keeps_its_check_and_asks_for_it_again(run):
    listed = checked(run("All. None.")[0], "reasoned", "defined")
    listed, left = run("All. None at all.", listed)
    assert [line.strip() for line in listed.splitlines()[1::2]] == ["reasoned", "? defined"]
    assert "nobody has said what checks the claim: None at all." in left
    again, _ = run("All. None of all.", listed)
    assert again.splitlines()[3] == "    ? defined"


def test_a_sentence_that_moved_keeps_its_check(run):
    listed = checked(run("All. None. Two.")[0], "reasoned", "defined", "eq_sum")
    moved, _ = run("Two. All. None.", listed)
    assert [line.strip() for line in moved.splitlines()[1::2]] == [
        "eq_sum",
        "reasoned",
        "defined",
    ]


@pytest.mark.slow
def test_a_check_stays_until_somebody_takes_it_away(run):
    listed = checked(run("All. None.")[0], "reasoned", "defined")
    assert run("None.", listed) == (
        listed,
        "docs/one.claims: the page does not say any more: All.\n",
    )


def test_a_line_without_a_check_goes_with_its_sentence(run):
    listed, _ = run("All. None.")
    assert "All." not in run("None.", listed)[0]


def test_a_page_that_claims_something_gets_a_list(tmp_path):
    (tmp_path / "docs").mkdir()
    for name, text in {"one": "All.", "two": "Here is a page."}.items():
        (tmp_path / "docs" / f"{name}.md").write_text(text)
    done = command(tmp_path)
    assert (done.returncode, [x.name for x in tmp_path.rglob("*.claims")]) == (
        1,
        ["one.claims"],
    )


@pytest.mark.slow
def test_the_claims_of_the_book_have_their_checks(tmp_path):
    def others(folder, names):
        return [n for n in names if "." in n and not n.endswith((".md", ".claims"))]

    shutil.copytree(ROOT / "docs", tmp_path / "docs", ignore=others)
    done = command(tmp_path)
    assert done.stderr == ""
    for path in (ROOT / "docs").rglob("*.claims"):
        there = tmp_path / path.relative_to(ROOT)
        assert there.read_text() == path.read_text(), "run python docs/_ext/claims.py"


@pytest.mark.slow
def test_the_build_fails_without_the_check_of_a_claim_and_copies_no_list(tmp_path):
    listed = "00000000 Gone.\n    reasoned\n"
    (tmp_path / "one.claims").write_text(listed)
    html, code, said = build(
        tmp_path, {"one": "All.\n"}, settings='extensions.append("claims")\n'
    )
    assert code == 1
    assert "one.md: WARNING: nobody has said what checks the claim: All." in said
    assert "one.md: WARNING: the page does not say any more: Gone." in said
    assert not list(html.rglob("*.claims*"))
