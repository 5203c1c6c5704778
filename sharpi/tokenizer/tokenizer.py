"""Text to token ids and back, from the vocabulary in the model's file."""

import re
from collections.abc import Iterable, Iterator
from functools import cached_property

from tokenizers import Tokenizer as Backend

from sharpi.errors import SharpiError
from sharpi.gguf.metadata import Metadata
from sharpi.tokenizer.byte_level import bytes_of
from sharpi.tokenizer.merging import SPACE_MARK, byte_level, sentence_piece
from sharpi.tokenizer.pre_tokenizers import PreTokenizer, find_pre_tokenizer
from sharpi.tokenizer.vocabulary import TokenKind, Vocabulary, read_vocabulary

# Texts that end a turn or a text in some model family, whatever the file's ids say.
_END_TEXTS = frozenset(
    {
        "<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|flush|>", "<|calls|>",
        "<end_of_turn>", "<|endoftext|>", "<|eom_id|>", "<EOT>", "_<EOT>", "<|end_of_text|>",
        "<end_of_utterance>", "<\uff5cend\u2581of\u2581sentence\uff5c>",
    }
)  # fmt: skip
_SURROGATE = re.compile("[\ud800-\udfff]")
_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def load_tokenizer(metadata: Metadata) -> "Tokenizer":
    """The tokenizer of a file; raises UnsupportedModelError for a kind that is not known."""
    return Tokenizer(read_vocabulary(metadata))


