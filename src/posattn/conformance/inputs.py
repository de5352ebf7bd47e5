"""What a model is called with beside its configuration, and what such inputs cannot show."""

from itertools import chain

from posattn.configs import Plan, plan
from posattn.conformance.comparison import COARSE
from posattn.conformance.subject import Subject
from posattn.conformance.vectors import UsageError

__all__ = ["called_with", "placed", "planned", "read_from", "too_coarse", "unseen"]

FEWEST, MOST = 272, 4352  # tokens, if none are given: bfloat16 lacks 257
PAIRED = 1024  # up to so many come in two texts
SECOND = 16  # tokens of a second document
PICTURES = 3, (1, 4, 6), 2, (1, 5, 3)  # words and grids at the beginning of a text


def read_from(folder):
    """The weights of a folder."""
    from posattn.torch.models.layer_plan import state_of as weights_of

    try:
        return weights_of(folder)
    except (OSError, ValueError) as error:
        raise UsageError(str(error)) from None


def planned(config, length):
    """The plan of a configuration, for a text of a length."""
    try:
        return config if isinstance(config, Plan) else plan(config, length=length)
    except (TypeError, ValueError) as error:
        raise UsageError(f"config is not clear: {error}") from None


def called_with(model, described, tokens):
    """What the model is called with, by name, or as `tokens`."""
    import torch

    if tokens is None or isinstance(tokens, int):
        tokens = drawn(model, described, tokens)
        if {layer.causal for layer in described.layers} == {True, False}:
            tokens = {"input_ids": tokens, "decoder_input_ids": tokens}
    given = tokens if isinstance(tokens, dict) else {"tokens": tokens}
    tokens = given.get("tokens", given.get("input_ids"))
    if not (isinstance(tokens, torch.Tensor) and tokens.ndim == 2):
        raise UsageError(
            f"tokens must be (b, n), a dictionary with input_ids, or a number, got {given!r:.80}"
        )
    positions = given.get("position_ids")
    if positions is not None and positions.ndim > 2 and len(positions) not in (3, 4):
        raise UsageError(
            f"position_ids must be (n), (b, n) or (3, b, n), got {tuple(positions.shape)}"
        )
    return given


def placed(model, described, given, packed):
    """Random tokens, and where they stand: in a row of two documents, or with pictures before a text."""
    import torch

    from posattn.torch import mrope_positions

    if set(given) != {"tokens"}:
        if packed:
            raise UsageError("packed needs a decoder and tokens (b, n), a number, or none")
        return given
    tokens, takes = given["tokens"], Subject(model).takes
    where, more = torch.arange(n := tokens.shape[-1]), {}
    if packed:
        tokens = torch.cat([tokens, tokens[:, :SECOND]], -1)
        where = torch.cat([where, where[:SECOND]]).expand(len(tokens), -1)
        more = takes("use_cache", False)
        if not takes("position_ids", where):
            raise UsageError("packed needs a model that takes position_ids")
    else:
        axes = any(x.rope and len(x.rope.sections) == 3 for x in described.layers)
        text = n - len(mrope_positions(PICTURES)[0])
        if not (axes and text > 0 and takes("position_ids", where)):
            return given
        where = mrope_positions([*PICTURES, text])[0].T[:, None].expand(-1, len(tokens), -1)
    return {"tokens": tokens, "position_ids": where.to(tokens.device), **more}


def drawn(model, described, n):
    """Random tokens, enough to go beyond windows and chunks that are not too large."""
    import torch

    if n is not None and n < 2:
        raise UsageError(f"tokens must be at least 2, got {n}")
    tables = (part for part in model.modules() if isinstance(part, torch.nn.Embedding))
    table = getattr(model, "get_input_embeddings", lambda: next(tables, None))()
    if table is None:
        raise UsageError("tokens must be given for a model without torch.nn.Embedding")
    ends = [4 + end for end in reaches(described) if 4 + end <= MOST]
    rng = torch.Generator().manual_seed(0)
    rows = [layer.table[1] for layer in described.layers if layer.table is not None]
    n = min([max([FEWEST, *ends]), *rows]) if n is None else n
    shape = 1 if n > PAIRED else 2, n
    tokens = torch.randint(0, table.num_embeddings, shape, generator=rng)
    return tokens.to(table.weight.device)


def reaches(described):
    """All windows and chunks of a model."""
    ends = ((layer.window, layer.chunk) for layer in described.layers)
    return sorted(set(chain.from_iterable(ends)) - {None})


def unseen(described, n):
    """What such inputs cannot show."""
    for end in reaches(described):
        if n <= end:
            yield f"{n} positions are too few to see a window or chunk of {end}: give longer inputs"


def too_coarse(seen):
    """What a model in half precision cannot show."""
    kinds = {str(x.dtype).rpartition(".")[2] for x in seen.values()}
    for name in sorted(kinds & set(COARSE)):
        yield (
            f"{name} makes and hides small differences, such as of a slow pair that is scaled wrongly: "
            "give model.float() to be sure"
        )
