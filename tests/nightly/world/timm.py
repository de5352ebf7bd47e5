"""timm: its attention, and its rotation of one axis."""

import torch

for _name in ("nms", "qnms"):  # torchvision for a CPU lacks them
    torch.library.define(f"torchvision::{_name}", "(Tensor a, Tensor b, float c) -> Tensor")

from timm.layers import Attention, apply_rot_embed, build_rotary_pos_embed  # noqa: E402

INSTALL = ["numpy==2.4.6", "torch==2.13.0", "torchvision==0.28.0 timm==1.0.31"]


def _attend(*arrays, mask=None, fused=True, **options):
    """Call a layer whose input is query, key and value side by side."""
    layer = Attention(96, 2, attn_head_dim=16, dim_out=32, proj_bias=False)
    x = torch.cat([torch.from_numpy(x).transpose(1, 2).flatten(2) for x in arrays], -1)
    mask, layer.fused_attn = None if mask is None else torch.from_numpy(mask), fused
    with torch.no_grad():
        layer.qkv.weight.copy_(torch.eye(96))
        layer.proj.weight.copy_(torch.eye(32))
        out = layer(x, mask, **options)
    return out.unflatten(-1, (2, 16)).transpose(1, 2)


PROBES = {
    "empty_row": lambda query, key, value, empty: _attend(query, key, value, mask=empty),
    "true": lambda query, key, value, mask: _attend(query, key, value, mask=mask),
    "scale": lambda query, key, value: _attend(query, key, value),
    "rotated": lambda x: _rotate(x),
    "by_freqs": lambda x, freqs: _rotate(x, bands=torch.from_numpy(freqs).float()),
    "shifted": lambda x, offset: _rotate(x, grid_offset=offset),
    "distant": lambda x, far: _rotate(x, (1,), grid_offset=float(far[0])),
}


def _rotate(x, shape=(6,), **options):
    """One axis."""
    sin, cos = build_rotary_pos_embed(shape, dim=32, in_pixels=False, **options)
    return apply_rot_embed(torch.from_numpy(x), sin, cos)


def empty_without_fused():
    """A query whose keys are all hidden gets 0 from timm's `Attention`, or NaN where it is not fused."""
    from timm.layers import Attention

    layer, x = Attention(8, 1), torch.ones(1, 1, 8)
    torch.nn.init.zeros_(layer.proj.bias)
    for fused in (True, False):
        layer.fused_attn = fused
        print(fused, layer(x, torch.tensor([[False]]))[0, 0, 0].item())


def resized_table():
    """A table is resized by timm with `mode="bicubic"`, `align_corners=False` and `antialias=True`."""
    from timm.layers import resample_abs_pos_embed

    table = torch.randn(1, 14 * 14, 8, generator=torch.Generator().manual_seed(0))
    square = table.reshape(1, 14, 14, 8).permute(0, 3, 1, 2)
    theirs = resample_abs_pos_embed(table, [10, 10], num_prefix_tokens=0)
    for antialias in (True, False):
        options = {"mode": "bicubic", "align_corners": False, "antialias": antialias}
        ours = torch.nn.functional.interpolate(square, (10, 10), **options)
        off = (ours.flatten(2).mT - theirs).abs().max().item()
        print(f"antialias={antialias}: {off:.2f} apart")
