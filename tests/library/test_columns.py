"""The columns beside each other: same files, names, parameters, tests, and no foreign framework."""

import ast
import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
from dataclasses import is_dataclass
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest

import posattn
from tests.conftest import pytest_configure

ROOT, TESTS = Path(posattn.__file__).parent, Path(__file__).parent
TWINS = ("torch", "jax")
FRAMEWORK_ONLY = {"dtype", "device", "rng"}  # may be added, keyword-only and last
METHODS = ("forward", "__call__", "scores", "values")  # what a class is made for
# it counts operations on NumPy arrays: no layer of a model calls it
WITHOUT_TENSORS = {"complexity"}

# what only one column needs: cards and cases of conformance; fast paths; JAX asks of all that it be a tree
OWN = {
    "reference": {"card", "cases"},
    "torch": {
        "block_masks",
        "decoder_plan",
        "call",
        "definition",
        "flex",
        "fused",
        "head_norm",
        "pair_terms",
        "query_tiles",
        "random",
        "tables",
        "tiled",
        "transformers",
    },
    "jax": {
        "call",
        "definition",
        "head_norm",
        "decoder_plan",
        "online",
        "random",
        "tiled",
        "trees",
    },
}
# what meets another library; its names stay in the file, as only its users want them
MEETING = {"flex", "transformers"}
# what may be imported together with what
FOREIGN = {
    "posattn": {"torch", "jax", "matplotlib"},
    "posattn.configs": {"torch", "jax", "matplotlib", "transformers"},
    "posattn.conformance": {"torch", "jax", "matplotlib"},
    "posattn.contract": {"torch", "jax", "matplotlib"},
    "posattn.reference": {"torch", "jax", "matplotlib"},
    "posattn.schemes": {"torch", "jax", "matplotlib"},
    "posattn.atlas": {"torch", "jax", "matplotlib"},
    "posattn.torch": {"jax", "matplotlib"},
    "posattn.jax": {"torch", "matplotlib"},
    "posattn.figures": {"torch", "jax"},
}


def homes(column):
    """The module of each concept, below its column: `rotary` lives in `position.rotary`."""
    paths = (path.relative_to(ROOT / column) for path in (ROOT / column).rglob("*.py"))
    return {
        p.stem: ".".join(p.with_suffix("").parts)
        for p in paths
        if p.stem != "__init__" and not p.stem.endswith("_cases")
    }


def concepts(column):
    return set(homes(column))


def load(column, name=""):
    home = homes(column)[name] if name else ""
    return importlib.import_module(f"posattn.{column}.{home}".rstrip("."))


SHARED = sorted(concepts("reference") - OWN["reference"] - WITHOUT_TENSORS)
NAMES = sorted({name for concept in SHARED for name in load("reference", concept).__all__})
MODULES = [
    importlib.import_module(found.name)
    for found in pkgutil.walk_packages(posattn.__path__, "posattn.")
    if not found.name.startswith("posattn.ports")
]
FILES = sorted(ROOT.rglob("*.py"))
ON_TWINS = pytest.mark.parametrize("twin", TWINS)
ON_NAMES = pytest.mark.parametrize("name", NAMES)


@ON_TWINS
def test_columns_have_the_same_files(twin):
    assert concepts(twin) == {*SHARED, *OWN.get(twin, ())}
    assert {name: homes(twin)[name] for name in SHARED} == {
        name: homes("reference")[name] for name in SHARED
    }


@ON_TWINS
@pytest.mark.parametrize("concept", SHARED)
def test_files_have_the_same_public_names(twin, concept):
    assert load(twin, concept).__all__ == load("reference", concept).__all__


@ON_TWINS
def test_columns_export_the_same_names(twin):
    counted = {
        name for concept in WITHOUT_TENSORS for name in load("reference", concept).__all__
    }
    assert load(twin).__all__ == [
        name for name in load("reference").__all__ if name not in counted
    ]
    assert sorted(load(twin).__all__) == NAMES


@pytest.mark.parametrize("column", ["reference", *TWINS])
def test_every_public_name_of_a_file_is_exported(column):
    assert set(load(column).__all__) == {
        n
        for c in concepts(column) - MEETING - OWN["reference"]
        for n in load(column, c).__all__
    }


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_what_a_file_calls_public_is_there(module):
    assert [n for n in getattr(module, "__all__", ()) if not hasattr(module, n)] == []


def holds_arrays(thing):
    """Whether a field is an array; where a sequence may be given too, a tuple is what is held."""
    kinds = map(str, thing.__annotations__.values())
    return any(re.search("array|Array|Tensor", k) and "Sequence" not in k for k in kinds)


@pytest.mark.parametrize("column", ["reference", *TWINS])
@ON_NAMES
def test_what_holds_arrays_is_compared_by_identity_and_all_is_frozen(column, name):
    """Whether two arrays are equal is no truth value, and what is equal by value can be a static argument."""
    thing = getattr(load(column), name)
    if is_dataclass(thing):
        assert thing.__dataclass_params__.frozen
        assert thing.__dataclass_params__.eq == (not holds_arrays(thing))
    elif column == "torch" and inspect.isclass(
        thing
    ):  # a module, which PyTorch keeps in dictionaries
        assert (thing.__eq__, thing.__hash__) == (object.__eq__, object.__hash__)


