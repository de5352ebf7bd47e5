"""TransformerLens: a bridge to a model of transformers."""

import torch
from transformer_lens.model_bridge.sources._bridge_builder import build_bridge_from_module

from tests.nightly.world.wrapped import _small

INSTALL = [
    "numpy==2.4.6 torch==2.13.0 transformers==5.24.0 peft==0.21.2 captum==0.9.0",
    "trl==1.16.0 sentence-transformers==6.2.0 genlm-backend==0.3.1",
    "transformer-lens==4.3.0",
]
IDS = torch.tensor([[3, 14, 15, 92, 65]])


def _bridge(model):
    return build_bridge_from_module(
        model, "LlamaForCausalLM", hf_config=model.config, dtype=torch.float32
    )


def _greedy(**options):
    given = {
        "max_new_tokens": 6,
        "do_sample": False,
        "stop_at_eos": False,
        "verbose": False,
    }
    return _bridge(_small()).generate(IDS, **given, **options)[0, 5:].tolist()


def forgets_the_prompt():
    """`TransformerBridge.generate` writes each token after the first from the token before it alone."""
    print("transformers:", *_small().generate(IDS, max_new_tokens=6)[0, 5:].tolist())
    print("bridge, without a cache:", *_greedy(use_past_kv_cache=False))
    text = _greedy()
    print("bridge:", *text)
    read = [_small()(torch.tensor([[token]])).logits.argmax().item() for token in text[:5]]
    print("said after one token:", text[0], *read)


def one_pass():
    """One pass through a `TransformerBridge` gives the logits of the model."""
    change = (_bridge(_small())(IDS) - _small()(IDS).logits).abs().max()
    print(f"largest difference of a logit: {change:.3f}")
