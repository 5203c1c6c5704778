"""How text is cut into words before byte-pair merges, by the name in `tokenizer.ggml.pre`.

Each entry is a list of regular expressions, applied one after the other: matches become words, and
so does what lies between them. They state the same cuts as llama.cpp makes under these names.
"""

from dataclasses import dataclass

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"
_CONTRACTION = r"'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_NOT_LOWER = r"(?:(?=\p{L})[^a-z])"
_NOT_UPPER = r"(?:(?=\p{L})[^A-Z])"


def _words(digits: str, letters: str = r"\p{L}", excluded: str = r"\p{L}\p{N}") -> str:
    """Contraction, word with one leading mark, digits, marks with line ends, spaces."""
    return (
        rf"{_CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?[{letters}]+|{digits}"
        rf"| ?[^\s{excluded}]+[\r\n]*|{_SPACES}"
    )


def _cased(digits: str, suffix: str = "") -> str:
    """Words cut where lower case meets upper case."""
    lead = r"[^\r\n\p{L}\p{N}]?"
    return (
        rf"{lead}{_NOT_LOWER}*{_NOT_UPPER}+{suffix}|{lead}{_NOT_LOWER}+{_NOT_UPPER}*{suffix}"
        rf"|{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_SPACES}"
    )


_IDEOGRAPHS = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
_DEEPSEEK_MARKS = "[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]"
_LLAMA3 = [_words(r"\p{N}{1,3}")]
_DEEPSEEK_3 = [
    r"\p{N}{1,3}",
    "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
    r"[!-/:-@\[-`{-~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    rf"| ?[\p{{P}}\p{{S}}]+[\r\n]*|{_SPACES}",
]
_DEFAULT = [r"[\p{P}$+<=>^~|]+", _GPT2, r"\p{N}+", "[0-9][0-9][0-9]"]
_DIGIT_WISE = [r"\p{N}", _GPT2]

_PATTERNS: dict[str, list[str]] = {
    "default": _DEFAULT,
    "gpt-2": [_GPT2],
    "llama-bpe": _LLAMA3,
    "glm4": _LLAMA3,
    "dbrx": _LLAMA3,
    "qwen2": [_words(r"\p{N}")],
    "qwen35": [_words(r"\p{N}", r"\p{L}\p{M}", r"\p{L}\p{M}\p{N}")],
    "starcoder": _DIGIT_WISE,
    "tekken": [_cased(r"\p{N}")],
    "gpt-4o": [_cased(r"\p{N}{1,3}", f"(?:{_CONTRACTION})?")],
    "falcon": [r"[\p{P}$+<=>^~|`]+", _GPT2, "[0-9][0-9][0-9]"],
    "deepseek-llm": [
        r"[\r\n]",
        r"\s?[\p{Lu}\p{Ll}\p{Lt}]+",
        rf"\s?{_DEEPSEEK_MARKS}+",
        r"\s+\z",
        _IDEOGRAPHS,
        r"\p{N}+",
    ],
    "deepseek-coder": [r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _IDEOGRAPHS, r"\p{N}"],
    "deepseek-v3": _DEEPSEEK_3,
    "bailingmoe": [
        r"'(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
        r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
    ],
}

_ALIASES: dict[str, tuple[str, ...]] = {
    "llama-bpe": (
        "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2",
    ),
    "gpt-2": (
        "phi-2", "jina-es", "jina-de", "jina-v2-es", "jina-v2-de", "gigachat", "a.x-4.0", "mellum",
        "modern-bert", "roberta-bpe", "jina-v1-en", "jina-v2-code", "mpt", "olmo", "jais",
        "trillion", "granite-docling",
    ),
    "qwen2": (
        "deepseek-r1-qwen", "kormo", "f2llmv2", "stablelm2", "hunyuan", "solar-open", "megrez",
        "grok-2",
    ),
    "starcoder": (
        "refact", "command-r", "smollm", "codeshell", "exaone", "minerva-7b", "mellum2",
    ),
    "gpt-4o": ("llama4", "kanana2", "talkie", "minimax-m2"),
    "glm4": ("glm5", "chatglm-bpe"),
    "dbrx": ("smaug-bpe",),
    "deepseek-v3": ("hunyuan-dense", "joyai-llm", "hy_v4"),
    "bailingmoe": ("bailingmoe2", "llada-moe"),
}  # fmt: skip

_CANONICAL = {alias: name for name, aliases in _ALIASES.items() for alias in aliases}
# Words that are tokens as they stand are taken whole, before any merge.
_WHOLE_WORDS = frozenset({"llama-bpe", "tekken", "glm4"})
_STARTS_WITH_BOS = frozenset({"llama-bpe", "tekken"})


@dataclass(frozen=True, slots=True)
class PreTokenizer:
    """`patterns` in order; `whole_words`: merges are skipped for words in the vocabulary."""

    name: str
    patterns: tuple[str, ...]
    whole_words: bool
    adds_bos: bool


def find_pre_tokenizer(name: str | None) -> PreTokenizer | None:
    """The rules of a name, or None when it is not known; no name at all is "default"."""
    canonical = _CANONICAL.get(name or "default", name or "default")
    if canonical not in _PATTERNS:
        return None
    return PreTokenizer(
        canonical,
        tuple(_PATTERNS[canonical]),
        canonical in _WHOLE_WORDS,
        canonical in _STARTS_WITH_BOS,
    )
