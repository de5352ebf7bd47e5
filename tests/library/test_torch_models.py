"""The torch column inside of models: checkpointed, distributed, cast, saved, without memory."""

import copy
import dataclasses
import io
import pickle
import subprocess
import sys

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


def test_importing_the_column_imports_no_compiler():
    """`torch._dynamo` brings sympy and 800 other modules, and takes a second or more."""
    script = (
        "import sys, torch; before = set(sys.modules); import posattn.torch; "
        "print(sorted({'torch._dynamo', 'sympy'} & (set(sys.modules) - before)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


def test_what_a_layer_keeps_is_no_buffer():
    """Distributed training would send it to processes that see other lengths."""
    layer, encode = MultiHeadAttention(8, 2, rotate=Rotary()), PositionalEncoding(8)
    layer(encode(torch.ones(2, 4, 8)), causal=True)
    assert not [*layer.buffers(), *encode.buffers(), *encode.state_dict()]


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
    layer, x, where = MultiHeadAttention(8, 2), torch.randn(1, 5, 8), torch.arange(5)
    plain = MultiHeadAttention(8, 2)
    plain.load_state_dict(layer.state_dict())
    layer.bias = [T5Bias(2), ALiBi(2), ALiBi(2)]
    assert any("bias" in name for name in layer.state_dict())
    total = sum(b(where, where) for b in layer.bias)
    assert (layer(x) - plain(x, bias=total)).abs().max() < 1e-6


VALUES = {
    "Rotary": lambda: Rotary(
        base=500.0, layout="half", frequencies=torch.tensor([1.0, 0.1])
    ),
    "RotaryAxes": lambda: RotaryAxes(torch.eye(2)),
    "ALiBi": lambda: ALiBi(2, dtype=torch.float64),
    "sandwich_bias": lambda: sandwich_bias(2, dim=4),
    "StickBreaking": lambda: StickBreaking(),
    "Window": lambda: Window(3),
}


@pytest.mark.parametrize("make", VALUES.values(), ids=VALUES)
def test_schemes_without_parameters_are_values(make):
    """Casting and moving a layer changes none of them, since they are no modules."""
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
    names = vars(posattn.torch) | {"torch": torch, "_Sandwich": type(first)}
    copied = copy.deepcopy(MultiHeadAttention(8, 2, bias=first)).half().float().bias
    for other in (
        pickle.loads(pickle.dumps(first)),
        saved,
        eval(repr(first), names),
        copied,
    ):
        assert other == first


def test_schemes_print_what_was_given():
    assert repr(ALiBi(2, dtype=torch.half)) == "ALiBi(2, dtype=torch.float16)"
    layer = MultiHeadAttention(
        8, 2, scale=0.5, rotate=Rotary(base=5.0), bias=ALiBi(2), mask=Window(3)
    )
    shown = "scale=0.5, rotate=Rotary(base=5.0), bias=ALiBi(2), mask=Window(window=3)"
    assert f"num_heads=2, num_kv_heads=2, {shown}" in repr(layer)
    layer = MultiHeadAttention(
        8, 2, rotate=(rotate, None), bias=[StickBreaking()], sinks=True, soft_cap=30.0
    )
    for part in (
        "rotate=(<function rotate",
        "StickBreaking()",
        "sinks=True",
        "soft_cap=30.0",
    ):
        assert part in repr(layer)


def test_a_scheme_may_be_replaced():
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


def test_tables_are_made_once_for_each_device():
    """They belong to no mode of PyTorch."""
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


def test_layers_made_without_memory_work_later():
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
        8,
        2,
        rotate=Rotary(),
        query_norm=nn.LayerNorm(4),
        key_norm=nn.LayerNorm(4),
        gate=True,
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
    assert layer.init_cache((), 4).key.dtype == torch.get_default_dtype()


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


def test_calls_neither_wait_for_a_device_nor_copy():
    """The meta device holds no values: to read one is an error, and a tensor of the host is noted."""
    x = torch.ones(2, 3, 8, device="meta")
    heads = torch.ones(2, 2, 3, 4, device="meta")
    lengths = torch.ones(2, dtype=torch.long, device="meta")
    layer = MultiHeadAttention(8, 2, rotate=Rotary(), bias=ALiBi(2)).to("meta")
    partial, given = Rotary(rotary_dim=2), Rotary(frequencies=[1.0, 0.1])
    steep, encode = ALiBi(2), PositionalEncoding(8)
    cache = KVCache.init((2,), 2, 4, 4, device="meta")
    with Watch("meta") as watch:
        rotate(heads)
        partial(heads)
        given(heads)
        scaled_dot_product_attention(heads, heads, heads, bias=steep, causal=True)
        frequencies(8, device="meta")
        causal_mask(3, device="meta")
        window_mask(3, 3, 2, device="meta")
        length_mask(lengths, 3)
        encode(x)
        layer(x, causal=True)
        layer(x, cache=cache)
        dropout(x, 0.5, 3)
    assert watch.foreign == []


def test_causal_masks_make_nothing_larger_than_themselves():
    with Watch("cpu") as watch:
        causal_mask(2048)
        window_mask(2048, 2048, 5)
    assert watch.largest == 2048**2


def test_a_full_cache_of_a_device_gives_nan(monkeypatch):
    layer, cache = MultiHeadAttention(8, 2), KVCache.init((1,), 2, 3, 4)
    monkeypatch.setattr("posattn.torch.attention.cache.readable", lambda positions: False)
    with torch.no_grad():
        out, cache = layer(torch.ones(1, 3, 8), cache=cache)
        assert out.isfinite().all()
        assert layer(torch.ones(1, 1, 8), cache=cache)[0].isnan().all()
