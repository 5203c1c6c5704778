"""One page of the KV cache, the tokens whose keys and values are in it, and the pages after it."""

from collections.abc import Sequence

from sharpi.engine.kv.state_pool import State
from sharpi.ops.cpu.kv_cache import PAGE_POSITIONS


class CachedPage:
    """A node of the tree of prefixes: pages that follow the same page share all tokens before.

    `tokens` are those computed, from the page's beginning on. `num_users` counts the requests that
    have the page in their table; they have all pages before it, too. `states` are the recurrent
    layers' states, by the number of the page's tokens that each has seen.
    """

    def __init__(self, page: int, parent: "CachedPage | None") -> None:
        self.page, self.parent = page, parent
        self.index: int = -1 if parent is None else parent.index + 1  # among the pages of a text
        self.tokens: list[int] = []
        self.children: list[CachedPage] = []
        self.num_users = 0
        self.last_use = 0
        self.states: dict[int, State] = {}

    @property
    def is_full(self) -> bool:
        """True if the next token goes to another page."""
        return len(self.tokens) == PAGE_POSITIONS

    def path(self) -> list["CachedPage"]:
        """Returns the pages of the text up to this one, from its beginning on."""
        path, page = list[CachedPage](), self
        while page.parent is not None:
            path.append(page)
            page = page.parent
        return path[::-1]

    @property
    def can_go(self) -> bool:
        """True if no request uses the page and no page follows it."""
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
        """Returns after how many of `tokens`, at most, a child has a state, and that child."""
        found: tuple[int, CachedPage | None] = 0, None
        for child in self.children:
            if child.states:
                same = shared_length(child.tokens, tokens)
                offset = max((o for o in child.states if o <= same), default=0)
                found = max(found, (offset, child), key=lambda each: each[0])
        return found


def shared_length(a: Sequence[int], b: Sequence[int]) -> int:
    """Counts the leading values that are the same."""
    length = min(len(a), len(b))
    if a[:length] == b[:length]:
        return length
    return next(i for i in range(length) if a[i] != b[i])
