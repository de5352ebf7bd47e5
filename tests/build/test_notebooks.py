"""The notebooks: what is seen, and nothing else, runs where the other framework is missing."""

import subprocess
import sys

import nbformat
import pytest
from nbformat import v4 as notebook

from tests.build import books
from tests.build.books import ADDRESS, ROOT

pytestmark = pytest.mark.slow  # small books


@pytest.fixture(scope="module")
def notebooks(book):
    """The folder of the notebooks."""
    return book("notebooks")


def cells(folder, name, kind):
    """The cells of a notebook that are of a kind."""
    read = nbformat.read(folder / name, as_version=4)
    nbformat.validate(read)
    return [cell for cell in read.cells if cell.cell_type == kind]


def text(folder, name):
    """All text of a notebook."""
    return "\n\n".join(cell.source for cell in cells(folder, name, "markdown"))


def test_a_page_has_one_notebook_for_each_of_its_frameworks(notebooks, site):
    names = {path.name for path in notebooks.glob("*.ipynb")}
    assert {"pair-pytorch.ipynb", "pair-jax.ipynb", "chapter-numpy.ipynb"} <= names
    assert not [name for name in names if name.startswith(("other", "cards"))]
    assert 'href="_notebooks/pair-jax.ipynb" download' in (site / "pair.html").read_text()


def test_where_the_repository_is_known_notebooks_open_elsewhere(tmp_path):
    known = 'repository = "https://github.com/someone/posattn"\n'
    books.write(tmp_path, {"one": books.cell("1")}, settings=known)
    out, code, said = books.build(tmp_path)
    assert code == 0, said
    page = (out / "one.html").read_text()
    place = "someone/posattn/blob/notebooks/one-numpy.ipynb"
    for start in (
        "https://colab.research.google.com/github/",
        "https://kaggle.com/kernels/welcome?src=https://github.com/",
    ):
        assert f'href="{start}{place}"' in page


@pytest.mark.parametrize(
    ("name", "module", "code"),
    [("pytorch", "torch", "print(1 + 1)"), ("jax", "jax", "print(2)")],
)
def test_visible_cells_of_one_framework_are_there_with_what_they_printed(
    notebooks, name, module, code
):
    install, own, both = cells(notebooks, f"pair-{name}.ipynb", "code")
    assert install.metadata.tags == ["install"]
    assert install.source == f'%pip install --quiet "posattn[{module},figures,weights]"'
    assert code in own.source
    assert own.outputs[0] == notebook.new_output("stream", text="2\n")
    assert own.outputs[1].data["image/svg+xml"].startswith("<svg")
    assert both.source == "print('both')"


def test_the_text_begins_with_the_question_and_says_where_it_is_from(notebooks):
    written = text(notebooks, "pair-jax.ipynb")
    assert written.startswith("# Pair\n\n*Which one?*\n\nThis is ")
    assert f"[the page “Pair”]({ADDRESS}/pair.html)" in written
    assert "as a notebook for JAX" in written
    assert "`posattn.jax.causal_mask`" in written
    assert "def " not in written


def test_what_a_hidden_cell_drew_is_a_picture(notebooks):
    written = text(notebooks, "chapter-numpy.ipynb")
    assert "![waves](data:image/svg+xml;base64," in written
    assert "**Fig. 1.** Drawn" in written or "**Fig. 2.** Drawn" in written
    _, drawing = cells(notebooks, "chapter-numpy.ipynb", "code")
    assert [output.output_type for output in drawing.outputs] == ["stream", "display_data"]


def test_a_solution_is_folded(notebooks):
    written = cells(notebooks, "solution-numpy.ipynb", "markdown")
    (answer,) = (cell for cell in written if "Answer" in cell.source)
    assert answer.metadata == {"jp-MarkdownHeadingCollapsed": True}


def test_a_piece_of_each_kind_is_markdown(notebooks, snapshot):
    """If not, read it: `pytest tests/build/test_notebooks.py --snapshot-update`."""
    pieces = text(notebooks, "pieces-numpy.ipynb").partition("Signs to escape")[2]
    assert pieces == snapshot


def test_references_are_text_and_what_they_name_is_numbered(notebooks, snapshot):
    pieces = text(notebooks, "pair-jax.ipynb").partition("as a notebook for JAX.")[2]
    assert pieces == snapshot


def written(folder, name, framework, code, printed):
    """Write a notebook of one cell, below the one that installs."""
    output = [notebook.new_output("stream", text=printed)] if printed else []
    install = notebook.new_code_cell("%pip", metadata={"tags": ["install"]})
    cell = notebook.new_code_cell(code, outputs=output, id="one")
    made = notebook.new_notebook(cells=[install, cell])
    made.metadata = {"posattn": {"framework": framework}}
    nbformat.write(made, folder / f"{name}.ipynb")


def rerun(folder):
    """What the command says that runs notebooks as their readers do."""
    command = [sys.executable, "-m", "tests.build.rerun", str(folder)]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
    )
    return done.returncode, done.stdout


def test_the_notebooks_of_a_page_print_what_it_shows(notebooks):
    code, said = rerun(notebooks)
    assert code == 0, said
    assert said.count("agrees") == len(list(notebooks.rglob("*.ipynb")))


def test_what_a_reader_lacks_or_sees_otherwise_is_reported(tmp_path):
    draws = "from posattn import figures\nfigures.offsets([1, 2, 3])"
    written(tmp_path, "crossed", "torch", "import jax", "")
    written(tmp_path, "hidden", "numpy", "print(glued)", "2\n")
    written(tmp_path, "other", "numpy", "1 + 2", "2\n")
    written(tmp_path, "book", "numpy", "import myst_nb", "")
    written(tmp_path, "figure", "numpy", draws, "")
    written(tmp_path, "right", "numpy", "print(6 * 7)", "42\n")
    code, said = rerun(tmp_path)
    assert code == 1
    assert "ModuleNotFoundError: No module named 'jax'" in said
    assert "ModuleNotFoundError: No module named 'myst_nb'" in said
    assert "NameError: name 'glued' is not defined" in said
    assert "other.ipynb, cell one:\n  on the page:\n    2\n  here:\n    3\n" in said
    assert "on the page:\n    (nothing)\n  here:\n    (a figure)" in said
    assert said.count("differs") == 5
    assert said.count("agrees") == 1


def test_no_notebooks_are_no_success(tmp_path):
    assert rerun(tmp_path) == (1, f"no notebooks in {tmp_path}\n")
