"""What the heads of a released model look at, which pairs they use, and what is lost without them."""

from functools import cache

import torch
from torch import nn

from posattn import torch as pt
from tests.nightly.real import faults, released

TEXT, PIECES, LENGTH, SHORT = "King James", 8, 256, 128  # losses are of short pieces
PERIOD = 32  # random tokens that repeat, and where losses begin to count
SPECIAL, NEWLINE = 17, 198  # how many tokens are no words, and the token of a new line
CHOSEN, DRAWS = 5, 2  # heads of a kind, and groups of others of the same layers
KINDS = {"previous": 1, "induction": PERIOD - 1, "first": 0}  # how far back each looks


def text(length):
    """Pieces of a text, `(8, length)`."""
    return released.read(TEXT, PIECES * length).reshape(PIECES, length)


def repeated():
    """Sequences of 32 different random tokens, twice: `(8, 64)`."""
    rng = torch.Generator().manual_seed(0)
    words = released.tokenizer().get_vocab_size() - SPECIAL
    rows = [torch.randperm(words, generator=rng)[:PERIOD] for _ in range(PIECES)]
    return torch.stack(rows).repeat(1, 2) + SPECIAL


@torch.inference_mode()
def by_layer(decoder, tokens, *measures):
    """What each finds from a layer's weights, rotated queries and keys, `(layers, *its axes)`."""
    x, found, positions = decoder.embedding(tokens), [], torch.arange(tokens.shape[-1])
    for block in decoder.blocks:
        layer, read = block.attention, block.attention_norm(x)
        q = pt.split_heads(layer.query(read), layer.num_heads)
        k = pt.split_heads(layer.key(read), layer.num_kv_heads)
        k = k.repeat_interleave(layer.num_heads // layer.num_kv_heads, 1)
        given = (
            block.attention_weights(x),
            *(layer.rotate(each, positions) for each in (q, k)),
        )
        found.append([measure(*given) for measure in measures])
        x, _ = block(x)
    return [torch.stack(each) for each in zip(*found, strict=True)]


def scored(weights, q, k):
    """The scores of the first and of the previous token, and the distance, `(3, batch, h)`."""
    at, later = torch.arange(weights.shape[-1]), weights[..., 1:]
    back = (at[:, None] - at[1:]).clamp(min=0)
    far = (later * back).sum((-2, -1)) / later.sum((-2, -1))  # but for the first token
    return torch.stack(
        [pt.first_token_score(weights), pt.previous_token_score(weights), far]
    )


def norms(weights, q, k):
    """The mean norm of each pair in queries and keys, the first token left out, `(2, h, pairs)`."""
    both = torch.stack([q, k])[..., 1:, :].unflatten(-1, (2, -1))
    return both.norm(dim=-2).mean((1, -2))


def leads(weights, q, k):
    """How far each pair puts the score of what a kind looks at above the mean, `(kinds, h, pairs)`."""
    at, found = torch.arange(PERIOD, q.shape[-2]), []
    mean = k[..., 1:, :].cumsum(-2)[..., at - 1, :] / at[:, None]
    for back in KINDS.values():
        wanted = k[..., at - back, :] if back else k[..., :1, :]
        parts = q[..., at, :] * (wanted - mean) / q.shape[-1] ** 0.5
        found.append(parts.unflatten(-1, (2, -1)).sum(-2).mean((0, -2)))
    return torch.stack(found)


@cache
def observed():
    """The scores of each kind and the distance, `(layers, batch, h)`, norms, and leads by pair."""
    decoder = released.decoder()
    of_text, sizes = by_layer(decoder, text(LENGTH), scored, norms)
    again, by_pair = by_layer(
        decoder,
        repeated(),
        lambda weights, q, k: pt.induction_score(weights, PERIOD),
        leads,
    )
    first, previous, far = of_text.unbind(1)
    scores = {"first": first, "previous": previous, "induction": again, "distance": far}
    return scores, sizes, by_pair


def strongest(kind):
    """The heads with the highest scores, as layer and head."""
    scores = observed()[0][kind]
    best = scores.mean(1).flatten().topk(CHOSEN)[1].tolist()
    return [divmod(each, scores.shape[-1]) for each in best]


def attention():
    """Scores and share of the slow pairs of all heads; by piece and by pair, the strongest's."""
    scores, sizes, by_pair = observed()
    found = {kind: rounded(each.mean(1)) for kind, each in scores.items()}
    for number, kind in enumerate(KINDS):
        layer, head = torch.tensor(strongest(kind)).T
        found[f"strongest {kind}"] = rounded(scores[kind][layer, :, head])
        found[f"leads of {kind}"] = rounded(by_pair[layer, number, head])
    product = sizes.prod(1)
    slow = product[..., product.shape[-1] // 2 :].sum(-1) / product.sum(-1)
    found |= {"slow": rounded(slow), "norms": rounded(sizes.mean(2))}
    return found | {"layers": rounded(scores["first"].mean(-1))}


@torch.inference_mode()
def losses(decoder, tokens, **options):
    """The mean loss of each piece from position 32 on."""
    logits = decoder(tokens, **options)[:, PERIOD - 1 : -1]
    each = nn.functional.cross_entropy(logits.mT, tokens[:, PERIOD:], reduction="none")
    return rounded(each.mean(1))


def hidden(token, begin):
    """A mask that hides a token from those that stand at `begin` or later."""
    return lambda i, j: ~((j == token)[..., None, :] & (i >= begin)[..., :, None])


def first_token():
    """The loss with the first token, or another, hidden from all or from late ones, or replaced."""
    decoder, tokens = released.decoder(), text(SHORT)
    cases = {"all": (0, 1), "late": (0, PERIOD - 1), "another": (PERIOD // 2, PERIOD - 1)}
    found = {"nothing": losses(decoder, tokens)}
    for name, case in cases.items():
        found[name] = losses(decoder, tokens, mask=hidden(*case))
    tokens[:, 0] = NEWLINE
    return found | {"replaced": losses(decoder, tokens)}


def without(decoder, heads):
    """A decoder in which each of these heads gives, at every token, its mean over the tokens."""
    made = faults.copied(decoder)
    for layer, head in heads:
        attention = made.blocks[layer].attention

        def averaged(module, given, head=head, count=attention.num_heads):
            x = given[0].unflatten(-1, (count, -1)).clone()
            x[..., head, :] = x[..., head, :].mean(-2, keepdim=True)
            return x.flatten(-2)

        attention.output.register_forward_pre_hook(averaged)
    return made


def ablation():
    """The loss without the strongest heads of a kind, and without others of the same layers."""
    rng, decoder = torch.Generator().manual_seed(0), released.decoder()
    groups, taken = {"none": []}, {head for kind in KINDS for head in strongest(kind)}
    for kind in ("previous", "induction"):
        groups[kind] = strongest(kind)
        for draw in range(DRAWS):
            group = groups[f"beside {kind}, {draw}"] = []
            for layer, _ in strongest(kind):
                free = sorted({(layer, head) for head in range(9)} - taken - set(group))
                group.append(free[torch.randint(len(free), (), generator=rng)])
    read = {"text": text(SHORT), "repeated": repeated()}
    return {
        name: {on: losses(without(decoder, group), given) for on, given in read.items()}
        for name, group in groups.items()
    }


def rounded(x):
    """As lists, which a record holds."""
    return x.double().numpy().round(4).tolist()


MEASURES = {"attention": attention, "first token": first_token, "ablation": ablation}
