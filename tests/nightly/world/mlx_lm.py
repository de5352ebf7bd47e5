"""MLX-LM, on a Linux CPU: masks, rotations, caches, and small random models."""

import contextlib
import json
import tempfile
from copy import deepcopy
from pathlib import Path

import mlx.core as mx
import numpy as np
from mlx.utils import tree_flatten
from mlx_lm.generate import BatchGenerator
from mlx_lm.models.base import create_attention_mask, scaled_dot_product_attention
from mlx_lm.models.cache import BatchKVCache, ChunkedKVCache, KVCache, make_prompt_cache
from mlx_lm.models.rope_utils import initialize_rope
from mlx_lm.utils import _get_classes
from transformers import AutoConfig

from posattn.configs.forms import write_keys
from tests.nightly.world.inside import recipe

INSTALL = ["numpy==2.4.6", "mlx[cpu]==0.32.4", "mlx-lm==0.32.2"]

SMALL = {
    "hidden_size": 64, "intermediate_size": 64, "num_attention_heads": 2, "vocab_size": 50,
    "num_key_value_heads": 2, "head_dim": 32, "num_hidden_layers": 2, "rms_norm_eps": 1e-6,
    "norm_epsilon": 1e-5, "layer_norm_eps": 1e-5, "max_position_embeddings": 64,
    "tie_word_embeddings": False, "sliding_window_pattern": 2, "sliding_window": 64,
    "attention_bias": False, "mlp_bias": False, "partial_rotary_factor": 1.0, "use_qkv_bias": False,
    "logits_scaling": 1.0, "attention_multiplier": 0.2, "embedding_multiplier": 1.0,
    "residual_multiplier": 1.0, "norm_eps": 1e-5, "conv_L_cache": 3, "conv_bias": False,
    "block_dim": 64, "block_multiple_of": 1, "block_ff_dim": 64, "block_ffn_dim_multiplier": 1.0,
    "block_auto_adjust_ff_dim": False, "full_attn_idxs": [1], "num_heads": 2,
}  # fmt: skip
STATES = {
    "state_size": 8, "conv_kernel": 4, "use_bias": False, "use_conv_bias": True, "time_step_rank": 4,
}  # fmt: skip
RECURRENT = {
    "mamba": STATES,
    "jamba": {
        "attn_layer_offset": 1, "attn_layer_period": 2, "expert_layer_offset": 1, "mamba_d_conv": 4,
        "expert_layer_period": 2, "mamba_d_state": 8, "mamba_expand": 2, "num_experts": 1,
        "num_experts_per_tok": 1,
    },
    "rwkv7": {
        "norm_eps": 1e-5, "a_low_rank_dim": 8, "v_low_rank_dim": 8, "gate_low_rank_dim": 8,
        "decay_low_rank_dim": 8,
    },
    "recurrent_gemma": {
        "attention_bias": False, "conv1d_width": 4, "logits_soft_cap": 30.0, "rope_theta": 1e4,
        "attention_window_size": 64, "block_types": ["recurrent", "attention"],
    },
    "mamba2": STATES | {
        "num_heads": 4, "head_dim": 16, "n_groups": 1, "layer_norm_epsilon": 1e-5,
        "time_step_limit": (0.0, 1e9),
    },
    "llama": {},
}  # fmt: skip
SHARP = tuple(f"{name}.weight" for name in ("q_proj", "k_proj", "qkv_proj", "Wqkv"))


def _model(kind, **config):
    """A model with random weights, and queries and keys five times as large as usual."""
    model_class, arguments = _get_classes({"model_type": kind})
    mx.random.seed(0)
    model = model_class(arguments.from_dict(SMALL | {"model_type": kind} | config))
    weights = [
        (
            name,
            (5 if name.endswith(SHARP) else 1) * array
            + 0.1 * mx.random.normal(array.shape),
        )
        for name, array in tree_flatten(model.parameters())
    ]
    model.load_weights(weights)
    return model


def _logits(model, ids=range(40), cache=None):
    return np.array(model(mx.array([list(ids)]), cache=cache)[0])


def _changes(kind, one, other):
    """Whether two configurations of a family give different logits."""
    return abs(_logits(_model(kind, **one)) - _logits(_model(kind, **other))).max() > 1e-4


def _attend(query, key, value, mask):
    arrays = map(mx.array, (query, key, value))
    return scaled_dot_product_attention(*arrays, cache=None, scale=0.25, mask=mask)


def causal(last, key, value):
    cache = KVCache()
    cache.update_and_fetch(mx.array(key[:, :, :4]), mx.array(value[:, :, :4]))
    return _attend(last, key, value, create_attention_mask(mx.array(last[:, 0]), cache))


def sliding(query, key, value, window):
    mask = create_attention_mask(mx.array(query[:, 0]), window_size=window)
    return _attend(query, key, value, mask)


