"""Recurrences of all kinds: linear attention, and what it has in common with the delta rules."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import posattn.torch
from posattn.torch.attention import chunks
from tests.conftest import REFERENCE, TWINS, assert_close, assert_twin_agrees, draw, error
from tests.library.recurrences import (
    DOCUMENTS,
    MASK,
    NAMES,
    OUT,
    VALUES,
    WIDTH,
    N,
    arrays,
    call,
    documents_alone,
    some,
    written_out,
)

KINDS = pytest.mark.parametrize("kind", NAMES)
STATE = draw(7, 2, VALUES, WIDTH, OUT)


@KINDS
def test_each_document_has_the_outputs_that_it_has_alone(column, kind):
    """Padding stands in front, between and behind, and holds what is no number."""
    named = arrays(kind)
    want, last = documents_alone(named, STATE)
    for name, x in named.items():
        hidden = ~MASK if x.ndim == 3 else ~MASK[..., None]
        named[name] = np.where(hidden[:, None], np.nan, x)
    output, state = call(column, kind, named, state=STATE, mask=MASK, documents=DOCUMENTS)
    assert_close(column, output, want)
    assert_close(column, state, last)
    assert (column.numpy(output).swapaxes(1, 2)[~MASK] == 0).all()


@KINDS
def test_values_and_gradients_agree_with_the_reference(precise_twin, kind):
    named = arrays(kind)
    hidden = {"mask": MASK, "documents": DOCUMENTS}

    def both(column, state, *given):
        options = {name: column.positions(x) for name, x in hidden.items()}
        output, last = getattr(column, NAMES[kind])(*given, state=state, **options)
        joined = {"torch": torch.cat, "jax": jnp.concatenate}
        concatenate = joined.get(column.name, np.concatenate)
        return concatenate([output.reshape(-1), last.reshape(-1)])

    assert_twin_agrees(precise_twin, both, STATE, *named.values())
    _, gradients = precise_twin.value_and_gradients(
        lambda *given: both(precise_twin, *given), (STATE, *named.values())
    )
    for gradient in gradients[1:]:
        assert (gradient.swapaxes(1, 2)[~MASK] == 0).all()


@KINDS
def test_a_text_cut_into_calls_has_the_outputs_of_one(column, kind):
    named = arrays(kind)
    whole, last = written_out(named)
    assert_close(column, call(column, kind, named)[0], whole)
    state = {}
    for start, stop in ((0, 66), (66, 67), (67, N)):
        output, after = call(column, kind, some(named, range(start, stop)), **state)
        assert_close(column, output, whole[:, :, start:stop])
        state = {"state": column.numpy(after)}
    assert_close(column, after, last)


def test_gates_of_channels_are_those_of_heads_where_they_are_alike(column):
    named = arrays("linear", 9)
    want, _ = call(column, "linear", named)
    alike = np.repeat(named["log_gates"][..., None], WIDTH, axis=-1)
    for kind, extra in (("linear", {}), ("kimi", {"beta": np.ones((2, VALUES, 9))})):
        per_head, _ = call(column, {"kimi": "gated"}.get(kind, kind), named | extra)
        got, _ = call(column, kind, named | {"log_gates": alike} | extra)
        assert_close(column, got, column.numpy(per_head))
    assert_close(column, want, written_out(named)[0])
    ungated = {name: x for name, x in named.items() if name != "log_gates"}
    sums = call(column, "linear", ungated)[1]
    named["log_gates"] = np.zeros((2, VALUES, 9))
    assert_close(column, sums, written_out(named)[1])


def test_heads_need_no_batch_and_a_row_may_be_empty(column):
    named = {name: x[0] for name, x in arrays("gated", 3).items()}
    want, last = written_out({name: x[None] for name, x in named.items()})
    output, state = call(column, "gated", named, mask=np.ones(3, bool))
    assert_close(column, output, want[0])
    assert_close(column, state, last[0])
    output, state = call(column, "gated", named, mask=np.zeros(3, bool), state=STATE[0])
    assert_close(column, output, 0 * want[0])
    assert_close(column, state, STATE[0])
    none = {name: x[:, :0] for name, x in named.items()}
    output, state = call(column, "gated", none, state=STATE[0])
    assert tuple(output.shape) == (VALUES, 0, OUT)
    assert_close(column, state, STATE[0])


@pytest.mark.parametrize("half", TWINS[4:], ids=str)
def test_half_precision_keeps_a_state_of_32_bits(half):
    named = {name: np.round(x * 64) / 64 for name, x in arrays("gated").items()}
    output, state = call(half, "gated", named)
    want, last = written_out(named)
    assert error(half.numpy(output), want) <= 2**-8
    assert "float32" in str(state.dtype)
    assert error(np.asarray(state), last) <= 2**-18


def test_jax_decodes_in_a_compiled_loop(jax_single):
    given = arrays("gated", 5)
    tokens = tuple(jnp.moveaxis(jax_single.array(x), 2, 0) for x in given.values())

    @jax.jit
    def decode(state, tokens):
        def step(state, token):
            token = (x[:, :, None] for x in token)
            output, state = jax_single.gated_delta(*token, state=state)
            return state, output

        return jax.lax.scan(step, state, tokens)

    state, outputs = decode(jax_single.array(STATE), tokens)
    want, last = written_out(given, STATE)
    assert_close(jax_single, outputs[:, :, :, 0], np.moveaxis(want, 2, 0))
    assert_close(jax_single, state, last)


class Long(TorchDispatchMode):
    """Counts what is made of so many tokens, padding to whole chunks included."""

    def __init__(self, lengths):
        super().__init__()
        self.lengths, self.count = lengths, 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        made = function(*args, **kwargs or {})
        fresh = isinstance(made, torch.Tensor) and not made._is_view()
        self.count += fresh and bool(self.lengths & set(made.shape))
        return made


def test_the_backward_pass_makes_nothing_of_all_tokens_for_each_chunk(torch_column):
    """Else it would be quadratic in the length."""
    counts = []
    for n in (130, 1030):
        given = [torch.tensor(x).requires_grad_() for x in arrays("gated", n).values()]
        output, _ = torch_column.gated_delta(*given)
        with Long({n, n + -n % 64}) as long:
            output.sum().backward()
        counts.append(long.count)
    assert counts[0] == counts[1] > 0


@KINDS
def test_what_a_long_text_computes_again_changes_no_derivative(kind, monkeypatch):
    named = [torch.tensor(x).requires_grad_() for x in arrays(kind, 200).values()]
    hidden = {"documents": torch.arange(200) // 90}

    def derivatives():
        made = getattr(posattn.torch, NAMES[kind])(*named, **hidden)
        total = sum((x * x).sum() for x in made)
        first = torch.autograd.grad(total, named, create_graph=True)
        second = torch.autograd.grad(sum((x * x).sum() for x in first), named)
        return [*made, *first, *second]

    want, held, seen = derivatives(), chunks._in_chunks, []
    monkeypatch.setattr(chunks, "LONG", 128)
    monkeypatch.setattr(chunks, "TOGETHER", 128)
    monkeypatch.setattr(chunks, "_in_chunks", lambda *x: seen.append(x) or held(*x))
    got = derivatives()
    assert len(seen) >= 4  # two groups, forward and backward
    assert all(torch.allclose(x, y, rtol=1e-9) for x, y in zip(got, want, strict=True))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"key": (2, 1, 3, 4)}, r"key must have shape \(2, 2, 3, 4\), got \(2, 1, 3, 4\)"),
        ({"value": (2, 3, 3, 3)}, "value must have a positive multiple of the 2 heads of"),
        ({"log_gates": (2, 4, 3, 4)}, r"log_gates must have shape \(2, 4, 3\)"),
        ({"beta": (2, 4, 1)}, r"beta must have shape \(2, 4, 3\), got \(2, 4, 1\)"),
        ({"state": (2, 4, 3, 4)}, r"state must have shape \(2, 4, 4, 3\), got \(2, 4,"),
        ({"mask": (2, 4, 3)}, r"mask must have shape \(3,\) or \(2, 3\), got \(2, 4, 3\)"),
        ({"documents": (3, 3)}, r"documents must have shape \(3,\) or \(2, 3\), got"),
    ],
)
def test_what_does_not_fit_is_refused_in_the_same_words(column, unchecked, change, message):
    named = arrays("gated", 3)
    kinds = {"mask": bool, "documents": int}
    for name, shape in change.items():
        named[name] = np.ones(shape, kinds.get(name, float))
    with pytest.raises(ValueError, match=message):
        call(column, "gated", {k: named.pop(k) for k in list(named)[:5]}, **named)


def test_a_mask_is_bool_and_a_state_is_precise(column, unchecked):
    named = arrays("gated", 3)
    with pytest.raises(TypeError, match=r"mask must be bool \(True means a token\), got"):
        call(column, "gated", named, mask=np.ones(3, int))
    with pytest.raises(TypeError, match="documents must have an integer dtype, got bool"):
        call(column, "gated", named, documents=np.ones(3, bool))
    if column is not REFERENCE:
        half = column.array(STATE)
        half = half.bfloat16() if column.name == "torch" else half.astype(jnp.bfloat16)
        with pytest.raises(TypeError, match="state must hold float32 or float64, got bf"):
            column.gated_delta(*map(column.array, named.values()), state=half)
