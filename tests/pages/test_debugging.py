"""Debugging a checkpoint."""

import json
import re
from functools import partial

import jax.numpy as jnp
import numpy as np
import pytest
from numpy.linalg import norm

from posattn.__main__ import main
from posattn.conformance import check, gallery
from posattn.conformance.planned import planned
from posattn.reference import Window, rotate, scaled_dot_product_attention


def lines(page, start):
    """The printed lines that begin so."""
    return [line for line in page.printed.splitlines() if line.strip().startswith(start)]


def percent(line):
    """The percentages of a line."""
    return [int(number) for number in re.findall(r"(\d+)%", line)]


def layers(page):
    """Both times that the layers are compared: for each, what is carried on and what is a layer's own."""
    found = [percent(line) for line in lines(page, "layer ") if line.endswith("by itself")]
    return np.array(found).reshape(2, 8, 2)


def beginning(errors):
    """The first word with an error."""
    return int(np.flatnonzero(np.asarray(errors) > 1e-6)[0])


def test_where_five_faults_begin(page):
    """four of the five errors look alike. They differ in where they leave zero.

    A wrong base is wrong from the second word on, and grows.

    does nothing until the text is longer than the window

    The whole prompt is right, and the first word that the model writes is wrong.

    begins exactly at the trained length

    are fine up to 256, because 257 is the first whole number that bfloat16 doesn't have

    The window is 16 words, the prompt has 64, and the model was trained on texts of 128.
    """
    onsets = page.torch.onsets
    begins = {name: beginning(errors) for name, errors in onsets.items()}
    assert begins == {
        "wrong base": 1,
        "no window": 16,
        "query at 0": 64,
        "no scaling": 128,
        "bfloat16": 257,
    }
    late = sorted(errors[-100:].mean() for errors in onsets.values())
    assert late[0] < 0.3 < 0.6 < late[1]
    growing = onsets["wrong base"]
    assert growing[1:5].mean() < 0.1 < 0.5 < growing[-100:].mean()
    assert [float(jnp.bfloat16(n)) == n for n in (255, 256, 257)] == [True, True, False]


def test_one_word(page):
    """It can attend only to itself, so its weight is 1 and its output is its value.

    No rotation, base, layout, scale or window can change that.
    """
    q, k, v = np.random.default_rng(0).normal(size=(3, 1, 8))
    for layout in ("half", "interleaved"):
        for base in (100.0, 10000.0):
            turn = partial(rotate, positions=np.array([7]), layout=layout, base=base)
            y = scaled_dot_product_attention(
                turn(q), turn(k), v, scale=3.0, mask=Window(1), causal=True
            )
            assert np.allclose(y, v)
    assert not np.allclose(scaled_dot_product_attention(q, k, v, sinks=np.array(0.0)), v)


def test_two_words(page):
    r"""the query turns to $(\cos 1, \sin 1, 0, 0)$ and the score is $\sin 1 = 0.84$

    If halves are paired, entry 0 turns together with entry 2. Then the query becomes
    $(\cos 1, 0, \sin 1, 0)$, and the score is 0.

    Let heads have width 4 and the base be 10000, so the first pair turns by 1 radian per word, and the
    second by 0.01.

    The key is at position 0, so it stays as it is.

    The slow one turns by 0.01 with the base 10000 and by 0.0014 with 500000, and after one word the
    cosines of both are nearly 1.
    """
    query, one = np.array([[1.0, 0, 0, 0]]), np.array([1])
    c, s = np.cos(1), np.sin(1)
    assert np.allclose(rotate(query, one), [c, s, 0, 0])
    assert np.allclose(rotate(query, one, layout="half"), [c, 0, s, 0])
    assert s == pytest.approx(0.84, abs=0.005)
    slow = np.array([10000.0, 500000.0]) ** -0.5
    assert np.allclose(slow, [0.01, 0.0014], rtol=0.02)
    assert (np.cos(slow) > 0.9999).all()
    assert "interleaved: the score is 0.84\nhalf: the score is 0.00\n" in page.printed
    assert "base 10000: 1.00 one word away, -0.42 at 200 words\n" in page.printed


