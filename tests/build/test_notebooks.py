"""The notebooks: what is seen, and nothing else, runs where the other framework is missing."""

import subprocess
import sys

import nbformat
import pytest
from nbformat import v4 as notebook

from tests.build import noted
from tests.build.books import FIGURE, ROOT, build, cell

pytestmark = pytest.mark.slow  # small books

PAGES = {
    "pair": "*Which sum?*\n\n$$\n1 + 1 = 2\n$$ (eq_sum)\n\n"
    ":::{prf:theorem} Sums\n:label: thm-sum\nBy {eq}`eq_sum`, *two*.\n:::\n\n"
    + cell("print(1 + 1)", "torch")
    + cell("print(2)", "jax")
    + cell("number = 2", "remove-cell")
    + cell("print('both')")
    + "See {prf:ref}`thm-sum` and {cite:t}`doe2024`.\n\n"
    + "| a | b |\n|---|---|\n| $\\|x\\|$ | _c_ |\n\n"
    + "```{twins} masks:causal_mask\n```\n",
    "plain": cell(
        FIGURE.format(last=3),
        "remove-input",
        figure="  figure: {name: fig-drawn, caption: Drawn}\n",
    )
    + "{.solution}\n## Answer\n\n"
    + cell("print(number := 3)\n" + FIGURE.format(last=3)),
}
BIBLIOGRAPHY = "@misc{doe2024, title={On Sums}, author={Jane Doe}, year={2024}}"


@pytest.fixture(scope="module")
def book(tmp_path_factory):
    folder = tmp_path_factory.mktemp("book")
    pages = PAGES | {"works": "```{bibliography}\n```\n"}
    made, _, said = build(folder, pages, BIBLIOGRAPHY, builder="notebooks")
    assert "WARNING" not in said
    return made


def cells(folder, name, kind):
    book = nbformat.read(folder / name, as_version=4)
    nbformat.validate(book)
    return [cell for cell in book.cells if cell.cell_type == kind]


def text(folder, name):
    return "\n\n".join(cell.source for cell in cells(folder, name, "markdown"))


def test_a_page_has_one_notebook_for_each_of_its_frameworks(book):
    names = {path.name for path in book.glob("*.ipynb")}
    assert names == {"pair-pytorch.ipynb", "pair-jax.ipynb", "plain-numpy.ipynb"}


@pytest.mark.parametrize(
    ("name", "module", "code"),
    [("pytorch", "torch", "print(1 + 1)"), ("jax", "jax", "print(2)")],
)
def test_visible_cells_of_one_framework_are_there_with_what_they_printed(
    book, name, module, code
):
    install, own, both = cells(book, f"pair-{name}.ipynb", "code")
    assert install.metadata.tags == ["install"]
    assert install.source == f'%pip install --quiet "posattn[{module},figures]"'
    assert own.source == code
    assert own.outputs == [notebook.new_output("stream", text="2\n")]
    assert both.source == "print('both')"


def test_references_are_text_and_what_they_name_is_numbered(book):
    written = text(book, "pair-jax.ipynb")
    assert "\n1 + 1 = 2\n\\tag{1}\n$$" in written
    assert "> **Theorem 1 (Sums).**\n>\n> By (1), *two*." in written
    assert "See Theorem 1 and Doe [Doe24]." in written
    assert "## References\n\n- Jane Doe" in written
    assert "| $\\vert x\\vert $ | *c* |" in written


def test_the_text_begins_with_the_question_and_shows_no_source_of_the_library(book):
    written = text(book, "pair-jax.ipynb")
    assert written.startswith("# pair\n\n*Which sum?*\n\nThis is the page “pair”")
    assert "as a notebook for JAX" in written
    assert "`posattn.jax.causal_mask`" in written
    assert "def " not in written


def test_what_a_hidden_cell_drew_is_a_picture_and_what_a_visible_one_draws_is_its_output(
    book,
):
    assert "![waves](data:image/svg+xml;base64," in text(book, "plain-numpy.ipynb")
    assert "**Fig. 1.** Drawn" in text(book, "plain-numpy.ipynb")
    _, drawing = cells(book, "plain-numpy.ipynb", "code")
    assert [output.output_type for output in drawing.outputs] == ["stream", "display_data"]
    assert drawing.outputs[1].data["image/svg+xml"].startswith("<svg")


def test_a_solution_is_folded(book):
    (answer,) = (
        c for c in cells(book, "plain-numpy.ipynb", "markdown") if "Answer" in c.source
    )
    assert answer.metadata == {"jp-MarkdownHeadingCollapsed": True}


def written(folder, name, framework, code, printed):
    output = [notebook.new_output("stream", text=printed)] if printed else []
    made = notebook.new_notebook(
        cells=[notebook.new_code_cell(code, outputs=output, id="one")]
    )
    made.metadata = {"posattn": {"framework": framework}}
    nbformat.write(made, folder / f"{name}.ipynb")


def rerun(folder):
    return subprocess.run(
        [sys.executable, "-m", "tests.build.rerun", str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_the_notebooks_of_a_page_print_what_it_shows(book):
    result = rerun(book)
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.count("agrees") == 3


def test_what_a_reader_lacks_or_sees_otherwise_is_reported(tmp_path):
    written(tmp_path, "crossed", "torch", "import jax", "")
    written(tmp_path, "hidden", "numpy", "print(glued)", "2\n")
    written(tmp_path, "other", "numpy", "1 + 2", "2\n")
    written(tmp_path, "book", "numpy", "import myst_nb", "")
    written(
        tmp_path, "right", "numpy", "import sys; print('torch' in sys.modules)", "False\n"
    )
    result = rerun(tmp_path)
    assert result.returncode == 1
    assert "ModuleNotFoundError: No module named 'jax'" in result.stdout
    assert "ModuleNotFoundError: No module named 'myst_nb'" in result.stdout
    assert "NameError: name 'glued' is not defined" in result.stdout
    assert (
        "other.ipynb, cell one:\n  on the page:\n    2\n  here:\n    3\n" in result.stdout
    )
    assert result.stdout.count("differs") == 4
    assert result.stdout.count("agrees") == 1


def test_a_missing_figure_is_reported(tmp_path):
    written(tmp_path, "figure", "numpy", FIGURE.format(last=3).strip(), "")
    result = rerun(tmp_path)
    assert result.returncode == 1
    assert "on the page:\n    (nothing)\n  here:\n    (a figure)" in result.stdout


def test_what_is_said_of_faults_is_what_was_noted(tmp_path):
    pages = {"footnote": cell("1") + "A note.[^1]\n\n[^1]: Its text.\n"}
    _, code, said = build(tmp_path, pages, builder="notebooks")
    assert code != 0
    assert "a notebook cannot hold the node footnote" in said
    noted.compare_faults("notebooks", said)


def test_no_notebooks_are_no_success(tmp_path):
    result = rerun(tmp_path)
    assert result.returncode == 1
    assert result.stdout == f"no notebooks in {tmp_path}\n"
