"""Attention across machines."""

import re
from functools import partial

import jax
import numpy as np
import pytest
import torch
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from posattn import reference
from posattn.jax import ring_attention
from posattn.reference import balanced_order

WORDS = ["dog", "bites", "man"]
EXPS, VALUES = np.array([1.0, 2.0, 5.0]), np.array([8.0, 16.0, 24.0])
SHARES = np.arange(16).reshape(4, 4)  # one after the other
H, WIDTH, BYTES, F, B = 32, 128, 2, 400e12, 50e9  # of the page's last figure


def holder(t, r, W):
    """Whose keys a worker holds after some steps."""
    return (r - t) % W


def state(seen):
    """The largest exponential, the sum and the weighted sum of the query of bites after some keys."""
    part = EXPS[seen] / EXPS[seen].max()
    return [EXPS[seen].max(), part.sum(), part @ VALUES[seen]]


def pairs(order, W):
    """How many pairs of a query and a key that it sees each worker has."""
    seen = np.arange(len(order)) <= order[:, None]
    return seen.sum(1).reshape(W, -1).sum(1)


def enough(h_kv):
    """From how many tokens of a worker on sending is free."""
    return BYTES * F / (2 * B) * h_kv / H


def test_a_long_text(page):
    """Your model should read a text of … tokens

    With 4096 numbers per token and two bytes per number, a single copy of all tokens fills … gigabytes
    """
    row = np.zeros(4096, np.float16)
    assert page.glued["many_tokens"] == 2**20
    assert page.glued["text_gigabytes"] == 2**20 * row.nbytes / 2**30 == 8


def test_everybody_has_seen_all_keys(page):
    """After three steps everybody has seen all keys."""
    for r in range(4):
        assert {holder(t, r, 4) for t in range(3 + 1)} == {0, 1, 2, 3}
        assert len({holder(t, r, 4) for t in range(3)}) < 4


def test_scores_by_hand(page):
    r"""its query has the scores $0$, $\ln 2$ and $\ln 5$ with dog, bites and man, whose values are
    $8$, $16$ and $24$
    """
    assert np.allclose(np.exp([0, np.log(2), np.log(5)]), EXPS)
    assert np.allclose(page.torch.scores, [0, np.log(2), np.log(5)])
    assert page.torch.values == [8, 16, 24]
    assert page.torch.words == WORDS


def test_the_order_of_worker_1(page):
    """Worker 1 begins with its own key, gets that of worker 0 next, and that of worker 2 last"""
    assert [holder(t, 1, 3) for t in range(3)] == [1, 0, 2]
    said = re.findall(r"step (\d): (\w+)", page.printed)
    assert said == [("0", "bites"), ("1", "dog"), ("2", "man")]


def test_step_0(page):
    r"""| 0 | bites, its own | $\ln 2$ | $1$ | $16$ |"""
    assert state([1]) == [2, 1, 16]
    assert "step 0: bites  sum 1.0  weighted sum 16\n" in page.printed


def test_step_1(page):
    r"""| 1 | dog, from worker 0 | $\ln 2$ | $1 + \tfrac12 = \tfrac32$ | $16 + \tfrac12 \cdot 8 = 20$ |"""
    assert state([1, 0]) == [2, 1 + 1 / 2, 16 + 1 / 2 * 8] == [2, 3 / 2, 20]
    assert "step 1: dog    sum 1.5  weighted sum 20\n" in page.printed


def test_step_2(page):
    r"""| 2 | man, from worker 2 by way of 0 | $\ln 5$ | $\tfrac25 \cdot \tfrac32 + 1 = 1.6$ | $\tfrac25 \cdot 20 + 24 = 32$ |"""
    assert np.allclose(state([1, 0, 2]), [5, 1.6, 32])
    assert np.allclose([2 / 5 * 3 / 2 + 1, 2 / 5 * 20 + 24], [1.6, 32])
    assert holder(1, 0, 3) == 2  # from worker 2 by way of 0
    assert "step 2: man    sum 1.6  weighted sum 32\n" in page.printed


def test_the_output_by_hand(page):
    """The output is $32 / 1.6 = 20$, the same as on one machine."""
    _, total, mixed = state([1, 0, 2])
    assert np.isclose(mixed / total, 20)
    assert 32 / 1.6 == 20 == EXPS @ VALUES / EXPS.sum()
    assert "output: 20.0\n" in page.printed


