"""What a layer with the delta rule computes, as a value."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Delta:
    """The sizes of a layer with the delta rule, and where families differ.

    Args:
        num_heads: of values.
        num_key_heads: of queries and keys.
        key_dim: the width of a head of queries and keys.
        value_dim: the width of a head of values.
        taps: of the convolution, one for the token itself.
        per_channel: whether each channel of the keys has a log gate of its own (Kimi), or each head has one.
        rank: through how many entries log gates and output gates are projected; None if directly.
        gate: what acts on the output gates, `"silu"` or `"sigmoid"`.
        most: what the sigmoid of beta is multiplied by.
        eps: of the norm of each head's output.
        bound: L of log gates `L sigmoid(e^a x)`, which lie between L and 0; None for `-e^a softplus(x)`.
    """

    num_heads: int
    num_key_heads: int
    key_dim: int
    value_dim: int
    taps: int = 4
    per_channel: bool = False
    rank: int | None = None
    gate: str = "silu"
    most: float = 1.0
    eps: float = 1e-6
    bound: float | None = None

    def words(self):
        """What it is."""
        heads = f"{self.num_heads} heads of {self.value_dim}"
        if (self.num_key_heads, self.key_dim) != (self.num_heads, self.value_dim):
            heads += f", {self.num_key_heads} of keys of {self.key_dim}"
        each = "a gate for each channel" if self.per_channel else "a gate for each head"
        each += "" if self.bound is None else f" above {self.bound:g}"
        taps = f"convolutions over {self.taps} tokens"
        return f"delta rule with {each}; {taps}; {heads}"
