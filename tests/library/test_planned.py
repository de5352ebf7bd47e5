"""Vectors of a configuration: attention by hand passes, and what was misread has a name."""

import json
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from posattn import reference
from posattn.__main__ import main
from posattn.configs import plan
from posattn.conformance import UsageError, check, planned, worker
from tests.records import CLASSES, PLANS, RECORDS

pytestmark = pytest.mark.usefixtures("unchecked")  # other tests check the annotations


def plain(width, base):
    """The frequencies of the paper."""
    return base ** (-np.arange(0, width, 2) / width)


def rotated(x, positions, frequencies, factor, layout):
    """The first entries of each head rotate, and the rest stays."""
    half = len(frequencies)
    first, step = (np.arange(half), half) if layout == "half" else (2 * np.arange(half), 1)
    angles = positions[..., None] * frequencies
    cos, sin = factor * np.cos(angles), factor * np.sin(angles)
    a, b, out = x[..., first], x[..., first + step], x.copy()
    out[..., first], out[..., first + step] = a * cos - b * sin, b * cos + a * sin
    return out


def rms(x, weight):
    """A norm over the entries of a head."""
    return weight * x / np.sqrt(np.mean(x * x, -1, keepdims=True) + 1e-5)


def buckets(apart):
    """T5's 16 buckets in each direction."""
    far = 8 + 8 * np.log(np.maximum(abs(apart), 8) / 8) / np.log(16)
    near = np.where(abs(apart) < 8, abs(apart), np.minimum(far + 1e-9, 15))
    return 16 * (apart > 0) + near.astype(int)


