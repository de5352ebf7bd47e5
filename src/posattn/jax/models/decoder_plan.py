"""From what a configuration says of a dense decoder to a `Decoder`, and its weights."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import DTypeLike

from posattn import contract
from posattn.configs import decoders
from posattn.jax.attention.random import is_key
from posattn.jax.models.block import Block, FeedForward, Norm, gelu, silu
from posattn.jax.models.layer_plan import (
    added,
    aligned,
    arguments,
    blank,
    blanks,
    loaded,
    state_of,
    taken,
)
from posattn.jax.models.multi_head import MultiHeadAttention
from posattn.jax.position.learned import LearnedPositionalEncoding

__all__ = []

ACTIVATIONS = {
    "silu": silu,
    "relu": jax.nn.relu,
    "gelu": partial(jax.nn.gelu, approximate=False),
    "gelu_tanh": gelu,
}


def from_config(
    cls,
    config,
    *,
    weights=None,
    length: int | None = None,
    dtype: DTypeLike | None = None,
    rng: Array | None = None,
):
    """Make a dense decoder from its configuration: Llama, Mistral, Qwen, Gemma, GPT-2 and others.

    Args:
        cls: the class of the decoder.
        config: the path of a `config.json` or of its folder, or of a `.gguf` file, the content of the first,
            or a configuration of transformers.
        weights: with the names of transformers: arrays by name, a safetensors file, a folder of them, or a
            GGUF file; if not given, those of `config` where that is a GGUF file, and drawn otherwise.
        length: for how long a text, which matters to methods such as LongRoPE.
        dtype: of the weights; JAX's default one if not given.
        rng: a JAX key, where the weights are drawn from; key 0 if not given.

    Returns:
        The decoder.

    Raises:
        TypeError: if an argument is not of its kind.
        ValueError: if the configuration is not clear, its family is not among those that a `Decoder` can be,
            or weights are missing or left over.
    """
    contract.rng(rng, rng is None or is_key(rng), "JAX key")
    model = decoders.decoder(config, length=length)
    dtype = jnp.result_type(float if dtype is None else dtype)
    state = state_of(weights, config)
    found = {} if state is None else decoders.sources(state, model)
    key = jax.random.key(0) if rng is None else rng
    keys = jax.random.split(key, len(model.plan.layers) + 1)
    # the largest arrays come first, and no more than one block is there twice
    made, blocks = filled(around(cls, model, keys[-1], dtype, state), "", found, state), []
    for index in range(len(model.plan.layers)):
        block = block_of(model, index, keys[index], dtype, state)
        blocks.append(filled(block, f"blocks.{index}.", found, state))
    return replace(made, blocks=tuple(blocks))


def block_of(model, index, key, dtype, state):
    """A block of the right shape, with attention that has its weights already."""
    layer, family = model.plan.layers[index], model.family
    own, other, bias = jax.random.split(key, 3)
    options = arguments(layer, dtype) | {"bias": added(layer, bias, dtype)}
    activation = ACTIVATIONS[model.activation]
    network = partial(
        FeedForward.init,
        other,
        layer.dim,
        model.hidden_dim,
        gated=family.gated,
        activation=activation,
        use_bias=model.use_bias,
        dtype=dtype,
    )
    if state is None:
        attention, network = MultiHeadAttention.init(own, **options), network()
    else:  # what is loaded anyway is not drawn first
        attention = blank(MultiHeadAttention, own, options)
        attention = loaded(attention, state, model.plan, index)
        network = FeedForward(**blanks(network), activation=activation)
    norms = {
        name: Norm.init(family.norm, layer.dim, model.eps, dtype)
        for name in decoders.NORMS
        if name in family.layer
    }
    return Block(attention, network, **norms, parallel=model.parallel)


def around(cls, model, key, dtype, state):
    """The decoder without its blocks."""

    def drawn(rng, *shape):
        if state is not None:
            return jax.device_put(aligned(shape, dtype))
        return 0.02 * jax.random.normal(rng, shape, dtype)

    dim, family = model.plan.layers[0].dim, model.family
    first, last, place = jax.random.split(key, 3)
    norm = Norm.init(family.norm, dim, model.eps, dtype)
    encoding = None
    if "encoding" in family.top:
        rows = model.plan.layers[0].table[1]
        encoding = LearnedPositionalEncoding.init(place, rows, dim, dtype=dtype)
    return cls(
        drawn(first, model.vocab_size, dim),
        (),
        norm,
        None if model.tied else drawn(last, dim, model.vocab_size),
        encoding,
        norm if "embedding_norm" in family.top else None,
        jnp.asarray(model.embedding_scale, dtype).item(),
        model.logit_cap,
    )


def filled(part, prefix, found, state):
    """A block or a decoder with the weights whose names begin with a prefix."""
    for name, source in found.items():
        owner, _, field = name.removeprefix(prefix).rpartition(".")
        if not name.startswith(prefix) or owner.startswith("blocks."):
            continue
        path = owner.split(".")
        if path[0] == "feed_forward":
            path, field = path[:1], f"{path[1]}_{field}"
        elif path[0] in ("embedding", "head"):
            path, field = [], path[0]
        layer = getattr(part, path[0]) if path else part
        old = getattr(layer, field)
        # kept as `x @ weight` needs it
        rotated = field == "head" or field.endswith("_weight")
        array = decoders.read(state, source, old.shape[::-1] if rotated else old.shape)
        array = taken(array.T if rotated else array, old.dtype, state)
        layer = replace(layer, **{field: array})
        part = replace(part, **{path[0]: layer}) if path else layer
    return part