def test_at_once(page):
    """Both begin at word 1, which is the second. The layout is wrong at full strength within a few words,
    and the base takes its time.
    """
    assert len(lines(page, "other layout: word 1 is")) == 1
    assert len(lines(page, "base 10000: word 1 is")) == 1
    early, late = (
        [percent(line)[0] for line in lines(page, start)]
        for start in ("words 1 to 5:", "the last 50:")
    )
    assert early[0] > 3 * early[1]
    assert abs(late[0] - late[1]) < 10


def test_after_the_prompt(page):
    """Both must give the same outputs

    Its query must be rotated by the number of words before it.
    """
    assert percent(lines(page, "rotated by 64:")[0]) == [0]
    assert percent(lines(page, "rotated by 0:")[0])[0] > 50


def test_a_mask_that_is_aligned_with_the_start(page):
    """may be aligned with the start, and then the new query sees only the first key"""
    q, k, v = np.random.default_rng(0).normal(size=(3, 6, 8))
    y = gallery.attention_from_the_start(q[-1:], k, v, causal=True)
    assert np.allclose(y, v[0])


def test_padding(page):
    """With a rotation it does no harm to count the padding, as long as everybody does.

    All positions are three too large, and a score sees only offsets.

    every new query stands three words too far back
    """
    (counted,), (seen,), (mixed,) = (
        percent(lines(page, f"{name}:")[0])
        for name in ("hidden, but counted", "counted and seen", "counted only by keys")
    )
    assert counted == 0
    assert min(seen, mixed) > 20


def test_windows_begin_where_they_end(page):
    """Both begin at word 64. There is no way to notice them in a text that is no longer than the window."""
    found = [line for line in lines(page, "window ") if "begins at word 64" in line]
    assert [percent(line)[0] > 50 for line in found] == [False, True]
    q, k, v = np.random.default_rng(0).normal(size=(3, 64, 8))
    attend = partial(scaled_dot_product_attention, q, k, v, causal=True)
    assert np.allclose(attend(mask=Window(64)), attend())


def test_what_is_kept_of_the_original(page):
    """We keep what goes into the first layer and what comes out of each, 9 arrays in all"""
    for names in (page.torch, page.jax):
        assert len(names.streams) == 9
        assert np.allclose(names.streams[0], page.torch.embedding[page.torch.text])
    assert np.allclose(page.torch.truth, page.jax.truth, atol=1e-4)
    assert page.torch.written == page.jax.written


def test_before_the_hunt(page):
    """More than half of the next words are wrong, but a single word goes through all 8 layers and comes out
    right.
    """
    right = [int(line.split()[6]) for line in lines(page, "the next word is right in")]
    assert len(right) == 3
    assert right[0] < 16 < right[1] < right[2]
    assert percent(lines(page, "a text of one word")[0]) == [0]


def test_the_first_fault(page):
    """Every layer is wrong by itself, so the fault is in something that all layers share.

    The numbers fall from layer to layer because the vectors grow.
    """
    carried, itself = layers(page)[0].T
    assert (itself > 0).all()
    assert (carried >= itself).all()
    assert itself[0] > 3 * itself[-1]
    sizes = [norm(stream) for stream in page.torch.streams]
    assert sizes == sorted(sizes)
    assert "failures): The layout is interleaved: it should be half.\n" in page.printed


def test_the_second_fault(page):
    """Layers 0 to 2 are right. In the column carried on, everything from layer 3 on looks broken. The other
    column says that only layers 3 and 7 are. Layers 4 to 6 do what they should with the wrong vectors that
    they get.

    Speeds of 0 turn nothing

    These two layers have no positions at all.

    In our case the second fault alone left 27 of 32 next words right.
    """
    carried, itself = layers(page)[1].T
    assert np.flatnonzero(carried).tolist() == [3, 4, 5, 6, 7]
    assert np.flatnonzero(itself).tolist() == [3, 7]
    turns = page.torch.config["no_rope_layers"]
    assert [i for i, turned in enumerate(turns) if not turned] == [3, 7]
    assert "the next word is right in 27 of 32 places\n" in page.printed
    assert "It turns as other layers of the model do" in page.printed


