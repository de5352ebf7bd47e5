"""From the textbook to this book; tests/build asks whether all that the rows name exists."""

import ast
from copy import deepcopy
from importlib.resources import files

import pytest
import torch

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


def test_what_layers_of_d2l_do(d2l):
    X, two = torch.randn(1, 4, 100), torch.tensor([2])
    old = d2l.PositionalEncoding(100, 0.0)
    for call in (
        lambda: d2l.PositionalEncoding(7, 0.0),
        lambda: old(torch.ones(1, 1001, 100)),
    ):
        with pytest.raises(RuntimeError):
            call()
    assert old(X.bfloat16()).dtype == torch.float32
    assert not old.to("meta").P.is_meta
    layer = d2l.MultiHeadAttention(100, 5, 0.5)
    with pytest.raises(ValueError, match="uninitialized"):
        layer.W_q.weight.numel()
    assert not layer(X, X, X, two).equal(layer(X, X, X, two))
    with pytest.raises(RuntimeError):
        deepcopy(layer)
    bad, query = torch.where(torch.arange(4)[:, None] < 2, X, torch.nan), X.requires_grad_()
    attend = d2l.DotProductAttention(0.0)
    assert attend(X, X, bad, two).isnan().any()
    output = attend(query, bad, X.detach(), two)
    assert output.isfinite().all()
    assert torch.autograd.grad(output.sum(), query)[0].isnan().any()


def test_tokens_of_d2l_lie_on_axis_1(d2l):
    deep = torch.zeros(2, 1, 5, 32)
    layer = d2l.PositionalEncoding(32, 0.0)
    assert layer(deep)[0, 0].equal(layer.P[0, :1].repeat(5, 1))
    encoded = ours.PositionalEncoding(32)(deep)[0, 0]
    assert torch.allclose(encoded, layer.P[0, :5], atol=1e-6)
