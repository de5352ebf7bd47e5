"""What a bias or a mask says of one pair, found by the indices that FlexAttention has for it."""

import torch
from torch import Tensor, nn

from posattn import contract

__all__ = []


def places(query_offset=0, query_positions=None, key_positions=None):
    """Where the query and the key of FlexAttention's indices stand."""
    given = query_positions, key_positions
    for name, value in zip(("query_positions", "key_positions"), given, strict=True):
        if value is not None:
            contract.positions(name, value)
    if query_positions is not None and not (
        isinstance(query_offset, int) and query_offset == 0
    ):
        raise ValueError(
            f"query_offset must be 0 where query_positions are given, got {query_offset!r}"
        )
    queries, keys = (x if x is None or x.is_floating_point() else x.long() for x in given)

    def where(b, q_idx, kv_idx):
        query = q_idx + query_offset if queries is None else entry(queries, b, q_idx)
        return query, kv_idx if keys is None else entry(keys, b, kv_idx)

    return where


def reader(part, where, length=None, device=None):
    """What a bias or a mask says of a pair, by FlexAttention's indices."""
    if isinstance(part, Tensor):
        return lambda *indices: entry(part, *indices)
    by_distance = length is not None and getattr(part, "relative", False)
    return row_reader(part, where, length, device) if by_distance else asker(part, where)


def asker(part, where):
    """The same of a function, which is asked about each pair."""

    def ask(b, h, q_idx, kv_idx):
        query, key = where(b, q_idx, kv_idx)
        return entry(part(query[None], key[None]), b, h, 0, 0)

    return ask


def row_reader(part, where, length, device):
    """The same of what depends only on distance, which is asked for all distances at once."""
    if device is None:
        learned = part.parameters() if isinstance(part, nn.Module) else ()
        device = next((p.device for p in learned), None)
    distances = torch.arange(1 - length, length, device=device)
    row = part(torch.zeros_like(distances[:1]), distances)

    def read(b, h, q_idx, kv_idx):
        query, key = where(b, q_idx, kv_idx)
        at = key - query + (length - 1)
        held = (at >= 0) & (at < 2 * length - 1)
        found = entry(row, b, h, 0, torch.where(held, at, 0))
        return torch.where(held, found, torch.nan)

    return read


def entry(array, *indices):
    """The number of an array for a pair, where axes of size 1 serve all and leading ones may lack."""
    last = indices[len(indices) - array.ndim :]
    at = (0 if n == 1 else i for n, i in zip(array.shape, last, strict=True))
    return array[tuple(at)]


def flat(part, batch):
    """Make one batch axis of several, in an array or in what a function returns."""
    if part is None or len(batch) < 2 or getattr(part, "relative", False):
        return part
    if callable(part) and not isinstance(part, Tensor):
        return lambda query, key: flat(part(query, key), batch)
    return part.expand(*batch, *part.shape[-3:]).flatten(0, -4) if part.ndim > 3 else part


def placed(call):
    """Where the tokens of a call stand, as `score_mod` and `mask_mod` are told."""
    if call.aligned:
        return {"query_offset": call.key.shape[-2] - call.query.shape[-2]}
    query, key = (x if x.ndim == 1 else x.flatten(0, -2) for x in call.positions)
    return {"query_positions": query, "key_positions": key}
