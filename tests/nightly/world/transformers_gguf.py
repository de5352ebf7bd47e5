"""transformers, `from_pretrained(gguf_file=...)`: what a GGUF file says and the configuration does not."""

import tempfile

import gguf
import numpy as np
from transformers import AutoConfig

INSTALL = ["numpy==2.4.6", "torch==2.13.0", "gguf==0.19.0", "transformers==5.24.0"]
KEYS = {
    "context_length": 131072, "embedding_length": 512, "block_count": 46, "feed_forward_length": 64,
    "attention.head_count": 4, "attention.head_count_kv": 4, "rope.freq_base": 1e6,
}  # fmt: skip


def _read(arch, tensors=(), **keys):
    """The configuration that transformers makes of a GGUF file with these keys."""
    folder = tempfile.mkdtemp()
    writer = gguf.GGUFWriter(f"{folder}/model.gguf", arch)
    for key, value in (KEYS | keys).items():
        add = {int: "uint32", float: "float32", str: "string"}[type(value)]
        getattr(writer, f"add_{add}")(f"{arch}.{key}".replace("__", "."), value)
    for name, array in dict(tensors).items():
        writer.add_tensor(name, np.float32(array))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return AutoConfig.from_pretrained(folder, gguf_file="model.gguf")


def bases():
    """StarCoder2 and StableLM lose the file's base and rotate by 10000."""
    for arch in ("llama", "qwen2", "starcoder2", "stablelm"):
        print(arch, _read(arch).rope_parameters["rope_theta"])


def scalings():
    """Scaling is lost, whether in keys (YaRN) or in the tensor `rope_freqs.weight` (Llama 3.1)."""
    yarn = {"rope__scaling__type": "yarn", "rope__scaling__factor": 4.0}
    yarn |= {"rope__scaling__original_context_length": 32768}
    print("YaRN in keys:", _read("qwen2", **yarn).rope_parameters)
    divisors = {"rope_freqs.weight": np.linspace(1, 8, 64)}
    print("rope_freqs.weight:", _read("llama", divisors).rope_parameters)


def partial_rotation():
    """Phi-4-mini's file says that 96 of 128 entries rotate, and all do."""
    read = _read("phi3", rope__dimension_count=96)
    print("rotates", read.rope_parameters.get("partial_rotary_factor", 1.0), "of each head")


def gemma_scale():
    """Gemma 2 27B's scores are scaled by 1/√256, and were trained with 1/√144."""
    print(
        "query_pre_attn_scalar",
        _read("gemma2", attention__key_length=128).query_pre_attn_scalar,
    )
