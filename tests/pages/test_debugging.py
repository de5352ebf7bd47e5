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
from posattn.reference import (
    Window,
    dynamic_ntk,
    frequencies,
    rotate,
    scaled_dot_product_attention,
    yarn,
)


def lines(page, start):
    """The printed lines that begin so."""
    return [line for line in page.printed.splitlines() if line.strip().startswith(start)]


def percent(line):
    """The percentages of a line."""
    return [int(number) for number in re.findall(r"(\d+)%", line)]


def layers(page):
    """Both times that the layers are compared: for each, the accumulated error and its own."""
    found = [percent(line) for line in lines(page, "layer ") if line.endswith("on its own")]
    return np.array(found).reshape(2, 8, 2)


def beginning(errors):
    """The first token with an error."""
    return int(np.flatnonzero(np.asarray(errors) > 1e-6)[0])


def test_where_five_faults_begin(page):
    """four of the five errors are about equally large, and only that of bfloat16 is smaller. What tells the
    faults apart is where each curve leaves zero.

    A wrong base shows from the second token on, faintly at first, and its error grows

    does nothing until the text is longer than the window

    The whole prompt is right, and the error begins with the first decoding step.

    does nothing while the text is no longer than the trained length. Beyond it, decoding goes wrong step by
    step. (A longer prompt in a single call is wrong from the second token on, because all its tokens should
    have been slowed.)

    are exact up to 256, because 257 is the first whole number that bfloat16 doesn't have

    The window is 16 tokens, the prompt has 64, and the model was trained on sequences of 128.

    They hold every whole number up to 256, but 257 needs a ninth bit and is rounded to 256.
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
    names = page.torch
    slower = dynamic_ntk(64, base=500000.0, factor=4.0, length=512, trained_length=128)
    slow = partial(rotate, layout="half", frequencies=slower)
    q, k, v = np.random.default_rng(0).normal(size=(3, 64, 512, 64))
    meant, plain = (names.attend(f(q), f(k), v) for f in (slow, names.rope))
    assert beginning(norm(meant - plain, axis=-1).mean(axis=0)) == 1
    last = names.shown[names.shown >= 412]
    late = {name: errors[last].mean() for name, errors in onsets.items()}
    small = late.pop("bfloat16")
    assert small < 0.3 < 0.6 < min(late.values())
    assert max(late.values()) < 1.6 * min(late.values())
    growing = onsets["wrong base"]
    assert growing[1:5].mean() < 0.1 < 0.5 < growing[-100:].mean()
    assert [float(jnp.bfloat16(n)) == n for n in (255, 256, 257)] == [True, True, False]
    assert float(jnp.bfloat16(257)) == 256
    assert (257).bit_length() == 9
    assert all(float(jnp.bfloat16(n)) == n for n in range(257))


def test_one_token(page):
    """The token can attend only to itself, so its weight is 1 and the output of the head is the token's own
    value. No rotation, base, layout, scale or window can change that.
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


def test_two_tokens(page):
    r"""The query becomes $(\cos 1, \sin 1, 0, 0)$, and the score is $\sin 1 = 0.84$.

    If halves are paired, entry 0 rotates together with entry 2. The query becomes
    $(\cos 1, 0, \sin 1, 0)$, and the score is 0.

    The first pair then rotates by 1 radian per token, and the second by $10000^{-2/4} = 0.01$.

    The key is at position 0, so it isn't rotated.

    by 0.01 radians with base 10000 and by 0.0014 with base 500000, and the cosine of either is nearly 1

    At a distance of 200 tokens these angles have grown to 2 and 0.28 radians, and then the cosines are far
    apart.
    """
    query, one = np.array([[1.0, 0, 0, 0]]), np.array([1])
    c, s = np.cos(1), np.sin(1)
    assert np.allclose(rotate(query, one), [c, s, 0, 0])
    assert np.allclose(rotate(query, one, layout="half"), [c, 0, s, 0])
    assert s == pytest.approx(0.84, abs=0.005)
    slow = np.array([10000.0, 500000.0]) ** (-2 / 4)
    assert np.allclose(slow, [0.01, 0.0014], rtol=0.02)
    assert (np.cos(slow) > 0.9999).all()
    assert np.allclose(200 * slow, [2, 0.28], atol=0.005)
    assert abs(np.diff(np.cos(200 * slow))) > 1
    assert "interleaved: the score is 0.84\nhalf: the score is 0.00\n" in page.printed
    assert "base 10000: 1.00 one token away, -0.42 at 200 tokens\n" in page.printed


