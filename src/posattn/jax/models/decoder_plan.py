"""From what a configuration says of a decoder to a `Decoder`, and its weights."""

from dataclasses import is_dataclass, replace
from functools import partial

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import DTypeLike

from posattn.configs import decoders
from posattn.jax.models.block import Block, FeedForward, LayerEmbedding, Norm, gelu, silu
from posattn.jax.models.delta_layer import DeltaAttention
from posattn.jax.models.experts import Experts
from posattn.jax.models.latent import LatentAttention
from posattn.jax.models.layer_plan import (
    added,
    arguments,
    blank,
    loaded,
    state_of,
    taken,
    undrawn,
    zeros,
)
from posattn.jax.models.multi_head import MultiHeadAttention
from posattn.jax.position.learned import LearnedPositionalEncoding

__all__ = []


def quick_gelu(x):
    """What OpenAI used for GELU."""
    return x * jax.nn.sigmoid(1.702 * x)


BORROWED = "key_weight", "key_bias", "key_norm", "value_weight", "value_bias", "value_norm"
ACTIVATIONS = {
    "silu": silu,
    "relu": jax.nn.relu,
    "gelu": partial(jax.nn.gelu, approximate=False),
    "gelu_tanh": gelu,
    "quick_gelu": quick_gelu,
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
    """Make a decoder from its configuration: Llama, Mistral, Qwen, Gemma, gpt-oss, GPT-2 and others.

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
        ValueError: if the configuration is not clear, its family is not among those that a `Decoder` can be,
            or weights are missing or left over.
    """
    model = decoders.decoder(config, length=length)
    dtype = jnp.result_type(float if dtype is None else dtype)
    state = state_of(weights, config)
    found = {} if state is None else decoders.sources(state, model)
    key = jax.random.key(0) if rng is None else rng
    keys = jax.random.split(key, len(model.plan.layers) + 1)
    # the largest arrays come first, and no more than one block is there twice
    made = filled(around(cls, model, keys[-1], dtype, state), found, state)
    blocks = []
    for index in range(len(model.plan.layers)):
        own = below(f"blocks.{index}.", found)
        block = block_of(model, index, keys[index], dtype, state)
        if model.mixes(index) and state is not None:
            block = replace(
                block, feed_forward=with_experts(block.feed_forward, own, state)
            )
        blocks.append(filled(block, own, state))
    return replace(made, blocks=tuple(blocks))


def block_of(model, index, key, dtype, state):
    """A block of the right shape, with attention that has its weights already."""
    layer, family = model.plan.layers[index], model.family
    own, other, bias, last = jax.random.split(key, 4)
    norm = partial(Norm.init, family.norm, layer.dim, model.eps, dtype)
    shape = {"activation": ACTIVATIONS[model.activation], "dtype": dtype}
    if model.mixes(index):
        network = partial(Experts.init, other, layer.dim, model.mixture, **shape)
    else:
        network = partial(
            FeedForward.init,
            other,
            layer.dim,
            model.hidden(index),
            gated=family.gated,
            use_bias=model.use_bias,
            **shape,
        )
    network = network() if state is None else undrawn(network)
    if layer.delta is not None or layer.latent is not None:
        kind = LatentAttention if layer.delta is None else DeltaAttention
        attention = kind.from_config(model.plan, index, weights=state, dtype=dtype, rng=own)
    else:
        options = arguments(layer, dtype) | {"bias": added(layer, bias, dtype)}
        if state is None:
            attention = MultiHeadAttention.init(own, **options)
        else:  # what is loaded anyway is not drawn first
            attention = blank(MultiHeadAttention, own, options)
            attention = loaded(attention, state, model.plan, index)
        if layer.kv_layer is not None:
            attention = replace(attention, **dict.fromkeys(BORROWED))
    layer_input = None
    width = model.layer_width
    if width:
        layer_input = FeedForward.init(
            last, layer.dim, width, gated=True, use_bias=False, **shape
        )
        layer_input = replace(layer_input, up_weight=None)
    return Block(
        attention,
        network,
        **{name: norm() for name in decoders.NORMS if name in model.parts(index)},
        parallel=model.parallel,
        residual_scale=model.residual_scale,
        lender=model.lender(index),
        layer_input=layer_input,
        layer_norm=norm() if width else None,
        scalar=jnp.ones(1, dtype) if "scalar" in model.parts(index) else None,
    )


def around(cls, model, key, dtype, state):
    """The decoder without its blocks."""

    def drawn(rng, *shape):
        if state is not None:
            return zeros(jax.ShapeDtypeStruct(shape, dtype))
        return 0.02 * jax.random.normal(rng, shape, dtype)

    dim, family = model.plan.layers[0].dim, model.family
    first, last, place, each = jax.random.split(key, 4)
    norm = Norm.init(family.norm, dim, model.eps, dtype)
    encoding = None
    if "encoding" in family.top:
        rows = model.plan.layers[0].table[1]
        encoding = LearnedPositionalEncoding.init(place, rows, dim, dtype=dtype)
    layered = None
    width = model.layer_width
    if width:
        sizes = model.vocab_size, len(model.plan.layers), dim, width, model.eps, dtype
        layered = partial(LayerEmbedding.init, each, *sizes)
        layered = layered() if state is None else undrawn(layered)
    return cls(
        drawn(first, model.vocab_size, dim),
        (),
        norm,
        None if model.tied else drawn(last, dim, model.vocab_size),
        encoding,
        norm if "embedding_norm" in family.top else None,
        float(jnp.dtype(dtype).type(model.embedding_scale)),
        model.logit_scale,
        model.logit_cap,
        layered,
    )


def with_experts(mixture, found, state):
    """A mixture whose experts have the weights of a checkpoint, which keeps each by itself or all in one."""
    one = jax.tree.map(lambda array: array[0], mixture.experts)
    each = [
        filled(one, below(f"feed_forward.experts.{index}.", found), state)
        for index in range(mixture.mixture.count)
    ]
    return replace(mixture, experts=jax.tree.map(lambda *arrays: jnp.stack(arrays), *each))


def below(prefix, found):
    """The sources whose names begin with a prefix, by what follows it."""
    return {n.removeprefix(prefix): one for n, one in found.items() if n.startswith(prefix)}


def filled(part, found, state):
    """A decoder or a part of it with its weights, but for what is in several blocks or experts."""
    for name, source in found.items():
        if not name.startswith(("blocks.", "feed_forward.experts.")):
            part = with_array(part, name, source, state)
    return part


def with_array(part, name, source, state):
    """A part that has the array of this name from a checkpoint."""
    first, _, rest = name.partition(".")
    inner = getattr(part, first, None)
    if is_dataclass(inner):
        return replace(part, **{first: with_array(inner, rest, source, state)})
    field = first if isinstance(inner, Array) else name.replace(".", "_")
    old = getattr(part, field)
    # kept as `x @ weight` needs it
    rotated = field == "head" or field.endswith("_weight")
    array = decoders.read(state, source, old.shape[::-1] if rotated else old.shape)
    array = taken(array.T if rotated else array, old.dtype, state)
    return replace(part, **{field: array})
