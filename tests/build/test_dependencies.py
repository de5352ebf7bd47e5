"""What a page depends on: the modules that its cells use, and nothing that they do not."""

import threading
from types import SimpleNamespace

import pytest
from nbformat import v4 as notebook

from docs._ext.book import complaints, dependencies, names, reading
from posattn import reference


def stems(*sources):
    """The names of the files that some cells depend on."""
    return {
        path.relative_to(dependencies.PACKAGE).as_posix()
        for path in dependencies.of(sources)
    }


@pytest.mark.parametrize(
    "code",
    [
        "from posattn.reference import alibi_slopes",
        "from posattn import reference\nreference.alibi_slopes(8)",
        "import posattn.reference\nposattn.reference.alibi_slopes(8)",
        "from posattn import reference as numpy_column\nnumpy_column.alibi_slopes",
    ],
)
def test_a_name_depends_on_the_module_that_defines_it(code):
    found = stems(code)
    assert "reference/position/alibi.py" in found
    assert "contract/arrays.py" in found
    assert not {path for path in found if path.startswith(("torch/", "jax/"))}
    assert "reference/position/t5.py" not in found


def test_imports_of_imports_and_data_are_followed():
    assert "torch/attention/cache.py" in stems(
        "from posattn.torch import MultiHeadAttention"
    )
    assert "stories/model.safetensors" in stems("from posattn.stories import CHECKPOINT")


def test_a_package_that_is_passed_on_counts_as_a_whole():
    assert "jax/position/t5.py" in stems("from posattn import jax\ncolumns = [jax]")


def test_a_package_that_goes_through_its_modules_depends_on_them():
    assert "reference/position/t5.py" in stems("from posattn.schemes import properties")


def test_a_page_that_starts_a_process_depends_on_everything():
    assert "torch/position/t5.py" in stems(
        "import subprocess\nfrom posattn import reference"
    )


def test_a_change_of_a_cell_or_of_its_code_changes_the_hash(monkeypatch, tmp_path):
    cells = ["from posattn.reference import alibi_slopes"]
    before = dependencies.fingerprint(cells)
    assert dependencies.fingerprint([*cells, "print(1)"]) != before
    other = tmp_path / "alibi.py"
    other.write_text("")
    monkeypatch.setattr(dependencies, "of", lambda sources: [other])
    assert dependencies.fingerprint(cells) != before


def test_cells_of_one_page_run_again_only_when_code_has_changed(monkeypatch, tmp_path):
    ran = []

    def run(made, **options):
        ran.append(made)
        made.cells[0].outputs = [notebook.new_output("stream", text=f"run {len(ran)}")]
        return SimpleNamespace(err=None)

    def printed(source="print(1)"):
        made = notebook.new_notebook(cells=[notebook.new_code_cell(source)])
        reading.execute(made, cwd=".")
        return made.cells[0].outputs[0].text

    monkeypatch.setattr(reading, "single_nb_execution", run)
    monkeypatch.setenv(names.FOLDER, str(tmp_path))
    monkeypatch.delenv("BOOK_PAGE", raising=False)
    assert [printed(), printed()] == ["run 1", "run 2"]
    monkeypatch.setenv("BOOK_PAGE", "one")
    assert [printed(), printed("print(2)"), printed()] == ["run 2", "run 3", "run 2"]
    monkeypatch.setattr(dependencies, "fingerprint", lambda sources: "changed")
    assert printed() == "run 4"


def test_values_come_back_and_what_cannot_be_pickled_is_left_out():
    kept = names.pickled({"slopes": reference.alibi_slopes(2), "lock": threading.Lock()})
    assert names.Names(kept).slopes.tolist() == [2**-4, 2**-8]
    with pytest.raises(AttributeError, match="no cell has kept lock"):
        names.Names(kept).lock  # noqa: B018


BROKEN = """Executing notebook failed: CellExecutionError
------------------
import numpy
import nowhere
------------------

\x1b[31mModuleNotFoundError\x1b[39m Traceback (most recent call last)
\x1b[36mCell\x1b[39m\x1b[36m In[7]\x1b[39m\x1b[32m, line 2\x1b[39m
ModuleNotFoundError: No module named 'nowhere'
 [mystnb.exec]"""


def test_a_broken_cell_is_told_in_one_line():
    assert (
        complaints.told(BROKEN)
        == "cell 7, line 2: ModuleNotFoundError: No module named 'nowhere'"
    )
