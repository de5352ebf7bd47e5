"""Megatron-Core: its masked softmax, between two products of ours, and its rotation."""

import torch
from megatron.core import parallel_state
from megatron.core.fusions.fused_softmax import FusedScaleMaskSoftmax
from megatron.core.models.common.embeddings import apply_rotary_pos_emb
from megatron.core.models.common.embeddings.rotary_pos_embedding import RotaryEmbedding
from megatron.core.transformer.enums import AttnMaskType
from megatron.core.transformer.transformer_config import TransformerConfig
from megatron.core.transformer.utils import attention_mask_func

INSTALL = ["numpy==2.4.6", "torch==2.13.0", "megatron-core==0.16.1"]
torch.distributed.init_process_group(
    store=torch.distributed.HashStore(), rank=0, world_size=1
)
parallel_state.initialize_model_parallel()


def _attend(*arrays, mask=None, kind=AttnMaskType.padding):
    query, key, value = map(torch.from_numpy, arrays)
    mask = None if mask is None else torch.from_numpy(mask)
    options = (False, False, kind, False, attention_mask_func, True, None)
    return FusedScaleMaskSoftmax(*options)(query @ key.mT / 4, mask) @ value


PROBES = {
    "causal": lambda last, key, value: _attend(last, key, value, kind=AttnMaskType.causal),
    "empty_row": lambda query, key, value, empty: _attend(query, key, value, mask=~empty),
    "true": lambda query, key, value, mask: _attend(query, key, value, mask=mask),
    "rotated": lambda x: _rotate(x),
    "partly": lambda x, part: _rotate(x, share=part / 16),
    "stretched": lambda x, stretch: _rotate(x, seq_len_interpolation_factor=stretch),
    "shifted": lambda x, offset: _rotate(x, offset),
    "distant": lambda x, far: torch.cat([_rotate(x[:, :, n : n + 1], int(far[n])) for n in range(6)], 2),
}  # fmt: skip


def _rotate(x, offset=0, share=1.0, **options):
    config = TransformerConfig(num_layers=1, hidden_size=32, num_attention_heads=2)
    rope = RotaryEmbedding(16, share, use_cpu_initialization=True, **options)
    angles = rope.get_freqs_non_repeated(x.shape[2], offset)
    angles = torch.cat([angles, angles], -1)[:, None, None]
    x = torch.from_numpy(x).permute(2, 0, 1, 3)
    return apply_rotary_pos_emb(x, angles, config).permute(1, 2, 0, 3)
