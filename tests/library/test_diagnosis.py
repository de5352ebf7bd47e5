"""A model beside its configuration: the layer that differs is found, and what was read wrongly is named."""

import json
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from posattn import configs
from posattn.__main__ import main
from posattn.configs.weights import NAMES
from posattn.conformance import UsageError
from posattn.conformance.diagnosis import diagnose, percent
from posattn.conformance.slips import ANGLES, FREQUENCIES
from posattn.torch import (
    Decoder,
    LatentAttention,
    MultiHeadAttention,
    Rotary,
    RotaryAxes,
    mrope_positions,
    yarn,
)

pytestmark = pytest.mark.usefixtures("unchecked")  # other tests check the annotations

CONFIG = {
    "model_type": "mistral",
    "vocab_size": 40,
    "hidden_size": 32,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "num_hidden_layers": 3,
    "rope_theta": 500000.0,
    "sliding_window": 5,
}
NORMED = {name: x for name, x in CONFIG.items() if name != "sliding_window"} | {
    "model_type": "qwen3",
    "rms_norm_eps": 1e-6,
}

PAIRS, SHARPER = yarn(8, base=5e5, factor=4.0, trained_length=131072)
SLOWED = PAIRS.float() ** (
    -4 / torch.tensor([1, 1, 2, 3])
)  # the base of each pair; the first needs none


class Attention(nn.Module):
    """Attention as people write it, without posattn; options plant a fault."""

    def __init__(
        self,
        *,
        base=5e5,
        window=5,
        layout="half",
        scale=8**-0.5,
        cap=None,
        norms=None,
        names=("q_proj", "k_proj", "v_proj", "o_proj"),
        padded=None,
        tiled=False,
        ahead=0,
        coarse="",
    ):
        super().__init__()
        self.base, self.window, self.layout, self.scale = base, window, layout, scale
        self.cap, self.norms, self.names, self.padded = cap, norms, names, padded
        self.tiled, self.ahead, self.coarse = tiled, ahead, coarse
        for name, rows in zip(names, (32, 16, 16, 32), strict=True):
            setattr(self, name, nn.Linear(32, rows, bias=False))
        if norms is not None:
            self.q_norm, self.k_norm = (nn.RMSNorm(8, eps=1e-6) for _ in "qk")
            for norm in (self.q_norm, self.k_norm):
                nn.init.normal_(norm.weight)

    def rotate(self, x, positions):
        """In halves or by neighbors."""
        frequencies = self.base ** (-torch.arange(4) / 4)
        if self.coarse:
            frequencies = frequencies.bfloat16()
            positions = positions.to(getattr(torch, self.coarse))
        angles = positions[..., None, :, None] * frequencies
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        if self.layout == "half":
            a, b = x[..., :4], x[..., 4:]
            return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)
        a, b = x[..., ::2], x[..., 1::2]
        return torch.stack([a * cos - b * sin, b * cos + a * sin], -1).flatten(-2)

    def prepared(self, x, norm, positions):
        """Normalised before or after it rotates, or not at all."""
        if self.norms == "before":
            return self.rotate(norm(x), positions)
        return norm(self.rotate(x, positions)) if self.norms else self.rotate(x, positions)

    def forward(self, x, positions, shown=None):
        """The output and the weights, as transformers has them."""
        b, n, _ = x.shape
        q, k, v = (
            getattr(self, name)(x).view(b, n, -1, 8).transpose(1, 2)
            for name in self.names[:3]
        )
        ahead = positions + self.ahead
        q = self.prepared(q, getattr(self, "q_norm", None), ahead)
        k = self.prepared(k, getattr(self, "k_norm", None), positions)
        k, v = (x[:, [0, 1, 0, 1] if self.tiled else [0, 0, 1, 1]] for x in (k, v))
        scores = self.scale * q @ k.mT
        if self.cap:
            scores = self.cap * torch.tanh(scores / self.cap)
        apart = torch.arange(n)[:, None] - torch.arange(n)
        seen = apart >= 0
        if self.window:
            seen = seen & (apart < self.window)
        if shown is not None:
            shown = shown[:, None] if shown.ndim == 2 else shown  # of pairs if not
            seen = seen & shown.bool()[:, None]
        wide = torch.promote_types(scores.dtype, torch.float32)
        scores = scores.masked_fill(~seen, torch.finfo(scores.dtype).min)
        weights = scores.softmax(-1, dtype=wide).to(scores.dtype)
        heads = (weights @ v).transpose(1, 2).flatten(-2)
        return getattr(self, self.names[3])(heads), weights


