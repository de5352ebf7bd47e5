"""The first page."""

import re

import numpy as np

from posattn import reference
from posattn.schemes import SCHEMES

WORDS, OTHER = ["the", "dog", "bites", "the", "man"], [0, 4, 2, 3, 1]


def test_only_positions_tell_two_orders_apart(page):
    assert [page.torch.words, page.torch.other] == [WORDS, OTHER]
    before, moved = page.torch.outputs["without positions"]
    assert np.allclose(before[OTHER], moved)
    before, after = page.torch.outputs["with positions"]
    pairs = [(i, j) for i in range(5) for j in range(5) if WORDS[i] == WORDS[OTHER[j]]]
    assert not any(np.allclose(before[i], after[j]) for i, j in pairs)


def test_the_encoding_tells_equal_tokens_apart():
    tokens = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
    for x, equal in ((tokens, True), (reference.PositionalEncoding(2)(tokens), False)):
        first, _, last = reference.scaled_dot_product_attention(x, x, x)
        assert np.allclose(first, last, atol=0.01) == equal


def test_most_schemes_act_on_queries_keys_or_scores():
    acts = [make(4).place in {"query and key", "scores"} for make in SCHEMES.values()]
    assert sum(acts) > len(acts) / 2


def test_the_core_has_ten_chapters(page):
    toctrees = re.findall(
        r":caption: (?:Attention|Position)\n\n(.*?)```", page.text, re.DOTALL
    )
    assert sum(len(pages.split()) for pages in toctrees) == 10
