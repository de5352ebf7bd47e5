"""What trained heads do: the page's claims, on four hundred other questions."""

import json
from functools import cache

import numpy as np
import torch

from posattn.reference import frequencies
from posattn.stories import CHECKPOINT, NOUNS, WORDS, encode, story
from posattn.torch import Decoder, induction_score
from tests.nightly.studies import heads

RECORD = json.loads(heads.FILE.read_text("utf-8"))


def decoder(without=()):
    """The decoder of the page, without some heads."""
    made = Decoder.from_config(CHECKPOINT, weights=CHECKPOINT).requires_grad_(False)
    for layer, head in without:
        made.blocks[layer].attention.output.weight[:, 16 * head : 16 * head + 16] = 0
    return made


@cache
def asked():
    """Prompts of each kind, their answers, and the places of the words that matter."""
    rng, drawn = np.random.default_rng(11), {"who": [], "whom": []}
    for _ in range(400):
        words, [place], [fact] = story(rng, num_facts=4, num_questions=1)
        drawn[words[24]].append((encode(words[:place]), encode(words)[place], 6 * fact))
    found = {}
    for kind, rows in drawn.items():
        texts, answers, start = (np.array(column) for column in zip(*rows, strict=True))
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


def same_noun(kind):
    """Which facts have the noun of the question in its role."""
    texts, _, _ = asked()[kind]
    facts = texts[:, :24].reshape(-1, 4, 6)
    role, named = (4, -2) if kind == "who" else (1, -3)
    return facts[..., role] == texts[:, [named]]


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
        facts = same_noun(kind).sum(axis=1)
        found = right(decoder(), kind)
        assert found[facts == 1].mean() > 0.95
        assert 0.4 < found[facts > 1].mean() < 0.7
    king = "the dog hears the king . the fox sees the king . the cat bites the man . who"
    hears, sees = (
        decoder()(torch.from_numpy(encode(f"{king} {verb} the king ?")))[-1].softmax(-1)
        for verb in ("hears", "sees")
    )
    assert abs(hears - sees).max() < 0.02


def test_two_heads_collect_and_two_find():
    for texts, _, at in asked().values():
        row = np.arange(len(texts))
        first, second = decoder().attention_weights(torch.from_numpy(texts))
        of_period = first.numpy()[row, :, at["period"]]
        nouns = of_period[row, :, at["subject"]] + of_period[row, :, at["object"]]
        assert set(np.argsort(nouns.mean(0))[-2:]) == {0, 3}
        of_mark = second.numpy()[:, :, -1]
        own = of_mark[row, :, at["period"]].mean(0)
        assert set(np.argsort(own)[-2:]) == {2, 3}
        assert min(own[2:]) > 0.3
        assert of_mark[row, :, at["answer"]].mean(0).max() < 0.15


def test_two_readers_stand_in_for_each_other():
    one = [share(decoder(without=[(1, head)])) for head in (2, 3)]
    assert share(decoder(without=[(1, 2), (1, 3)])) < 0.2 < min(one)
    assert abs(share(decoder(without=[(1, 1)])) - share(decoder())) < 0.02


def test_head_0_is_missed_at_periods_and_head_3_at_the_question():
    whole, left = decoder(), {}
    for head, token in ((head, token) for head in (0, 3) for token in ".?"):
        less, found = decoder(without=[(0, head)]).blocks[0], []
        for texts, answers, _ in asked().values():
            x = whole.embedding(torch.from_numpy(texts))
            chosen = torch.from_numpy(texts == WORDS.index(token))[..., None]
            x = torch.where(chosen, less(x)[0], whole.blocks[0](x)[0])
            logits = whole.head(whole.norm(whole.blocks[1](x)[0][:, -1]))
            found.append(logits.argmax(-1).numpy() == answers)
        left[head, token] = np.concatenate(found).mean()
    assert left[0, "."] < left[0, "?"] - 0.1
    assert left[3, "?"] < left[3, "."] - 0.1


def test_fast_pairs_say_where_and_slow_ones_what(page):
    place, content = page.torch.near_and_far, page.torch.right_and_wrong
    assert place[[1, 2]].sum() > 0.95 * place.sum()
    assert content[3:].sum() > 0.98 * content.sum()
    six, back = (np.degrees(tokens * frequencies(16)) for tokens in (6, 23))
    assert (round(six[0]), round(six[1])) == (344, 109)
    assert max(six[4:]) < 4
    assert max(back[5:]) < 5


def test_heads_bring_both_nouns_and_layer_0_lowers_one(page):
    nouns = encode(NOUNS)
    for kind, scores in page.torch.parts.items():
        texts, row = page.torch.texts[kind], np.arange(len(page.torch.texts[kind]))
        lead = scores - scores[..., nouns].mean(-1, keepdims=True)
        named = texts[row, page.torch.at[kind]["named"]]
        answer, other = (
            lead[:, row, word].mean(1) for word in (page.torch.answers[kind], named)
        )
        assert min(answer[[3, 4]]) > 1
        assert min(other[[3, 4]]) > 1
        assert other[0] < -other[1:5].sum() < 0
        assert answer[5] > max(answer[:5])


def test_no_head_is_an_induction_head():
    half = np.stack([np.random.default_rng(i).permutation(len(WORDS)) for i in range(64)])
    repeated = torch.from_numpy(np.concatenate([half, half], axis=1))
    uniform = np.mean([1 / (i + 1) for i in range(22, 44)])
    for layer in decoder().attention_weights(repeated):
        assert abs(induction_score(layer, 22).mean(0) - uniform).max() < 0.025
    assert np.max(RECORD["induction"]) < 2 * uniform


def test_collectors_and_readers_form_together():
    assert RECORD["made_from"] == heads.fingerprint()
    curves = (
        np.array(RECORD["right"]),
        np.array(RECORD["period"])[:, 1, 2],
        np.array(RECORD["nouns"])[:, 0, 3],
    )
    for curve in curves:
        assert curve[600 // RECORD["every"]] - curve[400 // RECORD["every"]] > 0.25
    answers, _, nouns = curves
    assert answers[4] < 1 / 3
    assert nouns[4] < nouns[3] - 0.1


def test_a_released_model_needs_its_first_token_and_divides_the_work_alike(page):
    losses = {
        name: np.array(page.torch.sink[name]) for name in ("all", "another", "replaced")
    }
    whole = np.array(page.torch.sink["nothing"])
    assert all(abs((each - whole).mean()) < 0.1 for each in losses.values())
    assert (page.torch.sink["late"] - whole).min() > 1
    for kind, half in (("previous", slice(0, 16)), ("induction", slice(16, 32))):
        leads = np.array(page.torch.looks[f"leads of {kind}"])
        assert (leads[:, half].sum(1) > 0.95 * leads.sum(1)).all()
