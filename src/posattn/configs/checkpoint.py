"""A model's weights on the disk: arrays are read when they are asked for."""

import json
from collections.abc import Mapping
from pathlib import Path

__all__ = ["Checkpoint"]

INDEX = "model.safetensors.index.json"


class Checkpoint(Mapping):
    """The arrays of one or more safetensors files by name; the files are mapped, not read whole.

    Args:
        path: a safetensors file, or a folder with `model.safetensors` or with an index of several files.
        framework: whose arrays they become: `"pt"` or `"flax"`, as safetensors names them.

    Raises:
        ImportError: if the package safetensors is not installed.
        FileNotFoundError: if there is no such file, or a folder has none.
        ValueError: if a file is no safetensors file.
    """

    def __init__(self, path, framework):
        try:
            from safetensors import SafetensorError, safe_open
        except ImportError as error:
            raise ImportError(
                "reading weights needs the package safetensors: pip install safetensors"
            ) from error
        self._files = {}
        for file in _files(Path(path)):
            try:
                opened = safe_open(file, framework=framework)
            except SafetensorError as error:
                raise ValueError(
                    f"weights must be safetensors files, {file}: {error}"
                ) from error
            self._files |= dict.fromkeys(opened.keys(), opened)

    def __getitem__(self, name):
        return self._files[name].get_tensor(name)

    def __iter__(self):
        return iter(self._files)

    def __len__(self):
        return len(self._files)


def _files(path):
    """The files of a checkpoint."""
    if path.is_file():
        return [path]
    if (path / INDEX).is_file():
        named = json.loads((path / INDEX).read_text(encoding="utf-8"))["weight_map"]
        return [path / name for name in sorted(set(named.values()))]
    if (path / "model.safetensors").is_file():
        return [path / "model.safetensors"]
    raise FileNotFoundError(
        f"weights must be a safetensors file or a folder with model.safetensors or {INDEX},"
        f" got {str(path)!r}"
    )
