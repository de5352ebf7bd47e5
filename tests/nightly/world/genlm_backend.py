"""GenLM: next-token probabilities with prompts kept in a cache."""

import asyncio

import torch
from genlm.backend.llm.hf import AsyncTransformer
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from tests.nightly.world.wrapped import _small

INSTALL = [
    "numpy==2.4.6 torch==2.13.0",
    "transformers==5.24.0 peft==0.21.2 transformer-lens==4.3.0",
    "captum==0.9.0 trl==1.16.0 sentence-transformers==6.2.0",
    "genlm-backend==0.3.1",
]
FIRST, SECOND, REST = [3, 14, 15], [92, 65, 35], [89, 79]


def _bytes():
    """A tokenizer of single bytes."""
    ids = {byte: i for i, byte in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    made = Tokenizer(models.BPE(ids, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=made)


def _cached():
    made = AsyncTransformer(_small(), _bytes())
    made.cache_kv(FIRST)
    made.cache_kv(SECOND)
    return made


def _off(found, ids):
    """How far these log-probabilities are from those of one pass over the ids."""
    with torch.no_grad():
        right = _small()(torch.tensor([ids])).logits[0, -1].log_softmax(-1)
    return f"{(found - right).abs().max():.3f}"


def answers_for_another_prompt():
    """Two prompts that differ only in what GenLM's `cache_kv` has cached get one answer in a batch."""
    both = [FIRST + REST, SECOND + REST]
    first, second = asyncio.run(_cached().batch_next_token_logprobs(both))
    print("first prompt, off by", _off(first, both[0]))
    print("second prompt, off by", _off(second, both[1]))
    print("the same answer:", torch.equal(first, second))


def second_call():
    """After GenLM's `cache_kv`, a first call is right, and the next, one token longer, is wrong."""
    made, ids = _cached(), FIRST + REST
    for length in (4, 5):
        found = made.next_token_logprobs_sync(ids[:length])
        print(f"{length} tokens, off by", _off(found, ids[:length]))
