#!/usr/bin/env bash
# Versions: MONAI 1.6.1, einops 0.8.2, torch 2.13.0 (CPU).
# Expected: after eval() dropout is off, and use_flash_attention=True changes speed and memory
#   only, since it is the same attention.
# Seen: with use_flash_attention=True the network gives another answer in every call, in
#   evaluation as in training. Without it both calls agree to the last bit, and with the rate
#   set to 0 by hand both ways agree with each other.
# Why: SABlock.forward and CrossAttentionBlock.forward (monai/networks/blocks/
#   selfattention.py and crossattention.py) hand dropout_p=self.dropout_rate to PyTorch's
#   scaled_dot_product_attention, which always drops what it is told to; nothing asks
#   self.training. The other branch uses nn.Dropout, which eval() switches off.
# Who meets it: whoever trains a DiffusionModelUNet with dropout_cattn, or a network of SABlock
#   and TransformerBlock with dropout_rate, and turns on flash attention to save memory:
#   validation is noisy, and samples and segmentations cannot be repeated.
set -euo pipefail
here=$(mktemp -d)
trap 'rm -rf "$here"' EXIT
python3 -m venv "$here/venv"
"$here/venv/bin/pip" install --quiet torch==2.13.0
"$here/venv/bin/pip" install --quiet numpy==2.4.6 einops==0.8.2 monai==1.6.1
cd "$here"
"$here/venv/bin/python" - <<'PY'
import torch
from monai.networks.blocks import CrossAttentionBlock, SABlock
from monai.networks.nets import DiffusionModelUNet

picture, context = torch.randn(2, 1, 16, 16), torch.randn(2, 5, 8)
steps = torch.tensor([10, 500])


def build(flash):
    """Make the same network with one of the two ways to attend."""
    torch.manual_seed(0)
    net = DiffusionModelUNet(
        spatial_dims=2, in_channels=1, out_channels=1, channels=(32,), attention_levels=(True,),
        num_res_blocks=1, num_head_channels=8, with_conditioning=True, cross_attention_dim=8,
        dropout_cattn=0.2, use_flash_attention=flash,
    ).eval()
    for weight in net.parameters():  # the last layers begin at zero
        torch.nn.init.normal_(weight, std=0.1)
    return net


@torch.no_grad()
def run(net):
    return net(picture, steps, context=context)


plain, flash = build(False), build(True)
spread = run(plain).std()
repeat_plain = (run(plain) - run(plain)).abs().max() / spread
repeat_flash = (run(flash) - run(flash)).abs().max() / spread
for block in flash.modules():
    if isinstance(block, (SABlock, CrossAttentionBlock)):
        block.dropout_rate = 0.0
cured = (run(flash) - run(plain)).abs().max() / spread
print("dropout layers in training mode:", sum(m.training for m in flash.modules()))
print(f"two calls in evaluation differ by {repeat_plain:.2f} (plain), {repeat_flash:.2f} (flash)")
print(f"flash with rate 0 and plain differ by {cured:.0e}")
assert repeat_plain == 0 and repeat_flash > 0.01 and cured < 1e-4
PY
