"""torchtune: its attention layers, its rotation and a small Llama."""

import torch
from torch import nn
from torchtune import generation
from torchtune.models.gemma2._attention import Gemma2Attention
from torchtune.models.llama2 import llama2
from torchtune.modules import MultiHeadAttention, RotaryPositionalEmbeddings
from torchtune.modules.attention_utils import packed_block_causal_mask

INSTALL = ["numpy==2.4.6", "torch==2.13.0", "torchao<0.9 torchtune==0.6.1"]


def _attend(query, key, value, mask=None, layer=MultiHeadAttention, **options):
    """Call a layer whose inputs are the query, and key and value side by side."""
    query, key, value = (
        torch.from_numpy(x).transpose(1, 2).flatten(2) for x in (query, key, value)
    )
    names = ("q_proj", "k_proj", "v_proj", "output_proj")
    parts = {name: nn.Identity() for name in names}
    parts["k_proj"], parts["v_proj"] = (nn.Linear(64, 32, bias=False) for _ in range(2))
    sizes = {"embed_dim": 32, "num_heads": 2, "num_kv_heads": 2, "head_dim": 16}
    layer = layer(**sizes, **parts, **options)
    with torch.no_grad():
        parts["k_proj"].weight.copy_(torch.eye(64)[:32])
        parts["v_proj"].weight.copy_(torch.eye(64)[32:])
        out = layer(query, torch.cat([key, value], -1), mask=mask)
    return out.unflatten(-1, (2, 16)).transpose(1, 2)


PROBES = {
    "causal": lambda last, key, value: _attend(last, key, value),
    "empty_row": lambda query, key, value, empty: _attend(query, key, value, torch.from_numpy(empty[0])),
    "true": lambda query, key, value, mask: _attend(query, key, value, torch.from_numpy(mask[0])),
    "scale": lambda query, key, value: _attend(query, key, value, is_causal=False),
    "rotated": lambda x, positions: _rotate(x, positions),
    "distant": lambda x, far: _rotate(x, far, max_seq_len=100_001),
}  # fmt: skip


def soft_cap(query, key, value, mask, cap):
    options = {"layer": Gemma2Attention, "softcapping": cap}
    return _attend(query, key, value, torch.from_numpy(mask[0]), **options)


def sliding(query, key, value, window):
    options = {"layer": Gemma2Attention, "softcapping": None}
    return _attend(query, key, value, **options, sliding_window_size=window)


def _rotate(x, positions, **options):
    rope = RotaryPositionalEmbeddings(16, **options)
    x, positions = torch.from_numpy(x).transpose(1, 2), torch.from_numpy(positions)
    return rope(x, input_pos=positions[None]).transpose(1, 2)


def _model():
    torch.manual_seed(0)
    model = llama2(50, 1, 2, 2, 32, 16, intermediate_dim=32).eval()
    model.layers[0].attn.q_proj.weight.data *= 8
    return model.requires_grad_(False)


IDS = torch.tensor([[3, 14, 15, 9, 2, 6]])


def packed():
    """Positions begin again, and the mask is made of lengths."""
    model, ids = _model(), IDS
    mask = packed_block_causal_mask([torch.tensor([3, 3])])
    alone = torch.cat([model(ids[:, :3]), model(ids[:, 3:])], 1)
    return alone, model(ids, mask=mask, input_pos=torch.tensor([[0, 1, 2, 0, 1, 2]]))


def padded():
    """Two tokens of padding come first; mask and positions are made of them."""
    model, seen = _model(), torch.arange(6)[None] > 1
    mask = generation.get_causal_mask_from_padding_mask(seen)
    places = generation.get_position_ids_from_padding_mask(seen)
    return model(IDS[:, 2:]), model(IDS, mask=mask, input_pos=places)[:, 2:]


def cached():
    """Four tokens, then two."""
    model, ids = _model(), IDS
    whole, mask = model(ids), torch.ones(1, 6, 6, dtype=torch.bool).tril()
    model.setup_caches(1, torch.float32, decoder_max_seq_len=6)
    parts = [
        model(ids[:, part], mask=mask[:, part], input_pos=torch.arange(6)[None, part])
        for part in (slice(4), slice(4, 6))
    ]
    return whole, torch.cat(parts, 1)
