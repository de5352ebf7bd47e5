"""A model in one GGUF file: its header as a configuration, and its arrays by the names of transformers.

What llama.cpp's conversion did is undone, and what its code fixes and no header says stands in `gguf.json`.
"""

import math
import mmap
import os
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from posattn.configs.data import data
from posattn.configs.defaults import defaults_of
from posattn.configs.rotation import TRAINED, rope

MAGIC = b"GGUF"
NUMBERS = dict(enumerate("BbHhIif?")) | {10: "Q", 11: "q", 12: "d"}  # as struct has them
FLOAT, STRING, ARRAY = 6, 8, 9
FLOATS = 0  # the quantization that is none
ALIGNMENT = 32
ROWS = 256  # dequantized at a time
BROKEN = struct.error, ArithmeticError, KeyError, MemoryError, TypeError

TABLE = data("gguf.json")
FAMILIES, KEYS, CHECKED = TABLE["families"], TABLE["keys"], TABLE["checked"]
SCALING = TABLE["scaling"]  # of YaRN and LongRoPE, as transformers names it
KNOWN = {"rope.dimension_count", "attention.value_length", "rope.scale_linear"} | {
    f"rope.scaling.{name}" for name in (*SCALING, "type", "finetuned")
}
FACTORS = "rope_freqs.weight"  # Llama 3's, and those of LongRoPE
PAIR = {f"{end}_factor": f"rope_factors_{end}.weight" for end in ("short", "long")}
TABLES = FACTORS, *PAIR.values()
LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0}  # of all that were released


def refused(told):
    """The error for a file of which something is not known."""
    do = "give the model's own config.json, and as weights its safetensors files"
    return ValueError(f"{told}; {do}")


def is_gguf(path):
    """Whether a path is that of a GGUF file, by its name or its first bytes."""
    if not isinstance(path, (str, os.PathLike)) or not Path(path).is_file():
        return False
    with Path(path).open("rb") as opened:
        return Path(path).suffix == ".gguf" or opened.read(len(MAGIC)) == MAGIC


def broken(path, why):
    """The error for a file of which only a part is there, or something else."""
    return ValueError(f"{str(path)!r} is no whole GGUF file: {why}; download it again")


class Tensor(NamedTuple):
    """Where an array of a file is: its quantization, its shape, and the byte at which it begins."""

    kind: int
    shape: tuple[int, ...]
    start: int