class Layer(nn.Module):
    """A block of nothing but attention."""

    def __init__(self, **options):
        super().__init__()
        self.self_attn = Attention(**options)

    def forward(self, x, *others):
        """With its residual."""
        return x + self.self_attn(x, *others)[0]


class Model(nn.Module):
    """A layer for each of some options."""

    def __init__(self, *options):
        super().__init__()
        torch.manual_seed(0)
        self.embed = nn.Embedding(40, 32)
        self.layers = nn.ModuleList(Layer(**one) for one in options)
        for attention in self.attentions:
            for name in attention.names[:2]:
                getattr(attention, name).weight.data.mul_(4)

    @property
    def attentions(self):
        """The attention of each layer."""
        return [layer.self_attn for layer in self.layers]

    def forward(self, input_ids, attention_mask=None, position_ids=None):
        """What comes out of the last layer."""
        x = self.embed(input_ids)
        if position_ids is None:
            position_ids = torch.arange(x.shape[1])
        for layer in self.layers:
            x = layer(x, position_ids, attention_mask)
        return x


def agreeing(found):
    """Whether each layer agrees."""
    return [line.agrees for line in found.findings]


def test_three_planted_faults_are_each_found_and_named():
    model = Model({"base": 1e4}, {"window": 6}, {"layout": "interleaved"})
    found = diagnose(model, CONFIG)
    assert agreeing(found) == [False] * 3
    assert found.first == 0
    (base,), (window,), (layout,) = (line.causes for line in found.findings)
    assert base == "The base is 10000: the configuration says 500000."
    assert window.startswith("The window is one too large")
    assert layout == "The layout is interleaved: it should be half."
    keys = [line.keys[:1] for line in found.findings]
    assert keys == [("rope_theta",), ("sliding_window",), ()]
    assert "first that does not is layer 0" in str(found)


@pytest.mark.parametrize(
    ("fault", "cause"),
    [
        ({"window": None}, "The window is ignored."),
        ({"window": 4}, "The window is one too small"),
        ({"window": 9}, "The window is 9: the configuration says 5."),
        ({"base": 2.5e5}, "The base is 250000: the configuration says 500000."),
        ({"scale": 12**-0.5}, "The scale is one over the square root of 12"),
        ({"cap": 30.0}, "The soft cap is 30"),
        ({"tiled": True}, "Key heads are repeated one after the other"),
        ({"ahead": 1}, "Each query rotates one position ahead of its key"),
        ({"ahead": -1}, "Each query rotates one position behind its key"),
        ({"coarse": "bfloat16"}, "Angles are computed in bfloat16"),
        (
            {"base": SLOWED, "scale": 8**-0.5 * SHARPER**2},
            "YaRN by 4 from 131072 positions",
        ),
    ],
)
def test_layers_behind_a_wrong_one_are_judged_by_themselves(fault, cause):
    found = diagnose(Model({}, fault, {}), CONFIG)
    assert agreeing(found) == [True, False, True]
    assert found.first == 1
    (said,) = found.findings[1].causes
    assert said.startswith(cause)
    assert said in str(found)


def test_a_base_that_is_near_is_named_in_every_layer():
    model = Model(*[{"base": 2.5e5}] * 4)
    found = diagnose(model, CONFIG | {"num_hidden_layers": 4})
    assert [line.causes[0][:22] for line in found.findings] == [
        "The base is 250000: th"
    ] * 4


