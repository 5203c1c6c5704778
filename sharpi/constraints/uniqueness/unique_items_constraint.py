"""UniqueItemsConstraint follows a grammar in which some arrays must not repeat an item."""

from collections.abc import Iterable

import numpy as np
from llguidance import LLMatcher

from sharpi.constraints.constraint import TokenMask
from sharpi.constraints.grammar_constraint import GrammarConstraint
from sharpi.constraints.uniqueness.json_reader import Reader, ScalarChoice, State
from sharpi.constraints.uniqueness.token_sets import TokenSets, ids_in
from sharpi.constraints.uniqueness.uniqueness_plan import UniquenessPlan
from sharpi.errors import GrammarError


class UniqueItemsConstraint(GrammarConstraint):
    """Forbids tokens that repeat an item of a unique array, or can only lead to repeated items.

    Scalars that tell items apart have only one allowed spelling: no redundant escapes or zeros.
    """

    def __init__(self, matcher: LLMatcher, sets: TokenSets, plan: UniquenessPlan) -> None:
        super().__init__(matcher, len(sets.tokens))
        self._sets, self._reader, self._state = sets, Reader(plan), State()

    def allowed(self) -> TokenMask:
        """Returns the mask of the tokens that continue the grammar and lead to a new item."""
        if self._is_fresh:
            return self._mask
        mask = super().allowed()
        tokens = self._sets.tokens
        for token in self._candidates(mask):
            if self._reader.read(self._state, tokens[token]) is None:
                mask[token // 32] &= ~np.uint32(1 << token % 32)
        return mask  # cached until the next token

    def accept(self, token: int) -> None:
        """Advances the state by one token; raises GrammarError if it was not allowed."""
        super().accept(token)
        if not self._matcher.is_stopped():
            after = self._reader.read(self._state, self._sets.tokens[token])
            if after is None:
                raise GrammarError("the array has this item already")
            self._state = after

    def _candidates(self, mask: TokenMask) -> Iterable[int]:
        """Returns the tokens in `mask` that may repeat an item, and so have to be tried.

        Within a number with limits, first removes tokens of several digits from `mask`, so that few
        remain.
        """
        sets, state = self._sets, self._state
        if not state.is_in_unique_array:
            return ids_in(mask & (sets.arrays_after_quote if state.is_in_string else sets.arrays))
        choice = self._reader.choice(state)
        if not state.is_in_string:
            return self._outside(mask, choice)
        if state.is_escaped:
            return ids_in(mask & (sets.quotes | sets.after_backslash))
        if self._reader.has_few_values(state):
            return ids_in(mask & (sets.quotes | sets.redundant_escapes)) + self._used_value_tokens(
                choice
            )
        matter = sets.run_on | sets.redundant_escapes if choice else sets.run_on
        return ids_in(mask & matter) + self._used_value_tokens(choice)

    def _outside(self, mask: TokenMask, choice: ScalarChoice | None) -> list[int]:
        sets, text = self._sets, self._state.text
        if choice is None:
            return ids_in(mask & sets.structure)
        if not choice[0].numbers:
            rest = mask & ~sets.string_starts
        elif choice[0].has_free_digits(text):
            rest = mask & ~(sets.string_starts | sets.digits)
            rest |= mask & sets.zeros
        else:
            mask &= ~sets.long_digits
            rest = mask & ~sets.string_starts
        return ids_in(rest) + self._used_value_tokens(choice)

    def _used_value_tokens(self, choice: ScalarChoice | None) -> list[int]:
        """Returns the tokens that continue the current scalar towards a used value."""
        text, found = self._state.text, list[int]()
        for each in choice[1] if choice else ():
            if each.startswith(text):
                found += self._sets.writing(each[len(text) :])
        return found
