"""Functions of other shapes pass the checker through adapters, and their faults are named."""

import jax.numpy as jnp
import numpy as np
import pytest
import torch

from posattn import reference
from posattn.conformance import UsageError, check
from posattn.conformance.adapters import (
    attention_of_heads,
    mask_of_mask_mod,
    rotation_by_tables,
    rotation_of_cos_and_sin,
    rotation_of_heads,
    rotation_of_tokens,
)
from posattn.reference import scaled_dot_product_attention

HALF = {"settings": {"layout": "half"}, "skip": "odd width", "framework": "torch"}
NEAR = HALF | {"max_position": 5000}  # where float32 angles are exact enough


def tables(positions, dim, base=10000.0):
    """Cosines and sines as Llama's code has them, angles in float32."""
    frequencies = 1.0 / base ** (torch.arange(0, dim, 2).float() / dim)
    angles = positions[..., None].float() * frequencies
    angles = torch.cat([angles, angles], -1)
    return angles.cos(), angles.sin()


def rotate_half(x):
    """The second half, negated, before the first."""
    a, b = x.chunk(2, -1)
    return torch.cat([-b, a], -1)


def apply_without_heads(q, k, cos, sin):
    """The rotation for one head."""
    return q * cos + rotate_half(q) * sin, k * cos + rotate_half(k) * sin


def apply_rotary_pos_emb(q, k, cos, sin):
    """The rotation of transformers, whose tables lack the axis of heads."""
    return apply_without_heads(q, k, cos[:, None], sin[:, None])


@pytest.mark.parametrize("key", [False, True])
def test_tables_and_their_rotation_pass(key):
    rope = rotation_by_tables(apply_rotary_pos_emb, tables, key=key)
    report = check(rope, "rotary", tolerance="float32-angles", **HALF)
    assert not report.failures
    assert report.title.startswith("apply_rotary_pos_emb as rotary")
    assert rope.__module__ == apply_rotary_pos_emb.__module__  # whose framework it has
    bases = {run.case["keywords"].get("base") for run in report.runs}
    assert bases == {None, 500.0}


def test_a_rotation_without_heads_passes():
    rope = rotation_by_tables(apply_without_heads, tables, head_axis=None)
    report = check(rope, "rotary", **NEAR)
    assert not report.failures
    assert any("two heads" in run.case["name"] for run in report.runs)


@pytest.mark.parametrize(
    ("apply", "wrong"),
    [
        (lambda q, k, *t: (apply_rotary_pos_emb(q, k, *t)[0], k), [True]),
        (lambda q, k, *t: (apply_rotary_pos_emb(q, k, *t)[0],) * 2, [True]),
        (lambda q, k, *t: apply_rotary_pos_emb(q, k, *t)[::-1], [False, True]),
    ],
    ids=["key stays", "query twice", "exchanged"],
)
def test_a_query_in_the_place_of_a_key_fails(apply, wrong):
    for key in (False, True):
        rope = rotation_by_tables(apply, tables, key=key)
        report = check(rope, "rotary", only="0 to 4", **HALF)
        assert bool(report.failures) == (key in wrong)


class Rope:
    """As in vLLM: tables of all positions, made once; positions first, tokens in a row."""

    def __init__(self, dim, length=5000, base=10000.0):
        self.cos, self.sin = tables(torch.arange(length), dim, base)

    def __call__(self, positions, query, key):
        """Look the tables up and rotate."""
        return apply_without_heads(query, key, self.cos[positions], self.sin[positions])


@pytest.mark.parametrize("key", [False, True])
def test_an_object_that_takes_positions_first_passes(key):
    only = {"only": "layout half, positions", "max_position": 4999}
    report = check(rotation_of_tokens(Rope(8), key=key), "rotary", **HALF | only)
    assert not report.failures
    assert len(report.runs) == 3
    other = check(rotation_of_tokens(Rope(8, base=500.0), key=key), "rotary", **HALF | only)
    assert len(other.failures) == 3

    def exchanged(positions, query, key):
        return Rope(8)(positions, key, query)

    wrong = check(rotation_of_tokens(exchanged, key=key), "rotary", **HALF | only)
    assert len(wrong.failures) == 3


@pytest.mark.parametrize("make", [np.array, torch.tensor, jnp.array])
def test_a_mask_mod_is_a_mask_of_positions(make):
    def window(b, h, q_idx, kv_idx):
        return (kv_idx <= q_idx) & (q_idx - kv_idx < 2)

    query, key = make([[2], [3]]), make([[0, 1, 2, 3]] * 2)
    mask = mask_of_mask_mod(window)(query, key)
    assert np.asarray(mask).astype(int).tolist() == [[[0, 1, 1, 0]], [[0, 0, 1, 1]]]
    everything = mask_of_mask_mod(lambda b, h, q_idx, kv_idx: kv_idx >= 0)(query, key)
    assert everything.shape == (2, 1, 4)


