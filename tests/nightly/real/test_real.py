"""The study of a released model is of the code as it is, and its faults are what they say.

Code that is part of a record's fingerprint is held by that; what it takes from a decoder is held here.
"""

import pytest
import torch
from torch import nn

from posattn.torch import Decoder
from tests.nightly.real import __main__ as command
from tests.nightly.real import chapters, faults, measuring, played, released
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


def test_a_chapter_runs_the_layers_that_the_decoder_runs(decoder):
    weights, x = chapters.through(decoder, TOKENS[:, :40])
    torch.testing.assert_close(
        weights, torch.stack(decoder.attention_weights(TOKENS[:, :40]))
    )
    torch.testing.assert_close(decoder._logits(x[-1]), decoder(TOKENS[:, :40]))


def test_what_is_played_is_what_the_decoder_generates(decoder, monkeypatch):
    monkeypatch.setattr(released, "decoder", lambda: decoder)

    def encode(text):
        return [ord(letter) % 50 for letter in text]

    text, lengths = torch.arange(40) * 7 % 50, (0, 3, 40)
    found = played.continued("as trained", text, encode, lengths)
    for length, row in zip(lengths, found, strict=True):
        for prompt, said in zip(played.PROMPTS, row, strict=True):
            asked = text[:length].tolist() + encode("\n" * (length > 0) + prompt)
            wanted = decoder.generate(torch.tensor(asked), played.WRITTEN)[len(asked) :]
            assert said == wanted.tolist()
