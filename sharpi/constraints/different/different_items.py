"""DifferentItems follows a grammar in which some arrays must not have the same item twice."""

from collections.abc import Iterable

import numpy as np
from llguidance import LLMatcher

from sharpi.constraints.constraint import TokenMask
from sharpi.constraints.different.leaf import Plan
from sharpi.constraints.different.reader import Choice, Reader, State
from sharpi.constraints.different.token_sets import TokenSets, ids_in
from sharpi.constraints.grammar_constraint import GrammarConstraint
from sharpi.errors import GrammarError


class DifferentItems(GrammarConstraint):
    """Allows no token after which an item of an array is, or has to become, one that is there.

    Where items differ by a text, its letters have one spelling only, and so have numbers.
    """

    def __init__(self, matcher: LLMatcher, sets: TokenSets, plan: Plan) -> None:
        super().__init__(matcher, len(sets.tokens))
        self._sets, self._reader, self._state = sets, Reader(plan), State()

    def allowed(self) -> TokenMask:
        """Returns the tokens that continue the grammar without an item that is there already."""
        if self._is_fresh:
            return self._mask
        mask = super().allowed()
        tokens = self._sets.tokens
        for token in self._candidates(mask):
            if self._reader.read(self._state, tokens[token]) is None:
                mask[token // 32] &= ~np.uint32(1 << token % 32)
        return mask  # the one that is kept until the next token

    def accept(self, token: int) -> None:
        """Advances by a token; raises GrammarError for one that was not allowed."""
        super().accept(token)
        if not self._matcher.is_stopped():
            after = self._reader.read(self._state, self._sets.tokens[token])
            if after is None:
                raise GrammarError("an item of the array is there already")
            self._state = after

    def _candidates(self, mask: TokenMask) -> Iterable[int]:
        """Returns the allowed tokens that might have to be forbidden.

        Forbids tokens of several digits where a number is limited, so that few are to be tried.
        """
        sets, state = self._sets, self._state
        if not state.is_watched:
            return ids_in(mask & (sets.quoted_arrays if state.is_in_text else sets.arrays))
        leaf = self._reader.leaf(state)
        if not state.is_in_text:
            return self._outside(mask, leaf)
        if state.is_escaped:
            return ids_in(mask & (sets.quotes | sets.after_backslash))
        if self._reader.is_counted(state):
            return ids_in(mask & (sets.quotes | sets.second_spellings)) + self._taken(leaf)
        matter = sets.run_on | sets.second_spellings if leaf else sets.run_on
        return ids_in(mask & matter) + self._taken(leaf)

    def _outside(self, mask: TokenMask, leaf: Choice | None) -> list[int]:
        sets, text = self._sets, self._state.text
        if leaf is None:
            return ids_in(mask & sets.structure)
        if not leaf[0].numbers:
            rest = mask & ~sets.text_starts
        elif leaf[0].has_free_digits(text):
            rest = mask & ~(sets.text_starts | sets.digits)
            rest |= mask & sets.zeros
        else:
            mask &= ~sets.long_digits
            rest = mask & ~sets.text_starts
        return ids_in(rest) + self._taken(leaf)

    def _taken(self, leaf: Choice | None) -> list[int]:
        """Returns the tokens that write a taken value, or a part of one."""
        text, found = self._state.text, list[int]()
        for each in leaf[1] if leaf else ():
            if each.startswith(text):
                found += self._sets.writing(each[len(text) :])
        return found