class Tokenizer:
    """One vocabulary; `notes` are warnings for the user."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        notes: list[str] = []
        self._rules = self._pre_tokenizer(notes)
        self.notes = tuple(notes)

    @property
    def vocab_size(self) -> int:
        """Number of tokens."""
        return len(self.vocabulary.tokens)

    @property
    def is_sentence_piece(self) -> bool:
        """Whether spaces are part of pieces as U+2581."""
        return self.vocabulary.model == "llama"

    @property
    def bos_id(self) -> int | None:
        """The token that begins a text; 1 where a SentencePiece file does not say."""
        return self._id_or("bos", 1)

    @property
    def eos_id(self) -> int | None:
        """The token that ends a text; 2 where a SentencePiece file does not say."""
        return self._id_or("eos", 2)

    def _id_or(self, role: str, custom: int) -> int | None:
        found = self.vocabulary.id_of(role)
        if found is None and self.is_sentence_piece and self.vocab_size > custom:
            return custom
        return found

    @property
    def add_bos(self) -> bool:
        """Whether texts begin with BOS: the file's word, else the custom of its kind."""
        if self.bos_id is None:
            return False
        if self.vocabulary.add_bos is not None:
            return self.vocabulary.add_bos
        return self.is_sentence_piece or self._rules.adds_bos

    @property
    def chat_template(self) -> str | None:
        """The file's own template."""
        return self.vocabulary.chat_template

    @cached_property
    def end_ids(self) -> frozenset[int]:
        """Tokens after which nothing follows: end of text, of turn, of message."""
        named = (self.eos_id, self.vocabulary.id_of("eot"), self.vocabulary.id_of("eom"))
        by_text = (i for i in self._special_ids if self.vocabulary.tokens[i] in _END_TEXTS)
        return frozenset([*(i for i in named if i is not None), *by_text])

    def encode(self, text: str, *, add_bos: bool, parse_special: bool) -> list[int]:
        """Ids of a text; control tokens within it count as such only with `parse_special`.

        Characters that are no Unicode (lone surrogates, from bytes that are not UTF-8) become
        U+FFFD.
        """
        self._require_text()
        clean = _SURROGATE.sub("\ufffd", text)
        ids = [self.bos_id] if add_bos and self.bos_id is not None else []
        after_special = True
        for part, special in self._parts(clean, parse_special):
            if special is not None:
                ids.append(special)
            elif part:
                ids.extend(self._encode_plain(part, after_special))
            after_special = special is not None
        return ids

    def _encode_plain(self, text: str, after_special: bool) -> list[int]:
        prefixed = self.is_sentence_piece and self._adds_space and after_special
        encoding = self._backend.encode(" " + text if prefixed else text, add_special_tokens=False)
        return list(encoding.ids)

    @property
    def _adds_space(self) -> bool:
        return self.vocabulary.add_space_prefix is not False

    def _parts(self, text: str, parse_special: bool) -> Iterator[tuple[str, int | None]]:
        """Stretches of plain text, and special tokens with their ids."""
        pattern = self._special_pattern if parse_special else self._user_pattern
        at = 0
        for match in pattern.finditer(text) if pattern else ():
            if match.start() > at:
                yield text[at : match.start()], None
            yield match[0], self._special_by_text[match[0]]
            at = match.end()
        if at < len(text):
            yield text[at:], None

    def token_text(self, token_id: int) -> str:
        """The token as the file writes it."""
        return self.vocabulary.tokens[token_id]

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes a token adds to the text; none for control tokens."""
        kind, text = self.vocabulary.kinds[token_id], self.vocabulary.tokens[token_id]
        if kind in (TokenKind.CONTROL, TokenKind.UNKNOWN):
            return b""
        if kind == TokenKind.USER_DEFINED and not self.is_sentence_piece:
            return text.encode("utf-8", "surrogateescape")
        if not self.is_sentence_piece:
            return bytes_of(text)
        if match := _BYTE_TOKEN.fullmatch(text) if kind == TokenKind.BYTE else None:
            return bytes([int(match[1], 16)])
        return text.replace(SPACE_MARK, " ").encode("utf-8", "surrogateescape")

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids, without control tokens; bytes that are no UTF-8 become U+FFFD."""
        text = b"".join(self.token_bytes(i) for i in ids).decode("utf-8", "replace")
        drops = self.is_sentence_piece and self._adds_space and text.startswith(" ")
        return text[1:] if drops else text

    def _pre_tokenizer(self, notes: list[str]) -> PreTokenizer:
        name = self.vocabulary.pre_tokenizer
        rules = find_pre_tokenizer(name)
        fallback = find_pre_tokenizer("default")
        assert fallback is not None
        if rules is None:
            notes.append(f"pre-tokenizer {name!r} is not known; using 'default', text may suffer")
        elif name is None and self.vocabulary.model == "gpt2":
            notes.append("the file names no pre-tokenizer; using 'default', text may suffer")
        return rules or fallback

    @cached_property
    def _backend(self) -> Backend:
        if self.is_sentence_piece:
            return sentence_piece(self.vocabulary)
        return byte_level(self.vocabulary, self._rules)

    def _require_text(self) -> None:
        if self.vocabulary.model == "no_vocab":
            raise SharpiError("this model has no vocabulary, it takes and gives token ids only")

    @cached_property
    def _special_ids(self) -> tuple[int, ...]:
        special = (TokenKind.CONTROL, TokenKind.USER_DEFINED, TokenKind.UNKNOWN)
        return tuple(i for i, kind in enumerate(self.vocabulary.kinds) if kind in special)

    @cached_property
    def _special_by_text(self) -> dict[str, int]:
        return {self.vocabulary.tokens[i]: i for i in reversed(self._special_ids)}

    @cached_property
    def _special_pattern(self) -> re.Pattern[str] | None:
        return _any_of(self.vocabulary.tokens[i] for i in self._special_ids)

    @cached_property
    def _user_pattern(self) -> re.Pattern[str] | None:
        kinds, tokens = self.vocabulary.kinds, self.vocabulary.tokens
        user = (i for i in self._special_ids if kinds[i] == TokenKind.USER_DEFINED)
        return _any_of(tokens[i] for i in user)


def _any_of(texts: Iterable[str]) -> re.Pattern[str] | None:
    """A pattern that finds any of the texts, the longest first."""
    ordered = sorted({t for t in texts if t}, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, ordered))) if ordered else None
