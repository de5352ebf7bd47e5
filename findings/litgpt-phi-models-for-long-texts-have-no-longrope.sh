#!/usr/bin/env bash
# Versions: litgpt 0.5.13, torch 2.13.0.
# Expected: Phi-3-mini-128k and Phi-4-mini, which litgpt lists with 131072 tokens, rotate by the
#   LongRoPE of their config.json: every pair has a factor of its own, and queries and keys become
#   1.19 times as long, sqrt(1 + ln(32) / ln(4096)), in texts of any length; or litgpt refuses them.
# Seen: both rotate by 10000 without scaling, and the rotation keeps lengths. At position 100000
#   the slowest pair of Phi-4-mini has turned by 12.1 radians; divided by its factor, 47.77, by 0.25.
# Why: their entries in litgpt/config.py have no rope_adjustments, and build_rope_cache
#   (litgpt/model.py) knows Llama 3's scaling, linear scaling and YaRN only. Nothing reads config.json.
# Who meets it: whoever runs, evaluates or fine-tunes these models in litgpt: scores are 1.42 times too
#   small in short prompts, too, and beyond 4096 tokens angles are ones that the model has never seen.
set -euo pipefail
T=$(mktemp -d)
trap 'rm -rf "$T"' EXIT
python3 -m venv "$T/env"
"$T/env/bin/pip" install --quiet torch==2.13.0 litgpt==0.5.13
cd "$T"
env/bin/python - <<'PY'
import math

import torch
from litgpt import GPT, Config

LENGTH = math.sqrt(1 + math.log(131072 / 4096) / math.log(4096))
for name in ("Phi-3-mini-128k-instruct", "Phi-4-mini-instruct"):
    listed = Config.from_name(name)
    sizes = {"n_layer": 1, "n_head": 1, "n_query_groups": 1, "n_embd": listed.head_size}
    sizes |= {"intermediate_size": 8, "padded_vocab_size": 8}  # the rotation stays as it is listed
    model = GPT(Config.from_name(name, head_size=listed.head_size, **sizes))
    pairs = listed.rope_n_elem // 2
    cos, sin = (table[100_000, :pairs].double() for table in (model.cos, model.sin))
    plain = 100_000 * 10000.0 ** -(torch.arange(pairs).double() / pairs)
    length = (cos**2 + sin**2).sqrt().max().item()
    off = max((cos - plain.cos()).abs().max(), (sin - plain.sin()).abs().max()).item()
    print(f"{name}: {listed.block_size} tokens, a key becomes {length:.3f} times as long, "
          f"LongRoPE's {LENGTH:.3f}; unscaled angles to {off:.3f}; slowest pair {plain[-1]:.2f} rad")
    assert listed.block_size == 131072 and abs(length - 1) < 1e-4 and off < 0.02
PY
