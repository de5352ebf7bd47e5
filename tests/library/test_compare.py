"""Two models or two dumps: the first token and layer that differ, and the cause, are named."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from posattn.__main__ import main
from posattn.conformance.disagreement import states_of
from posattn.conformance.twins import write
from posattn.torch import Decoder

N = 256
LLAMA = {
    **{
        "model_type": "mistral",
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "vocab_size": 64,
    },
    **{"num_attention_heads": 4, "num_key_value_heads": 2, "rope_theta": 10000.0},
    **{"intermediate_size": 96, "sliding_window": None, "max_position_embeddings": 512},
}
LINEAR = {"rope_scaling": {"rope_type": "linear", "factor": 4.0}}
CHANGED = [  # keys, the first token that sees them, how the difference reads, the cause
    (
        {"sliding_window": 40},
        40,
        "no window in A, a window of 40 in B",
        "window is ignored",
    ),
    ({"rope_theta": 5e5}, 1, "rotary base 10000 in A, 500000 in B", "The base is"),
    (LINEAR, 1, "0.25 in B: 0.1 radians apart from token 1 on", "linear, is ignored"),
]
ODD = [
    ("no.npz", None, "cannot be read"),
    ("odd.json", b'{"choices": [{"text": ""}]}', "must have prompt_logprobs"),
    ("odd.txt", b"nothing", "must hold hidden states or logits"),
    ("odd.bin", b"", "odd-tokens.bin' cannot be read"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A small model with sharp attention."""
    made = tmp_path_factory.mktemp("model")
    write(LLAMA, made, N)
    return made


def changed(folder, path, **keys):
    """A folder with the same weights and other keys."""
    path.mkdir()
    config = json.loads((folder / "config.json").read_text())
    (path / "config.json").write_text(json.dumps(config | keys))
    save_file(load_file(folder / "model.safetensors"), path / "model.safetensors")
    return path


def dumped(folder, path, dtype=torch.float32):
    """What a model computes, saved as the page on transformers saves it."""
    ids = torch.from_numpy(np.random.default_rng(0).integers(4, 64, N))
    made = states_of(Decoder.from_config(folder, weights=folder, dtype=dtype), ids)
    hidden = [torch.from_numpy(x)[None].to(dtype) for x in made.states.values()]
    logits = torch.from_numpy(np.stack(list(made.said.values())))[None]
    torch.save(
        {"ids": ids[None], "hidden": (*hidden[:-2], hidden[-1]), "logits": logits}, path
    )
    return path


def told(capsys, *arguments, code):
    """What the command prints."""
    assert main(["compare", *map(str, arguments)]) == code
    printed = capsys.readouterr()
    return printed.out + printed.err


@pytest.mark.parametrize(("keys", "first", "said", "cause"), CHANGED)
def test_a_key_is_named(folder, tmp_path, capsys, keys, first, said, cause):
    other = changed(folder, tmp_path / "other", **keys)
    found = told(capsys, folder, other, code=1)
    assert f"To report: A and B differ from token {first} on" in found
    assert said in found
    assert cause in found
    assert "The weights are equal." in found
    for dtype in torch.float32, torch.bfloat16:
        assert "Equal" in told(
            capsys, other, dumped(other, tmp_path / "b.pt", dtype), code=0
        )
        found = told(capsys, other, dumped(folder, tmp_path / "a.pt", dtype), code=1)
        assert cause in found
    dumped(folder, tmp_path / "a.pt")
    found = told(capsys, tmp_path / "a.pt", dumped(other, tmp_path / "b.pt"), code=1)
    assert f"differ from token {first} on, first in the output of layer 0" in found
    assert ("a window or chunk of 40" if first > 1 else "that sees another") in found