class Header:
    """What stands before the arrays of a GGUF file: `fields` by their keys, and `tensors` by their names.

    Args:
        path: of the file.

    Raises:
        ValueError: if it cannot be opened, or is no whole GGUF file of version 2 or 3.
    """

    def __init__(self, path):
        self.path, self._at = Path(path), len(MAGIC)
        try:
            with self.path.open("rb") as opened:
                first = opened.read(24)
                if not first.startswith(MAGIC):  # often what Git LFS has in its place
                    raise struct.error(f"it begins with {first!r}")
                self._bytes = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)
            with self._bytes:
                self._read()
        except OSError as error:
            told = f"{str(path)!r} cannot be read: {error.strerror}"
            raise ValueError(f"{told}; give the path of a .gguf file") from None
        except BROKEN as error:
            why = error if isinstance(error, struct.error) else repr(error)
            raise broken(path, why) from None

    def _read(self):
        (version,), (tensors, fields) = self._numbers("I"), self._numbers("Q", 2)
        if version not in (2, 3):
            told = f"{str(self.path)!r} must be a little-endian GGUF file of version 2 or 3"
            raise ValueError(f"{told}, got {version}; convert it again with llama.cpp")
        self.fields, self.tensors = {}, {}
        for _ in range(fields):
            name = self._value(STRING)
            self.fields[name] = self._value(*self._numbers("I"))
        for _ in range(tensors):
            name = self._value(STRING)
            shape = self._numbers("Q", *self._numbers("I"))[::-1]
            self.tensors[name] = Tensor(*self._numbers("I"), shape, *self._numbers("Q"))
        step = self.fields.get("general.alignment", ALIGNMENT)
        first = -(-self._at // step) * step
        for name, (kind, shape, start) in self.tensors.items():
            self.tensors[name] = Tensor(kind, shape, first + start)
            if first + start >= len(self._bytes):
                raise struct.error("its end is missing")

    def _numbers(self, code, count=1):
        code = f"<{count}{code}"
        found = struct.unpack_from(code, self._bytes, self._at)
        self._at += struct.calcsize(code)
        return found

    def _value(self, kind):
        if kind == STRING:
            (size,) = self._numbers("Q")
            self._at += size
            return str(self._bytes[self._at - size : self._at], "utf-8", "replace")
        if kind == ARRAY:
            (kind,), (count,) = self._numbers("I"), self._numbers("Q")
            if kind in NUMBERS:
                return list(self._numbers(NUMBERS[kind], count))
            return [self._value(kind) for _ in range(count)]
        (found,) = self._numbers(NUMBERS[kind])
        return shortest(found) if kind == FLOAT else found

    def floats(self, name):
        """The numbers of an array that is not quantized."""
        tensor = self.tensors[name]
        if tensor.kind != FLOATS:
            raise refused(f"{name!r} must hold float32, got quantization {tensor.kind}")
        with self.path.open("rb") as opened:
            opened.seek(tensor.start)
            raw = opened.read(4 * math.prod(tensor.shape))
        return [shortest(number) for (number,) in struct.iter_unpack("<f", raw)]

    @property
    def architecture(self):
        """The family as the file names it; a ValueError if its conversion is not known."""
        found = self.fields.get("general.architecture")
        if found not in FAMILIES:
            known = ", ".join(sorted(FAMILIES))
            raise refused(
                f"general.architecture must be one of {known}, whose conversion is known, got {found!r}"
            )
        if self.fields.get("split.count", 1) > 1:
            told = f"{self.path.name!r} is one of {self.fields['split.count']} parts"
            raise ValueError(f"{told}; join them with llama-gguf-split --merge")
        return found


def shortest(number):
    """The shortest decimal that is this float32: 1e-05, where the file has 9.999999747378752e-06."""
    same = struct.pack("<f", number)
    rounded = (float(f"{number:.{digits}g}") for digits in range(6, 10))
    return next((found for found in rounded if struct.pack("<f", found) == same), number)


def config_of(path):
    """What the header of a GGUF file says, with the keys of transformers, as a `config.json` holds it.

    A ValueError tells that it is no whole GGUF file, its family is not known, or it says what no key can.
    """
    header = Header(path)
    name, tensors = header.architecture, header.tensors
    family, start = FAMILIES[name], f"{name}."
    told = {
        key.removeprefix(start): value
        for key, value in header.fields.items()
        if key.startswith(start)
    }
    found = {"model_type": family.get("model_type", name), "rope_theta": 10000.0}
    found |= family["values"] | {KEYS[key]: told[key] for key in told if key in KEYS}
    for key, value in told.items():
        known = key in KEYS or key in KNOWN or value == CHECKED.get(key)
        if key.startswith(("rope.", "attention.", "expert_count")) and not known:
            raise refused(f"{start}{key} = {value!r} is not known of this family")
    for needed in ("embedding_length", "attention.head_count"):
        value = told.get(needed)
        if not isinstance(value, int) or value < 1:
            raise refused(f"{start}{needed} must be a positive whole number, got {value!r}")
    if "token_embd.weight" not in tensors:
        raise refused(f"{header.path.name!r} lacks 'token_embd.weight'")
    share = told["embedding_length"] // told["attention.head_count"]
    width = found.setdefault("head_dim", share)
    found.setdefault("num_key_value_heads", told["attention.head_count"])
    values = told.get("attention.value_length", width)
    if values != width:
        raise refused(f"{start}attention.value_length must be {width}, got {values!r}")
    if told.get("rope.dimension_count", width) != width:
        found["partial_rotary_factor"] = told["rope.dimension_count"] / width
    if "largest" in family:  # llama.cpp knows Gemma's scale by the number of layers
        wide = found.get("num_hidden_layers") == family["largest"]
        found["query_pre_attn_scalar"] = share if wide else width
    if found.get("sliding_window") == 0:
        found["sliding_window"] = None
    if isinstance(found.get("sliding_window_pattern"), list):  # one of each layer
        kinds = "full_attention", "sliding_attention"
        found["layer_types"] = [
            kinds[bool(on)] for on in found.pop("sliding_window_pattern")
        ]
    flags = defaults_of(found["model_type"])[1]
    for flag, bias in (("attention_bias", "attn_q"), ("mlp_bias", "ffn_up")):
        if flag in flags:
            found[flag] = f"blk.0.{bias}.bias" in tensors
    scaling = _scaling(header, told, found)
    return found | {
        "vocab_size": tensors["token_embd.weight"].shape[0],
        "tie_word_embeddings": "output.weight" not in tensors,
        **({"rope_scaling": scaling} if scaling else {}),
    }


def _scaling(header, told, found):
    """How the frequencies are scaled, from keys or from factors that the file has for each pair."""
    method = told.get("rope.scaling.type", "linear")
    parts = {key.removeprefix("rope.scaling."): value for key, value in told.items()}
    given = {SCALING[key]: value for key, value in parts.items() if key in SCALING}
    if all(name in header.tensors for name in PAIR.values()):
        factors = {ours: header.floats(name) for ours, name in PAIR.items()}
        return {"rope_type": "longrope", **factors, **given}
    if FACTORS in header.tensors:
        return _llama3(header.floats(FACTORS), told, found)
    if method == "yarn":
        if (times := parts.get("attn_factor")) is not None:  # of YaRN's own, in llama.cpp
            given["attention_factor"] = times * (1 + 0.1 * math.log(given.get("factor", 1)))
        return {"rope_type": "yarn", **given}
    factor = given.get("factor", told.get("rope.scale_linear"))
    if method == "linear" and factor not in (None, 0, 1):
        return {"rope_type": "linear", "factor": factor}
    if method not in ("none", "linear"):
        raise refused(f"rope.scaling.type = {method!r} is not known")
    return None


def _llama3(factors, told, found):
    """Llama 3's scaling, of which a file has only what each frequency is divided by."""
    if set(factors) == {1.0}:
        return None
    base, width = found["rope_theta"], found["head_dim"]
    trained = told.get("rope.scaling.original_context_length", 8192)
    scaling = {"rope_type": "llama3", "factor": max(factors), **LLAMA3, TRAINED: trained}
    expected = rope({"rope_theta": base, **scaling}, width).frequencies
    plain = rope({"rope_theta": base}, width).frequencies
    if len(factors) != len(plain) or any(
        not math.isclose(frequency * factor, unscaled, rel_tol=1e-4)
        for frequency, factor, unscaled in zip(expected, factors, plain, strict=True)
    ):
        raise ValueError(
            "'rope_freqs.weight' must hold what Llama 3's rule divides frequencies by, with factor "
            f"{max(factors)} and {trained} trained positions; give the model's own config.json, "
            "and this file as weights"
        )
    return scaling


class GGUF(Mapping):
    """The arrays of a GGUF file by the names of transformers, in float32 and in the order of transformers.

    Each is mapped, dequantized and ordered when it is asked for, and not kept.

    Args:
        path: of the file.
        made: makes a framework's array of a NumPy array.

    Raises:
        ImportError: if the package gguf is not installed.
        ValueError: if it is no whole GGUF file, its family is not known, or it has an array that a file of
            this family does not have.
    """

    def __init__(self, path, made=lambda array: array):
        try:
            import gguf
        except ImportError as error:
            told = "reading the weights of a GGUF file needs the package gguf: pip install gguf"
            raise ImportError(told) from error
        self._gguf, self._made, self._header = gguf, made, Header(path)
        self._family = FAMILIES[self._header.architecture]
        names = [name for name in self._header.tensors if name not in TABLES]
        self._names = {self._renamed(name): name for name in names}

    def __iter__(self):
        return iter(self._names)

    def __len__(self):
        return len(self._names)

    def __getitem__(self, name):
        own = self._names[name]
        array = self._dequantized(own)
        if self._family.get("plus_one") and own.endswith("norm.weight"):
            array -= 1
        part = own.split(".")[-2]
        if self._family.get("permuted") and part in ("attn_q", "attn_k"):
            start, told = f"{self._header.architecture}.attention.", self._header.fields
            heads = told[f"{start}head_count"]
            heads = told.get(f"{start}head_count_kv", heads) if part == "attn_k" else heads
            pairs = array.reshape(heads, -1, 2, *array.shape[1:])  # of neighbours
            array = pairs.swapaxes(1, 2).reshape(array.shape)  # of halves
        return self._made(array)

    def _renamed(self, name):
        """The name that transformers has for an array."""
        if name == "output.weight":
            return "lm_head.weight"
        part, _, kind = name.rpartition(".")
        block, _, own = part.rpartition(".")
        known = TABLE["names"] | self._family.get("names", {})
        if own not in known:
            family = self._header.architecture
            raise refused(f"weights have {name!r}, which is not known of {family!r}")
        place = f"layers.{block.removeprefix('blk.')}." if block else ""
        return f"model.{place}{known[own]}.{kind}"

    def _dequantized(self, name):
        """An array of the file as float32."""
        import numpy as np

        tensor = self._header.tensors[name]
        block, size = self._gguf.GGML_QUANT_SIZES.get(tensor.kind, (1, 0))
        shape = (math.prod(tensor.shape[:-1]), tensor.shape[-1] // block * size)
        if tensor.start + math.prod(shape) > self._header.path.stat().st_size:
            raise broken(self._header.path, "its end is missing")
        try:
            kind = self._gguf.GGMLQuantizationType(tensor.kind)
            stored = np.memmap(self._header.path, np.uint8, "r", tensor.start, shape)
            array = np.empty((shape[0], tensor.shape[-1]), np.float32)
            for first in range(0, shape[0], ROWS):  # gguf holds what it works on twice
                rows = slice(first, first + ROWS)
                array[rows] = self._gguf.dequantize(np.asarray(stored[rows]), kind)
        except (NotImplementedError, ValueError) as error:
            raise ValueError(
                f"weights have {name!r}, which the package gguf cannot read: {error}; "
                "upgrade it, or convert the file with llama-quantize to Q8_0"
            ) from None
        return array.reshape(tensor.shape)
