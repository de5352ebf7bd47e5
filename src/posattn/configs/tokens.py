"""The tokenizer of a GGUF file, out of its own tokens and merges."""

from posattn.configs.gguf import Header

CONTROL, DEFINED = 3, 4  # kinds of tokens that no merge makes
WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
PATTERNS = {  # what cuts a text into words before any merge, by tokenizer.ggml.pre; None for GPT-2's own
    "gpt-2": None,
    "smollm": None,
    "llama-bpe": f"{WORDS}\\p{{N}}{{1,3}}{REST}",
    "qwen2": f"{WORDS}\\p{{N}}{REST}",
}


def tokenizer(path):
    """Make the tokenizer of a GGUF file.

    It encodes text as it is: a chat's template and the token at the beginning are the caller's.

    Args:
        path: of the file.

    Returns:
        A `tokenizers.Tokenizer`.

    Raises:
        ImportError: if the package tokenizers is not installed.
        ValueError: if it is no whole GGUF file, or its tokens are not GPT-2's kind of bytes.
    """
    try:
        from tokenizers import AddedToken, Regex, Tokenizer, decoders, models
        from tokenizers import pre_tokenizers as cut
    except ImportError as error:
        told = "a tokenizer needs the package tokenizers: pip install tokenizers"
        raise ImportError(told) from error
    given = Header(path).fields
    kind, pre, tokens, merges, kinds = (
        given.get(f"tokenizer.ggml.{key}")
        for key in ("model", "pre", "tokens", "merges", "token_type")
    )
    if kind != "gpt2" or pre not in PATTERNS:
        raise ValueError(
            f"tokenizer.ggml.model must be 'gpt2' with pre one of {', '.join(PATTERNS)}, got {kind!r} with "
            f"{pre!r}; take the tokenizer.json of the model's own repository"
        )
    bpe = models.BPE(
        {token: index for index, token in enumerate(tokens)},
        [tuple(merge.split(" ")) for merge in merges],
        ignore_merges=pre == "llama-bpe",
    )
    made, pattern = Tokenizer(bpe), PATTERNS[pre]
    words = [cut.ByteLevel(add_prefix_space=False, use_regex=pattern is None)]
    if pattern is not None:
        words.insert(0, cut.Split(Regex(pattern), "isolated"))
    if pre == "smollm":
        words.insert(0, cut.Digits(individual_digits=True))
    made.pre_tokenizer, made.decoder = cut.Sequence(words), decoders.ByteLevel()
    for token, one in zip(tokens, kinds, strict=True):
        if one in (CONTROL, DEFINED):
            special = one == CONTROL
            made.add_tokens([AddedToken(token, special=special, normalized=False)])
    return made
