#!/usr/bin/env bash
# Versions: mlx-lm 0.32.2, mlx 0.32.4 (CPU), gguf 0.19.0.
# Expected: `mlx_lm fuse --export-gguf` writes what mlx-lm itself computes: for Llama 3.1 to 3.3
#   the tensor rope_freqs.weight, for YaRN and linear scaling the keys llama.rope.scaling.*, as
#   llama.cpp's converter does; or it refuses, as it does for model types that it cannot write.
# Seen: the file of a Llama with llama3, yarn or linear scaling is, byte for byte, the file of
#   the same Llama without scaling. mlx-lm's own layer turns by other angles in all three.
# Why: prepare_metadata (mlx_lm/gguf.py) looks for the kind of scaling under "type", which is
#   "rope_type" in today's config.json, and knows "linear" only; no frequencies are written.
#   All models of the type llama pass the check in mlx_lm/fuse.py.
# Who meets it: whoever fine-tunes Llama 3.1, 3.2 or 3.3 on a Mac and moves the result to an
#   engine that reads GGUF. Nothing in the file tells it to scale: short prompts hardly differ,
#   long ones are turned by angles that the model has never seen.
set -euo pipefail
T=$(mktemp -d)
trap 'rm -rf "$T"' EXIT
python3 -m venv "$T/env"
"$T/env/bin/pip" install --quiet "mlx[cpu]==0.32.4" mlx-lm==0.32.2 gguf==0.19.0
cd "$T"
env/bin/python - <<'PY'
import json
import subprocess
import sys
from pathlib import Path

import mlx.core as mx
from gguf import GGUFReader
from mlx.utils import tree_flatten
from mlx_lm.models.llama import Model, ModelArgs
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

words = Tokenizer(models.WordLevel({f"w{i}": i for i in range(32)}, unk_token="w0"))
tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, unk_token="w0", eos_token="w1")
base = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 1, "vocab_size": 32,
        "intermediate_size": 64, "num_attention_heads": 2, "num_key_value_heads": 2,
        "rms_norm_eps": 1e-5, "max_position_embeddings": 65536, "rope_theta": 500000.0,
        "tie_word_embeddings": False}  # fmt: skip
long = {"factor": 8.0, "original_max_position_embeddings": 8192}
kinds = {kind: {"rope_type": kind, **long} for kind in ("linear", "yarn", "llama3")}
kinds["llama3"] |= {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
kinds["none"] = None


def export(kind):
    """Write a model, fuse and export it; return the file and a key turned at 5000."""
    mx.random.seed(0)
    config, folder = base | {"rope_scaling": kinds[kind]}, Path(kind)
    model = Model(ModelArgs.from_dict(config))
    weights = dict(tree_flatten(model.parameters()))
    tokenizer.save_pretrained(folder)
    (folder / "config.json").write_text(json.dumps(config))
    mx.save_safetensors(f"{kind}/model.safetensors", weights)
    (folder / "adapter_config.json").write_text('{"fine_tune_type": "full", "num_layers": 1}')
    norm = "model.norm.weight"
    mx.save_safetensors(f"{kind}/adapters.safetensors", {norm: weights[norm]})
    fuse = [sys.executable, "-m", "mlx_lm", "fuse", "--model", kind, "--adapter-path", kind,
            "--save-path", f"{kind}/fused", "--export-gguf"]  # fmt: skip
    subprocess.run(fuse, check=True, capture_output=True)
    turned = model.layers[0].self_attn.rope(mx.ones((1, 1, 1, 32)), offset=5000)
    return folder / "fused/ggml-model-f16.gguf", turned


plain, turned = export("none")
for kind in ("linear", "yarn", "llama3"):
    path, other = export(kind)
    gguf = GGUFReader(path)
    names = [n for n in [*gguf.fields, *(t.name for t in gguf.tensors)] if "rope" in n]
    same, moved = path.read_bytes() == plain.read_bytes(), mx.abs(turned - other).max().item()
    print(f"{kind}: the unscaled file {same}, has {names}; a key at 5000 differs by {moved:.2f}")
    assert same and moved > 0.3 and names == ["llama.rope.freq_base", "llama.rope.dimension_count"]
PY
