"""`posattn plan`: what a configuration says of each layer."""

from posattn import configs
from posattn.conformance import UsageError

DONE = 0


def add(commands):
    """Say what the command understands."""
    planning = commands.add_parser("plan", help="say what each layer of a model does")
    planning.add_argument("config", help="path/to/config.json, its folder, or a .gguf")
    planning.add_argument(
        "--part",
        metavar="KEY",
        help="of a tower to plan instead of the text model, such as vision_config",
    )
    planning.add_argument(
        "--length",
        type=int,
        metavar="TOKENS",
        help="of a text, which LongRoPE and dynamic scaling look at",
    )
    planning.add_argument(
        "--strict",
        action="store_true",
        help="refuse what is left to the defaults of the family's class in transformers",
    )
    planning.set_defaults(run=show_plan)


def show_plan(chosen):
    """What a configuration says of each layer."""
    try:
        options = {"part": chosen.part, "length": chosen.length, "strict": chosen.strict}
        found = configs.plan(chosen.config, **options)
        return str(found), DONE
    except (TypeError, ValueError) as error:
        raise UsageError(str(error)) from None
