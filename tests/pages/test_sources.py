"""From the textbook to this book; tests/build asks whether all that the rows name exists."""

import ast
from importlib.resources import files

import pytest
import torch

from posattn import reference
from posattn import torch as ours
from tests.pages.reading import DOCS

WORKS = """
    Lin.Feng.Santos.ea.2017 Vaswani.Shazeer.Parmar.ea.2017 Cheng.Dong.Lapata.2016
    Parikh.Tackstrom.Das.ea.2016 Paulus.Xiong.Socher.2018
    Hochreiter.Bengio.Frasconi.ea.2001 shaw2018self huang2019music
"""


@pytest.fixture(scope="module")
def d2l(page):
    """What the page keeps of the PyTorch file."""
    (code,) = (cell.code for cell in page.cells if "\nd2l.d2l = d2l\n" in cell.code)
    exec(code, names := {})
    return names["d2l"]


def test_the_eight_works_are_cited():
    names = "attention/self_attention", "scale/complexity", "reference/exercises"
    pages = "\n".join((DOCS / f"{name}.md").read_text("utf-8") for name in names)
    assert [work in pages for work in WORKS.split()] == 8 * [True]


def test_jax_of_d2l_builds_its_table_at_every_call():
    tree = ast.parse((files("d2l") / "jax.py").read_bytes())
    named = {getattr(node, "name", None): node for node in tree.body}
    parts = {getattr(node, "name", None): node for node in named["PositionalEncoding"].body}
    assert ast.unparse(parts["setup"]).count(".at[") == 2


def test_by_hand_two_keys_and_none(d2l):
    scores = torch.tensor([[[0.0, 0.0, 1.0, 1.0]]] * 2)
    lengths = torch.tensor([2, 0])
    weights = ours.masked_softmax(scores, ours.length_mask(lengths, 4))
    half_each = [[1 / 2, 1 / 2, 0, 0]]
    assert weights.tolist() == [half_each, [4 * [0]]]
    assert d2l.masked_softmax(scores, lengths).tolist() == [half_each, [4 * [1 / 4]]]
    assert scores.min() == -1e6


def test_a_very_low_score_loses_to_the_padding(d2l):
    low, one = torch.tensor([[[-2e6, 0.0]]]), torch.tensor([1])
    assert ours.masked_softmax(low, ours.length_mask(one, 2)).tolist() == [[[1, 0]]]
    assert d2l.masked_softmax(low, one).tolist() == [[[0, 1]]]
    half = torch.zeros(1, 1, 4).half()
    assert d2l.masked_softmax(half, torch.tensor([0])).isnan().all()


def test_our_table_is_exacter(page, d2l):
    exact = reference.sinusoidal_encoding(1000, 512)
    old = abs(d2l.PositionalEncoding(512, 0.0).P[0].numpy() - exact)
    assert page.glued["old_error"] == old.max() > 1e-7
    assert abs(ours.sinusoidal_encoding(1000, 512).numpy() - exact).max() < 1e-7


def test_tokens_of_d2l_lie_on_axis_1(d2l):
    deep = torch.zeros(2, 1, 5, 32)
    layer = d2l.PositionalEncoding(32, 0.0)
    assert layer(deep)[0, 0].equal(layer.P[0, :1].repeat(5, 1))
    encoded = ours.PositionalEncoding(32)(deep)[0, 0]
    assert torch.allclose(encoded, layer.P[0, :5], atol=1e-6)
