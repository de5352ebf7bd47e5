"""Functions of other shapes pass the checker through adapters, and their faults are named."""

import jax.numpy as jnp
import numpy as np
import pytest
import torch

from posattn import reference
from posattn.conformance import check
from posattn.conformance.adapters import (
    bias_of_score_mod,
    mask_of_mask_mod,
    rotation_by_tables,
    rotation_of_tokens,
)
from posattn.reference import alibi_slopes

HALF = {"settings": {"layout": "half"}, "skip": "odd width"}


def tables(positions, dim, base=10000.0):
    """Cosines and sines as Llama's code has them, angles in float32."""
    frequencies = 1.0 / base ** (torch.arange(0, dim, 2).float() / dim)
    angles = positions[..., None].float() * frequencies
    angles = torch.cat([angles, angles], -1)
    return angles.cos(), angles.sin()


def plain_tables(positions, dim):
    """Tables that have one base."""
    return tables(positions, dim)


def rotate_half(x):
    """The second half, negated, before the first."""
    a, b = x.chunk(2, -1)
    return torch.cat([-b, a], -1)


def apply_rotary_pos_emb(q, k, cos, sin):
    """The rotation of transformers, whose tables lack the axis of heads."""
    cos, sin = cos[:, None], sin[:, None]
    return q * cos + rotate_half(q) * sin, k * cos + rotate_half(k) * sin


def apply_without_heads(q, k, cos, sin):
    """The same for one head."""
    return q * cos + rotate_half(q) * sin, k * cos + rotate_half(k) * sin


def apply_to_query_only(q, k, cos, sin):
    """The key is forgotten."""
    return apply_rotary_pos_emb(q, k, cos, sin)[0], k


@pytest.mark.parametrize("key", [False, True])
def test_tables_and_their_rotation_pass(key):
    rope = rotation_by_tables(apply_rotary_pos_emb, tables, key=key)
    report = check(rope, "rotary", framework="torch", tolerance="float32-angles", **HALF)
    assert not report.failures
    assert report.title.startswith("apply_rotary_pos_emb as rotary")
    bases = {run.case["keywords"].get("base") for run in report.runs}
    assert bases == {None, 500.0}


def test_tables_without_a_base_run_the_other_cases():
    rope = rotation_by_tables(apply_rotary_pos_emb, plain_tables)
    report = check(rope, "rotary", framework="torch", tolerance="float32-angles", **HALF)
    assert not report.failures
    assert {"apply_rotary_pos_emb has no parameter base"} <= {*report.skipped.values()}


def test_a_rotation_without_heads_passes():
    rope = rotation_by_tables(apply_without_heads, tables, head_axis=False)
    options = {"framework": "torch", "tolerance": "float32-angles"}
    report = check(rope, "rotary", **options, **HALF)
    assert not report.failures
    assert any("two heads" in run.case["name"] for run in report.runs)


def test_a_key_that_is_not_turned_fails():
    query, key = (
        check(
            rotation_by_tables(apply_to_query_only, tables, key=key),
            "rotary",
            framework="torch",
            max_position=5000,
            **HALF,
        )
        for key in (False, True)
    )
    assert not query.failures
    assert len(key.failures) > 10


def apply_to_query_twice(q, k, cos, sin):
    """The query comes back in the place of the key."""
    turned = apply_rotary_pos_emb(q, k, cos, sin)[0]
    return turned, turned


def apply_half_of_the_query(q, k, cos, sin):
    """The key is turned with the halves of the query."""
    cos, sin = cos[:, None], sin[:, None]
    return q * cos + rotate_half(q) * sin, k * cos + rotate_half(q) * sin


def apply_exchanged(q, k, cos, sin):
    """The key comes back first."""
    return apply_rotary_pos_emb(q, k, cos, sin)[::-1]


@pytest.mark.parametrize(
    ("apply", "wrong"),
    [
        (apply_to_query_twice, [True]),
        (apply_half_of_the_query, [True]),
        (apply_exchanged, [False, True]),
    ],
)
def test_a_query_in_the_place_of_a_key_fails(apply, wrong):
    options = {"framework": "torch", "max_position": 5000, **HALF}
    for key in (False, True):
        report = check(rotation_by_tables(apply, tables, key=key), "rotary", **options)
        assert bool(report.failures) == (key in wrong)


class Rope:
    """As in vLLM: tables of all positions, made once; positions first, tokens in a row."""

    def __init__(self, dim, length=5000, base=10000.0):
        self.cos, self.sin = tables(torch.arange(length), dim, base)

    def __call__(self, positions, query, key):
        """Look the tables up and rotate."""
        cos, sin = self.cos[positions.long()], self.sin[positions.long()]
        return [x * cos + rotate_half(x) * sin for x in (query, key)]


@pytest.mark.parametrize("key", [False, True])
def test_an_object_that_takes_positions_first_passes(key):
    options = {**HALF, "framework": "torch", "max_position": 4999}
    options["skip"] = ["odd width", "two heads", "half the width", "alone", "fractions"]
    options["skip"] += ["no positions", "as many examples"]
    report = check(rotation_of_tokens(Rope(8), key=key), "rotary", **options)
    assert not report.failures
    assert len(report.runs) > 7
    other = check(rotation_of_tokens(Rope(8, base=500.0), key=key), "rotary", **options)
    assert len(other.failures) > 5


@pytest.mark.parametrize(
    "make", [np.array, torch.tensor, jnp.array], ids=["numpy", "torch", "jax"]
)
def test_a_mask_mod_is_a_mask_of_positions(make):
    def window(b, h, q_idx, kv_idx):
        return (kv_idx <= q_idx) & (q_idx - kv_idx < 2)

    query, key = make([[2], [3]]), make([[0, 1, 2, 3]] * 2)
    mask = mask_of_mask_mod(window)(query, key)
    assert np.asarray(mask).astype(int).tolist() == [[[0, 1, 1, 0]], [[0, 0, 1, 1]]]
    everything = mask_of_mask_mod(lambda b, h, q_idx, kv_idx: kv_idx >= 0)(query, key)
    assert everything.shape == (2, 1, 4)


def test_a_score_mod_is_a_bias_of_positions():
    slopes = torch.tensor(alibi_slopes(4))

    def alibi(score, b, h, q_idx, kv_idx):
        return score - slopes[h] * (q_idx - kv_idx).abs()

    bias = bias_of_score_mod(alibi, 4)
    query, key = np.array([5, 6]), np.arange(7)
    wanted = reference.ALiBi(4)(query, key)
    got = bias(torch.tensor(query), torch.tensor(key))
    assert np.allclose(np.broadcast_to(got.numpy(), wanted.shape), wanted)


@pytest.mark.parametrize("key", [False, True])
def test_an_object_that_exchanges_query_and_key_fails(key):
    def exchanged(positions, query, key):
        return [
            reference.rotate(x[:, None], positions[:, None])[:, 0] for x in (key, query)
        ]

    report = check(rotation_of_tokens(exchanged, key=key), "rotary", framework="numpy")
    assert len(report.failures) > 5
