"""Tokenizer: converts text to token ids and back, by the tokenizer data in the model's file."""

from collections.abc import Iterable
from functools import cached_property
from typing import Protocol

from sharpi.errors import UsageError
from sharpi.gguf.metadata import Metadata
from sharpi.gguf.string_array import TextIndex
from sharpi.tokenizer.byte_pair import ByteLevelEncoder, MarkedMergeEncoder, token_to_bytes
from sharpi.tokenizer.pre_tokenizers import FALLBACK, PreTokenizer, find_pre_tokenizer
from sharpi.tokenizer.sentence_piece import SPACE_MARK, SentencePieceEncoder
from sharpi.tokenizer.special_tokens import SpecialTokens, find_special_tokens
from sharpi.tokenizer.vocabulary import TokenKind, Vocabulary, read_vocabulary

_MAX_ID = (1 << 31) - 1


class NumberEncoder:
    """Encodes text that lists token ids, such as "17 3 42"."""

    def encode(self, text: str) -> list[int]:
        """Returns the token ids listed in the text; raises UsageError for any other word."""
        words = text.split()
        if not all(word.isascii() and word.isdigit() and int(word) <= _MAX_ID for word in words):
            raise UsageError(
                "this model has no vocabulary; write token ids instead of words, such as '1 2 3'"
            )
        return [int(word) for word in words]


def number_bytes(token_id: int) -> bytes:
    """Returns a token id as text that `NumberEncoder` reads, with a leading space."""
    return f" {token_id}".encode()


class PlainEncoder(Protocol):
    """The protocol of encoders, which convert text without special tokens to token ids."""

    def encode(self, text: str) -> list[int]:
        """Returns the token ids of a text without special tokens."""
        ...


def load_tokenizer(metadata: Metadata) -> "Tokenizer":
    """Returns the tokenizer of a file's metadata; raises UnsupportedModelError."""
    return Tokenizer(read_vocabulary(metadata))


