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

import pytest

import posattn

ROOT, TESTS = Path(posattn.__file__).parent, Path(__file__).parent
TWINS = ("torch", "jax")
FRAMEWORK_ONLY = {"dtype", "device", "rng"}  # may be added, keyword-only and last
METHODS = ("forward", "__call__", "scores", "values")  # what a class is made for
# it counts operations on NumPy arrays: no layer of a model calls it
WITHOUT_TENSORS = {"complexity"}
# a decorator, which every bad input tests
UNTESTED = {"validated"}

# what only one column needs: cards and cases of conformance; fast paths; JAX asks of all that it be a tree
OWN = {
    "reference": {"card", "cases"},
    "torch": {"block_masks", "call", "chunks", "decoder_plan", "definition", "flex", "fused", "gathered",
              "head_norm", "pair_terms", "query_tiles", "random", "tables", "tiled", "transformers"},
    "jax": {"call", "chunks", "decoder_plan", "definition", "gathered", "head_norm", "online", "random",
            "tiled", "trees"},
}  # fmt: skip
# what meets another library; its names stay in the file, as only its users want them
MEETING = {"flex", "transformers"}
# what may be imported together with what
NEITHER = ("torch", "jax", "matplotlib", "transformers")
FOREIGN = {
    "posattn, posattn.reference, posattn.contract, posattn.conformance": NEITHER,
    "posattn.configs, posattn.schemes, posattn.atlas": NEITHER,
    "posattn.torch": ("jax", "matplotlib"),
    "posattn.jax": ("torch", "matplotlib"),
    "posattn.figures": ("torch", "jax"),
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
ON_TWINS = pytest.mark.parametrize("twin", TWINS)
ON_COLUMNS = pytest.mark.parametrize("column", ["reference", *TWINS])


@ON_TWINS
def test_columns_have_the_same_files_and_public_names(twin):
    assert concepts(twin) == {*SHARED, *OWN[twin]}
    for concept in SHARED:
        assert homes(twin)[concept] == homes("reference")[concept]
        assert load(twin, concept).__all__ == load("reference", concept).__all__
    assert sorted(load(twin).__all__) == NAMES


@ON_COLUMNS
def test_every_public_name_of_a_file_is_exported(column):
    assert set(load(column).__all__) == {
        n
        for c in concepts(column) - MEETING - OWN["reference"]
        for n in load(column, c).__all__
    }


@ON_COLUMNS
def test_every_public_definition_is_validated(column):
    for concept in SHARED:
        module = load(column, concept)
        for node in ast.parse(inspect.getsource(module)).body:
            if getattr(node, "name", "") in module.__all__:
                assert "@validated" in ast.unparse(node), node.name


def test_what_a_file_calls_public_is_there():
    for module in MODULES:
        missing = [n for n in getattr(module, "__all__", ()) if not hasattr(module, n)]
        assert not missing, module.__name__


def holds_arrays(thing):
    """Whether a field is an array; where a sequence may be given too, a tuple is what is held."""
    kinds = map(str, thing.__annotations__.values())
    return any(re.search("array|Array|Tensor", k) and "Sequence" not in k for k in kinds)


@ON_COLUMNS
def test_what_holds_arrays_is_compared_by_identity_and_all_is_frozen(column):
    """Whether two arrays are equal is no truth value, and what is equal by value can be static."""
    for name in NAMES:
        thing = getattr(load(column), name)
        if is_dataclass(thing):
            written = column == "torch" and name in ("KVCache", "LatentCache")
            assert thing.__dataclass_params__.frozen != written, name
            assert thing.__dataclass_params__.eq != holds_arrays(thing), name
        elif column == "torch" and inspect.isclass(thing):  # a module, kept in dictionaries
            assert (thing.__eq__, thing.__hash__) == (object.__eq__, object.__hash__), name


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
def test_twins_have_the_same_parameters(twin):
    for name in NAMES:
        ours, theirs = entrances("reference", name), entrances(twin, name)
        for wanted, got in zip(ours, theirs, strict=True):
            added = got[len(wanted) :]
            assert got[: len(wanted)] == wanted, name
            assert {p[0] for p in added} <= FRAMEWORK_ONLY, name
            assert all(p[1:] == (inspect.Parameter.KEYWORD_ONLY, None) for p in added), name


def documented(column):
    """The public names of a column and what their users call on them, with their functions."""
    for name in load(column).__all__:
        thing = getattr(load(column), name)
        yield name, thing, thing.__init__ if inspect.isclass(thing) else thing
        for method in ("init", *METHODS) if inspect.isclass(thing) else ():
            if method in vars(thing):
                used = vars(thing)[method].__get__(None, thing)
                yield f"{name}.{method}", used, used


@ON_COLUMNS
def test_every_public_name_describes_its_arguments(column):
    for name, thing, called in documented(column):
        doc = inspect.getdoc(thing)
        assert doc, name
        if name.split(".")[0] in NAMES:
            assert described(doc)[0] == [p[0] for p in parameters(called)], name
        if column in TWINS:
            assert f"posattn.reference.{name.split('.')[0]}" in doc, name


@ON_TWINS
def test_twins_promise_the_same_results(twin):
    ours = {name: inspect.getdoc(thing) for name, thing, _ in documented("reference")}
    for name, thing, _ in documented(twin):
        promised = described(ours.get(name.replace(".forward", ".__call__")))[1]
        if not inspect.isclass(thing) and not name.endswith(".init"):
            assert described(inspect.getdoc(thing))[1] == promised, name


ENTRY = re.compile(r" {4}\*{0,2}(\w+): \S")


def described(doc):
    """What a docstring says of arguments by name, and whether of a result."""
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
    return names.get("Args:", []), "Returns:" in parts


def test_modules_are_short_and_documented():
    for path in ROOT.rglob("*.py"):
        text = path.read_text()
        assert len(text.splitlines()) <= 400, path
        assert ast.get_docstring(ast.parse(text)), path


def test_every_concept_has_its_tests():
    missing = [
        c
        for c in concepts("reference") - UNTESTED - OWN["reference"]
        if not (TESTS / f"test_{c}.py").is_file()
    ]
    assert not missing


@pytest.mark.parametrize(("modules", "foreign"), FOREIGN.items(), ids=FOREIGN)
def test_importing_a_column_imports_no_foreign_framework(modules, foreign):
    script = f"import sys, {modules}; print(*{set(foreign)!r} & set(sys.modules))"
    command = [sys.executable, "-c", script]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert run.stdout.split() == []
