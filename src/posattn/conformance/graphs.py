"""ONNX graphs of states, which are scans over the tokens, and of selections, which are top-k."""

import numpy as np

__all__ = ["GRAPHS"]

STEP = """one = Constant <value_ints = [-1]> () column = Unsqueeze (a_t, one) A = Mul (S, column)
said = Einsum <equation = "bhkv,bhk->bhv"> (A, k_t) gap = Sub (v_t, said) part = Mul (w_t, gap)
news = Einsum <equation = "bhk,bhv->bhkv"> (k_t, part) T = Add (A, news)
y_t = Einsum <equation = "bhkv,bhk->bhv"> (T, q_t)"""
SCORES = """dots = Einsum <equation = "bhid,bjd->bhij"> (q, k) scaled = Mul (dots, scale)
found = Relu (scaled) s = Einsum <equation = "bhij,bih->bij"> (found, w) """
CHOSEN = """seen = Where (mask, s, none) best, at = TopK (seen, count) hidden = Equal (best, none)
far = Where (hidden, n, at) rising, way = TopK <largest = 0> (far, count)
end = Equal (rising, n) y = Where (end, minus, rising)"""


def constants(**values):
    """A node for each number, or list of whole numbers."""
    kinds = {name: "ints" if isinstance(x, list) else "float" for name, x in values.items()}
    nodes = (
        f"{name} = Constant <value_{kinds[name]} = {x}> () " for name, x in values.items()
    )
    return "".join(nodes)


def serving(heads, few):
    """Which of a few heads serves each head."""
    return [head * few // heads for head in range(heads)]


def recurrence(q, k, v, g, beta=None, scale=None, state=None, mask=None, documents=None):
    """`Scan`: a masked token neither fades nor writes, and a document starts by fading all."""
    (batch, heads, n, dim), width = v.shape, k.shape[-1]
    mask = np.ones((batch, n), bool) if mask is None else mask
    documents = np.broadcast_to(0 if documents is None else documents, (batch, n))
    new = np.diff(documents, prepend=documents[:, :1]) != 0
    inputs = {"q": q, "k": k, "v": v, "g": g, "mask": mask[:, None], "new": new[:, None]}
    inputs |= {"state": np.zeros((batch, heads, width, dim)) if state is None else state}
    inputs |= {} if beta is None else {"beta": beta}
    body = constants(zero=0.0, unit=1.0, last=[-1], served=serving(heads, k.shape[1]))
    body += constants(scale=float(scale or width**-0.5))
    body += f"""qs = Mul (q, scale) qh = Gather <axis = 1> (qs, served)
    kh = Gather <axis = 1> (k, served) seen = Unsqueeze (mask, last)
    start = Unsqueeze (new, last) e = Exp (g)
    fades = {"Unsqueeze (e, last)" if g.ndim == 3 else "Identity (e)"}
    held = Where (seen, fades, unit) kept = Where (start, zero, held)
    b = {"Identity (unit)" if beta is None else "Unsqueeze (beta, last)"}
    write = Where (seen, b, zero) """
    rows, step = ("qh", "kh", "v", "kept", "write"), STEP
    body += "".join(f"{x}_t = Transpose <perm = [2, 0, 1, 3]> ({x}) " for x in rows)
    if beta is None:
        step = step.replace("Sub (v_t, said)", "Identity (v_t)")
    given = ", ".join(f"float[] {x}" for x in ("S", "q_t", "k_t", "v_t", "a_t", "w_t"))
    token = f"token ({given}) => (float[] T, float[] y_t) {{ {step} }}"
    body += f"""final, ys = Scan <num_scan_inputs = 5, body = {token}>
    (state, {"_t, ".join(rows)}_t) all = Transpose <perm = [1, 2, 0, 3]> (ys)
    y = Where (seen, all, zero)"""
    yield "", 18, body, inputs


def scores(q, k, w=None, scale=None):
    """`Relu` between two products."""
    w = np.ones((len(q), q.shape[2], q.shape[1])) if w is None else w
    body = constants(scale=float(scale or q.shape[-1] ** -0.5)) + SCORES
    yield "", 13, f"{body} y = Identity (s)", {"q": q, "k": k, "w": w}


def visible(shape, mask=None, causal=False):
    """What a query may attend to."""
    past = np.tri(*shape[-2:], shape[-1] - shape[-2], bool) if causal else True
    return np.broadcast_to(past & np.asarray(True if mask is None else mask), shape)


def keys(s, count, mask=None, causal=False):
    """`TopK`, whose equal scores go to the earlier key, and once more to sort the places."""
    body = constants(
        none=-np.inf, minus=[-1], n=[s.shape[-1]], count=[min(count, s.shape[-1])]
    )
    yield "", 13, body + CHOSEN, {"s": s, "mask": visible(s.shape, mask, causal)}


def indexer(query, key, w, count, rotary_dim=None, layout="half", last=False, base=10000.0):
    """`RotaryEmbedding`, the scores, and `TopK`."""
    (batch, _, n_q, width), n_k = query.shape, key.shape[-2]
    turn = rotary_dim or width
    angles = np.arange(n_k)[:, None] * base ** (-np.arange(0, turn, 2) / turn)
    angles = np.broadcast_to(angles, (batch, n_k, turn // 2))
    inputs = {"query": query, "key": key[:, None], "w": w}
    inputs |= {"mask": visible((batch, n_q, n_k), causal=True)}
    sizes = [width - turn, turn] if last else [turn, width - turn]
    body = constants(sizes=sizes, axis=[1], none=-np.inf, minus=[-1], n=[n_k])
    body += constants(count=[min(count, n_k)], scale=width**-0.5)
    for x, name, n in (("q", "query", n_q), ("kk", "key", n_k)):
        inputs |= {
            f"{name}_{f.__name__}": f(angles[:, n_k - n :]) for f in (np.cos, np.sin)
        }
        part, whole = (
            f"{x}_rest, {x}_{to}" if last else f"{x}_{to}, {x}_rest" for to in "ab"
        )
        body += f"""{part} = Split <axis = -1> ({name}, sizes)
        {x}_b = RotaryEmbedding <interleaved = {int(layout == "interleaved")}>
        ({x}_a, {name}_cos, {name}_sin) {x} = Concat <axis = -1> ({whole}) """
    yield "", 23, f"{body} k = Squeeze (kk, axis) {SCORES} {CHOSEN}", inputs


def selected(q, k, v, select, mask=None, causal=False, scale=None):
    """`Attention`, whose mask is where a place is equal to one that was chosen."""
    (batch, heads, n_q, width), n_k = q.shape, k.shape[-2]
    inputs = {"q": q, "k": k, "v": v, "select": select}
    inputs |= {"mask": visible((batch, 1, n_q, n_k), mask, causal)}
    body = constants(last=[-1], places=[*range(n_k)], axis=[-2])
    body += constants(served=serving(heads, select.shape[1]))
    body += f"""each = Gather <axis = 1> (select, served) column = Unsqueeze (each, last)
    hit = Equal (column, places) h = Cast <to = 1> (hit)
    most = ReduceMax <keepdims = 0> (h, axis) chosen = Cast <to = 9> (most)
    m = And (chosen, mask) y = Attention <scale = {float(scale or width**-0.5)}> (q, k, v, m)"""
    yield "", 23, body, inputs


GRAPHS = dict.fromkeys(("linear_attention", "gated_delta", "kimi_delta"), recurrence)
GRAPHS |= {"indexer_scores": scores, "select_keys": keys, "indexer": indexer}
GRAPHS |= {"selected_attention": selected}
