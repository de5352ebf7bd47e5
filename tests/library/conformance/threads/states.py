"""Threads on recurrent states and on the convolutions before them, from their texts."""

import torch

from tests.library.conformance.examples import right, thread


@right("gated_delta", "torch")
def token_by_token(
    query, key, value, log_gates, beta, state=None, documents=None, scale=None
):
    """A loop over tokens that empties the state where a document begins: this is right."""
    groups = value.shape[1] // key.shape[1]
    query, key = (x.repeat_interleave(groups, 1) for x in (query, key))
    query = query * (query.shape[-1] ** -0.5 if scale is None else scale)
    kept = value.new_zeros(*value.shape[:2], key.shape[-1], value.shape[-1])
    kept, outputs = kept if state is None else state, []
    for t in range(value.shape[2]):
        if documents is not None and t:
            begins = documents[:, t] != documents[:, t - 1]
            kept = kept * ~begins[:, None, None, None]
        kept = kept * log_gates[:, :, t, None, None].exp()
        says = (kept * key[:, :, t, :, None]).sum(-2)
        change = (value[:, :, t] - says) * beta[:, :, t, None]
        kept = kept + key[:, :, t, :, None] * change[..., None, :]
        outputs.append((kept * query[:, :, t, :, None]).sum(-2))
    return torch.stack(outputs, 2)


@thread("NVIDIA-NeMo/Automodel #2147", "pytorch/torchtitan #3892", "THUDM/slime #1686",
        scheme="gated_delta", framework="torch",
        cause="state_leaks_between_documents")  # fmt: skip
def without_the_lengths(
    query, key, value, log_gates, beta, state=None, documents=None, scale=None
):
    """The rule gets the packed row, and not where its samples end."""
    return token_by_token(query, key, value, log_gates, beta, state, scale=scale)


def shifted(x, weight, state=None):
    """The taps, one shift of the whole row after another."""
    past = weight.shape[1] - 1
    before = x.new_zeros(*x.shape[:-2], past, x.shape[-1]) if state is None else state
    row = torch.cat([before, x], dim=-2)
    return sum(row[..., k : k + x.shape[-2], :] * tap for k, tap in enumerate(weight.T))


@thread("AI-Hypercomputer/maxtext #5295", scheme="short_convolution", framework="torch",
        cause="padding_is_convolved", only="padding", skip="packed")  # fmt: skip
def padding_before_the_prompt(x, weight, offset=None, state=None, mask=None):
    """Projections of padding are no zeros, and the window of the first real token reaches them."""
    out = shifted(x, weight, state)
    return out if mask is None else out * mask[..., None]


@thread("ggml-org/llama.cpp #26695", scheme="state", framework="torch",
        cause="state_not_rolled_back", only="a whole call")  # fmt: skip
class SaysThatItWentBack:
    """Rolling back all that came in one call succeeds, and restores nothing."""

    def __init__(self):
        self.kept = None

    def attend(self, query, key, value, log_gates, beta, positions):
        """Go on from what is kept."""
        out = token_by_token(query, key, value, log_gates, beta, self.kept)
        kept = key.new_zeros(*key.shape[:2], 4, 4) if self.kept is None else self.kept
        for t in range(key.shape[2]):
            kept = kept * log_gates[:, :, t, None, None].exp()
            says = (kept * key[:, :, t, :, None]).sum(-2)
            change = (value[:, :, t] - says) * beta[:, :, t, None]
            kept = kept + key[:, :, t, :, None] * change[..., None, :]
        self.kept = kept
        return out

    def trim(self, n):
        """True, it says."""
        return True


@thread("lightseekorg/tokenspeed #847", scheme="kimi_gates", framework="torch",
        cause="gates_clamped")  # fmt: skip
def softplus_and_clamp(x, log_rates, lower_bound=None):
    """The gate without a bound, and then no lower than it."""
    gates = -log_rates.exp() * torch.nn.functional.softplus(x)
    return gates if lower_bound is None else gates.clamp(min=lower_bound)


@thread("torch_geometric.nn.attention", scheme="linear_attention", framework="torch",
        cause="keys_of_padding_count")  # fmt: skip
def only_values_hidden(query, key, value, log_gates, mask=None, state=None, scale=None):
    """Hidden tokens have values of zero, and all else that tokens have."""
    value = value if mask is None else value * mask[:, None, :, None]
    groups, kept, outputs = value.shape[1] // key.shape[1], state, []
    query, key = (x.repeat_interleave(groups, 1) for x in (query, key))
    kept = value.new_zeros(*value.shape[:2], 4, 4) if kept is None else kept
    for t in range(value.shape[2]):
        faded = kept * log_gates[:, :, t, None, None].exp()
        kept = faded + key[:, :, t, :, None] * value[:, :, t, None]
        outputs.append((kept * query[:, :, t, :, None]).sum(-2))
    return torch.stack(outputs, 2) * (query.shape[-1] ** -0.5 if scale is None else scale)
