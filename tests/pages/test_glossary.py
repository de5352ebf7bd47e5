"""Glossary."""

from inspect import signature

import numpy as np
import pytest
from torch.nn.functional import cross_entropy

from posattn.reference import masked_softmax


def test_weights_sum_to_one_or_zero(page):
    """The weights of one query sum to 1, or to 0 if it may attend to nothing"""
    scores = np.random.default_rng(0).normal(size=(3, 3))
    mask = np.array([[True, True, False], [False] * 3, [True] * 3])
    assert masked_softmax(scores, mask).sum(axis=-1) == pytest.approx([1, 0, 1])


def test_a_target_that_the_loss_skips(page):
    """In PyTorch it is $-100$ unless you choose another"""
    assert signature(cross_entropy).parameters["ignore_index"].default == -100
