"""`posattn twins`: a small model for a whole engine, and which setting the engine has dropped."""

from pathlib import Path

from posattn.conformance import UsageError

AGREE, DIFFER = 0, 1


def add(commands):
    """Say what the command understands."""
    asked = commands.add_parser(
        "twins", help="find the setting of a model that an engine has dropped"
    )
    asked.add_argument(
        "config", help="path/to/config.json, its folder, or a .gguf; or the folder written"
    )
    what = asked.add_mutually_exclusive_group(required=True)
    what.add_argument(
        "--output",
        type=Path,
        metavar="FOLDER",
        help="write a small random model of this kind, a text, and what it and its twins say",
    )
    what.add_argument(
        "--logits",
        type=Path,
        metavar="FILE",
        help="what an engine says of the text of the folder, an array (n, v) in a .npy file",
    )
    asked.add_argument(
        "--tolerance",
        type=float,
        metavar="NUMBER",
        help="how far off logits may be, relative to the largest; 1e-3 if not given",
    )
    asked.set_defaults(run=make_or_judge)


def make_or_judge(chosen):
    """Write a folder and say what is in it, or say which twin an engine has computed."""
    import numpy as np

    from posattn.conformance.twins import TOLERANCE, judge, write

    tolerance = TOLERANCE if chosen.tolerance is None else chosen.tolerance
    if not tolerance > 0:
        raise UsageError(f"--tolerance must be above 0, got {tolerance:g}")
    try:
        logits = None if chosen.logits is None else np.load(chosen.logits)
    except (EOFError, OSError, ValueError) as error:
        raise UsageError(f"--logits must be a .npy file of numbers: {error}") from None
    try:
        if logits is None:
            names = write(chosen.config, chosen.output)
            return f"A model and its {len(names)} twins are in {chosen.output}", AGREE
        verdict = judge(chosen.config, logits, tolerance)
    except OSError as error:
        raise UsageError(f"{chosen.output or chosen.config}: {error.strerror}") from None
    except (ImportError, TypeError, ValueError) as error:
        raise UsageError(str(error)) from None
    return str(verdict), AGREE if verdict.agrees else DIFFER
