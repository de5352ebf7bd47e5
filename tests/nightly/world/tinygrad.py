"""tinygrad, `Tensor.scaled_dot_product_attention`."""

import os

os.environ["DEV"] = "PYTHON"  # the device that needs no compiler
from tinygrad import Tensor

INSTALL = ["numpy==2.4.6", "tinygrad==0.14.0"]


def _attend(query, key, value, **options):
    query, key, value = map(Tensor, (query, key, value))
    return query.scaled_dot_product_attention(key, value, **options).numpy()


PROBES = {
    "causal": lambda last, key, value: _attend(last, key, value, is_causal=True),
    "empty_row": lambda query, key, value, empty: _attend(query, key, value, attn_mask=Tensor(empty)),
    "true": lambda query, key, value, mask: _attend(query, key, value, attn_mask=Tensor(mask)),
    "scale": lambda query, key, value: _attend(query, key, value),
}  # fmt: skip
