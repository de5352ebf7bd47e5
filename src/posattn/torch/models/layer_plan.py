"""From what a configuration says of a layer to the arguments and weights of `MultiHeadAttention`."""

from collections.abc import Mapping

import torch

from posattn import configs
from posattn.configs.checkpoint import Checkpoint
from posattn.configs.gguf import GGUF, is_gguf
from posattn.configs.reading import chosen
from posattn.configs.weights import attention_weights, learned
from posattn.torch.attention.masks import Chunk, Window
from posattn.torch.models.head_norm import HeadNorm, Steps
from posattn.torch.position.alibi import ALiBi
from posattn.torch.position.axial import RotaryAxes
from posattn.torch.position.rotary import Rotary
from posattn.torch.position.t5 import T5Bias
from posattn.torch.validated import validated

__all__ = ["rope_from_config"]

PROJECTIONS = ("query", "key", "value", "output", "gate")
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
        >>> from posattn.torch import Rotary
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
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
    rng: torch.Generator | None = None,
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
        dtype: of the weights; PyTorch's default one if not given.
        device: of the weights.
        rng: where the weights are drawn from.

    Returns:
        The layer. Whether it hides the future is said in a call, as ever.

    Raises:
        ValueError: if the configuration is not clear or of a layer that the class does not build, or weights
            of the layer are missing or left over.
    """
    pairs = not hasattr(cls, "recurrent")
    plan, described = chosen(config, layer, length=length, pairs=pairs)
    state = state_of(weights, config)
    described = learned(described, plan, state)
    made = cls._of_layer(described, dtype=dtype, device=device, rng=rng)
    if state is not None:
        made._load(state, plan, described.index)
    return made


def arguments(layer, **options):
    """What `MultiHeadAttention` is made with for a layer of a plan; `options` are dtype and device."""
    norms = [
        None if norm is None else HeadNorm(norm, heads, layer.head_dim, **options)
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
        "bias": added(layer, **options),
        "mask": seen(layer),
        **options,
    }


def added(layer, dtype=None, device=None):
    """What a layer adds to its scores by position."""
    bias = layer.bias
    if isinstance(bias, configs.Slopes):
        return ALiBi(layer.num_heads, dtype=dtype)
    if isinstance(bias, configs.Buckets):
        return T5Bias(
            layer.num_heads,
            num_buckets=bias.count,
            max_distance=bias.max_distance,
            bidirectional=bias.bidirectional,
            dtype=dtype,
            device=device,
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
    if is_gguf(weights):
        return GGUF(weights, torch.from_numpy)
    return Checkpoint(weights, stored)


def stored(buffer, dtype, count, offset):
    """An array of a file, which is not read before it is used."""
    dtype = getattr(torch, dtype)
    return torch.frombuffer(buffer, dtype=dtype, count=count, offset=offset)


def fill(own, array, state):
    """Copy an array into a parameter; if it is on the disk, never hold more than a few of its rows."""
    if not isinstance(state, Checkpoint):
        own.copy_(array)
        return
    for rows, found in zip(own.split(ROWS), array.split(ROWS), strict=True):
        rows.copy_(found)
        state.release()


@torch.no_grad()
def load(module, state, plan, index):
    """Copy the weights of a layer out of those of its model."""
    layer = plan.layers[index]
    for name, array in attention_weights(state, plan, index).items():
        part, _, kind = name.partition(".")
        if part in PROJECTIONS:
            fill(getattr(module.get_submodule(part), kind), array, state)
        elif part == "indexer":
            own = module.indexer.get_parameter(kind)
            fill(own, array, state)
            own += layer.key_norm.plus_one and "norm" in kind
        elif part == "sinks":
            fill(module.sinks, array, state)
        elif part == "bias":
            fill(module.bias.table, array, state)
        else:
            norm, described = norm_of(module, part), getattr(layer, part)
            own = getattr(norm, kind)
            own.copy_(array.reshape(own.shape) + (described.plus_one and kind == "weight"))


def norm_of(module, part):
    """The norm of queries or keys, before or after the rotation."""
    norm = getattr(module, part)
    return norm if norm is not None else module.rotate[part == "key_norm"].norm
