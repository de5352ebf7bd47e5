"""Positional schemes, one module each: its formula, its `CARDS` and its `CASES` of conformance.

A module that would be too long has its cards and cases beside it: `rotary` has `rotary_cases`.
"""

import importlib
import pkgutil

# the order in which pages show them; what is not named here comes last
ORDER = (
    *("sinusoidal", "learned", "randomized"),
    *("rotary", "proportional", "fope", "xpos", "polar", "axial", "mrope", "scaling"),
    *("relative", "transformer_xl", "disentangled", "tupe"),
    *("cope", "forgetting", "stick_breaking", "dape"),
    *("alibi", "t5", "kerple", "sandwich", "fire", "swin", "swin_v2"),
)


def concept(module):
    """The concept that a module belongs to: `rotary_cases` belongs to `rotary`."""
    return module.removesuffix("_cases")


def collect(name):
    """What the modules of all schemes hold under a name, `CARDS` or `CASES`, as one dict."""
    modules = [found.name for found in pkgutil.iter_modules(__path__)]
    modules.sort(
        key=lambda m: ORDER.index(concept(m)) if concept(m) in ORDER else len(ORDER)
    )
    return {
        key: entry
        for module in modules
        for key, entry in getattr(
            importlib.import_module(f"{__name__}.{module}"), name, {}
        ).items()
    }
