"""transformers, `eager` attention: layers and small models of Llama, Mistral and Gemma 2."""

import torch
from transformers import AutoConfig, AutoModelForCausalLM, DynamicCache
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS as MASKS
from transformers.masking_utils import create_causal_mask, create_sliding_window_causal_mask
from transformers.models.gemma2.modeling_gemma2 import Gemma2Attention
from transformers.models.llama.modeling_llama import LlamaAttention
from transformers.models.mistral.modeling_mistral import MistralAttention

INSTALL = ["numpy==2.4.6", "torch==2.13.0", "transformers==5.24.0"]
KIND = "eager"


def _config(family="llama", **options):
    sizes = {"num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 16}
    sizes |= {"hidden_size": 96, "intermediate_size": 96, "vocab_size": 50}
    sizes |= {"num_hidden_layers": 1, "attn_implementation": KIND}
    return AutoConfig.for_model(family, **sizes | options)


def _attend(*arrays, mask, layer=LlamaAttention, cache=None, **options):
    """Call a layer whose input is query, key and value side by side, without a rotation."""
    x = torch.cat([torch.from_numpy(x).transpose(1, 2).flatten(2) for x in arrays], -1)
    family = layer.__name__.removesuffix("Attention").lower()
    layer, zeros = layer(_config(family, **options), 0), torch.zeros(1, x.shape[1], 16)
    with torch.no_grad():
        layer.q_proj.weight, layer.k_proj.weight, layer.v_proj.weight = (
            torch.nn.Parameter(part) for part in torch.eye(96).split(32)
        )
        layer.o_proj.weight.copy_(torch.eye(96)[:, :32])
        if callable(mask):
            mask = mask(layer.config, x, None, cache)
        out, _ = layer(x, (zeros + 1, zeros), mask, cache)
    return out[..., :32].unflatten(-1, (2, 16)).transpose(1, 2)


def _model(family="llama", **options):
    """A small model, whose attention is sharp enough to show differences."""
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(_config(family, **options)).eval()
    for name, weight in model.named_parameters():
        weight.data *= 8 if "q_proj" in name or "c_attn" in name else 1
    return model


def _logits(model, ids, **options):
    with torch.no_grad():
        return model(torch.tensor(ids), **options).logits


def causal(query, key, value):
    cache = DynamicCache()
    for part in (slice(4), slice(4, 6)):
        arrays = (x[:, :, part] for x in (query, key, value))
        out = _attend(*arrays, mask=create_causal_mask, cache=cache)
    return out


def empty_row(query, key, value, empty):
    table = torch.from_numpy(empty)
    options = {"mask_function": lambda b, h, i, j: table[b, 0, i, j]}
    made = MASKS[KIND](1, 6, 6, allow_is_causal_skip=False, **options)
    return _attend(query, key, value, mask=made)


PROBES = {
    "true": lambda query, key, value, mask: _attend(query, key, value, mask=torch.from_numpy(mask)),
    "scale": lambda query, key, value: _attend(query, key, value, mask=torch.zeros(1, 1, 6, 6)),
}  # fmt: skip


def soft_cap(query, key, value, mask, cap):
    hidden = torch.zeros(1, 1, 6, 6).masked_fill(torch.from_numpy(~mask), -1e9)
    options = {"attn_logit_softcapping": cap, "query_pre_attn_scalar": 16}
    return _attend(query, key, value, mask=hidden, layer=Gemma2Attention, **options)


def sliding(query, key, value, window):
    mask, options = create_sliding_window_causal_mask, {"sliding_window": window}
    return _attend(query, key, value, mask=mask, layer=MistralAttention, **options)


def packed():
    """A plain call, whose position ids begin again with the second document."""
    model, ids = _model(), [[3, 14, 15, 9, 2, 6]]
    alone = [_logits(model, [part]) for part in (ids[0][:3], ids[0][3:])]
    return torch.cat(alone, 1), _logits(
        model, ids, position_ids=torch.tensor([[0, 1, 2, 0, 1, 2]])
    )


def padded():
    """Two tokens of padding come first, and a mask says so."""
    model, mask = _model(), torch.tensor([[0, 0, 1, 1, 1, 1]])
    together = _logits(model, [[0, 0, 3, 14, 15, 9]], attention_mask=mask)
    return _logits(model, [[3, 14, 15, 9]]), together[:, 2:]


def cached():
    """Four tokens, then two."""
    model, cache = _model(), DynamicCache()
    parts = [_logits(model, [part], cache=cache) for part in ([3, 14, 15, 9], [2, 6])]
    return _logits(model, [[3, 14, 15, 9, 2, 6]]), torch.cat(parts, 1)
