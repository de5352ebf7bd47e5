"""How rope parameters become frequencies, as in transformers."""

import math

import numpy as np
import pytest

from posattn.configs import rope
from posattn.reference import dynamic_ntk, frequencies, llama3, longrope, ntk_aware, yarn

TRAINED = "original_max_position_embeddings"


def rotated(method, dim=64, longest=None, length=None, **options):
    parameters = {"rope_type": method, "rope_theta": 10000.0} | options
    return rope(parameters, dim, max_position_embeddings=longest, length=length)


def test_each_method_is_the_references():
    plain = frequencies(64)
    long, short = list(np.geomspace(1, 9, 32)), [1.5] * 32
    cases = [
        (rotated("default"), plain, 1),
        (rotated("linear", factor=8), plain / 8, 1),
        (rotated("ntk", factor=8), ntk_aware(64, factor=8.0), 1),
        (rotated("dynamic", factor=8, longest=512), plain, 1),
        (rotated("dynamic", factor=8, longest=512, length=4096),
            dynamic_ntk(64, factor=8.0, length=4096, trained_length=512), 1),
        (rotated("yarn", factor=8, **{TRAINED: 512}), *yarn(64, factor=8.0, trained_length=512)),
        (rotated("yarn", factor=8, attention_factor=2.0, beta_fast=None, **{TRAINED: 512}),
            yarn(64, factor=8.0, trained_length=512)[0], 2),
        (rotated("yarn", factor=8, mscale=1.0, mscale_all_dim=0.5, truncate=False, **{TRAINED: 512}),
            *yarn(64, factor=8.0, trained_length=512, mscale=1.0, mscale_all_dim=0.5, truncate=False)),
        (rotated("yarn", longest=4096, factor=None, mscale=0, **{TRAINED: 512}),
            *yarn(64, factor=8.0, trained_length=512)),
        (rotated("llama3", factor=4, low_freq_factor=1, high_freq_factor=4, **{TRAINED: 2048}),
            llama3(64, base=10000.0, factor=4.0, trained_length=2048), 1),
        (rotated("su", longest=4096, length=513, short_factor=short, long_factor=long, **{TRAINED: 512}),
            *longrope(64, factor=8.0, length=513, trained_length=512, short_factors=short,
                long_factors=long)),
        (rotated("longrope", factor=8, attention_factor=1.25, short_factor=short, long_factor=long,
            **{TRAINED: 512}), plain / 1.5, 1.25),
        (rotated("longrope", longest=512, short_factor=short, long_factor=long, **{TRAINED: 512}),
            plain / 1.5, 1),
        (rotated("default", partial_rotary_factor=0.5), frequencies(32), 1),
        (rotated("proportional", partial_rotary_factor=0.25), np.r_[plain[:8], np.zeros(24)], 1),
        (rotated("proportional", factor=2), plain / 2, 1),
        (rotated("dynamic", dim=2, factor=8, longest=512, length=4096), [1.0], 1),
    ]  # fmt: skip
    for found, wanted, factor in cases:
        np.testing.assert_allclose(found.frequencies, wanted, rtol=1e-14)
        assert found.attention_factor == pytest.approx(factor)


def test_a_factor_below_one_blends_likewise_and_sharpens_nothing():
    half, double = (
        rotated("yarn", factor=factor, **{TRAINED: 512}) for factor in (0.5, 2.0)
    )
    plain = frequencies(64)
    stay = 2 * np.array(double.frequencies) / plain - 1
    np.testing.assert_allclose(half.frequencies, plain * (2 - stay))
    assert (half.attention_factor, double.attention_factor) == (1, 0.1 * math.log(2) + 1)
    options = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, TRAINED: 2048}
    half, double = (rotated("llama3", factor=f, **options) for f in (0.5, 2.0))
    stay = 2 * np.array(double.frequencies) / plain - 1
    np.testing.assert_allclose(half.frequencies, plain * (2 - stay))
    assert rotated("linear", factor=0.5).frequencies == tuple(plain * 2)


