"""What a build says of the faults of a page, and of which line: each fails the build."""

import json
import re

import pytest

from tests.build import books
from tests.build.books import cell

DRAW = "from posattn import figures\nfigures.offsets([1, 2, {}])"
FAULTS = {  # the text of a page, and what is said of it
    "early": (
        ":::{place}\n{doc}`text`\n:::\n",
        "8: {place} needs text, which comes after early",
    ),
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
    "twin": ("```{twins} masks:causal_mask\n```\n", None),
    "lost": (
        "```{twins} masks:no_such_mask\n```\n",
        "8: no twin: posattn.torch has no no_such_mask",
    ),
    "alt": (cell(DRAW.format(3), alt=""), "9: a figure has no alt text"),
    "caption": (
        ":::{caption} fig-nothing\n:alt: waves\n\nNo cell is above.\n:::\n",
        "8: no cell above draws what this captions",
    ),
    "place": (
        ":::{place}\nOne.\n\nTwo.\n:::\n",
        "8: {place} holds one line of links, or nothing",
    ),
    "unlisted": (
        ":::{place}\n:::\n",
        "8: {place} stands on a page that no toctree of index lists",
    ),
    "unseen": ("It does {seen}`nobody/nothing`.\n", "8: no record of 'nobody/nothing'"),
    "wrong": (cell("1 / 0"), "cell 1, line 1: ZeroDivisionError: division by zero"),
    "deck": (
        "## Two\n\n```{from-page} thm-none\n```\n",
        "10: no page has 'thm-none'",
    ),
    "stale": (
        cell("print(1)", "torch") + cell("print(1)", "jax"),
        "9: PyTorch and MLX print different text",
    ),
    "fewer": (
        cell("print(1)", "torch") + cell("print(1)", "jax"),
        "9: _ports/fewer/mlx.py has 2 cells, and its page 1 pairs",
    ),
}
PORTS = {  # cells of a port, and what they printed when they were recorded
    "stale": (["print(one)"], ["2\n"]),
    "fewer": (["print(one)", "print(one)"], ["1\n", "1\n"]),
}
SAID = re.compile(r"/(\w+)\.md:(\d*):? (?:WARNING|ERROR): (.*?)(?: \[[\w.]+\])*$", re.M)
SPHINX = re.compile("Notebook exception traceback|document isn't included in any toctree")


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    """What a build says of all of them."""
    folder = tmp_path_factory.mktemp("faults")
    books.write(folder, {name: text for name, (text, _) in FAULTS.items()})
    for name, (cells, printed) in PORTS.items():
        script = folder / "_ports" / name / "mlx.py"
        script.parent.mkdir(parents=True)
        script.write_text("".join(f"# %%\n{code}\n" for code in cells))
        recorded = {"printed": printed, "versions": {"mlx": "1"}}
        script.with_suffix(".json").write_text(json.dumps(recorded))
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


@pytest.mark.parametrize(
    ("text", "builder", "line"),
    [
        (cell("import os\nos._exit(3)"), "html", "cell 1: its process ended"),
        (
            cell("1") + "A note.[^1]\n\n[^1]: Its text.\n",
            "notebooks",
            "page.md:18: WARNING: a notebook cannot hold the node footnote\n",
        ),
    ],
    ids=["dead", "footnote"],
)
def test_a_fault_that_ends_the_build_or_belongs_to_one_form_is_named(
    tmp_path, text, builder, line
):
    books.write(tmp_path, {"page": text})
    _, code, said = books.build(tmp_path, builder)
    assert code != 0
    assert line in said
