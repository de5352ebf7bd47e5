#!/usr/bin/env bash
# Versions: recurrent-memory-transformer-pytorch 0.7.0, torch 2.13.0 (CPU).
# Expected: with use_xl_memories=True each segment attends to the keys and values of the one before
#   it, in training and evaluation as in generation.
# Seen: only generation does. The wrapper's loss and logits are, to the last bit, those of segments
#   between which nothing but memory tokens is handed on, though it collects the XL memories; with
#   memory_replay_backprop=True the loss of the same text is another one, as it reads them. So a
#   model is trained without them, and generate then hands it keys that it has never seen: of 200
#   prompts of two and a half segments every sixth is continued by another token than the likeliest
#   one of the wrapper's own logits; of prompts within one segment, none.
# Why: RecurrentMemoryTransformerWrapper.forward (recurrent_memory_transformer.py) calls the
#   transformer without xl_memories=; its generate, and its backward pass with replay, give it.
# Who meets it: whoever trains or scores with XL memories switched on and without the replay.
set -euo pipefail
here=$(mktemp -d)
trap 'rm -rf "$here"' EXIT
python3 -m venv "$here/venv"
"$here/venv/bin/pip" install --quiet torch==2.13.0
"$here/venv/bin/pip" install --quiet packaging==26.4 recurrent-memory-transformer-pytorch==0.7.0
cd "$here"
"$here/venv/bin/python" -W ignore - 2>/dev/null <<'PY'
import torch
from recurrent_memory_transformer_pytorch import (
    RecurrentMemoryTransformer,
    RecurrentMemoryTransformerWrapper,
)

torch.manual_seed(0)
segment = 16
model = RecurrentMemoryTransformer(
    num_tokens=32, dim=32, depth=2, dim_head=16, heads=2, seq_len=segment, num_memory_tokens=4,
    causal=True, use_xl_memories=True, xl_mem_len=segment,
)
for weight in model.parameters():
    if weight.ndim == 2:  # random weights attend to everything alike
        weight.data *= 2
wrapper = RecurrentMemoryTransformerWrapper(model).eval()


@torch.no_grad()
def by_hand(text, handed_on):
    """Logits of segment after segment, with or without XL memories."""
    memories = xl_memories = None
    logits = []
    for part in text.split(segment, dim=-1):
        given = xl_memories if handed_on else None
        out, memories, xl_memories = model(part, memories, xl_memories=given)
        logits.append(out)
    return torch.cat(logits, dim=1)


text = torch.randint(0, 32, (1, 3 * segment))
with torch.no_grad():
    logits, _ = wrapper(text)
    loss, _ = wrapper(text, return_loss=True)
replay = wrapper.train()(text, memory_replay_backprop=True).item()
wrapper.eval()
without, handed = ((logits - by_hand(text, on)).abs().max().item() for on in (False, True))
print(f"logits of the wrapper: {without:.2g} from segments without XL memories, {handed:.2g} from those with")
print(f"loss of one text: {loss.item():.4f}, with memory replay {replay:.4f}")

others = {}
for length in (12, 40):
    prompts = torch.randint(0, 32, (200, length))
    with torch.no_grad():
        likely = wrapper(prompts)[0][:, -1].argmax(-1)
    written = wrapper.generate(prompts, length=length + 1, temperature=1e-6)[:, 0]
    others[length] = (likely != written).sum().item()
    print(f"200 prompts of {length} tokens: {others[length]} continued by a token that is not the likeliest")
assert without == 0 and handed > 0.1
assert abs(loss.item() - replay) > 1e-3
assert others[12] == 0 and others[40] > 20
PY
