#!/usr/bin/env bash
# Versions: transformers 5.24.0, torch 2.13.0.
# Expected: `generate_batch` (continuous batching) writes what `generate` writes for each prompt alone,
#   or says that its paged attention cannot compute the model, as requests to BLOOM and OPT do.
# Seen: Gemma 2 and VaultGemma write other tokens. They are exactly those that the same weights write
#   with attn_logit_softcapping=None: the scores of attention are not capped. Without a cap in the
#   configuration, all three prompts come out the same. No warning.
# Why: the cap is applied inside the model's own eager attention. `generate_batch` replaces it by
#   eager_paged_attention_forward (integrations/eager_paged.py), which knows sinks, but drops the
#   argument softcap with all others it does not name. Both families allow eager attention only.
# Who meets it: whoever evaluates or serves Gemma 2 by generate_batch without FlashAttention: released
#   files cap at 50. (Here the cap is 0.5, since the scores of random weights are small.)
set -euo pipefail
T=$(mktemp -d)
trap 'rm -rf "$T"' EXIT
python3 -m venv "$T/env"
"$T/env/bin/pip" install --quiet torch==2.13.0 transformers==5.24.0 psutil==7.2.2
cd "$T"
env/bin/python - <<'PY'
import logging

import torch
from transformers import AutoConfig, AutoModelForCausalLM, GenerationConfig

logging.disable(logging.ERROR)
PROMPTS = [torch.randint(2, 60, (n,), generator=torch.manual_seed(1)).tolist() for n in (5, 30, 18)]
GREEDY = GenerationConfig(max_new_tokens=12, do_sample=False, eos_token_id=63, pad_token_id=0)
SIZES = dict(vocab_size=64, hidden_size=64, intermediate_size=128, num_hidden_layers=2, head_dim=16,
             num_attention_heads=4, num_key_value_heads=2, query_pre_attn_scalar=16, initializer_range=0.2,
             max_position_embeddings=256, tie_word_embeddings=False, pad_token_id=0, eos_token_id=63)


def made(family, cap):
    """The same weights for each cap."""
    torch.manual_seed(0)
    config = AutoConfig.for_model(family, **SIZES, attn_logit_softcapping=cap)
    return AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()


def alone(model):
    return [model.generate(torch.tensor([p]), generation_config=GREEDY)[0, len(p):].tolist() for p in PROMPTS]


def batched(model):
    done = model.generate_batch(inputs=PROMPTS, generation_config=GREEDY, progress_bar=False)
    assert all(each.error is None for each in done.values())
    return [each.generated_tokens for each in done.values()]


for family in ("gemma2", "vaultgemma"):
    capped, free = made(family, 0.5), made(family, None)
    want, uncapped, got, control = alone(capped), alone(free), batched(capped), batched(free)
    print(f"{family}, capped: generate writes {[w[:5] for w in want]} ...")
    print(f"{' ' * len(family)}  generate_batch {[g[:5] for g in got]} ...")
    print(f"  as capped {[w == g for w, g in zip(want, got)]}, as uncapped "
          f"{[u == g for u, g in zip(uncapped, got)]}; without a cap {[u == c for u, c in zip(uncapped, control)]}")
    assert all(w != g for w, g in zip(want, got)) and got == uncapped == control
PY
