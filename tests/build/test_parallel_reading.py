"""A book that two processes read is the one that a single process reads."""

import os

import pytest

from tests.build.books import build, cell, words, write
from tests.conftest import need

pytestmark = pytest.mark.slow  # small books

WORK = "@misc{{{name}, title={{{name}}}, author={{Nobody, {name}}}, year={{2024}}}}\n"
DRAW = "from posattn import figures\nfigures.offsets([1, 2, {}])"
PAGE = """
:::{{place}}
{{doc}}`{other}`
:::

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
NAMES = ("one", "two", "three", "four")


def page(number, name):
    """A page that refers to another, by all that has a number, and is referred to."""
    glued = f"from myst_nb import glue\nglue({name!r}, {number}, display=False)"
    return PAGE.format(
        name=name,
        other=NAMES[number - 2],
        number=number,
        after=number + 1,
        run=cell(glued),
        solved=cell(f"print({number})"),
        drawn=cell(DRAW.format(number)).replace(
            "  image:", f"  figure: {{name: fig-{name}, caption: A caption}}\n  image:"
        ),
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
        write(folder, pages, works)
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
    assert "[4] has (1), Theorem 1 and Fig. 1. It has 2 of 1. Theorem 2" in texts["two"]
    assert "Chapter 1: one Of one Chapter 2: two Of two Chapter 3: three" in texts["all"]
    assert "[3] three Nobody. Three. 2024. [4] two Nobody. Two. 2024." in texts["all"]
