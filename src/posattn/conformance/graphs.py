"""ONNX graphs of states, which are scans over the tokens, and of selections, which are top-k."""

import numpy as np

from posattn.conformance.cases.states import State

__all__ = ["GRAPHS"]

STEP = """one = Constant <value_ints = [-1]> () column = Unsqueeze (a_t, one) A = Mul (S, column)
said = Einsum <equation = "bhkv,bhk->bhv"> (A, k_t) gap = Sub (v_t, said) part = Mul (w_t, gap)
news = Einsum <equation = "bhk,bhv->bhkv"> (k_t, part) T = Add (A, news)
y_t = Einsum <equation = "bhkv,bhk->bhv"> (T, q_t)"""
SCORES = """dots = Einsum <equation = "bhid,bjd->bhij"> (q, k) scaled = Mul (dots, scale)
found = Relu (scaled) s = Einsum <equation = "bhij,bih->bij"> (found, w) """
BEST = """seen = Where (mask, s, none) best, at = TopK (seen, count)
hidden = Equal (best, none) """
RISING = """rising, way = TopK <largest = 0> (far, places) end = Equal (rising, n)
y = Where (end, minus, rising)"""
CHOSEN = f"{BEST} far = Where (hidden, n, at) places = Identity (count) {RISING}"


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


