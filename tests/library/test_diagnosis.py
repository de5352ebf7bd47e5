"""A model beside its configuration: the layer that differs is found, and what was read wrongly is named."""

import json
from dataclasses import replace

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from posattn import configs
from posattn.__main__ import main
from posattn.conformance import UsageError
from posattn.conformance.diagnosis import diagnose, percent
from posattn.torch import Rotary

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
    ):
        super().__init__()
        self.base, self.window, self.layout, self.scale = base, window, layout, scale
        self.cap, self.norms, self.names, self.padded = cap, norms, names, padded
        for name, rows in zip(names, (32, 16, 16, 32), strict=True):
            setattr(self, name, nn.Linear(32, rows, bias=False))
        if norms is not None:
            self.q_norm, self.k_norm = (nn.RMSNorm(8, eps=1e-6) for _ in "qk")
            for norm in (self.q_norm, self.k_norm):
                nn.init.normal_(norm.weight)

    def turn(self, x, positions):
        """In halves or by neighbors."""
        angles = positions[..., None, :, None] * self.base ** (-torch.arange(4) / 4)
        cos, sin = angles.cos(), angles.sin()
        if self.layout == "half":
            a, b = x[..., :4], x[..., 4:]
            return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)
        a, b = x[..., ::2], x[..., 1::2]
        return torch.stack([a * cos - b * sin, b * cos + a * sin], -1).flatten(-2)

    def prepared(self, x, norm, positions):
        """Normalised before or after it turns, or not at all."""
        if self.norms == "before":
            return self.turn(norm(x), positions)
        return norm(self.turn(x, positions)) if self.norms else self.turn(x, positions)

    def forward(self, x, positions, shown=None):
        """The output and the weights, as transformers has them."""
        b, n, _ = x.shape
        q, k, v = (
            getattr(self, name)(x).view(b, n, -1, 8).transpose(1, 2)
            for name in self.names[:3]
        )
        q = self.prepared(q, getattr(self, "q_norm", None), positions)
        k = self.prepared(k, getattr(self, "k_norm", None), positions)
        k, v = (x.repeat_interleave(2, dim=1) for x in (k, v))
        scores = self.scale * q @ k.mT
        if self.cap:
            scores = self.cap * torch.tanh(scores / self.cap)
        apart = torch.arange(n)[:, None] - torch.arange(n)
        seen = apart >= 0
        if self.window:
            seen = seen & (apart < self.window)
        if shown is not None:
            seen = seen & shown.bool()[:, None, None, :]
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
        with torch.no_grad():
            for layer in self.layers:
                layer.self_attn.get_submodule(layer.self_attn.names[0]).weight.mul_(4)
                layer.self_attn.get_submodule(layer.self_attn.names[1]).weight.mul_(4)

    def forward(self, input_ids, attention_mask=None, position_ids=None):
        """What comes out of the last layer."""
        x = self.embed(input_ids)
        if position_ids is None:
            position_ids = torch.arange(x.shape[1])
        for layer in self.layers:
            x = layer(x, position_ids, attention_mask)
        return x


def agreeing(found):
    return [line.agrees for line in found.findings]


def test_a_model_that_does_what_its_configuration_says():
    found = diagnose(Model({}, {}, {}), CONFIG)
    assert agreeing(found) == [True] * 3
    assert found.first is None
    assert str(found).startswith("mistral: 3 of 3 layers do what the configuration says\n")


def test_three_planted_faults_are_each_found_and_named():
    model = Model({"base": 1e4}, {"window": 6}, {"layout": "interleaved"})
    found = diagnose(model, CONFIG)
    assert agreeing(found) == [False] * 3
    assert found.first == 0
    (base,), (window,), (layout,) = (line.causes for line in found.findings)
    assert base == "The base is 10000: the configuration says 500000."
    assert window.startswith("The window is one too large")
    assert layout == "The layout is interleaved: it should be half."
    assert [line.keys[:1] for line in found.findings] == [
        ("rope_theta",),
        ("sliding_window",),
        (),
    ]
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
    ],
)
def test_another_number_is_named_and_layers_behind_it_are_judged_by_themselves(
    fault, cause
):
    found = diagnose(Model({}, fault, {}), CONFIG)
    assert agreeing(found) == [True, False, True]
    assert found.first == 1
    (said,) = found.findings[1].causes
    assert said.startswith(cause)
    assert said in str(found)