def by_hand(
    query, key, value, query_positions, key_positions, *, sinks=None, table=None,
    query_norm=None, key_norm=None, normed="after", first=0, way=1,
    frequencies=None, factor=1.0, layout="half", scale=None, cap=None, causal=True,
    window=None, chunk=None, slopes=None, growth=None, tile=False, order=None, near=None,
    bend=lambda s, cap: cap * np.tanh(s / cap), late=False,
):  # fmt: skip
    """Attention as people write it, masked by `order` if that is not where tokens stand."""
    group, given = query.shape[1] // key.shape[1], (query_positions, key_positions)
    i, j = (p if p.ndim == 1 else p[:, None] for p in given)
    if growth is not None:
        query = query * growth(i)[..., None]
    made = []
    for x, p, weight in (query, i, query_norm), (key, j, key_norm):
        x = rms(x, weight) if weight is not None and normed == "before" else x
        if frequencies is not None:
            turned = rotated(x[..., first:], p, frequencies, factor, layout)
            x = np.concatenate([x[..., :first], turned], -1)
        made.append(rms(x, weight) if weight is not None and normed == "after" else x)
    query, key = made
    if tile:
        key, value = (np.tile(x, (1, group, 1, 1)) for x in (key, value))
    else:
        key, value = (np.repeat(x, group, axis=1) for x in (key, value))
    scores = query @ key.mT * (query.shape[-1] ** -0.5 if scale is None else scale)
    if cap is not None and not late:
        scores = bend(scores, cap)
    if slopes is not None:
        scores = scores - slopes[:, None, None] * abs(i[..., :, None] - j[..., None, :])
    if table is not None:
        apart = query_positions[..., :, None] - key_positions[..., None, :]
        scores = scores + np.moveaxis(table[buckets(-way * apart)], -1, -3)
    i, j = (p if p.ndim == 1 else p[:, None] for p in order or given)
    i, j = i[..., :, None], j[..., None, :]
    seen = i >= j if causal else i == i + 0 * j
    if window is not None:
        apart = i - j if near is None else near[0][:, None] - near[1]
        seen = seen & (abs(apart) < window)
    if chunk is not None:
        seen = seen & (i // chunk == j // chunk)
    scores = np.where(seen, scores, -np.inf)
    scores = bend(scores, cap) if late else scores
    sink = np.full((1, 1), -np.inf) if sinks is None else sinks[:, None, None]
    top = np.maximum(scores.max(-1, keepdims=True), sink)
    exp = np.exp(scores - top)
    return exp / (exp.sum(-1, keepdims=True) + np.exp(sink - top)) @ value


GPT_OSS, GPT_OSS_FACTOR = reference.yarn(
    64, base=150000.0, factor=32.0, trained_length=4096, truncate=False
)
MORE = {
    "Hunyuan": {
        "model_type": "hunyuan_v1_dense", "hidden_size": 128, "num_attention_heads": 4,
        "num_hidden_layers": 1, "head_dim": 32, "num_key_value_heads": 2,
        "rope_theta": 1e4, "rms_norm_eps": 1e-5, "use_qk_norm": True,
        "attention_bias": False,
    },
}  # fmt: skip
DEEPSEEK, _ = reference.yarn(64, base=1e4, factor=40.0, trained_length=4096)
SHARP = 0.1 * np.log(40) + 1
GEMMA_4 = np.where(np.arange(256) < 64, plain(512, 1e6), 0)
LAYERS = {  # what the papers and config.json say of a layer
    ("Llama 3 8B", 5): {"frequencies": plain(128, 5e5)},
    ("Pythia 6.9B", 0): {"frequencies": plain(32, 1e4)},
    ("Granite 3.3 8B", 0): {"frequencies": plain(128, 1e7), "scale": 2.0**-7},
    ("cohere-2", 0): {
        "frequencies": plain(128, 5e4), "layout": "interleaved", "window": 4096,
    },
    ("Gemma 2 9B", 0): {"frequencies": plain(256, 1e4), "cap": 50.0, "window": 4096},
    ("Gemma 2 9B", 1): {"frequencies": plain(256, 1e4), "cap": 50.0},
    ("Gemma 3 12B", 0): {"frequencies": plain(256, 1e4), "window": 1024},
    ("ModernBERT base", 1): {"frequencies": plain(64, 1e4), "window": 65, "causal": False},
    ("Llama 4 Maverick", 0): {
        "frequencies": plain(128, 5e5), "layout": "interleaved", "chunk": 8192,
    },
    ("Llama 4 Maverick", 3): {
        "growth": lambda p: 1 + 0.1 * np.log(1 + np.floor((p + 1) / 8192)),
    },
    ("BLOOM 560M", 0): {"slopes": 2.0 ** (-np.arange(1, 17) / 2)},
    ("gpt-oss 20B", 0): {
        "frequencies": GPT_OSS, "factor": GPT_OSS_FACTOR, "window": 128,
    },
    ("DeepSeek-V3", 0): {
        "frequencies": DEEPSEEK, "first": 128, "layout": "interleaved",
        "scale": 192**-0.5 * SHARP**2,
    },
    ("T5 small", 0): {"scale": 1.0, "causal": False},
    ("Qwen3.5 27B", 3): {"frequencies": plain(64, 1e7)},
    ("Gemma 4 31B", 5): {"frequencies": GEMMA_4, "scale": 1.0},
    ("Hunyuan", 0): {"frequencies": plain(32, 1e4)},
}  # fmt: skip
MISREAD = [
    ("Llama 3 8B", 5, {"frequencies": plain(128, 1e4)}, "base_of_10000"),
    ("Llama 3 8B", 5, {"frequencies": -plain(128, 5e5)}, "turned_the_other_way"),
    ("Llama 3 8B", 5, {"frequencies": None}, "not_rotated"),
    ("Llama 3 8B", 5, {"layout": "interleaved"}, "other_layout"),
    ("Llama 3 8B", 5, {"scale": 1.0}, "scores_unscaled"),
    ("Llama 3 8B", 5, {"scale": 512**-0.5}, "scale_of_all_heads"),
    ("Llama 3 8B", 5, {"causal": False}, "future_seen"),
    ("Llama 3 8B", 5, {"tile": True}, "key_heads_tiled"),
    ("Pythia 6.9B", 0, {"frequencies": plain(128, 1e4)}, "all_entries_turn"),
    ("Llama 3 8B", 5, {"frequencies": 2 * plain(128, 5e5)}, "rotated_twice"),
    ("Llama 3 8B", 5, {"sinks": np.full(4, -5e4)}, "maximum_begins_at_minus_50000"),
    ("Granite 3.3 8B", 0, {"scale": None}, "scale_of_the_width"),
    (
        "Gemma 2 9B",
        0,
        {"bend": lambda s, c: s * np.tanh(s / c)},
        "soft_cap_times_the_score",
    ),
    ("Gemma 2 9B", 0, {"late": True}, "soft_cap_after_the_mask"),
    ("Gemma 3 12B", 0, {"decoding": {"window": None}}, "window_not_in_decoding"),
    ("Gemma 3 12B", 0, {"decoding": {"window": 1025}}, "window_one_too_large_in_decoding"),
    ("Llama 4 Maverick", 0, {"decoding": {"chunk": None}}, "chunk_not_in_decoding"),
    ("BLOOM 560M", 0, {"decoding": {"slopes": None}}, "bias_not_in_decoding"),
    ("BLOOM 560M", 0, {"slopes": np.tile(0.5 ** np.arange(1, 9), 2)}, "slopes_of_2_ranks"),
    ("Gemma 2 9B", 0, {"cap": None}, "soft_cap_ignored"),
    ("Gemma 2 9B", 1, {"window": 4096}, "window_of_other_layers"),
    ("Gemma 3 12B", 0, {"window": 1025}, "window_one_too_large"),
    ("Gemma 3 12B", 0, {"window": 1023}, "window_one_too_small"),
    ("Gemma 3 12B", 0, {"window": None}, "window_ignored"),
    ("Gemma 3 12B", 0, {"frequencies": plain(256, 1e6)}, "base_of_1000000"),
    ("Llama 4 Maverick", 0, {"chunk": None}, "chunk_ignored"),
    ("Llama 4 Maverick", 0, {"chunk": None, "window": 8192}, "window_for_chunk"),
    ("Llama 4 Maverick", 3, {"growth": None}, "temperature_ignored"),
    ("BLOOM 560M", 0, {"slopes": None}, "bias_ignored"),
    ("gpt-oss 20B", 0, {"sinks": None}, "sinks_ignored"),
    ("gpt-oss 20B", 0, {"factor": 1.0}, "attention_factor_missing"),
    ("gpt-oss 20B", 0, {"factor": GPT_OSS_FACTOR**2}, "attention_factor_squared"),
    ("DeepSeek-V3", 0, {"frequencies": DEEPSEEK[::2]}, "half_of_them_turn"),
    ("DeepSeek-V3", 0, {"first": 0}, "first_entries_turn"),
    ("DeepSeek-V3", 0, {"factor": SHARP}, "mscale_ignored"),
    ("DeepSeek-V3", 0, {"factor": SHARP, "scale": None}, "mscale_unknown"),
    ("DeepSeek-V3", 0, {"scale": 192**-0.5}, "scale_of_the_width"),
    ("DeepSeek-V3", 0, {"scale": 128**-0.5}, "scale_of_the_content"),
    ("DeepSeek-V3", 0, {"scale": 192**-0.5 * SHARP}, "sharpened_once"),
    ("T5 small", 0, {"table": None}, "bias_ignored"),
    ("T5 small", 0, {"decoding": {"table": None}}, "bias_not_in_decoding"),
    ("T5 small", 0, {"cached": {"table": None}}, "bias_not_with_a_cache"),
    ("T5 small", 0, {"way": -1}, "past_and_future_exchanged"),
    ("Qwen3.5 27B", 3, {"frequencies": plain(256, 1e7)}, "all_entries_turn"),
    ("Gemma 4 31B", 5, {"frequencies": GEMMA_4[:64]}, "pairs_of_the_part"),
    ("Gemma 4 31B", 5, {"frequencies": plain(128, 1e6)}, "frequencies_of_the_part"),
    ("Hunyuan", 0, {"normed": "never"}, "norms_ignored"),
    ("Hunyuan", 0, {"normed": "before"}, "norms_on_the_other_side"),
]


def narrow(layer):
    """A layer of two heads of keys, which takes less time; slopes belong to all heads."""
    if layer.bias is not None:
        return layer
    group = min(2, layer.num_heads // layer.num_kv_heads)
    return replace(layer, num_heads=2 * group, num_kv_heads=2)


def report_on(vectors, decoding=None, cached=None, **options):
    """The report on attention by hand, with other options where there is one query, or a cache."""

    def attention(query, key, *given, **learned):
        changed = decoding if decoding and query.shape[-2] == 1 else {}
        changed = cached if cached and query.shape[-2] < key.shape[-2] else changed
        return by_hand(query, key, *given, **learned | options | changed)

    return check(attention, vectors, framework="numpy")


@pytest.fixture(scope="module")
def vectors_of():
    """The vectors of a layer, made once."""
    made = {}

    def vectors(family, layer):
        if (family, layer) not in made:
            whole = PLANS.get(family) or plan(MORE.get(family) or CLASSES[family])
            layers = tuple(map(narrow, whole.layers))
            one = planned(replace(whole, layers=layers), layer)
            text = [x for x in one["cases"] if "coordinates" not in x["keywords"]]
            made[family, layer] = one | {"cases": text}
        return made[family, layer]

    return vectors


@pytest.mark.parametrize(("family", "layer"), LAYERS)
def test_a_layer_by_hand_passes(family, layer, vectors_of):
    report = report_on(vectors_of(family, layer), **LAYERS[family, layer])
    assert not report.failures, f"{report}"
    assert len(report.runs) == len(vectors_of(family, layer)["cases"])


@pytest.mark.parametrize(("family", "layer", "wrong", "cause"), MISREAD)
def test_a_misread_layer_fails_and_is_named(family, layer, wrong, cause, vectors_of):
    report = report_on(vectors_of(family, layer), **{**LAYERS[family, layer], **wrong})
    assert [c.name for c in report.causes] == [cause], f"{report}"


SIXTEEN = 0.5 ** np.arange(0.5, 8.5, 0.5)  # BLOOM's slopes


@pytest.mark.parametrize(
    ("slopes", "causes"),
    [
        (SIXTEEN[8:], []),
        (0.5 ** np.arange(1, 9), ["slopes_of_2_ranks"]),
        (SIXTEEN[:8], ["heads_of_rank_0"]),
    ],
    ids=["right", "its own", "the first rank's"],
)
def test_a_rank_has_the_slopes_of_its_heads(slopes, causes):
    report = report_on(planned(PLANS["BLOOM 560M"], rank=(1, 2)), slopes=slopes)
    assert [c.name for c in report.causes] == causes, f"{report}"
    assert bool(report.failures) == bool(causes)


def test_key_heads_go_to_ranks_whole_or_to_several():
    llama = PLANS["Llama 3 8B"]  # 32 heads, 8 of keys
    for ranks, heads in ((4, 2), (16, 1)):
        vectors = planned(llama, rank=(1, ranks))
        assert vectors["cases"][0]["arguments"][1].shape[1] == heads
        assert not report_on(vectors, frequencies=plain(128, 5e5)).failures
    with pytest.raises(UsageError, match=r"rank must be .*got \(3, 3\)"):
        planned(llama, rank=(3, 3))


def from_0(query, key, value, *given, which, base=5e5, **options):
    """Llama's attention, whose mask, queries or all positions count the rows of a call."""
    n_q, n_k = query.shape[-2], key.shape[-2]
    i, j = np.arange(n_q), np.arange(n_k)
    at, order = {
        "mask": (given, (i, j)),
        "rows": (given, (i + n_k - n_q, j)),
        "queries": ((i, given[1]), given),
        "positions": ((i, j), given),
    }[which]
    options = {"frequencies": plain(128, base)} | options
    return by_hand(query, key, value, *at, order=order, **options)


@pytest.mark.parametrize(
    ("which", "family", "cause"),
    [
        ("mask", ("Llama 3 8B", 5), "mask_from_the_top_left"),
        ("queries", ("Llama 3 8B", 5), "queries_from_0"),
        ("positions", ("Llama 3 8B", 5), "positions_from_0"),
        ("queries", ("T5 small", 0), "queries_from_0"),
    ],
)
def test_what_counts_from_0_is_named(which, family, cause, vectors_of):
    options = {"frequencies": None} | LAYERS[family]
    wrong = partial(from_0, which=which, **options)
    report = check(wrong, vectors_of(*family), framework="numpy")
    assert report.causes[0].name == cause, f"{report}"


SAID = {"model_type": "llama", "num_attention_heads": 1, "num_hidden_layers": 1}
SAID |= {"hidden_size": 128, "rope_theta": 5e5}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}


@pytest.mark.parametrize(
    ("said", "built", "cause"),
    [
        ({}, {}, None),
        ({}, {"factor": 8.0}, "factor_of_8"),
        ({}, {"trained_length": 131072}, "original_length_of_131072"),
        ({}, {"truncate": False}, "ends_not_rounded"),
        ({"truncate": False}, {"truncate": True}, "ends_rounded"),
        ({}, {"base": 1e4}, "base_of_10000"),
        ({"attention_factor": 1.0}, {}, "attention_factor_ignored"),
        ({"mscale": 1.0, "mscale_all_dim": 1.0}, {}, "mscale_ignored"),
        (
            {"mscale": 1.0, "mscale_all_dim": 1.0},
            {"mscale": 1.0, "mscale_all_dim": 1.0},
            None,
        ),
    ],
)
def test_a_number_of_the_scaling_is_named(said, built, cause):
    numbers = {"base": 5e5, "factor": 4.0, "trained_length": 32768}
    frequencies, factor = reference.yarn(128, **(numbers | built))
    vectors = planned(SAID | {"rope_scaling": YARN | said})
    report = report_on(vectors, frequencies=frequencies, factor=factor)
    assert [c.name for c in report.causes] == [cause] * (cause is not None), f"{report}"
    assert bool(report.failures) == (cause is not None)


def test_another_method_of_scaling_is_named():
    vectors = planned(SAID | {"rope_scaling": YARN})
    llama3 = reference.llama3(128, base=5e5, factor=4.0, trained_length=32768)
    yarn, _ = reference.yarn(128, base=5e5, factor=4.0, trained_length=32768)
    for frequencies, cause in (
        (llama3, "scaled_as_llama3"),
        (plain(128, 5e5), "scaling_ignored"),
        (plain(128, 1e4), "base_of_10000_alone"),
        (plain(128, 5e5) * 1.25 - yarn, "ramp_inverted_alone"),
        (
            plain(128, 5e5) * np.where(yarn * 1.6 < plain(128, 5e5), 0.25, 1),
            "ramp_rounded_alone",
        ),
    ):
        report = report_on(vectors, frequencies=frequencies)
        assert report.causes[0].name == cause, f"{report}"


def test_scaling_by_more_than_numbers_has_fewer_misreadings():
    lists = {"short_factor": [1.0, 1.0, 2.0, 4.0], "long_factor": [1.0, 2.0, 4.0, 8.0]}
    said = SAID | {"hidden_size": 8, "max_position_embeddings": 64}
    for scaling in (
        {"rope_type": "dynamic", "factor": 2.0},
        {"rope_type": "longrope", "original_max_position_embeddings": 32} | lists,
    ):
        vectors = planned(said | {"rope_scaling": scaling}, length=128)
        known = [fault.name for fault in vectors["faults"]]
        assert "scaling_ignored" in known
        assert not any(name.startswith("factor_of") for name in known)


@pytest.mark.parametrize(
    ("family", "hint"),
    [
        ("Llama 3 8B", "--scheme rotary knows more of its faults."),
        ("Llama 3.1 8B", "--scheme llama3 those of the frequencies."),
        ("GPT-2", "no known fault explains this"),  # which rotates nothing
    ],
)
def test_an_unknown_fault_has_a_hint(family, hint):
    width = 64 if family == "GPT-2" else 128
    report = report_on(planned(RECORDS[family]), frequencies=plain(width, 3.0))
    assert report.causes == []
    assert " ".join(str(report).split()).endswith(hint)


def test_where_prompts_pass_the_rotation_is_not_suspected(vectors_of):
    def forgets_a_key(query, key, value, *positions):
        if query.shape[-2] < key.shape[-2]:
            value = np.concatenate([0 * value[..., :1, :], value[..., 1:, :]], axis=-2)
        return by_hand(query, key, value, *positions, frequencies=plain(128, 5e5))

    for wrong, told in ((forgets_a_key, "Prompts pass"), (lambda *given: None, "NoneType")):
        report = check(wrong, vectors_of("Llama 3 8B", 5), framework="numpy")
        assert told in str(report)
        assert "--scheme rotary" not in str(report)


def test_where_only_the_mask_differs_the_rotation_is_not_suspected():
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "hidden_size": 256}
    vectors = planned({**RECORDS["Mistral 7B v0.1"], **heads, "sliding_window": 8})
    report = report_on(vectors, frequencies=plain(128, 1e4), window=12)
    assert "Prompts pass" in str(report)
    by_rows = partial(from_0, which="rows", base=1e4, window=8)
    report = check(by_rows, vectors, framework="numpy")
    assert [c.name for c in report.causes] == ["mask_by_rows"]

    def by_suffix(query, key, value, i, j):  # trymirai/lalamo #200
        rows = np.arange(query.shape[-2]), np.arange(key.shape[-2])
        more = {"frequencies": plain(128, 1e4), "window": 8, "near": rows}
        return by_hand(query, key, value, i, j, **more)

    report = check(by_suffix, vectors, framework="numpy")
    assert [c.name for c in report.causes] == ["window_from_the_top_left"]


