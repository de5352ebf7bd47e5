#!/usr/bin/env bash
# Versions: keras-hub 0.32.0, keras 3.15.1, jax 0.10.2.
# Expected: a beam that has reached a stop token keeps its score, so that beam search never
#   returns a text less likely than the one that greedy search finds among its own beams.
# Seen: "a, end" has probability 0.54, "b, b, b, ..." has 0.40. With room for two tokens beam
#   search returns the first, with room for three or more the second; the log-probability that
#   it reports for "a, end" falls from -0.62 to -8.66 as max_length grows.
# Why: BeamSampler.__call__ (keras_hub/src/samplers/beam_sampler.py) looks at stop_token_ids
#   only to leave its loop, once all texts have one. A finished beam goes on like any other:
#   each step adds the log-probability of some token behind the end, which is close to uniform.
# Who meets it: whoever generates with BeamSampler or sampler="beam" (translation, summaries):
#   short finished answers lose against ramblings, the more the larger max_length is; scores
#   of return_all_beams are those of the text with its invisible tail.
set -euo pipefail
T=$(mktemp -d)
trap 'rm -rf "$T"' EXIT
python3 -m venv "$T/env"
"$T/env/bin/pip" install --quiet keras==3.15.1 jax==0.10.2 regex==2026.11.19 \
  kagglehub==1.0.2 tokenizers==0.23.3 sentencepiece==0.2.3
"$T/env/bin/pip" install --quiet --no-deps keras-hub==0.32.0
cd "$T"
KERAS_BACKEND=jax env/bin/python - <<'PY'
import numpy as np
from keras import ops
from keras_hub.samplers import BeamSampler, GreedySampler

PAD, START, A, B, END = range(5)
chances = np.full((5, 5), 1e-9, "float32")
chances[START, [A, B]] = 0.6, 0.4
chances[A, [END, A]] = 0.9, 0.1
chances[B, B] = 1.0
chances[END] = 0.2
table = ops.log(ops.convert_to_tensor(chances / chances.sum(1, keepdims=True)))


def model(prompt, cache, index):
    """The next token depends on the last one alone."""
    return ops.take(table, ops.take(prompt, index - 1, axis=1), axis=0), None, cache


def generate(sampler, length):
    prompt = np.zeros((1, length), "int32")
    prompt[0, 0] = START
    return sampler(model, prompt, index=1, mask=prompt == START, stop_token_ids=[END])


found = {}
for length in (3, 4, 8):
    texts, scores = generate(BeamSampler(num_beams=2, return_all_beams=True), length)
    texts, scores = np.asarray(texts)[0].tolist(), [round(float(s), 2) for s in np.asarray(scores)[0]]
    greedy = np.asarray(generate(GreedySampler(), length))[0].tolist()
    found[length] = dict(zip(map(tuple, (t[1:3] for t in texts)), scores))
    print(f"max_length {length}: greedy {greedy}, beams {texts} with {scores}")
    assert greedy[1:3] == [A, END]
    assert texts[0][1:3] == ([A, END] if length == 3 else [B, B])
assert abs(found[3][A, END] - np.log(0.54)) < 0.02 and found[8][A, END] < -8
PY
