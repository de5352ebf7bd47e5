"""Glossary."""

from inspect import signature

import numpy as np
from torch.nn.functional import cross_entropy

from posattn.reference import attention_weights


def test_pytorch_ignores_the_target_minus_100():
    assert signature(cross_entropy).parameters["ignore_index"].default == -100


def test_weights_sum_to_one_or_zero():
    x = np.random.default_rng(0).normal(size=(3, 3))
    mask = np.array([[True, True, False], [False] * 3, [True] * 3])
    assert np.allclose(attention_weights(x, x, mask=mask).sum(axis=-1), [1, 0, 1])