def test_the_third_fault(page):
    """All 32 next words are right.

    The first new word is right, because it comes from the prompt. The second happens to be right too,
    and then all are wrong

    From word 16 on, the outputs differ. The checker has just passed attention in all layers, and among
    its cases is one called decoding: one token.
    """
    assert "the next word is right in 32 of 32 places\n" in page.printed
    wrong, right = (
        json.loads(line[len("it writes") :]) for line in lines(page, "it writes")
    )
    truth = page.torch.written
    assert right == truth
    assert [a == b for a, b in zip(wrong, truth, strict=True)] == [True] * 2 + [False] * 4
    off = [percent(line)[0] for line in lines(page, "words ") if " off by " in line]
    prompt, *steps = off[-5:]
    assert prompt == 0 < 50 < min(steps)
    names = [case["name"] for case in planned(page.torch.config)["cases"]]
    assert "decoding: one token" in names


def test_the_commands(page, tmp_path, monkeypatch, capsys):
    """The lines are folded here, and those of layers 4 to 7 look the same.

    The command reads 256 random tokens, or as many as `--tokens` says, and it says so in its last line.

    The two layers that don't turn don't need a base, so they agree.
    """
    monkeypatch.chdir(tmp_path)
    (listing,) = re.findall(
        r"\{code-block\} python\n(import torch\n.*?)^```", page.text, re.M | re.DOTALL
    )
    (tmp_path / "port.py").write_text(listing)
    (tmp_path / "config.json").write_text(json.dumps(page.torch.config))
    (command,) = re.findall(r"^\$ posattn (diagnose .*)$", page.text, re.M)
    code = main([word.strip('"') for word in command.split()])
    told = capsys.readouterr().out
    assert code == 1
    (shown,) = re.findall(r"^```text\n(.*?)^```", page.text, re.M | re.DOTALL)
    about = re.compile(r"\d\.\d(?:e[+-]\d+)?|\s+")
    assert about.sub("", told).startswith(about.sub("", shown))
    assert told.splitlines()[-1].startswith("Seen are 256 positions")
    agreeing = [i for i in range(8) if f"layer {i}: agrees" in told]
    assert agreeing == [3, 7]
    assert told.count("The base is 10000: the configuration says 500000.") == 6


def test_the_check_of_a_layer(page, tmp_path, monkeypatch, capfd):
    """It exits with 1 if a case fails, so it can stand in your continuous integration."""
    monkeypatch.chdir(tmp_path)
    cells = [cell.code for cell in page.cells if "scratch" in cell.tags]
    (tmp_path / "port.py").write_text("import numpy as np\n" + "\n".join(cells[:2]))
    (tmp_path / "config.json").write_text(json.dumps(page.torch.config))
    (command,) = re.findall(r"^\$ python -m posattn (check .*)$", page.text, re.M)
    assert main(command.split()) == 1
    assert "attention as layer 3 of smollm3" in capfd.readouterr().out


def test_where_is_the_window(page):
    """A window of 41, which holds words 1 to 41 for the query at 41."""
    seen = Window(41)(np.array([41]), np.arange(42))[0]
    assert np.flatnonzero(seen).tolist() == list(range(1, 42))
    assert "first wrong word: 41\n" in page.printed
    explained = [line.split()[-1] for line in lines(page, "a window of")]
    assert explained == ["False", "True", "False"]


def test_in_another_order(page):
    """For layer 0 it names the layout. For layer 3 it names nothing"""
    assert "layer 0: The layout is interleaved: it should be half.\n" in page.printed
    assert "layer 3: no known cause\n" in page.printed


def test_two_layers_exchanged(page):
    """By themselves, exactly layers 2 and 5 are wrong."""
    assert "wrong by themselves: [2, 5]\n" in page.printed
    assert "the checker: 0 of 7 cases fail\n" in page.printed
    assert percent(lines(page, "one word is off by")[0])[0] > 10
    report = check(page.torch.attention, planned(page.torch.config), framework="numpy")
    assert not report.failures


def test_a_base_and_a_short_test(page):
    """In our head the error passes 3% at position 3, in a text of four words.

    The fastest pair turns alike with every base
    """
    assert page.printed.endswith("first word off by more than 3%: 3\n")
    assert 10000.0**0 == 500000.0**0 == 1
