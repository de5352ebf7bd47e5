"""The study of a released model is of the code as it is, and its faults are what they say."""

import numpy as np
import pytest
import torch
from torch import nn

from posattn.torch import Decoder
from tests.nightly.real import __main__ as command
from tests.nightly.real import (
    chapters,
    faults,
    heads,
    measuring,
    needles,
    played,
    released,
    rounding,
    selection,
)
from tests.nightly.real.methods import METHODS
from tests.nightly.studies import records

TOKENS = torch.arange(257)[None] * 7 % 50
PROMPT = 5


@pytest.fixture
def decoder():
    """A small one, with the head width of the released one."""
    made = Decoder(
        50,
        64 * 4,
        num_layers=2,
        num_heads=4,
        num_kv_heads=2,
        head_dim=64,
        rotate=METHODS["nothing"],
        rng=torch.Generator().manual_seed(0),
    ).requires_grad_(False)
    made.embedding.weight *= 50
    return made


def in_steps(decoder, tokens):
    """The logits of a prompt in one call and of each later token in its own."""
    cache, found = decoder.init_cache((1,), tokens.shape[1]), []
    for call in (tokens[:, :PROMPT], *tokens[:, PROMPT:].split(1, 1)):
        logits, cache = decoder(call, cache=cache)
        found.append(logits)
    return torch.cat(found, 1)


def test_the_record_is_of_the_code_as_it_is():
    known = {**records.load("real")["cells"], **records.load("smollm2")["cells"]}
    every = (cell for cell in command.cells() if cell.name in known)
    stale = [cell.name for cell in every if not command.is_recorded(cell)]
    assert not stale, f"measure again: nox -s record -- real {stale[0]!r}"


def test_losses_by_pieces_are_those_of_all_logits(decoder, monkeypatch):
    monkeypatch.setattr(measuring, "AT_ONCE", 64)
    found = measuring.losses(decoder, TOKENS)
    logits = decoder(TOKENS[:, :-1])
    each = nn.functional.cross_entropy(logits.mT, TOKENS[:, 1:], reduction="none")
    torch.testing.assert_close(
        torch.tensor(found), each.reshape(1, 2, 128).mean(-1), atol=1e-4, rtol=0
    )


