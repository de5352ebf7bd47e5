"""The library's own pages: mathematics in docstrings, real names of types, links to the source.

The page of a positional scheme is derived from the public names of its module and written before Sphinx
reads: to `docs/api`, where git ignores it. A page that somebody wrote there by hand stays as it is.
"""

import importlib
import inspect
import re
from functools import cache
from pathlib import Path

from numpy.typing import ArrayLike
from sphinx.ext.autodoc._dynamic import _signatures
from sphinx.util.typing import stringify_annotation

import posattn

PACKAGE = Path(posattn.__file__).parent
COLUMNS = {"reference": "NumPy", "torch": "PyTorch", "jax": "JAX"}
DERIVED = ".. Derived by docs/_ext/book/api.py from the names of the library.\n"
PAGE = """
.. meta::
   :description: API of posattn, {title}: {names}, in NumPy, PyTorch and JAX, with formulas, shapes, types, \
errors and examples.

{title}
{line}

The NumPy column has the formula, the shapes, the errors and the examples; the others keep to them, \
and say what differs.
Import a name from ``posattn.reference``, ``posattn.torch`` or ``posattn.jax``.
"""
FRAMEWORKS = re.compile(r"~(?=(numpy|torch|jax|tensorflow|keras|mlx|mxnet)\.)")
NAMES = {
    "jax.jaxlib._jax.Array": "jax.Array",
    "jaxlib._jax.Array": "jax.Array",
    "torch._C.Generator": "torch.Generator",
    "torch.distributed.distributed_c10d.ProcessGroup": "torch.distributed.ProcessGroup",
    "numpy.random._generator.Generator": "numpy.random.Generator",
    "[ndarray,": "[numpy.ndarray,",  # jaxtyping keeps the last word only
    "[Tensor,": "[torch.Tensor,",
    "[Array,": "[jax.Array,",  # as from Python 3.13 on
}


def page(concept, docs):
    """The page of one scheme: its public names in each column, in the order of the reference."""
    module = importlib.import_module(f"posattn.reference.position.{concept}")
    names = sorted(
        module.__all__,
        key=lambda name: inspect.getsourcelines(inspect.unwrap(getattr(module, name)))[1],
    )
    title = module.__doc__.partition(":")[0]
    parts = [
        DERIVED + PAGE.format(title=title, names=", ".join(names), line="=" * len(title))
    ]
    for part in ("position", "other"):
        if (docs / part / f"{concept}.md").is_file():
            parts[0] += f"The chapter is :doc:`/{part}/{concept}`.\n"
    for column, framework in COLUMNS.items():
        parts.append(f"{framework}\n{'-' * len(framework)}\n")
        parts.append(f".. currentmodule:: posattn.{column}\n")
        for name in names:
            called = "\n   :special-members: __call__" * name[0].isupper()
            kind = "class" if called else "function"
            parts.append(f".. auto{kind}:: {name}{called}\n")
    return "\n".join(parts)


def pages(docs):
    """The derived pages by the names of their files: of all schemes without a page written by hand."""
    found = {}
    for path in sorted((PACKAGE / "torch" / "position").glob("[a-z]*.py")):
        written = docs / "api" / f"{path.stem}.rst"
        by_hand = written.is_file() and not written.read_text("utf-8").startswith(DERIVED)
        if not by_hand and (PACKAGE / "reference" / "position" / path.name).is_file():
            found[written.name] = page(path.stem, docs)
    return found


def write_derived(folder, derived):
    """Write pages that are not there yet as they should be, and let git ignore them."""
    folder.mkdir(exist_ok=True)
    derived[".gitignore"] = "\n".join([".gitignore", *derived]) + "\n"
    for name, text in derived.items():
        path = folder / name
        if not path.is_file() or path.read_text("utf-8") != text:
            path.write_text(text, "utf-8")


def write_pages(app):
    """Write the derived pages, unless this is another book, such as those of the tests."""
    docs = Path(app.srcdir)
    if (docs / "api" / "index.rst").is_file():
        write_derived(docs / "api", pages(docs))


def inline_math(app, what, name, obj, options, lines):
    """Let docstrings write inline mathematics as `$x$`."""
    text = re.sub(
        r"\$([^$]+)\$", lambda m: f":math:`{' '.join(m[1].split())}`", "\n".join(lines)
    )
    lines[:] = text.split("\n")


@cache
def named():
    """The names of types, and those of unions, of which one needs JAX, which not every page does."""
    from jax.typing import DTypeLike

    unions = {"numpy.typing.ArrayLike": ArrayLike, "jax.typing.DTypeLike": DTypeLike}
    return {stringify_annotation(x, "smart"): name for name, x in unions.items()} | NAMES


def name_types(app, what, name, obj, options, *signature):
    """Name the types of a signature as users know them; shapes stay, in the short words of jaxtyping."""
    for long, short in named().items():
        signature = [part and part.replace(long, short) for part in signature]
    return tuple([part and FRAMEWORKS.sub("", part) for part in signature])


def setup(app):
    """Register with Sphinx."""
    app.connect("builder-inited", write_pages)
    app.connect("autodoc-process-docstring", inline_math)
    app.connect("autodoc-process-signature", name_types)
    # override: a class below a mock has the signature of its own `__init__`, until autodoc passes over
    # that of its mocks
    _signatures._CLASS_NEW_BLACKLIST |= {
        "sphinx.ext.autodoc._dynamic._mock._MockObject.__new__"
    }
