#!/usr/bin/env bash
# Versions: jax 0.10.2; jax 0.10.1, which is right, beside it.
# Expected: jax.jit changes rounding, not results: k * (w * g[:, None, :]).sum(-1, keepdims=True), with w of
#   (n, n), g of (h, n) and k of (h, n, d), is the same to 1e-5 with jit and without.
# Seen: on a CPU, from about 8 by 64 by 128 entries on, jax 0.10.2 with jit returns other numbers without a
#   word, off by as much as the values themselves. Without jit it is right, and so is jax 0.10.1.
# Why: the compiler fuses a sum of products that are broadcast on two sides with what it is multiplied by;
#   with XLA_FLAGS=--xla_cpu_experimental_ynn_fusion_type= no such fusion is made, and the result is right.
# Who meets it: whoever multiplies by a weighted sum over another axis on a CPU: decays of linear attention
#   by chunks (where we met it), discounted returns, kernels written out. Small tests pass.
set -euo pipefail
T=$(mktemp -d)
trap 'rm -rf "$T"' EXIT
cat > "$T/sum.py" <<'PY'
import sys

import jax
import numpy as np

rng = np.random.default_rng(0)


def scaled(w, g, k):
    return k * (w * g[:, None, :]).sum(-1, keepdims=True)


worst = 0
for heads in (1, 8, 32):
    w, g, k = (rng.random(s, np.float32) for s in ((64, 64), (heads, 64), (heads, 64, 128)))
    want = k * (g @ w.T)[..., None]
    worst = np.abs(np.asarray(jax.jit(scaled)(w, g, k)) - want).max()
    plain = np.abs(np.asarray(scaled(*map(jax.numpy.asarray, (w, g, k)))) - want).max()
    print(f"jax {jax.__version__}, {heads} heads: off by {worst:.1e} with jit, {plain:.1e} without")
    assert plain < 1e-4
assert worst > 1 if sys.argv[1] == "wrong" else worst < 1e-4
PY
export JAX_PLATFORMS=cpu
python3 -m venv "$T/before"
"$T/before/bin/pip" install --quiet jax==0.10.1 jaxlib==0.10.1 numpy==2.4.6
python3 -m venv "$T/env"
"$T/env/bin/pip" install --quiet jax==0.10.2 jaxlib==0.10.2 numpy==2.4.6
"$T/before/bin/python" "$T/sum.py" right
"$T/env/bin/python" "$T/sum.py" wrong
XLA_FLAGS=--xla_cpu_experimental_ynn_fusion_type= "$T/env/bin/python" "$T/sum.py" right