@pytest.mark.parametrize(("off", "agrees"), [(1e-6, True), (4e-5, False), (1e-3, False)])
def test_a_layer_off_by_more_than_rounding_differs(off, agrees):
    model = Model({}, {}, {})
    project = model.attentions[1].o_proj
    project.register_forward_hook(lambda module, args, out: out * (1 + off))
    found = diagnose(model, CONFIG, 16)
    assert agreeing(found) == [True, agrees, True]
    assert found.findings[1].error == pytest.approx(off, rel=0.3)
    assert found.findings[1].causes == ()
    assert ("No known misreading explains this." in str(found)) != agrees
    assert found.first == (None if agrees else 1)


@pytest.mark.parametrize(
    ("name", "value", "cause"),
    [
        ("norms", "before", None),
        ("norms", "after", "Queries and keys are normalized after the rotation."),
        ("norms", None, "Queries and keys are not normalized."),
        ("coarse", "float32", FREQUENCIES),
        ("coarse", "bfloat16", ANGLES),
    ],
)
def test_a_layer_with_norms_may_be_wrong(name, value, cause):
    model = Model({"window": None, "norms": "before", "base": 1e4})
    setattr(model.attentions[0], name, value)
    config = NORMED | {"num_hidden_layers": 1, "rope_theta": 1e4}
    (line,) = diagnose(model, config).findings
    assert line.agrees == (cause is None)
    assert list(line.causes) == [cause] * (cause is not None)


def padded():
    """Tokens, and a mask that hides the first three of the second text."""
    shown = torch.ones(2, 16, dtype=torch.long)
    shown[1, :3] = 0
    return torch.randint(0, 40, shown.shape), shown


def test_padding_and_positions_are_those_of_the_inputs():
    tokens, shown = padded()
    where = (shown.cumsum(-1) - 1).clamp(min=0)
    inputs = {"input_ids": tokens, "attention_mask": shown, "position_ids": where}
    found = diagnose(Model({}, {"base": 1e4}, {}), CONFIG, inputs)
    assert agreeing(found) == [True, False, True]


def test_padding_that_is_seen_is_named():
    tokens, shown = padded()

    class Unmasked(Model):
        def forward(self, tokens, attention_mask=None):
            return super().forward(tokens)

    inputs = {"tokens": tokens, "attention_mask": shown}
    (line,) = diagnose(Unmasked({}), CONFIG | {"num_hidden_layers": 1}, inputs).findings
    assert line.causes == ("Padding is seen: attention_mask is ignored.",)
    with pytest.raises(UsageError, match="unexpected keyword argument 'tokens'"):
        diagnose(Model({}, {}, {}), CONFIG, inputs)


RIGHT = Rotary(base=5e5, layout="half")


def since(at):
    """How far positions are from the first of their call."""
    return at - at[..., :1]


FORGOTTEN = {
    "agrees": {},
    "Each call rotates its queries and keys as": {
        "rotate": lambda x, at: RIGHT(x, since(at))
    },
    "Each call rotates its queries as": {
        "rotate": [lambda x, at: RIGHT(x, since(at)), RIGHT]
    },
    "counts queries from 0 in each call": {
        "mask": lambda queries, keys: keys[..., None, :] <= since(queries)[..., None]
    },
}


class Theirs(nn.Module):
    """A decoder that is called as those of transformers are."""

    def __init__(self, decoder):
        super().__init__()
        self.decoder = decoder

    def forward(self, input_ids, past_key_values=None, use_cache=False):
        """Logits, and the cache if it is used."""
        if not use_cache:
            return SimpleNamespace(logits=self.decoder(input_ids))
        cache = past_key_values or self.decoder.init_cache(len(input_ids), 272)
        logits, cache = self.decoder(input_ids, cache=cache)
        return SimpleNamespace(logits=logits, past_key_values=cache)


