"""`posattn vectors`: write the inputs of a scheme's cases into a file, for engines in other languages."""

from pathlib import Path

from posattn.conformance import UsageError, load
from posattn.conformance.files import export

DONE = 0


def add(commands):
    """Say what the command understands."""
    exporting = commands.add_parser("vectors", help="write the inputs of a scheme's cases")
    exporting.add_argument("scheme", help="one of `schemes`")
    exporting.add_argument(
        "--output",
        type=Path,
        required=True,
        metavar="FILE",
        help="a file that ends in .npz or .safetensors",
    )
    exporting.add_argument(
        "--dtype",
        default="float32",
        help="of the data: float64, float32 or float16; float32 if not given",
    )
    exporting.set_defaults(run=write_vectors)


def write_vectors(chosen):
    """Write a file, and say what is in it."""
    vectors = load(chosen.scheme)
    try:
        export(vectors, chosen.output, chosen.dtype)
    except OSError as error:
        raise UsageError(f"--output cannot be written: {error}") from None
    return f"{len(vectors['cases'])} cases of {chosen.scheme} are in {chosen.output}", DONE