def recurrence(q, k, v, g, beta=None, scale=None, state=None, mask=None, documents=None,
               output="Where (seen, all, zero)"):  # fmt: skip
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
    y = {output}"""
    yield "", 18, body, inputs


def calls(steps, left_padding=None):
    """Two models for each call: from the state before it to its outputs, and to the state after it."""
    kept = State()
    for place, step in enumerate(steps):
        do, *given = step.values()
        if do != "attend":  # what an engine does with states between the models
            getattr(kept, do)(*given)
            continue
        options = {
            "state": kept.states[-1] if kept.states else None,
            "mask": given[-1] >= 0,
        }
        y = kept.attend(*given)
        _, opset, body, inputs = next(recurrence(*given[:-1], **options))
        yield f"step {place}", opset, body, inputs | {"y": y}
        body = next(recurrence(*given[:-1], **options, output="Identity (final)"))[2]
        yield f"step {place} state", opset, body, inputs | {"y": kept.states[-1]}


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


def blocks(s, count, size, mask=None, causal=False):
    """`ReduceMax` over blocks, of which the query's own counts as the best, and `TopK`."""
    *batch, n_q, n_k = s.shape
    many = -(-n_k // size)
    own = np.arange(n_k - n_q, n_k)[:, None] // size == np.arange(many)
    inputs = {"s": s, "mask": visible(s.shape, mask, causal), "own": own}
    count, axes = min(count, many), len(batch) + 2
    body = constants(none=-np.inf, most=np.inf, minus=[-1], n=[n_k], size=[size])
    body += constants(pads=[0] * (2 * axes - 1) + [many * size - n_k], last=[-1])
    body += constants(cut=[*batch, n_q, many, size], flat=[*batch, n_q, count * size])
    body += constants(count=[count], places=[count * size], within=[*range(size)])
    body += f"""seen = Where (mask, s, none) whole = Pad (seen, pads, none)
    parts = Reshape (whole, cut) tops = ReduceMax <keepdims = 0> (parts, last)
    ranked = Where (own, most, tops) best, at = TopK (ranked, count) first = Mul (at, size)
    column = Unsqueeze (first, last) each = Add (column, within) tokens = Reshape (each, flat)
    found = GatherElements <axis = {axes - 1}> (whole, tokens) hidden = Equal (found, none)
    far = Where (hidden, n, tokens) {RISING}"""
    yield "", 18, body, inputs


def members(mask, size):
    """The tokens of each group, -1 where it is not complete, and all tokens before all padding."""
    order = np.argsort(~mask, axis=-1, kind="stable")
    many = mask.shape[-1] // size
    found = order[:, : many * size].reshape(-1, many, size)
    complete = np.arange(many) < mask.sum(-1, keepdims=True) // size
    return np.where(complete[..., None], found, -1), order


def groups(s, count, size, n_k, mask=None, causal=False):
    """`TopK` of complete groups, `GatherND` of their tokens, and those after the last group."""
    batch, n_q, many = s.shape
    mask = np.ones((batch, n_k), bool) if mask is None else mask
    past = np.tri(n_q, n_k, n_k - n_q, bool) if causal else np.ones((n_q, n_k), bool)
    seen = (past & mask[:, None]).sum(-1)[..., None]
    inputs = {"s": s, "mask": np.arange(many) < seen // size}
    inputs["members"], order = members(mask, size)
    rest = seen // size * size + np.arange(size - 1)
    order = np.pad(order, [(0, 0), (0, size)])
    after = np.take_along_axis(order[:, None], rest, axis=-1)
    inputs |= {"rest": np.where(rest < seen, after, n_k)}
    count = min(count, many)
    body = constants(none=-np.inf, minus=[-1], n=[n_k], count=[count], last=[-1])
    body += constants(flat=[batch, n_q, count * size], places=[count * size + size - 1])
    body += f"""{BEST} row = Unsqueeze (at, last) each = GatherND <batch_dims = 1> (members, row)
    away = Unsqueeze (hidden, last) held = Where (away, n, each) tokens = Reshape (held, flat)
    far = Concat <axis = -1> (tokens, rest) {RISING}"""
    yield "", 13, body, inputs


def grouped(k, size, gates=None, mask=None, overlap=False):
    """`Softmax` of the gates of each group; with `overlap`, of first halves and second ones."""
    n, width = k.shape[-2:]
    mask = np.ones((len(k), n), bool) if mask is None else mask
    own = (members(mask, size)[0][..., None] == np.arange(n)).any(-2)
    gates = np.zeros_like(k) if gates is None else gates
    if overlap:
        before = np.roll(own, 1, axis=1) & own.any(-1, keepdims=True)
        before[:, :1] = False
        own = np.concatenate([before, own], axis=-1)
    body = constants(low=-1e30, zero=0.0, one=[1], last=[-1])
    body += constants(half=[width // 2] * 2) if overlap else ""
    for x, name in (("k", "keys"), ("z", "logits")):
        halves = f"{x}a, {x}b = Split <axis = -1> ({x}, half)"
        joined = f"{halves} {name} = Concat <axis = -2> ({x}a, {x}b) "
        body += joined if overlap else f"{name} = Identity ({x}) "
    body += """rows = Unsqueeze (logits, one) there = Unsqueeze (own, last)
    kept = Where (there, rows, low) p = Softmax <axis = -2> (kept)
    weights = Where (there, p, zero) y = Einsum <equation = "bgnd,bnd->bgd"> (weights, keys)"""
    yield "", 13, body, {"k": k, "z": gates, "own": own}


def turning(x, steps, layout="interleaved", state=None):
    """`CumSum`, whose angles rotate pairs."""
    half = x.shape[-1] // 2
    pairs = np.arange(2 * half).reshape((2, half) if layout == "half" else (half, 2))
    pairs = pairs if layout == "half" else pairs.T
    state = np.zeros_like(steps[..., 0, :]) if state is None else state
    body = constants(first=pairs[0].tolist(), second=pairs[1].tolist(), axis=[-2])
    body += constants(order=np.argsort(pairs, axis=None).tolist())
    body += """along = Constant <value_int = -2> () sums = CumSum (steps, along)
    before = Unsqueeze (state, axis) angle = Add (sums, before) c = Cos (angle) s = Sin (angle)
    a = Gather <axis = -1> (x, first) b = Gather <axis = -1> (x, second) ac = Mul (a, c)
    bs = Mul (b, s) as = Mul (a, s) bc = Mul (b, c) left = Sub (ac, bs) right = Add (as, bc)
    both = Concat <axis = -1> (left, right) y = Gather <axis = -1> (both, order)"""
    yield "", 14, body, {"x": x, "steps": steps, "state": state}


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
GRAPHS |= {"state": calls}
GRAPHS |= {"indexer_scores": scores, "select_keys": keys, "indexer": indexer}
GRAPHS |= {"select_blocks": blocks, "select_groups": groups, "group_keys": grouped}
GRAPHS |= {"selected_attention": selected, "selective_rotation": turning}
