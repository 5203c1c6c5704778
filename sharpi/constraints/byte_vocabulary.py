"""ByteVocabulary provides llguidance with the bytes of every token."""

from sharpi.tokenizer.tokenizer import Tokenizer
from sharpi.tokenizer.vocabulary import TokenKind

# llguidance marks special tokens by this byte; no UTF-8 text has it.
_MARK = b"\xff"


class ByteVocabulary:
    """The vocabulary and the encoder that llguidance's `TokenizerWrapper` reads.

    `tokens`: the bytes of each token, by token id; empty if another token has the same bytes, or if
    the first byte is 255. `special_token_ids`: control tokens, to which a grammar refers as
    `<[id]>`, or by a text such as `<think>`.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self.eos_token_id = min(tokenizer.end_ids, default=0)
        self.bos_token_id = tokenizer.bos_id
        special = tokenizer.hidden_ids | tokenizer.end_ids
        self.special_token_ids = sorted(special)
        self.tokens = [b""] * tokenizer.vocab_size
        self._set_special_bytes(special)
        self._set_text_bytes(special)

    def __call__(self, data: bytes) -> list[int]:
        """Returns the token ids of text that a grammar forces, as the tokenizer encodes it."""
        return self._tokenizer.encode_inside(data.decode("utf-8", "replace"))

    def _set_special_bytes(self, special: frozenset[int]) -> None:
        for token in special:
            self.tokens[token] = self._tokenizer.token_bytes(token)

    def _set_text_bytes(self, special: frozenset[int]) -> None:
        """Sets the bytes of each text token.

        Among tokens with equal bytes only one keeps them: a piece of the vocabulary rather than a
        byte-fallback token.
        """
        kinds = self._tokenizer.vocabulary.kinds
        text = (token for token in range(len(self.tokens)) if token not in special)
        known: set[bytes] = set()
        for token in sorted(text, key=lambda token: kinds[token] == TokenKind.BYTE):
            data = self._tokenizer.token_bytes(token)
            if data not in known and not data.startswith(_MARK):
                known.add(data)
                self.tokens[token] = data
