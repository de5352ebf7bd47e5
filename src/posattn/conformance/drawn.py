"""Random weights of a decoder by the names of transformers, with sharp attention."""

import numpy as np

from posattn.configs.decoders import sources
from posattn.configs.weights import NAMES, arrays

__all__ = ["SHARP", "drawn"]

BARE = "bloom", "gpt2"  # whose released files have no root
SHARP = 3.0  # the standard deviation of scores: with fresh weights attention is nearly even


class Anything:
    """A checkpoint that has every array whose name begins in one of some ways."""

    def __init__(self, starts):
        self.starts = starts

    def __contains__(self, name):
        return name.startswith(self.starts) and ".language_model" not in name

    def __iter__(self):
        return iter(())


def drawn(model, rng):
    """Draw the weights of a `configs.decoders.Model`, NumPy arrays in float32 by name; needs PyTorch."""
    from posattn.torch import Decoder
    from posattn.torch.models.decoder_plan import empty

    made = empty(Decoder, model, None, device="meta")
    own = dict(made.named_parameters()) | dict(made.named_buffers())
    root = next(r for r in NAMES[model.plan.model_type].roots if "language" not in r)
    found = {}
    for ours, source in sources(Anything((root, *model.family.head)), model).items():
        rows, *rest = shape = tuple(own[ours].shape)
        mean, deviation = spread(ours, shape, model)
        if source.half is not None:
            shape = 2 * rows, *rest
        shape = shape[::-1] if source.transposed else shape
        shape = shape if source.index is None else (model.mixture.count, *shape)
        found[source.name] = rng.normal(mean - source.plus, deviation, shape)
    for layer in model.plan.layers:
        for name, (shape, transposed, cut) in arrays(model.plan, layer.index, root).items():
            mean, deviation = np.zeros(shape), np.ones(shape)
            for role, rows in cut(np.arange(shape[0])).items():
                mean[rows], deviation[rows] = attention_spread(layer, role, shape)
            array = rng.normal(mean, deviation)
            found[name] = array.T if transposed else array
    root = root if model.plan.model_type in BARE else ""
    return {
        k.removeprefix(root): np.ascontiguousarray(x, np.float32) for k, x in found.items()
    }


def spread(ours, shape, model):
    """Mean and standard deviation of an array around the attention."""
    *_, part, kind = ours.split(".")
    if "norm" in part:
        return float(kind == "weight"), 0.2
    if part == "embedding":  # as large in the stream as what a layer adds
        return 0.0, model.residual_scale / model.embedding_scale
    return 0.0, 0.2 if len(shape) == 1 or part == "encoding" else shape[-1] ** -0.5


def attention_spread(layer, role, shape):
    """Mean and standard deviation of a role's rows; a norm that would undo sharp ones is sharp itself."""
    part, _, kind = role.partition(".")
    if part == "sinks":
        return 0.0, 1.0
    learned = getattr(layer, f"{part}_norm", None)
    sharp = (SHARP / (layer.scale * layer.head_dim**0.5)) ** 0.5
    if part.removesuffix("_norm") not in ("query", "key") or (learned and learned.learned):
        sharp = 1.0
    if part.endswith("_norm"):
        mean = (sharp - getattr(layer, part).plus_one) * (kind == "weight")
        return mean, 0.2 * sharp
    return 0.0, sharp * (0.2 if kind == "bias" else shape[-1] ** -0.5)
