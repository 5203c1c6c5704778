"""ByteVocabulary gives llguidance the bytes of every token."""

from sharpi.tokenizer.tokenizer import Tokenizer
from sharpi.tokenizer.vocabulary import TokenKind

# llguidance marks special tokens by this byte; no UTF-8 text has it.
_MARK = b"\xff"


class ByteVocabulary:
    """The vocabulary and the encoder that llguidance's `TokenizerWrapper` reads.

    `tokens`: the bytes of each token; empty for tokens that no text needs. `special_token_ids`:
    tokens that are not text, which a grammar names as `<[id]>` or by their text if that is in such
    brackets.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self.eos_token_id = min(tokenizer.end_ids, default=0)
        self.bos_token_id = tokenizer.bos_id
        special = tokenizer.hidden_ids | tokenizer.end_ids
        self.special_token_ids = sorted(special)
        self.tokens = [b""] * tokenizer.vocab_size
        self._spell_special(special)
        self._spell_text(special)

    def __call__(self, data: bytes) -> list[int]:
        """Returns the ids of text that a grammar forces, as the tokenizer encodes it."""
        return self._tokenizer.encode_inside(data.decode("utf-8", "replace"))

    def _spell_special(self, special: frozenset[int]) -> None:
        for token in special:
            self.tokens[token] = self._tokenizer.token_bytes(token)

    def _spell_text(self, special: frozenset[int]) -> None:
        """Spells each text token.

        Of tokens with equal bytes only the one used for encoding is spelled. A byte-fallback token
        gives way to the piece of the same character.
        """
        kinds = self._tokenizer.vocabulary.kinds
        text = (token for token in range(len(self.tokens)) if token not in special)
        known: set[bytes] = set()
        for token in sorted(text, key=lambda token: kinds[token] == TokenKind.BYTE):
            data = self._tokenizer.token_bytes(token)
            if data not in known and not data.startswith(_MARK):
                known.add(data)
                self.tokens[token] = data