def test_what_is_no_position_is_said(folder, tmp_path, capsys):
    one = torch.load(dumped(folder, tmp_path / "one.pt"))
    dumped(changed(folder, tmp_path / "other", rms_norm_eps=0.1), tmp_path / "b.pt")
    assert "no position" in told(capsys, tmp_path / "one.pt", tmp_path / "b.pt", code=1)
    one["logits"][0, 9] = torch.nan
    torch.save(one | {"hidden": ()}, tmp_path / "nan.pt")
    found = told(capsys, tmp_path / "one.pt", tmp_path / "nan.pt", code=1)
    assert "from token 9 on, first in the logits" in found
    torch.save({"hidden": one["hidden"]}, tmp_path / "hidden.pt")
    torch.save({"logits": one["logits"]}, tmp_path / "logits.pt")
    found = told(capsys, tmp_path / "hidden.pt", tmp_path / "logits.pt", code=2)
    assert "must have a layer or logits of the same token in common" in found


def test_a_scaling_that_acts_in_longer_texts_is_named(folder, tmp_path, capsys):
    scaling = {"rope_scaling": {"rope_type": "dynamic", "factor": 4.0}}
    other = changed(folder, tmp_path / "other", **scaling)
    assert "are equal" in told(capsys, folder, other, "--length", 9, code=0)
    assert "from token 1 on in a text of" in told(capsys, folder, other, code=1)


def test_rows_in_another_order_are_named(folder, tmp_path, capsys):
    other = changed(folder, tmp_path / "other")
    weights = load_file(folder / "model.safetensors")
    name = "model.layers.1.self_attn.q_proj.weight"
    weights[name] = weights[name].reshape(4, 2, -1, 64).swapaxes(1, 2).reshape(64, 64)
    save_file({k: x.contiguous() for k, x in weights.items()}, other / "model.safetensors")
    found = told(capsys, folder, other, code=1)
    assert f"differ, from {name} on, with rows in another order" in found


def test_other_engines_files_are_read(folder, tmp_path, capsys):
    one = torch.load(dumped(folder, tmp_path / "one.pt"))
    ids, logits = one["ids"][0], one["logits"][0]
    top = logits.log_softmax(-1)[:-1].topk(5)
    rows = [{int(t): {"logprob": float(x)} for t, x in zip(*row, strict=True)}
            for row in zip(top.indices, top.values, strict=True)]  # fmt: skip
    answer = {"prompt_logprobs": [None, *rows], "prompt_token_ids": ids.tolist()}
    (tmp_path / "vllm.json").write_text(json.dumps({"choices": [answer]}))
    logits[-1].numpy().tofile(tmp_path / "llama.bin")
    ids.numpy().astype("<i4").tofile(tmp_path / "llama-tokens.bin")
    np.savez(tmp_path / "one.npz", ids=ids.numpy(), logits=logits.numpy())
    x = one["hidden"][1][0, [0, 1, 2, -3, -2, -1]][:, [0, 1, 2, -3, -2, -1]]
    lines = [", ".join(f"{v:12.4f}" for v in row) for row in x]
    lines = [f"[{line[:40]}, ..., {line[42:]} ],\n" for line in lines]
    head = f"cb: l_out-0 = (f32) ADD(a{{64}}, b{{64}}}}) = {{64, {N}, 1, 1}}\n[\n[\n"
    printed = f"{head}{''.join(lines[:3])}...,\n{''.join(lines[3:])}],\n]\nsum = 1.0\n"
    (tmp_path / "llama.txt").write_text(printed)
    other = changed(folder, tmp_path / "other", rope_theta=5e5)
    for name in ("vllm.json", "llama.bin", "one.npz", "llama.txt"):
        more = ["--ids", tmp_path / "llama-tokens.bin"] * (name == "llama.txt")
        assert "Equal" in told(capsys, tmp_path / name, folder, *more, code=0)
        assert "base is 10000" in told(capsys, other, tmp_path / name, *more, code=1), name


@pytest.mark.parametrize(("name", "content", "said"), ODD)
def test_what_cannot_be_compared_is_an_error(folder, tmp_path, capsys, name, content, said):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    assert said in told(capsys, folder, tmp_path / name, code=2)
