"""What belongs to a positional scheme: a missing piece fails, and the failure names the file to write."""

import ast
import importlib
import re
from pathlib import Path

import pytest

import posattn
from posattn.conformance.vectors import FOLDER
from posattn.reference import position

ROOT = Path(__file__).parents[2]
SOURCE = Path(posattn.__file__).parent
WORKS = set(
    re.findall(r"^@\w+\{([^,\s]+),", (ROOT / "references.bib").read_text("utf-8"), re.M)
)
MODULES = {path.stem for path in (SOURCE / "reference" / "position").glob("[a-z]*.py")}
CONCEPTS = sorted({position.concept(name) for name in MODULES} - {"card"})


def entries(concept, name):
    """What a scheme has under `CARDS` or `CASES`, in its module or beside it, or None."""
    names = sorted({concept, f"{concept}_cases"} & MODULES)
    homes = [importlib.import_module(f"{position.__name__}.{name}") for name in names]
    return next((getattr(home, name) for home in homes if hasattr(home, name)), None)


def exported(column):
    """The names that a column imports from each module, without importing the column."""
    tree = ast.parse((SOURCE / column / "__init__.py").read_text("utf-8"))
    return {
        node.module.rpartition(".")[2]: {alias.name for alias in node.names}
        for node in tree.body
        if isinstance(node, ast.ImportFrom)
    }


@pytest.mark.parametrize("concept", CONCEPTS)
def test_a_scheme_has_all_its_files(concept):
    home = f"src/posattn/reference/position/{concept}.py"
    public = set(importlib.import_module(f"{position.__name__}.{concept}").__all__)
    missing = [
        f"write {path}"
        for path in (
            f"src/posattn/torch/position/{concept}.py",
            f"src/posattn/jax/position/{concept}.py",
            f"tests/library/test_{concept}.py",
        )
        if not (ROOT / path).is_file()
    ]
    for column in ("reference", "torch", "jax"):
        for name in sorted(public - exported(column).get(concept, set())):
            path = f"src/posattn/{column}/__init__.py"
            missing.append(f"import {name} in {path}, and add it to __all__ there")
    cards, cases = entries(concept, "CARDS"), entries(concept, "CASES")
    if cards is None:
        missing.append(f"write CARDS in {home}: a Card for each scheme, as in alibi.py")
    if cases is None:
        missing.append(f"write CASES in {home}: Cases for each function, as in alibi.py")
    if not all((FOLDER / f"{name}.json").is_file() for name in cases or ()):
        missing.append("run python -m posattn.conformance.generate, which writes vectors")
    cited = {key for card in (cards or {}).values() for key in card.cites}
    cited |= {case.source.partition(",")[0] for case in (cases or {}).values()}
    missing += [f"write {key} in references.bib" for key in sorted(cited - WORKS)]
    calls = (ROOT / "tests" / "library" / "test_bad_input.py").read_text("utf-8")
    missing += [
        f"write {name} in CALLS of tests/library/test_bad_input.py"
        for name in sorted(public)
        if f'    "{name}": {{' not in calls
    ]
    index = (ROOT / "docs" / "api" / "index.rst").read_text("utf-8").split()
    missing += [
        f"name {name} in docs/api/index.rst: in the autosummary of its group, or in the toctree"
        for name in sorted({*public, concept} - set(index))
    ]
    assert not missing, "\n".join([f"{concept} is not complete:", *missing])
