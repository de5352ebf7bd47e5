"""Layers with the delta rule made by `from_config` beside those of transformers (`nox -s oracles`)."""

from importlib import import_module
from itertools import pairwise

import jax.numpy as jnp
import numpy as np
import pytest
import torch
import transformers

from posattn import jax as jax_column
from posattn import torch as torch_column
from tests.nightly.oracles.checks_from_config import distance

AGREE = 2e-6  # in float32, of the largest entry
N, PAD, DIM = 75, 5, 32
SIZES = {
    "hidden_size": DIM,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "num_hidden_layers": 4,
}
LINEAR = {
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 12,
}
LATENT = {"kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 6}
KIMI = LATENT | {"linear_head_dim": 8, "linear_num_heads": 4}
CASES = {
    "Qwen3-Next": ("qwen3_next", "Qwen3NextConfig", "Qwen3NextGatedDeltaNet", LINEAR),
    "Qwen3.5": ("qwen3_5", "Qwen3_5TextConfig", "Qwen3_5GatedDeltaNet", LINEAR),
    "OLMo hybrid": ("olmo_hybrid", "OlmoHybridConfig", "OlmoHybridGatedDeltaNet", LINEAR),
    "Kimi Linear": ("kimi_linear", "KimiLinearConfig", "KimiLinearDeltaAttention", KIMI),
}
COLUMNS = pytest.mark.parametrize(
    "column", [torch_column, jax_column], ids=["torch", "jax"]
)
NAMES = pytest.mark.parametrize("name", CASES)


def case_of(name):
    """The configuration, the layer of transformers, and its weights under the whole model's names."""
    family, config, kind, options = CASES[name]
    config = getattr(transformers, config)(**SIZES | options)
    module = import_module(f"transformers.models.{family}.modeling_{family}")
    torch.manual_seed(0)
    layer = getattr(module, kind)(config, 0).eval()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(0.2 * torch.randn_like(parameter))
    place = "self_attn" if name == "Kimi Linear" else "linear_attn"
    state = {f"model.layers.0.{place}.{n}": w for n, w in layer.state_dict().items()}
    return config, layer, state


def ours_of(column, config, state):
    """Our layer, and what makes its arrays of tensors."""
    own = (lambda x: x) if column is torch_column else lambda x: jnp.asarray(x.numpy())
    weights = {name: own(w) for name, w in state.items()}
    return column.DeltaAttention.from_config(config.to_dict(), weights=weights), own


def tokens(*shape):
    return torch.randn(*shape, DIM, generator=torch.Generator().manual_seed(1))


@COLUMNS
@NAMES
def test_a_prompt_with_left_padding_then_a_chunk_and_steps(column, name):
    config, theirs, state = case_of(name)
    ours, own = ours_of(column, config, state)
    x = tokens(2, N)
    seen = torch.ones(2, N, dtype=torch.bool)
    seen[1, :PAD] = False
    cache, their_cache = ours.init_cache((2,)), transformers.DynamicCache(config=config)
    for start, stop in [(0, 66), (66, 72), *((i, i + 1) for i in range(72, N))]:
        part = slice(start, stop)
        with torch.no_grad():
            mask = seen[:, part] if start == 0 else None
            want = theirs(x[:, part], cache=their_cache, attention_mask=mask)
            got, cache = ours(own(x[:, part]), mask=own(seen[:, part]), cache=cache)
        shown = seen[:, part].numpy()
        assert distance(np.asarray(got)[shown], want.numpy()[shown]) < AGREE


@COLUMNS
@NAMES
def test_packed_documents_are_those_alone_where_the_class_leaks(column, name):
    config, theirs, state = case_of(name)
    ours, own = ours_of(column, config, state)
    x, cuts = tokens(1, N), [0, 20, 66, N]
    documents = torch.tensor([0] * 20 + [1] * 46 + [2] * (N - 66))[None]
    with torch.no_grad():
        alone = [theirs(x[:, a:b]) for a, b in pairwise(cuts)]
        packed = theirs(x)
        got = ours(own(x), documents=own(documents))
    alone = torch.cat(alone, 1).numpy()
    assert distance(np.asarray(got), alone) < AGREE
    assert distance(packed.numpy(), alone) > 0.01


@NAMES
def test_keys_of_length_a_thousandth(name):
    """The epsilon stands under the root: `F.normalize` would make them unit vectors."""
    config, theirs, state = case_of(name)
    with torch.no_grad():
        for key, weight in state.items():
            if "conv1d" in key:
                weight.mul_(1e-4)
        ours, _ = ours_of(torch_column, config, state)
        x = tokens(1, N)
        assert distance(ours(x).numpy(), theirs(x).numpy()) < AGREE


@NAMES
def test_gradients_are_those_of_the_class(name):
    config, theirs, state = case_of(name)
    ours, _ = ours_of(torch_column, config, state)
    x = tokens(1, N)
    slopes = []
    for layer in (theirs, ours):
        given = x.clone().requires_grad_()
        slopes.append(torch.autograd.grad(layer(given).square().sum(), given)[0].numpy())
    assert distance(*slopes) < 2e-5
