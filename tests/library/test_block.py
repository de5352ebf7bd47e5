"""Parts of a decoder: the norms, the feed-forward network, and the block that adds them up."""

import dataclasses

import numpy as np
import pytest
import torch

from posattn.jax.models import block as jax_block
from posattn.reference.models import block as reference_block
from posattn.torch.models import block as torch_block
from tests.conftest import assert_close, draw

BLOCKS = {"reference": reference_block, "torch": torch_block, "jax": jax_block}
DIM, HIDDEN = 4, 6
NETWORK = {"gated": False, "activation": None, "use_bias": False}


def norm_of(column, kind, eps):
    made = {
        "reference": lambda: reference_block.Norm.init(kind, DIM, eps),
        "torch": lambda: torch_block.norm_of(kind, DIM, eps, dtype=torch.float64),
        "jax": lambda: jax_block.Norm.init(kind, DIM, eps, column.dtype),
    }
    return made[column.name]()


@pytest.mark.parametrize("kind", ["rms", "layer"])
def test_a_norm_divides_by_the_root_of_the_mean_square(column, kind):
    x, eps = draw(1, 3, DIM), 0.5
    centered = x - x.mean(-1, keepdims=True) if kind == "layer" else x
    want = centered / np.sqrt((centered**2).mean(-1, keepdims=True) + eps)
    assert_close(column, norm_of(column, kind, eps)(column.array(x)), want)


def test_activations_are_those_of_the_field(column):
    x = np.linspace(-6, 6, 25)
    theirs = torch.nn.functional
    for name, options in {"silu": {}, "gelu": {"approximate": "tanh"}}.items():
        got = getattr(BLOCKS[column.name], name)(column.array(x))
        assert_close(column, got, getattr(theirs, name)(torch.tensor(x), **options).numpy())


def block_of(column):
    """A block without norms."""
    sizes = DIM, 2
    if column.name == "torch":
        network = torch_block.FeedForward(DIM, HIDDEN, **NETWORK, dtype=torch.float64)
        network.reset_parameters(column.rng())
        attention = column.MultiHeadAttention(*sizes, dtype=torch.float64)
        return torch_block.Block(attention, network, None, None)
    module = BLOCKS[column.name]
    dtype = {"dtype": column.dtype} if column.name == "jax" else {}
    network = module.FeedForward.init(column.rng(), DIM, HIDDEN, **NETWORK, **dtype)
    attention = column.MultiHeadAttention.init(column.rng(), *sizes, **dtype)
    return module.Block(attention, network)


def changed(block, **options):
    if not isinstance(block, torch.nn.Module):
        return dataclasses.replace(block, **options)
    for name, value in options.items():
        setattr(block, name, value)
    return block


@pytest.mark.parametrize("parallel", [False, True])
def test_a_block_adds_what_its_parts_make_of_the_stream(column, parallel):
    norms = {
        "attention_norm": norm_of(column, "rms", 0.1),
        "feed_forward_norm": norm_of(column, "layer", 0.2),
        "attention_post_norm": norm_of(column, "layer", 0.3),
        "feed_forward_post_norm": norm_of(column, "rms", 0.4),
    }
    block = changed(block_of(column), parallel=parallel, **norms)
    x = column.array(draw(2, 2, 3, DIM))
    heads = block.attention(norms["attention_norm"](x), causal=True)
    heads = norms["attention_post_norm"](heads)
    fed = block.feed_forward(norms["feed_forward_norm"](x if parallel else x + heads))
    want = x + heads + norms["feed_forward_post_norm"](fed)
    got, cache = block(x)
    assert cache is None
    assert_close(column, got, column.numpy(want))


def test_without_norms_the_parts_read_the_stream_as_it_is(column):
    block, x = block_of(column), column.array(draw(3, 3, DIM))
    heads = block.attention(x, causal=True)
    assert_close(
        column, block(x)[0], column.numpy(x + heads + block.feed_forward(x + heads))
    )
