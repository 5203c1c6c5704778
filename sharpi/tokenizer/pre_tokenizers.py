"""Rules that split text into words before byte-pair merges, by the name in `tokenizer.ggml.pre`.

Each rule is a list of regular expressions for Oniguruma, applied in order: each match becomes a
word, and so does the text between matches. The rules split text as llama.cpp's rules of the same
name do (src/llama-vocab.cpp and unicode.cpp). Oniguruma's tables follow a newer Unicode, so
characters assigned since Unicode 15 may be split differently.
"""

from msgspec import Struct

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"
_CONTRACTION = r"'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]"
_BLANKS = r"\s*[\r\n]+|\s+(?!\S)|\s+"
# Jais 2 splits white space into runs of powers of two.
_BLANKS_OF_JAIS = (
    r"\s*[\r\n]+|" + "|".join(rf"\s{{{1 << n}}}(?!\S)" for n in range(9, 1, -1))
    + r"|\s{1,2}(?!\S)|\s{1}"
)  # fmt: skip
_MARKED_WORD = r"[^\r\n\p{L}\p{N}]?\p{L}+"


def _words(numbers: str, letters: str = r"\p{L}", others: str = r"[^\s\p{L}\p{N}]") -> str:
    """Returns a pattern of contractions, words, numbers, punctuation with newlines, and blanks."""
    word = rf"[^\r\n\p{{L}}\p{{N}}]?[{letters}]+"
    return rf"{_CONTRACTION}|{word}|{numbers}| ?{others}+[\r\n]*|{_BLANKS}"


def _cased_words(numbers: str, ending: str = "") -> str:
    """Returns a pattern that also splits words before upper case; other scripts have both cases."""
    lead, upper, lower = r"[^\r\n\p{L}\p{N}]?", r"[\p{L}&&[^a-z]]", r"[\p{L}&&[^A-Z]]"
    return (
        rf"{lead}{upper}*{lower}+{ending}|{lead}{upper}+{lower}*{ending}"
        rf"|{numbers}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_BLANKS}"
    )


def _kimi_words() -> str:
    """Returns a pattern of words split by case as Moonshot does, where llama.cpp ignores it."""
    lead, ending = r"[^\r\n\p{L}\p{N}]?", f"(?:{_CONTRACTION})?"
    upper = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]"
    lower = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]"
    return (
        rf"\p{{Han}}+|{lead}{upper}*{lower}+{ending}|{lead}{upper}+{lower}*{ending}"
        rf"|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_BLANKS}"
    )


# Cased letters as DeepSeek's tokenizer lists them.
_CASED = (
    r"A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af"
    r"\u0370-\u0373\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1"
    r"\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd"
    r"\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d"
    r"\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4"
    r"\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec"
    r"\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128"
    r"\u212a-\u212d\u212f-\u2134\u2139\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b"
    r"\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787"
    r"\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a"
    r"\x{10400}-\x{1044f}\x{104b0}-\x{104d3}\x{104d8}-\x{104fb}\x{10c80}-\x{10cb2}"
    r"\x{10cc0}-\x{10cf2}\x{118a0}-\x{118df}\x{1e900}-\x{1e943}"
)
_MARKS = r"[[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]&&\S]"
_EASTERN = r"[[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]&&\S]"
_DEEPSEEK_3_WORDS = (
    r"[!-/:-@\[-`{-~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    rf"| ?[\p{{P}}\p{{S}}]+[\r\n]*|{_BLANKS}"
)
# Trinity's digits, in threes from the right, and scripts without spaces between words. llama.cpp
# joins the text before a number with its first digits into one word; the model's rules do not.
_THREES = r"\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))"
_SPACELESS = (
    r"[\u4e00-\u9fff\u3400-\u4dbf\uf900-\ufaff\u3040-\u309f\u30a0-\u30ff\uff65-\uff9f"
    r"\u2f00-\u2fdf\u0e00-\u0e7f\u0e80-\u0eff\u1780-\u17ff\u1000-\u109f\uaa60-\uaa7f"
    r"\ua9e0-\ua9ff\uac00-\ud7af\u1100-\u11ff]+"
)
# K-EXAONE's words continue across single spaces.
_SPACED_LETTERS = r"\p{L}\p{M}*(?: \p{L}\p{M}*)*"
_UNTIL_STOP = r" ?[^(\s|.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c)]+"

