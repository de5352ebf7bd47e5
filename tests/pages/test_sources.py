"""Where the parts of the sources stand; tests/build asks whether all that the rows name exists."""

import ast
from importlib.resources import files

from tests.pages.reading import DOCS

WORKS = """
    Lin.Feng.Santos.ea.2017 Vaswani.Shazeer.Parmar.ea.2017 Cheng.Dong.Lapata.2016
    Parikh.Tackstrom.Das.ea.2016 Paulus.Xiong.Socher.2018
    Hochreiter.Bengio.Frasconi.ea.2001 shaw2018self huang2019music
"""


def test_the_eight_works_are_cited():
    names = "attention/self_attention", "scale/complexity", "reference/exercises"
    pages = "\n".join((DOCS / f"{name}.md").read_text("utf-8") for name in names)
    assert [work in pages for work in WORKS.split()] == 8 * [True]


def test_jax_of_d2l_builds_its_table_at_every_call():
    tree = ast.parse((files("d2l") / "jax.py").read_bytes())
    named = {getattr(node, "name", None): node for node in tree.body}
    parts = {getattr(node, "name", None): node for node in named["PositionalEncoding"].body}
    assert ast.unparse(parts["setup"]).count(".at[") == 2
