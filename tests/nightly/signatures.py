"""Calls of the columns, written as Python from their signatures: `tests.nightly.fuzz` runs them.

The text of a value says `own.` where a column has its own word, so that one call can be said in all.
"""

import dataclasses
import inspect
import math
import random
import types
import typing

import jax
import jax.numpy as jnp
import numpy as np
import torch

import posattn.jax
import posattn.reference
import posattn.torch  # noqa: F401 - columns are looked up by name
from posattn import contract

COLUMNS = ("reference", "torch", "jax")
NUMPY, TORCH, JAX = ({"own.array": f"{name}.{make}", "own.": f"{name}."} for name, make in (
    ("np", "array"), ("torch", "tensor"), ("jnp", "array")))  # fmt: skip
WORDS = {
    "reference": {"own.rng": "np.random.default_rng(0)", **NUMPY},
    "torch": {"own.rng": "torch.Generator().manual_seed(0)", **TORCH},
    "jax": {"own.rng": "jax.random.key(0)", **JAX},
}
ALIENS = {"reference": (TORCH, JAX), "torch": (NUMPY, JAX), "jax": (TORCH, TORCH)}
PLUGS = {
    contract.PositionBias: "posattn.own.ALiBi(2)",
    contract.PositionMask: "posattn.own.Window(2)",
    contract.ContentBias: "posattn.own.StickBreaking()",
    contract.Rotation: "posattn.own.Rotary()",
    contract.Attention: "posattn.own.scaled_dot_product_attention",
}
EMPTY = inspect.Parameter.empty


@dataclasses.dataclass(frozen=True)
class Target:
    """What is called: a function, a class that makes a layer, or a method of such a layer."""

    name: str
    method: str = ""

    def __str__(self):
        return ".".join(filter(None, (self.name, self.method)))

    def signatures(self, column):
        """What makes the layer, if there is one, and what is given to the call."""
        thing = getattr(getattr(posattn, column), self.name)
        making = parameters(getattr(thing, "init", thing))
        if not self.method:
            return {}, making
        torch_module = column == "torch" and issubclass(thing, torch.nn.Module)
        forward = torch_module and self.method == "__call__"
        return making, parameters(getattr(thing, "forward" if forward else self.method))

    def text(self, column, call):
        """The call as Python of a column."""
        thing = getattr(getattr(posattn, column), self.name)
        home = f"posattn.{column}.{self.name}" + ".init" * hasattr(thing, "init")
        making, given = (
            ", ".join(f"{name}={text}" for name, text in part.items() if text is not None)
            for part in (call.making, call.given)
        )
        if self.method:
            home += f"({making})" + ("" if self.method == "__call__" else f".{self.method}")
        return said(f"{home}({given})", column)


@dataclasses.dataclass(frozen=True)
class Call:
    """Python for each argument: of what makes the layer, and of the call."""

    making: dict
    given: dict


def said(text, column):
    """Put a text into the words of a column."""
    words = {"posattn.own": f"posattn.{column}"} | WORDS[column]
    for name, alien in zip(("alien.", "stranger."), ALIENS[column], strict=True):
        words |= {word.replace("own.", name): theirs for word, theirs in alien.items()}
    for word, theirs in words.items():
        text = text.replace(word, theirs)
    return text


def targets():
    """Everything public that all columns have: no list to forget a new function in.

    What reads a configuration has hostile tests of its own, in test_configs_hostile.py, and a decoder, which
    is made of layers and not of arrays, in test_decoder.py.
    """
    shared = set.intersection(*({*getattr(posattn, c).__all__} for c in COLUMNS))
    for name in sorted(shared - {"Decoder", "rope_from_config"}):
        yield Target(name)
        thing = getattr(posattn.reference, name)
        for method, value in vars(thing).items() if inspect.isclass(thing) else ():
            kinds = [getattr(getattr(posattn, c), name) for c in COLUMNS]
            public = method == "__call__" or method[0] != "_"
            spoken = public and all(hasattr(kind, method) for kind in kinds)
            if inspect.isfunction(value) and spoken:
                yield Target(name, method)


