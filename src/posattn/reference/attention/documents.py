"""Packed documents: where one ends and the next begins in a row of tokens."""

import numpy as np

__all__ = []


def document_starts(documents, mask, shape):
    """Which tokens are the first of another document than the token before them, `(*batch, n)`.

    Tokens that `mask` hides are skipped, and the first token of a row continues what came before it.
    """
    if documents is None:
        return np.zeros(shape, bool)
    documents = np.broadcast_to(documents, shape)
    seen = np.broadcast_to(True if mask is None else mask, shape)
    places = np.where(seen, np.arange(shape[-1]), -1)
    last = np.maximum.accumulate(places, axis=-1)
    last = np.concatenate([np.full_like(last[..., :1], -1), last], axis=-1)[..., :-1]
    before = np.take_along_axis(documents, np.maximum(last, 0), axis=-1)
    return seen & (last >= 0) & (documents != before)
