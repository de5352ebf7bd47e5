"""What torch.compile must take in one graph for all lengths, with equal values and gradients."""

import subprocess
import sys

import pytest
import torch
from torch import nn

from posattn import torch as ours
from posattn.torch.attention import query_tiles, tiled
from tests.nightly.studies.schemes import Column

pytestmark = [pytest.mark.usefixtures("unchecked")]

DIM, HEADS, WIDTH = 8, 4, 2
LENGTHS = (5, 9)


class Call(nn.Module):
    """A function of a sequence and of modules that have parameters."""

    def __init__(self, function, *parts):
        super().__init__()
        self.function, self.parts = function, nn.ModuleList(parts)

    def forward(self, x):
        """Return `function(x, *parts)`."""
        return self.function(x, *self.parts)


def rng():
    return torch.Generator().manual_seed(0)


def layer(causal=True, **options):
    """Multi-head attention of width 8, with 4 heads."""
    made = ours.MultiHeadAttention(DIM, HEADS, rng=rng(), **options)
    return Call(lambda x, attend: attend(x, causal=causal), made)


def on_heads(function, *parts):
    """A function of queries or keys of 4 heads."""
    return Call(lambda x, *parts: function(ours.split_heads(x, HEADS), *parts), *parts)


def attend(x, **options):
    """Attention of heads that are query, key and value at once."""
    return ours.scaled_dot_product_attention(x, x, x, causal=True, **options)


def forget(x, gate):
    heads = ours.split_heads(x, HEADS)
    return attend(heads, bias=ours.forgetting_bias(gate(x)))


def forget_in_tiles(x, gate):
    heads = ours.split_heads(x, HEADS)
    return attend(heads, bias=ours.tiled_forgetting_bias(gate(x)))


def on_grid(x):
    omega = torch.tensor([[1.0], [0.5]])
    return ours.rotate_axes(x, ours.grid_coordinates(x.shape[-2], 1), omega)


def waves(x):
    one = torch.ones(2, 1, 1)
    return ours.fope(x, frequencies=torch.ones(1), cos_weight=one, sin_weight=-one)


def slope(query_positions, key_positions):
    """A bias that is only a function, the same for all heads."""
    return -0.1 * abs(query_positions[:, None] - key_positions)


def polar_key(kind):
    """PoPE's keys, whose parameters begin without chance."""
    return getattr(kind, "init", kind)(HEADS, WIDTH)


class Shift(nn.Module):
    """A rotation with a parameter."""

    def __init__(self):
        super().__init__()
        self.by = nn.Parameter(torch.ones(()))

    def forward(self, x, positions):
        """Add the positions, scaled."""
        return x + self.by * positions[..., None]


def latent(**options):
    sizes = {"kv_rank": 5, "content_dim": 4, "rotary_dim": 2, **options}
    made = ours.LatentAttention(DIM, 2, **sizes, rotate=ours.Rotary(), rng=rng())
    return Call(lambda x, attend: attend(x, causal=True), made)


def decoder():
    """A model, whose input is rounded to tokens."""
    made = ours.Decoder(11, DIM, 2, 2, rotate=ours.Rotary(), rng=rng())
    return Call(lambda x, model: model((x[..., 0].abs() * 4).long().clamp(max=10)), made)


def swin(kind):
    """A layer of whole windows, 3 by 4, of which the first cells are given."""
    return layer(causal=False, bias=kind(HEADS, 3, 4))


