"""Transformers: what its classes make of configurations, masks and position ids."""

import contextlib
import functools
import importlib
import inspect
import re
import tempfile

import torch
from transformers import CONFIG_MAPPING, AutoModelForCausalLM
from transformers.models.auto.configuration_auto import model_type_to_module_name

from tests.nightly.world.inside import recipe
from tests.nightly.world.wrapped import _words

INSTALL = ["numpy==2.4.6", "torch==2.13.0", "transformers==5.24.0"]


def _small(kind, sharp=8, **keys):
    torch.manual_seed(0)
    sizes = {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16}
    config = CONFIG_MAPPING[kind](**{**sizes, **heads, "vocab_size": 99, **keys})
    model = AutoModelForCausalLM.from_config(config)
    for name, weight in model.named_parameters():
        if "q_proj" in name or "k_proj" in name:
            weight.data *= sharp
    return model.eval()


@functools.cache
def _modules():
    found = []
    for kind in sorted(CONFIG_MAPPING):
        name = model_type_to_module_name(kind)
        try:
            module = importlib.import_module(f"transformers.models.{name}.modeling_{name}")
            found.append((name, module))
        except ImportError:
            continue
    return found


def old_base():
    """The line `getattr(config, "rope_theta", 10000.0)` misses the base, which moved to `rope_parameters`."""
    wrong, kept = 0, []
    for kind in sorted(CONFIG_MAPPING):
        try:
            config = CONFIG_MAPPING[kind]()
        except Exception:
            continue
        rope = getattr(config, "rope_parameters", None) or {}
        found, base = getattr(config, "rope_theta", 10000.0), rope.get("rope_theta")
        wrong += base is not None and found != base
        if hasattr(config, "rope_theta"):
            kept.append(f"{kind} {config.rope_theta:g}")
    print("another base than the class rotates by:", wrong, "classes")
    print("still have the attribute:", ", ".join(kept))


def pairs_neighbors():
    """A function called `rotate_half` pairs halves in most families and neighbors in some."""
    found = {"halves": set(), "neighbors": set()}
    for name, module in _modules():
        if hasattr(module, "rotate_half"):
            first = module.rotate_half(torch.arange(8.0)[None])[0, 0].item()
            found["neighbors" if first == -1 else "halves"].add(name)
    print(
        len(found["halves"]),
        "families pair halves; neighbors:",
        *sorted(found["neighbors"]),
    )


def rotates_first():
    """Most families with a QK norm normalize first; a few rotate first."""
    rotate = r"apply_(?:multimodal_)?rotary_(?:pos_)?emb\w*\("
    norm = r"self\.(?:query_layernorm|q_layernorm|q_norm|query_norm|norm_q|qk_norm)\("
    first = []
    for name, module in _modules():
        for one in vars(module).values():
            own = inspect.isclass(one) and one.__module__ == module.__name__
            if own and one.__name__.endswith("Attention"):
                text = inspect.getsource(one)
                places = [re.search(pattern, text) for pattern in (rotate, norm)]
                if all(places) and places[0].start() < places[1].start():
                    first.append(name)
    print("rotate first:", *sorted(set(first)))


def window_width():
    """A window in `config.json` is a number of keys in most families, and one less in two."""
    from transformers import ModernBertConfig, ModernBertModel

    sizes = {"hidden_size": 64, "intermediate_size": 64}
    sizes |= {"num_attention_heads": 4, "vocab_size": 99}
    local = {"num_hidden_layers": 1, "layer_types": ["sliding_attention"]}
    torch.manual_seed(0)
    config = ModernBertConfig(**sizes, **local, local_attention=8, pad_token_id=0)
    bert = ModernBertModel(config).eval()
    seen = _keys(lambda x: bert(x).last_hidden_state)
    print("ModernBERT, local_attention 8:", seen, "keys")
    keys = {"mistral": "sliding_window", "mimo_v2_flash": "sliding_window_size"}
    for kind, key in keys.items():
        model = _small(kind, **local, **{key: 8})
        print(f"{kind}, {key} 8:", _keys(lambda x, model=model: model(x).logits), "keys")


