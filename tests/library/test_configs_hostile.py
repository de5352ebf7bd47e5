"""Configurations that somebody broke: each gives an error that names the key, or the right plan."""

import math
import re
from pathlib import Path

import pytest

from posattn import configs
from tests.records import stored

WORDS = (Path(__file__).parent / "plans.txt").read_text("utf-8").splitlines()
NAMES = sorted({line.split(" | ")[0] for line in WORDS})
SAID_BY_ABSENCE = {
    # what a configuration leaves out to say something, for the families whose class does not fill it in
    "head_dim",
    "num_key_value_heads",
    "num_global_key_value_heads",
    "rope_scaling",
    "partial_rotary_factor",
    "sliding_window",
    "attention_bias",
    "use_qkv_bias",
    "attention_k_eq_v",
    "attn_logit_softcapping",
    # and what YaRN defines
    "beta_fast",
    "beta_slow",
    "truncate",
    "mscale",
    "mscale_all_dim",
}


def record(name):
    """A recorded configuration, and the part of it that describes the text model."""
    whole = stored(name)
    return whole, whole.get("text_config", whole)


def places(values):
    """Where each key stands: the dictionaries on the way to it, and its name."""
    for key, value in values.items():
        yield (), key
        if isinstance(value, dict):
            yield from (((key, *way), inner) for way, inner in places(value))


def swapped(key):
    """The key with two letters in the wrong order."""
    return next(
        key[:k] + key[k + 1] + key[k] + key[k + 2 :]
        for k in range(len(key) // 2, len(key) - 1)
        if key[k] != key[k + 1]
    )


def is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def replaced(value, applies=is_number):
    """A change of a key's value."""

    def change(holder, key):
        if not applies(holder[key]):
            return False
        holder[key] = value(holder[key]) if callable(value) else value
        return True

    return change


def deleted(holder, key):
    del holder[key]
    return True


def misspelt(holder, key):
    holder[swapped(key)] = holder.pop(key)
    return True


def anything(value):
    return True


DO = re.compile(
    r"; (add|keep|correct|remove|write|did you mean|give|if its) |\?|add what should be otherwise"
)
CHANGES = {
    "deleted": deleted,
    "misspelt": misspelt,
    "nan": replaced(math.nan),
    "infinite": replaced(math.inf),
    "negative": replaced(lambda value: -value),
    "zero": replaced(0),
    "huge": replaced(10**400),
    "half more": replaced(lambda value: value + 0.5, lambda v: type(v) is int),
    "a string": replaced(str),
    "a boolean": replaced(True),
    "a number for a flag": replaced(int, lambda v: isinstance(v, bool)),
    "a string for a flag": replaced(str, lambda v: isinstance(v, bool)),
    "in a list": replaced(lambda value: [value], anything),
    "in a dictionary": replaced(lambda value: {"value": value}, anything),
    "shorter": replaced(lambda value: value[:-1], lambda v: isinstance(v, list)),
    "an unknown word": replaced("unheard", lambda v: isinstance(v, str)),
}


def broken(name, change):
    """The configuration with each key in turn changed, as long as the change applies to what it holds."""
    for way, key in places(record(name)[1]):
        whole, holder = record(name)
        for step in way:
            holder = holder[step]
        if (
            holder[key] is not None
            and not key.startswith("_")
            and CHANGES[change](holder, key)
        ):
            yield key, whole


def named(key, message):
    """Whether an error names the key, under another name of the same thing too."""
    return any(name in message for name in (key, swapped(key), *SAME.get(key, ())))


SAME = {
    "n_head": ["num_attention_heads"],
    "n_layer": ["num_hidden_layers"],
    "compress_ratios": ["layer_types"],
}

SAID = {  # what says something else and is no mistake
    "deleted": SAID_BY_ABSENCE,
    "zero": {"mscale", "mscale_all_dim", "attn_layer_offset"},
    "half more": {
        *("rope_theta", "rotary_emb_base", "compress_rope_theta", "query_pre_attn_scalar"),
        *("factor", "beta_fast", "beta_slow"),
    },
}


@pytest.mark.parametrize("name", NAMES)
def test_a_broken_configuration_is_an_error_or_right(name):
    right, tried = configs.plan(record(name)[0]), 0
    for change in CHANGES:
        for key, values in broken(name, change):
            tried += 1
            try:
                plan = configs.plan(values)
            except (TypeError, ValueError) as error:
                message = str(error)
                assert named(key, message), f"{key} {change}: {message}"
                assert "\n" not in message
                assert len(message) < 700, message
                assert DO.search(message), f"{message} does not say what to do"
            else:
                said = key in SAID.get(change, ()) or plan.defaults != right.defaults
                assert plan == right or said, f"{key} {change} changes the plan in silence"
    assert tried > 20


def test_a_huge_number_is_not_written_out():
    values, _ = record("llama-3")
    with pytest.raises(
        ValueError, match=r"rope_theta must be .* got a whole number of more"
    ):
        configs.plan(values | {"rope_theta": 10**5000})
