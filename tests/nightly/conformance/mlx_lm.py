"""mlx-lm: its caches, and the frequencies of its rope types, which are kept as their reciprocals."""

import mlx.core as mx
from mlx_lm.models import cache as caches
from mlx_lm.models.rope_utils import Llama3RoPE, ProportionalRoPE, YarnRoPE

from tests.nightly.conformance.adapting import Reason, against

KEPT = Reason(
    ("first tokens kept, several at once",),
    "library",
    "`make_mask` hides the tokens that `keep` keeps, where several come at once",
    "kept_tokens",
)


@against("llama3", framework="mlx")
def llama3(dim, *, base=500000.0, trained_length=8192, factor=8.0, **options):
    """`Llama3RoPE`."""
    low = options.get("low_frequency_factor", 1.0)
    high = options.get("high_frequency_factor", 4.0)
    config = {"factor": factor, "low_freq_factor": low, "high_freq_factor": high}
    config["original_max_position_embeddings"] = trained_length
    return 1 / Llama3RoPE(dim, base=base, scaling_config=config)._freqs


@against("proportional", framework="mlx")
def proportional(head_dim, *, base=10000.0, rotary_dim, factor=1.0):
    """`ProportionalRoPE`."""
    return 1 / ProportionalRoPE(head_dim, rotary_dim, base=base, factor=factor)._freqs


@against("yarn", framework="mlx")
def yarn(dim, *, base=10000.0, factor, trained_length, beta_fast=32.0, beta_slow=1.0):
    """`YarnRoPE`, with its attention factor."""
    options = {"scaling_factor": factor, "original_max_position_embeddings": trained_length}
    rope = YarnRoPE(dim, base=base, beta_fast=beta_fast, beta_slow=beta_slow, **options)
    return 1 / rope._freqs, rope.mscale


class Cached:
    """A cache of mlx-lm with the mask that it makes, and MLX's attention."""

    def attend(self, query, key, value, positions):
        """The mask, the cache, and the attention, in the order of a model."""
        mask = self.cache.make_mask(
            query.shape[2], window_size=self.window, return_array=True
        )
        heads = query, *self.cache.update_and_fetch(key, value)
        scale = query.shape[-1] ** -0.5
        return mx.fast.scaled_dot_product_attention(*heads, scale=scale, mask=mask)

    def trim(self, n):
        """As `trim_prompt_cache`, which trims nothing where one cache cannot."""
        if not self.cache.is_trimmable():
            raise NotImplementedError
        self.cache.trim(n)


@against("cache", framework="mlx")
class Growing(Cached):
    """`KVCache`, or `BatchKVCache` where there is padding."""

    def __init__(self, window=None, left_padding=None):
        self.window, self.cache = window, caches.KVCache()
        if left_padding:
            self.cache = caches.BatchKVCache(left_padding)


@against("cache", KEPT, framework="mlx")
class Rotating(Cached):
    """`RotatingKVCache`, or `BatchRotatingKVCache`, as large as the window and the tokens to keep."""

    def __init__(self, window=None, keep=0, left_padding=None, max_length=32):
        size, self.window = (window or max_length) + keep, None
        if left_padding:
            self.cache = caches.BatchRotatingKVCache(size, left_padding)
        else:
            self.cache = caches.RotatingKVCache(size, keep)