def restarted_ids():
    """Restarted `position_ids` keep packed documents apart only without a cache, and in gpt-oss never."""
    one, two = torch.randint(99, (2, 1, 12), generator=torch.Generator().manual_seed(0))
    places = torch.arange(6).repeat(2)[None]
    other = torch.cat([two[:, :6], one[:, 6:]], 1)
    for kind in ("llama", "gpt_oss"):
        model = _small(kind)
        for cache in (True, False):
            a, b = (
                model(x, position_ids=places, use_cache=cache).logits[:, 6:]
                for x in (one, other)
            )
            off = (a - b).abs().max()
            print(f"{kind}, use_cache={cache}: the second document changes by {off:.2f}")


def scaled_length():
    """With `dynamic` and `longrope`, `max_position_embeddings` changes the rotation even of short texts."""
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS as rules

    config = CONFIG_MAPPING["llama"]
    dynamic = {"rope_type": "dynamic", "factor": 4.0, "rope_theta": 10000.0}
    long = {"rope_type": "longrope", "rope_theta": 10000.0, "short_factor": [1.0] * 64,
        "long_factor": [2.0] * 64, "original_max_position_embeddings": 8192}  # fmt: skip
    slow, factor = [], []
    for most in (8192, 32768):
        made = config(rope_parameters=dynamic, max_position_embeddings=most)
        slow.append(rules["dynamic"](made, "cpu", seq_len=32768)[0][-1].item())
        made = config(rope_parameters=long, max_position_embeddings=most * 4)
        factor.append(rules["longrope"](made, "cpu", seq_len=4096)[1])
    print(
        f"dynamic, 32768 tokens: the slowest frequency differs {slow[1] / slow[0]:.1f}-fold"
    )
    print(f"longrope, 4096 tokens: attention factor {factor[0]:.3f} and {factor[1]:.3f}")


def late_base():
    """A `rope_theta` given beside `rope_parameters` that have one is dropped without a word."""
    rope = {"rope_type": "default", "rope_theta": 5e5}
    config = CONFIG_MAPPING["llama"](rope_parameters=rope, rope_theta=1e6)
    print("rotates by", config.rope_parameters["rope_theta"])


def moved_keys():
    """`rope_theta` and `rope_scaling` of older files are moved to `rope_parameters`, and saved there."""
    scaling = {"rope_type": "linear", "factor": 4.0}
    config = CONFIG_MAPPING["llama"](rope_theta=5e5, rope_scaling=scaling)
    print({key: value for key, value in config.to_dict().items() if "rope" in key})


def trained_length():
    """YaRN without `original_max_position_embeddings` takes `max_position_embeddings` in its place."""
    for most in (8192, 32768):
        scaling = {"rope_type": "yarn", "factor": 4.0, "rope_theta": 10000.0}
        keys = {"rope_parameters": scaling, "max_position_embeddings": most}
        config = CONFIG_MAPPING["llama"](**keys)
        print(most, config.rope_parameters["original_max_position_embeddings"])


def cast_frequencies():
    """`model.bfloat16()` casts the frequencies, too. `from_config` with `dtype=torch.bfloat16` does not."""
    model = _small("llama")
    other = AutoModelForCausalLM.from_config(model.config, dtype=torch.bfloat16)
    for one in (model.bfloat16(), other):
        print(one.lm_head.weight.dtype, one.model.rotary_emb.inv_freq.dtype)


def no_rope_layers():
    """A 1 in `no_rope_layers` rotates. In Llama 4 that layer sees a chunk, and one with 0 scales queries."""
    model = _small("smollm3", no_rope_layers=[1, 0], pad_token_id=0)
    print("SmolLM3:", *(layer.self_attn.use_rope for layer in model.model.layers))
    keys = {"num_hidden_layers": 1, "attention_chunk_size": 8, "num_local_experts": 2}
    for rotates in (1, 0):
        keys |= {"no_rope_layers": [rotates], "floor_scale": 4}
        model, plain = (
            _small("llama4_text", attn_temperature_tuning=on, **keys)
            for on in (True, False)
        )
        seen = _keys(lambda x, model=model: model(x).logits)
        x = torch.arange(3, 44)[None]
        scaled = not torch.allclose(model(x).logits, plain(x).logits, atol=1e-6)
        print(f"Llama 4, {rotates}: token 20 sees {seen}, scaled queries: {scaled}")