def test_from_the_second_token_on(page):
    """Both errors begin at token 1, but they grow at different rates. Over tokens 1 to 5 the wrong layout
    costs 20% and the wrong base 4%, while over the last 50 tokens the two are equally bad.

    The wrong base leaves that pair alone and shifts the others by at most 0.13 radians per token

    no other pair is off by more than 0.13 radians.
    """
    right, wrong = (frequencies(64, base=base) for base in (500000.0, 10000.0))
    assert right[0] == wrong[0] == 1
    assert round(abs(right - wrong).max(), 2) == 0.13
    assert len(lines(page, "other layout: token 1 is")) == 1
    assert len(lines(page, "base 10000: token 1 is")) == 1
    early, middle, late = (
        [percent(line)[0] for line in lines(page, start)]
        for start in ("tokens 1 to 5:", "tokens 11 to 20:", "the last 50:")
    )
    assert early == [20, 4]
    assert early[0] < middle[0] < late[0]
    assert early[1] < middle[1] < middle[0]
    assert abs(late[0] - late[1]) < 5


def test_a_static_scaling(page):
    """A static method such as YaRN changes them for every prompt, so its absence shows from token 1 on, like a
    wrong base, even where the text still reads well.
    """
    names = page.torch
    speeds, factor = yarn(64, base=500000.0, factor=4.0, trained_length=128)
    slow = partial(rotate, layout="half", frequencies=speeds)
    meant = names.attend(factor * slow(names.q), factor * slow(names.k), names.v)
    assert beginning(norm(meant - names.right, axis=-1)) == 1


def test_after_the_prompt(page):
    """Both must give the same outputs (model proves it), unless the frequencies change with the length of the
    text, as under dynamic scaling beyond the trained length.

    its query must be rotated by the number of tokens before it

    Rotated by 0, it scores the cached keys as if they came after it, and the output is off by 76%.
    """
    assert percent(lines(page, "rotated by 64:")[0]) == [0]
    assert percent(lines(page, "rotated by 0:")[0]) == [76]


def test_a_mask_that_is_aligned_with_the_start(page):
    """a causal mask may be aligned with the first key instead of the last, and then the new query sees only the
    first key
    """
    q, k, v = np.random.default_rng(0).normal(size=(3, 6, 8))
    y = gallery.attention_from_the_start(q[-1:], k, v, causal=True)
    assert np.allclose(y, v[0])


def test_padding(page):
    """With a rotation it does no harm to count the padding, as long as queries and keys both count it. All
    positions are then three too large, and a score depends only on their difference.

    every new query is rotated by three positions too few
    """
    (counted,), (seen,), (mixed,) = (
        percent(lines(page, f"{name}:")[0])
        for name in (
            "masked, counted everywhere",
            "not masked",
            "masked, counted in the keys",
        )
    )
    assert counted == 0
    assert min(seen, mixed) > 20


def test_windows_begin_where_they_end(page):
    """Both errors begin at token 64, the first that has more than 64 tokens to see, itself included. A
    text that
    is no longer than the window can't show either fault. Even in a longer one, a window that is one too large
    costs only 7%.
    """
    found = [line for line in lines(page, "window ") if "begins at token 64" in line]
    assert percent(found[0]) == [7]
    assert [percent(line)[0] > 50 for line in found] == [False, True]
    q, k, v = np.random.default_rng(0).normal(size=(3, 64, 8))
    attend = partial(scaled_dot_product_attention, q, k, v, causal=True)
    assert np.allclose(attend(mask=Window(64)), attend())


def test_positions_in_bfloat16(page):
    """The error begins at token 257, as it should, and reaches 44%."""
    assert "begins at token 257, the largest error is 44%\n" in page.printed


def test_what_is_kept_of_the_original(page):
    """We keep what goes into the first layer and what each layer returns, 9 arrays in all"""
    for names in (page.torch, page.jax):
        assert len(names.streams) == 9
        assert np.allclose(names.streams[0], page.torch.embedding[page.torch.text])
    assert np.allclose(page.torch.truth, page.jax.truth, atol=1e-4)
    assert page.torch.written == page.jax.written


def test_before_the_hunt(page):
    """In more than half of the places the port prefers another next token than the original does, yet a single
    token goes through all 8 layers and comes out right.

    Layer 0 passes and 27 of 32 places agree
    """
    right = [int(line.split()[5]) for line in lines(page, "the same next token in")]
    assert len(right) == 3
    assert right[0] < 16 < right[1] == 27 < right[2]
    assert percent(lines(page, "a one-token prompt")[0]) == [0]


