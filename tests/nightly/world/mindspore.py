"""MindSpore, `nn.MultiheadAttention`, on a CPU."""

import numpy as np
from mindspore import Tensor, nn

INSTALL = ["numpy==1.26.4", "mindspore==2.10.0"]


def _layer():
    """A layer of one head of width 16 without projections."""
    layer = nn.MultiheadAttention(16, 1, has_bias=False, batch_first=True)
    for weight in layer.trainable_params():
        eye = np.tile(np.eye(16, dtype="f4"), (weight.shape[0] // 16, 1))
        weight.set_data(Tensor(eye))
    return layer.set_train(False)


def _attend(*arrays, mask=None):
    heads = (Tensor(array[0]) for array in arrays)  # heads are examples here
    mask = None if mask is None else Tensor(mask[0, 0])
    return _layer()(*heads, attn_mask=mask)[0].asnumpy()[None]


PROBES = {
    "empty_row": lambda query, key, value, empty: _attend(query, key, value, mask=~empty),
    "true": lambda query, key, value, mask: _attend(query, key, value, mask=mask),
    "scale": lambda query, key, value: _attend(query, key, value),
}


def padded(x):
    layer, tokens, pads = _layer(), Tensor(2 * x[0]), np.tile(np.arange(6) < 2, (2, 1))
    alone = layer(*[tokens[:, 2:]] * 3)[0].asnumpy()
    return alone, layer(*[tokens] * 3, key_padding_mask=Tensor(pads))[0].asnumpy()[:, 2:]
