"""What a layer of attention does, as a value: read from a configuration, and built by every column."""

from dataclasses import dataclass, field

from posattn import contract
from posattn.configs.indexers import SHARED, Indexer, Latent
from posattn.configs.recurrent import Delta
from posattn.configs.words import sentence, table

CACHED = "full", "sliding", "chunked"  # the kinds that keep keys and values of tokens


@dataclass(frozen=True)
class Rope:
    """How queries and keys rotate.

    Args:
        base: of the frequencies before any scaling.
        frequencies: in radians per position, a number for each pair that rotates; 0 for a pair that stays.
        layout: `"half"` or `"interleaved"`.
        method: the `rope_type` of the configuration.
        numbers: the options of the method as the configuration names them.
        attention_factor: on the entries that rotate.
        sections: how many pairs rotate with each coordinate (M-RoPE); empty if all with one position.
        interleaved: whether the pairs of the sections alternate.
        last: whether the last entries of a head rotate, not the first.
        axes: what the coordinates of the sections are.
        learned: whether the weights hold a factor for each frequency, shared by all layers.
    """

    base: float
    frequencies: tuple[float, ...]
    layout: str = "half"
    method: str = "default"
    numbers: tuple[tuple[str, object], ...] = ()
    attention_factor: float = 1.0
    sections: tuple[int, ...] = ()
    interleaved: bool = False
    last: bool = False
    axes: str = "time, height and width"
    learned: bool = False

    @property
    def rotary_dim(self):
        """How many entries of a head rotate."""
        return 2 * len(self.frequencies)

    @property
    def axis_frequencies(self):
        """The frequencies of each axis where there are sections, 0 for pairs that rotate with another."""
        turn = [j % 3 for j in range(len(self.frequencies))]
        if self.interleaved:
            owner = [a * (j < 3 * self.sections[a]) for j, a in enumerate(turn)]
        else:
            owner = [a for a, pairs in enumerate(self.sections) for _ in range(pairs)]
        return tuple(
            tuple(w * (a == k) for w, a in zip(self.frequencies, owner, strict=True))
            for k in range(len(self.sections))
        )


@dataclass(frozen=True)
class Norm:
    """A norm of queries or keys.

    Args:
        kind: `"rms"`, `"layer"` or `"l2"` (which learns nothing).
        eps: added to the mean square or the variance.
        plus_one: whether 1 is added to the learned weight, as in Gemma.
        axes: what a weight stands for: `"head"` (the entries of a head, all heads alike), `"heads"` (each
            head has its own) or `"width"` (all heads at once, normalised before they are split).
        learned: whether there is a weight.
        offset: whether there is a learned offset, too.
        after: whether it acts after the rotation.
    """

    kind: str
    eps: float
    plus_one: bool = False
    axes: str = "head"
    learned: bool = True
    offset: bool = False
    after: bool = False


@dataclass(frozen=True)
class Slopes:
    """ALiBi: a slope for each head.

    Args:
        values: the slopes, positive.
    """

    values: tuple[float, ...]

    def words(self):
        """What it is."""
        return f"ALiBi with slopes from {max(self.values):g} to {min(self.values):g}"


@dataclass(frozen=True)
class Buckets:
    """T5's learned bias, a number for each bucket of offsets and each head.

    Args:
        count: the number of buckets.
        max_distance: from which on all offsets share one.
        bidirectional: whether keys after the query have buckets of their own.
        shared: whether the first layer's table serves all layers.
    """

    count: int
    max_distance: int
    bidirectional: bool
    shared: bool = True

    def words(self):
        """What it is."""
        return f"{self.count} buckets of offsets up to {self.max_distance}"


@dataclass(frozen=True)
class Disentangled:
    """DeBERTa's terms of content and position.

    Args:
        terms: `"c2p"` (from content to position) and `"p2c"`, those that there are.
        distance: up to which offsets are told apart.
        count: the number of buckets on each side; None if each offset has its own row.
        shares_projections: whether the projections of content serve positions, too.
        normed: whether the table of positions is normalised.
    """

    terms: tuple[str, ...]
    distance: int
    count: int | None = None
    shares_projections: bool = False
    normed: bool = False

    def words(self):
        """What it is."""
        rows = "" if self.count is None else f" in {self.count} buckets on each side"
        return f"terms {' and '.join(self.terms)} of offsets up to {self.distance}{rows}"