@pytest.mark.parametrize(
    ("norms", "cause"),
    [
        ("before", None),
        ("after", "Queries and keys are normalized after the rotation."),
        (None, "Queries and keys are not normalized."),
    ],
)
def test_the_place_of_the_norms(norms, cause):
    model = Model({"window": None, "norms": "before"})
    model.layers[0].self_attn.norms = norms
    (line,) = diagnose(model, NORMED | {"num_hidden_layers": 1}).findings
    assert line.agrees == (cause is None)
    assert list(line.causes) == [cause] * (cause is not None)


def test_all_pairs_that_turn_too_slowly_are_named():
    scaled = {"rope_type": "linear", "factor": 4.0, "rope_theta": 5e5}
    config = {name: x for name, x in CONFIG.items() if name != "rope_theta"}
    config |= {"rope_parameters": scaled | {"factor": 8.0}, "num_hidden_layers": 1}
    model = Model({})
    model.layers[0].self_attn.turn = lambda x, positions: Attention.turn(
        model.layers[0].self_attn, x, positions / 4
    )
    (line,) = diagnose(model, config).findings
    assert line.causes == ("The factor is 4: the configuration says 8.",)


def test_what_nothing_explains_has_no_cause():
    model = Model({}, {"base": 31415.9}, {})
    found = diagnose(model, CONFIG)
    assert found.findings[1].causes == ()
    assert "No known misreading explains this." in str(found)


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
        def forward(self, input_ids, attention_mask=None):
            return super().forward(input_ids)

    inputs = {"input_ids": tokens, "attention_mask": shown}
    found = diagnose(Unmasked({}, {}, {}), CONFIG, inputs)
    assert [line.causes for line in found.findings] == [
        ("Padding is seen: attention_mask is ignored.",)
    ] * 3


def test_a_dictionary_of_inputs_is_passed_on_by_name():
    tokens, shown = padded()

    class Tokens(Model):
        def forward(self, tokens, attention_mask=None):
            return super().forward(tokens, attention_mask)

    inputs = {"tokens": tokens, "attention_mask": shown}
    assert diagnose(Tokens({}, {}, {}), CONFIG, inputs).agrees
    with pytest.raises(UsageError, match="unexpected keyword argument 'tokens'"):
        diagnose(Model({}, {}, {}), CONFIG, inputs)


def test_a_model_with_more_layers_than_its_configuration_does_not_agree():
    found = diagnose(Model({}, {}, {}), CONFIG | {"num_hidden_layers": 2})
    assert agreeing(found) == [True, True, False]
    assert not found.agrees
    assert "2 of 3 layers do what the configuration says, 1 not compared" in str(found)
    assert found.findings[2].why == "the configuration says that there are 2 layers"


def test_positions_far_out_agree_up_to_rounding():
    tokens = torch.randint(0, 40, (1, 12))
    inputs = {"input_ids": tokens, "position_ids": torch.arange(9000, 9012)}
    assert diagnose(Model({}, {}, {}), CONFIG, inputs).first is None


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_other_precisions(dtype):
    model = Model({}, {"layout": "interleaved"}, {}).to(dtype)
    for layer in model.layers:
        layer.self_attn.turn = lambda x, p, own=layer.self_attn: Attention.turn(
            own, x, p
        ).to(dtype)
    found = diagnose(model, CONFIG)
    assert agreeing(found) == [True, False, True]
    assert "The layout is interleaved: it should be half." in found.findings[1].causes


