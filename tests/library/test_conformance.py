"""The vectors are what the reference computes, fit their schema, and pass in every column."""

import functools
import inspect
import json
import re
from pathlib import Path

import jsonschema
import numpy as np
import pytest
import torch

from posattn.conformance import UsageError, check, generate, load, names
from posattn.conformance.cases.masks import segments
from posattn.conformance.faults.registry import half_precision
from posattn.conformance.generate import SCHEMES, STEP, TOLERANCE
from posattn.conformance.vectors import FOLDER, decode
from tests.conftest import REFERENCE, TWINS, draw, error

pytestmark = pytest.mark.usefixtures("unchecked")  # other tests check the annotations

ROOT = Path(__file__).parents[2]
SCHEMA = jsonschema.Draft202012Validator(
    json.loads(FOLDER.with_name("schema.json").read_text(encoding="utf-8"))
)
every_scheme = pytest.mark.parametrize("scheme", SCHEMES)
# which no column has as a function of positions, or `test_steps` looks at
FORMULAS = {"cache", "causal_mask", "prefix_mask", "ids_left_padding", "ids_packing"}
FORMULAS |= {"state", "kimi_gates", "indexer", "document_mask", "image_window_attention"}
of_the_columns = pytest.mark.parametrize(
    "scheme", [scheme for scheme in SCHEMES if scheme not in FORMULAS]
)