def in_heads(x, positions, base=10000.0):
    """The rotation of operators: heads on axis 1, positions for each example."""
    assert positions.shape == (x.shape[0], x.shape[2])
    return reference.rotate(x, positions[:, None], base=base)


def after_tokens(x, positions):
    """The same with heads on axis 2."""
    return in_heads(x.swapaxes(1, 2), positions).swapaxes(1, 2)


def without_heads(x, positions):
    """The same for one head."""
    assert positions.shape == x.shape[:2]
    return reference.rotate(x, positions)


@pytest.mark.parametrize(
    ("rope", "axis"), [(in_heads, 1), (after_tokens, 2), (without_heads, None)]
)
def test_a_rotation_gets_its_arguments_in_its_shape(rope, axis):
    report = check(rotation_of_heads(rope, head_axis=axis), "rotary", framework="numpy")
    assert not report.failures
    assert report.title.startswith(f"{rope.__name__} as rotary")
    names = [run.case["name"] for run in report.runs]
    assert {"two heads, positions per example", "no tokens"} <= {*names}
    assert ("another base" in names) == (rope is in_heads)


@pytest.mark.parametrize("axis", [0, True, "1"])
def test_an_axis_of_heads_without_a_meaning_is_refused(axis):
    wanted = rf"head_axis must be one of \(1, 2, None\), got {axis!r}"
    with pytest.raises(UsageError, match=wanted):
        rotation_of_heads(in_heads, head_axis=axis)
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


@pytest.mark.parametrize(
    ("cos_and_sin", "layouts"),
    [
        (pair_tables, ["half", "interleaved"]),
        (tables, ["half"]),
        (repeated_tables, ["interleaved"]),
        (lambda positions, dim: tables(positions, dim)[::-1], []),
        (lambda positions, dim: tables(positions, dim, 500.0), []),
    ],
    ids=["pairs", "halves", "neighbors", "sines first", "another base"],
)
def test_tables_alone_pass_in_the_layouts_they_fit(cos_and_sin, layouts):
    rope = rotation_of_cos_and_sin(cos_and_sin)
    for layout, dtype in (("half", "float32"), ("interleaved", "bfloat16")):
        options = NEAR | {"settings": {"layout": layout}, "dtype": dtype}
        report = check(rope, "rotary", only="positions", **options)
        assert bool(report.failures) == (layout not in layouts)


def attend_in_heads(query, key, value, mask, *, bias=None, scale=None):
    """The attention of operators: four axes, and a mask that is always given."""
    assert query.ndim == key.ndim == value.ndim == mask.ndim == 4
    options = {"mask": mask, "bias": bias, "scale": scale}
    return scaled_dot_product_attention(query, key, value, **options)


def attend_after_tokens(query, key, value, mask):
    """The same with heads on axis 2."""
    heads = [x.swapaxes(1, 2) for x in (query, key, value)]
    return attend_in_heads(*heads, mask).swapaxes(1, 2)


def attend_to_the_past(query, key, value, causal=False):
    """An attention that takes no mask."""
    return scaled_dot_product_attention(query, key, value, causal=causal)


@pytest.mark.parametrize(
    ("attend", "axis", "cases"),
    [
        (attend_in_heads, 1, ["a scale", "a bias", "a bias and a mask", "plain"]),
        (attend_after_tokens, 2, ["one length per query", "plain"]),
        (attend_to_the_past, 1, ["three heads, causal", "plain"]),
    ],
)
def test_an_attention_gets_its_arguments_in_its_shape(attend, axis, cases):
    attention = attention_of_heads(attend, head_axis=axis)
    report = check(attention, "attention", framework="numpy")
    assert not report.failures
    assert {*cases} <= {run.case["name"] for run in report.runs}


@pytest.mark.parametrize("make", [torch.tensor, jnp.array])
def test_heads_exchange_places_in_every_framework(make):
    seen = []

    def rope(x, positions):
        seen.append((x.shape, positions.shape))
        return x

    x = make(np.arange(24.0).reshape(1, 2, 3, 4))
    same = rotation_of_heads(rope, head_axis=2)(x, make([[5, 6, 7]]))
    assert seen == [((1, 3, 2, 4), (1, 3))]
    assert np.array_equal(same, x)