def test_the_first_fault(page):
    """Every layer is wrong on its own, so the fault is probably in something that all layers share.

    The numbers in the second column fall on the whole, in part because the vectors grow from layer to layer

    All seven cases fail, and the last line names the cause. It's the layout.
    """
    accumulated, own = layers(page)[0].T
    assert (own > 0).all()
    assert (accumulated >= own).all()
    assert own[0] > 3 * own[-1]
    sizes = [norm(stream) for stream in page.torch.streams]
    assert sizes == sorted(sizes)
    assert "numpy float64: 7 of 7 cases fail\n" in page.printed
    assert "failures): The layout is interleaved: it should be half.\n" in page.printed


def test_the_second_fault(page):
    """Layers 0 to 2 are right. In the first column everything from layer 3 on looks broken, but the second
    column says that only layers 3 and 7 are. Layers 4 to 6 do the right thing with the wrong vectors that they
    receive.

    A rotation by frequency 0 changes nothing

    The plan says "no position" for these two layers

    The checker adds that layer 3 of the port rotates like the other layers.

    In our case the second fault on its own left 27 of 32 next tokens right.
    """
    accumulated, own = layers(page)[1].T
    assert np.flatnonzero(accumulated).tolist() == [3, 4, 5, 6, 7]
    assert np.flatnonzero(own).tolist() == [3, 7]
    turns = page.torch.config["no_rope_layers"]
    assert [i for i, rotated in enumerate(turns) if not rotated] == [3, 7]
    assert re.search(r"^3, 7 +full attention, no position;", page.printed, re.MULTILINE)
    assert "the same next token in 27 of 32 places\n" in page.printed
    assert "It turns as other layers of the model do" in page.printed


def test_the_third_fault(page):
    """All 32 next tokens agree, and the logits do too.

    The first new token is right, because its logits come from the prompt. The second happens to be right
    too, and then all are wrong.

    The error begins at token 16, the first decoding step. Yet the checker has just passed attention in all
    layers, and among its cases is one called decoding: one token.
    """
    assert (
        "the same next token in 32 of 32 places\nall logits are off by 0%\n" in page.printed
    )
    wrong, right = (
        json.loads(line[len("it writes") :]) for line in lines(page, "it writes")
    )
    truth = page.torch.written
    assert right == truth
    assert [a == b for a, b in zip(wrong, truth, strict=True)] == [True] * 2 + [False] * 4
    (prompt,) = percent(lines(page, "the first 16 tokens:")[0])
    steps = [percent(lines(page, f"token {i}:")[0])[0] for i in range(16, 20)]
    assert prompt == 0 < 50 < min(steps)
    names = [case["name"] for case in planned(page.torch.config)["cases"]]
    assert "decoding: one token" in names


def test_what_is_left_is_rounding(page):
    """What is left is rounding, and that was the last fault."""
    for start in ("17 calls against one:", "against the original:"):
        (line,) = lines(page, start)
        assert line.endswith("off by 0.000%")


def test_the_commands(page, tmp_path, monkeypatch, capsys):
    """The lines are folded here, and those of layers 4 to 7 look the same.

    `posattn diagnose` reads 256 random tokens, or more if the model has windows below 1000

    or as many as --tokens says, and it says so in its last line.

    reads its text in one call, without a cache

    The two layers that don't rotate have no use for a base, so they agree.
    """
    monkeypatch.chdir(tmp_path)
    (listing,) = re.findall(
        r"\{code-block\} python\n(import torch\n.*?)^```", page.text, re.M | re.DOTALL
    )
    (tmp_path / "torch_port.py").write_text(listing)
    (tmp_path / "config.json").write_text(json.dumps(page.torch.config))
    (command,) = re.findall(r"^\$ posattn (diagnose .*)$", page.text, re.M)
    code = main([word.strip('"') for word in command.split()])
    told = capsys.readouterr().out
    assert code == 1
    (shown,) = re.findall(r"^```text\n(smollm3.*?)^```", page.text, re.M | re.DOTALL)
    about = re.compile(r"\d\.\d(?:e[+-]\d+)?|\s+")
    assert about.sub("", told).startswith(about.sub("", shown))
    last = told.splitlines()[-1]
    assert last.startswith("Seen are 256 positions in one call")
    assert "no cache" in last
    agreeing = [i for i in range(8) if f"layer {i}: agrees" in told]
    assert agreeing == [3, 7]
    assert told.count("The base is 10000: the configuration says 500000.") == 6


