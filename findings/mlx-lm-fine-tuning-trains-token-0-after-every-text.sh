#!/usr/bin/env bash
# Versions: mlx-lm 0.32.2, mlx 0.32.4 (CPU).
# Expected: padding has no part in the loss of fine-tuning; an answer of one word and its end
#   token, with --mask-prompt, are two targets.
# Seen: they are three. The first pad, token 0, is a target of every text that is not cut off,
#   so the model learns to write token 0 after the end: from 2 to 99.9 %. The reported loss
#   is a mean over three, and the third soon costs nothing: it is two thirds of the true one.
# Why: default_loss (mlx_lm/tuner/trainer.py) counts targets from 1 and keeps them while
#   steps <= length; target number `length` is what follows the last token. iterate_batches
#   pads every batch to one more than a multiple of 32, so something always follows.
# Who meets it: LoRA, DoRA and full fine-tuning with mlx_lm.lora, and its test loss and
#   perplexity: the shorter the answers, the better they look (labels, yes or no, scores), and
#   runs with long and short answers cannot be compared. Where a template closes without an
#   end token, the model writes token 0 ("!" in Llama 3 and Qwen) behind its answer.
set -euo pipefail
T=$(mktemp -d)
trap 'rm -rf "$T"' EXIT
python3 -m venv "$T/env"
"$T/env/bin/pip" install --quiet "mlx[cpu]==0.32.4" mlx-lm==0.32.2
cd "$T"
env/bin/python - <<'PY'
import random

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
from mlx_lm.models.llama import Model, ModelArgs
from mlx_lm.tuner.trainer import default_loss, evaluate, iterate_batches

random.seed(0)
mx.random.seed(0)
vocabulary, end = 16, 15
model = Model(ModelArgs("llama", 32, 1, 64, 2, 1e-5, vocabulary))
# Five random words, then an answer that is "7" or "8" by chance, then the end.
texts = [[*random.choices(range(1, 7), k=5), random.choice([7, 8]), end] for _ in range(256)]
data = [(text, 5) for text in texts]  # the prompt of five tokens is masked


def after_the_end():
    return mx.softmax(model(mx.array([texts[0]]))[0, -1])[0].item()


def true_loss():
    """Take the mean over the answer and the end token."""
    x = mx.array(texts)
    losses = nn.losses.cross_entropy(model(x[:, :-1]), x[:, 1:])
    return losses[:, 4:].mean().item()


before = after_the_end()
step = nn.value_and_grad(model, lambda m, *batch: default_loss(m, *batch)[0])
optimizer = optim.Adam(1e-2)
for _, batch in zip(range(150), iterate_batches(data, 32, 64, loop=True)):
    optimizer.update(model, step(model, *batch)[1])
    mx.eval(model.parameters())
targets = default_loss(model, *next(iterate_batches(data, 32, 64)))[1].item() / 32
reported, true, after = evaluate(model, data, 32, -1, 64), true_loss(), after_the_end()
print(f"targets for each answer: {targets}")
print(f"token 0 after the end: {before:.4f} before, {after:.4f} after training")
print(f"reported loss {reported:.3f}, loss of answer and end token {true:.3f}")
assert targets == 3 and before < 0.2 and after > 0.99
assert abs(reported / true - 2 / 3) < 0.03 and true > 0.25
PY