def test_what_is_wrong_without_a_rotation_is_not_blamed_on_it(vectors_of):
    wrong = report_on(vectors_of("Llama 3 8B", 5), frequencies=plain(128, 5e5), scale=0.3)
    assert wrong.causes == []
    assert "where nothing rotates: look at the scale" in " ".join(str(wrong).split())


AXES = {  # of a text with pictures: what stands for time, row and column
    "axes_0_2_1": [0, 2, 1],
    "axes_0_0_0": [0, 0, 0],
    "other_sections": [0, 1, 2],
    "": [0, 1, 2],
}


@pytest.mark.parametrize("cause", AXES)
def test_an_axis_of_pictures_is_named(cause):
    sizes = dict.fromkeys(("num_attention_heads", "num_key_value_heads"), 2)
    sizes |= {"hidden_size": 16, "num_hidden_layers": 1}
    said = {"rope_type": "default", "mrope_section": [2, 1, 1], "rope_theta": 1e4}
    config = sizes | {"model_type": "qwen2_vl_text", "rope_parameters": said}
    owner = [0, 1, 2, 0] if cause == "other_sections" else [0, 0, 1, 2]

    def turned(x, at):
        angles = at[..., AXES[cause]][..., owner] * 1e4 ** (-np.arange(4) / 4)
        by = np.exp(1j * (angles if at.ndim == 2 else angles[:, None]))
        made = by * (x[..., :4] + 1j * x[..., 4:])
        return np.concatenate([made.real, made.imag], -1)

    def attention(query, key, *given, coordinates=None):
        at = [np.stack([x] * 3, -1) for x in given[1:]]
        if coordinates is not None:
            at = coordinates[-query.shape[-2] :], coordinates
        return by_hand(turned(query, at[0]), turned(key, at[1]), *given)

    report = check(attention, planned(config), framework="numpy")
    assert [c.name for c in report.causes] == [cause] * bool(cause), f"{report}"
    assert len(report.failures) == 2 * bool(cause)


