"""How a page is tested: the source of its tests as a page, to which the numbers of equations lead.

`tests/pages/test_rotary.py` has the tests of the page `rotary`, and `test_eq_rotary` there is the test of
its equation `eq_rotary`.
"""

import ast
import re
from pathlib import Path

NUMBER = re.compile(
    r'(id="equation-([^"]+)">\s*<div class="math"[^>]*>\s*<span class="eqno">)(\(\d+\))'
)


def source_of(app, page):
    """The file with the tests of a page."""
    return Path(app.confdir, "tests", "pages", f"test_{Path(page).name}.py")


def has_tests(app, page):
    """Whether a page has tests."""
    return not page.startswith(("api/", "slides/")) and source_of(app, page).is_file()


def place(page):
    """The page that shows the tests of a page."""
    return f"_tests/{Path(page).name}"


def functions(app, page):
    """The tests of a page, each with the line on which it begins."""
    tree = ast.parse(source_of(app, page).read_text(encoding="utf-8"))
    return {n.name: n.lineno for n in tree.body if isinstance(n, ast.FunctionDef)}


def show(app):
    """Yield a page for each file of tests, with an anchor at each of them."""
    for page in sorted(app.env.found_docs) if app.builder.name == "html" else ():
        if has_tests(app, page):
            code = source_of(app, page).read_text(encoding="utf-8")
            lines = app.builder.highlighter.highlight_block(code, "python").splitlines()
            for name, number in functions(app, page).items():
                lines[number - 1] = f'<span id="{name}"></span>{lines[number - 1]}'
            title = f"How {app.env.titles[page].astext()} is tested"
            body = f"<h1>{title}</h1>\n" + "\n".join(lines)
            yield place(page), {"title": title, "body": body}, "page.html"


def link_equations(app, pagename, templatename, context, doctree):
    """Let the number of an equation lead to its test."""
    if app.builder.name != "html" or doctree is None or not has_tests(app, pagename):
        return
    tests, target = functions(app, pagename), context["pathto"](place(pagename))

    def linked(found):
        name = "test_" + found[2].replace("-", "_")
        if name not in tests:
            return found[0]
        title = "How this equation is tested"
        link = f'<a class="checked" href="{target}#{name}" title="{title}">{found[3]}</a>'
        return found[1] + link

    context["body"] = NUMBER.sub(linked, context["body"])


def setup(app):
    """Register with Sphinx."""
    app.connect("html-collect-pages", show)
    app.connect("html-page-context", link_equations)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
