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

    def fields(self):
        """The fields of the layer that hold arrays."""
        thing = getattr(posattn.reference, self.name)
        if not self.method or not dataclasses.is_dataclass(thing):
            return []
        return [
            field.name
            for field in dataclasses.fields(thing)
            if all(
                hasattr(k, "dims") or k is types.NoneType for k in alternatives(field.type)
            )
        ]

    def text(self, column, call):
        """The call as Python of a column."""
        home = f"posattn.{column}.{self.name}"
        thing = getattr(getattr(posattn, column), self.name)
        making, given, fields = (
            {n: t for n, t in part.items() if t is not None}
            for part in (call.making, call.given, call.fields)
        )
        given = ", ".join(f"{name}={text}" for name, text in given.items())
        if self.method:
            swapped = ", ".join(f"{name!r}: {text}" for name, text in fields.items())
            sizes = "".join(f", {n}={t}" for n, t in making.items() if n != "rng")
            home = f"made({home}, {{{swapped}}}{sizes})"
            home += "" if self.method == "__call__" else f".{self.method}"
        elif hasattr(thing, "init"):
            home += ".init"
        return said(f"{home}({given})", column)


@dataclasses.dataclass(frozen=True)
class Call:
    """Python for each argument: of what makes the layer, of the call, and for fields that are replaced."""

    making: dict
    given: dict
    fields: dict = dataclasses.field(default_factory=dict)


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
        int: lambda: str(chance.choice([1, 2, 2, 2, 3, 4, 4, 6, 8, 16])),
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


class Warp:
    """A field is replaced by a function of what it was."""

    def __init__(self, function):
        self.function = function

    def __call__(self, x):
        """The new field."""
        x = x.detach() if isinstance(x, torch.Tensor) else x
        return self.function(x)


def made(kind, fields, /, **sizes):
    """A layer with numbers that the reference drew, of which some fields are replaced."""
    twin = getattr(posattn.reference, kind.__name__)
    if "rng" not in parameters(getattr(twin, "init", twin)) and hasattr(kind, "init"):
        layer = kind.init(**sizes)
    else:
        layer = copied(kind, twin, sizes) if hasattr(twin, "init") else kind(**sizes)
    for name, value in fields.items():
        fields[name] = value(getattr(layer, name)) if isinstance(value, Warp) else value
    if not isinstance(layer, torch.nn.Module):
        return dataclasses.replace(layer, **fields)
    for name, value in fields.items():
        delattr(layer, name)
        setattr(layer, name, value)
    return layer


def copied(kind, twin, sizes):
    """A layer that has the numbers of the reference's."""
    wanted = parameters(twin.init)
    plain = {n: posattn.reference.ALiBi(2) if callable(x) else x for n, x in sizes.items()}
    rng = {"rng": np.random.default_rng(0)} if "rng" in wanted else {}
    source = twin.init(**rng, **plain)
    if not issubclass(kind, torch.nn.Module):
        makers = {"reference": np.asarray, "torch": torch.tensor, "jax": jnp.asarray}
        array = makers[kind.__module__.split(".")[1]]
        held = {f.name: getattr(source, f.name) for f in dataclasses.fields(source)}
        for name, x in held.items():
            held[name] = array(x) if isinstance(x, np.ndarray | np.generic) else x
        return kind(**held | {n: x for n, x in sizes.items() if callable(x)})
    layer = kind(**sizes)
    for name, parameter in layer.named_parameters():
        x = getattr(source, name.replace(".", "_"))
        parameter.detach().copy_(torch.tensor(x.T if name.endswith(".weight") else x))
    return layer


SCOPE = {"made": made,
    "Warp": Warp, "posattn": posattn, "np": np, "torch": torch, "jax": jax, "jnp": jnp, "math": math,
         "inf": math.inf, "nan": math.nan}  # fmt: skip
