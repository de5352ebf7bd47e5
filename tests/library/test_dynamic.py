"""What PyTorch asks of a module: made without memory, filled later, and named with its sizes."""

import pytest
import torch

from posattn import torch as column

HEADS, WIDTH, DIM = 2, 4, 8
# how to make it with `device` and `dtype`
MODULES = {
    "CoPE": lambda **o: column.CoPE(16, WIDTH, **o),
    "DAPE": lambda **o: column.DAPE(HEADS, column.ALiBi(HEADS), **o),
    "DisentangledBias": lambda **o: column.DisentangledBias(
        8, DIM, HEADS, same_row=True, bucketed_to=32, **o
    ),
    "FIRE": lambda **o: column.FIRE(HEADS, hidden_dim=3, **o),
    "ForgettingGate": lambda **o: column.ForgettingGate(DIM, HEADS, **o),
    "KerpleLog": lambda **o: column.KerpleLog(HEADS, **o),
    "KerplePower": lambda **o: column.KerplePower(HEADS, **o),
    "LearnedPositionalEncoding": lambda **o: column.LearnedPositionalEncoding(64, DIM, **o),
    "RelativeGlobalAttention": lambda **o: column.RelativeGlobalAttention(
        8, HEADS, WIDTH, **o
    ),
    "ShawRelative": lambda **o: column.ShawRelative(3, WIDTH, **o),
    "SwinBias": lambda **o: column.SwinBias(HEADS, 8, 8, **o),
    "SwinV2Bias": lambda **o: column.SwinV2Bias(HEADS, 4, 5, trained_width=8, **o),
    "T5Bias": lambda **o: column.T5Bias(HEADS, **o),
    "TUPEBias": lambda **o: column.TUPEBias(64, DIM, HEADS, use_cls=True, **o),
    "TransformerXLBias": lambda **o: column.TransformerXLBias(DIM, HEADS, **o),
}
REPRESENTED = """\
CoPE(max_len=16, head_dim=4)
DAPE(2, hidden_dim=32)
DisentangledBias(max_distance=8, dim=8, num_heads=2, same_row=True, bucketed_to=32)
FIRE(num_heads=2, hidden_dim=3, threshold=512.0)
ForgettingGate(dim=8, num_heads=2)
KerpleLog(num_heads=2)
KerplePower(num_heads=2)
LearnedPositionalEncoding(max_len=64, dim=8)
RelativeGlobalAttention(max_len=8, num_heads=2, head_dim=4)
ShawRelative(max_distance=3, head_dim=4, use_values=True)
SwinBias(num_heads=2, height=8, width=8)
SwinV2Bias(2, 4, 5, trained_height=4, trained_width=8, hidden_dim=512)
T5Bias(num_heads=2, num_buckets=32, max_distance=128, bidirectional=True)
TUPEBias(max_len=64, dim=8, num_heads=2, use_cls=True)
TransformerXLBias(dim=8, num_heads=2, base=10000.0)"""
each_module = pytest.mark.parametrize("name", MODULES)
pytestmark = pytest.mark.usefixtures("unchecked")


def output(module, device="cpu"):
    """What a module adds to five tokens."""
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(2, 5, DIM, generator=generator).to(device)
    positions = torch.arange(5, device=device)
    if isinstance(module, (column.LearnedPositionalEncoding, column.ForgettingGate)):
        return module(x)
    if not hasattr(module, "scores"):
        return module(positions, positions)
    heads = x.unflatten(-1, (HEADS, WIDTH)).transpose(-2, -3)
    scores = module.scores(heads, heads, positions, positions)
    if not hasattr(module, "values"):
        return scores
    return scores.mT @ module.values(scores, positions, positions)


@each_module
def test_made_without_memory_it_works_once_filled(name):
    module = MODULES[name](device="meta")
    assert all(parameter.is_meta for parameter in module.parameters())
    assert all(
        parameter.ndim for parameter in module.parameters()
    )  # FSDP2 shards by the first axis
    shape = output(module, "meta")
    module.to_empty(device="cpu")
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.fill_(torch.nan)
    module.reset_parameters(torch.Generator().manual_seed(0))
    fresh = MODULES[name](rng=torch.Generator().manual_seed(0))
    assert module.state_dict().keys() == fresh.state_dict().keys()
    got, want = output(module), output(fresh)
    assert torch.equal(got, want)
    assert shape.is_meta
    assert (shape.shape, shape.dtype) == (want.shape, want.dtype)


def test_modules_show_their_sizes():
    assert [repr(make()) for make in MODULES.values()] == REPRESENTED.splitlines()


def test_what_is_no_generator_is_refused():
    for make in MODULES.values():
        with pytest.raises(TypeError, match=r"rng must be a torch\.Generator, got int"):
            make().reset_parameters(0)


def test_every_module_with_parameters_is_here():
    """Those that are missing have tests of their own."""
    elsewhere = {"MixedRotary", "MultiHeadAttention", "PositionalEncoding", "Rotary"}
    elsewhere |= {"ALiBi", "Decoder", "LatentAttention", "PolarKey", "StickBreaking"}
    elsewhere |= {"DeltaAttention", "LightningIndexer"}
    public = {name: getattr(column, name) for name in column.__all__}
    classes = {
        name
        for name, kind in public.items()
        if isinstance(kind, type) and issubclass(kind, torch.nn.Module)
    }
    assert classes - elsewhere <= set(MODULES)