LAYERS = {  # options of a layer in a column; test_jax_export.py and test_works_with.py take them, too
    "plain": lambda c: {},
    "sinks": lambda c: {"sinks": True},
    "grouped": lambda c: {"num_kv_heads": 2},
    "attention of its own": lambda c: {"attention": c.module.scaled_dot_product_attention},
    "sinks, cap, gate": lambda c: {"sinks": True, "soft_cap": 2.0, "gate": True},
    "Window": lambda c: {"mask": c.module.Window(3)},
    "Chunk": lambda c: {"mask": c.module.Chunk(3)},
    # rotations
    "rotate": lambda c: {"rotate": c.module.rotate},
    "Rotary, partial": lambda c: {
        "head_dim": 6,
        "rotate": c.module.Rotary(layout="half", frequencies=(0.7, 0.1), attention_factor=1.2),
    },
    "Rotary": lambda c: {"rotate": c.module.Rotary()},
    "xPos": lambda c: {"rotate": (c.module.xpos_query, c.module.xpos_key)},
    "PoPE": lambda c: {"rotate": (c.module.polar_query, polar_key(c.module.PolarKey))},
    # biases of positions
    "ALiBi": lambda c: {"bias": c.module.ALiBi(HEADS)},
    "function": lambda c: {"bias": slope},
    "T5Bias": lambda c: {"bias": c.make("T5Bias", HEADS)},
    "KerpleLog": lambda c: {"bias": c.make("KerpleLog", HEADS)},
    "KerplePower": lambda c: {"bias": c.make("KerplePower", HEADS)},
    "Sandwich": lambda c: {"bias": c.module.sandwich_bias(HEADS, dim=4)},
    "FIRE": lambda c: {"bias": c.make("FIRE", HEADS, hidden_dim=3)},
    "TUPE": lambda c: {"bias": c.make("TUPEBias", 64, DIM, HEADS, use_cls=True)},
    # biases of content
    "Shaw": lambda c: {"bias": c.make("ShawRelative", 3, WIDTH)},
    "Music Transformer": lambda c: {"bias": c.make("RelativeGlobalAttention", 64, HEADS, WIDTH)},
    "Transformer-XL": lambda c: {"bias": c.make("TransformerXLBias", DIM, HEADS)},
    "DeBERTa, buckets": lambda c: {
        "bias": c.make("DisentangledBias", 8, DIM, HEADS, same_row=True, bucketed_to=32)
    },
    "CoPE": lambda c: {"bias": c.make("CoPE", 6, WIDTH)},
    "DAPE": lambda c: {"bias": c.make("DAPE", HEADS, c.make("KerpleLog", HEADS))},
    "StickBreaking": lambda c: {"bias": c.module.StickBreaking()},
    "two biases": lambda c: {"bias": [c.module.ALiBi(HEADS), c.make("ShawRelative", 3, WIDTH)]},
}  # fmt: skip
ROWS = {
    name: lambda made=made: layer(**made(Column("torch", rng())))
    for name, made in LAYERS.items()
} | {
    "norms": lambda: layer(head_dim=6, use_bias=True, scale=0.3, query_norm=nn.RMSNorm(6),
        key_norm=nn.RMSNorm(6)),
    "rotations with parameters": lambda: layer(rotate=nn.ModuleList([Shift(), Shift()])),
    "Swin": lambda: swin(ours.SwinBias),
    "Swin V2": lambda: swin(ours.SwinV2Bias),
    "LatentAttention": latent,
    "LatentAttention, low-rank queries": lambda: latent(query_rank=3, value_dim=3),
    "Decoder": decoder,
    "PositionalEncoding": lambda: ours.PositionalEncoding(DIM),
    "LearnedPositionalEncoding": lambda: ours.LearnedPositionalEncoding(64, DIM, rng=rng()),
    "skew": lambda: Call(lambda x: ours.skew(x @ x.mT)),
    "rotate_axes": lambda: on_heads(on_grid),
    "MixedRotary": lambda: on_heads(
        lambda x, turn: turn(x), ours.MixedRotary(4, HEADS, 4, rng=rng())
    ),
    "FoPE": lambda: on_heads(waves),
    "FoX": lambda: Call(forget, ours.ForgettingGate(DIM, HEADS, rng=rng())),
    "FoX, tiled": lambda: Call(forget_in_tiles, ours.ForgettingGate(DIM, HEADS, rng=rng())),
}  # fmt: skip
WIDER = {"MixedRotary": 16}  # the width of x, where it is not 8


def sequence(n, width=DIM):
    return torch.randn(2, n, width, generator=rng())


def outcome(run, module, x):
    """The value of a module, and the gradients of its input and its parameters."""
    x = x.clone().requires_grad_()
    out = run(x)
    wanted = [x, *module.parameters()]
    gradients = torch.autograd.grad(
        out.square().sum(), wanted, allow_unused=True, materialize_grads=True
    )
    return [out, *gradients]


def assert_alike(got, want):
    for one, other in zip(got, want, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@pytest.fixture(autouse=True)
def fresh():
    """Forget what has been compiled."""
    torch.compiler.reset()
    torch._dynamo.utils.counters.clear()


def graphs():
    return torch._dynamo.utils.counters["stats"]["unique_graphs"]


def alone(call):
    """Run it in a process of its own, where no annotation is checked."""
    script = f"from tests.nightly import test_compile; test_compile.{call}"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]


def run_lengths(name):
    module = ROWS[name]()
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager", dynamic=True)
    for n in LENGTHS:
        x = sequence(n, WIDER.get(name, DIM))
        assert_alike(outcome(compiled, module, x), outcome(module, module, x))
    assert graphs() == 1


def run_tiles(name):
    module = ROWS[name]()
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager", dynamic=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tiled, "SMALL", 0)
        patch.setattr(query_tiles, "ROWS", 3)
        for n in LENGTHS:
            x = sequence(n)
            assert_alike(outcome(compiled, module, x), outcome(module, module, x))


