#!/usr/bin/env bash
# Versions: native-sparse-attention-pytorch 0.2.3, torch 2.13.0 (CPU).
# Expected: sample(use_cache_kv=True) writes what sample writes without a cache; most models begin
#   from a single token.
# Seen: it does if the prompt fills a compression block. From a shorter one the first tokens are read
#   without the trained memory key and value that every other query of the compressed branch may
#   attend to, and what they leave in later layers' caches stays wrong for the whole text. With the
#   memory at zero, as in a fresh model, both ways are equal, so a test on random weights passes.
# Why: SparseAttention.forward_inference (native_sparse_attention.py) puts the memory in front of the
#   compressed keys only if there are some; forward does so always. (It declares no tqdm, and needs it.)
# Who meets it: whoever trains such a model and samples with the cache from a start token or a word.
set -euo pipefail
here=$(mktemp -d)
trap 'rm -rf "$here"' EXIT
python3 -m venv "$here/venv"
"$here/venv/bin/pip" install --quiet torch==2.13.0
"$here/venv/bin/pip" install --quiet tqdm==4.70.1 rotary-embedding-torch==0.9.1 local-attention==1.11.2 native-sparse-attention-pytorch==0.2.3
cd "$here"
"$here/venv/bin/python" -W ignore - 2>/dev/null <<'PY'
import torch
from native_sparse_attention_pytorch.transformer import Transformer

block = 8
torch.manual_seed(0)
model = Transformer(
    num_tokens=64, dim=64, depth=3, heads=2, dim_head=32, use_sparse_attn=True, causal=True,
    sparse_attn_kwargs=dict(
        sliding_window_size=4, compress_block_size=block, compress_block_sliding_stride=block,
        selection_block_size=block, num_selected_blocks=2,
    ),
).eval()
for name, weight in model.named_parameters():
    if weight.ndim == 2:  # random weights attend to everything alike
        weight.data *= 2


@torch.no_grad()
def differences(length):
    """How far the logits after each of 32 tokens differ, read with a cache after a prompt."""
    text = torch.randint(0, 64, (1, 32), generator=torch.Generator().manual_seed(length))
    whole = model(text)
    _, cache = model(text[:, :length], return_cache=True)
    apart = []
    for end in range(length + 1, 33):
        logits, cache = model(text[:, :end], cache=cache, return_cache=True)
        apart.append((logits[:, -1] - whole[:, end - 1]).abs().max().item())
    size = whole.abs().max().item()
    return apart[0] / size, apart[-1] / size


seen = {}
for trained in (False, True):
    for layer, _ in model.layers:
        torch.nn.init.normal_(layer.compress_mem_kv, std=float(trained))
    for length in (1, block - 1, block, 2 * block + 1):
        seen[trained, length] = first, last = differences(length)
        print(f"memory {'trained' if trained else 'zero':7}, prompt of {length:2} tokens: logits with a cache",
              f"differ by {first:.1e} after the next token, {last:.1e} after the 32nd")
assert all(max(pair) < 1e-5 for (trained, length), pair in seen.items() if not trained or length >= block)
assert all(min(seen[True, length]) > 1e-4 for length in (1, block - 1))
PY
