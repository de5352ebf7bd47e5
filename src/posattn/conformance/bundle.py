"""Vectors as ONNX models, for engines without Python: a folder for each case, as ONNX's own tests have them.

Only what standard operators express is there; `cases.json` says what was left out, and why. Of a state that
passes from call to call, each call is a model; what happens to states between calls is the engine's part.
"""

import importlib
import json
from pathlib import Path

import numpy as np

from posattn.conformance.graphs import GRAPHS
from posattn.conformance.vectors import UsageError, load

__all__ = ["SCHEMES", "write_bundle"]

TABLE = 256  # rows of a table of cosines; beyond it, each token brings its own
FLOAT32_ANGLES = 4096  # the last position whose angles a graph computes
TYPES = {"f": ("float", np.float32), "i": ("int64", np.int64), "b": ("bool", bool)}
INPUTS = ("q", "k", "v", "mask", "past_key", "past_value", "length")


class LeftOut(ValueError):
    """Why no standard operator expresses a case."""


def attention(
    q, k, v, mask=None, bias=None, causal=False, scale=None, soft_cap=0, window=0
):
    """`Attention`: causal beside cached keys needs them as a past, or their number."""
    if not all(np.isfinite(x).all() for x in (q, k, v)):
        raise LeftOut("the operator adds its mask, so a hidden NaN stays NaN")
    n_q, n_k = q.shape[-2], k.shape[-2]
    if bias is not None:
        mask = np.where(True if mask is None else mask, bias, -np.inf)
    if np.ndim(mask) == 3:
        mask = np.broadcast_to(mask, (len(q), n_q, n_k))[:, None]
    given = {"q": in_heads(q), "k": in_heads(k), "v": in_heads(v)}
    given |= {} if mask is None else {"mask": mask}
    plain = [f"scale = {scale or q.shape[-1] ** -0.5}"]
    plain += [f"softcap = {soft_cap}"] * (soft_cap > 0)

    def model(way, opset, options, **others):
        inputs = given | others
        named = ", ".join(name if name in inputs else "" for name in INPUTS)
        out = "y, present_key, present_value" if "past_key" in inputs else "y"
        body = f"{out} = Attention <{', '.join(options)}> ({named.rstrip(', ')})"
        return way, opset, body, inputs

    past, opset = n_k - n_q, 25 if window else 23
    ordered = [*plain, "is_causal = 1"] + [f"left_window_size = {window - 1}"] * (
        window > 0
    )
    if window:
        near = np.tri(n_q, n_k, past) - np.tri(n_q, n_k, past - window) > 0
        yield model("as a mask", 23, plain, mask=near[None, None].repeat(len(q), 0))
    if not (causal or window) or not past:
        yield model("", opset, ordered if causal or window else plain)
        return
    if past > 0:
        parts = {"past_key": given["k"][:, :, :past], "past_value": given["v"][:, :, :past]}
        parts |= {name: given[name][:, :, past:] for name in "kv"}
        yield model("by its past", opset, ordered, **parts)
    length = np.full(len(q), n_k)
    yield model("by its length", max(opset, 24), ordered, length=length)


def rotary(x, positions=None, layout="interleaved", rotary_dim=None, frequencies=None,
           base=10000.0, attention_factor=1.0):  # fmt: skip
    """`RotaryEmbedding`, by a table and positions, or by the row of each token."""
    x = in_heads(x)
    positions = np.arange(x.shape[2]) if positions is None else positions
    positions = positions[:, 0] if positions.ndim == 3 else positions
    positions = np.broadcast_to(positions, (len(x), x.shape[2]))
    if frequencies is None:
        frequencies = falling(rotary_dim or x.shape[-1], base)
    few = positions.dtype.kind == "i" and positions.size > 0 and positions.max() < TABLE
    rows = np.arange(positions.max() + 1) if few else positions
    angles = rows[..., None] * frequencies
    inputs = {"x": x, "cos": attention_factor * np.cos(angles)}
    inputs |= {"sin": attention_factor * np.sin(angles)}
    inputs |= {"positions": positions} if few else {}
    options = f"interleaved = {int(layout == 'interleaved')}"
    options += f", rotary_embedding_dim = {2 * len(frequencies)}"
    yield "", 23, f"y = RotaryEmbedding <{options}> ({', '.join(inputs)})", inputs


