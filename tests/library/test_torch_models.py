"""The torch column inside of models: compiled, exported, checkpointed, distributed, cast, saved.

A test that compiles runs in a process of its own, in which no annotation is checked.
"""

import copy
import dataclasses
import inspect
import io
import pickle
import subprocess
import sys
import textwrap

import pytest
import torch
from torch import nn
from torch._subclasses import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

import posattn.torch
from posattn.torch import (
    ALiBi,
    KVCache,
    MultiHeadAttention,
    PositionalEncoding,
    Rotary,
    RotaryAxes,
    StickBreaking,
    T5Bias,
    Window,
    causal_mask,
    dropout,
    frequencies,
    length_mask,
    rotate,
    sandwich_bias,
    scaled_dot_product_attention,
    window_mask,
)
from posattn.torch.position import tables


def alone(test):
    """Run a test in a process of its own, which is slow."""

    def run():
        source = textwrap.dedent(inspect.getsource(test)).split("\n", 1)[1]
        code = f"import torch\nfrom posattn.torch import *\n{source}\n{test.__name__}()"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-3000:]

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return pytest.mark.slow(run)


@pytest.mark.slow
def test_importing_the_column_does_not_import_the_compiler():
    """`torch._dynamo` brings sympy and 800 other modules, and takes a second or more."""
    script = (
        "import sys, torch; before = set(sys.modules); import posattn.torch; "
        "print(sorted({'torch._dynamo', 'sympy'} & (set(sys.modules) - before)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


@alone
def test_steps_with_a_cache_share_one_graph():
    """Positions are numbers in tensors, so no step looks new to the compiler."""
    layer = MultiHeadAttention(8, 4, num_kv_heads=2, rotate=Rotary(), bias=ALiBi(4))
    for window in (None, 3):
        torch.compiler.reset()
        torch._dynamo.utils.counters.clear()
        step = torch.compile(
            lambda x, cache: layer(x, cache=cache), fullgraph=True, backend="eager"
        )
        x, cache, outs = (
            torch.randn(2, 7, 8),
            KVCache.init((2,), 2, 10, 2, window=window),
            [],
        )
        with torch.no_grad():
            for t in range(7):
                out, cache = step(x[:, t : t + 1], cache)
                outs.append(out)
            seen = None if window is None else window_mask(7, 7, window)
            whole = layer(x, mask=seen, causal=True)
        assert (torch.cat(outs, 1) - whole).abs().max() < 1e-6
        assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1


@alone
def test_a_full_cache_is_loud_where_nothing_can_be_raised():
    layer = MultiHeadAttention(8, 4)
    step = torch.compile(
        lambda x, cache: layer(x, cache=cache), fullgraph=True, backend="eager"
    )
    cache, x = KVCache.init((2,), 4, 3, 2), torch.ones(2, 1, 8)
    with torch.no_grad():
        for _ in range(3):
            out, cache = step(x, cache)
            assert out.isfinite().all()
        assert step(x, cache)[0].isnan().all()


@alone
def test_one_graph_serves_all_lengths():
    layers = {
        "rotary": MultiHeadAttention(8, 2, rotate=Rotary()),
        "partial rotary": MultiHeadAttention(
            8, 2, rotate=Rotary(rotary_dim=2, layout="half")
        ),
        "rotate": MultiHeadAttention(8, 2, rotate=rotate),
        "ALiBi": MultiHeadAttention(8, 2, bias=ALiBi(2)),
        "sinks": MultiHeadAttention(8, 2, sinks=True),
        "cap, gate": MultiHeadAttention(8, 2, sinks=True, soft_cap=2.0, gate=True),
        "both, grouped": MultiHeadAttention(
            8, 4, num_kv_heads=2, rotate=Rotary(), bias=ALiBi(4)
        ),
        "sinusoidal": torch.nn.Sequential(PositionalEncoding(8), MultiHeadAttention(8, 2)),
    }
    for name, layer in layers.items():
        options = {} if name == "sinusoidal" else {"causal": True}
        torch.compiler.reset()
        torch._dynamo.utils.counters.clear()
        compiled = torch.compile(layer, fullgraph=True, backend="eager", dynamic=True)
        for n in (5, 9, 17, 33):
            x = torch.randn(2, n, 8)
            assert (compiled(x, **options) - layer(x, **options)).abs().max() < 1e-6, name
        assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1, name


@alone
def test_masks_of_every_shape_compile_with_open_sizes():
    layer = MultiHeadAttention(8, 2)
    compiled = torch.compile(layer, fullgraph=True, backend="eager", dynamic=True)
    for n in (5, 9):
        x = torch.randn(3, n, 8)
        for shape in (
            (n, n),
            (1, n),
            (3, n, n),
            (3, 1, n),
            (1, 1, n),
            (3, 2, n, n),
            (1, 2, 1, n),
        ):
            mask = torch.rand(shape) < 0.7
            assert torch.equal(compiled(x, mask=mask), layer(x, mask=mask)), shape


@alone
def test_layers_export_with_open_lengths():
    n = torch.export.Dim("n", min=2, max=4096)
    for layer in (
        MultiHeadAttention(8, 4, num_kv_heads=2, rotate=Rotary()),
        MultiHeadAttention(8, 2, rotate=rotate, bias=ALiBi(2)),
        MultiHeadAttention(8, 2, sinks=True, gate=True),
        MultiHeadAttention(8, 2, sinks=True, soft_cap=2.0),
        PositionalEncoding(8),
    ):
        program = torch.export.export(
            layer,
            (torch.randn(2, 6, 8),),
            dynamic_shapes={"query" if hasattr(layer, "query") else "x": {1: n}},
        )
        for length in (6, 2, 50):
            x = torch.randn(2, length, 8)
            assert (program.module()(x) - layer(x)).abs().max() < 1e-6


@alone
def test_models_of_equal_layers_export():
    """Layers whose schemes are equal, a whole text and a step with a cache."""
    rng = torch.Generator().manual_seed(0)  # the bounds below are for outputs of this size

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = torch.nn.ModuleList(
                MultiHeadAttention(
                    8, 2, rotate=Rotary(frequencies=[1.0, 0.1]), bias=ALiBi(2), rng=rng
                )
                for _ in range(4)
            )

        def forward(self, x, caches=None):
            if caches is None:
                for layer in self.layers:
                    x = x + layer(x, causal=True)
                return x
            new = []
            for layer, cache in zip(self.layers, caches, strict=True):
                y, cache = layer(x, cache=cache)
                x = x + y
                new.append(cache)
            return x, new

    model = Model().requires_grad_(False)
    x = torch.randn(2, 6, 8, generator=rng)
    want = model(x)
    for strict in (False, True):
        n = torch.export.Dim("n", min=2, max=512)
        whole = torch.export.export(
            model, (x,), dynamic_shapes={"x": {1: n}}, strict=strict
        )
        assert (whole.module()(x[:, :5]) - want[:, :5]).abs().max() < 1e-5
        caches = [layer.init_cache((2,), 10) for layer in model.layers]
        step = torch.export.export(model, (x[:, :1], caches), strict=strict).module()
        caches = [layer.init_cache((2,), 10) for layer in model.layers]
        outs = []
        for t in range(6):
            out, caches = step(x[:, t : t + 1], caches)
            outs.append(out)
        assert (torch.cat(outs, 1) - want).abs().max() < 1e-5


@alone
def test_equal_layers_share_one_graph():
    """Compiled one by one, as it is done where layers are many."""
    schemes = {
        "Rotary, ALiBi": lambda: {"rotate": Rotary(), "bias": ALiBi(2)},
        "given Rotary": lambda: {"rotate": Rotary(frequencies=[1.0, 0.1])},
        "sandwich_bias": lambda: {"bias": sandwich_bias(2, dim=4)},
        "StickBreaking": lambda: {"bias": StickBreaking()},
    }
    for name, made in schemes.items():
        torch.compiler.reset()
        torch._dynamo.utils.counters.clear()
        layers = [
            MultiHeadAttention(8, 2, **made()).requires_grad_(False) for _ in range(4)
        ]
        x = torch.randn(2, 6, 8)
        for layer in layers:
            want = layer(x, causal=True)
            layer.compile(fullgraph=True, backend="eager")
            x = layer(x, causal=True)
            assert (x - want).abs().max() < 1e-6, name
        assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1, name


@alone
def test_compiled_dropout_draws_what_eager_dropout_draws():
    layer = MultiHeadAttention(8, 2, dropout_rate=0.5)
    compiled = torch.compile(layer, fullgraph=True, backend="eager")
    x = torch.randn(2, 5, 8)
    for seed in (torch.tensor(3), torch.tensor(4)):
        assert (compiled(x, rng=seed) - layer(x, rng=int(seed))).abs().max() < 1e-6
    assert not torch.equal(
        compiled(x, rng=torch.tensor(3)), compiled(x, rng=torch.tensor(4))
    )


WORKER = """
import sys, torch, torch.distributed as dist
from posattn.torch import MultiHeadAttention, PositionalEncoding, Rotary

rank = int(sys.argv[1])
dist.init_process_group("gloo", init_method="file://" + sys.argv[2], rank=rank, world_size=2)
layer = MultiHeadAttention(8, 2, rotate=Rotary())
model = torch.nn.Sequential(PositionalEncoding(8), layer)
model = torch.nn.parallel.DistributedDataParallel(model)
for n in (4 + 3 * rank, 6 + rank):
    model(torch.ones(2, n, 8)).sum().backward()
dist.destroy_process_group()
"""


@pytest.mark.slow
def test_processes_may_see_different_lengths(tmp_path):
    """Two processes train one model; what one of them keeps must not be sent to the other."""
    command = [sys.executable, "-c", WORKER]
    workers = [
        subprocess.Popen(
            [*command, str(rank), str(tmp_path / "meet")], stderr=subprocess.PIPE, text=True
        )
        for rank in range(2)
    ]
    said = [worker.communicate(timeout=120)[1] for worker in workers]
    assert [worker.returncode for worker in workers] == [0, 0], said


def test_recomputation_drops_the_same_weights():
    torch.manual_seed(0)
    layer, x = MultiHeadAttention(8, 2, dropout_rate=0.5), torch.randn(2, 5, 8)

    def slopes(run):
        layer.zero_grad()
        run(lambda x: layer(x, causal=True, rng=7)).sum().backward()
        return [p.grad.clone() for p in layer.parameters()]

    plain = slopes(lambda f: f(x))
    again = slopes(lambda f: checkpoint(f, x, use_reentrant=False))
    assert all(map(torch.equal, plain, again))


def test_a_generator_cannot_be_drawn_from_twice():
    layer, x = MultiHeadAttention(8, 2, dropout_rate=0.5), torch.randn(2, 5, 8)
    rng = torch.Generator().manual_seed(0)
    out = checkpoint(lambda x: layer(x, rng=rng), x, use_reentrant=False)
    with pytest.raises(
        ValueError, match="rng must be a seed where a forward pass is computed"
    ):
        out.sum().backward()


@pytest.mark.parametrize("layer", [MultiHeadAttention(8, 2, dropout_rate=0.1),
                                   PositionalEncoding(8, dropout_rate=0.1)])  # fmt: skip
def test_training_without_a_source_of_randomness_warns(layer):
    x = torch.ones(1, 2, 8)
    with pytest.warns(
        UserWarning, match="in training with dropout_rate = 0.1, but drops nothing"
    ):
        layer(x)
    layer(x, rng=0)
    layer.eval()(x)


def test_seeds_draw_independent_numbers():
    drawn = torch.stack([dropout(torch.ones(4096), 0.5, s) / 2 for s in range(64)]) - 0.5
    shares = drawn.mean(1) / (0.25 / 4096) ** 0.5
    assert shares.abs().max() < 4.5
    assert 0.7 < shares.std() < 1.3
    pairs = (drawn @ drawn.T / 4096 * 4).fill_diagonal_(0) * 64
    assert pairs.abs().max() < 5  # of seeds next to each other as well
    for shift in (1, 2, 8, 64, 128):  # neighbors in one draw
        assert abs((drawn[:, shift:] * drawn[:, :-shift]).mean() * 4) < 0.01


class Scaling(nn.Module):
    """A rotation that learns."""

    def __init__(self):
        super().__init__()
        self.factor = nn.Parameter(torch.ones(()))

    def forward(self, x, positions):  # noqa: D102
        return x * self.factor


@pytest.mark.parametrize("pair", [
    lambda: (Scaling(), Scaling()), lambda: (Scaling(), rotate), lambda: [None, Scaling()]
])  # fmt: skip
def test_modules_in_a_pair_are_trained_and_saved(pair):
    layer = MultiHeadAttention(8, 2, rotate=pair())
    learned = {name for name, _ in layer.named_parameters() if "factor" in name}
    assert len(learned) == sum(isinstance(s, Scaling) for s in pair())
    assert learned <= set(layer.state_dict())
    layer(torch.randn(1, 3, 8)).sum().backward()
    assert all(p.grad is not None for p in layer.parameters())
    layer.rotate = pair()  # also where it is set later
    assert learned <= set(layer.state_dict())


def test_modules_in_a_list_of_biases_are_trained():
    layer = MultiHeadAttention(8, 2, bias=[T5Bias(2), ALiBi(2), ALiBi(2)])
    assert any("bias" in name for name in layer.state_dict())
    x = torch.randn(1, 5, 8)
    alone = [MultiHeadAttention(8, 2, bias=b) for b in layer.bias]
    for other in alone:
        other.load_state_dict(layer.state_dict(), strict=False)
    where = torch.arange(5)
    total = sum(b(where, where) for b in layer.bias)
    plain = MultiHeadAttention(8, 2)
    plain.load_state_dict(layer.state_dict(), strict=False)
    assert (layer(x) - plain(x, bias=total)).abs().max() < 1e-6
    assert (layer(x) - plain(x, bias=list(layer.bias))).abs().max() < 1e-6


VALUES = {
    "Rotary": lambda: Rotary(
        base=500.0, layout="half", frequencies=torch.tensor([1.0, 0.1])
    ),
    "Rotary of a width": lambda: Rotary(rotary_dim=4),
    "RotaryAxes": lambda: RotaryAxes(torch.eye(2)),
    "ALiBi": lambda: ALiBi(2, dtype=torch.float64),
    "sandwich_bias": lambda: sandwich_bias(2, dim=4),
    "StickBreaking": lambda: StickBreaking(),
    "Window": lambda: Window(3),
}


@pytest.mark.parametrize("make", VALUES.values(), ids=VALUES)
def test_schemes_without_parameters_are_values(make):
    """A module that compares by value breaks the dictionaries in which PyTorch keeps modules."""
    first, second = make(), make()
    assert first == second
    assert hash(first) == hash(second)
    assert first not in (ALiBi(3), Rotary(base=7.0), Window(4), sandwich_bias(2), 1)
    assert not isinstance(first, nn.Module)
    with pytest.raises(dataclasses.FrozenInstanceError):
        first.base = 3.0
    file = io.BytesIO()
    torch.save(first, file)
    file.seek(0)
    saved = torch.load(file, weights_only=False)
    for other in (pickle.loads(pickle.dumps(first)), copy.deepcopy(first), saved):
        assert other == first
        assert repr(other) == repr(first)
    assert (
        eval(repr(first), vars(posattn.torch) | {"torch": torch, "_Sandwich": type(first)})
        == first
    )


def test_schemes_print_what_was_given():
    assert repr(Rotary()) == "Rotary()"
    assert repr(Rotary(base=5.0, layout="half")) == "Rotary(base=5.0, layout='half')"
    assert repr(ALiBi(2)) == "ALiBi(2)"
    assert repr(ALiBi(2, dtype=torch.half)) == "ALiBi(2, dtype=torch.float16)"
    layer = MultiHeadAttention(8, 2, rotate=Rotary(base=5.0), bias=ALiBi(2), mask=Window(3))
    shown = "rotate=Rotary(base=5.0), bias=ALiBi(2), mask=Window(window=3)"
    assert shown in repr(layer)
    assert "StickBreaking()" in repr(MultiHeadAttention(8, 2, bias=[StickBreaking()]))


def test_layers_with_equal_schemes_are_all_named():
    layers = [MultiHeadAttention(8, 2, rotate=Rotary(), bias=ALiBi(2)) for _ in range(2)]
    names = [name for name, _ in nn.Sequential(*layers).named_modules()]
    roles = ["query", "key", "value", "output"]
    assert names == ["", "0", *(f"0.{r}" for r in roles), "1", *(f"1.{r}" for r in roles)]


def test_a_scheme_with_parameters_and_one_without_take_turns():
    layer, x = MultiHeadAttention(8, 2, bias=ALiBi(2)), torch.randn(3, 8)
    plain = layer(x)
    layer.bias = T5Bias(2)
    assert "bias.table" in layer.state_dict()
    layer.bias = ALiBi(2)
    assert "bias.table" not in layer.state_dict()
    assert layer(x).equal(plain)
    layer.rotate = Scaling(), None
    layer.rotate = None
    assert layer(x).equal(plain)


@pytest.mark.parametrize("make", VALUES.values(), ids=VALUES)
@pytest.mark.parametrize("move", [
    lambda m: m.half().float(), lambda m: m.bfloat16(), lambda m: m.to("meta").to_empty(device="cpu"),
    copy.deepcopy,
])  # fmt: skip
def test_casting_and_moving_a_layer_loses_nothing(make, move):
    kept = move(MultiHeadAttention(8, 2, bias=make())).bias
    assert kept == make()
    x, where = torch.randn(2, 3, 4), torch.tensor([5, 1000, 2**20])
    calls = {
        Rotary: lambda m: m(x, where),
        RotaryAxes: lambda m: m(x, torch.stack([where, where], dim=-1)),
        StickBreaking: lambda m: m.scores(x, x, where, where),
    }
    call = calls.get(type(kept), lambda m: m(where, where))
    assert torch.equal(call(kept), call(make()))


def test_tables_are_made_once_for_each_device_and_belong_to_no_mode():
    steep, turn = ALiBi(7), Rotary(frequencies=[0.7, 0.3, 0.01])
    x = torch.randn(3, 6, requires_grad=True)
    where = torch.arange(3)
    tables._kept.cache_clear()
    with torch.inference_mode():
        turn(x)
    with FakeTensorMode(), torch.device("cpu"):
        turn(torch.ones(3, 6))
        steep(torch.arange(3), torch.arange(3))
    want = steep(where, where)
    torch.func.vmap(turn)(torch.ones(2, 3, 6))
    turn(x).sum().backward()
    assert x.grad.isfinite().all()
    assert steep(where, where).equal(want)
    assert turn(x.to("meta")).is_meta
    assert tables._kept.cache_info().misses == 3  # that of ALiBi, and two of the rotation


def test_what_was_made_without_memory_works_after_it_gets_some():
    with torch.device("meta"):
        layers = [
            PositionalEncoding(8),
            MultiHeadAttention(8, 2, use_bias=True, rotate=Rotary()),
        ]
    x = torch.randn(2, 5, 8)
    for layer in layers:
        assert layer(x.to("meta")).shape == (2, 5, 8)
        layer.to_empty(device="cpu")
    assert torch.equal(layers[0](x), PositionalEncoding(8)(x))
    layers[1].reset_parameters(torch.Generator().manual_seed(0))
    fresh = MultiHeadAttention(
        8, 2, use_bias=True, rotate=Rotary(), rng=torch.Generator().manual_seed(0)
    )
    assert torch.equal(layers[1](x), fresh(x))


def test_autocast_mixes_dtypes_of_a_memory():
    layer = MultiHeadAttention(
        8, 2, rotate=Rotary(), query_norm=nn.LayerNorm(4), key_norm=nn.LayerNorm(4)
    )
    x, memory = torch.randn(2, 3, 8), torch.randn(2, 5, 8)
    with torch.autocast("cpu", torch.bfloat16):
        out = layer(x, memory.bfloat16())
    assert out.dtype == torch.bfloat16
    assert (out.float() - layer(x, memory)).abs().max() < 0.05
    with pytest.raises(TypeError, match="key must have the dtype of query"):
        layer(x, memory.bfloat16())


class FourBits(nn.Module):
    """A projection whose weight is no array of floating-point numbers, as quantized ones have it."""

    def __init__(self, linear):
        super().__init__()
        self.step = linear.weight.abs().max() / 7
        whole = (linear.weight / self.step).round().to(torch.int8)
        self.weight = nn.Parameter(whole, requires_grad=False)

    def forward(self, x):  # noqa: D102
        return x @ (self.weight.to(x.dtype) * self.step).mT


def test_projections_may_be_quantized():
    layer, x = MultiHeadAttention(8, 2), torch.randn(2, 5, 8)
    want = layer(x)
    for role in ("query", "key", "value", "output"):
        setattr(layer, role, FourBits(getattr(layer, role)))
    assert (layer(x) - want).abs().max() < 0.5


class Watch(TorchDispatchMode):
    """Notes the largest result, and each operation on memory of another device than the given one."""

    def __init__(self, device):
        super().__init__()
        self.device, self.largest, self.foreign = device, 0, []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for x in torch.utils._pytree.tree_leaves((args, kwargs, out)):
            if isinstance(x, torch.Tensor) and x.device.type != self.device and x.ndim:
                self.foreign.append(str(func))
        for x in torch.utils._pytree.tree_leaves(out):
            if isinstance(x, torch.Tensor):
                self.largest = max(self.largest, x.numel() * x.element_size())
        return out


def on(device):
    """Calls without positions, by name: all that a model makes at every step."""
    x = torch.ones(2, 3, 8, device=device)
    heads = torch.ones(2, 2, 3, 4, device=device)
    layer = MultiHeadAttention(8, 2, rotate=Rotary(), bias=ALiBi(2)).to(device)
    partial, steep = Rotary(rotary_dim=2), ALiBi(2)
    given = Rotary(frequencies=[1.0, 0.1])
    cache = KVCache.init((2,), 2, 4, 4, device=device)
    encode = PositionalEncoding(8)
    return {
        "rotate": lambda: rotate(heads),
        "Rotary": lambda: Rotary()(heads),
        "partial Rotary": lambda: partial(heads),
        "given Rotary": lambda: given(heads),
        "ALiBi": lambda: scaled_dot_product_attention(
            heads, heads, heads, bias=steep, causal=True
        ),
        "frequencies": lambda: frequencies(8, device=device),
        "causal_mask": lambda: causal_mask(3, device=device),
        "window_mask": lambda: window_mask(3, 3, 2, device=device),
        "length_mask": lambda: length_mask(
            torch.ones(2, dtype=torch.long, device=device), 3
        ),
        "PositionalEncoding": lambda: encode(x),
        "MultiHeadAttention": lambda: layer(x, causal=True),
        "decoding": lambda: layer(x, cache=cache),
        "dropout": lambda: dropout(x, 0.5, 3),
    }


@pytest.mark.parametrize("name", on("cpu"))
def test_calls_neither_wait_for_a_device_nor_copy_to_it(name):
    """The meta device holds no values: to read one is an error, and a tensor of the host is noted."""
    call = on("meta")[name]
    with Watch("meta") as watch:
        call()
    assert watch.foreign == []


def test_causal_mask_makes_nothing_larger_than_itself():
    with Watch("cpu") as watch:
        causal_mask(2048)
        window_mask(2048, 2048, 5)
    assert watch.largest == 2048**2


def test_a_program_that_is_compiled_keeps_no_encodings(monkeypatch):
    layer, x = PositionalEncoding(8), torch.zeros(1, 4, 8)
    want = PositionalEncoding(8)(x)
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    assert torch.equal(layer(x), want)
    assert layer._kept is None


def test_a_full_cache_of_a_device_is_told_by_nan(monkeypatch):
    layer, cache = MultiHeadAttention(8, 2), KVCache.init((1,), 2, 3, 4)
    monkeypatch.setattr("posattn.torch.attention.cache.readable", lambda positions: False)
    with torch.no_grad():
        out, cache = layer(torch.ones(1, 3, 8), cache=cache)
        assert out.isfinite().all()
        assert layer(torch.ones(1, 1, 8), cache=cache)[0].isnan().all()
