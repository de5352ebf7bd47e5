"""What a decoder has around its attention: norms, networks, embeddings, and where their weights are."""

from dataclasses import dataclass, field, replace
from typing import Any

from posattn.configs.data import data
from posattn.configs.experts import Mixture, mixture, places
from posattn.configs.keys import OPTIONAL, REQUIRED
from posattn.configs.latents import as_latent
from posattn.configs.layers import Plan
from posattn.configs.reading import ATTENTION, as_heads, layers_of, opened, planned
from posattn.configs.weights import NAMES

READ = data("decoders.json")
ACTIVATIONS = READ["activations"]
BEYOND = ("num_nextn_predict_layers", "num_mtp_layers")
NORMS = (
    "attention_norm",
    "feed_forward_norm",
    "attention_post_norm",
    "feed_forward_post_norm",
)


@dataclass(frozen=True)
class Family:
    """How a family builds what surrounds the attention.

    Args:
        layer: the names of a layer's parts, by ours; with a number where one of their arrays holds two, and
            several with `|` between them if a checkpoint has one of these.
        recurrent: the same of layers with a state, if these have others.
        top: the names of what belongs to no layer.
        layers: what the names of a layer begin with, `{}` for its number.
        norm: `"rms"`, `"layer"`, or `"centered"` for a layer norm without an offset.
        eps: the key of the number in the norms.
        plus_one: whether 1 is added to the weights of norms.
        activation: the keys of the activation; empty if it is always GELU by its tanh formula.
        hidden: the key of the width of the network.
        quadruple: whether that width is four times the model's where it is not given.
        use_bias: whether the network has offsets, or the key that says so.
        head: what the head may be called if it is not the embedding.
        scaled: whether embeddings are multiplied by the root of the width.
        parallel: whether both parts read the same, or the key that says so.
        only: keys of which only one value is built.
        experts: of its mixtures of networks: how a router scores, whether there are offsets, how arrays of
            all experts are `stacked`, and `names` by ours, such as `experts.up`. Each has several, of which
            a checkpoint has one: with `{}` for the number of the expert, or of one array for all; in a
            list with 0 or 1 for one half of its rows.
    """

    layer: dict[str, str | tuple[str, int]]
    recurrent: dict[str, str | tuple[str, int]] | None = None
    top: dict[str, str] = field(
        default_factory=lambda: {"embedding": "embed_tokens", "norm": "norm"}
    )
    layers: str = "layers.{}."
    norm: str = "rms"
    eps: str = "rms_norm_eps"
    plus_one: bool = False
    activation: tuple[str, ...] = ("hidden_act",)
    hidden: str = "intermediate_size"
    quadruple: bool = False
    use_bias: bool | str = False
    head: tuple[str, ...] = ("lm_head.weight",)
    scaled: bool = False
    parallel: bool | str = False
    only: tuple[tuple[str, object], ...] = ()
    experts: dict[str, Any] | None = None

    @property
    def gated(self):
        """Whether the networks are gated."""
        return "feed_forward.gate" in self.layer


@dataclass(frozen=True)
class Model:
    """A decoder, as its configuration describes it.

    Args:
        plan: what its layers do with positions.
        family: how its family builds the rest.
        vocab_size: how many tokens there are.
        hidden_dim: the width of the networks.
        activation: `"silu"`, `"relu"`, `"gelu"`, `"gelu_tanh"` or `"quick_gelu"`.
        eps: the number in the norms.
        use_bias: whether the networks have offsets.
        tied: whether the head is the embedding.
        parallel: whether attention and network read the same.
        embedding_scale: a factor on the embeddings.
        residual_scale: a factor on what attention and network add.
        logit_scale: a factor on the logits.
        logit_cap: c of `c * tanh(z / c)`; None if logits are not capped.
        mixture: what some layers have for a network; None if none has.
        beyond: how many layers more a checkpoint has, which predict later tokens and are left out.
        layer_width: of what each layer reads of a token besides the stream; 0 if nothing.
        doubled: whether networks are twice as wide in layers that use the keys of another.
    """

    plan: Plan
    family: Family
    vocab_size: int
    hidden_dim: int
    activation: str
    eps: float
    use_bias: bool
    tied: bool
    parallel: bool = False
    embedding_scale: float = 1.0
    residual_scale: float = 1.0
    logit_scale: float = 1.0
    logit_cap: float | None = None
    mixture: Mixture | None = None
    beyond: int = 0
    layer_width: int = 0
    doubled: bool = False

    def parts(self, index=None):
        """The names of the parts of a layer, or of what belongs to none."""
        found = self.family.top
        if index is not None:
            other = self.plan.layers[index].delta is not None and self.family.recurrent
            found = other or self.family.layer
        read = self.layer_width > 0
        return {p: name for p, name in found.items() if read or not p.startswith("layer_")}

    def hidden(self, index):
        """The width of the network of a layer."""
        borrows = self.plan.layers[index].kv_layer is not None
        return self.hidden_dim * (2 if self.doubled and borrows else 1)

    def lender(self, index):
        """The layer whose keys and values a layer uses, itself if others use them; None if it is alone."""
        used = {layer.kv_layer for layer in self.plan.layers}
        return index if index in used else self.plan.layers[index].kv_layer

    def mixes(self, index):
        """Whether a layer has a mixture of experts."""
        return self.mixture is not None and index in self.mixture.layers


