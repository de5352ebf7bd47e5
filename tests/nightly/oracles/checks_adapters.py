"""The lines of the page for layers and graphs, with what they call; `nox -s oracles` runs this.

`nox -s record -- conformance` asks ONNX and KerasHub, in environments of their own.
"""

import re
from pathlib import Path

import equinox
import jax
from flax import linen

from posattn.conformance import check
from posattn.jax import rotate

PAGE = Path(__file__).parents[3] / "docs" / "fix" / "conformance.md"
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
