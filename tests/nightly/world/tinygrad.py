"""tinygrad, `Tensor.scaled_dot_product_attention`."""

import os

os.environ["DEV"] = "PYTHON"  # the device that needs no compiler
from tinygrad import Tensor

INSTALL = ["numpy==2.4.6", "tinygrad==0.14.0"]


def _attend(query, key, value, **options):
    query, key, value = map(Tensor, (query, key, value))
    return query.scaled_dot_product_attention(key, value, **options).numpy()


def causal(last, key, value):
    return _attend(last, key, value, is_causal=True)


def empty_row(query, key, value, empty):
    return _attend(query, key, value, attn_mask=Tensor(empty))


def true(query, key, value, mask):
    return _attend(query, key, value, attn_mask=Tensor(mask))


def scale(query, key, value):
    return _attend(query, key, value)