@pytest.mark.parametrize("theirs", [False, True])
@pytest.mark.parametrize("cause", FORGOTTEN)
def test_what_a_later_call_forgets_is_named(cause, theirs):
    options = {"num_layers": 1, "num_heads": 4, "num_kv_heads": 2, "rotate": RIGHT}
    model = Decoder(40, 32, **options | FORGOTTEN[cause])
    weights = {}
    for place in ("query", "key", "value", "output"):
        own = model.blocks[0].attention.get_submodule(place).weight.data.mul_(4)
        weights[f"model.layers.0.self_attn.{place[0]}_proj.weight"] = own
    config = NORMED | {"model_type": "llama", "num_hidden_layers": 1}
    place = "blocks.{}.attention"
    look = partial(diagnose, model, config, attention=place, weights=weights)
    if theirs:
        found = diagnose(
            Theirs(model), config, attention=f"decoder.{place}", weights=weights
        )
    else:
        found = look()
    assert cause in str(found.findings[0])
    assert found.calls == 9
    forgetful = look(
        decode=lambda model, tokens: [model(part) for part in tokens.split(9, 1)]
    )
    assert forgetful.first == 0
    with pytest.raises(UsageError, match="decode must give each attention the 272 tokens"):
        look(decode=lambda model, tokens: model(tokens[:, :9]))


def test_a_layer_beyond_the_configuration_does_not_agree():
    found = diagnose(Model({}, {}, {}), CONFIG | {"num_hidden_layers": 2})
    assert agreeing(found) == [True, True, False]
    assert not found.agrees
    assert "2 of 3 layers do what the configuration says, 1 not compared" in str(found)
    assert found.findings[2].why == "the configuration says that there are 2 layers"


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_half_precision_is_compared_too(dtype):
    model = Model({}, {"layout": "interleaved"}, {}).to(dtype)
    for own in model.attentions:
        own.rotate = lambda x, p, own=own: Attention.rotate(own, x, p).to(dtype)
    found = diagnose(model, CONFIG)
    assert agreeing(found) == [True, False, True]
    assert "The layout is interleaved: it should be half." in found.findings[1].causes
    coarse = [note.split()[0] for note in found.notes]
    assert coarse == [str(dtype).removeprefix("torch.")] * (dtype.itemsize == 2)


@pytest.mark.parametrize(
    "attention", ["layers.{}.self_attn", lambda model, index: model.layers[index].self_attn]
)
def test_attention_may_have_other_names(attention):
    own = {"names": ("wq", "wk", "wv", "wo")}
    model = Model(own, own | {"base": 1e4}, own)
    theirs = dict(zip(own["names"], ("q_proj", "k_proj", "v_proj", "o_proj"), strict=True))
    weights = {}
    for name, array in model.state_dict().items():
        for short, long in theirs.items():
            name = name.replace(f".{short}.", f".{long}.")
        weights[name] = array
    found = diagnose(model, CONFIG, attention=attention, weights=weights)
    assert agreeing(found) == [True, False, True]
    alone = diagnose(model, CONFIG, attention=attention)
    assert "weights lack" in alone.findings[0].why
    assert "0 of 3 layers do what the configuration says, 3 not compared" in str(alone)
    assert alone.first is None
    assert not alone.agrees


def scaled(method="yarn", **numbers):
    """The configuration of one layer without a window, with a scaling."""
    config = {name: x for name, x in CONFIG.items() if name != "sliding_window"}
    said = {"rope_type": method, "factor": 4.0, "original_max_position_embeddings": 4096}
    config |= {"model_type": "llama", "num_hidden_layers": 1, "rope_theta": 1e4}
    return config | {"rope_scaling": said | numbers}


LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0}


@pytest.mark.parametrize(
    ("built", "cause"),
    [
        ({"factor": 8.0}, "The factor is 8: the configuration says 4."),
        (
            {"original_max_position_embeddings": 16384},
            "The original length is 8192 or 16384: the configuration says 4096.",
        ),
        ({"truncate": False}, "The ends of the blend stay fractions"),
        (LLAMA3 | {"method": "llama3"}, "Frequencies are scaled as llama3: the config"),
        ({"attention_factor": 1.0}, "The attention factor is missing: it is 1."),
    ],
)
def test_a_number_of_the_scaling_is_named(built, cause):
    model, theirs = Model({"window": None}), scaled(**built)
    rope = configs.plan(theirs).layers[0].rope
    model.attentions[0].rotate = Rotary(
        layout="half", frequencies=rope.frequencies, attention_factor=rope.attention_factor
    )
    (line,) = diagnose(model, scaled()).findings
    assert not line.agrees
    assert any(said.startswith(cause) for said in line.causes)
    assert diagnose(model, theirs).agrees


