"""Models of transformers with our attention inside give what they gave before (`nox -s oracles`)."""

import re
from pathlib import Path

import pytest
import torch
import transformers

AGREE = 1e-5  # in float32, of the largest logit or 1
N, PADDING, WRITTEN = 13, 4, 6
SMALL = {
    "hidden_size": 32,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "intermediate_size": 48,
    "num_hidden_layers": 4,
    "vocab_size": 40,
    "pad_token_id": 0,
    "bos_token_id": None,
    "eos_token_id": None,
    "max_position_embeddings": 64,
}
WINDOW = {"sliding_window": 4}
MODELS = {
    "Llama": ("Llama", {}),
    "Qwen3": ("Qwen3", {}),
    "Mistral": ("Mistral", WINDOW),
    "Gemma 2, soft cap": ("Gemma2", WINDOW | {"attn_logit_softcapping": 2.0}),
    "Gemma 3": ("Gemma3", WINDOW | {"num_hidden_layers": 7}),
    "GPT-2": ("GPT2", {}),
    "gpt-oss, sinks": (
        "GptOss",
        WINDOW | {"num_local_experts": 4, "num_experts_per_tok": 2},
    ),
}


PAGE = Path(__file__).parents[3] / "docs" / "model.md"
FENCED = re.compile(r"^```\{code-block\} python\n(.*?)^```", re.DOTALL | re.MULTILINE)
(LINES,) = [found for found in FENCED.findall(PAGE.read_text()) if "register()" in found]


def switch(model, implementation):
    """Choose an attention, ours by the lines of the page."""
    if implementation == "posattn":
        exec(compile(LINES, PAGE.name, "exec"), {"model": model})  # the page's own lines
    else:
        model.set_attn_implementation(implementation)


def made(name):
    """A small model with random weights, large enough that attention is not even."""
    kind, changes = MODELS[name]
    config = getattr(transformers, kind + ("TextConfig" if kind == "Gemma3" else "Config"))
    sizes = SMALL | changes
    if kind == "GPT2":
        sizes = {"n_embd": 32, "n_head": 4, "n_layer": 4, "vocab_size": 40}
        sizes |= {key: SMALL[key] for key in SMALL if key.endswith("token_id")}
    torch.manual_seed(0)
    model = "GPT2LMHeadModel" if kind == "GPT2" else f"{kind}ForCausalLM"
    model = getattr(transformers, model)(config(**sizes)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter) / parameter.shape[-1] ** 0.5)
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


def test_gradients_are_those_of_eager_attention():
    model, given = made("Gemma 2, soft cap"), text(PADDING)
    labels = given["input_ids"].clone()
    labels[1, : PADDING + 1] = -100  # whose outputs come from padding
    found = []
    for implementation in ("eager", "posattn"):
        switch(model, implementation)
        model.zero_grad()
        model(**given, labels=labels).loss.backward()
        found.append([p.grad for p in model.parameters() if p.grad is not None])
    for want, got in zip(*found, strict=True):
        assert (got - want).abs().max() < 1e-4 * max(1, want.abs().max())


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
