"""Faults of recurrent layers: of what fades, is written and read, and of what should be apart."""

import numpy as np

from posattn import reference
from posattn.conformance.cases.states import State, bounded_gates
from posattn.conformance.faults.registry import fault, half_precision, line, misuse, misuses
from posattn.conformance.steps import played
from posattn.reference.attention.documents import document_starts
from posattn.reference.cases import first_of

RULES = ("gated_delta", "kimi_delta")
ALL = ("linear_attention", *RULES)


class Recurrence:
    """A state that fades, is written to and is read, token by token: this is right."""

    def __call__(
        self, query, key, value, log_gates, beta=None, *, state=None, mask=None,
        documents=None, scale=None,
    ):  # fmt: skip
        """The outputs of all tokens."""
        batch, n = value.shape[:-3], value.shape[-2]
        groups = value.shape[-3] // key.shape[-3]
        query, key = (self.shared(x, groups) for x in (query, key))
        scale = query.shape[-1] ** -0.5 if scale is None else scale
        gates = self.gates(log_gates if log_gates.ndim == 4 else log_gates[..., None])
        there = np.broadcast_to(True if mask is None else self.masked(mask), (*batch, n))
        starts = self.starts(documents, there, (*batch, n))
        sizes = (*value.shape[:-2], key.shape[-1], value.shape[-1])
        state = np.zeros(sizes) if state is None else self.begin(state)
        outputs = np.zeros(value.shape)
        for t in range(n):
            here, start = (x[..., t, None, None, None] for x in (there, starts))
            fresh = np.where(start, 0, state)
            k, v = key[..., t, :, None], value[..., t, None, :]
            b = None if beta is None else beta[..., t, None, None]
            faded = self.faded(fresh, gates[..., t, :, None])
            written = self.written(faded, fresh, k, v, b)
            new = self.after(faded + k * written, gates[..., t, :, None])
            read = self.read(new, fresh).mT @ query[..., t, :, None]
            outputs[..., t, :] = np.where(here, scale * read, 0)[..., 0]
            state = np.where(here, new, self.absent(state, faded))
        return outputs

    def shared(self, x, groups):
        """Each head of keys serves neighboring heads of values."""
        return np.repeat(x, groups, axis=-3)

    def gates(self, log_gates):
        """The gates of all tokens."""
        return log_gates

    def masked(self, mask):
        """Which tokens are there."""
        return mask

    def starts(self, documents, there, shape):
        """Which tokens begin another document."""
        return document_starts(documents, there, shape)

    def begin(self, state):
        """The state before the first token."""
        return state

    def faded(self, state, gate):
        """The state before a token writes."""
        return np.exp(gate) * state

    def written(self, faded, state, key, value, beta):
        """What a token writes for its key."""
        return value if beta is None else beta * (value - key.mT @ faded)

    def after(self, state, gate):
        """The state once a token has written."""
        return state

    def read(self, new, old):
        """The state that a query reads."""
        return new

    def absent(self, state, faded):
        """The state after a token that is not there."""
        return state


def instead_of(method, *schemes, seen=""):
    """Enter a recurrence that has a function as one of its methods."""

    def enter(wrong):
        made = type(
            wrong.__name__, (Recurrence,), {"__doc__": wrong.__doc__, method: wrong}
        )
        line(wrong.__name__, made(), wrong.__doc__, *schemes, seen=seen)

    return enter


