"""Where packed documents begin."""

import numpy as np
import pytest

from tests.conftest import assert_close

N = 7


@pytest.mark.parametrize(
    ("documents", "mask", "before"),
    [
        ([0, 0, 1, 1, 1, 0, 0], [1] * 7, [0, 1, 0, 3, 4, 0, 6]),
        (
            [5, 5, 9, 9, 5, 5, 5],
            [1, 1, 0, 0, 1, 1, 1],
            [0, 1, 0, 0, 2, 5, 6],
        ),  # padding has a number
        ([9, 9, 3, 3, 9, 4, 4], [0, 0, 1, 1, 0, 1, 1], [0, 0, 0, 3, 0, 0, 6]),
        ([1, 2, 3, 4, 5, 6, 7], [1] * 7, [0] * 7),
    ],
)
def test_a_document_begins_where_the_number_of_tokens_changes(
    column, documents, mask, before
):
    """A convolution shows which token, counted from 1, each token has before it in its document."""
    x = np.arange(1.0, N + 1)[:, None]
    mask = np.array(mask, bool)
    output, _ = column.short_convolution(
        column.array(x),
        column.array(np.array([[1.0, 0.0]])),
        mask=column.positions(mask),
        documents=column.positions(np.array(documents)),
    )
    assert_close(column, output, np.array(before, float)[:, None])
