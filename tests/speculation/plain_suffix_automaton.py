"""PlainSuffixAutomaton: what the compiled automaton has to find, plain and slow.

Blumer et al., "The smallest automaton recognizing the subwords of a text" (1985). A state stands
for the runs that end at the same places. Its link is the state of the longest suffix of these runs
that ends at more places.
"""

ROOT = 0
_NUM_REFRESHED = 4  # states along the links that learn of the newest place


class PlainSuffixAutomaton:
    """The automaton of `text`, which grows by `append`; a negative token separates two texts."""

    def __init__(self) -> None:
        self.text: list[int] = []
        self.next: list[dict[int, int]] = [{}]
        self.link: list[int] = [-1]
        self.length: list[int] = [0]  # of the longest run of the state
        self.end: list[int] = [0]  # the length of the text up to a late place of the state's runs
        self._last = ROOT

    def append(self, token: int) -> None:
        """Appends a token to the text."""
        self.text.append(token)
        current = self._add({}, -1, self.length[self._last] + 1, len(self.text))
        state = self._last
        while state >= 0 and token not in self.next[state]:
            self.next[state][token] = current
            state = self.link[state]
        self.link[current] = ROOT if state < 0 else self._split(state, token)
        self._last = current
        self._refresh(self.link[current])

    def _add(self, following: dict[int, int], link: int, length: int, end: int) -> int:
        self.next.append(following)
        self.link.append(link)
        self.length.append(length)
        self.end.append(end)
        return len(self.link) - 1

    def _split(self, state: int, token: int) -> int:
        """Returns the state whose longest run is that of `state` followed by `token`."""
        after = self.next[state][token]
        if self.length[after] == self.length[state] + 1:
            return after
        clone = self._add(
            dict(self.next[after]), self.link[after], self.length[state] + 1, self.end[after]
        )
        while state >= 0 and self.next[state].get(token) == after:
            self.next[state][token] = clone
            state = self.link[state]
        self.link[after] = clone
        return clone

    def _refresh(self, state: int) -> None:
        """Updates the newest place in a few states along the links, from `state` on."""
        for _ in range(_NUM_REFRESHED):
            if state <= ROOT:
                return
            self.end[state] = len(self.text)
            state = self.link[state]

    def follow(self, state: int, length: int, token: int) -> tuple[int, int]:
        """Returns the state and length of the longest run that ends with `token`.

        `state` and `length` are those of the longest run that ends before the token.
        """
        while token not in self.next[state]:
            if state == ROOT:
                return ROOT, 0
            state = self.link[state]
            length = self.length[state]
        return self.next[state][token], length + 1
