"""Models of transformers with our attention inside give what they gave before (`nox -s oracles`)."""

import re
from pathlib import Path

import pytest
import torch

from tests.nightly.oracles.checks_from_config import model_of

AGREE = 1e-5  # in float32, of the largest logit or 1
N, PADDING, WRITTEN = 13, 4, 6
MODELS = ["Llama", "Qwen3", "Mistral", "Gemma 2", "Gemma 3", "GPT-2", "gpt-oss"]
PAGE = Path(__file__).parents[3] / "docs" / "build" / "model.md"
FENCED = re.compile(r"^```\{code-block\} python\n(.*?)^```", re.DOTALL | re.MULTILINE)
(LINES,) = [found for found in FENCED.findall(PAGE.read_text()) if "register()" in found]


def switch(model, implementation):
    """Choose an attention, ours by the lines of the page."""
    if implementation == "posattn":
        exec(compile(LINES, PAGE.name, "exec"), {"model": model})  # the page's own lines
    else:
        model.set_attn_implementation(implementation)


def made(name):
    """A small model that writes to the end."""
    model = model_of(name)
    model.generation_config.eos_token_id = None
    return model


def text(padding=0):
    """Two texts, the second with padding on its left, and which tokens are read."""
    tokens = torch.randint(1, 40, (2, N), generator=torch.Generator().manual_seed(1))
    read = torch.ones_like(tokens)
    tokens[1, :padding] = read[1, :padding] = 0
    return {"input_ids": tokens, "attention_mask": read}


@pytest.mark.parametrize("name", MODELS)
@torch.no_grad()
def test_logits_and_what_is_written_are_those_of_eager_attention(name):
    model, given = made(name), text(PADDING)
    found = []
    for implementation in ("eager", "posattn"):
        switch(model, implementation)
        logits = model(**given).logits[given["attention_mask"].bool()]
        options = {"max_new_tokens": WRITTEN, "do_sample": False, "use_cache": True}
        written = model.generate(
            **given, **options, output_logits=True, return_dict_in_generate=True
        )
        found.append((logits, torch.stack(written.logits), written.sequences))
    (want, *steps, words), (got, *our_steps, our_words) = found
    bound = AGREE * max(1, want.abs().max())
    assert (got - want).abs().max() < bound
    assert (our_steps[0] - steps[0]).abs().max() < bound
    assert our_words.equal(words)


@torch.no_grad()
def test_a_cache_of_a_fixed_size_is_read_to_its_filled_end():
    model, given = made("Llama"), text()
    found = []
    for implementation in ("eager", "posattn"):
        switch(model, implementation)
        options = {"max_new_tokens": WRITTEN, "do_sample": False}
        written = model.generate(**given, **options, cache_implementation="static",
                                 disable_compile=True)  # fmt: skip
        found.append(written)
    assert found[0].equal(found[1])
