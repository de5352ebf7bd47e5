"""Stick-breaking: each key takes a share of what the keys after it have left."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Real
from torch import Tensor
from torch.nn import functional

from posattn import contract
from posattn.torch.validated import validated

__all__ = ["StickBreaking"]


@validated
@dataclass(frozen=True)
class StickBreaking:
    """The bias that turns a softmax into breaking a stick, from the newest key to the oldest.

    Twin of :class:`posattn.reference.StickBreaking`.
    It has no parameters and is no module; half-precision heads are scored in float32.

    Examples:
        >>> query, key = torch.zeros(1, 1, 4), torch.zeros(1, 4, 4)
        >>> StickBreaking().scores(query, key, torch.tensor([3]), torch.arange(4)).exp()
        tensor([[[0.1250, 0.2500, 0.5000, 0.1250]]])
    """

    needs_all_keys = True  # a score counts the other keys, too

    def scores(
        self,
        query: Float[Tensor, "*batch h n_q d_h"],
        key: Float[Tensor, "*batch h n_k d_h"],
        query_positions: Real[Tensor, "*#batch n_q"],
        key_positions: Real[Tensor, "*#batch n_k"],
    ) -> Float[Tensor, "*batch h n_q n_k"]:
        """What is added to the scaled scores.

        Twin of `scores` of :class:`posattn.reference.StickBreaking`.

        Args:
            query: the queries of each head, not yet scaled, `(*batch, h, n_q, d_h)`.
            key: the keys of each head, `(*batch, h, n_k, d_h)`, in the order of their positions.
            query_positions: where the queries stand, `(n_q)` or `(*batch, n_q)`.
            key_positions: where the keys stand, `(n_k)` or `(*batch, n_k)`; the keys before a query
                break its stick, and the key at its own position gets what remains.

        Returns:
            `(*batch, h, n_q, n_k)`.
        """
        contract.head_sequence("query", query)
        contract.tile(query, key, query_positions, key_positions, query.shape[-1])
        query_positions = query_positions[..., :, None]
        before = (key_positions[..., None, :] < query_positions)[..., None, :, :]
        at = (key_positions[..., None, :] == query_positions)[..., None, :, :]
        wide = torch.promote_types(query.dtype, torch.float32)
        products = query.to(wide) @ key.to(wide).mT / math.sqrt(query.shape[-1])
        left = functional.logsigmoid(-products).where(before, 0)
        kept = left.flip(-1).cumsum(-1).flip(-1)
        own = left.sum(-1, keepdim=True) - products
        return kept.where(before, own.where(at, 0)).to(query.dtype)