# Tiny Aya's and Cohere 2 MoE's words, split where lower case meets upper case. llama.cpp leaves
# numbers joined with the space before them; the model's rules do not.
_AYA_WORDS = (
    r"[^\r\n\p{L}\p{N}]?(?:[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"|[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
    rf"(?:{_CONTRACTION})?|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_BLANKS}"
)

_PATTERNS: dict[str, tuple[str, ...]] = {
    "default": (r"[\p{P}$+<=>^~|]+", _GPT2, r"\p{N}+", "[0-9][0-9][0-9]"),
    "gpt-2": (_GPT2,),
    "llama-bpe": (_words(r"\p{N}{1,3}"),),
    "qwen2": (_words(r"\p{N}"),),
    "qwen35": (_words(r"\p{N}", r"\p{L}\p{M}", r"[^\s\p{L}\p{M}\p{N}]"),),
    "starcoder": (r"\p{N}", _GPT2),
    "tekken": (_cased_words(r"\p{N}"),),
    "gpt-4o": (_cased_words(r"\p{N}{1,3}", f"(?:{_CONTRACTION})?"),),
    "tiny_aya": (r"\d{1,3}(?=(?:\d{3})*\b)", _AYA_WORDS),
    "laguna": (r"[^\n]+|\n+", _words(r"\p{N}")),
    "falcon": (r"[\p{P}$+<=>^~|`]+", _GPT2, "[0-9][0-9][0-9]"),
    "deepseek-llm": (
        r"[\r\n]", rf"\s?[{_CASED}]+", rf"\s?{_MARKS}+", r"\s+\z", rf"{_EASTERN}+", r"\p{N}+",
    ),
    "deepseek-coder": (r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", rf"{_EASTERN}+", r"\p{N}"),
    "deepseek-v3": (r"\p{N}{1,3}", r"[\u4e00-\u9fa5\u3040-\u30ff]+", _DEEPSEEK_3_WORDS),
    "kimi-k2": (_kimi_words(),),
    "afmoe": (_THREES, _SPACELESS, _DEEPSEEK_3_WORDS),
    "jais-2": (_words(r"\p{N}{1,3}").replace(_BLANKS, _BLANKS_OF_JAIS),),
    "poro-chat": (_UNTIL_STOP,),
    "viking": (_UNTIL_STOP, r"\p{N}"),
    "minicpm5": (r"\p{N}{1,3}", _words(r"\p{N}+")),
    "seed-coder": (
        rf"{_CONTRACTION}|{_MARKED_WORD}|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+|{_BLANKS}",
    ),
    "exaone-moe": (
        rf"{_CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?(?:{_SPACED_LETTERS})+|\p{{N}}"
        r"| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+",
    ),
    "bailingmoe": (
        rf"{_CONTRACTION}|{_MARKED_WORD}|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*"
        r"|\s*[\r\n]|\s+(?!\S)|\s+",
    ),
}  # fmt: skip

# Other names for the same rules in llama.cpp.
_ALIASES: dict[str, tuple[str, ...]] = {
    "gpt-2": (
        "phi-2", "jina-es", "jina-de", "jina-v2-es", "jina-v2-de", "gigachat", "a.x-4.0", "mellum",
        "modern-bert", "roberta-bpe", "jina-v1-en", "jina-v2-code", "mpt", "olmo", "jais",
        "trillion", "granite-docling", "exaone4",
    ),
    "llama-bpe": (
        "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2",
        "jina-v5-nano", "dbrx", "smaug-bpe", "chatglm-bpe", "glm4", "glm5",
    ),
    "qwen2": (
        "deepseek-r1-qwen", "kormo", "f2llmv2", "stablelm2", "hunyuan", "solar-open", "megrez",
        "grok-2",
    ),
    "starcoder": (
        "refact", "command-r", "smollm", "codeshell", "exaone", "minerva-7b", "mellum2",
    ),
    "gpt-4o": ("llama4", "kanana2", "talkie", "minimax-m2"),
    "deepseek-v3": ("hunyuan-dense", "joyai-llm", "hy_v4"),
    "tiny_aya": ("cohere2moe",),
    "poro-chat": ("bloom", "gpt3-finnish"),
    "bailingmoe": ("bailingmoe2", "llada-moe"),
}  # fmt: skip
_CANONICAL = {alias: name for name, aliases in _ALIASES.items() for alias in aliases}

_STARTS_WITH_BOS = frozenset({
    "llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2",
    "jina-v5-nano", "tekken",
})  # fmt: skip
_TAKES_WHOLE_WORDS = _STARTS_WITH_BOS | {"glm4", "glm5", "minicpm5"}
FALLBACK = "default"


class PreTokenizer(Struct, frozen=True):
    """Named rules that split text into words before byte-pair merges."""

    name: str
    patterns: tuple[str, ...]  # applied in this order
    takes_whole_words: bool  # a word that is itself a token is not merged from parts
    adds_bos: bool  # texts begin with BOS unless the file says otherwise


def find_pre_tokenizer(name: str) -> PreTokenizer | None:
    """Returns the rules for a value of `tokenizer.ggml.pre`; None if the name is unknown."""
    patterns = _PATTERNS.get(_CANONICAL.get(name, name))
    if patterns is None:
        return None
    return PreTokenizer(name, patterns, name in _TAKES_WHOLE_WORDS, name in _STARTS_WITH_BOS)
