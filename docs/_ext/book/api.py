"""The library's own pages: mathematics in docstrings, real names of types, links to the source."""

import ast
import importlib.util
import re
from pathlib import Path

from jax.typing import DTypeLike
from numpy.typing import ArrayLike
from sphinx import addnodes
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util.typing import stringify_annotation

FRAMEWORKS = re.compile(r"~(?=(numpy|torch|jax|tensorflow|keras|mlx|mxnet)\.)")
NAMES = {
    stringify_annotation(ArrayLike, "smart"): "numpy.typing.ArrayLike",
    stringify_annotation(DTypeLike, "smart"): "jax.typing.DTypeLike",
    "jax.jaxlib._jax.Array": "jax.Array",
    "jaxlib._jax.Array": "jax.Array",
    "torch._C.Generator": "torch.Generator",
    "torch.distributed.distributed_c10d.ProcessGroup": "torch.distributed.ProcessGroup",
    "numpy.random._generator.Generator": "numpy.random.Generator",
    "[ndarray,": "[numpy.ndarray,",  # jaxtyping keeps the last word only
    "[Tensor,": "[torch.Tensor,",
}


def inline_math(app, what, name, obj, options, lines):
    """Let docstrings write inline mathematics as `$x$`."""
    lines[:] = [re.sub(r"\$([^$]+)\$", r":math:`\1`", line) for line in lines]


def public(annotation):
    """Write types in full, by the names under which users know them."""
    for long, short in NAMES.items():
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


def hide_source(app, pagename, templatename, context, doctree):
    """Ask search engines to pass over the pages of source code."""
    if pagename.startswith("_modules/"):
        tag = '<meta name="robots" content="noindex">'
        context["metatags"] = context.get("metatags", "") + tag


def setup(app):
    """Register with Sphinx."""
    app.connect("autodoc-process-docstring", inline_math)
    app.connect("autodoc-process-signature", name_types)
    app.connect("autodoc-process-signature", sign_ports, priority=400)
    app.add_post_transform(LongSignatures)
    app.connect("html-page-context", hide_source)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
