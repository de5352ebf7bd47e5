#!/usr/bin/env bash
# Versions: Mega-pytorch 0.1.0, torch 2.13.0 (CPU).
# Expected: with causal=True (the default) no option lets a token see what comes after it, and a
#   text's beginning has the same logits alone as in front of more text.
# Seen: with norm_mhesa_heads=True every token's logits change with a later one, the first token's
#   too: the training loss counts on what generation does not have. With laplacian_attn_fn=True no
#   later token is seen, but how many there are is: a beginning has other logits in a longer text,
#   so each token that generate writes changes what stands before it. With neither, all is equal.
# Why: MultiHeadedEMA.norm_heads (mega_pytorch.py) is torch.nn.GroupNorm on (batch, channels, time),
#   whose mean and variance are taken over the whole time axis; retention, which it follows,
#   normalizes each position alone. The Laplacian scores are divided by the length of the text.
# Who meets it: whoever trains a language model with the option "as in RetNet": the loss is better
#   than the model, and no shape, mask or causal flag tells.
set -euo pipefail
here=$(mktemp -d)
trap 'rm -rf "$here"' EXIT
python3 -m venv "$here/venv"
"$here/venv/bin/pip" install --quiet torch==2.13.0
"$here/venv/bin/pip" install --quiet Mega-pytorch==0.1.0
cd "$here"
"$here/venv/bin/python" -W ignore - 2>/dev/null <<'PY'
import torch
from mega_pytorch import Mega

text = torch.randint(0, 32, (1, 48), generator=torch.Generator().manual_seed(0))
other = text.clone()
other[:, 32:] = (other[:, 32:] + 1) % 32
seen = {}
for options in ({}, {"norm_mhesa_heads": True}, {"laplacian_attn_fn": True}):
    torch.manual_seed(0)
    model = Mega(num_tokens=32, dim=32, depth=2, causal=True, **options).eval()
    for name, weight in model.named_parameters():
        if name.endswith("gamma"):  # of 0.02: a fresh model hardly attends
            weight.data.normal_()
    with torch.no_grad():
        whole, changed, alone = model(text)[:, :32], model(other)[:, :32], model(text[:, :32])
    name = next(iter(options), "neither")
    size = whole.abs().max().item()
    first = (whole - changed)[:, 0].abs().max().item() / size
    later = (whole - changed).abs().max().item() / size
    length = (whole - alone).abs().max().item() / size
    seen[name] = later, first, length
    print(f"{name}: other tokens at the end change the first 32 tokens' logits by {later:.1e} of the largest,",
          f"the first token's by {first:.1e}; without an end they change by {length:.1e}")
assert all(difference < 1e-5 for difference in seen["neither"])
assert all(difference > 0.01 for difference in seen["norm_mhesa_heads"])
later, first, length = seen["laplacian_attn_fn"]
assert later < 1e-5 and length > 0.01
PY