PROBES = {
    "rotated": lambda x: initialize_rope(16, 10000.0, traditional=False)(mx.array(x)),
    "partly": lambda x, part: initialize_rope(part, 10000.0, traditional=False)(mx.array(x)),
    "shifted": lambda x, offset: initialize_rope(16, 10000.0, traditional=False)(mx.array(x), offset=offset),
}  # fmt: skip


def distant(x, far):
    rope = initialize_rope(16, 10000.0, traditional=False)
    rows = (rope(mx.array(x[:, :, [i]]), offset=int(far[i])) for i in range(6))
    return mx.concatenate(list(rows), 2)


def cached():
    model = _model("llama")
    cache = make_prompt_cache(model)
    _logits(model, range(5), cache)
    return _logits(model, range(8))[5:], _logits(model, range(5, 8), cache)


def padded():
    model = _model("llama")
    caches = [BatchKVCache([3]), BatchKVCache([3])]
    return _logits(model, range(5)), _logits(model, [0, 0, 0, *range(5)], caches)[3:]


FAMILIES = (
    "llama", "mistral", "gemma3_text", "phi3", "smollm3", "olmo2", "starcoder2", "seed_oss", "phi",
    "qwen2", "gemma", "gemma2", "mixtral", "cohere", "cohere2", "gpt_oss", "glm", "qwen3", "lfm2",
    "glm4", "stablelm", "granite", "olmo3",
)  # fmt: skip
LINEAR = {"type": "linear", "rope_type": "linear", "factor": 4.0}
LONG = {
    "type": "longrope", "rope_type": "longrope", "original_max_position_embeddings": 32,
    "short_factor": [1.0] * 16, "long_factor": [4.0] * 16,
}  # fmt: skip
ALSO = {  # beside the base and the scaling
    **{kind: {"partial_rotary_factor": 0.5} for kind in ("phi", "glm", "glm4", "stablelm")},
    "gemma3_text": {"rope_local_base_freq": 2e4},
    "phi3": {"original_max_position_embeddings": 32, "rope_scaling": LONG},
    "olmo3": {"rope_scaling": None},  # which would scale full layers only
}
SIZES = (
    "hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "head_dim",
    "num_hidden_layers", "vocab_size", "max_position_embeddings",
)  # fmt: skip
BOTH = ["sliding_attention", "full_attention"]


def rope_parameters():
    """17 of these families drop `rope_parameters` and rotate by a default base; four refuse the file."""
    told = {"rope_parameters": {"rope_theta": 5e5, "rope_type": "default"}}
    for kind in FAMILIES:
        try:
            read = not _changes(kind, told, {"rope_theta": 5e5})
            base = f"dropped, base {_model(kind, **told).args.rope_theta:g}"
            print(kind, "read" if read else base)
        except TypeError as error:
            print(kind, "refused" if "rope_theta" in str(error) else error)


def both_forms():
    """After `posattn plan --write-keys`, all of these families read what transformers 5 has saved."""
    sizes = {key: SMALL[key] for key in SIZES}
    for kind in FAMILIES:
        kinds = {"layer_types": BOTH} if kind in ("gemma3_text", "olmo3") else {}
        old = {"rope_theta": 5e5, "rope_scaling": LINEAR} | ALSO.get(kind, {})
        place = tempfile.mkdtemp()
        AutoConfig.for_model(kind, **sizes, **kinds, **deepcopy(old)).save_pretrained(place)
        write_keys(place, f"{place}/both.json")
        told = json.loads(Path(place, "both.json").read_text("utf-8"))
        told = {
            key: value
            for key, value in told.items()
            if key.startswith("rope") or key in old
        }
        print(kind, "differs" if _changes(kind, kinds | old, kinds | told) else "equal")


def windows():
    """Five of these families drop `sliding_window`."""
    kinds = "mistral gemma2 phi3 starcoder2 qwen2 gemma3_text olmo3 cohere2 llama"
    for kind in kinds.split():
        told = {"rope_theta": 1e4, "use_sliding_window": True, "max_window_layers": 0}
        if kind in ("gemma2", "olmo3", "llama"):
            told["layer_types"] = ["sliding_attention", "full_attention"]
        windows = (told | {"sliding_window": window} for window in (8, 64))
        print(kind, "window" if _changes(kind, *windows) else "none")


def max_kv_size():
    """`max_kv_size` does nothing for Llama; in Qwen 2 it also hides a prompt's start from its last token."""
    for kind in ("llama", "qwen2"):
        model = _model(kind, rope_theta=1e4, num_hidden_layers=1)
        limited = make_prompt_cache(model, max_kv_size=16)
        last = _logits(model, range(40), limited)[-1]
        seen = []
        for i in range(40):
            ids = [*range(40)]
            ids[i] = 45
            other = _logits(model, ids, make_prompt_cache(model, max_kv_size=16))[-1]
            seen += [i] * bool(abs(other - last).max() > 1e-6)
        print(kind, "the last token sees", seen[0], "to", seen[-1])


