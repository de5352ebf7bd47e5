"""PEFT: soft prompts and adapters around a model."""

import torch
from peft import LoraConfig, PrefixTuningConfig, PromptTuningConfig, get_peft_model

from tests.nightly.world.inside import recipe
from tests.nightly.world.wrapped import _small

INSTALL = [
    "numpy==2.4.6 torch==2.13.0",
    "transformers==5.24.0 transformer-lens==4.3.0 captum==0.9.0",
    "trl==1.16.0 sentence-transformers==6.2.0 genlm-backend==0.3.1",
    "peft==0.21.2",
]
IDS = torch.tensor([[3, 14, 15, 92, 65]])


def _wrapped(config):
    torch.manual_seed(0)
    return get_peft_model(_small(), config).eval()


def check_finds():
    """The check passes for a Llama, plain or with PEFT's LoRA, and fails twice with prompt tuning."""
    page = {}
    exec(recipe("fix/wrappers", "def check_wrapper"), page)
    lora = LoraConfig("CAUSAL_LM", init_lora_weights=False)
    tuned = PromptTuningConfig("CAUSAL_LM", num_virtual_tokens=4)
    models = {"Llama": _small(), "LoRA": _wrapped(lora), "prompt tuning": _wrapped(tuned)}
    for name, model in models.items():
        print(f"{name}:")
        page["check_wrapper"](model, IDS)


def virtual_tokens_again():
    """With a cache, `generate` reads PEFT's virtual tokens again before every new token."""
    model, read = _wrapped(PromptTuningConfig("CAUSAL_LM", num_virtual_tokens=4)), []
    layer = model.base_model.model.layers[0]
    layer.register_forward_pre_hook(lambda _, given: read.append(given[0].shape[1]))
    for cache in (True, False):
        model.generate(input_ids=IDS, max_new_tokens=4, do_sample=False, use_cache=cache)
        print(f"use_cache={cache}, tokens read in each step:", *read)
        read.clear()


def prefix_left_out():
    """`generate` ignores PEFT's prefix tuning: it writes what the model writes without the prefix."""
    model = _wrapped(PrefixTuningConfig("CAUSAL_LM", num_virtual_tokens=4))
    torch.nn.init.normal_(model.prompt_encoder["default"].embedding.weight)
    text = model.generate(input_ids=IDS, max_new_tokens=6, do_sample=False)
    plain = _small().generate(IDS, max_new_tokens=6, do_sample=False)
    print("generate:", *text[0, 5:].tolist())
    print("without the prefix:", *plain[0, 5:].tolist())
    ids = IDS
    for _ in range(6):
        ids = torch.cat([ids, model(ids).logits[:, -1:].argmax(-1)], 1)
    print("one pass a token:", *ids[0, 5:].tolist())


def activated_lora():
    """PEFT's activated LoRA (aLoRA) writes other tokens without a cache or with a prompt in chunks."""
    options = {"r": 8, "init_lora_weights": False, "target_modules": ["q_proj", "v_proj"]}
    model = _wrapped(LoraConfig("CAUSAL_LM", alora_invocation_tokens=[7, 8], **options))
    ids = torch.tensor([[3, 14, 15, 92, 7, 8, 65, 35]])
    for given in ({"use_cache": True}, {"use_cache": False}, {"prefill_chunk_size": 3}):
        text = model.generate(input_ids=ids, max_new_tokens=6, do_sample=False, **given)
        print(f"{given}:", *text[0, 8:].tolist())