def parameters(function):
    """The arguments of a callable by name, without `self`."""
    given = inspect.signature(function).parameters
    return {
        name: p
        for name, p in given.items()
        if name != "self" and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    }


def alternatives(annotation):
    """What a union allows."""
    union = isinstance(annotation, types.UnionType)
    if union or typing.get_origin(annotation) is typing.Union:
        return [kind for part in typing.get_args(annotation) for kind in alternatives(part)]
    return [annotation]


def draw(chance, name, parameter, sizes):
    """Python for a value that the annotation allows, or None to leave the argument out."""
    if name == "rng":
        return "own.rng"
    if name == "cache" or (parameter.default is not EMPTY and chance.random() < 0.7):
        return None
    kinds = alternatives(parameter.annotation)
    kind = chance.choice([k for k in kinds if k is not types.NoneType])
    if hasattr(kind, "dims"):
        return array(chance, kind, sizes)
    origin, inside = typing.get_origin(kind) or kind, str(typing.get_args(kind))
    texts = {
        **{protocol: lambda text=text: text for protocol, text in PLUGS.items()},
        int: lambda: str(chance.choice([0, 1, 2, 2, 2, 3, 4, 4, 6, 8, 16])),
        float: lambda: str(chance.choice([0.25, 0.5, 1.0, 2.0, 10.0])),
        bool: lambda: str(chance.random() < 0.5),
        str: lambda: chance.choice(["'interleaved'", "'half'"]),
        typing.Literal: lambda: repr(chance.choice(typing.get_args(kind))),
    }
    if origin in texts:
        return texts[origin]()
    if "int" in inside:
        return "[2, 2]"
    return "[1.0, 2.0]" if "float" in inside else "posattn.own.ALiBi(2)"


def array(chance, kind, sizes):
    """Python for an array of the annotated dtype and shape; an axis has one size in a call."""
    shape = []
    for axis in kind.dim_str.split():
        word = axis.lstrip("*#?")
        if axis == "..." or axis[0] == "*":
            shape += sizes.setdefault(word, chance.choice([(), (2,), (2, 2)]))
        elif word.isdigit() or word == "_":
            shape.append(int(word) if word.isdigit() else 1)
        else:
            shape.append(sizes.setdefault(word, chance.choice([2, 2, 3, 4, 4, 6])))
    kinds = str(kind.dtypes)
    whole = "int64" in kinds and ("float64" not in kinds or chance.random() < 0.5)
    if whole:
        x = np.broadcast_to(np.arange(shape[-1] if shape else 1), shape or (1,))
        return literal(x.reshape(shape), "int64")
    if "bool" in kinds and "float64" not in kinds:
        return literal(np.arange(math.prod(shape)).reshape(shape) % 3 != 1, "bool")
    seed = chance.randrange(5)
    return literal(np.random.default_rng(seed).normal(size=shape).round(2), "float64")


def literal(x, dtype):
    """Python for an array."""
    return f"own.array({x.tolist()!r}, dtype=own.{dtype})"


def calls(target, computes, wanted=6, attempts=4000):
    """Valid calls of a target: what `computes` accepts among what the annotations allow."""
    chance, found = random.Random(str(target)), []
    signatures = target.signatures("reference")
    for _ in range(attempts):
        sizes = {}
        drawn = ({n: draw(chance, n, p, sizes) for n, p in s.items()} for s in signatures)
        call = Call(*drawn)
        if call not in found and computes(call):
            found.append(call)
        if len(found) == wanted:
            break
    return found


SCOPE = {"posattn": posattn, "np": np, "torch": torch, "jax": jax, "jnp": jnp, "math": math}
SCOPE |= {"inf": math.inf, "nan": math.nan}
