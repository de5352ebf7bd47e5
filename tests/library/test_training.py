"""Training: schemes learn to copy, in both frameworks along the same curve from the same numbers."""

import jax
import numpy as np
import pytest
import torch

from tests.conftest import TWINS, draw

VOCABULARY, LENGTH, DIM, HEADS, STEPS = 5, 4, 16, 2, 150
N = 2 * LENGTH
WEIGHTS = {
    "embed": 0.5 * draw(950, VOCABULARY, DIM),
    **{f"w{i}": 0.3 * draw(951 + i, DIM, DIM) for i in range(4)},
    "read": 0.2 * draw(955, DIM, VOCABULARY),
}
TABLE = {"table": 0.3 * draw(956, 32, HEADS)}
SHAW = {"key_table": 0.3 * draw(957, 17, 8), "value_table": 0.3 * draw(958, 17, 8)}
MUSIC = {"table": 0.3 * draw(959, HEADS, N, 8)}
COPE = {"table": 0.3 * draw(960, N, 8)}


def added(name, *sizes, **options):
    """A scheme that is a bias with parameters of its own."""
    return lambda c, p: {"bias": c.with_parameters(name, p, *sizes, **options)}


# by name: the parameters of the scheme, and what it makes of them: options of the layer, or an input
SCHEMES = {
    "learned": ({"table": 0.3 * draw(961, N, DIM)}, lambda c, p: {"input": p["table"]}),
    "rotary": ({}, lambda c, p: {"rotate": c.Rotary(base=50.0)}),
    "partial rotary and ALiBi": (
        {},
        lambda c, p: {"rotate": c.Rotary(rotary_dim=6, base=9.0), "bias": c.ALiBi(HEADS)},
    ),
    "xPos": ({}, lambda c, p: {"rotate": (c.xpos_query, c.xpos_key)}),
    "T5": (TABLE, added("T5Bias", HEADS)),
    "Shaw": (SHAW, added("ShawRelative", 8, 8)),
    "Music Transformer": (MUSIC, added("RelativeGlobalAttention", N, HEADS, 8)),
    "CoPE and rotary": (
        COPE,
        lambda c, p: (
            added("CoPE", N, 8)(c, p) | {"rotate": c.Rotary(base=50.0, layout="half")}
        ),
    ),
}


def batch(step):
    """Sequences that say the same twice, as rows of an identity matrix."""
    half = np.random.default_rng(step).integers(VOCABULARY, size=(16, LENGTH))
    return np.eye(VOCABULARY)[np.concatenate([half, half], axis=1)]


def loss(column, scheme, parameters, tokens):
    """How far one layer is from the next token, where the past tells it."""
    own = {k: v for k, v in parameters.items() if k not in WEIGHTS}
    options = scheme(column, own)
    x = tokens @ parameters["embed"]
    x = x + options.pop("input", 0)
    layer = column.multi_head([parameters[f"w{i}"] for i in range(4)], HEADS, **options)
    guess = (x + layer(x, x, x, causal=True)) @ parameters["read"]
    return ((guess[:, LENGTH - 1 : -1] - tokens[:, LENGTH:]) ** 2).sum(-1).mean()


def slopes_of(column, scheme):
    """The loss and its gradients, of NumPy arrays."""
    if column.name == "jax":
        run = jax.jit(jax.value_and_grad(lambda p, x: loss(column, scheme, p, x)))
        return lambda p, x: jax.tree.map(np.asarray, run(p, x))

    def run(parameters, tokens):
        leaves = {k: torch.tensor(v, requires_grad=True) for k, v in parameters.items()}
        value = loss(column, scheme, leaves, torch.tensor(tokens))
        slopes = torch.autograd.grad(value, list(leaves.values()))
        return value.item(), {k: g.numpy() for k, g in zip(leaves, slopes, strict=True)}

    return run


def curve(column, name):
    """The losses of training with momentum."""
    own, scheme = SCHEMES[name]
    parameters = {**WEIGHTS, **own}
    speed = {k: np.zeros_like(v) for k, v in parameters.items()}
    with column.mode():
        slopes, losses = slopes_of(column, scheme), []
        for step in range(STEPS):
            value, gradient = slopes(parameters, batch(step))
            losses.append(float(value))
            speed = {k: 0.9 * speed[k] - 0.1 * gradient[k] for k in speed}
            parameters = {k: parameters[k] + speed[k] for k in parameters}
    return np.array(losses)


@pytest.mark.slow
@pytest.mark.parametrize("name", SCHEMES)
def test_schemes_learn_to_copy_along_one_curve(unchecked, name):
    in_torch, in_jax = (curve(column, name) for column in TWINS[:2])
    assert np.abs(in_torch - in_jax).max() < 1e-9
    assert in_torch[-10:].mean() < 0.2 * in_torch[:10].mean()
