#!/usr/bin/env bash
# Versions: keras-hub 0.32.0, keras 3.15.1, jax 0.10.2.
# Expected: speculative sampling is exact. Whatever the draft model says, tokens come with the
#   target model's probabilities, drawn by the temperature and top-k of base_sampler, as the
#   class's own text says.
# Seen: the target says 0.5, 0.3, 0.2 and the draft 0.6, 0.3, 0.1. With one drafted token the
#   first token comes in 0.68 of all places and the second in 0.14; with three drafted ones
#   it is 0.77 and 0.06. A base_sampler that allows the best token only (k=1, temperature 0.1)
#   changes no number, and its temperature is 1.0 afterwards.
# Why: SpeculativeSampler.__call__ (keras_hub/src/samplers/speculative_sampler.py) drafts by
#   argmax and accepts with probability p / q. That rule holds for tokens drawn from q; a token
#   that is certain to be drafted has q = 1. What is accepted too often is the draft's favorite,
#   and what p and q like equally is never drawn after a rejection. The constructor overwrites
#   base_sampler.temperature with its own, and nothing reads k or p of the base sampler.
# Who meets it: whoever samples from Gemma 4 with its assistant model in KerasHub and
#   base_sampler: less variety than asked for, more of the small model's taste, no error.
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
from keras_hub.samplers import RandomSampler, SpeculativeSampler, TopKSampler

target, draft, length = [0.5, 0.3, 0.2], [0.6, 0.3, 0.1], 6000


def model(probabilities):
    """A language model that says the same whatever came before."""
    logits = ops.log(ops.convert_to_tensor([probabilities]))
    return lambda prompt, cache, index: (logits, None, cache)


def shares(base, drafted):
    sampler = SpeculativeSampler(drafted, base_sampler=base, seed=2)
    text = sampler(model(target), np.zeros((1, length), "int32"), draft_next=model(draft))
    return np.bincount(np.asarray(text)[0], minlength=3) / length


plain = RandomSampler(seed=1)(model(target), np.zeros((1, length), "int32"))
exact = np.bincount(np.asarray(plain)[0], minlength=3) / length
one, three = shares(RandomSampler(), 1), shares(RandomSampler(), 3)
best = TopKSampler(k=1, temperature=0.1)
only = shares(best, 1)
print("target", target, "sampled without a draft", exact.round(2))
print("one drafted token", one.round(2), "three", three.round(2))
print("base sampler of the best token only", only.round(2), "temperature", best.temperature)
assert np.abs(exact - target).max() < 0.03
assert one[0] > 0.64 and one[1] < 0.18 and three[0] > 0.73 and three[1] < 0.1
assert (only == one).all() and best.temperature == 1.0
PY
