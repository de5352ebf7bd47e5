"""Train the decoders of several seeds at once in JAX, from the numbers that PyTorch's begin with."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.tree_util import keystr, tree_map_with_path

from posattn.jax import Decoder
from tests.nightly.studies import torch_training
from tests.nightly.studies.schemes import HEADS, WIDTH, Column


def fresh(scheme, vocab_size, layers, seeds):
    """A decoder whose arrays have an axis for the seeds in front."""
    twins = [torch_training.fresh(scheme, vocab_size, layers, seed) for seed in seeds]
    key = jax.random.key(0)
    made = Decoder.init(
        key, vocab_size, WIDTH, layers, HEADS, **scheme(Column("jax", key)), dtype="float32"
    )
    object.__setattr__(made, "embedding_scale", WIDTH**0.5)
    states = [twin.state_dict() for twin in twins]
    return tree_map_with_path(
        lambda path, array: jnp.stack([carried(path, array, state) for state in states]),
        made,
    )


def carried(path, array, state):
    """The numbers of one array, which PyTorch keeps under a name alike, and rotated if it is a projection."""
    name = keystr(path).lstrip(".").replace("[", ".").replace("]", "")
    if name in state:
        found = state[name]
    elif f"{name}.weight" in state:
        found = state[f"{name}.weight"]
    else:
        found = state[name.removesuffix("_weight") + ".weight"].T
    assert found.shape == array.shape, name
    return jnp.asarray(found.numpy(), array.dtype)


def rate(settings):
    """The learning rate as a function of the step, as in PyTorch."""

    def at(step):
        warm = jnp.minimum(1.0, (step + 1) / settings.warm_up)
        return settings.rate * warm * (1 + jnp.cos(jnp.pi * step / settings.steps)) / 2

    return at


def loss_of(decoder, tokens, targets):
    """The mean loss of the targets; where one is -1, nothing is asked."""
    wanted = targets[:, 1:]
    losses = optax.softmax_cross_entropy_with_integer_labels(
        decoder(tokens[:, :-1]), jnp.maximum(wanted, 0)
    )
    return jnp.where(wanted >= 0, losses, 0).sum() / (wanted >= 0).sum()


def train(decoders, batches, settings):
    """Train on the batches, one iterable for each seed; return decoders and losses `(seeds, steps)`."""
    first, second = settings.betas
    optimizer = optax.chain(
        optax.clip_by_global_norm(settings.norm),
        optax.adamw(rate(settings), b1=first, b2=second, weight_decay=settings.decay),
    )

    def step(decoder, state, tokens, targets):
        loss, slope = jax.value_and_grad(loss_of)(decoder, tokens, targets)
        change, state = optimizer.update(slope, state, decoder)
        return optax.apply_updates(decoder, change), state, loss

    step = jax.jit(jax.vmap(step), donate_argnums=(0, 1))
    state, losses = jax.vmap(optimizer.init)(decoders), []
    for arrays in zip(*batches, strict=True):
        tokens, targets = (
            np.stack(each).astype(np.int32) for each in zip(*arrays, strict=True)
        )
        decoders, state, loss = step(decoders, state, tokens, targets)
        losses.append(loss)
    return decoders, np.array(losses).T


def logits_of(decoder, size=32):
    """A function from tokens `(n_texts, n)` to the logits of each next token, a few texts at a time."""
    run = jax.jit(decoder)

    def logits(tokens):
        starts = range(0, len(tokens), size)
        return np.concatenate([run(tokens[i : i + size, :-1]) for i in starts])

    return logits