PACKED = "NVIDIA-NeMo/Automodel #2147, pytorch/torchtitan #3892, THUDM/slime #1686"
# fmt: off
LINES = (  # a method, the schemes, a name, the wrong method, and a sentence
    ("starts", ALL, "state_leaks_between_documents", lambda self, documents, *there: there[0] & False,
     "The state runs on over the border of a document: packed texts read one another."),
    ("masked", ALL, "padding_is_written", lambda self, mask: mask | True,
     "Padding writes to the state as tokens do: the mask is ignored."),
    ("absent", ALL, "padding_fades_the_state", lambda self, state, faded: faded,
     "Padding writes nothing, but the state fades there: what stands before it counts less."),
    ("begin", ALL, "state_ignored", lambda self, state: 0 * state,
     "The given state is ignored: each call begins anew."),
    ("begin", ALL, "state_transposed", lambda self, state: state.mT,
     "The given state is transposed: its rows are channels of keys, its columns those of values."),
    ("faded", ALL, "gates_ignored", lambda self, state, gate: state,
     "The gates are ignored: the state never fades."),
    ("gates", ALL, "gates_of_the_token_before", lambda self, gates: np.roll(gates, 1, axis=-2),
     "Each token fades by the gate of the token before it."),
    ("read", ALL, "read_before_written", lambda self, new, old: old,
     "The query reads the state of the token before: it should read what its own token has written."),
    ("shared", ALL, "key_heads_in_turns", lambda self, x, groups: np.concatenate([x] * groups, axis=-3),
     "Heads of values take the heads of keys in turns: those that share one are neighbors."),
    ("written", RULES, "added_and_not_replaced", lambda self, faded, state, key, value, beta: beta * value,
     "The value is added to what the state says about its key, and should replace it."),
    ("written", RULES, "corrected_before_the_state_fades",
     lambda self, faded, state, key, value, beta: beta * (value - key.mT @ state),
     "The correction is to what the state said before it faded: it fades first."),
    ("written", RULES, "value_written_whole",
     lambda self, faded, state, key, value, beta: value - beta * (key.mT @ faded),
     "Beta multiplies only what is erased: the value is written whole."),
    ("written", RULES, "beta_ignored",
     lambda self, faded, state, key, value, beta: value - key.mT @ faded,
     "Beta is ignored: each token replaces all that the state says about its key."),
    ("written", RULES, "beta_doubled",
     lambda self, faded, state, key, value, beta: 2 * beta * (value - key.mT @ faded),
     "Beta is doubled, as in models that let it reach 2."),
    ("gates", ("kimi_delta",), "one_gate_for_all_channels", lambda self, gates: gates[..., :1],
     "All channels of a head fade by one gate: each channel of the keys has its own."),
)
# fmt: on
for method, schemes, name, wrong, sentence in LINES:
    wrong.__name__, wrong.__doc__ = name, sentence
    seen = PACKED if method == "starts" else ""
    instead_of(method, *schemes, seen=seen)(wrong)


@instead_of("faded", "kimi_delta")
def gates_of_the_values(self, state, gate):
    """The gates are those of channels of the values: columns of the state fade, and rows should."""
    return np.exp(gate.mT) * state


class FadedLast(Recurrence):
    """The state fades after a token has written: it should fade before."""

    def faded(self, state, gate):
        """As it is."""
        return state

    def after(self, state, gate):
        """It fades."""
        return np.exp(gate) * state


line("faded_after_written", FadedLast(), FadedLast.__doc__, *ALL)


@misuse(*ALL, seen="torch_geometric.nn.attention")
def keys_of_padding_count(definition, query, key, value, *rest, mask=None, **keywords):
    """Only the values of padding are hidden: its keys and gates count, and it reads as tokens do."""
    value = value if mask is None else value * mask[..., None, :, None]
    return definition(query, key, value, *rest, **keywords)


# fmt: off
misuses(  # a name, schemes, the wrong use, a sentence, and threads
    ("not_scaled", ALL,
     lambda definition, *tokens, scale=None, **keywords:
     definition(*tokens, scale=1.0 if scale is None else scale, **keywords),
     "Queries are not divided by the root of their width."),
    ("taps_reversed", ("short_convolution",),
     lambda definition, x, weight, *offset, **keywords: definition(x, weight[:, ::-1], *offset, **keywords),
     "The taps are in the other order: the first one multiplies the token itself."),
    ("convolved_over_documents", ("short_convolution",),
     lambda definition, *tokens, documents=None, **keywords: definition(*tokens, **keywords),
     "The convolution reaches over the border of a document: the first tokens see another text.",
     "NVIDIA-NeMo/Automodel #2147"),
    ("inputs_before_ignored", ("short_convolution",),
     lambda definition, *tokens, state=None, **keywords: definition(*tokens, **keywords),
     "The inputs from before are ignored: each call begins with zeros."),
    ("angle_ignored", ("selective_rotation",),
     lambda definition, x, steps, *, layout, state=None: definition(x, steps, layout=layout),
     "The angle from before is ignored: each call begins at 0."),
)
# fmt: on


# of states over calls


