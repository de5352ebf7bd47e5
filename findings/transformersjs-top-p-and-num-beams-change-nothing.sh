#!/usr/bin/env bash
# Versions: @huggingface/transformers 4.3.1 (transformers.js, Node 20), onnx 1.23.2.
# Expected: generate() heeds top_p and num_beams, which its GenerationConfig describes in the
#   words of the Python library, or throws as it does for num_return_sequences.
# Seen: with probabilities 0.5, 0.3, 0.15, 0.05 and top_p 0.5 only the first token may come; all
#   four come, as often as without top_p. num_beams 4 returns the greedy text of probability
#   0.2 where a beam search of width 2 finds one of 0.4.
# Why: _get_logits_processor (src/models/modeling_utils.js) has TopPLogitsWarper behind a TODO,
#   and the samplers (src/generation/logits_sampler.js) read top_k alone. BeamSearchSampler
#   returns several candidates, of which the loop of generate() takes the first one.
# Who meets it: chats with top_p 0.9 or 0.95, the setting in most generation_config.json files:
#   rare tokens come as if it were not there, cut only by the default top_k of 50. Translation
#   and summaries with num_beams are greedy, without a warning.
set -euo pipefail
T=$(mktemp -d)
trap 'rm -rf "$T"' EXIT
cd "$T"
python3 -m venv env
env/bin/pip install --quiet onnx==1.23.2 numpy==2.4.6
npm init --yes >/dev/null
npm install --silent --no-audit --no-fund --ignore-scripts @huggingface/transformers@4.3.1
env/bin/python - <<'PY'
import json
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper, numpy_helper, save

# The next token depends on the last one alone: a row for each token.
table = np.full((10, 10), 1e-9)
table[:4, :4] = 0.5, 0.3, 0.15, 0.05
table[4, [5, 6]] = 0.6, 0.4  # the start of the text for the beams
table[5, [7, 8, 9]] = 1 / 3  # likely, and then nobody knows
table[6, 9] = 1  # less likely, and then certain
ids = helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["b", "s"])
out = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["b", "s", 10])
gather = helper.make_node("Gather", ["table", "input_ids"], ["logits"])
rows = numpy_helper.from_array(np.log(table).astype("float32"), "table")
graph = helper.make_graph([gather], "table", [ids], [out], [rows])
Path("model/onnx").mkdir(parents=True)
opset = helper.make_opsetid("", 17)
save(helper.make_model(graph, opset_imports=[opset], ir_version=9), "model/onnx/model.onnx")
config = {"model_type": "gpt2", "n_head": 1, "n_layer": 1, "n_embd": 4, "vocab_size": 10}
Path("model/config.json").write_text(json.dumps(config))
PY
cat >run.mjs <<'JS'
import assert from "node:assert";
import { AutoModelForCausalLM, Tensor, env } from "@huggingface/transformers";
env.allowRemoteModels = false;
env.localModelPath = "./";
const model = await AutoModelForCausalLM.from_pretrained("model", { dtype: "fp32" });
const generate = async (start, settings) => {
  const inputs = new Tensor("int64", BigInt64Array.from([BigInt(start)]), [1, 1]);
  const text = await model.generate({ inputs, eos_token_id: -1, pad_token_id: 0, ...settings });
  return Array.from(text.data, Number).slice(1);
};
const shares = async (settings) => {
  const text = await generate(0, { do_sample: true, max_new_tokens: 2000, ...settings });
  return [0, 1, 2, 3].map((t) => text.filter((x) => x === t).length / text.length);
};
const [all, half, one] = [await shares({}), await shares({ top_p: 0.5 }), await shares({ top_k: 1 })];
console.log("shares of the four tokens:", all, "top_p 0.5:", half, "top_k 1:", one);
const greedy = await generate(4, { max_new_tokens: 2 });
const beams = await generate(4, { max_new_tokens: 2, num_beams: 4 });
console.log("greedy", greedy, "four beams", beams, "the better text", [6, 9]);
[0.5, 0.3, 0.15, 0.05].forEach((p, i) => assert(Math.abs(half[i] - p) < 0.05));
assert(one[0] === 1 && beams[0] === 5);
assert.deepEqual(beams, greedy);
JS
node run.mjs
