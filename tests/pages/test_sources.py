"""Where the parts of the sources stand; tests/build asks whether all that the rows name exists."""

import ast
from importlib.resources import files

from tests.pages.reading import DOCS

WORKS = [
    "Lin.Feng.Santos.ea.2017",
    "Vaswani.Shazeer.Parmar.ea.2017",
    "Cheng.Dong.Lapata.2016",
    "Parikh.Tackstrom.Das.ea.2016",
    "Paulus.Xiong.Socher.2018",
    "Hochreiter.Bengio.Frasconi.ea.2001",
    "shaw2018self",
    "huang2019music",
]


def test_the_eight_works_are_cited():
    """| the eight works cited | {doc}`bibliography`, {doc}`attention/self_attention`,
    {doc}`attention/complexity`, {doc}`exercises` |
    """
    assert len(WORKS) == 8
    names = "attention/self_attention", "attention/complexity", "exercises"
    pages = "\n".join((DOCS / f"{name}.md").read_text("utf-8") for name in names)
    assert [work for work in WORKS if work not in pages] == []


def test_jax_of_d2l_builds_its_table_at_every_call():
    """the table of encodings is not a buffer, and JAX builds it at every call

    JAX: setup, .at[].set and sow of the table
    """
    tree = ast.parse((files("d2l") / "jax.py").read_bytes())
    (encoding,) = (
        node for node in tree.body if getattr(node, "name", None) == "PositionalEncoding"
    )
    (setup,) = (part for part in encoding.body if getattr(part, "name", None) == "setup")
    assert ast.unparse(setup).count(".at[") == 2
