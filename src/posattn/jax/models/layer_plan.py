"""From what a configuration says of a layer to the arguments and weights of `MultiHeadAttention`."""

import math
from collections.abc import Mapping
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import DTypeLike

from posattn import configs
from posattn.configs.checkpoint import Checkpoint
from posattn.configs.gguf import GGUF, is_gguf
from posattn.configs.reading import chosen
from posattn.configs.weights import attention_weights, learned
from posattn.jax.attention.masks import Chunk, Window
from posattn.jax.models.head_norm import HeadNorm, Steps
from posattn.jax.position.alibi import ALiBi
from posattn.jax.position.axial import RotaryAxes
from posattn.jax.position.rotary import Rotary
from posattn.jax.position.t5 import T5Bias
from posattn.jax.validated import validated

__all__ = ["rope_from_config"]

PROJECTIONS = ("query", "key", "value", "output", "gate")
DRAWN = ("dim", "head_dim", "use_bias", "use_output_bias", "sinks", "gate", "dtype")
ROWS = 256  # of a file, read at a time


@validated
def rope_from_config(
    config, *, layer: int = 0, length: int | None = None
) -> Rotary | RotaryAxes | None:
    """The rotation that a model's configuration asks for, with its scaling.

    Twin of :func:`posattn.reference.rope_from_config`.

    Args:
        config: a path to a `config.json`, a dictionary, a configuration of transformers, or a
            `posattn.configs.Plan`.
        layer: the number of the layer, from 0 on: some models rotate their layers differently.
        length: for how long a text, which matters to methods such as LongRoPE; within the trained length if
            not given.

    Returns:
        A `Rotary`, or a `RotaryAxes` where pairs rotate with time, height and width; None if the layer's
        queries and keys don't rotate.

    Examples:
        >>> from posattn.jax import Rotary
        >>> config = {"model_type": "llama", "hidden_size": 8, "num_attention_heads": 2,
        ...     "num_hidden_layers": 1, "rope_theta": 10000.0}
        >>> rope_from_config(config) == Rotary(layout="half", frequencies=[1.0, 0.01])
        True
    """
    return rotation(chosen(config, layer, length=length)[1].rope)


def rotation(rope):
    """The rotation of a plan."""
    if rope is None:
        return None
    if rope.sections:
        return RotaryAxes(
            rope.axis_frequencies,
            layout=rope.layout,
            attention_factor=rope.attention_factor,
        )
    return Rotary(
        layout=rope.layout,
        frequencies=rope.frequencies,
        attention_factor=rope.attention_factor,
    )


def from_config(
    cls,
    config,
    layer: int = 0,
    *,
    weights=None,
    length: int | None = None,
    dtype: DTypeLike | None = None,
    rng: Array | None = None,
):
    """Make the attention of one layer of a model, from its configuration.

    Args:
        cls: the class of the layer.
        config: what `posattn.configs.plan` reads, or a plan.
        layer: the number of the layer, from 0 on.
        weights: of the whole model, with the names of transformers: arrays by name, a safetensors file,
            a folder of them, or a GGUF file. The layer's own are picked, split and copied; if not given,
            those of `config` where that is a GGUF file, and drawn otherwise.
        length: for how long a text, which matters to methods such as LongRoPE.
        dtype: of the weights; JAX's default one if not given.
        rng: a JAX key, where the weights are drawn from; key 0 if not given.

    Returns:
        The layer. Whether it hides the future is said in a call, as ever.

    Raises:
        ValueError: if the configuration is not clear or of a layer that the class does not build, or weights
            of the layer are missing or left over.
    """
    pairs = not hasattr(cls, "recurrent")
    plan, described = chosen(config, layer, length=length, pairs=pairs)
    rng = jax.random.key(0) if rng is None else rng
    state = state_of(weights, config)
    described = learned(described, plan, state)
    made = cls._of_layer(described, rng, dtype, state is not None)
    return made if state is None else made._loaded(state, plan, described.index)


def blank(cls, rng, options):
    """A layer whose weights are zeros."""
    rest = {name: x for name, x in options.items() if name not in DRAWN}

    def arrays():
        made = vars(cls.init(rng, **options))
        return {name: x for name, x in made.items() if isinstance(x, Array)}

    planned = jax.eval_shape(arrays)  # draws nothing
    return cls(**{name: zeros(x) for name, x in planned.items()}, **rest)