@dataclass(frozen=True)
class Source:
    """Where an array of ours comes from.

    Args:
        name: theirs.
        half: 0 or 1 if it is one half of the rows of that array.
        alternating: whether these are every other row.
        index: of the expert, if that array is of all.
        plus: what is added to it.
        transposed: whether it is kept as `(d_in, d_out)`.
    """

    name: str
    half: int | None = None
    plus: int = 0
    transposed: bool = False
    alternating: bool = False
    index: int | None = None


def decoder(config, *, length=None):
    """Read a `Model` from what `plan` reads; a family that `Decoder` does not know is a ValueError."""
    keys = opened(config, length=length, known=DECODERS)
    layers = layers_of(keys)
    family, dim = DECODERS[keys.family], layers[0].dim
    for layer in layers:
        built(keys, layer)
    # in a text, time, height and width are one number
    layers = tuple(
        replace(layer, rope=layer.rope and replace(layer.rope, sections=()))
        for layer in layers
    )
    activation = "gelu_pytorch_tanh"
    if family.activation:
        activation = keys.choice(*family.activation, among=ACTIVATIONS)
    absent = 4 * dim if family.quadruple else REQUIRED
    bias = family.use_bias
    for name, value in family.only:
        keys.only(name, value)
    mixed = None
    hidden = keys.count(family.hidden, absent=absent)
    told = family.experts
    if told is not None and ("flag" not in told or keys.flag(told["flag"])):
        mixed = mixture(keys, family.experts, hidden, len(layers))
    if mixed is not None and mixed.limit is not None:  # which hidden_act does not say
        activation = "quick_gelu"
    scale = dim**0.5 if family.scaled else 1.0
    divisor = keys.own(keys.number, "logits_scaling", 1.0)
    parallel = family.parallel
    if isinstance(parallel, str):
        parallel = keys.flag(parallel, absent=True)
    found = Model(
        Plan(keys.family, layers),
        family,
        vocab_size=keys.count("vocab_size"),
        hidden_dim=hidden,
        activation=ACTIVATIONS[activation],
        eps=keys.number(family.eps),
        use_bias=keys.flag(bias, absent=False) if isinstance(bias, str) else bias,
        tied=keys.flag("tie_word_embeddings"),
        parallel=parallel,
        embedding_scale=keys.own(keys.number, "embedding_multiplier", scale),
        residual_scale=keys.own(keys.number, "residual_multiplier", 1.0),
        logit_scale=keys.own(keys.number, "logit_scale", 1.0) / divisor,
        logit_cap=keys.own(keys.number, "final_logit_softcapping", None, null=None),
        mixture=mixed,
        beyond=keys.count(*BEYOND, absent=OPTIONAL, least=0) or 0,
        layer_width=keys.own(keys.count, "hidden_size_per_layer_input", 0, null=0, least=0),
        doubled=keys.own(keys.flag, "use_double_wide_mlp", False),
    )
    if found.layer_width:
        keys.only("vocab_size_per_layer_input", found.vocab_size)
    return replace(found, plan=planned(keys, layers))


def built(keys, layer):
    """Refuse a layer that no column builds."""
    if not layer.causal:
        raise keys.error("a Decoder hides the future, and this configuration doesn't")
    if layer.latent is not None and layer.kind in ATTENTION:
        as_latent(layer)
    elif layer.delta is None:
        if layer.kind not in ATTENTION:
            raise keys.error(
                f"layer {layer.index} is {layer.kind}, which a Decoder does not build"
            )
        as_heads(replace(layer, kv_layer=None))


