"""OpenVINO, from ONNX's operators `Attention` and `RotaryEmbedding`, on a CPU in float32."""

import openvino as ov

from tests.nightly.world import graphs
from tests.nightly.world.graphs import *  # noqa: F403

INSTALL = ["numpy==2.4.6", "onnx==1.23.2", "openvino==2026.4.1"]
FLOAT32 = {"INFERENCE_PRECISION_HINT": "f32"}


def _run(model, inputs):
    core = ov.Core()
    compiled = core.compile_model(core.read_model(model), "CPU", FLOAT32)
    return compiled(inputs)[0]


graphs.run = _run


def empty_row_of_its_own():
    """Its own operation, which a model from PyTorch gets, gives a row without visible keys NaN."""
    import numpy as np
    from openvino import opset13

    query, mask = np.ones((1, 1, 2, 1), "f4"), np.array([[True, False], [False, False]])
    heads = opset13.parameter(query.shape, np.float32)
    made = opset13.scaled_dot_product_attention(heads, heads, heads, opset13.constant(mask))
    compiled = ov.compile_model(ov.Model([made.output(0)], [heads], "sdpa"), "CPU", FLOAT32)
    print(*compiled([query])[0].ravel())


def window_of_opset_25():
    """The window of ONNX's `Attention`, new in opset 25, is read without an error and not computed."""
    import numpy as np

    arrays = np.random.default_rng(0).normal(size=(3, 1, 1, 6, 16)).astype("f4")
    inputs = dict(zip(("query", "key", "value"), arrays, strict=True))
    line = "Attention <is_causal = 1, left_window_size = {}> (query, key, value)"
    narrow, full = (graphs._attend(line.format(n), 25, **inputs) for n in (1, -1))
    print(f"largest difference that a window makes: {abs(narrow - full).max()}")


def saved_frequencies():
    """`save_model` rounds the frequencies of a sinusoidal encoding to float16, and late positions suffer."""
    import tempfile

    import numpy as np
    from openvino import opset13

    frequencies = 10000.0 ** -np.linspace(0, 1, 64, dtype="f4")
    at, path = opset13.parameter([1], np.float32), f"{tempfile.mkdtemp()}/model.xml"
    made = ov.Model(
        [opset13.sin(opset13.multiply(at, frequencies)).output(0)], [at], "sines"
    )
    ov.save_model(made, path)
    for position in (10, 1000, 100_000):
        x = [np.float32([position])]
        both = [ov.compile_model(m, "CPU", FLOAT32)(x)[0] for m in (made, path)]
        print(f"position {position}: off by {abs(both[0] - both[1]).max():.3f}")