def test_the_orders_of_the_others(page):
    """worker 0 read the keys in the order dog, man, bites, and worker 2 in the order man, bites, dog. No
    two workers read them in the same order
    """
    assert len({tuple(holder(t, r, 3) for t in range(3)) for r in range(3)}) == 3
    assert [WORDS[holder(t, 0, 3)] for t in range(3)] == ["dog", "man", "bites"]
    assert [WORDS[holder(t, 2, 3)] for t in range(3)] == ["man", "bites", "dog"]


def test_eq_ring_holder(page):
    r"""$$ o_t(r) = (r - t) \bmod W . $$

    in step 1 worker 1 holds the keys of worker 0, and in step 2 those of worker $(1 - 2) \bmod 3 = 2$

    Then it sends the keys and values to worker $(r + 1) \bmod W$, which holds them in the next step:
    $o_{t+1}(r + 1) = o_t(r)$.
    """
    assert [holder(t, 1, 3) for t in (1, 2)] == [0, 2]
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
    (hand_over,) = (re.findall(r"\((\d+), (\d+)\)", pairs) for pairs in sent)
    after = {int(r): int(to) for r, to in hand_over}
    held = {r: r for r in range(W)}
    for t in range(W):
        assert held == {r: (r - t) % W for r in range(W)}
        held = {after[r]: keys for r, keys in held.items()}


def test_every_query_meets_every_share_once(page):
    """As $t$ runs over all steps, $o_t(r)$ runs over all workers, so every query meets every share of the keys once

    every query has met every key
    """
    held = np.array([[holder(t, r, 5) for r in range(5)] for t in range(5)])
    everybody = np.tile(np.arange(5), (5, 1))
    assert np.array_equal(np.sort(held, axis=0).T, everybody)
    assert np.array_equal(np.sort(held, axis=1), everybody)


def test_a_causal_mask_spoils_the_balance(page):
    """Then worker 0 sees only its own keys and is done after one step, while the last worker has something
    to compute in every step.
    """
    meet = [[(mine[:, None] >= theirs).any() for theirs in SHARES] for mine in SHARES]
    assert np.sum(meet, axis=1).tolist() == [1, 2, 3, 4]
    assert meet[0][0]


def test_who_holds_which_queries(page):
    """Left: one after the other. Right: an early and a late piece for each worker.

    the rows alternate in pairs between short and long ones
    """
    left, right = (order.reshape(4, 4) for order in page.torch.orders.values())
    assert np.array_equal(left, SHARES)
    for r, mine in enumerate(right):
        assert mine.tolist() == [2 * r, 2 * r + 1, 14 - 2 * r, 15 - 2 * r]


def test_the_filled_cells_are_the_work(page):
    """On the left the first worker has 10 and the last one 58, but on the right each has 34.

    From one worker to the next, the early piece gets more expensive and the late one cheaper by the same
    amount, so all workers have the same total.
    """
    left, right = (pairs(order, 4) for order in page.torch.orders.values())
    assert (left[0], left[-1]) == (10, 58)
    assert right.tolist() == [34] * 4
    early, late = (page.torch.orders["balanced"] + 1).reshape(4, 2, 2).sum(2).T
    assert (np.diff(early) > 0).all()
    assert np.array_equal(np.diff(early), -np.diff(late))
    assert "one after the other: 10 26 42 58 pairs" in page.printed
    assert "balanced: 34 34 34 34 pairs" in page.printed


@pytest.mark.parametrize(("W", "m"), [(1, 3), (3, 2), (4, 5)])
def test_balance(page, W, m):
    """every worker has $m^2 (2W - 1) + m (m + 1)$ pairs of a query and a key that it sees

    a causal mask leaves no worker idle
    """
    each = pairs(balanced_order(2 * W * m, W), W)
    assert (each == m**2 * (2 * W - 1) + m * (m + 1)).all()


@pytest.mark.parametrize(("p", "m"), [(0, 3), (3, 2)])
def test_pairs_of_a_piece(page, p, m):
    r"""So the piece has $m \cdot pm + m(m + 1)/2$ pairs"""
    positions = np.arange(p * m, (p + 1) * m)
    seen = np.arange((p + 1) * m) <= positions[:, None]
    assert seen.sum() == m * p * m + m * (m + 1) / 2


