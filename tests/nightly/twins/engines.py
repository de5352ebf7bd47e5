"""What an engine says of a folder of `posattn twins`: `python engines.py NAME FOLDER`.

Each function runs in an environment of its own with the packages of `INSTALL`, and returns logits, `(n, v)`.
"""

import os
import sys
from pathlib import Path

import numpy as np

INSTALL = {  # the engine itself comes last
    "transformers": "numpy==2.4.6 torch==2.13.0 transformers==5.24.0",
    "ctranslate2": "numpy==2.4.6 torch==2.13.0 transformers==5.24.0 ctranslate2==4.8.5",
    "keras_hub": "numpy==2.4.6 torch==2.13.0 jax==0.10.2 tensorflow-cpu==2.21.0 keras==3.15.1 "
    "safetensors==0.8.0 keras-hub==0.32.0",
    "mlx_lm": "numpy==2.4.6 mlx[cpu]==0.32.4 mlx-lm==0.32.2",
}


def transformers(folder, tokens):
    """The classes that the configurations are of."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.no_grad():
        return model(torch.from_numpy(tokens)[None]).logits[0].numpy()


def ctranslate2(folder, tokens):
    """`forward_batch` refuses a text beyond a window: then only the first window is read."""
    from ctranslate2 import Generator
    from ctranslate2.converters import TransformersConverter

    TransformersConverter(str(folder)).convert(str(folder / "ctranslate2"), force=True)
    model, text = Generator(str(folder / "ctranslate2")), [str(token) for token in tokens]
    try:
        return np.array(model.forward_batch([text]))[0]
    except ValueError:
        return np.array(model.forward_batch([text[:48]]))[0]


def keras_hub(folder, tokens):
    """The converter of files of transformers, with the JAX backend."""
    os.environ["KERAS_BACKEND"] = "jax"
    import keras_hub as hub

    model = hub.models.CausalLM.from_preset(str(folder), preprocessor=None, dtype="float32")
    ids = tokens[None]
    return np.array(model({"token_ids": ids, "padding_mask": np.ones_like(ids)}))[0]


def mlx_lm(folder, tokens):
    """Apple's models, on a CPU."""
    import mlx.core as mx
    from mlx_lm.utils import load_model

    mx.set_default_device(mx.cpu)
    model, _ = load_model(folder)
    return np.array(model(mx.array(tokens)[None])[0].astype(mx.float32))


if __name__ == "__main__":
    name, place = sys.argv[1], Path(sys.argv[2])
    text = np.load(place / "tokens.npy")
    got = np.asarray(globals()[name](place, text), np.float32)
    whole = np.full((len(text), got.shape[-1]), np.nan, np.float32)
    whole[: len(got)] = got  # what was not computed is NaN
    np.save(place / f"{name}.npy", whole)
