"""mlx-lm: the frequencies of its rope types, which are kept as their reciprocals."""

from mlx_lm.models.rope_utils import Llama3RoPE, ProportionalRoPE, YarnRoPE

from tests.nightly.conformance.adapting import against


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
