"""CTranslate2, a small Llama of random weights, converted from transformers."""

import tempfile

import numpy as np
import torch
from ctranslate2 import Generator
from ctranslate2.converters import TransformersConverter
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

INSTALL = ["numpy==2.4.6", "torch==2.13.0", "transformers==5.24.0", "ctranslate2==4.8.5"]
SIZES = {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2,
         "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 64}  # fmt: skip
TEXT = np.random.default_rng(0).integers(3, 64, 40)


def _words(tokens):
    return [str(token) for token in tokens]


def _models(family="llama", **settings):
    """A model of transformers with sharpened attention, and what its conversion gives."""
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(
        AutoConfig.for_model(family, **SIZES | settings)
    )
    for name, weight in model.named_parameters():
        if "q_proj" in name or "k_proj" in name:
            weight.data *= 8
    words = {word: number for number, word in enumerate(_words(range(64)))}
    tokenizer = Tokenizer(models.WordLevel(words, "0"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    special = {"unk_token": "0", "bos_token": "1", "eos_token": "2"}
    folder = tempfile.mkdtemp()
    model.save_pretrained(folder)
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special).save_pretrained(folder)
    TransformersConverter(folder).convert(f"{folder}/converted")
    return model.eval(), Generator(f"{folder}/converted")


def _logits(model, *texts):
    return np.array(model.forward_batch([_words(text) for text in texts]))


def _steps(model, text, length):
    """A continuation and the logits of its steps."""
    options = {"return_logits_vocab": True, "include_prompt_in_result": False}
    (made,) = model.generate_batch(
        [_words(text)], max_length=length, sampling_topk=1, **options
    )
    return [int(word) for word in made.sequences[0]], np.array(made.logits[0])


def _apart(model, other):
    with torch.no_grad():
        wanted = model(torch.from_numpy(TEXT)[None]).logits.numpy()
    return abs(_logits(other, TEXT) - wanted).max()


def padded():
    _, model = _models()
    alone = _logits(model, TEXT[:20])
    return alone, _logits(model, TEXT[:20], TEXT)[:1, :20]


def cached():
    _, model = _models()
    tokens, steps = _steps(model, TEXT[:20], 8)
    return _logits(model, [*TEXT[:20], *tokens])[0, 19:27], steps


def llama_3():
    """Llama 3's scaling of the frequencies is dropped: the converted model is that without scaling."""
    numbers = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "factor": 8.0}
    rope = {"rope_type": "llama3", "original_max_position_embeddings": 32, **numbers}
    plain, _ = _models()
    scaled, made = _models(rope_parameters={"rope_theta": 10000.0, **rope})
    print(f"largest difference from the model with scaling: {_apart(scaled, made):.2f}")
    print(f"from the model without it: {_apart(plain, made):.4f}")


def prompt_of_two_windows():
    """With a sliding window, a token of a prompt sees up to two windows of keys."""
    _, model = _models("mistral", sliding_window=8)
    text, seen = TEXT[:23], 0
    _, logits = _steps(model, text, 1)
    for place in range(23):
        other = text.copy()
        other[place] = 3 + text[place] % 61
        seen += int(abs(_steps(model, other, 1)[1] - logits).max() > 1e-5)
    print(f"two layers with a window of 8 keys reach 15 tokens; reached: {seen}")


def gemma_2():
    """Gemma 2 converts without its soft caps, its windows and its `query_pre_attn_scalar`."""
    given = {"query_pre_attn_scalar": 4, "attn_logit_softcapping": 1.0, "sliding_window": 8}
    taken = {
        "query_pre_attn_scalar": 16,
        "attn_logit_softcapping": None,
        "sliding_window": 64,
    }
    capped, open_ended = (
        {"head_dim": 16, "final_logit_softcapping": x} for x in (0.5, None)
    )
    model, made = _models("gemma2", **capped, **given)
    print(f"largest difference from the model with them: {_apart(model, made):.2f}")
    plain, _ = _models("gemma2", **open_ended, **taken)
    print(f"from the model without them, and with 1/√16: {_apart(plain, made):.4f}")


def gemma_3():
    """Gemma 3 loses the factor of its global layers, which all sizes but the smallest have."""
    sizes = {"head_dim": 16, "query_pre_attn_scalar": 16}
    sizes["layer_types"] = ["full_attention"] * 2
    local = {"sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}
    made = []
    for rope in ({"rope_type": "linear", "factor": 8.0}, {"rope_type": "default"}):
        told = local | {"full_attention": rope | {"rope_theta": 1e6}}
        made.append(_models("gemma3_text", rope_parameters=told, **sizes))
    (scaled, converted), (plain, _) = made
    print(
        f"largest difference from the model with factor 8: {_apart(scaled, converted):.2f}"
    )
    print(f"from the model without it: {_apart(plain, converted):.4f}")


def head_dim():
    """A Llama's `head_dim` is not read: scores are scaled by the hidden size over the heads, or it raises."""
    wide, made = _models(head_dim=32, num_key_value_heads=4)
    print(f"largest difference from the model with heads of 32: {_apart(wide, made):.2f}")
    for layer in wide.model.layers:
        layer.self_attn.scaling = 16**-0.5
    print(f"scaled by 1/√16: {_apart(wide, made):.4f}")
    try:
        _apart(*_models(head_dim=32, num_key_value_heads=2))
    except ValueError as error:
        print("with grouped heads:", error)
