"""Cards of the schemes that act on the scores."""

from posattn.cards.card import Card

__all__ = ["BIASES"]

BIASES = {
    "Shaw": Card(
        title="Relative embeddings of Shaw",
        year=2018,
        idea=(
            "Learn a vector for each offset and add it to the key. A second set of "
            "vectors is added to the values."
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
            "Split the score into four terms, which compare a query or a learned vector "
            "with a key or an encoding of the offset."
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
        idea=(
            "Compare the words with each other, each query with a vector for the offset, "
            "and each key with another one."
        ),
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
        shows="noise, because the rows of the table are random before training",
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
        idea=(
            "Each token computes a gate between 0 and 1, and everything before the token "
            "counts less by that factor."
        ),
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
        shows="strongest on and above the diagonal, fading evenly into the past",
        models=("FoX (research checkpoints by the authors)",),
    ),
    "stick-breaking": Card(
        title="Stick-breaking",
        year=2024,
        idea=(
            "Break a stick of weight. From the newest key to the oldest, each takes a "
            "share of what is left, so of equal keys the nearest gets most. The rest goes "
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
            "strongest next to the diagonal and evenly fainter into the past, with one "
            "shade above; the diagonal itself, which holds the rest, gets fainter further "
            "down"
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
        function="ALiBi",
        shows="strongest on the diagonal, fading evenly to both sides",
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
        shows="strongest on the diagonal, fading to both sides, first fast and then slowly",
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
        shows="strongest on the diagonal, and faint right next to it",
        page="biases",
    ),
    "Sandwich": Card(
        title="Sandwich",
        year=2022,
        idea=(
            "Use the dot product of two rows of the sinusoid as a bias, with no word "
            "vectors in it."
        ),
        formula=r"s_{ij} + \tfrac{H}{8h}\,\mathbf{p}_i^\top\mathbf{p}_j",
        symbols=(
            r"$\mathbf{p}_i$ is the sinusoidal encoding of position $i$, $H$ the number "
            "of heads, and $h$ the number of this head, from 1."
        ),
        cites=("chi2023dissecting",),
        function="sandwich_bias",
        shows="strongest on the diagonal, fading to both sides in ripples",
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
