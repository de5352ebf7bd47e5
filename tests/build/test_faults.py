"""What a build says of the faults of a page, and of which line: each fails the build."""

import re

import pytest

from tests.build import books
from tests.build.books import cell

pytestmark = pytest.mark.slow  # small books

DRAW = "from posattn import figures\nfigures.offsets([1, 2, {}])"
SCRATCH = "import numpy as np\ndef causal(n):\n    return np.tri(n) > 0\n"
LIBRARY = "from posattn.reference import causal_mask\n"
SAME = LIBRARY + "same = causal(3) == causal_mask(3)\nassert same.all()"
COMPARED = "the from-scratch cell must be compared with the library: its cell tagged compare "
SECTIONS = "exercises must be sections `1. Name`, `2. Name` and so on"
TYPED = (
    "{} is typed, and no cell or equation of the page has it: paste it, or list it under "
    "quantities in the front matter"
)


def scratch(code, compare, rest=""):
    """Code from scratch and what it is compared with."""
    compared = cell(compare, "compare") if compare else ""
    return cell(code, "scratch") + compared + rest


def exercise(name, solution):
    """An exercise with what follows it."""
    return f"### {name}\n\nCompute it.\n\n{solution}\n\n"


def solution(text):
    """A solution."""
    return "{.solution}\n#### Solution\n\n" + text + "\n"


