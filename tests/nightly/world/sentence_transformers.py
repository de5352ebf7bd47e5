"""sentence-transformers: embeddings of a text alone and beside a longer one."""

import tempfile

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.models import Pooling, Transformer

from tests.nightly.world.wrapped import _small, _words

INSTALL = [
    "numpy==2.4.6 torch==2.13.0",
    "transformers==5.24.0 peft==0.21.2 transformer-lens==4.3.0",
    "captum==0.9.0 trl==1.16.0 genlm-backend==0.3.1",
    "sentence-transformers==6.2.0",
]


def _cosine(kind, side, pooling):
    with tempfile.TemporaryDirectory() as folder:
        model = _small(kind).transformer if kind == "gpt2" else _small(kind).model
        model.save_pretrained(folder)
        _words(side).save_pretrained(folder)
        parts = [Transformer(folder), Pooling(64, pooling)]
        made = SentenceTransformer(modules=parts, device="cpu")
        text, longer = "3 14 15", "3 14 15 92 65 35 89 79 32 38"
        alone, beside = made.encode([text])[0], made.encode([text, longer])[0]
    return torch.cosine_similarity(*map(torch.tensor, (alone, beside)), dim=0).item()


def padding_on_the_left():
    """With learned positions and padding on the left, an embedding changes with its batch."""
    for kind in ("gpt2", "llama"):
        for side in ("left", "right"):
            print(
                f"{kind}, padded on the {side}: cosine {_cosine(kind, side, 'lasttoken'):.3f}"
            )


def poolings():
    """Every pooling of sentence-transformers leaves out the padding, on the left and on the right."""
    for pooling in ("cls", "lasttoken", "max", "mean", "weightedmean"):
        print(
            pooling,
            *(f"{_cosine('llama', side, pooling):.3f}" for side in ("left", "right")),
        )
