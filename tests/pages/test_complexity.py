"""Convolution, recurrence and self-attention."""

from itertools import repeat
from math import ceil

import numpy as np
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from posattn import reference
from posattn.reference import layers_to_connect, measure, reads
from posattn.torch import MultiHeadAttention


def convolution_graph(n, k, dilation=1):
    """Who reads whom, measured."""
    kernel = np.ones((k, 2, 2))
    return reads(
        lambda x: reference.convolution(x, kernel, dilation=dilation), np.ones((n, 2))
    )


def test_eq_meet():
    r"""$$ L = \left\lceil \frac{n - 1}{k - 1} \right\rceil . $$"""
    for n, k in ((5, 3), (27, 3), (10, 4), (64, 5), (81, 9)):
        L = ceil((n - 1) / (k - 1))
        assert layers_to_connect(repeat(convolution_graph(n, k))) == L


def test_a_window_has_the_paths_of_a_convolution():
    for w in (2, 5):
        window = reference.window_mask(64, 64, w)
        assert np.array_equal(window, convolution_graph(64, 2 * w - 1))


def test_heads_do_not_change_the_operations():
    for heads in (1, 4):
        layer = MultiHeadAttention(16, heads)
        with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
            layer(*[torch.ones(1, 100, 16)] * 3)
        assert counter.get_total_flops() == reference.self_attention_operations(100, 16)


def test_the_square_takes_over_at_twice_the_width():
    d = 8
    for n in (2 * d - 1, 2 * d, 2 * d + 1):
        x, W = np.ones((n, d)), np.ones((4, d, d))
        whole = measure(lambda x, W=W: reference.self_attention(x, *W), x).operations
        projections = measure(lambda x, W=W: [x @ w for w in W], x).operations
        assert np.sign(whole - 2 * projections) == np.sign(n - 2 * d)


def test_by_hand():
    d = 4096
    assert 8 * d**2 // (4 * d) == 8192
    assert (8 + 16) * d**2 // (4 * d) == 24576
    assert 2 * 4 * 4 == 2 * 16 == 32
    assert int(np.base_repr(80, 3)) == 2222
    assert 2 * (1 + 3 + 9 + 27) == 80