RUN = solution(cell("print(6 * 7)"))
FAULTS = {  # the text of a page, and what is said of it
    "text": (
        cell("print(1)", "torch") + cell("print(2)", "jax"),
        "9: PyTorch and JAX print different text",
    ),
    "drawing": (
        cell(DRAW.format(3), "torch") + cell(DRAW.format(4), "jax"),
        "9: PyTorch and JAX draw different figures",
    ),
    "lonely": (
        cell("print(1)", "torch") + "prose\n",
        "9: a cell tagged torch is not followed by one tagged jax",
    ),
    "twin": ("```{twins} masks:causal_mask\n```\n\n", None),
    "lost": (
        "```{twins} masks:no_such_mask\n```\n",
        "8: no twin: posattn.torch has no no_such_mask",
    ),
    "alt": (cell(DRAW.format(3), alt=""), "a figure has no alt text"),
    "place": (
        ":::{place}\nOne.\n\nTwo.\n:::\n",
        "8: {place} holds one line of links, or nothing",
    ),
    "unlisted": (
        ":::{place}\n:::\n",
        "8: {place} stands on a page that no toctree of index lists",
    ),
    "long": (
        scratch(SCRATCH + "causal(1)\n" * 13, SAME),
        "9: the from-scratch cell must have at most 15 lines, and has 16",
    ),
    "annotated": (
        scratch(SCRATCH.replace("(n)", "(n: int)", 1), SAME),
        "9: the from-scratch cell must have no annotations",
    ),
    "alone": (
        scratch(SCRATCH, "", "## Next\n\n" + cell(SAME, "compare")),
        "9: the from-scratch cell must be followed by a cell tagged compare before the next heading",
    ),
    "own": (
        scratch(SCRATCH, "assert causal(3)[0, 0]"),
        f"9: {COMPARED}imports nothing from posattn",
    ),
    "hidden": (
        scratch(SCRATCH, LIBRARY[:-1] + " as causal\nassert causal(3)[0, 0]"),
        f"9: {COMPARED}hides causal behind the library's name",
    ),
    "other": (
        scratch(SCRATCH, LIBRARY + "assert causal_mask(3)[0, 0]"),
        f"9: {COMPARED}does not use causal",
    ),
    "silent": (
        scratch(SCRATCH, LIBRARY + "same = causal(3) == causal_mask(3)"),
        f"9: {COMPARED}holds no assert",
    ),
    "wrong": (
        scratch(SCRATCH, SAME.replace("==", "!=")),
        "Executing notebook failed: CellExecutionError",
    ),
    "gears": (
        ":::{explorer} gears\nThe twin.\n:::\n",
        "8: explorer must be one of clocks, rotary, got 'gears'",
    ),
    "empty": (
        ":::{explorer} rotary\n:::\n",
        "8: explorer 'rotary' must hold a static twin, got nothing",
    ),
    "unnumbered": ("## Exercises\n\n" + exercise("Name", RUN), f"8: {SECTIONS}"),
    "skipping": (
        "## Exercises\n\n" + exercise("1. A", RUN) + exercise("3. B", RUN),
        f"8: {SECTIONS}",
    ),
    "plain": ("## Exercises\n\n1. Compute it.\n", f"8: {SECTIONS}"),
    "unsolved": (
        "## Exercises\n\n" + exercise("1. Open", ""),
        "10: the exercise 1. Open has no solution that is run",
    ),
    "talking": (
        "## Exercises\n\n" + exercise("1. Proved", solution("Clearly.")),
        "10: the exercise 1. Proved has no solution that is run",
    ),
    "tested": (
        "## Exercises\n\n"
        + exercise("1. Tested", solution("```{doctest}\n>>> 6 * 7\n42\n```")),
        None,
    ),
    "thousand": (
        cell("print(6 * 7, 1000)") + "Of 1,001 words some are short.\n",
        f"16: {TYPED.format('1,001')}",
    ),
    "point": ("Half is $0.5$, not 0.6.\n\n" + cell("1"), f"8: {TYPED.format('0.6')}"),
    "computed": (
        cell("print(6 * 7, 1000)")
        + "Of 1,000 words 42 are short, as $x = 0.5$ says; see `7.5`.\n",
        None,
    ),
    "untrue": (
        cell("print(1 == 2)  # no") + "It is.\n",
        "a cell prints False, and no word around it says so",
    ),
    "undefined": (
        cell("print(0 * float('inf'))  # no") + "It is.\n",
        "a cell prints nan, and no word around it says so",
    ),
    "said": (
        cell("print(1 == 2)") + "It is not: false.\n\n" + cell("float('nan')  # NaN"),
        None,
    ),
}
WHOLE = [  # of the book
    "unread2024 stands in references.bib but is not cited",
    "old2023 stands in references.bib with the year 2024",
    "posattn.jax.causal_mask is public but not documented",
]
SPHINX = re.compile("Notebook exception traceback|document isn't included in any toctree")
WORK = "@misc{{{}, title={{A Title}}, author={{Nobody}}, year={{2024}}}}\n"
SAID = re.compile(r"/(\w+)\.md:(\d*):? (?:WARNING|ERROR): (.*?)(?: \[[\w.]+\])*$", re.M)


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    """What a build says of all of them."""
    folder = tmp_path_factory.mktemp("faults")
    pages = {name: text for name, (text, _) in FAULTS.items()}
    books.write(folder, pages, WORK.format("unread2024") + WORK.format("old2023"))
    _, code, said = books.build(folder)
    assert code != 0
    return said


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_named_with_its_line_and_nothing_else_is_said(said, name):
    about = [
        f"{line}: {text}".removeprefix(": ")
        for page, line, text in SAID.findall(said)
        if page == name and not SPHINX.match(text)
    ]
    assert about == [FAULTS[name][1]] * (FAULTS[name][1] is not None)


@pytest.mark.parametrize("line", WHOLE)
def test_a_fault_of_the_whole_book_is_named(said, line):
    assert f"WARNING: {line}\n" in said


@pytest.mark.parametrize(
    ("text", "builder", "line"),
    [
        ("$\\notacommand{x}$\n", "html", "Undefined control sequence: \\notacommand"),
        (cell("import os\nos._exit(3)"), "html", "DeadKernelError"),
        (
            cell("1") + "A note.[^1]\n\n[^1]: Its text.\n",
            "notebooks",
            "page.md:18: WARNING: a notebook cannot hold the node footnote\n",
        ),
    ],
    ids=["formula", "dead", "footnote"],
)
def test_a_fault_that_ends_the_build_or_belongs_to_one_form_is_named(
    tmp_path, text, builder, line
):
    books.write(tmp_path, {"page": text}, settings=books.WITHOUT_GATES)
    _, code, said = books.build(tmp_path, builder)
    assert code != 0
    assert line in said
