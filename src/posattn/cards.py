"""What is to be told of each scheme: its name and year, its idea, its formula, and where to read on.

The page of all schemes is made from this: nothing that stands here is typed there.
"""

from dataclasses import dataclass

__all__ = ["CARDS", "Card"]


@dataclass(frozen=True)
class Card:
    r"""What is to be told of one scheme.

    Args:
        title: its full name.
        year: when the first of the works that are cited appeared, as a preprint if there was one.
        idea: what it does, in a sentence or two.
        formula: what becomes of a token, a query or a score, in LaTeX.
        cites: keys of the bibliography, the work that brought it first.
        function: its name in each column, or none.
        page: the page that teaches it, or none.
        shows: what one sees in the picture of its scores.
    """

    title: str
    year: int
    idea: str
    formula: str
    cites: tuple[str, ...]
    function: str | None
    shows: str
    page: str | None = None


#: From the names of `SCHEMES` to their cards.
CARDS = {
    "none": Card(
        "No encoding (NoPE)",
        2022,
        "Only the causal mask tells order: a token that sees more tokens is a later one.",
        r"s_{ij} = \mathbf{q}_i^\top\mathbf{k}_j / \sqrt{d_h}",
        ("haviv2022transformer", "kazemnejad2023impact"),
        None,
        "one shade: all scores are equal",
        "permutation",
    ),
    "sinusoidal": Card(
        "Sinusoidal encoding",
        2017,
        "Sines and cosines of the position, from fast to slow, are added to the token.",
        r"\mathbf{x}_i \mapsto \mathbf{x}_i + \mathbf{p}_i, \quad"
        r" (p_{i,2c},\, p_{i,2c+1}) = (\sin i\,\omega_c,\, \cos i\,\omega_c)",
        ("Vaswani.Shazeer.Parmar.ea.2017",),
        "PositionalEncoding",
        "waves along the rows and the columns, not only along the diagonal",
        "sinusoidal",
    ),
    "learned": Card(
        "Learned table",
        2017,
        "Each position has a row of parameters, which is added to the token; the table ends.",
        r"\mathbf{x}_i \mapsto \mathbf{x}_i + \mathbf{t}_i",
        ("gehring2017convolutional", "devlin2019bert"),
        "LearnedPositionalEncoding",
        "noise in stripes: before training the rows of the table know nothing of each other",
        "learned",
    ),
    "randomized": Card(
        "Randomized positions",
        2023,
        "A text gets increasing positions drawn from a long range,"
        " so that training meets large ones.",
        r"\mathbf{x}_i \mapsto \mathbf{x}_i + \mathbf{p}_{r_i}, \quad r_0 < r_1 < \ldots"
        r" \text{ drawn from } \{0, \ldots, n_{\max} - 1\}",
        ("ruoss2023randomized",),
        "randomized_positions",
        "the waves of the sinusoid, torn to noise where the positions leap",
    ),
    "rotary": Card(
        "Rotary (RoPE)",
        2021,
        "Each pair of entries of a query and a key turns by an angle that grows with the position.",
        r"\mathbf{q}_i \mapsto \mathbf{R}_i\,\mathbf{q}_i, \quad"
        r" \text{pair } c \text{ turns by } i\,\omega_c",
        ("su2024roformer",),
        "rotate",
        "stripes along the diagonal: the score sees the offset alone",
        "rotary",
    ),
    "rotary, partial": Card(
        "Partial rotary",
        2021,
        "Only the first entries of a head turn; the others see content alone.",
        r"\text{pair } c \text{ turns by } i\,\omega_c \text{ if } c < m, \text{ else not}",
        ("wang2021gptj", "black2022gptneox"),
        "rotate",
        "fine and even stripes along the diagonal, without the slow pairs",
        "rotary",
    ),
    "xPos": Card(
        "xPos",
        2022,
        "Rotary, and far keys fade: queries shrink with the position as keys grow.",
        r"\mathbf{q}_i \mapsto \zeta_c^{\,i/\tau}\,\mathbf{R}_i\,\mathbf{q}_i, \quad"
        r" \mathbf{k}_j \mapsto \zeta_c^{-j/\tau}\,\mathbf{R}_j\,\mathbf{k}_j",
        ("sun2023length",),
        "xpos_query",
        "nearly the stripes of rotary: within 64 positions little fades",
    ),
    "PoPE": Card(
        "Polar coordinates (PoPE)",
        2025,
        "Each entry of a query or a key is a length, never negative, and the position alone"
        " turns it: content has no angle. Learned angles say which offset an entry likes best.",
        r"s_{ij} = \textstyle\sum_c \mu(q_{ic})\,\mu(k_{jc})"
        r" \cos\bigl((j - i)\,\omega_c + \varphi_c\bigr) / \sqrt{d_h}, \quad"
        r" \mu(x) = \ln(1 + e^x)",
        ("gopalakrishnan2025decoupling",),
        "PolarKey",
        "stripes along the diagonal, darkest on it",
    ),
    "rotary, axial": Card(
        "Axial rotary, for images",
        2024,
        "Half of the pairs turn with the row of a patch, the other half with its column.",
        r"\text{pair } c \text{ turns by } y_i\,\omega_c \text{ or by } x_i\,\omega_c",
        ("heo2024rotary",),
        "axial_frequencies",
        "blocks of 8 by 8, one for each two rows of an image of 8 by 8 patches",
    ),
    "rotary, mixed": Card(
        "Mixed rotary, for images",
        2024,
        "Each pair turns with a learned mixture of row and column, and so sees diagonals too.",
        r"\text{pair } c \text{ turns by } y_i\,\omega_{0,c} + x_i\,\omega_{1,c},"
        r" \text{ both learned}",
        ("heo2024rotary",),
        "MixedRotary",
        "blocks of 8 by 8, shaded aslant",
    ),
    "M-RoPE": Card(
        "M-RoPE, for text, images and video",
        2024,
        "The pairs fall into three sections, which turn with time, height and width.",
        r"\text{pair } c \text{ turns by } t_i\,\omega_c,\ y_i\,\omega_c \text{ or } x_i\,\omega_c",
        ("wang2024qwen2vl",),
        "mrope_frequencies",
        "blocks of 8 by 8, each nearly of one shade, as the columns are left to the slowest pairs",
    ),
    "position interpolation": Card(
        "Position interpolation",
        2023,
        "All pairs turn slower by a factor: a long text has the angles of a short one.",
        r"\omega_c \mapsto \omega_c / s",
        ("chen2023extending",),
        "position_interpolation",
        "the stripes of rotary, four times as broad",
        "rotary",
    ),
    "NTK-aware": Card(
        "NTK-aware scaling",
        2023,
        "A larger base: fast pairs keep their pace, and the slowest becomes slower by the factor.",
        r"b \mapsto b\,s^{d/(d-2)}, \quad \omega_c = b^{-2c/d}",
        ("bloc972023ntk", "peng2024yarn"),
        "ntk_aware",
        "fine stripes as those of rotary, over slower ones",
        "rotary",
    ),
    "dynamic NTK": Card(
        "Dynamic NTK",
        2023,
        "NTK-aware scaling with a factor that grows with the text, once it is longer than training.",
        r"b \mapsto b\,\left(1 + s\left(\tfrac{\max(n, L)}{L} - 1\right)\right)^{d/(d-2)}",
        ("emozilla2023dynamically", "peng2024yarn"),
        "dynamic_ntk",
        "fine stripes as those of rotary, over slower ones",
        "rotary",
    ),
    "YaRN": Card(
        "YaRN",
        2023,
        "Slow pairs are interpolated, fast ones are left alone, and the scores grow a little.",
        r"\omega_c \mapsto \gamma_c\,\omega_c / s + (1 - \gamma_c)\,\omega_c, \quad"
        r" \mathbf{q}_i \mapsto (0.1 \ln s + 1)\,\mathbf{R}_i\,\mathbf{q}_i",
        ("peng2024yarn",),
        "yarn",
        "fine stripes as those of rotary, over slower ones",
        "rotary",
    ),
    "LongRoPE": Card(
        "LongRoPE",
        2024,
        "Each pair has a factor of its own, found by search; another set once a text is long.",
        r"\omega_c \mapsto \omega_c / \lambda_c, \quad"
        r" \lambda \text{ short if } n \le L, \text{ else long}",
        ("ding2024longrope",),
        "longrope",
        "stripes along the diagonal, a little broader than those of rotary",
        "rotary",
    ),
    "Llama 3": Card(
        "Scaling of Llama 3.1",
        2024,
        "Slow pairs turn slower by a factor, fast ones as before, those between by a blend.",
        r"\omega_c \mapsto \omega_c / s \text{ if slow}, \quad \omega_c \text{ if fast}",
        ("grattafiori2024llama",),
        "llama3",
        "stripes along the diagonal, over the slow ones of a base of 500000",
        "rotary",
    ),
    "Shaw": Card(
        "Relative embeddings of Shaw",
        2018,
        "The query also meets a learned vector of the offset, and so do the weights:"
        " values have such vectors too.",
        r"s_{ij} + \mathbf{q}_i^\top\mathbf{a}_{j-i} / \sqrt{d_h}, \quad |j - i| \text{ clipped}",
        ("shaw2018self",),
        "ShawRelative",
        "a band of stripes along the diagonal, and one shade on each side of it",
        "relative",
    ),
    "Music Transformer": Card(
        "Music Transformer",
        2018,
        "As Shaw's, for the past alone, with a row for each distance and a trick that saves memory.",
        r"s_{ij} + \mathbf{q}_i^\top\mathbf{e}_{i-j} / \sqrt{d_h}, \quad j \le i",
        ("huang2019music",),
        "RelativeGlobalAttention",
        "stripes below the diagonal, one shade above it",
    ),
    "Transformer-XL": Card(
        "Transformer-XL",
        2019,
        "Content and offset are scored apart, and in two of the four terms a learned vector"
        " takes the query's place.",
        r"s_{ij} + \left(\mathbf{q}_i^\top\mathbf{r}_{i-j} + \mathbf{u}^\top\mathbf{k}_j"
        r" + \mathbf{u}'^\top\mathbf{r}_{i-j}\right) / \sqrt{d_h}",
        ("dai2019transformerxl",),
        "TransformerXLBias",
        "soft stripes along the diagonal",
        "relative",
    ),
    "DeBERTa": Card(
        "Disentangled attention (DeBERTa)",
        2020,
        "Content asks for offsets, and offsets ask for content.",
        r"\left(\mathbf{q}_i^\top\mathbf{k}_j + \mathbf{q}_i^\top\mathbf{k}^{(r)}_{i-j}"
        r" + \mathbf{k}_j^\top\mathbf{q}^{(r)}_{j-i}\right) / \sqrt{3 d_h}",
        ("he2021deberta",),
        "DisentangledBias",
        "a band of stripes along the diagonal, and one shade on each side of it",
    ),
    "TUPE": Card(
        "Untied positions (TUPE)",
        2020,
        "Positions have queries and keys of their own, apart from those of the words.",
        r"\left(\mathbf{q}_i^\top\mathbf{k}_j"
        r" + (\mathbf{U}^{(q)\top}\mathbf{t}_i)^\top(\mathbf{U}^{(k)\top}\mathbf{t}_j)\right)"
        r" / \sqrt{2 d_h}",
        ("ke2021rethinking",),
        "TUPEBias",
        "noise: before training the rows of the table know nothing of each other",
    ),
    "CoPE": Card(
        "Contextual positions (CoPE)",
        2024,
        "Positions count what the query chooses to count, such as ends of sentences.",
        r"s_{ij} + \mathbf{q}_i^\top\mathbf{e}_{p_{ij}}, \quad"
        r" p_{ij} = \textstyle\sum_{l=j}^{i} \sigma(s_{il})",
        ("golovneva2024contextual",),
        "CoPE",
        "stripes below the diagonal, one shade above it",
    ),
    "FoX": Card(
        "Forgetting Transformer (FoX)",
        2025,
        "Each token closes a gate a little on all that came before it.",
        r"s_{ij} + \textstyle\sum_{l=j+1}^{i} \log f_l, \quad"
        r" f_l = \sigma(\mathbf{w}^\top\mathbf{x}_l + w_0)",
        ("lin2025forgetting",),
        "ForgettingGate",
        "dark on and above the diagonal, fading evenly into the past",
    ),
    "stick-breaking": Card(
        "Stick-breaking",
        2024,
        "From the newest key to the oldest, each takes a share of what is left, so that"
        " of equal keys the nearest gets most; what remains is the query's own.",
        r"s_{ij} + \textstyle\sum_{l=j}^{i-1} \ln\bigl(1 - \sigma(s_{il})\bigr), \quad j < i",
        ("tan2025scaling",),
        "StickBreaking",
        "dark beside the diagonal, paling evenly into the past; the diagonal itself,"
        " which has what remains, pales further down, and one shade lies above it",
    ),
    "DAPE": Card(
        "Data-adaptive encoding (DAPE)",
        2024,
        "A small network reads scores and biases of all heads, here of ALiBi,"
        " and corrects the bias.",
        r"s_{ij} + \beta_{ij} + f(\mathbf{s}_{ij}, \boldsymbol{\beta}_{ij})",
        ("zheng2024dape",),
        "DAPE",
        "fading evenly to both sides of the diagonal",
    ),
    "ALiBi": Card(
        "ALiBi",
        2021,
        "Each head subtracts the distance times a slope of its own.",
        r"s_{ij} - \lambda\,|i - j|",
        ("press2022alibi",),
        "alibi_bias",
        "dark on the diagonal, fading evenly to both sides",
        "relative",
    ),
    "T5": Card(
        "Bias of T5",
        2019,
        "A learned number for each offset; far offsets share buckets that grow.",
        r"s_{ij} + t_{\operatorname{bucket}(j - i)}",
        ("raffel2020exploring",),
        "T5Bias",
        "stripes along the diagonal, narrow near it and broad far away",
        "relative",
    ),
    "KERPLE, logarithmic": Card(
        "KERPLE, logarithmic",
        2022,
        "A penalty that grows with the logarithm of the distance, with two learned numbers.",
        r"s_{ij} - r_1 \ln(1 + r_2\,|i - j|)",
        ("chi2022kerple",),
        "KerpleLog",
        "dark on the diagonal, fading to both sides, fast and then slowly",
    ),
    "KERPLE, power": Card(
        "KERPLE, power",
        2022,
        "A penalty that grows with a learned power of the distance.",
        r"s_{ij} - r_1\,|i - j|^{r_2}",
        ("chi2022kerple",),
        "KerplePower",
        "dark on the diagonal, and pale at once beside it",
    ),
    "Sandwich": Card(
        "Sandwich",
        2022,
        "The product of two rows of the sinusoid, without the words, as a bias.",
        r"s_{ij} + \tfrac{H}{8h}\,\mathbf{p}_i^\top\mathbf{p}_j",
        ("chi2023dissecting",),
        "sandwich_bias",
        "dark on the diagonal, fading to both sides in ripples",
    ),
    "FIRE": Card(
        "FIRE",
        2023,
        "A small network reads the distance as a share of the query's position,"
        " or of a learned threshold where that is larger.",
        r"s_{ij} + f\left(\psi(|i - j|) \,/\, \psi(\max(\ell, i))\right), \quad"
        r" \psi(x) = \ln(1 + a\,x)",
        ("li2024fire",),
        "FIRE",
        "stripes that open like a fan from the upper left",
    ),
    "Swin": Card(
        "Bias of Swin",
        2021,
        "A learned number for each displacement of two patches in a window of an image.",
        r"s_{ij} + t_{(y_i - y_j,\; x_i - x_j)}",
        ("liu2021swin",),
        "SwinBias",
        "blocks of 8 by 8 that repeat along the diagonals",
    ),
    "Swin V2": Card(
        "Continuous bias of Swin V2",
        2021,
        "A small network reads the displacement of two patches in logarithms,"
        " so that a larger window has biases too.",
        r"s_{ij} + 16\,\sigma\bigl(f(g(y_i - y_j),\, g(x_i - x_j))\bigr), \quad"
        r" g(u) = \operatorname{sign}(u) \log_8(1 + 8\,|u| / (M - 1))",
        ("liu2022swin",),
        "SwinV2Bias",
        "blocks of 8 by 8 that repeat along the diagonals",
    ),
}
