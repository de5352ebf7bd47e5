"""What an engine has computed of a text, read from the files in which engines save it."""

import json
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from posattn.conformance import files
from posattn.conformance.vectors import UsageError

__all__ = ["NORM", "Dump", "read"]

NORM = "norm"  # the stream behind the final norm, which transformers has last
PRINTED = 5e-5  # by how much four decimals may be off
IDS = "ids", "input_ids"
HEAD = re.compile(r": +(\S+)(?: \(\S*\))? = \(.*= \{(\d+), (\d+), \d+, \d+\}")
NAMES = re.compile(r"l_out-(\d+)$|(result_norm)$|(?:inp_)?embd$")
NUMBER = re.compile(r"-?\d+\.\d+|\.\.\.")


@dataclass(frozen=True, eq=False)
class Dump:
    """What was computed of one text.

    Args:
        ids: the tokens, `(n)`; None if they are not known.
        states: the stream `(n, d)` by the number of layers that it has passed, or `NORM`; NaN is not known.
        said: by the number of a token, its logits `(v)`, or logarithms of probabilities by id.
        dtype: what it was computed in, as far as the numbers show.
        grain: by how much a number may be off since it was printed.
    """

    ids: np.ndarray | None
    states: dict
    said: dict
    dtype: str = "float32"
    grain: float = 0.0


def read(path):
    """Read what an engine has saved.

    That is an `.npz`, `.safetensors` or `.pt` file with `ids`, `logits`, and `hidden` as transformers returns
    it or `states` of each layer; the `.json` of vLLM's server; the `.bin` of `llama-debug --save-logits`; or
    what llama.cpp prints of tensors, a `.txt`. A UsageError tells why there is nothing to compare.
    """
    path = Path(path)
    try:
        found = READERS.get(path.suffix, of_arrays)(path)
    except OSError as error:
        told = f"{str(error.filename or path)!r} cannot be read: {error.strerror}"
        raise UsageError(told) from None
    except (AttributeError, KeyError, IndexError, TypeError, ValueError) as error:
        if isinstance(error, UsageError):
            raise
        raise UsageError(f"{str(path)!r} must be a dump, got {error!r:.200}") from None
    if not (found.states or found.said):
        raise UsageError(f"{str(path)!r} must hold hidden states or logits, got neither")
    return found


def of_arrays(path):
    """Arrays by name, in a list or one for each layer."""
    arrays = files.read(path) if path.suffix == ".npz" else of_torch(path)
    ids = next((np.ravel(arrays[name]) for name in IDS if name in arrays), None)
    own = [one_text(x) for x in arrays.get("states", ())]
    hidden = [one_text(x) for x in arrays.get("hidden", arrays.get("hidden_states", ()))]
    states = dict(enumerate(own, 1)) | dict(enumerate(hidden[:-1]))
    if hidden:
        states[NORM] = hidden[-1]
    said = dict(enumerate(one_text(arrays["logits"]))) if "logits" in arrays else {}
    return Dump(ids, states, said, precision([*states.values(), *said.values()]))


def of_torch(path):
    """What `torch.save` or safetensors wrote, without running anything of it."""
    import pickle

    import torch
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    def plain(value):
        if isinstance(value, (list, tuple)):
            return [plain(one) for one in value]
        return (value.float() if value.is_floating_point() else value).numpy()

    try:
        if path.suffix == ".safetensors":
            stored = load_file(path)
        else:
            stored = torch.load(path, "cpu", weights_only=True)
    except (RuntimeError, EOFError, pickle.UnpicklingError, SafetensorError) as error:
        raise ValueError(str(error).partition("\n")[0]) from None
    return {name: plain(value) for name, value in stored.items()}


def one_text(array):
    """An array `(n, d)` of float32, which may have come as `(1, n, d)`."""
    array = np.asarray(array, np.float32)
    array = array[0] if array.ndim == 3 and len(array) == 1 else array
    if array.ndim != 2:
        raise UsageError(
            f"arrays must be (n, d) or (1, n, d), of one text, got {array.shape}"
        )
    return array


def precision(arrays):
    """The narrowest dtype that holds all numbers, by the bits that float32 has beyond it."""
    for name, bits in (("bfloat16", 16), ("float16", 13)):
        if not any((x.view(np.uint32) & (1 << bits) - 1).any() for x in arrays):
            return name
    return "float32"


def of_server(path):
    """What vLLM's server answers to a completion or a chat; entry t is about token t, said after t - 1."""
    answer = json.loads(path.read_text(encoding="utf-8"))
    whole = answer if answer.get("prompt_logprobs") else answer["choices"][0]
    rows, ids = whole.get("prompt_logprobs"), whole.get("prompt_token_ids")
    if not rows:
        raise UsageError("a .json must have prompt_logprobs: ask the server for them")
    rows = {t - 1: row for t, row in enumerate(rows) if row}
    said = {
        t: {int(k): one["logprob"] for k, one in row.items()} for t, row in rows.items()
    }
    return Dump(None if ids is None else np.array(ids), {}, said)


def of_logits(path):
    """The logits of the last token, beside which llama-debug saves the ids of all."""
    ids = np.fromfile(path.with_name(f"{path.stem}-tokens.bin"), "<i4")
    return Dump(ids, {}, {len(ids) - 1: np.fromfile(path, "<f4")}, "llama.cpp")


def of_prints(path):
    """The corners of each layer's output as llama.cpp prints them, of the largest batch."""
    lines, found = iter(path.read_text(encoding="utf-8", errors="replace").splitlines()), {}
    for line in lines:
        head = HEAD.search(line)
        if not (head and (name := NAMES.match(head[1]))):
            continue
        width, n, row = int(head[2]), int(head[3]), 0
        array = np.full((n, width), np.nan, np.float32)
        for printed in lines:
            if "sum" in printed:
                break
            numbers = NUMBER.findall(printed)
            if numbers == ["..."]:
                row = n - 3
            elif numbers:
                ends = [x for x in numbers if x != "..."]
                half = len(ends) if "..." not in numbers else 3
                array[row, :half] = ends[:half]
                array[row, width - len(ends) + half :] = ends[half:]
                row += 1
        stage = NORM if name[2] else int(name[1]) + 1 if name[1] else 0
        if n > len(found.get(stage, ())):
            found[stage] = array
    n = max(map(len, found.values()), default=0)
    for stage, x in found.items():  # of the last layer, only rows that are asked for
        found[stage] = np.pad(x, ((n - len(x), 0), (0, 0)), constant_values=np.nan)
    return Dump(None, found, {}, "llama.cpp", PRINTED)


READERS = {".json": of_server, ".bin": of_logits, ".txt": of_prints, ".log": of_prints}
