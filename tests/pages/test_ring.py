"""Attention across machines."""

import re
from functools import partial

import jax
import numpy as np
import pytest
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from posattn import reference
from posattn.jax import ring_attention
from posattn.reference import balanced_order


def pairs(order, W):
    """How many pairs of a query and a key that it sees each worker has."""
    seen = reference.causal_mask(len(order))[order]
    return seen.sum(1).reshape(W, -1).sum(1)


def test_eq_ring_holder():
    r"""$$ o_t(r) = (r - t) \bmod W . $$"""
    W = jax.device_count()
    assert W == 4
    shared = P("tokens")
    ring = jax.shard_map(
        partial(ring_attention, across="tokens"),
        mesh=Mesh(jax.devices(), ("tokens",)),
        in_specs=(shared, shared, shared),
        out_specs=shared,
    )
    program = str(jax.make_jaxpr(ring)(*np.ones((3, 16, 8), np.float32)))
    sent = set(re.findall(r"ppermute\[[^\]]*?perm=(\(\(.*?\)\))", program, re.DOTALL))
    (hand_over,) = (re.findall(r"\((\d+), (\d+)\)", moves) for moves in sent)
    after = {int(r): int(to) for r, to in hand_over}
    held = {r: r for r in range(W)}
    for t in range(W):
        assert held == {r: (r - t) % W for r in range(W)}
        held = {after[r]: keys for r, keys in held.items()}


def test_eq_ring_hidden():
    r"""$$ \frac{4 c^2 H d_h}{F} \ge \frac{2 c\, G d_h b}{B} \quad\Longleftrightarrow\quad c \ge \frac{b F}{2 B} \cdot \frac{G}{H} . $$"""
    H, G, d_h, F, B = 8, 2, 4, 48e3, 1e3
    for c in (11, 12, 13):
        q = np.ones((c, d_h))
        compute = H * reference.measure(lambda x, q=q: x @ q.T @ q, q).operations / F
        sent = np.ones((2, G, c, d_h), np.float16)  # keys and values
        assert (compute >= sent.nbytes / B) == (c >= sent.itemsize * F / (2 * B) * G / H)


@pytest.mark.parametrize(("W", "m"), [(1, 3), (3, 2), (4, 5)])
def test_balanced_shares_have_the_same_work(W, m):
    each = pairs(balanced_order(2 * W * m, W), W)
    assert (each == m**2 * (2 * W - 1) + m * (m + 1)).all()


def test_the_order_of_the_text_takes_twice_as_long():
    for W in (2, 8):
        work = pairs(np.arange(1024), W)
        assert work.argmax() == W - 1
        assert np.isclose(work.max() / work.mean(), 2 - 1 / W, rtol=1e-3)


@pytest.mark.parametrize(("H", "G", "W"), [(8, 4, 4), (32, 8, 5), (6, 6, 2), (6, 6, 3)])
def test_workers_send_what_the_table_says(H, G, W):
    c, d_h = 2 * W, 4
    q, y = np.ones((2, H, c, d_h), np.float16)
    keys_and_values = np.ones((2, G, c, d_h), np.float16)
    ring = (W - 1) * keys_and_values.nbytes
    traded = (q.nbytes + keys_and_values.nbytes + y.nbytes) * (W - 1) / W
    assert ring == 2 * (W - 1) * c * G * d_h * 2
    assert traded == 2 * (W - 1) * c / W * (H + G) * d_h * 2
    assert np.isclose(ring / traded, W * G / (H + G))
    assert (traded < ring) == ((H + G) / G < W)


def test_the_mean_of_a_share_is_not_the_loss():
    losses, counts = np.array([[1.0, 2.0], [3.0, 0.0]]), np.array([[1, 1], [1, 0]])
    sums, whole = (losses * counts).sum(1), (losses * counts).sum() / counts.sum()
    assert (sums / counts.sum(1)).mean() > whole + 0.1
    assert np.isclose((sums / counts.sum() * 2).mean(), whole)


def test_by_hand(page):
    exps, values = np.array([2.0, 1.0, 5.0]), np.array([16.0, 8.0, 24.0])  # own key first
    totals = [sum(exps[:n]) / max(exps[:n]) for n in (1, 2, 3)]
    sums = [exps[:n] @ values[:n] / max(exps[:n]) for n in (1, 2, 3)]
    assert np.allclose([totals, sums], [[1, 1.5, 1.6], [16, 20, 32]])
    assert pairs(np.arange(16), 4)[[0, 3]].tolist() == [10, 58]
    assert pairs(balanced_order(16, 4), 4).tolist() == [34] * 4
    assert (10 + 3 * 8, 4 * 128) == (34, 512)
    assert np.allclose(page.torch.compute[[0, -1]], [0.003, 42], rtol=0.16)
    for heads, tokens in ((32, 8000), (8, 2000)):
        send = 2 * tokens * heads * 128 * 2 / 50e9
        assert np.isclose(4 * tokens**2 * 32 * 128 / 400e12, send)
    assert page.glued["enough_all"] == 8000
    assert (32 + 8) / 8 == 5
