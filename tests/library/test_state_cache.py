"""The cache of a recurrent layer."""

import numpy as np
import pytest

from tests.conftest import REFERENCE, assert_close, draw

X = draw(0, 2, 4, 6)
LAYER = REFERENCE.DeltaAttention.init(np.random.default_rng(0), 6, 2, key_dim=4)
SIZES = {"num_heads": 2, "key_dim": 4, "value_dim": 4, "past": 3, "width": 24}


def layer_of(column):
    """The same layer in each column."""
    if column is REFERENCE:
        return LAYER
    arrays = {name: x for name, x in vars(LAYER).items() if isinstance(x, np.ndarray)}
    given = {name: column.array(x) for name, x in arrays.items()}
    if column.name == "jax":
        return column.DeltaAttention(**given, num_heads=2, num_key_heads=2)
    layer = column.DeltaAttention(6, 2, key_dim=4, dtype=given["taps"].dtype)
    is_matrix = lambda name: name.endswith("_weight") and name != "norm_weight"  # noqa: E731
    layer.load_state_dict(
        {
            name.replace("_weight", ".weight") if is_matrix(name) else name: x.mT
            if is_matrix(name)
            else x
            for name, x in given.items()
        }
    )
    return layer.requires_grad_(False)


def test_a_state_is_not_rolled_back_but_kept(column):
    layer = layer_of(column)
    tokens = [column.array(X[:, t : t + 1]) for t in range(4)]
    _, kept = layer(tokens[0], cache=layer.init_cache(2))
    want, after = layer(tokens[1], cache=kept)
    with pytest.raises(ValueError, match=r"n must be 0, got 1: a state can't forget"):
        after.trim(1)
    assert after.trim(0) is after
    layer(tokens[3], cache=kept)
    again, _ = layer(tokens[1], cache=kept)
    assert_close(column, again, column.numpy(want))


def test_a_cache_of_no_tokens_is_what_no_cache_is(column):
    layer = layer_of(column)
    want = column.numpy(layer(column.array(X)))
    options = {} if column is REFERENCE else {"dtype": column.array(X).dtype}
    got, after = layer(
        column.array(X), cache=column.StateCache.init((2,), **SIZES, **options)
    )
    assert_close(column, got, want)
    assert_close(
        column,
        after.inputs[:, -1],
        (
            X[:, -1]
            @ np.concatenate(
                [LAYER.query_weight, LAYER.key_weight, LAYER.value_weight], axis=1
            )
        ),
    )


@pytest.mark.parametrize("name", ["num_heads", "key_dim", "value_dim", "width"])
def test_sizes_are_positive(column, unchecked, name):
    with pytest.raises(ValueError, match=f"{name} must be a positive integer, got 0"):
        column.StateCache.init((2,), **SIZES | {name: 0})
