"""What the extensions do around the text of a page: orders, names of types, dependencies, colours."""

import importlib
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock

import nbformat
import numpy as np
import pytest
import torch
from jax.typing import DTypeLike
from nbformat import v4 as notebook
from numpy.typing import ArrayLike
from sphinx import builders
from sphinx.util.typing import stringify_annotation
from sphinx_proof.domain import ProofDomain

from tests.build.books import ROOT

FOLDER = ROOT / "docs" / "_ext" / "book"
EXTENSIONS = [
    p.stem for p in sorted(FOLDER.glob("*.py")) if "\ndef setup(app" in p.read_text("utf-8")
]


@pytest.fixture(autouse=True)
def as_the_book_imports_them(monkeypatch):
    """Extensions import each other by their own names, and one of them changes Sphinx."""
    monkeypatch.syspath_prepend(FOLDER)
    monkeypatch.setattr(builders, "make_chunks", builders.make_chunks)
    monkeypatch.setattr(ProofDomain, "merge_domaindata", ProofDomain.merge_domaindata)


@pytest.mark.parametrize("name", EXTENSIONS)
def test_every_extension_lets_pages_be_read_and_written_side_by_side(name):
    app = MagicMock()
    said = importlib.import_module(f"docs._ext.book.{name}").setup(app)
    assert said == {"parallel_read_safe": True, "parallel_write_safe": True}
    # what is made anew when a setting changes: an unknown word would mean nothing
    assert {call.args[2] for call in app.add_config_value.call_args_list} <= {"", "html"}


@pytest.mark.parametrize(
    ("annotation", "name"),
    [
        (torch.Generator, "torch.Generator"),
        (np.random.Generator, "numpy.random.Generator"),
        (np.ndarray | None, "numpy.ndarray | None"),
        (ArrayLike, "numpy.typing.ArrayLike"),
        (DTypeLike, "jax.typing.DTypeLike"),
        (torch.distributed.ProcessGroup, "torch.distributed.ProcessGroup"),
    ],
)
def test_types_have_the_names_under_which_users_know_them(annotation, name):
    api = importlib.import_module("docs._ext.book.api")
    assert api.public(stringify_annotation(annotation, "smart")) == name


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("x: ~jaxlib._jax.Array", "x: jax.Array"),
        ("x: ~jax.jaxlib._jax.Array", "x: jax.Array"),
        ("x: Float[ndarray, 'n']", "x: Float[numpy.ndarray, 'n']"),
        ("x: Float[Tensor, 'n']", "x: Float[torch.Tensor, 'n']"),
        (
            "x: ~mlx.core.array = ~keras.layers.Layer",
            "x: mlx.core.array = keras.layers.Layer",
        ),
        ("x: ~posattn.reference.Rotary", "x: ~posattn.reference.Rotary"),
    ],
)
def test_a_signature_names_types_in_full(written, read):
    api = importlib.import_module("docs._ext.book.api")
    nothing = None, "function", "name", None, None
    assert api.name_types(*nothing, written, written) == (read, read)
    assert api.name_types(*nothing, None, "") == (None, "")


def test_dollars_in_a_docstring_are_mathematics():
    api, lines = (
        importlib.import_module("docs._ext.book.api"),
        ["where $x$ and $y_1$", "costs 5$"],
    )
    api.inline_math(None, "function", "name", None, None, lines)
    assert lines == ["where :math:`x` and :math:`y_1`", "costs 5$"]


def test_a_port_has_the_signature_that_its_source_has():
    api, rest = importlib.import_module("docs._ext.book.api"), (None, None, None, None)
    layer = "posattn.ports.mlx.MultiHeadAttention"
    said, returns = api.sign_ports(None, "class", layer, *rest)
    assert said.startswith("(dim: int, num_heads: int")
    assert "self" not in said
    assert returns is None
    assert api.sign_ports(None, "function", layer, *rest) is None
    assert api.sign_ports(None, "class", "posattn.torch.MultiHeadAttention", *rest) is None


@pytest.mark.parametrize(
    ("page", "tags"),
    [
        ("_modules/posattn", '<meta old><meta name="robots" content="noindex">'),
        ("api/posattn", "<meta old>"),
    ],
)
def test_search_engines_pass_over_source(page, tags):
    context = {"metatags": "<meta old>"}
    importlib.import_module("docs._ext.book.api").hide_source(None, page, "", context, None)
    assert context["metatags"] == tags


