"""From what a configuration says of a decoder to a `Decoder`, and its weights."""

from functools import partial

import torch
from torch import nn

from posattn.configs import decoders
from posattn.torch.models.block import FeedForward, LayerEmbedding, gelu, norm_of, silu
from posattn.torch.models.delta_layer import DeltaAttention
from posattn.torch.models.experts import Experts
from posattn.torch.models.latent import LatentAttention
from posattn.torch.models.layer_plan import arguments, load, state_of
from posattn.torch.models.multi_head import MultiHeadAttention
from posattn.torch.position.learned import LearnedPositionalEncoding

__all__ = []


def quick_gelu(x):
    """What OpenAI used for GELU."""
    return x * torch.sigmoid(1.702 * x)


ACTIVATIONS = {
    "silu": silu,
    "relu": nn.functional.relu,
    "gelu": nn.functional.gelu,
    "gelu_tanh": gelu,
    "quick_gelu": quick_gelu,
}


def from_config(
    cls,
    config,
    *,
    weights=None,
    length: int | None = None,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
    rng: torch.Generator | None = None,
):
    """Make a decoder from its configuration: Llama, Mistral, Qwen, Gemma, gpt-oss, GPT-2 and others.

    Args:
        cls: the class of the decoder.
        config: the path of a `config.json` or of its folder, or of a `.gguf` file, the content of the first,
            or a configuration of transformers.
        weights: with the names of transformers: arrays by name, a safetensors file, a folder of them, or a
            GGUF file; if not given, those of `config` where that is a GGUF file, and drawn otherwise.
        length: for how long a text, which matters to methods such as LongRoPE.
        dtype: of the weights; PyTorch's default one if not given.
        device: of the weights.
        rng: where the weights are drawn from.

    Returns:
        The decoder.

    Raises:
        ValueError: if the configuration is not clear, its family is not among those that a `Decoder` can be,
            or weights are missing or left over.
    """
    model = decoders.decoder(config, length=length)
    device = torch.get_default_device() if device is None else device
    # what is loaded anyway is not drawn first
    state = state_of(weights, config)
    made = empty(
        cls,
        model,
        rng if state is None else None,
        dtype=dtype,
        device=device if state is None else "meta",
    )
    if state is not None:
        made.to_empty(device=device)
        fill(made, model, state)
    return made


def empty(cls, model, rng, **options):
    """A decoder of the right shape."""
    layers, family = model.plan.layers, model.family
    first, dim = layers[0], layers[0].dim
    activation = ACTIVATIONS[model.activation]
    norm = partial(norm_of, family.norm, dim, model.eps, **options)
    network = partial(FeedForward, dim, activation=activation, **options)
    encoding = None
    if "encoding" in family.top:
        encoding = LearnedPositionalEncoding(first.table[1], dim, **options, rng=rng)
    made = cls(
        model.vocab_size,
        dim,
        len(layers),
        first.num_heads,
        hidden_dim=model.hidden_dim,
        gated=family.gated,
        activation=activation,
        use_bias=model.use_bias,
        tied=model.tied,
        encoding=encoding,
        layer_options=lambda index: layer_of(model.plan, index, rng, options),
        **options,
        rng=rng,
    )
    made.norm = norm()
    width = model.layer_width
    if width:
        made.layer_embedding = LayerEmbedding(
            model.vocab_size, len(layers), dim, width, model.eps, **options
        )
        made.layer_embedding.reset_parameters(rng)
    for index, block in enumerate(made.blocks):
        block.parallel = model.parallel
        block.residual_scale = model.residual_scale
        block.lender = model.lender(index)
        if model.mixes(index):
            block.feed_forward = Experts(dim, model.mixture, activation, **options)
            block.feed_forward.reset_parameters(rng)
        elif model.hidden(index) != model.hidden_dim:
            block.feed_forward = network(
                model.hidden(index), gated=family.gated, use_bias=model.use_bias
            )
            block.feed_forward.reset_parameters(rng)
        for name in decoders.NORMS:
            setattr(block, name, norm() if name in model.parts(index) else None)
        if width:
            block.layer_input = network(width, gated=True, use_bias=False)
            block.layer_input.reset_parameters(rng)
            block.layer_input.up = None
            block.layer_norm = norm()
        if "scalar" in model.parts(index):
            block.scalar = torch.ones(1, **options)
        if layers[index].kv_layer is not None:
            for name in ("key", "value", "key_norm", "value_norm"):
                setattr(block.attention, name, None)
    if "embedding_norm" in family.top:
        made.embedding_norm = norm()
    scale = torch.tensor(model.embedding_scale, dtype=made.embedding.weight.dtype)
    made.embedding_scale = scale.item()
    made.logit_scale, made.logit_cap = model.logit_scale, model.logit_cap
    return made


def layer_of(plan, index, rng, options):
    """The options of `MultiHeadAttention`, or the layer of another kind, without weights of a model."""
    layer = plan.layers[index]
    if layer.delta is None and layer.latent is None:
        return arguments(layer, **options)
    kind = LatentAttention if layer.delta is None else DeltaAttention
    return kind.from_config(plan, index, **options, rng=rng)


@torch.no_grad()
def fill(made, model, state):
    """Copy the weights of a model."""
    own = dict(made.named_parameters()) | dict(made.named_buffers())
    for name, source in decoders.sources(state, model).items():
        own[name].copy_(decoders.read(state, source, own[name].shape))
    like = {"dtype": made.embedding.weight.dtype, "device": made.embedding.weight.device}
    for index, block in enumerate(made.blocks):
        if isinstance(block.attention, MultiHeadAttention):
            load(block.attention, state, model.plan, index)
        else:
            kind = type(block.attention)
            block.attention = kind.from_config(model.plan, index, weights=state, **like)
