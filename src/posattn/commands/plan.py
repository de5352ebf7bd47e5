"""`posattn plan`: what a configuration says of each layer."""

from posattn import configs
from posattn.configs.forms import write_keys
from posattn.conformance import UsageError
from posattn.conformance.engines import ENGINES, reading

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
    planning.add_argument(
        "--for",
        dest="engine",
        choices=list(ENGINES),
        help="add what this engine made of such files when it was run",
    )
    planning.add_argument(
        "--write-keys",
        metavar="NEW.json",
        help="a new file for the same keys in both forms, old and new",
    )
    planning.set_defaults(run=show_plan)


def show_plan(chosen):
    """What a configuration says of each layer."""
    try:
        read = configs.plan(
            chosen.config, part=chosen.part, length=chosen.length, strict=chosen.strict
        )
        told = [str(read)]
        if chosen.engine and chosen.part:
            raise UsageError(
                "--for must stand without --part: engines were run on text models"
            )
        if chosen.engine:
            told.append(reading(chosen.config, chosen.engine, length=chosen.length))
        if chosen.write_keys:
            write_keys(chosen.config, chosen.write_keys)
            told.append(f"wrote {chosen.write_keys} with both forms of the keys")
        return "\n\n".join(told), DONE
    except (TypeError, ValueError) as error:
        raise UsageError(str(error)) from None
