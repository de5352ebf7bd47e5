"""Ways to read further than in training: the rotation that each gives to every layer."""

from posattn.torch import (
    Rotary,
    frequencies,
    llama3,
    ntk_aware,
    position_interpolation,
    yarn,
)

WIDTH, TRAINED = 64, 8192
SCALED = {"base": 100000.0, "factor": 2.0}


def rotary(frequencies, attention_factor=1.0):
    """A rotation by these frequencies."""
    return Rotary(layout="half", frequencies=frequencies, attention_factor=attention_factor)


SLOWED, SHARPER = yarn(WIDTH, **SCALED, trained_length=TRAINED)
METHODS = {
    "nothing": rotary(frequencies(WIDTH, base=SCALED["base"])),
    "YaRN": rotary(SLOWED, SHARPER),
    "position interpolation": rotary(position_interpolation(WIDTH, **SCALED)),
    "YaRN without its factor": rotary(SLOWED),
    # dynamic NTK with factor 1 does the same, in one pass over twice the length
    "NTK-aware": rotary(ntk_aware(WIDTH, **SCALED)),
    "llama3": rotary(llama3(WIDTH, **SCALED, trained_length=TRAINED)),
}
FAR = {"base": 100000.0, "factor": 4.0}
METHODS |= {
    "YaRN by 4": rotary(*yarn(WIDTH, **FAR, trained_length=TRAINED)),
    "NTK-aware by 4": rotary(ntk_aware(WIDTH, **FAR)),
    "llama3 by 4": rotary(llama3(WIDTH, **FAR, trained_length=TRAINED)),
    "position interpolation by 4": rotary(position_interpolation(WIDTH, **FAR)),
}
