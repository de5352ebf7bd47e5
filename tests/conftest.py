"""Three columns behind one fixture: a test is written once and runs in NumPy, PyTorch and JAX."""

import contextlib
import gc
import importlib
import os
from dataclasses import dataclass

import jax

# Most of the time goes into compiling for JAX what runs once: let it not optimise. Notebooks and
# oracles compile as a user does.
os.environ["XLA_FLAGS"] = (
    "--xla_force_host_platform_device_count=4 "  # for rings
    "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true "
    "--xla_cpu_parallel_codegen_split_count=1 "
    + "--xla_cpu_use_fusion_emitters=false " * (jax.__version_info__ < (0, 11, 1))
    + os.environ.get("XLA_FLAGS", "")
)

import hypothesis
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest
import torch
from beartype import BeartypeConf, beartype

checked = beartype(conf=BeartypeConf(is_pep484_tower=True))  # an int is a float
jaxtyping.install_import_hook(  # each annotation becomes a check, where arrays are annotated
    [f"posattn.{name}" for name in ("reference", "torch", "jax", "figures")],
    "tests.conftest.checked",
)

torch.set_num_threads(1)
hypothesis.settings.register_profile(
    "posattn",
    deadline=None,
    derandomize=True,
    max_examples=25,
    suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture],
)
hypothesis.settings.load_profile("posattn")

# |result - reference| <= bound * max(1, largest |reference|), of values and of directional derivatives.
BOUND = {"float64": 1e-12, "float32": 2e-6, "bfloat16": 2.5e-2}
STEP = 1e-30  # of complex differentiation, which subtracts nothing and so may be as small as it likes
COTANGENT, DIRECTIONS = 1, (2, 3, 4)  # seeds
PROJECTIONS = ("query", "key", "value", "output")


def need(there, reason):
    """Without it, skip on a user's machine and fail where nothing may be skipped."""
    if not there:
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(reason)


def pytest_ignore_collect(collection_path):
    """Collect tests only: a helper has no examples, and may need what this folder's tests do not."""
    helper = collection_path.suffix == ".py" and not collection_path.name.startswith(
        "test_"
    )
    return helper or None


def pytest_collection_finish():
    """Keep what is imported out of the garbage collector, which would walk it again and again."""
    gc.collect()
    gc.freeze()


def draw(seed, *shape):
    """Normal numbers in steps of 1/16, which every dtype holds, so that all columns start alike."""
    return np.clip(
        np.round(16 * np.random.default_rng(seed).normal(size=shape)) / 16, -7, 7
    )


@dataclass(frozen=True)
class _Reference:
    """NumPy."""

    dtype: str = "float64"
    name = "reference"

    def __str__(self):
        return f"{self.name}-{self.dtype}"

    def __getattr__(self, name):
        return getattr(importlib.import_module(f"posattn.{self.name}"), name)

    def mode(self):
        return contextlib.nullcontext()

    def array(self, x):
        """Make an array of the column, of the column's dtype if it holds real numbers."""
        return np.array(x)

    def positions(self, x):
        """Make an array of positions, which have a dtype of their own."""
        return np.asarray(x)

    def numpy(self, x):
        return np.asarray(x)

    def rng(self, seed=0):
        return np.random.default_rng(seed)

    def multi_head(self, weights, num_heads, **options):
        """Make a layer from 4 matrices for `x @ weight`, and 4 offsets or none."""
        return self.MultiHeadAttention(*weights, num_heads=num_heads, **options)

    def learned(self, table):
        return self.LearnedPositionalEncoding(table)

    def with_parameters(self, name, parameters, *sizes, **options):
        """Make a layer from its parameters by name; `sizes` are what PyTorch's constructor asks for."""
        return getattr(self, name)(**parameters, **options)

    def derivative(self, function, inputs, directions):
        """How `function(*inputs)` changes as each input moves along its direction: the complex step."""
        return (
            function(
                *(x + 1j * STEP * v for x, v in zip(inputs, directions, strict=True))
            ).imag
            / STEP
        )


