"""The fuzzer finds nothing in a short run, and something where something is planted."""

import inspect
import itertools

import jax
import numpy as np
import pytest

import posattn.reference
from tests.nightly import fuzz
from tests.nightly.signatures import alternatives

pytestmark = pytest.mark.usefixtures("unchecked")


@pytest.mark.parametrize("column", fuzz.COLUMNS)
def test_hostile_input_is_refused_or_computed_alike(column):
    said = []
    with fuzz.prepared():
        found = fuzz.rounds(column, inputs=300, each=3, say=said.append)
    assert not found, "\n".join(said)


@pytest.mark.parametrize("column", fuzz.COLUMNS[1:])
def test_the_smallest_number_is_the_same_in_every_column(column):
    tried = 0
    with fuzz.prepared():
        for target in fuzz.targets():
            whole = [
                name
                for name, p in target.signatures(column)[1].items()
                if int in alternatives(p.annotation)
            ]
            for call, name, number in itertools.product(
                fuzz.valid(target)[:2], whole, range(3)
            ):
                outcome, wrong = fuzz.judge(target, column, call, {name: str(number)})
                tried += outcome.kind in ("computed", "refused")
                assert not wrong, (str(target), name, number, wrong)
    assert tried > 300


@pytest.mark.parametrize("column", fuzz.COLUMNS[1:])
def test_a_layer_has_the_dtype_that_it_is_made_with(column):
    made = []
    with fuzz.prepared():
        for target in fuzz.targets():
            thing = getattr(getattr(posattn, column), target.name)
            if target.method or not inspect.isclass(thing) or "Cache" in target.name:
                continue
            if "dtype" in target.signatures(column)[1]:
                call = fuzz.with_changes(fuzz.valid(target)[0], {"dtype": "own.bfloat16"})
                layer = fuzz.run(target.text(column, call)).value
                learned = getattr(layer, "parameters", list)  # a value has none
                arrays = learned() if column == "torch" else jax.tree.leaves(layer)
                dtypes = {str(x.dtype).rpartition(".")[-1] for x in arrays}
                assert dtypes <= {"bfloat16"}, (target.name, dtypes)
                made += [target.name] if dtypes else []
    assert len(made) > 10


@pytest.mark.parametrize(
    ("planted", "kind"),
    [
        (lambda n_q, n_k=None: [n_q][n_q], "fails from inside"),
        (lambda n_q, n_k=None: np.ones((2, 2)), "computed where the reference refused"),
    ],
)
def test_a_planted_fault_is_found(monkeypatch, planted, kind):
    right = posattn.reference.causal_mask
    planted.__signature__ = inspect.signature(right)
    monkeypatch.setattr(posattn.torch, "causal_mask", planted)
    monkeypatch.setattr(fuzz, "SOURCE", "")
    with fuzz.prepared():
        found = fuzz.rounds(
            "torch", inputs=40, each=40, only="causal_mask", say=lambda _: None
        )
    assert any(told.startswith(kind) for _, told, _ in found)
