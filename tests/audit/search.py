"""What people type into the search, and the page, or section, that should be its first answer."""

QUERIES = {  # each with one or several right answers, as their addresses begin
    "alibi slopes": ("other/biases", "questions/alibi"),
    "attention weights from sdpa": ("questions/attention-weights",),
    "bfloat16": ("questions/rope-in-bfloat16", "fix/debugging#", "reference/measurements"),
    "BOS token": ("fix/triage",),
    "causal mask": ("attention/masking",),
    "command r rope neighbors": ("build/conventions", "questions/rope-halves"),
    "config.json rope_parameters vs rope_scaling": ("build/config", "fix/transformers"),
    "convert llama weights meta to huggingface": (
        "build/conventions",
        "questions/rope-halves",
    ),
    "cu_seqlens": ("build/model", "questions/packing"),
    "deepseek v3 rope interleaved": ("models/deepseek-v3", "scale/memory"),
    "does jax dot_product_attention window include current token": (
        "fix/libraries",
        "questions/does-a-sliding-window",
    ),
    "dump hidden states llama.cpp": ("fix/llama_cpp", "fix/triage"),
    "first generated token correct then garbage": ("fix/triage", "fix/debugging"),
    "first token right then nonsense": ("fix/triage", "fix/debugging"),
    "flash attention": ("scale/tiles",),
    "garbage output after loading checkpoint": ("fix/triage", "fix/debugging"),
    "gated delta rule": ("other/state", "questions/linear"),
    "gemma 3 sliding window size": ("models/gemma-3",),
    "gemma 3 rope_local_base_freq": ("models/gemma-3",),
    "GGUF and back gives garbage": ("fix/conversion", "fix/llama_cpp"),
    "GGUF": ("build/conventions", "fix/llama_cpp", "fix/conversion"),
    "gpt-oss": ("models/gpt-oss", "reference/models", "build/configurations"),
    "hf_overrides": ("fix/vllm",),
    "how to extend context": ("build/extending", "position/longer_contexts"),
    "images in the wrong place": ("questions/images",),
    "interleaved or half": ("build/conventions", "questions/rope-halves"),
    "KeyError rope_theta": (
        "build/configurations",
        "fix/transformers",
        "questions/which-rope-theta",
    ),
    "kv cache": ("scale/memory", "build/model", "questions/is-causal"),
    "learned position embeddings": ("other/learned",),
    "left padding": ("questions/left-padding", "build/model"),
    "llama.cpp rope-scaling yarn command line": ("fix/llama_cpp", "build/extending"),
    "MLA": ("scale/memory", "reference/glossary"),
    "mlx-lm ignores rope scaling": ("fix/mlx_lm", "fix/conversion"),
    "model repeating itself after 8k tokens": ("fix/triage", "build/extending"),
    "mscale_all_dim": ("build/extending", "fix/conformance"),
    "multi head attention": ("attention/multi_head",),
    "nan": ("questions/nan", "attention/masking"),
    "out of memory": ("scale/memory", "scale/tiles", "fix/triage"),
    "partial rotary qwen3.5": ("models/qwen3",),
    "peft prompt tuning left padding": ("fix/wrappers",),
    "permutation equivariance": ("position/permutation",),
    "plan refuses": ("build/extending", "build/configurations", "fix/debugging"),
    "qwen 2.5 128k": ("build/extending",),
    "ring attention": ("scale/ring",),
    "ring buffer": ("fix/conformance",),
    "rope_freqs.weight": ("fix/llama_cpp",),
    "rotary embedding": ("position/rotary",),
    "run qwen2.5 at 128k": ("build/extending",),
    "sentence-transformers embedding changes with batch": ("fix/wrappers",),
    "sinusoidal": ("position/sinusoidal",),
    "sliding window off by one": ("attention/masking", "questions/does-a-sliding-window"),
    "sliding window": ("attention/masking", "questions/does-a-sliding-window"),
    "softcap": ("build/configurations",),
    "T5 bias": ("other/biases",),
    "tensor parallel": ("fix/conformance", "build/model"),
    "vLLM and transformers differ after 32k tokens": ("fix/vllm",),
    "which layers of llama 4 have no rope": ("models/llama-4", "questions/layers-without"),
    "which library uses True for masked": ("fix/libraries", "questions/attention-mask"),
    "why divide by sqrt d": ("questions/why-divide", "attention/scaled_dot_product"),
    "yarn": ("position/longer_contexts",),
}
HEAVY = 300  # KB, for one question and its answers
DONE = "#search-said:text-matches('^Found|^Nothing')"
BYTES = """performance.getEntriesByType("resource").filter((e) => e.name.includes("/pagefind/"))
    .reduce((sum, e) => sum + e.transferSize, 0)"""


def faults(browser, home):
    """The questions whose first answer is another page, and those that load too much."""
    found = []
    for words, places in QUERIES.items():
        tab = browser.new_page()
        tab.goto(f"{home}/search.html?q={words}")
        tab.wait_for_selector(DONE)
        first = tab.locator("#search-results a").first
        answer = first.get_attribute("href") if first.count() else "nothing"
        if not answer.lstrip("/").startswith(places):
            found.append(f"{words}: finds {answer} first, not {' or '.join(places)}")
        kb = tab.evaluate(BYTES) / 1000
        if kb > HEAVY:
            found.append(f"{words}: loads {kb:.0f} KB, more than {HEAVY}")
        tab.close()
    return found
