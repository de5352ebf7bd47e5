"""The modules as a drawing: who imports whom, read from the sources without running them."""

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import posattn

ROOT = Path(posattn.__file__).parent


def modules(root):
    """The modules of a package by name, and whether each is itself a package."""
    found = {}
    for path in root.rglob("*.py"):
        parts = (root.name, *path.relative_to(root).with_suffix("").parts)
        found[".".join(parts).removesuffix(".__init__")] = path
    return found


def imports(root):
    """For each module, the modules of the same package that it imports anywhere in its source.

    `from a.b import c` imports `a.b.c` where that is a module, and `a.b` otherwise.
    """
    found = modules(root)
    graph = {}
    for name, path in found.items():
        graph[name] = set()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            wanted = []
            if isinstance(node, ast.Import):
                wanted = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{name} imports relatively"
                wanted = [
                    full
                    if (full := f"{node.module}.{alias.name}") in found
                    else node.module
                    for alias in node.names
                ]
            graph[name] |= {module for module in wanted if module in found}
    return graph


def circle(graph):
    """The modules of an import circle in their order, or None."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return error.args[1]
    return None


def test_no_modules_import_each_other_in_a_circle():
    assert circle(imports(ROOT)) is None


@pytest.mark.parametrize("column", ["reference", "torch", "jax"])
def test_attention_imports_nothing_of_position(column):
    imported = {
        module
        for name, wanted in imports(ROOT).items()
        if name.startswith(f"posattn.{column}.attention.")
        for module in wanted
    }
    assert f"posattn.{column}.attention.masks" in imported
    assert not {name for name in imported if name.startswith(f"posattn.{column}.position")}


@pytest.mark.parametrize(
    "source", ["from library import b", "def late():\n    import library.b"]
)
def test_a_circle_is_found_however_it_is_imported(source, tmp_path):
    root = tmp_path / "library"
    root.mkdir()
    (root / "__init__.py").touch()
    (root / "a.py").write_text(source)
    (root / "b.py").write_text("from library.a import name")
    assert set(circle(imports(root))) == {"library.a", "library.b"}
