"""From what a configuration says of a layer to its rotation."""

from posattn import configs
from posattn.reference.position.axial import RotaryAxes
from posattn.reference.position.rotary import Rotary
from posattn.reference.validated import validated

__all__ = ["rope_from_config"]


@validated
def rope_from_config(
    config, *, layer: int = 0, length: int | None = None
) -> Rotary | RotaryAxes | None:
    """The rotation that a model's configuration asks for, with its scaling.

    What a configuration says, and what it may leave out, is decided in `posattn.configs`; nothing that
    changes attention is ever replaced by a default in silence.

    Args:
        config: a path to a `config.json`, a dictionary, a configuration of transformers, or a
            `posattn.configs.Plan`.
        layer: the number of the layer, from 0 on: some models rotate their layers differently.
        length: for how long a text, which matters to methods such as LongRoPE; within the trained length if
            not given.

    Returns:
        A `Rotary`, or a `RotaryAxes` where pairs rotate with time, height and width; None if the layer's
        queries and keys don't rotate.

    Raises:
        ValueError: if the configuration lacks something, contradicts itself or is not known, or the model
            has no such layer.

    Examples:
        >>> from posattn.reference import Rotary
        >>> config = {"model_type": "llama", "hidden_size": 8, "num_attention_heads": 2,
        ...     "num_hidden_layers": 1, "rope_theta": 10000.0}
        >>> rope_from_config(config) == Rotary(layout="half", frequencies=[1.0, 0.01])
        True
    """
    rope = configs.chosen(config, layer, length=length)[1].rope
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
