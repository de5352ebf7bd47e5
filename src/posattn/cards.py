"""What the atlas says about each scheme: its name and year, its idea, its formula, and who uses it.

The page of all schemes is made from this, so every sentence of a card is written here.
"""

from dataclasses import dataclass

__all__ = ["CARDS", "Card"]


@dataclass(frozen=True)
class Card:
    r"""What the atlas says about one scheme.

    Args:
        title: its full name.
        year: when the first of the cited works appeared, as a preprint if there was one.
        idea: what it does, in a sentence or two.
        formula: what happens to a token, a query or a score, in LaTeX.
        symbols: a sentence that explains the symbols of the formula, or nothing if the page does.
        cites: keys of the bibliography, beginning with the work that introduced it.
        function: its name in each column, or none.
        shows: what the picture of its scores looks like.
        models: released models that use it, as far as we have verified them. A remark may follow
            a name in parentheses.
        page: the page that teaches it, or none.
    """

    title: str
    year: int
    idea: str
    formula: str
    symbols: str
    cites: tuple[str, ...]
    function: str | None
    shows: str
    models: tuple[str, ...] = ()
    page: str | None = None


#: From the names of `SCHEMES` to their cards.
CARDS = {
    "none": Card(
        title="No encoding (NoPE)",
        year=2022,
        idea=(
            "Nothing marks positions. Only the causal mask gives a hint: a token that "
            "sees more tokens comes later."
        ),
        formula=r"s_{ij} = \mathbf{q}_i^\top\mathbf{k}_j / \sqrt{d_h}",
        symbols="",
        cites=("haviv2022transformer", "kazemnejad2023impact"),
        function=None,
        shows="one shade: all scores are equal",
        models=(
            "Jamba (whose other layers are recurrent)",
            "Llama 4",
            "SmolLM3",
            "Cohere 2",
            "EXAONE 4 (these four in every fourth layer)",
        ),
        page="permutation",
    ),
    "sinusoidal": Card(
        title="Sinusoidal encoding",
        year=2017,
        idea="Add sines and cosines of the position to the token, from fast ones to slow ones.",
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
            "noise in stripes: before training the rows of the table know nothing of "
            "each other"
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
        shows="the waves of the sinusoid, torn to noise where the positions leap",
    ),
    "rotary": Card(
        title="Rotary (RoPE)",
        year=2021,
        idea=(
            "Rotate each pair of entries of a query or a key by an angle that grows with "
            "the position."
        ),
        formula=(
            r"\mathbf{q}_i \mapsto \mathbf{R}_i\,\mathbf{q}_i, \quad \text{pair } c "
            r"\text{ rotates by } i\,\omega_c"
        ),
        symbols=(
            r"$\mathbf{R}_i$ rotates all pairs, and $\omega_c = b^{-2c/d_h}$ is the speed "
            "of pair $c$ in radians per position, with the base $b$ = 10000."
        ),
        cites=("su2024roformer",),
        function="rotate",
        shows="stripes along the diagonal: the score depends only on the offset",
        models=(
            "Llama",
            "Llama 2",
            "Llama 3",
            "Llama 4 (Maverick)",
            "Mistral 7B v0.1",
            "Mixtral 8x7B",
            "Qwen3",
            "Gemma",
            "Gemma 2",
            "Gemma 3 (local layers)",
            "Falcon",
            "OLMo 2",
            "OLMo 3 (local layers)",
            "Command R",
            "Cohere 2",
            "SmolLM3",
            "Helium",
            "ModernBERT",
            "Nomic BERT",
            "RoFormer",
            "ESM-2",
        ),
        page="rotary",
    ),
    "rotary, partial": Card(
        title="Partial rotary",
        year=2021,
        idea="Rotate only the first entries of each head. The others see only content.",
        formula=(
            r"\text{pair } c \text{ rotates by } i\,\omega_c \text{ if } c < m, \text{ "
            "else not}"
        ),
        symbols=r"$m$ is the number of pairs that rotate, and $\omega_c$ is the speed of pair $c$.",
        cites=("wang2021gptj", "black2022gptneox"),
        function="rotate",
        shows="fine and even stripes along the diagonal, without the slow pairs",
        models=(
            "GPT-J",
            "GPT-NeoX-20B",
            "Phi-2",
            "StableLM",
            "Persimmon",
            "Nemotron",
            "GLM-4",
            "Qwen3-Next",
            "DeepSeek-V3 (the last entries of a head)",
        ),
        page="conventions",
    ),
    "xPos": Card(
        title="xPos",
        year=2022,
        idea=(
            "Rotary, with fading: as the position grows, queries shrink and keys grow, "
            "so the score of a distant key gets smaller."
        ),
        formula=(
            r"\mathbf{q}_i \mapsto \zeta_c^{\,i/\tau}\,\mathbf{R}_i\,\mathbf{q}_i, \quad "
            r"\mathbf{k}_j \mapsto \zeta_c^{-j/\tau}\,\mathbf{R}_j\,\mathbf{k}_j"
        ),
        symbols=(
            r"$\mathbf{R}_i$ is the rotation of rotary, $\zeta_c$ a number below 1 for "
            r"each pair, and $\tau$ the number of positions over which pair $c$ fades by "
            r"$\zeta_c$."
        ),
        cites=("sun2023length",),
        function="xpos_query",
        shows="nearly the stripes of rotary: within 64 positions little fades",
    ),
    "PoPE": Card(
        title="Polar coordinates (PoPE)",
        year=2025,
        idea=(
            "Make every entry of a query or key a length, which is never negative, and "
            "let only the position set its angle. Learned angles say which offset an "
            "entry likes best."
        ),
        formula=(
            r"s_{ij} = \textstyle\sum_c \mu(q_{ic})\,\mu(k_{jc}) \cos\bigl((j - "
            r"i)\,\omega_c + \varphi_c\bigr) / \sqrt{d_h}, \quad \mu(x) = \ln(1 + e^x)"
        ),
        symbols=(
            r"$\omega_c$ is the speed of entry $c$, $\varphi_c$ its learned angle, and "
            r"$\mu$ makes numbers positive."
        ),
        cites=("gopalakrishnan2025decoupling",),
        function="PolarKey",
        shows="stripes along the diagonal, darkest on it",
    ),
    "rotary, axial": Card(
        title="Axial rotary, for images",
        year=2024,
        idea=(
            "Half of the pairs rotate with the row of a patch, the other "
            "half with its column."
        ),
        formula=r"\text{pair } c \text{ rotates by } y_i\,\omega_c \text{ or by } x_i\,\omega_c",
        symbols=(
            r"patch $i$ is in row $y_i$ and column $x_i$, and $\omega_c$ is the speed of "
            "pair $c$."
        ),
        cites=("heo2024rotary",),
        function="axial_frequencies",
        shows="blocks of 8 by 8, one for each two rows of an image of 8 by 8 patches",
        models=("DINOv3",),
    ),
    "rotary, mixed": Card(
        title="Mixed rotary, for images",
        year=2024,
        idea=(
            "Each pair rotates with a learned combination of row and column, "
            "so it can also follow a diagonal."
        ),
        formula=(
            r"\text{pair } c \text{ rotates by } y_i\,\omega_{0,c} + x_i\,\omega_{1,c}, "
            r"\text{ both learned}"
        ),
        symbols=(
            r"patch $i$ is in row $y_i$ and column $x_i$, and each pair $c$ has two learned "
            r"speeds, $\omega_{0,c}$ and $\omega_{1,c}$."
        ),
        cites=("heo2024rotary",),
        function="MixedRotary",
        shows="blocks of 8 by 8, shaded aslant",
        models=("RoPE-ViT (by the authors)",),
    ),
    "M-RoPE": Card(
        title="M-RoPE, for text, images and video",
        year=2024,
        idea=(
            "The pairs are split into three "
            "sections, which rotate with time, height and width."
        ),
        formula=(
            r"\text{pair } c \text{ rotates by } t_i\,\omega_c,\ y_i\,\omega_c \text{ or "
            r"} x_i\,\omega_c"
        ),
        symbols=(
            "$t_i$, $y_i$ and $x_i$ are time, row and column of token $i$, which are "
            r"equal for text, and $\omega_c$ is the speed of pair $c$."
        ),
        cites=("wang2024qwen2vl",),
        function="mrope_frequencies",
        shows=(
            "blocks of 8 by 8, each nearly of one shade, as the columns are left to the "
            "slowest pairs"
        ),
        models=("Qwen2-VL",),
    ),
    "position interpolation": Card(
        title="Position interpolation",
        year=2023,
        idea=(
            "Slow all pairs down by the same factor, so that a long text has the angles "
            "of a short one."
        ),
        formula=r"\omega_c \mapsto \omega_c / s",
        symbols=r"$\omega_c$ is the speed of pair $c$ of rotary, and $s$ the factor.",
        cites=("chen2023extending",),
        function="position_interpolation",
        shows="the stripes of rotary, four times as broad",
        models=("Gemma 3 (global layers)",),
        page="longer_contexts",
    ),
    "NTK-aware": Card(
        title="NTK-aware scaling",
        year=2023,
        idea=(
            "Enlarge the base of rotary. The fast pairs keep their speed, and the "
            "slowest one is slowed down by the full factor."
        ),
        formula=r"b \mapsto b\,s^{d/(d-2)}, \quad \omega_c = b^{-2c/d}",
        symbols=(
            "$b$ is the base, $s$ the factor, $d$ the number of entries that rotate, and "
            r"$\omega_c$ the speed of pair $c$."
        ),
        cites=("bloc972023ntk", "peng2024yarn"),
        function="ntk_aware",
        shows="fine stripes as those of rotary, over slower ones",
        page="longer_contexts",
    ),
    "dynamic NTK": Card(
        title="Dynamic NTK",
        year=2023,
        idea=(
            "NTK-aware scaling with a factor that grows with the text, as soon as the "
            "text is longer than those of training."
        ),
        formula=r"b \mapsto b\,\left(1 + s\left(\tfrac{\max(n, L)}{L} - 1\right)\right)^{d/(d-2)}",
        symbols=(
            "$n$ is the length of the text, $L$ that of training, $b$ the base, $s$ a "
            "factor, and $d$ the number of entries that rotate."
        ),
        cites=("emozilla2023dynamically", "peng2024yarn"),
        function="dynamic_ntk",
        shows="fine stripes as those of rotary, over slower ones",
        models=("Qwen-7B (the first Qwen, with its own formula for the factor)",),
        page="longer_contexts",
    ),
    "YaRN": Card(
        title="YaRN",
        year=2023,
        idea=(
            "Interpolate the slow pairs, keep the fast ones, and make all scores a "
            "little larger."
        ),
        formula=(
            r"\omega_c \mapsto \gamma_c\,\omega_c / s + (1 - \gamma_c)\,\omega_c, \quad "
            r"\mathbf{q}_i \mapsto (0.1 \ln s + 1)\,\mathbf{R}_i\,\mathbf{q}_i"
        ),
        symbols=(
            r"$\gamma_c$ is 1 for slow pairs, 0 for fast ones and in between for the "
            r"rest. $\omega_c$ is the speed of pair $c$, $s$ the factor, and "
            r"$\mathbf{R}_i$ the rotation with the new speeds."
        ),
        cites=("peng2024yarn",),
        function="yarn",
        shows="fine stripes as those of rotary, over slower ones",
        models=("gpt-oss", "OLMo 3 (global layers)", "DeepSeek-V3"),
        page="longer_contexts",
    ),
    "LongRoPE": Card(
        title="LongRoPE",
        year=2024,
        idea=(
            "Slow each pair down by its own factor, found by search. There is one set of "
            "factors for short texts and another for long ones."
        ),
        formula=(
            r"\omega_c \mapsto \omega_c / \lambda_c, \quad \lambda \text{ short if } n "
            r"\le L, \text{ else long}"
        ),
        symbols=(
            r"$\omega_c$ is the speed of pair $c$, $\lambda_c$ its factor, $n$ the length "
            "of the text, and $L$ that of training."
        ),
        cites=("ding2024longrope",),
        function="longrope",
        shows="stripes along the diagonal, a little broader than those of rotary",
        models=("Phi-3-mini-128k",),
        page="longer_contexts",
    ),
    "Llama 3": Card(
        title="Scaling of Llama 3.1",
        year=2024,
        idea="Slow the slow pairs down by a factor, keep the fast ones, and blend in between.",
        formula=r"\omega_c \mapsto \omega_c / s \text{ if slow}, \quad \omega_c \text{ if fast}",
        symbols=(
            r"$\omega_c$ is the speed of pair $c$, and $s$ the factor. Fast pairs make at "
            "least four turns within the length of training, slow ones at most one."
        ),
        cites=("grattafiori2024llama",),
        function="llama3",
        shows="stripes along the diagonal, over the slow ones of a base of 500000",
        models=("Llama 3.1", "Llama 4 (Scout)", "EXAONE 4", "Apertus"),
        page="longer_contexts",
    ),
    "Shaw": Card(
        title="Relative embeddings of Shaw",
        year=2018,
        idea=(
            "Learn a vector for each offset. The query is compared with it as it is with "
            "the key, and a second set of vectors is added to the values."
        ),
        formula=(
            r"s_{ij} + \mathbf{q}_i^\top\mathbf{a}_{j-i} / \sqrt{d_h}, \quad |j - i| "
            r"\text{ clipped}"
        ),
        symbols=r"$\mathbf{a}_{j-i}$ is the vector of the offset, and distant offsets share one.",
        cites=("shaw2018self",),
        function="ShawRelative",
        shows="a band of stripes along the diagonal, and one shade on each side of it",
        models=("w2v-BERT 2.0 (without the vectors on values)",),
        page="relative",
    ),
    "Music Transformer": Card(
        title="Music Transformer",
        year=2018,
        idea=(
            "Shaw's idea for the past only, with one vector for each distance and a "
            "trick that saves memory."
        ),
        formula=r"s_{ij} + \mathbf{q}_i^\top\mathbf{e}_{i-j} / \sqrt{d_h}, \quad j \le i",
        symbols=r"$\mathbf{e}_{i-j}$ is the learned vector of the distance.",
        cites=("huang2019music",),
        function="RelativeGlobalAttention",
        shows="stripes below the diagonal, one shade above it",
        models=("Music Transformer (by Magenta)",),
    ),
    "Transformer-XL": Card(
        title="Transformer-XL",
        year=2019,
        idea=(
            "Score content and offset separately. In two of the four terms a learned "
            "vector replaces the query."
        ),
        formula=(
            r"s_{ij} + \left(\mathbf{q}_i^\top\mathbf{r}_{i-j} + "
            r"\mathbf{u}^\top\mathbf{k}_j + \mathbf{u}'^\top\mathbf{r}_{i-j}\right) / "
            r"\sqrt{d_h}"
        ),
        symbols=(
            r"$\mathbf{r}_{i-j}$ is a projected sinusoid of the offset, and $\mathbf{u}$ "
            r"and $\mathbf{u}'$ are learned."
        ),
        cites=("dai2019transformerxl",),
        function="TransformerXLBias",
        shows="soft stripes along the diagonal",
        models=("Transformer-XL", "XLNet"),
        page="relative",
    ),
    "DeBERTa": Card(
        title="Disentangled attention (DeBERTa)",
        year=2020,
        idea="Content asks about offsets, and offsets ask about content.",
        formula=(
            r"\left(\mathbf{q}_i^\top\mathbf{k}_j + "
            r"\mathbf{q}_i^\top\mathbf{k}^{(r)}_{i-j} + "
            r"\mathbf{k}_j^\top\mathbf{q}^{(r)}_{j-i}\right) / \sqrt{3 d_h}"
        ),
        symbols=(
            r"$\mathbf{q}^{(r)}$ and $\mathbf{k}^{(r)}$ are queries and keys made from a "
            "learned vector for each offset."
        ),
        cites=("he2021deberta",),
        function="DisentangledBias",
        shows="a band of stripes along the diagonal, and one shade on each side of it",
        models=("DeBERTa-v2",),
    ),
    "TUPE": Card(
        title="Untied positions (TUPE)",
        year=2020,
        idea="Give positions queries and keys of their own, separate from those of the words.",
        formula=(
            r"\left(\mathbf{q}_i^\top\mathbf{k}_j + "
            r"(\mathbf{U}^{(q)\top}\mathbf{t}_i)^\top(\mathbf{U}^{(k)\top}\mathbf{t}_j)\right) "
            r"/ \sqrt{2 d_h}"
        ),
        symbols=(
            r"$\mathbf{t}_i$ is a learned row for position $i$, and $\mathbf{U}^{(q)}$ "
            r"and $\mathbf{U}^{(k)}$ are projections for positions only."
        ),
        cites=("ke2021rethinking",),
        function="TUPEBias",
        shows="noise: before training the rows of the table know nothing of each other",
    ),
    "CoPE": Card(
        title="Contextual positions (CoPE)",
        year=2024,
        idea=(
            "Count only what the query chooses to count, such as ends of sentences, and "
            "use that count as the distance."
        ),
        formula=(
            r"s_{ij} + \mathbf{q}_i^\top\mathbf{e}_{p_{ij}}, \quad p_{ij} = "
            r"\textstyle\sum_{l=j}^{i} \sigma(s_{il})"
        ),
        symbols=(
            r"$p_{ij}$ is the count, $\sigma$ the logistic function, and $\mathbf{e}_p$ a "
            "learned vector, interpolated between whole numbers."
        ),
        cites=("golovneva2024contextual",),
        function="CoPE",
        shows="stripes below the diagonal, one shade above it",
    ),
    "FoX": Card(
        title="Forgetting Transformer (FoX)",
        year=2025,
        idea="Each token closes a gate a little on everything before it.",
        formula=(
            r"s_{ij} + \textstyle\sum_{l=j+1}^{i} \log f_l, \quad f_l = "
            r"\sigma(\mathbf{w}^\top\mathbf{x}_l + w_0)"
        ),
        symbols=(
            r"$f_l$ is the gate of token $\mathbf{x}_l$, $\sigma$ the logistic function, "
            r"and $\mathbf{w}$ and $w_0$ are learned."
        ),
        cites=("lin2025forgetting",),
        function="ForgettingGate",
        shows="dark on and above the diagonal, fading evenly into the past",
        models=("FoX (research checkpoints by the authors)",),
    ),
    "stick-breaking": Card(
        title="Stick-breaking",
        year=2024,
        idea=(
            "Go from the newest key to the oldest and let each take a share of what is "
            "left. Of equal keys the nearest gets most, and what remains at the end goes "
            "to the query's own value."
        ),
        formula=(
            r"s_{ij} + \textstyle\sum_{l=j}^{i-1} \ln\bigl(1 - \sigma(s_{il})\bigr), "
            r"\quad j < i"
        ),
        symbols=(
            r"$\sigma(s_{il})$ is the share that key $l$ takes, where $\sigma$ is the "
            "logistic function."
        ),
        cites=("tan2025scaling",),
        function="StickBreaking",
        shows=(
            "dark next to the diagonal, paling evenly into the past; the diagonal "
            "itself, which has what remains, pales further down, and one shade lies "
            "above it"
        ),
    ),
    "DAPE": Card(
        title="Data-adaptive encoding (DAPE)",
        year=2024,
        idea=(
            "A small network reads the scores and biases of all heads and corrects the "
            "bias. In the picture the bias is ALiBi's."
        ),
        formula=r"s_{ij} + \beta_{ij} + f(\mathbf{s}_{ij}, \boldsymbol{\beta}_{ij})",
        symbols=(
            r"$\mathbf{s}_{ij}$ and $\boldsymbol{\beta}_{ij}$ hold the scores and the "
            r"biases of all heads, $\beta_{ij}$ is the bias of this one, and $f$ is the "
            "network."
        ),
        cites=("zheng2024dape",),
        function="DAPE",
        shows="fading evenly to both sides of the diagonal",
    ),
    "ALiBi": Card(
        title="ALiBi",
        year=2021,
        idea="Each head subtracts the distance times its own slope.",
        formula=r"s_{ij} - \lambda\,|i - j|",
        symbols=r"$\lambda$ is the slope of the head, which is not learned.",
        cites=("press2022alibi",),
        function="alibi_bias",
        shows="dark on the diagonal, fading evenly to both sides",
        models=("BLOOM", "MPT"),
        page="biases",
    ),
    "T5": Card(
        title="Bias of T5",
        year=2019,
        idea=(
            "Learn one number for each offset. Distant offsets share buckets, which get "
            "wider with the distance."
        ),
        formula=r"s_{ij} + t_{\operatorname{bucket}(j - i)}",
        symbols="$t_b$ is the learned number of bucket $b$.",
        cites=("raffel2020exploring",),
        function="T5Bias",
        shows="stripes along the diagonal, narrow near it and broad far away",
        models=("T5",),
        page="biases",
    ),
    "KERPLE, logarithmic": Card(
        title="KERPLE, logarithmic",
        year=2022,
        idea="Subtract a penalty that grows with the logarithm of the distance.",
        formula=r"s_{ij} - r_1 \ln(1 + r_2\,|i - j|)",
        symbols="$r_1$ and $r_2$ are learned and positive.",
        cites=("chi2022kerple",),
        function="KerpleLog",
        shows="dark on the diagonal, fading to both sides, fast and then slowly",
        page="biases",
    ),
    "KERPLE, power": Card(
        title="KERPLE, power",
        year=2022,
        idea="Subtract a penalty that grows with a power of the distance.",
        formula=r"s_{ij} - r_1\,|i - j|^{r_2}",
        symbols="$r_1$ and $r_2$ are learned and positive.",
        cites=("chi2022kerple",),
        function="KerplePower",
        shows="dark on the diagonal, and pale at once next to it",
        page="biases",
    ),
    "Sandwich": Card(
        title="Sandwich",
        year=2022,
        idea="Take the product of two rows of the sinusoid, without the words, as a bias.",
        formula=r"s_{ij} + \tfrac{H}{8h}\,\mathbf{p}_i^\top\mathbf{p}_j",
        symbols=(
            r"$\mathbf{p}_i$ is the sinusoidal encoding of position $i$, $H$ the number "
            "of heads, and $h$ the number of this head, from 1."
        ),
        cites=("chi2023dissecting",),
        function="sandwich_bias",
        shows="dark on the diagonal, fading to both sides in ripples",
        page="biases",
    ),
    "FIRE": Card(
        title="FIRE",
        year=2023,
        idea=(
            "A small network reads the distance as a fraction of the query's position, "
            "or of a learned threshold if that is larger."
        ),
        formula=(
            r"s_{ij} + f\left(\psi(|i - j|) \,/\, \psi(\max(\ell, i))\right), \quad "
            r"\psi(x) = \ln(1 + a\,x)"
        ),
        symbols=(
            r"$f$ is the network, $\ell$ the threshold, and $\psi$ compresses large "
            "numbers with a learned $a$."
        ),
        cites=("li2024fire",),
        function="FIRE",
        shows="stripes that open like a fan from the upper left",
        page="biases",
    ),
    "Swin": Card(
        title="Bias of Swin",
        year=2021,
        idea=(
            "For images: learn one number for each displacement of two patches within a "
            "window."
        ),
        formula=r"s_{ij} + t_{(y_i - y_j,\; x_i - x_j)}",
        symbols="patch $i$ is in row $y_i$ and column $x_i$, and $t$ is a learned table.",
        cites=("liu2021swin",),
        function="SwinBias",
        shows="blocks of 8 by 8 that repeat along the diagonals",
        models=("Swin",),
    ),
    "Swin V2": Card(
        title="Continuous bias of Swin V2",
        year=2021,
        idea=(
            "For images: a small network turns the displacement of two patches into a "
            "bias. It reads the displacement on a logarithmic scale, so it also serves "
            "larger windows."
        ),
        formula=(
            r"s_{ij} + 16\,\sigma\bigl(f(g(y_i - y_j),\, g(x_i - x_j))\bigr), \quad g(u) "
            r"= \operatorname{sign}(u) \log_8(1 + 8\,|u| / (M - 1))"
        ),
        symbols=(
            r"patch $i$ is in row $y_i$ and column $x_i$, $f$ is the network, $\sigma$ "
            "the logistic function, and $M$ the side of the window in training."
        ),
        cites=("liu2022swin",),
        function="SwinV2Bias",
        shows="blocks of 8 by 8 that repeat along the diagonals",
        models=("Swin V2",),
    ),
}
