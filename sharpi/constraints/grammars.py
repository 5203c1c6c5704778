"""Compiles JSON schemas, GBNF and Lark grammars and regular expressions to constraints."""

import threading
from collections import OrderedDict
from collections.abc import Mapping
from functools import cached_property
from hashlib import sha256
from typing import Any

from llguidance import LLMatcher, LLParserLimits, LLTokenizer, TokenizerWrapper

from sharpi.constraints.byte_vocabulary import ByteVocabulary
from sharpi.constraints.child_processes import ChildProcesses
from sharpi.constraints.gbnf.gbnf_lark import lark_of_gbnf
from sharpi.constraints.grammar_constraint import GrammarConstraint
from sharpi.constraints.grammar_error import short_message
from sharpi.constraints.schema.budget import MAX_SCHEMAS_HERE, TooManySchemas
from sharpi.constraints.schema.costly import CostlySchemas
from sharpi.constraints.schema.json_schema import PLAIN, RewritingOptions, grammar_of_schema
from sharpi.constraints.schema.unique_items import unique_items
from sharpi.constraints.trial import Trials
from sharpi.constraints.uniqueness.token_sets import TokenSets
from sharpi.constraints.uniqueness.unique_items_constraint import UniqueItemsConstraint
from sharpi.errors import GrammarError
from sharpi.tokenizer.tokenizer import Tokenizer

MAX_BYTES = 256 << 10
_MAX_COMPILED = 64


class Grammars:
    """Compiles grammars for one vocabulary; each call returns a constraint for one answer.

    The first call reads the vocabulary, which takes up to a second. Each call raises GrammarError,
    with a message of one line and within seconds, for a grammar that is malformed, too large or not
    supported by llguidance. Thread-safe; compiling releases the GIL.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        children = ChildProcesses()
        self._trials, self._costly_schemas = Trials(children), CostlySchemas(children)
        self._compiled: OrderedDict[bytes, LLMatcher] = OrderedDict()
        self._lock = threading.Lock()

    def json_object(self) -> GrammarConstraint:
        """Returns a constraint that allows any JSON object."""
        return self.json_schema({"type": "object"})

    def json_schema(self, schema: Mapping[str, Any] | bool) -> GrammarConstraint:
        """Returns a constraint that allows JSON of a schema, with properties in its order."""
        schema, plan = unique_items(dict(schema) if isinstance(schema, Mapping) else schema)
        options: RewritingOptions | None = PLAIN
        while options is not None:
            try:
                matcher = self._matcher(self._rewritten(schema, options))
                return (
                    UniqueItemsConstraint(matcher, self._sets, plan)
                    if plan
                    else self._only(matcher)
                )
            except GrammarError as error:
                options, last_error = options.after(str(error)), error
        raise last_error

    def _rewritten(self, schema: Mapping[str, Any] | bool, options: RewritingOptions) -> str:
        try:
            return grammar_of_schema(schema, options, MAX_SCHEMAS_HERE)
        except TooManySchemas:
            assert isinstance(schema, Mapping)
            return self._costly_schemas.grammar(schema, options)

    def gbnf(self, text: str) -> GrammarConstraint:
        """Returns a constraint from a grammar in llama.cpp's GBNF; its start rule is `root`."""
        return self.lark(lark_of_gbnf(_checked(text)))

    def lark(self, text: str) -> GrammarConstraint:
        """Returns a constraint from a Lark grammar of llguidance; its start rule is `start`."""
        return self._constraint(LLMatcher.grammar_from_lark(_checked(text)))

    def regex(self, text: str) -> GrammarConstraint:
        """Returns a constraint that allows the texts which a regular expression matches as a whole.

        Look-around and back references are not supported.
        """
        return self._constraint(LLMatcher.grammar_from_regex(_checked(text)))

    def _constraint(self, grammar: str) -> GrammarConstraint:
        return self._only(self._matcher(grammar))

    def _only(self, matcher: LLMatcher) -> GrammarConstraint:
        return GrammarConstraint(matcher, self._tokenizer.vocab_size)

    def _matcher(self, grammar: str) -> LLMatcher:
        """Returns a matcher in its initial state for one answer; compiled grammars are cached."""
        key = sha256(_checked(grammar).encode()).digest()
        with self._lock:
            matcher = self._compiled.get(key)
            if matcher is not None:
                self._compiled.move_to_end(key)
        if matcher is None:
            matcher = self._compile(grammar)
            with self._lock:
                self._compiled[key] = matcher
                while len(self._compiled) > _MAX_COMPILED:
                    self._compiled.popitem(last=False)
        return matcher.deep_copy()

    def _compile(self, grammar: str) -> LLMatcher:
        self._trials.check(grammar)
        limits = LLParserLimits(verbose_errors=False)
        matcher = LLMatcher(self._vocabulary, grammar, log_level=0, limits=limits)
        if matcher.is_error():
            raise GrammarError(short_message(matcher.get_error()))
        GrammarConstraint(matcher, self._tokenizer.vocab_size).allowed()  # fails if nothing fits
        return matcher

    @cached_property
    def _sets(self) -> TokenSets:
        special = set(self._bytes.special_token_ids)
        tokens = enumerate(self._bytes.tokens)
        return TokenSets([b"" if token in special else data for token, data in tokens])

    @cached_property
    def _bytes(self) -> ByteVocabulary:
        return ByteVocabulary(self._tokenizer)

    @cached_property
    def _vocabulary(self) -> LLTokenizer:
        tokenizer = self._tokenizer
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
