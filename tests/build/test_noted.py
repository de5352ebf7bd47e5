"""A small book with a piece of each kind, in every form: what it becomes is what was noted."""

from zipfile import ZipFile

import pytest

from tests.build import noted, test_docs, test_exercises, test_paper, test_website
from tests.build.books import ASSETS, build

pytestmark = pytest.mark.slow  # small books

# a piece of each kind that the book has; the second page leads back to the first
PIECES = r"""Signs to escape: a & b < c > d % e # f _ g \$ h \\ i ^ j ~ k { l } " m ' n | o [p].
Words in *italics*, in **bold**, as `code_with & signs`, as ``a `tick` ``, and $x_1 < \|y\|$ between.
A [link out](https://example.org/a_b?c=d&e=f), a [link to the end](#the-end), {doc}`one <other>` to a page,
{func}`posattn.reference.rotate` without a place.

---

- a first point

  with a second paragraph
- a second
  - inside
    1. numbered inside

3. three
4. four

> A quotation
> of two lines.

Query
: What asks.

Key
: What answers,

  in two paragraphs.

| left | right | middle |
|:-----|------:|:------:|
| $\\|a\\|$ | `b \| c` | *d* |
| 1 | 2 | |

```{table} A table with a title
:name: tab-named

| a |
|---|
| b |
```

```{list-table}
* - no
  - head
```

```python
def f(x):
    return x  # a comment
```

```text
plain <text> & nothing
```

>>> 6 * 7
42

```{math}
:label: eq_pieces
\begin{aligned} a &= b \\ &= c \end{aligned}
```

$$
a < b
$$

```{code-cell}
6 * 7
```

```{prf:theorem} Sums
:label: thm-pieces
By {eq}`eq_pieces`, *two*.
```

```{prf:proof}
Clearly.
```

```{prf:definition}
:label: def-pieces
A thing without a title.
```

```{prf:algorithm} Steps
:label: alg-pieces
1. One.
2. Two.
```

See {prf:ref}`thm-pieces`, {prf:ref}`def-pieces`, {numref}`tab-named` and {eq}`eq_pieces`.

:::{note}
A note without a title.
:::

:::{warning}
Two.

Paragraphs.
:::

:::{admonition} With a title
Its text.
:::

:::{dropdown} What is folded
Inside.
:::

::::{tab-set}
:::{tab-item} One
First.
:::
:::{tab-item} Two
Second.
:::
::::

::::{tab-set}
:::{tab-item} PyTorch
:sync: torch
Of the first.
:::
:::{tab-item} JAX
:sync: jax
Of the second.
:::
::::

:::{container} aside
Beside the text.
:::

:::{topic} A topic
About it.
:::

:::{rubric} A rubric
:::

{.screen}
Only on a screen.

## A section

### With a section inside

#### And one more

| line one
| line two

(the-end)=
## The end

Last words.

"""
OTHER = (
    "Back to {doc}`everything`, to {ref}`its end <the-end>` and to {prf:ref}`thm-pieces`,\n"
    "and on to {doc}`what no ebook holds <api/rotary>`.\n"
)
OWN = {name: test_paper.PAGES[name] for name in ("table", "small", "card", "sources")}
PAGES = {"everything": PIECES, "other": OTHER} | test_docs.GOOD | OWN
PAGES |= test_website.PAGES | test_exercises.PAGES


def files(folder, **readers):
    """The texts of all files with these endings, each as its reader leaves it."""
    return {
        str(path.relative_to(folder)): readers[path.suffix[1:]](path.read_text("utf-8"))
        for path in folder.rglob("*.*")
        if path.suffix[1:] in readers
    }


def as_site(folder):
    """What is made of the pages."""
    made = files(folder, html=noted.page, txt=str, xml=str)
    return {name: text for name, text in made.items() if not name.startswith("_")}


def as_ebook(folder):
    """The pages, and what says how they belong together."""
    with ZipFile(next(folder.glob("*.epub"))) as book:
        book.extractall(folder / "opened")
    return files(folder / "opened", xhtml=noted.page, opf=str, ncx=str)


FORMS = {
    "html": (ASSETS + test_website.CONF, as_site),
    "notebooks": ("", lambda folder: files(folder, ipynb=noted.notebook)),
    "latex": ("", lambda folder: files(folder, tex=noted.tex)),
    "epub": ("", as_ebook),
}


@pytest.mark.parametrize("form", FORMS)
def test_what_is_built_is_what_was_noted(form, tmp_path):
    for name in PAGES:
        (tmp_path / name).parent.mkdir(exist_ok=True)
    settings, read = FORMS[form]
    folder, code, said = build(tmp_path, PAGES, builder=form, settings=settings)
    assert code == 0, said
    texts = {
        name: text.replace(str(tmp_path), "BOOK") for name, text in read(folder).items()
    }
    noted.compare(form, texts)
