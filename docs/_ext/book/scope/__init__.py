"""The config scope: `posattn plan` in the page, run by Brython from what the site itself holds.

`_static/scope/engine.js` is Brython, the modules that a plan needs, and their tables. `light.py` stands for
the modules of Python that are large or lack something in Brython; the others are Brython's own, and
`decoder` and `scanner` are what Python reads JSON with: Brython's own is quick, and knows no `1e+30`.
"""

import json
from importlib.util import find_spec
from pathlib import Path

import posattn

HERE, LIBRARY = Path(__file__).parent, Path(posattn.__file__).parent
LIGHT = (
    *("dataclasses", "functools", "itertools", "numbers", "os", "pathlib", "collections"),
    *("collections.abc", "heapq", "typing", "types", "_thread", "_colorize", "warnings"),
    "posattn.configs.gguf",
)
REAL = (
    *("python_re", "math", "difflib", "reprlib", "json", "json.encoder", "_json"),
    *("operator", "_operator"),
)
UNREAD = (
    *("checkpoint", "decoders", "deltas", "experts", "forms", "latents", "shrunk"),
    *("tokens", "weights"),
)
# Brython 3.14.3 looks for its own set where nobody put it.
START = """
self.set = __BRYTHON__.builtins.set;
__BRYTHON__.use_VFS = true;
__BRYTHON__.update_VFS(%s);
self.files = %s;
"""


def modules(own):
    """What Brython is given: the text of each module by its name, and whether it is a package.

    Args:
        own: Brython's own modules.
    """
    found = {"posattn.contract": (LIBRARY / "contract" / "numbers.py").read_text("utf-8")}
    for path in sorted(LIBRARY.glob("configs/**/*.py")):
        if path.stem not in UNREAD:
            name = ".".join(path.relative_to(LIBRARY.parent).with_suffix("").parts)
            found[name.removesuffix(".__init__")] = path.read_text("utf-8")
    found |= {"posattn": "", "posattn.configs": ""}  # whose names need arrays, too
    found |= dict.fromkeys(LIGHT, "from light import *\n")
    found["re"] = "from python_re import *\nfrom light import *\n"
    for name in ("decoder", "scanner"):
        text = Path(json.__file__).with_name(f"{name}.py").read_text("utf-8")
        found[name] = text.replace("from json import", "import")
    found |= {path.stem: path.read_text("utf-8") for path in HERE.glob("[a-z]*.py")}
    packages = {name.rpartition(".")[0] for name in found}
    written = {n: [".py", text, [], *[1] * (n in packages)] for n, text in found.items()}
    return {name: own[name] for name in REAL} | written


def engine():
    """Brython with all that a plan needs, as a script."""
    (home,) = find_spec("brython").submodule_search_locations
    brython, stdlib = (
        Path(home, "data", f"{name}.js").read_text("utf-8")
        for name in ("brython", "brython_stdlib")
    )
    own, _ = json.JSONDecoder().raw_decode(stdlib, stdlib.index('{"$timestamp"'))
    tables = {
        path.name: json.dumps(json.loads(path.read_text("utf-8")), separators=(",", ":"))
        for path in sorted(LIBRARY.glob("configs/*.json"))
        if path.stem not in UNREAD
    }
    return brython + START % (json.dumps(modules(own)), json.dumps(tables))


def write(app, error):
    """Write the engine, and the files of the models that the scope offers."""
    if app.builder.name != "html" or error:
        return
    target = Path(app.outdir, "_static", "scope")
    target.mkdir(parents=True, exist_ok=True)
    (target / "engine.js").write_text(engine(), "utf-8")
    for path in Path(app.srcdir, "_records", "configs").glob("*.json"):
        (target / path.name).write_bytes(path.read_bytes())


def setup(app):
    """Register with Sphinx."""
    app.connect("build-finished", write)
