"""`posattn vectors`: write cases for engines in other languages, into a file or as ONNX models."""

from pathlib import Path

from posattn.conformance import UsageError, load
from posattn.conformance.bundle import write_bundle
from posattn.conformance.files import export

DONE = 0


def add(commands):
    """Say what the command understands."""
    exporting = commands.add_parser("vectors", help="write the inputs of a scheme's cases")
    exporting.add_argument(
        "scheme", nargs="?", help="one of `schemes`; all that fit for onnx"
    )
    exporting.add_argument(
        "--output",
        type=Path,
        required=True,
        metavar="PATH",
        help="a file that ends in .npz or .safetensors; a folder for onnx",
    )
    exporting.add_argument(
        "--format",
        choices=["arrays", "onnx"],
        default="arrays",
        help="onnx: models with inputs and outputs, as ONNX's own tests; arrays if not given",
    )
    exporting.add_argument(
        "--dtype",
        default="float32",
        help="of the data: float64, float32 or float16; float32 if not given",
    )
    exporting.set_defaults(run=write_vectors)


def write_vectors(chosen):
    """Write a file or a folder, and say what is in it."""
    scheme = chosen.scheme
    if scheme is None and chosen.format == "arrays":
        raise UsageError("scheme must be given, unless --format is onnx")
    try:
        if chosen.format == "onnx":
            made, away = write_bundle(chosen.output, [scheme] * (scheme is not None))
            return f"{made} models are in {chosen.output}, {away} cases were left out", DONE
        vectors = load(scheme)
        export(vectors, chosen.output, chosen.dtype)
    except OSError as error:
        raise UsageError(f"--output cannot be written: {error}") from None
    return f"{len(vectors['cases'])} cases of {scheme} are in {chosen.output}", DONE