def test_a_window_of_one_can_only_be_too_large():
    vectors = planned({**RECORDS["Mistral 7B v0.1"], "sliding_window": 1})
    names = {fault.name for fault in vectors["faults"]}
    assert "window_one_too_large" in names
    assert "window_one_too_small" not in names
    both = planned(RECORDS["ModernBERT base"], layer=1)[
        "faults"
    ]  # two keys are one too many
    (large,) = [fault for fault in both if fault.name == "window_one_too_large"]
    assert "too large on each side" in large.sentence


def test_what_cannot_be_checked_is_one_line(vectors_of):
    for config, layer, message in (
        ({"model_type": "lama"}, 0, "did you mean llama"),
        (RECORDS["Llama 3 8B"], 99, "layer must be below"),
        (RECORDS["DeepSeek-V4 Flash"], 2, "has compressed = 4, which is not checked"),
        (RECORDS["DeepSeek-V4 Flash"], 0, "has turns_back = True, which is not checked"),
        (CLASSES["inkling"], 0, "has bias = Profiles"),
        ({**RECORDS["DeepSeek-V3.2"], "index_topk": 2}, 0, "has selected = 2"),
        ("nowhere.json", 0, "nowhere.json"),
    ):
        with pytest.raises(UsageError, match=message):
            planned(config, layer)
    with pytest.raises(UsageError, match="has no parameter sinks"):
        check(lambda q, k, v, i, j: q, vectors_of("gpt-oss 20B", 0), framework="numpy")


def test_the_command_takes_a_configuration(tmp_path, capsys, monkeypatch):
    def here(request, time_limit):
        said = []
        worker.work(request, lambda **what: said.append(what))
        return tuple(said[-1][name] for name in ("report", "data", "code"))

    monkeypatch.setattr("posattn.commands.check.check_apart", here)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(SAID | {"hidden_size": 16}))
    (tmp_path / "mine.py").write_text(
        "import numpy\ndef attention(query, key, value, query_positions, key_positions):\n"
        "    return query"
    )
    usual = "check", "mine.py:attention", "--config", "config.json"
    assert main([*usual, "--layer", "0"]) == 1
    assert "attention as layer 0 of llama, numpy float64: " in capsys.readouterr().out
