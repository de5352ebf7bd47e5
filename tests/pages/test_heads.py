"""What a head computes: its equations, an induction head that forms, and a decoder asked anew."""

import json
from functools import cache

import numpy as np
import torch

from posattn.reference import attention_weights, causal_mask
from posattn.stories import CHECKPOINT, encode, story
from posattn.torch import Decoder, MultiHeadAttention
from tests.nightly.studies import induction

RECORD = json.loads(induction.FILE.read_text("utf-8"))


def decoder():
    """The decoder of the page."""
    return Decoder.from_config(CHECKPOINT, weights=CHECKPOINT).requires_grad_(False)


@cache
def asked():
    """Prompts of each kind, their answers, and the places of the words that matter."""
    rng, drawn = np.random.default_rng(11), {"who": [], "whom": []}
    for _ in range(400):
        words, [place], [fact] = story(rng, num_facts=4, num_questions=1)
        drawn[words[24]].append((encode(words[:place]), encode(words)[place], 6 * fact))
    found = {}
    for kind, rows in drawn.items():
        texts, answers, start = map(np.array, zip(*rows, strict=True))
        at = {"?": np.full(len(start), texts.shape[1] - 1)}
        at |= {"subject": start + 1, "verb": start + 2, "object": start + 4}
        at |= {"period": start + 5, "answer": start + (1 if kind == "who" else 4)}
        found[kind] = texts, answers, at
    return found


def right(made, kind, reader=None, hidden=None):
    """Which answers are right if one reader does not see one word."""
    texts, answers, at = asked()[kind]
    count, n = texts.shape
    mask = np.ones((count, n, n), bool)
    if reader:
        mask[np.arange(count), at[reader], at[hidden]] = False
    logits = made(torch.from_numpy(texts), mask=torch.from_numpy(mask))
    return logits[:, -1].argmax(-1).numpy() == answers


def share(made, *hidden):
    """The share of right answers among all questions."""
    return np.concatenate([right(made, kind, *hidden) for kind in asked()]).mean()


def test_eq_heads_circuits():
    r"""$$ \begin{aligned}
    \mathbf{A} &= \operatorname{softmax}\left(\mathbf{X}\,\mathbf{W}_{QK}\,\mathbf{X}^\top\right), & \mathbf{W}_{QK} &= \mathbf{W}^{(q)}_h \mathbf{W}^{(k)\top}_h / \sqrt{d_h}, \\
    \mathbf{O} &= \mathbf{A}\,\mathbf{X}\,\mathbf{W}_{OV}, & \mathbf{W}_{OV} &= \mathbf{W}^{(v)}_h \mathbf{W}^{(o)}_h .
    \end{aligned} $$
    """
    x, q, k, v, o = np.random.default_rng(0).normal(size=(5, 8, 8))
    h = slice(4, 8)
    qk, ov = q[:, h] @ k[:, h].T / 2, v[:, h] @ o[h]
    weights = attention_weights(x @ q[:, h], x @ k[:, h])
    assert np.allclose(attention_weights(x @ qk, x, scale=1.0), weights)
    assert np.allclose(weights @ x @ ov, weights @ (x @ v[:, h]) @ o[h])
    assert np.linalg.matrix_rank(qk) == np.linalg.matrix_rank(ov) == 4


def test_eq_heads_verb():
    r"""$$ \frac{e^2}{1 + e^2 + 1} = \frac{7.39}{9.39} = 0.79 . $$"""
    words, circuit = np.eye(4)[[0, 1, 2, 0, 3]], np.zeros((4, 4))  # the dog bites the man
    circuit[2, [1, 3]] = 2
    bites = attention_weights(words @ circuit, words, mask=causal_mask(5), scale=1.0)[2]
    assert bites.round(2).tolist() == [0.11, 0.79, 0.11, 0, 0]
    assert np.round([np.e**2, np.e**2 + 2], 2).tolist() == [7.39, 9.39]