def test_all_pairs_that_rotate_too_slowly_are_named():
    model = Model({"window": None, "base": 1e4})
    own = model.attentions[0]
    own.rotate = lambda x, positions: Attention.rotate(own, x, positions / 4)
    (line,) = diagnose(model, scaled("linear", factor=8.0)).findings
    assert line.causes == ("The factor is 4: the configuration says 8.",)


def test_half_precision_hides_no_scaling():
    model = Model({"window": None, "base": 1e4}).to(torch.bfloat16)
    own = model.attentions[0]
    own.rotate = lambda x, p: Attention.rotate(own, x, p).to(torch.bfloat16)
    nn.init.normal_(own.q_proj.weight, std=0.1)  # which bfloat16 rounds less
    assert diagnose(model, scaled() | {"rope_scaling": None}).agrees
    (wrong,) = diagnose(model, scaled("llama3", **LLAMA3)).findings
    assert not wrong.agrees
    assert "The scaling, llama3, is ignored." in wrong.causes


def test_a_window_that_the_configuration_lacks_is_seen():
    model, config = Model({"window": 30, "base": 1e4}), scaled() | {"rope_scaling": None}
    (line,) = diagnose(model, config).findings
    assert line.causes == ("The window is 30: the configuration says none.",)
    few = diagnose(model, config, 24)
    assert few.agrees
    assert "Seen are 24 positions in one call without a cache: nothing" in str(few)


MLA = {
    "model_type": "kimi_k2", "hidden_size": 32, "num_hidden_layers": 1,
    "num_attention_heads": 2, "num_key_value_heads": 2, "q_lora_rank": None,
    "kv_lora_rank": 12, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 6,
    "rope_theta": 5e4, "rope_scaling": {
        "type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096,
        "beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0,
    },
}  # fmt: skip
T5 = {
    "model_type": "mt5", "d_model": 32, "d_kv": 8, "num_heads": 4, "num_layers": 2,
    "relative_attention_num_buckets": 8, "relative_attention_max_distance": 20,
}  # fmt: skip
SHAPES = {
    "kimi_k2": {
        "q_proj": (24, 32), "kv_a_proj_with_mqa": (16, 32), "kv_a_layernorm": (12,),
        "kv_b_proj": (28, 12), "o_proj": (32, 12),
    },
    "mt5": dict.fromkeys("qkvo", (32, 32)) | {"relative_attention_bias": (8, 4)},
}  # fmt: skip
TWICE = {"rope_scaling": MLA["rope_scaling"] | {"factor": 8.0}}


@pytest.mark.parametrize(
    ("config", "changed", "said", "key"),
    [
        (MLA, {}, "", ""),
        (MLA, {"rope_theta": 1e4}, "The base is 10000", "rope_theta"),
        (MLA, TWICE, "The factor is 8", "rope_scaling"),
        (T5, {}, "", ""),
        (T5, {"relative_attention_max_distance": 64}, "Buckets end at 64", "relative_att"),
    ],
)
def test_latent_attention_and_buckets_are_compared(config, changed, said, key):
    kind = LatentAttention if config is MLA else MultiHeadAttention
    plan, torch_rng = configs.plan(config | changed), torch.Generator().manual_seed(0)
    model, weights = nn.Module(), {}
    model.embed, model.parts = nn.Embedding(40, 32), nn.ModuleList()
    for layer in plan.layers:
        names, part = NAMES[plan.model_type], nn.Identity()
        for name, shape in SHAPES[plan.model_type].items():
            if layer.index % 2 and name == "relative_attention_bias":
                continue  # that of its stack
            array = torch.randn(shape, generator=torch_rng) / 2
            weights[f"{names.place(plan, layer.index)}{name}.weight"] = array
            part.add_module(name, nn.Identity())
            part.get_submodule(name).weight = nn.Parameter(array)
        built = kind.from_config(plan, layer.index, weights=weights)
        last, causal = part.get_submodule(names.separate[3]), layer.causal
        part.forward = lambda x, f=built, last=last, c=causal: last(f(x, causal=c))
        model.parts.append(part)
    model.forward = lambda tokens: [part(model.embed(tokens)) for part in model.parts]
    tokens = torch.randint(0, 40, (2, 40), generator=torch_rng)
    found = diagnose(model, config, tokens, attention="parts.{}")
    assert agreeing(found) == [not said] * len(plan.layers)
    for line in found.findings:
        assert not said or line.causes[0].startswith(said)
        assert not said or any(one.startswith(key) for one in line.keys)