def test_the_count_for_four_workers(page):
    r"""The query at position $i$ sees $i + 1$ keys

    With $W = 4$ workers and pieces of $m = 2$ tokens it is $4 \cdot 7 + 2 \cdot 3 = 34$.
    """
    assert reference.causal_mask(16).sum(1).tolist() == list(range(1, 17))
    W, m = 4, 2
    assert m**2 * (2 * W - 1) + m * (m + 1) == 4 * 7 + 2 * 3 == 34
    assert pairs(balanced_order(2 * W * m, W), W).tolist() == [34] * 4


def test_pieces_are_rows(page):
    """The first half of the rows, in order, is placed next to the second half in reverse."""
    rows = np.arange(16).reshape(8, 2)
    beside = np.hstack([rows[:4], rows[:3:-1]])
    assert np.array_equal(beside.ravel(), balanced_order(16, 4))


def test_computing_and_sending(page):
    r"""In one step it does $4 c^2 H d_h$ operations, and it sends $2 c\, G d_h b$ bytes."""
    c, heads, G, d_h, b = 6, 8, 2, 4, 2
    projections = 4 * 2 * c * (heads * d_h) ** 2
    whole = reference.self_attention_operations(c, heads * d_h)
    assert 4 * c**2 * heads * d_h == whole - projections
    keys = values = np.zeros((G, c, d_h), np.float16)
    assert keys.nbytes + values.nbytes == 2 * c * G * d_h * b


def test_two_shares(page):
    """A score takes 128 multiply-adds, and so does its part in the weighted sum, which makes 512 operations
    for each query, each key and each head.

    With 4096 tokens on each worker the next keys arrive late, and the worker waits. But with four times as
    many tokens, sending takes four times as long and computing sixteen times, so the keys arrive early.
    """
    cost = reference.measure(
        lambda q: (q @ np.ones((128, 1))) @ np.ones((1, 128)), np.ones((1, 128))
    )
    assert cost.operations == 512 == 4 * WIDTH
    times = []
    for c in (4096, 16384):
        keys = np.broadcast_to(np.float16(0), (2, H, c, WIDTH))
        times.append((1000 * 512 * c**2 * H / F, 1000 * keys.size * BYTES / B))
        compute, send = times[-1]
        assert (
            f"{c} tokens: {compute:.1f} ms to compute, {send:.1f} ms to send\n"
            in page.printed
        )
    (short, late), (long, early) = times
    assert (short < late, long > early) == (True, True)
    assert (long / short, early / late) == pytest.approx((16, 4))


@pytest.mark.parametrize("G", [32, 8])
def test_eq_ring_hidden(page, G):
    r"""$$ \frac{4 c^2 H d_h}{F} \ge \frac{2 c\, G d_h b}{B} \quad\Longleftrightarrow\quad c \ge \frac{b F}{2 B} \cdot \frac{G}{H} . $$

    The width of a head cancels, and the number of workers doesn't appear.
    """
    b = BYTES
    least = b * F / (2 * B) * G / H
    for d_h in (64, 128):
        for c in (0.5 * least, 0.99 * least, 1.01 * least, 2 * least):
            hidden = 4 * c**2 * H * d_h / F >= 2 * c * G * d_h * b / B
            assert hidden == (c >= least)
    compute, send = page.torch.compute, page.torch.send[f"sending {G} heads"]
    assert ((compute >= send) == (page.torch.c >= least)).all()


def test_what_the_figure_assumes(page):
    """32 heads of width 128, where a worker computes 400 trillion operations and sends 50 billion bytes
    per second, and a number takes two bytes

    from 0.003 to 176 milliseconds
    """
    p = page.torch
    assert (p.H, p.d_h, p.b) == (H, WIDTH, BYTES)
    assert (p.F, p.B) == (400 * 1e12, 50 * 1e9)
    assert np.allclose(p.compute[[0, -1]], [0.003, 176], rtol=0.11)
    assert np.allclose(p.compute, 4 * p.c**2 * H * WIDTH / F * 1e3)
    assert np.allclose(p.send["sending 32 heads"], 2 * p.c * 32 * WIDTH * BYTES / B * 1e3)


def test_enough_tokens(page):
    """the lines cross at … tokens per worker, and with longer shares sending is free. If four heads of
    queries share one head of keys, there is less to send, and … tokens are enough.

    Where a sending line is below the computing line, the next keys arrive in time.

    meets it at 8000 tokens; sending 8 heads lies below and meets it at 2000 tokens
    """
    for name, h_kv, tokens in (("enough_all", 32, 8000), ("enough_grouped", 8, 2000)):
        c = page.glued[name]
        assert c == enough(h_kv) == tokens
        assert np.isclose(4 * c**2 * H * WIDTH / F, 2 * c * h_kv * WIDTH * BYTES / B)
    assert H / 8 == 4


