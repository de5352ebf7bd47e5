"""ONNX Runtime: graphs of one operator, of the standard or its own."""

import numpy as np
from onnx.parser import parse_model
from onnxruntime import InferenceSession, SessionOptions

from posattn.conformance.adapters import attention_of_heads
from tests.nightly.conformance.adapting import NAN_LEAKS, against, because
from tests.nightly.conformance.graphs import CORNER, OURS, adapters, graph


@NAN_LEAKS
def nan():
    head = '<ir_version: 11, opset_import: ["": 23]> g '
    given = "(float[1,1,1,1] q, float[1,1,2,1] kv, bool[1,2] mask) => (float[1,1,1,1] y) "
    model = parse_model(head + given + "{ y = Attention (q, kv, kv, mask) }")
    values = np.array([1, np.nan], "f4").reshape(1, 1, 2, 1)
    inputs = {"q": values[:, :, :1], "kv": values, "mask": np.array([[True, False]])}
    print(InferenceSession(model.SerializeToString()).run(None, inputs), "for 1")


@CORNER
def corner():
    head = '<ir_version: 11, opset_import: ["": 23]> g '
    given = "(float[1,1,2,1] q, float[1,1,1,1] kv) => (float[1,1,2,1] y) "
    model = parse_model(head + given + "{ y = Attention <is_causal = 1> (q, kv, kv) }")
    inputs = {"q": np.zeros((1, 1, 2, 1), "f4"), "kv": np.ones((1, 1, 1, 1), "f4")}
    (y,) = InferenceSession(model.SerializeToString()).run(None, inputs)
    print(y.flatten(), "for [0. 1.]")


@because("lowest float", whose="library",
         why="a row that has only the lowest float is zero at opset 23 and 24; later, the mean")  # fmt: skip
def lowest():
    given = "(float[1,1,1,1] q, float[1,1,2,1] kv, float[1,2] mask) => (float[1,1,1,1] y) "
    inputs = {"q": np.zeros((1, 1, 1, 1), "f4"), "kv": np.ones((1, 1, 2, 1), "f4")}
    inputs["mask"] = np.full((1, 2), np.finfo("f4").min)
    for opset in (23, 25):
        head = f'<ir_version: 11, opset_import: ["": {opset}]> g '
        model = parse_model(head + given + "{ y = Attention (q, kv, kv, mask) }")
        (y,) = InferenceSession(model.SerializeToString()).run(None, inputs)
        print(y.item(), "for 1, opset", opset)


@because("(b, 1, 1, n)", whose="library",
         why="a mask with one row for all queries is refused at opset 23 and 24")  # fmt: skip
def one_row():
    head = '<ir_version: 11, opset_import: ["": 23]> g '
    given = "(float[1,1,2,1] x, bool[1,1,1,2] mask) => (float[1,1,2,1] y) "
    model = parse_model(head + given + "{ y = Attention (x, x, x, mask) }")
    inputs = {"x": np.ones((1, 1, 2, 1), "f4"), "mask": np.ones((1, 1, 1, 2), bool)}
    print(InferenceSession(model.SerializeToString()).run(None, inputs), "for 1, 1")


@because("one of them 0", "one length per query", whose="library",
         why="a padding mask adds -10000, which cancels where all keys are hidden")  # fmt: skip
def nothing_hidden():
    head = '<ir_version: 10, opset_import: ["": 18, "com.microsoft": 1]> g '
    given = "(float[1,2,1] x, int32[1,2] mask) => (float[1,2,1] y) "
    node = "{ y = com.microsoft.MultiHeadAttention <num_heads = 1> (x, x, x, , mask) }"
    inputs = {"x": np.array([[[0], [1]]], "f4"), "mask": np.zeros((1, 2), "i4")}
    model = parse_model(head + given + node).SerializeToString()
    print(InferenceSession(model).run(None, inputs)[0].flatten(), "for 0, 0")


@because("queries at the end", "more queries than keys", "a bias and causal", whose="library",
         why="`unidirectional` lets the last query see all, and aligns others to the first key")  # fmt: skip
def last():
    head = '<ir_version: 10, opset_import: ["": 18, "com.microsoft": 1]> g '
    given = "(float[1,2,1] q, float[1,3,1] k) => (float[1,2,1] y) "
    node = "com.microsoft.MultiHeadAttention <num_heads = 1, unidirectional = 1> (q, k, k)"
    inputs = {"q": np.zeros((1, 2, 1), "f4"), "k": np.array([[[0], [1], [2]]], "f4")}
    model = parse_model(f"{head}{given}{{ y = {node} }}").SerializeToString()
    print(InferenceSession(model).run(None, inputs)[0].flatten(), "for 0.5, 1")


@because("more queries than keys", whose="convention",
         why="`GroupQueryAttention` has as many new keys as queries")  # fmt: skip
def as_many():
    head = '<ir_version: 10, opset_import: ["": 18, "com.microsoft": 1]> g '
    given = (
        "(float[1,2,8] q, float[1,1,8] k, float[1,1,0,8] past, int32[1] last, int32 total) "
    )
    out = "=> (float[1,2,8] y, float[1,1,1,8] k2, float[1,1,1,8] v2) "
    node = "com.microsoft.GroupQueryAttention <num_heads = 1, kv_num_heads = 1>"
    node += " (q, k, k, past, past, last, total)"
    inputs = {"q": np.ones((1, 2, 8), "f4"), "k": np.ones((1, 1, 8), "f4")}
    inputs |= {"past": np.ones((1, 1, 0, 8), "f4"), "last": np.zeros(1, "i4")}
    inputs["total"] = np.array(1, "i4")
    model = parse_model(f"{head}{given}{out}{{ y, k2, v2 = {node} }}").SerializeToString()
    InferenceSession(model).run(None, inputs)


