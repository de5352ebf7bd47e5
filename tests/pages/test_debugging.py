"""Debugging a checkpoint."""

import json
import re
from functools import partial

import jax.numpy as jnp
import numpy as np
import pytest
from numpy.linalg import norm

from posattn.__main__ import main
from posattn.reference import (
    Window,
    dynamic_ntk,
    frequencies,
    rotate,
    scaled_dot_product_attention,
    yarn,
)

RNG = np.random.default_rng(2)
Q, K, V = RNG.normal(size=(3, 300, 64))
attend = partial(scaled_dot_product_attention, causal=True)
rope = partial(rotate, layout="half", base=500000.0)


def off(wrong, right):
    """The error of each token's output, relative to its size."""
    return norm(wrong - right, axis=-1) / norm(right, axis=-1)


def begins(wrong, right):
    """The first token with an error."""
    return np.flatnonzero(off(wrong, right) > 1e-6)[0]


def test_two_tokens_by_hand():
    query, key, one = np.eye(4)[:1], np.eye(4)[1], np.array([1])
    assert rotate(query, one)[0] @ key == pytest.approx(0.84, abs=0.005)
    assert rotate(query, one, layout="half")[0] @ key == 0
    slow = np.array([10000.0, 500000.0]) ** (-2 / 4)
    assert np.allclose(slow, [0.01, 0.0014], rtol=0.02)
    assert np.allclose(200 * slow, [2, 0.28], atol=0.005)
    speeds, other = (frequencies(64, base=base) for base in (500000.0, 10000.0))
    assert speeds[0] == other[0] == 1
    assert round(abs(speeds - other).max(), 2) == 0.13
    assert np.finfo(np.float16).max == 65504


def test_one_token_tests_no_rotation_and_no_mask():
    q, k, v = RNG.normal(size=(3, 1, 8))
    at = np.array([7])
    for layout in ("half", "interleaved"):
        rotated = (rotate(x, at, layout=layout, base=100.0) for x in (q, k))
        assert np.allclose(attend(*rotated, v, scale=3.0, mask=Window(1)), v)
    assert not np.allclose(attend(q, k, v, sinks=np.array(0.0)), v)


def test_faults_begin_where_the_table_says():
    right, where = attend(rope(Q), rope(K), V), np.arange(300)
    for layout, base in (("interleaved", 500000.0), ("half", 10000.0)):
        other = partial(rotate, layout=layout, base=base)
        assert begins(attend(other(Q), other(K), V), right) == 1
    reset = np.where(where < 64, where, 0)
    assert begins(attend(rope(Q, reset), rope(K), V), right) == 64
    near = attend(rope(Q), rope(K), V, mask=Window(16))
    assert begins(right, near) == 16
    coarse = np.array(jnp.bfloat16(where), dtype=float)
    assert begins(attend(rope(Q, coarse), rope(K, coarse), V), right) == 257
    static, factor = yarn(64, base=500000.0, factor=4.0, trained_length=128)
    long = {"length": 300, "trained_length": 128}
    growing = dynamic_ntk(64, base=500000.0, factor=4.0, **long)
    for speeds, size in ((static, factor), (growing, 1.0)):
        slow = partial(rotate, layout="half", frequencies=speeds, attention_factor=size)
        assert begins(right, attend(slow(Q), slow(K), V)) == 1


def test_a_wrong_base_hardly_shows_in_short_prompts():
    right = attend(rope(Q), rope(K), V)
    layout, base = (
        off(attend(other(Q), other(K), V), right)
        for other in (partial(rope, layout="interleaved"), partial(rope, base=10000.0))
    )
    assert base[1:6].mean() < layout[1:6].mean() / 3
    assert base[-50:].mean() == pytest.approx(layout[-50:].mean(), rel=0.15)


def test_counted_padding_harms_only_if_one_side_counts():
    right = attend(rope(Q), rope(K), V)
    q, k, v = (np.concatenate([RNG.normal(size=(3, 64)), x]) for x in (Q, K, V))
    real = (np.arange(303) >= 3)[None]
    assert np.allclose(attend(rope(q), rope(k), v, mask=real)[3:], right)
    seen = attend(rope(q), rope(k), v)[3:]
    mixed = attend(rope(q[-1:], np.array([299])), rope(k), v, mask=real)
    assert min(off(seen, right).mean(), off(mixed, right[-1:])[0]) > 0.1


def test_faults_of_the_port_show_in_their_layers(page):
    first = re.findall(r"(\d+)% on its own", page.printed)
    assert [own != "0" for own in first] == [True] * 8
    second = np.round([*page.torch.errors.values()], 2) > 0
    assert [np.flatnonzero(wrong).tolist() for wrong in second] == [[3, 4, 5, 6, 7], [3, 7]]


def listing(page, start):
    """A block of the page that no cell runs."""
    return re.search(
        rf"^```(?:\{{code-block\}} python|text)\n({start}.*?)^```", page.text, re.M | re.S
    )[1]


def test_the_diagnosis_names_layers_and_cause(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "torch_port.py").write_text(listing(page, "import torch\n"))
    (tmp_path / "config.json").write_text(json.dumps(page.torch.config))
    command = re.search(r"^\$ posattn (diagnose .*)$", page.text, re.M)[1]
    assert main([word.strip('"') for word in command.split()]) == 1
    told = capsys.readouterr().out
    about = re.compile(r"\d\.\d(?:e[+-]\d+)?|\s+")
    shown = about.sub("", listing(page, "smollm3"))
    assert about.sub("", told).startswith(shown)
    assert [i for i in range(8) if f"layer {i}: agrees" in told] == [3, 7]
    assert told.count("The base is 10000: the configuration says 500000.") == 6


def test_the_check_of_a_layer_prints_what_is_shown(page, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    cells = [cell.code for cell in page.cells if "scratch" in cell.tags]
    (tmp_path / "port.py").write_text("\n".join(["import numpy as np", *cells[:2]]))
    (tmp_path / "config.json").write_text(json.dumps(page.torch.config))
    command = re.search(r"^\$ python -m posattn (check .*--layer 3)$", page.text, re.M)[1]
    assert main(command.split()) == 1
    told = capfd.readouterr().out.strip()
    first, last = listing(page, "attention as").strip().split("\n...\n")
    assert told.startswith(first)
    assert told.endswith(last)
    assert main(command.replace("--layer 3", "--layer 0").split()) == 1
    assert "The layout is interleaved: it should be half." in capfd.readouterr().out
