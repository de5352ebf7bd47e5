"""A model's weights on the disk: arrays are read when they are asked for."""

import json
import math
import mmap
import os
from collections.abc import Mapping
from pathlib import Path

INDEX = "model.safetensors.index.json"
DTYPES = {
    "F64": "float64",
    "F32": "float32",
    "F16": "float16",
    "BF16": "bfloat16",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
}
UNUSED = getattr(mmap, "MADV_DONTNEED", None)  # which Windows lacks


class Checkpoint(Mapping):
    """The arrays of one or more safetensors files by name; the files are mapped, not read whole.

    Args:
        path: a safetensors file, or a folder with `model.safetensors` or with an index of several files.
        read: makes an array of a part of a file, as `read(buffer, dtype, count, offset)` with the name of
            the dtype; the array need not copy.

    Raises:
        ImportError: if the package safetensors is not installed.
        TypeError: if `path` is no path.
        ValueError: if there is no such file, a folder has none, or a file is no safetensors file.
    """

    def __init__(self, path, read):
        try:
            from safetensors import SafetensorError, safe_open
        except ImportError as error:
            raise ImportError(
                "reading weights needs the package safetensors: pip install safetensors"
            ) from error
        if not isinstance(path, (str, os.PathLike)):
            raise TypeError(
                "weights must be arrays by name, a safetensors or GGUF file, or a folder, "
                f"got {type(path).__name__}"
            )
        self._read, self._maps, self._places = read, [], {}
        for file in _files(Path(path)):
            try:  # whether all is where it should be
                safe_open(file, framework="numpy")
            except SafetensorError as error:
                raise ValueError(
                    f"weights must be safetensors files, {file}: {error}"
                ) from error
            with file.open("rb") as opened:
                mapped = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_COPY)
            start = 8 + int.from_bytes(mapped[:8], "little")
            header = json.loads(mapped[8:start])
            header.pop("__metadata__", None)
            self._maps.append(mapped)
            self._places |= {name: (mapped, start, said) for name, said in header.items()}

    def __getitem__(self, name):
        mapped, start, said = self._places[name]
        if said["dtype"] not in DTYPES:
            known = ", ".join(DTYPES)
            raise ValueError(
                f"weights have {name!r} of dtype {said['dtype']}; known are {known}"
            )
        shape, first = said["shape"], start + said["data_offsets"][0]
        array = self._read(mapped, DTYPES[said["dtype"]], math.prod(shape), first)
        return array.reshape(shape)

    def __iter__(self):
        return iter(self._places)

    def __len__(self):
        return len(self._places)

    def release(self):
        """Give back the memory of what has been read; who needs it again reads it from the disk again."""
        for mapped in self._maps if UNUSED is not None else ():
            mapped.madvise(UNUSED)


def _files(path):
    """The files of a checkpoint."""
    if path.is_file():
        return [path]
    if (path / INDEX).is_file():
        named = json.loads((path / INDEX).read_text(encoding="utf-8"))["weight_map"]
        return [path / name for name in sorted(set(named.values()))]
    if (path / "model.safetensors").is_file():
        return [path / "model.safetensors"]
    missing = "" if path.exists() else ", which does not exist"
    raise ValueError(
        "weights must be a safetensors or GGUF file, or a folder with model.safetensors or "
        f"{INDEX}, got {str(path)!r}{missing}; convert other files with transformers' save_pretrained"
    )