# what PyTorch's constructor asks for: sizes and options, from the keywords of a case
CONSTRUCTED = {
    "CoPE": lambda table: (table.shape, {}),
    "DisentangledBias": lambda table, num_heads, query_weight, key_weight, **options: (
        (len(table) // 2, 6, num_heads),
        options,
    ),
    "FIRE": lambda hidden_bias, output_bias, threshold=512.0, **_: (
        (len(output_bias),),
        {"hidden_dim": len(hidden_bias), "threshold": threshold},
    ),
    "ForgettingGate": lambda weight, offset: (weight.shape, {}),
    "KerpleLog": lambda r1, r2: (r1.shape, {}),
    "KerplePower": lambda r1, r2: (r1.shape, {}),
    "LearnedPositionalEncoding": lambda table: (table.shape, {}),
    "MixedRotary": lambda frequencies, width, layout: (
        (2 * frequencies.shape[-1], frequencies.shape[1], width),
        {"layout": layout},
    ),
    "PolarKey": lambda phase, base: (phase.shape, {"base": base}),
    "RelativeGlobalAttention": lambda table: (
        (table.shape[1], table.shape[0], table.shape[2]),
        {},
    ),
    "ShawRelative": lambda key_table, value_table=None: (
        (len(key_table) // 2, key_table.shape[1]),
        {"use_values": value_table is not None},
    ),
    "SwinBias": lambda table, height, width: ((table.shape[1], height, width), {}),
    "SwinV2Bias": lambda output_weight, height, width, hidden_weight, hidden_bias, **trained: (
        (output_weight.shape[1], height, width),
        {"hidden_dim": len(output_weight), **trained},
    ),
    "T5Bias": lambda table, max_distance, bidirectional: (
        (table.shape[1],),
        {
            "num_buckets": len(table),
            "max_distance": max_distance,
            "bidirectional": bidirectional,
        },
    ),
    "TransformerXLBias": lambda weight, content_bias, base, **_: (
        (len(weight), len(content_bias)),
        {"base": base},
    ),
    "TUPEBias": lambda table, num_heads, cls_bias=None, **_: (
        (len(table), 6, num_heads),
        {"use_cls": cls_bias is not None},
    ),
}


def of(column, scheme):
    """What a column calls a scheme, as a user would hand it to the checker."""
    vectors = load(scheme)
    name, method = vectors["function"], vectors.get("method", "__call__")
    if scheme == "sinusoidal_concatenated":
        encoding = of(column, "sinusoidal")
        return lambda *where, **base: column.to_half(encoding(*where, **base))
    if scheme in ("rotary", "inverse_rotation"):
        return functools.partial(rotated, column, -1 if scheme == "inverse_rotation" else 1)
    if scheme in ("window_mask", "chunk_mask"):
        return functools.partial(seen, column, scheme)
    if scheme == "window_attention":
        return lambda *heads, window, **scale: column.scaled_dot_product_attention(
            *heads, mask=column.Window(window), causal=True, **scale
        )
    if scheme == "ids_mrope":
        return functools.partial(multimodal, column)
    if scheme in FORMULAS:
        return SCHEMES[scheme].function
    if name.endswith("[0]"):  # what is passed on is left out
        passes_on = getattr(column, name.partition("(")[0])
        return lambda *arguments, **keywords: passes_on(*arguments, **keywords)[0]
    if scheme == "selected_attention":
        return lambda query, key, value, select, **options: (
            column.scaled_dot_product_attention(query, key, value, select=select, **options)
        )
    if scheme == "rotary_scores":
        return lambda query, key, query_positions, key_positions, **options: (
            column.rotate(query, query_positions, **options)
            @ column.rotate(key, key_positions, **options).mT
        )
    if scheme == "positional_encoding":
        return lambda x, positions=None, *, base: column.PositionalEncoding(
            x.shape[-1], base=base
        )(x, positions=positions)
    if scheme == "latent":
        return functools.partial(latent, column)
    if scheme == "mrope_interleaved":
        return functools.partial(column.mrope_frequencies, interleaved=True)
    if scheme == "stick_breaking":
        return column.StickBreaking().scores
    if scheme == "dape":
        return lambda *arguments, **network: adapted(column, *arguments, network)
    if column.name == "torch" and scheme.startswith(
        "weight_to"
    ):  # Linear has its weight rotated
        convert = getattr(column, name)
        return lambda weight, *sizes: convert(weight.movedim(-1, 0), *sizes).movedim(0, -1)
    if column.name == "torch" and name in CONSTRUCTED:
        return lambda *arguments, **keywords: constructed(
            column, name, method, arguments, keywords
        )
    function = getattr(column, name)
    if scheme not in ("sinusoidal", "frequencies"):
        return function
    takes_dtype = "dtype" in inspect.signature(function).parameters
    dtype = {"dtype": column.array(0.0).dtype} if takes_dtype else {}
    return functools.partial(function, **dtype)


def seen(column, scheme, query_positions, key_positions, **keywords):
    """The past of a query, within a window or a chunk of a column."""
    (size,) = keywords.values()
    near = column.Window(size) if scheme == "window_mask" else column.Chunk(size)
    past = key_positions[..., None, :] <= query_positions[..., :, None]
    return past & near(query_positions, key_positions)


def multimodal(column, is_image, grids):
    """Time, row and column of tokens, from a column."""
    parts = [*segments(np.asarray(is_image), np.asarray(grids))]
    return column.mrope_positions(parts)[0]


def rotated(column, sign, x, positions=None, *, rotary_dim=None, **options):
    """The rotation of a column, whose partial one is given frequencies."""
    if rotary_dim is not None:
        base = options.get("base", 10000.0)
        options["frequencies"] = column.frequencies(rotary_dim, base=base)
    return column.rotate(x, positions if sign > 0 else -positions, **options)


def latent(column, x, positions=None, **options):
    """Latent attention of a column, from weights as `x @ weight`."""
    weights = {n: w for n, w in options.items() if n.endswith("_weight")}
    called = {n: options[n] for n in ("mask", "causal") if n in options}
    called["query_positions"] = positions
    made = {n: options[n] for n in ("num_heads", "scale", "eps") if n in options}
    turns = {n: options[n] for n in ("base", "layout") if n in options}
    made["rotate"] = column.Rotary(**turns)
    if column.name != "torch":
        return column.LatentAttention(**weights, **made)(x, **called)
    heads, rank = made["num_heads"], len(weights["kv_norm_weight"])
    query_norm = weights.get("query_norm_weight")
    layer = column.LatentAttention(
        x.shape[-1],
        query_rank=None if query_norm is None else len(query_norm),
        kv_rank=rank,
        content_dim=weights["key_weight"].shape[1] // heads,
        rotary_dim=weights["kv_down_weight"].shape[1] - rank,
        value_dim=weights["value_weight"].shape[1] // heads,
        dtype=x.dtype,
        **made,
    )
    state = {
        f"{n.removesuffix('_weight')}.weight": w.T if w.ndim > 1 else w
        for n, w in weights.items()
    }
    return torch.func.functional_call(layer, state, x, called)


def adapted(column, query, key, bias, network):
    """DAPE of a column, for the numbers of a bias."""
    sizes = (bias.shape[-3], lambda *positions: bias) if column.name == "torch" else ()
    if column.name != "torch":
        network = {"bias": lambda *positions: bias, **network}
    hidden = {"hidden_dim": len(network["hidden_bias"])} if sizes else {}
    layer = column.with_parameters("DAPE", network, *sizes, **hidden)
    where = (column.positions(np.arange(x.shape[-2])) for x in (query, key))
    return layer.scores(query, key, *where)


def constructed(column, name, method, arguments, keywords):
    """A module of PyTorch with the parameters of a case, called on its arguments."""
    sizes, options = CONSTRUCTED[name](**keywords)
    parameters = {key: value for key, value in keywords.items() if hasattr(value, "dtype")}
    layer = column.with_parameters(name, parameters, *sizes, **options)
    if name == "LearnedPositionalEncoding":
        return layer(arguments[0], positions=(*arguments, None)[1])
    return getattr(layer, method)(*arguments)


def assert_passes(column, scheme, most=None, **options):
    """Each case, or some from the last on, passes where the dtype holds its numbers."""
    vectors = load(scheme)
    if most is not None:
        vectors["cases"] = vectors["cases"][:: -(1 + len(vectors["cases"]) // most)]
    options |= {"framework": column.name, "dtype": column.dtype}
    if SCHEMES[scheme].exact and column.dtype in ("float16", "bfloat16"):
        with pytest.raises(UsageError, match=f"{column.dtype} cannot hold the numbers"):
            check(of(column, scheme), vectors, **options)
        return
    with column.mode():
        report = check(of(column, scheme), vectors, **options)
    assert not report.failures, str(report)
    assert {*report.skipped.values()} <= {f"{column.dtype} cannot hold the numbers"}


@of_the_columns
@pytest.mark.parametrize("twin", TWINS[0::2], ids=str)
def test_pytorch_passes(scheme, twin):
    assert_passes(twin, scheme, gradients=twin.dtype == "float64")


@of_the_columns
def test_jax_passes_some_cases(scheme):
    assert_passes(TWINS[3], scheme, most=2, gradients=scheme == "masked_softmax")


@pytest.mark.parametrize("twin", TWINS[1::4], ids=str)
def test_jax_rotates_in_other_dtypes(twin):
    assert_passes(twin, "rotary", most=2, gradients=twin.dtype == "float64")


def test_every_scheme_has_a_file(tmp_path, monkeypatch):
    assert names() == sorted(SCHEMES)
    monkeypatch.setattr(generate, "FOLDER", tmp_path)
    monkeypatch.setattr(generate, "make", lambda name: {"cases": []})
    generate.main()
    assert sorted(path.stem for path in tmp_path.iterdir()) == names()


def test_every_definition_is_covered():
    covered = {re.match(r"\w+", load(scheme)["function"]).group() for scheme in names()}
    without_vectors = {
        *("Cost", "convolution", "convolution_operations", "layers_to_connect", "measure"),
        *("path_length", "reads", "recurrence", "recurrence_operations", "self_attention"),
        *("self_attention_operations", "dropout", "randomized_positions"),  # random
        *("ALiBi", "Rotary", "RotaryAxes"),  # their functions have vectors
        *("KVCache", "LatentCache"),  # a layer decodes with them
        *("group_mask", "group_tokens"),  # parts of `select_groups` and `group_keys`
        "log_temperature",  # a factor on queries
        *(
            "DeltaAttention",
            "LightningIndexer",
            "StateCache",
        ),  # of functions that have vectors
        "tiled_forgetting_bias",  # parts of `forgetting_bias`
        *("MultiHeadAttention", "split_heads", "merge_heads", "attention_weights"),
        *("first_token_score", "induction_score", "previous_token_score"),  # of weights
        "Decoder",  # a whole model, of layers that have vectors
        "rope_from_config",  # reads a configuration, no arrays
        *("balanced_order", "ring_attention"),  # as many programs as workers
        *("Chunk", "Window", "causal_mask", "length_mask", "window_mask", "shift_matrix"),
        *("grid_coordinates", "mrope_positions"),
    }
    assert set(REFERENCE.__all__) - without_vectors <= covered


@every_scheme
def test_the_function_that_a_scheme_names_passes_its_vectors(scheme):
    name = load(scheme)["function"]
    if name.isidentifier() and scheme not in FORMULAS:  # others say in words how to call it
        own = getattr(REFERENCE, name)
        own = own().scores if scheme == "stick_breaking" else own
        assert not check(own, scheme, framework="numpy").failures


@every_scheme
def test_a_file_fits_the_schema_and_is_small(scheme):
    text = (FOLDER / f"{scheme}.json").read_text(encoding="utf-8")
    SCHEMA.validate(json.loads(text))
    assert len(text) < 230_000
    found = [case["name"] for case in load(scheme)["cases"]]
    assert len(set(found)) == len(found) or scheme == "dynamic_ntk"


def test_a_source_is_in_the_bibliography():
    keys = re.findall(r"^@\w+\{(.*),$", (ROOT / "references.bib").read_text("utf-8"), re.M)
    assert {load(scheme)["source"].partition(",")[0] for scheme in names()} <= set(keys)


@every_scheme
def test_all_dtypes_start_from_the_same_numbers(scheme):
    vectors = load(scheme)
    data = {p["name"]: p["data"] for p in vectors["parameters"]}
    for case in vectors["cases"]:
        given = {**dict(zip(data, case["arguments"], strict=False)), **case["keywords"]}
        for name, value in given.items():
            if getattr(value, "dtype", None) == np.float64:
                half = data[name] and "bfloat16" in case["tolerance"]
                rounded = half_precision("bfloat16") if half else np.float32
                finite = value[np.isfinite(value)]
                assert np.array_equal(rounded(finite), finite), (case["name"], name)


def assert_same(got, want, bound):
    """Compare what is made of dicts, lists, arrays and plain values; arrays up to `bound`."""
    assert type(got) is type(want)
    if isinstance(got, dict):
        assert list(got) == list(want)
        got, want = list(got.values()), list(want.values())
    if isinstance(got, list):
        for a, b in zip(got, want, strict=True):
            assert_same(a, b, bound)
    elif isinstance(got, np.ndarray):
        assert got.dtype == want.dtype
        finite = np.isfinite(got) & np.isfinite(want)
        assert np.array_equal(got[~finite], want[~finite], equal_nan=True)
        assert error(1.0 * got[finite], 1.0 * want[finite]) <= bound
    else:
        assert got == want


def along(scheme, arguments, keywords, moving, cotangent):
    """Each gradient along one direction: a single complex step for all of its entries."""
    names = list(inspect.signature(scheme.function).parameters)[: len(arguments)]
    slopes = {}
    for name, x in moving.items():
        moved = {other: y.astype(complex) for other, y in moving.items()}
        moved[name] += 1j * STEP * draw(0, *x.shape)
        given = {**dict(zip(names, arguments, strict=True)), **keywords, **moved}
        first = [given.pop(other) for other in names]
        value = scheme.function(*first, **given)
        slopes[name] = np.asarray(np.sum(cotangent * value.imag) / STEP)
    return slopes


@every_scheme
def test_a_file_holds_what_the_reference_computes(scheme, monkeypatch):
    monkeypatch.setattr(generate, "gradients", along)
    text = generate.to_json(generate.make(scheme))
    written, made = load(scheme), json.loads(text, object_hook=decode)
    for case, again in zip(written.pop("cases"), made.pop("cases"), strict=True):
        for name, x in case.get("gradients", {}).items():
            case["gradients"][name] = np.asarray(np.sum(x * draw(0, *x.shape)))
        assert_same(case, again, case["tolerance"]["float64"])
    assert written == made


def test_gradients_are_made_entry_by_entry():
    written = load("masked_softmax")["cases"][0]["gradients"]
    made = generate.make("masked_softmax")["cases"][0]["gradients"]
    assert_same(made, written, TOLERANCE["float64"])


def test_what_json_cannot_hold_is_refused():
    with pytest.raises(TypeError, match="value must be an array, got set"):
        generate.encode({1})
