"""Tokenizer: text to token ids and back, by the rules in the model's file."""

from collections.abc import Iterable
from functools import cached_property
from typing import Protocol

from sharpi.gguf.metadata import Metadata
from sharpi.tokenizer.byte_level import ByteLevelEncoder, spelled_bytes
from sharpi.tokenizer.marked_merges import MarkedMergeEncoder
from sharpi.tokenizer.numbers import NumberEncoder, spelled_number
from sharpi.tokenizer.pre_tokenizers import FALLBACK, PreTokenizer, find_pre_tokenizer
from sharpi.tokenizer.sentence_piece import SPACE_MARK, SentencePieceEncoder
from sharpi.tokenizer.special_tokens import SpecialTokens, find_special_tokens
from sharpi.tokenizer.vocabulary import TokenKind, Vocabulary, read_vocabulary


class PlainEncoder(Protocol):
    """What the kinds of tokenizers have in common."""

    def encode(self, text: str) -> list[int]:
        """Ids of a text without special tokens."""
        ...


def load_tokenizer(metadata: Metadata) -> "Tokenizer":
    """The tokenizer of a file; raises UnsupportedModelError for a kind that is not known."""
    return Tokenizer(read_vocabulary(metadata))


class Tokenizer:
    """One vocabulary and its rules.

    `bos_id`, `eos_id`: None where there is none. `add_bos`, `add_eos`: whether the model wants its
    texts to begin and end so. `end_ids`: tokens that end a generation. `notes`: warnings for the
    user, one line each.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self.is_sentence_piece = vocabulary.model == "llama"
        self.bos_id, self.eos_id = vocabulary.id_of("bos"), vocabulary.id_of("eos")
        rules, self.notes = _pre_tokenizer(vocabulary)
        wants_bos = self.is_sentence_piece or rules.adds_bos
        self.add_bos = self.bos_id is not None and _said(vocabulary.add_bos, wants_bos)
        self.add_eos = self.eos_id is not None and _said(vocabulary.add_eos, False)
        self.adds_space = self.is_sentence_piece and _said(vocabulary.add_space_prefix, True)
        self._rules = rules
        self._bytes: dict[int, bytes] = {}

    @property
    def vocab_size(self) -> int:
        """Number of tokens."""
        return len(self.vocabulary.tokens)

    @property
    def chat_template(self) -> str | None:
        """The file's own default chat template."""
        return self.vocabulary.chat_template

    @property
    def end_ids(self) -> frozenset[int]:
        """Tokens after which nothing follows: end of text, of turn, of message."""
        return self._special.end_ids

    @property
    def hidden_ids(self) -> frozenset[int]:
        """Tokens that steer the model rather than being text."""
        return self._special.hidden_ids

    def id_of(self, text: str) -> int | None:
        """The token with exactly this text, as the file writes it."""
        return self._ids.get(text)

    def encode(
        self, text: str, *, add_bos: bool, parse_special: bool, add_eos: bool = False
    ) -> list[int]:
        """Ids of a text.

        `parse_special`: control tokens written in the text count as such; else they are plain text
        (user-defined tokens always count). `add_bos`, `add_eos`: put the token there, unless the
        text has brought it. Lone surrogates, which stand for bytes that were not UTF-8, become
        U+FFFD. Without a vocabulary the text is ids; raises UsageError for other words.
        """
        ids: list[int] = []
        follows_special = True
        for part in self._special.split(_valid(text), parse_hidden=parse_special):
            if isinstance(part, int):
                ids.append(part)
            else:
                needs_space = self.adds_space and follows_special
                ids += self._encoder.encode(" " + part if needs_space else part)
            follows_special = isinstance(part, int)
        if add_bos and self.bos_id is not None and ids[:1] != [self.bos_id]:
            ids.insert(0, self.bos_id)
        if add_eos and self.eos_id is not None and ids[-1:] != [self.eos_id]:
            ids.append(self.eos_id)
        return ids

    def encode_inside(self, text: str) -> list[int]:
        """Ids of plain text within a text: no special tokens, and no space put before it."""
        return self._encoder.encode(_valid(text))

    def decode(self, ids: Iterable[int], *, show_special: bool = False) -> str:
        """The text of ids; bytes that are not UTF-8 become U+FFFD.

        Control tokens are left out without `show_special`. The space that SentencePiece puts
        before a text is taken off again.
        """
        shown = (token_id for token_id in ids if show_special or not self.is_hidden(token_id))
        data = b"".join(map(self.token_bytes, shown))
        return data.removeprefix(b" " if self.adds_space else b"").decode("utf-8", "replace")

    def token_text(self, token_id: int) -> str:
        """The token as the file writes it."""
        return self.vocabulary.tokens[token_id]

    def token_bytes(self, token_id: int) -> bytes:
        """What a token adds to the text; a control token its name, an id without a text nothing."""
        data = self._bytes.get(token_id)
        if data is None:
            data = self._bytes[token_id] = self._spell(token_id)
        return data

    def is_hidden(self, token_id: int) -> bool:
        """Whether a token steers the model rather than being text."""
        return token_id in self._special.hidden_ids

    def _spell(self, token_id: int) -> bytes:
        if self.vocabulary.model == "no_vocab":
            return spelled_number(token_id)
        # Models may have more rows of logits than the vocabulary has tokens.
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
        return spelled_bytes(text)

    @cached_property
    def _ids(self) -> dict[str, int]:
        """Id by text; of tokens with the same text the first counts."""
        tokens = self.vocabulary.tokens
        return dict(zip(reversed(tokens), reversed(range(len(tokens))), strict=True))

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
            return SentencePieceEncoder(self._ids, vocabulary.scores, unknown_id)
        if vocabulary.model == "gemma4":
            return MarkedMergeEncoder(self._ids, vocabulary.merges)
        return ByteLevelEncoder(self._ids, vocabulary.merges, self._rules)


def _pre_tokenizer(vocabulary: Vocabulary) -> tuple[PreTokenizer, tuple[str, ...]]:
    """The rules, and what to tell the user about them."""
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


def _valid(text: str) -> str:
    """The text with U+FFFD for each lone surrogate."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