def test_eq_heads_induction():
    r"""$$ \frac{e^4}{e^4 + 3} = \frac{54.6}{57.6} = 0.95 . $$"""
    x, note = np.eye(3, 6)[[0, 1, 2, 0]], np.eye(6, k=3)  # dog bites man dog
    x = x + np.eye(4, k=-1) @ x @ note
    last = attention_weights(x @ (4 * note), x, scale=1.0)[-1]
    assert last.argmax() == 1
    assert last[1].round(2) == np.round(54.6 / 57.6, 2) == 0.95


def test_the_answer_goes_by_the_period():
    made = decoder()
    whole = share(made)
    assert abs(whole - 0.88) < 0.03
    assert abs(share(made, "?", "answer") - whole) < 0.015
    assert abs(share(made, "period", "verb") - whole) < 0.015
    assert abs(share(made, "?", "period") - 1 / 8) < 0.04
    assert max(share(made, "period", noun) for noun in ("subject", "object")) < 0.25


def test_the_verb_is_ignored():
    for kind in asked():
        told, (role, named) = asked()[kind][0], (4, -2) if kind == "who" else (1, -3)
        facts = (told[:, role:24:6] == told[:, [named]]).sum(axis=1)
        found = right(decoder(), kind)
        assert found[facts == 1].mean() > 0.95
        assert 0.4 < found[facts > 1].mean() < 0.7


def test_two_heads_collect_and_two_find():
    for texts, _, at in asked().values():
        maps, row = (
            decoder().attention_weights(torch.from_numpy(texts)),
            np.arange(len(texts)),
        )
        first, second = (layer.numpy() for layer in maps)
        nouns = sum(first[row, :, at["period"], at[noun]] for noun in ("subject", "object"))
        assert {*np.argsort(nouns.mean(0))[-2:]} == {0, 3}
        own = second[row, :, -1, at["period"]].mean(0)
        assert {*np.argsort(own)[-2:]} == {2, 3}


def test_two_heads_form_at_once_and_need_each_other():
    assert RECORD["made_from"] == induction.fingerprint(), (
        "nox -s record -- study induction"
    )
    for seed in range(3):
        run = RECORD[f"rotary, 2 layers, seed {seed}"]
        assert run["loss"][-1] < 0.1
    run = RECORD["rotary, 2 layers, seed 0"]
    first, second = run["heads"]
    looks_back = np.array(run["previous"])[:, 0, first]
    continues = np.array(run["induction"])[:, 1, second]
    before, after = 300 // RECORD["every"], 525 // RECORD["every"]
    for curve in (looks_back, continues, -np.array(run["loss"]) / 4):
        assert curve[after] - curve[before] > 0.4
    assert min(run["without"][0][first], run["without"][1][second]) > np.log(26) > 3.25


def test_two_layers_without_positions_never_learn_to_look_back():
    two = RECORD["none, 2 layers, seed 0"]
    assert np.max(two["previous"]) < 0.21
    assert two["loss"][-1] > 1.8
    layer = MultiHeadAttention(8, 2, rng=torch.Generator().manual_seed(0))
    x, y, z = torch.randn(3, 8, generator=torch.Generator().manual_seed(1))
    told, turned = (
        layer.attention_weights(torch.stack(text))[:, -1] for text in ((x, y, z), (y, x, z))
    )
    assert abs(told - turned[:, [1, 0, 2]]).max() < 1e-6


def test_a_released_model_needs_its_first_token_and_divides_the_work_alike(page):
    sink, whole = page.torch.sink, np.array(page.torch.sink["nothing"])
    assert all(
        abs((sink[name] - whole).mean()) < 0.1 for name in ("all", "another", "replaced")
    )
    assert (sink["late"] - whole).min() > 1
    for kind, half in (("previous", slice(0, 16)), ("induction", slice(16, 32))):
        leads = np.array(page.torch.looks[f"leads of {kind}"])
        assert (leads[:, half].sum(1) > 0.95 * leads.sum(1)).all()
