"""transformers, `sdpa` attention: the default, in the same layers and models."""

import torch

from tests.nightly.world import transformers_eager as eager
from tests.nightly.world.transformers_eager import *  # noqa: F403
from tests.nightly.world.transformers_eager import _logits, _model

INSTALL = ["numpy==2.4.6", "torch==2.13.0", "transformers==5.24.0"]
eager.KIND = "sdpa"


def no_mask_means_upper_left():
    """`sdpa_attention_forward` without a mask aligns the first query with the first key."""
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    query, values = torch.zeros(1, 1, 2, 1), torch.tensor([[[[1.0], [3.0], [5.0]]]])
    out, _ = sdpa_attention_forward(torch.nn.Module(), query, values, values, None)
    print(out.flatten().tolist(), "and [2.0, 3.0] at the end of the keys")


def resized_table():
    """ViT of transformers resizes its table with `mode="bicubic"`, `align_corners=False`, no `antialias`."""
    from transformers.models.vit.modeling_vit import ViTConfig, ViTEmbeddings

    torch.manual_seed(0)
    layer = ViTEmbeddings(ViTConfig(hidden_size=8, image_size=14, patch_size=1))
    table = torch.nn.init.normal_(layer.position_embeddings).detach()
    square = table[:, 1:].reshape(1, 14, 14, 8).permute(0, 3, 1, 2)
    theirs = layer.interpolate_pos_encoding(torch.zeros(1, 101, 8), 10, 10)[:, 1:].detach()
    for antialias in (True, False):
        options = {"mode": "bicubic", "align_corners": False, "antialias": antialias}
        ours = torch.nn.functional.interpolate(square, (10, 10), **options)
        off = (ours.flatten(2).mT - theirs).abs().max().item()
        print(f"antialias={antialias}: {off:.2f} apart")


def boolean_mask_of_four_axes():
    """An eager model adds a Boolean mask of four axes, so True counts as 1 and nothing is hidden."""
    ids, mask = [[3, 14, 15, 9]], torch.ones(4, 4, dtype=torch.bool).tril()[None, None]
    for kind in ("eager", "sdpa"):
        model = _model(attn_implementation=kind)
        out = _logits(model, ids, attention_mask=mask) - _logits(model, ids)
        print(f"{kind}: {out.abs().max():.2f} from the causal model")


def weights():
    """`output_attentions=True` returns weights from `"eager"`, and nothing from `"sdpa"`."""
    for kind in ("eager", "sdpa"):
        model = _model(attn_implementation=kind)
        out = model(torch.tensor([[3, 14, 15]]), output_attentions=True)
        print(kind, *(tuple(layer.shape) for layer in out.attentions))
