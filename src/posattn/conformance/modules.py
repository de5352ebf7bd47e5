"""Where a PyTorch model has its attention, with which weights, and what goes in and comes out."""

import re
from collections import Counter
from contextlib import ExitStack
from inspect import signature

from posattn.configs.weights import NAMES, first_of
from posattn.conformance.subject import CACHES, Subject
from posattn.conformance.vectors import UsageError

__all__ = ["by_steps", "joined", "module_of", "reads_by_steps", "state_of", "watched"]

STEPS = 8  # tokens at the end, each read in a call of its own


def module_of(model, described, index, attention):
    """The attention of a layer."""
    if callable(attention):
        return attention(model, index)
    names = NAMES.get(described.model_type)
    layer = described.layers[min(index, len(described.layers) - 1)]
    every = dict(model.named_modules())
    found = numberless(name for name, module in every.items() if has_shapes(module, layer))
    if attention is None and names is None:
        raise UsageError(
            f"attention (--attention) must say where it is in a model of type {described.model_type!r}, "
            f"which has {', '.join(found) or 'no module that looks like it'}"
        )
    if attention is not None:
        tried = [attention.format(index)]
    else:
        tried = [(root + names.place(described, index)).rstrip(".") for root in names.roots]
        tried += [found[0].format(index)] if len(found) == 1 else []
    for name in tried:
        try:
            return model.get_submodule(name)
        except AttributeError:
            continue
    has = ", ".join(found or numberless(n for n in every if "att" in n.rpartition(".")[2]))
    raise UsageError(
        f"attention (--attention) of layer {index} must be one of {', '.join(tried)}, and the model has "
        f"{has or 'no module of such a name, or of such shapes'}"
    )


def numberless(names):
    """Names with `{}` for the number of the layer."""
    return [*dict.fromkeys(re.sub(r"\b\d+\b", "{}", name) for name in names)]


def has_shapes(module, layer):
    """Whether a module projects to the heads of a layer, one by one or all at once, and back."""
    many, few = (n * layer.head_dim for n in (layer.num_heads, layer.num_kv_heads))
    parts = (x for part in module.children() for x in part.parameters(recurse=False))
    shapes, dim = Counter(tuple(x.shape) for x in parts), layer.dim
    apart = Counter([(many, dim), (few, dim), (few, dim), (dim, many)])
    return apart <= shapes or Counter([(many + 2 * few, dim), (dim, many)]) <= shapes


def state_of(modules, described, index):
    """The weights of an attention, named as those of its model; the first of its stack may have a table."""
    names, state = NAMES.get(described.model_type), {}
    for place in dict.fromkeys((first_of(described, index), index)):
        prefix = "" if names is None else names.roots[-1] + names.place(described, place)
        own = modules[place].state_dict() if place in modules else {}
        state |= {prefix + name: array for name, array in own.items()}
    return state


def watched(model, described, modules, read):
    """What goes into each attention, and what comes out, in each call of a model that `read` makes.

    That is of its last projection, or of itself.
    """
    import torch

    calls, training = [], model.training
    names = NAMES.get(described.model_type)
    with ExitStack() as hooks, torch.no_grad():
        begins = model.register_forward_pre_hook(lambda *_: calls.append({}))
        hooks.callback(begins.remove)
        for index, module in modules.items():

            def before(_, args, kwargs, index=index):
                x = next(filter(torch.is_tensor, (*args, *kwargs.values())))
                calls[-1][index, "in"] = x

            def after(_, args, out, index=index):
                calls[-1][index, "out"] = out[0] if isinstance(out, (tuple, list)) else out

            inner = getattr(module, "self", module)  # behind the norm that ESM has inside
            last = dict(module.named_modules()).get(names and names.separate[3], module)
            watching = inner.register_forward_pre_hook(before, with_kwargs=True)
            hooks.callback(watching.remove)
            hooks.callback(last.register_forward_hook(after).remove)
        hooks.callback(model.train, training)
        model.eval()
        try:
            read()
        except Exception as error:
            raise UsageError(f"model cannot be run on the tokens: {error!r}") from error
    if not calls:
        raise UsageError("decode must call the model, and not only parts of it")
    return calls


def by_steps(model, tokens):
    """Read a prompt in one call and each of the last tokens in its own, with our cache or transformers'."""
    steps = min(STEPS, tokens.shape[-1] - 1)
    Subject(model).in_calls(tokens, [tokens.shape[-1] - steps, *[1] * steps])


def reads_by_steps(model):
    """Whether `by_steps` knows how a model is called."""
    return hasattr(model, "init_cache") or bool(
        {*signature(model.forward).parameters} & {*CACHES}
    )


def joined(calls):
    """What calls saw one after the other, as if it had been one, and where each began."""
    import torch

    places = set.intersection(*map(set, calls))
    seen = {place: torch.cat([call[place] for call in calls], -2) for place in places}
    lengths = [call[next(iter(places))].shape[-2] for call in calls] if places else [0]
    return seen, torch.tensor([0, *lengths[:-1]]).cumsum(0)
