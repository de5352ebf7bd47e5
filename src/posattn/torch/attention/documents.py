"""Packed documents: where one ends and the next begins in a row of tokens."""

import torch

__all__ = []


def document_starts(documents, mask):
    """Which tokens are the first of another document than the token before them, of the same shape.

    Tokens that `mask` hides are skipped, and the first token of a row continues what came before it.
    """
    seen = torch.ones_like(documents, dtype=torch.bool) if mask is None else mask
    documents, seen = torch.broadcast_tensors(documents, seen)
    places = torch.arange(documents.shape[-1], device=documents.device)
    last = torch.where(seen, places, -1).cummax(-1).values.roll(1, -1)
    last = torch.where(places == 0, -1, last)
    before = documents.gather(-1, last.clamp(min=0))
    return seen & (last >= 0) & (documents != before)
