"""Ring attention is attention: one program that plays all workers, and processes that are workers."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import distributed as dist

import posattn.torch as ours
from tests.conftest import BOUND, REFERENCE, draw, error
from tests.library import rings
from tests.library.rings import CASES, KV_HEADS, ORDERS, WIDTH, WORKERS, N
from tests.library.test_tiled import Largest


@pytest.mark.parametrize(("n", "workers"), [(24, 3), (0, 4)])
def test_each_worker_gets_a_piece_from_either_end(column, n, workers):
    order = column.numpy(column.balanced_order(n, workers))
    piece = n // (2 * workers)
    for r, shard in enumerate(np.split(order, workers)):
        last = n - (r + 1) * piece
        ends = [*range(r * piece, (r + 1) * piece), *range(last, last + piece)]
        assert shard.tolist() == ends


@st.composite
def problems(draw):
    """Sizes, options and places of a call, with a ring that fits."""
    workers, q, k = (draw(st.integers(1, 4)) for _ in range(3))
    groups, per_group = draw(st.integers(1, 2)), draw(st.integers(1, 2))
    batch = draw(st.lists(st.integers(1, 2), max_size=1))
    return {
        "workers": workers,
        "sizes": (workers * q, workers * k),
        "heads": (groups * per_group, groups),
        "batch": batch,
        "causal": draw(st.booleans()),
        "mask": draw(st.sampled_from(["none", "keys", "window"])),
        "bias": draw(st.sampled_from(["none", "ALiBi", "several", "content"])),
        "shuffled": draw(st.booleans()),
    }


def biases_of(name, heads):
    return {
        "none": None,
        "ALiBi": REFERENCE.ALiBi(heads),
        "several": [REFERENCE.ALiBi(heads), None, REFERENCE.T5Bias(draw(7, 32, heads))],
        "content": REFERENCE.RelativeGlobalAttention(draw(8, heads, 8, 3)),
    }[name]


def near(here, there):
    return abs(here[..., :, None] - there[..., None, :]) < 3


@given(problems())
def test_one_program_that_plays_all_workers_computes_attention(p):
    (n_q, n_k), (heads, groups) = p["sizes"], p["heads"]
    query = draw(1, *p["batch"], heads, n_q, 3)
    key, value = (draw(s, *p["batch"], groups, n_k, 3) for s in (2, 3))
    bias = biases_of(p["bias"], heads)
    here, there = np.arange(n_k - n_q, n_k), np.arange(n_k)
    keys = np.random.default_rng(4).random((*p["batch"], 1, 1, n_k)) < 0.7
    mask = {"none": None, "keys": keys, "window": near(here, there)}[p["mask"]]
    options = {"causal": p["causal"], "bias": bias}
    want = REFERENCE.scaled_dot_product_attention(query, key, value, mask=mask, **options)
    mask = near if p["mask"] == "window" else mask
    rows, columns = np.arange(n_q), np.arange(n_k)
    if p["shuffled"]:  # tokens are spread in any order, if they say where they stand
        rows, columns = (np.random.default_rng(5).permutation(n) for n in (n_q, n_k))
        options |= {"query_positions": here[rows], "key_positions": there[columns]}
        mask = mask[..., columns] if p["mask"] == "keys" else mask
    got = REFERENCE.ring_attention(
        query[..., rows, :],
        key[..., columns, :],
        value[..., columns, :],
        across=p["workers"],
        mask=mask,
        **options,
    )
    assert error(got, want[..., rows, :]) <= BOUND["float64"]


def test_positions_may_be_those_of_each_example():
    """Two rows that are padded at the front, and a mask that is a function of their positions."""
    query, key, value = (draw(s, 2, 4, 8, 3) for s in (1, 2, 3))
    key[1, :, :3] = value[1, :, :3] = np.nan  # the padding
    where = np.stack([np.arange(8), np.arange(8) - 3])
    places = {"query_positions": where, "key_positions": where}

    def real(here, there):
        return (there >= 0)[:, None] & near(here, there)

    places |= {"causal": True, "bias": REFERENCE.ALiBi(4)}
    got = REFERENCE.ring_attention(query, key, value, across=4, mask=real, **places)
    mask = real(where, where)[:, None]
    want = REFERENCE.scaled_dot_product_attention(query, key, value, mask=mask, **places)
    assert error(got, want) <= BOUND["float64"]
    assert not got[1, :, :3].any()  # which see nothing


@pytest.fixture(scope="module")
def ring(tmp_path_factory):
    """Four processes, of which this is one."""
    workers = rings.Ring(tmp_path_factory.mktemp("ring") / "meet")
    yield workers
    workers.close()


def gathered(results, order):
    """Arrays of the whole sequence from those of the workers, and the sum of what they learned."""
    back = ORDERS[order].argsort().numpy()
    named = list(zip(*results, strict=True))
    wholes = [np.concatenate(x, axis=-2)[..., back, :] for x in named[:4]]
    return wholes + [sum(x) for x in named[4:]]


@pytest.mark.parametrize("case", CASES)
def test_processes_in_a_ring_compute_attention_and_its_gradients(ring, unchecked, case):
    _, dtype, order = CASES[case]
    results = ring(rings.attend, case)
    names = "result", "query", "key", "value", *["parameter"] * len(results[0])
    for name, got, want in zip(
        names, gathered(results, order), rings.whole(case), strict=False
    ):
        assert np.isfinite(got).all()
        several = 4 if name == "parameter" else 1  # workers, whose shares are added up
        assert error(got, want) <= BOUND[dtype] * several, name


@pytest.mark.parametrize(
    ("argument", "one", "other"),
    [
        ("dtype", "key float32", "key float64"),
        ("bias", "gradient", "bias ALiBi"),
        ("causal", "causal False", "causal True"),
    ],
)
def test_calls_that_differ_are_named_by_every_worker(ring, unchecked, argument, one, other):
    said = ring(rings.unlike, argument)
    assert {type(error) for error in said} == {ValueError}
    assert len(set(map(str, said))) == 1
    text = str(said[0])
    assert text.startswith(
        "all workers must make the same call to ring_attention, got (query float32"
    )
    first, second = text.split(" on worker 0 and ")
    assert one in first
    assert other in second
    assert second.endswith("on worker 2")


def test_some_of_the_processes_may_stand_in_a_ring(ring, unchecked):
    """What each of them saves for the gradients does not grow with their number."""
    found = {kind: ring(rings.among_fewer, kind) for kind in ("pairs", "mesh", "all")}
    assert max(apart for results in found.values() for apart, _ in results) <= 1e-6
    assert len({results[0][1] for results in found.values()}) == 1


def test_every_worker_has_the_same_to_do_in_balanced_order(ring, unchecked):
    balanced, in_order = (
        ring(rings.count_tiles, order) for order in ("balanced", "in order")
    )
    assert max(balanced) - min(balanced) <= 1
    assert sum(balanced) == sum(in_order) == 8 * 9 / 2  # of 8 by 8 tiles
    assert max(in_order) - min(in_order) > 8


def test_no_more_is_sent_than_keys_values_and_positions(ring, unchecked):
    shard = N // WORKERS
    numbers = 2 * 2 * shard * KV_HEADS * WIDTH  # of keys and values, in two examples
    for forward, backward in ring(rings.count_bytes, "bfloat16"):
        assert forward == (WORKERS - 1) * (numbers * 2 + 8 * shard)
        assert backward == forward + WORKERS * numbers * 4  # gradients are float32


def test_a_layer_may_spread_its_sequence(ring, unchecked):
    for apart in ring(rings.run_a_layer):
        assert apart <= 1e-4  # of gradients up to a hundred


@pytest.mark.parametrize("kind", ["no heads", "no tokens", "not contiguous"])
def test_arrays_of_odd_shapes_go_round(ring, unchecked, kind):
    for apart in ring(rings.odd_arrays, kind):
        assert apart <= 1e-4


def arrays_of(n, dtype=torch.float32):
    return [torch.tensor(draw(s, 2, n, 3)).to(dtype).requires_grad_() for s in (1, 2, 3)]


def test_a_worker_alone_computes_attention_again_and_again(ring, unchecked):
    arrays = arrays_of(9)
    out = ours.ring_attention(*arrays, across=ring.alone, causal=True)
    want = ours.scaled_dot_product_attention(*arrays, causal=True)
    assert torch.allclose(out, want, atol=1e-6)
    for _ in range(2):  # nothing is used up by the first
        slopes = [
            torch.autograd.grad(x.sum(), arrays, retain_graph=True) for x in (out, want)
        ]
        for one, other in zip(*slopes, strict=True):
            assert torch.allclose(one, other, atol=1e-5)


def test_no_derivative_of_a_derivative_is_claimed(ring, unchecked):
    arrays = arrays_of(5)
    out = ours.ring_attention(*arrays, across=ring.alone)
    with pytest.raises(
        ValueError, match=r"^create_graph must be False where ring_attention is"
    ):
        torch.autograd.grad(out.sum(), arrays[0], create_graph=True)


def test_no_tile_is_large(ring, unchecked):
    """Forward and backward, nothing is made that grows with the square of the length."""
    arrays = arrays_of(192)
    with Largest() as largest:
        out = ours.ring_attention(*arrays, across=ring.alone, bias=ours.T5Bias(2))
        out.sum().backward()
    assert largest.entries <= arrays[0].numel()


def test_a_gradient_that_would_be_lost_is_refused(ring, unchecked):
    arrays, bias = (
        arrays_of(4),
        ours.T5Bias(2).forward,
    )  # no module, which would be searched
    text = r"^bias must have its gradient in the parameters or buffers"
    with pytest.raises(ValueError, match=text):
        ours.ring_attention(*arrays, across=ring.alone, bias=bias)
    with torch.no_grad():  # then there is none
        assert ours.ring_attention(*arrays, across=ring.alone, bias=bias).isfinite().all()


def test_a_bias_for_other_heads_is_named(ring, unchecked):
    text = r"^bias must have a shape that broadcasts to \(2, 1, 1\), got \(3, 1, 1\)"
    with pytest.raises(ValueError, match=text):
        ours.ring_attention(*arrays_of(5), across=ring.alone, bias=ours.ALiBi(3))


KIND = "across must be a process group of this process, a DeviceMesh of one axis, or None"


def test_across_must_name_processes(ring, unchecked, monkeypatch):
    arrays = arrays_of(4)
    for across, got in (("all", "str"), (dist.GroupMember.NON_GROUP_MEMBER, "int")):
        with pytest.raises(TypeError) as caught:
            ours.ring_attention(*arrays, across=across)
        assert str(caught.value) == f"{KIND}, got {got}"
    for raised in ring(rings.around_a_square):
        assert isinstance(raised, ValueError)
        assert str(raised) == f"{KIND}, got a DeviceMesh of 2 axes"
    monkeypatch.setattr(dist, "is_initialized", lambda: False)
    with pytest.raises(
        ValueError, match=r"got no process group: call torch\.distributed\.init"
    ):
        ours.ring_attention(*arrays, across=None)


def test_across_must_divide_the_sequence(unchecked):
    query, key = draw(1, 2, 8, 3), draw(2, 2, 6, 3)
    for across in (3, 4):  # which divide the one or the other
        text = f"^across must divide n_q = 8 and n_k = 6, got {across}$"
        with pytest.raises(ValueError, match=text):
            REFERENCE.ring_attention(query, key, key, across=across)
