"""Grammars: what an answer may consist of, by JSON schema, GBNF, Lark or regular expression."""

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from llguidance import LLMatcher, LLParserLimits, LLTokenizer, TokenizerWrapper

from sharpi.constraints.byte_vocabulary import ByteVocabulary
from sharpi.constraints.gbnf.gbnf_lark import lark_of_gbnf
from sharpi.constraints.grammar_constraint import GrammarConstraint
from sharpi.constraints.grammar_error import worded
from sharpi.constraints.json_schema import grammar_of_schema
from sharpi.constraints.trial import Trials
from sharpi.errors import GrammarError
from sharpi.tokenizer.tokenizer import Tokenizer

MAX_BYTES = 256 << 10


class Grammars:
    """Compiles grammars for one vocabulary; every call gives a constraint for one answer.

    The first call reads the vocabulary, up to a second for the largest. Each raises GrammarError,
    in one line and within seconds, for a grammar that is malformed, too large or beyond what
    llguidance supports. Safe from several threads; compiling lets other threads run.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._trials = Trials()

    def json_object(self) -> GrammarConstraint:
        """Any JSON object."""
        return self.json_schema({"type": "object"})

    def json_schema(self, schema: Mapping[str, Any] | bool) -> GrammarConstraint:
        """JSON that a schema describes, properties in the schema's order."""
        return self._constraint(grammar_of_schema(schema))

    def gbnf(self, text: str) -> GrammarConstraint:
        """llama.cpp's form of grammars, from its rule `root`."""
        return self.lark(lark_of_gbnf(_fit(text)))

    def lark(self, text: str) -> GrammarConstraint:
        """Lark in llguidance's dialect, from its rule `start`."""
        return self._constraint(LLMatcher.grammar_from_lark(_fit(text)))

    def regex(self, text: str) -> GrammarConstraint:
        """What a regular expression matches as a whole; no look-around, no back references."""
        return self._constraint(LLMatcher.grammar_from_regex(_fit(text)))

    def _constraint(self, grammar: str) -> GrammarConstraint:
        self._trials.check(_fit(grammar))
        limits = LLParserLimits(verbose_errors=False)
        matcher = LLMatcher(self._vocabulary, grammar, log_level=0, limits=limits)
        if matcher.is_error():
            raise GrammarError(worded(matcher.get_error()))
        constraint = GrammarConstraint(matcher, self._tokenizer.vocab_size)
        constraint.allowed()  # what no text satisfies is known from here on
        return constraint

    @cached_property
    def _vocabulary(self) -> LLTokenizer:
        tokenizer = self._tokenizer
        if not tokenizer.end_ids:
            raise GrammarError("the model has no end token, so no grammar could ever end")
        return LLTokenizer(
            TokenizerWrapper(ByteVocabulary(tokenizer)),
            n_vocab=tokenizer.vocab_size,
            eos_token=sorted(tokenizer.end_ids),
        )


def _fit(text: str) -> str:
    """The text; raises GrammarError for one that is too long, or no Unicode."""
    if any("\ud800" <= letter <= "\udfff" for letter in text):
        raise GrammarError("the grammar is not Unicode text: it has lone surrogates")
    if len(text) > MAX_BYTES:
        raise GrammarError(f"the grammar has {len(text)} characters; at most {MAX_BYTES} are taken")
    return text
