"""Compiles JSON schemas, GBNF and Lark grammars and regular expressions to constraints."""

from collections.abc import Mapping
from functools import cached_property, lru_cache
from typing import Any

from llguidance import LLMatcher, LLParserLimits, LLTokenizer, TokenizerWrapper

from sharpi.constraints.constraint import TokenMask, mask_of
from sharpi.constraints.gbnf_lark import lark_of_gbnf
from sharpi.constraints.grammar_constraint import DigitLimit, GrammarConstraint
from sharpi.constraints.json_schema import grammar_of_schema, unenforced
from sharpi.constraints.trial import Trials, short_message
from sharpi.errors import GrammarError
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
        for token in special:
            self.tokens[token] = tokenizer.token_bytes(token)
        self._set_text_bytes(special)

    def __call__(self, data: bytes) -> list[int]:
        """Returns the token ids of text that a grammar forces, as the tokenizer encodes it."""
        return self._tokenizer.encode_inside(data.decode("utf-8", "replace"))

    def _set_text_bytes(self, special: frozenset[int]) -> None:
        """Sets the bytes of text tokens; of equal ones, a piece keeps them and not a byte token."""
        kinds = self._tokenizer.vocabulary.kinds
        text = (token for token in range(len(self.tokens)) if token not in special)
        known: set[bytes] = set()
        for token in sorted(text, key=lambda token: kinds[token] == TokenKind.BYTE):
            data = self._tokenizer.token_bytes(token)
            if data not in known and not data.startswith(_MARK):
                known.add(data)
                self.tokens[token] = data


MAX_BYTES = 256 << 10
_MAX_COMPILED = 64


class Grammars:
    """Compiles grammars for one vocabulary; each call returns a constraint for one answer.

    The first call reads the vocabulary, which takes up to a second. Each call raises GrammarError,
    with a message of one line and within seconds, for a grammar that is malformed, too large or not
    supported by llguidance. Thread-safe; compiling releases the GIL.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self._trials = Trials()
        self._compiled = lru_cache(_MAX_COMPILED)(self._compile)

    def json_object(self) -> GrammarConstraint:
        """Returns a constraint that allows any JSON object."""
        return self.json_schema({"type": "object"})

    def json_schema(self, schema: Mapping[str, Any] | bool) -> GrammarConstraint:
        """Returns a constraint of JSON by a schema; its `unenforced` names what has no effect."""
        grammar = grammar_of_schema(schema)
        try:
            return self._constraint(grammar, is_json=True)
        except GrammarError:
            unconditional = grammar_of_schema(schema, has_conditions=False)
            if unconditional == grammar:
                raise
        return self._constraint(unconditional, is_json=True)

    def gbnf(self, text: str) -> GrammarConstraint:
        """Returns a constraint from a grammar in llama.cpp's GBNF; its start rule is `root`."""
        return self.lark(lark_of_gbnf(_checked(text)))

    def lark(self, text: str, *, is_json: bool = False) -> GrammarConstraint:
        """Returns a constraint from a Lark grammar of llguidance; its start rule is `start`.

        `is_json`: the grammar is of JSON and other text, and its numbers are limited in digits.
        """
        return self._constraint(LLMatcher.grammar_from_lark(_checked(text)), is_json=is_json)

    def _constraint(self, grammar: str, *, is_json: bool = False) -> GrammarConstraint:
        matcher = self._compiled(_checked(grammar)).deep_copy()  # in its initial state
        return GrammarConstraint(
            matcher,
            self.tokenizer.vocab_size,
            unenforced=unenforced(matcher.get_grammar_warnings()),
            digits=DigitLimit(self._bytes.tokens, self._digits) if is_json else None,
        )

    def _compile(self, grammar: str) -> LLMatcher:
        self._trials.check(grammar)
        limits = LLParserLimits(verbose_errors=False)
        matcher = LLMatcher(self._vocabulary, grammar, log_level=0, limits=limits)
        if matcher.is_error():
            raise GrammarError(short_message(matcher.get_error()))
        GrammarConstraint(matcher, self.tokenizer.vocab_size).allowed()  # fails if nothing fits
        return matcher

    @cached_property
    def _digits(self) -> TokenMask:
        """The mask of the tokens that begin with a digit."""
        beginnings = (data[:1] for data in self._bytes.tokens)
        ids = (token for token, first in enumerate(beginnings) if first.isdigit())
        return mask_of(ids, self.tokenizer.vocab_size)

    @cached_property
    def _bytes(self) -> ByteVocabulary:
        return ByteVocabulary(self.tokenizer)

    @cached_property
    def _vocabulary(self) -> LLTokenizer:
        tokenizer = self.tokenizer
        if not tokenizer.end_ids:
            raise GrammarError("the model has no end token, so no grammar could ever end")
        return LLTokenizer(
            TokenizerWrapper(self._bytes),
            n_vocab=tokenizer.vocab_size,
            eos_token=sorted(tokenizer.end_ids),
        )


def _checked(text: str) -> str:
    """Returns `text` unchanged; raises GrammarError if it is too long or has lone surrogates."""
    if len(text) > MAX_BYTES:
        raise GrammarError(f"the grammar has {len(text)} characters; the limit is {MAX_BYTES}")
    if any("\ud800" <= char <= "\udfff" for char in text):
        raise GrammarError("the grammar is not Unicode text: it has lone surrogates")
    return text
