"""Short convolutions."""

import numpy as np
import pytest

from tests.conftest import assert_close, assert_twin_agrees, draw

N, WIDTH, TAPS = 12, 3, 4
X, WEIGHT, OFFSET = draw(0, 2, N, WIDTH), draw(1, WIDTH, TAPS), draw(2, WIDTH)
STATE = draw(3, 2, TAPS - 1, WIDTH)
MASK = np.ones((2, N), bool)
MASK[0, :2] = MASK[0, 5] = MASK[1, 4:7] = MASK[1, -2:] = False
DOCUMENTS = np.array([[0] * 4 + [1] * 2 + [0] * 6, [5] * 3 + [8] + [9] * 8])


def convolved(x, before=None):
    """The outputs of one document, `(n, c)`, and its last inputs."""
    before = np.zeros((TAPS - 1, WIDTH)) if before is None else before
    inputs = np.concatenate([before, x])
    outputs = np.empty(x.shape)
    for t in range(len(x)):
        for c in range(WIDTH):
            outputs[t, c] = inputs[t : t + TAPS, c] @ WEIGHT[c] + OFFSET[c]
    return outputs, inputs[len(x) :]


def given(column, *arrays):
    return map(column.array, arrays or (X, WEIGHT, OFFSET))


def test_the_last_tap_is_the_token_itself(column):
    output, state = column.short_convolution(*given(column), state=column.array(STATE))
    want, last = zip(*map(convolved, X, STATE), strict=True)
    assert_close(column, output, np.array(want))
    assert_close(column, state, np.array(last))
    assert_close(
        column,
        column.short_convolution(*given(column, X, WEIGHT))[0],
        np.array([convolved(x)[0] - OFFSET for x in X]),
    )


def test_each_document_has_the_outputs_that_it_has_alone(column):
    """Padding stands in front, between and behind, and holds what is no number."""
    want, last = np.zeros(X.shape), np.zeros(STATE.shape)
    for b in range(2):
        tokens = np.flatnonzero(MASK[b])
        before = STATE[b]
        for document in np.split(tokens, np.flatnonzero(np.diff(DOCUMENTS[b, tokens])) + 1):
            want[b, document], last[b] = convolved(X[b, document], before)
            before = None
    x = np.where(MASK[..., None], X, np.nan)
    options = {"mask": column.positions(MASK), "documents": column.positions(DOCUMENTS)}
    output, state = column.short_convolution(
        *given(column, x, WEIGHT, OFFSET), state=column.array(STATE), **options
    )
    assert_close(column, output, want)
    assert_close(column, state, last)
    assert (column.numpy(output)[~MASK] == 0).all()


def test_values_and_gradients_agree_with_the_reference(twin):
    def output(column, x, weight, offset, state):
        options = {"mask": column.positions(MASK), "documents": column.positions(DOCUMENTS)}
        return column.short_convolution(x, weight, offset, state=state, **options)[0]

    inputs = X, WEIGHT / 4, OFFSET, STATE
    assert_twin_agrees(twin, output, *inputs)
    _, gradients = twin.value_and_gradients(lambda *xs: output(twin, *xs), inputs)
    assert (gradients[0][~MASK] == 0).all()


@pytest.mark.parametrize("hide", [False, True])
def test_a_text_cut_into_calls_has_the_outputs_of_one(column, hide):
    """Calls may be shorter than the taps, or hold padding only."""
    mask = MASK if hide else np.ones((2, N), bool)
    whole, last = column.short_convolution(*given(column), mask=column.positions(mask))
    state = None
    for start, stop in ((0, 1), (1, 2), (2, 7), (7, 7), (7, N)):
        output, state = column.short_convolution(
            *given(column, X[:, start:stop], WEIGHT, OFFSET),
            mask=column.positions(mask[:, start:stop]),
            state=state,
        )
        assert_close(column, output, column.numpy(whole)[:, start:stop])
    assert_close(column, state, column.numpy(last))


def test_one_tap_keeps_no_inputs(column):
    options = {"mask": column.positions(MASK), "documents": column.positions(DOCUMENTS)}
    output, state = column.short_convolution(*given(column, X, WEIGHT[:, -1:]), **options)
    assert_close(column, output, np.where(MASK[..., None], X * WEIGHT[:, -1], 0))
    assert tuple(state.shape) == (2, 0, WIDTH)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"weight": (2, 4)}, r"weight must have shape \(3, k\), got \(2, 4\)"),
        ({"weight": (3, 0)}, "weight must have at least 1 tap, got 0"),
        ({"offset": (1,)}, r"offset must have shape \(3,?\), got \(1,\)"),
        ({"state": (2, 4, 3)}, r"state must have shape \(2, 3, 3\), got \(2, 4, 3\)"),
    ],
)
def test_what_does_not_fit_is_refused_in_the_same_words(column, unchecked, change, message):
    named = {"x": X, "weight": WEIGHT} | {k: np.ones(s) for k, s in change.items()}
    with pytest.raises(ValueError, match=message):
        column.short_convolution(**{k: column.array(x) for k, x in named.items()})