def test_a_causal_mask_doubles_these_numbers(page):
    """A causal mask halves the computing and so doubles these numbers."""
    c = 2 * enough(8)
    assert np.isclose(4 * c**2 * H * WIDTH / 2 / F, 2 * c * 8 * WIDTH * BYTES / B)


def test_twice_the_text_twice_the_bytes(page):
    r"""Over all steps a worker sends $2 (W - 1)\, c\, G d_h b$ bytes forward. With many workers this is
    about $2 n\, G d_h b$, so twice the text means twice the bytes, however many workers there are.
    """
    n = 2**20
    each = [2 * (W - 1) * (n / W) * 8 * WIDTH * BYTES for W in (64, 128)]
    assert np.allclose(each, 2 * n * 8 * WIDTH * BYTES, rtol=0.02)


class Workers:
    """Workers with shares of queries, keys and values, and how many numbers each has sent and held."""

    def __init__(self, q, k, v, W):
        self.q, self.k, self.v = (np.split(x, W, axis=1) for x in (q, k, v))
        self.W, self.sent, self.held = W, np.zeros(W), np.zeros(W)

    def hold(self, r, *arrays):
        """Note how many numbers of keys and values a worker holds."""
        self.held[r] = max(self.held[r], sum(x.size for x in arrays))

    def outputs(self, calls):
        """Attention of the queries of each worker to keys and values."""
        return np.concatenate(
            [reference.scaled_dot_product_attention(*qkv) for qkv in calls], axis=1
        )

    def ring(self):
        """Pass keys and values on."""
        seen = [[] for _ in range(self.W)]
        k, v = list(self.k), list(self.v)
        for step in range(self.W):
            for r in range(self.W):
                seen[r].append((k[r], v[r]))
                last = step == self.W - 1
                self.hold(r, k[r], v[r], *([] if last else [k[r - 1], v[r - 1]]))
                self.sent[r] += 0 if last else k[r].size + v[r].size
            k, v = k[-1:] + k[:-1], v[-1:] + v[:-1]
        both = [[np.concatenate(x, axis=1) for x in zip(*s, strict=True)] for s in seen]
        return self.outputs([(q, *kv) for q, kv in zip(self.q, both, strict=True)])

    def all_gather(self):
        """Collect all keys and values by passing on what was received, and then compute."""
        got = [[r] for r in range(self.W)]
        for _ in range(self.W - 1):
            newest = [shares[-1] for shares in got]
            for r, share in enumerate(newest):
                self.sent[r] += self.k[share].size + self.v[share].size
                got[(r + 1) % self.W].append(share)
        calls = []
        for r, shares in enumerate(got):
            k, v = (
                np.concatenate([x[share] for share in sorted(shares)], axis=1)
                for x in (self.k, self.v)
            )
            self.hold(r, k, v)
            calls.append((self.q[r], k, v))
        return self.outputs(calls)

    def head_parallel(self):
        """Trade tokens for heads, compute, and trade back."""

        def trade(shares):
            parts = [np.split(x, self.W, axis=0) for x in shares]
            for r in range(self.W):
                self.sent[r] += sum(x.size for to, x in enumerate(parts[r]) if to != r)
            return [np.concatenate([p[r] for p in parts], axis=1) for r in range(self.W)]

        q, k, v = trade(self.q), trade(self.k), trade(self.v)
        done = []
        for r in range(self.W):
            self.hold(r, k[r], v[r])
            done.append(reference.scaled_dot_product_attention(q[r], k[r], v[r]))
        back = [np.split(x, self.W, axis=1) for x in done]
        for r in range(self.W):
            self.sent[r] += sum(x.size for to, x in enumerate(back[r]) if to != r)
        return np.concatenate(done, axis=0)