def test_the_check_of_a_layer(page, tmp_path, monkeypatch, capfd):
    """Suppose `port.py` holds the port as we first saw it, and check its layer 3:

    The exit code is 1 if a case fails, so the command can run in your continuous integration.

    Layer 3 of the first port has two: it pairs neighbors, and it rotates where it shouldn't. No single
    misreading explains the sum.

    Once `rotate_by` in `port.py` pairs halves, as by now it does on this page, append `rotation` to the file.
    Then the command line says the same, with `--scheme` in place of `--config`:
    """
    monkeypatch.chdir(tmp_path)
    cells = [cell.code for cell in page.cells if "scratch" in cell.tags]
    (slip,) = (code for code in cells if "def rotation(" in code)
    (halves,) = (code for code in cells if code.strip().startswith("def rotate_by("))
    port = tmp_path / "port.py"
    port.write_text("\n".join(["import numpy as np", *cells[:2]]))
    (tmp_path / "config.json").write_text(json.dumps(page.torch.config))
    by_config, by_scheme = re.findall(r"^\$ python -m posattn (check .*)$", page.text, re.M)
    assert main(by_config.split()) == 1
    told = capfd.readouterr().out.strip()
    (shown,) = re.findall(r"^```text\n(attention as .*?)\n```", page.text, re.M | re.DOTALL)
    first, last = shown.split("\n...\n")
    assert told.startswith(first)
    assert told.endswith(last)
    assert main(by_config.replace("--layer 3", "--layer 0").split()) == 1
    assert "The layout is interleaved: it should be half." in capfd.readouterr().out
    port.write_text("\n".join([port.read_text(), halves, slip]))
    assert main(by_scheme.split()) == 1
    told = " ".join(capfd.readouterr().out.split())
    assert "rotation as rotary, numpy float64:" in told
    (named,) = (cell for cell in page.cells if 'check(rotation, "rotary"' in cell.code)
    assert named.printed.splitlines()[1] in told


def test_when_it_names_no_cause(page):
    """That isn't a misreading of any key in the configuration, so even layer 0 gets no cause:

    Suppose somebody wrote the exponents of the frequencies as $0, 1/8, 2/8, 3/8$ instead of
    $0, 2/8, 4/8, 6/8$.

    The report suggests the next step, to check the rotation on its own.

    Now the slip has a name.
    """
    assert (np.arange(4) / 8).tolist() == [0, 1 / 8, 2 / 8, 3 / 8]
    assert (np.arange(0, 8, 2) / 8).tolist() == [0, 2 / 8, 4 / 8, 6 / 8]
    assert (
        "7 of 7 cases fail\nno known fault explains this\n"
        "Check the function that rotates on its own: --scheme rotary"
    ) in page.printed
    assert (
        "The exponent j / d where 2j / d should be: the frequencies fall half as fast.\n"
        in page.printed
    )
    assert page.torch.frequencies is page.torch.right_frequencies


def test_where_is_the_window(page):
    """a window of 41 still covers tokens 0 to 40 for the query at 40. For the query at 41 it covers tokens 1 to
    41, and token 0 is the first key to be lost.
    """
    earlier, seen = (Window(41)(np.array([i]), np.arange(i + 1))[0] for i in (40, 41))
    assert earlier.all()
    assert len(earlier) == 41
    assert np.flatnonzero(seen).tolist() == list(range(1, 42))
    assert "first wrong token: 41\n" in page.printed
    explained = [line.split()[-1] for line in lines(page, "a window of")]
    assert explained == ["False", "True", "False"]


def test_in_another_order(page):
    """For layer 0 it names the layout. For layer 3 it names nothing"""
    assert "layer 0: The layout is interleaved: it should be half.\n" in page.printed
    assert "layer 3: no known cause\n" in page.printed


def test_two_layers_swapped(page):
    """On their own, exactly layers 2 and 5 are wrong."""
    assert "wrong on their own: [2, 5]\n" in page.printed
    assert "the checker: 0 of 7 cases fail\n" in page.printed
    assert percent(lines(page, "one token is off by")[0])[0] > 10
    report = check(page.torch.attention, planned(page.torch.config), framework="numpy")
    assert not report.failures


def test_a_base_and_a_short_test(page):
    """In our head the error passes 3% at position 3, in a text of four tokens. That is only just
    enough: a robust
    test uses more tokens, because the error keeps growing.

    At position 1 the fastest pair rotates alike with every base
    """
    assert page.printed.endswith("first token off by more than 3%: 3\n")
    growing = [
        percent(line)[0] for line in lines(page, "") if "tokens: the last one" in line
    ]
    assert growing == sorted(growing)
    assert 10000.0**0 == 500000.0**0 == 1