@pytest.mark.parametrize(
    "attention",
    ["layers.{}.self_attn", lambda model, index: model.layers[index].self_attn],
)
def test_attention_of_other_names(attention):
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
    """The configuration without windows, with a scaling."""
    config = {name: x for name, x in CONFIG.items() if name != "sliding_window"}
    said = {"rope_type": method, "factor": 4.0, "original_max_position_embeddings": 4096}
    return config | {
        "model_type": "llama",
        "rope_theta": 1e4,
        "rope_scaling": said | numbers,
    }


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
        (
            LLAMA3 | {"method": "llama3"},
            "Frequencies are scaled as llama3: the configuration",
        ),
        ({"base": 5e5}, "The base is 500000: the configuration says 10000."),
        ({"attention_factor": 1.0}, "The attention factor is missing: it is 1."),
    ],
)
def test_a_number_of_the_scaling_is_named(built, cause):
    config = scaled()
    model = Model(*[{"window": None}] * 3)
    theirs = scaled(**{k: x for k, x in built.items() if k != "base"})
    theirs["rope_theta"] = built.get("base", 1e4)
    rope = configs.plan(theirs).layers[0].rope
    for layer in model.layers:
        layer.self_attn.turn = Rotary(
            layout="half",
            frequencies=rope.frequencies,
            attention_factor=rope.attention_factor,
        )
    found = diagnose(model, config)
    assert agreeing(found) == [False] * 3
    assert any(said.startswith(cause) for said in found.findings[0].causes)
    assert diagnose(model, theirs).agrees


def test_half_precision_hides_no_scaling_and_says_what_it_may_hide():
    model = Model(*[{"window": None, "base": 1e4}] * 3).to(torch.bfloat16)
    for layer in model.layers:
        own = layer.self_attn
        own.turn = lambda x, p, own=own: Attention.turn(own, x, p).to(torch.bfloat16)
        nn.init.normal_(own.q_proj.weight, std=0.1)  # which bfloat16 rounds less
    unscaled = {name: x for name, x in scaled().items() if name != "rope_scaling"}
    right = diagnose(model, unscaled)
    assert right.agrees
    assert right.notes[0].startswith("bfloat16 makes and hides small differences")
    wrong = diagnose(model, scaled("llama3", **LLAMA3))
    assert agreeing(wrong) == [False] * 3
    assert "The scaling, llama3, is ignored." in wrong.findings[0].causes


def test_a_window_that_the_configuration_lacks_is_seen():
    model = Model(*({"window": size, "base": 1e4} for size in (30, None, None)))
    found = diagnose(model, scaled("linear") | {"rope_scaling": None})
    assert agreeing(found) == [False, True, True]
    assert found.findings[0].causes == ("The window is 30: the configuration says none.",)
    few = diagnose(model, scaled("linear") | {"rope_scaling": None}, 24)
    assert few.agrees
    assert "Seen are 24 positions in one call" in str(few)


def test_weights_of_a_folder(tmp_path):
    model = Model({}, {}, {})
    array = model.state_dict()["layers.0.self_attn.q_proj.weight"]
    theirs = {f"model.{name}": x for name, x in model.state_dict().items()}
    save_file(theirs, tmp_path / "model.safetensors")
    model.layers[0].self_attn.q_proj.weight = nn.Parameter(array.flip(0).contiguous())
    assert diagnose(model, CONFIG).agrees
    assert diagnose(model, CONFIG, weights=tmp_path).first == 0


def test_large_and_small_shares_are_easy_to_read():
    assert list(map(percent, (1.24, 0.104, 0.0123))) == ["124 %", "10 %", "1.2 %"]


def test_a_model_is_left_as_it_was():
    model = Model({}, {}, {}).train()
    before = {name: x.clone() for name, x in model.state_dict().items()}
    diagnose(model, CONFIG)
    assert model.training
    assert all(torch.equal(x, before[name]) for name, x in model.state_dict().items())
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