def test_modules_of_other_names_are_found_by_their_shapes():
    model = Model({}, {"base": 1e4}, {})
    model.blocks = nn.ModuleList(model.attentions)
    del model.layers
    model.forward = lambda tokens: [
        attention(model.embed(tokens), torch.arange(tokens.shape[1]))
        for attention in model.blocks
    ]
    assert agreeing(diagnose(model, CONFIG)) == [True, False, True]


def test_weights_of_a_folder_are_those_compared(tmp_path):
    model = Model({}, {}, {})
    array = model.state_dict()["layers.0.self_attn.q_proj.weight"]
    theirs = {f"model.{name}": x for name, x in model.state_dict().items()}
    save_file(theirs, tmp_path / "model.safetensors")
    model.attentions[0].q_proj.weight = nn.Parameter(array.flip(0).contiguous())
    assert diagnose(model, CONFIG).agrees
    assert diagnose(model, CONFIG, weights=tmp_path).first == 0


def test_gaps_between_positions_count():
    where = torch.tensor([0, 1, 2, 50, 51, 52, 9000, 9001])
    inputs = {"input_ids": torch.randint(0, 40, (1, 8)), "position_ids": where}
    model, config = Model({"window": None, "base": 1e4}), scaled() | {"rope_scaling": None}
    assert diagnose(model, config, inputs).agrees


ROWS = {  # where the tokens of packed rows stand, and what a model that goes by it may do wrong
    "restarts": ([0, 1, 2, 3, 0, 1, 0, 0, 1, 2], "A document sees those before it"),
    "begins later": ([5, 6, 7, 2, 3, 4, 5, 0, 1, 2], "A document sees those before it"),
    "gaps": (
        [0, 1, 1, 1, 2, 3, 9, 10, 11, 12],
        "A gap in position_ids, or one that comes again",
    ),
}


@pytest.mark.parametrize(("where", "cause"), ROWS.values(), ids=ROWS)
@pytest.mark.parametrize("padding", [0, 2])
def test_documents_are_part_of_what_is_compared(where, cause, padding):
    where = torch.tensor([where, [0, 1, 2, 3, 4, 5, 6, 0, 1, 2]])
    inputs = {"input_ids": torch.randint(0, 40, where.shape), "position_ids": where}
    if padding:
        inputs["attention_mask"] = (torch.arange(10) >= padding).expand(2, -1)
    falls = where < where.roll(1, -1)
    alone, gaps = (
        (falls | (where == 0)).cumsum(-1),
        (where != where.roll(1, -1) + 1).cumsum(-1),
    )

    class Packed(Model):
        def forward(self, input_ids, attention_mask=None, position_ids=None, by=alone):
            seen = by[:, None] == by[..., None]
            seen = seen if attention_mask is None else seen & attention_mask[:, None]
            return super().forward(input_ids, seen, position_ids)

    size = None if cause.startswith("A gap") else 5  # a window goes by rows in the model
    layers, config = ({"window": size},) * 2, CONFIG | {"sliding_window": size}
    model = Packed(*layers, {"window": size, "base": 1e4})
    assert agreeing(diagnose(model, config, inputs)) == [True, True, False]
    wrong = torch.zeros_like(where) if size else gaps
    found = diagnose(Packed(*layers, *layers[:1]), config, inputs | {"by": wrong}).findings
    assert {line.causes[0].partition(":")[0].partition(", is")[0] for line in found} == {
        cause
    }


AXES = {  # the axes by which a layer rotates its pictures, and what is said of it
    "": [0, 1, 2],
    "Rows and columns of pictures are exchanged.": [0, 2, 1],
    "Pictures have time only: each axis takes its position.": [0, 0, 0],
    "position_ids are ignored.": None,
    "The sections of time, height and width are blocks: they should alternate.": [0, 1, 2],
}


