"""SGLang: the code that reads a configuration and makes its rotations, which runs without a GPU."""

# ruff: noqa: E402

import importlib.abc
import importlib.machinery
import json
import shlex
import sys
from itertools import pairwise
from unittest.mock import MagicMock

import torch
import transformers
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from tests.nightly.world.inside import recipe

INSTALL = [
    "torch==2.13.0 numpy==2.4.6 transformers==5.19.0 triton==3.9.0",
    "orjson psutil pybase64 requests pillow starlette msgspec pyzmq IPython aiohttp dill",
    "--no-deps sglang==0.5.23",
]
ABSENT = {
    "torchvision", "sgl_kernel", "tvm_ffi", "gguf", "sentencepiece", "tiktoken",
    "einops", "timm", "easydict", "vllm",
}  # fmt: skip


class _Absent(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """What the imports name and the facts do not use: kernels, images, servers."""

    def find_spec(self, name, path=None, target=None):
        """Find a module that is not installed."""
        if name.partition(".")[0] in ABSENT:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        """Make a module that has every name."""
        module = MagicMock(name=spec.name, __version__="0")
        module.__path__, module.__spec__ = [], spec
        return module

    def exec_module(self, module):
        """Run nothing."""


sys.meta_path.append(_Absent())
from sglang.srt.layers.rotary_embedding.factory import get_rope
from sglang.srt.utils.hf_transformers.common import get_context_length, get_rope_config

YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}


def _config(**keys):
    """A Qwen 2 with heads of 32."""
    sizes = {"hidden_size": 64, "num_attention_heads": 2, "max_position_embeddings": 32768}
    return transformers.Qwen2Config(**sizes | {"rope_theta": 1e6} | keys)


def _rope(config):
    """The rotation that Llama and Qwen get for a configuration."""
    base, scaling = get_rope_config(config)
    length = config.max_position_embeddings
    return get_rope(32, 32, length, base, rope_scaling=scaling, dtype=torch.float32)


def recipe_128k():
    """The command for 128k covers what it promises."""
    words = shlex.split(recipe("fix/sglang", "sglang serve"))
    given = dict(pairwise(words))
    config = _config()
    config.update(json.loads(given["--json-model-override-args"]))
    print("limit:", get_context_length(config), "asked:", given["--context-length"])
    rope = _rope(config)
    print("positions in the table:", len(rope.cos_sin_cache), "base:", rope.base)


def limit_is_not_scaled():
    """YaRN does not raise the limit, which stays `max_position_embeddings`. `linear` does."""
    for kind in ("yarn", "linear"):
        scaling = {"rope_type": kind, "factor": 4.0}
        print(kind, get_context_length(_config(rope_parameters=scaling)))


def override_drops_theta():
    """An override of `rope_parameters` replaces all of it. Without `rope_theta`, the base is 10000."""
    config = _config()
    config.update({"rope_parameters": YARN})
    print("base", _rope(config).base)


def attention_factor_dropped():
    """YaRN's `attention_factor` is ignored. SGLang reads `attn_factor`, and multiplies by it."""
    for more in ({}, {"attention_factor": 1.0}, {"attn_factor": 1.5}):
        config = _config(rope_parameters=YARN | {"rope_theta": 1e6} | more)
        right = ROPE_INIT_FUNCTIONS["yarn"](config, "cpu")[1]
        ours = round(_rope(config).mscale, 4)
        print(more, "SGLang", ours, "transformers", round(right, 4))


def dynamic():
    """`dynamic` scales every text as if it had the full length, factor times the trained one."""
    scaling = {"rope_type": "dynamic", "factor": 4.0, "rope_theta": 1e6}
    config = _config(rope_parameters=scaling)
    table = _rope(config).cos_sin_cache
    for length in (32768, 131072):
        right = ROPE_INIT_FUNCTIONS["dynamic"](config, "cpu", seq_len=length)[0]
        same = torch.allclose(table[32768, 16:], (32768 * right).sin(), atol=1e-3)
        print(f"as transformers at {length}:", same)
    print("positions in the table:", len(table))


def _longrope():
    factors = {"short_factor": [1.0] * 16, "long_factor": [8.0] * 16}
    scaling = {"rope_type": "longrope", "original_max_position_embeddings": 4096} | factors
    return _rope(_config(rope_parameters=scaling | {"rope_theta": 1e4}))


def longrope():
    """LongRoPE takes the long factors for all texts of a batch if one exceeds the trained length."""
    rope = _longrope()
    states = torch.ones(2, 32)
    alone = rope(torch.tensor([5]), states[:1], states[:1])[0][0]
    beside = rope(torch.tensor([5, 9000]), states, states)[0][0]
    print("position 5, beside 9000:", f"{abs(alone - beside).max():.2f}")


def longrope_edge():
    """The first position after LongRoPE's trained length is rotated like position 0."""
    rope, ones = _longrope(), torch.ones(1, 32)
    for place in (4095, 4096, 4097):
        turned = rope(torch.tensor([place]), ones, ones)[0] / rope.long_mscale
        print(place, f"rotated by less than 0.001: {bool(abs(turned - 1).max() < 1e-3)}")
