"""What cells computed is kept, and pages are read again that warned, or whose making changed."""

import pickle
import threading
from types import SimpleNamespace

import pytest
from nbformat.v4 import new_code_cell, new_notebook, new_output

from docs._ext.book import kept, kernels
from posattn import reference
from tests.build import books
from tests.build.books import cell
from tests.pages.reading import Names


def test_a_hash_is_of_names_and_contents(monkeypatch, tmp_path):
    monkeypatch.setattr(kept, "ROOT", tmp_path)
    path, seen = tmp_path / "src" / "one.py", []
    path.parent.mkdir()
    for text in ("1", "2", "1"):
        path.write_text(text)
        kept.state.cache_clear()
        seen.append(kept.state("src"))
    path.rename(path.with_name("two.py"))
    kept.state.cache_clear()
    assert [seen.index(one) for one in seen] == [0, 1, 0]
    assert kept.state("src") not in seen
    kept.state.cache_clear()


def test_cells_run_again_only_when_they_or_what_they_use_has_changed(monkeypatch, tmp_path):
    ran = []

    def run(sources, folder, timeout):
        ran.append(sources)
        yield [new_output("stream", text=f"run {len(ran)}")], {}

    def printed(source="print(1)", page="one"):
        made = new_notebook(cells=[new_code_cell(source)])
        config = SimpleNamespace(book_page="one", kernel_imports=[])
        env = SimpleNamespace(docname=page, config=config, metadata={page: {}})
        env.note_reread = lambda: ran.append(page)
        kernels.execute(env, tmp_path, made, ".", 9)
        return "".join(output.text for output in made.cells[0].outputs)

    monkeypatch.setattr(kernels, "run", run)
    monkeypatch.setattr(kernels, "FORKS", False)  # nor freeze what this process holds
    assert [printed(), printed(), printed("print(2)"), printed()] == [
        *("run 1", "run 1", "run 2", "run 1")
    ]
    assert printed("print(3)", "two") == ""
    assert ran[-1] == "two"
    monkeypatch.setattr(kept, "state", lambda *names: "changed")
    assert printed() == "run 4"


def test_values_come_back_and_what_cannot_be_pickled_is_left_out():
    found = kernels.pickled({"slopes": reference.alibi_slopes(2), "lock": threading.Lock()})
    assert Names(found).slopes.tolist() == [2**-4, 2**-8]
    with pytest.raises(AttributeError, match="no cell has kept lock"):
        Names(found).lock  # noqa: B018


def test_one_page_is_built_by_itself_and_what_warned_warns_again(tmp_path):
    """The other page, whose cell breaks, is read without running it, and run by the next whole build."""
    made = cell(
        "from myst_nb import glue\nnumber = 40 + 2\nglue('sum', number, display=False)"
    )
    pages = {
        "one": made + "{glue:text}`sum`\n",
        "two": cell("1 / 0") + "{glue:text}`sum`\n",
    }
    books.write(tmp_path, pages)
    one = "-D", "book_page=one"
    out, code, said = books.build(tmp_path, "html", "one.md", options=one)
    assert (code, said) == (0, "")
    assert ">42</a>" in (out / "one.html").read_text("utf-8")
    (path,) = (tmp_path / "build" / "kept").glob("*/*")
    ((outputs, names),) = pickle.loads(path.read_bytes())
    assert (Names(names).number, kept.glued(outputs)) == (42, {"sum": "42"})
    for _ in range(2):
        _, code, said = books.build(tmp_path)
        assert code != 0
        assert said.count("WARNING") == 1
        assert (
            "two.md: WARNING: cell 1, line 1: ZeroDivisionError: division by zero" in said
        )
    books.write(tmp_path, {**pages, "new": ":::{place}\n:::\n"})
    _, code, said = books.build(tmp_path, "html", "new.md", options=["-D", "book_page=new"])
    assert (code, said) == (0, "")