def test_the_axes_of_pictures_are_compared():
    said = {"mrope_section": [2, 1, 1], "mrope_interleaved": True, "rope_type": "default"}
    config = NORMED | {"model_type": "qwen3_vl_text", "num_hidden_layers": len(AXES)}
    config["rope_scaling"] = said
    rope = configs.plan(config).layers[0].rope
    model = Model(*[{"window": None, "norms": "before"}] * len(AXES))
    for own, (cause, axes) in zip(model.attentions, AXES.items(), strict=True):
        own.rope = replace(rope, interleaved=not cause.startswith("The sections"))

        def rotate(x, at, own=own, axes=axes):
            rows = torch.arange(x.shape[-2])[:, None].expand(-1, 3)
            where = rows if axes is None else at[axes].movedim(0, -1)[:, None]
            return RotaryAxes(own.rope.axis_frequencies, layout="half")(x, where)

        own.rotate = rotate
    found = diagnose(model, config)
    assert [line.causes[:1] for line in found.findings] == [(x,) * bool(x) for x in AXES]
    where = mrope_positions([4, (2, 3, 4), 5])[0].T[:, None]
    inputs = {"input_ids": torch.arange(33)[None], "position_ids": where}
    assert diagnose(model, config, inputs).findings[0].agrees
    inputs["position_ids"] = torch.cat([torch.arange(33).expand(1, 1, -1), where])
    model.attentions[0].rotate = lambda x, at: rotate(x, at[1:], model.attentions[0])
    assert diagnose(model, config, inputs).findings[0].agrees
    inputs["position_ids"] = where[:2]
    with pytest.raises(UsageError, match=r"position_ids must be .n., .b, n. or .3, b, n."):
        diagnose(model, config, inputs)


def test_packed_rows_are_drawn():
    class Packed(Model):
        def forward(self, input_ids, position_ids=None):
            place = torch.arange(input_ids.shape[1])
            place = place if position_ids is None else position_ids
            same = (place == 0).cumsum(-1)
            seen = (same[..., None] == same[..., None, :]).expand(len(input_ids), -1, -1)
            return super().forward(input_ids, seen if self.apart else None, place)

    model = Packed({"window": None, "base": 1e4})
    for model.apart, cause in ((True, ()), (False, ("A document sees those before it",))):
        found = diagnose(model, scaled() | {"rope_scaling": None}, packed=True)
        assert tuple(x.partition(":")[0] for x in found.findings[0].causes) == cause
        assert [row.survives for row in found.rows] == [model.apart]
        assert found.agrees == model.apart
    right = diagnose(model, config := scaled() | {"rope_scaling": None})
    assert right.agrees
    assert not replace(right, rows=found.rows).agrees
    with pytest.raises(UsageError, match="packed needs a decoder"):
        diagnose(model, config, {"input_ids": torch.ones(1, 9)}, packed=True)


def test_a_model_is_left_as_it_was():
    model = Model({}, {}, {}).train()
    before = {name: x.clone() for name, x in model.state_dict().items()}
    found = diagnose(model, CONFIG)
    assert list(map(percent, (1.24, 0.104, 0.0123))) == ["124 %", "10 %", "1.2 %"]
    assert json.loads(json.dumps(found.to_dict()))["first"] is None
    assert str(found).startswith("mistral: 3 of 3 layers do what the configuration says\n")
    assert model.training
    assert all(torch.equal(x, before[name]) for name, x in model.state_dict().items())
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


def test_what_short_inputs_cannot_show_is_said():
    found = diagnose(Model({}, {}, {}), CONFIG, torch.zeros(1, 5, dtype=torch.long))
    told = "5 positions are too few to see a window or chunk of 5: give longer inputs"
    assert found.notes == [told]
    assert told in str(found)
    assert diagnose(Model({}, {}, {}), CONFIG, 6).notes == []


