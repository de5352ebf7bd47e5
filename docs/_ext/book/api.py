"""The library's own pages: mathematics in docstrings, real names of types, links to the source.

The page of a positional scheme is derived from the public names of its module and written before Sphinx
reads: to `docs/api`, where git ignores it. A page that somebody wrote there by hand stays as it is.
"""

import ast
import importlib.util
import re
from functools import cache
from pathlib import Path

from numpy.typing import ArrayLike
from sphinx import addnodes
from sphinx.errors import ExtensionError
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util.typing import stringify_annotation

PACKAGE = Path(importlib.util.find_spec("posattn").origin).parent
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


def concepts():
    """The names of the positional schemes, each of which is a module in every column."""
    modules = (PACKAGE / "reference" / "position").glob("[a-z]*.py")
    both = {path.stem for path in modules} & {
        path.stem for path in (PACKAGE / "torch" / "position").glob("[a-z]*.py")
    }
    return sorted(both)


def tree(column, concept):
    """The syntax of a module of a scheme."""
    path = PACKAGE / column / "position" / f"{concept}.py"
    return ast.parse(path.read_text(encoding="utf-8"))


def public_names(module):
    """What the `__all__` of a module lists."""
    for node in module.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets) == "__all__":
            return ast.literal_eval(node.value)
    return []


def entries(column, concept, order):
    """The directives that document the public names of a module, in the order of the reference."""
    defined = {getattr(node, "name", ""): node for node in tree(column, concept).body}
    for name in order:
        node = defined.get(name)
        methods = {getattr(n, "name", "") for n in getattr(node, "body", [])}
        kind = "class" if isinstance(node, ast.ClassDef) else "function"
        called = kind == "class" and "__call__" in methods
        options = "\n   :special-members: __call__" if called else ""
        yield f".. auto{kind}:: {name}{options}\n"


def page(concept, docs):
    """The page of one scheme."""
    module = tree("reference", concept)
    public = set(public_names(module))
    order = [node.name for node in module.body if getattr(node, "name", "") in public]
    title = ast.get_docstring(module).partition(":")[0]
    head = PAGE.format(title=title, names=", ".join(order), line="=" * len(title))
    for part in ("position", "other"):
        if (docs / part / f"{concept}.md").is_file():
            head += f"The chapter is :doc:`/{part}/{concept}`.\n"
    parts = [DERIVED + head]
    for column, framework in COLUMNS.items():
        parts.append(f"{framework}\n{'-' * len(framework)}\n")
        parts.append(f".. currentmodule:: posattn.{column}\n")
        parts += entries(column, concept, order)
    return "\n".join(parts)


def pages(docs):
    """The derived pages by the names of their files: of all schemes without a page written by hand."""
    paths = {f"{concept}.rst": docs / "api" / f"{concept}.rst" for concept in concepts()}
    return {
        name: page(path.stem, docs)
        for name, path in paths.items()
        if not path.is_file() or path.read_text(encoding="utf-8").startswith(DERIVED)
    }


def check_index(docs):
    """Refuse a public name that no group of the index lists."""
    listed = (docs / "api" / "index.rst").read_text(encoding="utf-8").split()
    entry = ast.parse((PACKAGE / "reference" / "__init__.py").read_text(encoding="utf-8"))
    missing = [name for name in public_names(entry) if name not in listed]
    missing += [concept for concept in concepts() if concept not in listed]
    if missing:
        raise ExtensionError(
            f"docs/api/index.rst has no line for {', '.join(missing)}: name what is public in the "
            "autosummary of its group, and its page in the toctree at the end"
        )


def write_pages(app):
    """Write the derived pages that are not there yet as they should be, and let git ignore them."""
    docs = Path(app.srcdir)
    if not (docs / "api" / "index.rst").is_file():
        return  # another book, such as those of the tests
    check_index(docs)
    derived = pages(docs)
    derived[".gitignore"] = "\n".join([".gitignore", *derived]) + "\n"
    for name, text in derived.items():
        path = docs / "api" / name
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


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


def public(annotation):
    """Write types in full, by the names under which users know them."""
    for long, short in named().items():
        annotation = annotation.replace(long, short)
    return FRAMEWORKS.sub("", annotation)


def name_types(app, what, name, obj, options, signature, returns):
    """Name the types of a signature; shapes stay, in the short words of jaxtyping."""
    return signature and public(signature), returns and public(returns)


def sign_ports(app, what, name, obj, options, signature, returns):
    """Read the signature of a port's class in its source: its base is a mock, which hides it."""
    module, _, title = name.rpartition(".")
    if what != "class" or not module.startswith("posattn.ports."):
        return None
    source = Path(importlib.util.find_spec(module).origin).read_text(encoding="utf-8")
    classes = [
        node for node in ast.parse(source).body if getattr(node, "name", "") == title
    ]
    make = next(n for n in classes[0].body if getattr(n, "name", "") == "__init__")
    make.args.args.pop(0)
    return f"({ast.unparse(make.args)})", None


class LongSignatures(SphinxPostTransform):
    """Let the style sheet set a long signature in lines: Sphinx writes a list where none may stand."""

    default_priority = 300
    formats = ("html",)

    def run(self, **kwargs):
        """Mark what is long."""
        for parameters in self.document.findall(addnodes.desc_parameterlist):
            if parameters.attributes.pop("multi_line_parameter_list", False):
                parameters.parent["classes"].append("long")


def tidy(app, pagename, templatename, context, doctree):
    """Ask search engines to pass over the pages of source code, and list functions without `()`."""
    context["toc"] = context.get("toc", "").replace("()</span>", "</span>")
    if pagename.startswith("_modules/"):
        tag = '<meta name="robots" content="noindex">'
        context["metatags"] = context.get("metatags", "") + tag


def setup(app):
    """Register with Sphinx."""
    app.connect("builder-inited", write_pages)
    app.connect("autodoc-process-docstring", inline_math)
    app.connect("autodoc-process-signature", name_types)
    app.connect("autodoc-process-signature", sign_ports, priority=400)
    app.add_post_transform(LongSignatures)
    app.connect("html-page-context", tidy)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
