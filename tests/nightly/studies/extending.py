"""Make a trained rotary decoder read texts four times as long, by every method, before and after tuning."""

import copy

from posattn.torch import Rotary, llama3, ntk_aware, position_interpolation, yarn
from tests.nightly.studies.schemes import HEAD_WIDTH
from tests.nightly.studies.settings import TUNED
from tests.nightly.studies.torch_training import logits_of, train

FACTOR = 4


def methods(trained_length):
    """The rotation of each method."""
    scaled = {"base": 10000.0, "factor": FACTOR}
    aware = scaled | {"trained_length": trained_length}
    frequencies, attention_factor = yarn(HEAD_WIDTH, **aware)
    return {
        "none": Rotary(),
        "position interpolation": Rotary(
            frequencies=position_interpolation(HEAD_WIDTH, **scaled)
        ),
        "NTK-aware": Rotary(frequencies=ntk_aware(HEAD_WIDTH, **scaled)),
        "YaRN": Rotary(frequencies=frequencies, attention_factor=attention_factor),
        "llama3": Rotary(frequencies=llama3(HEAD_WIDTH, **aware)),
    }


def extended(decoder, task, seed):
    """What the task measures under each method, before and after a short training on longer texts."""
    found = {}
    for name, rotate in methods(task.LENGTH).items():
        turned = copy.deepcopy(decoder)
        for block in turned.blocks:
            block.attention.rotate = rotate
        before = task.measure(logits_of(turned))
        train(turned, task.batches(seed, TUNED, times=FACTOR), TUNED)
        found[name] = {"before": before, "after": task.measure(logits_of(turned))}
    return found
