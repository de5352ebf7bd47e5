"""Recurrences for tests: what each computes, written out token by token."""

import numpy as np

from tests.conftest import draw

# two heads of values for one of keys, and two chunks
KEYS, VALUES, N, WIDTH, OUT = 2, 4, 70, 4, 3
NAMES = {"linear": "linear_attention", "gated": "gated_delta", "kimi": "kimi_delta"}
MASK = np.ones((2, N), bool)
MASK[0, :3] = MASK[0, 30:33] = MASK[1, 62:66] = MASK[1, -2:] = False
DOCUMENTS = np.array([[0] * 40 + [1] * 26 + [2] * 4, [3] * 63 + [9] * 4 + [3] * 3])
DOCUMENTS[0, 30:33] = 7  # padding has a number of its own


def arrays(kind, n=N, seed=0):
    """Arguments of a recurrence by name, with unit keys."""
    key = np.random.default_rng(seed).normal(size=(2, KEYS, n, WIDTH))
    gates = -np.abs(draw(seed + 2, 2, VALUES, n, WIDTH)) / 4
    named = {
        "query": draw(seed, 2, KEYS, n, WIDTH),
        "key": key / np.linalg.norm(key, axis=-1, keepdims=True),
        "value": draw(seed + 1, 2, VALUES, n, OUT),
        "log_gates": gates if kind == "kimi" else gates[..., 0],
    }
    if kind != "linear":
        named["beta"] = 1 / (1 + np.exp(-draw(seed + 3, 2, VALUES, n)))
    return named


def some(named, *index):
    """The arguments at some tokens."""
    axis = {"log_gates": 2, "beta": 2}
    return {
        name: np.take(x, *index, axis=axis.get(name, x.ndim - 2))
        for name, x in named.items()
    }


def call(column, kind, named, **options):
    """The column's outputs and state."""
    options = {
        k: column.positions(v) if k != "state" else column.array(v)
        for k, v in options.items()
    }
    return getattr(column, NAMES[kind])(*map(column.array, named.values()), **options)


def written_out(named, state=None):
    """The outputs of one document and the state after it, one head and one token at a time."""
    query, key, value, gates = (named[k] for k in ("query", "key", "value", "log_gates"))
    batch, heads, n, out = value.shape
    width = key.shape[-1]
    outputs = np.zeros(value.shape)
    last = np.zeros((batch, heads, width, out)) if state is None else np.array(state)
    for b, h in np.ndindex(batch, heads):
        own = h // (heads // key.shape[1])
        for t in range(n):
            memory, k = last[b, h], key[b, own, t]
            memory = np.reshape(np.exp(gates[b, h, t]), (-1, 1)) * memory
            new = value[b, h, t]
            if "beta" in named:
                new = named["beta"][b, h, t] * (new - k @ memory)
            last[b, h] = memory + np.outer(k, new)
            outputs[b, h, t] = query[b, own, t] @ last[b, h] / np.sqrt(width)
    return outputs, last


def documents_alone(named, state):
    """What `written_out` gives for each document of MASK and DOCUMENTS, put back in place."""
    outputs, last = np.zeros(named["value"].shape), np.array(state)
    for b in range(2):
        row = {name: x[b : b + 1] for name, x in named.items()}
        tokens = np.flatnonzero(MASK[b])
        cuts = np.flatnonzero(np.diff(DOCUMENTS[b, tokens])) + 1
        before = state[b : b + 1]
        for document in np.split(tokens, cuts):
            outputs[b][:, document], last[b : b + 1] = written_out(
                some(row, document), before
            )
            before = None
    return outputs, last
