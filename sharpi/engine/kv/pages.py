"""Pages and states of the KV cache: a Pool has the free ones, a CachedPage the tokens of one.

A Cut says how many positions of a prompt each head keeps.

A page has the same number in every layer.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

from sharpi.errors import ContextFullError
from sharpi.ops.cpu.kv_cache import KEEP_WINDOW, PAGE_POSITIONS
from sharpi.ops.recurrent import num_draft_states, num_states
from sharpi.tiers.settings import EngineSettings

State: TypeAlias = int  # a number of the recurrent layers' state, alike in all layers


class Pool:
    """A pool of `size` page or state numbers, counted from `first`.

    `reclaimers` are called in turn when no number is free. Each may free a number whose contents
    are only cached, and returns True if it did.
    """

    def __init__(self, size: int, first: int = 0) -> None:
        self.size = size
        self.reclaimers: list[Callable[[], bool]] = []
        self._free = list(reversed(range(first, first + size)))

    @property
    def num_free(self) -> int:
        return len(self._free)

    def allocate(self) -> int | None:
        """Returns a free page or state number and marks it as used; None when all are in use."""
        if self._free or any(reclaim() for reclaim in self.reclaimers):
            return self._free.pop()
        return None

    def free(self, *numbers: int) -> None:
        self._free.extend(numbers)


class CachedPage:
    """A node in the tree of prefixes: the children of a page share all tokens up to its end.

    `tokens` are the computed ones, from the page's beginning on. `num_users` counts the requests
    that have the page in their table; they also have all pages before it. `states` maps a number of
    the page's tokens to the recurrent layers' state after them. `link` is the digest of all tokens
    before the page, None until it is first needed.
    """

    def __init__(self, page: int, parent: "CachedPage | None") -> None:
        self.page, self.parent = page, parent
        self.index: int = -1 if parent is None else parent.index + 1  # the page's index in its text
        self.tokens: list[int] = []
        self.children: list[CachedPage] = []
        self.num_users = 0
        self.last_use = 0
        self.states: dict[int, State] = {}
        self.link: bytes | None = None

    @property
    def is_full(self) -> bool:
        return len(self.tokens) == PAGE_POSITIONS

    def path(self) -> list["CachedPage"]:
        """Returns the pages of the text up to this one, from its beginning on."""
        path, page = list[CachedPage](), self
        while page.parent is not None:
            path.append(page)
            page = page.parent
        return path[::-1]

    @property
    def is_evictable(self) -> bool:
        """True if the page can be freed: no request uses it, and no page follows it."""
        return self.num_users == 0 and not self.children

    def best_child(self, tokens: Sequence[int]) -> tuple["CachedPage | None", int]:
        """Returns the child that shares the most leading tokens, and how many it shares."""
        best, longest = None, 0
        for child in self.children:
            count = shared_length(child.tokens, tokens)
            if count > longest:
                best, longest = child, count
        return best, longest

    def last_known_state(self, tokens: Sequence[int]) -> tuple[int, "CachedPage | None"]:
        """Finds the child with a state after the most leading `tokens`, their number first."""
        found: tuple[int, CachedPage | None] = 0, None
        for child in self.children:
            if child.states:
                same = shared_length(child.tokens, tokens)
                offset = max((o for o in child.states if o <= same), default=0)
                found = max(found, (offset, child), key=lambda each: each[0])
        return found


def shared_length(a: Sequence[int], b: Sequence[int]) -> int:
    """Counts the leading values that `a` and `b` share."""
    length = min(len(a), len(b))
    if a[:length] == b[:length]:
        return length
    return next(i for i in range(length) if a[i] != b[i])


class StatePool(Pool):
    """A pool of the recurrent layers' states; empty for a model without such layers."""

    def allocate(self) -> State:
        """Returns a free state of undefined contents; raises ContextFullError if all are in use."""
        state = super().allocate()
        if state is None:
            raise ContextFullError(
                f"all {self.size} states of recurrent layers are in use by other sequences; reset"
                " one of them first"
            )
        return state


def state_pools(settings: EngineSettings, *, has_states: bool) -> tuple[StatePool, StatePool]:
    """Returns the sequences' states and snapshots, and the states after each token of a check."""
    if not has_states:
        return StatePool(0), StatePool(0)
    count = num_states(settings.num_parallel)
    num_after = num_draft_states(settings.num_parallel, settings.max_drafts)
    return StatePool(count), StatePool(num_after, first=count)


class Cut(NamedTuple):
    """The cut of a prompt's KV cache: of `length` positions, each head keeps `num_kept`."""

    length: int
    num_kept: int

    @property
    def window(self) -> int:
        """The position of the first token whose queries choose the kept positions."""
        return self.length - KEEP_WINDOW

    @property
    def num_pages(self) -> int:
        return -(-self.num_kept // PAGE_POSITIONS)


def cut_of(num_prompt_tokens: int, num_kept: int) -> Cut | None:
    """Returns a prompt's cut; None if it has at most `num_kept` tokens, or `num_kept` is 0."""
    return Cut(num_prompt_tokens, num_kept) if 0 < num_kept < num_prompt_tokens else None
