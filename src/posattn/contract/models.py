"""Checks of whole models: their sizes, and the tokens that they read."""

from collections.abc import Mapping

from posattn.contract.arrays import integer_array
from posattn.contract.numbers import at_least, ends, integer
from posattn.contract.positions import cache_batch, positions_of
from posattn.contract.recurrence import passed

NORMS = ("rms", "layer")


def decoder_sizes(vocab_size, num_layers, hidden_dim, dim, gated):
    """Return the sizes of a decoder; a hidden width that is not given follows from the width."""
    vocab_size = integer("vocab_size", vocab_size, least=1)
    num_layers = integer("num_layers", num_layers, least=1)
    dim = integer("dim", dim, least=1)
    if hidden_dim is None:
        hidden_dim = max(1, 8 * dim // 3 if gated else 4 * dim)
    return vocab_size, num_layers, integer("hidden_dim", hidden_dim, least=1)


def decoder_norm(norm, eps):
    """Reject a norm that is not known; return its eps."""
    if not isinstance(norm, str) or norm not in NORMS:
        raise (ValueError if isinstance(norm, str) else TypeError)(
            f"norm must be 'rms' or 'layer', got {norm!r}"
        )
    return at_least("eps", eps, 0)


def layer_options(given, index):
    """Return the options of the attention of one layer, and a layer that stands in its place or None."""
    options = given(index) if callable(given) else given
    if options is None or hasattr(options, "init_cache"):
        return {}, options
    if not isinstance(options, Mapping):
        raise TypeError(
            "layer_options must be a dictionary or a function of a layer's number that returns one, "
            f"got {options!r}"
        )
    return dict(options), None


def tokens(value, vocab_size, positions=None, *, known=True):
    """Reject tokens that are no rows of the embedding, and positions that are not theirs."""
    integer_array("tokens", value)
    if len(value.shape) == 0:
        raise ValueError("tokens must have shape (*batch, n), got ()")
    if known and 0 not in value.shape:
        for got in ends(value):
            if not 0 <= got < vocab_size:
                raise ValueError(
                    f"tokens must lie between 0 and vocab_size - 1 = {vocab_size - 1}, got {got}"
                )
    if positions is not None:
        integer_array("positions", positions)
        positions_of((*value.shape, vocab_size), positions)


def generation(tokens, max_new_tokens, temperature, rng):
    """Return how many tokens come and the temperature that they are drawn with, 0 for the likeliest."""
    max_new_tokens = integer("max_new_tokens", max_new_tokens, least=1)
    if tokens.shape[-1] == 0:
        raise ValueError(
            f"tokens must hold at least one to go on from, got shape {tuple(tokens.shape)}"
        )
    temperature = at_least("temperature", temperature, 0)
    if temperature > 0 and rng is None:
        raise ValueError(
            f"rng must be given where temperature = {temperature} is above 0, got None"
        )
    return max_new_tokens, temperature


def end_tokens(given, vocab_size):
    """Return the tokens that end a text: none, one or several."""
    several = given if isinstance(given, (list, tuple)) else [given]
    ends = [integer("eos_token_id", one) for one in several if one is not None]
    if max(ends, default=0) >= vocab_size:
        raise ValueError(
            f"eos_token_id must lie between 0 and vocab_size - 1 = {vocab_size - 1}, got {max(ends)}"
        )
    return ends


def caches(given, kept, tokens):
    """Reject what is no cache for each layer that keeps one, with the batch axes of the tokens."""
    num_layers = len(kept)
    if not isinstance(given, (list, tuple)) or len(given) != num_layers:
        kind = TypeError if not isinstance(given, (list, tuple)) else ValueError
        got = type(given).__name__ if kind is TypeError else len(given)
        raise kind(f"cache must hold a cache for each of {num_layers} layers, got {got}")
    for one, keeps in zip(given, kept, strict=True):
        if not keeps:
            continue
        if hasattr(one, "next_positions"):
            cache_batch("tokens", tokens, 1, one)
        elif not hasattr(one, "state"):
            raise TypeError(
                f"cache must hold a cache for each of {num_layers} layers, "
                f"got {type(one).__name__} for one of them"
            )


def next_positions(cache, tokens):
    """Return where the tokens stand by the first cache of several that knows, or None."""
    known = (one for one in cache if hasattr(one, "next_positions"))
    return next((one.next_positions(tokens.shape[-1]) for one in known), None)


def packed(mask, documents, cache, shape, *, states):
    """Reject a mask or numbers of documents that do not hold in all layers, some of which keep a state."""
    passed(None, documents, shape[:-1], shape[-1])
    if documents is not None and (cache is not None or callable(mask)):
        given = "a cache" if cache is not None else "a mask that is a function"
        raise ValueError(f"documents must be None beside {given}, got an array")
    if states and mask is not None:
        raise ValueError(
            "mask must be None where layers keep a state, which it can't act on; give documents, or negative "
            "positions of padding"
        )
