"""What latent attention and its indexer compute: read from a configuration."""

from dataclasses import dataclass, replace

SHARED = "the last indexer before"
POOLED = {
    None: "",
    "max": ", each for its group of heads by the best key",
    "mean": " by the mean of each block, and the keys after the last block",
    "gated": " by a learned mean of each block, and the keys after the last block",
}


@dataclass(frozen=True)
class Latent:
    """Multi-head latent attention: keys and values come from a narrow vector.

    The layer's offsets (`use_bias`) are then those of the projections to the narrow vectors.

    Args:
        query_rank: the width of the queries' latent vector; None if there is none.
        kv_rank: the width of the latent vector of keys and values.
        content_dim: how many entries of a query or key do not rotate.
        rotary_dim: how many rotate.
        value_dim: the width of a head's value.
        eps: of the root-mean-square norms of the latent vectors.
        raw: whether queries and gates are made from the queries' latent vector before its norm, too.
        temperature: whether each head's queries grow by a learned logarithm of their position.
    """

    query_rank: int | None
    kv_rank: int
    content_dim: int
    rotary_dim: int
    value_dim: int
    eps: float = 1e-6
    raw: bool = False
    temperature: bool = False


@dataclass(frozen=True)
class Indexer:
    """What selects the keys that a layer reads.

    Args:
        num_heads: of the indexer's queries; its keys have one.
        head_dim: the width of a head.
        layout: `"half"` or `"interleaved"`, how as many of its entries rotate as of the layer's keys; None if
            none do.
        last: whether the last entries rotate, not the first.
        shared: whether the layer takes the choice of the last indexer before, and has none of its own.
        pooled: what a block of keys is worth, `"max"`, `"mean"` or the `"gated"` mean of them; None where
            single keys are chosen.
        input_norm: whether its queries are made from tokens that a norm of its own has passed.
        temperature: whether its queries grow by a learned logarithm of their position.
    """

    num_heads: int
    head_dim: int
    layout: str | None = "half"
    last: bool = False
    shared: bool = False
    pooled: str | None = None
    input_norm: bool = False
    temperature: bool = False

    def rope(self, rope):
        """How its queries and keys rotate in a layer that rotates by `rope`."""
        if rope is None or self.layout is None:
            return None
        return replace(rope, layout=self.layout)

    def words(self, rope):
        """Who chooses, and how it rotates if not as the layer does."""
        if self.shared:
            return SHARED
        said = f"an indexer of {self.num_heads} heads of {self.head_dim}"
        said += POOLED[self.pooled]
        if self.input_norm:
            said += ", whose queries have a norm" + " and a temperature" * self.temperature
        if rope is None or (self.layout, self.last) == (rope.layout, False):
            return said
        if self.layout is None:
            return f"{said} without position"
        pairs = {"half": "halves", "interleaved": "neighbors"}[self.layout]
        return f"{said} that rotates {pairs}" + " of its last entries" * self.last
