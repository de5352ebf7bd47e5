#!/usr/bin/env bash
# Versions: titans-pytorch 0.5.5, torch 2.13.0 (CPU).
# Expected: sample(use_cache=True) writes at temperature 0 what sample(use_cache=False) writes.
# Seen: it does for a prompt within the first segment, and for sliding windows. After a longer
#   prompt every logit is off: the model has forgotten what the prompt's last, open segment held,
#   and each later segment begins where it should not. Of 8 prompts of 12 tokens, with segments
#   of 8, none continues alike.
# Why: MemoryAsContextTransformer.forward (titans_pytorch/mac_transformer.py) cuts the keys of the
#   whole prompt to the last segment_len + num_longterm_mem_tokens, wherever segments begin. The
#   length that is left is a multiple of that number, which means "segment full", so it drops all.
# Who meets it: whoever samples with use_cache=True from a prompt longer than a segment and
#   leaves sliding_window_attn at its default, False.
set -euo pipefail
here=$(mktemp -d)
trap 'rm -rf "$here"' EXIT
python3 -m venv "$here/venv"
"$here/venv/bin/pip" install --quiet torch==2.13.0
"$here/venv/bin/pip" install --quiet titans-pytorch==0.5.5
cd "$here"
"$here/venv/bin/python" -W ignore - 2>/dev/null <<'PY'
import torch
from titans_pytorch import MemoryAsContextTransformer

prompts, total = 8, 32
alike = {}
for sliding in (False, True):
    torch.manual_seed(0)
    model = MemoryAsContextTransformer(
        num_tokens=64, dim=32, depth=2, segment_len=8, num_persist_mem_tokens=2,
        num_longterm_mem_tokens=2, dim_head=16, heads=2, sliding_window_attn=sliding,
        neural_memory_layers=(),
    ).eval()
    for weight in model.parameters():  # random weights attend to everything alike
        if weight.ndim == 2:
            weight.data *= 3
    for length in (8, 12, 20):
        same = 0
        for _ in range(prompts):
            text = torch.randint(0, 64, (1, length))
            one, two = (
                model.sample(text, total, temperature=0.0, use_cache=cache, show_progress=False)
                for cache in (False, True)
            )
            same += torch.equal(one, two)
        alike[sliding, length] = same
        kind = "sliding windows" if sliding else "segments of 8  "
        print(f"{kind}, prompt of {length:2}: {same} of {prompts} continue alike with the cache")
assert all(alike[True, length] == prompts for length in (8, 12, 20))
assert alike[False, 8] == prompts
assert alike[False, 12] <= prompts // 4 and alike[False, 20] <= prompts // 4
PY