def parameters(function):
    """Name, kind and default of each parameter, `self` and `cls` left out."""
    declared = inspect.signature(inspect.unwrap(function)).parameters.values()
    return [(p.name, p.kind, p.default) for p in declared if p.name not in ("self", "cls")]


def entrances(column, name):
    """How a name is called: a function, or a class that is made and then called or asked for scores."""
    thing = getattr(load(column), name)
    if not inspect.isclass(thing):
        return [parameters(thing)]
    made = parameters(getattr(thing, "init", thing.__init__))
    used = [vars(thing)[method] for method in METHODS if method in vars(thing)]
    return [made[1:] if made and made[0][0] == "rng" else made, *map(parameters, used)]


@ON_TWINS
@ON_NAMES
def test_twins_have_the_same_parameters(twin, name):
    ours, theirs = entrances("reference", name), entrances(twin, name)
    assert len(ours) == len(theirs)
    for wanted, got in zip(ours, theirs, strict=True):
        added = got[len(wanted) :]
        assert got[: len(wanted)] == wanted
        assert {p[0] for p in added} <= FRAMEWORK_ONLY
        assert all(p[1:] == (inspect.Parameter.KEYWORD_ONLY, None) for p in added)


def documented(column):
    """The public names of a column and what their users call on them, with their docstrings."""
    for name in load(column).__all__:
        thing = getattr(load(column), name)
        yield name, thing.__doc__
        for method in ("init", *METHODS) if inspect.isclass(thing) else ():
            if method in vars(thing):
                yield (
                    f"{name}.{method}",
                    inspect.getdoc(vars(thing)[method].__get__(None, thing)),
                )


@pytest.mark.parametrize("column", ["reference", *TWINS])
def test_every_public_name_has_a_docstring(column):
    assert [name for name, doc in documented(column) if not (doc and doc.strip())] == []


@ON_TWINS
def test_every_twin_says_whose_twin_it_is(twin):
    for name, doc in documented(twin):
        assert "Twin of " in doc, name
        assert f"posattn.reference.{name.split('.')[0]}" in doc, name


def described(doc):
    """What a docstring says of arguments by name, whether of a result, and of which exceptions."""
    parts, part = {"": []}, ""
    for line in inspect.cleandoc(doc or "").splitlines():
        if line in ("Args:", "Returns:", "Raises:", "Examples:", "References:"):
            parts[part := line] = []
        else:
            parts[part].append(line)
    names = {
        part: [found[1] for line in lines if (found := ENTRY.match(line))]
        for part, lines in parts.items()
    }
    return names.get("Args:", []), "Returns:" in parts, set(names.get("Raises:", []))


ENTRY = re.compile(r" {4}\*{0,2}(\w+): \S")


@pytest.mark.parametrize("column", ["reference", *TWINS])
@ON_NAMES
def test_every_argument_is_described_where_help_shows_it(column, name):
    thing = getattr(load(column), name)
    if not inspect.isclass(thing):
        assert described(thing.__doc__)[0] == [p[0] for p in parameters(thing)]
        return
    assert described(thing.__doc__)[0] == [p[0] for p in parameters(thing.__init__)]
    for method in ("init", *METHODS):
        if method in vars(thing):
            used = getattr(thing, method)
            taken = [p[0] for p in parameters(used)]
            assert described(inspect.getdoc(used))[0] == taken, method


@ON_TWINS
@ON_NAMES
def test_twins_promise_the_same_results_and_errors(twin, name):
    ours, theirs = getattr(load("reference"), name), getattr(load(twin), name)
    if not inspect.isclass(ours):
        assert described(theirs.__doc__)[1:] == described(ours.__doc__)[1:]
        return
    for method in METHODS:
        if method in vars(theirs):
            same = "__call__" if method == "forward" else method
            own, other = (described(inspect.getdoc(vars(c)[m]))[1:]
                          for c, m in ((ours, same), (theirs, method)))  # fmt: skip
            assert own == other, method


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_modules_are_short_and_documented(path):
    text = path.read_text()
    assert len(text.splitlines()) <= 400
    assert ast.get_docstring(ast.parse(text))


@pytest.mark.parametrize("concept", sorted(concepts("reference") - OWN["reference"]))
def test_every_concept_has_its_tests(concept):
    assert (TESTS / f"test_{concept}.py").is_file()


@pytest.mark.parametrize(
    ("ci", "source", "marks", "run"),
    [
        ("", "TESTPATHS", "", "not slow"),
        ("false", "INVOCATION_DIR", "", "not slow"),
        ("true", "TESTPATHS", "", ""),
        ("", "ARGS", "", ""),  # files are named
        ("", "TESTPATHS", "slow", "slow"),
    ],
)
def test_slow_tests_are_left_to_ci_unless_they_are_named(
    ci, source, marks, run, monkeypatch
):
    monkeypatch.setenv("CI", ci)
    config = MagicMock(option=SimpleNamespace(markexpr=marks))
    config.args_source = pytest.Config.ArgsSource[source]
    pytest_configure(config)
    assert config.option.markexpr == run


@pytest.mark.slow
@pytest.mark.parametrize(("module", "foreign"), FOREIGN.items(), ids=FOREIGN)
def test_importing_a_column_imports_no_foreign_framework(module, foreign):
    script = f"import sys, {module}; print(*{foreign!r} & set(sys.modules))"
    run = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert run.stdout.split() == []