def test_the_value_says_what_it_was_made_from():
    found = rotated("yarn", factor=8, beta_slow=None, **{TRAINED: 512})
    assert found.method == "yarn"
    assert found.numbers == (("factor", 8), (TRAINED, 512))
    found = rotated("mrope", mrope_section=[16, 8, 8])
    assert (found.method, found.sections, found.interleaved) == (
        "default",
        (16, 8, 8),
        False,
    )
    assert rotated("default", mrope_section=[8, 12, 12], mrope_interleaved=True).interleaved
    assert rotated("dynamic", factor=2, longest=9, **{TRAINED: 5}).numbers == (
        ("factor", 2),
    )
    assert rope({"rope_theta": 100}, 4, layout="interleaved").layout == "interleaved"


WRONG = [
    ({"rope_type": "yarnn"}, ValueError, "rope_type must be one of .* got 'yarnn'"),
    ({"rope_theta": None}, ValueError, "rope_theta is null"),
    ({"rope_theta": 1.0}, ValueError, "rope_theta must be a finite number above 1, got 1.0"),
    ({"rope_theta": 10**400}, ValueError, "rope_theta must be a finite number"),
    ({"factor": 2.0}, ValueError, "factor = 2.0 has no meaning without rope_type, and that is missing"),
    ({"rope_type": "default", "factor": 2.0}, ValueError, "with rope_type 'default', which knows no options"),
    ({"rope_type": "linear"}, ValueError, "factor is missing"),
    ({"rope_type": "linear", "factor": math.nan}, ValueError, "factor must be .* got nan"),
    ({"rope_type": "linear", "factor": 2.0, "beta_fast": 3}, ValueError, "beta_fast = 3 has no meaning"),
    ({"partial_rotary_factor": 1.5}, ValueError, "partial_rotary_factor must be at most 1, got 1.5"),
    ({"partial_rotary_factor": 0.3}, ValueError, "even number of entries of a head must rotate, got 19"),
    ({"rope_type": "mrope"}, ValueError, "mrope_section is missing"),
    ({"mrope_section": [1, 2, 3]}, ValueError, "mrope_section must hold three numbers whose sum is 32"),
    ({"rope_type": "dynamic", "factor": 2.0}, ValueError, "max_position_embeddings is missing"),
    ({"rope_type": "ntk", "factor": 1e300}, ValueError, "the base that factor leads to must be finite|base"),
    ({"rope_type": "yarn", "factor": 2.0}, ValueError, "original_max_position_embeddings is missing"),
    ({"rope_type": "yarn", "factor": None, TRAINED: 512}, ValueError,
        "max_position_embeddings is missing, as is factor"),
    ({"rope_type": "yarn", "factor": 2, TRAINED: 512, "beta_fast": 0.5}, ValueError, "beta_fast = 0.5 must"),
    ({"rope_type": "yarn", "factor": 2, TRAINED: 3}, ValueError, "leaves no pair between 1 and 32 turns"),
    ({"rope_type": "yarn", "factor": 2, TRAINED: 512, "truncate": 0}, TypeError, "truncate must be true or"),
    ({"rope_type": "longrope", "short_factor": [1] * 32, "long_factor": [1] * 31, "factor": 2,
        TRAINED: 512}, ValueError, "long_factor must hold 32 numbers.* got 31"),
    ({"rope_type": "longrope", "short_factor": [-1] * 32, "long_factor": [1], TRAINED: 512},
        ValueError, r"short_factor\[0\] must be a finite number above 0, got -1"),
    ({"rope_type": "longrope", "short_factor": [1] * 32, "long_factor": [1] * 32, "factor": 2,
        TRAINED: 1}, ValueError, "must be a whole number from 2"),
    ({"rope_type": "llama3", "factor": 2, "low_freq_factor": 4, "high_freq_factor": 1, TRAINED: 512},
        ValueError, "high_freq_factor = 1 must be at least low_freq_factor = 4"),
    ({"rope_typ": "yarn"}, ValueError, "rope_typ = 'yarn' has no meaning without rope_type"),
]  # fmt: skip


@pytest.mark.parametrize(("parameters", "kind", "match"), WRONG)
def test_wrong_parameters_are_named(parameters, kind, match):
    with pytest.raises(kind, match=match):
        rope({"rope_theta": 10000.0} | parameters, 64)
