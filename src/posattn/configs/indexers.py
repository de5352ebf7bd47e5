"""What an indexer of a layer computes: read from a configuration."""

from dataclasses import dataclass

__all__ = ["SHARED", "Indexer"]

SHARED = "the last indexer before"
POOLED = {
    None: "",
    "max": ", each for its group of heads by the best key",
    "mean": " by the mean of each block, and the keys after the last block",
}


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
        pooled: what a block of keys is worth, `"max"` or `"mean"` of them; None where single keys are chosen.
    """

    num_heads: int
    head_dim: int
    layout: str | None = "half"
    last: bool = False
    shared: bool = False
    pooled: str | None = None

    def words(self, rope):
        """Who chooses, and how it rotates if not as the layer does."""
        if self.shared:
            return SHARED
        said = f"an indexer of {self.num_heads} heads of {self.head_dim}"
        said += POOLED[self.pooled]
        if rope is None or (self.layout, self.last) == (rope.layout, False):
            return said
        if self.layout is None:
            return f"{said} without position"
        pairs = {"half": "halves", "interleaved": "neighbors"}[self.layout]
        return f"{said} that rotates {pairs}" + " of its last entries" * self.last
