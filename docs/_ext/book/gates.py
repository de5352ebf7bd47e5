"""Three gates: every public name is documented, every work is cited, and its year is that of its key."""

import ast
import pkgutil
from importlib.util import find_spec
from pathlib import Path

from sphinx.util import logging

import posattn

logger = logging.getLogger(__name__)


def public_names():
    """Yield the full name of everything that a column's package exports, without importing a framework."""
    for column in pkgutil.iter_modules(posattn.__path__, "posattn."):
        if column.ispkg and column.name != "posattn.contract":
            source = Path(find_spec(column.name).origin).read_text(encoding="utf-8")
            for node in ast.parse(source).body:
                if isinstance(node, ast.Assign) and ast.unparse(node.targets) == "__all__":
                    yield from (f"{column.name}.{n}" for n in ast.literal_eval(node.value))


def check(app, env):
    """Warn, and so fail the build, about names without documentation and entries without citation."""
    documented = {
        name.split(".")[1] + "." + name.split(".")[-1]
        for name in env.get_domain("py").objects
    }
    for name in public_names():
        _, column, word = name.split(".")
        if f"{column}.{word}" not in documented:
            logger.warning("%s is public but not documented", name)
    cite = env.get_domain("cite")
    cited = {target.key for reference in cite.citation_refs for target in reference.targets}
    for key in sorted(set(cite.bibdata.data.entries) - cited):
        logger.warning("%s stands in references.bib but is not cited", key)
    for key, entry in cite.bibdata.data.entries.items():
        year = entry.fields.get("year")
        if not year or year not in key:
            logger.warning("%s stands in references.bib with the year %s", key, year)


def setup(app):
    """Register with Sphinx."""
    app.connect("env-check-consistency", check)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
