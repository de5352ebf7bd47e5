"""A book that two processes read, in kernels that are forks, is the one that a single process reads."""

import html
import os

import pytest

from docs._ext.book import kernels
from tests.build.books import build, cell, words, write
from tests.conftest import need

WORK = "@misc{{{name}, title={{{name}}}, author={{Nobody, {name}}}, year={{2024}}}}\n"
DRAW = "from posattn import figures\nfigures.offsets([1, 2, {}])"
PAGE = """
:::{{place}}
{needs}:::

{{cite:p}}`{name}` has {{eq}}`eq_{other}`, {{prf:ref}}`thm_{other}` and {{numref}}`fig-{other}`.
It has {{glue:text}}`{name}:d` of {{glue:text}}`{other}.md::{other}:d`.

```{{prf:theorem}} Of {name}
:label: thm_{name}
$x$ is $x$.
```

$$
x_{{\\text{{{name}}}}}
$$ (eq_{name})

{run}
{looked}
{drawn}

```{{doctest}}
>>> {number} + 1
{after}
```

## Exercises

### 1. Of {name}

Which?

{{.solution}}
#### Answer

{solved}
"""
LOOK = """import os, sys
print("matplotlib" in sys.modules, hasattr(sys, "mark"), os.environ["XLA_FLAGS"])
sys.mark = 1"""
NAMES = ("one", "two")


def page(number, name):
    """A page that refers to another, by all that has a number, and is referred to."""
    glued = f"from myst_nb import glue\nglue({name!r}, {number}, display=False)"
    return PAGE.format(
        needs="{doc}`one`\n" if name == "two" else "",
        name=name,
        other=NAMES[number - 2],
        number=number,
        after=number + 1,
        run=cell(glued),
        looked=cell(LOOK),
        solved=cell(f"print({number})"),
        drawn=cell(DRAW.format(number)).replace(
            "  image:", f"  figure: {{name: fig-{name}, caption: A caption}}\n  image:"
        )
        + "As it should be: False.\n",
    )


@pytest.fixture(scope="module")
def books(tmp_path_factory):
    """All files of the book, by name, as read by one process and by two."""
    need(hasattr(os, "fork"), "there is no fork here")
    pages = {name: page(number, name) for number, name in enumerate(NAMES, start=1)}
    pages["all"] = "```{exercises}\n```\n\n```{bibliography}\n```\n"
    works = "".join(WORK.format(name=name) for name in NAMES)
    made = []
    for processes in (1, 2):
        folder = tmp_path_factory.mktemp(f"read_by_{processes}")
        write(folder, pages, works, 'bibtex_default_style = "plain"\n')
        out, code, said = build(folder, processes=processes)
        assert code == 0, said  # Sphinx would warn of an extension that reads alone
        files = [path for path in out.rglob("*") if path.is_file()]
        made.append({str(path.relative_to(out)): path.read_bytes() for path in files})
    return made


def test_two_processes_make_the_files_that_one_makes(books):
    one, two = books
    assert one.keys() == two.keys()
    assert [name for name in one if one[name] != two[name]] == []


def test_a_page_knows_what_the_others_hold(books):
    texts = {name: words(books[1][f"{name}.html"].decode()) for name in ("two", "all")}
    assert "[2] has (1), Theorem 1 and Fig. 1. It has 2 of 1. Theorem 2" in texts["two"]
    assert "Chapter 1: one Of one Chapter 2: two Of two" in texts["all"]
    assert "[1] one Nobody. One. 2024. [2] two Nobody. Two. 2024." in texts["all"]


def test_a_page_begins_with_what_it_imports_in_a_process_of_its_own(books):
    for name in NAMES:
        text = html.unescape(words(books[0][f"{name}.html"].decode()))
        assert f"True False {kernels.COMPILER}" in text
