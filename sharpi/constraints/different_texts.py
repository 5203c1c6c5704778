"""DifferentTexts follows a grammar in which some arrays must not have the same text twice."""

import json
from collections.abc import Iterable

import numpy as np
from llguidance import LLMatcher

from sharpi.constraints.constraint import TokenMask
from sharpi.constraints.grammar_constraint import GrammarConstraint
from sharpi.constraints.open_json import OpenJson
from sharpi.constraints.quote_tokens import QuoteTokens


class DifferentTexts(GrammarConstraint):
    """Allows no token that ends a text which its array has already.

    The arrays are those of the properties in `names`, or the document itself for an empty name. In
    these texts no letter is written as `\\u....`, so that equal texts are spelled alike.
    """

    def __init__(
        self,
        matcher: LLMatcher,
        quotes: QuoteTokens,
        names: Iterable[str],
    ) -> None:
        super().__init__(matcher, len(quotes.tokens))
        self._quotes = quotes
        self._json = OpenJson(
            {json.dumps(name, ensure_ascii=False)[1:-1].encode() for name in names}
        )

    def allowed(self) -> TokenMask:
        """Returns the tokens that continue the grammar without a text that is there already."""
        if self._is_fresh:
            return self._mask
        mask = super().allowed()
        mask &= ~self._risky()
        for token in self._repeating():
            mask[token // 32] &= ~np.uint32(1 << token % 32)
        return mask  # the one that is kept until the next token

    def accept(self, token: int) -> None:
        """Advances by a token; raises GrammarError for one that was not allowed."""
        super().accept(token)
        if not self._matcher.is_stopped():
            self._json.read(self._quotes.tokens[token])

    def _risky(self) -> TokenMask:
        """Returns the tokens in which a text could begin and end, or go on in another spelling."""
        if self._json.texts is None:
            return self._quotes.arrays
        if self._json.text is None:
            return self._quotes.whole_texts
        after = self._json.is_after_backslash
        return self._quotes.after_backslash if after else self._quotes.more_texts

    def _repeating(self) -> Iterable[int]:
        """Yields the tokens that end the begun text as one that is there already."""
        begun, texts = self._json.text, self._json.texts
        if begun is None or texts is None or self._json.is_after_backslash:
            return
        for text in texts:
            if text.startswith(begun):
                yield from self._quotes.ending(text[len(begun) :])
