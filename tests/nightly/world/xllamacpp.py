"""llama.cpp's operators `ggml_flash_attn_ext` and `ggml_rope_ext`, from the wheel of xllamacpp."""

import ctypes
from ctypes import c_float, c_int, c_int64, c_size_t, c_void_p

import numpy as np
import xllamacpp

INSTALL = ["numpy==2.4.6", "xllamacpp==2026.10.11549"]
GGML = ctypes.CDLL(xllamacpp.xllamacpp.__file__)
TYPES = {"float32": 0, "float16": 1, "int32": 26}  # as ggml numbers them


class _Init(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("buffer", c_void_p), ("no_alloc", ctypes.c_bool)]


def _call(name, *arguments):
    function = getattr(GGML, name)
    function.restype = c_void_p
    return function(*(c_float(x) if isinstance(x, float) else x for x in arguments))


def _compute(shape, operator, arrays, *options, **more):
    """An operator's output; its tensors have the axes of arrays in the opposite order."""
    context = c_void_p(_call("ggml_init", _Init(2**26, None, False)))

    def tensor(array):
        sizes = (c_int64 * array.ndim)(*array.shape[::-1])
        kind = TYPES[array.dtype.name]
        made = c_void_p(_call("ggml_new_tensor", context, kind, array.ndim, sizes))
        data = np.ascontiguousarray(array)
        ctypes.memmove(_call("ggml_get_data", made), data.ctypes.data, data.nbytes)
        return made

    tensors = [None if array is None else tensor(array) for array in arrays]
    made = c_void_p(_call(operator, context, *tensors, *options))
    for name, array in more.items():
        _call(name, made, tensor(array))
    graph = c_void_p(_call("ggml_new_graph", context))
    _call("ggml_build_forward_expand", graph, made)
    _call("ggml_graph_compute_with_ctx", context, graph, c_int(1))
    out = np.empty(shape, "f4")
    ctypes.memmove(out.ctypes.data, _call("ggml_get_data", made), out.nbytes)
    _call("ggml_free", context)
    return out


def _attend(query, key, value, mask, cap=0.0):
    added = np.where(mask, 0, -np.inf).astype("f2")  # ggml has no Boolean tensors
    b, h, n, d = query.shape
    heads = query, key, value, added
    out = _compute((b, n, h, d), "ggml_flash_attn_ext", heads, d**-0.5, 0.0, cap)
    return out.swapaxes(1, 2)


def _rope(x, positions, dim=16, freqs=None, mode=0, scale=1.0):
    tokens, places = x.swapaxes(1, 2), positions.astype("i4")
    freqs = None if freqs is None else freqs.astype("f4")
    numbers = 10000.0, scale, 0.0, 1.0, 32.0, 1.0  # base, freq_scale, and YaRN's four
    given = (tokens, places, freqs), dim, mode, 0, *numbers
    return _compute(tokens.shape, "ggml_rope_ext", *given).swapaxes(1, 2)


PROBES = {
    "empty_row": lambda query, key, value, empty: _attend(query, key, value, empty),
    "soft_cap": lambda query, key, value, mask, cap: _attend(query, key, value, mask, cap),
    "rotated": lambda x, positions: _rope(x, positions),
    "partly": lambda x, positions, part: _rope(x, positions, part),
    "by_freqs": lambda x, positions, freqs: _rope(x, positions, freqs=freqs),
    "stretched": lambda x, positions, stretch: _rope(x, positions, scale=stretch),
    "distant": lambda x, far: _rope(x, far),
}


def neox():
    """`GGML_ROPE_TYPE_NEOX` pairs halves; the default pairs neighbors."""
    x = np.zeros((1, 1, 1, 4), "f4")
    x[..., 0] = 1
    for mode in 0, 2:
        (column,) = _rope(x, np.ones(1), 4, mode=mode)[0, 0, :, 1:].argmax(-1) + 1
        print(f"mode {mode}: column 0 pairs with column {column}")