# what makes objects in the program, whose constructors the compiler cannot trace if they are checked
MAKES_OBJECTS = "FoX, tiled"


@pytest.mark.parametrize("name", ROWS)
def test_one_graph_serves_all_lengths(name):
    if name == MAKES_OBJECTS:
        alone(f"run_lengths({name!r})")
    else:
        run_lengths(name)


@pytest.mark.parametrize("name", ["sinks", "Window", "FIRE", "StickBreaking", "FoX, tiled"])
def test_tiles_compile_for_each_length(name):
    if name == MAKES_OBJECTS:
        alone(f"run_tiles({name!r})")
    else:
        run_tiles(name)


def run_steps(latents, window=None):
    """Decode token by token, beyond the end of the cache if there is no window."""
    if latents:
        made = latent().parts[0]
    else:
        options = {"num_kv_heads": 2, "rotate": ours.Rotary(), "bias": ours.ALiBi(HEADS)}
        mask = None if window is None else ours.Window(window)
        made = ours.MultiHeadAttention(DIM, HEADS, mask=mask, rng=rng(), **options)
    step = torch.compile(made, fullgraph=True, backend="aot_eager")
    cache, x, outs = made.init_cache((2,), 7), sequence(8), []
    with torch.no_grad():
        for t in range(7):
            out, cache = step(x[:, t : t + 1], cache=cache)
            outs.append(out)
        assert_alike([torch.cat(outs, 1)], [made(x[:, :7], causal=True)])
        assert graphs() == 1
        if window is None:  # nothing can be raised where the cache is full
            assert step(x[:, 7:], cache=cache)[0].isnan().all()


@pytest.mark.parametrize(
    "call", ["run_steps(False)", "run_steps(False, 3)", "run_steps(True)"]
)
def test_steps_with_a_cache_share_one_graph(call):
    alone(call)


def test_masks_of_every_shape_compile_with_open_sizes():
    attend = ours.MultiHeadAttention(DIM, HEADS, rng=rng())
    compiled = torch.compile(attend, fullgraph=True, backend="aot_eager", dynamic=True)
    for n in (5, 9):
        x = torch.randn(3, n, DIM)
        for shape in ((n, n), (1, n), (3, 1, n), (3, HEADS, n, n), (1, HEADS, 1, n)):
            mask = torch.rand(shape) < 0.7
            assert_alike([compiled(x, mask=mask)], [attend(x, mask=mask)])


@pytest.mark.parametrize("dynamic", [None, True])
def test_one_graph_serves_queries_keys_and_scales(dynamic):
    attend = ours.scaled_dot_product_attention
    compiled = torch.compile(attend, fullgraph=True, backend="aot_eager", dynamic=dynamic)
    for n_q, n_k, scale in ((4, 4, 0.5), (3, 6, 0.7), (1, 9, 2.0)):
        query, key = torch.randn(2, n_q, 4), torch.randn(2, n_k, 4)
        options = {"causal": True, "scale": scale}
        assert_alike(
            [compiled(query, key, key, **options)], [attend(query, key, key, **options)]
        )


EQUAL = {
    "Rotary, ALiBi": lambda: {"rotate": ours.Rotary(), "bias": ours.ALiBi(HEADS)},
    "given Rotary": lambda: {"rotate": ours.Rotary(frequencies=[0.7])},
    "sandwich_bias": lambda: {"bias": ours.sandwich_bias(HEADS, dim=4)},
    "StickBreaking": lambda: {"bias": ours.StickBreaking()},
}


@pytest.mark.parametrize("name", EQUAL)
def test_equal_layers_share_one_graph(name):
    """Compiled one by one, as it is done where layers are many."""
    x = sequence(6)
    for _ in range(3):
        attend = ours.MultiHeadAttention(DIM, HEADS, rng=rng(), **EQUAL[name]())
        attend.requires_grad_(False)
        want = attend(x, causal=True)
        attend.compile(fullgraph=True, backend="aot_eager")
        assert_alike([attend(x, causal=True)], [want])
    assert graphs() == 1


def test_compiled_dropout_draws_what_eager_dropout_draws():
    attend = ours.MultiHeadAttention(DIM, HEADS, dropout_rate=0.5, rng=rng())
    compiled = torch.compile(attend, fullgraph=True, backend="aot_eager")
    x = sequence(5)
    drawn = [compiled(x, rng=torch.tensor(seed)) for seed in (3, 4)]
    assert_alike(drawn, [attend(x, rng=seed) for seed in (3, 4)])
    assert not torch.equal(*drawn)
