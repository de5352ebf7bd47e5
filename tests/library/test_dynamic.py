"""What PyTorch asks of a module: made without memory, filled later, compiled and exported for any length."""

import contextlib

import pytest
import torch

from posattn import torch as column

HEADS, WIDTH, DIM = 2, 4, 8
# how to make it with `device` and `dtype`
MODULES = {
    "CoPE": lambda **o: column.CoPE(16, WIDTH, **o),
    "DisentangledBias": lambda **o: column.DisentangledBias(4, DIM, HEADS, **o),
    "DisentangledBias, buckets": lambda **o: column.DisentangledBias(
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
    "ShawRelative, no values": lambda **o: column.ShawRelative(
        3, WIDTH, use_values=False, **o
    ),
    "SwinBias": lambda **o: column.SwinBias(HEADS, 8, 8, **o),
    "T5Bias": lambda **o: column.T5Bias(HEADS, **o),
    "TUPEBias": lambda **o: column.TUPEBias(64, DIM, HEADS, **o),
    "TUPEBias, [CLS]": lambda **o: column.TUPEBias(64, DIM, HEADS, use_cls=True, **o),
    "TransformerXLBias": lambda **o: column.TransformerXLBias(DIM, HEADS, **o),
}
REPRESENTED = {
    "CoPE": "CoPE(max_len=16, head_dim=4)",
    "DisentangledBias, buckets": "DisentangledBias(max_distance=8, dim=8, num_heads=2, "
    "same_row=True, bucketed_to=32)",
    "FIRE": "FIRE(num_heads=2, hidden_dim=3, threshold=512.0)",
    "ForgettingGate": "ForgettingGate(dim=8, num_heads=2)",
    "KerpleLog": "KerpleLog(num_heads=2)",
    "KerplePower": "KerplePower(num_heads=2)",
    "LearnedPositionalEncoding": "LearnedPositionalEncoding(max_len=64, dim=8)",
    "RelativeGlobalAttention": "RelativeGlobalAttention(max_len=8, num_heads=2, head_dim=4)",
    "ShawRelative": "ShawRelative(max_distance=3, head_dim=4, use_values=True)",
    "SwinBias": "SwinBias(num_heads=2, height=8, width=8)",
    "T5Bias": "T5Bias(num_heads=2, num_buckets=32, max_distance=128, bidirectional=True)",
    "TUPEBias, [CLS]": "TUPEBias(max_len=64, dim=8, num_heads=2, use_cls=True)",
    "TransformerXLBias": "TransformerXLBias(dim=8, num_heads=2, base=10000.0)",
}
WITHOUT_PARAMETERS = {
    "ALiBi": lambda: column.ALiBi(HEADS),
    "sandwich_bias": lambda: column.sandwich_bias(HEADS, dim=DIM),
}
SCHEMES = WITHOUT_PARAMETERS | MODULES
LENGTHS = (5, 9, 17)
each_module = pytest.mark.parametrize("name", MODULES)
each_scheme = pytest.mark.parametrize("name", SCHEMES)
pytestmark = pytest.mark.usefixtures("unchecked")


class Scheme(torch.nn.Module):
    """A scheme as a function of a sequence alone: what it adds, whichever place it has."""

    def __init__(self, module, last=None):
        super().__init__()
        self.module, self.last = module, last

    def forward(self, x):
        """At positions 0, 1, ... of keys, and of queries, or of their last few."""
        positions = torch.arange(x.shape[-2], device=x.device)
        if isinstance(self.module, column.LearnedPositionalEncoding):
            return self.module(x) + self.module(x, positions=positions)
        if isinstance(self.module, column.ForgettingGate):
            return column.forgetting_bias(self.module(x), self.last)
        few = slice(None if self.last is None else -self.last, None)
        if not hasattr(self.module, "scores"):
            return self.module(positions[few], positions)
        heads = x.unflatten(-1, (HEADS, WIDTH)).transpose(-2, -3)
        query, at = heads[..., few, :], positions[few]
        scores = self.module.scores(query, heads, at, positions)
        if not hasattr(self.module, "values"):
            return scores
        return scores.mT @ self.module.values(scores, at, positions)


def sequence(length, device="cpu"):
    if device == "meta":
        return torch.empty(2, length, DIM, device="meta")
    return torch.randn(2, length, DIM, generator=torch.Generator().manual_seed(length))


@each_module
def test_made_without_memory_it_works_once_it_is_filled(name):
    module = MODULES[name](device="meta")
    assert all(parameter.is_meta for parameter in module.parameters())
    assert all(
        parameter.ndim for parameter in module.parameters()
    )  # FSDP2 shards by the first axis
    module.to_empty(device="cpu")
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.fill_(torch.nan)
    module.reset_parameters(torch.Generator().manual_seed(0))
    fresh = MODULES[name](rng=torch.Generator().manual_seed(0))
    assert module.state_dict().keys() == fresh.state_dict().keys()
    for got, want in zip(module.parameters(), fresh.parameters(), strict=True):
        assert torch.equal(got, want)
    x = sequence(5)
    assert torch.equal(Scheme(module)(x), Scheme(fresh)(x))


@each_module
def test_without_memory_it_has_shapes(name):
    want = Scheme(MODULES[name]())(sequence(5))
    got = Scheme(MODULES[name](device="meta"))(sequence(5, "meta"))
    assert got.is_meta
    assert (got.shape, got.dtype) == (want.shape, want.dtype)


@pytest.mark.parametrize("name", REPRESENTED)
def test_it_shows_its_sizes(name):
    assert repr(MODULES[name]()) == REPRESENTED[name]


@each_module
def test_what_is_no_generator_is_refused(name):
    with pytest.raises(TypeError, match=r"rng must be a torch\.Generator, got int"):
        MODULES[name]().reset_parameters(0)


def test_every_module_with_parameters_is_here():
    """Those that are missing have tests of their own."""
    elsewhere = {"MixedRotary", "MultiHeadAttention", "PositionalEncoding", "Rotary"}
    elsewhere |= {"DAPE", "Decoder", "LatentAttention", "PolarKey", "StickBreaking"}
    elsewhere |= {"SwinV2Bias"}
    classes = {
        name
        for name in column.__all__
        if isinstance(getattr(column, name), type)
        and issubclass(getattr(column, name), torch.nn.Module)
    }
    assert classes - elsewhere <= {name.partition(",")[0] for name in SCHEMES}


@contextlib.contextmanager
def counted():
    """Count the graphs that are compiled; compiling costs nothing else."""
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph

    torch.compiler.reset()
    yield graphs, backend
    torch.compiler.reset()


@pytest.mark.slow
@each_scheme
@pytest.mark.parametrize("last", [None, 1], ids=["all queries", "the last query"])
def test_one_graph_serves_all_lengths(name, last):
    scheme = Scheme(SCHEMES[name](), last)
    with counted() as (graphs, backend):
        compiled = torch.compile(scheme, fullgraph=True, backend=backend)
        for length in LENGTHS:
            x = sequence(length)
            torch._dynamo.mark_dynamic(x, 1)
            assert torch.equal(compiled(x), scheme(x))
    assert len(graphs) == 1


@pytest.mark.slow
@each_scheme
def test_an_exported_module_takes_other_lengths(name):
    scheme = Scheme(SCHEMES[name]())
    length = torch.export.Dim("length", min=2, max=64)
    program = torch.export.export(
        scheme, (sequence(LENGTHS[0]),), dynamic_shapes=({1: length},)
    )
    exported = program.module()
    for n in LENGTHS[1:]:
        assert torch.allclose(exported(sequence(n)), scheme(sequence(n)), atol=1e-6)