@pytest.mark.parametrize("fault", faults.FAULTS)
def test_a_fault_changes_what_it_says_and_no_weights(decoder, fault):
    before, tokens = decoder(TOKENS), TOKENS[:, :40]
    made = faults.planted(fault, decoder, PROMPT)
    losses = [measuring.losses(each, TOKENS) for each in (made, decoder)]
    assert (losses[0] == losses[1]) == (fault in ("none", "padding seen"))
    assert torch.equal(decoder(TOKENS), before)
    positions = torch.arange(40)
    once = made(tokens, positions=positions)
    torch.testing.assert_close(in_steps(made, tokens), once, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("fault", faults.IN_CALLS)
def test_a_fault_of_later_calls_does_in_one_pass_what_it_does_in_code(decoder, fault):
    made, naive = faults.planted(fault, decoder, PROMPT), faults.copied(decoder)
    faults.IN_CALLS[fault](naive)
    found, wanted = (in_steps(each, TOKENS[:, :40]) for each in (made, naive))
    torch.testing.assert_close(found, wanted)


def test_needles_lie_in_order_and_no_question_hears_another(decoder, monkeypatch):
    text, asked, answers = needles.hide(lambda said: [said], list(range(100)), 0)
    hidden = [said for said in text if isinstance(said, str)]
    parts = zip(asked, answers, strict=True)
    assert hidden == [" " + question[0][1:] + answer[0] + "." for question, answer in parts]

    text, asked = TOKENS[0, :200].tolist(), TOKENS[0, 200:230].reshape(3, 10).tolist()
    alone = [decoder(torch.tensor([text + question]))[0, -1] for question in asked]
    said = [[int(logits.argmax())] for logits in alone]
    monkeypatch.setattr(needles, "hide", lambda *given: (text, asked, said))
    assert needles.found(decoder, None, TOKENS) == [[1, 1, 1]]


def test_rounding_is_compared_as_one_pass_would_be(decoder):
    found = rounding.compared(decoder, "angles in bfloat16", TOKENS)
    made = faults.planted("angles in bfloat16", decoder, PROMPT)
    wrong, right = (
        torch.tensor(measuring.losses(each, TOKENS)) for each in (made, decoder)
    )
    torch.testing.assert_close(
        torch.tensor(found["rise"]), wrong - right, atol=2e-4, rtol=0
    )
    best, other = (each(TOKENS[:, :-1]).argmax(-1) for each in (decoder, made))
    assert found["changed"] == (best != other).unflatten(1, (2, 128)).sum(-1).tolist()


def test_leads_by_pair_add_up_to_those_of_scores(decoder):
    def of_scores(weights, q, k):
        rows, scores = range(heads.PERIOD, 64), weights.log()
        found = [
            [
                scores[..., i, i - (back or i)] - scores[..., i, 1 : i + 1].mean(-1)
                for i in rows
            ]
            for back in heads.KINDS.values()
        ]
        return torch.stack([torch.stack(each).mean((0, 1)) for each in found])

    parts, whole = heads.by_layer(decoder, TOKENS[:, :64], heads.leads, of_scores)
    torch.testing.assert_close(parts.sum(-1), whole, atol=1e-3, rtol=1e-3)


def test_a_head_without_which_a_decoder_reads_gives_its_mean(decoder):
    given = []
    for each in (decoder, heads.without(decoder, [(1, head) for head in range(4)])):
        each.blocks[1].attention.output.register_forward_hook(
            lambda *seen: given.append(seen[2])
        )
        each(TOKENS)
    means = (made.mean(1, keepdim=True).expand_as(made) for made in given)
    torch.testing.assert_close(given[1], next(means), atol=1e-4, rtol=1e-4)
    assert not torch.allclose(given[0], given[1], atol=1e-2)


@pytest.fixture
def spelled(decoder, monkeypatch):
    """Let the chapters' measures ask the small decoder, and make a token of each word."""

    def pieces(text):
        words = [f" {word.strip('.')}" for word in text.split()]
        return torch.tensor([[sum(map(ord, word)) % 50 for word in words]]), words

    monkeypatch.setattr(released, "decoder", lambda: decoder)
    monkeypatch.setattr(released, "read", lambda text, count: torch.arange(count) % 47)
    monkeypatch.setattr(chapters, "pieces", pieces)
    monkeypatch.setattr(chapters, "NAMED", {"subject": (1, 2)})
    return pieces


def test_a_chapter_runs_the_layers_that_the_decoder_runs(decoder):
    weights, x = chapters.through(decoder, TOKENS[:, :40])
    torch.testing.assert_close(
        weights, torch.stack(decoder.attention_weights(TOKENS[:, :40]))
    )
    torch.testing.assert_close(decoder._logits(x[-1]), decoder(TOKENS[:, :40]))


def test_a_subject_leads_by_what_its_pairs_add(spelled, decoder, monkeypatch):
    monkeypatch.setattr(chapters, "FRAMES", chapters.FRAMES[:1])
    monkeypatch.setattr(chapters, "WORDS", "dog cat bites man")
    found = chapters.subjects()
    row = decoder.attention_weights(spelled("The dog near the cat bites")[0])[1][0, 2, -1]
    assert found["each"] == [pytest.approx(row[[1, 4]].tolist(), rel=1e-2)]
    lead = (row[1].log() - row[1:].log().mean()).item()
    assert sum(found["leads"]) == pytest.approx(lead, abs=0.02)


def test_equal_scores_give_equal_weights_at_all_offsets_and_scales(spelled, decoder):
    for block in decoder.blocks:
        block.attention.query.weight *= 0
    share = 1 / np.arange(chapters.FROM + 1, chapters.READ + 1)
    found = chapters.offsets()
    assert found["weights"] == [pytest.approx([share.mean()] * chapters.FROM, rel=6e-3)] * 2
    assert found["first"] == pytest.approx([share.mean()] * 2, rel=6e-3)
    weights, lengths = np.moveaxis(chapters.scores()["by layer"], -1, 0)
    assert weights == pytest.approx(np.full((2, 2), np.median(share)), rel=1e-2)
    assert lengths[:, 1] == pytest.approx(8 * lengths[:, 0], rel=1e-2)


def test_only_a_causal_mask_sees_order_without_positions(spelled):
    moved = np.array(chapters.order()["moved"])  # ways, layers
    assert moved[0].min() > 1e-2
    assert moved[1, 0] < 1e-6
    assert moved[1, 1] > 1e-3
    assert moved[2].max() < 1e-6


def test_hidden_padding_changes_no_weight(spelled, decoder):
    found = chapters.padded()
    tokens, words = spelled(chapters.SENTENCE)
    row = torch.cat(decoder.attention_weights(tokens)).mean((0, 1))[words.index(" bites")]
    wanted = [0.0] * chapters.PADS + row.tolist()
    assert found["masked"]["row"] == pytest.approx(wanted, rel=6e-3)
    assert min(found["padding seen"]["row"][: chapters.PADS]) > 0
    assert found["future seen"]["row"][-1] > 0


def test_what_is_played_is_what_the_decoder_generates(spelled, decoder):
    def encode(text):
        return [ord(letter) % 50 for letter in text]

    text, lengths = torch.arange(40) * 7 % 50, (0, 3, 40)
    found = played.continued("as trained", text, encode, lengths)
    for length, row in zip(lengths, found, strict=True):
        for prompt, said in zip(played.PROMPTS, row, strict=True):
            asked = text[:length].tolist() + encode("\n" * (length > 0) + prompt)
            wanted = decoder.generate(torch.tensor(asked), played.WRITTEN)[len(asked) :]
            assert said == wanted.tolist()


def test_no_other_keys_hold_more_than_those_with_the_largest_weights(monkeypatch):
    for name, value in {"LENGTH": 128, "QUERIES": 8, "BUDGETS": (16, 128)}.items():
        monkeypatch.setattr(selection, name, value)
    q, k = torch.randn(2, 1, 9, 128, 16, generator=torch.Generator().manual_seed(0))
    future = torch.ones(128, 128).triu(1).bool()
    weights = (q @ k.mT / 4).masked_fill(future, -torch.inf).softmax(-1)
    *ways, best, first = selection.held(weights, q, k)
    assert all((way[:, 0] < best[:, 0]).all() for way in ways)
    assert torch.allclose(torch.stack([*ways, best])[..., 1], torch.ones(9))
    assert torch.allclose(first[:, 0], weights[0, :, -8:, 0].mean(1))
    last = torch.stack(
        [weights[0, :, i, i - 15 : i + 1].sum(-1) for i in range(120, 128)], 1
    )
    newest = last / (1 - weights[0, :, -8:, 0])
    assert torch.allclose(ways[0][:, 0], newest.mean(1), atol=1e-6)
