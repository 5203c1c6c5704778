"""Special tokens: determines which tokens are hidden, are found in text, or end a generation.

llama.cpp's rules (src/llama-vocab.cpp) complete the data in a file. They recognise tokens by text,
because many files list the end-of-turn token as an ordinary token, or do not name it.
"""

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from sharpi.tokenizer.reasoning import REASONING_TEXTS
from sharpi.tokenizer.vocabulary import TokenKind, Vocabulary

_DEEPSEEK_END = "<\uff5cend\u2581of\u2581sentence\uff5c>"
_END_TEXTS = (
    "<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|flush|>", "<|calls|>",
    "<end_of_turn>", "<|endoftext|>", "</s>", "<|eom_id|>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]",
    "<|end_of_text|>", "<end_of_utterance>", "<eos>", "<turn|>", "<|tool_response>",
    _DEEPSEEK_END, "[e~[",
)  # fmt: skip
# Fill-in-the-middle tokens by role, for files that give no id; the first text found counts.
_FIM_TEXTS = {
    "fim_pre": (
        "<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<\uff5cfim\u2581begin\uff5c>", "<PRE>",
        "\u2581<PRE>", "<|code_prefix|>", "<|prefix|>",
    ),
    "fim_suf": (
        "<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<\uff5cfim\u2581hole\uff5c>", "<SUF>",
        "\u2581<SUF>", "<|code_suffix|>", "<|suffix|>",
    ),
    "fim_mid": (
        "<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<\uff5cfim\u2581end\uff5c>", "<MID>",
        "\u2581<MID>", "<|code_middle|>", "<|middle|>",
    ),
    "fim_pad": ("<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"),
    "fim_rep": ("<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"),
    "fim_sep": ("<|file_sep|>",),
}  # fmt: skip
_ENDING_ROLES = ("eos", "eot", "eom", "fim_pad", "fim_rep", "fim_sep")
# The channel markers of gpt-oss are part of its visible output.
_SHOWN_TEXTS = ("<|channel|>", "<|message|>", "<|start|>", "<|constrain|>")
_HIDDEN = (TokenKind.CONTROL, TokenKind.UNKNOWN)
# The characters that C's isspace accepts.
BLANKS = " \t\n\v\f\r"


class SpecialToken(Struct, frozen=True):
    """A token that is searched for in text."""

    text: str
    token_id: int
    is_hidden: bool  # control or unknown, found only on request
    strips_left: bool = False  # removes the blanks before it
    strips_right: bool = False  # removes the blanks after it


class SpecialTokens(Struct, frozen=True):
    """The special tokens of a vocabulary."""

    kinds: Sequence[int]  # the kind of each token, after the rules by text
    end_ids: frozenset[int]  # tokens that end a generation
    hidden_ids: frozenset[int]  # tokens that control the model and are not text
    found: tuple[SpecialToken, ...]  # longest text first
    roles: Mapping[str, int]  # ids by role, such as "fim_pre"

    def split(self, text: str, *, parse_hidden: bool) -> list[str | int]:
        """Splits a text into plain text and ids of special tokens, in order.

        The entire text is searched for a longer token before a shorter one. User-defined tokens are
        always found, control and unknown tokens only with `parse_hidden`.
        """
        parts: list[str | int] = [text] if text else []
        for token in self.found:
            if (parse_hidden or not token.is_hidden) and token.text in text:
                parts = [piece for part in parts for piece in _cut(part, token)]
        return parts


def find_special_tokens(vocabulary: Vocabulary, ids: Mapping[str, int]) -> SpecialTokens:
    """Returns the special tokens of a vocabulary; `ids` maps token texts to ids."""
    kinds = list(vocabulary.kinds)
    fim = _roles_by_text(vocabulary, ids)
    for token_id in [*fim.values(), *_present(_END_TEXTS, ids)]:
        kinds[token_id] = TokenKind.CONTROL
    for token_id in _present(_SHOWN_TEXTS, ids):
        kinds[token_id] = TokenKind.USER_DEFINED
    named = {**fim, **vocabulary.special_ids}
    ends = {named[role] for role in _ENDING_ROLES if role in named}
    ends.update(_present(_END_TEXTS, ids))
    for text, kind in _ordinary_ends(ids):
        ends.discard(ids[text])
        kinds[ids[text]] = kind
    found = _found(vocabulary, kinds)
    hidden = {token.token_id for token in found if token.is_hidden}
    # Reasoning markers are shown as text, whatever kind the file gives them.
    hidden.difference_update(_present(REASONING_TEXTS, ids))
    return SpecialTokens(kinds, frozenset(ends), frozenset(hidden), found, named)


def _cut(part: str | int, token: SpecialToken) -> list[str | int]:
    if isinstance(part, int):
        return [part]
    stretches = part.split(token.text)
    if token.strips_left:
        stretches[:-1] = [stretch.rstrip(BLANKS) for stretch in stretches[:-1]]
    if token.strips_right:
        stretches[1:] = [stretch.lstrip(BLANKS) for stretch in stretches[1:]]
    pieces: list[str | int] = []
    for stretch in stretches:
        pieces += [stretch, token.token_id] if stretch else [token.token_id]
    return pieces[:-1]


def _present(texts: Iterable[str], ids: Mapping[str, int]) -> list[int]:
    return [ids[text] for text in texts if text in ids]


def _roles_by_text(vocabulary: Vocabulary, ids: Mapping[str, int]) -> dict[str, int]:
    return {
        role: found[0]
        for role, texts in _FIM_TEXTS.items()
        if vocabulary.id_of(role) is None and (found := _present(texts, ids))
    }


def _ordinary_ends(ids: Mapping[str, int]) -> list[tuple[str, TokenKind]]:
    """Returns those of _END_TEXTS that other tokens show to be ordinary, with their kinds."""
    ordinary = []
    harmony = "<|return|>" in ids and ("<|call|>" in ids or "<|calls|>" in ids)
    solar = "<|flush|>" in ids and ("<|call|>" in ids or "<|calls|>" in ids)
    if "<|end|>" in ids and (harmony or solar):
        ordinary.append(("<|end|>", TokenKind.USER_DEFINED))
    if "</s>" in ids and "<|tool_response>" in ids:
        ordinary.append(("</s>", TokenKind.NORMAL))
    return ordinary


def _found(vocabulary: Vocabulary, kinds: Sequence[int]) -> tuple[SpecialToken, ...]:
    special = frozenset(map(int, (*_HIDDEN, TokenKind.USER_DEFINED)))  # numbers compare faster
    tokens = [
        _special_token(vocabulary, token_id, kind)
        for token_id, kind in enumerate(kinds)
        if kind in special
    ]
    return tuple(sorted(tokens, key=lambda token: -len(token.text.encode("utf-8", "replace"))))


def _special_token(vocabulary: Vocabulary, token_id: int, kind: int) -> SpecialToken:
    """Returns a special token, with flags for models whose tokenizer strips blanks beside it."""
    text, name = vocabulary.tokens[token_id], vocabulary.model_name.lower()
    is_phi = "phi-3" in name or "phi3" in name
    pre_tokenizer = vocabulary.pre_tokenizer or ""
    return SpecialToken(
        text,
        token_id,
        is_hidden=kind in _HIDDEN,
        strips_left=(text == "<mask>" and pre_tokenizer.startswith("jina-v2"))
        or (text == "[MASK]" and "modern-bert" in name),
        strips_right=is_phi and text not in ("<unk>", "<s>", "<|endoftext|>"),
    )