@pytest.mark.parametrize(("heads", "G", "W"), [(8, 4, 4), (4, 4, 2), (8, 2, 2)])
def test_three_ways(page, heads, G, W):
    r"""| a worker sends | $2 (W - 1)\, c\, G d_h b$ | $2 (W - 1)\, c\, G d_h b$ | $2 (W - 1)\, \frac{c}{W} (H + G)\, d_h b$ |

    | it holds keys and values of | $2 c$ tokens, all heads | $n$ tokens, all heads | $n$ tokens, $G / W$ heads |

    | in bytes | $4 c\, G d_h b$ | $2 n\, G d_h b$ | $2 c\, G d_h b$ |

    the ring sends $W G / (H + G)$ times as much as head-parallel. So head-parallel sends less only if
    $W > (H + G)/G$.
    """
    n, d_h, b = 8 * W, 4, 2
    c = n // W
    rng = np.random.default_rng(0)
    q = rng.normal(size=(heads, n, d_h))
    k, v = rng.normal(size=(2, G, n, d_h))
    whole = reference.scaled_dot_product_attention(q, k, v)
    ring, gather, trade = (Workers(q, k, v, W) for _ in range(3))
    for out in (ring.ring(), gather.all_gather(), trade.head_parallel()):
        assert np.allclose(out, whole)
    assert (b * ring.sent == 2 * (W - 1) * c * G * d_h * b).all()
    assert (b * gather.sent == 2 * (W - 1) * c * G * d_h * b).all()
    assert (b * trade.sent == 2 * (W - 1) * c / W * (heads + G) * d_h * b).all()
    assert (b * ring.held == 4 * c * G * d_h * b).all()
    assert (b * gather.held == 2 * n * G * d_h * b).all()
    assert (b * trade.held == 2 * c * G * d_h * b).all()
    assert np.allclose(ring.sent / trade.sent, W * G / (heads + G))
    assert (trade.sent < ring.sent).all() == ((heads + G) / G < W)


def test_few_workers_send_less_around_a_ring(page):
    """With as many heads of keys as of queries, the two are equal at 2 workers, and head-parallel is ahead
    from 3 on. But with $H = 32$ and $G = 8$ they are equal at 5 workers, and with fewer it is the ring
    that sends less

    If there are more than $(H + G)/G$ workers, but no more than $G$, head-parallel sends less than a
    ring.
    """
    rng = np.random.default_rng(0)
    for heads, G, sign in ((6, 6, {2: 0, 3: 1}), (32, 8, {2: -1, 4: -1, 8: 1})):
        for W, ahead in sign.items():
            q = rng.normal(size=(heads, W, 2))
            k, v = rng.normal(size=(2, G, W, 2))
            ring, trade = Workers(q, k, v, W), Workers(q, k, v, W)
            ring.ring()
            trade.head_parallel()
            assert (np.sign(np.round(ring.sent - trade.sent, 9)) == ahead).all()
    assert (32 + 8) / 8 == 5
    for W, factor in ((2, 0.4), (4, 0.8), (5, 1.0), (8, 1.6)):
        assert f"on {W} workers a ring's bytes are {factor} times" in page.printed


def test_what_the_backward_pass_needs(page):
    r"""a worker needs, for each of its queries, the query $\mathbf{q}_i$ itself, the output
    $\mathbf{y}_i$, the gradient $\mathbf{g}_i$ of that output, and the number $\lambda_i$

    It travels along with its keys and values, and every worker adds its own part to it. After $W$ steps it
    is complete and back at its owner.
    """
    W, c, d = 3, 2, 4
    q, k, v, g = (
        torch.from_numpy(x) for x in np.random.default_rng(0).normal(size=(4, W * c, d))
    )
    leaves = [x.clone().requires_grad_() for x in (q, k, v)]
    y = torch.softmax(leaves[0] @ leaves[1].T / d**0.5, -1) @ leaves[2]
    y.backward(g)
    home = [(q[r], y.detach()[r], g[r]) for r in np.split(np.arange(W * c), W)]
    log_sum = torch.logsumexp(q @ k.T / d**0.5, -1).chunk(W)
    held = [
        (a, b, torch.zeros(c, d), torch.zeros(c, d))
        for a, b in zip(k.chunk(W), v.chunk(W), strict=True)
    ]
    of_query = [torch.zeros(c, d) for _ in range(W)]
    for _ in range(W):
        for r, (keys, values, of_keys, of_values) in enumerate(held):
            mine, out, grad = home[r]
            alpha = torch.exp(mine @ keys.T / d**0.5 - log_sum[r][:, None])
            of_scores = alpha * (grad @ values.T - (grad * out).sum(1, keepdim=True))
            of_query[r] = of_query[r] + of_scores @ keys / d**0.5
            held[r] = (
                keys,
                values,
                of_keys + of_scores.T @ mine / d**0.5,
                of_values + alpha.T @ grad,
            )
        held = held[-1:] + held[:-1]
    found = (
        torch.cat(of_query),
        torch.cat([h[2] for h in held]),
        torch.cat([h[3] for h in held]),
    )
    for leaf, gradient in zip(leaves, found, strict=True):
        assert torch.allclose(leaf.grad, gradient)