def positional_encoding(x, positions=None, base=10000.0):
    """Sines and cosines, whose angles the graph computes in float32, added to the embeddings."""
    where = np.arange(x.shape[-2]) if positions is None else positions
    if where.max() > FLOAT32_ANGLES or x.shape[-1] % 2:
        raise LeftOut(
            "the graph's pairs have float32 angles: no far positions, no odd widths"
        )
    inputs = {"x": x, "positions": where[..., None, None]}
    inputs |= {"frequencies": falling(x.shape[-1], base)[:, None]}
    shape = ", ".join(map(str, (*where.shape, x.shape[-1])))
    body = "p = Cast <to = 1> (positions) a = Mul (p, frequencies) s = Sin (a) c = Cos (a) "
    body += f"pairs = Concat <axis = -1> (s, c) n = Constant <value_ints = [{shape}]> () "
    yield "", 13, f"{body} t = Reshape (pairs, n) y = Add (x, t)", inputs


def falling(dim, base):
    """The frequencies of pairs."""
    return base ** (-np.arange(0, dim, 2) / dim)


def in_heads(x):
    """An array with an axis for its heads."""
    return x[:, None] if x.ndim == 3 else x


SCHEMES = {"attention": attention, "soft_cap": attention, "window_attention": attention}
SCHEMES |= {"rotary": rotary, "positional_encoding": positional_encoding, **GRAPHS}


def files(onnx, scheme, case):
    """The folders of a case, and the files in each."""
    y = case["expected"]  # unless a graph brings its own
    y = y if scheme in {"positional_encoding", *GRAPHS} else in_heads(y)
    for way, opset, body, inputs in SCHEMES[scheme](*case["arguments"], **case["keywords"]):
        tensors, said = [], []
        for name, x in {**inputs, "y": inputs.get("y", y)}.items():
            kind, dtype = TYPES[np.asarray(x).dtype.kind]
            tensors.append(onnx.numpy_helper.from_array(np.array(x, dtype), name))
            said.append(f"{kind}[{','.join(map(str, x.shape))}] {name}")
        head = f'<ir_version: {11 if opset > 22 else 8}, opset_import: ["": {opset}]>'
        graph = f"{scheme} ({', '.join(said[:-1])}) => ({said[-1]}) {{ {body} }}"
        words = "".join(c if c.isalnum() else " " for c in f"{scheme} {case['name']} {way}")
        found = {"model.onnx": onnx.parser.parse_model(f"{head} {graph}")}
        for k, tensor in enumerate(tensors):
            role = f"input_{k}" if tensor.name != "y" else "output_0"
            found[f"test_data_set_0/{role}.pb"] = tensor
        texts = {name: part.SerializeToString() for name, part in found.items()}
        yield f"test_{'_'.join(words.split())}", texts


def write_bundle(path, schemes=()):
    """Write models with inputs and expected outputs into a folder.

    Each case is a folder `test_...` with `model.onnx` and `test_data_set_0/input_0.pb`, ...,
    `output_0.pb`, as ONNX's backend tests and the test runners of engines read them.
    `cases.json` has the case and the tolerances of each folder, and why others were left out.

    Args:
        path: the folder.
        schemes: some of `SCHEMES`, or all if there are none.

    Returns:
        How many folders were written, and how many cases were left out.

    Raises:
        UsageError: if onnx is not installed, or a scheme is not one of these.
    """
    if others := [name for name in schemes if name not in SCHEMES]:
        known = ", ".join(SCHEMES)
        raise UsageError(f"scheme must be one of {known} for ONNX, got {others[0]!r}")
    try:
        onnx = importlib.import_module("onnx")
        [importlib.import_module(f"onnx.{part}") for part in ("numpy_helper", "parser")]
    except ImportError:
        raise UsageError("onnx must be installed: pip install onnx") from None
    written, cases, away = {}, [], []
    for scheme in schemes or SCHEMES:
        for case in load(scheme)["cases"]:
            said = {"scheme": scheme, "case": case["name"]}
            try:
                for folder, found in files(onnx, scheme, case):
                    written |= {f"{folder}/{name}": data for name, data in found.items()}
                    cases.append({"folder": folder, **said, "tolerance": case["tolerance"]})
            except LeftOut as why:
                away.append({**said, "why": str(why)})
    index = json.dumps({"cases": cases, "left_out": away}, indent=1)
    written["cases.json"] = f"{index}\n".encode()
    for name, data in written.items():
        (Path(path) / name).parent.mkdir(parents=True, exist_ok=True)
        (Path(path) / name).write_bytes(data)
    return len(cases), len(away)
