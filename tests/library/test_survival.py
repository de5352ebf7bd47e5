"""What a language model survives: each planted fault shows in its rows, with its cause."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from posattn.__main__ import main
from posattn.conformance import UsageError, survival
from posattn.conformance.survival import survives
from posattn.torch import Decoder, Rotary, rotate

pytestmark = pytest.mark.usefixtures("unchecked")  # other tests check the annotations

LATER = ["prompt in chunks", "single steps, own loop"]
WRITTEN = ["generate", "generate, left padding", "second question, same cache"]
PADDED = ["left padding", "left padding, position_ids", WRITTEN[1]]
FAULTS = {  # the rows that differ, and the causes that are told
    "": ([], []),
    "absolute": (["left padding"], [survival.FROM_PADDING]),
    "from 0": (LATER, [survival.FROM_0]),
    "at once": (
        [LATER[0], WRITTEN[2], "packed rows"],
        [survival.AT_ONCE, "A document sees those before it."],
    ),
    "empty": (WRITTEN, [survival.UNCACHED, survival.EMPTY]),
    "beams": (["beams"], [survival.UNCACHED]),
    "alone": (WRITTEN, [survival.ALONE]),
    "coarse": (["after a call in bfloat16"], []),
    "state": (
        [LATER[0], WRITTEN[2], "packed rows"],
        [survival.FORGOTTEN, "A document sees those before it."],
    ),
    "leak": (["packed rows"], ["A document sees those before it."]),
    "behind": (["packed rows"], ["A document sees those behind it."]),
    "future": (["with what follows", *LATER, *WRITTEN], []),
    "kept": (["after another text", WRITTEN[0], WRITTEN[2]], [survival.UNCACHED]),
    "first row": (["in a batch", *PADDED], []),
}


class Small(nn.Module):
    """A layer of attention as a language model with a cache, and a fault."""

    generation_config = None

    def __init__(self, fault=""):
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.fault, self.longest = nn.Embedding(40, 16), fault, 0
        self.table = torch.zeros(0)

    def forward(
        self, input_ids, attention_mask=None, position_ids=None, cache=None, use_cache=False
    ):
        """Logits, and the keys so far."""
        x, fault = self.embed(input_ids), self.fault
        if fault == "first row":
            x = x[:1].expand(x.shape)
        self.longest = max(self.longest, x.shape[1])
        held = torch.zeros(len(x), 0, 32) if cache is None else cache.keys
        begin, n = held.shape[1], x.shape[1]
        rows = torch.arange(begin, begin + n)
        where = rows - begin * (fault == "from 0") if position_ids is None else position_ids
        if fault == "absolute":
            x = x + torch.sin(where[..., None] * torch.arange(1, 17))
        if fault == "coarse":
            if where.max() >= len(self.table):
                self.table = torch.arange(where.max() + 1).to((x @ x.mT).dtype).float()
            where = self.table[where]
        query = rotate(x, where)
        keys = torch.cat([held, torch.cat([query, x], -1)], 1)
        seen = torch.arange(begin + n) <= rows[:, None] + (fault == "future")
        if fault == "at once" and n > 1:
            seen = seen & (torch.arange(begin + n) >= begin)
        if attention_mask is not None:
            seen = seen & attention_mask.bool()[:, None]
        elif cache is None and position_ids is not None and fault != "leak":
            number = (where == 0).cumsum(-1)
            seen = seen & (number[..., None] == number[:, None])
            seen[:, 0, 24:] = fault == "behind"
        scores = (0.1 * query @ keys[..., :16].mT).masked_fill(~seen, -1e9)
        y = x + scores.softmax(-1) @ keys[..., 16:] + (fault == "kept") * self.longest
        made = SimpleNamespace(keys=keys, get_seq_length=lambda: 0 * len(keys))
        if fault in ("state", "at once"):
            there = 1 if attention_mask is None else attention_mask[:, -n:, None]
            state = (x * there).cumsum(1)
            if begin and (n == 1 or fault == "at once"):
                state = state + cache.layers[0].recurrent_states[0]
            made.layers, y = (
                [SimpleNamespace(recurrent_states={0: state[:, -1:]})],
                y + state,
            )
        if fault != "empty":
            made.get_seq_length = lambda: keys.shape[1]
        return SimpleNamespace(logits=y @ self.embed.weight.roll(1, 0).T, cache=made)

    def generate(
        self,
        tokens,
        attention_mask,
        max_new_tokens,
        cache=None,
        use_cache=True,
        num_beams=1,
        **more,
    ):
        """Greedy, or three texts with their likelihood."""
        if num_beams > 1:
            made = torch.cat(
                [tokens.expand(3, -1), torch.randint(3, 40, (3, max_new_tokens))], 1
            )
            logits = self(made).logits.log_softmax(-1)[:, -max_new_tokens - 1 : -1]
            scores = logits.gather(-1, made[:, -max_new_tokens:, None]).sum((1, 2))
            wrong = self.fault == "beams" and use_cache
            return SimpleNamespace(sequences=made, sequences_scores=scores + wrong)
        logits = []
        for step in range(max_new_tokens):
            done = 0 if cache is None else cache.get_seq_length()
            if self.fault == "alone":
                done, cache = (step > 0) * (tokens.shape[1] - 1), None
            where = (attention_mask.cumsum(-1) - 1).clamp(min=0)[:, done:]
            shown = attention_mask[:, done * (cache is None) :]
            out = self(tokens[:, done:], shown, where, cache)
            cache = out.cache if use_cache else None
            logits.append(out.logits[:, -1])
            tokens = torch.cat([tokens, logits[-1].argmax(-1)[:, None]], 1)
            attention_mask = nn.functional.pad(attention_mask, (0, 1), value=1)
        return SimpleNamespace(sequences=tokens, logits=logits, cache=cache)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_shows_in_its_rows(fault):
    rows = survives(model := Small(fault).train())
    wrong = {row.name: row.cause for row in rows if not row.survives}
    assert (sorted(wrong), {*wrong.values()} - {""}) == (
        sorted(FAULTS[fault][0]), {*FAULTS[fault][1]}
    )  # fmt: skip
    assert {str(row).split()[-1] for row in rows if row.name not in wrong} == {"equal"}
    assert model.training


def test_what_has_no_such_keyword_is_not_asked():
    decoder = Decoder(40, 32, num_layers=1, num_heads=4, rotate=Rotary(base=5e5))
    told = {row.name: row.told for row in survives(decoder)}
    assert not told["single steps, own loop"]
    assert not told["generate"]
    assert told["packed rows"] == "it takes no position_ids"
    told = {row.name: str(row) for row in survives(lambda tokens: decoder(tokens))}
    assert "not asked: it returns no cache" in told["prompt in chunks"]
    assert "not asked: it has no generate" in told["beams"]

    right = Small()
    rows = survives(lambda tokens, **lost: right(tokens).logits)
    assert {row.name: row.cause for row in rows if not row.survives} == {
        **dict.fromkeys(PADDED[:2], survival.NO_MASK), "packed rows": survival.NO_PLACES
    }  # fmt: skip

    class Bare(Small):
        def forward(self, input_ids, cache=None, use_cache=False):
            return super().forward(input_ids, cache=cache, use_cache=use_cache)

    (row,) = survives(Bare("from 0"), "own loop")
    assert (row.survives, row.cause) == (False, "")  # its cause cannot be asked
    with pytest.raises(UsageError, match=r"model cannot be run on tokens .1, 3."):
        survives(nn.Linear(1, 1))


def test_the_command_tells_what_survives(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models_to_ask.py").write_text(
        "from tests.library.test_survival import Small\n"
        "leaks, right = Small('leak'), Small()\n"
        "def plain(): return lambda tokens: right(tokens).logits\n"
    )
    assert main(["diagnose", "models_to_ask.py:leaks"]) == 1
    assert "packed rows                 differs by" in capsys.readouterr().out
    assert main(["diagnose", "models_to_ask.py:right", "--packed"]) == 0
    assert capsys.readouterr().out == "packed rows                 equal\n"
    assert main(["diagnose", "models_to_ask.py:plain", "--packed"]) == 1
    assert "not asked: it takes no position_ids" in capsys.readouterr().out