def test_the_three_ways_in_gigabytes(page):
    """With 32 heads of keys, head-parallel is far ahead. With 8 it still sends less, but it can't go beyond
    8 workers.
    """
    lines = [line.split() for line in page.printed.splitlines() if " sends " in line]
    sent = [float(line[2].rstrip(",")) for line in lines]
    expected = []
    for G, W in ((32, 32), (8, 8)):
        c = 2**20 / W
        ring = 2 * (W - 1) * c * G * 128 * 2 / 1e9
        trade = 2 * (W - 1) * c / W * (32 + G) * 128 * 2 / 1e9
        expected += [ring, ring, trade]
    assert np.allclose(sent, expected, atol=0.01)
    assert expected[0] > 15 * expected[2]
    assert 1 < expected[3] / expected[5] < 2


def test_which_one(page):
    """A share of keys and values is $2 \\cdot 16384 \\cdot 8 \\cdot 128$ numbers, and a worker of the ring
    holds two shares, while one of the all-gather holds all 16.
    """
    share = 2 * 262144 // 16 * 8 * 128
    assert share == 2 * 16384 * 8 * 128
    assert f"ring:       {2 * share * 2 // 2**20} MiB" in page.printed
    assert f"all-gather: {16 * share * 2 // 2**20} MiB" in page.printed


def test_the_mean_of_a_share(page):
    """a gradient that differs from that of one machine, since some shares have fewer tokens that
    count

    divide the sum of a share by the number of tokens that count on all workers, and multiply by the
    number of workers
    """
    losses, real = np.array([[1.0, 2.0], [3.0, 0.0]]), np.array([[1, 1], [1, 0]])
    sums, whole = (losses * real).sum(1), (losses * real).sum() / real.sum()
    assert (sums / real.sum(1)).mean() > whole + 0.1
    assert np.isclose((sums / real.sum() * 2).mean(), whole)


def test_where_are_my_keys(page):
    r"""the worker $r$ with $(r - 4) \bmod 5 = 2$, which is worker 1. Step 4 is the last one, so the
    worker just before their owner sees them last.
    """
    assert [r for r in range(5) if holder(4, r, 5) == 2] == [2 - 1]
    assert "worker 1\n" in page.printed


def test_one_by_one(page):
    """neighbors differ by one pair for each of their $n/W$ tokens. Compared with the work of a worker, this
    difference goes to zero like $1/n$.
    """
    W = 4
    for n in (16, 64, 4096):
        dealt = np.arange(n).reshape(-1, W).T
        work = pairs(dealt.ravel(), W)
        assert (np.diff(work) == n / W).all()
        gap = (n / W) / work.mean()
        assert np.isclose(gap, (n / W) / ((n + 1) * n / (2 * W)))
        assert np.isclose(gap * n, 2, rtol=1.1 / n)
    assert "pairs: 28 32 36 40\n" in page.printed


@pytest.mark.parametrize("W", [2, 8, 64])
def test_the_price_of_the_wrong_order(page, W):
    """its $n/W$ queries have about $n^2/W$ pairs. In the balanced order each worker has only about
    $n^2/(2W)$. With many workers that is nearly twice as long, and exactly it is $2 - 1/W$ times, up to a
    term that vanishes in a long text.

    the right result in nearly twice the time, because all wait for the last worker
    """
    n = 2**16
    work = (np.arange(n) + 1).reshape(W, -1).sum(1)
    even = work.sum() / W
    assert work.max() == work[-1]
    assert np.isclose(work.max() / even, 2 - 1 / W, rtol=1e-3)
    assert np.isclose(even, n**2 / (2 * W), rtol=1e-3)
    assert np.isclose(work.max(), n**2 / W, rtol=1.01 / (2 * W))
    (longer,) = re.findall(rf"\b{W} workers: (\S+)", page.printed)
    assert abs(float(longer) - (2 - 1 / W)) < 0.01
