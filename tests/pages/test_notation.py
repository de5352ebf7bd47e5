"""Notation: shapes, conventions and names."""

import re

import numpy as np
import pytest
import torch

from posattn import reference
from posattn.reference import attention_weights, split_heads
from tests.pages.prose import sentences
from tests.pages.reading import DOCS, PAGES

RNG = np.random.default_rng(0)


def test_outputs_of_all_heads_are_weights_times_values():
    q = k = v = split_heads(RNG.normal(size=(5, 12)), 3)
    weights = attention_weights(q, k)
    assert (v.shape, weights.shape) == ((3, 5, 4), (3, 5, 5))
    outputs = np.einsum("hij,hjc->hic", weights, v)
    assert np.allclose(outputs, reference.scaled_dot_product_attention(q, k, v))


def test_heads_are_a_batch_axis():
    x = RNG.normal(size=(2, 7, 12))
    heads = split_heads(x, 3)
    assert np.array_equal(heads, x.reshape(2, 7, 3, 4).swapaxes(1, 2))
    alone = attention_weights(x[1, :, 8:], x[1, :, 8:])
    assert np.allclose(attention_weights(heads, heads)[1, 2], alone)


def test_yarn_leaves_fast_pairs_and_slows_slow_ones():
    slowed, c = reference.yarn(128, factor=4.0, trained_length=8192)
    omega = 10000.0 ** (-np.arange(64) / 64)
    slowing, turns = omega / slowed, 8192 * omega / (2 * np.pi)
    assert np.allclose(slowing[turns >= 33], 1)
    assert np.allclose(slowing[turns <= 0.95], 4)
    assert (slowing[(turns > 1.1) & (turns <= 28)] < 3.99).all()
    assert slowing[turns <= 28].min() > 1
    q, k = RNG.normal(size=(2, 3, 128))
    plain, ours = (
        reference.rotate(q, frequencies=slowed, attention_factor=factor)
        @ reference.rotate(k, frequencies=slowed, attention_factor=factor).T
        for factor in (1.0, c)
    )
    assert np.allclose(ours, c**2 * plain)
    assert c > 1


def test_an_odd_width_has_a_pair_more():
    assert [len(reference.frequencies(d)) for d in (7, 8)] == [4, 4]


def test_true_means_may_attend():
    x = RNG.normal(size=(3, 4))
    mask = np.array([[True, False, False], [True, True, False], [False, False, False]])
    assert np.array_equal(attention_weights(x, x, mask=mask) > 0, mask)


def test_multi_head_attention_of_pytorch_reads_true_as_hidden():
    layer, token = torch.nn.MultiheadAttention(4, 1), torch.ones(3, 4)
    ours = torch.ones(3, 3, dtype=torch.bool).tril()
    output, weights = layer(token, token, token, attn_mask=ours)
    assert torch.equal(weights[:2] > 0, ~ours[:2])
    assert output[2].isnan().all()
    output, _ = layer(token, token, token, attn_mask=ours, need_weights=False)
    assert not output[2].any()
    assert torch.equal(layer(token, token, token, attn_mask=~ours)[1] > 0, ours)


def test_only_what_looks_up_needs_whole_positions():
    at, half = np.array([0.5]), np.cos(0.5)
    assert reference.sinusoidal_encoding(at, 2)[0, 1] == pytest.approx(half)
    assert reference.rotate(np.eye(1, 2), at)[0, 0] == pytest.approx(half)
    assert reference.ALiBi(1)(np.array([0.0]), at).item() == -0.5 / 256
    table = reference.LearnedPositionalEncoding(np.ones((4, 4)))
    with pytest.raises(TypeError):
        table(np.ones((1, 4)), positions=at)
    with pytest.raises(TypeError):
        reference.t5_bucket(at)


def test_queries_sit_at_the_end_of_the_keys():
    stands = np.arange(3) + 10 - 3
    assert stands.tolist() == [7, 8, 9]
    q, k = RNG.normal(size=(3, 4)), RNG.normal(size=(10, 4))
    seen = attention_weights(q, k, causal=True) > 0
    assert np.array_equal(seen, np.arange(10) <= stands[:, None])
    assert reference.causal_mask(2, 4).tolist() == [[True, True, True, False], 4 * [True]]


OTHER_NAMES = re.compile(
    r"(?<!o')\bclocks?\b(?! hand)|\b(?:speed|wavelength)s? of (?:a|all|each|every|the)\b.{0,9}\bpairs?\b"
    r"|\bpairs? (?:\d+ )?(?:turn|spin)s?\b|\bturn(?:s|ed|ing)? (?:all |the )?(?:queries|keys|pairs)\b"
    r"|\bat position [\w$\\{}-]+ turns\b"
)


def test_pages_and_docstrings_use_the_one_name_of_each_thing():
    pages = [path for path in PAGES if path.stem != "notation"]
    texts = {
        path: "\n".join(line for _, line in sentences(path.read_text("utf-8")))
        for path in pages
    }
    texts |= {path: path.read_text("utf-8") for path in (DOCS.parent / "src").rglob("*.py")}
    found = [
        f"{path}: {hit[0]}"
        for path, text in texts.items()
        for hit in OTHER_NAMES.finditer(text)
    ]
    assert not found, f"the table of {DOCS}/reference/notation.md has the names: {found}"
