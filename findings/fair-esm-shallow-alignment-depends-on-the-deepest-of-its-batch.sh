#!/usr/bin/env bash
# Versions: fair-esm 2.0.0, torch 2.13.0 (CPU).
# Expected: the MSA Transformer hides padded rows, so an alignment gets the representation
#   that it has alone, whatever else is in the batch.
# Seen: an alignment of 3 sequences beside one of 48 changes by 12 % of its spread. Its row
#   attention is flatter, as if all scores were divided by 4 = sqrt(48 / 3). With the square
#   root of its own 3 rows both agree to 1e-5.
# Why: RowSelfAttention.align_scaling (esm/axial_attention.py) divides the tied scores by the
#   square root of the rows of the padded batch. The mask zeroes the queries of padded rows,
#   which keeps them out of the sum but not out of that count.
# Who meets it: whoever embeds protein families, or predicts contacts, in batches of
#   alignments of unequal depth. Shallow families suffer most; no error, no warning.
set -euo pipefail
here=$(mktemp -d)
trap 'rm -rf "$here"' EXIT
python3 -m venv "$here/venv"
"$here/venv/bin/pip" install --quiet torch==2.13.0
"$here/venv/bin/pip" install --quiet numpy==2.4.6 fair-esm==2.0.0
cd "$here"
"$here/venv/bin/python" - <<'PY'
import math
from argparse import Namespace

import esm
import torch
from esm.axial_attention import RowSelfAttention
from esm.model.msa_transformer import MSATransformer

torch.manual_seed(0)
alphabet = esm.Alphabet.from_architecture("msa_transformer")
size = dict(layers=2, embed_dim=32, attention_heads=4, ffn_embed_dim=64, max_positions=64)
drop = dict(dropout=0.0, attention_dropout=0.0, activation_dropout=0.0, max_tokens=2**14)
rest = dict(embed_positions_msa=True, embed_positions_msa_dim=32, final_bias=True, logit_bias=True)
model = MSATransformer(Namespace(**size, **drop, **rest), alphabet).eval()
for name, weight in model.named_parameters():  # random weights attend to everything alike
    if "q_proj.weight" in name or "k_proj.weight" in name:
        weight.data *= 8

shallow = [("a", "MKTAYIAKQR"), ("b", "MKSAYLAKQR"), ("c", "MRTAYIAKHR")]
deep = [(f"row {i}", "MKTAYIAKQR") for i in range(48)]
convert = alphabet.get_batch_converter()


@torch.no_grad()
def read(*families):
    """Give the three rows of the first family and the width of their attention."""
    out = model(convert(list(families))[2], repr_layers=[2], need_head_weights=True)
    weights = out["row_attentions"][0, 0]
    width = torch.special.entr(weights).sum(-1).exp().mean().item()
    return out["representations"][2][0, :3], width


alone, width_alone = read(shallow)
batch, width_batch = read(shallow, deep)
RowSelfAttention.align_scaling = lambda self, q: self.scaling / math.sqrt(len(shallow))
cured, width_cured = read(shallow, deep)
change = ((batch - alone).norm() / (alone - alone.mean()).norm()).item()
print(f"beside a deeper family the representation changes by {change:.0%} of its spread")
print(f"columns seen by a query: {width_alone:.2f} alone, {width_batch:.2f} in the batch")
print(f"largest difference when divided by sqrt(3): {(cured - alone).abs().max():.0e}")
assert change > 0.1 and width_batch > 1.2 * width_alone
assert (cured - alone).abs().max() < 1e-4 and abs(width_cured - width_alone) < 1e-3
PY
