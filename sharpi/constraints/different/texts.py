"""Texts: what the strings of an array may be, and how many of them begin in some way."""

from msgspec import Struct, field

from sharpi.constraints.patterns.automaton import Automaton, next_state
from sharpi.constraints.patterns.characters import LAST, WRITABLE, Characters, common, num_of
from sharpi.constraints.patterns.endless import reached, writable_steps

MANY = 1 << 20  # more than any answer has items
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", '"': '"', "\\": "\\"}
_AFTER_BACKSLASH: Characters = ((9, 10), (13, 13), (34, 34), (92, 92))
_UNESCAPED: Characters = ((32, 33), (35, 91), (93, 126), (160, 0xD7FF), (0xE000, LAST))


class Texts(Struct, frozen=True):
    """The texts that an automaton accepts, of `low` to `high` letters; all without automaton.

    `is_endless`: each beginning is known to go on in endless ways.
    """

    automaton: Automaton | None = None
    low: int = 0
    high: int | None = None
    is_endless: bool = False
    _numbers: dict[tuple[int, int], int] = field(default_factory=dict)

    def has_more(self, begun: bytes, most: int) -> bool:
        """Returns whether more than `most` texts begin with this one, spelled without its quote."""
        if self.is_endless:
            return True
        letters, rest = _letters(begun)
        if letters is None or rest is None:
            return False
        state = 0
        if self.automaton is not None:
            for letter in letters:
                state = next_state(self.automaton.goes[state], ord(letter))
        num_read = len(letters)
        if rest == WRITABLE:
            return self._num(state, num_read) > most
        return self._num_through(state, num_read, rest) > most

    def _num(self, state: int, num_read: int) -> int:
        """Returns the number of texts after some letters, at most MANY."""
        if self.high is None:
            num_read = min(num_read, self.low)
        if self.automaton is not None and not self._numbers:
            self._numbers[-1, -1] = 0
            for num in range(self.low if self.high is None else self.high, -1, -1):
                for each in range(len(self.automaton.goes)):
                    self._num(each, num)  # from the end, as each asks for the next
        if (known := self._numbers.get((state, num_read))) is not None:
            return known
        if self.high is None and self.automaton is not None and num_read == self.low:
            self._numbers[state, num_read] = MANY if self._is_in_circle(state) else 0
        found = min(
            MANY, self._ends(state, num_read) + self._num_through(state, num_read, WRITABLE)
        )
        self._numbers[state, num_read] = max(found, self._numbers.get((state, num_read), 0))
        return self._numbers[state, num_read]

    def _ends(self, state: int, num_read: int) -> int:
        if num_read < self.low or (self.high is not None and num_read > self.high):
            return 0
        return 1 if self.automaton is None else int(state in self.automaton.accepting)

    def _num_through(self, state: int, num_read: int, letters: Characters) -> int:
        """Returns the number of texts of which one of these letters comes next."""
        if self.high is not None and num_read >= self.high:
            return 0
        if self.automaton is None:
            left = MANY if self.high is None else self.high - num_read
            needed = max(0, self.low - num_read)
            if left > 3 or needed > 3:
                return MANY
            return min(MANY, num_of(letters) * self._num(0, num_read + 1))
        num = 0
        for after, characters in self.automaton.goes[state].items():
            size = num_of(common(characters, letters))
            if size:
                num += size * self._num(after, num_read + 1)
            if num >= MANY:
                return MANY
        return num

    def _is_in_circle(self, state: int) -> bool:
        """Returns whether a state leads back to itself and to the end of a text."""
        assert self.automaton is not None
        steps = writable_steps(self.automaton)
        found = reached(steps[state], steps, set(range(len(steps))))
        return state in found and not found.isdisjoint(self.automaton.accepting)


def _letters(begun: bytes) -> tuple[str | None, Characters | None]:
    """Returns the whole letters of a text that has begun, and those that may come next.

    They are None for texts that are spelled in another way.
    """
    found: list[str] = []
    rest = begun
    while rest:
        if rest[:1] == b"\\":
            if len(rest) == 1:
                return "".join(found), _AFTER_BACKSLASH
            letter = _ESCAPES.get(chr(rest[1]))
            if letter is None:
                return None, None
            found.append(letter)
            rest = rest[2:]
            continue
        size = 1 if rest[0] < 0x80 else 2 if rest[0] < 0xE0 else 3 if rest[0] < 0xF0 else 4
        if len(rest) < size:
            return "".join(found), _beginning_with(rest, size)
        found.append(rest[:size].decode("utf-8", "replace"))
        rest = rest[size:]
    return "".join(found), WRITABLE


def _beginning_with(begun: bytes, size: int) -> Characters:
    """Returns the letters of `size` bytes in UTF-8 that begin with some."""
    code = begun[0] & (0xFF >> (size + 1))
    for byte in begun[1:]:
        code = code << 6 | byte & 0x3F
    bits = 6 * (size - len(begun))
    span = (((code << bits), (code << bits) + (1 << bits) - 1),)
    least = {2: 0x80, 3: 0x800, 4: 0x10000}[size]
    return common(common(span, ((least, LAST),)), _UNESCAPED)
