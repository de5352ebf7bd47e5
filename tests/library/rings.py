"""Processes that stand in a ring, this one the first of them, and what each does for a test."""

import datetime
from functools import partial
from multiprocessing import get_context

import torch
from torch import distributed as dist

import posattn.torch as ours
from posattn.torch.attention import ring

USUAL = ring.BLOCK
WORKERS, N, HEADS, KV_HEADS, WIDTH = 4, 32, 4, 2, 6


def join(rank, path):
    """Become a worker, with tiles so small that a shard has several; return the group of it alone."""
    torch.set_num_threads(1)
    ring.BLOCK = {"cpu": 4}
    dist.init_process_group(
        "gloo",
        init_method=f"file://{path}",
        rank=rank,
        world_size=WORKERS,
        timeout=datetime.timedelta(seconds=300),
    )
    return [dist.new_group([worker]) for worker in range(WORKERS)][rank]


def attempt(check, arguments):
    """What a check returns, or raises: the others wait for an answer, whatever it is."""
    try:
        return check(*arguments)
    except Exception as error:
        return error


def serve(rank, path, pipe):
    """Do what the first worker asks for, until it asks for nothing."""
    join(rank, path)
    while task := pipe.recv():
        pipe.send(attempt(*task))
    dist.destroy_process_group()


def start(target, rank, path):
    """A process and the other end of its pipe."""
    context = get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=target, args=(rank, path, there), daemon=True)
    process.start()
    there.close()
    return process, here


class Ring:
    """The other workers of this process, which is number 0."""

    def __init__(self, path):
        self.others = [start(serve, rank, path) for rank in range(1, WORKERS)]
        self.alone = join(0, path)

    def __call__(self, check, *arguments):
        """What `check(*arguments)` returns or raises on each worker."""
        for _, pipe in self.others:
            pipe.send((check, arguments))
        results = [attempt(check, arguments)]
        for _, pipe in self.others:
            assert pipe.poll(300)
            results.append(pipe.recv())
        return results

    def close(self):
        """Let the others go."""
        for _, pipe in self.others:
            pipe.send(None)
        dist.destroy_process_group()
        ring.BLOCK = USUAL
        for process, _ in self.others:
            process.join(60)


def seeded(seed):
    return torch.Generator().manual_seed(seed)


def third(here, there):
    """No query before the fifth sees anything, and nobody sees the last keys."""
    return (here[..., :, None] > 4) & (there[..., None, :] < N - 7)


def texts(here, there):
    """Two texts, one behind the other, each of which sees itself alone."""
    return (here[..., :, None] < 13) == (there[..., None, :] < 13)


def shifted():
    """Positions of two examples, the second of which begins with padding."""
    return torch.stack([torch.arange(N), torch.arange(N) - 3])


def padding():
    """The last keys of the second example are hidden."""
    mask = torch.ones(2, 1, 1, N, dtype=torch.bool)
    mask[1, ..., N - 7 :] = False
    return mask


def several(dtype):
    return [ours.ALiBi(HEADS), None, t5(dtype), fire(dtype)]


def t5(dtype):
    return ours.T5Bias(HEADS, max_distance=20, num_buckets=8, dtype=dtype, rng=seeded(1))


def fire(dtype):
    return ours.FIRE(HEADS, dtype=dtype, rng=seeded(2))


def forgetting(dtype):
    """A bias that learns through buffers, which were computed from gates."""
    gates = torch.nn.functional.logsigmoid(torch.randn(2, HEADS, N, generator=seeded(5)))
    gates = gates.to(dtype).requires_grad_()
    bias = ours.tiled_forgetting_bias(gates)
    bias.computed_from = gates
    return bias


# options, dtype, and the order of the tokens
CASES = {
    "rotary": ({"causal": True, "rotate": True}, "float64", "balanced"),
    "T5": ({"bias": t5}, "float64", "in order"),
    "FoX": ({"causal": True, "bias": forgetting}, "float64", "balanced"),
    "several": ({"causal": True, "bias": several}, "float64", "shuffled"),
    "half precision": ({"causal": True, "bias": fire}, "bfloat16", "balanced"),
    "causal window": (
        {"causal": True, "mask": ours.Window(5), "scale": 0.3},
        "float32",
        "balanced",
    ),
    "some see nothing": ({"mask": third, "bias": t5}, "float64", "balanced"),
    "padding": ({"causal": True, "mask": padding(), "bias": t5}, "float64", "balanced"),
    "examples": (
        {"causal": True, "mask": texts, "bias": t5, "positions": shifted()},
        "float64",
        "in order",
    ),
}


