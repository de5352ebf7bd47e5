"""What can be said of the ports without their frameworks: `nox -s ports` runs them."""

import ast
import re
import sys
from pathlib import Path

import pytest

import posattn
from docs._ext.book import twins
from tests.nightly.ports import record

ROOT = Path(__file__).parents[2]

PACKAGE = Path(posattn.__file__).parent
SCRIPTS = sorted(record.SCRIPTS.rglob("*.py"))
ON_PORTS = pytest.mark.parametrize("port", record.PORTS)
WHERE = {
    "MultiHeadAttention": "multi_head",
    "PositionalEncoding": "sinusoidal",
    "length_mask": "masks",
    "masked_softmax": "definition",
    "scaled_dot_product_attention": "attention",
    "sinusoidal_encoding": "sinusoidal",
}
FRAMEWORK_ONLY = {"dtype", "device", "rng"}
COLUMNS_ONLY = {
    "attention",
    "num_kv_heads",
    "head_dim",
    "kv_dim",
    "use_output_bias",
    "sinks",
}
COLUMNS_ONLY |= {
    "query_norm",
    "key_norm",
    "value_norm",
    "soft_cap",
    "gate",
    "select",
    "indexer",
}
COLUMNS_ONLY |= {"query_positions", "coordinates", "cache"}  # beyond the section
SELF_ATTENTION = {"key", "value"}  # which a port must be given


def definitions(path):
    """The functions and classes at the top of a file, by name."""
    body = ast.parse(path.read_text(encoding="utf-8")).body
    return {node.name: node for node in body if hasattr(node, "name")}


def signature(function):
    """Positional and keyword-only parameters with their defaults, those of one framework left out."""
    given = function.args
    positional = [a.arg for a in given.args if a.arg != "self"]
    only = {
        a.arg: default and ast.unparse(default)
        for a, default in zip(given.kwonlyargs, given.kw_defaults, strict=True)
        if a.arg not in FRAMEWORK_ONLY
    }
    return positional, only, [ast.unparse(default) for default in given.defaults]


def entrances(node, *calls):
    """The signatures under which a name is used: a function's own, or of making and calling."""
    if isinstance(node, ast.FunctionDef):
        return [signature(node)]
    methods = {part.name: part for part in node.body if isinstance(part, ast.FunctionDef)}
    call = next(methods[name] for name in calls if name in methods)
    return [signature(methods["__init__"]), signature(call)]


@ON_PORTS
def test_ports_have_the_names_of_the_section(port):
    body = ast.parse((PACKAGE / "ports" / f"{port}.py").read_text(encoding="utf-8")).body
    (names,) = [
        n.value for n in body if isinstance(n, ast.Assign) and n.targets[0].id == "__all__"
    ]
    assert ast.literal_eval(names) == list(WHERE)


@ON_PORTS
@pytest.mark.parametrize("name", WHERE)
def test_ports_are_made_and_called_like_the_columns(port, name):
    ours = definitions(*PACKAGE.glob(f"torch/*/{WHERE[name]}.py"))[name]
    theirs = definitions(PACKAGE / "ports" / f"{port}.py")[name]
    for got, wanted in zip(
        entrances(theirs, "__call__", "forward"), entrances(ours, "forward"), strict=True
    ):
        assert got[0] == wanted[0]
        left_out = COLUMNS_ONLY | ({"key_positions", "mask"} - set(got[1]))
        assert got[1] == {k: v for k, v in wanted[1].items() if k not in left_out}
        assert got[2] in (wanted[2], wanted[2][len(SELF_ATTENTION) :])


def test_nothing_else_imports_a_port_or_its_framework():
    ports = re.compile(
        rf"^\s*(?:import|from) (?:posattn\.ports|{'|'.join(record.PORTS)})\b", re.M
    )
    paths = [path for path in PACKAGE.rglob("*.py") if path.parent.name != "ports"]
    assert [path for path in paths if ports.search(path.read_text("utf-8"))] == []


@pytest.mark.parametrize(
    "script", SCRIPTS, ids=[str(s.relative_to(record.SCRIPTS)) for s in SCRIPTS]
)
def test_no_recording_is_stale(script):
    recorded = record.load(script)
    assert recorded is not None, "run nox -s ports"
    assert len(recorded["printed"]) == len(record.cells(script))
    assert all(text.strip() for text in recorded["printed"])


@pytest.fixture
def script(tmp_path, monkeypatch):
    """A script of one cell for a page of its own, with a recording that is up to date."""
    monkeypatch.setattr(record, "DOCS", tmp_path)
    port = tmp_path.parent / "src" / "posattn" / "ports" / "numpy.py"
    port.parent.mkdir(parents=True, exist_ok=True)
    port.write_text("port\n")
    (tmp_path / "page.md").write_text(
        "```{code-cell} python\n:tags: [data]\nx = 20\nprint(x)\n```\n"
    )
    path = tmp_path / "page" / "numpy.py"
    path.parent.mkdir()
    path.write_text("# %%\nprint(x + 1)\n")
    record.record(path)
    return path


def test_a_recording_holds_what_the_cells_printed(script):
    recorded = record.load(script)
    assert recorded["printed"] == ["21\n"]
    assert recorded["versions"]["python"] == sys.version.split()[0]


@pytest.mark.parametrize(
    "changed", ["page/numpy.py", "page.md", "../src/posattn/ports/numpy.py"]
)
def test_a_recording_is_stale_once_anything_it_ran_has_changed(script, changed):
    path = record.DOCS / changed
    path.write_text(
        path.read_text().replace("print", "print ").replace("s", "S").replace("port", "x")
    )
    assert record.load(script) is None


def test_a_page_shows_each_cell_with_what_was_recorded(script):
    cell, note = twins.recorded(script, "print(x + 1)", 0)
    assert cell.astext().split("\n\n") == ["print(x + 1)", "21"]
    assert "numpy" in note.astext()
