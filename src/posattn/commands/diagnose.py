"""`posattn diagnose`: which layer of a model does something else than its configuration says."""

from posattn.conformance import UsageError
from posattn.conformance.exceptions import said
from posattn.conformance.worker import find

AGREE, DIFFER = 0, 1


def add(commands):
    """Say what the command understands."""
    asked = commands.add_parser(
        "diagnose", help="run a PyTorch model beside what its configuration says"
    )
    asked.add_argument("model", help="module:model, a model or a function that returns one")
    asked.add_argument(
        "--config", required=True, help="path/to/config.json, its folder, or a .gguf"
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

    model = find(chosen.model, "model")
    if not hasattr(model, "named_modules") or isinstance(model, type):
        if not callable(model):
            raise UsageError(f"model must be one, or a function, got {model!r:.60}")
        try:
            model = model()
        except Exception as error:
            raise UsageError(f"{chosen.model} cannot be called: {said(error)}") from None
    found = diagnose(
        model,
        chosen.config,
        chosen.tokens,
        attention=chosen.attention,
        weights=chosen.weights,
    )
    return str(found), AGREE if found.agrees else DIFFER
