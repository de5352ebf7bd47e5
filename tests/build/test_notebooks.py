"""The notebooks: what is seen, and nothing else, runs where the other framework is missing."""

import nbformat
import pytest
from nbformat import v4 as notebook

from tests.build.books import ADDRESS
from tests.nightly import rerun


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


def test_a_page_links_to_one_notebook_for_each_of_its_frameworks(notebooks, site):
    names = {path.name for path in notebooks.glob("*.ipynb")}
    assert {"pair-pytorch.ipynb", "pair-jax.ipynb", "chapter-numpy.ipynb"} <= names
    assert not [name for name in names if name.startswith(("other", "cards"))]
    page = (site / "pair.html").read_text()
    assert 'href="_notebooks/pair-jax.ipynb" download' in page
    place = "someone/posattn/blob/notebooks/pair-jax.ipynb"
    assert f'href="https://colab.research.google.com/github/{place}"' in page
    assert (
        f'href="https://kaggle.com/kernels/welcome?src=https://github.com/{place}"' in page
    )


@pytest.mark.parametrize(
    ("name", "module", "code"),
    [("pytorch", "torch", "print(1 + 1)"), ("jax", "jax", "print(2)")],
)
def test_visible_cells_of_one_framework_are_there_with_what_they_printed(
    notebooks, name, module, code
):
    install, own, both = cells(notebooks, f"pair-{name}.ipynb", "code")
    assert install.metadata.tags == ["install"]
    source = "git+https://github.com/someone/posattn"
    wanted = f'%pip install --quiet "posattn[{module},figures,weights] @ {source}"'
    assert install.source == wanted
    assert code in own.source
    assert own.outputs[0] == notebook.new_output("stream", text="2\n")
    assert own.outputs[1].data["image/svg+xml"].startswith("<svg")
    assert both.source == "print('both')"


def test_the_text_says_first_where_it_is_from(notebooks):
    written = text(notebooks, "pair-jax.ipynb")
    assert written.startswith("# Pair\n\nThis is ")
    assert "*Which one?*" in written
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


def ran(folder, framework, code, printed):
    """What is reported of a notebook of one cell that should print this."""
    output = [notebook.new_output("stream", text=printed)]
    install = notebook.new_code_cell("%pip", metadata={"tags": ["install"]})
    cell = notebook.new_code_cell(code, outputs=output, id="one")
    made = notebook.new_notebook(cells=[install, cell])
    made.metadata = {"posattn": {"framework": framework}}
    nbformat.write(made, folder / "made.ipynb")
    return rerun.run_notebook(folder / "made.ipynb")


def test_a_notebook_that_prints_what_its_page_shows_agrees(tmp_path):
    assert ran(tmp_path, "numpy", "print(6 * 7)", "42\n") is None


def test_what_a_reader_lacks_is_reported(tmp_path):
    said = ran(tmp_path, "torch", "import jax", "42\n")
    assert "on the page:\n    42\n" in said
    assert "here:\n    ModuleNotFoundError: No module named 'jax'" in said


def test_a_figure_that_only_the_reader_sees_is_reported():
    drawing = notebook.new_output("display_data", data={"image/svg+xml": "<svg/>"})
    seen = rerun.shown(notebook.new_code_cell("", outputs=[drawing]))
    said = rerun.difference("a.ipynb, cell one:", ("", False), seen)
    assert "on the page:\n    (nothing)\n  here:\n    (a figure)" in said