def test_a_page_is_read_again_when_code_or_a_recording_changes():
    env = MagicMock()
    app = SimpleNamespace(env=env, srcdir=ROOT / "docs")
    importlib.import_module("docs._ext.book.cells").depend_on_code(app, None)
    known = {Path(call.args[0]).resolve() for call in env.note_dependency.call_args_list}
    found = [*(ROOT / "src" / "posattn").rglob("*"), *FOLDER.rglob("*")]
    found += (ROOT / "docs" / "_ports").rglob("*")
    assert known == {p.resolve() for p in found if p.suffix in {".py", ".json"}}
    assert {p.suffix for p in known} == {".py", ".json"}


def test_long_pages_come_first_and_each_hand_has_its_share(tmp_path):
    pages = importlib.import_module("docs._ext.book.cells")
    sizes = {"short": 1, "longest": 3, "long": 2}
    for name, size in sizes.items():
        (tmp_path / name).write_text("x" * size)
    names = list(sizes)
    pages.put_long_first(
        None, SimpleNamespace(doc2path=lambda name: tmp_path / name), names
    )
    assert names == ["longest", "long", "short"]
    assert pages.deal(list(range(14)), 1) == [
        [0, 6, 12],
        [1, 7, 13],
        [2, 8],
        [3, 9],
        [4, 10],
        [5, 11],
    ]
    assert pages.deal(names, 2) == [["longest"], ["long"], ["short"]]


def test_captions_of_the_sidebar_have_a_level():
    pages = importlib.import_module("docs._ext.book.place")
    context = {"furo_navigation_tree": '<p role="heading">A</p>'}
    pages.level_captions(None, "", "", context, None)
    assert context["furo_navigation_tree"] == '<p role="heading" aria-level="2">A</p>'


def test_a_drawing_takes_the_colours_of_the_theme_and_leaves_its_names():
    pages = importlib.import_module("docs._ext.book.figures")
    style = importlib.import_module("posattn.figures.style")
    used = {
        "query": style.QUERY,
        "key": style.KEY,
        "value": style.VALUE,
        "position": style.POSITION,
    }
    lines = "".join(
        f'<path id="line2d_{k}.1" fill="{c.upper()}"/>' for k, c in used.items()
    )
    made = pages.themed(
        f'<svg class="phone" display="none" width="9"><metadata>\nme</metadata>{lines}'
        f'<path id="mine" stroke="{style.INK}"/></svg>'
    )
    want = "".join(f'<path fill="var(--{name}, {c})"/>' for name, c in used.items())
    last = '<path id="mine" stroke="currentColor"/></svg>'
    assert made == f'<svg fill="currentColor" width="9">{want}{last}'
    wide = pages.inline(
        '<svg width="10.5pt" height="4pt"><svg width="1pt" height="2pt"/>', "a", ""
    )
    assert wide == (
        '<svg class="figure" role="img" aria-label="a" style="max-width: 10.5pt">'
        '<svg width="1pt" height="2pt"/>'
    )


def test_a_notebook_against_its_format_is_not_written(monkeypatch, tmp_path):
    notebooks = importlib.import_module("docs._ext.book.notebooks")
    monkeypatch.setattr(notebooks, "frameworks", lambda env, docname: ["torch"])
    book = notebook.new_notebook(cells=[notebook.new_code_cell("1")])
    book.cells[0].id = "no identity"
    builder = SimpleNamespace(outdir=tmp_path, env=None, made=lambda *_: book)
    with pytest.raises(nbformat.ValidationError, match="no identity"):
        notebooks.NotebookBuilder.write_doc(builder, "page", None)
    assert not list(tmp_path.iterdir())


def test_slides_take_the_files_of_the_site_but_for_the_last_folder_and_no_source_code():
    deck = importlib.import_module("docs._ext.book.slides")
    listeners = [
        SimpleNamespace(id=k, handler=SimpleNamespace(__module__=module))
        for k, module in enumerate(["furo", "sphinx.ext.viewcode", "sphinx.ext.todo"])
    ]
    for name, paths, gone in (("html", None, []), ("revealjs", ["a", "b"], [1])):
        config = SimpleNamespace(
            html_static_path=["a", "b", "c"], revealjs_static_path=None
        )
        app = MagicMock(config=config)
        app.builder.name = name
        app.events.listeners = {"html-collect-pages": listeners}
        deck.prepare(app)
        assert config.revealjs_static_path == paths
        assert [call.args for call in app.disconnect.call_args_list] == [(k,) for k in gone]