def problem(case, wide=None):
    """The whole arrays of a case, what is pulled at the result, its bias and its other options."""
    options, dtype, _ = CASES[case]
    options, dtype = dict(options), getattr(torch, dtype)
    random = seeded(0)
    shapes = [(2, heads, N, WIDTH) for heads in (HEADS, KV_HEADS, KV_HEADS, HEADS)]
    *arrays, pull = (torch.randn(shape, generator=random).to(dtype) for shape in shapes)
    if options.get("mask") is third or isinstance(options.get("mask"), torch.Tensor):
        for x in arrays[1:]:  # what is hidden must not reach anything
            x[1, :, N - 7 :] = torch.nan
    bias = options.pop("bias", lambda dtype: None)(dtype)
    if wide is not None:
        arrays, pull = [x.to(wide) for x in arrays], pull.to(wide)
        for part in bias if isinstance(bias, list) else [bias]:
            if isinstance(part, torch.nn.Module):
                part.to(wide)
    return arrays, pull, bias, options


def parameters(bias):
    parts = bias if isinstance(bias, list) else [bias]
    modules = [part for part in parts if isinstance(part, torch.nn.Module)]
    own = [p for part in modules for p in part.parameters()]
    return own + [p.computed_from for p in parts if hasattr(p, "computed_from")]


def differentiate(function, arrays, pull, bias):
    """The value of a function of three arrays, and its gradients, those of a bias as well."""
    arrays = [x.clone().requires_grad_() for x in arrays]
    value = function(*arrays)
    leaves = [*arrays, *parameters(bias)]
    grads = torch.autograd.grad(value, leaves, pull, materialize_grads=True)
    return [x.detach().double().numpy() for x in (value, *grads)]


ORDERS = {
    "in order": torch.arange(N),
    "balanced": ours.balanced_order(N, WORKERS),
    "shuffled": torch.randperm(N, generator=seeded(8)),
}


def attend(case):
    """This worker's shards of the result and of its gradients, and its share of those of the bias."""
    arrays, pull, bias, options = problem(case)
    order = CASES[case][2]
    own = ORDERS[order].view(WORKERS, -1)[dist.get_rank()]
    arrays, pull = [x[..., own, :] for x in arrays], pull[..., own, :]
    rotate = options.pop("rotate", False)
    positions = options.pop("positions", None)
    if isinstance(options.get("mask"), torch.Tensor):
        options["mask"] = options["mask"][..., own]
    if positions is not None or order != "in order":
        where = own if positions is None else positions[:, own]
        options |= {"query_positions": where, "key_positions": where}

    def run(query, key, value):
        if rotate:
            query, key = (ours.rotate(x, own) for x in (query, key))
        return ours.ring_attention(query, key, value, across=None, bias=bias, **options)

    return differentiate(run, arrays, pull, bias)


def whole(case):
    """What one process computes in float64 of the same numbers."""
    arrays, pull, bias, options = problem(case, wide=torch.float64)
    positions = options.pop("positions", torch.arange(N))
    mask = options.pop("mask", None)
    if callable(mask):
        mask = mask(positions, positions)
        mask = mask[:, None] if mask.ndim > 2 else mask
    rotate = options.pop("rotate", False)

    def run(query, key, value):
        if rotate:
            query, key = ours.rotate(query), ours.rotate(key)
        where = {"query_positions": positions, "key_positions": positions}
        return ours.scaled_dot_product_attention(
            query, key, value, mask=mask, bias=bias, **where, **options
        )

    return differentiate(run, arrays, pull, bias)


