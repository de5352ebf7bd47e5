"""What is wrapped here: small models whose attention is sharp, and a tokenizer of words."""

import torch
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM


def _small(kind="llama"):
    torch.manual_seed(0)
    given = {"vocab_size": 99, "initializer_range": 0.3}
    given |= {"bos_token_id": 1, "eos_token_id": None, "pad_token_id": 0}
    if kind == "gpt2":
        return GPT2LMHeadModel(GPT2Config(n_embd=64, n_layer=2, n_head=4, **given)).eval()
    sizes = {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16}
    return LlamaForCausalLM(LlamaConfig(**sizes, **heads, **given)).eval()


def _words(padding_side="left"):
    """A tokenizer that reads "7" as 7."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    ids = {"<pad>": 0, "<s>": 1, "</s>": 2} | {str(i): i for i in range(3, 99)}
    made = Tokenizer(models.WordLevel(ids, unk_token="</s>"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    names = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>"}
    return PreTrainedTokenizerFast(
        tokenizer_object=made, padding_side=padding_side, **names
    )