@dataclass(frozen=True)
class Profiles:
    """Inkling's bias: each query mixes profiles over the distance.

    Args:
        count: of the profiles.
        extent: the distance from which on the bias is zero.
    """

    count: int
    extent: int

    def words(self):
        """What it is."""
        return (
            f"{self.count} profiles over distances up to {self.extent}, mixed by each query"
        )


@dataclass(frozen=True)
class Temperature:
    """Queries of layers without position grow with it: by `1 + scale * log(1 + (p + 1) // floor)` (Llama 4).

    Args:
        floor: positions within which nothing changes.
        scale: of the logarithm.
        smooth: whether the logarithm is `log(max((p + 1) / floor, 1))` (Inkling).
        first: what the first position counts as, in place of the 1 above.
    """

    floor: float
    scale: float
    smooth: bool = False
    first: int = 1


@dataclass(frozen=True)
class Layer:
    """What one layer of attention computes.

    Args:
        index: its place, from 0 on.
        kind: `"full"`, `"sliding"`, `"chunked"`, or in words what is not computed here, such as
            `"linear attention"` or `"state space"`; the rest then says nothing.
        dim: the width of its input.
        num_heads: of queries.
        num_kv_heads: of keys and values.
        head_dim: the width of a head of queries and keys.
        causal: whether it hides the future.
        scale: on the products of queries and keys.
        rope: how queries and keys rotate; None if they don't.
        bias: what is added to the scores by position, `Slopes`, `Buckets`, `Disentangled` or `Profiles`; None
            if nothing is.
        table: how many learned or fixed rows are added to the input of the first layer, as `(what, rows)`;
            None if none are.
        window: how many positions a query sees, its own among them, on each side if the layer is not causal.
        chunk: the size of the chunks outside of which nothing is seen.
        soft_cap: c of `c * tanh(s / c)`; None if scores are not capped.
        sinks: whether each head has a learned score for nothing.
        gate: whether the output of the heads is gated by a sigmoid, each entry by its own.
        head_gate: whether it is gated with one sigmoid for each head.
        query_norm: of the queries; None if there is none.
        key_norm: of the keys.
        value_norm: of the values.
        use_bias: whether the projections of queries, keys and values have offsets, each by itself.
        use_output_bias: whether the output's projection has one.
        temperature: of the queries by their position; None if it stays.
        latent: the widths of latent attention; None for plain heads.
        value_dim: the width of a head's value; None if it is that of its query.
        value_scale: on the values.
        shares_values: whether keys are the values, too, with no projection of their own.
        turns_back: whether values rotate with the keys, and the output rotates back.
        kv_layer: the layer whose keys and values it uses; None if it has its own.
        selected: how many keys a query sees at most, which an indexer chooses; None if it sees all.
        indexer: what chooses them, where its widths are known.
        block: how many neighboring keys the indexer chooses together.
        compressed: how many positions make one more key, beside those in the window; None if none do.
        clip: what queries, keys and values are clipped at before anything else; None if they are not.
        convolved: how many positions a convolution of keys and values mixes; None if there is none.
        ranks: the widths of the narrower vectors through which projections go, by what they project.
        streams: how many kinds of tokens attend together, each with projections and norms of its own.
        delta: the sizes of a layer with the delta rule; None for another.
        told: what else it does, in words, which nothing here computes.
    """

    index: int
    kind: str
    dim: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    causal: bool = True
    scale: float = 1.0
    rope: Rope | None = None
    bias: Slopes | Buckets | Disentangled | Profiles | None = None
    table: tuple[str, int] | None = None
    window: int | None = None
    chunk: int | None = None
    soft_cap: float | None = None
    sinks: bool = False
    gate: bool = False
    head_gate: bool = False
    query_norm: Norm | None = None
    key_norm: Norm | None = None
    value_norm: Norm | None = None
    use_bias: tuple[bool, bool, bool] = (False, False, False)
    use_output_bias: bool = False
    temperature: Temperature | None = None
    latent: Latent | None = None
    value_dim: int | None = None
    value_scale: float = 1.0
    shares_values: bool = False
    turns_back: bool = False
    kv_layer: int | None = None
    selected: int | None = None
    indexer: Indexer | None = None
    block: int = 1
    compressed: int | None = None
    clip: float | None = None
    convolved: int | None = None
    ranks: tuple[tuple[str, int], ...] = ()
    streams: int = 1
    delta: Delta | None = None
    told: str = ""

    def __str__(self):
        return f"layer {self.index}: {sentence(self)}"

    @property
    def reach(self):
        """How many positions its window holds, those behind the query included where it sees them."""
        return self.window if self.causal else 2 * self.window - 1

    def cached(self, tokens):
        """How many numbers a cache keeps of so many tokens; 0 if the layer keeps none of its own."""
        lent = self.kv_layer is not None  # an indexer of such a layer has keys of its own
        if self.kind not in CACHED or not self.causal or (lent and self.indexer is None):
            return 0
        if (self.selected and self.indexer is None) or self.compressed:
            said = "keeps other keys, too, and their width is not known: expected keys and values"
            raise ValueError(f"layer {self.index} {said}")
        heads = self.num_kv_heads * (self.head_dim + (self.value_dim or self.head_dim))
        latent = self.latent and self.latent.kv_rank + self.latent.rotary_dim
        own = self.indexer is not None and not self.indexer.shared
        index = self.indexer.head_dim * (1 + (self.indexer.pooled == "gated")) if own else 0
        return ((latent or heads) * (not lent) + index) * min(
            tokens, self.window or tokens, self.chunk or tokens
        )

    def choice(self):
        """What the layer's indexer is made with."""
        index = self.indexer
        blocks = {"count": self.selected // self.block, "size": self.block}
        blocks["pooled"] = index.pooled
        if self.latent is None:
            return blocks | {"eps": self.key_norm.eps}
        own = {"input_norm": index.input_norm, "temperature": index.temperature}
        return blocks | own | {"query_rank": self.latent.query_rank}

    def arguments(self):
        """What `MultiHeadAttention` is made with that no framework has to make first."""
        names = "dim", "num_heads", "num_kv_heads", "head_dim", "use_output_bias", "scale"
        found = {
            name: getattr(self, name) for name in (*names, "sinks", "soft_cap", "gate")
        }
        return found | {"use_bias": any(self.use_bias)}


@dataclass(frozen=True)
class Plan:
    """What a model does with positions, layer by layer.

    Plans are equal if their layers are, wherever the numbers come from.

    Args:
        model_type: as the configuration names it.
        layers: one for each layer of the stack.
        defaults: what the configuration leaves out and the family's class in transformers defines, by name.
        unread: keys of the configuration that this family's attention doesn't read, though they look like it.
        dead: keys that neither the plan nor the family's model in transformers reads.
    """

    model_type: str
    layers: tuple[Layer, ...]
    defaults: tuple[tuple[str, object], ...] = field(default=(), compare=False)
    unread: tuple[str, ...] = field(default=(), compare=False)
    dead: tuple[str, ...] = field(default=(), compare=False)

    def __str__(self):
        return table(self)

    def describe(self, layer):
        """Say what a layer does, and which of how many it is.

        Args:
            layer: its place, from 0 on.

        Returns:
            A sentence.

        Raises:
            IndexError: if there is no such layer.
        """
        found = self.layers[layer]
        own = [x for x in self.layers[:layer] if x.indexer and not x.indexer.shared]
        whose = f"the indexer of layer {own[-1].index}" if own else SHARED
        said = sentence(found).replace(SHARED, whose)
        return f"layer {found.index} of {len(self.layers)}: {said}"

    def cache_bytes(self, tokens, itemsize=2):
        """How many bytes the caches of all layers take for one sequence; linear layers are not counted.

        Args:
            tokens: how many the model has read.
            itemsize: the bytes of a number, 2 in bfloat16.

        Raises:
            TypeError: if a number is not an integer.
            ValueError: if one is negative, or a layer keeps keys of which the plan has no width.

        Examples:
            >>> from posattn.configs import plan
            >>> from posattn.stories import CHECKPOINT
            >>> plan(CHECKPOINT).cache_bytes(1024)
            524288
        """
        itemsize = contract.integer("itemsize", itemsize)
        tokens = contract.integer("tokens", tokens)
        return itemsize * sum(layer.cached(tokens) for layer in self.layers)
