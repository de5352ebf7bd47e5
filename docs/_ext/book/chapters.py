"""The chapters: each page that the root document lists, its part, its number, and its place in the core.

Parts are the toctrees with a caption, and a chapter's number is its place in all of them, as in the PDF. The
part "Reference" counts in letters.
"""

from dataclasses import dataclass
from functools import lru_cache

from sphinx import addnodes

CORE = ("Attention", "Position")
APPENDICES = "Reference"
# short pages, full of the names of other software
ENGINES = ("fix/libraries", "fix/transformers", "fix/vllm", "fix/sglang", "fix/llama_cpp")
ENGINES += ("fix/mlx_lm", "fix/conversion", "fix/wrappers")


@dataclass(frozen=True)
class Chapter:
    """A page that the root document lists: its part, its number, and its place in the core, or None."""

    part: str | None
    number: str
    core: int | None

    @property
    def name(self):
        """What the page is called when another one cites it."""
        return f"{'Appendix' if self.part == APPENDICES else 'Chapter'} {self.number}"


@lru_cache(1)
def chapters(env):
    """The chapters by page, in their order."""
    root, found = env.config.root_doc, {}
    listed = [
        (toctree.get("caption"), page)
        for toctree in env.get_doctree(root).findall(addnodes.toctree)
        for page in toctree["includefiles"]
    ]
    core = [page for part, page in listed if part in CORE]
    letters = [page for part, page in listed if part == APPENDICES]
    for number, (part, page) in enumerate(listed, 1):
        name = chr(ord("A") + letters.index(page)) if page in letters else str(number)
        found[page] = Chapter(part, name, core.index(page) + 1 if page in core else None)
    return found
