"""The lines of the page for layers and graphs, with what they call; `nox -s oracles` runs this.

ONNX and KerasHub are asked where they are installed, and in any case by `nox -s record -- conformance`.
"""

import re
from pathlib import Path

import equinox
import jax
import numpy as np
import pytest
from flax import linen

from posattn.conformance import check
from posattn.jax import rotate

PAGE = Path(__file__).parents[3] / "docs" / "conformance.md"
HALF = {"layout": "half"}


def on_the_page(name, **called):
    """What the lines of the page make of a name, where they call these."""
    page = PAGE.read_text("utf-8")
    _, code = re.findall(
        r"^```\{code-block\} python\n(.*?)^```", page, re.DOTALL | re.MULTILINE
    )
    exec(compile(code, PAGE.name, "exec"), called)
    return called[name]


class Turn(linen.Module):
    """A module of Flax that rotates."""

    base: float = 10000.0

    @linen.compact
    def __call__(self, x, positions):
        """Rotate `(b, h, n, d)` by positions of shape `(b, n)`."""
        return rotate(x, positions[:, None], base=self.base, layout="half")


def test_a_module_of_flax_passes():
    rope = on_the_page("flax_rope", module=Turn(), variables={})
    report = check(rope, "rotary", framework="jax", settings=HALF)
    assert not report.failures
    assert len(report.runs) > 10
    other = on_the_page("flax_rope", module=Turn(500.0), variables={})
    assert check(other, "rotary", framework="jax", settings=HALF).failures


def test_a_module_of_equinox_takes_no_positions():
    (line,) = re.findall(r"`(lambda x: [^`]*)` is all it needs", PAGE.read_text("utf-8"))
    module = equinox.nn.RotaryPositionalEmbedding(8)
    rope = eval(line, {"jax": jax, "module": module})
    report = check(rope, "rotary", framework="jax", settings=HALF)
    assert not report.failures
    assert "layout half, no positions given" in {run.case["name"] for run in report.runs}
    backwards = eval(line, {"jax": jax, "module": lambda x: module(x[::-1])[::-1]})
    assert check(backwards, "rotary", framework="jax", settings=HALF).failures


@pytest.mark.parametrize("base", [10000.0, 500.0])
def test_a_layer_of_keras_hub_passes(base):
    keras_hub = pytest.importorskip("keras_hub")
    keras = pytest.importorskip("keras")
    layer = keras_hub.layers.RotaryEmbedding(max_wavelength=base)
    report = check(
        on_the_page("keras_rope", layer=layer),
        "rotary",
        framework=keras.backend.backend(),
        settings=HALF,
        tolerance="float32-angles",
    )
    assert bool(report.failures) == (base != 10000.0)
    assert len(report.runs) > 10


def sessions(graph, **tables):
    """Those who run a graph of ONNX, which has tables within."""
    numpy_helper = pytest.importorskip("onnx").numpy_helper
    onnxruntime = pytest.importorskip("onnxruntime")
    from onnx.parser import parse_model
    from onnx.reference import ReferenceEvaluator

    model = parse_model(f'<ir_version: 11, opset_import: ["": 23]> g {graph}')
    within = [numpy_helper.from_array(x, name) for name, x in tables.items()]
    model.graph.initializer.extend(within)
    file = model.SerializeToString()
    return onnxruntime.InferenceSession(file), ReferenceEvaluator(model)


@pytest.mark.parametrize("layout", ["half", "interleaved"])
def test_an_operator_of_onnx_rotates(layout):
    angles = np.arange(5000)[:, None] * 10000.0 ** (-np.arange(0, 8, 2) / 8)
    both = sessions(
        "(float[b,h,n,8] X, int64[b,n] position_ids) => (float[b,h,n,8] Y) "
        f"{{ Y = RotaryEmbedding <interleaved = {int(layout == 'interleaved')}> "
        "(X, cos, sin, position_ids) }",
        cos=np.cos(angles).astype("float32"),
        sin=np.sin(angles).astype("float32"),
    )
    other = {"half": "interleaved", "interleaved": "half"}[layout]
    options = {"framework": "numpy", "dtype": "float32", "max_position": 4999}
    options["skip"] = ["half the width", "a pair", "two heads", "fractions"]
    for session in both:
        rope = on_the_page("onnx_rope", session=session)
        report = check(rope, "rotary", settings={"layout": layout}, **options)
        assert not report.failures
        assert len(report.runs) > 7
        assert check(rope, "rotary", settings={"layout": other}, **options).failures


def test_an_operator_of_onnx_attends():
    both = sessions(
        "(float[b,h,n,4] Q, float[b,h,m,4] K, float[b,h,m,6] V, bool[b,o,n,m] attn_mask) "
        "=> (float[b,h,n,6] Y) { Y = Attention (Q, K, V, attn_mask) }"
    )
    for session in both:
        attention = on_the_page("onnx_attention", session=session)
        report = check(attention, "attention", framework="numpy", dtype="float32")
        (failed,) = report.failures
        assert failed.case["name"] == "NaN and infinity in hidden keys"
        assert len(report.runs) > 4
