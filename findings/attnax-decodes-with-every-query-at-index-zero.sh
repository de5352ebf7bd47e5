#!/usr/bin/env bash
# Versions: attnax 0.2.0, flax 0.12.8, jax 0.10.2.
# Expected: with a KVLayerCache a new token gets what it gets in one pass over the whole text;
#   the layer's code even shifts its window by the length of the cache.
# Seen: without a window and without a score_mod it does, to 1e-6. With attention_window=3 every
#   token from the second on is off by up to four times the spread of the outputs, and the
#   last one attends evenly to the whole cache. With ALiBi the newest key is taken for the farthest.
# Why: MultiHeadAttention.__call__ (attnax/attention.py) shifts the Boolean mask of the window,
#   but hands the same window once more to the kernel as a score_mod, and a kernel counts
#   queries from 0 (attnax/kernels). A single query is index 0, so sliding_window_mod hides all
#   keys but the first, which the mask hides; alibi_mod measures distances from index 0.
# Who meets it: whoever trains with a window or ALiBi and decodes with the cache: training and
#   scoring are right, the generated text comes from a layer that sees other tokens.
set -euo pipefail
T=$(mktemp -d)
trap 'rm -rf "$T"' EXIT
python3 -m venv "$T/env"
"$T/env/bin/pip" install --quiet attnax==0.2.0 flax==0.12.8 jax==0.10.2
cd "$T"
env/bin/python - <<'PY'
import jax
import jax.numpy as jnp
from attnax.attention import MultiHeadAttention
from attnax.cache import init_kv_layer_cache
from attnax.kernels.score_mods import alibi_mod
from flax import nnx

n, width, heads = 8, 16, 2
x = jax.random.normal(jax.random.PRNGKey(1), (1, n, width))
causal = jnp.tril(jnp.ones((n, n), bool))[None, None]


def errors(**settings):
    """Compare decoding token by token with one pass."""
    layer = MultiHeadAttention(nnx.Rngs(0), num_heads=heads, in_features=width, **settings)
    whole = layer(x, mask=causal, deterministic=True)[0]
    cache = init_kv_layer_cache(1, heads, width // heads, n, jnp.float32)
    off = []
    for i in range(n):
        out, cache = layer(x[:, i : i + 1], kv_cache=cache, deterministic=True)
        off.append(float(jnp.abs(out[0, 0] - whole[i]).max() / whole.std()))
    even = layer.output_proj(layer.value_proj(x)[0].mean(0))
    return off, float(jnp.abs(out[0, 0] - even).max())


plain, _ = errors()
window, to_even = errors(attention_window=3)
alibi, _ = errors(score_mod=alibi_mod(heads))
for name, off in ("plain", plain), ("window of 3", window), ("ALiBi", alibi):
    print(name, "error in standard deviations:", *(f"{e:.2f}" for e in off))
print(f"last token with a window, against the mean of all eight values: {to_even:.0e}")
assert max(plain) < 1e-4 and window[0] < 1e-4 and alibi[0] < 1e-4
assert min(window[1:]) > 0.1 and max(window) > 1 and max(alibi) > 0.2 and to_even < 1e-4
PY