def sources(state, model):
    """Where each array around the attention comes from; nothing is read yet.

    The result leads from our names, such as `blocks.0.feed_forward.up.weight`, to a `Source` in `state`,
    whose names are those of transformers. A ValueError tells what is missing or left over.
    """
    family, names = model.family, NAMES[model.plan.model_type]
    first = f"{family.top['embedding']}.weight"
    roots = [root for root in names.roots if root + first in state]
    if not roots:
        tried = " or ".join(repr(root + first) for root in names.roots)
        raise ValueError(f"weights lack {tried}, the decoder's embedding")
    root, found, attention = roots[0], {}, []
    for part, name in model.parts().items():
        found |= _source(model, part, root + name)
    if not model.tied:
        heads = [name for name in family.head if name in state] or family.head
        found["head.weight"] = Source(heads[0])
    layers = len(model.plan.layers)
    beyond = [family.layers.format(layers + index) for index in range(model.beyond)]
    for index in range(layers):
        prefix = root + family.layers.format(index)
        attention += [root + names.module.format(index), f"{prefix}linear_attn."]
        if model.mixes(index):
            more = places(state, family.experts, model.mixture.count, prefix, Source)
            found |= {f"blocks.{index}.feed_forward.{n}": one for n, one in more.items()}
        for part, given in model.parts(index).items():
            if model.mixes(index) and part.startswith("feed_forward."):
                continue
            several, *half = (given,) if isinstance(given, str) else given
            tried = several.split("|")
            name = next((n for n in tried if f"{prefix}{n}.weight" in state), tried[0])
            more = _source(model, part, prefix + name, *half, transposed=names.transposed)
            found |= {f"blocks.{index}.{ours}": source for ours, source in more.items()}
    for ours, source in found.items():
        if source.name not in state:
            packed = f"{source.name}_blocks" in state
            do = "; it is quantized: save the model dequantized" * packed
            raise ValueError(f"weights lack {source.name!r}, the decoder's {ours}{do}")
    used = {source.name for source in found.values()}
    for name in state:
        ours = name.startswith((root, *family.head)) and not name.startswith(
            (*attention, *(root + name for name in beyond))
        )
        tied = model.tied and name in family.head  # the embedding once more
        if ours and not tied and name not in used:
            raise ValueError(
                f"weights have {name!r}, which a decoder of {model.plan.model_type!r} with this "
                "configuration does not use"
            )
    return found


def read(state, source, shape):
    """An array of ours, cut out of theirs; a ValueError if it has another shape."""
    array = state[source.name]
    array = array if source.index is None else array[source.index]
    array = array.T if source.transposed and array.ndim == 2 else array
    if source.alternating and source.half is not None:
        array = array[source.half :: 2]
    elif source.half is not None:
        rows = array.shape[0] // 2
        array = array[source.half * rows : (source.half + 1) * rows]
    if tuple(array.shape) != tuple(shape):
        raise ValueError(
            f"{source.name!r} must give an array of shape {tuple(shape)}, got {tuple(array.shape)}"
        )
    return array + source.plus if source.plus else array


def _source(model, part, name, half=None, *, transposed=False):
    """The arrays of a part, by our name."""
    if part == "encoding":
        return {"encoding.table": Source(f"{name}.weight")}
    if part == "scalar":
        return {part: Source(name)}
    if part == "embedding":
        return {"embedding.weight": Source(f"{name}.weight")}
    if part.startswith("feed_forward."):
        kinds = ("weight", "bias") if model.use_bias else ("weight",)
        plus = 0
    else:
        kinds = ("weight", "bias") if model.family.norm == "layer" else ("weight",)
        plus = int(model.family.plus_one)
        transposed = False
    return {
        f"{part}.{kind}": Source(f"{name}.{kind}", half, plus, transposed) for kind in kinds
    }


def made(parts, layer, experts=None, recurrent=None, **options):
    """A family out of its data, where what many have alike is one of the parts."""

    def joined(several):
        pieces = (parts[piece] if isinstance(piece, str) else piece for piece in several)
        return {ours: name for piece in pieces for ours, name in piece.items()}

    if experts is not None:
        experts = experts | {"names": joined(experts["names"])}
    recurrent = None if recurrent is None else joined(recurrent)
    return Family(joined(layer), recurrent, experts=experts, **options)


DECODERS = {
    name: made(READ["parts"], **told)
    for names, told in READ["families"].items()
    for name in names.split()
}
