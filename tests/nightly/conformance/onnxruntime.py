"""ONNX Runtime: graphs of one operator, `RotaryEmbedding` or `Attention` of opset 23."""

import numpy as np
from onnx import TensorProto, helper
from onnxruntime import InferenceSession

from posattn.conformance.adapters import attention_of_heads, rotation_of_heads
from tests.nightly.conformance.adapting import NAN_LEAKS, against, because


@NAN_LEAKS
def nan():
    """The second key is hidden."""
    import numpy as np
    from onnx.parser import parse_model
    from onnxruntime import InferenceSession

    head = '<ir_version: 11, opset_import: ["": 23]> g '
    given = "(float[1,1,1,1] q, float[1,1,2,1] kv, bool[1,2] mask) => (float[1,1,1,1] y) "
    model = parse_model(head + given + "{ y = Attention (q, kv, kv, mask) }")
    values = np.array([1, np.nan], "f4").reshape(1, 1, 2, 1)
    inputs = {"q": values[:, :, :1], "kv": values, "mask": np.array([[True, False]])}
    print(InferenceSession(model.SerializeToString()).run(None, inputs), "for 1")


@because(
    "more queries than keys",
    whose="convention",
    why="`is_causal` aligns the first query with the first key that is not past, as is documented; "
    "we align the last ones",
)
def corner():
    """Two queries and one key: only the last one sees it."""
    import numpy as np
    from onnx.parser import parse_model
    from onnxruntime import InferenceSession

    head = '<ir_version: 11, opset_import: ["": 23]> g '
    given = "(float[1,1,2,1] q, float[1,1,1,1] kv) => (float[1,1,2,1] y) "
    model = parse_model(head + given + "{ y = Attention <is_causal = 1> (q, kv, kv) }")
    inputs = {"q": np.zeros((1, 1, 2, 1), "f4"), "kv": np.ones((1, 1, 1, 1), "f4")}
    (y,) = InferenceSession(model.SerializeToString()).run(None, inputs)
    print(y.flatten(), "for [0. 1.]")


def described(name, x):
    """What a graph says of an input."""
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    return helper.make_tensor_value_info(name, kind, x.shape)


def run(operator, inputs, outputs=("out",), **attributes):
    """The first output of a graph that has only this operator; what is None is left out."""
    node = helper.make_node(operator, [*inputs], outputs, **attributes)
    given = {name: x for name, x in inputs.items() if x is not None}
    out = helper.make_tensor_value_info("out", TensorProto.FLOAT, None)
    graph = helper.make_graph(
        [node], operator, [*map(described, given, given.values())], [out]
    )
    opset = [helper.make_opsetid("", 23)]
    model = helper.make_model(graph, opset_imports=opset, ir_version=11)
    return InferenceSession(model.SerializeToString()).run(None, given)[0]


def rotated(x, positions, base, rotary_dim, **layout):
    """The rotation by tables of all positions, or by a row for each token where some are fractions."""
    dim = rotary_dim or x.shape[-1]
    whole = positions.dtype.kind == "i"
    rows = np.arange(positions.max(initial=0) + 1) if whole else positions
    angles = rows[..., None] * base ** (-np.arange(0, dim, 2) / dim)
    tables = {"cos": np.cos(angles).astype("f4"), "sin": np.sin(angles).astype("f4")}
    inputs = {"X": x, **tables, **({"position_ids": positions} if whole else {})}
    return run("RotaryEmbedding", inputs, rotary_embedding_dim=rotary_dim, **layout)


@against("rotary", framework="numpy", dtype="float32", layout="half")
@rotation_of_heads
def halves(x, positions, *, base=10000.0, rotary_dim=None):
    """`RotaryEmbedding`."""
    return rotated(x, positions, base, rotary_dim)


@against("rotary", framework="numpy", dtype="float32", layout="interleaved")
@rotation_of_heads
def neighbors(x, positions, *, base=10000.0, rotary_dim=None):
    """`RotaryEmbedding` with `interleaved`."""
    return rotated(x, positions, base, rotary_dim, interleaved=1)


def attend(query, key, value, mask, bias, **options):
    """The attention with a mask, or with a mask and a bias in one."""
    if bias is not None:
        mask = np.where(mask, bias, np.float32(-np.inf))
    inputs = {"Q": query, "K": key, "V": value, "attn_mask": mask}
    return run("Attention", inputs, **options)


@against("attention", nan, framework="numpy", dtype="float32")
@attention_of_heads
def masked(query, key, value, *, mask, bias=None, scale=None):
    """`Attention` with `attn_mask`."""
    return attend(query, key, value, mask, bias, scale=scale)


@against("attention", corner, framework="numpy", dtype="float32", causal=True)
@attention_of_heads
def is_causal(query, key, value, *, scale=None):
    """`Attention` with `is_causal`; keys before the first query are `past_key`."""
    options = {"is_causal": 1, "scale": scale}
    past = max(key.shape[-2] - query.shape[-2], 0)
    inputs = {"Q": query, "K": key[..., past:, :], "V": value[..., past:, :]}
    if past:
        cache = {"past_key": key[..., :past, :], "past_value": value[..., :past, :]}
        inputs = {**inputs, "": None, **cache}  # "" stands for no mask
        options["outputs"] = ["out", "present_key", "present_value"]
    return run("Attention", inputs, **options)


@against("soft_cap", framework="numpy", dtype="float32")
@attention_of_heads
def capped(query, key, value, *, mask, bias=None, scale=None, soft_cap):
    """`Attention` with `softcap`."""
    return attend(query, key, value, mask, bias, scale=scale, softcap=soft_cap)
