"""StringSet: the strings that a schema allows, and how many of them begin with a prefix."""

from msgspec import Struct, field

from sharpi.constraints.patterns.automaton import Automaton, next_state
from sharpi.constraints.patterns.characters import (
    JSON_CHARACTERS,
    LAST,
    Characters,
    intersection,
    num_of,
)
from sharpi.constraints.patterns.infinite import json_successors, reachable

MANY = 1 << 20  # more items than any answer has
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", '"': '"', "\\": "\\"}
_AFTER_BACKSLASH: Characters = ((9, 10), (13, 13), (34, 34), (92, 92))
_UNESCAPED: Characters = ((32, 33), (35, 91), (93, 126), (160, 0xD7FF), (0xE000, LAST))


class StringSet(Struct, frozen=True):
    """The strings of `low` to `high` characters that `automaton` accepts; None accepts all.

    `is_infinite`: each prefix of a string is known to have infinitely many continuations.
    """

    automaton: Automaton | None = None
    low: int = 0
    high: int | None = None
    is_infinite: bool = False
    _numbers: dict[tuple[int, int], int] = field(default_factory=dict)

    def has_more(self, prefix: bytes, most: int) -> bool:
        """Returns whether more than `most` strings begin with `prefix`.

        `prefix`: JSON text after the opening quote.
        """
        if self.is_infinite:
            return True
        chars, rest = _characters(prefix)
        if chars is None or rest is None:
            return False
        state = 0
        if self.automaton is not None:
            for char in chars:
                state = next_state(self.automaton.transitions[state], ord(char))
        num_read = len(chars)
        if rest == JSON_CHARACTERS:
            return self._num(state, num_read) > most
        return self._num_through(state, num_read, rest) > most

    def _num(self, state: int, num_read: int) -> int:
        """Returns the number of ways to complete a string from `state`, at most MANY.

        `num_read`: the number of characters read so far.
        """
        if self.high is None:
            num_read = min(num_read, self.low)
        if self.automaton is not None and not self._numbers:
            self._numbers[-1, -1] = 0
            for num in range(self.low if self.high is None else self.high, -1, -1):
                for each in range(len(self.automaton.transitions)):
                    self._num(each, num)  # longest first: each count needs the next
        if (known := self._numbers.get((state, num_read))) is not None:
            return known
        if self.high is None and self.automaton is not None and num_read == self.low:
            self._numbers[state, num_read] = MANY if self._is_on_cycle(state) else 0
        found = min(
            MANY, self._ends(state, num_read) + self._num_through(state, num_read, JSON_CHARACTERS)
        )
        self._numbers[state, num_read] = max(found, self._numbers.get((state, num_read), 0))
        return self._numbers[state, num_read]

    def _ends(self, state: int, num_read: int) -> int:
        if num_read < self.low or (self.high is not None and num_read > self.high):
            return 0
        return 1 if self.automaton is None else int(state in self.automaton.accepting)

    def _num_through(self, state: int, num_read: int, chars: Characters) -> int:
        """Returns the number of ways to complete a string, next by one of `chars`; at most MANY."""
        if self.high is not None and num_read >= self.high:
            return 0
        if self.automaton is None:
            left = MANY if self.high is None else self.high - num_read
            needed = max(0, self.low - num_read)
            if left > 3 or needed > 3:
                return MANY
            return min(MANY, num_of(chars) * self._num(0, num_read + 1))
        num = 0
        for after, characters in self.automaton.transitions[state].items():
            size = num_of(intersection(characters, chars))
            if size:
                num += size * self._num(after, num_read + 1)
            if num >= MANY:
                return MANY
        return num

    def _is_on_cycle(self, state: int) -> bool:
        """Returns whether a state can reach itself again, and an accepting state."""
        assert self.automaton is not None
        steps = json_successors(self.automaton)
        found = reachable(steps[state], steps, set(range(len(steps))))
        return state in found and not found.isdisjoint(self.automaton.accepting)


def _characters(prefix: bytes) -> tuple[str | None, Characters | None]:
    """Returns the complete characters of a prefix, and the set of characters that may come next.

    Both are None for an escape that is not the shortest form of its character.
    """
    found: list[str] = []
    rest = prefix
    while rest:
        if rest[:1] == b"\\":
            if len(rest) == 1:
                return "".join(found), _AFTER_BACKSLASH
            char = _ESCAPES.get(chr(rest[1]))
            if char is None:
                return None, None
            found.append(char)
            rest = rest[2:]
            continue
        size = 1 if rest[0] < 0x80 else 2 if rest[0] < 0xE0 else 3 if rest[0] < 0xF0 else 4
        if len(rest) < size:
            return "".join(found), _starting_with(rest, size)
        found.append(rest[:size].decode("utf-8", "replace"))
        rest = rest[size:]
    return "".join(found), JSON_CHARACTERS


def _starting_with(prefix: bytes, size: int) -> Characters:
    """Returns the characters of `size` bytes in UTF-8 whose first bytes are `prefix`."""
    code = prefix[0] & (0xFF >> (size + 1))
    for byte in prefix[1:]:
        code = code << 6 | byte & 0x3F
    bits = 6 * (size - len(prefix))
    span = (((code << bits), (code << bits) + (1 << bits) - 1),)
    least = {2: 0x80, 3: 0x800, 4: 0x10000}[size]
    return intersection(intersection(span, ((least, LAST),)), _UNESCAPED)
