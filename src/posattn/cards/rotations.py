"""Cards of the schemes that act on queries and keys."""

from posattn.cards.card import Card

__all__ = ["ROTATIONS"]

ROTATIONS = {
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
        shows="stripes along the diagonal, because the score depends only on the offset",
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
    "rotary, proportional": Card(
        title="Proportional rotary",
        year=2024,
        idea="Form the pairs across the whole head, and rotate only the fast ones.",
        formula=(
            r"\text{pair } c \text{ rotates by } i\,\omega_c \text{ if } c < m, \text{ "
            r"else not}, \quad \omega_c = b^{-2c/d_h}"
        ),
        symbols=(
            r"$m$ is the number of pairs that rotate, and $\omega_c$ the speed that pair $c$ has "
            "where all pairs rotate, with the base $b$ and heads of width $d_h$."
        ),
        cites=("barbero2025round",),
        function="proportional_frequencies",
        shows="fine stripes along the diagonal, without the slow pairs",
        models=("Gemma 4",),
        page="conventions",
    ),
    "FoPE": Card(
        title="Fourier position embedding (FoPE)",
        year=2024,
        idea=(
            "Rotate each pair with a weighted sum of waves instead of one, and stop the pairs that "
            "complete no turn in training."
        ),
        formula=r"\cos(i\,\omega_c) \mapsto {\textstyle\sum_l} A_{lc} \cos(i\,\omega_l)",
        symbols=(
            r"$\omega_l$ is a speed that completes a turn in training, and $A$ holds fixed weights near "
            "the identity matrix. The sine has weights of its own."
        ),
        cites=("hua2025fourier",),
        function="fope",
        shows="the stripes of rotary with waves across them",
        models=("Intern-S1-Pro",),
    ),
    "xPos": Card(
        title="xPos",
        year=2022,
        idea=(
            "Rotary that fades with distance. Queries shrink and keys grow with their "
            "positions, so the score of a distant earlier key gets smaller."
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
        shows="nearly the stripes of rotary, because little fades within 64 positions",
    ),
    "PoPE": Card(
        title="Polar coordinates (PoPE)",
        year=2025,
        idea=(
            "Read every entry of a query or key as the length of an arrow. Only the "
            "position sets the angle of the arrow, plus a learned angle that says which "
            "offset the entry prefers."
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
        shows="stripes along the diagonal, strongest on it",
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
        shows="blocks of 8 by 8, one for each pair of rows of the image",
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
        shows="blocks of 8 by 8, each with slanted stripes",
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
            "blocks of 8 by 8, each of nearly one shade, because the columns get the "
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
        shows="the fine stripes of rotary, over broader ones",
        page="longer_contexts",
    ),
    "dynamic NTK": Card(
        title="Dynamic NTK",
        year=2023,
        idea=(
            "NTK-aware scaling that starts when the text gets longer than those of "
            "training. From then on its factor grows with the text."
        ),
        formula=r"b \mapsto b\,\left(1 + s\left(\tfrac{\max(n, L)}{L} - 1\right)\right)^{d/(d-2)}",
        symbols=(
            "$n$ is the length of the text, $L$ that of training, $b$ the base, $s$ a "
            "factor, and $d$ the number of entries that rotate."
        ),
        cites=("emozilla2023dynamically", "peng2024yarn"),
        function="dynamic_ntk",
        shows="the fine stripes of rotary, over broader ones",
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
        shows="the fine stripes of rotary, over broader ones",
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
        shows="stripes along the diagonal, over much broader ones from its base of 500000",
        models=("Llama 3.1", "Llama 4 (Scout)", "EXAONE 4", "Apertus"),
        page="longer_contexts",
    ),
}
