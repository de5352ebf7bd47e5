#!/usr/bin/env bash
# Versions: sentence-transformers 6.2.0, transformers 5.24.0, tokenizers 0.23.3, torch 2.13.0 (CPU).
# Expected: Pooling(include_prompt=False) leaves the tokens of the prompt out of the mean and
#   keeps all of the text.
# Seen: with the prompt "query: " and a byte-level tokenizer (GPT-2, Llama 3, Qwen, ModernBERT)
#   the first word of the text is left out as well. A text of one word gets the zero vector if
#   the tokenizer adds no end token. "query:" with the space in front of the text is right.
# Why: _get_prompt_length (sentence_transformers/base/modules/transformer.py) tokenizes the
#   prompt alone. Its final space is a token there, but in front of a word it is part of that
#   word's token, so the count is one too high.
# Who meets it: whoever trains or runs an instructed embedding model of such a tokenizer with
#   mean pooling and a prompt that ends in a space, as many do. Short queries suffer most.
set -euo pipefail
here=$(mktemp -d)
trap 'rm -rf "$here"' EXIT
python3 -m venv "$here/venv"
"$here/venv/bin/pip" install --quiet torch==2.13.0
"$here/venv/bin/pip" install --quiet tokenizers==0.23.3 transformers==5.24.0 sentence-transformers==6.2.0
cd "$here"
HF_HUB_OFFLINE=1 "$here/venv/bin/python" -W ignore - 2>/dev/null <<'PY'
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaModel, PreTrainedTokenizerFast

byte_level = Tokenizer(models.BPE())
byte_level.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
letters = pre_tokenizers.ByteLevel.alphabet()
trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=["<pad>"], initial_alphabet=letters)
byte_level.train_from_iterator(["query: how do cats sleep", "query: do dogs run fast"] * 50, trainer)
tokenizer = PreTrainedTokenizerFast(tokenizer_object=byte_level, pad_token="<pad>")
torch.manual_seed(0)
shape = dict(hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4)
LlamaModel(LlamaConfig(vocab_size=len(tokenizer), **shape)).save_pretrained("model")
tokenizer.save_pretrained("model")
transformer = Transformer("model")


def embed(prompt, text):
    """Give the embedding, the hidden states of prompt and text, and the length of the prompt."""
    pooling = Pooling(32, pooling_mode="mean", include_prompt=False)
    model = SentenceTransformer(modules=[transformer, pooling], device="cpu")
    hidden = transformer(model.preprocess([prompt + text]))["token_embeddings"][0].detach()
    length = model.preprocess([text], prompt=prompt)["prompt_length"]
    return model.encode(text, prompt=prompt, convert_to_tensor=True), hidden, length


print(tokenizer.tokenize("query: "), tokenizer.tokenize("query: cats sleep"))
for prompt, text, counted in (("query:", " cats sleep", 2), ("query: ", "cats sleep", 3)):
    out, hidden, length = embed(prompt, text)
    off = [(out - hidden[start:].mean(0)).abs().max().item() for start in (2, 3)]
    print(f"{prompt!r}: {length} tokens; off by {off[0]:.2f} from all words, {off[1]:.2f} without the first")
    assert length == counted and off[counted - 2] < 1e-5 and off[3 - counted] > 0.1
norms = [embed("query: ", word)[0].norm().item() for word in ("cats", "dogs")]
print("norms of two texts of one word:", norms)
assert norms == [0.0, 0.0] and embed("query:", " cats")[0].norm() > 1
PY
