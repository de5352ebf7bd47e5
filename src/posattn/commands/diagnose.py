"""`posattn diagnose`: which layer differs from a configuration, or what a language model survives."""

from posattn.conformance import UsageError
from posattn.conformance.exceptions import said
from posattn.conformance.worker import find

AGREE, DIFFER = 0, 1


def add(commands):
    """Say what the command understands."""
    asked = commands.add_parser(
        "diagnose", help="run a PyTorch model beside its configuration, or beside itself"
    )
    asked.add_argument("model", help="module:model, a model or a function that returns one")
    asked.add_argument(
        "--config",
        help="path/to/config.json, its folder, or a .gguf; without it, padding, chunks, a cache, beams and "
        "packed rows are compared with one pass",
    )
    asked.add_argument(
        "--packed", action="store_true", help="the tokens are two documents in a row"
    )
    asked.add_argument(
        "--attention",
        metavar="NAME",
        help="of the attention of a layer, as blocks.{}.attn; if not given, by names, then by shapes",
    )
    asked.add_argument(
        "--tokens",
        type=int,
        metavar="N",
        help="how many random tokens it reads: 272, or beyond the windows, if not given",
    )
    asked.add_argument(
        "--weights", metavar="PATH", help="the checkpoint, if the model has other names"
    )
    asked.set_defaults(run=tell)


def tell(chosen):
    """A line for each layer, and 1 if one differs or cannot be compared."""
    from posattn.conformance.diagnosis import diagnose
    from posattn.conformance.survival import survives

    model = find(chosen.model, "model")
    whole = hasattr(model, "named_modules") or hasattr(model, "generate")
    if not whole or isinstance(model, type):
        if not callable(model):
            raise UsageError(f"model must be one, or a function, got {model!r:.60}")
        try:
            model = model()
        except Exception as error:
            raise UsageError(f"{chosen.model} cannot be called: {said(error)}") from None
    if chosen.config is None:
        rows = survives(model, "packed" * chosen.packed)
        asked = [row.survives for row in rows if row.error is not None]
        return "\n".join(map(str, rows)), AGREE if asked and all(asked) else DIFFER
    found = diagnose(
        model,
        chosen.config,
        chosen.tokens,
        attention=chosen.attention,
        weights=chosen.weights,
        packed=chosen.packed,
    )
    return str(found), AGREE if found.agrees else DIFFER
