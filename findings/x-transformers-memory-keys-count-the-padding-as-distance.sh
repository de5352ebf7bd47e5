#!/usr/bin/env bash
# Versions: x-transformers 2.31.10, torch 2.13.0 (CPU).
# Expected: a prompt padded on the left, with seq_start_pos or with generate(prompt_lens=...),
#   gives the logits that it gives alone, as rotary attention counts distances only.
# Seen: with attn_num_mem_kv (learned keys and values in front of every layer) and rotary
#   encoding the logits of a prompt change with the padding in front of it. Without the memory,
#   or with the learned table instead of rotation, they agree to 1e-5.
# Why: seq_start_pos (x_transformers/x_transformers.py) shifts the positions of the learned and
#   sinusoidal tables only; AttentionLayers.forward counts rotary positions from the first pad.
#   Attention puts the memory in front of the keys after the rotation, so it stands at position
#   0 for all queries, and padding moves the text away from it.
# Who meets it: whoever generates from prompts of unequal length with persistent memory: all but
#   the longest prompt get other text than alone. Evaluation one by one does not show it.
set -euo pipefail
here=$(mktemp -d)
trap 'rm -rf "$here"' EXIT
python3 -m venv "$here/venv"
"$here/venv/bin/pip" install --quiet torch==2.13.0
"$here/venv/bin/pip" install --quiet numpy==2.4.6 x-transformers==2.31.10
cd "$here"
"$here/venv/bin/python" -W ignore - <<'PY'
import torch
from x_transformers import AutoregressiveWrapper, Decoder, TransformerWrapper

prompt = torch.tensor([[7, 21, 3, 14, 30]])
padded = torch.nn.functional.pad(prompt, (4, 0))
longer = torch.arange(1, 10)[None]
both = torch.cat([longer, torch.nn.functional.pad(prompt, (0, 4))])
rotary, memory = dict(rotary_pos_emb=True), dict(attn_num_mem_kv=2)
off, same = {}, {}
for name, options in (("rotary", rotary), ("memory", memory), ("rotary and memory", rotary | memory)):
    torch.manual_seed(0)
    layers = Decoder(dim=32, depth=3, heads=4, attn_dim_head=64, **options)
    model = TransformerWrapper(num_tokens=40, max_seq_len=32, attn_layers=layers).eval()
    for weight_name, weight in model.named_parameters():  # random weights attend to everything alike
        if "to_q" in weight_name or "to_k" in weight_name:
            weight.data *= 3
    with torch.no_grad():
        alone = model(prompt)
        beside = model(padded, seq_start_pos=torch.tensor([4]))[:, 4:]
        off[name] = ((alone - beside).abs().max() / alone.std()).item()
        write = AutoregressiveWrapper(model).generate
        one = write(prompt, 12, temperature=0.0)[0].tolist()
        two = write(both, 12, temperature=0.0, prompt_lens=torch.tensor([9, 5]))[1].tolist()
    same[name] = one == two
    print(f"{name}: logits move by {off[name]:.2g} of their spread; the same text: {same[name]}")
    print("  alone ", *one, "\n  beside", *two)
assert off["rotary"] < 1e-4 and off["memory"] < 1e-4 and off["rotary and memory"] > 0.1
assert same["rotary"] and same["memory"] and not same["rotary and memory"]
PY
