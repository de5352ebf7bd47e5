"""How the parameters of schemes are drawn: from the authors' distributions, by the given rng."""

import numpy as np
import pytest
import torch

NARROW = ("normal", 0.02)
ZERO = ("constant", 0.0)


def glorot(rows, columns):
    return uniform((6 / (rows + columns)) ** 0.5)


def uniform(most, least=None):
    return ("uniform", -most if least is None else least, most)


def of_dim_96(rows):
    return {
        "table": ((rows, 96), NARROW),
        "query_weight": ((96, 96), NARROW),
        "key_weight": ((96, 96), NARROW),
    }


# name, sizes, options, shape and law of each parameter
CASES = [
    ("LearnedPositionalEncoding", (200, 50), {}, {"table": ((200, 50), NARROW)}),
    ("CoPE", (200, 50), {}, {"table": ((200, 50), NARROW)}),
    ("ForgettingGate", (400, 50), {}, {
        "weight": ((400, 50), NARROW), "offset": ((50,), ZERO),
    }),
    ("DAPE", (8, lambda query, key: key - query), {"hidden_dim": 500}, {
        "hidden_weight": ((16, 500), uniform(1 / 4)), "hidden_bias": ((500,), uniform(1 / 4)),
        "output_weight": ((500, 8), uniform(500**-0.5)),
        "output_bias": ((8,), uniform(500**-0.5)),
    }),
    ("RelativeGlobalAttention", (100, 4, 25), {}, {"table": ((4, 100, 25), ("normal", 0.2))}),
    ("ShawRelative", (100, 50), {}, {
        "key_table": ((201, 50), glorot(201, 50)), "value_table": ((201, 50), glorot(201, 50)),
    }),
    ("T5Bias", (50,), {"num_buckets": 200}, {"table": ((200, 50), glorot(200, 50))}),
    ("SwinBias", (50, 7, 8), {}, {"table": ((13 * 15, 50), NARROW)}),
    ("SwinV2Bias", (200, 2, 3), {}, {
        "hidden_weight": ((2, 512), NARROW), "hidden_bias": ((512,), ZERO),
        "output_weight": ((512, 200), NARROW),
    }),
    ("KerpleLog", (2000,), {}, {
        "r1": ((2000,), uniform(2, 0)), "r2": ((2000,), uniform(1, 0)),
    }),
    ("KerplePower", (2000,), {}, {
        "r1": ((2000,), uniform(1, 0)), "r2": ((2000,), uniform(2, 0)),
    }),
    ("FIRE", (200,), {"hidden_dim": 500}, {
        "hidden_weight": ((500,), uniform(1)), "hidden_bias": ((500,), uniform(1)),
        "output_weight": ((500, 200), uniform(500**-0.5)),
        "output_bias": ((200,), uniform(500**-0.5)),
    }),
    ("DisentangledBias", (30, 96, 4), {}, of_dim_96(60)),
    ("TUPEBias", (60, 96, 4), {"use_cls": True}, of_dim_96(60) | {"cls_bias": ((2, 4), ZERO)}),
    ("TransformerXLBias", (96, 4), {}, {
        "content_bias": ((4, 24), NARROW), "position_bias": ((4, 24), NARROW),
        "weight": ((96, 96), NARROW),
    }),
]  # fmt: skip


def made(column, name, sizes, options):
    kind = getattr(column, name)
    if column.name == "torch":
        return kind(*sizes, **options, dtype=torch.float64, rng=column.rng())
    return kind.init(column.rng(), *sizes, **options)


def assert_law(numbers, law, *bounds):
    """Mean and deviation within five standard errors; nothing beyond the bounds."""
    if law == "constant":
        assert (numbers == bounds[0]).all()
        return
    least, most = bounds if law == "uniform" else (-np.inf, np.inf)
    mean = (least + most) / 2 if law == "uniform" else 0.0
    deviation = (most - least) / 12**0.5 if law == "uniform" else bounds[0]
    assert (least <= numbers).all()
    assert (numbers <= most).all()
    error = 5 * deviation / numbers.size**0.5
    assert abs(numbers.mean() - mean) < error
    assert abs(numbers.std() - deviation) < error


@pytest.mark.parametrize(("name", "sizes", "options", "wanted"), CASES)
def test_parameters_are_drawn_as_the_authors_do(column, name, sizes, options, wanted):
    layer, again = (made(column, name, sizes, options) for _ in range(2))
    drawn = {parameter: column.numpy(getattr(layer, parameter)) for parameter in wanted}
    for parameter, (shape, law) in wanted.items():
        assert drawn[parameter].shape == shape
        assert_law(drawn[parameter], *law)
        assert np.array_equal(column.numpy(getattr(again, parameter)), drawn[parameter])
    starts = [numbers.ravel()[:2].tolist() for numbers in drawn.values() if numbers.any()]
    assert len({tuple(start) for start in starts}) == len(starts)  # each has its own


def test_what_is_optional_is_absent_unless_asked_for(column):
    shaw = made(column, "ShawRelative", (0, 3), {"use_values": False})
    assert shaw.value_table is None
    assert made(column, "TUPEBias", (6, 8, 2), {}).cls_bias is None
    fire = made(column, "FIRE", (2,), {"hidden_dim": 3})
    found = fire.c.item(), fire.multiplier.item(), fire.threshold
    assert found == (0.1, 1.0, 512.0)
