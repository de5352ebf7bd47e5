"""Which files of the library the cells of a page depend on, read from their imports and followed from there.

`from posattn.torch import rotate` depends on the module that defines `rotate` and on what it imports, not on
all of `posattn.torch`. Where that cannot be read, a page depends on the whole library.
"""

import ast
import hashlib
import re
from functools import cache
from importlib.resources import files
from pathlib import Path

PACKAGE = Path(str(files("posattn")))
CONTRACT = PACKAGE / "contract"  # which every public function asks
RECORDS = PACKAGE.parents[1] / "docs" / "_records"
UNREADABLE = re.compile(r"import_module|__import__|subprocess|runpy|posattn\.__main__")
COLLECTS = "iter_modules(__path__)"  # a package that goes through its modules
READS_DATA = re.compile(r"\bfiles\(|__file__")


def of(sources):
    """The files that some cells depend on.

    Args:
        sources: the code of the cells.

    Returns:
        Paths, sorted: modules of the library, the data beside them, and the records that a cell names.
    """
    code = "\n".join(sources)
    found = set(RECORDS.rglob("*.json")) if "_records" in code else set()
    if UNREADABLE.search(code):
        return sorted(found | {path for path in PACKAGE.rglob("*") if kept(path)})
    modules = imported(code)
    if modules:
        modules |= set(CONTRACT.glob("*.py"))
    awaited = sorted(modules)
    while awaited:
        path = awaited.pop()
        new, reads_data = needs(path, path.stat().st_mtime_ns)
        awaited += new - modules
        modules |= new
        if reads_data:
            found |= {p for p in path.parent.rglob("*") if kept(p) and p.suffix != ".py"}
    return sorted(found | modules)


def fingerprint(sources):
    """A hash of some cells and of what they depend on."""
    digest = hashlib.sha256("\0".join(sources).encode())
    for path in of(sources):
        digest.update(f"\0{path.name}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:24]


def kept(path):
    """Whether a path is a file that somebody wrote."""
    return path.is_file() and "__pycache__" not in path.parts


@cache
def needs(path, time):
    """The modules that a module imports, and whether it reads data."""
    text = path.read_text(encoding="utf-8")
    collected = set(path.parent.glob("*.py")) if COLLECTS in text else set()
    return imported(text) | collected, bool(READS_DATA.search(text))


def imported(text):
    """The modules of the library from which some code takes a name."""
    tree, modules, found = ast.parse(text), {}, set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == "posattn":
                    modules[alias.asname or "posattn"] = (
                        alias.name if alias.asname else "posattn"
                    )
        elif (
            isinstance(node, ast.ImportFrom)
            and (node.module or "").split(".")[0] == "posattn"
        ):
            for alias in node.names:
                if (inner := file(f"{node.module}.{alias.name}")) is None:
                    found.add(home(node.module, alias.name))
                elif inner.name == "__init__.py":
                    modules[alias.asname or alias.name] = f"{node.module}.{alias.name}"
                else:
                    found.add(inner)
    inner = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for node in ast.walk(tree):
        if id(node) in inner or not (names := chain(node)) or names[0] not in modules:
            continue
        if len(names) > 1:  # reference.sinusoidal_encoding, posattn.torch.rotate
            found.add(followed(modules[names[0]], names[1:]))
        else:  # a package that is passed on
            found |= whole(modules[names[0]])
    return found


def chain(node):
    """The names of a chain of attributes, or of a name alone, or none."""
    names = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    return [node.id, *reversed(names)] if isinstance(node, ast.Name) else []


def followed(module, names):
    """The file that defines what a chain of names below a package leads to."""
    for name in names:
        inner = file(f"{module}.{name}")
        if inner is None:
            return home(module, name)
        if inner.name != "__init__.py":
            return inner
        module = f"{module}.{name}"
    return file(module)


def file(module):
    """The file of a module of the library, or None."""
    place = PACKAGE.parent.joinpath(*module.split("."))
    candidates = place.with_name(f"{place.name}.py"), place / "__init__.py"
    return next((path for path in candidates if path.is_file()), None)


@cache
def exported(path, time):
    """Where the `__init__` of a package takes its names from."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {
        alias.asname or alias.name: (node.module, alias.name)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
    }


def home(module, name):
    """The file that defines a name of a module."""
    path = file(module)
    while path.name == "__init__.py":
        module, name = exported(path, path.stat().st_mtime_ns).get(name, (None, name))
        if module is None or file(module) is None:
            return path
        path = file(f"{module}.{name}") or file(module)
    return path


def whole(module):
    """All modules of a package."""
    path = file(module)
    return set(path.parent.rglob("*.py")) if path.name == "__init__.py" else {path}