QUIET = SessionOptions()
QUIET.log_severity_level = 4


def run(operator, inputs, outputs=("out",), **attributes):
    """The first output of a graph that has only this operator."""
    model, given = graph(operator, inputs, outputs, **attributes)
    return InferenceSession(model.SerializeToString(), QUIET).run(None, given)[0]


ONE = adapters(run)
halves = against("rotary", layout="half", **OURS)(ONE.halves)
neighbors = against("rotary", layout="interleaved", **OURS)(ONE.neighbors)
masked = against("attention", nan, lowest, **OURS)(ONE.masked)
is_causal = against("attention", corner, one_row, causal=True, **OURS)(ONE.is_causal)
windowed = against("window_attention", **OURS)(ONE.windowed)
capped = against("soft_cap", **OURS)(ONE.capped)


def rows(x):
    """Heads side by side, as the operators of `com.microsoft` have them."""
    return np.ascontiguousarray(np.swapaxes(x, 1, 2).reshape(len(x), x.shape[2], -1))


def heads(x, num_heads):
    """Heads on an axis of their own."""
    return np.swapaxes(x.reshape(*x.shape[:2], num_heads, -1), 1, 2)


def multi_head(query, key, value, mask=None, bias=None, **options):
    """`MultiHeadAttention` of `com.microsoft`."""
    inputs = {"query": rows(query), "key": rows(key), "value": rows(value), "bias": None}
    shape = len(query), query.shape[2], key.shape[2]
    mask = None if mask is None else np.broadcast_to(mask[:, 0], shape).astype("i4")
    inputs |= {"key_padding_mask": mask, "attention_bias": bias}
    options |= {"domain": "com.microsoft", "num_heads": query.shape[1]}
    return heads(run("MultiHeadAttention", inputs, **options), query.shape[1])


@against("attention", nan, nothing_hidden, **OURS)
@attention_of_heads
def contrib_masked(query, key, value, *, mask, bias=None, scale=None):
    """`MultiHeadAttention` of `com.microsoft` with `key_padding_mask`."""
    return multi_head(query, key, value, mask, bias, scale=scale)


@against("attention", last, causal=True, **OURS)
@attention_of_heads
def contrib_unidirectional(query, key, value, *, bias=None, scale=None):
    """`MultiHeadAttention` of `com.microsoft` with `unidirectional`."""
    return multi_head(query, key, value, None, bias, scale=scale, unidirectional=1)


def one_by_one(attend):
    """An attention of each example on its own, where several tokens come after a past."""

    def each(query, key, value, bias=None, **options):
        if len(query) == 1 or query.shape[2] in (1, key.shape[2]):
            return attend(query, key, value, bias, **options)
        parts = (query, key, value, *(() if bias is None else (bias,)))
        examples = zip(*([x[None] for x in part] for part in parts), strict=True)
        return np.concatenate([attend(*one, **options) for one in examples])

    return each


def past_and_new(query, key, value):
    """The inputs of `GroupQueryAttention`, whose keys before the first query are past."""
    past, last = max(key.shape[2] - query.shape[2], 0), key.shape[2] - 1
    given = {"query": rows(query), "key": rows(key[:, :, past:])}
    given |= {"value": rows(value[:, :, past:]), "past_key": key[:, :, :past]}
    given |= {"past_value": value[:, :, :past], "last": np.full(len(query), last, "i4")}
    return given | {"total": np.array(last + 1, "i4")}


@one_by_one
def grouped(query, key, value, bias=None, sinks=None, scale=None, **options):
    """`GroupQueryAttention` of `com.microsoft`, whose heads are 8 wide."""
    scale, width = scale or query.shape[-1] ** -0.5, value.shape[-1]
    wide = [np.pad(x, [(0, 0)] * 3 + [(0, 8 - x.shape[-1])]) for x in (query, key, value)]
    inputs = past_and_new(*wide) | dict.fromkeys(("cos", "sin", "position_ids"))
    inputs |= {"bias": bias, "sinks": sinks}
    while next(reversed(inputs.values())) is None:
        inputs.popitem()
    options |= {"scale": scale, "num_heads": query.shape[1], "kv_num_heads": key.shape[1]}
    outputs = "out", "present_key", "present_value"
    out = run("GroupQueryAttention", inputs, outputs, domain="com.microsoft", **options)
    return heads(out, query.shape[1])[..., :width]


@against("attention", as_many, causal=True, **OURS)
@attention_of_heads
def contrib_grouped(query, key, value, *, bias=None, scale=None):
    """`GroupQueryAttention` of `com.microsoft`, which is causal."""
    return grouped(query, key, value, bias, scale=scale)


@against("window_attention", **OURS)
@attention_of_heads
def contrib_window(query, key, value, *, window, scale=None):
    """`GroupQueryAttention` of `com.microsoft` with `local_window_size`."""
    return grouped(query, key, value, scale=scale, local_window_size=window)


@against("soft_cap", causal=True, **OURS)
@attention_of_heads
def contrib_capped(query, key, value, *, bias=None, scale=None, soft_cap):
    """`GroupQueryAttention` of `com.microsoft` with `softcap`."""
    return grouped(query, key, value, bias, scale=scale, softcap=soft_cap)


@against("sinks", causal=True, **OURS)
@attention_of_heads
def contrib_sinks(query, key, value, *, scale=None, sinks):
    """`GroupQueryAttention` of `com.microsoft` with `head_sink`."""
    return grouped(query, key, value, scale=scale, sinks=sinks)