def test_what_is_no_attention_is_not_compared():
    model, plan = Model({}, {}, {}), configs.plan(CONFIG)
    unused = nn.ModuleList(Attention() for _ in range(3))
    found = diagnose(model, CONFIG, attention=lambda model, index: unused[index])
    assert {line.why for line in found.findings} == {"its module was not called"}
    linear = configs.Layer(0, "linear", 32, 4, 2, 8)
    found = diagnose(model, configs.Plan("mistral", (linear, *plan.layers[1:])))
    assert found.findings[0].why == "it is linear"
    assert found.agrees
    assert not replace(found, findings=found.findings[:1]).agrees  # nothing was compared
    own = configs.Plan("my_own", plan.layers)  # a family whose names are not known
    with pytest.raises(
        UsageError, match=r"a model of type .my_own., which has layers.\{\}"
    ):
        diagnose(model, own)
    found = diagnose(model, own, attention="layers.{}.self_attn")
    assert "unknown names" in found.findings[0].why


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": print}, "model must be a torch.nn.Module"),
        ({"config": {"model_type": "mistrals"}}, "config is not clear"),
        ({"tokens": 3.0}, r"tokens must be \(b, n\), a dictionary"),
        ({"tokens": 1}, "tokens must be at least 2, got 1"),
        ({"attention": "layers.0.self_attn"}, "attention must hold {} for the number"),
        ({"weights": "nowhere"}, "nowhere"),
        ({"model": nn.Linear(1, 1)}, "tokens must be given for a model without"),
        (
            {"attention": "blocks.{}.attn"},
            "must be one of blocks.0.attn, and the model has layers.{}.self_attn$",
        ),
        ({"model": nn.Embedding(9, 9)}, "and the model has no module of such a name"),
        ({"tokens": torch.full((1, 4), 99)}, "model cannot be run on the tokens"),
    ],
)
def test_bad_input_is_told(change, message):
    given = {"model": Model({}, {}, {}), "config": CONFIG} | change
    with pytest.raises(UsageError, match=message):
        diagnose(**given)


def test_a_layer_of_another_kind_is_named():
    layers = configs.plan(CONFIG).layers
    full = replace(layers[1], window=None, rope=None, scale=0.25)
    sinking = replace(layers[2], sinks=True)  # for which this model has no weights
    plan = configs.Plan("mistral", (layers[0], full, sinking))
    found = diagnose(Model({}, {}, {}), plan)
    assert found.findings[1].causes == (
        "It does what the configuration says of layer 0, which is sliding.",
    )
    assert "weights lack" in found.findings[2].why
    still = replace(layers[0], window=None, rope=None, soft_cap=30.0)
    (line,) = diagnose(Model({}), configs.Plan("mistral", (still,))).findings
    assert not line.agrees
    assert line.causes == ()


def test_an_output_may_not_be_compared():
    model = Model({}, {}, {})
    model.attentions[2].v_proj.weight.data[:] = torch.nan
    found = diagnose(model, CONFIG)
    assert found.first == 2
    assert found.findings[2].causes == ("Its output is not finite.",)
    model = Model({})
    project = model.attentions[0].o_proj
    project.register_forward_hook(lambda *call: call[2][..., :1])
    (line,) = diagnose(model, CONFIG | {"num_hidden_layers": 1}).findings
    assert "its output must have the shape" in line.why


def test_the_command_diagnoses(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    (tmp_path / "models_to_diagnose.py").write_text(
        "from tests.library.test_diagnosis import Model\n"
        "def right(): return Model({}, {}, {})\n"
        "wrong = Model({}, {'base': 1e4}, {})\n"
        "def broken(): raise RuntimeError('no weights')\n"
        "number = 3\n"
    )

    def run(name, *more):
        place = f"models_to_diagnose.py:{name}"
        code = main(["diagnose", place, "--config", "config.json", *more])
        return code, capsys.readouterr()

    code, told = run("right")
    assert code == 0
    assert "3 of 3 layers" in told.out
    code, told = run("wrong", "--attention", "layers.{}.self_attn", "--tokens", "40")
    assert code == 1
    assert "Seen are 40 positions" in told.out
    assert "The base is 10000: the configuration says 500000. See rope_theta" in told.out
    for name, message in (
        ("broken", "no weights"),
        ("number", "model must be one"),
        ("nobody", "has no model 'nobody'"),
    ):
        code, told = run(name)
        assert code == 2
        assert message in told.err
