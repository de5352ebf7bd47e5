"""The fuzzer finds nothing in a short run, and something where something is planted."""

import inspect

import numpy as np
import pytest

import posattn.reference
from tests import fuzz

pytestmark = pytest.mark.usefixtures("unchecked")


@pytest.mark.parametrize("column", fuzz.COLUMNS)
def test_hostile_input_is_refused_or_computed_alike(column):
    said = []
    with fuzz.prepared():
        found = fuzz.rounds(column, inputs=300, each=3, say=said.append)
    assert not found, "\n".join(said)


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
