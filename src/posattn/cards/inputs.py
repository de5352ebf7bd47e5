"""Cards of the schemes that act on the input, and of having none."""

from posattn.cards.card import Card

__all__ = ["INPUTS"]

INPUTS = {
    "none": Card(
        title="No encoding (NoPE)",
        year=2022,
        idea=(
            "Add nothing. Under a causal mask a later token sees more tokens, and from "
            "that a model can learn where it is."
        ),
        formula=r"s_{ij} = \mathbf{q}_i^\top\mathbf{k}_j / \sqrt{d_h}",
        symbols="",
        cites=("haviv2022transformer", "kazemnejad2023impact"),
        function=None,
        shows="one shade: all scores are equal",
        models=(
            "Jamba (whose other layers are recurrent)",
            "Llama 4 (every fourth layer)",
            "SmolLM3 (every fourth layer)",
            "Cohere 2 (every fourth layer)",
            "EXAONE 4 (every fourth layer)",
        ),
        page="permutation",
    ),
    "sinusoidal": Card(
        title="Sinusoidal encoding",
        year=2017,
        idea="Add sines and cosines of the position to the token, at speeds from fast to slow.",
        formula=(
            r"\mathbf{x}_i \mapsto \mathbf{x}_i + \mathbf{p}_i, \quad (p_{i,2c},\, "
            r"p_{i,2c+1}) = (\sin i\,\omega_c,\, \cos i\,\omega_c)"
        ),
        symbols=(
            r"$\mathbf{p}_i$ is the encoding of position $i$, and $\omega_c$ is the speed "
            "of its pair $c$."
        ),
        cites=("Vaswani.Shazeer.Parmar.ea.2017",),
        function="PositionalEncoding",
        shows="waves along the rows and the columns, not only along the diagonal",
        models=("Whisper (encoder)", "Marian"),
        page="sinusoidal",
    ),
    "learned": Card(
        title="Learned table",
        year=2017,
        idea=(
            "Give each position its own row of parameters and add it to the token. The "
            "table has a last row, and no text can be longer."
        ),
        formula=r"\mathbf{x}_i \mapsto \mathbf{x}_i + \mathbf{t}_i",
        symbols=r"$\mathbf{t}_i$ is row $i$ of the table.",
        cites=("gehring2017convolutional", "devlin2019bert"),
        function="LearnedPositionalEncoding",
        shows=(
            "vertical and horizontal lines of noise, because the rows of the table are "
            "random before training"
        ),
        models=("BERT", "GPT-2", "OPT"),
        page="learned",
    ),
    "randomized": Card(
        title="Randomized positions",
        year=2023,
        idea=(
            "During training, draw increasing positions at random from a long range, so "
            "that large positions are no surprise later."
        ),
        formula=(
            r"\mathbf{x}_i \mapsto \mathbf{x}_i + \mathbf{p}_{r_i}, \quad r_0 < r_1 < "
            r"\ldots \text{ drawn from } \{0, \ldots, n_{\max} - 1\}"
        ),
        symbols=(
            r"$r_i$ is the position drawn for token $i$, $n_{\max}$ the end of the range, "
            r"and $\mathbf{p}_r$ the sinusoidal encoding of position $r$."
        ),
        cites=("ruoss2023randomized",),
        function="randomized_positions",
        shows="the waves of the sinusoid, broken into noise because the positions jump",
    ),
}
