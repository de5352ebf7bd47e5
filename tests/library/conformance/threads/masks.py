"""Threads on masks, from their texts."""

import torch

from tests.library.conformance.threads.entered import thread


@thread(
    "NVIDIA-NeMo/Megatron-Bridge #5259",
    scheme="causal_mask",
    framework="torch",
    cause="aligned_to_the_start",
)
def local_index_of_a_query(query_positions, key_positions):
    """The index of a query within its block is compared with that of a key in the whole cache."""
    n_q, n_k = query_positions.shape[-1], key_positions.shape[-1]
    batch = torch.broadcast_shapes(query_positions.shape[:-1], key_positions.shape[:-1])
    return (torch.arange(n_k) <= torch.arange(n_q)[:, None]).expand(*batch, n_q, n_k)


@thread(
    "NVIDIA-NeMo/Megatron-Bridge #2656", scheme="window_mask", cause="window_one_too_large"
)
def inclusive_on_the_left(query_positions, key_positions, window):
    """The window W is handed to a kernel that counts W tokens before the query's own."""
    far = query_positions[..., :, None] - key_positions[..., None, :]
    return (far >= 0) & (far <= window)
