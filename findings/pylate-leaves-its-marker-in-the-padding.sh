#!/usr/bin/env bash
# Versions: PyLate 1.6.0, sentence-transformers 5.3.0, transformers 5.3.0, torch 2.13.0 (CPU).
# Expected: the marker [D] or [Q] stands in front of each text, or behind its first special
#   token, and a document's vectors do not depend on the documents in the same batch.
# Seen: with a tokenizer that pads on the left the marker of a shorter text stands in the middle
#   of its padding, far from the text, and is attended to there. Vectors of a text of 3 words
#   beside one of 14 have cosines down to 0.3 with those that it has alone. Without a special
#   token in front the marker stands between the first and the second word.
# Why: ColBERT.insert_prefix_token (pylate/models/colbert.py) puts the marker and a 1 of the
#   mask into column 1 of the padded batch, whatever column 0 holds.
# Who meets it: whoever makes a late-interaction model of a decoder whose tokenizer pads on
#   the left: queries, which are padded to a fixed length, have the marker farthest away, and
#   scores change with the batch size. With padding on the right the batch does not matter.
set -euo pipefail
here=$(mktemp -d)
trap 'rm -rf "$here"' EXIT
python3 -m venv "$here/venv"
"$here/venv/bin/pip" install --quiet torch==2.13.0
"$here/venv/bin/pip" install --quiet transformers==5.3.0 sentence-transformers==5.3.0 pylate==1.6.0
cd "$here"
HF_HUB_OFFLINE=1 "$here/venv/bin/python" -W ignore - 2>/dev/null <<'PY'
import torch
from pylate.models import ColBERT
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaModel, PreTrainedTokenizerFast

short = "two dogs ran"
long = "the cat sat on a mat while two dogs ran past an old house"
words = ["<pad>", "<eos>", "<unk>", *dict.fromkeys(long.split())]
level = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
level.pre_tokenizer = pre_tokenizers.Whitespace()
special = dict(pad_token="<pad>", eos_token="<eos>", unk_token="<unk>")
shape = dict(hidden_size=64, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4)
seen = {}
for side in ("right", "left"):
    torch.manual_seed(0)
    llama = LlamaModel(LlamaConfig(vocab_size=len(words), **shape))
    for name, weight in llama.named_parameters():  # random weights attend to everything alike
        if "q_proj" in name or "k_proj" in name:
            weight.data *= 8
    llama.save_pretrained(side)
    PreTrainedTokenizerFast(tokenizer_object=level, padding_side=side, **special).save_pretrained(side)
    model = ColBERT(side, embedding_size=32, device="cpu")
    rows = model.tokenize([short, long], is_query=False)
    tokens = model.tokenizer.convert_ids_to_tokens(rows["input_ids"][0])
    encode = lambda texts: model.encode(texts, is_query=False, convert_to_tensor=True)[0]
    cosines = (encode([short]) * encode([short, long])).sum(-1)
    seen[side] = tokens, rows["attention_mask"][0].tolist(), cosines.min().item()
    print(f"padding on the {side}:", *tokens)
    print("  mask", *seen[side][1], "\n  cosine, alone and in the batch:", *[f"{c:.2f}" for c in cosines])
assert seen["right"][2] > 0.999 and seen["left"][2] < 0.8
assert seen["left"][0][1] == "[D] " and seen["left"][0][-3:] == short.split()
assert seen["left"][1] == [0, 1] + [0] * 10 + [1] * 3
PY
