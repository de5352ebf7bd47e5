#!/usr/bin/env bash
# Versions: infini-transformer-pytorch 0.2.1, rotary-embedding-torch 0.9.1, torch 2.13.0 (CPU).
# Expected: generate reads a prompt of any length as training reads a text: one segment after the
#   other, each written into the compressed memory that the next one reads.
# Seen: it begins with the last segment of the prompt. What stands before never reaches the
#   model: with segments of 8 tokens two prompts of 20 that differ in their first 16 continue
#   alike, token by token, and of a prompt of 9 tokens one is read. Read segment by segment by
#   hand, the same two prompts lead to other logits.
# Why: InfiniTransformerWrapper.generate (infini_transformer_pytorch/wrapper.py) cuts its input at
#   the start of the last segment before the first call, while the memory is still empty.
# Who meets it: whoever gives a long prompt to a model made for long texts. A prompt within one
#   segment, as in its README, is read whole, and so is what the model writes after it.
set -euo pipefail
here=$(mktemp -d)
trap 'rm -rf "$here"' EXIT
python3 -m venv "$here/venv"
"$here/venv/bin/pip" install --quiet torch==2.13.0
"$here/venv/bin/pip" install --quiet rotary-embedding-torch==0.9.1 infini-transformer-pytorch==0.2.1
cd "$here"
"$here/venv/bin/python" -W ignore - 2>/dev/null <<'PY'
import torch
from infini_transformer_pytorch import InfiniTransformer, InfiniTransformerWrapper

torch.manual_seed(0)
segment = 8
model = InfiniTransformer(num_tokens=64, dim=64, depth=2, dim_head=32, heads=2)
for name, weight in model.named_parameters():
    if "head_gates" in name:  # a fresh model hardly reads its memory
        weight.data.zero_()
    elif weight.ndim == 2:  # random weights attend to everything alike
        weight.data *= 3
writer = InfiniTransformerWrapper(model, segment_length=segment).eval()


@torch.no_grad()
def by_hand(text):
    """Logits after the text, its segments read in order with the memory handed on."""
    memories = None
    for part in text.split(segment, dim=-1):
        logits, _, memories = model(part, past_memories=memories, return_new_memories=True)
    return logits[:, -1]


seen = {}
for length in (8, 9, 16, 20):
    change = (length - 1) // segment * segment or 4  # all but the last segment, or a half of one
    text = torch.randint(0, 64, (1, length))
    other = torch.cat([torch.randint(0, 64, (1, change)), text[:, change:]], dim=-1)
    greedy = dict(seq_len=length + 30, temperature=0.0, filter_kwargs=dict(thres=1.0))
    same = torch.equal(writer.generate(prompt=text, **greedy), writer.generate(prompt=other, **greedy))
    apart = (by_hand(text) - by_hand(other)).abs().max().item()
    seen[length] = same, apart
    print(f"prompts of {length:2} tokens, the first {change:2} differ: 30 tokens {'alike' if same else 'differ'},",
          f"logits of segment after segment differ by {apart:.2f}")
assert not seen[8][0] and all(seen[length][0] for length in (9, 16, 20))
assert all(apart > 0.05 for _, apart in seen.values())
PY