def over_calls(method, *, seen=""):
    """Enter a state that has a function as one of its methods."""

    def enter(wrong):
        made = type(wrong.__name__, (State,), {"__doc__": wrong.__doc__, method: wrong})
        fault("state", seen=seen)(played(made))
        return wrong

    return enter


@over_calls("trim", seen="ggml-org/llama.cpp #26695")
def state_not_rolled_back(self, n):
    """Rollback leaves the state as it is: tokens that were rejected are read later."""


@over_calls("trim")
def rolled_back_one_token_too_few(self, n):
    """Rollback leaves one token too many."""
    State.trim(self, n - 1)


@over_calls("reorder")
def states_not_reordered(self, rows):
    """The rows of the batch are not reordered: a beam goes on with the state of another."""


@over_calls("attend")
def each_call_begins_anew(self, *given):
    """Each call begins with an empty state."""
    self.states = []
    return State.attend(self, *given)


@over_calls("step")
def padding_is_written_to_the_state(self, token, there, together):
    """Padding on the left writes to the state: its tokens should be absent."""
    return State.step(self, token, there | True, together)


@over_calls("step")
def read_before_written_in_decoding(self, token, there, together):
    """A token that comes alone reads the state before it has written: decoding has a program of its own."""
    query = token[0]
    made = State.step(self, token, there, together)
    before = self.states[-2] if together == 1 and len(self.states) > 1 else None
    if before is None:
        return made
    return query @ before * query.shape[-1] ** -0.5


@over_calls("step")
def state_in_bfloat16(self, token, there, together):
    """The state is kept in bfloat16 between tokens: it should be float32 always."""
    made = State.step(self, token, there, together)
    self.states[-1] = half_precision("bfloat16")(self.states[-1])
    return made


# of convolutions


@misuse("short_convolution", seen="AI-Hypercomputer/maxtext #5295")
def padding_is_convolved(definition, *tokens, mask=None, **keywords):
    """Padding enters through the convolution: the first tokens after it see what it holds."""
    made = definition(*tokens, **keywords)
    return made if mask is None else made * mask[..., None]


@misuse("short_convolution")
def padding_takes_places(definition, x, *others, mask=None, **keywords):
    """Padding between tokens counts as zeros: the taps should reach across it."""
    if mask is None:
        return definition(x, *others, **keywords)
    return definition(x * mask[..., None], *others, **keywords) * mask[..., None]


# of rotations


@fault("selective_rotation")
def steps_times_positions(x, steps, *, layout, state=None):
    """A token's step is multiplied by its position: the steps of all tokens before should be summed."""
    angles = steps * np.arange(1, x.shape[-2] + 1)[:, None]
    angles = angles if state is None else angles + state[..., None, :]
    return turned(x, angles, layout)


@fault("selective_rotation")
def steps_before_the_token(x, steps, *, layout, state=None):
    """The sum leaves out the token's own step: scores see the steps of other tokens."""
    angles = np.cumsum(steps, axis=-2) - steps
    return turned(x, angles if state is None else angles + state[..., None, :], layout)


def turned(x, angles, layout):
    """Each pair rotated by its angle."""
    steps = np.diff(angles, axis=-2, prepend=0)
    return first_of(reference.selective_rotation)(x, steps, layout=layout)


@misuse("selective_rotation")
def steps_in_the_other_layout(definition, x, steps, *, layout, state=None):
    """Pairs are those of the other layout."""
    other = "half" if layout == "interleaved" else "interleaved"
    return definition(x, steps, layout=other, state=state)


# of gates


@fault("kimi_gates", seen="lightseekorg/tokenspeed #847")
def gates_clamped(x, log_rates, *, lower_bound=None):
    """The gates are clamped at the bound: a bounded gate is the bound times a sigmoid."""
    made = bounded_gates(x, log_rates)
    return made if lower_bound is None else np.maximum(made, lower_bound)


@fault("kimi_gates")
def bound_ignored(x, log_rates, *, lower_bound=None):
    """The bound is ignored."""
    return bounded_gates(x, log_rates)


@fault("kimi_gates")
def rates_not_exponentiated(x, log_rates, *, lower_bound=None):
    """The rates are taken as they are: they are logarithms."""
    with np.errstate(all="ignore"):
        return bounded_gates(x, np.log(log_rates), lower_bound=lower_bound)
