"""Functions of other shapes pass the checker through adapters, and their faults are named."""

import jax.numpy as jnp
import numpy as np
import pytest
import torch

from posattn import reference
from posattn.conformance import UsageError, check
from posattn.conformance.adapters import (
    attention_of_heads,
    bias_of_score_mod,
    mask_of_mask_mod,
    rotation_by_tables,
    rotation_of_cos_and_sin,
    rotation_of_heads,
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
    assert rope.__module__ == apply_rotary_pos_emb.__module__  # whose framework it has
    bases = {run.case["keywords"].get("base") for run in report.runs}
    assert bases == {None, 500.0}


def test_tables_without_a_base_run_the_other_cases():
    rope = rotation_by_tables(apply_rotary_pos_emb, plain_tables)
    report = check(rope, "rotary", framework="torch", tolerance="float32-angles", **HALF)
    assert not report.failures
    assert {"apply_rotary_pos_emb has no parameter base"} <= {*report.skipped.values()}


def test_a_rotation_without_heads_passes():
    rope = rotation_by_tables(apply_without_heads, tables, head_axis=None)
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
    rotated = apply_rotary_pos_emb(q, k, cos, sin)[0]
    return rotated, rotated


def apply_half_of_the_query(q, k, cos, sin):
    """The key is rotated with the halves of the query."""
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


def rotate_in_heads(x, positions, base=10000.0):
    """The rotation of operators: heads on axis 1, positions for each example."""
    assert x.ndim == 4
    assert positions.shape == (x.shape[0], x.shape[2])
    return reference.rotate(x, positions[:, None], base=base)


def rotate_after_tokens(x, positions):
    """The same with heads on axis 2."""
    assert positions.shape == x.shape[:2]
    return reference.rotate(x.swapaxes(1, 2), positions[:, None]).swapaxes(1, 2)


def rotate_without_heads(x, positions):
    """The same for one head."""
    assert positions.shape == x.shape[:2]
    return reference.rotate(x, positions)


@pytest.mark.parametrize(
    ("rope", "axis"),
    [(rotate_in_heads, 1), (rotate_after_tokens, 2), (rotate_without_heads, None)],
)
def test_a_rotation_gets_its_arguments_in_the_shape_it_wants(rope, axis):
    report = check(rotation_of_heads(rope, head_axis=axis), "rotary", framework="numpy")
    assert not report.failures
    assert report.title.startswith(f"{rope.__name__} as rotary")
    names = [run.case["name"] for run in report.runs]
    assert {"two heads, positions per example", "no tokens"} <= {*names}
    assert ("another base" in names) == (rope is rotate_in_heads)


def test_a_rotation_that_takes_the_first_example_for_all_fails():
    def first(x, positions):
        return reference.rotate(x, positions[:1, None])

    report = check(rotation_of_heads(first), "rotary", framework="numpy")
    assert "left padding: positions per example" in {
        run.case["name"] for run in report.runs if run.failed
    }


@pytest.mark.parametrize("axis", [0, 3, True, False, "1"])
def test_an_axis_of_heads_without_a_meaning_is_refused(axis):
    wanted = rf"head_axis must be one of \(1, 2, None\), got {axis!r}"
    with pytest.raises(UsageError, match=wanted):
        rotation_of_heads(rotate_in_heads, head_axis=axis)
    with pytest.raises(UsageError, match=wanted):
        rotation_by_tables(apply_rotary_pos_emb, tables, head_axis=axis)
    with pytest.raises(UsageError, match=r"head_axis must be one of \(1, 2\), got"):
        attention_of_heads(attend_in_heads, head_axis=axis)


def pair_tables(positions, dim, base=10000.0):
    """Cosines and sines with a column for each pair."""
    return [table[..., : dim // 2] for table in tables(positions, dim, base)]


def repeated_tables(positions, dim, base=10000.0):
    """Cosines and sines with a column for each entry, for neighbors."""
    return [t.repeat_interleave(2, -1) for t in pair_tables(positions, dim, base)]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    ("cos_and_sin", "layouts"),
    [
        (pair_tables, ["half", "interleaved"]),
        (tables, ["half"]),
        (repeated_tables, ["interleaved"]),
    ],
)
def test_tables_alone_pass_in_the_layouts_they_fit(cos_and_sin, layouts, dtype):
    rope = rotation_of_cos_and_sin(cos_and_sin)
    for layout in ("half", "interleaved"):
        report = check(
            rope,
            "rotary",
            framework="torch",
            dtype=dtype,
            settings={"layout": layout},
            tolerance="float32-angles",
        )
        assert bool(report.failures) == (layout not in layouts)
        assert len(report.runs) > 15


def test_tables_alone_with_another_base_or_in_the_wrong_order_fail():
    def exchanged(positions, dim):
        return tables(positions, dim)[::-1]

    def other(positions, dim):
        return tables(positions, dim, 500.0)

    for wrong in (exchanged, other):
        rope = rotation_of_cos_and_sin(wrong)
        report = check(rope, "rotary", framework="torch", max_position=5000, **HALF)
        assert len(report.failures) > 10


def attend_in_heads(query, key, value, mask, *, bias=None, scale=None):
    """The attention of operators: four axes, and a mask that is always given."""
    assert query.ndim == key.ndim == value.ndim == mask.ndim == 4
    return reference.scaled_dot_product_attention(
        query, key, value, mask=mask, bias=bias, scale=scale
    )


def attend_after_tokens(query, key, value, mask):
    """The same with heads on axis 2."""
    heads = [x.swapaxes(1, 2) for x in (query, key, value)]
    return attend_in_heads(*heads, mask).swapaxes(1, 2)


def attend_to_the_past(query, key, value, causal=False):
    """An attention that takes no mask."""
    return reference.scaled_dot_product_attention(query, key, value, causal=causal)


@pytest.mark.parametrize(
    ("attend", "axis", "cases"),
    [
        (attend_in_heads, 1, ["a scale", "a bias", "a bias and a mask", "plain"]),
        (attend_after_tokens, 2, ["one length per query", "plain"]),
        (attend_to_the_past, 1, ["three heads, causal", "plain"]),
    ],
)
def test_an_attention_gets_its_arguments_in_the_shape_it_wants(attend, axis, cases):
    report = check(
        attention_of_heads(attend, head_axis=axis), "attention", framework="numpy"
    )
    assert not report.failures
    assert {*cases} <= {run.case["name"] for run in report.runs}


def test_an_attention_without_a_bias_may_be_told_so():
    attention = attention_of_heads(attend_in_heads)
    x = np.random.default_rng(0).normal(size=(2, 3, 4))
    assert np.array_equal(attention(x, x, x, bias=None), attention(x, x, x))


def test_an_attention_whose_mask_means_hidden_fails():
    def hidden(query, key, value, mask):
        return attend_in_heads(query, key, value, ~mask)

    report = check(attention_of_heads(hidden), "attention", framework="numpy")
    assert len(report.failures) > 3


@pytest.mark.parametrize("make", [torch.tensor, jnp.array], ids=["torch", "jax"])
def test_heads_exchange_places_in_every_framework(make):
    seen = []

    def rope(x, positions):
        seen.append((x.shape, positions.shape))
        return x

    x = make(np.arange(24.0).reshape(1, 2, 3, 4))
    rotated = rotation_of_heads(rope, head_axis=2)(x, make([[5, 6, 7]]))
    assert seen == [((1, 3, 2, 4), (1, 3))]
    assert np.array_equal(rotated, x)
