#!/usr/bin/env bash
# Versions: transformers 5.24.0, torch 2.13.0.
# Expected: DBRX rotates by the base in its config.json, attn_config.rope_theta, which is 500000 in
#   dbrx-base and dbrx-instruct. In transformers 4.57.6 the model below does.
# Seen: it rotates by 10000, whatever attn_config.rope_theta says. Each attention still stores the
#   500000 as rope_theta, and a file without that key raises AttributeError, so it looks read. With
#   rope_parameters at the top of the file, too, it rotates by 500000.
# Why: DbrxRotaryEmbedding (models/dbrx/modeling_dbrx.py) takes config.rope_parameters, and
#   standardize_rope_params fills in 10000 where the top of the file has no rope_theta. It does not
#   look into attn_config. In 4.57.6 each DbrxAttention makes its own rotation from attn_config.
# Who meets it: whoever loads DBRX, or a fine-tune of it, in transformers 5. The last pair of a head
#   of 128 rotates by 3.8 radians over the trained 32768 tokens, not 0.1. No warning, and the first
#   token's logits are right.
set -euo pipefail
T=$(mktemp -d)
trap 'rm -rf "$T"' EXIT
cd "$T"
python3 -m venv env
env/bin/pip install --quiet --only-binary :all: torch==2.13.0 transformers==5.24.0
cat >logits.py <<'PY'
import sys

import torch
from transformers import DbrxConfig, DbrxForCausalLM, __version__

attention = {"clip_qkv": 8, "kv_n_heads": 1, "rope_theta": 500000}  # as in the released files
network = {"ffn_hidden_size": 64, "moe_num_experts": 2, "moe_top_k": 1}
sizes = {"d_model": 256, "n_heads": 2, "n_layers": 1, "vocab_size": 64, "max_seq_len": 512}
new = {"rope_type": "default", "rope_theta": 500000.0}
more = {"rope_parameters": new} if "new" in sys.argv else {}
config = DbrxConfig(**sizes, attn_config=attention, ffn_config=network, **more)
model = DbrxForCausalLM(config).eval()
for number, (name, weight) in enumerate(sorted(model.named_parameters())):
    generator = torch.Generator().manual_seed(number)
    if weight.ndim > 1:
        torch.nn.init.normal_(weight, std=2 * weight.shape[-1] ** -0.5, generator=generator)
(rotation,) = {type(m): m for m in model.modules() if "Rotary" in type(m).__name__}.values()
base = (rotation.inv_freq[1] ** -64).item()
tokens = torch.randint(64, (1, 512), generator=torch.Generator().manual_seed(0))
with torch.no_grad():
    torch.save(model(tokens).logits, sys.argv[1])
(stored,) = {m.rope_theta for m in model.modules() if hasattr(m, "rope_theta")}
print(f"transformers {__version__} {' '.join(more)}: rotates by {base:.0f}, stores {stored}")
assert abs(base / (10000 if sys.argv[1] == "seen" else 500000) - 1) < 1e-3 and stored == 500000
PY
env/bin/python logits.py seen
env/bin/python logits.py given new
env/bin/python - <<'PY'
import torch

seen, given = map(torch.load, ("seen", "given"))
off = (seen - given).abs().amax(2)[0]
print(f"logits of up to {given.abs().max():.1f}: off by {off.max():.2f}, at token 0 by {off[0]:.0e}")
assert off.max() > 1 and off[0] < 1e-4
PY