class Tokenizer:
    """Encodes and decodes text with one vocabulary.

    `bos_id`: None if the vocabulary lacks the token. `add_bos`: whether the model expects texts to
    begin with BOS. `notes`: warnings for the user, one line each.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self.is_sentence_piece = vocabulary.model == "llama"
        self.bos_id = vocabulary.id_of("bos")
        rules, self.notes = _pre_tokenizer(vocabulary)
        wants_bos = self.is_sentence_piece or rules.adds_bos
        self.add_bos = self.bos_id is not None and _said(vocabulary.add_bos, wants_bos)
        self.adds_space = self.is_sentence_piece and _said(vocabulary.add_space_prefix, True)
        self._rules = rules
        self._bytes: dict[int, bytes] = {}
        self.vocab_size = len(vocabulary.tokens)

    @cached_property
    def longest_token(self) -> int:
        """The length in bytes of the longest token text in the file."""
        return max(
            (len(each.encode("utf-8", "replace")) for each in self.vocabulary.tokens), default=1
        )

    @property
    def chat_template(self) -> str | None:
        """The default chat template of the file."""
        return self.vocabulary.chat_template

    @property
    def end_ids(self) -> frozenset[int]:
        """The tokens that end a generation: end of text, of turn, of message."""
        return self._special.end_ids

    @property
    def hidden_ids(self) -> frozenset[int]:
        """The tokens that control the model and are not text."""
        return self._special.hidden_ids

    @cached_property
    def control_texts(self) -> tuple[str, ...]:
        """The texts of all tokens that control the model or mark turns, longest first."""
        return tuple(
            token.text
            for token in self._special.found
            if token.is_hidden or token.token_id in self.end_ids or _is_marker(token.text)
        )

    def role_id(self, role: str) -> int | None:
        """Returns the id of the token with a role such as "fim_pre"; None without one."""
        return self._special.roles.get(role)

    def id_of(self, text: str) -> int | None:
        """Returns the id of the token with exactly this text in the file; None without one."""
        return self._ids.get(text)

    def encode(self, text: str, *, add_bos: bool, parse_special: bool, mark: str = "") -> list[int]:
        """Returns the token ids of a text.

        `parse_special`: control tokens written in the text become their ids, not plain text;
        user-defined tokens always become their ids. `add_bos`: add BOS unless the ids already begin
        with it. `mark`: a string put inside text so that it is not parsed as a special token; it is
        removed after the search for special tokens. Lone surrogates, which stand for bytes that
        were not UTF-8, become U+FFFD. For a model without a vocabulary, the text lists ids, and
        other words raise UsageError.
        """
        ids: list[int] = []
        follows_special = True
        for part in self._special.split(_valid(text), parse_hidden=parse_special):
            if isinstance(part, int):
                ids.append(part)
            else:
                part = part.replace(mark, "") if mark else part
                needs_space = self.adds_space and follows_special
                ids += self._encoder.encode(" " + part if needs_space else part)
            follows_special = isinstance(part, int)
        if add_bos and self.bos_id is not None and ids[:1] != [self.bos_id]:
            ids.insert(0, self.bos_id)
        return ids

    def encode_inside(self, text: str) -> list[int]:
        """Returns the ids of plain text within another: no leading space, no special tokens."""
        return self._encoder.encode(_valid(text))

    def decode(self, ids: Iterable[int], *, show_special: bool = False) -> str:
        """Returns the text of ids, without control tokens by default; other bytes become U+FFFD."""
        shown = (token_id for token_id in ids if show_special or not self.is_hidden(token_id))
        data = b"".join(map(self.token_bytes, shown))
        return data.removeprefix(b" " if self.adds_space else b"").decode("utf-8", "replace")

    def token_text(self, token_id: int) -> str:
        """Returns the text of a token as it is in the file."""
        return self.vocabulary.tokens[token_id]

    def token_bytes(self, token_id: int) -> bytes:
        """Returns the bytes that a token adds, of control tokens its name; empty without text."""
        data = self._bytes.get(token_id)
        if data is None:
            data = self._bytes[token_id] = self._compute_bytes(token_id)
        return data

    def is_hidden(self, token_id: int) -> bool:
        """Returns whether a token controls the model and is not text."""
        return token_id in self._special.hidden_ids

    def _compute_bytes(self, token_id: int) -> bytes:
        if self.vocabulary.model == "no_vocab":
            return number_bytes(token_id)
        # Logits may have more rows than the vocabulary has tokens.
        if not 0 <= token_id < self.vocab_size:
            return b""
        kind, text = self._special.kinds[token_id], self.vocabulary.tokens[token_id]
        if kind in (TokenKind.UNUSED, TokenKind.UNDEFINED):
            return b""
        if kind == TokenKind.BYTE:
            return bytes([int(text[3:5], 16)])
        if kind != TokenKind.NORMAL:
            return text.encode("utf-8", "surrogateescape")
        if self.is_sentence_piece or self.vocabulary.model == "gemma4":
            return text.replace(SPACE_MARK, " ").encode("utf-8", "surrogateescape")
        return token_to_bytes(text)

    @cached_property
    def _ids(self) -> TextIndex:
        """Maps each token text to its id; of equal texts, the first one counts."""
        return TextIndex(self.vocabulary.tokens)

    @cached_property
    def _special(self) -> SpecialTokens:
        return find_special_tokens(self.vocabulary, self._ids)

    @cached_property
    def _encoder(self) -> PlainEncoder:
        vocabulary = self.vocabulary
        if vocabulary.model == "no_vocab":
            return NumberEncoder()
        if self.is_sentence_piece:
            unknown_id = vocabulary.id_of("unknown")
            return SentencePieceEncoder(self._ids.todict(), vocabulary.scores, unknown_id)
        if vocabulary.model == "gemma4":
            return MarkedMergeEncoder(self._ids.todict(), vocabulary.merges)
        return ByteLevelEncoder(self._ids, TextIndex(vocabulary.merges), self._rules)


def _pre_tokenizer(vocabulary: Vocabulary) -> tuple[PreTokenizer, tuple[str, ...]]:
    """Returns the rules of the vocabulary's pre-tokenizer, and warnings about them for the user."""
    fallback = find_pre_tokenizer(FALLBACK)
    assert fallback is not None
    name = vocabulary.pre_tokenizer
    if vocabulary.model != "gpt2":
        return fallback, ()
    if name is None:
        return fallback, (f"the file names no pre-tokenizer; using {FALLBACK!r}, text may suffer",)
    rules = find_pre_tokenizer(name)
    if rules is None:
        note = f"pre-tokenizer {name!r} is not known; using {FALLBACK!r}, text may suffer"
        return fallback, (note,)
    return rules, ()


def _said(value: bool | None, otherwise: bool) -> bool:
    return otherwise if value is None else value


def _is_marker(text: str) -> bool:
    """Returns whether a text has the form of a marker such as `<|user|>`, whatever its kind."""
    return text.startswith(("<|", "<\uff5c")) and text.endswith(("|>", "\uff5c>"))


def _valid(text: str) -> str:
    """Returns the text with U+FFFD in place of each lone surrogate."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