def test_what_short_inputs_cannot_show_is_said():
    found = diagnose(Model({}, {}, {}), CONFIG, torch.zeros(1, 5, dtype=torch.long))
    assert found.notes == [
        "5 positions are too few to see a window or chunk of 5: give longer inputs"
    ]
    assert found.notes[0] in str(found)
    assert diagnose(Model({}, {}, {}), CONFIG).notes == []


def test_a_finding_as_plain_data():
    data = diagnose(Model({}, {"base": 1e4}, {}), configs.plan(CONFIG)).to_dict()
    assert json.loads(json.dumps(data))["findings"][1]["agrees"] is False
    assert data["first"] == 1


def test_layers_that_are_not_called_or_no_attention_are_not_compared():
    model = Model({}, {}, {})
    unused = nn.ModuleList(Attention() for _ in range(3))
    found = diagnose(model, CONFIG, attention=lambda model, index: unused[index])
    assert {line.why for line in found.findings} == {"its module was not called"}
    plan = configs.plan(CONFIG)
    linear = configs.plan(CONFIG).layers[0].__class__(0, "linear", 32, 4, 2, 8)
    mixed = configs.Plan("mistral", (linear, *plan.layers[1:]))
    found = diagnose(model, mixed)
    assert found.findings[0].why == "it is linear"
    assert found.agrees


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": print}, "model must be a torch.nn.Module"),
        ({"config": {"model_type": "mistral"}}, "config is not clear"),
        ({"inputs": 3.0}, "inputs must be tokens"),
        ({"inputs": 1}, "inputs must be at least 2 tokens, got 1"),
        ({"attention": "layers.0.self_attn"}, "attention must hold {} for the number"),
        ({"weights": "nowhere"}, "nowhere"),
        (
            {
                "inputs": {
                    "input_ids": torch.zeros(1, 2, dtype=torch.long),
                    "position_ids": torch.zeros(3, 1, 2),
                }
            },
            "position_ids must be",
        ),
        ({"model": nn.Linear(1, 1)}, "inputs must be given for a model without"),
        (
            {"attention": "blocks.{}.attn"},
            "must be one of blocks.0.attn, and the model has layers.{}.self_attn$",
        ),
        ({"model": nn.Embedding(9, 9)}, "and the model has no module of such a name"),
        ({"inputs": torch.full((1, 4), 99)}, "model cannot be run on the inputs"),
    ],
)
def test_bad_input(change, message):
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


def test_a_fault_where_nothing_turns_is_not_looked_for_in_the_rotation():
    layer = replace(configs.plan(CONFIG).layers[0], window=None, rope=None, soft_cap=30.0)
    (line,) = diagnose(Model({}), configs.Plan("mistral", (layer,))).findings
    assert not line.agrees
    assert line.causes == ()


def test_an_output_that_is_not_finite_is_no_agreement():
    model = Model({}, {}, {})
    nn.init.constant_(model.layers[2].self_attn.v_proj.weight, torch.nan)
    found = diagnose(model, CONFIG)
    assert found.first == 2
    assert found.findings[2].causes == ("Its output is not finite.",)


def test_an_output_of_another_shape_is_not_compared():
    model = Model({})
    model.layers[0].self_attn.o_proj.register_forward_hook(
        lambda *call: call[2].repeat(1, 1, 1, 1)
    )
    model.layers[0].self_attn.register_forward_hook(
        lambda *call: (call[2][0][0], call[2][1])
    )
    (line,) = diagnose(model, CONFIG | {"num_hidden_layers": 1}).findings
    assert "its output must have the shape" in line.why


def test_a_family_whose_names_are_not_known_needs_to_be_told():
    plan = configs.Plan("my_own", configs.plan(CONFIG).layers)
    with pytest.raises(UsageError, match="attention must say where it is"):
        diagnose(Model({}, {}, {}), plan)
    found = diagnose(Model({}, {}, {}), plan, attention="layers.{}.self_attn")
    assert "unknown names" in found.findings[0].why


def test_the_command(tmp_path, monkeypatch, capsys):
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