class _Torch(_Reference):
    """PyTorch."""

    name = "torch"

    def array(self, x):
        x = np.array(x)
        return torch.tensor(
            x, dtype=getattr(torch, self.dtype) if x.dtype.kind == "f" else None
        )

    def positions(self, x):
        return torch.tensor(x)

    def numpy(self, x):
        assert not x.is_floating_point() or str(x.dtype) == f"torch.{self.dtype}"
        return x.detach().double().numpy() if x.is_floating_point() else x.numpy()

    def rng(self, seed=0):
        return torch.Generator().manual_seed(seed)

    def multi_head(self, weights, num_heads, **options):
        layer = self.MultiHeadAttention(
            len(weights[0]),
            num_heads,
            head_dim=weights[0].shape[1] // num_heads,
            kv_dim=len(weights[1]),
            use_bias=len(weights) == 8,
            **options,
        )
        names = [f"{role}.{kind}" for kind in ("weight", "bias") for role in PROJECTIONS]
        state = dict(zip(names, [*(w.mT for w in weights[:4]), *weights[4:]], strict=False))
        layer.eval()  # in training it warns of a dropout that has nothing to draw from
        return lambda *inputs, **options: torch.func.functional_call(
            layer, state, inputs, options
        )

    def learned(self, table):
        layer = self.LearnedPositionalEncoding(*table.shape)
        return lambda *inputs, **options: torch.func.functional_call(
            layer, {"table": table}, inputs, options
        )

    def with_parameters(self, name, parameters, *sizes, **options):
        layer = getattr(self, name)(*sizes, **options)
        for key, value in parameters.items():
            delattr(layer, key)  # a parameter must be a leaf, an attribute need not
            scalar = value is not None and value.ndim == 0  # FSDP2 wants an axis
            setattr(layer, key, value[None] if scalar else value)
        return layer

    def value_and_gradients(self, function, inputs):
        """`function(*inputs)`, and the gradients of its product with COTANGENT, as NumPy arrays."""
        inputs = [self.array(x).requires_grad_() for x in inputs]
        value = function(*inputs)
        cotangent = self.array(draw(COTANGENT, *value.shape))
        gradients = torch.autograd.grad(value, inputs, cotangent, materialize_grads=True)
        return self.numpy(value), [self.numpy(g) for g in gradients]


class _Jax(_Torch):
    """JAX, in its 64-bit mode for float64 and in its usual 32-bit mode otherwise."""

    name = "jax"

    def mode(self):
        return jax.enable_x64(self.dtype == "float64")

    def array(self, x):
        x = np.array(x)
        return jnp.asarray(x, self.dtype if x.dtype.kind == "f" else None)

    def positions(self, x):
        return jnp.asarray(x)

    def numpy(self, x):
        floating = jnp.issubdtype(x.dtype, jnp.floating)
        assert not floating or x.dtype == self.dtype
        return np.asarray(x, np.float64 if floating else None)

    def rng(self, seed=0):
        return jax.random.key(seed)

    multi_head = _Reference.multi_head
    learned = _Reference.learned
    with_parameters = _Reference.with_parameters

    def value_and_gradients(self, function, inputs):
        @jax.jit
        def run(*inputs):
            value, pull_back = jax.vjp(function, *inputs)
            return value, pull_back(self.array(draw(COTANGENT, *value.shape)))

        value, gradients = run(*map(self.array, inputs))
        return self.numpy(value), [self.numpy(g) for g in gradients]


REFERENCE = _Reference()
TWINS = [Twin(dtype) for dtype in BOUND for Twin in (_Torch, _Jax)]
COLUMNS = [REFERENCE, *TWINS[:2]]


def _in_mode(column):
    with column.mode():
        yield column


@pytest.fixture(params=COLUMNS, ids=lambda column: column.name)
def column(request):
    """Each column, in float64."""
    yield from _in_mode(request.param)


@pytest.fixture(params=TWINS, ids=str)
def twin(request):
    """PyTorch and JAX, in each dtype."""
    yield from _in_mode(request.param)


@pytest.fixture(params=TWINS[:4], ids=str)
def precise_twin(request):
    """PyTorch and JAX, in float64 and float32."""
    yield from _in_mode(request.param)


@pytest.fixture(autouse=True, scope="module")
def forgotten():
    """Let go of what JAX has compiled for a file: no other file runs it, and it takes gigabytes."""
    yield
    jax.clear_caches()


@pytest.fixture
def torch_column():
    """PyTorch in float64."""
    return _Torch()


@pytest.fixture
def jax_single():
    """JAX as it is out of the box: 32-bit."""
    yield from _in_mode(_Jax("float32"))


@pytest.fixture
def unchecked():
    """Switch the annotation checks off, as a user has them."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


def error(got, want):
    """The largest difference, relative to the largest wanted number or 1."""
    assert np.shape(got) == np.shape(want)
    return np.max(np.abs(got - want), initial=0) / max(1, np.max(np.abs(want), initial=0))


def assert_close(column, got, want):
    """`got`, an array of the column, is `want`, a NumPy array, within the column's bound."""
    assert error(column.numpy(got), want) <= BOUND[column.dtype]


def assert_twin_agrees(twin, function, *inputs):
    """Values and gradients of `function(column, *arrays)` are those of the reference."""
    value, gradients = twin.value_and_gradients(lambda *xs: function(twin, *xs), inputs)
    want = function(REFERENCE, *inputs)
    assert error(value, want) <= BOUND[twin.dtype]
    for seed in DIRECTIONS:
        directions = [draw(seed + 10 * i, *x.shape) for i, x in enumerate(inputs)]
        change = REFERENCE.derivative(
            lambda *xs: function(REFERENCE, *xs), inputs, directions
        )
        true = np.sum(draw(COTANGENT, *want.shape) * change)
        got = sum(np.sum(g * v) for g, v in zip(gradients, directions, strict=True))
        assert (
            error(got, true) <= 2 * BOUND[twin.dtype]
        )  # back through what has rounded once