def longrope_batch():
    """The longest row of a batch chooses LongRoPE's factors for all of its rows."""
    rope = {"rope_type": "longrope", "original_max_position_embeddings": 16}
    rope |= {"rope_theta": 1e4, "short_factor": [1.0] * 8, "long_factor": [8.0] * 8}
    model = _small("llama", rope_parameters=rope, max_position_embeddings=64)
    ids = torch.randint(3, 99, (2, 20), generator=torch.Generator().manual_seed(0))
    mask = torch.ones(2, 20, dtype=int)
    mask[0, :12] = 0
    given = {"attention_mask": mask, "position_ids": (mask.cumsum(-1) - 1).clip(0)}
    off = model(ids, **given).logits[0, 12:] - model(ids[:1, 12:]).logits[0]
    print(f"8 tokens beside 20, trained on 16: off by {off.abs().max():.2f}")


def dump():
    """The lines of *Triage* run, and the last of the hidden states has been through the final norm."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        model, tokenizer, names = _small("llama"), _words(), {"folder": folder}
        tokenizer.chat_template = "3 4 {{ messages[0].content }}"
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        exec(recipe("fix/triage", "apply_chat_template"), names)
        saved = torch.load("original.pt")
    print("ids:", saved["ids"].tolist(), "hidden states:", len(saved["hidden"]))
    logits = model.lm_head(saved["hidden"][-1])
    print("the last one gives the logits:", torch.allclose(logits, saved["logits"]))


def padded_positions():
    """Given a mask and no `position_ids`, GPT-2 counts padding. OPT doesn't, and no model in `generate`."""
    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    opt = {"ffn_dim": 64, "word_embed_proj_dim": 64}
    for kind, more in (("gpt2", {}), ("opt", opt)):
        torch.manual_seed(0)
        config = CONFIG_MAPPING[kind](vocab_size=99, **sizes, **more)
        model = AutoModelForCausalLM.from_config(config).eval()
        text = torch.arange(5, 11)[None]
        row = torch.cat([torch.zeros(1, 4, dtype=int), text], 1)
        mask = torch.tensor([[0] * 4 + [1] * 6])
        alone, ids = model(text).logits, (mask.cumsum(-1) - 1).clip(0)
        out = [
            model(row, attention_mask=mask, **more) for more in ({}, {"position_ids": ids})
        ]
        off = [f"{(alone - one.logits[:, 4:]).abs().max():.2f}" for one in out]
        options = {"output_logits": True, "return_dict_in_generate": True}
        made = model.generate(row, attention_mask=mask, max_new_tokens=1, **options).logits[
            0
        ]
        last = (alone[:, -1] - made).abs().max()
        print(f"{kind}: off by {off[0]}, with ids by {off[1]}, in generate by {last:.2f}")


def image_positions():
    """Qwen3-VL takes flat `position_ids` without a word and then places an image like text."""
    from transformers import Qwen3VLConfig, Qwen3VLModel

    rope = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [4, 2, 2]}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16}
    sizes = {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2}
    text = {**sizes, **heads, "vocab_size": 99, "rope_parameters": rope}
    vision = {"hidden_size": 32, "depth": 1, "num_heads": 2, "intermediate_size": 32}
    vision |= {"out_hidden_size": 64, "deepstack_visual_indexes": [0], "patch_size": 4}
    vision |= {"num_position_embeddings": 64}
    torch.manual_seed(0)
    ids = {"image_token_id": 90, "vision_start_token_id": 91, "vision_end_token_id": 92}
    config = Qwen3VLConfig(text_config=text, vision_config=vision, **ids)
    model = Qwen3VLModel(config).eval()
    tokens = torch.tensor([[1, 2, 91, *[90] * 16, 92, 3, 4]])
    given = {
        "pixel_values": torch.randn(64, 96),
        "image_grid_thw": torch.tensor([[1, 8, 8]]),
    }
    kinds = (tokens == 90).int()
    right = model(tokens, mm_token_type_ids=kinds, **given).last_hidden_state
    flat = model(tokens, position_ids=torch.arange(22)[None], **given).last_hidden_state
    print(f"the last token changes by {(right - flat)[0, -1].abs().max():.2f}")


def _keys(call):
    """How many tokens around the middle one change its output."""
    x = torch.randint(1, 99, (1, 41), generator=torch.Generator().manual_seed(0))
    others, each = x.repeat(41, 1), range(41)
    others[each, each] = (x[0] + 7) % 98 + 1
    return (call(others)[:, 20] - call(x)[0, 20]).abs().amax(1).gt(1e-6).sum().item()