def arguments(layer, dtype=None):
    """What `MultiHeadAttention.init` takes for a layer of a plan."""
    norms = [
        None if norm is None else HeadNorm.init(norm, heads, layer.head_dim, dtype)
        for norm, heads in (
            (layer.query_norm, layer.num_heads),
            (layer.key_norm, layer.num_kv_heads),
            (layer.value_norm, layer.num_kv_heads),
        )
    ]
    rotate = rotation(layer.rope)
    if layer.query_norm is not None and layer.query_norm.after:
        rotate = Steps(rotate, norms[0], layer.temperature), Steps(rotate, norms[1])
        norms = [None, None, norms[2]]
    elif layer.temperature is not None:
        rotate = Steps(rotate, None, layer.temperature), rotate
    return layer.arguments() | {
        "query_norm": norms[0],
        "key_norm": norms[1],
        "value_norm": norms[2],
        "rotate": rotate,
        "mask": seen(layer),
        "dtype": dtype,
    }


def added(layer, rng, dtype=None):
    """What a layer adds to its scores by position."""
    bias = layer.bias
    if isinstance(bias, configs.Slopes):
        return ALiBi(layer.num_heads, dtype=dtype)
    if isinstance(bias, configs.Buckets):
        return T5Bias.init(
            rng,
            layer.num_heads,
            num_buckets=bias.count,
            max_distance=bias.max_distance,
            bidirectional=bias.bidirectional,
            dtype=dtype,
        )
    return None


def seen(layer):
    """The mask that always holds in a layer."""
    if layer.chunk is not None:
        return Chunk(layer.chunk)
    return None if layer.window is None else Window(layer.window)


def state_of(weights, config=None):
    """Arrays by name: those given, those of a file or folder, or of the configuration's GGUF file."""
    weights = config if weights is None and is_gguf(config) else weights
    if weights is None or isinstance(weights, Mapping):
        return weights
    return GGUF(weights) if is_gguf(weights) else Checkpoint(weights, stored)


def stored(buffer, dtype, count, offset):
    """An array of a file, which is not read before it is used."""
    return np.frombuffer(buffer, jnp.dtype(dtype), count, offset)


def taken(array, dtype, state):
    """JAX's own copy of an array; if that is on the disk, never hold more than a few of its rows twice."""
    if not isinstance(state, (Checkpoint, GGUF)):
        return jnp.asarray(array).astype(dtype)
    made = aligned(array.shape, dtype)
    for first in range(0, max(array.shape), ROWS):
        rows = np.s_[first : first + ROWS]
        rows = rows if array.strides[0] >= array.strides[-1] else (..., rows)
        made[rows] = array[rows]
        if isinstance(state, Checkpoint):
            state.release()
    return jax.device_put(made)


def aligned(shape, dtype):
    """Zeros that stand where JAX takes them over without a copy, and need no memory until then."""
    size = math.prod(shape) * dtype.itemsize
    raw = np.zeros(size + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + size].view(dtype).reshape(shape)


def undrawn(init):
    """What a function draws, as zeros."""
    structures = []

    def leaves():
        found, structure = jax.tree.flatten(init())
        structures.append(structure)
        return found

    planned = jax.eval_shape(leaves)
    return jax.tree.unflatten(structures[0], [zeros(x) for x in planned])


def zeros(like):
    """Zeros of a shape and a dtype, which take no memory before they are used."""
    return jax.device_put(aligned(like.shape, like.dtype))


def loaded(layer, state, plan, index):
    """A layer with weights out of those of its model."""
    described = plan.layers[index]
    new = {}
    for name, array in attention_weights(state, plan, index).items():
        part, _, kind = name.partition(".")
        if part in PROJECTIONS:
            field = f"{part}_{kind}"
            array = array.T if kind == "weight" else array
            new[field] = taken(array, getattr(layer, field).dtype, state)
        elif part == "indexer":
            own = taken(array.T, layer.query_weight.dtype, state)
            own = own + (described.key_norm.plus_one and "norm" in kind)
            index = replace(layer.indexer, **{kind.replace(".", "_"): own})
            layer = replace(layer, indexer=index)
        elif part == "sinks":
            new["sinks"] = taken(array, layer.sinks.dtype, state)
        elif part == "bias":
            table = taken(array, layer.bias.table.dtype, state)
            new["bias"] = replace(layer.bias, table=table)
        else:
            norm = norm_of(layer, part)
            old = getattr(norm, kind)
            plus = getattr(described, part).plus_one and kind == "weight"
            array = jnp.asarray(array).reshape(old.shape).astype(old.dtype) + plus
            layer = with_norm(layer, part, replace(norm, **{kind: array}))
    return replace(layer, **new)


def norm_of(layer, part):
    """The norm of queries or keys, before or after the rotation."""
    norm = getattr(layer, part)
    return norm if norm is not None else layer.rotate[part == "key_norm"].norm


def with_norm(layer, part, norm):
    """The layer with another norm of queries or keys."""
    if getattr(layer, part) is not None:
        return replace(layer, **{part: norm})
    pair = list(layer.rotate)
    pair[part == "key_norm"] = replace(pair[part == "key_norm"], norm=norm)
    return replace(layer, rotate=tuple(pair))
