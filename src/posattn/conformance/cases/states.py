"""Cases of recurrent layers: states that fade and are overwritten, and the convolution before them."""

import numpy as np

from posattn import reference
from posattn.conformance.steps import played
from posattn.reference.cases import Cases, draw, first_of


def drawn(n, *, heads=2, batch=1, channels=False, per_key=1, seed=50):
    """Queries, keys, values, log gates and betas of `n` tokens; keys are short, so that states stay small."""
    shape = batch, heads, n
    query, key = (draw(seed + k, batch, heads // per_key, n, 4) for k in range(2))
    value, fades = draw(seed + 2, *shape, 4), (*shape, 4) if channels else shape
    gates, beta = -np.abs(draw(seed + 3, *fades)), (1 + np.abs(draw(seed + 4, *shape))) / 4
    return query, key / 4, value, gates, np.minimum(beta, 1)


ROWS = {"batch": 2, "heads": 1}
MASKS = {
    "padding on the left": [[1, 1, 1, 1, 1, 1], [0, 0, 0, 1, 1, 1]],
    "padding between tokens": [[1, 0, 1, 1, 0, 1], [1, 1, 0, 0, 1, 1]],
    "padding on the right": [[1, 1, 1, 1, 0, 0], [1, 1, 1, 1, 1, 1]],
}
PACKED = {
    "packed documents": [[0, 0, 0, 1, 1, 1], [0, 1, 1, 1, 2, 2]],
    "packed documents of one token": [[0, 1, 2, 3, 3, 3], [5, 5, 5, 5, 5, 4]],
}


def passed(make, **options):
    """Cases of what is hidden and what is apart, `make(n, **sizes)` making the tokens."""
    for name, mask in MASKS.items():
        yield name, make(6, **ROWS), {"mask": np.array(mask, bool)}
    for name, documents in PACKED.items():
        yield name, make(6, **ROWS), {"documents": np.array(documents)}
    both = {"mask": np.array(MASKS["padding between tokens"], bool)}
    both["documents"] = np.array(PACKED["packed documents"][0])
    yield "packed documents, padding between tokens", make(6, **ROWS), both
    yield "all of it, after a text", make(6, **ROWS), {**both, **options}


def recurrence(channels=False, beta=True):
    """A function that yields the cases of one rule."""

    def tokens(n, **sizes):
        made = drawn(n, channels=channels, **sizes)
        return made if beta else made[:-1]

    def cases():
        yield "seven tokens", tokens(7), {}
        yield "one token", tokens(1), {}
        query, key, value, gates, *rest = tokens(7)
        yield "open gates", (query, key, value, 0 * gates, *rest), {}
        yield "gates that are nearly shut", (query, key, value, gates - 5, *rest), {}
        yield "several heads of values for each of keys", tokens(5, heads=4, per_key=2), {}
        yield "a scale of 1", tokens(5), {"scale": 1.0}
        yield "a state from before", tokens(5), {"state": draw(60, 1, 2, 4, 4)}
        if beta:
            one = np.zeros((1, 1, 3, 4)) + np.eye(4)[0]
            facts = one, one, draw(61, 1, 1, 3, 4), 0 * gates[:, :1, :3], np.ones((1, 1, 3))
            yield "three facts about one key", facts, {}
        yield "more than a chunk of 64 tokens", tokens(70, heads=1), {}
        yield from passed(tokens, scale=0.25, state=draw(62, 2, 1, 4, 4))

    return cases


def cases_of(function, what, source, **options):
    """The cases of one rule, whose docstring says what is checked."""
    cases = recurrence(**options)
    cases.__doc__ = what
    name = f"{function.__name__}(...)[0]"
    return Cases(first_of(function), cases, source, name=name, kept=("state",))


def short_convolutions():
    """A causal convolution of each channel: its taps, its state, padding and packed documents."""
    x, weight = draw(70, 2, 6, 3), draw(71, 3, 4)
    yield "four taps", (x, weight), {}
    yield "an offset", (x, weight, draw(72, 3)), {}
    yield "fewer tokens than taps", (x[:, :2], weight), {}
    yield "the last inputs from before", (x[:, :3], weight), {"state": draw(73, 2, 3, 3)}
    before = {"state": draw(74, 2, 3, 3)}
    yield from passed(lambda n, **sizes: (x, weight), **before)


def bounded_gates(x, log_rates, *, lower_bound=None):
    """Log gates of a Kimi layer, `-e^A softplus(x)`, or with a bound, `bound * sigmoid(e^A x)`."""
    rates = np.exp(log_rates)
    if lower_bound is not None:
        return lower_bound / (1 + np.exp(-rates * x))
    return -rates * (np.log1p(np.exp(-np.sqrt(x * x))) + (x + np.sqrt(x * x)) / 2)


def kimi_gates():
    """Log gates of Kimi's delta rule, without a bound and with one, as `-e^A softplus(x)` has none."""
    x, rates = draw(90, 2, 3, 5, 4) + 1 / 32, draw(91, 3, 1, 1) / 4
    yield "no bound", (x, rates), {}
    yield "a bound of 5", (x, rates), {"lower_bound": -5.0}
    yield "a bound of 5, large inputs", (4 * x, rates), {"lower_bound": -5.0}


TOKENS = "query", "key", "value", "log_gates", "beta"


class State:
    """The state after each token is kept, so that it can go back."""

    def __init__(self, *, left_padding=None):
        self.states = []

    def attend(self, *given):
        """Pass the tokens through, and give what each of them reads."""
        *tokens, positions = given
        outputs = []
        for t in range(positions.shape[-1]):
            now = [x[:, :, t : t + 1] for x in tokens]
            outputs.append(
                self.step(now, positions[:, t : t + 1] >= 0, positions.shape[-1])
            )
        return np.concatenate(outputs, axis=-2)

    def step(self, token, there, together):
        """One token of each row, of so many that came together."""
        before = self.states[-1] if self.states else None
        output, state = reference.gated_delta(*token, state=before, mask=there)
        self.states.append(state)
        return output

    def trim(self, n):
        """Forget the newest tokens."""
        self.states = self.states[: len(self.states) - n]

    def reorder(self, rows):
        """Go on in each row of the batch with what another has."""
        self.states = [x[rows] for x in self.states]


def script(*parts, padding=(0, 0, 0)):
    """The steps of a case: a number is of tokens that come together, what else happens has a name."""
    steps, at = [], 0
    for seed, part in enumerate(parts):
        do, n = part if isinstance(part, tuple) else ("attend", part)
        if do == "attend":
            where = np.maximum(at + np.arange(n) - np.array(padding)[:, None], -1)
            tokens = zip(TOKENS, drawn(n, batch=3, seed=100 + 5 * seed), strict=True)
            steps.append({"do": do, **dict(tokens), "positions": where})
            at += n
        else:
            steps.append(
                {"do": do, **({"rows": np.array(n)} if do == "reorder" else {"n": n})}
            )
            at -= n if do == "trim" else 0
    return (steps,)


def states():
    """A recurrent state (gated delta rule) over calls: prompts, single tokens, rollback, beams, padding."""
    yield "a prompt, then one token at a time", script(5, 1, 1), {}
    yield "a prompt in pieces", script(3, 4, 2), {}
    yield "drafts rolled back, some of a call", script(4, 3, ("trim", 2), 1, 1), {}
    yield "drafts rolled back, a whole call", script(4, 3, ("trim", 3), 2, 1), {}
    yield "rolled back into the call before", script(4, 2, ("trim", 3), 1, 2), {}
    beams = ("reorder", [2, 0, 0])
    yield "beams reordered", script(4, beams, 1, ("reorder", [1, 1, 2]), 2), {}
    rows = {"left_padding": [0, 2, 3]}
    yield "rows of different lengths", script(5, 1, 2, padding=rows["left_padding"]), rows


function = played(State)
function.__name__ = "function"
CASES = {
    "state": Cases(
        function, states, "yang2025gated", name="gated_delta, from call to call"
    ),
    "linear_attention": cases_of(
        reference.linear_attention,
        "Attention without the softmax, as a state that fades: Mamba-2, retention and others.",
        "yang2025gated, section 2",
        beta=False,
    ),
    "gated_delta": cases_of(
        reference.gated_delta,
        "The gated delta rule: a state that fades, and says of each key what came last.",
        "yang2025gated, section 3",
    ),
    "kimi_delta": cases_of(
        reference.kimi_delta,
        "Kimi's delta rule: the gated delta rule with a gate for each channel of the keys.",
        "kimi2025linear, section 3",
        channels=True,
    ),
    "short_convolution": Cases(
        first_of(reference.short_convolution),
        short_convolutions,
        "yang2025gated, section 3.4",
        name="short_convolution(...)[0]",
    ),
    "kimi_gates": Cases(
        bounded_gates, kimi_gates, "kimi2025linear", name="kimi_gates, by its formula"
    ),
}
