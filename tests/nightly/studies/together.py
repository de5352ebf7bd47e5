"""All seeds of a scheme at once, in JAX: where there is a GPU, as fast there as one of them."""

import jax

from tests.nightly.studies import jax_training, schemes
from tests.nightly.studies.cells import CURVE, LAYERS, TASKS, TRAINED, rounded


def run(task, scheme, seeds, layers=LAYERS):
    """Train a decoder from each seed and measure it; return the cells' entries, without extensions."""
    module, trained = TASKS[task], TRAINED[task]
    made = jax_training.fresh(
        getattr(schemes, scheme), len(module.VOCABULARY), layers, seeds
    )
    batches = [module.batches(seed, trained) for seed in seeds]
    made, losses = jax_training.train(made, batches, trained)
    entries = []
    for index, curve in enumerate(losses):
        one = jax.tree.map(lambda array, index=index: array[index], made)
        entry = {"curve": curve.reshape(-1, CURVE).mean(axis=1).tolist()}
        entry |= module.measure(jax_training.logits_of(one))
        entries.append(rounded(entry))
    return entries
