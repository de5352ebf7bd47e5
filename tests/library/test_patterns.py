"""Patterns of attention: what a head gives to the token before, to a repetition, and to the first token."""

import numpy as np
import pytest

from tests.conftest import BOUND

SCORES = {
    "previous_token_score": (2,),
    "induction_score": (4,),
    "first_token_score": (),
}


def random_weights(column, *shape, seed=0):
    """Weights of a causal head: each row sums to 1."""
    weights = np.tril(np.random.default_rng(seed).uniform(size=(*shape, shape[-1])))
    return column.array(weights / weights.sum(-1, keepdims=True))


def test_scores_are_means_of_what_they_name(column):
    weights = random_weights(column, 1, 7)
    w = column.numpy(weights)[0].astype(float)
    wanted = [
        (column.previous_token_score(weights), [w[i, i - 1] for i in range(1, 7)]),
        (column.previous_token_score(weights, 3), [w[i, i - 3] for i in range(3, 7)]),
        (column.induction_score(weights, 3), [w[i, i - 2] for i in range(3, 7)]),
        (column.first_token_score(weights), [w[i, 0] for i in range(1, 7)]),
    ]
    for score, entries in wanted:
        assert abs(float(score[0]) - np.mean(entries)) <= BOUND[column.dtype]


def test_heads_that_do_nothing_else_score_1(column):
    """What comes before the second time repeats nothing, and does not count."""
    before, found, first = np.eye(6, k=-1), np.eye(6, k=-2), np.zeros((6, 6))
    first[:, 0] = before[0, 0] = found[:2, 0] = 1
    weights = column.array(np.stack([before, found, first]))
    scores = [
        column.previous_token_score(weights),
        column.induction_score(weights, 3),
        column.first_token_score(weights),
    ]
    assert np.allclose(column.numpy(scores[0]), [1, 0.2, 0.2])
    assert np.allclose(column.numpy(scores[1]), [0, 1, 0])
    assert np.allclose(column.numpy(scores[2]), [0.2, 0.4, 1])


@pytest.mark.parametrize(("name", "arguments"), SCORES.items(), ids=SCORES)
def test_each_head_of_each_text_has_its_score(column, name, arguments):
    weights = random_weights(column, 2, 3, 6)
    scores = getattr(column, name)(weights, *arguments)
    assert tuple(scores.shape) == (2, 3)
    alone = getattr(column, name)(weights[1, 2:], *arguments)
    assert abs(float(scores[1, 2]) - float(alone[0])) <= BOUND[column.dtype]
