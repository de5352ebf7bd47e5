"""Training: schemes learn to copy, in both frameworks along the same curve from the same numbers."""

import jax
import numpy as np
import torch

from tests.conftest import TWINS, draw

VOCABULARY, LENGTH, DIM, HEADS, STEPS = 5, 4, 16, 2, 150
N = 2 * LENGTH
WEIGHTS = {
    "embed": 0.5 * draw(950, VOCABULARY, DIM),
    **{f"w{i}": 0.3 * draw(951 + i, DIM, DIM) for i in range(4)},
    "read": 0.2 * draw(955, DIM, VOCABULARY),
}
COPE = {"table": 0.3 * draw(960, N, 8)}


def cope_and_rotary(column, parameters):
    """A bias that learns, and a rotation."""
    bias = column.with_parameters("CoPE", parameters, N, 8)
    return {"bias": bias, "rotate": column.Rotary(base=50.0, layout="half")}


def batch(step):
    """Sequences that say the same twice, as rows of an identity matrix."""
    half = np.random.default_rng(step).integers(VOCABULARY, size=(16, LENGTH))
    return np.eye(VOCABULARY)[np.concatenate([half, half], axis=1)]


def loss(column, parameters, tokens):
    """How far one layer is from the next token, where the past tells it."""
    options = cope_and_rotary(column, {"table": parameters["table"]})
    x = tokens @ parameters["embed"]
    layer = column.multi_head([parameters[f"w{i}"] for i in range(4)], HEADS, **options)
    guess = (x + layer(x, x, x, causal=True)) @ parameters["read"]
    return ((guess[:, LENGTH - 1 : -1] - tokens[:, LENGTH:]) ** 2).sum(-1).mean()


def slopes_of(column):
    """The loss and its gradients, of NumPy arrays."""
    if column.name == "jax":
        run = jax.jit(jax.value_and_grad(lambda p, x: loss(column, p, x)))
        return lambda p, x: jax.tree.map(np.asarray, run(p, x))

    def run(parameters, tokens):
        leaves = {k: torch.tensor(v, requires_grad=True) for k, v in parameters.items()}
        value = loss(column, leaves, torch.tensor(tokens))
        slopes = torch.autograd.grad(value, list(leaves.values()))
        return value.item(), {k: g.numpy() for k, g in zip(leaves, slopes, strict=True)}

    return run


def curve(column):
    """The losses of training with momentum."""
    parameters = {**WEIGHTS, **COPE}
    speed = {k: np.zeros_like(v) for k, v in parameters.items()}
    with column.mode():
        slopes, losses = slopes_of(column), []
        for step in range(STEPS):
            value, gradient = slopes(parameters, batch(step))
            losses.append(float(value))
            speed = {k: 0.9 * speed[k] - 0.1 * gradient[k] for k in speed}
            parameters = {k: parameters[k] + speed[k] for k in parameters}
    return np.array(losses)


def test_a_scheme_learns_along_one_curve(unchecked):
    in_torch, in_jax = (curve(column) for column in TWINS[:2])
    assert np.abs(in_torch - in_jax).max() < 1e-9
    assert in_torch[-10:].mean() < 0.2 * in_torch[:10].mean()