def yarn_keys():
    """YaRN's `truncate: false` and `attention_factor` are dropped: two pairs of gpt-oss rotate too fast."""
    told = {"rope_type": "yarn", "factor": 32.0, "original_max_position_embeddings": 4096}
    told |= {
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "truncate": False,
        "attention_factor": 1.0,
    }
    rope, base = initialize_rope(64, 150000.0, False, told), 150000.0
    low, high = (32 * np.log(4096 / (2 * np.pi * n)) / np.log(base) for n in (32, 1))
    part = np.clip((np.arange(32) - low) / (high - low), 0, 1)
    right = base ** (-np.arange(32) / 32) * (1 - part + part / 32)
    print("pairs 8 to 18:", (1 / np.array(rope._freqs) / right)[8:19].round(2))
    print("factor of queries and keys:", round(rope.mscale, 3))


def long_factors():
    """LongRoPE's long factors serve every text, also one that fits into the trained length."""
    told = {"rope_type": "longrope", "original_max_position_embeddings": 64}
    told |= {"short_factor": [1.0] * 8, "long_factor": [4.0] * 8}
    rope = initialize_rope(16, 10000.0, False, told, max_position_embeddings=256)
    print(
        "frequencies at every length, times",
        (10000 ** (np.arange(8) / 8) / np.array(rope._freqs)).round(2),
    )


def dynamic():
    """With `dynamic`, reading a prompt in two parts gives other logits than one pass."""
    model = _model(
        "llama",
        rope_scaling={"rope_type": "dynamic", "factor": 4.0},
        max_position_embeddings=20,
    )
    cache = make_prompt_cache(model)
    _logits(model, range(30), cache)
    change = _logits(model, range(30, 40), cache) - _logits(model)[30:]
    print("largest change of a logit:", abs(change).max().round(2))


def unknown_type():
    """An unknown `rope_type` is an error."""
    initialize_rope(16, 10000.0, False, {"rope_type": "ntk"})


def batches():
    """Beside a longer prompt, four recurrent families read padding into their states."""
    short, long = [*range(1, 7)], [*range(1, 15)]
    for kind, config in RECURRENT.items():
        model = _model(kind, **config)
        alone, together = (_first(model, prompts) for prompts in ([short], [short, long]))
        print(kind, "changes by", abs(alone - together).max().round(3))


def _first(model, prompts):
    """The log-probabilities of the first prompt's next token."""
    generator = BatchGenerator(model, max_tokens=1)
    first, *_ = generator.insert(prompts)
    while answers := generator.next_generated():
        for answer in answers:
            if answer.uid == first:
                return np.array(answer.logprobs)


def chunked_cache():
    """Llama 4's cache says that it can be trimmed, and gives back fewer tokens than asked."""
    for cache in (KVCache(), ChunkedKVCache(8)):
        for _ in range(3):
            if hasattr(cache, "maybe_trim_front"):
                cache.maybe_trim_front()
            cache.update_and_fetch(mx.zeros((1, 1, 8, 4)), mx.zeros((1, 1, 8, 4)))
        print(type(cache).__name__, cache.is_trimmable(), cache.trim(20), "of 20")


def kept_tokens():
    """With `keep`, the mask of `RotatingKVCache` hides what is kept, where several tokens come at once."""
    from mlx_lm.models.cache import RotatingKVCache

    cache = RotatingKVCache(max_size=4, keep=1)
    tokens = mx.arange(8).reshape(1, 1, 8, 1)
    cache.update_and_fetch(tokens[:, :, :5], tokens[:, :, :5])
    mask = cache.make_mask(3, return_array=True)
    keys, _ = cache.update_and_fetch(tokens[:, :, 5:], tokens[:, :, 5:])
    pairs = zip(keys.flatten().tolist(), mask[2].tolist(), strict=True)
    seen = [key for key, shown in pairs if shown]
    print("token 7 sees", seen, "and should see [0, 5, 6, 7]")


def dump():
    """The lines of this page print a layer's rotation and save the output of every layer."""
    folder = tempfile.mkdtemp()
    (Path(folder) / "config.json").write_text(json.dumps(SMALL | {"model_type": "llama"}))
    _model("llama").save_weights(f"{folder}/model.safetensors")
    with contextlib.chdir(folder):
        exec(recipe("fix/mlx_lm", "load_model"), {"folder": folder, "ids": [3, 1, 4]})
        saved = mx.load("mlx.safetensors")
    for name in sorted(saved):
        print(name, saved[name].shape)