def shards(n=N // WORKERS, seed=0, **options):
    """Queries, keys and values of a worker."""
    random = seeded(seed + 100 * dist.get_rank())
    shapes = [(2, heads, n, WIDTH) for heads in (HEADS, KV_HEADS, KV_HEADS)]
    return [torch.randn(shape, generator=random, **options) for shape in shapes]


def unlike(argument):
    """A call in which worker 2 differs from the others."""
    odd = dist.get_rank() == 2
    arrays = shards()
    if odd and argument == "dtype":
        arrays = [x.double() for x in arrays]
    options = {"bias": ours.ALiBi(HEADS)} if odd and argument == "bias" else {}
    causal = odd and argument == "causal"
    ours.ring_attention(*arrays, across=None, causal=causal, **options)


def team_of(kind):
    """The processes among which this one is, and their ranks."""
    rank = dist.get_rank()
    if kind == "all":
        return None, range(WORKERS)
    if kind == "mesh":
        mesh = dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("pair", "own"))
        return mesh["own"], [rank // 2 * 2, rank // 2 * 2 + 1]
    teams = [0, 3], [1, 2]
    groups = [dist.new_group(team) for team in teams]
    return next(both for both in zip(groups, teams, strict=True) if rank in both[1])


def among_fewer(kind):
    """How far a ring of some processes is from attention, and how many bytes it saves."""
    group, ranks = team_of(kind)
    arrays = shards()
    everybody = [None] * WORKERS
    dist.all_gather_object(everybody, arrays)
    team = [torch.cat(x, -2) for x in zip(*(everybody[r] for r in ranks), strict=True)]
    want = ours.scaled_dot_product_attention(*team, causal=True)
    own = want.split(N // WORKERS, dim=-2)[list(ranks).index(dist.get_rank())]
    saved = []

    def count(x):
        saved.append(x.numel() * x.element_size())
        return x

    arrays = [x.requires_grad_() for x in arrays]
    with torch.autograd.graph.saved_tensors_hooks(count, lambda x: x):
        out = ours.ring_attention(*arrays, across=group, causal=True)
    return (out.detach() - own).abs().max().item(), sum(saved)


def odd_arrays(kind):
    """How far a ring is from attention where arrays lack heads or tokens, or are not contiguous."""
    shape = {"no heads": (8, 6), "no tokens": (2, 0, 6)}.get(kind, (6, 2, 8))
    arrays = [torch.randn(shape, generator=seeded(s)) for s in range(3)]
    if kind == "not contiguous":
        arrays = [x.movedim(0, -1) for x in arrays]
    arrays = [x.requires_grad_() for x in arrays]
    out = ours.ring_attention(*arrays, across=None)
    team = [arrays[0], *(torch.cat([x] * WORKERS, -2) for x in arrays[1:])]
    want = ours.scaled_dot_product_attention(*team)
    out.sum().backward()
    assert all(x.grad.shape == x.shape for x in arrays)
    return (out - want).detach().abs().sum().item()


def run_a_layer():
    """How far a layer on shards is from the layer on the whole, with its parameters' gradients."""
    x = torch.randn(2, N, 8, generator=seeded(5))
    options = {"rotate": ours.Rotary(), "bias": t5(torch.float32)}
    layer = ours.MultiHeadAttention(8, HEADS, num_kv_heads=2, rng=seeded(6), **options)
    want = layer(x, causal=True)
    slopes = torch.autograd.grad(want.square().sum(), list(layer.parameters()))
    layer.attention = partial(ours.ring_attention, across=None)
    own = ORDERS["balanced"].view(WORKERS, -1)[dist.get_rank()]
    out = layer(x[:, own], causal=True, query_positions=own)
    shares = torch.autograd.grad(out.square().sum(), list(layer.parameters()))
    for share in shares:
        dist.all_reduce(share)
    both = zip([out, *shares], [want[:, own], *slopes], strict=True)
    return max((got - wanted).detach().abs().max().item() for got, wanted in both)


def around_a_square():
    """A call across a mesh of two axes."""
    ours.ring_attention(*shards(), across=dist.init_device_mesh("cpu", (2, 2)))


def count_tiles(order):
    """How many tiles this worker looks at in a causal call."""
    tiles = []

    def mask(here, there):
        tiles.append((here, there))
        return torch.ones(len(here), len(there), dtype=torch.bool)

    own = ORDERS[order].view(WORKERS, -1)[dist.get_rank()]
    where = {"query_positions": own, "key_positions": own}
    ours.ring_attention(*shards(), across=None, causal=True, mask=mask, **where)
    return len(tiles)


def count_bytes(dtype):
    """How many bytes this worker sends forward and backward, and those of its keys, values and positions."""
    sent, message = [], dist.P2POp

    def send(operation, x, *rest):
        if operation is dist.isend:
            sent.append(x.numel() * x.element_size())
        return message(operation, x, *rest)

    arrays = [x.requires_grad_() for x in shards(dtype=getattr(torch, dtype))]
    try:
        dist.P2POp = send
        out = ours.ring_attention(*arrays, across=None)
        forward = sum(sent)
        out.sum().backward()
    finally:
        dist.P2POp = message
    return forward, sum(sent) - forward
